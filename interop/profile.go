//go:build interop

package interop

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxSummed is the widest decimal that is summed: Trino fails and Spark gives null when a sum passes 38 digits.
const maxSummed = 28

// profileColumn tells a reader what to compute of a column: always the count of values that are not null,
// and by choice the bounds and the sum. The JSON names are those of the readers' requests.
type profileColumn struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Bounds bool   `json:"bounds"`
	Sum    bool   `json:"sum"`
	Scale  int    `json:"scale"`

	Precision int `json:"precision"`
}

// profileColumns says what can be computed of these rows with one meaning in every engine: NaN has no place
// in an order that all share, and sums of binary floating point depend on the order of the rows.
func profileColumns(r *Rows) []profileColumn {
	out := make([]profileColumn, len(r.Columns))
	for i, c := range r.Columns {
		k := r.Kinds[i]
		p := profileColumn{Name: c.Name, Kind: k.Word, Bounds: true, Scale: k.Scale, Precision: k.Precision}
		switch k.Word {
		case "TINYINT", "SMALLINT", "INT", "BIGINT":
			p.Sum = true
		case "DECIMAL":
			p.Sum = k.Precision <= maxSummed
		case "ARRAY", "MAP", "MULTISET", "ROW":
			p.Bounds = false
		case "FLOAT", "DOUBLE":
			for _, row := range r.Cells {
				p.Bounds = p.Bounds && row[i].Text != "NaN"
			}
		}
		out[i] = p
	}
	return out
}

// Profile is the row count and, per column, "NAME#count", "NAME#min", "NAME#max" and "NAME#sum".
type Profile map[string]Cell

// NewProfile computes the profile of rows by the suite's own means.
func NewProfile(r *Rows) Profile {
	p := Profile{"rows": Cell{Text: strconv.Itoa(len(r.Cells))}}
	for i, c := range profileColumns(r) {
		p.add(c, r.Kinds[i], r, i)
	}
	return p
}

func (p Profile) add(c profileColumn, k Kind, r *Rows, i int) {
	least, greatest := Cell{Null: true}, Cell{Null: true}
	sum, n := new(big.Rat), 0
	for _, row := range r.Cells {
		cell := row[i]
		if cell.Null {
			continue
		}
		n++
		if least.Null || k.order(cell.Text, least.Text) < 0 {
			least = cell
		}
		if greatest.Null || k.order(cell.Text, greatest.Text) > 0 {
			greatest = cell
		}
		if c.Sum {
			v, _ := new(big.Rat).SetString(cell.Text) // canonical by construction
			sum.Add(sum, v)
		}
	}
	p[c.Name+"#count"] = Cell{Text: strconv.Itoa(n)}
	if c.Bounds {
		p[c.Name+"#min"], p[c.Name+"#max"] = k.plainZero(least), k.plainZero(greatest)
	}
	if c.Sum {
		p[c.Name+"#sum"] = Cell{Null: n == 0}
		if n > 0 {
			p[c.Name+"#sum"] = Cell{Text: sum.FloatString(c.Scale)}
		}
	}
}

// ReadProfile reads the one object that a reader wrote.
func ReadProfile(object map[string]any, r *Rows) (Profile, error) {
	p := Profile{}
	count := Kind{Word: "BIGINT"}
	for name, v := range object {
		column, part, _ := strings.Cut(name, "#")
		k := count
		if i := r.index(column); i >= 0 && part != "count" {
			k = r.Kinds[i]
			if part == "sum" {
				k = Kind{Word: "DECIMAL", Precision: 38, Scale: k.Scale}
			}
		}
		cell, err := k.Cell(v)
		if err != nil {
			return nil, fmt.Errorf("profile value %s: %w", name, err)
		}
		p[name] = k.plainZero(cell)
	}
	return p, nil
}

// Compare returns an error that lists what differs.
func (p Profile) Compare(got Profile) error {
	var bad []string
	for name, want := range p {
		have, ok := got[name]
		if !ok || have != want {
			bad = append(bad, fmt.Sprintf("%s is %s, expected %s", name, have.show(ok), want.show(true)))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%d values of the profile differ:%s", len(bad), few(bad))
}

func (c Cell) show(there bool) string {
	switch {
	case !there:
		return "absent"
	case c.Null:
		return "null"
	}
	return strconv.Quote(clip(c.Text))
}

func (r *Rows) index(name string) int {
	for i, c := range r.Columns {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// plainZero drops the sign of a floating-point zero: engines differ in which of the two is less.
func (k Kind) plainZero(c Cell) Cell {
	if (k.Word == "FLOAT" || k.Word == "DOUBLE") && c.Text == "-0" {
		c.Text = "0"
	}
	return c
}

// order compares two canonical texts as values of this kind.
func (k Kind) order(a, b string) int {
	switch k.Word {
	case "TINYINT", "SMALLINT", "INT", "BIGINT", "TIME", "DECIMAL":
		x, _ := new(big.Rat).SetString(a) // canonical by construction
		y, _ := new(big.Rat).SetString(b)
		return x.Cmp(y)
	case "FLOAT", "DOUBLE":
		x, _ := strconv.ParseFloat(a, 64)
		y, _ := strconv.ParseFloat(b, 64)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	return strings.Compare(a, b) // years have four digits, so times are in the order of their text
}
