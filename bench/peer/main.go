// Command peer measures calve beside its peers: Paimon's Java library and DuckDB. All take the same rows on the same disk
// in turn, round after round, and must agree on what is in the tables. It needs what `make interop` fetches into .cache:
// a JDK 17 with Paimon's jars, and DuckDB's Python module.
//
//	go run ./bench/peer                        # all data sets; writes bench/results and bench/PEERS.md
//	go run ./bench/peer -sets random -rounds 3 -o ''
//	go run ./bench/peer -sets '^lookup' -o ''  # lookups by key, and changelogs made by lookups
//	go run ./bench/peer -churn 300             # write amplification under a commit a second
//	go run ./bench/peer -follow 30s            # how long rows take to a tail, beside Flink's streaming read
//	go run ./bench/peer -ingest 2000000        # messages of a real broker into a table, beside a job of Flink and Kafka Connect
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
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/bench/dataset"
	"github.com/calve-io/calve/schema"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mainErr(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// config is the command line.
type config struct {
	jars, python, flights string
	scratch, out          string
	sets                  *regexp.Regexp
	rounds                int
	scale                 float64
	churn                 churn
	follow                follow
	ingest                ingest
}

func parseFlags(args []string) (c config, err error) {
	fs := flag.NewFlagSet("peer", flag.ContinueOnError)
	fs.StringVar(&c.jars, "jars", ".cache/peers/jars/paimon", "folder with Paimon's jars")
	fs.StringVar(&c.python, "python", ".cache/peers/venv/duckdb/bin/python", "a Python that has DuckDB")
	fs.StringVar(&c.flights, "flights", ".cache/flights-3m.parquet", "the flights; fetched from the npm registry if they are not there")
	fs.StringVar(&c.scratch, "dir", "", "folder on the disk to be measured (default: the folder for temporary files)")
	fs.StringVar(&c.out, "o", "bench", "folder that gets results/DATE-COMMIT-peers.txt, PEERS.md and peers.svg; '' writes nothing")
	fs.IntVar(&c.rounds, "rounds", 5, "measured rounds; one more before them warms up")
	fs.Float64Var(&c.scale, "scale", 1, "share of the rows of each commit")
	fs.DurationVar(&c.follow.time, "follow", 0, "measure how long rows take to a tail instead, for so long with each interval between commits")
	fs.IntVar(&c.follow.rate, "follow-rate", 50_000, "rows a second of -follow")
	fs.DurationVar(&c.follow.warm, "follow-warm", 15*time.Second, "how long -follow runs before it measures")
	fs.StringVar(&c.follow.jars, "flink-jars", ".cache/peers/jars/flink", "folder with the jars of Flink and Paimon's connector")
	c.follow.intervals = []time.Duration{time.Second, 200 * time.Millisecond}
	fs.IntVar(&c.ingest.messages, "ingest", 0, "measure so many messages from a real broker into a table instead")
	fs.IntVar(&c.ingest.keys, "ingest-keys", 500_000, "keys of the table of -ingest")
	fs.StringVar(&c.ingest.jars, "kafka-jars", ".cache/peers/jars/kafka", "folder with the jars of the broker of -ingest")
	fs.StringVar(&c.ingest.more, "ingest-jars", ".cache/peers/jars/flink-kafka", "folder with what Flink needs to read it; fetched with Maven if it is not there")
	fs.StringVar(&c.ingest.connectJars, "connect-jars", ".cache/peers/jars/connect-iceberg", "folder with the jars of Kafka Connect and Iceberg's sink, fetched with Maven if it is not there; '' leaves them out of -ingest")
	fs.StringVar(&c.ingest.beside, "ingest-beside", "", "another binary of calve that -ingest measures instead of the peers, to see what a change gives; give -o '' and -ingest-latency 0s with it")
	fs.IntVar(&c.ingest.rate, "ingest-rate", 50_000, "messages a second where -ingest measures how long they take to a tail")
	fs.DurationVar(&c.ingest.latency, "ingest-latency", 20*time.Second, "how long that is measured with each interval between commits; 0s: not at all")
	fs.IntVar(&c.churn.commits, "churn", 0, "measure write amplification instead, with so many commits")
	fs.IntVar(&c.churn.keys, "churn-keys", 10_000_000, "keys of the table of -churn")
	fs.IntVar(&c.churn.rows, "churn-rows", 20_000, "rows of a commit of -churn")
	fs.DurationVar(&c.churn.every, "churn-every", time.Second, "time between two commits of -churn")
	sets := fs.String("sets", "", "only data sets, lookups or lookup-changelog whose name matches this expression; nothing is written unless -o is given")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q: all settings are flags", fs.Arg(0))
	}
	if c.sets, err = regexp.Compile(*sets); err != nil {
		return c, fmt.Errorf("-sets: %w", err)
	}
	given := false
	fs.Visit(func(f *flag.Flag) { given = given || f.Name == "o" })
	if *sets != "" && !given {
		c.out = ""
	}
	return c, nil
}

func mainErr(ctx context.Context, args []string) error {
	c, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.follow.time > 0 {
		return c.follow.run(ctx, c, os.Stdout)
	}
	if c.ingest.messages > 0 {
		return c.ingest.run(ctx, c, os.Stdout)
	}
	if c.churn.commits > 0 {
		return c.churn.run(ctx, c, os.Stdout)
	}
	rep, err := c.run(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Print(rep.page())
	fmt.Println(rep.line())
	if c.out == "" {
		return nil
	}
	return rep.save(c.out)
}

// common are the options that make the work the same: one bucket, and no compaction before it is asked for.
var common = map[string]string{
	"bucket": "1", "file.format": "parquet", "file.compression": "zstd", "file.compression.zstd-level": "1",
	"data-file.thin-mode": "true", "write-only": "true", "target-file-size": "1gb", "write-buffer-size": "256mb",
	"num-levels": "3",
}

// timing is what something took, in seconds.
type timing struct{ wall, cpu float64 }

// Phases of a table's life.
const (
	write     = "write"
	mergeRead = "merge-read"
	compact   = "compact"
	read      = "read"
	compact1  = "compact-1core" // with one core
	codec1    = "codec-1core"   // decode of the same input and encode of the same output, without merge, on one core
)

// life is what the phases of one table took, and what was read before and after the compaction.
type life struct {
	times map[string]timing
	sums  [2]sum
}

// job is a data set to be measured: its rows are made once, for every engine.
type job struct {
	set     dataset.Set
	schema  *schema.Schema
	commits [][]arrow.RecordBatch
	rows    int64 // of all commits
}

func newJob(set dataset.Set, scale float64) (*job, error) {
	j := &job{set: set}
	var err error
	if j.schema, err = set.Schema(common); err != nil {
		return nil, err
	}
	n := max(1, int(float64(set.Rows)*scale))
	for c := range dataset.Commits {
		b, err := set.Batches(j.schema.Arrow(), c, n)
		if err != nil {
			return nil, err
		}
		j.commits = append(j.commits, b)
		j.rows += int64(n)
	}
	return j, nil
}

// chosen gives the data sets to be measured.
func (c config) chosen(ctx context.Context) ([]dataset.Set, error) {
	var out []dataset.Set
	for _, s := range dataset.Sets {
		if c.sets.MatchString(s.Name) {
			out = append(out, s)
		}
	}
	if c.sets.MatchString("flights") {
		if err := fetchFlights(ctx, c.flights); err != nil {
			return nil, err
		}
		s, err := dataset.OpenFlights(c.flights)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if len(out) == 0 && !slices.ContainsFunc(duels, func(d *duel) bool { return c.sets.MatchString(d.name) }) {
		return nil, fmt.Errorf("nothing matches %s", c.sets)
	}
	return out, nil
}

func (c config) run(ctx context.Context, progress io.Writer) (_ *report, err error) {
	sets, err := c.chosen(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.scratch, "calve-peer-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rep := newReport(ctx, c.rounds)
	for _, s := range sets {
		begin := time.Now()
		if err := c.measureSet(ctx, s, filepath.Join(dir, s.Name), rep, progress); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		fmt.Fprintf(progress, "%s: %s\n", s.Name, time.Since(begin).Round(time.Second))
	}
	return rep, c.fights(ctx, dir, rep, progress)
}

func (c config) measureSet(ctx context.Context, set dataset.Set, dir string, rep *report, progress io.Writer) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	w, err := newJob(set, c.scale)
	if err != nil {
		return err
	}
	j, err := startJava(ctx, c.jars, dir, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.stop(), os.RemoveAll(dir)) }()
	var d *duck
	if plainRows(set) {
		if d, err = startDuck(ctx, c.python, filepath.Join(dir, "duck.parquet")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.stop()) }()
	}
	rep.begin(w)
	own := &calve{dir: filepath.Join(dir, "calve"), job: w}
	for round := range c.rounds + 1 {
		table := fmt.Sprintf("t%d", round)
		fmt.Fprintf(progress, "%s: round %d of %d\n", set.Name, round, c.rounds)
		ours, err := own.life(ctx, table, d)
		if err != nil {
			return fmt.Errorf("calve: %w", err)
		}
		theirs, err := j.life(table)
		if err != nil {
			return fmt.Errorf("paimon-java: %w", err)
		}
		if ours.sums != theirs.sums || ours.sums[0].rows == 0 {
			return fmt.Errorf("calve read rows and checksums %v, Paimon %v", ours.sums, theirs.sums)
		}
		if round > 0 {
			rep.add(ours.times, theirs.times)
		}
		runtime.GC()
	}
	return nil
}

// plainRows says whether the newest row of a key is all that a merge must find, so that a query can do the same.
func plainRows(s dataset.Set) bool { return s.Options["merge-engine"] == "" }
