package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/bench/lab"
	eng "github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// follow measures how long rows take from just before they are written to a reader of the table's stream. calve writes at a
// fixed rate; calve's tail, woken and polling, and Flink's streaming read with Paimon's connector follow the same table at
// once, in turn with each interval between commits.
type follow struct {
	time, warm time.Duration
	rate       int // rows a second
	jars       string
	intervals  []time.Duration
}

// The pauses between looks for a snapshot: calve's polling tail, and the shortest that Flink's connector takes.
const (
	followPoll  = 5 * time.Millisecond
	flinkMillis = 1
)

// writePause is the time between two batches.
const writePause = 10 * time.Millisecond

// lags are how long rows took, in microseconds.
type lags struct {
	mu sync.Mutex
	v  []int64
}

func (l *lags) took(at []int64) {
	now := time.Now().UnixMicro()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range at {
		l.v = append(l.v, now-t)
	}
}

func (l *lags) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.v = l.v[:0]
}

// quantiles are the number of rows, and the median, 99th percentile and most of what they took.
func (l *lags) quantiles() [4]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.v) == 0 {
		return [4]int64{}
	}
	slices.Sort(l.v)
	n := len(l.v)
	return [4]int64{int64(n), l.v[n/2], l.v[n*99/100], l.v[n-1]}
}

func (f follow) run(ctx context.Context, cfg config, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(cfg.scratch, "calve-follow-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	text := ""
	for i, interval := range f.intervals {
		line, err := f.measure(ctx, filepath.Join(dir, strconv.Itoa(i)), interval)
		if err != nil {
			return fmt.Errorf("commits every %s: %w", interval, err)
		}
		fmt.Fprint(out, line)
		text += line
	}
	if cfg.out == "" {
		return nil
	}
	return saveLines(ctx, cfg.out, "follow", text)
}

// measure gives the line of one interval.
func (f follow) measure(ctx context.Context, dir string, interval time.Duration) (line string, err error) {
	st, err := storage.NewLocal(filepath.Join(dir, "db.db", "t"))
	if err != nil {
		return "", err
	}
	cols, err := schema.ParseColumns("k BIGINT NOT NULL, at BIGINT, s STRING")
	if err != nil {
		return "", err
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}, Options: map[string]string{"bucket": "1"}})
	if err == nil {
		err = eng.Create(ctx, st, s)
	}
	if err != nil {
		return "", err
	}
	table, err := eng.Open(ctx, st, eng.Settings{Job: "follow", Compaction: 1}, lab.Env())
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, table.Close(context.WithoutCancel(ctx))) }()
	flink, err := f.startFlink(ctx, dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, flink.stop()) }()

	gctx, stop := context.WithCancel(ctx)
	defer stop()
	wake, unsubscribe := table.Watch()
	defer unsubscribe()
	var woken, polling lags
	g, gctx := errgroup.WithContext(gctx)
	g.Go(func() error { return f.tail(gctx, st, reader.TailSpec{Wake: wake}, &woken) })
	g.Go(func() error { return f.tail(gctx, st, reader.TailSpec{Poll: followPoll}, &polling) })
	g.Go(func() error { return f.write(gctx, table, s) })
	g.Go(func() error { return commitEvery(gctx, table, interval) })
	theirs, err := f.watch(gctx, flink, &woken, &polling)
	stop()
	if gerr := g.Wait(); gerr != nil && !errors.Is(gerr, context.Canceled) {
		err = errors.Join(err, gerr)
	}
	if err != nil {
		return "", err
	}
	ours, polled := woken.quantiles(), polling.quantiles()
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	return fmt.Sprintf("follow: commit=%s rows_per_s=%d rows=%d flink_rows=%d woken_p50_ms=%.0f woken_p99_ms=%.0f polling_p50_ms=%.0f polling_p99_ms=%.0f "+
		"flink_p50_ms=%.0f flink_p99_ms=%.0f tail_p50_vs_flink=%.2f tail_p99_vs_flink=%.2f\n", interval, f.rate, polled[0], theirs[0], ms(ours[1]), ms(ours[2]),
		ms(polled[1]), ms(polled[2]), ms(theirs[1]), ms(theirs[2]), float64(polled[1])/float64(theirs[1]), float64(polled[2])/float64(theirs[2])), nil
}

// watch waits until Flink has caught up and all are warm, and gives what Flink measured in the time after that.
func (f follow) watch(ctx context.Context, flink *worker, ours ...*lags) (theirs [4]int64, err error) {
	for begin := time.Now(); theirs[0] == 0; {
		if theirs, err = flinkLags(ctx, flink, 100*time.Millisecond); err != nil {
			return theirs, err
		}
		if time.Since(begin) > 2*time.Minute {
			return theirs, errors.New("the reader of Flink has told no row in two minutes")
		}
	}
	if _, err := flinkLags(ctx, flink, f.warm); err != nil {
		return theirs, err
	}
	if _, err := flink.ask("reset"); err != nil {
		return theirs, err
	}
	for _, l := range ours {
		l.reset()
	}
	return flinkLags(ctx, flink, f.time)
}

// flinkLags asks Flink's side after a pause.
func flinkLags(ctx context.Context, flink *worker, pause time.Duration) (q [4]int64, err error) {
	select {
	case <-ctx.Done():
		return q, context.Cause(ctx)
	case <-time.After(pause):
	}
	words, err := flink.ask("lags")
	if err == nil && len(words) != len(q) {
		err = fmt.Errorf("the reader of Flink answered %q", words)
	}
	for i := 0; i < len(q) && err == nil; i++ {
		q[i], err = strconv.ParseInt(words[i], 10, 64)
	}
	return q, err
}

func (f follow) tail(ctx context.Context, st storage.Store, spec reader.TailSpec, l *lags) error {
	spec.From, spec.Follow, spec.Columns = reader.Start{Mode: reader.Latest}, true, []string{"at"}
	for c, err := range lab.Reader(st).Tail(ctx, spec) {
		if err != nil {
			return err
		}
		if c.Rec != nil {
			l.took(c.Rec.Column(0).(*array.Int64).Int64Values())
		}
	}
	return nil
}

// write writes batches of new keys at the rate, each row with the time just before it is written.
func (f follow) write(ctx context.Context, t *eng.Table, s *schema.Schema) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	tick := time.NewTicker(writePause)
	defer tick.Stop()
	rows := max(1, int(float64(f.rate)*writePause.Seconds()))
	for key := int64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		at := time.Now().UnixMicro()
		for range rows {
			b.Field(0).(*array.Int64Builder).Append(key)
			b.Field(1).(*array.Int64Builder).Append(at)
			b.Field(2).(*array.StringBuilder).Append(strconv.FormatUint(mix(uint64(key)), 16))
			key++
		}
		if err := t.Write(ctx, schema.Batch{Rec: b.NewRecordBatch()}); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func commitEvery(ctx context.Context, t *eng.Table, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := t.Commit(ctx, eng.Progress{}); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// flinkOpens are the packages of the JDK that Flink's serializers look into (env.java.opts.all of its distribution).
var flinkOpens = []string{"java.lang", "java.lang.reflect", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util",
	"java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch"}

// startFlink compiles and starts FlinkTail.java, which follows the table t of a warehouse.
func (f follow) startFlink(ctx context.Context, warehouse string) (_ *worker, err error) {
	if _, err := os.Stat(f.jars); err != nil {
		return nil, fmt.Errorf("no jars of Flink in %s (run `make interop` once, or name their folder with -flink-jars): %w", f.jars, err)
	}
	classes, path := filepath.Join(warehouse, "classes"), filepath.Join(f.jars, "*")
	compile := exec.CommandContext(ctx, "javac", "-d", classes, "-cp", path, filepath.Join("bench", "peer", "java", "FlinkTail.java"))
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w: %s", err, out)
	}
	args := []string{"java", "-Xmx2g"}
	for _, p := range flinkOpens {
		args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	w, err := start(ctx, filepath.Join(warehouse, "flink.log"), "flink", append(args, "-cp", classes+":"+path, "FlinkTail")...)
	if err != nil {
		return nil, err
	}
	if _, err := w.ask("start", warehouse, "db.t", strconv.Itoa(flinkMillis)); err != nil {
		log, _ := os.ReadFile(w.log.Name())
		return nil, errors.Join(fmt.Errorf("%w: %s", err, log[max(0, len(log)-4000):]), w.stop())
	}
	return w, nil
}
