package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// run is a compaction that runs.
type run struct {
	task  *task           // nil: in the foreground
	files map[string]bool // its inputs
}

// enqueueLocked asks for a compaction of the bucket, if its shape calls for one; mu is held. It is called whenever the
// bucket's files have changed, or something that kept a compaction from being asked for has ended.
func (t *Table) enqueueLocked(b *bucket) {
	f := t.form.Load()
	if t.compactor == nil || t.leavesFiles(f) || t.closed || t.poison != nil {
		delete(t.crowded, b) // whoever compacts it now, its writers do not wait for that
		t.roomLocked()
		return
	}
	if t.fullDueLocked(b) {
		t.askLocked(b, lsm.Aged)
	} else {
		t.askLocked(b, lsm.Shape)
	}
	for _, k := range b.tasks() {
		t.compactor.update(k, b.levels.NumRuns())
	}
	t.crowdLocked(b)
	t.ageLocked(b)
}

// leavesFiles reports whether another process compacts and expires the table.
func (t *Table) leavesFiles(f *form) bool { return f.opts.WriteOnly && !t.set.Dedicated }

// tasks are the bucket's compactions in the background.
func (b *bucket) tasks() []*task {
	var out []*task
	if b.waiting != nil {
		out = append(out, b.waiting)
	}
	for _, r := range b.running {
		if r.task != nil {
			out = append(out, r.task)
		}
	}
	return out
}

// askLocked asks for a compaction for a reason, unless one waits already; mu is held.
func (t *Table) askLocked(b *bucket, why lsm.Reason) {
	if b.held || b.waiting != nil {
		return
	}
	job, ok := t.jobLocked(b, why)
	if !ok {
		return
	}
	p := t.form.Load().policy
	w := lsm.Work{Reason: why, Limit: t.set.Compaction, Runs: b.levels.NumRuns(), Stop: p.StopTrigger}
	if p.Append != nil {
		w.Stop = math.MaxInt
	}
	for i := range job.Files {
		w.Bytes += job.Files[i].Size
	}
	b.waiting = &task{t: t, b: b, reason: why}
	t.wg.Add(1) // Close has not begun, as the table is not closed
	t.compactor.submit(b.waiting, w)
}

// jobLocked chooses the files of a compaction; mu is held. Beside one that runs, only new files of level 0 are taken.
func (t *Table) jobLocked(b *bucket, why lsm.Reason) (lsm.Job, bool) {
	p := t.form.Load().policy
	switch {
	case len(b.running) == 1 && t.set.Claim == nil: // a claim is for one compaction
		return lsm.PickYoung(b.levels, p, func(name string) bool { return b.running[0].files[name] })
	case len(b.running) > 0:
		return lsm.Job{}, false
	case why == lsm.Shape && !t.fullDueLocked(b):
		return lsm.Pick(b.levels, t.policyLocked(b))
	}
	return lsm.PickFull(b.levels, p)
}

// beginLocked notes that a compaction of the files runs; mu is held. The function it returns is called when it has ended.
func (t *Table) beginLocked(b *bucket, k *task, job lsm.Job) (end func()) {
	r := &run{task: k, files: make(map[string]bool, len(job.Files))}
	for i := range job.Files {
		r.files[job.Files[i].Name] = true
	}
	b.running = append(b.running, r)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		b.running = slices.DeleteFunc(b.running, func(o *run) bool { return o == r })
	}
}

// runTask is the goroutine of a background compaction. It was counted in the wait group when it was asked for.
func (t *Table) runTask(k *task) {
	defer t.wg.Done()
	b := k.b
	begun, err := t.claimTask(k)
	if !begun { // another process is at the bucket, or claims do not work
		t.mu.Lock()
		b.waiting = nil
		t.mu.Unlock()
		t.compactor.finish(k)
	}
	if begun && err == nil || t.ctx.Err() != nil {
		return
	}
	if err != nil {
		t.metrics.compactFailed.Add(1)
	}
	if err != nil && !errors.Is(err, manifest.ErrConflict) {
		t.env.Log.Warn("compaction failed, will try again", "bucket", t.store.URL(b.part.Dir), "error", err)
		if t.set.Events.Background != nil {
			t.set.Events.Background("compaction", err)
		}
	}
	select { // the next commit to the bucket, or this pause, brings the next try
	case <-t.ctx.Done():
		return
	case <-t.env.After(time.Second):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enqueueLocked(b)
}

// claimTask does a task under the claim of its bucket, where processes share the table. begun is false if the task was
// not touched.
func (t *Table) claimTask(k *task) (begun bool, err error) {
	if t.set.Claim == nil {
		return true, t.doTask(t.ctx, k)
	}
	_, err = t.set.Claim(t.ctx, k.b.part.Dir, func(ctx context.Context) error {
		// Who had the bucket before may have done it all. Work is chosen among what there is now.
		t.commitMu.Lock()
		err := t.refresh(ctx)
		t.commitMu.Unlock()
		if err != nil {
			return err
		}
		begun = true
		return t.doTask(ctx, k)
	})
	return begun, err
}

// doTask chooses the files of a task and compacts them. When it returns the task has ended.
func (t *Table) doTask(ctx context.Context, k *task) error {
	b := k.b
	t.mu.Lock()
	b.waiting = nil
	var job lsm.Job
	ok := !b.held && !t.closed && t.poison == nil
	if ok {
		job, ok = t.jobLocked(b, k.reason)
	}
	if !ok { // the files have changed since it was asked for
		t.mu.Unlock()
		t.compactor.finish(k)
		t.mu.Lock()
		t.enqueueLocked(b)
		t.mu.Unlock()
		return nil
	}
	end, began, appends := t.beginLocked(b, k, job), t.env.Now(), t.appends
	t.askLocked(b, lsm.Shape) // what is new enough to go beside it
	t.mu.Unlock()
	err := t.compactFiles(ctx, b, job, func(ctx context.Context, bytes int64) error { return t.compactor.pace(ctx, k, bytes) })
	end()
	t.compactor.finish(k)
	t.mu.Lock()
	defer t.mu.Unlock()
	b.failed = err != nil
	if err == nil && job.Full {
		t.compactor.measured(k, t.env.Now().Sub(began))
		b.oldest = began // what is below the highest level has come since
		b.since = appends + 1
	}
	if err == nil {
		t.enqueueLocked(b)
	}
	return err
}

type picker func(*lsm.Levels, lsm.Policy) (lsm.Job, bool)

// compactFiles does a compaction: the data part without a lock, then its publication. The caller has begun it, so that
// nobody else in this process removes its files.
func (t *Table) compactFiles(ctx context.Context, b *bucket, job lsm.Job, pace func(context.Context, int64) error) error {
	start := t.env.Now()
	f, err := t.formFor(ctx, job.Files)
	if err != nil {
		return err
	}
	files := f.files
	files.Pace = pace
	var v *vectors
	if job.Output > 0 { // nothing on level 0 is deleted by a vector, nor deletes what is above it
		if v, err = t.readVectors(ctx, f, b); err != nil {
			return err
		}
	}
	if v != nil {
		files.Vectors = v.byFile
	}
	done, err := t.lookInto(f, b, &job, v)
	if err != nil {
		return err
	}
	copies := t.copies(f, &job)
	if copies != nil {
		files.Follow = copies.Follow
	}
	change, err := files.Compact(ctx, b.part, job)
	if cerr := done(); cerr != nil {
		t.env.Log.Warn("closing files that rows were looked up in", "bucket", t.store.URL(b.part.Dir), "error", cerr)
	}
	if err == nil {
		var snap *manifest.Snapshot
		if snap, err = t.install(ctx, f, b, change, v); err == nil {
			t.report(snap, b, job, change, t.env.Now().Sub(start))
			return nil
		}
	} else if errors.Is(err, storage.ErrNotFound) {
		err = t.inputGone(ctx, b, job, err)
	}
	if copies != nil && !errors.Is(err, storage.ErrUnknown) {
		copies.Discard()
	}
	return err
}

// inputGone tells the compaction of another writer, whose snapshot has taken inputs away, or files that rows were looked up
// in, and whose expiry has deleted them, from a file that is missing although the table names it.
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
	for _, f := range slices.Concat(job.Files, job.Above) {
		if !live[f.Name] {
			t.metrics.conflicts.Add(1)
			return fmt.Errorf("%w: file %s of a compaction was compacted by another writer: %w", manifest.ErrConflict, f.Name, missing)
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
func (t *Table) install(ctx context.Context, f *form, b *bucket, change lsm.Change, v *vectors) (*manifest.Snapshot, error) {
	index, err := t.writeVectors(ctx, f, b, v, change)
	if err != nil {
		return nil, errors.Join(err, t.dropAdded(ctx, b, change))
	}
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	if err := t.usable(); err != nil {
		return nil, errors.Join(err, t.dropAdded(ctx, b, change), t.dropIndex(ctx, index))
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
	pub := publication{kind: manifest.Compact, entries: entries, index: index}
	pub.check = func(ctx context.Context, base *manifest.Snapshot) error {
		return t.checkVectors(ctx, base, b, v, change)
	}
	for _, f := range change.Changelog {
		pub.changelog = append(pub.changelog, entry(b, manifest.Add, f))
	}
	snap, err := t.publish(ctx, pub, t.progress, nil)
	if err == nil {
		return snap, nil
	}
	if errors.Is(err, storage.ErrUnknown) {
		return nil, err // perhaps published: the files stay
	}
	err = errors.Join(err, t.dropAdded(ctx, b, change), t.dropIndex(ctx, pub.index))
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
	for _, f := range slices.Concat(change.Added, change.Changelog) {
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
		job, more := pick(b.levels, t.form.Load().policy)
		end := func() {}
		if more {
			end = t.beginLocked(b, nil, job)
		}
		t.mu.Unlock()
		var err error
		if more {
			err = t.compactFiles(ctx, b, job, nil)
		}
		end()
		t.mu.Lock()
		b.held = false
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
		if !b.held && len(b.running) == 0 {
			b.held = true
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

// expireLoop removes old snapshots from time to time. While the table has no new ones, time alone can make some of them
// old, and it looks less often.
func (t *Table) expireLoop(ctx context.Context) {
	for last, skipped := int64(-1), 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.env.After(together(t.env.Now(), t.set.ExpireEvery)):
		}
		now := t.metrics.snapshot.Load()
		if now == last && skipped < quietFactor-1 {
			skipped++
			continue
		}
		err := t.expire(ctx)
		if err == nil {
			last, skipped = now, 0
			continue
		}
		if ctx.Err() == nil {
			t.env.Log.Warn("expiry of old snapshots failed, will try again", "table", t.store.URL(""), "error", err)
			if t.set.Events.Background != nil {
				t.set.Events.Background("expiry", err)
			}
		}
	}
}

func (t *Table) expire(ctx context.Context) error {
	if t.leavesFiles(t.form.Load()) {
		return nil
	}
	if t.set.Claim == nil {
		return t.expireNow(ctx)
	}
	_, err := t.set.Claim(ctx, "expire", t.expireNow)
	return err
}

func (t *Table) expireNow(ctx context.Context) error {
	if err := t.keepProgress(ctx); err != nil {
		return err
	}
	gone, err := t.meta.Expire(ctx, manifest.RetentionOf(t.form.Load().opts), t.env.Now())
	if gone.Snapshots > 0 {
		t.watch.shown()
	}
	return err
}
