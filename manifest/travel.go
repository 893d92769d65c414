package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Time travel: finding a snapshot by its time or its watermark. Both grow with the id, so a binary search reads a few
// snapshot files.

// SnapshotAt gives the latest snapshot made at or before a time (`scan.timestamp-millis`). ErrNotThatOld: all snapshots
// that are left are younger.
func (t *Table) SnapshotAt(ctx context.Context, at time.Time) (*Snapshot, error) {
	limit := at.UnixMilli()
	next, first, last, err := t.firstWhere(ctx, func(s *Snapshot) bool { return s.TimeMillis > limit })
	switch {
	case err != nil:
		return nil, err
	case next == nil:
		return last, nil
	case next.ID == first.ID:
		return nil, fmt.Errorf("%w: at %s; the earliest snapshot of %s, %d, is of %s", ErrNotThatOld, stamp(limit), t.store.URL(""), first.ID, stamp(first.TimeMillis))
	}
	return t.Snapshot(ctx, next.ID-1)
}

// SnapshotSince gives the first snapshot made at or after a time, nil if there is none yet.
func (t *Table) SnapshotSince(ctx context.Context, at time.Time) (*Snapshot, error) {
	limit := at.UnixMilli()
	s, _, _, err := t.firstWhere(ctx, func(s *Snapshot) bool { return s.TimeMillis >= limit })
	return s, err
}

// SnapshotOfWatermark gives the first snapshot whose watermark is at or after one, in milliseconds (`scan.watermark`).
// ErrNotThatOld: there is none.
func (t *Table) SnapshotOfWatermark(ctx context.Context, watermark int64) (*Snapshot, error) {
	s, _, last, err := t.firstWhere(ctx, func(s *Snapshot) bool { return s.Watermark != nil && *s.Watermark >= watermark })
	if err != nil || s != nil {
		return s, err
	}
	have := "none"
	if last.Watermark != nil {
		have = fmt.Sprint(*last.Watermark)
	}
	return nil, fmt.Errorf("%w: no snapshot of %s has watermark %d or a later one; that of the latest, %d, is %s", ErrNotThatOld, t.store.URL(""), watermark, last.ID, have)
}

// ErrNotThatOld: no snapshot is there for the time or watermark that was asked for.
var ErrNotThatOld = errors.New("no such snapshot")

func stamp(millis int64) string {
	return time.UnixMilli(millis).UTC().Format("2006-01-02T15:04:05.000Z")
}

// firstWhere finds the first snapshot for which a condition holds that, once true, stays true; nil if it holds for none.
// It also gives the earliest and the latest snapshot.
func (t *Table) firstWhere(ctx context.Context, holds func(*Snapshot) bool) (found, first, last *Snapshot, err error) {
	if first, err = t.Earliest(ctx); err != nil {
		return nil, nil, nil, err
	}
	found, last, err = t.firstFrom(ctx, first, t.Snapshot, holds)
	return found, first, last, err
}

// firstFrom is firstWhere from a snapshot on, by a way to read them.
func (t *Table) firstFrom(ctx context.Context, first *Snapshot, read func(context.Context, int64) (*Snapshot, error), holds func(*Snapshot) bool) (found, last *Snapshot, err error) {
	if last, err = t.Latest(ctx); err != nil {
		return nil, nil, err
	}
	lo, hi := first.ID, last.ID+1 // the answer is in [lo, hi]; hi: none
	for lo < hi {
		mid := lo + (hi-lo)/2
		s, err := read(ctx, mid)
		switch {
		case errors.Is(err, ErrSnapshotExpired): // since we looked
			lo = mid + 1
		case err != nil:
			return nil, nil, err
		case holds(s):
			found, hi = s, mid
		default:
			lo = mid + 1
		}
	}
	return found, last, nil
}
