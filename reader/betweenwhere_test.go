package reader_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// changeTexts gives changes as sorted texts; when where is not empty, only those rows for which it is true.
func changeTexts(t *testing.T, store storage.Store, b reader.Between, s *schema.Schema, where string) ([]string, error) {
	t.Helper()
	p, err := predicate.Parse(where, s)
	if err != nil {
		t.Fatal(err)
	}
	cols := make([]int, len(s.Fields))
	for i := range cols {
		cols[i] = i
	}
	f, err := p.Filter(cols)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for c, err := range reader.Open(store, env()).Changes(t.Context(), b) {
		if err != nil {
			return nil, err
		}
		rows := every(c.Rec)
		if b.Where == "" {
			sel, err := f.Select(c.Rec.Columns(), int(c.Rec.NumRows()))
			if err != nil {
				t.Fatal(err)
			}
			rows = sel.Rows(nil)
		} else if len(rows) == 0 || c.RowKinds != nil && len(c.RowKinds) != len(rows) {
			t.Fatalf("%s: %d kinds of %d rows", b.Where, len(c.RowKinds), len(rows))
		}
		for _, row := range rows {
			kind := schema.Insert
			if c.RowKinds != nil {
				kind = c.RowKinds[row]
			}
			out = append(out, fmt.Sprint(c.Snapshot, c.Bucket, kind, texts(t, c.Rec, []int32{row}, nil)))
		}
	}
	sort.Strings(out)
	return out, nil
}

// TestBetweenWhere: changes with a condition are the changes without one, with the rows chosen from them, and often less
// is read.
func TestBetweenWhere(t *testing.T) {
	less, n, rows := 0, 0, 0
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 78))
		x := makeRandom(t, r)
		last, err := reader.Open(x.store, env()).Meta().Latest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 14 {
			from := r.Int64N(last.ID)
			b := reader.Between{Start: fmt.Sprint(from), End: fmt.Sprint(from + 1 + r.Int64N(last.ID-from)), Mode: reader.Delta}
			if r.IntN(2) == 0 {
				b.Mode = reader.Diff
			}
			where := randomWhere(r, x.schema, r.IntN(3))
			full := storage.WithCounter(x.store)
			want, err := changeTexts(t, full, b, x.schema, where)
			if err != nil { // a diff of an append table
				continue
			}
			chosen := storage.WithCounter(x.store)
			b.Where = where
			got, err := changeTexts(t, chosen, b, x.schema, where)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d, keyed %v: %+v: %v\n%v\nwant\n%v", seed, x.keyed, b, err, got, want)
			}
			n, rows = n+1, rows+len(got)
			if chosen.Counts().Total().Bytes < full.Counts().Total().Bytes {
				less++
			}
		}
	}
	t.Logf("%d of %d read less, %d rows", less, n, rows)
	if less < n/5 || rows < n {
		t.Errorf("only %d of %d read less; %d rows", less, n, rows)
	}
	x := newTable(t, true)
	x.write(some(3, "a"), some(3, "b"))
	for _, err := range x.reader().Changes(t.Context(), reader.Between{Start: "1", End: "2", Mode: reader.Diff, Where: "nope = 1"}) {
		if !errors.Is(err, reader.ErrQuery) {
			t.Error("a condition on a column that is not there:", err)
		}
	}
}
