package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

var lookupGroup = group{name: "lookup", open: openLookups}

const (
	lookupFileRows = 5_000_000 // rows of a data file of the table in which rows are looked up: its row groups are full
	lookupBatch    = 1000      // keys asked for at once
	lookupBatches  = 20        // of an operation

	// What a lookup in a local copy reads at random: a block of the hash table, and a row.
	limitBlock, limitRow = 512, 256
)

// looked is a table on disk in which rows are looked up.
type looked struct {
	store  storage.Store
	rows   int
	copies string // folder of local copies
	r      *rand.Rand
	cache  *reader.LookupCache
	l      *reader.Lookup
	maps   [][]byte // the local copies
	size   int      // bytes of them
}

// openLookups measures lookups of random keys in a compacted bucket on disk: one core with local copies of all files, a
// thousand keys at a time, and single keys when nothing is open or in memory.
func openLookups(k *kit, r *run) (_ []*benchmark, closing func() error, err error) {
	store, remove, err := k.local()
	if err != nil {
		return nil, remove, err
	}
	t := &looked{store: store, rows: k.lookupRows, r: rand.New(rand.NewPCG(11, 1)), copies: filepath.Join(k.dir, "copies")}
	closing = func() error { return errors.Join(t.close(), remove(), os.RemoveAll(t.copies)) }
	if err := t.fill(r.ctx); err != nil {
		return nil, closing, err
	}
	t.cache = reader.NewLookupCache(reader.LookupCacheConfig{Dir: t.copies, DirBytes: 1 << 40})
	if t.l, err = lab.Reader(store).OpenLookup(r.ctx, reader.Query{}, t.cache); err != nil {
		return nil, closing, err
	}
	if err := t.warmUp(r.ctx); err != nil {
		return nil, closing, err
	}
	limit := &benchmark{name: "Lookup/limit", procs: 1, rows: lookupBatch * lookupBatches, op: t.readRandomly}
	warm := &benchmark{name: "Lookup/warm", procs: 1, rows: lookupBatch * lookupBatches, op: t.ask}
	warm.shown = &shown{title: fmt.Sprintf("lookups of random keys of %s, local copies, a thousand at a time", thousands(k.lookupRows)), unit: rate(1),
		limit: func(med lookup) (float64, string) {
			return med(limit.name, 1, rate(1)), "two random reads of the same mapped files"
		}}
	disk, s3 := t.cold(store), t.cold(far{store})
	disk.name, s3.name = "Lookup/cold/local", "Lookup/cold/s3"
	disk.shown = &shown{title: "lookup of one key, nothing open, on disk", unit: "p50-ms", noLimit: "depends on the disk"}
	s3.shown = &shown{title: "lookup of one key that is there, nothing open, as on S3", unit: "range-reads", noLimit: "in two rounds, whose reads run at once"}
	return []*benchmark{limit, warm, disk, s3}, closing, nil
}

// fill writes the rows: keys are the even numbers.
func (t *looked) fill(ctx context.Context) error {
	s, err := newTable(thin)
	if err != nil {
		return err
	}
	if err := engine.Create(ctx, t.store, s); err != nil {
		return err
	}
	f, err := filesOf(t.store, s, 2)
	if err != nil {
		return err
	}
	gen, meta := newGenerator(3), manifest.Open(t.store, manifestEnv())
	var low, high []manifest.Entry
	for from := 0; from < t.rows; from += lookupFileRows {
		keys := make([]int64, min(lookupFileRows, t.rows-from))
		for i := range keys {
			keys[i] = 2 * int64(from+i)
		}
		rows := gen.rows(s, keys, from)
		clear(rows.Kinds)
		made, err := f.Flush(ctx, bucket0(), []datafile.Rows{rows}, nil, int64(from))
		if err != nil {
			return err
		}
		low, high = append(low, entryOf(manifest.Add, made[0])), append(high, entryOf(manifest.Remove, made[0]))
		made[0].Level = topLevel
		high = append(high, entryOf(manifest.Add, made[0]))
	}
	for i, entries := range [][]manifest.Entry{low, high} {
		kind := []manifest.CommitKind{manifest.Append, manifest.Compact}[i]
		if _, err := meta.Commit(ctx, manifest.Commit{Kind: kind, User: "bench", Identifier: int64(i + 1), Entries: entries}); err != nil {
			return err
		}
	}
	return nil
}

// keys are random keys, of which an eleventh is beyond all that are there.
func (t *looked) keys(n int) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for range n {
		b.Append(2 * t.r.Int64N(int64(t.rows+t.rows/10)))
	}
	a := b.NewArray()
	return array.NewRecordBatch(t.l.KeySchema(), []arrow.Array{a}, int64(n))
}

// warmUp asks until all files have local copies, and maps these.
func (t *looked) warmUp(ctx context.Context) error {
	files := (t.rows + lookupFileRows - 1) / lookupFileRows
	var names []string
	for range 1000 {
		if _, err := t.l.Get(ctx, t.keys(lookupBatch)); err != nil {
			return err
		}
		var err error
		if names, err = filepath.Glob(filepath.Join(t.copies, "*.lookup")); err != nil || len(names) == files {
			break
		}
	}
	if len(names) != files {
		return fmt.Errorf("%d of %d files have local copies", len(names), files)
	}
	for _, n := range names {
		f, err := os.Open(n)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		m, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		t.maps = append(t.maps, m)
		t.size += len(m)
	}
	return nil
}

func (t *looked) close() error {
	var errs []error
	for _, m := range t.maps {
		errs = append(errs, syscall.Munmap(m))
	}
	if t.cache != nil {
		errs = append(errs, t.cache.Close())
	}
	return errors.Join(errs...)
}

// ask looks keys up, and finds ten of eleven.
func (t *looked) ask(ctx context.Context, c *clock) error {
	var batches []arrow.RecordBatch
	for range lookupBatches {
		batches = append(batches, t.keys(lookupBatch))
	}
	found := int64(0)
	c.start()
	for _, b := range batches {
		f, err := t.l.Get(ctx, b)
		if err != nil {
			return err
		}
		found += f.Rows.NumRows()
	}
	c.stop()
	if n := int64(lookupBatch * lookupBatches); found < n*85/100 || found > n*95/100 {
		return fmt.Errorf("%d of %d keys were found, want ten of eleven", found, n)
	}
	return nil
}

// readRandomly reads what so many lookups read.
func (t *looked) readRandomly(_ context.Context, c *clock) error {
	type place struct{ file, at int }
	places := make([]place, 2*lookupBatch*lookupBatches)
	for i := range places {
		f := t.r.IntN(len(t.maps))
		places[i] = place{f, t.r.IntN(len(t.maps[f]) - limitBlock)}
	}
	var buf [limitBlock]byte
	n := 0
	c.start()
	for i := 0; i < len(places); i += 2 {
		a, b := places[i], places[i+1]
		n += copy(buf[:], t.maps[a.file][a.at:])
		n += copy(buf[:limitRow], t.maps[b.file][b.at:])
	}
	c.stop()
	if n != (limitBlock+limitRow)*lookupBatch*lookupBatches {
		return fmt.Errorf("%d bytes were read", n)
	}
	return nil
}

// far is a store that says that it is an object store, of which larger pieces are read at once.
type far struct{ storage.Store }

func (f far) URL(name string) string { return "s3://bench/" + name }

// cold looks single keys up with nothing open, of files that the system was asked to forget.
func (t *looked) cold(store storage.Store) *benchmark {
	var reads, bytes, ops int64
	b := &benchmark{laps: true}
	b.op = func(ctx context.Context, c *clock) (err error) {
		for info, err := range storage.Walk(ctx, t.store, bucket0().Dir) {
			if err == nil {
				err = forget(t.store.URL(info.Name))
			}
			if err != nil {
				return err
			}
		}
		counter := storage.WithCounter(store)
		cache := reader.NewLookupCache(reader.LookupCacheConfig{})
		defer func() { err = errors.Join(err, cache.Close()) }()
		l, err := lab.Reader(counter).OpenLookup(ctx, reader.Query{}, cache)
		if err != nil {
			return err
		}
		keys := t.keys(1)
		before := counter.Counts()
		c.start()
		found, err := l.Get(ctx, keys)
		c.stop()
		if s := counter.Counts().Since(before).Of(storage.OpRead); err == nil && found.Rows.NumRows() > 0 {
			reads, bytes, ops = reads+s.Calls, bytes+s.Bytes, ops+1
		}
		return err
	}
	b.more = func(*clock) []metric {
		n := float64(max(1, ops))
		out := []metric{{float64(reads) / n, "range-reads"}, {float64(bytes) / n, "storage-B/op"}}
		reads, bytes, ops = 0, 0, 0
		return out
	}
	return b
}
