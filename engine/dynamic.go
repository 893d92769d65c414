package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// ErrAssigned: another writer has given keys of a table with dynamic buckets their bucket while this one did the same.
// The two do not know of each other's choices, so a key could end up in two buckets. Open the table again, and let one
// writer at a time write.
var ErrAssigned = errors.New("another writer assigned dynamic buckets")

// assigner gives each key of a table with dynamic buckets its bucket, as `index.HashBucketAssigner` and `PartitionIndex`
// do: a key whose hash is known goes where it has always gone, a new one to the first bucket with room, else to a new
// bucket. What it decided is published with the rows, as HASH index files, so that it outlives the process.
//
// It holds all hashes of the table in memory, about 20 bytes each. Table.mu guards it, and Table.commitMu what says so.
type assigner struct {
	target int64                 // keys of a bucket before the next one is opened
	most   int                   // buckets of a partition; -1: as many as there are numbers
	rand   func() uint64         // for keys beyond the last bucket's room
	parts  map[string]*partIndex // by serialized partition
	dirty  []*bucketHashes       // with hashes that no snapshot has yet, each once

	manifest string // index manifest whose HASH files are known here; "": none. commitMu
}

// partIndex is the index of one partition.
type partIndex struct {
	partition []byte
	byHash    map[int32]int16
	buckets   map[int]*bucketHashes
	numbers   []int // of buckets, in the order they were opened
	open      []int // buckets that may have room, the first is tried first
	next      int   // all numbers below it are taken
}

// bucketHashes are the hashes of one bucket.
type bucketHashes struct {
	part   *partIndex
	bucket int
	all    []int32 // only ever appended to
	dirty  bool    // in assigner.dirty
	file   string  // index file of the newest snapshot, "": none
}

func newAssigner(o schema.Options, rand func() uint64) *assigner {
	if rand == nil {
		rand = func() uint64 { return 0 }
	}
	return &assigner{target: o.DynamicRows, most: o.DynamicMax, rand: rand, parts: map[string]*partIndex{}}
}

// part finds or makes the index of a partition.
func (a *assigner) part(partition []byte) *partIndex {
	p := a.parts[string(partition)]
	if p == nil {
		p = &partIndex{partition: slices.Clone(partition), byHash: map[int32]int16{}, buckets: map[int]*bucketHashes{}}
		a.parts[string(p.partition)] = p
	}
	return p
}

// bucket finds or makes the hashes of a bucket.
func (p *partIndex) bucket(number int) *bucketHashes {
	b := p.buckets[number]
	if b == nil {
		b = &bucketHashes{part: p, bucket: number}
		p.buckets[number] = b
		p.numbers = append(p.numbers, number)
	}
	return b
}

// assign gives the bucket of a key's hash.
func (a *assigner) assign(p *partIndex, hash int32) (int, error) {
	if n, ok := p.byHash[hash]; ok {
		return int(n), nil
	}
	for len(p.open) > 0 {
		if b := p.buckets[p.open[0]]; int64(len(b.all)) < a.target {
			a.add(b, hash)
			return b.bucket, nil
		}
		p.open = p.open[1:]
	}
	limit := a.most
	if limit < 0 {
		limit = math.MaxInt16
	}
	for ; p.next < limit; p.next++ {
		if p.buckets[p.next] == nil {
			b := p.bucket(p.next)
			p.open = append(p.open, p.next)
			a.add(b, hash)
			return b.bucket, nil
		}
	}
	if a.most < 0 {
		return 0, fmt.Errorf("%w: a partition has %d dynamic buckets, the most there can be; raise \"dynamic-bucket.target-row-num\"", ErrRows, limit)
	}
	b := p.buckets[p.numbers[a.rand()%uint64(len(p.numbers))]]
	a.add(b, hash)
	return b.bucket, nil
}

// add gives a new hash to a bucket.
func (a *assigner) add(b *bucketHashes, hash int32) {
	b.part.byHash[hash] = int16(b.bucket)
	b.all = append(b.all, hash)
	if !b.dirty {
		b.dirty = true
		a.dirty = append(a.dirty, b)
	}
}

// maxIndexFile bounds an index file: a quarter of a billion keys.
const maxIndexFile = 1 << 30

// loadIndex reads the HASH files of a snapshot; the caller owns the table alone.
func (t *Table) loadIndex(ctx context.Context, snap *manifest.Snapshot) error {
	a := t.assigner
	if a == nil || snap.IndexManifest == nil {
		return nil
	}
	entries, err := t.meta.IndexFiles(ctx, snap)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e manifest.IndexEntry) bool { return e.Type != manifest.HashIndex })
	hashes := make([][]int32, len(entries))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range entries {
		g.Go(func() (err error) {
			hashes[i], err = t.readHashes(gctx, &entries[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if e.Bucket < 0 || e.Bucket > math.MaxInt16 {
			return fmt.Errorf("index file %s of %s: it is of bucket %d", e.Name, t.store.URL(""), e.Bucket)
		}
		b := a.part(e.Partition).bucket(e.Bucket)
		b.file = e.Name
		for _, h := range hashes[i] {
			if n, ok := b.part.byHash[h]; ok {
				if int(n) == e.Bucket {
					continue
				}
				return fmt.Errorf("%s: the hash index has key hash %d in the buckets %d and %d of one partition: rows of that key may be there twice", t.store.URL(""), h, n, e.Bucket)
			}
			b.part.byHash[h] = int16(e.Bucket)
			b.all = append(b.all, h)
		}
	}
	for _, p := range a.parts {
		p.open = slices.Sorted(slices.Values(p.numbers))
	}
	a.manifest = *snap.IndexManifest
	return nil
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
	g.SetLimit(8)
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
	path, err := t.indexPath(e)
	if err != nil {
		return err
	}
	u, err := t.store.Create(ctx, path)
	if err != nil {
		return err
	}
	if _, err := u.Write(indexfile.AppendHashes(make([]byte, 0, e.Size), hashes)); err != nil {
		u.Abort()
		return err
	}
	return u.Commit()
}

// dropHashes deletes index files that no snapshot will name. What cannot be deleted is an orphan.
func (t *Table) dropHashes(ctx context.Context, f hashFiles) {
	for i := range f.entries {
		path, err := t.indexPath(&f.entries[i])
		if err == nil {
			err = t.store.Delete(context.WithoutCancel(ctx), path)
		}
		if err != nil {
			t.env.Log.Warn("cannot delete an unpublished index file", "file", f.entries[i].Name, "error", err)
		}
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
	for i, b := range f.buckets {
		b.file = f.entries[i].Name
		b.dirty = len(b.all) > f.counts[i]
	}
	a.dirty = slices.DeleteFunc(a.dirty, func(b *bucketHashes) bool { return !b.dirty })
	if snap.IndexManifest != nil {
		a.manifest = *snap.IndexManifest
	}
}

// checkAssigned refuses to publish rows on top of a snapshot whose keys were given buckets by somebody else; commitMu is
// held. Compactions leave the index manifest as it is, so that nearly always its name is enough.
func (t *Table) checkAssigned(ctx context.Context, base *manifest.Snapshot) error {
	a := t.assigner
	if a == nil || base == nil || base.IndexManifest == nil && a.manifest == "" || base.IndexManifest != nil && *base.IndexManifest == a.manifest {
		return nil
	}
	entries, err := t.meta.IndexFiles(ctx, base)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	theirs := 0
	for i := range entries {
		e := &entries[i]
		if e.Type != manifest.HashIndex {
			continue
		}
		theirs++
		if p := a.parts[string(e.Partition)]; p == nil || p.buckets[e.Bucket] == nil || p.buckets[e.Bucket].file != e.Name {
			return fmt.Errorf("%w: snapshot %d of user %q, bucket %d", ErrAssigned, base.ID, base.CommitUser, e.Bucket)
		}
	}
	ours := 0
	for _, p := range a.parts {
		for _, b := range p.buckets {
			if b.file != "" {
				ours++
			}
		}
	}
	if ours != theirs {
		return fmt.Errorf("%w: snapshot %d of user %q has the index of %d buckets, %d are known here", ErrAssigned, base.ID, base.CommitUser, theirs, ours)
	}
	if base.IndexManifest != nil {
		a.manifest = *base.IndexManifest
	}
	return nil
}

// routeDynamic is route for tables with dynamic buckets; t.mu is held.
func (r *router) routeDynamic(t *Table, b schema.Batch) error {
	a := t.assigner
	n := b.Len()
	if cap(r.numbers) < n {
		r.numbers = make([]int32, n)
	}
	numbers := r.numbers[:n]
	if err := binrow.Hashes(numbers, r.types, columns(b.Rec, r.hashCols), n); err != nil {
		return err
	}
	if r.partEnc != nil {
		return r.routePartitioned(t, b.Rec, numbers, n, int32(t.active.rows))
	}
	part := a.part(binrow.EmptyRow)
	for i, h := range numbers {
		number, err := a.assign(part, h)
		if err != nil {
			return err
		}
		numbers[i] = int32(number)
	}
	return r.routeNumbers(t, numbers, int32(t.active.rows))
}
