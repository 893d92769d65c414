package lsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/storage"
)

// beyondKeys gives the keys of a run whose keys lie mostly beyond those of the run before: one in twenty is among the last
// twentieth of those.
func beyondKeys(run, rows int) []int64 {
	r := rand.New(rand.NewPCG(uint64(run), 78))
	late := rows / 20
	var keys []int64
	if run > 0 {
		for _, i := range r.Perm(2 * late)[:late] {
			keys = append(keys, int64(run*rows-2*late+i))
		}
	}
	for k := run * rows; len(keys) < rows; k++ {
		keys = append(keys, int64(k))
	}
	slices.Sort(keys)
	return keys
}

// BenchmarkCompactBeyond compacts eight runs of level 0 that overlap little.
func BenchmarkCompactBeyond(b *testing.B) {
	for _, off := range []bool{false, true} {
		for _, level0 := range []string{"snappy", "zstd"} {
			b.Run(fmt.Sprintf("copy=%v/level0=%s", !off, level0), func(b *testing.B) { benchBeyond(b, off, level0) })
		}
	}
}

func benchBeyond(b *testing.B, noCopy bool, level0 string) {
	s := benchSchema(b, true)
	s.Options["file.compression.per.level"] = "0:" + level0
	bk := newBucket(b, newRand(b), storage.NewMem(), s)
	for run := range benchRuns {
		rows := benchBatch(s, run, beyondKeys(run, benchRows))
		for i, k := range rows.Kinds {
			if !isAdd(k) {
				rows.Kinds[i] = 0
			}
		}
		made, err := bk.files.Flush(b.Context(), bk.part, []datafile.Rows{rows}, nil, int64(run*benchRows))
		if err != nil {
			b.Fatal(err)
		}
		if err := bk.levels.Apply(Change{Added: made}); err != nil {
			b.Fatal(err)
		}
	}
	job, ok := PickFull(bk.levels, bk.policy)
	if !ok {
		b.Fatal("nothing to do")
	}
	bk.files.noCopy = noCopy
	w := newStopwatch(b)
	for b.Loop() {
		change, err := bk.files.Compact(b.Context(), bk.part, job)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for _, f := range change.Added {
			b.ReportMetric(float64(f.Size)/float64(f.Rows), "fileB/row")
			if err := bk.files.Store.Delete(b.Context(), bk.part.Dir+"/"+f.Name); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
	w.report(benchRuns * benchRows)
}

// BenchmarkCompactPlaces compacts a large run with a small one, whose keys are those of some places in it.
func BenchmarkCompactPlaces(b *testing.B) {
	const large, places, each = 1_000_000, 40, 100
	s := benchSchema(b, true)
	bk := newBucket(b, newRand(b), storage.NewMem(), s)
	keys := make([]int64, large)
	for i := range keys {
		keys[i] = int64(i)
	}
	var late []int64
	for i := range places {
		late = append(late, keys[i*large/places:][:each]...)
	}
	for run, keys := range [][]int64{keys, late} {
		rows := benchBatch(s, run, keys)
		clear(rows.Kinds)
		made, err := bk.files.Flush(b.Context(), bk.part, []datafile.Rows{rows}, nil, int64(run*large))
		if err != nil {
			b.Fatal(err)
		}
		if err := bk.levels.Apply(Change{Added: made}); err != nil {
			b.Fatal(err)
		}
	}
	job, ok := PickFull(bk.levels, bk.policy)
	if !ok {
		b.Fatal("nothing to do")
	}
	w := newStopwatch(b)
	for b.Loop() {
		change, err := bk.files.Compact(b.Context(), bk.part, job)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(change.Copied)/large, "copied")
		for _, f := range change.Added {
			if err := bk.files.Store.Delete(b.Context(), bk.part.Dir+"/"+f.Name); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
	}
	w.report(large + places*each)
}
