package main

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// runCount is the number of sorted runs of a compaction.
const runCount = 8

// topLevel is the highest level of a table, which a full compaction fills.
const topLevel = 2

var emptyPartition = binrow.EmptyRow

var flushGroup = group{name: "flush", limits: oneAndTwo(zstdEncode), open: openFlush}

// layouts are the ways a keyed table's files can be laid out.
var layouts = []struct {
	name, text string
	options    map[string]string
}{{"thin", "keys stored once", thin}, {"full", "keys stored twice", nil}}

// drop deletes data files.
func drop(ctx context.Context, f lsm.Files, part lsm.Part, files []manifest.DataFile) error {
	var errs []error
	for _, m := range files {
		errs = append(errs, f.Store.Delete(ctx, path.Join(part.Dir, m.Name)))
	}
	return errors.Join(errs...)
}

// openFlush measures the way of rows in arrival order into a level-0 file: sort, gather, encode.
func openFlush(k *kit, r *run) ([]*benchmark, func() error, error) {
	store, remove, err := k.local()
	if err != nil {
		return nil, nil, err
	}
	var out []*benchmark
	for _, v := range []struct {
		layout int
		where  string
		store  storage.Store
		procs  int
	}{{0, "mem", storage.NewMem(), 1}, {0, "mem", storage.NewMem(), 2}, {1, "mem", storage.NewMem(), 1}, {0, "local", store, 2}} {
		l := layouts[v.layout]
		s, err := newTable(l.options)
		if err != nil {
			return nil, remove, err
		}
		f, err := filesOf(v.store, s, v.procs)
		if err != nil {
			return nil, remove, err
		}
		rows := makeRuns(s, 1, k.runRows, 1)[0]
		if err := checkFlush(r.ctx, f, rows); err != nil {
			return nil, remove, err
		}
		b := &benchmark{name: "Flush/" + l.name + "/" + v.where, procs: v.procs, rows: int64(rows.N), bytes: int64(len(plain(rows)))}
		b.op = func(ctx context.Context, c *clock) error {
			c.start()
			made, err := f.Flush(ctx, bucket0(), []datafile.Rows{rows}, nil, 0)
			c.stop()
			return errors.Join(err, drop(ctx, f, bucket0(), made))
		}
		b.shown = &shown{title: "flush: level-0 file, " + l.text + ", " + whereText(v.where), unit: rate(v.procs),
			limit: func(med lookup) (float64, string) {
				return med(zstdEncode, v.procs, rate(v.procs)), "zstd-1 encode of the plain bytes"
			}}
		out = append(out, b)
	}
	return out, remove, nil
}

// checkFlush compares a flush with the model.
func checkFlush(ctx context.Context, f lsm.Files, rows datafile.Rows) error {
	made, err := f.Flush(ctx, bucket0(), []datafile.Rows{rows}, nil, 0)
	if err != nil {
		return err
	}
	return errors.Join(newModel([]datafile.Rows{rows}).check(ctx, f, bucket0(), made, false), drop(ctx, f, bucket0(), made))
}

func whereText(where string) string {
	if where == "mem" {
		return "in memory"
	}
	return "on disk"
}

// compaction is a prepared full compaction.
type compaction struct {
	files    lsm.Files
	job      lsm.Job
	in, out  int64 // rows
	inBytes  int64 // of the rows in plain form
	outBytes int64 // of the files made
}

// compactGroup measures a full compaction of eight level-0 files: decode, merge, gather, encode. The keys are "rand",
// picked at random, or "clus", in blocks of 100 consecutive ones.
func compactGroup(keys string, layout int, where string, procs ...int) group {
	l := layouts[layout]
	name := fmt.Sprintf("Compact/%s/%s/%s", keys, l.name, where)
	open := func(k *kit, r *run) ([]*benchmark, func() error, error) {
		var store storage.Store = storage.NewMem()
		remove := func() error { return nil }
		if where == "local" {
			var err error
			if store, remove, err = k.local(); err != nil {
				return nil, nil, err
			}
		}
		s, err := newTable(l.options)
		if err != nil {
			return nil, remove, err
		}
		span, text := 1, "random"
		if keys == "clus" {
			span, text = 100, "clustered"
		}
		c, err := prepare(r.ctx, store, s, makeRuns(s, runCount, k.runRows, span), procs)
		if err != nil {
			return nil, remove, err
		}
		var out []*benchmark
		for _, p := range procs {
			b := c.bench(name, p)
			b.shown.title = fmt.Sprintf("full compaction of 8 runs, %s keys, %s, %s", text, l.text, whereText(where))
			out = append(out, b)
		}
		return out, remove, nil
	}
	return group{name: fmt.Sprintf("compact-%s-%s-%s", keys, l.name, where), limits: oneAndTwo(zstdEncode, zstdDecode), open: open}
}

// prepare flushes the runs as level-0 files and checks that the compaction of them gives the rows of the model, with
// each number of goroutines. The rows and the model are garbage afterwards: what lives in memory while something is
// measured changes how often memory is collected.
func prepare(ctx context.Context, store storage.Store, s *schema.Schema, runs []datafile.Rows, procs []int) (*compaction, error) {
	f, err := filesOf(store, s, 1)
	if err != nil {
		return nil, err
	}
	c := &compaction{files: f, job: lsm.Job{Output: topLevel, DropDeletes: true, Full: true}}
	for _, r := range runs {
		made, err := f.Flush(ctx, bucket0(), []datafile.Rows{r}, nil, r.Seq[0])
		if err != nil {
			return nil, err
		}
		c.job.Files = append(made, c.job.Files...) // newest first
		c.in += int64(r.N)
		c.inBytes += int64(len(plain(r)))
	}
	m := newModel(runs)
	c.out = m.rows(true)
	for _, p := range procs {
		f.Parallel = p
		change, err := f.Compact(ctx, bucket0(), c.job)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(m.check(ctx, f, bucket0(), change.Added, true), drop(ctx, f, bucket0(), change.Added)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (p *compaction) bench(name string, procs int) *benchmark {
	f := p.files
	f.Parallel = procs
	b := &benchmark{name: name, procs: procs, rows: p.in, bytes: p.inBytes}
	b.op = func(ctx context.Context, c *clock) error {
		c.start()
		change, err := f.Compact(ctx, bucket0(), p.job)
		c.stop()
		if err != nil {
			return err
		}
		rows := int64(0)
		p.outBytes = 0
		for _, a := range change.Added {
			rows += a.Rows
			p.outBytes += a.Size
		}
		if rows != p.out {
			return fmt.Errorf("%d rows, want %d", rows, p.out)
		}
		return drop(ctx, f, bucket0(), change.Added)
	}
	share := float64(p.out) / float64(p.in)
	b.more = func(*clock) []metric {
		return []metric{{share, "out/in"}, {float64(p.outBytes) / float64(p.out), "fileB/row"}}
	}
	b.shown = &shown{unit: rate(procs), limit: func(med lookup) (float64, string) {
		// Every row is decoded, those that survive are encoded.
		return 1 / (1/med(zstdDecode, procs, rate(procs)) + share/med(zstdEncode, procs, rate(procs))), "zstd-1 decode of the input and encode of the output, plain bytes"
	}}
	return b
}
