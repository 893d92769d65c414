package lookup

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Where requests take long, the files of all runs are asked at once instead of one after the other: a lookup in a bucket takes
// three rounds of requests then, however many files may have the key, and two where it is in the one that alone may have it, or
// that has most of the rows that may be it, as the highest level has, or whose Bloom filter tells that it does. Small files take
// one, and files whose filters in the manifest rule the keys out none.

// How many keys are asked for at most, and of how many files, for them to be asked at once: what is held of each is small.
const (
	fewKeys  = 64
	fewFiles = 64
	atOnce   = 16 // files
)

// isFar reports whether the table's files are on a store where requests take long.
func (t *Table) isFar() bool { return gapOf(t.Store.URL("")) > localGap }

// asking is a file that may have keys, by its key range.
type asking struct {
	run  int
	f    *fileAt
	want []int32
	sought
	skip bool
}

// asking are the files that may have keys, in the order of runs.
func (b *Bucket) asking(q *asked) (out []*asking) {
	all := q.all()
	for i := range b.runs {
		for j := range b.runs[i].files {
			f := &b.runs[i].files[j]
			if from, to := q.within(all, f.min, f.max); from < to {
				out = append(out, &asking{run: i, f: f, want: all[from:to]})
			}
		}
	}
	return out
}

// sift leaves out keys that a file's filters in the manifest rule out, and files without any other: nothing is read for them, and
// what is left may be alone to have its keys.
func (b *Bucket) sift(ctx context.Context, some []*asking, q *asked) ([]*asking, error) {
	out := some[:0]
	for _, a := range some {
		if a.f.EmbeddedIndex != nil && HasFileIndex(b.t.Schema, a.f.DataFile) {
			written, err := b.writtenBy(ctx, a.f)
			if err != nil {
				return nil, b.failed(a.f, err)
			}
			filters, err := b.filtersOf(ctx, a.f, written, true)
			if err != nil {
				return nil, b.failed(a.f, indexFailed(b.t.Store.URL(a.f.name), err))
			}
			a.want = (&opened{filters: filters}).passing(q, a.want)
		}
		if len(a.want) > 0 {
			out = append(out, a)
		}
	}
	return out, nil
}

// hitsAtOnce is hits for few keys and files. Of files that may be left out when all have been asked only so much is held as room
// has; one that alone may have its keys is done with at once.
func (b *Bucket) hitsAtOnce(ctx context.Context, some []*asking, q *asked, read []int, ahead *room) (_ [][]hits, err error) {
	defer func() {
		for _, a := range some {
			err = errors.Join(err, a.release())
		}
	}()
	files, rows := make([]int, len(q.order)), make([]int64, len(q.order)) // that may have each key
	for _, a := range some {
		for _, k := range a.want {
			files[k]++
			rows[k] += a.f.Rows
		}
	}
	var g errgroup.Group // without a context of its own: files are read again when it has ended
	g.SetLimit(atOnce)
	for _, a := range some {
		alone := !slices.ContainsFunc(a.want, func(k int32) bool { return files[k] > 1 })
		// The highest level mostly has more rows than all others together.
		likely := alone || !slices.ContainsFunc(a.want, func(k int32) bool { return a.f.Rows < rows[k]-a.f.Rows })
		g.Go(func() (err error) {
			if a.sought, err = b.seek(ctx, a.f, q, a.want, read, ahead, likely); err == nil && alone {
				err = a.settle(ctx, read)
			}
			if err != nil {
				return b.failed(a.f, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	b.skipOlder(some, len(q.order))
	for _, a := range some {
		if a.skip {
			continue
		}
		g.Go(func() (err error) {
			if err = a.settle(ctx, read); err != nil {
				return b.failed(a.f, err)
			}
			a.h.level = a.f.Level
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := make([][]hits, len(b.runs))
	for _, a := range some {
		if !a.skip {
			out[a.run] = append(out[a.run], a.h)
		}
	}
	return out, nil
}

// skipOlder leaves out files whose rows of keys do not count: where the newest row of a key is the answer, and all rows of a newer
// file are newer than all in the runs behind it.
func (b *Bucket) skipOlder(some []*asking, keys int) {
	done := make([]int, keys) // the run that has the answer, and one
	for _, a := range some {
		a.skip = !slices.ContainsFunc(a.keys(), func(k int32) bool { return done[k] == 0 || done[k] > a.run })
		if a.skip || !b.t.Rule.Newest() || a.f.MinSeq <= b.runs[a.run].older {
			continue
		}
		for _, k := range a.keys() {
			if done[k] == 0 {
				done[k] = a.run + 1
			}
		}
	}
}
