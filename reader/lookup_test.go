package reader

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// keyOf names the key of a row.
func keyOf(rec arrow.RecordBatch, cols []int, i int) string {
	var b strings.Builder
	for _, c := range cols {
		fmt.Fprintf(&b, "%v|", goldenCell(rec.Column(c), i))
	}
	return b.String()
}

// columnsNamed are the places of columns.
func columnsNamed(rec arrow.RecordBatch, names []string) []int {
	var out []int
	for _, n := range names {
		out = append(out, rec.Schema().FieldIndices(n)[0])
	}
	return out
}

// TestLookupGolden asks each snapshot of the tables that Paimon wrote for all keys that any of them has: the answer is what a
// scan of it has, whose rows are held against Paimon's in TestGolden.
func TestLookupGolden(t *testing.T) {
	for _, name := range goldenTables {
		st, err := storage.NewLocal(filepath.Join(goldenDir, "golden.db", name))
		if err != nil {
			t.Fatal(err)
		}
		r := Open(st, testEnv())
		s, err := r.meta.LatestSchema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !s.Keyed() {
			if _, err := r.OpenLookup(t.Context(), Query{}, nil); !errors.Is(err, ErrQuery) {
				t.Errorf("%s has no primary key: %v", name, err)
			}
			continue
		}
		t.Run(name, func(t *testing.T) { lookupGolden(t, r, s.PrimaryKeys) })
	}
}

func lookupGolden(t *testing.T, r *Reader, pk []string) {
	first, err := r.meta.Earliest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last, err := r.meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cache := NewLookupCache(LookupCacheConfig{})
	defer cache.Close()
	var keys []arrow.RecordBatch
	rows := map[int64]map[string]string{} // by snapshot and key
	seen := map[string]bool{}
	for id := first.ID; id <= last.ID; id++ {
		rows[id] = map[string]string{}
		for rec, err := range r.Scan(t.Context(), Query{Snapshot: id}) {
			if err != nil {
				t.Fatal(err)
			}
			cols := columnsNamed(rec, pk)
			var fresh []int32
			for i := range int(rec.NumRows()) {
				k := keyOf(rec, cols, i)
				rows[id][k] = goldenRow(rec, i)
				if !seen[k] {
					seen[k] = true
					fresh = append(fresh, int32(i))
				}
			}
			if len(fresh) > 0 {
				keys = append(keys, taken(t, rec, cols, fresh))
			}
		}
	}
	if len(keys) == 0 {
		t.Skip("no scan of the table has a row")
	}
	for id := first.ID; id <= last.ID; id++ {
		l, err := r.OpenLookup(t.Context(), Query{Snapshot: id, Parallel: 2}, cache)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, k := range keys {
			k = inSchema(t, k, l.KeySchema())
			f, err := l.Get(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			n += checkFound(t, fmt.Sprintf("snapshot %d", id), k, f, rows[id])
			if i%3 > 0 || k.NumRows() == 0 {
				continue
			}
			one := k.NewSlice(0, min(3, k.NumRows()))
			if f, err = r.Get(t.Context(), Query{Snapshot: id}, one, nil); err != nil {
				t.Fatal(err)
			}
			checkFound(t, fmt.Sprintf("snapshot %d, some keys", id), one, f, rows[id])
		}
		if n != len(rows[id]) {
			t.Errorf("snapshot %d: %d of %d rows were found", id, n, len(rows[id]))
		}
	}
}

func taken(t *testing.T, rec arrow.RecordBatch, cols []int, at []int32) arrow.RecordBatch {
	t.Helper()
	var fields []arrow.Field
	var out []arrow.Array
	for _, c := range cols {
		a, err := lsm.Take(rec.Column(c), at)
		if err != nil {
			t.Fatal(err)
		}
		fields, out = append(fields, rec.Schema().Field(c)), append(out, a)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), out, int64(len(at)))
}

// inSchema names the columns as a schema of the same types does: primary keys may be renamed.
func inSchema(t *testing.T, rec arrow.RecordBatch, s *arrow.Schema) arrow.RecordBatch {
	t.Helper()
	return array.NewRecordBatch(s, rec.Columns(), rec.NumRows())
}

// checkFound holds an answer against the rows of a table, by key; it gives the number of rows found.
func checkFound(t *testing.T, what string, keys arrow.RecordBatch, f Found, want map[string]string) int {
	t.Helper()
	all := make([]int, keys.NumCols())
	for i := range all {
		all[i] = i
	}
	n := 0
	for i := range int(keys.NumRows()) {
		k := keyOf(keys, all, i)
		got := ""
		if f.At[i] >= 0 {
			got = goldenRow(f.Rows, int(f.At[i]))
			n++
		}
		if got != want[k] {
			t.Fatalf("%s: key %s\n got %s\nwant %s", what, k, got, want[k])
		}
	}
	if int(f.Rows.NumRows()) != n {
		t.Fatalf("%s: %d rows for %d keys that were found", what, f.Rows.NumRows(), n)
	}
	return n
}

// TestLookupMistakes: what cannot be asked for.
func TestLookupMistakes(t *testing.T) {
	st, err := storage.NewLocal(filepath.Join(goldenDir, "golden.db", "pk_partitioned"))
	if err != nil {
		t.Fatal(err)
	}
	r := Open(st, testEnv())
	l, err := r.OpenLookup(t.Context(), Query{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sc := l.KeySchema()
	without := arrow.NewSchema(slices.Clone(sc.Fields())[1:], nil)
	other := slices.Clone(sc.Fields())
	other[0].Type = arrow.PrimitiveTypes.Uint8
	for what, c := range map[string]struct {
		keys arrow.RecordBatch
		want string
	}{
		"a column is missing": {array.NewRecordBuilder(memory.DefaultAllocator, without).NewRecordBatch(), "keys need one column"},
		"of another type":     {array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(other, nil)).NewRecordBatch(), "is uint8, want"},
	} {
		if _, err := l.Get(t.Context(), c.keys); !errors.Is(err, ErrQuery) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.OpenLookup(t.Context(), Query{Where: "id = 1"}, nil); !errors.Is(err, ErrQuery) {
		t.Errorf("with a condition: %v", err)
	}
	if _, err := r.OpenLookup(t.Context(), Query{Columns: []string{"nope"}}, nil); !errors.Is(err, ErrQuery) {
		t.Errorf("with a column that is not there: %v", err)
	}
	if _, err := r.OpenLookup(t.Context(), Query{Snapshot: 999}, nil); err == nil || errors.Is(err, manifest.ErrNoSnapshot) {
		t.Errorf("a snapshot that is not there: %v", err)
	}
}
