package decode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// shapes has a column of every shape with two different values of it.
var shapes = []struct{ col, a, b string }{
	{"c0 BOOLEAN", "true", "false"},
	{"c1 TINYINT", "1", "2"},
	{"c2 SMALLINT", "1", "2"},
	{"c3 INT", "1", "2"},
	{"c4 BIGINT", "1", "2"},
	{"c5 FLOAT", "1.5", "2.5"},
	{"c6 DOUBLE", "1.5", "2.5"},
	{"c7 DECIMAL(30,2)", "1.50", "2.5"},
	{"c8 STRING", `"x"`, `"y"`},
	{"c9 BYTES", `"AAEC"`, `"AAED"`},
	{"c10 DATE", `"2001-01-01"`, "0"},
	{"c11 TIME(3)", `"01:00"`, "0"},
	{"c12 TIMESTAMP(6)", `"2001-01-01"`, "0"},
}

// shapeRow writes a row with the first values, but the second in the column at.
func shapeRow(at int) string {
	var f []string
	for i, s := range shapes {
		v := s.a
		if i == at {
			v = s.b
		}
		f = append(f, fmt.Sprintf(`"c%d":%s`, i, v))
	}
	return "{" + strings.Join(f, ",") + "}"
}

func shapeColumns(suffix string) (cols []string) {
	for _, s := range shapes {
		cols = append(cols, s.col+suffix)
	}
	return cols
}

// TestMovedKeys changes a key of every type in an update.
func TestMovedKeys(t *testing.T) {
	for i := range shapes {
		d := newTestDecoder(t, Config{Schema: schematest.Table(t, fmt.Sprintf("c%d", i), shapeColumns("")...), Format: Debezium})
		for j := range shapes {
			text := fmt.Sprintf(`{"before":%s,"after":%s,"op":"u"}`, shapeRow(-1), shapeRow(j))
			if err := d.Decode(&Record{Value: []byte(text)}); err != nil {
				t.Fatal(err)
			}
			rows := rowsOf(d)
			want := newTestDecoder(t, Config{Schema: d.cfg.Schema})
			for _, row := range []string{`{"op":"u",` + shapeRow(j)[1:], `{"op":"d",` + shapeRow(-1)[1:]}[:1+b2i(i == j)] {
				if err := want.Decode(&Record{Value: []byte(row)}); err != nil {
					t.Fatal(err)
				}
			}
			if w := rowsOf(want); fmt.Sprint(rows) != fmt.Sprint(w) {
				t.Errorf("key c%d, changed c%d:\n got %v\nwant %v", i, j, rows, w)
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestDeleteFillsNotNull: a delete by key has zero values in the other columns that cannot be null.
func TestDeleteFillsNotNull(t *testing.T) {
	s := schematest.Table(t, "id", append([]string{"id INT"}, shapeColumns(" NOT NULL")...)...)
	d := newTestDecoder(t, Config{Schema: s})
	for _, text := range []string{`{"id":1,` + shapeRow(-1)[1:], `{"id":1,"op":"d"}`, `{"id":1,` + strings.ReplaceAll(shapeRow(2)[1:], `"x"`, `"xyz"`), `{"id":1,"op":"d","c3":null,"c8":"kept"}`} {
		if err := d.Decode(&Record{Value: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	b := d.Take()
	for c := range int(b.Rec.NumCols()) {
		if n := b.Rec.Column(c).NullN(); n > 0 {
			t.Errorf("column %s has %d nulls", b.Rec.ColumnName(c), n)
		}
	}
	for row, want := range map[int]string{1: "[1 false 0 0 0 0 0 0 {0 0}  [] 0 0 0]", 3: "[1 false 0 0 0 0 0 0 {0 0} kept [] 0 0 0]"} {
		var cells []any
		for c := range int(b.Rec.NumCols()) {
			cells = append(cells, schema.Cell(b.Rec.Column(c), row))
		}
		if got := fmt.Sprint(cells); got != want {
			t.Errorf("row %d\n got %s\nwant %s", row, got, want)
		}
	}
}

// TestDefaultsOfAllTypes: each type reads its default from text.
func TestDefaultsOfAllTypes(t *testing.T) {
	s := schematest.Table(t, "", append(shapeColumns(" NOT NULL"), "z INT")...)
	for i, v := range []string{"true", "-1", "2", "3", "4", "0.5", "NaN", "1.25", "text", "bytes", "2001-01-01", "01:00:00", "2001-01-01 01:00:00"} {
		s.Fields[i].Default = &v
	}
	checkDecode(t, Config{Schema: s}, "", `{"z":5}`, `[[+I true -1 2 3 4 0.5 NaN {125 0} text [98 121 116 101 115] 11323 3600000 978310800000000 5]]`)
	bad := "maybe"
	for i := range shapes {
		if c := s.Fields[i]; c.Name == "c8" || c.Name == "c9" {
			continue
		}
		old := s.Fields[i].Default
		s.Fields[i].Default = &bad
		if _, err := New(Config{Schema: s}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", s.Fields[i].Name)) {
			t.Errorf("default %q of %s: %v", bad, shapes[i].col, err)
		}
		s.Fields[i].Default = old
	}
}
