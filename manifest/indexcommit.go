package manifest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// indexKey is what an index file is the only one of.
type indexKey struct {
	partition string
	bucket    int
	typ       IndexType
}

func (e *IndexEntry) key() indexKey {
	return indexKey{partition: string(fill(e.Partition)), bucket: e.Bucket, typ: e.Type}
}

// indexList is the content of one index manifest.
type indexList struct {
	name    string // "": there is none
	entries []IndexEntry
	lossy   bool
}

// nextIndex is an index manifest on its way.
type nextIndex struct {
	file metadataFile
	list indexList
}

// checkIndex checks the index files of a commit.
func checkIndex(entries []IndexEntry) error {
	seen := map[indexKey]bool{}
	for i := range entries {
		e := &entries[i]
		if err := checkFileName(e.Name); err != nil {
			return err
		}
		if seen[e.key()] {
			return fmt.Errorf("index file %s is the second of type %s of its bucket", e.Name, e.Type)
		}
		seen[e.key()] = true
	}
	return nil
}

// combineIndex makes the next index manifest: that of the base, with the commit's entries in place of those of the same
// bucket and type. Another base needs another one.
func (t *Table) combineIndex(ctx context.Context, p *pending) error {
	if len(p.commit.Index) == 0 {
		return nil
	}
	base, err := t.baseIndex(ctx)
	if err != nil {
		return err
	}
	if base.lossy {
		return refusal{fmt.Errorf("%w: index manifest %s has fields that calve does not know and would lose", ErrUnsupported, base.name)}
	}
	replaced := map[indexKey]bool{}
	for i := range p.commit.Index {
		replaced[p.commit.Index[i].key()] = true
	}
	entries := slices.DeleteFunc(slices.Clone(base.entries), func(e IndexEntry) bool { return replaced[e.key()] })
	entries = append(entries, p.commit.Index...)
	name := "index-manifest-" + p.id + "-" + strconv.Itoa(p.nextI)
	p.nextI++
	data, err := encodeIndex(name, entries)
	if err != nil {
		return err
	}
	p.index = &nextIndex{file: metadataFile{name: name, data: data}, list: indexList{name: name, entries: entries}}
	return nil
}

// baseIndex gives the index files of the head, which are read only when another committer has changed them.
func (t *Table) baseIndex(ctx context.Context) (indexList, error) {
	if t.head.snap == nil || t.head.snap.IndexManifest == nil {
		return indexList{}, nil
	}
	if name := *t.head.snap.IndexManifest; t.indexes.name != name {
		entries, lossy, err := t.indexFiles(ctx, t.head.snap)
		if err != nil {
			return indexList{}, err
		}
		t.indexes = indexList{name: name, entries: entries, lossy: lossy}
	}
	return t.indexes, nil
}
