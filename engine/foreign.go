package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// What other writers do to the table comes in here: their snapshots are applied to the buckets one by one, at the latest
// with our own next snapshot. Where they have expired already, all live files are read again.

// checkEpoch refuses to commit on top of a snapshot that a newer epoch of the job has written. Own snapshots up to
// t.known are known to be ours; only foreign ones after it are looked at. commitMu is held.
func (t *Table) checkEpoch(ctx context.Context, base *manifest.Snapshot) error {
	if t.epoch == 0 || base == nil {
		return nil
	}
	for id := base.ID; id > t.known; id-- {
		s := base
		if id != base.ID {
			var err error
			if s, err = t.meta.Snapshot(ctx, id); errors.Is(err, manifest.ErrSnapshotExpired) {
				return t.checkEpochExpired(ctx)
			}
			if err != nil {
				return fmt.Errorf("looking for a newer epoch: %w", err)
			}
		}
		if err := t.checkOwner(s); err != nil {
			return err
		}
	}
	return nil
}

// checkOwner is an error if a newer epoch of the job has written the snapshot.
func (t *Table) checkOwner(s *manifest.Snapshot) error {
	if s.CommitUser != t.user {
		return nil
	}
	e, err := epochOf(s)
	if err == nil && e > t.epoch {
		err = t.fencedBy(e, fmt.Sprintf("snapshot %d", s.ID))
	}
	return err
}

func (t *Table) fencedBy(epoch int64, where string) error {
	return fmt.Errorf("%w: job %q is at epoch %d by %s, this process is epoch %d; stop it, or stop the other one and restart", ErrFenced, t.set.Job, epoch, where, t.epoch)
}

// checkEpochExpired looks for a newer epoch when not all snapshots since the last known one are there any more: in the
// newest snapshot of the job that is left, or else in the records of the job.
func (t *Table) checkEpochExpired(ctx context.Context) error {
	s, err := t.meta.LastOfUser(ctx, t.user)
	if err == nil {
		return t.checkOwner(s)
	}
	if !errors.Is(err, manifest.ErrNoSnapshot) {
		return fmt.Errorf("looking for a newer epoch: %w", err)
	}
	opened, _, err := t.newestEpoch(ctx)
	if err != nil {
		return fmt.Errorf("looking for a newer epoch: %w", err)
	}
	if opened > t.epoch {
		return t.fencedBy(opened, "its records")
	}
	return nil
}

func epochOf(s *manifest.Snapshot) (int64, error) {
	v, ok := s.Properties[PropEpoch]
	if !ok {
		return 0, nil
	}
	e, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("snapshot %d: property %s is %q, not a number", s.ID, PropEpoch, v)
	}
	return e, nil
}

// catchUp applies the snapshots between the last known one and snap, then our own entries of snap. commitMu is held.
func (t *Table) catchUp(ctx context.Context, snap *manifest.Snapshot, own []manifest.Entry) error {
	for id := t.known + 1; id < snap.ID; id++ {
		err := t.applyForeign(ctx, id)
		if gone(err) {
			return t.load(ctx, snap)
		}
		if err != nil {
			return err
		}
	}
	if err := t.apply(own); err != nil {
		return err
	}
	t.setKnown(snap.ID)
	return nil
}

// gone reports that metadata of an older snapshot is missing: somebody expires snapshots faster than we look.
func gone(err error) bool {
	return errors.Is(err, manifest.ErrSnapshotExpired) || errors.Is(err, storage.ErrNotFound)
}

func (t *Table) applyForeign(ctx context.Context, id int64) error {
	s, err := t.meta.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	entries, err := t.meta.Delta(ctx, s)
	if err != nil {
		return err
	}
	if err := t.apply(entries); err != nil {
		return fmt.Errorf("snapshot %d of user %q: %w", id, s.CommitUser, err)
	}
	t.setKnown(id)
	return nil
}

// refresh applies foreign snapshots up to the latest one. One of a newer epoch of the job fences the table: the next
// commit would not see it any more. commitMu is held.
func (t *Table) refresh(ctx context.Context) error {
	latest, err := latestOrNil(ctx, t.meta)
	if err != nil || latest == nil {
		return err
	}
	if t.claimed {
		if err := t.checkEpoch(ctx, latest); err != nil {
			if errors.Is(err, ErrFenced) {
				t.fail(err)
			}
			return err
		}
	}
	for id := t.known + 1; id <= latest.ID; id++ {
		err := t.applyForeign(ctx, id)
		if gone(err) {
			return t.load(ctx, latest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// followLoop looks for snapshots of other writers while this process publishes none, so that their files are compacted
// here and the progress of the job stays among the snapshots that an expiry keeps. Where there are none for long, it looks
// less often, so that thousands of tables may be open that nobody writes to.
func (t *Table) followLoop(ctx context.Context) {
	for last, quiet := int64(-1), 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.env.After(together(t.env.Now(), quietWait(t.set.FollowEvery, quiet))):
		}
		now := t.metrics.snapshot.Load()
		idle := now == last
		last = now
		if !idle {
			quiet = 0
			continue // our commits have looked
		}
		if err := t.keepProgress(ctx); err != nil && ctx.Err() == nil && t.usable() == nil {
			t.env.Log.Warn("looking for snapshots of other writers failed, will try again", "table", t.store.URL(""), "error", err)
			if t.set.Events.Background != nil {
				t.set.Events.Background("following", err)
			}
		}
		quiet++
		if t.metrics.snapshot.Load() != last {
			quiet = 0
		}
	}
}

// After quietLooks looks that found nothing each wait is twice the one before, up to quietFactor times the first.
const quietLooks, quietFactor = 10, 32

// quietWait is the time until the next look after some that found nothing.
func quietWait(every time.Duration, quiet int) time.Duration {
	factor := time.Duration(1)
	for ; quiet >= quietLooks && factor < quietFactor; quiet-- {
		factor *= 2
	}
	return every * factor
}

// wakeTogether is the grid in time that long waits end on: thousands of quiet tables then wake the process about once a
// second instead of at a moment each, which costs more than what they wake for.
const wakeTogether = time.Second

// together shortens a long wait so that it ends on the grid.
func together(now time.Time, wait time.Duration) time.Duration {
	if wait < 2*wakeTogether {
		return wait
	}
	return now.Add(wait).Truncate(wakeTogether).Sub(now)
}
