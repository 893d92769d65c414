package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// PropEpoch is the snapshot property that holds the epoch of the job that wrote it.
const PropEpoch = "calve.epoch"

// Commit publishes all rows written before the call, together with the writer's progress, in one snapshot. When there
// are no rows and the progress is that of the last commit, nothing is published and the result is nil.
//
// Commit returns an error that matches ErrFenced when a newer epoch of the job exists, and ErrPoisoned when rows could
// not be flushed or the outcome could not be learned: then open the table again and go on from LastProgress. After any
// other error nothing was published, and a later Commit publishes the rows of this one too.
//
// Rows are published under the schema they were made for, also if the table has a newer one by then: see CommitCurrent.
func (t *Table) Commit(ctx context.Context, p Progress) (*manifest.Snapshot, error) {
	return t.commit(ctx, p, nil)
}

// CommitCurrent is Commit for a writer that can make its rows again. If the table has a newer schema, with columns that
// the rows were not made for (schema.Schema.Covers), nothing is published and the error matches ErrNewSchema. The writer
// then calls Discard and Follow with what NewSchema gives, and makes the rows again, from LastProgress on. Nothing is
// missing from the new columns then, whatever happens when:
//
//	a change of the schema is put and returns        A
//	a value for the new column is sent               B   after A, for its sender knows of the column
//	rows are made of what was sent, and written      C   after B; before A is noticed the column is unknown
//	CommitCurrent is called, and looks for a schema  D   after C, so after A: it finds the change
//	the snapshot is put                              E
//
// A change between D and E is no harm: what these rows were made of was sent before it. The look costs nothing, as a
// commit has to name the newest schema anyway and looks for it while it writes manifests.
func (t *Table) CommitCurrent(ctx context.Context, p Progress) (*manifest.Snapshot, error) {
	return t.commit(ctx, p, t.checkCurrent)
}

// checkCurrent is an error if rows of the entries lack what the newest schema has.
func (t *Table) checkCurrent(ctx context.Context, entries []manifest.Entry, newest *schema.Schema) error {
	t.sawSchema(newest)
	covered := map[int64]bool{newest.ID: true}
	for i := range entries {
		id := entries[i].File.SchemaID
		if covered[id] {
			continue
		}
		made, err := t.meta.Schema(ctx, id)
		if err != nil {
			return err
		}
		if !t.Holds(made, newest) {
			return fmt.Errorf("%w: they have schema %d, the table has %d", ErrNewSchema, id, newest.ID)
		}
		covered[id] = true
	}
	return nil
}

// Holds reports whether rows that were made for one schema hold for a newer one too: it has no columns that they lack
// (schema.Schema.Covers), or what is new was asked for by the writer of the rows (Alter), who would have asked before if a
// row had needed it.
func (t *Table) Holds(made, newer *schema.Schema) bool {
	if made.ID >= newer.ID || made.Covers(newer) {
		return true
	}
	t.alterMu.Lock()
	defer t.alterMu.Unlock()
	for id := made.ID + 1; id <= newer.ID; id++ {
		if !t.altered[id] {
			return false
		}
	}
	return true
}

// schemaRule says of the newest schema whether entries may be published under it; nil: they may.
type schemaRule func(ctx context.Context, entries []manifest.Entry, newest *schema.Schema) error

func (t *Table) commit(ctx context.Context, p Progress, rule schemaRule) (*manifest.Snapshot, error) {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	start := t.env.Now()
	generation, err := t.settle(ctx)
	if err != nil {
		return nil, err
	}
	pub := t.collect(generation)
	if len(pub.entries)+len(pub.changelog) == 0 && (t.epoch == 0 || t.sameProgress(p)) { // without a job nobody asks for progress
		return nil, nil
	}
	if len(pub.entries) > 0 {
		if pub.hashes, err = t.writeHashes(ctx); err != nil {
			return nil, err
		}
	}
	snap, err := t.publish(ctx, pub, p, rule)
	if err != nil {
		return nil, err
	}
	info := CommitInfo{Snapshot: snap.ID, Kind: snap.CommitKind, Files: len(pub.entries), Took: t.env.Now().Sub(start)}
	for i := range pub.entries {
		info.Rows += pub.entries[i].File.Rows
		t.metrics.flushedBytes.Add(pub.entries[i].File.Size)
	}
	t.published(generation)
	t.metrics.commits.Add(1)
	t.metrics.rowsCommitted.Add(info.Rows)
	t.metrics.lastCommit.Store(int64(info.Took))
	if t.set.Events.Committed != nil {
		t.set.Events.Committed(info)
	}
	return snap, nil
}

// settle flushes what was written up to now and waits until those flushes have ended. Rows written from now on belong
// to the next generation, which is not this Commit's to publish: their progress is not in it.
func (t *Table) settle(ctx context.Context) (int64, error) {
	t.mu.Lock()
	if err := t.usableLocked(); err != nil {
		t.mu.Unlock()
		return 0, err
	}
	f := t.freezeLocked()
	generation := t.generation
	t.generation++
	t.mu.Unlock()
	if f != nil {
		t.flush(ctx, f)
	}
	if err := t.waitFlushed(ctx, generation); err != nil {
		return 0, err
	}
	return generation, t.usable()
}

// collect gathers the flushed files up to a generation.
func (t *Table) collect(generation int64) (p publication) {
	p.kind = manifest.Append
	t.mu.Lock()
	defer t.mu.Unlock()
	for b := range t.unpublished {
		for _, r := range b.ready {
			switch {
			case r.generation > generation:
			case r.changelog:
				p.changelog = append(p.changelog, entry(b, manifest.Add, r.file))
			default:
				p.entries = append(p.entries, entry(b, manifest.Add, r.file))
			}
		}
	}
	byBucket(p.entries)
	byBucket(p.changelog)
	return p
}

// published forgets the files that a snapshot now names, and asks for compactions.
func (t *Table) published(generation int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for b := range t.unpublished {
		b.ready = slices.DeleteFunc(b.ready, func(r readyFile) bool { return r.generation <= generation })
		if len(b.ready) == 0 {
			b.ready = nil
			delete(t.unpublished, b)
		}
		t.enqueueLocked(b)
	}
	if t.assigner != nil {
		t.assigner.committed(generation)
	}
}

func entry(b *bucket, kind manifest.EntryKind, f manifest.DataFile) manifest.Entry {
	return manifest.Entry{Kind: kind, Partition: b.part.Partition, Bucket: b.part.Bucket, TotalBuckets: b.part.TotalBuckets, File: f}
}

func (t *Table) sameProgress(p Progress) bool {
	if !t.hasWritten {
		return len(p.Properties) == 0
	}
	old := maps.Clone(t.progress.Properties)
	delete(old, PropEpoch)
	return maps.Equal(old, p.Properties)
}

// publish makes one snapshot; commitMu is held. On success the buckets and the job's progress are brought up to date.
func (t *Table) publish(ctx context.Context, pub publication, p Progress, rule schemaRule) (*manifest.Snapshot, error) {
	kind, entries, hashes := pub.kind, pub.entries, pub.hashes
	props := maps.Clone(p.Properties)
	if t.epoch > 0 {
		if props == nil {
			props = map[string]string{}
		}
		props[PropEpoch] = strconv.FormatInt(t.epoch, 10)
	}
	id := t.identifier
	if kind != manifest.Compact {
		id++
	}
	tells := props
	if kind == manifest.Append && t.form.Load().keys != nil && severalBuckets(entries) {
		if tells = maps.Clone(props); tells == nil {
			tells = map[string]string{}
		}
		tells[manifest.PropOrder] = manifest.OrderArrival
	}
	var checkSchema func(context.Context, *schema.Schema) error
	if rule != nil {
		checkSchema = func(ctx context.Context, newest *schema.Schema) error { return rule(ctx, entries, newest) }
	}
	snap, err := t.meta.Commit(ctx, manifest.Commit{
		CheckSchema: checkSchema,
		Kind:        kind, User: t.commitUser(), Identifier: id, Entries: entries, Changelog: pub.changelog, Index: slices.Concat(hashes.entries, pub.index), Properties: tells, Watermark: p.Watermark,
		Check: func(ctx context.Context, base *manifest.Snapshot) error {
			err := t.checkEpoch(ctx, base)
			if err == nil && kind == manifest.Append && len(entries) > 0 {
				err = t.findIndex(ctx, base)
			}
			if err == nil && pub.check != nil {
				err = pub.check(ctx, base)
			}
			return err
		},
		Lost: func() { t.metrics.races.Add(1) },
	})
	if err != nil {
		if !errors.Is(err, storage.ErrUnknown) {
			t.dropHashes(ctx, hashes)
		}
		return nil, t.commitFailed(kind, err)
	}
	t.hashesPublished(hashes, snap)
	t.identifier, t.last = id, snap.ID
	t.progress, t.hasWritten = Progress{Properties: props, Watermark: p.Watermark}, t.hasWritten || hasProgress(props)
	if t.form.Load().opts.RowTracking {
		entries = manifest.Assigned(entries, snap)
	}
	if err := t.catchUp(ctx, snap, entries); err != nil {
		t.fail(err) // published, but the handle is of no more use
	}
	t.noteSchema(ctx, snap.SchemaID)
	t.watch.publish(snap.ID, snap.SchemaID)
	return snap, nil
}

// severalBuckets reports whether entries are of more than one bucket. Only then the order of their rows has to be told.
func severalBuckets(entries []manifest.Entry) bool {
	return slices.ContainsFunc(entries, func(e manifest.Entry) bool {
		return e.Bucket != entries[0].Bucket || !bytes.Equal(e.Partition, entries[0].Partition)
	})
}

// commitFailed decides what a failed publication means for the handle. A compaction that lost a conflict hurts nobody.
// After any other failure of an append the flushed files wait for the next try, unless the outcome is unknown or the
// job is fenced: then only opening the table again tells the truth.
func (t *Table) commitFailed(kind manifest.CommitKind, err error) error {
	if errors.Is(err, manifest.ErrConflict) {
		t.metrics.conflicts.Add(1)
	}
	unknown := errors.Is(err, storage.ErrUnknown)
	assigned := errors.Is(err, ErrAssigned)
	if unknown || assigned || errors.Is(err, ErrFenced) {
		t.fail(err)
	}
	if unknown || assigned {
		err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	}
	return fmt.Errorf("committing %s to %s: %w", kind, t.store.URL(""), err)
}

// apply brings the buckets up to date with manifest entries.
func (t *Table) apply(entries []manifest.Entry) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	changes := map[*bucket]*changeOf{}
	t.countLocked(entries)
	highest := -1
	if f := t.form.Load(); f.keys != nil {
		highest = f.opts.MaxLevel()
	}
	t.watch.applied(entries, highest)
	var order []*bucket
	for i := range entries {
		e := &entries[i]
		if err := t.checkTotalLocked(e); err != nil {
			return err
		}
		b, err := t.bucketLocked(e.Partition, e.Bucket)
		if err != nil {
			return err
		}
		c := changes[b]
		if c == nil {
			c = &changeOf{}
			changes[b] = c
			order = append(order, b)
		}
		c.add(e)
		t.numberedLocked(b, &e.File)
	}
	for _, b := range order {
		if err := b.levels.Apply(changes[b].change()); err != nil {
			return fmt.Errorf("%s: %w", t.store.URL(b.part.Dir), err)
		}
		if len(changes[b].removed) == 0 {
			t.wroteLocked(b)
		}
		b.ageLocked(len(changes[b].removed) == 0)
		t.enqueueLocked(b) // whoever wrote the files
	}
	t.askDueLocked()
	return nil
}

// checkTotalLocked makes the handle unusable when another writer has given the table another number of buckets: what is
// written and compacted here would go into the wrong ones. mu is held.
func (t *Table) checkTotalLocked(e *manifest.Entry) error {
	buckets := t.form.Load().opts.Bucket
	if e.Kind != manifest.Add || e.TotalBuckets == buckets {
		return nil
	}
	err := fmt.Errorf("table %s: another writer has written bucket %d of %d buckets, this handle knows %d: open the table again",
		t.store.URL(""), e.Bucket, e.TotalBuckets, buckets)
	t.failLocked(err)
	return err
}

func latestOrNil(ctx context.Context, m *manifest.Table) (*manifest.Snapshot, error) {
	s, err := m.Latest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return nil, nil
	}
	return s, err
}
