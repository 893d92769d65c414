package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// maxIndexFile bounds an index file: a quarter of a billion keys.
const maxIndexFile = 1 << 30

// indexParallel is how many index files are read or written at once.
const indexParallel = 8

// findIndex learns which HASH files a snapshot has, for a table with dynamic buckets; none of them is read. It is
// ErrAssigned if another writer changed those of a partition that has unpublished rows here. commitMu is held, or the
// caller owns the table alone.
func (t *Table) findIndex(ctx context.Context, snap *manifest.Snapshot) error {
	a := t.assigner
	if a == nil || snap == nil {
		return nil
	}
	name := ""
	if snap.IndexManifest != nil {
		name = *snap.IndexManifest
	}
	t.mu.Lock()
	known := a.manifest == name || a.snapshot > snap.ID // nothing can be built on an old one any more
	t.mu.Unlock()
	if known {
		return nil
	}
	files := indexFiles{}
	if name != "" {
		entries, err := t.meta.IndexFiles(ctx, snap)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Type != manifest.HashIndex {
				continue
			}
			if e.Bucket < 0 || e.Bucket > math.MaxInt16 {
				return fmt.Errorf("index file %s of %s: it is of bucket %d", e.Name, t.store.URL(""), e.Bucket)
			}
			of := files[string(e.Partition)]
			if of == nil {
				of = map[int]manifest.IndexEntry{}
				files[string(e.Partition)] = of
			}
			of[e.Bucket] = e
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := a.adopt(snap.ID, files, name); err != nil {
		return fmt.Errorf("%w: snapshot %d of user %q", err, snap.ID, snap.CommitUser)
	}
	return nil
}

// readIndex reads the index of partitions into memory, as the newest snapshot has it.
func (t *Table) readIndex(ctx context.Context, parts unreadError) error {
	for tries := 0; len(parts) > 0; tries++ {
		if err := t.findLatestIndex(ctx); err != nil {
			return err
		}
		t.mu.Lock()
		var todo []manifest.IndexEntry
		files := indexFiles{}
		for p := range parts {
			files[p] = t.assigner.files[p]
			for _, b := range slices.Sorted(maps.Keys(files[p])) {
				todo = append(todo, files[p][b])
			}
		}
		t.mu.Unlock()
		made, err := t.readParts(ctx, todo)
		if err == nil {
			t.putIndex(parts, made, files)
			continue // as a rule there is nothing left to do
		}
		if !errors.Is(err, storage.ErrNotFound) || tries >= 3 { // else another writer has just replaced and expired files
			return err
		}
	}
	return nil
}

// findLatestIndex looks at the newest snapshot. What other writers did to the buckets is learnt with it, for the rows to
// come are newer.
func (t *Table) findLatestIndex(ctx context.Context) error {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	if err := t.refresh(ctx); err != nil {
		return err
	}
	snap, err := latestOrNil(ctx, t.meta)
	if err == nil {
		err = t.findIndex(ctx, snap)
	}
	if errors.Is(err, ErrAssigned) {
		t.fail(err)
		err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	}
	return err
}

// readParts reads index files.
func (t *Table) readParts(ctx context.Context, entries []manifest.IndexEntry) (map[string]*partIndex, error) {
	hashes := make([][]int32, len(entries))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(indexParallel)
	for i := range entries {
		g.Go(func() (err error) {
			hashes[i], err = t.readHashes(gctx, &entries[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	made := map[string]*partIndex{}
	for i := range entries {
		name := string(entries[i].Partition)
		if made[name] == nil {
			made[name] = newPartIndex(name)
		}
		if err := made[name].load(entries[i].Bucket, hashes[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", t.store.URL(""), err)
		}
	}
	for _, p := range made {
		p.open = slices.Sorted(slices.Values(p.numbers))
	}
	return made, nil
}

// putIndex takes in the partitions whose files are still those that were read, and takes them off the list.
func (t *Table) putIndex(parts unreadError, made map[string]*partIndex, read indexFiles) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.assigner
	for name := range parts {
		if !sameFiles(a.files[name], read[name]) {
			continue
		}
		delete(parts, name)
		if p := made[name]; p != nil && a.parts[name] == nil { // else another Write was faster
			p.generation, p.commits = a.published+1, a.commits // the rows that it is read for are about to come
			a.parts[name] = p
			a.hashes += int64(len(p.byHash))
		}
	}
	a.trim()
}

// readHashes reads one HASH file.
func (t *Table) readHashes(ctx context.Context, e *manifest.IndexEntry) ([]int32, error) {
	path, err := t.indexPath(e)
	if err != nil {
		return nil, err
	}
	corrupt := func(err error) error {
		return &manifest.CorruptError{Name: t.store.URL(path), Reason: "not a usable hash index", Err: err}
	}
	if e.Size > maxIndexFile || e.Size != e.Rows*indexfile.HashSize {
		return nil, corrupt(fmt.Errorf("the index manifest says %d bytes for %d hashes", e.Size, e.Rows))
	}
	data, err := storage.ReadAll(ctx, t.store, path, e.Size)
	if err != nil {
		return nil, fmt.Errorf("hash index: %w", err)
	}
	if int64(len(data)) != e.Size {
		return nil, corrupt(fmt.Errorf("it has %d bytes, the index manifest says %d", len(data), e.Size))
	}
	hashes, err := indexfile.DecodeHashes(make([]int32, 0, e.Rows), data)
	if err != nil {
		return nil, corrupt(err)
	}
	return hashes, nil
}

func (t *Table) indexPath(e *manifest.IndexEntry) (string, error) {
	f := t.form.Load()
	dir, err := manifest.DataDir(f.schema, f.opts, e.Partition, e.Bucket)
	if err != nil {
		return "", err
	}
	return manifest.IndexPath(e, f.opts.IndexInBucket, dir)
}

// hashFiles are the index files that go with a commit.
type hashFiles struct {
	entries []manifest.IndexEntry
	buckets []*bucketHashes // whose files they are
	counts  []int           // how many of the bucket's hashes each holds
}

// writeHashes writes the index files of all buckets with new hashes; commitMu is held. They may hold hashes of rows that
// a later Commit publishes, which does no harm: the bucket of these is decided too. Without an assigner there are none.
func (t *Table) writeHashes(ctx context.Context) (hashFiles, error) {
	var f hashFiles
	if t.assigner == nil {
		return f, nil
	}
	t.mu.Lock()
	var contents [][]int32
	for _, b := range t.assigner.dirty {
		f.buckets, f.counts, contents = append(f.buckets, b), append(f.counts, len(b.all)), append(contents, b.all)
	}
	t.mu.Unlock()
	f.entries = make([]manifest.IndexEntry, len(contents))
	for i, b := range f.buckets {
		f.entries[i] = manifest.IndexEntry{
			Partition: b.part.partition, Bucket: b.bucket, Type: manifest.HashIndex, Name: "index-" + t.env.NewID() + "-0",
			Size: int64(len(contents[i])) * indexfile.HashSize, Rows: int64(len(contents[i])),
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(indexParallel)
	for i := range f.entries {
		g.Go(func() error { return t.writeHashFile(gctx, &f.entries[i], contents[i]) })
	}
	if err := g.Wait(); err != nil {
		t.dropHashes(ctx, f)
		return hashFiles{}, fmt.Errorf("hash index: %w", err)
	}
	return f, nil
}

func (t *Table) writeHashFile(ctx context.Context, e *manifest.IndexEntry, hashes []int32) error {
	return t.writeIndexFile(ctx, e, indexfile.AppendHashes(make([]byte, 0, e.Size), hashes))
}

// dropHashes deletes index files that no snapshot will name. What cannot be deleted is an orphan.
func (t *Table) dropHashes(ctx context.Context, f hashFiles) {
	if err := t.dropIndex(ctx, f.entries); err != nil {
		t.env.Log.Warn("cannot delete unpublished index files", "error", err)
	}
}

// hashesPublished notes that a snapshot names the files; commitMu is held.
func (t *Table) hashesPublished(f hashFiles, snap *manifest.Snapshot) {
	if len(f.entries) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.assigner
	files := maps.Clone(a.files) // a Write may be reading by the old ones
	if files == nil {
		files = indexFiles{}
	}
	for i, b := range f.buckets {
		name := string(b.part.partition)
		of := maps.Clone(files[name])
		if of == nil {
			of = map[int]manifest.IndexEntry{}
		}
		of[b.bucket] = f.entries[i]
		files[name] = of
		b.dirty = len(b.all) > f.counts[i]
	}
	a.files = files
	a.dirty = slices.DeleteFunc(a.dirty, func(b *bucketHashes) bool { return !b.dirty })
	a.snapshot = snap.ID
	if snap.IndexManifest != nil {
		a.manifest = *snap.IndexManifest
	}
}
