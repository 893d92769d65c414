package manifest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/calve-io/calve/storage"
)

// Long-lived changelogs: where the options changelog.*-retained keep changes longer than snapshots, the expiry of snapshot N
// leaves the file `changelog/changelog-N` in its place, which has the snapshot's JSON (`Changelog`, `ChangelogManager`). Of
// what it names there are only the files that tell the changes: its changelog, or in a table without changelog producer the
// data files that it added and its manifests. They expire by themselves, in ascending order too.

const (
	changelogDir          = "changelog"
	changelogLatestHint   = changelogDir + "/LATEST"
	changelogEarliestHint = changelogDir + "/EARLIEST"
)

func changelogName(id int64) string {
	return changelogDir + "/changelog-" + strconv.FormatInt(id, 10)
}

// Told gives what tells the changes of a snapshot: the snapshot or, when that has expired, its long-lived changelog, of
// which nothing but Delta and Changelog can be read. ErrSnapshotExpired: both are gone; storage.ErrNotFound: the snapshot is
// yet to come.
func (t *Table) Told(ctx context.Context, id int64) (*Snapshot, error) {
	s, err := t.Snapshot(ctx, id)
	if !errors.Is(err, ErrSnapshotExpired) {
		return s, err
	}
	c, cerr := t.LongLived(ctx, id)
	if errors.Is(cerr, storage.ErrNotFound) {
		return nil, err
	}
	return c, cerr
}

// LongLived gives the long-lived changelog of an expired snapshot: storage.ErrNotFound when there is none.
func (t *Table) LongLived(ctx context.Context, id int64) (*Snapshot, error) {
	name := changelogName(id)
	data, err := storage.ReadAll(ctx, t.store, name, maxSnapshotSize)
	if err != nil {
		return nil, fmt.Errorf("changelog %d: %w", id, err)
	}
	s, err := decodeSnapshot(t.store.URL(name), data)
	if err == nil && s.ID != id {
		err = &CorruptError{Name: t.store.URL(name), Reason: fmt.Sprintf("the file says that it is of snapshot %d", s.ID)}
	}
	return s, err
}

// EarliestTold gives the earliest snapshot whose changes are there: the earliest long-lived changelog, or the earliest
// snapshot if there is none. ErrNoSnapshot: the table has none.
func (t *Table) EarliestTold(ctx context.Context) (*Snapshot, error) {
	s, err := t.Earliest(ctx)
	if err != nil || s.ID == 1 {
		return s, err
	}
	for range 3 { // an expiry may delete what was just found
		id, err := t.earliestLongLived(ctx)
		if err != nil || id == 0 || id >= s.ID {
			return s, err
		}
		c, err := t.LongLived(ctx, id)
		if !errors.Is(err, storage.ErrNotFound) {
			return c, err
		}
	}
	return s, nil
}

// ToldSince gives what tells the changes of the first snapshot, of those that are left and of those whose long-lived
// changelogs are, that was made at or after a time; nil if there is none yet.
func (t *Table) ToldSince(ctx context.Context, at time.Time) (*Snapshot, error) {
	limit := at.UnixMilli()
	first, err := t.EarliestTold(ctx)
	if err != nil {
		return nil, err
	}
	s, _, err := t.firstFrom(ctx, first, t.Told, func(s *Snapshot) bool { return s.TimeMillis >= limit })
	return s, err
}

// ToldUpTo gives what tells the changes of the last snapshot made at or before a time. ErrNotThatOld: all that are left are
// younger.
func (t *Table) ToldUpTo(ctx context.Context, at time.Time) (*Snapshot, error) {
	limit := at.UnixMilli()
	first, err := t.EarliestTold(ctx)
	if err != nil {
		return nil, err
	}
	next, last, err := t.firstFrom(ctx, first, t.Told, func(s *Snapshot) bool { return s.TimeMillis > limit })
	switch {
	case err != nil:
		return nil, err
	case next == nil:
		return last, nil
	case next.ID == first.ID:
		return nil, fmt.Errorf("%w: at %s; the earliest changes of %s, of snapshot %d, are of %s", ErrNotThatOld, stamp(limit), t.store.URL(""), first.ID, stamp(first.TimeMillis))
	}
	return t.Told(ctx, next.ID-1)
}

// earliestLongLived gives the id of the earliest long-lived changelog, 0 if there is none.
func (t *Table) earliestLongLived(ctx context.Context) (int64, error) {
	if id, ok := t.hint(ctx, changelogEarliestHint); ok {
		if there, err := t.exists(ctx, changelogName(id)); err != nil || there {
			return id, err
		}
	}
	ids, err := t.longLivedIDs(ctx, changelogDir)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return ids[0], nil
}

// longLivedIDs lists the ids of the long-lived changelogs of a folder, in ascending order.
func (t *Table) longLivedIDs(ctx context.Context, dir string) ([]int64, error) {
	var ids []int64
	for info, err := range t.store.List(ctx, dir) {
		if err != nil {
			return nil, fmt.Errorf("list changelogs: %w", err)
		}
		if id, ok := numbered(path.Base(info.Name), "changelog-"); ok && id > 0 && !info.Dir {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}
