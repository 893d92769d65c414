// Command idle opens many tables, as a service with as many pipelines does, leaves them alone, and tells what that
// costs: memory, processor time and goroutines, of which tables that nobody writes to should need next to none.
//
//	go run ./bench/idle                       # 2,000 tables, about 4 minutes
//	go run ./bench/idle -tables 200 -settle 0s -time 5s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
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
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

// settings are the command line.
type settings struct {
	tables, commits int
	settle, time    time.Duration
	follow          time.Duration
	dir, profile    string
}

func parseFlags(args []string) (s settings, err error) {
	fs := flag.NewFlagSet("idle", flag.ContinueOnError)
	fs.IntVar(&s.tables, "tables", 2000, "tables to open")
	fs.IntVar(&s.commits, "commits", 3, "commits of a few rows to each before it is left alone")
	fs.DurationVar(&s.settle, "settle", 150*time.Second, "how long they are left alone before that is measured: at first they look often for other writers")
	fs.DurationVar(&s.time, "time", time.Minute, "how long they are left alone and measured")
	fs.DurationVar(&s.follow, "follow", 2*time.Second, "time between two looks for snapshots of others (as in calve serve)")
	fs.StringVar(&s.dir, "dir", "", "folder on the disk to be used (default: the folder for temporary files)")
	fs.StringVar(&s.profile, "cpuprofile", "", "file that gets a processor profile of the idle time")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if fs.NArg() > 0 || s.tables < 1 || s.commits < 0 || s.time <= 0 {
		return s, errors.New("-tables and -time must be positive, and all settings are flags")
	}
	return s, nil
}

func (s settings) run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(s.dir, "calve-idle-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := storage.OpenURL(ctx, "file://"+dir, storage.Options{})
	if err != nil {
		return err
	}
	before := cost()
	compactor := engine.NewCompactor(engine.CompactorSettings{Workers: 2, SweepAfter: 10 * time.Minute}, lab.Env())
	defer compactor.Close()
	tables := make([]*engine.Table, s.tables)
	defer func() {
		for _, t := range tables {
			if t != nil {
				err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
			}
		}
	}()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(32) // most of the time the disk syncs
	for i := range tables {
		g.Go(func() (err error) {
			tables[i], err = s.open(gctx, storage.Sub(store, fmt.Sprintf("idle.db/t%d", i)), compactor)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	opened := cost()
	fmt.Fprintf(out, "opened %d tables and committed %d times to each in %s: %s of processor time\n", s.tables, s.commits,
		opened.at.Sub(before.at).Round(time.Millisecond), (opened.cpu - before.cpu).Round(time.Millisecond))
	if err := pause(ctx, s.settle); err != nil {
		return err
	}
	settled := cost()
	if err := s.wait(ctx); err != nil {
		return err
	}
	after := usage()
	elapsed := after.at.Sub(settled.at)
	fmt.Fprintf(out, "idle: tables=%d rss=%dMiB heap=%dKiB/table goroutines=%.1f/table cpu=%.2f%% of a core over %s\n", s.tables, after.rss>>20,
		(settled.heap-before.heap)/int64(s.tables)>>10, float64(after.goroutines-before.goroutines)/float64(s.tables),
		100*(after.cpu-settled.cpu).Seconds()/elapsed.Seconds(), elapsed.Round(time.Second))
	return nil
}

// wait leaves the tables alone.
func (s settings) wait(ctx context.Context) (err error) {
	if s.profile != "" {
		f, ferr := os.Create(s.profile)
		if ferr != nil {
			return ferr
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return pause(ctx, s.time)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// open makes a table with some rows in it, as a pipeline opens it.
func (s settings) open(ctx context.Context, store storage.Store, c *engine.Compactor) (*engine.Table, error) {
	cols, err := schema.ParseColumns("id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3)")
	if err != nil {
		return nil, err
	}
	sch, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}})
	if err != nil {
		return nil, err
	}
	if err := engine.Create(ctx, store, sch); err != nil {
		return nil, err
	}
	t, err := engine.Open(ctx, store, engine.Settings{Job: "idle", Compaction: 1, Compactor: c, ExpireEvery: time.Minute, FollowEvery: s.follow}, lab.Env())
	if err != nil {
		return nil, err
	}
	for n := range s.commits {
		b := array.NewRecordBuilder(memory.DefaultAllocator, sch.Arrow())
		for i := range 10 {
			b.Field(0).(*array.Int64Builder).Append(int64(n*10 + i))
			for f := 1; f < len(sch.Fields); f++ {
				b.Field(f).AppendNull()
			}
		}
		err := t.Write(ctx, schema.Batch{Rec: b.NewRecordBatch()})
		if err == nil {
			_, err = t.Commit(ctx, engine.Progress{Properties: map[string]string{"calve.n": fmt.Sprint(n)}})
		}
		if err != nil {
			return nil, errors.Join(err, t.Close(ctx))
		}
	}
	return t, nil
}

// costs are what the process has used so far.
type costs struct {
	at         time.Time
	cpu        time.Duration
	rss, heap  int64
	goroutines int
}

// cost collects garbage first, so that the heap is what is needed.
func cost() costs {
	runtime.GC()
	return usage()
}

func usage() costs {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for other arguments only
	c := costs{at: time.Now(), heap: int64(m.HeapAlloc), rss: int64(m.Sys - m.HeapReleased), goroutines: runtime.NumGoroutine()}
	c.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	var size, resident int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if _, err := fmt.Sscan(string(text), &size, &resident); err == nil {
			c.rss = resident * int64(os.Getpagesize())
		}
	}
	return c
}
