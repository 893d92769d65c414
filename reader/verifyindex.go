package reader

import (
	"context"
	"fmt"

	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// verifyIndex checks the index files of the snapshot: that each has its size, that every deletion vector can be read and
// belongs to a live file that is long enough, and that a HASH file holds as many hashes as it should.
func (r *Reader) verifyIndex(ctx context.Context, v *view, snap *manifest.Snapshot, entries []manifest.Entry, rep *Report) error {
	index, err := r.meta.IndexFiles(ctx, snap)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		rep.problem("%v", err)
		return nil
	}
	rows := map[bucketKey]map[string]int64{}
	if len(index) > 0 {
		for i := range entries {
			k := bucketKey{string(entries[i].Partition), entries[i].Bucket}
			if rows[k] == nil {
				rows[k] = map[string]int64{}
			}
			rows[k][entries[i].File.Name] = entries[i].File.Rows
		}
	}
	for i := range index {
		e := &index[i]
		if err := r.verifyIndexFile(ctx, v, e, rows[bucketKey{string(e.Partition), e.Bucket}]); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			rep.problem("index file %s of bucket %d: %v", e.Name, e.Bucket, err)
		}
	}
	return nil
}

// verifyIndexFile checks one index file; rows are the live files of its bucket.
func (r *Reader) verifyIndexFile(ctx context.Context, v *view, e *manifest.IndexEntry, rows map[string]int64) error {
	path, err := v.indexPath(e)
	if err != nil {
		return err
	}
	f, err := r.store.Open(ctx, path)
	if err != nil {
		return err
	}
	size := f.Size()
	if err := f.Close(); err != nil {
		return err
	}
	if size != e.Size {
		return fmt.Errorf("has %d bytes, the index manifest says %d", size, e.Size)
	}
	if e.Type == manifest.HashIndex && e.Size != e.Rows*indexfile.HashSize {
		return fmt.Errorf("has %d bytes, %d hashes take %d", size, e.Rows, e.Rows*indexfile.HashSize)
	}
	if e.Type != manifest.DeletionVectors {
		return nil
	}
	if int64(len(e.Vectors)) != e.Rows {
		return fmt.Errorf("holds %d vectors, the index manifest says %d", len(e.Vectors), e.Rows)
	}
	for _, w := range e.Vectors {
		n, live := rows[w.DataFile]
		if !live {
			return fmt.Errorf("has a vector of %s, which is no live file of the bucket", w.DataFile)
		}
		vec, err := r.readVector(ctx, vectorAt{file: path, where: w})
		if err != nil {
			return err
		}
		if err := vec.Check(n); err != nil {
			return fmt.Errorf("vector of %s: %w", w.DataFile, err)
		}
	}
	return nil
}

// keyHashes reads the HASH index of a table with dynamic buckets, by bucket; nil for others. A hash in two buckets of a
// partition is a problem: rows of its keys may be there twice.
func (r *Reader) keyHashes(ctx context.Context, v *view, snap *manifest.Snapshot, rep *Report) (map[bucketKey]map[int32]struct{}, error) {
	if v.keys == nil || v.opts.Bucket != schema.BucketDynamic {
		return nil, nil
	}
	index, err := r.meta.IndexFiles(ctx, snap)
	out := map[bucketKey]map[int32]struct{}{}
	owner := map[string]map[int32]int{} // by partition
	for i := range index {
		e := &index[i]
		if e.Type != manifest.HashIndex {
			continue
		}
		var hashes []int32
		if hashes, err = r.readHashes(ctx, v, e); err != nil {
			break
		}
		set := make(map[int32]struct{}, len(hashes))
		out[bucketKey{string(e.Partition), e.Bucket}] = set
		if owner[string(e.Partition)] == nil {
			owner[string(e.Partition)] = map[int32]int{}
		}
		for _, h := range hashes {
			set[h] = struct{}{}
			if n, ok := owner[string(e.Partition)][h]; ok && n != e.Bucket {
				rep.problem("key hash %d is in the hash index of the buckets %d and %d of one partition", h, n, e.Bucket)
			}
			owner[string(e.Partition)][h] = e.Bucket
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		rep.problem("%v", err)
		return nil, nil
	}
	return out, nil
}

// readHashes reads one HASH file.
func (r *Reader) readHashes(ctx context.Context, v *view, e *manifest.IndexEntry) ([]int32, error) {
	path, err := v.indexPath(e)
	if err != nil {
		return nil, err
	}
	data, err := storage.ReadAll(ctx, r.store, path, e.Size)
	if err != nil {
		return nil, fmt.Errorf("hash index: %w", err)
	}
	hashes, err := indexfile.DecodeHashes(nil, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.store.URL(path), err)
	}
	return hashes, nil
}
