// Package lab is what the benchmark programs share: the real world, and data files taken apart and put together without
// the engine.
package lab

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Env is the real world, but for the log.
func Env() engine.Env {
	return engine.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}
}

// Reader opens a table for reading in the real world.
func Reader(s storage.Store) *reader.Reader {
	e := Env()
	return reader.Open(s, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
}

// EachRows decodes a whole key-value file of a table, which was written with this schema.
func EachRows(ctx context.Context, store storage.Store, s *schema.Schema, name string, do func(datafile.Rows) error) (err error) {
	file, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	cols := make([]int, len(s.Fields))
	for i := range cols {
		cols[i] = i
	}
	r, err := datafile.Open(file, name, s, datafile.ReadSpec{Schema: s, Cols: cols, KeyValue: true})
	if err != nil {
		return errors.Join(err, file.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		rows, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(rows); err != nil {
			return err
		}
	}
}

// Encode encodes rows as a file of the table's highest level, on one core, and throws it away. It gives the number of
// rows.
func Encode(s *schema.Schema, rows []datafile.Rows) (int64, error) {
	o, err := s.ParseOptions()
	if err != nil {
		return 0, err
	}
	top := o.MaxLevel()
	w, err := datafile.NewWriter(io.Discard, datafile.WriterConfig{
		Schema: s, Keyed: true, Thin: o.ThinMode, Compression: o.CompressionAt(top), ZstdLevel: o.ZstdLevel, Parallel: 1,
		Stats: func(column string) schema.StatsMode { return o.Stats(column, top) },
	})
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := w.Write(r); err != nil {
			return 0, err
		}
	}
	info, err := w.Close()
	return info.Rows, err
}
