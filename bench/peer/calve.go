package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"

	eng "github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// calve is calve's side, in this process.
type calve struct {
	dir  string
	data *data
	rows [commits][]arrow.RecordBatch
}

func (c *calve) name() string { return "calve" }

func env() eng.Env {
	return eng.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func (c *calve) store(table string) (storage.Store, error) {
	return storage.NewLocal(filepath.Join(c.dir, table))
}

func (c *calve) create(ctx context.Context, table string, options map[string]string) error {
	cols, err := schema.ParseColumns(columns)
	if err != nil {
		return err
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}, Options: options})
	if err != nil {
		return err
	}
	for i := range c.rows {
		if c.rows[i] == nil {
			c.rows[i] = batches(s, c.data[i])
		}
	}
	st, err := c.store(table)
	if err != nil {
		return err
	}
	return eng.Create(ctx, st, s)
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
		for _, rows := range c.rows {
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
	st, err := c.store(table)
	if err != nil {
		return timing{}, err
	}
	return timed(func() error {
		t, err := eng.Open(ctx, st, eng.Settings{BufferBytes: 256 << 20}, env())
		if err != nil {
			return err
		}
		return errors.Join(work(t), t.Close(ctx))
	})
}

func (c *calve) read(ctx context.Context, table string) (t timing, s sum, err error) {
	st, err := c.store(table)
	if err != nil {
		return t, s, err
	}
	t, err = timed(func() error {
		e := env()
		r := reader.Open(st, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
		for rec, err := range r.Scan(ctx, reader.Query{}) {
			if err != nil {
				return err
			}
			s.add(rec)
		}
		return nil
	})
	return t, s, err
}

// add sums a batch up as PeerBench.java does.
func (s *sum) add(rec arrow.RecordBatch) {
	n := int(rec.NumRows())
	s.rows += int64(n)
	s1, s2 := rec.Column(1).(*array.String), rec.Column(2).(*array.String)
	d, ts, dec := rec.Column(3).(*array.Float64), rec.Column(4).(*array.Timestamp), rec.Column(5).(*array.Decimal128)
	in, b := rec.Column(6).(*array.Int32), rec.Column(7).(*array.Boolean)
	for r, k := range rec.Column(0).(*array.Int64).Int64Values() {
		s.check += k
		if s1.IsValid(r) {
			s.check += int64(s1.ValueLen(r))
		}
		if s2.IsValid(r) {
			s.check += 3 * int64(s2.ValueLen(r))
		}
		if d.IsValid(r) {
			s.check += int64(math.Floor(d.Value(r)*100 + 0.5))
		}
		if ts.IsValid(r) {
			s.check += int64(ts.Value(r))
		}
		if dec.IsValid(r) {
			s.check += 5 * int64(dec.Value(r).LowBits())
		}
		if in.IsValid(r) {
			s.check += 7 * int64(in.Value(r))
		}
		if b.IsValid(r) {
			s.check += 13
			if b.Value(r) {
				s.check -= 2
			}
		}
	}
}
