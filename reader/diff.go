package reader

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// diffBucket is one bucket at one end of a diff.
type diffBucket struct {
	part  lsm.Part
	files []manifest.DataFile
	dead  map[string]vectorAt
	snap  *manifest.Snapshot
}

func (k bucketKey) compare(o bucketKey) int {
	return cmp.Or(strings.Compare(k.partition, o.partition), cmp.Compare(k.bucket, o.bucket))
}

// diffBuckets finds the files that a batch read of a snapshot sees, by bucket; without those that can have no row that is
// wanted, nor another version of such a row: of a key that is wanted all versions are left.
func (r *Reader) diffBuckets(ctx context.Context, t teller, snap *manifest.Snapshot) (map[bucketKey]*diffBucket, error) {
	v := t.v
	entries, err := r.find(ctx, snap, v.batchSight(), t.w)
	if err != nil {
		return nil, err
	}
	dead, err := r.vectors(ctx, v, snap)
	if err != nil {
		return nil, err
	}
	out := map[bucketKey]*diffBucket{}
	for i := range entries {
		e := &entries[i]
		k := bucketKey{string(e.Partition), e.Bucket}
		if out[k] == nil {
			part, err := v.part(e)
			if err != nil {
				return nil, err
			}
			out[k] = &diffBucket{part: part, dead: dead[k], snap: snap}
		}
		out[k].files = append(out[k].files, e.File)
	}
	return out, nil
}

// equal reports whether both ends have the same files with the same deletion vectors: then they have the same rows.
func (b *diffBucket) equal(o *diffBucket) bool {
	at := func(x *diffBucket) map[string]string {
		m := map[string]string{}
		for _, f := range x.files {
			v := x.dead[f.Name]
			m[f.Name] = fmt.Sprint(v.file, v.where.Offset)
		}
		return m
	}
	return maps.Equal(at(b), at(o))
}

// differ compares the rows of one bucket at both ends.
type differ struct {
	teller
	base Changes
}

// bucket tells the difference; before or after may be nil.
func (d *differ) bucket(ctx context.Context, before, after *diffBucket) error {
	some := after
	if after == nil {
		some = before
	}
	d.base.Bucket = some.part.Dir
	if d.v.keys == nil {
		return d.plain(ctx, before, after)
	}
	old, err := d.side(ctx, before)
	if err != nil {
		return err
	}
	defer old.stop()
	now, err := d.side(ctx, after)
	if err != nil {
		return err
	}
	defer now.stop()
	if err := old.load(); err != nil {
		return err
	}
	if err := now.load(); err != nil {
		return err
	}
	for !old.done || !now.done {
		if err := d.step(old, now); err != nil {
			return err
		}
	}
	return nil
}

// step takes the smaller key, or both if they are equal, and goes on.
func (d *differ) step(old, now *diffSide) error {
	c := 1
	switch {
	case now.done:
		c = -1
	case !old.done:
		c = old.keys.Compare(old.at, &now.keys, now.at)
	}
	switch {
	case c < 0:
		old.pick = append(old.pick, int32(old.at))
	case c > 0 || !old.sameRow(now):
		now.pick = append(now.pick, int32(now.at))
	}
	if c <= 0 {
		if err := d.next(old, true); err != nil {
			return err
		}
	}
	if c >= 0 {
		return d.next(now, false)
	}
	return nil
}

// next moves one side on; at the end of its rows it tells the picked ones.
func (d *differ) next(s *diffSide, deleted bool) error {
	if s.at++; s.at < s.rows.N {
		return nil
	}
	if err := d.tell(s, deleted); err != nil {
		return err
	}
	return s.load()
}

// wanted leaves those of the picked rows of one side for which the condition is true.
func (d *differ) wanted(s *diffSide) error {
	if d.w == nil || len(s.pick) == 0 {
		return nil
	}
	all := make([]int, len(s.rows.Cols)) // a side has all columns
	for i := range all {
		all[i] = i
	}
	f, err := d.w.all.Filter(all)
	if err != nil {
		return err
	}
	sel, err := f.Select(s.rows.Cols, s.rows.N)
	if err != nil {
		return err
	}
	good := sel.Rows(nil)
	s.pick = slices.DeleteFunc(s.pick, func(row int32) bool {
		_, found := slices.BinarySearch(good, row)
		return !found
	})
	return nil
}

// tell gives the picked rows of one side.
func (d *differ) tell(s *diffSide, deleted bool) error {
	if err := d.wanted(s); err != nil {
		return err
	}
	if len(s.pick) == 0 {
		return nil
	}
	out := datafile.Rows{N: len(s.pick)}
	for _, c := range d.cols {
		a, err := lsm.Take(s.rows.Cols[c], s.pick)
		if err != nil {
			return err
		}
		out.Cols = append(out.Cols, a)
	}
	c := d.base
	c.Rec, c.RowKinds = batch(d.v.arrowSchema(d.cols), out), make([]schema.RowKind, out.N)
	for i, at := range s.pick {
		if c.RowKinds[i] = schema.RowKind(s.rows.Kinds[at]); deleted {
			c.RowKinds[i] = schema.Delete
		}
	}
	s.pick = s.pick[:0]
	if !d.yield(c, nil) {
		return errEnd
	}
	return nil
}

// diffSide are the merged rows of one end of a bucket, in key order.
type diffSide struct {
	pull    func() (datafile.Rows, error, bool)
	stop    func()
	keysOf  *lsm.Keys
	keyCols []int
	sc      *arrow.Schema

	rows datafile.Rows
	rec  arrow.RecordBatch
	enc  *rowjson.Encoder
	keys lsm.KeyVec
	at   int
	pick []int32
	done bool
	line []byte
}

// side opens one end for reading all columns.
func (d *differ) side(ctx context.Context, b *diffBucket) (*diffSide, error) {
	s := &diffSide{keysOf: d.v.keys, keyCols: d.v.schema.KeyColumns(), stop: func() {}, done: b == nil}
	if b == nil {
		return s, nil
	}
	all, err := d.v.projection(nil)
	if err != nil {
		return nil, err
	}
	s.sc = d.v.arrowSchema(all)
	s.enc = rowjson.NewEncoder(s.sc)
	sections, err := lsm.Sections(d.v.keys, b.files) // also above level 0 with vectors: the rows must come in key order
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.part.Dir, err)
	}
	s.pull, s.stop = iter.Pull2(func(yield func(datafile.Rows, error) bool) {
		for _, runs := range sections {
			split := Split{Part: b.part, Runs: runs, view: d.v, snap: b.snap, dead: b.dead}
			err := d.r.readRows(ctx, &split, all, func(_ *columns, rows datafile.Rows) error {
				if !yield(rows, nil) {
					return errEnd
				}
				return nil
			})
			if err == errEnd {
				return
			}
			if err != nil {
				yield(datafile.Rows{}, err)
				return
			}
		}
	})
	return s, nil
}

// load takes the next rows.
func (s *diffSide) load() error {
	if s.done {
		return nil
	}
	rows, err, ok := s.pull()
	if err != nil {
		return err
	}
	if !ok {
		s.done = true
		return nil
	}
	s.rows, s.at = rows, 0
	s.rec = batch(s.sc, rows)
	cols := make([]arrow.Array, len(s.keyCols))
	for i, c := range s.keyCols {
		cols[i] = rows.Cols[c]
	}
	s.keys, err = s.keysOf.Encode(cols, rows.N)
	return err
}

// sameRow compares the current rows of both sides.
func (s *diffSide) sameRow(o *diffSide) bool {
	s.line = s.enc.Append(s.line[:0], s.rec, s.at)
	o.line = o.enc.Append(o.line[:0], o.rec, o.at)
	return bytes.Equal(s.line, o.line)
}

// plain tells the rows of a bucket of an append table: those of the files that the end has and the start has not. Files
// that are gone cannot be told apart from files that were rewritten.
func (d *differ) plain(ctx context.Context, before, after *diffBucket) error {
	old := map[string]bool{}
	if before != nil {
		for _, f := range before.files {
			old[f.Name] = true
		}
	}
	var added []manifest.DataFile
	if after != nil {
		for _, f := range after.files {
			if !old[f.Name] {
				added = append(added, f)
			}
			delete(old, f.Name)
		}
	}
	if len(old) > 0 {
		return fmt.Errorf("%w: in %s, of a table without primary key, files of the start were rewritten or removed; use the mode delta", ErrQuery, d.base.Bucket)
	}
	slices.SortStableFunc(added, func(a, b manifest.DataFile) int { return cmp.Compare(a.MinSeq, b.MinSeq) })
	for i := range added {
		split := Split{Part: after.part, Runs: []lsm.SortedRun{{Files: added[i : i+1]}}, view: d.v, snap: after.snap, dead: after.dead, where: d.w, alone: true}
		if err := d.r.tellRows(ctx, &split, d.cols, false, d.base, d.yield); err != nil {
			return err
		}
	}
	return nil
}
