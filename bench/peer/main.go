// Command peer measures calve beside Paimon's Java library: both write, read and compact tables of the same rows on the
// same disk in turn, round after round, and must agree on what is in them. It needs a JDK 17 and Paimon's jars, which
// `make interop` fetches.
//
//	go run ./bench/peer                 # writes bench/results/DATE-COMMIT-peer.md
//	go run ./bench/peer -rows 20000 -rounds 1 -o ''
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var c config
	flag.StringVar(&c.jars, "jars", ".cache/peers/jars/paimon", "folder with Paimon's jars")
	flag.IntVar(&c.rows, "rows", 250_000, "rows of a commit; there are eight commits")
	flag.IntVar(&c.rounds, "rounds", 5, "measured rounds; one more before them warms up")
	flag.StringVar(&c.scratch, "dir", "", "folder on the disk to be measured (default: the folder for temporary files)")
	out := flag.String("o", "bench/results", "folder that gets the result; '' writes nothing")
	flag.Parse()
	page, err := c.run(ctx, os.Stderr)
	if err == nil {
		fmt.Print(page)
		if *out != "" {
			err = os.WriteFile(filepath.Join(*out, time.Now().UTC().Format(time.DateOnly)+"-"+commit(ctx)+"-peer.md"), []byte(page), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	jars, scratch string
	rows, rounds  int
}

// workload is a kind of table.
type workload struct {
	name, about string
	options     map[string]string
	sparse      bool // most cells are null, as in partial updates
}

var workloads = []workload{
	{name: "deduplicate", about: "the newest row of a key stays"},
	{name: "partial-update", about: "six of ten cells are null, later values are put into earlier rows", sparse: true,
		options: map[string]string{"merge-engine": "partial-update"}},
	{name: "aggregation", about: "sums, greatest and last values of the rows of a key",
		options: map[string]string{"merge-engine": "aggregation", "fields.d.aggregate-function": "sum",
			"fields.ts.aggregate-function": "max", "fields.dec.aggregate-function": "sum", "fields.i.aggregate-function": "sum",
			"fields.b.aggregate-function": "bool_or"}},
}

// common are the options that make the work the same: one bucket, and no compaction before it is asked for.
var common = map[string]string{
	"bucket": "1", "file.format": "parquet", "file.compression": "zstd", "file.compression.zstd-level": "1",
	"data-file.thin-mode": "true", "write-only": "true", "target-file-size": "1gb", "write-buffer-size": "256mb",
	"num-levels": "3",
}

// engine is one side.
type engine interface {
	name() string
	create(ctx context.Context, table string, options map[string]string) error
	write(ctx context.Context, table string) (timing, error)
	compact(ctx context.Context, table string) (timing, error)
	read(ctx context.Context, table string) (timing, sum, error)
}

// timing is what something took, in seconds.
type timing struct{ wall, cpu float64 }

// sum is what a read saw.
type sum struct{ rows, check int64 }

// phases are what is measured of a table.
var phases = []string{"write", "merge-read", "compact", "read"}

func (c config) run(ctx context.Context, progress io.Writer) (_ string, err error) {
	dir, err := os.MkdirTemp(c.scratch, "calve-peer-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rep := report{config: c}
	for _, w := range workloads {
		if err := c.workload(ctx, w, filepath.Join(dir, w.name), &rep, progress); err != nil {
			return "", fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return rep.page(ctx), nil
}

func (c config) workload(ctx context.Context, w workload, dir string, rep *report, progress io.Writer) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	d := makeData(c.rows, w.sparse)
	j, err := startJava(ctx, c.jars, dir, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stop()) }()
	engines := []engine{&calve{dir: filepath.Join(dir, "calve"), data: d}, j}
	for round := range c.rounds + 1 {
		var seen [2][2]sum
		for i, e := range engines {
			fmt.Fprintf(progress, "%s: round %d of %d: %s\n", w.name, round, c.rounds, e.name())
			t, s, err := measure(ctx, e, fmt.Sprintf("t%d", round), merged(common, w.options))
			if err != nil {
				return fmt.Errorf("%s: %w", e.name(), err)
			}
			seen[i] = s
			if round > 0 {
				rep.add(w.name, e.name(), t)
			}
		}
		if seen[0] != seen[1] {
			return fmt.Errorf("calve read rows and checksum %v, Paimon %v", seen[0], seen[1])
		}
		rep.rows = int64(8 * c.rows)
	}
	return nil
}

// measure takes a table through its life.
func measure(ctx context.Context, e engine, table string, options map[string]string) (t [4]timing, s [2]sum, err error) {
	if err := e.create(ctx, table, options); err != nil {
		return t, s, err
	}
	if t[0], err = e.write(ctx, table); err != nil {
		return t, s, err
	}
	if t[1], s[0], err = e.read(ctx, table); err != nil {
		return t, s, err
	}
	if t[2], err = e.compact(ctx, table); err != nil {
		return t, s, err
	}
	t[3], s[1], err = e.read(ctx, table)
	return t, s, err
}

func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}
