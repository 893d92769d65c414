package lsm

import (
	"container/heap"
	"slices"

	"github.com/calve-io/calve/manifest"
)

// Sections cuts files into sections, in key order, so that files of different sections do not overlap; within a
// section it arranges the files in as few sorted runs as possible (`mergetree.compact.IntervalPartition`).
// A SortedRun's Level is that of its first file: the runs of a section may mix levels.
func Sections(keys *Keys, files []manifest.DataFile) ([][]SortedRun, error) {
	rs := make([]ranged, len(files))
	for i := range files {
		var err error
		if rs[i], err = newRanged(keys, files[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rs, byKey)
	var out [][]SortedRun
	for a := 0; a < len(rs); {
		b, top := a+1, rs[a].max
		for b < len(rs) && rs[b].min <= top {
			top = max(top, rs[b].max)
			b++
		}
		out = append(out, fewestRuns(rs[a:b]))
		a = b
	}
	return out, nil
}

// fewestRuns puts each file, in order of smallest key, behind the run that ends first if that run ends before the file
// begins, else starts another run.
func fewestRuns(rs []ranged) []SortedRun {
	var h runHeap
	for i := range rs {
		if len(h) > 0 && h[0].max < rs[i].min {
			h[0].files = append(h[0].files, rs[i].file)
			h[0].max = rs[i].max
			heap.Fix(&h, 0)
			continue
		}
		heap.Push(&h, &openRun{number: len(h), max: rs[i].max, files: []manifest.DataFile{rs[i].file}})
	}
	slices.SortFunc(h, func(a, b *openRun) int { return a.number - b.number })
	out := make([]SortedRun, len(h))
	for i, r := range h {
		out[i] = SortedRun{Level: r.files[0].Level, Files: r.files}
	}
	return out
}

// openRun is a run that still grows.
type openRun struct {
	number int
	max    string
	files  []manifest.DataFile
}

// runHeap has the run that ends first on top; equal ends in order of their number.
type runHeap []*openRun

func (h runHeap) Len() int { return len(h) }
func (h runHeap) Less(i, j int) bool {
	return h[i].max < h[j].max || h[i].max == h[j].max && h[i].number < h[j].number
}
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is for package heap.
func (h *runHeap) Push(x any) { *h = append(*h, x.(*openRun)) }

// Pop is for package heap.
func (h *runHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	*h = old[:len(old)-1]
	return r
}
