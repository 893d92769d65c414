//go:build interop

package interop

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/reader"
)

// condition is a random condition on rows: either parts joined by a word, or a column compared with values.
type condition struct {
	word   string // AND, OR; "" for a comparison
	parts  []*condition
	column int
	op     string // = <> < <= > >= IN BETWEEN, IS NULL, IS NOT NULL
	values []string
}

var comparisons = []string{"=", "=", "<>", "<", "<=", ">", ">=", "IN", "BETWEEN", "IS NULL", "IS NOT NULL"}

// condition makes a condition on the rows. Most of its values occur in them.
func (r valuer) condition(rows *Rows, depth int) *condition {
	if depth > 0 && r.chance(50) {
		return &condition{word: oneOf(r, "AND", "OR"), parts: []*condition{r.condition(rows, depth-1), r.condition(rows, depth-1)}}
	}
	c := &condition{column: r.IntN(len(rows.Columns)), op: oneOf(r, comparisons...)}
	k := rows.Kinds[c.column]
	if len(k.Fields) > 0 {
		c.op = oneOf(r, "IS NULL", "IS NOT NULL")
	}
	if k.Word == "BOOLEAN" && !strings.HasPrefix(c.op, "IS") {
		c.op = "="
	}
	for range map[string]int{"IN": 3, "BETWEEN": 2, "IS NULL": 0, "IS NOT NULL": 0, "=": 1, "<>": 1, "<": 1, "<=": 1, ">": 1, ">=": 1}[c.op] {
		cell := Cell{Null: true}
		if len(rows.Cells) > 0 && r.chance(80) {
			cell = rows.Cells[r.IntN(len(rows.Cells))][c.column]
		}
		if cell.Null || strings.HasSuffix(cell.Text, "Inf") || k.isBeyondLiterals(cell.Text) {
			cell = Cell{Text: "1"}
			if k.Word != "FLOAT" && k.Word != "DOUBLE" {
				cell, _ = k.Cell(r.value(k)) // a value of the suite's own
			}
		}
		c.values = append(c.values, cell.Text)
	}
	return c
}

// isBeyondLiterals reports whether a text is a day in a year that no literal can have: casts of numbers make such ones.
func (k Kind) isBeyondLiterals(text string) bool {
	return (k.Word == "DATE" || strings.HasPrefix(k.Word, "TIMESTAMP")) && longYear.MatchString(text)
}

// sql is the condition in calve's words.
func (c *condition) sql(rows *Rows) string {
	if c.word != "" {
		return fmt.Sprintf("(%s %s %s)", c.parts[0].sql(rows), c.word, c.parts[1].sql(rows))
	}
	name := `"` + strings.ReplaceAll(rows.Columns[c.column].Name, `"`, `""`) + `"`
	var values []string
	for _, v := range c.values {
		values = append(values, literal(rows.Kinds[c.column], v))
	}
	switch c.op {
	case "IS NULL", "IS NOT NULL":
		return name + " " + c.op
	case "IN":
		return fmt.Sprintf("%s IN (%s)", name, strings.Join(values, ", "))
	case "BETWEEN":
		return fmt.Sprintf("%s BETWEEN %s AND %s", name, values[0], values[1])
	}
	return fmt.Sprintf("%s %s %s", name, c.op, values[0])
}

// literal writes a canonical text as a literal.
func literal(k Kind, text string) string {
	switch k.Word {
	case "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "BOOLEAN":
		return text
	case "FLOAT", "DOUBLE":
		if text != "NaN" {
			return text
		}
	case "BINARY", "VARBINARY", "BYTES":
		return "X'" + text + "'"
	case "TIME":
		n, _ := strconv.Atoi(text) // an integer by its form
		return fmt.Sprintf("TIME '%02d:%02d:%02d.%03d'", n/3600000, n/60000%60, n/1000%60, n%1000)
	case "DATE":
		return "DATE '" + text + "'"
	case "TIMESTAMP", "TIMESTAMP_LTZ":
		return "TIMESTAMP '" + strings.Replace(text, "T", " ", 1) + "'"
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// holds reports whether the condition is true for a row; false stands for unknown, too, for there is no NOT.
func (c *condition) holds(rows *Rows, row []Cell) bool {
	switch c.word {
	case "AND":
		return c.parts[0].holds(rows, row) && c.parts[1].holds(rows, row)
	case "OR":
		return c.parts[0].holds(rows, row) || c.parts[1].holds(rows, row)
	}
	cell, k := row[c.column], rows.Kinds[c.column]
	if strings.HasPrefix(c.op, "IS") {
		return cell.Null == (c.op == "IS NULL")
	}
	if cell.Null {
		return false
	}
	order := func(i int) int { return k.compare(cell.Text, c.values[i]) }
	switch c.op {
	case "=":
		return order(0) == 0
	case "<>":
		return order(0) != 0
	case "<":
		return order(0) < 0
	case "<=":
		return order(0) <= 0
	case ">":
		return order(0) > 0
	case ">=":
		return order(0) >= 0
	case "BETWEEN":
		return order(0) >= 0 && order(1) <= 0
	}
	return slices.ContainsFunc(c.values, func(v string) bool { return k.compare(cell.Text, v) == 0 })
}

// compare compares two canonical texts as values of the kind.
func (k Kind) compare(a, b string) int {
	switch k.Word {
	case "TINYINT", "SMALLINT", "INT", "BIGINT", "TIME", "DECIMAL":
		x, _ := new(big.Rat).SetString(a) // numbers by their form
		y, _ := new(big.Rat).SetString(b)
		return x.Cmp(y)
	case "FLOAT", "DOUBLE":
		x, _ := strconv.ParseFloat(a, 64)
		y, _ := strconv.ParseFloat(b, 64)
		switch {
		case x != x || y != y: // NaN is greater than all other numbers
			return strings.Compare(map[bool]string{true: "1"}[x != x], map[bool]string{true: "1"}[y != y])
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	return strings.Compare(a, b)
}

// compareWhere scans with a condition that is pushed down, and filters the rows that both readers agreed on.
func (p *player) compareWhere(ctx context.Context, r valuer, snapshot int64, rows *Rows) *disagreement {
	c := r.condition(rows, 2)
	text := c.sql(rows)
	got, err := p.calve.scan(ctx, reader.Query{Snapshot: snapshot, Where: text}, rows.Columns)
	if err != nil {
		return failed("calve scans where", fmt.Errorf("%s: %w", text, err))
	}
	want := &Rows{Columns: rows.Columns, Kinds: rows.Kinds}
	for _, row := range rows.Cells {
		if c.holds(rows, row) {
			want.Cells = append(want.Cells, row)
		}
	}
	if err := want.Compare(got); err != nil {
		return &disagreement{What: "rows of a condition", Detail: fmt.Errorf("where %s: %w", text, err)}
	}
	return nil
}
