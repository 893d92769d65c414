package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

var catchUpGroup = group{name: "catchup", open: openCatchUp}

// catchUpCommits is the number of snapshots that a tail catches up with.
const catchUpCommits = 10

// openCatchUp measures how fast a tail reads changes that are there: of all columns of the benchmark table, and of three, on
// one core.
func openCatchUp(k *kit, r *run) ([]*benchmark, func() error, error) {
	store := storage.NewMem()
	s, err := newTable(nil)
	if err != nil {
		return nil, nil, err
	}
	if err := engine.Create(r.ctx, store, s); err != nil {
		return nil, nil, err
	}
	if err := fillCatchUp(r.ctx, store, s, k.runRows); err != nil {
		return nil, nil, err
	}
	var out []*benchmark
	for _, v := range []struct {
		name, text string
		columns    []string
	}{{"all", "all 8 columns", nil}, {"three", "3 columns", []string{"k", "ts", "dec"}}} {
		rows := int64(catchUpCommits * k.runRows)
		b := &benchmark{name: "CatchUp/" + v.name, procs: 1, rows: rows}
		b.op = func(ctx context.Context, c *clock) error {
			c.start()
			got, err := catchUp(ctx, store, v.columns)
			c.stop()
			if err == nil && got != rows {
				err = fmt.Errorf("wrong rows: %d were told, want %d", got, rows)
			}
			return err
		}
		b.shown = &shown{title: "tail catches up, changes of " + v.text, unit: rate(1), noLimit: "aim: 2 Mrows/cpu-s"}
		out = append(out, b)
	}
	images, closing, err := openImages(r.ctx, max(50_000, imageRows/whole.runRows*k.runRows))
	return append(out, images...), closing, err
}

// fillCatchUp makes the snapshots, as commits make them: files of level 0.
func fillCatchUp(ctx context.Context, store storage.Store, s *schema.Schema, rows int) error {
	f, err := filesOf(store, s, 1)
	if err != nil {
		return err
	}
	meta, gen := manifest.Open(store, manifestEnv()), newGenerator(5)
	for i := range catchUpCommits {
		made, err := f.Flush(ctx, bucket0(), []datafile.Rows{gen.rows(s, drawKeys(i, rows, 1), i*rows)}, nil, int64(i*rows))
		if err != nil {
			return err
		}
		var entries []manifest.Entry
		for _, file := range made {
			entries = append(entries, entryOf(manifest.Add, file))
		}
		if _, err := meta.Commit(ctx, manifest.Commit{Kind: manifest.Append, User: "bench", Identifier: int64(i), Entries: entries}); err != nil {
			return err
		}
	}
	return nil
}

func catchUp(ctx context.Context, store storage.Store, columns []string) (rows int64, err error) {
	for c, err := range lab.Reader(store).Tail(ctx, reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 1}, Columns: columns}) {
		if err != nil {
			return rows, err
		}
		if c.Rec != nil {
			rows += c.Rec.NumRows()
		}
	}
	return rows, nil
}

// Rows of the table whose changes are told with the rows before them, and how many there are for each that a commit changes.
const (
	imageRows  = 2_000_000
	imageShare = 400
)

// openImages measures how fast a tail computes the rows before and after small commits to a large file, with pages of it and with
// a local copy, which the first round makes.
func openImages(ctx context.Context, n int) ([]*benchmark, func() error, error) {
	dir, err := os.MkdirTemp("", "calve-images-")
	if err != nil {
		return nil, nil, err
	}
	closing := func() error { return os.RemoveAll(dir) }
	store := storage.NewMem()
	s, err := newTable(thin)
	if err == nil {
		err = engine.Create(ctx, store, s)
	}
	if err == nil {
		err = fillImages(ctx, store, s, n)
	}
	if err != nil {
		return nil, closing, err
	}
	changes := int64(catchUpCommits * (n / imageShare))
	var out []*benchmark
	for _, v := range []struct{ name, dir string }{{"pages", ""}, {"copies", dir}} {
		b := &benchmark{name: "Images/" + v.name, procs: 1, rows: changes}
		b.op = func(ctx context.Context, c *clock) error {
			cache := reader.NewLookupCache(reader.LookupCacheConfig{Dir: v.dir, DirBytes: 1 << 40})
			c.start()
			changed := int64(0)
			for item, err := range lab.Reader(store).Tail(ctx, reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 3}, BeforeImage: true, Lookups: cache}) {
				if err != nil {
					return errors.Join(err, cache.Close())
				}
				for _, k := range item.RowKinds {
					if k == schema.UpdateAfter {
						changed++
					}
				}
			}
			c.stop()
			if changed < changes*9/10 {
				return errors.Join(fmt.Errorf("%d updates were told of %d", changed, changes), cache.Close())
			}
			return cache.Close()
		}
		b.shown = &shown{title: "tail computes the row before each update of a large file, by " + v.name, unit: rate(1), noLimit: "depends on how far apart the keys are"}
		out = append(out, b)
	}
	return out, closing, nil
}

// fillImages makes a file on the highest level, of keys that are even, and commits that change some of them.
func fillImages(ctx context.Context, store storage.Store, s *schema.Schema, n int) error {
	f, err := filesOf(store, s, 1)
	if err != nil {
		return err
	}
	meta, gen := manifest.Open(store, manifestEnv()), newGenerator(6)
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = 2 * int64(i)
	}
	commit := func(n int, kind manifest.CommitKind, entries ...manifest.Entry) error {
		_, err := meta.Commit(ctx, manifest.Commit{Kind: kind, User: "bench", Identifier: int64(n), Entries: entries})
		return err
	}
	rows := gen.rows(s, keys, 0)
	clear(rows.Kinds)
	made, err := f.Flush(ctx, bucket0(), []datafile.Rows{rows}, nil, 0)
	if err != nil {
		return err
	}
	low, high := entryOf(manifest.Add, made[0]), entryOf(manifest.Remove, made[0])
	made[0].Level = topLevel
	if err := errors.Join(commit(1, manifest.Append, low), commit(2, manifest.Compact, high, entryOf(manifest.Add, made[0]))); err != nil {
		return err
	}
	for i := range catchUpCommits {
		some := drawKeys(100+i, n/imageShare, 1)
		for j := range some {
			some[j] = some[j] * (imageShare / keysPerRow) * 2
		}
		first := n + i*(n/imageShare)
		rows := gen.rows(s, some, first)
		clear(rows.Kinds)
		if made, err = f.Flush(ctx, bucket0(), []datafile.Rows{rows}, nil, int64(first)); err != nil {
			return err
		}
		if err := commit(3+i, manifest.Append, entryOf(manifest.Add, made[0])); err != nil {
			return err
		}
	}
	return nil
}
