package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// codec measures what no compaction can do without: decoding the files it takes in and encoding the rows that remain,
// with the same reader and writer, and no merge between. The files are those of the copy of a table that was not
// compacted and of the compacted one.
func (c *calve) codec(ctx context.Context, table string) (timing, error) {
	st, err := storage.NewLocal(c.dir)
	if err != nil {
		return timing{}, err
	}
	after, err := c.bucketFiles(table)
	if err != nil {
		return timing{}, err
	}
	before, err := c.bucketFiles(table + "-copy")
	if err != nil {
		return timing{}, err
	}
	// The compacted table still has its old files, which its older snapshots name; the copy was compacted too, and its
	// new files have other names.
	fresh := newFiles(after, before)
	var rows []datafile.Rows
	for _, name := range fresh {
		if err := c.decode(ctx, st, filepath.Join(table, "bucket-0", name), func(r datafile.Rows) { rows = append(rows, r) }); err != nil {
			return timing{}, err
		}
	}
	gone := newFiles(after, fresh)
	return timed(func() error {
		for _, name := range gone {
			if err := c.decode(ctx, st, filepath.Join(table, "bucket-0", name), func(datafile.Rows) {}); err != nil {
				return err
			}
		}
		return c.encode(rows)
	})
}

func (c *calve) bucketFiles(table string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(c.folder(table), "bucket-0", "*.parquet"))
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return names, err
}

// newFiles gives the names that are not among the old.
func newFiles(names, old []string) (out []string) {
	had := map[string]bool{}
	for _, n := range old {
		had[n] = true
	}
	for _, n := range names {
		if !had[n] {
			out = append(out, n)
		}
	}
	return out
}

func (c *calve) decode(ctx context.Context, st storage.Store, name string, do func(datafile.Rows)) (err error) {
	f, err := st.Open(ctx, filepath.ToSlash(name))
	if err != nil {
		return err
	}
	s := c.job.schema
	cols := make([]int, len(s.Fields))
	for i := range cols {
		cols[i] = i
	}
	r, err := datafile.Open(f, name, s, datafile.ReadSpec{Schema: s, Cols: cols, KeyValue: true})
	if err != nil {
		return errors.Join(err, f.Close())
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
		do(rows)
	}
}

func (c *calve) encode(rows []datafile.Rows) error {
	o, err := c.job.schema.ParseOptions()
	if err != nil {
		return err
	}
	top := o.MaxLevel()
	w, err := datafile.NewWriter(io.Discard, datafile.WriterConfig{
		Schema: c.job.schema, Keyed: true, Thin: o.ThinMode, Compression: o.CompressionAt(top), ZstdLevel: o.ZstdLevel, Parallel: 1,
		Stats: func(column string) schema.StatsMode { return o.Stats(column, top) },
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := w.Write(r); err != nil {
			return err
		}
	}
	_, err = w.Close()
	return err
}
