package reader

import (
	"context"
	"errors"
	"time"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
)

// teller tells rows as changes.
type teller struct {
	r    *Reader
	v    *view
	w    *where // nil: all rows are wanted
	cols []int  // asked for
	// Without w: keep, when not nil, chooses files, and rows for which only, when not nil, cannot be true need not be told.
	keep  func(*manifest.Entry) (bool, error)
	only  *predicate.Predicate
	yield func(Changes, error) bool
}

// changesOf are changes of a snapshot without rows yet.
func changesOf(s *manifest.Snapshot, v *view) Changes {
	return Changes{Snapshot: s.ID, Kind: s.CommitKind, Schema: v.schema, Time: time.UnixMilli(s.TimeMillis)}
}

// files tells the rows of files as they are, of each file for itself: nothing is merged.
func (t teller) files(ctx context.Context, entries []manifest.Entry, base Changes) error {
	for i := range entries {
		e := &entries[i]
		if t.w != nil {
			if may, err := t.w.mayTell(ctx, t.r, e); err != nil || !may {
				if err != nil {
					return err
				}
				continue
			}
		}
		if t.keep != nil {
			if may, err := t.keep(e); err != nil || !may {
				if err != nil {
					return err
				}
				continue
			}
		}
		part, err := t.v.part(e)
		if err != nil {
			return err
		}
		base.Bucket = part.Dir
		if t.w == nil {
			err = t.file(ctx, part, &e.File, base)
		} else {
			err = t.fileWhere(ctx, part, &e.File, base)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// file tells the rows of a file.
func (t teller) file(ctx context.Context, part lsm.Part, f *manifest.DataFile, base Changes) error {
	spec := fileSpec{ReadSpec: datafile.ReadSpec{Cols: t.cols}, only: t.only}
	if t.only != nil {
		spec.Prune = pruneBy(t.v, t.only)
	}
	rd, err := t.r.openRows(ctx, t.v, part.Dir, f, spec, nil)
	if err != nil || rd == nil {
		return err
	}
	sc := t.v.arrowSchema(t.cols)
	err = drain(rd, func(rows datafile.Rows) bool {
		c := base
		c.Rec = batch(sc, rows)
		c.RowKinds = rowKinds(rows.Kinds)
		return t.yield(c, nil)
	})
	return errors.Join(err, rd.Close())
}

// fileWhere tells the rows of a file for which the condition is true.
func (t teller) fileWhere(ctx context.Context, part lsm.Part, f *manifest.DataFile, base Changes) error {
	split := Split{Part: part, view: t.v, where: t.w, alone: true}
	read, err := split.columns(t.cols)
	if err != nil {
		return err
	}
	spec, err := split.spec(read)
	if err != nil {
		return err
	}
	rd, err := t.r.openRows(ctx, t.v, part.Dir, f, spec, nil)
	if err != nil || rd == nil {
		return err
	}
	var failed error
	err = drain(rd, func(rows datafile.Rows) bool {
		c := base
		if c.Rec, failed = read.batch(rows); failed != nil || c.Rec == nil {
			return failed == nil
		}
		c.RowKinds = rowKinds(read.kinds(rows.Kinds))
		return t.yield(c, nil)
	})
	if failed != nil {
		err = failed
	}
	return errors.Join(err, rd.Close())
}
