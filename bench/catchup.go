package main

import (
	"context"
	"fmt"

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
	return out, nil, nil
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
