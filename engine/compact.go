package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// changeOf collects the entries of one bucket. A level upgrade is a removal and an addition of one name.
type changeOf struct{ removed, added []manifest.DataFile }

func (c *changeOf) add(e *manifest.Entry) {
	if e.Kind == manifest.Add {
		c.added = append(c.added, e.File)
	} else {
		c.removed = append(c.removed, e.File)
	}
}

func (c *changeOf) change() lsm.Change { return lsm.Change{Removed: c.removed, Added: c.added} }

// enqueueLocked asks for a compaction of the bucket, if its shape calls for one; mu is held.
func (t *Table) enqueueLocked(b *bucket) {
	f := t.form.Load()
	if t.set.Compaction == 0 || f.opts.WriteOnly || b.busy || t.closed || t.poison != nil {
		return
	}
	if _, ok := lsm.Pick(b.levels, f.policy); !ok {
		return
	}
	b.busy = true
	t.queue = append(t.queue, b)
	select {
	case t.queued <- struct{}{}:
	default: // every worker has a wake-up waiting
	}
}

// compactionLoop is one background worker.
func (t *Table) compactionLoop(ctx context.Context) {
	for {
		b := t.dequeue()
		if b == nil {
			select {
			case <-ctx.Done():
				return
			case <-t.queued:
			}
			continue
		}
		err := t.compactOnce(ctx, b, lsm.Pick)
		t.mu.Lock()
		b.busy = false
		if err == nil {
			t.enqueueLocked(b)
		}
		t.mu.Unlock()
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		t.metrics.compactFailed.Add(1)
		if !errors.Is(err, manifest.ErrConflict) {
			t.env.Log.Warn("compaction failed, will try again", "bucket", t.store.URL(b.part.Dir), "error", err)
			if t.set.Events.Background != nil {
				t.set.Events.Background("compaction", err)
			}
		}
		select { // the next commit to the bucket, or this pause, brings the next try
		case <-ctx.Done():
			return
		case <-t.env.After(time.Second):
		}
		t.mu.Lock()
		t.enqueueLocked(b)
		t.mu.Unlock()
	}
}

func (t *Table) dequeue() *bucket {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 || t.poison != nil {
		return nil
	}
	b := t.queue[0]
	t.queue = t.queue[1:]
	return b
}

type picker func(*lsm.Levels, lsm.Policy) (lsm.Job, bool)

// compactOnce runs one compaction of the bucket: the data part without a lock, then its publication. The caller has
// set b.busy, so nobody else removes files of this bucket in this process.
func (t *Table) compactOnce(ctx context.Context, b *bucket, pick picker) error {
	start := t.env.Now()
	t.mu.Lock()
	job, ok := pick(b.levels, t.form.Load().policy)
	t.mu.Unlock()
	if !ok {
		return nil
	}
	f, err := t.formFor(ctx, job.Files)
	if err != nil {
		return err
	}
	change, err := f.files.Compact(ctx, b.part, job)
	if errors.Is(err, storage.ErrNotFound) {
		return t.inputGone(ctx, b, job, err)
	}
	if err != nil {
		return err
	}
	snap, err := t.install(ctx, b, change)
	if err != nil {
		return err
	}
	t.report(snap, b, job, change, t.env.Now().Sub(start))
	return nil
}

// inputGone tells the compaction of another writer, whose snapshot has taken inputs away and whose expiry has deleted
// them, from a file that is missing although the table names it.
func (t *Table) inputGone(ctx context.Context, b *bucket, job lsm.Job, missing error) error {
	t.commitMu.Lock()
	err := t.refresh(ctx)
	t.commitMu.Unlock()
	if err != nil {
		return errors.Join(missing, err)
	}
	t.mu.Lock()
	live := map[string]bool{}
	for _, f := range b.levels.Files() {
		live[f.Name] = true
	}
	t.mu.Unlock()
	for i := range job.Files {
		if !live[job.Files[i].Name] {
			t.metrics.conflicts.Add(1)
			return fmt.Errorf("%w: file %s of a compaction was compacted by another writer: %w", manifest.ErrConflict, job.Files[i].Name, missing)
		}
	}
	return missing
}

// closingGrace is how long a publication that has begun may go on after Close.
const closingGrace = 10 * time.Second

// graceful gives a context that ends a while after its parent.
func (t *Table) graceful(parent context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	go func() {
		select {
		case <-parent.Done():
		case <-ctx.Done():
			return
		}
		select {
		case <-t.env.After(after):
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// install publishes a compaction. It repeats the job's progress, so that the newest snapshot always has it. Files that
// certainly no snapshot names are removed again. Close does not cut it short, for that would leave its outcome unknown.
func (t *Table) install(ctx context.Context, b *bucket, change lsm.Change) (*manifest.Snapshot, error) {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	if err := t.usable(); err != nil {
		return nil, errors.Join(err, t.dropAdded(ctx, b, change))
	}
	ctx, cancel := t.graceful(ctx, closingGrace)
	defer cancel()
	entries := make([]manifest.Entry, 0, len(change.Removed)+len(change.Added))
	for _, f := range change.Removed {
		entries = append(entries, entry(b, manifest.Remove, f))
	}
	for _, f := range change.Added {
		entries = append(entries, entry(b, manifest.Add, f))
	}
	snap, err := t.publish(ctx, manifest.Compact, entries, hashFiles{}, t.progress, nil)
	if err == nil {
		return snap, nil
	}
	if errors.Is(err, storage.ErrUnknown) {
		return nil, err // perhaps published: the files stay
	}
	err = errors.Join(err, t.dropAdded(ctx, b, change))
	if errors.Is(err, manifest.ErrConflict) {
		err = errors.Join(err, t.refresh(ctx))
	}
	return nil, err
}

// dropAdded deletes the new files of a compaction that was not published; moved files are not its own.
func (t *Table) dropAdded(ctx context.Context, b *bucket, change lsm.Change) error {
	old := map[string]bool{}
	for _, f := range change.Removed {
		old[f.Name] = true
	}
	var errs []error
	for _, f := range change.Added {
		if !old[f.Name] {
			for _, n := range f.Names() {
				errs = append(errs, t.store.Delete(context.WithoutCancel(ctx), b.part.Dir+"/"+n))
			}
		}
	}
	return errors.Join(errs...)
}

func (t *Table) report(snap *manifest.Snapshot, b *bucket, job lsm.Job, change lsm.Change, took time.Duration) {
	info := CompactInfo{Snapshot: snap.ID, Bucket: b.part.Dir, Output: job.Output, FilesIn: len(change.Removed), FilesOut: len(change.Added), Took: took}
	old := map[string]bool{}
	for _, f := range change.Removed {
		old[f.Name] = true
		info.RowsIn += f.Rows
		info.BytesIn += f.Size
	}
	for _, f := range change.Added {
		if old[f.Name] {
			info.Moved++
		}
		info.RowsOut += f.Rows
		info.BytesOut += f.Size
	}
	m := &t.metrics
	m.compactions.Add(1)
	m.compactRowsIn.Add(info.RowsIn)
	m.compactBytesIn.Add(info.BytesIn)
	m.compactBytesOut.Add(info.BytesOut)
	if t.set.Events.Compacted != nil {
		t.set.Events.Compacted(info)
	}
}

// Compact compacts in the foreground until nothing is left to do: every bucket to the highest level with full (without
// primary key: until no small files are left that fit into one), else as the picker asks. It waits for background compactions of the same buckets.
func (t *Table) Compact(ctx context.Context, full bool) error {
	t.commitMu.Lock()
	err := t.refresh(ctx)
	t.commitMu.Unlock()
	if err != nil {
		return err
	}
	pick := lsm.Pick
	if full {
		known, recast, err := t.olds(ctx)
		if err != nil {
			return err
		}
		f := t.form.Load()
		pick = func(l *lsm.Levels, p lsm.Policy) (lsm.Job, bool) {
			p.Recast = recast
			if p.Expired != nil {
				p.Expired = f.expired(known)
			}
			return lsm.PickFull(l, p)
		}
	}
	t.mu.Lock()
	todo := make([]*bucket, 0, len(t.buckets))
	for _, b := range t.buckets {
		todo = append(todo, b)
	}
	t.mu.Unlock()
	slices.SortFunc(todo, func(a, b *bucket) int { return strings.Compare(a.part.Dir, b.part.Dir) })
	for _, b := range todo {
		if err := t.compactBucket(ctx, b, pick); err != nil {
			return err
		}
	}
	return nil
}

// compactBucket compacts one bucket until the picker has nothing more for it.
func (t *Table) compactBucket(ctx context.Context, b *bucket, pick picker) error {
	for conflicts := 0; ; {
		if err := t.acquire(ctx, b); err != nil {
			return err
		}
		t.mu.Lock()
		_, more := pick(b.levels, t.form.Load().policy)
		t.mu.Unlock()
		var err error
		if more {
			err = t.compactOnce(ctx, b, pick)
		}
		t.mu.Lock()
		b.busy = false
		t.enqueueLocked(b) // what commits asked for in the meantime
		t.mu.Unlock()
		if errors.Is(err, manifest.ErrConflict) && conflicts < 10 {
			conflicts++
			select { // the other one may be at it still
			case <-ctx.Done():
				return ctx.Err()
			case <-t.env.After(min(time.Second, 10*time.Millisecond<<conflicts)):
			}
			continue
		}
		if err != nil || !more {
			return err
		}
	}
}

// acquire waits until no background compaction of the bucket runs, and takes it.
func (t *Table) acquire(ctx context.Context, b *bucket) error {
	for {
		t.mu.Lock()
		if err := t.usableLocked(); err != nil {
			t.mu.Unlock()
			return err
		}
		if !b.busy {
			b.busy = true
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.env.After(5 * time.Millisecond):
		}
	}
}

// expireLoop removes old snapshots from time to time.
func (t *Table) expireLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.env.After(t.set.ExpireEvery):
		}
		if err := t.expire(ctx); err != nil && ctx.Err() == nil {
			t.env.Log.Warn("expiry of old snapshots failed, will try again", "table", t.store.URL(""), "error", err)
			if t.set.Events.Background != nil {
				t.set.Events.Background("expiry", err)
			}
		}
	}
}

func (t *Table) expire(ctx context.Context) error {
	if t.form.Load().opts.WriteOnly {
		return nil
	}
	if err := t.keepProgress(ctx); err != nil {
		return err
	}
	_, err := t.meta.Expire(ctx, manifest.RetentionOf(t.form.Load().opts), t.env.Now())
	return err
}
