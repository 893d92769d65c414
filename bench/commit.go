package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

var commitGroup = group{name: "commit", limits: []limitOf{{durableCreate, 1}}, open: openCommit}

// dependentCreates is how many durable writes of a commit must wait for each other: first what the snapshot names, then
// the snapshot.
const dependentCreates = 2

// openCommit measures the publication of one data file: manifest, lists, snapshot, hint. The data file itself is made
// beforehand; the table grows with each commit, as tables do.
func openCommit(k *kit, r *run) ([]*benchmark, func() error, error) {
	disk, remove, err := k.local()
	if err != nil {
		return nil, nil, err
	}
	var out []*benchmark
	for _, v := range []struct {
		name, text string
		store      storage.Store
	}{{"mem", "in memory", storage.NewMem()}, {"local", "on disk", disk}} {
		b, err := commitBench(r.ctx, v.store)
		if err != nil {
			return nil, remove, err
		}
		b.name = "Commit/" + v.name
		b.shown = &shown{title: "commit of one file, " + v.text, unit: "p50-ms", noLimit: "only computing"}
		if v.name == "local" {
			b.shown.noLimit = ""
			b.shown.limit = func(med lookup) (float64, string) {
				return dependentCreates * med(durableCreate, 1, "p50-ms"), fmt.Sprintf("%d durable file creations, one after the other", dependentCreates)
			}
		}
		out = append(out, b)
	}
	for _, files := range []int{smallTable, k.planFiles} {
		b, err := k.commitTo(r.ctx, files)
		if err != nil {
			return nil, remove, err
		}
		out = append(out, b)
	}
	return out, remove, nil
}

// smallTable is the number of files of the table beside which the large one must not be slower.
const smallTable = 100

// commitTo measures the same on disk in a table of many files, of which there are only the metadata.
func (k *kit) commitTo(ctx context.Context, files int) (*benchmark, error) {
	store, err := storage.NewLocal(filepath.Join(k.dir, fmt.Sprint("commit-", files)))
	if err != nil {
		return nil, err
	}
	t, err := growPlan(ctx, store, files, 1)
	if err != nil {
		return nil, err
	}
	meta := manifest.Open(store, manifestEnv())
	s, err := meta.LatestSchema(ctx)
	if err != nil {
		return nil, err
	}
	id := int64(files)
	b := &benchmark{name: fmt.Sprintf("Commit/local/files=%d", files), procs: 1, laps: true, op: func(ctx context.Context, c *clock) error {
		id++
		e, err := t.entry(s, int(id))
		if err != nil {
			return err
		}
		c.start()
		_, err = meta.Commit(ctx, manifest.Commit{Kind: manifest.Append, User: "bench", Identifier: id, Entries: []manifest.Entry{e}})
		c.stop()
		return err
	}}
	b.shown = &shown{title: fmt.Sprintf("commit of one file, table of %s files, on disk", thousands(files)), unit: "p50-ms", limit: func(med lookup) (float64, string) {
		return dependentCreates * med(durableCreate, 1, "p50-ms"), fmt.Sprintf("%d durable file creations, one after the other", dependentCreates)
	}}
	return b, nil
}

func commitBench(ctx context.Context, store storage.Store) (*benchmark, error) {
	s, err := newTable(nil)
	if err != nil {
		return nil, err
	}
	if err := engine.Create(ctx, store, s); err != nil {
		return nil, err
	}
	f, err := filesOf(store, s, 1)
	if err != nil {
		return nil, err
	}
	made, err := f.Flush(ctx, bucket0(), []datafile.Rows{newGenerator(1).rows(s, drawKeys(0, 100, 1), 0)}, nil, 0)
	if err != nil {
		return nil, err
	}
	t := manifest.Open(store, manifestEnv())
	file, id := made[0], int64(0)
	return &benchmark{procs: 1, laps: true, op: func(ctx context.Context, c *clock) error {
		id++
		next := file
		next.Name = "data-" + uuid.NewString() + ".parquet"
		commit := manifest.Commit{Kind: manifest.Append, User: "bench", Identifier: id, Entries: []manifest.Entry{entryOf(manifest.Add, next)}}
		c.start()
		snap, err := t.Commit(ctx, commit)
		c.stop()
		if err == nil && snap.ID != id {
			err = fmt.Errorf("commit %d became snapshot %d", id, snap.ID)
		}
		return err
	}}, nil
}

func entryOf(kind manifest.EntryKind, f manifest.DataFile) manifest.Entry {
	p := bucket0()
	return manifest.Entry{Kind: kind, Partition: p.Partition, Bucket: p.Bucket, TotalBuckets: p.TotalBuckets, File: f}
}
