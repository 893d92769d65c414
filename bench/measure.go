package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"syscall"
	"time"
)

// clock measures the timed parts of operations: wall time, processor time of the whole process, and what was allocated.
type clock struct {
	from reading
	sum  reading
	laps []time.Duration // wall time of each operation
}

// reading is the state of all counters at one moment, or the difference of two.
type reading struct {
	at             time.Time
	wall, cpu      time.Duration
	bytes, objects uint64
}

// start begins a timed part. What it reads itself happens before.
func (c *clock) start() {
	c.from = reading{cpu: cpuTime()}
	c.from.bytes, c.from.objects = allocated()
	c.from.at = time.Now()
}

// stop ends a timed part.
func (c *clock) stop() {
	wall := time.Since(c.from.at)
	bytes, objects := allocated()
	c.sum.wall += wall
	c.sum.cpu += cpuTime() - c.from.cpu
	c.sum.bytes += bytes - c.from.bytes
	c.sum.objects += objects - c.from.objects
	c.laps = append(c.laps, wall)
}

// cpuTime is the processor time of this process so far, user and system, of all its threads: the garbage collector's
// work is in it, and so is everything that runs in the process beside the thing measured.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allocated() (bytes, objects uint64) {
	s := [2]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/allocs:objects"}}
	metrics.Read(s[:])
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// metric is one figure of a sample, in the units of Go's benchmark format.
type metric struct {
	value float64
	unit  string
}

// sample is one line of results: n operations of one benchmark.
type sample struct {
	name    string
	procs   int
	n       int
	metrics []metric
}

// benchmark is one thing to be measured.
type benchmark struct {
	name  string
	procs int // GOMAXPROCS; 0: all cores
	// rows and bytes are the work of one operation, for rates; 0: there is no such rate.
	rows, bytes int64
	// op does one operation and calls start and stop around what is to be timed.
	op func(ctx context.Context, c *clock) error
	// own takes a sample in its own way, instead of op.
	own func(ctx context.Context, per time.Duration) (sample, error)
	// once: a sample is one operation, however short.
	once bool
	// laps: report the percentiles of single operations.
	laps bool
	// more gives further figures of the sample just taken.
	more func(c *clock) []metric
	// shown and also say which figures stand in the table, and beside which limit; nil: none.
	shown, also *shown
}

// shown is a line of the table.
type shown struct {
	title string
	unit  string // of the figure
	limit func(med lookup) (value float64, what string)
	// noLimit says why there is no limit.
	noLimit string
}

// lookup gives the median of a benchmark's figure in this run; NaN when it was not measured.
type lookup func(name string, procs int, unit string) float64

// rate is the figure that stands for the speed of computing. On one core it is rows per second of processor time, which
// other work on the machine disturbs less than it does wall time.
func rate(procs int) string {
	if procs == 1 {
		return "Mrows/cpu-s"
	}
	return "Mrows/s"
}

// overhead bounds how much longer than its timed part a sample may take.
const overhead = 5

// measure takes one sample of a benchmark: as many operations as fit in the given time, at least one.
func measure(ctx context.Context, b *benchmark, per time.Duration) (sample, error) {
	if b.own != nil {
		return b.own(ctx, per)
	}
	procs := b.procs
	if procs == 0 {
		procs = runtime.NumCPU()
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	runtime.GC()
	var c clock
	begin := time.Now()
	for len(c.laps) == 0 || !b.once && c.sum.wall < per && time.Since(begin) < overhead*per {
		if err := ctx.Err(); err != nil {
			return sample{}, err
		}
		laps := len(c.laps)
		if err := b.op(ctx, &c); err != nil {
			return sample{}, fmt.Errorf("%s: %w", b.name, err)
		}
		if len(c.laps) != laps+1 {
			return sample{}, fmt.Errorf("%s: an operation timed %d parts, want 1", b.name, len(c.laps)-laps)
		}
	}
	return sample{name: b.name, procs: procs, n: len(c.laps), metrics: b.figures(&c)}, nil
}

func (b *benchmark) figures(c *clock) []metric {
	n := float64(len(c.laps))
	wall, cpu := c.sum.wall.Seconds(), c.sum.cpu.Seconds()
	out := []metric{{wall * 1e9 / n, "ns/op"}}
	if b.bytes > 0 {
		out = append(out, metric{float64(b.bytes) * n / wall / 1e6, "MB/s"})
	}
	if b.rows > 0 {
		out = append(out, metric{float64(b.rows) * n / wall / 1e6, "Mrows/s"}, metric{float64(b.rows) * n / cpu / 1e6, "Mrows/cpu-s"})
	}
	out = append(out, metric{float64(c.sum.bytes) / n, "B/op"}, metric{float64(c.sum.objects) / n, "allocs/op"})
	if b.laps {
		out = append(out, metric{ms(quantile(c.laps, 0.5)), "p50-ms"}, metric{ms(quantile(c.laps, 0.99)), "p99-ms"})
	}
	if b.more != nil {
		out = append(out, b.more(c)...)
	}
	return out
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// quantile gives the smallest of the durations that is not below a share q of them.
func quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[max(0, min(len(s)-1, int(math.Ceil(q*float64(len(s))))-1))]
}

// spread is the least, the middle and the largest of the values of one figure over the rounds.
type spread struct{ min, median, max float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Sorted(slices.Values(values))
	mid := s[len(s)/2]
	if len(s)%2 == 0 {
		mid = (s[len(s)/2-1] + mid) / 2
	}
	return spread{s[0], mid, s[len(s)-1]}
}
