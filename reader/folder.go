package reader

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// foldBag sums up the rows of a table without key, by shards of their hashes.
type foldBag [foldShards]splitSum

// splitSum is what rows sum up to, in whatever order they come.
type splitSum struct {
	n   int64
	sum uint64
}

func (b *foldBag) add(row uint64, times int64) {
	s := &b[shardOf(row)]
	s.n += times
	s.sum += uint64(times) * mix(row, seedCell)
}

func (b *foldBag) total() (t splitSum) {
	for _, s := range b {
		t.n += s.n
		t.sum += s.sum
	}
	return t
}

// misfit is a change that does not fit what was told before.
type misfit struct {
	snapshot int64
	at       int64 // rows of the snapshot that were told before it
	key      uint64
	what     string
	change   string // with its row; "": none came
}

// folder folds a stream and holds it against the table.
type folder struct {
	*streamCheck
	first bool               // pass
	base  *manifest.Snapshot // the fold goes back to its rows; nil: to where the stream begins

	between map[uint64]struct{} // keys whose +U must come
	bad     []misfit
	misfits int64
	rows    int64 // of the table, in the range of this pass, when it was compared last

	seen   int64 // snapshots since the one that was compared last
	unheld *manifest.Snapshot
	shape  *shape
	sums   map[string]splitSum // of the splits of the snapshot that was compared last
	sumsTo int                 // the end of the range that they were made for
}

func (f *folder) void(base *manifest.Snapshot) {
	f.t.clear()
	f.bag = foldBag{}
	clear(f.between)
	if f.first && f.base != base {
		f.rep.Rebased++
	}
	f.base = base
}

func (f *folder) hear(s *shape, x *hashed) error {
	if f.first && !x.State {
		f.rep.Changes += x.Rec.NumRows()
	} else if f.first && f.base == nil {
		f.rep.From = x.Snapshot
	}
	if s.keyAt == nil {
		for i, k := range x.keys {
			if x.kind(i).IsAdd() {
				f.bag.add(k, 1)
			} else {
				f.bag.add(k, -1)
			}
		}
		return nil
	}
	for i, k := range x.keys {
		if !f.t.has(k) {
			continue
		}
		kind := x.kind(i)
		if s.exact {
			if what := f.fits(kind, k, x.rows[i], s.v.opts.MergeEngine == schema.FirstRow); what != "" {
				f.misfit(x, i, what)
			}
		}
		if !kind.IsAdd() {
			f.t.del(k)
			continue
		}
		for f.t.has(k) && !f.t.put(k, x.rows[i]) { // until there is room, or the key is for another pass
		}
	}
	return nil
}

// fits says why a change does not fit what was told before; "" if it does. firstRow: a key's first row is told with the kind
// it was written with (`FirstRowMergeFunctionWrapper`), so a +U may stand alone.
func (f *folder) fits(kind schema.RowKind, key, row uint64, firstRow bool) string {
	old, there := f.t.get(key)
	_, updating := f.between[key]
	switch {
	case kind == schema.UpdateAfter && updating:
		delete(f.between, key)
		return ""
	case kind == schema.UpdateAfter && firstRow && !there:
		return ""
	case kind == schema.UpdateAfter:
		return "a +U without a -U before it"
	case updating:
		return "a -U must be followed by a +U"
	case kind == schema.Insert && there:
		return "a +I of a key that has a row"
	case kind == schema.Insert:
		return ""
	case !there:
		return fmt.Sprintf("a %s of a key that has no row", kind)
	case old != row:
		return fmt.Sprintf("a %s of another row than the one that was told", kind)
	}
	if kind == schema.UpdateBefore {
		f.between[key] = struct{}{}
	}
	return ""
}

func (f *folder) misfit(x *hashed, i int, what string) {
	f.misfits++
	if len(f.bad) < maxDifferences {
		f.bad = append(f.bad, misfit{snapshot: x.Snapshot, at: x.First + int64(i), key: x.keys[i], what: what, change: x.kind(i).String() + " " + string(rowText(x.Rec, i))})
	}
}

func (f *folder) end(ctx context.Context, s *shape, snap *manifest.Snapshot, gone bool) error {
	for k := range f.between {
		if !f.t.has(k) {
			continue
		}
		f.misfits++
		if len(f.bad) < maxDifferences {
			f.bad = append(f.bad, misfit{snapshot: snap.ID, at: math.MaxInt64, key: k, what: "a -U without a +U behind it in the same snapshot"})
		}
	}
	clear(f.between)
	if f.first {
		f.rep.Snapshots++
		f.rep.Snapshot = snap.ID
	}
	if f.shape = s; gone && f.misfits > 0 {
		return f.explain(ctx, s, snap, gone)
	}
	if gone {
		if f.first {
			f.rep.Expired++
		}
		return nil
	}
	f.seen++
	f.unheld = snap
	if f.seen < f.spec.Every && f.misfits == 0 {
		return nil
	}
	return f.hold(ctx, snap)
}

// last holds the fold against the last snapshot, if that has not been done.
func (f *folder) last(ctx context.Context) error {
	if f.unheld == nil {
		return nil
	}
	return f.hold(ctx, f.unheld)
}

// hold holds the fold against the table at a snapshot.
func (f *folder) hold(ctx context.Context, snap *manifest.Snapshot) error {
	s := f.shape
	waiting, err := f.waiting(ctx, s, snap)
	if err != nil {
		return err
	}
	f.seen, f.unheld = 0, nil
	if waiting && f.misfits == 0 {
		if f.first {
			f.rep.Waiting++
		}
		return nil
	}
	mine := f.bag.total()
	if s.keyAt != nil {
		mine.n, mine.sum = f.t.total()
	}
	theirs, err := f.scanned(ctx, s, snap)
	if err != nil {
		return err
	}
	f.rows = theirs.n
	if f.first {
		f.rep.Compared++
	}
	if mine != theirs || f.misfits > 0 {
		return f.explain(ctx, s, snap, false)
	}
	if f.spec.Progress != nil {
		now := *f.rep
		now.Rows += f.rows
		f.spec.Progress(now)
	}
	return nil
}

// waiting reports whether the stream has told rows of a snapshot that no scan sees yet: those that wait for a bucket.
func (f *folder) waiting(ctx context.Context, s *shape, snap *manifest.Snapshot) (bool, error) {
	if s.keyAt == nil || s.v.opts.Bucket != schema.BucketPostpone || f.spec.BeforeImage || s.exact {
		return false, nil
	}
	some, err := f.r.meta.Live(ctx, snap, func(e *manifest.Entry) bool { return e.Bucket == schema.BucketPostpone })
	return len(some) > 0, err
}

// scanned sums up what a scan gives for a snapshot, in the range of this pass. What splits sum up to is kept for as long as
// snapshots have them.
func (f *folder) scanned(ctx context.Context, s *shape, snap *manifest.Snapshot) (total splitSum, err error) {
	defer f.r.meta.Hold(snap.ID)()
	splits, err := f.r.splitsOf(ctx, s, snap)
	if err != nil {
		return total, err
	}
	known := f.sums
	if f.sumsTo != f.t.hi {
		known = nil
	}
	f.sums, f.sumsTo = make(map[string]splitSum, len(splits)), f.t.hi
	var x hashed
	for i := range splits {
		name := splits[i].name()
		sum, ok := known[name]
		if !ok {
			err := f.r.readSplit(ctx, &splits[i], s.cols, func(rec arrow.RecordBatch) error {
				x.Rec = rec
				s.hash(&x)
				for i, k := range x.keys {
					switch {
					case s.keyAt == nil:
						sum.n, sum.sum = sum.n+1, sum.sum+mix(k, seedCell)
					case f.t.has(k):
						sum.n, sum.sum = sum.n+1, sum.sum+mix(k, x.rows[i])
					}
				}
				return nil
			})
			if err != nil {
				return total, err
			}
		}
		f.sums[name] = sum
		total.n, total.sum = total.n+sum.n, total.sum+sum.sum
	}
	return total, nil
}

// name tells a split from all with other rows.
func (s *Split) name() string {
	var b strings.Builder
	for _, run := range s.Runs {
		for i := range run.Files {
			b.WriteString(run.Files[i].Name)
			if at, ok := s.dead[run.Files[i].Name]; ok {
				fmt.Fprintf(&b, " %s %d", at.file, at.where.Offset)
			}
			b.WriteByte('/')
		}
	}
	return b.String()
}
