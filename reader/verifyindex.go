package reader

import (
	"context"
	"fmt"

	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
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

// hidden says why the rows of the table are not the fold of its change stream, or "": batch reads do not see all files.
func (v *view) hidden(entries []manifest.Entry) string {
	n, postponed := 0, 0
	for i := range entries {
		switch {
		case entries[i].Bucket == schema.BucketPostpone:
			postponed++
		case !v.batchVisible(&entries[i]):
			n++
		}
	}
	switch {
	case postponed > 0:
		return fmt.Sprintf("%d files wait in bucket-postpone, which batch reads do not see", postponed)
	case n > 0:
		return fmt.Sprintf("%d files of level 0 wait for a compaction, before which batch reads do not see them", n)
	}
	return ""
}
