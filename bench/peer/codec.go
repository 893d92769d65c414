package main

import (
	"context"
	"path"
	"path/filepath"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/internal/datafile"
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
		if err := lab.EachRows(ctx, st, c.job.schema, path.Join(table, "bucket-0", name), func(r datafile.Rows) error { rows = append(rows, r); return nil }); err != nil {
			return timing{}, err
		}
	}
	gone := newFiles(after, fresh)
	return timed(func() error {
		for _, name := range gone {
			if err := lab.EachRows(ctx, st, c.job.schema, path.Join(table, "bucket-0", name), func(datafile.Rows) error { return nil }); err != nil {
				return err
			}
		}
		_, err := lab.Encode(c.job.schema, rows)
		return err
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
