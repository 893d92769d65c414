package datafile

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"github.com/calve-io/calve/schema"
)

type bloomRow struct {
	K int64  `parquet:"k"`
	I int32  `parquet:"i"`
	S string `parquet:"s"`
	D int32  `parquet:"d,date"`
	N int64  `parquet:"n"`
}

func bloomSchema(t *testing.T, columns string) *schema.Schema {
	t.Helper()
	cols, err := schema.ParseColumns(columns)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBloom: filters that parquet-go wrote have all values of the file, of several row groups, and few others; whatever is done to
// them is told or makes no difference but to what they say.
func TestBloom(t *testing.T) {
	var buf bytes.Buffer
	w := pq.NewGenericWriter[bloomRow](&buf, pq.MaxRowsPerRowGroup(700), pq.BloomFilters(
		pq.SplitBlockFilter(12, "k"), pq.SplitBlockFilter(12, "i"), pq.SplitBlockFilter(12, "s"), pq.SplitBlockFilter(12, "d")))
	const rows = 2000
	value := func(i int) bloomRow {
		return bloomRow{int64(i)*1_000_003 - 500, int32(i*7919) - 100, fmt.Sprint("text ", i), int32(i), int64(i)}
	}
	for i := range rows {
		if _, err := w.Write([]bloomRow{value(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := bloomSchema(t, "k BIGINT, i INT, s STRING, d DATE, n BIGINT")
	open := func(b []byte) (*File, error) { return OpenFile(openBytes(b), "f.parquet", s, 0, 0) }
	f, err := open(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	cells := func(r bloomRow) []any { return []any{r.K, r.I, r.S, r.D} }
	var all []*Bloom
	for c := range 4 {
		b, err := f.Bloom(s, c, 1<<20)
		if err != nil || b == nil || len(b.groups) != 3 {
			t.Fatal(c, b, err)
		}
		if few, err := f.Bloom(s, c, b.Size()-1); few != nil || err != nil {
			t.Errorf("column %d: filters of more bytes than are wanted: %v", c, err)
		}
		all = append(all, b)
	}
	if b, err := f.Bloom(s, 4, 1<<20); b != nil || err != nil {
		t.Errorf("a filter of a column without one: %v", err)
	}
	wrong := make([]int, 4)
	for i := range rows {
		for c, cell := range cells(value(i)) {
			if !all[c].May(cell) {
				t.Fatalf("column %d: %v is not there", c, cell)
			}
		}
		for c, cell := range cells(value(i + 100_000)) {
			if all[c].May(cell) {
				wrong[c]++
			}
		}
	}
	for c, n := range wrong {
		if n > rows/10 {
			t.Errorf("column %d: %d of %d other values pass", c, n, rows)
		}
	}
	if !all[1].May(int64(1)<<40) || !all[0].May(1.5) {
		t.Error("values that the column cannot have are judged")
	}
	wide := bloomSchema(t, "k DOUBLE, i BIGINT, s BYTES, d INT, n BIGINT")
	for c, want := range []bool{false, true, false, false} { // those whose values are the same numbers
		if b, err := f.Bloom(wide, c, 1<<20); (b != nil) != want || err != nil || want && !b.May(int64(value(5).I)) {
			t.Errorf("column %d with another type: %v %v", c, b != nil, err)
		}
	}
	damageBlooms(t, buf.Bytes(), open, s)
}

// damageBlooms alters each byte of a file's heads of filters, and their places.
func damageBlooms(t *testing.T, whole []byte, open func([]byte) (*File, error), s *schema.Schema) {
	t.Helper()
	f, err := open(whole)
	if err != nil {
		t.Fatal(err)
	}
	at := f.foot.groups[0].chunks[0].bloom
	for i := at; i < at+20; i++ {
		for _, x := range []byte{1, 0x7f, 0xff} {
			b := bytes.Clone(whole)
			b[i] ^= x
			g, err := open(b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Bloom(s, 0, 1<<20); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d: %v", i-at, err)
			}
		}
	}
	for _, place := range []int64{-1, 1, int64(len(whole)), 1 << 60, int64(len(whole)) - 1, int64(len(whole)) - 40} {
		f.foot.groups[0].chunks[0].bloom = place
		if b, err := f.Bloom(s, 0, 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Errorf("at %d: %v, %v", place, b, err)
		}
	}
}
