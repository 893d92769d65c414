package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// TestSoak: a short one ends well, with everything compared at least once.
func TestSoak(t *testing.T) {
	set, err := parseFlags([]string{"-time", "4s", "-commit", "100ms", "-report", "1s", "-rate", "2000", "-keys", "3000", "-seed", "11", "-dir", t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = set.run(t.Context(), &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	last := out.String()[strings.LastIndex(out.String(), "soak: "):]
	if strings.Contains(last, "scans=0 ") || strings.Contains(last, "tailed=0 ") || strings.Contains(last, "folded=0 ") || !strings.Contains(last, "seed=11 rows=8000 ") || !strings.Contains(last, "grew=nothing") {
		t.Error(last)
	}
}

// TestFinds: what a soak compares with tells a wrong cell, a missing row and a row too many.
func TestFinds(t *testing.T) {
	cols, err := schema.ParseColumns(columns)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}})
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	row := func(k, v int64, text string, a decimal128.Num) {
		b.Field(0).(*array.Int64Builder).Append(k)
		b.Field(1).(*array.Int64Builder).Append(v)
		b.Field(2).(*array.StringBuilder).Append(text)
		b.Field(3).(*array.Decimal128Builder).Append(a)
		b.Field(4).AppendNull()
	}
	r, h := newRows(10), newHistory()
	row(3, 7, "row of version 7", amount(7))
	row(4, 8, "row of version 8", amount(8))
	if err := r.fold(b.NewRecordBatch(), nil); err != nil {
		t.Fatal(err)
	}
	h.note(5, r.content)
	row(3, 9, "row of version 9", amount(9))
	row(4, 8, "", amount(8))
	if err := r.fold(b.NewRecordBatch(), []schema.RowKind{schema.Insert, schema.Delete}); err != nil || r.content != (content{1, mix(3, 9)}) {
		t.Fatalf("%v, %v", r.content, err)
	}
	h.note(7, r.content)
	h.end()
	for _, c := range []struct {
		snapshot int64
		got      content
		right    bool
	}{{4, content{}, true}, {5, r.content, false}, {6, content{2, mix(3, 7) + mix(4, 8)}, true}, {7, r.content, true}, {9, r.content, true}, {7, content{}, false}} {
		if err := h.check(t.Context(), "test", c.snapshot, c.got); (err == nil) != c.right {
			t.Errorf("snapshot %d, %v: %v", c.snapshot, c.got, err)
		}
	}
	row(3, 9, "row of version 8", amount(9))
	if err := r.fold(b.NewRecordBatch(), nil); err == nil {
		t.Error("a cell of another row was not found")
	}
}

// TestGrew: what grows from the second quarter to the last is named; what stays is not.
func TestGrew(t *testing.T) {
	w := &watch{}
	for i := range int64(2 * growSamples) {
		w.samples = append(w.samples, sample{rss: 100 << 20, files: 100 + i, level0: i % 7})
	}
	if got := w.grew(); !strings.HasPrefix(got, "files(") || strings.Contains(got, ",") {
		t.Errorf("grew %s", got)
	}
	if q := quantile([]time.Duration{5, 1, 3}, 0.5); q != 3 {
		t.Errorf("median %d", q)
	}
}
