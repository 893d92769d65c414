package datafile

import (
	"fmt"
	"testing"

	"github.com/calve-io/calve/schema"
)

// TestRoundTrip writes random rows of all types in many shapes and reads them back.
func TestRoundTrip(t *testing.T) {
	s := allTypes(t)
	for i, c := range []struct {
		name    string
		rows    []int
		shape   valueShape
		cfg     WriterConfig
		batch   int
		ahead   int
		columns []int
	}{
		{name: "one row", rows: []int{1}, shape: valueShape{nulls: 0.3}},
		{name: "no nulls", rows: []int{1500}, shape: valueShape{}},
		{name: "some nulls", rows: []int{1500, 1, 300}, shape: valueShape{nulls: 0.2}, batch: 1000},
		{name: "nearly all null", rows: []int{1200}, shape: valueShape{nulls: 0.99}, batch: 77},
		{name: "all null", rows: []int{500}, shape: valueShape{nulls: 1}},
		{name: "dictionaries", rows: []int{1500, 1500}, shape: valueShape{nulls: 0.1, repeats: 20}, batch: 1024},
		{name: "one value", rows: []int{900}, shape: valueShape{repeats: 1}},
		{name: "row groups", rows: []int{2500, 2500}, shape: valueShape{nulls: 0.1}, cfg: WriterConfig{RowGroupRows: 999}, batch: 1024},
		{name: "thin snappy", rows: []int{900}, shape: valueShape{nulls: 0.5}, cfg: WriterConfig{Thin: true, Compression: "snappy"}, ahead: 100},
		{name: "lz4", rows: []int{900}, shape: valueShape{nulls: 0.1}, cfg: WriterConfig{Compression: "lz4"}},
		{name: "uncompressed", rows: []int{900}, shape: valueShape{nulls: 0.1, repeats: 50}, cfg: WriterConfig{Compression: "none"}, ahead: 1},
		{name: "parallel", rows: []int{1500, 1500}, shape: valueShape{nulls: 0.1}, cfg: WriterConfig{Parallel: 3}},
		{name: "projection", rows: []int{1500}, shape: valueShape{nulls: 0.1}, columns: []int{20, 0, 5, 28}},
		{name: "no columns", rows: []int{1500}, shape: valueShape{}, columns: []int{}, batch: 400},
		{name: "empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRand(uint64(i))
			cfg := c.cfg
			cfg.Schema, cfg.Keyed = s, true
			var in []Rows
			first := 0
			for _, n := range c.rows {
				in = append(in, randomRows(r, s, first, n, c.shape))
				first += n
			}
			b, info := writeFile(t, cfg, in...)
			if info.Rows != int64(first) {
				t.Fatalf("Info has %d rows, want %d", info.Rows, first)
			}
			cols := c.columns
			if cols == nil {
				cols = allColumns(s)
			}
			got, err := readFile(b, s, ReadSpec{Schema: s, Cols: cols, KeyValue: true, BatchRows: c.batch, ReadAhead: c.ahead})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range got {
				if c.batch > 0 && g.N > c.batch {
					t.Fatalf("batch of %d rows, at most %d wanted", g.N, c.batch)
				}
			}
			want := concat(t, in, len(s.Fields))
			if want.N > 0 {
				want = pickColumns(want, cols)
			}
			sameRows(t, s, cols[:min(len(cols), len(want.Cols))], concat(t, got, len(cols)), want)
		})
	}
}

func pickColumns(r Rows, cols []int) Rows {
	out := r
	out.Cols = nil
	for _, c := range cols {
		out.Cols = append(out.Cols, r.Cols[c])
	}
	return out
}

// TestSlices writes arrays that are slices of others, whose bitmaps and offsets do not begin at zero.
func TestSlices(t *testing.T) {
	s := allTypes(t)
	for seed := range uint64(4) {
		r := newRand(seed)
		whole := randomRows(r, s, 0, 900, valueShape{nulls: 0.3, repeats: int(seed) * 7})
		_, tail := split(whole, 3+r.IntN(30))
		mid, _ := split(tail, 601)
		b, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, RowGroupRows: 100}, mid)
		got, err := readFile(b, s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: 37})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), concat(t, []Rows{mid}, len(s.Fields)))
	}
}

// TestAppendFile has no system columns, and no key.
func TestAppendFile(t *testing.T) {
	s := allTypes(t)
	s.PrimaryKeys = nil
	r := newRand(1)
	in := randomRows(r, s, 0, 1000, valueShape{nulls: 0.1})
	in.Seq, in.Kinds = nil, nil
	b, info := writeFile(t, WriterConfig{Schema: s}, in)
	if fmt.Sprintf("%x", info.MinKey) != "000000000000000000000000" || len(info.Key) != 0 {
		t.Fatalf("append file has the key %x and %d key statistics", info.MinKey, len(info.Key))
	}
	got, err := readFile(b, s, ReadSpec{Schema: s, Cols: allColumns(s)})
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), in)
	if _, err := readFile(b, s, ReadSpec{Schema: s, KeyValue: true}); err == nil {
		t.Fatal("an append file was read as a key-value file")
	}
}

// TestLongStrings has values of a mebibyte: pages and batches must stay small.
func TestLongStrings(t *testing.T) {
	s := &schema.Schema{Fields: []schema.Field{
		{ID: 0, Name: "a", Type: mustType(t, "STRING")}, {ID: 1, Name: "b", Type: mustType(t, "INT")},
		{ID: 2, Name: "c", Type: mustType(t, "BYTES")},
	}}
	r := newRand(7)
	in := Rows{N: 40}
	in.Cols = append(in.Cols, randomColumn(r, s.Fields[0].Type, in.N, valueShape{nulls: 0.2, repeats: 9, long: 1 << 20}),
		randomColumn(r, s.Fields[1].Type, in.N, valueShape{}),
		randomColumn(r, s.Fields[2].Type, in.N, valueShape{nulls: 0.2, long: 1 << 20}))
	// Make sure that there are long values whatever the seed gives.
	big := Rows{N: 70}
	big.Cols = append(big.Cols, longColumn(s.Fields[0].Type, 70, 1<<20), randomColumn(r, s.Fields[1].Type, 70, valueShape{}), longColumn(s.Fields[2].Type, 70, 3<<19))
	b, _ := writeFile(t, WriterConfig{Schema: s}, in, big)
	got, err := readFile(b, s, ReadSpec{Schema: s, Cols: []int{0, 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 2 {
		t.Fatalf("%d batches: 180 MB of text should come in several", len(got))
	}
	sameRows(t, s, []int{0, 1, 2}, concat(t, got, 3), concat(t, []Rows{in, big}, 3))
}
