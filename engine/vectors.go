package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// In a table with deletion vectors (`deletion-vectors.enabled`, paimon-format §13) a compaction of level 0 deletes the older
// rows of its keys where they are, so that readers of the levels above need not merge. A bucket has one index file with the
// vectors of all its data files, which such a compaction writes anew; it is published by the snapshot that installs the
// compaction. One compaction of a bucket at a time looks above level 0, and a commit finds out whether another process was
// at it: then its vectors, or what they speak of, are no longer those that the table has, and it is dropped.

// vectors are the deletion vectors of a bucket, as a compaction found them. They do not change.
type vectors struct {
	file   string // index file; "": there is none
	byFile map[string]*indexfile.Vector
}

// of gives the vector of a data file, nil if it has none. It is a lookup.Vectors.
func (v *vectors) of(_ context.Context, name string) (*indexfile.Vector, error) {
	return v.byFile[name], nil
}

// vectorEntry is the entry of a bucket's vectors in a snapshot, nil if it has none.
func (t *Table) vectorEntry(ctx context.Context, snap *manifest.Snapshot, part lsm.Part) (*manifest.IndexEntry, error) {
	if snap == nil || snap.IndexManifest == nil {
		return nil, nil
	}
	entries, err := t.meta.IndexFiles(ctx, snap)
	if err != nil {
		return nil, err
	}
	var found *manifest.IndexEntry
	for i := range entries {
		e := &entries[i]
		if e.Type != manifest.DeletionVectors || e.Bucket != part.Bucket || string(e.Partition) != string(part.Partition) {
			continue
		}
		if found != nil { // Paimon writes one (§13); to replace two by one could lose what the other deletes
			return nil, fmt.Errorf("%w: two index files, %s and %s, have deletion vectors of %s", ErrUnsupported, found.Name, e.Name, part.Dir)
		}
		found = e
	}
	return found, nil
}

// readVectors reads the vectors of a bucket; nil if the table has none.
func (t *Table) readVectors(ctx context.Context, f *form, b *bucket) (*vectors, error) {
	if !f.policy.Vectors {
		return nil, nil
	}
	snap, err := latestOrNil(ctx, t.meta)
	if err != nil {
		return nil, err
	}
	return t.vectorsAt(ctx, snap, b.part)
}

// vectorsAt reads the vectors of a bucket as a snapshot has them.
func (t *Table) vectorsAt(ctx context.Context, snap *manifest.Snapshot, part lsm.Part) (*vectors, error) {
	v := &vectors{byFile: map[string]*indexfile.Vector{}}
	e, err := t.vectorEntry(ctx, snap, part)
	if err != nil || e == nil {
		return v, err
	}
	v.file = e.Name
	path, err := t.indexPath(e)
	if err != nil {
		return nil, err
	}
	if e.Size > maxIndexFile {
		return nil, fmt.Errorf("index file %s is said to have %d bytes, more than %d", t.store.URL(path), e.Size, maxIndexFile)
	}
	data, err := storage.ReadAll(ctx, t.store, path, e.Size)
	if err != nil {
		return nil, fmt.Errorf("deletion vectors: %w", err)
	}
	for _, w := range e.Vectors {
		if w.Offset < 0 || w.Offset > int64(len(data)) {
			return nil, &manifest.CorruptError{Name: t.store.URL(path), Offset: w.Offset, Reason: "a deletion vector lies beyond the end of the file"}
		}
		if v.byFile[w.DataFile], err = indexfile.DecodeVector(data[w.Offset:], w.Length); err != nil {
			return nil, &manifest.CorruptError{Name: t.store.URL(path), Offset: w.Offset, Reason: "not a usable deletion vector", Err: err}
		}
	}
	return v, nil
}

// after gives the vectors after a change; changed is false if they are the same. Files that were rewritten need none any
// more, those that moved keep theirs.
func (v *vectors) after(change lsm.Change) (next map[string]*indexfile.Vector, changed bool, err error) {
	next = maps.Clone(v.byFile)
	stays := map[string]bool{}
	for i := range change.Added {
		stays[change.Added[i].Name] = true
	}
	for i := range change.Removed {
		if name := change.Removed[i].Name; next[name] != nil && !stays[name] {
			delete(next, name)
			changed = true
		}
	}
	own := map[string]bool{}
	for _, p := range change.Marks {
		if !own[p.File] {
			own[p.File], changed = true, true
			if old := next[p.File]; old != nil {
				next[p.File] = old.Clone()
			} else {
				next[p.File] = indexfile.NewVector()
			}
		}
		if err := next[p.File].Add(p.Row); err != nil {
			return nil, false, fmt.Errorf("deletion vector of %s: %w", p.File, err)
		}
	}
	return next, changed, nil
}

// writeVectors writes the index file of a bucket after a change; nil if its vectors stay. Where none are left the file is
// empty, and takes the place of the old one (`deletionvectors.DeletionVectorIndexFileWriter`).
func (t *Table) writeVectors(ctx context.Context, f *form, b *bucket, v *vectors, change lsm.Change) ([]manifest.IndexEntry, error) {
	if v == nil {
		return nil, nil
	}
	next, changed, err := v.after(change)
	if err != nil || !changed {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(next))
	list := make([]*indexfile.Vector, len(names))
	for i, n := range names {
		list[i] = next[n]
	}
	data, places, err := indexfile.EncodeVectors(list, f.opts.Bitmap64)
	if err != nil {
		return nil, fmt.Errorf("deletion vectors of %s: %w", t.store.URL(b.part.Dir), err)
	}
	e := manifest.IndexEntry{
		Partition: b.part.Partition, Bucket: b.part.Bucket, Type: manifest.DeletionVectors, Name: "index-" + t.env.NewID() + "-0",
		Size: int64(len(data)), Rows: int64(len(list)), Vectors: []manifest.VectorRange{},
	}
	for i, p := range places {
		n := p.Deleted
		e.Vectors = append(e.Vectors, manifest.VectorRange{DataFile: names[i], Offset: p.Offset, Length: p.Length, Cardinality: &n})
	}
	if err := t.writeIndexFile(ctx, &e, data); err != nil {
		return nil, errors.Join(fmt.Errorf("deletion vectors of %s: %w", t.store.URL(b.part.Dir), err), t.dropIndex(ctx, []manifest.IndexEntry{e}))
	}
	return []manifest.IndexEntry{e}, nil
}

// writeIndexFile writes an index file.
func (t *Table) writeIndexFile(ctx context.Context, e *manifest.IndexEntry, data []byte) error {
	path, err := t.indexPath(e)
	if err != nil {
		return err
	}
	u, err := t.store.Create(ctx, path)
	if err != nil {
		return err
	}
	if _, err := u.Write(data); err != nil {
		u.Abort()
		return err
	}
	return u.Commit()
}

// dropIndex deletes index files that no snapshot names.
func (t *Table) dropIndex(ctx context.Context, entries []manifest.IndexEntry) error {
	var errs []error
	for i := range entries {
		path, err := t.indexPath(&entries[i])
		if err == nil {
			err = t.store.Delete(context.WithoutCancel(ctx), path)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkVectors finds out whether a compaction's vectors can be put on top of a snapshot: the bucket's are those it has read,
// and the files of which it deletes rows are still there. commitMu is held.
func (t *Table) checkVectors(ctx context.Context, base *manifest.Snapshot, b *bucket, v *vectors, change lsm.Change) error {
	if v == nil || base == nil {
		return nil
	}
	conflict := func(what string) error {
		return fmt.Errorf("%w: %s of %s since this compaction began", manifest.ErrConflict, what, t.store.URL(b.part.Dir))
	}
	e, err := t.vectorEntry(ctx, base, b.part)
	if err != nil {
		return err
	}
	if e == nil && v.file != "" || e != nil && e.Name != v.file {
		return conflict("another writer has changed the deletion vectors")
	}
	if len(change.Marks) == 0 {
		return nil
	}
	live := map[string]bool{}
	t.mu.Lock()
	for _, f := range b.levels.Files() {
		live[f.Name] = true
	}
	t.mu.Unlock()
	for id := t.known + 1; id <= base.ID; id++ { // what the buckets do not show yet
		s := base
		if id != base.ID {
			if s, err = t.meta.Snapshot(ctx, id); err != nil {
				return fmt.Errorf("looking for changes of other writers: %w", err)
			}
		}
		entries, err := t.meta.Delta(ctx, s)
		if err != nil {
			return err
		}
		for _, kind := range []manifest.EntryKind{manifest.Remove, manifest.Add} { // a file that moves is in both
			for i := range entries {
				if entries[i].Kind == kind {
					live[entries[i].File.Name] = kind == manifest.Add
				}
			}
		}
	}
	for _, p := range change.Marks {
		if !live[p.File] {
			return conflict("another writer has compacted files")
		}
	}
	return nil
}
