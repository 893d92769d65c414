package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/storage"
)

// A conditional put only proves that the name was free. A committer that slept between reading the latest snapshot and
// its put may find the name free because others have taken it, moved on, and expired it: its snapshot would lie below
// the earliest, seen by nobody. So a commit looks once more at the snapshot it was built on. Expiry deletes in
// ascending order: while the base is there, nothing above it has expired.

// confirm says whether the snapshot that was put is part of the table's history, and writes the hints beside that.
func (t *Table) confirm(ctx context.Context, d *doubtful, entries []Entry) (bool, error) {
	if d.base == nil {
		t.putHint(ctx, latestHint, d.snap.ID)
		t.putHint(ctx, earliestHint, d.snap.ID)
		return t.traced(ctx, d, entries)
	}
	var there bool
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		t.putHint(gctx, latestHint, d.snap.ID)
		return nil
	})
	g.Go(func() (err error) {
		there, err = t.exists(gctx, snapshotName(d.base.ID))
		return err
	})
	if err := g.Wait(); err != nil {
		return false, fmt.Errorf("look at the base of snapshot %d: %w", d.snap.ID, err)
	}
	if there && !d.sent {
		return true, nil
	}
	return t.traced(ctx, d, entries)
}

// traced looks for the commit in what lies above it, for the rare case in which the base does not prove anything. It
// gives an error that is storage.ErrUnknown when that cannot be told.
func (t *Table) traced(ctx context.Context, d *doubtful, entries []Entry) (bool, error) {
	id := d.snap.ID
	data, err := storage.ReadAll(ctx, t.store, snapshotName(id), maxSnapshotSize)
	present := err == nil
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return false, fmt.Errorf("read snapshot %d back: %w", id, err)
	}
	if present && !bytes.Equal(data, d.data) {
		return false, nil
	}
	next, err := t.lowestAbove(ctx, id)
	if err != nil {
		return false, err
	}
	if next == nil {
		if present {
			return true, nil // it is the newest
		}
		return false, nil // neither it nor a later one is there: nothing was written
	}
	file := firstAdded(entries)
	if file == nil {
		return t.tracedByCount(ctx, d, next, present)
	}
	built, err := t.builtUpon(ctx, next, file)
	switch {
	case err != nil || built:
		return built, err
	case !present && next.ID > id+1: // what lies between has expired, and it may have replaced the file
		return false, undecidable(id)
	}
	if present {
		if err := t.store.Delete(ctx, snapshotName(id)); err != nil {
			return false, fmt.Errorf("snapshot %d was put below the earliest snapshot; deleting it: %w", id, err)
		}
	}
	return false, nil
}

// tracedByCount decides for a commit that added no file and so leaves no trace in later snapshots: it counts when the
// snapshot is there, the next one continues its row count, and the earliest snapshot is not above it.
func (t *Table) tracedByCount(ctx context.Context, d *doubtful, next *Snapshot, present bool) (bool, error) {
	continued := next.ID == d.snap.ID+1 && next.TotalRecordCount-next.DeltaRecordCount == d.snap.TotalRecordCount
	if first, ok := t.hint(ctx, earliestHint); !present || !continued || (ok && first > d.snap.ID) {
		return false, undecidable(d.snap.ID)
	}
	return true, nil
}

// undecidable is the outcome that only a person or a new start can settle.
func undecidable(id int64) error {
	return refusal{fmt.Errorf("%w: snapshot %d and what it was built on have expired while it was committed; "+
		"open the table again and look where it stands", storage.ErrUnknown, id)}
}

// lowestAbove gives the lowest snapshot above an id, nil when there is none.
func (t *Table) lowestAbove(ctx context.Context, id int64) (*Snapshot, error) {
	for range 3 { // expiry may delete what was just found
		lowest := int64(0)
		for n, err := range t.snapshotIDs(ctx) {
			if err != nil {
				return nil, err
			}
			if n > id && (lowest == 0 || n < lowest) {
				lowest = n
			}
		}
		if lowest == 0 {
			return nil, nil
		}
		s, err := t.readSnapshot(ctx, lowest)
		if err == nil || !errors.Is(err, storage.ErrNotFound) {
			return s, err
		}
	}
	return nil, fmt.Errorf("snapshots above %d: %w", id, ErrSnapshotExpired)
}

// firstAdded gives a file that the commit brought.
func firstAdded(entries []Entry) *Entry {
	for i := range entries {
		if entries[i].Kind == Add {
			return &entries[i]
		}
	}
	return nil
}

// builtUpon reports that a snapshot knows a file: it is live in it, or the snapshot itself removed it.
func (t *Table) builtUpon(ctx context.Context, s *Snapshot, file *Entry) (bool, error) {
	id := idOf(file)
	live, err := t.Live(ctx, s, func(e *Entry) bool { return e.File.Name == id.name && idOf(e) == id })
	if err != nil || len(live) > 0 {
		return len(live) > 0, err
	}
	delta, err := t.Delta(ctx, s)
	if err != nil {
		return false, err
	}
	for i := range delta {
		if idOf(&delta[i]) == id {
			return true, nil
		}
	}
	return false, nil
}
