package lsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// TestCopyModel lets buckets live whose flushes have keys of narrow ranges, of all merge engines and layouts. Each compaction
// is done with copying, and perhaps in steps for want of memory, and without: both give the same rows, and the bucket holds what a map holds.
// Who follows the files is told their rows.
func TestCopyModel(t *testing.T) {
	r := newRand(t)
	copied, merged := int64(0), int64(0)
	whole, lost := 0, 0
	for round := range 18 {
		engine := []map[string]string{
			{}, {"merge-engine": "partial-update"}, {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"},
		}[round%3]
		options := map[string]string{
			"num-sorted-run.compaction-trigger": fmt.Sprint(2 + r.IntN(4)), "num-levels": fmt.Sprint(2 + r.IntN(3)),
			"target-file-size": []string{"8 kb", "30 kb", "512 mb"}[r.IntN(3)], "data-file.thin-mode": fmt.Sprint(r.IntN(2) == 0),
			"file.compression.per.level": "0:" + []string{"snappy", "zstd", "none"}[r.IntN(3)],
			"metadata.stats-mode":        []string{"truncate(16)", "counts", "truncate(3)"}[r.IntN(3)],
		}
		for k, v := range engine {
			options[k] = v
		}
		types := []string{allTypes[r.IntN(len(allTypes))], allTypes[r.IntN(len(allTypes))]}
		s := randKeySchema(t, r, options, types...)
		b := newBucket(t, r, storage.NewMem(), s)
		b.files.Parallel = 1 + r.IntN(3)
		b.files.leastCopy, b.files.cutRows = 1+int64(r.IntN(500)), 1+r.IntN(30)
		if r.IntN(2) == 0 {
			b.files.readMost = 1 + int64(r.IntN(1<<16)) // some runs are merged before the others
		}
		pool := randPool(r, s, 2000)
		slices.SortFunc(pool, compareKeys)
		told := watch(t, b)
		for step := range 10 {
			width := 1 + r.IntN(len(pool)/3)
			from := r.IntN(len(pool) - width)
			rows := randRows(r, s, pool[from:from+width], 1+r.IntN(300))
			for i := range rows {
				if len(engine) > 0 || r.IntN(40) > 0 {
					rows[i].kind = 0
				}
			}
			b.flush(rows)
			pick := Pick
			if r.IntN(5) == 0 {
				pick = PickFull
			}
			for {
				j, ok := pick(b.levels, b.policy)
				if !ok {
					break
				}
				want := b.trial(j)
				c := b.compact(j)
				copied += c.Copied
				var got []row
				for _, m := range c.Added {
					merged += m.Rows
					told.check(b, m)
					got = append(got, drain(t, b.open([]manifest.DataFile{m}), nil)...)
				}
				if diff := diffRows(got, want); diff != "" {
					t.Fatalf("round %d, step %d: copying changes rows: %s", round, step, diff)
				}
				if n := len(objects(t, b.files.Store)); n != len(b.live()) {
					t.Fatalf("round %d, step %d: %d objects are left, %d files are live", round, step, n, len(b.live()))
				}
			}
			if len(engine) == 0 && step%3 == 2 {
				b.check()
			}
		}
		if len(engine) == 0 {
			b.check()
		}
		if told.open > 0 {
			t.Errorf("round %d: the end of %d files was not told", round, told.open)
		}
		whole, lost = whole+len(told.rows), lost+told.drops
	}
	if whole < 20 || lost < 20 {
		t.Errorf("%d files were told whole, %d had copied rows", whole, lost)
	}
	if copied < 1000 || merged < copied {
		t.Errorf("%d of %d rows were copied", copied, merged)
	}
}

// trial does a job without copying, forgets it and gives the rows of its files.
func (b *bucket) trial(j Job) []row {
	b.t.Helper()
	f := b.files
	f.noCopy, f.readMost = true, 0
	c, err := f.Compact(b.t.Context(), b.part, j)
	if err != nil {
		b.t.Fatal(err)
	}
	old, out := b.live(), []row(nil)
	for _, m := range c.Added {
		out = append(out, drain(b.t, b.open([]manifest.DataFile{m}), nil)...)
		if _, ok := old[m.Name]; !ok {
			if err := f.Store.Delete(b.t.Context(), b.part.Dir+"/"+m.Name); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	return out
}

// TestMarkMet compares the sweep over units with looking at all pairs.
func TestMarkMet(t *testing.T) {
	r := newRand(t)
	for round := range 500 {
		var units []keyUnit
		for run := range 1 + r.IntN(4) {
			at := r.IntN(10)
			for i := range r.IntN(8) {
				lo := at + r.IntN(8)
				at = lo + r.IntN(6)
				units = append(units, keyUnit{run: run, at: i, lo: fmt.Sprintf("%04d", lo), hi: fmt.Sprintf("%04d", at), free: true})
				at += r.IntN(2)
			}
		}
		slices.SortStableFunc(units, func(a, b keyUnit) int { return strings.Compare(a.lo, b.lo) })
		want := make([]bool, len(units))
		for i := range units {
			want[i] = true
			for j := range units {
				if units[i].run != units[j].run && units[i].lo <= units[j].hi && units[j].lo <= units[i].hi {
					want[i] = false
				}
			}
		}
		markMet(units)
		for i := range units {
			if units[i].free != want[i] {
				t.Fatalf("round %d: unit %d of %+v: free is %v", round, i, units, units[i].free)
			}
		}
	}
}

// TestCopiesWhatIsBeyond: of files whose keys overlap little, nearly all rows are copied; of such that have deletes, none
// where deletes must go; and the highest level has the same rows.
func TestCopiesWhatIsBeyond(t *testing.T) {
	for _, del := range []bool{false, true} {
		r := rand.New(rand.NewPCG(1, 1))
		s := benchSchema(t, true)
		b := newBucket(t, r, storage.NewMem(), s)
		const rows = 16_000
		b.files.leastCopy, b.files.cutRows = 32<<10, 1024
		for run := range 3 {
			in := benchBatch(s, run, beyondKeys(run, rows))
			if !del {
				clear(in.Kinds)
			}
			made, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{in}, nil, int64(run*rows))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.levels.Apply(Change{Added: made}); err != nil {
				t.Fatal(err)
			}
		}
		job, ok := PickFull(b.levels, b.policy)
		if !ok {
			t.Fatal("nothing to do")
		}
		want := b.trial(job)
		c := b.compact(job)
		if diff := diffRows(drain(t, b.open(c.Added), nil), want); diff != "" {
			t.Fatal(diff)
		}
		if least := int64(2 * rows); !del && c.Copied < least || del && c.Copied > 0 {
			t.Errorf("deletes %v: %d of %d rows were copied, want %d", del, c.Copied, 3*rows, least)
		}
	}
}

// TestCopiesBetweenPlaces: a few rows whose keys are in many places of a large run make it be merged in these places only.
func TestCopiesBetweenPlaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := benchSchema(t, true)
	b := newBucket(t, r, storage.NewMem(), s)
	const rows, places = 40_000, 8
	b.files.leastCopy, b.files.cutRows = 32<<10, 1024
	large := make([]int64, rows)
	for i := range large {
		large[i] = int64(i)
	}
	var late []int64
	for i := range places {
		late = append(late, large[i*rows/places:][:10]...)
	}
	for run, keys := range [][]int64{large, late} {
		in := benchBatch(s, run, keys)
		clear(in.Kinds)
		made, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{in}, nil, int64(run*rows))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.levels.Apply(Change{Added: made}); err != nil {
			t.Fatal(err)
		}
	}
	job, ok := PickFull(b.levels, b.policy)
	if !ok {
		t.Fatal("nothing to do")
	}
	want := b.trial(job)
	c := b.compact(job)
	if diff := diffRows(drain(t, b.open(c.Added), nil), want); diff != "" {
		t.Fatal(diff)
	}
	if least := int64(rows - places*1024); c.Copied < least || c.Copied == rows {
		t.Errorf("%d of %d rows were copied, want %d or a few more", c.Copied, rows, least)
	}
}
