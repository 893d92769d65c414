package reader

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/schema"
)

// TestScreenPairs: with rows before changes, what a condition leaves is exact wherever batches end: an insert is of a key
// that is not there, a delete and the row before an update of the row that is, and the row after one follows it.
func TestScreenPairs(t *testing.T) {
	cols, err := schema.ParseColumns("k BIGINT NOT NULL, v BIGINT")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.ChangelogProducer = "lookup"
	v := &view{schema: s, opts: o, keys: lsm.NewKeys(s)}
	type row struct {
		kind schema.RowKind
		k, v int64
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var rows []row
		table := map[int64]int64{}
		for range 200 {
			k, n := r.Int64N(6), r.Int64N(10)
			old, there := table[k]
			switch {
			case there && r.IntN(4) == 0:
				rows = append(rows, row{schema.Delete, k, old})
				delete(table, k)
			case there:
				rows = append(rows, row{schema.UpdateBefore, k, old}, row{schema.UpdateAfter, k, n})
				table[k] = n
			default:
				rows = append(rows, row{schema.Insert, k, n})
				table[k] = n
			}
		}
		w, err := v.where("v >= 5")
		if err != nil {
			t.Fatal(err)
		}
		sc, read, err := newScreen(v, w, []int{0, 1}, false)
		if err != nil || len(read) != 2 || !sc.exact {
			t.Fatal(read, err)
		}
		var out []Changes
		for len(rows) > 0 {
			n := min(len(rows), 1+r.IntN(7))
			b := array.NewRecordBuilder(memory.DefaultAllocator, v.arrowSchema(read))
			kinds := make([]schema.RowKind, n)
			for i, x := range rows[:n] {
				b.Field(0).(*array.Int64Builder).Append(x.k)
				b.Field(1).(*array.Int64Builder).Append(x.v)
				kinds[i] = x.kind
			}
			rows = rows[n:]
			some, err := sc.apply(Changes{Rec: b.NewRecordBatch(), RowKinds: kinds})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, some...)
		}
		out = append(out, sc.flush()...)
		got := map[int64]int64{}
		before := int64(-1) // key of a -U whose +U comes next
		for _, c := range out {
			for i := range int(c.Rec.NumRows()) {
				k, n := c.Rec.Column(0).(*array.Int64).Value(i), c.Rec.Column(1).(*array.Int64).Value(i)
				kind := schema.Insert
				if c.RowKinds != nil {
					kind = c.RowKinds[i]
				}
				old, there := got[k]
				if n < 5 || (kind == schema.UpdateAfter) != (before == k) || before >= 0 && before != k {
					t.Fatalf("seed %d: %s %d %d after a row before an update of %d", seed, kind, k, n, before)
				}
				before = -1
				switch kind {
				case schema.Insert:
					if there {
						t.Fatalf("seed %d: an insert of %d, which is there", seed, k)
					}
					got[k] = n
				case schema.UpdateAfter:
					got[k] = n
				case schema.UpdateBefore:
					before = k
					fallthrough
				default:
					if !there || old != n {
						t.Fatalf("seed %d: %s %d %d, but there is %d (%t)", seed, kind, k, n, old, there)
					}
					delete(got, k)
				}
			}
		}
		for k, n := range table {
			if got[k] != n && n >= 5 {
				t.Fatalf("seed %d: key %d is %d, want %d", seed, k, got[k], n)
			}
			if n < 5 {
				if _, there := got[k]; there {
					t.Fatalf("seed %d: key %d is still there", seed, k)
				}
			}
		}
	}
}

// TestScreenHeld: a -U that no +U follows, at the end of a batch, leaves the next batch as it is.
func TestScreenHeld(t *testing.T) {
	cols, err := schema.ParseColumns("k BIGINT NOT NULL, v BIGINT")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	v := &view{schema: s, opts: o, keys: lsm.NewKeys(s)}
	w, err := v.where("k > 0 AND v = 1")
	if err != nil {
		t.Fatal(err)
	}
	sc, read, err := newScreen(v, w, []int{0, 1}, false)
	if err != nil {
		t.Fatal(err)
	}
	batch := func(kinds []schema.RowKind, cells ...int64) Changes {
		b := array.NewRecordBuilder(memory.DefaultAllocator, v.arrowSchema(read))
		for i, x := range cells {
			b.Field(i % 2).(*array.Int64Builder).Append(x)
		}
		return Changes{Rec: b.NewRecordBatch(), RowKinds: kinds}
	}
	if _, err := sc.apply(batch([]schema.RowKind{schema.UpdateBefore}, 1, 0)); err != nil {
		t.Fatal(err)
	}
	out, err := sc.apply(batch([]schema.RowKind{schema.Insert, schema.Insert, schema.Insert}, -5, 0, -6, 0, 2, 1))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range out {
		for i := range int(c.Rec.NumRows()) {
			kind := schema.Insert
			if c.RowKinds != nil {
				kind = c.RowKinds[i]
			}
			got = append(got, kind.String()+c.Rec.Column(0).ValueStr(i))
		}
	}
	if want := []string{"-D1", "+I2"}; !slices.Equal(got, want) {
		t.Errorf("%v is told, want %v", got, want)
	}
}

// TestScreenLateRows: where rows that come later may lose, what a condition leaves cannot be told from them alone.
func TestScreenLateRows(t *testing.T) {
	for _, options := range []map[string]string{{"merge-engine": "first-row"}, {"sequence.field": "v"}} {
		cols, err := schema.ParseColumns("k BIGINT NOT NULL, v BIGINT")
		if err != nil {
			t.Fatal(err)
		}
		s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.ParseOptions()
		if err != nil {
			t.Fatal(err)
		}
		v := &view{schema: s, opts: o, keys: lsm.NewKeys(s)}
		for condition, ok := range map[string]bool{"v = 1": false, "k = 1": true} {
			w, err := v.where(condition)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err = newScreen(v, w, []int{0}, false); ok != (err == nil) || !ok && !errors.Is(err, ErrQuery) {
				t.Errorf("%v, %s: %v", options, condition, err)
			}
			if _, _, err = newScreen(v, w, []int{0}, true); err != nil {
				t.Errorf("%v, %s, with images: %v", options, condition, err)
			}
		}
	}
}
