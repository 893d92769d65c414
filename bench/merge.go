package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/schema"
)

var mergeGroup = group{name: "merge", limits: []limitOf{{memcpy, 1}}, open: openMerge}

// mergeWindow is the number of rows of a run that are in memory at once, about as many as in a compaction.
const mergeWindow = 32 << 10

// openMerge measures merging alone: rows are in memory before and after. Gather is the copying part of it.
func openMerge(k *kit, r *run) ([]*benchmark, func() error, error) {
	s, err := newTable(thin)
	if err != nil {
		return nil, nil, err
	}
	var out []*benchmark
	for _, v := range []struct {
		name, text string
		span       int
	}{{"rand", "random", 1}, {"clus", "clustered", 100}} {
		runs := makeRuns(s, runCount, k.runRows/4, v.span) // a quarter, because all of it stays in memory
		want := newModel(runs).rows(true)
		windows := make([][]datafile.Rows, len(runs))
		rows, size := int64(0), int64(0)
		for i, run := range runs {
			in, err := sorted(run)
			if err != nil {
				return nil, nil, err
			}
			windows[i] = cut(in, mergeWindow)
			rows += int64(in.N)
			size += int64(len(plain(in)))
		}
		out = append(out, &benchmark{
			name: "Merge/" + v.name, procs: 1, rows: rows, bytes: size,
			op: func(ctx context.Context, c *clock) error {
				c.start()
				n, err := merge(ctx, s, windows)
				c.stop()
				if err == nil && n != want {
					err = fmt.Errorf("%d rows, want %d", n, want)
				}
				return err
			},
			shown: &shown{title: "merge 8 runs in memory, " + v.text + " keys", unit: rate(1), limit: copyLimit(rows, size)},
		})
	}
	gather, err := gatherBench(s, k)
	if err != nil {
		return nil, nil, err
	}
	return append(out, gather...), nil, nil
}

// copyLimit is the rate at which rows of this size could be copied.
func copyLimit(rows, size int64) func(lookup) (float64, string) {
	return func(med lookup) (float64, string) {
		return med(memcpy, 1, "MB/cpu-s") * float64(rows) / float64(size), "memcpy of the plain bytes"
	}
}

// windowRun is a sorted run in memory.
type windowRun struct{ todo []datafile.Rows }

// Next implements lsm.Run.
func (r *windowRun) Next(context.Context) (datafile.Rows, error) {
	if len(r.todo) == 0 {
		return datafile.Rows{}, io.EOF
	}
	w := r.todo[0]
	r.todo = r.todo[1:]
	return w, nil
}

func merge(ctx context.Context, s *schema.Schema, windows [][]datafile.Rows) (int64, error) {
	runs := make([]lsm.Run, len(windows))
	for i, w := range windows {
		runs[i] = &windowRun{w}
	}
	m := lsm.Merge(lsm.MergeSpec{Schema: s, KeyCols: s.KeyColumns(), DropDeletes: true}, runs)
	defer m.Close()
	for n := int64(0); ; {
		rows, err := m.Next(ctx)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += int64(rows.N)
	}
}

// gatherBench copies rows of eight sources, column by column, in ranges of one row ("rand") or of 100 ("clus").
func gatherBench(s *schema.Schema, k *kit) ([]*benchmark, error) {
	runs := makeRuns(s, runCount, mergeWindow, 1)
	srcs := make([][]arrow.Array, len(s.Fields))
	for c := range srcs {
		for _, r := range runs {
			srcs[c] = append(srcs[c], r.Cols[c])
		}
	}
	size := int64(0)
	for _, r := range runs {
		size += int64(len(plain(r)))
	}
	rows := int64(runCount * mergeWindow)
	size -= 9 * rows // sequence numbers and kinds are no columns here
	var out []*benchmark
	for _, v := range []struct {
		name string
		n    int
	}{{"rand", 1}, {"clus", 100}} {
		batches := interleave(v.n)
		out = append(out, &benchmark{
			name: "Gather/" + v.name, procs: 1, rows: rows, bytes: size,
			op: func(_ context.Context, c *clock) error {
				made := make([][]arrow.Array, len(batches))
				c.start()
				for i := range batches {
					made[i] = make([]arrow.Array, len(srcs))
					for j := range srcs {
						var err error
						if made[i][j], err = lsm.Gather(srcs[j], batches[i]); err != nil {
							return err
						}
					}
				}
				c.stop()
				return checkGather(runs, batches, made)
			},
			shown: &shown{title: fmt.Sprintf("gather 8 columns in ranges of %d", v.n), unit: rate(1), limit: copyLimit(rows, size)},
		})
	}
	return out, nil
}

// interleave cuts eight sources in ranges of n rows and takes them in random order of the sources, in batches as large
// as those of a merge.
func interleave(n int) [][]lsm.Range {
	r := rand.New(rand.NewPCG(5, 5))
	var at [runCount]int
	var out [][]lsm.Range
	room := 0
	for left := runCount * mergeWindow; left > 0; {
		src := r.IntN(runCount)
		take := min(n, mergeWindow-at[src])
		if take == 0 {
			continue
		}
		if room <= 0 {
			out, room = append(out, nil), lsm.DefaultBatchRows
		}
		last := &out[len(out)-1]
		*last = append(*last, lsm.Range{Src: int32(src), Start: int32(at[src]), N: int32(take)})
		at[src] += take
		left -= take
		room -= take
	}
	return out
}

// checkGather compares some of the gathered cells with their sources.
func checkGather(runs []datafile.Rows, batches [][]lsm.Range, made [][]arrow.Array) error {
	for b, ranges := range batches {
		to := 0
		for i, r := range ranges {
			for c := range made[b] {
				if i%97 == 0 && !sameCell(made[b][c], to, runs[r.Src].Cols[c], int(r.Start)) {
					return fmt.Errorf("wrong rows: batch %d, column %d, row %d", b, c, to)
				}
			}
			to += int(r.N)
		}
		if n := made[b][0].Len(); n != to {
			return fmt.Errorf("wrong rows: batch %d has %d, want %d", b, n, to)
		}
	}
	return nil
}
