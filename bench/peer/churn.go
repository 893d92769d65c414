package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/bench/lab"
	eng "github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// churn measures write amplification: a table of so many keys, in one bucket and compacted, takes small commits of random
// updates at a fixed rhythm, while it is compacted in the background. Both sides make the same rows from the same numbers
// (PeerBench.java has them too) and have the same trigger.
type churn struct {
	keys, commits, rows int
	every               time.Duration
}

// written is what the files of a table came to, in bytes.
type written struct{ flushed, compacted, live int64 }

func (w written) amplification() float64 {
	return float64(w.flushed+w.compacted) / float64(max(1, w.flushed))
}

func (w written) String() string {
	return fmt.Sprintf("flushed %d MiB, compacted %d MiB, live %d MiB", w.flushed>>20, w.compacted>>20, w.live>>20)
}

// churnOptions are what both sides share; nothing expires, so that the manifests tell all that was written.
var churnOptions = map[string]string{
	"bucket": "1", "file.format": "parquet", "file.compression": "zstd", "file.compression.zstd-level": "1",
	"data-file.thin-mode": "true", "num-sorted-run.compaction-trigger": "5", "snapshot.num-retained.min": "1000000",
	"snapshot.num-retained.max": "1000000", "snapshot.time-retained": "10 d",
}

func (c churn) schema(more map[string]string) (*schema.Schema, error) {
	cols, err := schema.ParseColumns("k BIGINT NOT NULL, v BIGINT, s STRING, d DOUBLE")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, o := range []map[string]string{churnOptions, more} {
		for k, v := range o {
			all[k] = v
		}
	}
	return schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}, Options: all})
}

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// batches makes n rows; commit -1 has every key once.
func (c churn) batches(of *arrow.Schema, commit, n int, do func(arrow.RecordBatch) error) error {
	const step = 16384
	b := array.NewRecordBuilder(memory.DefaultAllocator, of)
	defer b.Release()
	for at := 0; at < n; at += step {
		for i := at; i < min(n, at+step); i++ {
			r := mix(uint64(int64(commit))<<32 + uint64(i))
			key := int64(i)
			if commit >= 0 {
				key = int64(r % uint64(c.keys))
			}
			b.Field(0).(*array.Int64Builder).Append(key)
			b.Field(1).(*array.Int64Builder).Append(int64(r))
			b.Field(2).(*array.StringBuilder).Append(strconv.FormatUint(mix(r), 16))
			b.Field(3).(*array.Float64Builder).Append(float64(r>>11%1_000_000) / 100)
		}
		if err := do(b.NewRecordBatch()); err != nil {
			return err
		}
	}
	return nil
}

// ours lets calve do it.
func (c churn) ours(ctx context.Context, dir string) (w written, err error) {
	st, err := storage.NewLocal(dir)
	if err != nil {
		return w, err
	}
	s, err := c.schema(nil)
	if err == nil {
		err = eng.Create(ctx, st, s)
	}
	if err != nil {
		return w, err
	}
	load, err := eng.Open(ctx, st, eng.Settings{BufferBytes: 256 << 20}, lab.Env())
	if err != nil {
		return w, err
	}
	if err := errors.Join(c.put(ctx, load, s, -1, c.keys), load.Compact(ctx, true), load.Close(ctx)); err != nil {
		return w, err
	}
	t, err := eng.Open(ctx, st, eng.Settings{Job: "churn", Compaction: 1}, lab.Env())
	if err != nil {
		return w, err
	}
	begin := time.Now()
	for n := range c.commits {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(time.Until(begin.Add(time.Duration(n) * c.every))):
			err = c.put(ctx, t, s, n, c.rows)
		}
		if err != nil {
			break
		}
	}
	if err := errors.Join(err, t.Close(ctx)); err != nil {
		return w, err
	}
	return measureWritten(ctx, st)
}

func (c churn) put(ctx context.Context, t *eng.Table, s *schema.Schema, commit, n int) error {
	err := c.batches(s.Arrow(), commit, n, func(rec arrow.RecordBatch) error { return t.Write(ctx, schema.Batch{Rec: rec}) })
	if err == nil {
		_, err = t.Commit(ctx, eng.Progress{})
	}
	return err
}

// measureWritten adds up the files of a table's snapshots. What the load and its compaction wrote is not counted.
func measureWritten(ctx context.Context, st storage.Store) (w written, err error) {
	m := lab.Reader(st).Meta()
	latest, err := m.Latest(ctx)
	if err != nil {
		return w, err
	}
	loaded := false
	for snap, err := range m.EachSnapshot(ctx, 1, latest.ID) {
		if err != nil {
			return w, err
		}
		entries, err := m.Delta(ctx, snap)
		if err != nil {
			return w, err
		}
		gone := map[string]bool{}
		for i := range entries {
			e := &entries[i]
			if e.Kind != manifest.Add {
				gone[e.File.Name] = true
				w.live -= e.File.Size
			}
		}
		for i := range entries {
			e := &entries[i]
			if e.Kind != manifest.Add {
				continue
			}
			w.live += e.File.Size
			if gone[e.File.Name] || !loaded {
				continue // a file that changed its level
			}
			if snap.CommitKind == manifest.Compact {
				w.compacted += e.File.Size
			} else {
				w.flushed += e.File.Size
			}
		}
		loaded = loaded || snap.CommitKind == manifest.Compact
	}
	return w, nil
}

// run lets both do it, one after the other, and writes the result.
func (c churn) run(ctx context.Context, cfg config, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(cfg.scratch, "calve-churn-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ours, err := c.ours(ctx, filepath.Join(dir, "calve"))
	if err != nil {
		return fmt.Errorf("calve: %w", err)
	}
	fmt.Fprintf(out, "calve: %s\n", ours)
	theirs, err := c.theirs(ctx, cfg, dir)
	if err != nil {
		return fmt.Errorf("paimon: %w", err)
	}
	fmt.Fprintf(out, "paimon: %s\n", theirs)
	line := fmt.Sprintf("churn: keys=%d commits=%d rows=%d every=%s write_amp=%.2f paimon_write_amp=%.2f write_amp_vs_paimon=%.2f live_vs_paimon=%.2f\n",
		c.keys, c.commits, c.rows, c.every, ours.amplification(), theirs.amplification(), ours.amplification()/math.Max(1, theirs.amplification()),
		float64(ours.live)/float64(max(1, theirs.live)))
	fmt.Fprint(out, line)
	if cfg.out == "" {
		return nil
	}
	name := time.Now().UTC().Format(time.DateOnly) + "-" + commit(ctx) + "-churn.txt"
	return os.WriteFile(filepath.Join(cfg.out, "results", name), []byte(line), 0o644)
}

func (c churn) theirs(ctx context.Context, cfg config, dir string) (w written, err error) {
	s, err := c.schema(map[string]string{"num-levels": "6"}) // Paimon's default
	if err != nil {
		return w, err
	}
	j, err := startJava(ctx, cfg.jars, dir, &job{schema: s})
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, j.stop()) }()
	if _, err := j.ask("create", "t"); err != nil {
		return w, err
	}
	if _, err := j.ask("churn", "t", strconv.Itoa(c.keys), strconv.Itoa(c.commits), strconv.Itoa(c.rows), strconv.FormatInt(c.every.Milliseconds(), 10)); err != nil {
		return w, err
	}
	st, err := storage.NewLocal(filepath.Join(dir, "java", "db.db", "t"))
	if err != nil {
		return w, err
	}
	return measureWritten(ctx, st)
}
