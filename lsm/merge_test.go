package lsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// row is one row of the model.
type row struct {
	seq  int64
	kind int8
	vals []any // all columns, schema order
}

func (r row) key(s *schema.Schema) []any {
	var k []any
	for _, c := range s.KeyColumns() {
		k = append(k, r.vals[c])
	}
	return k
}

// rowsOf builds Rows from model rows.
func rowsOf(t testing.TB, r *rand.Rand, s *schema.Schema, rows []row) datafile.Rows {
	out := datafile.Rows{N: len(rows), Seq: []int64{}, Kinds: []int8{}}
	for _, x := range rows {
		out.Seq, out.Kinds = append(out.Seq, x.seq), append(out.Kinds, x.kind)
	}
	for c, f := range s.Fields {
		vals := make([]any, len(rows))
		for i := range rows {
			vals[i] = rows[i].vals[c]
		}
		out.Cols = append(out.Cols, sliced(t, r, f.Type, vals))
	}
	return out
}

func modelRows(in datafile.Rows) []row {
	out := make([]row, in.N)
	for i := range out {
		if in.Seq != nil {
			out[i].seq, out[i].kind = in.Seq[i], in.Kinds[i]
		}
		for _, c := range in.Cols {
			out[i].vals = append(out[i].vals, schema.Cell(c, i))
		}
	}
	return out
}

// sliceRun gives rows in windows of random sizes, some empty.
type sliceRun struct {
	windows []datafile.Rows
	pulled  int // rows given so far
	closed  bool
	fail    error // given after the windows instead of io.EOF
}

func (s *sliceRun) Next(ctx context.Context) (datafile.Rows, error) {
	if err := ctx.Err(); err != nil {
		return datafile.Rows{}, err
	}
	if len(s.windows) == 0 {
		if s.fail != nil {
			return datafile.Rows{}, s.fail
		}
		return datafile.Rows{}, io.EOF
	}
	w := s.windows[0]
	s.windows = s.windows[1:]
	s.pulled += w.N
	return w, nil
}

func (s *sliceRun) Close() error { s.closed = true; return nil }

func newRun(t testing.TB, r *rand.Rand, s *schema.Schema, rows []row, most int) *sliceRun {
	run := &sliceRun{}
	for at := 0; at < len(rows); {
		n := min(r.IntN(most+1), len(rows)-at)
		run.windows = append(run.windows, rowsOf(t, r, s, rows[at:at+n]))
		at += n
	}
	return run
}

// randRuns gives k sorted runs with unique sequence numbers, whose keys overlap as chance has it.
func randRuns(r *rand.Rand, s *schema.Schema, k int) [][]row {
	types := s.Types(s.KeyColumns())
	pool := make([][]any, 1+r.IntN(150))
	for i := range pool {
		pool[i] = make([]any, len(types))
		for c := range types {
			pool[i][c] = randValue(r, types[c])
		}
	}
	slices.SortFunc(pool, compareKeys)
	pool = slices.CompactFunc(pool, func(a, b []any) bool { return compareKeys(a, b) == 0 })
	seqs := r.Perm(k * len(pool))
	runs := make([][]row, k)
	for i := range runs {
		clustered, on := r.IntN(2) == 0, false
		for j, key := range pool {
			if !clustered || j%8 == 0 {
				on = r.IntN(3) == 0
			}
			if on {
				runs[i] = append(runs[i], randRow(r, s, key, int64(seqs[i*len(pool)+j])))
			}
		}
	}
	return runs
}

func randRow(r *rand.Rand, s *schema.Schema, key []any, seq int64) row {
	x := row{seq: seq, kind: int8(r.IntN(4)), vals: make([]any, len(s.Fields))}
	for c, f := range s.Fields {
		if f.Type.NotNull || r.IntN(4) > 0 {
			x.vals[c] = randValue(r, f.Type)
		}
	}
	for i, c := range s.KeyColumns() {
		x.vals[c] = key[i]
	}
	return x
}

// model merges by a map: of each key the row with the highest sequence number.
func model(s *schema.Schema, runs [][]row, dropDeletes bool) []row {
	newest := map[string]row{}
	for _, run := range runs {
		for _, x := range run {
			k := fmt.Sprintf("%#v", x.key(s))
			if old, ok := newest[k]; !ok || old.seq < x.seq {
				newest[k] = x
			}
		}
	}
	var out []row
	for _, x := range newest {
		if !dropDeletes || x.kind == 0 || x.kind == 2 {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b row) int { return compareKeys(a.key(s), b.key(s)) })
	return out
}

// diffRows says where two lists of rows differ first; empty: nowhere.
func diffRows(got, want []row) string {
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = fmt.Sprintf("%#v", got[i])
		}
		if i < len(want) {
			w = fmt.Sprintf("%#v", want[i])
		}
		if g != w {
			return fmt.Sprintf("%d rows, want %d; row %d is %s, want %s", len(got), len(want), i, g, w)
		}
	}
	return ""
}

// drain reads a run to its end; check is called after each batch.
func drain(t testing.TB, r Run, check func(datafile.Rows)) []row {
	t.Helper()
	var out []row
	for {
		rows, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if rows.N == 0 {
			t.Fatal("an empty batch")
		}
		if check != nil {
			check(rows)
		}
		out = append(out, modelRows(rows)...)
	}
}

// TestMerge holds the merge against a map over random schemas, runs, windows and batch sizes, and checks that it never
// holds more than two windows a run.
func TestMerge(t *testing.T) {
	r := newRand(t)
	for round := range 300 {
		s := randKeySchema(t, r, nil, allTypes[r.IntN(len(allTypes))], allTypes[r.IntN(len(allTypes))])
		k := r.IntN(10)
		rows := randRuns(r, s, k)
		spec := MergeSpec{Schema: s, KeyCols: s.KeyColumns(), DropDeletes: r.IntN(2) == 0, BatchRows: 1 + r.IntN(60)}
		most := 1 + r.IntN(40)
		var runs []Run
		for _, x := range rows {
			runs = append(runs, newRun(t, r, s, x, most))
		}
		m := Merge(spec, runs)
		got := drain(t, m, func(b datafile.Rows) {
			if k > 1 && b.N > spec.BatchRows {
				t.Fatalf("round %d: a batch of %d rows, asked for %d", round, b.N, spec.BatchRows)
			}
			for _, w := range m.wins[:cap(m.wins)] {
				if w != nil {
					t.Fatal("windows are kept after their rows were copied")
				}
			}
			if c := cap(m.wins); c > 4*k+4 { // append may double
				t.Fatalf("round %d: %d windows were held for %d runs", round, c, k)
			}
		})
		if diff := diffRows(got, model(s, rows, spec.DropDeletes)); diff != "" {
			t.Fatalf("round %d, keys %v, %d runs: %s", round, s.Types(s.KeyColumns()), k, diff)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range runs {
			if !runs[i].(*sliceRun).closed {
				t.Fatal("a run was not closed")
			}
		}
	}
}

// TestMergeReadsOnlyAhead: at any time a run has been read at most two windows further than what has been merged.
func TestMergeReadsOnlyAhead(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, nil, "k BIGINT")
	const k, window, n = 4, 10, 2000
	var runs []Run
	for i := range k {
		var rows []row
		for j := range n {
			rows = append(rows, row{seq: int64(i*n + j), vals: []any{int64(j)}}) // the same keys in all runs
		}
		run := &sliceRun{}
		for at := 0; at < n; at += window {
			run.windows = append(run.windows, rowsOf(t, r, s, rows[at:at+window]))
		}
		runs = append(runs, run)
	}
	m := Merge(MergeSpec{Schema: s, KeyCols: []int{0}, BatchRows: n}, runs)
	merged := 0
	drain(t, m, func(b datafile.Rows) {
		merged += b.N
		for i := range runs {
			if ahead := runs[i].(*sliceRun).pulled - merged; ahead > 2*window {
				t.Fatalf("run %d was read %d rows ahead", i, ahead)
			}
		}
	})
	if merged != n {
		t.Fatalf("%d rows, want %d", merged, n)
	}
}

// TestMergePassthrough: the windows of a single run come out as they are.
func TestMergePassthrough(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, nil, "k BIGINT", "v STRING")
	rows := []row{{1, 0, []any{int64(1), "a"}}, {2, 3, []any{int64(2), nil}}, {3, 2, []any{int64(5), "c"}}}
	in := rowsOf(t, r, s, rows)
	m := Merge(MergeSpec{Schema: s, KeyCols: []int{0}}, []Run{&sliceRun{windows: []datafile.Rows{in}}})
	got, err := m.Next(t.Context())
	if err != nil || got.Cols[1] != in.Cols[1] || &got.Seq[0] != &in.Seq[0] {
		t.Errorf("the window was copied (%v)", err)
	}
	m = Merge(MergeSpec{Schema: s, KeyCols: []int{0}, DropDeletes: true}, []Run{&sliceRun{windows: []datafile.Rows{in}}})
	if diff := diffRows(drain(t, m, nil), []row{rows[0], rows[2]}); diff != "" {
		t.Errorf("without deletes: %s", diff)
	}
}

// TestMergeErrors: a run that fails, is not sorted, repeats a key or lacks columns.
func TestMergeErrors(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, nil, "k STRING")
	at := func(seq int64, k string) row { return row{seq: seq, vals: []any{k}} }
	ok := func() *sliceRun { return newRun(t, r, s, []row{at(1, "a"), at(2, "longer than a prefix")}, 1) }
	boom := errors.New("boom")
	bad := func(windows ...[]row) *sliceRun {
		run := &sliceRun{}
		for _, w := range windows {
			run.windows = append(run.windows, rowsOf(t, r, s, w))
		}
		return run
	}
	short := rowsOf(t, r, s, []row{at(9, "q")})
	short.Seq = nil
	cases := []struct {
		name string
		run  *sliceRun
		want error
	}{
		{"failing", &sliceRun{fail: boom}, boom},
		{"descending", bad([]row{at(3, "b"), at(4, "a")}), ErrUnsorted},
		{"repeating", bad([]row{at(3, "longer than a prefix"), at(4, "longer than a prefix")}), ErrUnsorted},
		{"descending over windows", bad([]row{at(3, "longer than b")}, []row{at(4, "longer than a")}), ErrUnsorted},
		{"no sequence numbers", &sliceRun{windows: []datafile.Rows{short}}, nil},
		{"no columns", &sliceRun{windows: []datafile.Rows{{N: 1, Seq: []int64{1}, Kinds: []int8{0}}}}, nil},
		{"other type", &sliceRun{windows: []datafile.Rows{{N: 1, Seq: []int64{1}, Kinds: []int8{0}, Cols: []arrow.Array{schematest.Array(t, mustType(t, "INT"), int32(1))}}}}, nil},
	}
	for _, c := range cases {
		m := Merge(MergeSpec{Schema: s, KeyCols: []int{0}, BatchRows: 1}, []Run{ok(), c.run})
		var err error
		for err == nil {
			_, err = m.Next(t.Context())
		}
		if err == io.EOF || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Merge(MergeSpec{Schema: s, KeyCols: []int{0}}, []Run{ok(), ok()}).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestBelow holds the galloping search against a linear one.
func TestBelow(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, nil, "k INT")
	for range 300 {
		n := 1 + r.IntN(60)
		var vals []any
		for i, x := 0, int32(0); i < n; i++ {
			x += 1 + r.Int32N(3)
			vals = append(vals, x)
		}
		v, err := NewKeys(s).Encode([]arrow.Array{schematest.Array(t, s.Fields[0].Type, vals...)}, n)
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewKeys(s).Encode([]arrow.Array{schematest.Array(t, s.Fields[0].Type, r.Int32N(130))}, 1)
		if err != nil {
			t.Fatal(err)
		}
		from := r.IntN(n)
		to := from + r.IntN(n-from+1)
		want := from
		for want < to && v.Compare(want, &o, 0) < 0 {
			want++
		}
		if got := v.below(from, to, &o, 0); got != want {
			t.Fatalf("[%d,%d): got %d, want %d", from, to, got, want)
		}
	}
}
