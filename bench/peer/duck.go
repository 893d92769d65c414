package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

// duck is DuckDB: of the level-0 files of a table it makes one sorted Parquet file with the newest row of each key.
type duck struct {
	*worker
	out string
}

//go:embed duck.py
var duckProgram string

// startDuck starts DuckDB, which writes its results to the file out.
func startDuck(ctx context.Context, python, out string) (*duck, error) {
	if _, err := os.Stat(python); err != nil {
		return nil, fmt.Errorf("no Python with DuckDB at %s (run `make interop` once, or name one with -python): %w", python, err)
	}
	w, err := start(ctx, out+".log", "duckdb", python, "-c", duckProgram)
	return &duck{w, out}, err
}

// dedup is the phase with that many threads.
func dedup(threads int) string { return fmt.Sprintf("dedup-%d", threads) }

// dedup measures the work on the files of a table, and holds the number of rows against calve's.
func (d *duck) dedup(table string, threads int, want int64) (timing, error) {
	t, rest, err := d.timed("dedup", fmt.Sprint(threads), filepath.Join(table, "bucket-0"), d.out)
	if err != nil {
		return t, err
	}
	if len(rest) != 1 || rest[0] != want {
		return t, fmt.Errorf("duckdb keeps %v rows, calve %d", rest, want)
	}
	return t, nil
}
