package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// watch measures while the others work.
type watch struct {
	set    settings
	store  *storage.Counter
	dir    string
	begin  time.Time
	table  *engine.Table
	writer *writer
	scans  atomic.Int64
	folded atomic.Int64 // snapshots whose changes were folded and compared

	mu      sync.Mutex // guards what follows
	lags    []time.Duration
	errs    []string
	samples []sample
}

// sample is the state at one moment.
type sample struct {
	level0   int64 // files
	files    int64 // on disk, of all kinds
	live     int64 // bytes of the newest snapshot's data files
	top      int64 // those on the highest level
	rss      int64 // bytes
	snapshot int64
}

func (w *watch) failed(op string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, op+": "+err.Error())
}

func (w *watch) tailed(lag time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lags = append(w.lags, lag)
}

// run takes a sample each second, and writes a line of the report now and then.
func (w *watch) run(ctx context.Context, out io.Writer) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	next := w.begin.Add(w.set.report)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s, err := w.sample()
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		w.mu.Lock()
		w.samples = append(w.samples, s)
		errs := w.errs
		w.mu.Unlock()
		if len(errs) > 0 {
			return fmt.Errorf("in the background: %s", strings.Join(errs, "; "))
		}
		if time.Now().After(next) {
			next = next.Add(w.set.report)
			fmt.Fprintf(out, "%6s  snapshot %d, level 0: %d files, live %d MiB, %d files on disk, RSS %d MiB, %d scans\n",
				time.Since(w.begin).Round(time.Second), s.snapshot, s.level0, s.live>>20, s.files, s.rss>>20, w.scans.Load())
		}
	}
}

func (w *watch) sample() (s sample, err error) {
	m := w.table.Metrics()
	s.snapshot = m.Snapshot
	for l, n := range m.Bytes {
		s.live += n
		if l == len(m.Bytes)-1 {
			s.top = n
		}
	}
	if len(m.Files) > 0 {
		s.level0 = m.Files[0]
	}
	if s.rss, err = residentBytes(); err != nil {
		return s, err
	}
	err = filepath.WalkDir(w.dir, func(_ string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // expired meanwhile
		}
		if err == nil && !d.IsDir() {
			s.files++
		}
		return err
	})
	return s, err
}

// residentBytes is what the process holds in memory, as the system sees it, or where it does not say, the heap.
func residentBytes() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if os.IsNotExist(err) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.Sys - m.HeapReleased), nil
	}
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return resident * int64(os.Getpagesize()), nil
}

// final verifies the table and its stream, compacts it to know how large its rows are, and writes the last line of the report.
func (w *watch) final(ctx context.Context, out io.Writer) error {
	counts, m := w.store.Counts(), w.table.Metrics()
	if err := w.table.Compact(ctx, true); err != nil {
		return err
	}
	rep, err := lab.Reader(w.store).Verify(ctx, reader.VerifySpec{Data: true})
	if err != nil {
		return err
	}
	if !rep.OK() {
		return fmt.Errorf("verify finds: %s", strings.Join(rep.Problems, "; "))
	}
	all, err := w.finalStream(ctx)
	if err != nil {
		return fmt.Errorf("verify of the stream: %w", err)
	}
	dense := int64(0)
	for _, n := range w.table.Metrics().Bytes {
		dense += n
	}
	written := counts.Of(storage.OpWrite).Bytes
	level0 := written - m.CompactBytesOut // and metadata, which is small
	var live []int64
	for _, s := range w.samples[len(w.samples)*3/4:] {
		live = append(live, s.live)
	}
	p := func(v []time.Duration, q float64) float64 { return float64(quantile(v, q).Microseconds()) / 1000 }
	grew := w.grew()
	fmt.Fprintf(out, "soak: seed=%d rows=%d commits=%d scans=%d tailed=%d folded=%d wrong=0 level0_max=%d write_amp=%.1f space_amp=%.2f "+
		"commit_p50_ms=%.0f commit_p99_ms=%.0f tail_p99_ms=%.0f behind_max_ms=%d stall_ms=%d compactions=%d rss_max_mib=%d grew=%s\n",
		w.set.seed, w.writer.version, len(w.writer.commits), w.scans.Load(), len(w.lags), w.folded.Load()+all.Snapshots, w.most(func(s sample) int64 { return s.level0 }),
		float64(written)/float64(max(1, level0)), float64(quantile(live, 0.5))/float64(max(1, dense)),
		p(w.writer.commits, 0.5), p(w.writer.commits, 0.99), p(w.lags, 0.99), w.writer.behind.Milliseconds(), m.StallTime.Milliseconds(), m.Compactions,
		w.most(func(s sample) int64 { return s.rss })>>20, grew)
	if grew != "nothing" {
		return fmt.Errorf("without bound: %s", grew)
	}
	return nil
}

func (w *watch) most(of func(sample) int64) (n int64) {
	for _, s := range w.samples {
		n = max(n, of(s))
	}
	return n
}

// Growth is looked for when there are that many samples, and is an increase of the median from the second quarter of the
// samples to the last by more than that many percent. In the first quarter caches fill and levels are built up.
const (
	growSamples = 120
	growPercent = 30
)

// grew names what grew all the time.
func (w *watch) grew() string {
	if len(w.samples) < growSamples {
		return "nothing"
	}
	var out []string
	for _, of := range []struct {
		name string
		of   func(sample) int64
	}{
		{"rss", func(s sample) int64 { return s.rss }},
		{"files", func(s sample) int64 { return s.files }},
		{"level0", func(s sample) int64 { return s.level0 + 5 }},
	} {
		n := len(w.samples)
		early, late := w.median(n/4, n/2, of.of), w.median(3*n/4, n, of.of)
		if late > early*(100+growPercent)/100 {
			out = append(out, fmt.Sprintf("%s(%d→%d)", of.name, early, late))
		}
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, ",")
}

func (w *watch) median(from, to int, of func(sample) int64) int64 {
	var v []int64
	for _, s := range w.samples[from:to] {
		v = append(v, of(s))
	}
	return quantile(v, 0.5)
}

func quantile[T ~int64](v []T, q float64) T {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

// finalStream folds the changes of all snapshots that are left. It holds them by a lease: expiry goes on, and may be faster.
func (w *watch) finalStream(ctx context.Context) (all *reader.StreamReport, err error) {
	rd := lab.Reader(w.store)
	first, err := rd.Meta().Earliest(ctx)
	if err != nil {
		return nil, err
	}
	release, err := rd.Lease(ctx, first.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release(context.WithoutCancel(ctx))) }()
	all, err = rd.VerifyStream(ctx, reader.StreamSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: first.ID}, Every: back})
	if err != nil {
		return nil, err
	}
	return all, streamError(all)
}
