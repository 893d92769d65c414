package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

var planGroup = group{name: "plan", open: openPlan}

// Shape of the table that is planned: each partition has its files one behind the other in the order of the key.
const (
	planColumns     = "day INT NOT NULL, k BIGINT NOT NULL, name STRING, amount DECIMAL(12, 2), at TIMESTAMP(6), n INT, d DOUBLE, city STRING"
	planPartitions  = 100
	planCommitFiles = 1000
	planKeys        = 1000 // keys of a file
)

// openPlan measures the planning of a scan with a condition over a table of many files on disk: from the snapshot hint
// to the list of the files to read. Everything is opened anew for each plan, and the system is asked to forget the
// metadata files it has in memory. The data files are not there: planning must not look for them.
func openPlan(k *kit, r *run) ([]*benchmark, func() error, error) {
	store, remove, err := k.local()
	if err != nil {
		return nil, remove, err
	}
	t, err := growPlan(r.ctx, storage.Sub(store, "partitions"), k.planFiles, 1)
	if err != nil {
		return nil, remove, err
	}
	many, err := growPlan(r.ctx, storage.Sub(store, "buckets"), k.planFiles, planPartitions)
	if err != nil {
		return nil, remove, err
	}
	inBucket, err := many.keyIn(many.files / 2)
	if err != nil {
		return nil, remove, err
	}
	var out []*benchmark
	for _, v := range []struct {
		t                 *plannedTable
		name, where, text string
	}{
		{t, "key", fmt.Sprintf("k = %d", t.key(t.files/2)), "a key"},
		{t, "partition", fmt.Sprintf("day = %d AND k = %d", planPartitions/2, t.key(t.files/2)), "a partition and a key"},
		{many, "bucket", fmt.Sprintf("k = %d", inBucket), "a key in one of 100 buckets"},
	} {
		b := v.t.bench(v.where)
		b.name = fmt.Sprintf("Plan/local/files=%d/%s", t.files, v.name)
		b.shown = &shown{title: fmt.Sprintf("plan of one file among %s by %s, cold, on disk", thousands(t.files), v.text), unit: "p50-ms", noLimit: "aim: 1000 ms for 100,000 files"}
		out = append(out, b)
	}
	return out, remove, nil
}

// plannedTable is a table that has metadata only.
type plannedTable struct {
	store   storage.Store
	schema  *schema.Schema
	files   int
	buckets int      // 1: the files are in partitions
	names   []string // metadata files
}

// key gives the first key of file i. All partitions together have one row of keys.
func (t *plannedTable) key(i int) int64 { return int64(i) * planKeys }

// keyIn gives a key of file i that belongs into its bucket.
func (t *plannedTable) keyIn(i int) (int64, error) {
	enc := binrow.NewEncoder(t.schema.Types(t.schema.BucketColumns()))
	for k := t.key(i); k < t.key(i+1); k++ {
		row, err := enc.AppendValues(nil, schema.Insert, []any{k})
		if err != nil || binrow.Bucket(binrow.Hash(row), t.buckets) == t.bucket(i) {
			return k, err
		}
	}
	return 0, fmt.Errorf("no key of file %d belongs into its bucket", i)
}

// bucket is that of file i.
func (t *plannedTable) bucket(i int) int { return i * t.buckets / t.files }

func growPlan(ctx context.Context, store storage.Store, files, buckets int) (*plannedTable, error) {
	cols, err := schema.ParseColumns(planColumns)
	if err != nil {
		return nil, err
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"day", "k"}, PartitionKeys: []string{"day"}, Options: map[string]string{"write-only": "true", "bucket": fmt.Sprint(buckets)}})
	if err != nil {
		return nil, err
	}
	mem := storage.NewMem() // commits to disk would take minutes
	if err := engine.Create(ctx, mem, s); err != nil {
		return nil, err
	}
	t := &plannedTable{store: store, schema: s, files: files, buckets: buckets}
	meta := manifest.Open(mem, manifestEnv())
	var batch []manifest.Entry
	for i := range files {
		e, err := t.entry(s, i)
		if err != nil {
			return nil, err
		}
		if batch = append(batch, e); len(batch) == planCommitFiles || i == files-1 {
			if _, err := meta.Commit(ctx, manifest.Commit{Kind: manifest.Append, User: "bench", Identifier: int64(i), Entries: batch}); err != nil {
				return nil, err
			}
			batch = nil
		}
	}
	if _, err := meta.Expire(ctx, manifest.Retention{Min: 1, Max: 1}, lab.Env().Now()); err != nil {
		return nil, err
	}
	for info, err := range storage.Walk(ctx, mem, "") {
		if err != nil {
			return nil, err
		}
		data, err := storage.ReadAll(ctx, mem, info.Name, info.Size)
		if err == nil {
			err = store.Put(ctx, info.Name, data)
		}
		if err != nil {
			return nil, err
		}
		t.names = append(t.names, info.Name)
	}
	return t, nil
}

// entry describes file i.
func (t *plannedTable) entry(s *schema.Schema, i int) (manifest.Entry, error) {
	day := int32(i / max(1, t.files/planPartitions))
	if t.buckets > 1 {
		day = 0
	}
	low, high := t.key(i), t.key(i+1)-1
	var errs []error
	row := func(cols []int, vals ...any) []byte {
		b, err := binrow.EncodeRow(s.Types(cols), vals)
		errs = append(errs, err)
		return b
	}
	key, all := s.KeyColumns(), []int{0, 1, 2, 3, 4, 5, 6, 7}
	nulls := make([]*int64, len(all))
	for c := range nulls {
		nulls[c] = new(int64)
	}
	deletes := int64(0)
	f := manifest.DataFile{
		Name: fmt.Sprintf("data-%08x-77aa-4e2d-9f0c-%012x-0.parquet", i*2654435761&0xffffffff, i*40503), Size: 120_000, Rows: planKeys, Level: 2, SchemaID: s.ID,
		MinKey: row(key, low), MaxKey: row(key, high), MinSeq: low, MaxSeq: high, DeleteRows: &deletes, ValueStatsAll: true, CreatedMillis: 1_700_000_000_000 + int64(i),
		KeyStats: manifest.Stats{Min: row(key, low), Max: row(key, high), NullCounts: nulls[:1]},
		ValueStats: manifest.Stats{
			Min:        row(all, day, low, fmt.Sprintf("name %d", low), decimal128.FromI64(low), low*1e6, int32(i), float64(i), "Aachen"),
			Max:        row(all, day, high, fmt.Sprintf("name %d", high), decimal128.FromI64(high), high*1e6, int32(i+9), float64(i)+0.5, "Zwickau"),
			NullCounts: nulls,
		},
	}
	e := manifest.Entry{Kind: manifest.Add, Partition: row(s.PartitionColumns(), day), Bucket: t.bucket(i), TotalBuckets: t.buckets, File: f}
	return e, errors.Join(errs...)
}

// bench plans a scan that needs one file.
func (t *plannedTable) bench(where string) *benchmark {
	var count storage.Stat
	b := &benchmark{laps: true}
	b.op = func(ctx context.Context, c *clock) error {
		for _, n := range t.names {
			if err := forget(t.store.URL(n)); err != nil {
				return err
			}
		}
		counter := storage.WithCounter(t.store)
		c.start()
		splits, err := lab.Reader(counter).Plan(ctx, reader.Query{Where: where})
		c.stop()
		count = counter.Counts().Total()
		if err == nil && (len(splits) != 1 || countFiles(splits) != 1) {
			err = fmt.Errorf("wrong plan: %d splits of %d files, want 1 of 1", len(splits), countFiles(splits))
		}
		return err
	}
	b.more = func(*clock) []metric {
		return []metric{{float64(count.Calls), "storage-calls/op"}, {float64(count.Bytes), "storage-B/op"}}
	}
	return b
}

func countFiles(splits []reader.Split) (n int) {
	for _, s := range splits {
		n += len(filesOfRuns(s.Runs))
	}
	return n
}

func filesOfRuns(runs []lsm.SortedRun) (out []manifest.DataFile) {
	for _, r := range runs {
		out = append(out, r.Files...)
	}
	return out
}
