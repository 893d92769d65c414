package manifest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/storage"
)

// Finding snapshots. Two facts make it cheap and exact: ids are contiguous between the earliest and the latest, and
// expiry deletes in ascending order. So "N exists" proves that nothing above N has expired, and hints are only hints.

const (
	latestHint   = "snapshot/LATEST"
	earliestHint = "snapshot/EARLIEST"
	// maxHint bounds a hint file: a decimal int64.
	maxHint = 32
	// maxWalk bounds how many snapshots are stepped over one by one before the folder is listed instead.
	maxWalk = 64
)

// Latest gives the newest snapshot, or ErrNoSnapshot. A Table that has seen a snapshot starts from it, otherwise from
// the LATEST hint; the folder is listed only when neither helps.
func (t *Table) Latest(ctx context.Context) (*Snapshot, error) {
	s, err := t.latest(ctx)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, t.store.URL(""))
	}
	return s, nil
}

// LatestListed is Latest by listing the folder, for a writer that begins. After a power cut the LATEST hint may be old and
// an expired snapshot may be back; a walk from there could end at a gap that expiry made and take it for the end.
func (t *Table) LatestListed(ctx context.Context) (*Snapshot, error) {
	_, last, err := t.listSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	if last > 0 {
		if _, err := t.readSnapshot(ctx, last); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, err
		}
	}
	return t.Latest(ctx) // from what was just seen
}

// latest is Latest with nil for a table without snapshots.
func (t *Table) latest(ctx context.Context) (*Snapshot, error) {
	t.mu.Lock()
	from := t.known
	t.mu.Unlock()
	if from == nil {
		if id, ok := t.hint(ctx, latestHint); ok {
			s, err := t.readSnapshot(ctx, id)
			if err != nil && !errors.Is(err, storage.ErrNotFound) {
				return nil, err
			}
			from = s
		}
	}
	if from != nil {
		s, err := t.forward(ctx, from)
		if s != nil || err != nil {
			return s, err
		}
	}
	_, last, err := t.listSnapshots(ctx)
	if err != nil || last == 0 {
		return nil, err
	}
	return t.readSnapshot(ctx, last)
}

// forward steps from a snapshot to the newest. It gives nil when the steps are too many, or when they ended at a gap
// that expiry may have made, so that only a listing can tell.
func (t *Table) forward(ctx context.Context, from *Snapshot) (*Snapshot, error) {
	s := from
	for range maxWalk {
		next, err := t.readSnapshot(ctx, s.ID+1)
		if err == nil {
			s = next
			continue
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return nil, err
		}
		// The next one was not there. If this one still is, the next has never been there.
		if ok, err := t.exists(ctx, snapshotName(s.ID)); err != nil || !ok {
			return nil, err
		}
		return s, nil
	}
	return nil, nil
}

// Earliest gives the oldest snapshot that has not expired, or ErrNoSnapshot.
func (t *Table) Earliest(ctx context.Context) (*Snapshot, error) {
	if id, ok := t.hint(ctx, earliestHint); ok {
		s, err := t.readSnapshot(ctx, id)
		if err == nil || !errors.Is(err, storage.ErrNotFound) {
			return s, err
		}
	}
	for range 3 { // an expiry may delete what was just listed
		first, _, err := t.listSnapshots(ctx)
		if err != nil {
			return nil, err
		}
		if first == 0 {
			return nil, fmt.Errorf("%w: %s", ErrNoSnapshot, t.store.URL(""))
		}
		s, err := t.readSnapshot(ctx, first)
		if err == nil || !errors.Is(err, storage.ErrNotFound) {
			return s, err
		}
	}
	return nil, fmt.Errorf("earliest snapshot of %s: %w: snapshots expire faster than they can be read", t.store.URL(""), ErrSnapshotExpired)
}

// Snapshot gives a snapshot by id: ErrSnapshotExpired when it is gone, storage.ErrNotFound when it is yet to come.
// It costs one read when it is there, and one or two more to tell the two cases apart.
func (t *Table) Snapshot(ctx context.Context, id int64) (*Snapshot, error) {
	s, err := t.readSnapshot(ctx, id)
	if err == nil || !errors.Is(err, storage.ErrNotFound) {
		return s, err
	}
	expired, xerr := t.expired(ctx, id)
	if xerr != nil {
		return nil, xerr
	}
	if expired {
		return nil, fmt.Errorf("snapshot %d of %s: %w", id, t.store.URL(""), ErrSnapshotExpired)
	}
	return nil, err
}

// Look is Snapshot for one read: storage.ErrNotFound does not say whether the snapshot is yet to come or has expired.
func (t *Table) Look(ctx context.Context, id int64) (*Snapshot, error) {
	return t.readSnapshot(ctx, id)
}

// expired tells for a snapshot that was not found whether it has been there.
func (t *Table) expired(ctx context.Context, id int64) (bool, error) {
	t.mu.Lock()
	seen := t.known != nil && t.known.ID >= id
	t.mu.Unlock()
	if id < 1 || seen {
		return seen, nil
	}
	if id > 1 {
		if ok, err := t.exists(ctx, snapshotName(id-1)); err != nil || ok {
			return false, err
		}
	}
	if first, ok := t.hint(ctx, earliestHint); ok {
		ok, err := t.exists(ctx, snapshotName(first))
		if err != nil {
			return false, err
		}
		if ok {
			return id < first, nil
		}
	}
	first, _, err := t.listSnapshots(ctx)
	return first > 0 && id < first, err
}

// EachSnapshot yields the snapshots from id "from" to id "to", both included, in order. An error ends it.
func (t *Table) EachSnapshot(ctx context.Context, from, to int64) iter.Seq2[*Snapshot, error] {
	return func(yield func(*Snapshot, error) bool) {
		for id := from; id <= to; id++ {
			s, err := t.Snapshot(ctx, id)
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// LastOfUser gives the newest snapshot that a commit user wrote, walking back from the latest. ErrNoSnapshot: none of
// the snapshots that have not expired is of this user.
func (t *Table) LastOfUser(ctx context.Context, user string) (*Snapshot, error) {
	s, err := t.latest(ctx)
	if err != nil {
		return nil, err
	}
	for s != nil {
		if s.CommitUser == user {
			return s, nil
		}
		if s.ID == 1 {
			break
		}
		s, err = t.readSnapshot(ctx, s.ID-1)
		if errors.Is(err, storage.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w of user %q: %s", ErrNoSnapshot, user, t.store.URL(""))
}

// readSnapshot reads one snapshot file and remembers the newest.
func (t *Table) readSnapshot(ctx context.Context, id int64) (*Snapshot, error) {
	name := snapshotName(id)
	data, err := storage.ReadAll(ctx, t.store, name, maxSnapshotSize)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: %w", id, err)
	}
	s, err := decodeSnapshot(t.store.URL(name), data)
	if err != nil {
		return nil, err
	}
	if s.ID != id {
		return nil, &CorruptError{Name: t.store.URL(name), Reason: fmt.Sprintf("the file says that it is snapshot %d", s.ID)}
	}
	t.saw(s)
	return s, nil
}

// saw remembers the newest snapshot.
func (t *Table) saw(s *Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || t.known.ID < s.ID {
		t.known = s
	}
}

// hint reads a hint file. Hints are overwritten in place, so an empty, torn or missing one means nothing.
func (t *Table) hint(ctx context.Context, name string) (int64, bool) {
	data, err := storage.ReadAll(ctx, t.store, name, maxHint)
	if err != nil {
		return 0, false
	}
	id, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return id, err == nil && id > 0
}

// putHint writes a hint; failing costs a reader a listing and nothing else.
func (t *Table) putHint(ctx context.Context, name string, id int64) {
	if err := t.store.Put(ctx, name, strconv.AppendInt(nil, id, 10)); err != nil {
		t.env.Log.Debug("hint not written", "name", t.store.URL(name), "error", err)
	}
}

// exists asks for an object without reading it.
func (t *Table) exists(ctx context.Context, name string) (bool, error) {
	f, err := t.store.Open(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := f.Close(); err != nil {
		return false, fmt.Errorf("close %s: %w", t.store.URL(name), err)
	}
	return true, nil
}

// snapshotIDs lists the ids of all snapshot files, in no order.
func (t *Table) snapshotIDs(ctx context.Context) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		for info, err := range t.store.List(ctx, "snapshot") {
			if err != nil {
				yield(0, fmt.Errorf("list snapshots: %w", err))
				return
			}
			if id, ok := numbered(path.Base(info.Name), "snapshot-"); ok && id > 0 && !yield(id, nil) {
				return
			}
		}
	}
}

// listSnapshots finds the earliest and the latest snapshot id by listing, 0 when there are none. Ids are contiguous;
// a power cut can bring deleted files back below the earliest, so what lies below a gap does not count.
func (t *Table) listSnapshots(ctx context.Context) (first, last int64, err error) {
	ids, err := t.sortedIDs(ctx)
	if err != nil || len(ids) == 0 {
		return 0, 0, err
	}
	return contiguous(ids), ids[len(ids)-1], nil
}

// sortedIDs lists the ids of all snapshot files in ascending order.
func (t *Table) sortedIDs(ctx context.Context) ([]int64, error) {
	var ids []int64
	for id, err := range t.snapshotIDs(ctx) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// contiguous gives the first id of the unbroken run that ends with the last.
func contiguous(ids []int64) int64 {
	at := len(ids) - 1
	for at > 0 && ids[at-1] == ids[at]-1 {
		at--
	}
	return ids[at]
}
