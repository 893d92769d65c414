package reader_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// fixedEnv makes runs that write the same bytes.
func fixedEnv() engine.Env {
	n := 0
	return engine.Env{
		Now: func() time.Time { return time.UnixMilli(1_790_000_000_000) }, After: time.After,
		NewID: func() string { n++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) },
		Rand:  func() uint64 { return 4 }, Log: slog.New(slog.DiscardHandler),
	}
}

// stepCost commits rows to a table of so many files and counts what a tail does to deliver them.
func stepCost(t *testing.T, files int) storage.Counts {
	t.Helper()
	env := fixedEnv()
	mem := storage.NewMem()
	cols, err := schema.ParseColumns("id BIGINT NOT NULL, name STRING")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Create(t.Context(), mem, s); err != nil {
		t.Fatal(err)
	}
	// Files that only metadata knows: a tail must not look at them. In both tables they have 10,000 rows together, so
	// that the numbers in the snapshot files are equally long.
	c := manifest.Commit{Kind: manifest.Append, User: "filler", Identifier: 1}
	for i := range files {
		c.Entries = append(c.Entries, manifest.Entry{Kind: manifest.Add, Partition: binrow.EmptyRow, TotalBuckets: -1, File: manifest.DataFile{
			Name: fmt.Sprintf("data-%08d.parquet", i), Size: 1000, Rows: int64(10_000 / files), MinKey: binrow.EmptyRow, MaxKey: binrow.EmptyRow,
			KeyStats: manifest.Stats{Min: binrow.EmptyRow, Max: binrow.EmptyRow}, ValueStats: manifest.Stats{Min: binrow.EmptyRow, Max: binrow.EmptyRow},
		}})
	}
	menv := manifest.Env{Now: env.Now, After: env.After, NewID: env.NewID, Rand: env.Rand, Log: env.Log}
	if _, err := manifest.Open(mem, menv).Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	tab, err := engine.Open(t.Context(), mem, engine.Settings{}, env)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for i := range 1000 {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprint("row ", i))
	}
	if err := tab.Write(t.Context(), schema.Batch{Rec: b.NewRecordBatch()}); err != nil {
		t.Fatal(err)
	}
	snap, err := tab.Commit(t.Context(), engine.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	counted := storage.WithCounter(mem)
	r := reader.Open(counted, reader.Env{Now: env.Now, After: env.After, NewID: env.NewID, Rand: env.Rand, Log: env.Log})
	// A tail that runs knows the schema already.
	if _, err := r.Meta().LatestSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := counted.Counts()
	rows := int64(0)
	for c, err := range r.Tail(t.Context(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: snap.ID}}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec != nil {
			rows += c.Rec.NumRows()
		}
		if c.Complete {
			break // before it looks for the next snapshot
		}
	}
	if rows != 1000 {
		t.Fatalf("%d rows, want 1000", rows)
	}
	return counted.Counts().Since(before)
}

func TestTailStepCostsWhatChanged(t *testing.T) {
	small, large := stepCost(t, 10), stepCost(t, 10_000)
	if small != large {
		t.Errorf("a step costs\n%v on a table of 10 files,\n%v on one of 10,000", small, large)
	}
	if n := small.Of(storage.OpList).Calls; n != 0 {
		t.Errorf("%d listings", n)
	}
	// One snapshot, one delta manifest list, one manifest, and the look for a newer schema when the tail begins; the data
	// file is opened and read.
	if n := small.Of(storage.OpOpen).Calls + small.Of(storage.OpReadAll).Calls; n != 5 {
		t.Errorf("%d files were opened, want 5: %v", n, small)
	}
	t.Logf("a step: %v", small)
}
