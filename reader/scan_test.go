package reader_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestScanColumns: a scan gives the columns it is asked for, in that order, whether or not keys are among them.
func TestScanColumns(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		x := newTable(t, keyed)
		x.write([]change{{schema.Insert, "a", 1, "old"}}, []change{{schema.Insert, "a", 2, "b"}})
		for want, cols := range map[string][]string{
			`{"name":"old"}{"name":"b"}`:                               {"name"},
			`{"name":"old","id":1}{"name":"b","id":2}`:                 {"name", "id"},
			`{"id":1,"id":1}{"id":2,"id":2}`:                           {"id", "id"},
			`{"p":"a","id":1,"name":"old"}{"p":"a","id":2,"name":"b"}`: nil,
			`{}{}`: {},
		} {
			var got []byte
			for rec, err := range x.reader().Scan(t.Context(), reader.Query{Columns: cols}) {
				if err != nil {
					t.Fatal(err)
				}
				enc := rowjson.NewEncoder(rec.Schema())
				for i := range int(rec.NumRows()) {
					got = enc.Append(got, rec, i)
				}
			}
			if string(got) != want {
				t.Errorf("keyed %t, columns %q: %s, want %s", keyed, cols, got, want)
			}
		}
		for _, err := range x.reader().Scan(t.Context(), reader.Query{Columns: []string{"nme"}}) {
			if !errors.Is(err, reader.ErrQuery) || !strings.Contains(err.Error(), `no column "nme"; the table has p, id, name`) {
				t.Errorf("got %v", err)
			}
		}
	}
}

// TestScanParallel: a parallel scan gives the rows of one in order, whether files are read one by one or merged; it leaves
// nothing running when its consumer stops, and tells of a read that fails.
func TestScanParallel(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, keyed := range []bool{false, true} {
		x := newTable(t, keyed)
		for n := range 6 {
			x.write(some(10+n, fmt.Sprint(n)))
		}
		rows := func(q reader.Query) (out []string) {
			t.Helper()
			for rec, err := range x.reader().Scan(t.Context(), q) {
				if err != nil {
					t.Fatal(err)
				}
				for i := range int(rec.NumRows()) {
					out = append(out, fmt.Sprint(rec.Column(0).ValueStr(i), rec.Column(2).ValueStr(i)))
				}
			}
			slices.Sort(out)
			return out
		}
		want, got := rows(reader.Query{}), rows(reader.Query{Parallel: 3})
		number := 6*10 + 15
		if keyed {
			number = 15
		}
		if len(want) != number || !slices.Equal(got, want) {
			t.Errorf("keyed %t: %d rows in parallel, %d in order", keyed, len(got), len(want))
		}
		for range x.reader().Scan(t.Context(), reader.Query{Parallel: 3}) {
			break
		}
		broken := errors.New("broken")
		for _, fail := range []int64{1, 4} {
			var opens atomic.Int64
			st := storage.WithFaults(x, func(op storage.Op) error {
				if op.Kind == storage.OpOpen && strings.HasSuffix(op.Name, ".parquet") && opens.Add(1) == fail {
					return broken
				}
				return nil
			})
			var last error
			for _, err := range reader.Open(st, env()).Scan(t.Context(), reader.Query{Parallel: 2}) {
				last = err
			}
			if !errors.Is(last, broken) {
				t.Errorf("keyed %t: got %v", keyed, last)
			}
		}
	}
}

// TestTimeTravel: every snapshot is read as it was; one that is gone or yet to come is an error that says what there is.
func TestTimeTravel(t *testing.T) {
	x := newTable(t, true)
	if n := count(t, x.reader(), 0); n != 0 {
		t.Errorf("%d rows in an empty table", n)
	}
	x.write(some(2, "one"), some(6, "two"), []change{{schema.Delete, "a", 0, ""}}, nil)
	for id, want := range map[int64]int{1: 2, 2: 6, 3: 5, 4: 5, 5: 5} {
		if n := count(t, x.reader(), id); n != want {
			t.Errorf("snapshot %d has %d rows, want %d", id, n, want)
		}
	}
	x.expire(2)
	for id, kind := range map[int64]error{1: manifest.ErrSnapshotExpired, 9: storage.ErrNotFound} {
		for _, err := range x.reader().Scan(t.Context(), reader.Query{Snapshot: id}) {
			if !errors.Is(err, kind) || !strings.Contains(err.Error(), "the table has snapshots 4 to 5") {
				t.Errorf("snapshot %d: %v", id, err)
			}
		}
	}
}

func count(t *testing.T, r *reader.Reader, snapshot int64) (n int) {
	t.Helper()
	for rec, err := range r.Scan(t.Context(), reader.Query{Snapshot: snapshot}) {
		if err != nil {
			t.Fatal(err)
		}
		n += int(rec.NumRows())
	}
	return n
}
