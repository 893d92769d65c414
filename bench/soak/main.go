// Command soak keeps a table under load for a long time and looks whether it stays right and stays small: upserts and
// deletes at a fixed rate, commits every second, compaction and expiry beside them, scans of new and older snapshots and
// a tail, all compared with a model; and the change stream of the newest snapshots is folded and held against the table
// (calve verify --stream), with and without rows before changes.
//
//	go run ./bench/soak                      # 30 minutes
//	go run ./bench/soak -time 1m -seed 7
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	set, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = set.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// settings are the command line.
type settings struct {
	time, commit, report time.Duration
	rate, keys, deletes  int
	buckets, workers     int
	seed                 uint64
	dir                  string
}

func parseFlags(args []string) (s settings, err error) {
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	fs.DurationVar(&s.time, "time", 30*time.Minute, "how long rows are written")
	fs.DurationVar(&s.commit, "commit", time.Second, "time between two commits")
	fs.DurationVar(&s.report, "report", 15*time.Second, "time between two lines of the report")
	fs.IntVar(&s.rate, "rate", 20_000, "rows a second")
	fs.IntVar(&s.keys, "keys", 2_000_000, "keys that rows are drawn from")
	fs.IntVar(&s.deletes, "deletes", 10, "deletes among a hundred rows")
	fs.IntVar(&s.buckets, "buckets", 2, "buckets of the table")
	fs.IntVar(&s.workers, "compaction", 1, "compaction workers")
	fs.Uint64Var(&s.seed, "seed", rand.Uint64(), "seed of the rows (default: another one each time)")
	fs.StringVar(&s.dir, "dir", "", "folder on the disk to be used (default: the folder for temporary files)")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: all settings are flags", fs.Arg(0))
	}
	if s.rate < int(time.Second/batchEvery) || s.keys < 1 || s.buckets < 1 || s.deletes < 0 || s.deletes > 100 || s.time <= 0 || s.commit <= 0 || s.report <= 0 {
		return s, fmt.Errorf("-time, -commit and -report must be positive, -rate at least %d, -keys and -buckets at least 1, -deletes 0 to 100", time.Second/batchEvery)
	}
	return s, nil
}

// retained is how long snapshots stay: long enough for the scans of older ones.
const retained = 30 * time.Second

func (s settings) create(ctx context.Context, store storage.Store) error {
	cols, err := schema.ParseColumns(columns)
	if err != nil {
		return err
	}
	sch, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}, Options: map[string]string{
		"bucket": fmt.Sprint(s.buckets), "data-file.thin-mode": "true", "num-levels": "3",
		"snapshot.time-retained": fmt.Sprintf("%d ms", retained.Milliseconds()), "snapshot.num-retained.min": fmt.Sprint(2 * back),
	}})
	if err != nil {
		return err
	}
	return engine.Create(ctx, store, sch)
}

// run is a soak from beginning to end. An error says what went wrong first.
func (s settings) run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(s.dir, "calve-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(out, "seed %d: %d rows a second over %d keys, %d%% deletes, commits every %s, for %s\n", s.seed, s.rate, s.keys, s.deletes, s.commit, s.time)
	local, err := storage.NewLocal(filepath.Join(dir, "table"))
	if err != nil {
		return err
	}
	store := storage.WithCounter(local)
	if err := s.create(ctx, store); err != nil {
		return err
	}
	w := &watch{set: s, store: store, dir: dir, begin: time.Now()}
	t, err := engine.Open(ctx, store, engine.Settings{
		Job: "soak", Compaction: s.workers, ExpireEvery: 5 * time.Second,
		Events: engine.Events{Background: func(op string, err error) { w.failed(op, err) }},
	}, lab.Env())
	if err != nil {
		return err
	}
	w.table = t
	err = s.load(ctx, t, w, out)
	if err == nil {
		err = w.final(ctx, out)
	}
	return errors.Join(err, t.Close(context.WithoutCancel(ctx)))
}

// load runs the writer and, until it has ended and the tail is through, the readers and the watch.
func (s settings) load(ctx context.Context, t *engine.Table, w *watch, out io.Writer) error {
	h := newHistory()
	wr := &writer{set: s, table: t, model: newRows(s.keys), history: h, rng: rand.New(rand.NewPCG(s.seed, 1))}
	w.writer = wr
	g, ctx := errgroup.WithContext(ctx)
	beside, stop := context.WithCancel(ctx)
	defer stop()
	var position atomic.Int64
	g.Go(func() error {
		return scanning(beside, lab.Reader(w.store), h, s.keys, rand.New(rand.NewPCG(s.seed, 2)), func() { w.scans.Add(1) })
	})
	wake, unwatch := t.Watch()
	defer unwatch()
	g.Go(func() error {
		return tailing(beside, lab.Reader(w.store), reader.TailSpec{Follow: true, Wake: wake}, h, s.keys, func(snapshot int64, lag time.Duration) {
			position.Store(snapshot)
			w.tailed(lag)
		})
	})
	g.Go(func() error {
		return folding(beside, lab.Reader(w.store), s.report, func(snapshots int64) { w.folded.Add(snapshots) })
	})
	g.Go(func() error { return w.run(beside, out) })
	g.Go(func() error {
		if err := wr.run(ctx); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		h.end()
		defer stop()
		for position.Load() < wr.last {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		return nil
	})
	return g.Wait()
}
