package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// leaveChangelogs writes the long-lived changelogs of snapshots, from one up to another one without it, before they are
// deleted: at every moment one of the two can be read.
func (t *Table) leaveChangelogs(ctx context.Context, first, end int64) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(deleters)
	for id := first; id < end; id++ {
		g.Go(func() error {
			// The bytes of the snapshot file, so that nothing is lost that this version does not know.
			data, err := storage.ReadAll(gctx, t.store, snapshotName(id), maxSnapshotSize)
			if errors.Is(err, storage.ErrNotFound) {
				return nil // another process expires the same snapshots
			}
			if err == nil {
				err = t.replace(gctx, changelogName(id), data)
			}
			if err != nil {
				return fmt.Errorf("changelog %d: %w", id, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Paimon takes the hint as it is unless the next changelog is there, so it must not be ahead of them.
	t.putHint(ctx, changelogLatestHint, end-1)
	return nil
}

// expireChangelogs deletes the oldest long-lived changelogs (`ExpireChangelogImpl`). As in Paimon the newest one stays.
// Nothing is done where the options do not keep changelogs: see sweepChangelogs.
func (t *Table) expireChangelogs(ctx context.Context, limit int, now time.Time, sweep bool, done *Expired) error {
	o, err := t.latestOptions(ctx)
	if err != nil || !o.ChangelogDecoupled() {
		return err
	}
	earliest, err := t.Earliest(ctx)
	if errors.Is(err, ErrNoSnapshot) {
		return nil
	}
	if err != nil {
		return err
	}
	first, last, err := t.longLivedSpan(ctx, earliest.ID, sweep)
	if err != nil || first == 0 {
		return err
	}
	end, err := t.changelogsUntil(ctx, first, last, &o, limit, now)
	if err != nil || end <= first {
		return err
	}
	_, err = t.dropChangelogs(ctx, first, last, end, earliest, done)
	return err
}

// sweepChangelogs deletes all long-lived changelogs where the options do not keep them any more, limit of them at a time.
// (Paimon's expiry leaves them to its procedure `expire_changelogs`, `ExpireChangelogImpl.expireAll`.) It comes before the
// expiry of snapshots, which then goes by options that spare nothing of what a changelog names. left: a consumer or a read
// wants one of them, or a tag has come in between; then no snapshot may expire yet.
func (t *Table) sweepChangelogs(ctx context.Context, limit int, done *Expired) (left bool, err error) {
	o, err := t.latestOptions(ctx)
	if err != nil || o.ChangelogDecoupled() {
		return false, err
	}
	ids, err := t.longLivedIDs(ctx, changelogDir)
	if err != nil || len(ids) == 0 {
		return false, err
	}
	oldest, newest, _, err := t.span(ctx)
	if err != nil || newest == 0 {
		return false, err
	}
	earliest, err := t.readSnapshot(ctx, oldest)
	if err != nil {
		return false, err
	}
	// One whose snapshot is there, too, is of an expiry that was cut short. The snapshot keeps all that it names.
	n, _ := slices.BinarySearch(ids, oldest)
	for _, id := range ids[n:] {
		if err := t.store.Delete(ctx, changelogName(id)); err != nil {
			return false, err
		}
		done.Changelogs++
	}
	for ids = ids[:n]; len(ids) > 0; {
		first, last := ids[0], ids[len(ids)-1]
		end, err := t.wanted(ctx)
		if err != nil {
			return false, err
		}
		end = min(end, last+1)
		if limit > 0 {
			end = min(end, first+int64(limit))
		}
		if end <= first {
			return true, nil
		}
		if gone, err := t.dropChangelogs(ctx, first, last, end, earliest, done); err != nil || !gone {
			return true, err
		}
		n, _ := slices.BinarySearch(ids, end)
		ids = ids[n:]
	}
	return false, nil
}

// latestOptions gives the options of the newest schema.
func (t *Table) latestOptions(ctx context.Context) (schema.Options, error) {
	s, err := t.LatestSchema(ctx)
	if err != nil {
		return schema.Options{}, err
	}
	return s.ParseOptions()
}

// dropChangelogs deletes the long-lived changelogs from first up to another one without it, and what only they need. last
// is the latest one there is. gone: they were not wanted at the last moment.
func (t *Table) dropChangelogs(ctx context.Context, first, last, end int64, earliest *Snapshot, done *Expired) (gone bool, err error) {
	tags, err := t.Tags(ctx)
	if err != nil {
		return false, err
	}
	x, err := t.planChangelogs(ctx, first, last, end, earliest)
	if err != nil {
		return false, err
	}
	if wanted, err := t.wantedSince(ctx, end, tags); err != nil || wanted {
		return false, err
	}
	swept, n := t.swept, 0
	t.swept = false // until this one has come to its end
	err = t.carryOut(ctx, x, expiryRecord{End: end, Told: true}, done, func() error {
		if end > last { // Paimon would take the hint for a changelog that is there
			if err := t.store.Delete(ctx, changelogLatestHint); err != nil {
				return err
			}
		}
		for id := first; id < end; id++ {
			if err := t.store.Delete(ctx, changelogName(id)); err != nil {
				return err
			}
			n++
		}
		return t.replace(ctx, changelogEarliestHint, strconv.AppendInt(nil, end, 10)) // durable, and so are the deletions
	})
	done.Changelogs += n
	if err == nil {
		t.swept = swept
	}
	return err == nil, err
}

// longLivedSpan gives the earliest and the latest long-lived changelog below the earliest snapshot, 0 if there is none. The
// first expiry of a Table lists the folder and also finds those that a power cut brought back.
func (t *Table) longLivedSpan(ctx context.Context, earliest int64, sweep bool) (first, last int64, err error) {
	if !sweep {
		if first, err = t.earliestLongLived(ctx); err != nil || first == 0 {
			return 0, 0, err
		}
		there, err := t.exists(ctx, changelogName(earliest-1))
		if err != nil {
			return 0, 0, err
		}
		if there && first < earliest {
			return first, earliest - 1, nil
		}
	}
	ids, err := t.longLivedIDs(ctx, changelogDir)
	if err != nil {
		return 0, 0, err
	}
	// One whose snapshot is there, too, is of an expiry that was cut short.
	n, _ := slices.BinarySearch(ids, earliest)
	if ids = ids[:n]; n == 0 {
		return 0, 0, nil
	}
	return ids[0], ids[n-1], nil
}

// changelogsUntil gives the id of the first changelog that stays where the options keep them.
func (t *Table) changelogsUntil(ctx context.Context, first, last int64, o *schema.Options, limit int, now time.Time) (int64, error) {
	latest, err := t.Latest(ctx)
	if err != nil {
		return 0, err
	}
	end := min(last, latest.ID-int64(o.Changelog.NumRetainedMin)+1)
	must := max(first, latest.ID-int64(o.Changelog.NumRetainedMax)+1) // those below must go, whatever their age
	wanted, err := t.wanted(ctx)
	if err != nil {
		return 0, err
	}
	end = min(end, wanted)
	if limit > 0 {
		end = min(end, first+int64(limit))
	}
	young := now.Add(-o.Changelog.TimeRetained).UnixMilli()
	for id := must; id < end; id++ {
		c, err := t.LongLived(ctx, id)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if c.TimeMillis >= young {
			return id, nil
		}
	}
	return end, nil
}

// planChangelogs reads what the expiring changelogs name and takes off what must stay. A data file that a changelog's
// snapshot removed told the changes of an earlier one, which goes too.
func (t *Table) planChangelogs(ctx context.Context, first, last, end int64, earliest *Snapshot) (*expiry, error) {
	x, err := t.newExpiry(ctx)
	if err != nil {
		return nil, err
	}
	deltas := make([][]Entry, end-first)
	changes := make([][]Entry, end-first)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i := range deltas {
		g.Go(func() error {
			c, err := t.LongLived(gctx, first+int64(i))
			if errors.Is(err, storage.ErrNotFound) {
				return nil // another process expires the same ones
			}
			if err != nil {
				return err
			}
			if _, err = x.lives(gctx, c, x.lists, x.manifests); err != nil {
				return err
			}
			deltas[i], changes[i], err = x.told(gctx, c)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i := range deltas {
		// The expiry of its snapshot has left the data files that it removed and that told the changes of earlier ones.
		if err := x.follow(deltas[i], func(e *Entry) bool { return !appended(e) }); err != nil {
			return nil, err
		}
		for j := range changes[i] {
			if err := x.condemn(&changes[i][j]); err != nil {
				return nil, err
			}
		}
	}
	// Manifests that a later changelog names are named by all in between that have kept their manifests.
	for id := end; id <= last && x.byData; id++ {
		c, err := t.LongLived(ctx, id)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if whole, err := x.lives(ctx, c, x.stays, x.stays); err != nil || whole {
			if err != nil {
				return nil, err
			}
			break
		}
	}
	if end > last {
		// All go: no other changelog will take with it what the earliest snapshot removed and told the changes of one of these.
		delta, err := t.Delta(ctx, earliest)
		if err == nil {
			err = x.follow(delta, func(e *Entry) bool { return !appended(e) })
		}
		if err != nil {
			return nil, err
		}
		end = max(end, earliest.ID)
	}
	if err := x.staying(ctx, earliest, false); err != nil {
		return nil, err
	}
	return x, x.protect(ctx, end, "")
}

// lives notes the manifest lists that a long-lived changelog names and that are there, and their manifests. whole: the
// list of the files before it is among them.
func (x *expiry) lives(ctx context.Context, c *Snapshot, lists, manifests map[string]struct{}) (whole bool, err error) {
	names := []string{c.BaseManifestList, c.DeltaManifestList}
	sizes := []*int64{c.BaseManifestListSize, c.DeltaManifestListSize}
	if c.ChangelogManifestList != nil {
		names, sizes = append(names, *c.ChangelogManifestList), append(sizes, c.ChangelogManifestListSize)
	}
	for i, name := range names {
		metas, err := x.table.readList(ctx, name, sizes[i])
		if errors.Is(err, storage.ErrNotFound) {
			continue // it went with the snapshot
		}
		if err != nil {
			return false, fmt.Errorf("changelog %d: %w", c.ID, err)
		}
		whole = whole || i == 0
		x.mu.Lock()
		lists[manifestPath(name)] = struct{}{}
		x.mu.Unlock()
		x.noteMetas(manifests, metas)
	}
	return whole, nil
}

// told gives the delta of a long-lived changelog, as far as it is there, and its changelog.
func (x *expiry) told(ctx context.Context, c *Snapshot) (delta, changes []Entry, err error) {
	if delta, err = x.list(ctx, c, c.DeltaManifestList, c.DeltaManifestListSize, false); err == nil && c.ChangelogManifestList != nil {
		changes, err = x.list(ctx, c, *c.ChangelogManifestList, c.ChangelogManifestListSize, false)
	}
	return delta, changes, err
}

// needs protects what a long-lived changelog needs. byData: its changes are told by the data files that it added.
func (x *expiry) needs(ctx context.Context, c *Snapshot, byData bool) error {
	if !byData && c.ChangelogManifestList != nil {
		metas, err := ifThere(x.table.readList(ctx, *c.ChangelogManifestList, c.ChangelogManifestListSize))
		if err != nil {
			return fmt.Errorf("changelog %d: %w", c.ID, err)
		}
		x.noteMetas(x.stays, metas)
		x.mu.Lock()
		x.stays[manifestPath(*c.ChangelogManifestList)] = struct{}{}
		x.mu.Unlock()
	} else if byData {
		if _, err := x.lives(ctx, c, x.stays, x.stays); err != nil {
			return err
		}
	}
	if len(x.files) == 0 {
		return nil
	}
	delta, changes, err := x.told(ctx, c)
	if err != nil {
		return err
	}
	for i := range delta {
		if byData && delta[i].Kind == Add && appended(&delta[i]) {
			changes = append(changes, delta[i])
		}
	}
	for i := range changes {
		if err := x.pardon(&changes[i]); err != nil {
			return err
		}
	}
	return nil
}

// needLongLived protects what the changelogs below one need that are still there.
func (x *expiry) needLongLived(ctx context.Context, end int64) error {
	ids, err := x.table.longLivedIDs(ctx, changelogDir)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if id >= end {
			break
		}
		c, err := x.table.LongLived(ctx, id)
		if err == nil {
			err = x.needs(ctx, c, x.byData)
		}
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
	}
	return nil
}

// protectTold protects, when the tag of a snapshot is deleted, what long-lived changelogs need: that of the snapshot, and
// where data files tell the changes those that its files are removed in, with which they go.
func (x *expiry) protectTold(ctx context.Context, s, earliest *Snapshot) error {
	first, err := x.table.earliestLongLived(ctx)
	if err != nil || first == 0 {
		return err
	}
	if c, err := x.table.LongLived(ctx, s.ID); err == nil {
		err = x.needs(ctx, c, x.byData)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	if !x.byData {
		return nil
	}
	whole := false // manifests are protected: see planChangelogs
	for id := max(first, s.ID+1); id < earliest.ID; id++ {
		c, err := x.table.LongLived(ctx, id)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err == nil && !whole {
			whole, err = x.lives(ctx, c, x.stays, x.stays)
		}
		if err == nil {
			err = x.spare(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return x.spare(ctx, earliest)
}

// spare protects the data files that a snapshot removed and that tell the changes of an earlier one.
func (x *expiry) spare(ctx context.Context, s *Snapshot) error {
	delta, err := x.list(ctx, s, s.DeltaManifestList, s.DeltaManifestListSize, false)
	if err != nil {
		return err
	}
	for i := range delta {
		if delta[i].Kind == Remove && appended(&delta[i]) {
			if err := x.pardon(&delta[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
