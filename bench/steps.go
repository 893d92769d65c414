package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// Rows in each file of the table of many files, and in the file that a step is about.
const (
	fileRows = 10
	stepRows = 100
	keyRange = 1000 // keys between the first keys of two files
	fewFiles = 10
)

// grown is a table whose highest level has many small files.
type grown struct {
	store storage.Store
	files lsm.Files
	meta  *manifest.Table
	top   []manifest.DataFile // in key order
	id    int64               // commits so far
	gen   *generator
}

// newGrown makes a table without files.
func newGrown(ctx context.Context, store storage.Store) (*grown, error) {
	s, err := newTable(nil)
	if err != nil {
		return nil, err
	}
	if err := engine.Create(ctx, store, s); err != nil {
		return nil, err
	}
	f, err := filesOf(store, s, 1)
	return &grown{store: store, files: f, meta: manifest.Open(store, manifestEnv()), gen: newGenerator(3)}, err
}

// growNames makes a table whose manifests name n files, which are not there: a tail must not look for them.
func growNames(ctx context.Context, store storage.Store, n int) (*grown, error) {
	g, err := newGrown(ctx, store)
	if err != nil {
		return nil, err
	}
	file, err := g.file(ctx, 0, fileRows)
	if err != nil {
		return nil, err
	}
	var some []manifest.Entry
	for i := range n {
		file.Name = fmt.Sprintf("data-%08d.parquet", i)
		g.top = append(g.top, file)
		if some = append(some, entryOf(manifest.Add, file)); len(some) == planCommitFiles || i == n-1 {
			if err := g.commit(ctx, manifest.Append, some...); err != nil {
				return nil, err
			}
			some = nil
		}
	}
	return g, nil
}

// grow makes a table of n files.
func grow(ctx context.Context, store storage.Store, n int) (*grown, error) {
	g, err := newGrown(ctx, store)
	if err != nil {
		return nil, err
	}
	var low, high []manifest.Entry
	for i := range n {
		file, err := g.file(ctx, i, fileRows)
		if err != nil {
			return nil, err
		}
		low = append(low, entryOf(manifest.Add, file))
		high = append(high, entryOf(manifest.Remove, file))
		file.Level = topLevel // a file that overlaps nothing moves by metadata alone
		high = append(high, entryOf(manifest.Add, file))
		g.top = append(g.top, file)
	}
	if err := g.commit(ctx, manifest.Append, low...); err != nil {
		return nil, err
	}
	return g, g.commit(ctx, manifest.Compact, high...)
}

// file writes a level-0 file with the keys of place i.
func (g *grown) file(ctx context.Context, i, rows int) (manifest.DataFile, error) {
	keys := make([]int64, rows)
	for j := range keys {
		keys[j] = int64(i*keyRange + j)
	}
	r := g.gen.rows(g.files.Schema, keys, 0)
	clear(r.Kinds) // inserts, so that the file can be on the highest level
	made, err := g.files.Flush(ctx, bucket0(), []datafile.Rows{r}, nil, int64(i*keyRange))
	if err != nil {
		return manifest.DataFile{}, err
	}
	return made[0], nil
}

func (g *grown) commit(ctx context.Context, kind manifest.CommitKind, entries ...manifest.Entry) error {
	g.id++
	_, err := g.meta.Commit(ctx, manifest.Commit{Kind: kind, User: "bench", Identifier: g.id, Entries: entries})
	return err
}

// onDisk copies the table to a folder on disk. The files are not synced: nothing of it is timed.
func (g *grown) onDisk(ctx context.Context, k *kit) (func() error, error) {
	dir, err := os.MkdirTemp(k.dir, "table-")
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	for info, err := range storage.Walk(ctx, g.store, "") {
		if err != nil {
			return remove, err
		}
		data, err := storage.ReadAll(ctx, g.store, info.Name, info.Size)
		if err != nil {
			return remove, err
		}
		name := filepath.Join(dir, filepath.FromSlash(info.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, 0o644)); err != nil {
			return remove, err
		}
	}
	disk, err := storage.NewLocal(dir)
	if err != nil {
		return remove, err
	}
	g.store, g.files.Store, g.meta = disk, disk, manifest.Open(disk, manifestEnv())
	return remove, nil
}

// stepGroup measures a step of the tail on tables of 100 and 100,000 files, or of the export on tables of 10 and of 10,000:
// it must not cost more on the large one. Storage calls are counted beside the time.
func stepGroup(what string) group {
	limits := []limitOf{{openRead, 1}}
	if what == "export" {
		limits = []limitOf{{durableCreate, 1}}
	}
	return group{name: what, limits: limits, open: func(k *kit, r *run) (out []*benchmark, closing func() error, err error) {
		var closers []func() error
		closing = func() error {
			var errs []error
			for _, c := range closers {
				errs = append(errs, c())
			}
			return errors.Join(errs...)
		}
		few, many, grow := fewFiles, k.manyFiles, grow
		if what == "tail" {
			few, many, grow = smallTable, k.planFiles, growNames
		}
		for _, v := range []struct {
			files int
			disk  bool
		}{{few, false}, {many, false}, {few, true}, {many, true}} {
			g, err := grow(r.ctx, storage.NewMem(), v.files)
			if err != nil {
				return nil, closing, err
			}
			where := "mem"
			if v.disk {
				where = "local"
				remove, err := g.onDisk(r.ctx, k)
				if remove != nil {
					closers = append(closers, remove)
				}
				if err != nil {
					return nil, closing, err
				}
			}
			make := g.tailBench
			if what == "export" {
				make = g.exportBench
			}
			b, end, err := make(r.ctx, v.disk)
			if end != nil {
				closers = append([]func() error{end}, closers...) // before the folder goes
			}
			if err != nil {
				return nil, closing, err
			}
			b.name = fmt.Sprintf("%sStep/%s/files=%d", strings.ToUpper(what[:1])+what[1:], where, v.files)
			b.shown.title = fmt.Sprintf("%s step, table of %s files, %s", what, thousands(v.files), whereText(where))
			out = append(out, b)
		}
		return out, closing, nil
	}}
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// tailBench times the delivery of a snapshot that exists: one file of 100 rows. Afterwards the file is taken out again,
// so that the table keeps its size.
func (g *grown) tailBench(ctx context.Context, disk bool) (*benchmark, func() error, error) {
	counter := storage.WithCounter(g.store)
	tail, stop := iter.Pull2(lab.Reader(counter).Tail(ctx, reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: g.id + 1}, Follow: true}))
	end := func() error { stop(); return nil }
	var step storage.Counts
	b := &benchmark{procs: 1, laps: true}
	b.op = func(ctx context.Context, c *clock) error {
		file, err := g.file(ctx, len(g.top), stepRows)
		if err != nil {
			return err
		}
		if err := g.commit(ctx, manifest.Append, entryOf(manifest.Add, file)); err != nil {
			return err
		}
		before := counter.Counts()
		c.start()
		rows, err := deliver(tail)
		c.stop()
		step = counter.Counts().Since(before)
		if err == nil && rows != stepRows {
			err = fmt.Errorf("wrong rows: %d of them, want %d", rows, stepRows)
		}
		if err != nil {
			return err
		}
		if err := g.commit(ctx, manifest.Compact, entryOf(manifest.Remove, file)); err != nil {
			return err
		}
		if rows, err = deliver(tail); err == nil && rows != 0 {
			err = fmt.Errorf("a compaction was told as %d changes", rows)
		}
		return err
	}
	b.more = func(*clock) []metric {
		t := step.Total()
		return []metric{{float64(t.Calls), "storage-calls/op"}, {float64(t.Bytes), "storage-B/op"}}
	}
	b.shown = &shown{unit: "p50-ms", noLimit: "only computing"}
	if disk {
		b.shown.noLimit, b.shown.limit = "", func(med lookup) (float64, string) {
			return tailReads * med(openRead, 1, "ns/op") / 100 / 1e6, fmt.Sprintf("opening and reading %d small files", tailReads)
		}
	}
	return b, end, b.op(ctx, &clock{}) // the first step opens the table, which takes long where it has many files
}

// tailReads is the number of files a tail step has to read: snapshot, list, manifest, data.
const tailReads = 4

// deliver pulls the changes of one snapshot and counts their rows.
func deliver(next func() (reader.Changes, error, bool)) (int, error) {
	for rows := 0; ; {
		c, err, ok := next()
		if err != nil || !ok {
			return rows, errors.Join(err, errUnless(ok, "the change stream has ended"))
		}
		if c.Complete {
			return rows, nil
		}
		rows += int(c.Rec.NumRows())
	}
}

func errUnless(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}

// exportBench times the publication of a compaction that replaced one file of the highest level by another.
func (g *grown) exportBench(ctx context.Context, disk bool) (*benchmark, func() error, error) {
	counter := storage.WithCounter(g.store)
	e := lab.Env()
	x := export.New(manifest.Open(counter, manifestEnv()), export.NewDirTarget(counter),
		export.Settings{Env: export.Env{Now: e.Now, NewID: e.NewID, After: e.After, Log: e.Log}})
	if _, err := x.Publish(ctx, 0); err != nil {
		return nil, nil, err
	}
	var step storage.Counts
	at := 0
	b := &benchmark{procs: 1, laps: true}
	b.op = func(ctx context.Context, c *clock) error {
		at = (at + 7) % len(g.top)
		file, err := g.file(ctx, at, fileRows)
		if err != nil {
			return err
		}
		file.Level = topLevel
		old := g.top[at]
		g.top[at] = file
		if err := g.commit(ctx, manifest.Compact, entryOf(manifest.Remove, old), entryOf(manifest.Add, file)); err != nil {
			return err
		}
		before := counter.Counts()
		c.start()
		res, err := x.Publish(ctx, 0)
		c.stop()
		step = counter.Counts().Since(before)
		if err != nil {
			return err
		}
		if !res.Published || res.Files != len(g.top) || res.Added != 1 || res.Removed != 1 || res.Rows != int64(len(g.top)*fileRows) {
			return fmt.Errorf("wrong export: %+v", res)
		}
		return nil
	}
	b.more = func(*clock) []metric {
		t := step.Total()
		return []metric{{float64(t.Calls), "storage-calls/op"}, {float64(t.Bytes), "storage-B/op"}}
	}
	b.shown = &shown{unit: "p50-ms", noLimit: "only computing"}
	if disk {
		b.shown.noLimit, b.shown.limit = "", func(med lookup) (float64, string) {
			return dependentCreates * med(durableCreate, 1, "p50-ms"), fmt.Sprintf("%d durable file creations, one after the other", dependentCreates)
		}
	}
	return b, func() error { return g.checkExport(ctx) }, nil
}

// checkExport scans the small exported table at the end; a large one would take long.
func (g *grown) checkExport(ctx context.Context) error {
	if len(g.top) > fewFiles || strings.HasPrefix(g.store.URL(""), "mem:") {
		return nil
	}
	rows := int64(0)
	for rec, err := range export.Scan(ctx, g.store, export.ScanSpec{}) {
		if err != nil {
			return fmt.Errorf("scan of the exported table: %w", err)
		}
		rows += rec.NumRows()
		rec.Release()
	}
	if want := int64(len(g.top) * fileRows); rows != want {
		return fmt.Errorf("exported table has wrong rows: %d, want %d", rows, want)
	}
	return nil
}
