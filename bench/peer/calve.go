package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/calve-io/calve/bench/lab"
	eng "github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// calve is calve's side, in this process.
type calve struct {
	dir string
	job *job
}

func (c *calve) folder(table string) string { return filepath.Join(c.dir, table) }

// life takes a table through its life. The compaction on one core and DuckDB work on copies of the same files, made
// before any compaction. d may be nil.
func (c *calve) life(ctx context.Context, table string, d *duck) (l life, err error) {
	defer func() {
		err = errors.Join(err, os.RemoveAll(c.folder(table)), os.RemoveAll(c.folder(table+"-copy")))
	}()
	if err := c.create(ctx, table); err != nil {
		return l, err
	}
	l.times = map[string]timing{}
	step := func(phase string, do func() (timing, error)) {
		if err == nil {
			l.times[phase], err = do()
		}
	}
	step(write, func() (timing, error) { return c.write(ctx, table) })
	step(mergeRead, func() (t timing, err error) { t, l.sums[0], err = c.read(ctx, table); return t, err })
	if err == nil {
		err = copyTable(c.folder(table), c.folder(table+"-copy"))
	}
	step(compact, func() (timing, error) { return c.compact(ctx, table) })
	step(read, func() (t timing, err error) { t, l.sums[1], err = c.read(ctx, table); return t, err })
	if d != nil {
		for _, threads := range []int{1, runtime.NumCPU()} {
			step(dedup(threads), func() (timing, error) { return d.dedup(c.folder(table+"-copy"), threads, l.sums[1].rows) })
		}
	}
	if err != nil {
		return l, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	step(compact1, func() (timing, error) { return c.compact(ctx, table+"-copy") })
	step(codec1, func() (timing, error) { return c.codec(ctx, table) })
	return l, err
}

func (c *calve) create(ctx context.Context, table string) error {
	st, err := storage.NewLocal(c.folder(table))
	if err != nil {
		return err
	}
	return eng.Create(ctx, st, c.job.schema)
}

// timed measures work in this process.
func timed(work func() error) (timing, error) {
	wall, cpu := time.Now(), processorTime()
	err := work()
	return timing{time.Since(wall).Seconds(), processorTime() - cpu}, err
}

// processorTime is what this process has used, user and system, in seconds.
func processorTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func (c *calve) write(ctx context.Context, table string) (timing, error) {
	return c.opened(ctx, table, func(t *eng.Table) error {
		for _, rows := range c.job.commits {
			for _, r := range rows {
				if err := t.Write(ctx, schema.Batch{Rec: r}); err != nil {
					return err
				}
			}
			if _, err := t.Commit(ctx, eng.Progress{}); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *calve) compact(ctx context.Context, table string) (timing, error) {
	return c.opened(ctx, table, func(t *eng.Table) error { return t.Compact(ctx, true) })
}

// opened measures work on a table, opening and closing it included, with a buffer as large as Paimon's.
func (c *calve) opened(ctx context.Context, table string, work func(*eng.Table) error) (timing, error) {
	st, err := storage.NewLocal(c.folder(table))
	if err != nil {
		return timing{}, err
	}
	return timed(func() error {
		t, err := eng.Open(ctx, st, eng.Settings{BufferBytes: 256 << 20}, lab.Env())
		if err != nil {
			return err
		}
		return errors.Join(work(t), t.Close(ctx))
	})
}

func (c *calve) read(ctx context.Context, table string) (t timing, s sum, err error) {
	st, err := storage.NewLocal(c.folder(table))
	if err != nil {
		return t, s, err
	}
	t, err = timed(func() error {
		for rec, err := range lab.Reader(st).Scan(ctx, reader.Query{Parallel: runtime.GOMAXPROCS(0)}) {
			if err != nil {
				return err
			}
			s.add(rec)
		}
		return nil
	})
	return t, s, err
}
