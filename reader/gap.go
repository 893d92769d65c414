package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// GapError: a stream wants the changes of snapshots that expiry has removed, so what it told is not all there was. It
// matches manifest.ErrSnapshotExpired. A reader goes on from Earliest, whose rows it must read anew as a whole
// (StartMode Full, or OnGap Rescan).
type GapError struct {
	Table    string    // its location
	From, To int64     // the snapshots whose changes are gone
	Since    time.Time // the snapshot before them was made then; zero: not known
	Until    time.Time // the first one after them, or the earliest that is left, was made then; zero: there is none
	Earliest int64     // the earliest snapshot that is left; 0: none
	Latest   int64     // the newest one; 0: none
}

// Error says what is gone, what is left and what to do.
func (e *GapError) Error() string {
	text := fmt.Sprintf("the changes of snapshots %d to %d of %s are gone", e.From, e.To, e.Table)
	if e.From == e.To {
		text = fmt.Sprintf("the changes of snapshot %d of %s are gone", e.From, e.Table)
	}
	if !e.Since.IsZero() {
		text += ", made after " + e.Since.UTC().Format(time.RFC3339)
	}
	if e.Earliest == 0 {
		return text + ": expired, and no snapshot is left"
	}
	return text + fmt.Sprintf(" before %s: they have expired; the table has snapshots %d to %d. Read its rows anew (start full, or on gap rescan), and use a consumer so that expiry waits for you",
		e.Until.UTC().Format(time.RFC3339), e.Earliest, e.Latest)
}

// Is makes every GapError match manifest.ErrSnapshotExpired.
func (e *GapError) Is(target error) bool { return target == manifest.ErrSnapshotExpired }

// OnGap says what a tail does when changes that it was to tell are gone.
type OnGap int

// What a tail can do about a gap.
const (
	// Fail: it ends with a *GapError.
	Fail OnGap = iota
	// Rescan: it tells the gap (Event), then the rows of the newest snapshot as state, which stand for all that was told
	// before, and goes on after that.
	Rescan
)

// ParseOnGap reads "fail" or "rescan".
func ParseOnGap(s string) (OnGap, error) {
	switch s {
	case "fail", "":
		return Fail, nil
	case "rescan":
		return Rescan, nil
	}
	return Fail, fmt.Errorf("%w: on gap %q: use fail or rescan", ErrQuery, s)
}

// gap describes what is missing from a snapshot on; since is when the one before it was made, if that is known. told: the
// changes of long-lived changelogs will do.
func (r *Reader) gap(ctx context.Context, from int64, since time.Time, told bool) (*GapError, error) {
	g := &GapError{Table: r.store.URL(""), From: from, To: from, Since: since}
	first, err := r.meta.Earliest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	last, err := r.meta.Latest(ctx)
	if err != nil {
		return nil, err
	}
	g.Earliest, g.Latest = first.ID, last.ID
	if told {
		if first, err = r.meta.EarliestTold(ctx); err != nil {
			return nil, err
		}
	}
	g.To, g.Until = max(from, first.ID-1), time.UnixMilli(first.TimeMillis)
	return g, nil
}

// gapOr turns an error of reading a snapshot into a *GapError if the snapshot has expired, by itself or while its files
// were read. Paimon deletes files before their snapshot, so for a while that is not to be seen. told: see gap.
func (r *Reader) gapOr(ctx context.Context, id int64, since time.Time, told bool, err error) error {
	if !errors.Is(err, manifest.ErrSnapshotExpired) {
		if !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		gone := false
		for wait := 10 * time.Millisecond; wait < 2*time.Second && !gone; wait *= 2 {
			if _, serr := r.meta.Snapshot(ctx, id); errors.Is(serr, manifest.ErrSnapshotExpired) {
				gone = true
				break
			}
			select {
			case <-ctx.Done():
				return err
			case <-r.env.After(wait):
			}
		}
		if !gone {
			return err
		}
	}
	g, gerr := r.gap(ctx, id, since, told)
	if gerr != nil {
		return errors.Join(err, gerr)
	}
	return g
}
