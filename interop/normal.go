//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Column is one column of a case: its name and its type in Paimon's SQL words, e.g. "DECIMAL(38, 10) NOT NULL".
type Column struct{ Name, Type string }

// Kind is a column's type taken apart.
type Kind struct {
	Word             string // BOOLEAN, INT, DECIMAL, … TIMESTAMP_LTZ
	Precision, Scale int    // DECIMAL, TIMESTAMP
	NotNull          bool
	Fields           []KindField // ARRAY, MULTISET: the element; MAP: key and value; ROW: its fields
	text             string      // of a primitive type, without NOT NULL
	was              []string    // in histories: the texts of the types that it had before
}

var typeForm = regexp.MustCompile(`^([A-Z_]+)(?:\((\d+)(?:, *(\d+))?\))?$`)

// ParseKind reads a type in Paimon's SQL words.
func ParseKind(s string) (Kind, error) {
	if strings.Contains(s, "<") {
		k, rest, err := parseNested(s)
		if err == nil && rest != "" {
			err = fmt.Errorf("type %q is not in a form that the suite knows", s)
		}
		return k, err
	}
	text, notNull := strings.CutSuffix(s, " NOT NULL")
	words := text
	local := strings.Contains(text, " WITH LOCAL TIME ZONE")
	text = strings.Replace(text, " WITH LOCAL TIME ZONE", "", 1)
	m := typeForm.FindStringSubmatch(text)
	if m == nil {
		return Kind{}, fmt.Errorf("type %q is not in a form that the suite knows", s)
	}
	k := Kind{Word: m[1], NotNull: notNull, text: words}
	if local {
		k.Word = "TIMESTAMP_LTZ"
	}
	k.Precision, _ = strconv.Atoi(m[2]) // digits or empty by the pattern
	k.Scale, _ = strconv.Atoi(m[3])
	if k.Word == "VARIANT" { // its two parts as they are
		part := Kind{Word: "BYTES", NotNull: true, text: "BYTES"}
		k.Fields = []KindField{{"value", part}, {"metadata", part}}
	}
	return k, nil
}

// Cell is one value in the suite's canonical text; the zero Cell is the empty string, not null.
type Cell struct {
	Null bool
	Text string
}

// Rows is a set of rows with their columns. Once sorted it may be shared.
type Rows struct {
	Columns []Column
	Kinds   []Kind
	Cells   [][]Cell
	sorted  bool
}

// NewRows makes an empty set of rows.
func NewRows(columns []Column) (*Rows, error) {
	r := &Rows{Columns: columns, Kinds: make([]Kind, len(columns))}
	for i, c := range columns {
		k, err := ParseKind(c.Type)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		r.Kinds[i] = k
	}
	return r, nil
}

// Add appends a row given as decoded JSON (numbers as json.Number).
func (r *Rows) Add(row map[string]any) error {
	cells := make([]Cell, len(r.Columns))
	for i, c := range r.Columns {
		v, ok := row[c.Name]
		if !ok {
			return fmt.Errorf("a row has no column %q: %s", c.Name, clip(fmt.Sprint(row)))
		}
		cell, err := r.Kinds[i].Cell(v)
		if err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
		cells[i] = cell
	}
	if len(row) > len(r.Columns) {
		return fmt.Errorf("a row has %d columns, expected %d: %s", len(row), len(r.Columns), clip(fmt.Sprint(row)))
	}
	r.Cells = append(r.Cells, cells)
	r.sorted = false
	return nil
}

// ReadRows reads JSON lines in the normal form.
func ReadRows(in io.Reader, columns []Column) (*Rows, error) {
	r, err := NewRows(columns)
	if err != nil {
		return nil, err
	}
	err = EachLine(in, func(line []byte) error {
		row, err := decodeObject(line)
		if err != nil {
			return err
		}
		return r.Add(row)
	})
	return r, err
}

// ReadRowsFile reads a file of JSON lines in the normal form.
func ReadRowsFile(path string, columns []Column) (*Rows, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := ReadRows(f, columns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// EachLine calls f for each line of in that is not empty; lines may be several MiB long.
func EachLine(in io.Reader, f func(line []byte) error) error {
	b := bufio.NewReaderSize(in, 1<<20)
	for n := 1; ; n++ {
		line, err := b.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := f(line); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func decodeObject(line []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var row map[string]any
	if err := d.Decode(&row); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w: %s", err, clip(string(line)))
	}
	return row, nil
}

// Cell gives the canonical text of a decoded JSON value of this kind.
func (k Kind) Cell(v any) (Cell, error) {
	if v == nil {
		return Cell{Null: true}, nil
	}
	if len(k.Fields) > 0 {
		text, err := k.nested(v)
		return Cell{Text: text}, err
	}
	var text string
	switch x := v.(type) {
	case bool:
		text = strconv.FormatBool(x)
	case json.Number:
		text = x.String()
	case string:
		text = x
	case int:
		text = strconv.Itoa(x)
	case int64:
		text = strconv.FormatInt(x, 10)
	case float64:
		text = strconv.FormatFloat(x, 'g', -1, 64)
	default:
		return Cell{}, fmt.Errorf("a value of JSON type %T", v)
	}
	out, err := k.canonical(text)
	if err != nil {
		return Cell{}, fmt.Errorf("%s value %q: %w", k.Word, clip(text), err)
	}
	return Cell{Text: out}, nil
}

func (k Kind) canonical(text string) (string, error) {
	switch k.Word {
	case "BOOLEAN":
		b, err := strconv.ParseBool(text)
		return strconv.FormatBool(b), err
	case "TINYINT", "SMALLINT", "INT", "BIGINT", "TIME":
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return "", fmt.Errorf("not an integer")
		}
		return n.String(), nil
	case "FLOAT", "DOUBLE":
		return canonicalFloat(text, k.Word == "FLOAT")
	case "DECIMAL":
		n, ok := new(big.Rat).SetString(text)
		if !ok {
			return "", fmt.Errorf("not a decimal number")
		}
		out := n.FloatString(k.Scale)
		if back, _ := new(big.Rat).SetString(out); back.Cmp(n) != 0 {
			return "", fmt.Errorf("has more than %d digits after the point", k.Scale)
		}
		return out, nil
	case "BINARY", "VARBINARY", "BYTES":
		return strings.ToLower(text), nil
	case "DATE":
		day, _, _ := strings.Cut(text, "T")
		t, err := parseMoment(time.DateOnly, day)
		return t.Format(time.DateOnly), err
	case "TIMESTAMP", "TIMESTAMP_LTZ":
		return canonicalMoment(text)
	case "CHAR", "VARCHAR", "STRING":
		return text, nil
	}
	return "", fmt.Errorf("the suite has no normal form for %s", k.Word)
}

func canonicalFloat(text string, single bool) (string, error) {
	bits := 64
	if single {
		bits = 32
	}
	f, err := strconv.ParseFloat(text, bits)
	if err != nil {
		return "", err
	}
	return strconv.FormatFloat(f, 'g', -1, bits), nil
}

// canonicalMoment reads "2001-01-01 00:00:00.5", with T or space, zero to nine fraction digits, and a zone
// that is UTC if it is there.
func canonicalMoment(text string) (string, error) {
	text = strings.Replace(text, " ", "T", 1)
	for _, zone := range []string{" UTC", "Z", "+00:00", "+00"} {
		text = strings.TrimSuffix(text, zone)
	}
	t, err := parseMoment("2006-01-02T15:04:05.999999999", text)
	if err != nil { // seconds may be left out when they are zero
		t, err = parseMoment("2006-01-02T15:04", text)
	}
	return t.Format("2006-01-02T15:04:05.000000000"), err
}

var longYear = regexp.MustCompile(`^(-\d+|\+?\d{5,})(-.*)$`)

// parseMoment is time.Parse for all years: those beyond 9999 may have a plus, those before 0 have a minus.
func parseMoment(layout, text string) (time.Time, error) {
	m := longYear.FindStringSubmatch(text)
	if m == nil {
		return time.Parse(layout, text)
	}
	year, err := strconv.Atoi(m[1])
	if err != nil {
		return time.Time{}, err
	}
	const cycle = 400 // years, after which the calendar repeats itself
	like := (year%cycle + cycle) % cycle
	t, err := time.Parse(layout, fmt.Sprintf("%04d%s", 2000+like, m[2]))
	return t.AddDate(year-2000-like, 0, 0), err
}

// Sort orders the rows by their text.
func (r *Rows) Sort() {
	if !r.sorted {
		slices.SortFunc(r.Cells, compareLines)
		r.sorted = true
	}
}

// Compare returns an error that shows the first differences if the row sets (with repetitions) differ.
func (r *Rows) Compare(got *Rows) error {
	r.Sort()
	got.Sort()
	var missing, extra []string
	i, j := 0, 0
	for i < len(r.Cells) || j < len(got.Cells) {
		c := 0
		switch {
		case i == len(r.Cells):
			c = 1
		case j == len(got.Cells):
			c = -1
		default:
			c = compareLines(r.Cells[i], got.Cells[j])
		}
		if c <= 0 {
			if c < 0 {
				missing = append(missing, r.line(i))
			}
			i++
		}
		if c >= 0 {
			if c > 0 {
				extra = append(extra, got.line(j))
			}
			j++
		}
	}
	if len(missing)+len(extra) == 0 {
		return nil
	}
	return fmt.Errorf("%d rows, expected %d; %d missing:%s; %d not expected:%s",
		len(got.Cells), len(r.Cells), len(missing), few(missing), len(extra), few(extra))
}

func compareLines(a, b []Cell) int {
	for i := range a {
		if a[i].Null != b[i].Null {
			if a[i].Null {
				return -1
			}
			return 1
		}
		if c := strings.Compare(a[i].Text, b[i].Text); c != 0 {
			return c
		}
	}
	return 0
}

func (r *Rows) line(i int) string {
	var b strings.Builder
	for j, c := range r.Cells[i] {
		if j > 0 {
			b.WriteString(" ")
		}
		text := strconv.Quote(clip(c.Text))
		if c.Null {
			text = "null"
		}
		fmt.Fprintf(&b, "%s=%s", r.Columns[j].Name, text)
	}
	return b.String()
}

// few shows the first three of a list of lines.
func few(lines []string) string {
	const most = 3
	var b strings.Builder
	for i, l := range lines {
		if i == most {
			b.WriteString("\n    …")
			break
		}
		b.WriteString("\n    " + l)
	}
	return b.String()
}

// clip shortens a text for a message.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}
