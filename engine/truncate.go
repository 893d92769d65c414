package engine

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// truncateTries is how often a Truncate begins anew because other writers have published files meanwhile.
const truncateTries = 20

// Truncate empties the table: one OVERWRITE snapshot removes all files, together with the writer's progress. Rows that
// were written and not committed are given up. It tells no change: as in Paimon, change streams pass over OVERWRITE
// snapshots (unless the table option "streaming-read-overwrite" is set). No Write may run at the same time.
//
// Errors are as those of Commit.
func (t *Table) Truncate(ctx context.Context, p Progress) (*manifest.Snapshot, error) {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	if err := t.discardLocked(ctx); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		snap, err := t.truncateOnce(ctx, p)
		if err == nil || !errors.Is(err, manifest.ErrConflict) || tries == truncateTries {
			return snap, err
		}
	}
}

// truncateOnce removes the files of the newest snapshot; ErrConflict if it is not the newest any more. commitMu is held.
func (t *Table) truncateOnce(ctx context.Context, p Progress) (*manifest.Snapshot, error) {
	if err := t.refresh(ctx); err != nil {
		return nil, fmt.Errorf("truncating %s: %w", t.store.URL(""), err)
	}
	pub := publication{kind: manifest.Overwrite}
	t.mu.Lock()
	for _, b := range t.buckets {
		for _, f := range b.levels.Files() {
			pub.entries = append(pub.entries, entry(b, manifest.Remove, f))
		}
	}
	t.mu.Unlock()
	byBucket(pub.entries)
	known := t.known
	pub.check = func(_ context.Context, base *manifest.Snapshot) error {
		if base == nil && known > 0 || base != nil && base.ID != known {
			return fmt.Errorf("%w: another writer has published a snapshot", manifest.ErrConflict)
		}
		return nil
	}
	var err error
	if pub.index, err = t.emptyVectors(ctx); err != nil {
		return nil, err
	}
	snap, err := t.publish(ctx, pub, p, nil)
	if err != nil {
		if !errors.Is(err, storage.ErrUnknown) {
			err = errors.Join(err, t.dropIndex(ctx, pub.index))
		}
		return nil, err
	}
	if t.set.Events.Committed != nil {
		t.set.Events.Committed(CommitInfo{Snapshot: snap.ID, Kind: snap.CommitKind, Files: len(pub.entries)})
	}
	return snap, nil
}

// emptyVectors writes index files without a deletion vector, which take the place of those that speak of files that are
// about to go.
func (t *Table) emptyVectors(ctx context.Context) (out []manifest.IndexEntry, err error) {
	f := t.form.Load()
	if !f.policy.Vectors {
		return nil, nil
	}
	snap, err := latestOrNil(ctx, t.meta)
	if err != nil || snap == nil || snap.IndexManifest == nil {
		return nil, err
	}
	entries, err := t.meta.IndexFiles(ctx, snap)
	if err != nil {
		return nil, err
	}
	data, _, err := indexfile.EncodeVectors(nil, f.opts.Bitmap64)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if e := &entries[i]; e.Type == manifest.DeletionVectors && len(e.Vectors) > 0 {
			empty := manifest.IndexEntry{Partition: e.Partition, Bucket: e.Bucket, Type: e.Type, Name: "index-" + t.env.NewID() + "-0",
				Size: int64(len(data)), Vectors: []manifest.VectorRange{}}
			if err := t.writeIndexFile(ctx, &empty, data); err != nil {
				return nil, errors.Join(err, t.dropIndex(ctx, out))
			}
			out = append(out, empty)
		}
	}
	return out, nil
}

// Discard gives up all rows that were written and not committed, and deletes the files that were made of them. Buckets
// that keys of a table with dynamic buckets were given stay theirs. No Write may run at the same time.
func (t *Table) Discard(ctx context.Context) error {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	return t.discardLocked(ctx)
}

// discardLocked is Discard; commitMu is held.
func (t *Table) discardLocked(ctx context.Context) error {
	t.mu.Lock()
	if err := t.usableLocked(); err != nil {
		t.mu.Unlock()
		return err
	}
	for _, b := range t.active.touched {
		b.sel, b.touched = nil, false
	}
	t.set.Budget.forget(t)
	t.active = &buffer{}
	t.mu.Unlock()
	if err := t.waitFlushed(ctx, math.MaxInt64); err != nil {
		return err
	}
	if err := t.usable(); err != nil { // a flush has failed
		return err
	}
	t.dropUnpublished(ctx)
	return nil
}
