package manifest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// metadataFile is a manifest or list that is encoded and maybe not yet written.
type metadataFile struct {
	name    string
	data    []byte
	meta    *Meta // nil for lists
	written bool
}

// pending is a commit on its way. The delta manifests and their list do not depend on the base, so they are written
// once; a lost race costs a new base list only.
type pending struct {
	commit  Commit
	schema  *schema.Schema // for the partition columns; the snapshot may name a newer one
	options schema.Options

	id      string // UUID in the names of all its files
	nextM   int    // counters behind the UUID
	nextL   int
	nextI   int
	deltas  []metadataFile
	delta   metadataFile // the delta list
	changes changelog    // empty without changelog files
	rows    int64        // rows added minus rows removed
	tracked *tracked     // of a table with row tracking; nil otherwise
	merging *merging
	index   *nextIndex // the next index manifest; nil: that of the base stays

	again   bool      // an attempt has failed: the head may be old
	checked int64     // snapshots below this id were asked whether they are this commit; 0: no look yet
	doubt   *doubtful // the snapshot that may have been published
	change  *change   // the entries as the index sees them
	created []string  // metadata files that were written and that nothing names so far
}

// doubtful is a snapshot from the moment it is sent until it is certain whether it is there.
type doubtful struct {
	snap  *Snapshot
	data  []byte
	base  *Snapshot // nil: the table was empty
	base0 []Meta    // content of the base list
	sent  bool      // an earlier put of it may have worked
}

func (p *pending) manifestName() string {
	p.nextM++
	return "manifest-" + p.id + "-" + strconv.Itoa(p.nextM-1)
}

func (p *pending) listName() string {
	p.nextL++
	return "manifest-list-" + p.id + "-" + strconv.Itoa(p.nextL-1)
}

// encodeDelta encodes the manifests of the commit's entries, rolled at the target size, and their list.
func (p *pending) encodeDelta() error {
	p.rows = 0
	for i := range p.commit.Entries {
		if e := &p.commit.Entries[i]; e.Kind == Add {
			p.rows += e.File.Rows
		} else {
			p.rows -= e.File.Rows
		}
	}
	var err error
	if p.deltas, err = p.encodeManifests(p.commit.Entries, p.schema, p.perManifest()); err != nil {
		return refusal{err}
	}
	p.delta = metadataFile{name: p.listName()}
	p.delta.data, err = encodeMetas(p.delta.name, p.deltaMetas())
	return err
}

// perManifest is how many entries a manifest has: about 1 KiB an entry before compression, so that wide tables with long
// statistics may exceed the target a little.
func (p *pending) perManifest() int { return int(max(1, p.options.ManifestTargetSize/1024)) }

// deltaMetas are the manifests of the delta list.
func (p *pending) deltaMetas() []Meta {
	metas := make([]Meta, len(p.deltas))
	for i := range p.deltas {
		metas[i] = *p.deltas[i].meta
	}
	return metas
}

// refresh brings the head up to the newest snapshot. A head that the last commit left behind is taken as it is: should
// somebody have committed since, the conditional put says so, and then the head is refreshed.
func (t *Table) refresh(ctx context.Context, p *pending) error {
	if t.head != nil && !p.again && t.undecided == nil {
		return nil
	}
	latest, err := t.latest(ctx)
	if err != nil {
		return err
	}
	if latest == nil {
		t.head = &head{}
		return nil
	}
	if t.head != nil && t.head.snap != nil && t.head.snap.ID == latest.ID {
		return nil
	}
	metas, err := t.manifests(ctx, latest)
	if err != nil {
		return err
	}
	x := t.followed(ctx, latest)
	t.head = &head{snap: latest, metas: metas, index: x}
	return nil
}

// followed moves the index over foreign snapshots by their deltas. Nil when that is not possible; the index is built
// again then when it is needed.
func (t *Table) followed(ctx context.Context, latest *Snapshot) *index {
	if t.head == nil || t.head.index == nil || t.head.snap == nil || latest.ID-t.head.snap.ID > maxWalk {
		return nil
	}
	x := t.head.index
	t.head.index = nil // half moved on an error
	for s, err := range t.EachSnapshot(ctx, t.head.snap.ID+1, latest.ID) {
		if err != nil {
			return nil
		}
		entries, err := t.Delta(ctx, s)
		if err != nil {
			return nil
		}
		c, err := x.plan(entries, true)
		if err != nil || x.try(c) != nil {
			return nil
		}
	}
	return x
}

// alreadyDone looks through the snapshots that appeared since the last look for this very commit: after an unknown
// outcome, or when the caller repeats a commit whose reply it lost.
func (t *Table) alreadyDone(ctx context.Context, p *pending) (*Snapshot, error) {
	from := p.checked
	if t.undecided != nil && (from == 0 || t.undecided.ID < from) {
		from = t.undecided.ID
	}
	last := int64(0)
	if t.head.snap != nil {
		last = t.head.snap.ID
	}
	p.checked = last + 1
	if from == 0 {
		return nil, nil // the first look; nothing is in doubt
	}
	for id := from; id <= last; id++ {
		s, err := t.readSnapshot(ctx, id)
		if errors.Is(err, storage.ErrNotFound) {
			continue // expired since; what follows it still tells
		}
		if err != nil {
			p.checked = id
			return nil, err
		}
		own := t.undecided != nil && s.BaseManifestList == t.undecided.BaseManifestList
		if !p.commit.identified(s) {
			continue
		}
		if !own && p.commit.Check != nil {
			if err := p.commit.Check(ctx, t.head.snap); err != nil {
				return nil, refusal{err}
			}
		}
		return s, nil
	}
	if t.undecided != nil && t.undecided.ID <= last {
		t.undecided = nil // its id is taken by another: it can never appear
	}
	return nil, nil
}

// judge asks the caller's rule and the index whether the change fits the head.
func (t *Table) judge(ctx context.Context, p *pending) (*change, error) {
	if p.commit.Check != nil {
		if err := p.commit.Check(ctx, t.head.snap); err != nil {
			return nil, refusal{err}
		}
	}
	if t.head.index == nil {
		if p.commit.Kind == Append {
			return nil, nil
		}
		if err := t.buildIndex(ctx, p.schema); err != nil {
			return nil, err
		}
	}
	c, err := t.head.index.plan(p.commit.Entries, p.commit.Kind == Overwrite)
	if err != nil {
		return nil, refusal{err}
	}
	if err := t.head.index.check(c); err != nil {
		return nil, err
	}
	return &c, nil
}

// buildIndex reads all live files of the head once.
func (t *Table) buildIndex(ctx context.Context, s *schema.Schema) error {
	if t.head.snap == nil {
		t.head.index = newIndex(s)
		return nil
	}
	live, err := t.Live(ctx, t.head.snap, nil)
	if err != nil {
		return err
	}
	x, err := buildIndex(s, live)
	if err != nil {
		return fmt.Errorf("live files of snapshot %d: %w", t.head.snap.ID, err)
	}
	t.head.index = x
	return nil
}

// write makes everything the next snapshot names: delta manifests and their list unless an earlier attempt did,
// merged manifests, and the base list. They are written at the same time, because each costs a sync of the disk or a
// round trip; the look for a newer schema runs beside them.
func (t *Table) write(ctx context.Context, p *pending) (*doubtful, error) {
	if p.tracked != nil {
		if err := t.track(ctx, p); err != nil {
			return nil, err
		}
	}
	metas, err := t.merge(ctx, p, t.head.metas)
	if err != nil {
		return nil, err
	}
	base := metadataFile{name: p.listName()}
	if base.data, err = encodeMetas(base.name, metas); err != nil {
		return nil, err
	}
	if err := t.combineIndex(ctx, p); err != nil {
		return nil, err
	}
	files := []*metadataFile{&base, &p.delta}
	if p.index != nil {
		files = append(files, &p.index.file)
	}
	for i := range p.deltas {
		files = append(files, &p.deltas[i])
	}
	files = append(files, p.changes.files()...)
	if p.merging != nil {
		for i := range p.merging.files {
			files = append(files, &p.merging.files[i])
		}
	}
	files = slices.DeleteFunc(files, func(f *metadataFile) bool { return f.written })
	objects := make([]storage.Object, len(files))
	for i, f := range files {
		p.created = append(p.created, f.name)
		objects[i] = storage.Object{Name: manifestPath(f.name), Data: f.data}
	}
	written := make(chan error, 1)
	go func() { written <- storage.PutAll(ctx, t.store, objects) }()
	var schemaID int64
	if p.commit.SchemaID != nil {
		schemaID = *p.commit.SchemaID
	} else {
		s, err := t.LatestSchema(ctx)
		if err == nil && p.commit.CheckSchema != nil {
			if err = p.commit.CheckSchema(ctx, s); err != nil {
				err = refusal{err}
			}
		}
		if err != nil {
			return nil, errors.Join(err, <-written)
		}
		schemaID = s.ID
	}
	if err := <-written; err != nil {
		return nil, err
	}
	for _, f := range files {
		f.written = true
	}
	d := &doubtful{snap: t.nextSnapshot(p, schemaID, &base), base: t.head.snap, base0: metas}
	d.data, err = encodeSnapshot(d.snap)
	return d, err
}

// nextSnapshot builds the snapshot that follows the head (paimon-format §2.3 step 7).
func (t *Table) nextSnapshot(p *pending, schemaID int64, base *metadataFile) *Snapshot {
	baseSize, deltaSize := int64(len(base.data)), int64(len(p.delta.data))
	s := &Snapshot{
		Version: snapshotVersion, ID: 1, SchemaID: schemaID,
		BaseManifestList: base.name, BaseManifestListSize: &baseSize,
		DeltaManifestList: p.delta.name, DeltaManifestListSize: &deltaSize,
		CommitUser: p.commit.User, CommitIdentifier: p.commit.Identifier, CommitKind: p.commit.Kind,
		TimeMillis: t.env.Now().UnixMilli(), LogOffsets: map[string]int64{},
		TotalRecordCount: p.rows, DeltaRecordCount: p.rows, Watermark: p.commit.Watermark,
		Properties: maps.Clone(p.commit.Properties),
	}
	if p.index != nil {
		s.IndexManifest = &p.index.file.name
	}
	p.changes.describe(s)
	if p.tracked != nil {
		s.NextRowID = &p.tracked.next
	}
	prev := t.head.snap
	if prev == nil {
		return s
	}
	s.ID = prev.ID + 1
	s.TotalRecordCount += prev.TotalRecordCount
	// Time travel and expiry take the time as growing with the id: a clock that was set back must not break them.
	s.TimeMillis = max(s.TimeMillis, prev.TimeMillis)
	if p.tracked == nil {
		s.NextRowID = prev.NextRowID
	}
	if p.index == nil {
		s.IndexManifest = prev.IndexManifest
	}
	if prev.Watermark != nil && (s.Watermark == nil || *s.Watermark < *prev.Watermark) {
		s.Watermark = prev.Watermark
	}
	if prev.SchemaID == s.SchemaID {
		s.Statistics = prev.Statistics
	}
	if prev.LogOffsets != nil {
		s.LogOffsets = maps.Clone(prev.LogOffsets)
	}
	return s
}

// anySchema gives some version of the schema; partition columns and keys are the same in all of them.
func (t *Table) anySchema(ctx context.Context) (*schema.Schema, error) {
	t.mu.Lock()
	id := t.newest
	t.mu.Unlock()
	if id >= 0 {
		return t.Schema(ctx, id)
	}
	return t.LatestSchema(ctx)
}

// published takes the files that a snapshot names off the list of what may be deleted.
func (p *pending) published(s *Snapshot) {
	named := map[string]bool{s.BaseManifestList: true, s.DeltaManifestList: true}
	if s.IndexManifest != nil {
		named[*s.IndexManifest] = true
	}
	for _, f := range p.deltas {
		named[f.name] = true
	}
	for _, f := range p.changes.files() {
		named[f.name] = true
	}
	if p.merging != nil {
		for _, f := range p.merging.files {
			named[f.name] = true
		}
	}
	p.created = slices.DeleteFunc(p.created, func(name string) bool { return named[name] })
}

// remove deletes one metadata file that nothing names.
func (p *pending) remove(ctx context.Context, t *Table, name string) {
	i := slices.Index(p.created, name)
	if i < 0 || ctx.Err() != nil {
		return
	}
	if err := t.store.Delete(ctx, manifestPath(name)); err != nil {
		t.env.Log.Debug("unused metadata file not deleted", "name", t.store.URL(manifestPath(name)), "error", err)
		return
	}
	p.created = slices.Delete(p.created, i, i+1)
}

// cleanUp deletes what the commit wrote and nothing names. What cannot be deleted stays for the cleaner of orphans.
func (p *pending) cleanUp(ctx context.Context, t *Table) {
	for _, name := range slices.Clone(p.created) {
		p.remove(ctx, t, name)
	}
}
