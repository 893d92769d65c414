package manifest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/storage"
)

const (
	// maxListSize and maxManifestSize bound metadata files whose size nobody stated. Paimon aims at 8 MB a manifest.
	maxListSize     = 64 << 20
	maxManifestSize = 256 << 20
	// readers is how many metadata files are fetched at the same time.
	readers = 8
)

func manifestPath(name string) string { return "manifest/" + name }

// readMetadata reads a list or manifest. A stated size must be exact: Paimon's readers open the file with it.
func (t *Table) readMetadata(ctx context.Context, name string, size *int64, limit int64) ([]byte, error) {
	path := manifestPath(name)
	if size != nil {
		if *size > limit {
			return nil, fmt.Errorf("read %s: its size is stated as %d, the limit is %d", t.store.URL(path), *size, limit)
		}
		limit = *size
	}
	data, err := storage.ReadAll(ctx, t.store, path, limit)
	if size != nil && errors.Is(err, storage.ErrTooLarge) {
		return nil, &CorruptError{Name: t.store.URL(path), Offset: *size, Reason: fmt.Sprintf("the file is longer than the stated %d bytes", *size)}
	}
	if err != nil {
		return nil, err
	}
	if size != nil && int64(len(data)) != *size {
		return nil, &CorruptError{Name: t.store.URL(path), Offset: int64(len(data)), Reason: fmt.Sprintf("the file ends here, %d bytes are stated", *size)}
	}
	return data, nil
}

// readList reads a manifest list.
func (t *Table) readList(ctx context.Context, name string, size *int64) ([]Meta, error) {
	data, err := t.readMetadata(ctx, name, size, maxListSize)
	if err != nil {
		return nil, err
	}
	return decodeMetas(t.store.URL(manifestPath(name)), data)
}

// readManifest reads the entries of one manifest.
func (t *Table) readManifest(ctx context.Context, m *Meta) ([]Entry, bool, error) {
	data, err := t.readMetadata(ctx, m.Name, &m.Size, maxManifestSize)
	if err != nil {
		return nil, false, err
	}
	name := t.store.URL(manifestPath(m.Name))
	entries, lossy, err := decodeEntries(name, data, m.Added+m.Deleted)
	if err != nil {
		return nil, false, err
	}
	if int64(len(entries)) != m.Added+m.Deleted {
		return nil, false, &CorruptError{Name: name, Offset: int64(len(data)),
			Reason: fmt.Sprintf("%d entries, its list states %d", len(entries), m.Added+m.Deleted)}
	}
	return entries, lossy, nil
}

// eachManifest reads manifests several at a time and hands their entries over in the order of the list.
func (t *Table) eachManifest(ctx context.Context, metas []Meta, f func(m *Meta, entries []Entry, lossy bool) error) error {
	for start := 0; start < len(metas); start += readers {
		part := metas[start:min(start+readers, len(metas))]
		entries := make([][]Entry, len(part))
		lossy := make([]bool, len(part))
		if len(part) == 1 {
			var err error
			if entries[0], lossy[0], err = t.readManifest(ctx, &part[0]); err != nil {
				return err
			}
		} else {
			g, gctx := errgroup.WithContext(ctx)
			for i := range part {
				g.Go(func() (err error) {
					entries[i], lossy[i], err = t.readManifest(gctx, &part[i])
					return err
				})
			}
			if err := g.Wait(); err != nil {
				return err
			}
		}
		for i := range part {
			if err := f(&part[i], entries[i], lossy[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// manifests gives all manifests of a snapshot in fold order: base list, then delta list.
func (t *Table) manifests(ctx context.Context, s *Snapshot) ([]Meta, error) {
	base, err := t.readList(ctx, s.BaseManifestList, s.BaseManifestListSize)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: %w", s.ID, err)
	}
	delta, err := t.readList(ctx, s.DeltaManifestList, s.DeltaManifestListSize)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: %w", s.ID, err)
	}
	return slices.Concat(base, delta), nil
}

// Live gives the files of a snapshot: the fold of all entries of its base and delta lists (paimon-format §5.2), ordered
// by partition, bucket, level, sequence numbers and name. keep, when not nil, selects which; it is asked once for each
// entry that adds a file, and the entry must not be changed or kept beyond the call.
func (t *Table) Live(ctx context.Context, s *Snapshot, keep func(*Entry) bool) ([]Entry, error) {
	return t.Find(ctx, s, Filter{File: keep})
}

// Filter chooses files of a snapshot. A function that is nil chooses all.
type Filter struct {
	// Manifest reports whether a manifest may have entries that Identity chooses. Others are not read.
	Manifest func(*Meta) bool
	// Identity chooses by what all entries of a file have in common: partition, bucket and level. It is asked for
	// additions and removals alike, and must give one answer.
	Identity func(*Entry) bool
	// File chooses by anything. It is asked once for each entry that adds a file.
	File func(*Entry) bool
}

// Find is Live for some of the files. Entries that the functions are given must not be changed or kept.
func (t *Table) Find(ctx context.Context, s *Snapshot, want Filter) ([]Entry, error) {
	metas, err := t.manifests(ctx, s)
	if err != nil {
		return nil, err
	}
	if want.Manifest != nil {
		metas = slices.DeleteFunc(metas, func(m Meta) bool { return !want.Manifest(&m) })
	}
	f := newFold(want.File, liveSize(metas))
	f.identity = want.Identity
	err = t.eachManifest(ctx, metas, func(m *Meta, entries []Entry, _ bool) error {
		return f.apply(t.store.URL(manifestPath(m.Name)), entries)
	})
	if err == nil {
		err = f.complete(t.store.URL(snapshotName(s.ID)))
	}
	if err != nil {
		return nil, fmt.Errorf("live files of snapshot %d: %w", s.ID, err)
	}
	f.sort()
	return f.live(), nil
}

// Delta gives what a snapshot changed: the entries of its delta list in order. It reads that list and the manifests
// it names, nothing else.
func (t *Table) Delta(ctx context.Context, s *Snapshot) ([]Entry, error) {
	return t.listed(ctx, s, "delta", s.DeltaManifestList, s.DeltaManifestListSize)
}

// Changelog gives the changelog files that a snapshot announces; none when it has no changelog list.
func (t *Table) Changelog(ctx context.Context, s *Snapshot) ([]Entry, error) {
	if s.ChangelogManifestList == nil {
		return nil, nil
	}
	return t.listed(ctx, s, "changelog", *s.ChangelogManifestList, s.ChangelogManifestListSize)
}

// listed gives all entries of the manifests that a list names.
func (t *Table) listed(ctx context.Context, s *Snapshot, what, name string, size *int64) ([]Entry, error) {
	metas, err := t.readList(ctx, name, size)
	if err != nil {
		return nil, fmt.Errorf("%s of snapshot %d: %w", what, s.ID, err)
	}
	var all []Entry
	err = t.eachManifest(ctx, metas, func(_ *Meta, entries []Entry, _ bool) error {
		if all == nil {
			all = entries
		} else {
			all = append(all, entries...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s of snapshot %d: %w", what, s.ID, err)
	}
	return all, nil
}

// compareEntries is the order of Live.
func compareEntries(a, b *Entry) int {
	return cmp.Or(
		bytes.Compare(a.Partition, b.Partition),
		cmp.Compare(a.Bucket, b.Bucket),
		cmp.Compare(a.File.Level, b.File.Level),
		cmp.Compare(a.File.MinSeq, b.File.MinSeq),
		cmp.Compare(a.File.MaxSeq, b.File.MaxSeq),
		strings.Compare(a.File.Name, b.File.Name),
	)
}

// fileID identifies a file in a snapshot (`FileEntry.Identifier`, paimon-format §2.4). The level is part of it: a move
// to another level removes one identity and adds another of the same file.
type fileID struct {
	partition string
	bucket    int32
	level     int32
	name      string
	extra     string
	index     string
	external  string
}

// String names the file for messages.
func (id fileID) String() string {
	return fmt.Sprintf("%s (bucket %d, level %d)", id.name, id.bucket, id.level)
}

// idOf gives the identity of an entry's file.
func idOf(e *Entry) fileID { return idIn(e, string(fill(e.Partition))) }

// idIn is idOf for a caller that has the partition as a string.
func idIn(e *Entry, partition string) fileID {
	id := fileID{partition: partition, bucket: int32(e.Bucket), level: int32(e.File.Level), name: e.File.Name}
	if len(e.File.ExtraFiles) > 0 {
		id.extra = strings.Join(e.File.ExtraFiles, "/") // no file name holds a slash
	}
	if e.File.EmbeddedIndex != nil {
		id.index = "+" + string(e.File.EmbeddedIndex) // null and empty differ
	}
	if e.File.ExternalPath != nil {
		id.external = "+" + *e.File.ExternalPath
	}
	return id
}

// fold builds a set of files from entries in order. It keeps pointers to the entries it is given.
type fold struct {
	keep func(*Entry) bool
	// identity, when not nil, says which entries count at all.
	identity func(*Entry) bool
	at       map[fileID]int // position in entries; dropped: the file is live, but keep did not want it
	entries  []*Entry       // nil: removed again
	dead     int
	names    map[string]string // partitions, so that each is one string
	// early holds removals whose addition was not among the entries so far. A complete fold has none left; a fold over
	// a part of the manifests keeps them.
	early map[fileID]*Entry
}

const dropped = -1

func newFold(keep func(*Entry) bool, size int64) *fold {
	return &fold{keep: keep, at: make(map[fileID]int, min(max(0, size), maxReserve)), names: map[string]string{}}
}

// maxReserve bounds what is allocated on the word of a manifest list.
const maxReserve = 1 << 16

// liveSize guesses the number of live files from the counts in the lists.
func liveSize(metas []Meta) (n int64) {
	for i := range metas {
		n += metas[i].Added - metas[i].Deleted
	}
	return n
}

// id gives the identity of an entry.
func (f *fold) id(e *Entry) fileID {
	row := fill(e.Partition)
	p, ok := f.names[string(row)]
	if !ok {
		p = string(row)
		f.names[p] = p
	}
	return idIn(e, p)
}

// apply takes the entries of one manifest.
func (f *fold) apply(name string, entries []Entry) error {
	for i := range entries {
		e := &entries[i]
		if f.identity != nil && !f.identity(e) {
			continue
		}
		id := f.id(e)
		pos, live := f.at[id]
		switch {
		case e.Kind == Add && live:
			return &CorruptError{Name: name, Reason: fmt.Sprintf("entry %d adds file %s, which is there already", i, id)}
		case e.Kind == Add && f.keep != nil && !f.keep(e):
			f.at[id] = dropped
		case e.Kind == Add:
			f.at[id] = len(f.entries)
			f.entries = append(f.entries, e)
		case live:
			if pos != dropped {
				f.entries[pos] = nil
				f.dead++
			}
			delete(f.at, id)
		default:
			if _, twice := f.early[id]; twice {
				return &CorruptError{Name: name, Reason: fmt.Sprintf("entry %d removes file %s a second time", i, id)}
			}
			if f.early == nil {
				f.early = map[fileID]*Entry{}
			}
			f.early[id] = e
		}
	}
	return nil
}

// complete demands that every removal met its addition.
func (f *fold) complete(name string) error {
	for id := range f.early {
		return &CorruptError{Name: name, Reason: fmt.Sprintf("file %s is removed but was never added (%d such files)", id, len(f.early))}
	}
	return nil
}

// sort puts what is left into the order of Live. Nothing may be applied afterwards.
func (f *fold) sort() {
	f.entries = slices.DeleteFunc(f.entries, func(e *Entry) bool { return e == nil })
	f.dead = 0
	slices.SortStableFunc(f.entries, compareEntries)
}

// live gives the files that are left, in the order in which they were added unless they were sorted.
func (f *fold) live() []Entry {
	out := make([]Entry, 0, len(f.entries)-f.dead)
	for _, e := range f.entries {
		if e != nil {
			out = append(out, *e)
		}
	}
	return out
}
