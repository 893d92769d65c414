package engine

import (
	"time"

	"github.com/calve-io/calve/lsm"
)

// Time alone asks for compactions too: a bucket that nobody writes to any more is swept, and rows of a table with
// `compaction.optimization-interval` reach the highest level within that time, for readers that see no other. The
// compactor looks every second, or ten for cold buckets; it costs nothing for buckets that have nothing to do.

// wroteLocked notes that rows have come to the bucket; mu is held.
func (t *Table) wroteLocked(b *bucket) {
	if t.compactor == nil {
		return
	}
	b.wrote = t.env.Now()
	if b.oldest.IsZero() {
		b.oldest = b.wrote
	}
	t.loose[b] = struct{}{}
}

// ageLocked keeps account of the bucket's rows below the highest level; mu is held. Tables without primary key have no
// such level: what is loose there is found out by askAged.
func (t *Table) ageLocked(b *bucket) {
	f := t.form.Load()
	switch {
	case f.keys == nil:
	case b.levels.Settled(f.policy.NumLevels):
		b.oldest = time.Time{}
		delete(t.loose, b)
		return
	}
	// Of a table that was just opened, or files that came unseen: others had expired the snapshots that brought them.
	if b.wrote.IsZero() || f.keys != nil && b.oldest.IsZero() {
		t.wroteLocked(b)
		if at := createdBefore(b.levels, b.wrote); f.keys != nil {
			b.oldest = at
		}
	}
}

// createdBefore is when the oldest of the files was made, at most now: the clocks of other writers differ.
func createdBefore(l *lsm.Levels, now time.Time) time.Time {
	oldest := now
	for _, f := range l.Files() {
		if at := time.UnixMilli(f.CreatedMillis); f.Level == 0 && at.Before(oldest) && f.CreatedMillis > 0 {
			oldest = at
		}
	}
	return oldest
}

// askAged asks for the compactions that are due by time.
func (t *Table) askAged(sweepAfter time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.form.Load()
	if t.closed || t.poison != nil || t.leavesFiles(f) {
		return
	}
	now := t.env.Now()
	for b := range t.loose {
		if b.held || b.waiting != nil || len(b.running) > 0 {
			continue
		}
		switch {
		case f.keys != nil && f.policy.Fresh > 0 && t.agedLocked(b, now.Sub(b.oldest), f.policy.Fresh):
			t.askLocked(b, lsm.Aged)
		case sweepAfter > 0 && now.Sub(b.wrote) >= sweepAfter:
			t.askLocked(b, lsm.Cold)
			if b.waiting == nil && f.keys == nil { // no small files are left
				delete(t.loose, b)
			}
		}
	}
}

// agedLocked reports whether the compaction has to begin that brings the bucket to its highest level in time; mu is held.
func (t *Table) agedLocked(b *bucket, oldest, target time.Duration) bool {
	bytes := int64(0)
	for _, f := range b.levels.Files() {
		bytes += f.Size
	}
	return lsm.AgedIn(oldest, target, t.compactor.takes(bytes)) <= 0
}
