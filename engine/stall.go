package engine

import (
	"context"
	"time"
)

// A bucket's writers wait while it has more sorted runs than `num-sorted-run.stop-trigger` (§11.2): readers merge all of
// them, and compaction, which has fallen behind, gets the processor. The wait is not for a commit: only published runs
// count, which compaction takes away by itself, so that whoever waits need not be woken by anybody else. Buckets that
// this process does not compact keep nobody waiting.

// Stalled is nil when Write takes rows at once, else a channel that is closed when it may be worth to ask again. A writer
// that also commits can go on doing so while it waits.
func (t *Table) Stalled() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stalledLocked() {
		return nil
	}
	if t.room == nil {
		t.room, t.stallBegan = make(chan struct{}), t.env.Now()
	}
	return t.room
}

// waitForRoom waits while the table is stalled.
func (t *Table) waitForRoom(ctx context.Context) error {
	for {
		room := t.Stalled()
		if room == nil {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stalledLocked reports whether a bucket that is being written has too many runs; mu is held.
func (t *Table) stalledLocked() bool {
	if len(t.crowded) == 0 || t.closed || t.poison != nil {
		return false
	}
	for b := range t.crowded {
		if b.touched || b.written+2 >= t.generation { // in the buffer, or in one of the last two commits
			return true
		}
	}
	return false
}

// crowdLocked notes whether the bucket keeps its writers waiting; mu is held.
func (t *Table) crowdLocked(b *bucket) {
	f := t.form.Load()
	compacted := b.held || b.waiting != nil || len(b.running) > 0 || b.failed
	if f.keys != nil && compacted && b.levels.NumRuns() > f.policy.StopTrigger {
		t.crowded[b] = struct{}{}
	} else {
		delete(t.crowded, b)
	}
	t.roomLocked()
}

// roomLocked wakes the writers when they need not wait any more; mu is held.
func (t *Table) roomLocked() {
	if t.room == nil || t.stalledLocked() {
		return
	}
	close(t.room)
	t.room = nil
	t.metrics.stalled.Add(int64(t.env.Now().Sub(t.stallBegan)))
}

// stallTimeLocked is how long writers have waited so far; mu is held.
func (t *Table) stallTimeLocked() time.Duration {
	d := time.Duration(t.metrics.stalled.Load())
	if t.room != nil {
		d += t.env.Now().Sub(t.stallBegan)
	}
	return d
}
