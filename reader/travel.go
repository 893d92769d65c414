package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// travels is how many of the ways to ask for a certain snapshot are used.
func (q *Query) travels() int {
	n := 0
	for _, set := range []bool{q.Snapshot != 0, q.Tag != "", !q.At.IsZero(), q.Watermark != nil} {
		if set {
			n++
		}
	}
	return n
}

// Snapshot gives the snapshot that a query asks for.
func (r *Reader) Snapshot(ctx context.Context, q Query) (*manifest.Snapshot, error) {
	return r.snapshot(ctx, q)
}

// snapshot finds the snapshot that a query asks for; manifest.ErrNoSnapshot when the table has none and any will do.
// Errors say what the table has instead.
func (r *Reader) snapshot(ctx context.Context, q Query) (*manifest.Snapshot, error) {
	switch {
	case q.travels() > 1:
		return nil, fmt.Errorf("%w: only one of snapshot, tag, time and watermark can be asked for", ErrQuery)
	case q.Tag != "":
		tag, err := r.meta.Tag(ctx, q.Tag)
		if err != nil {
			return nil, err
		}
		return tag.Snapshot, nil
	case !q.At.IsZero():
		return found(r.meta.SnapshotAt(ctx, q.At))
	case q.Watermark != nil:
		return found(r.meta.SnapshotOfWatermark(ctx, *q.Watermark))
	case q.Snapshot == 0:
		return r.meta.Latest(ctx)
	}
	return r.numbered(ctx, q.Snapshot)
}

// found hides that a table without snapshots has none: a query for a certain one has no answer then.
func found(s *manifest.Snapshot, err error) (*manifest.Snapshot, error) {
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return nil, fmt.Errorf("%w: %s", ErrQuery, err.Error())
	}
	return s, err
}

// numbered reads a snapshot by its number.
func (r *Reader) numbered(ctx context.Context, id int64) (*manifest.Snapshot, error) {
	s, err := r.meta.Snapshot(ctx, id)
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, manifest.ErrSnapshotExpired) {
		first, ferr := r.meta.Earliest(ctx)
		last, lerr := r.meta.Latest(ctx)
		if ferr == nil && lerr == nil {
			err = fmt.Errorf("%w; the table has snapshots %d to %d", err, first.ID, last.ID)
		}
	}
	return s, err
}
