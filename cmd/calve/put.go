package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/schema"
)

func (a *app) putCmd() *cobra.Command {
	var file, op, format, job, evolution string
	var interval time.Duration
	c := &cobra.Command{
		Use:   "put TABLE",
		Short: "Write JSON lines, CSV, an Avro or a Parquet file into a table",
		Long: `Read JSON objects, one a line, from standard input or a file, and write them as rows.
Of CSV (--format csv, or a file *.csv) the first line names the fields, which find columns by name; others are ignored. A
field that has nothing, not even quotes, is null; nested values are JSON. Of an Avro object container file (--format avro, or
a file *.avro) the fields of its records find columns by name, and so do the columns of a Parquet file (--format parquet, or
a file *.parquet). What is out of a column's range, or of another type, is refused; digits of a time or timestamp that the
column does not have are dropped, and FLOAT and DOUBLE take the nearest number.

With --op (default "op") a field names what a row does: I, U, D, c, r, u, d, +I, -U, +U or -D; without the field a row is
an upsert.

A line that cannot be a row of the table goes to the table TABLE__dead with the reason (calve dead ls TABLE); put then ends
with exit code 1 after everything else was written. With --job the lines are written exactly once over several tries: a put that was
interrupted goes on behind the last line that was committed, when it is given the same input again.`,
		Example: `  echo '{"id":1,"item":"ice"}' | calve put shop.orders -w file:///data/lake
  zcat changes.jsonl.gz | calve put shop.orders -w file:///data/lake --job load-2026-11-29
  calve put shop.orders -w file:///data/lake --file rows.jsonl --op -
  calve put shop.orders -w file:///data/lake --file rows.csv
  calve put shop.orders -w file:///data/lake --file part-0.parquet --job load-part-0`,
		Args: oneTable,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			log, err := a.logger()
			if err != nil {
				return err
			}
			st, err := a.table(cmd.Context(), args[0], writes)
			if err != nil {
				return err
			}
			deadStore, err := a.table(cmd.Context(), args[0]+"$dead", writes)
			if err != nil {
				return err
			}
			in, name, err := a.input(file)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, in.Close()) }()
			tab, err := engine.Open(cmd.Context(), st, engine.Settings{Job: job}, engineEnv(log))
			if err != nil {
				return noTable(args[0], st, err)
			}
			defer func() { err = errors.Join(err, closeTable(cmd.Context(), tab)) }()
			env := ingest.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: log}
			dead := ingest.NewDeadLetters(deadStore, ingest.DeadLetterSettings{Engine: engine.Settings{Job: job}}, env)
			defer func() { err = errors.Join(err, dead.Close(context.WithoutCancel(cmd.Context()))) }()
			var first *ingest.Letter
			p := newProgress(a.err, !a.json)
			cfg := decode.Config{Format: formatOf(format, file), OpField: op, Evolution: decode.Evolution(evolution)}
			limits := ingest.Limits{CommitInterval: interval}
			events := ingest.Events{
				Committed: func(c ingest.Committed) { p.add(c.Rows, "rows written") },
				Rejected: func(l ingest.Letter) {
					if first == nil {
						first = &l
					}
				},
				Reread: func(*schema.Schema, int64) { first = nil }, // by the newer schema they may be right
			}
			var res ingest.LinesResult
			if cfg.Format == decode.Avro || cfg.Format == decode.Arrow {
				res, err = putFile(cmd.Context(), in, ingest.FileConfig{Name: name, Run: job, Resume: job != "", Decode: cfg, Limits: limits}, tab, dead, env, events)
			} else {
				res, err = ingest.RunLines(cmd.Context(), in, ingest.LinesConfig{Name: name, Run: job, Resume: job != "", Decode: cfg, Limits: limits}, tab, dead, env, events)
			}
			p.end()
			if err == nil && cmd.Context().Err() != nil {
				err = interrupted(res, job)
			}
			if err == nil && res.Snapshot > 0 {
				err = tab.Lift(cmd.Context())
			}
			if err != nil {
				return err
			}
			return a.putDone(args[0], res, first)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "file", "-", "file to read; - is standard input")
	f.StringVar(&format, "format", "", "json, debezium-json, csv, avro or parquet (default: csv for files *.csv, avro for *.avro, parquet for *.parquet, else json)")
	f.StringVar(&evolution, "evolution", string(decode.Freeze), "what rows may do to the table's schema: freeze, dead-letter, add-only or evolve (calve config schema explains them)")
	f.StringVar(&op, "op", "", `field with the row kind; "-" for none (default "op", unless it is a column)`)
	f.StringVar(&job, "job", "", "name of the job, to write every line exactly once over several tries")
	f.DurationVar(&interval, "commit-interval", time.Second, "time between two snapshots")
	return c
}

// formatOf gives the form of a file's records: as the flag says, or as the file is called.
func formatOf(flag, file string) decode.Format {
	if flag == "parquet" {
		return decode.Arrow
	}
	if flag != "" {
		return decode.Format(flag)
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".parquet":
		return decode.Arrow
	case ".csv":
		return decode.CSV
	case ".avro":
		return decode.Avro
	}
	return decode.JSON
}

// putFile reads a file that is no stream.
func putFile(ctx context.Context, in io.Reader, cfg ingest.FileConfig, tab *engine.Table, dead ingest.DeadLetter, env ingest.Env, events ingest.Events) (ingest.LinesResult, error) {
	f, ok := in.(*os.File)
	if !ok {
		name := string(cfg.Decode.Format)
		if cfg.Decode.Format == decode.Arrow {
			name = "parquet"
		}
		return ingest.LinesResult{}, fmt.Errorf("%s cannot be read from standard input; give --file", name)
	}
	info, err := f.Stat()
	if err != nil {
		return ingest.LinesResult{}, err
	}
	return ingest.RunFile(ctx, f, info.Size(), cfg, tab, dead, env, events)
}

func (a *app) input(file string) (io.ReadCloser, string, error) {
	if file == "-" {
		return io.NopCloser(a.in), "stdin", nil
	}
	f, err := os.Open(file)
	return f, file, err
}

func (a *app) putDone(table string, res ingest.LinesResult, first *ingest.Letter) error {
	var err error
	switch {
	case a.json:
		err = a.printJSON(res)
	case res.Snapshot == 0:
		_, err = fmt.Fprintf(a.out, "%s: nothing to write in %s\n", table, count(res.Lines, "line"))
	default:
		_, err = fmt.Fprintf(a.out, "%s: %s from %s, snapshot %d\n", table, count(res.Rows, "row"), count(res.Lines, "line"), res.Snapshot)
	}
	if err == nil && first != nil && res.Rejected > 0 {
		fmt.Fprintf(a.err, "calve: %s refused and kept in the table %s; the first is line %d: %s\n", count(res.Rejected, "line"), config.DeadTable(table), first.Offset, first.Reason)
		err = errReported
	}
	return err
}

// interrupted tells what an interrupted put has done and how to go on.
func interrupted(res ingest.LinesResult, job string) error {
	if job == "" {
		return fmt.Errorf("interrupted after %s were written; a put with --job can be repeated with the same input and goes on where it stopped", count(res.Lines, "line"))
	}
	return fmt.Errorf("interrupted after %s of this run were written; repeat the command with the same input to go on", count(res.Lines, "line"))
}
