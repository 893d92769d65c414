package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// groups in the order in which they run.
var groups = slices.Concat([]group{
	codecGroup, innerGroup, mergeGroup, flushGroup,
	compactGroup("rand", 0, "mem", 1, 2), compactGroup("clus", 0, "mem", 1, 2), compactGroup("rand", 1, "mem", 1), compactGroup("rand", 0, "local", 2),
}, setGroups(), []group{
	commitGroup, stepGroup("tail"), catchUpGroup, stepGroup("export"), planGroup, lookupGroup, latencyGroup, kafkaGroup,
})

// run is one run of the benchmarks: what was measured so far.
type run struct {
	ctx     context.Context
	kit     *kit
	only    *regexp.Regexp // names of the groups to run; nil: all
	out     io.Writer      // where results go
	profile string         // where processor profiles of the groups go; "": nowhere
	figures map[key][]float64
	lines   []line
}

// key names the values of one figure over the rounds.
type key struct {
	name  string
	procs int
	unit  string
}

// line is a benchmark that is shown in the table.
type line struct {
	name  string
	procs int
	shown *shown
}

func (r *run) all() error {
	r.figures = map[key][]float64{}
	ran := 0
	for _, g := range groups {
		if r.only != nil && !r.only.MatchString(g.name) {
			continue
		}
		ran++
		if err := r.group(g); err != nil {
			return fmt.Errorf("group %s: %w", g.name, err)
		}
	}
	if ran == 0 {
		return fmt.Errorf("no group matches %s: the groups are %s", r.only, groupNames())
	}
	return nil
}

func (r *run) group(g group) (err error) {
	benches, closing, err := g.open(r.kit, r)
	if closing != nil {
		defer func() { err = errors.Join(err, closing()) }()
	}
	if err != nil {
		return err
	}
	var limits []*benchmark
	for _, l := range g.limits {
		b, err := r.kit.limits.bench(l)
		if err != nil {
			return err
		}
		limits = append(limits, b)
	}
	for _, b := range benches {
		for _, sh := range []*shown{b.shown, b.also} {
			if sh != nil {
				r.lines = append(r.lines, line{b.name, b.procs, sh})
			}
		}
	}
	if r.profile != "" {
		stop, err := startProfile(filepath.Join(r.profile, g.name+".prof"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	for range r.kit.count {
		for _, b := range limits {
			if err := r.take(b, r.kit.limitPer); err != nil {
				return err
			}
		}
		for _, b := range benches {
			if err := r.take(b, r.kit.per); err != nil {
				return err
			}
		}
	}
	return nil
}

// take measures a benchmark once and writes the result down.
func (r *run) take(b *benchmark, per time.Duration) error {
	var s sample
	var err error
	// The label separates the benchmarks of a group in its profile: go tool pprof -tagfocus bench=Flush/thin/mem-1 …
	pprof.Do(r.ctx, pprof.Labels("bench", fmt.Sprintf("%s-%d", b.name, b.procs)), func(ctx context.Context) {
		s, err = measure(ctx, b, per)
	})
	if err != nil {
		return err
	}
	r.note(b.procs, s)
	return writeSample(r.out, s)
}

// note keeps the figures of a sample. procs is the benchmark's own number, 0 for all cores.
func (r *run) note(procs int, s sample) {
	for _, m := range s.metrics {
		k := key{s.name, procs, m.unit}
		r.figures[k] = append(r.figures[k], m.value)
	}
}

// spread gives the values of a figure over the rounds.
func (r *run) spread(name string, procs int, unit string) spread {
	return spreadOf(r.figures[key{name, procs, unit}])
}

// median implements lookup.
func (r *run) median(name string, procs int, unit string) float64 {
	return r.spread(name, procs, unit).median
}

// row is a line of the table with its figures.
type row struct {
	title string
	cores string
	unit  string
	spread
	limit float64 // NaN: none
	what  string
	ratio float64 // share of the limit that is reached
}

func (r *run) table() []row {
	var out []row
	for _, l := range r.lines {
		w := row{title: l.shown.title, cores: cores(l.procs), unit: l.shown.unit, spread: r.spread(l.name, l.procs, l.shown.unit),
			limit: math.NaN(), what: l.shown.noLimit, ratio: math.NaN()}
		if l.shown.limit != nil {
			w.limit, w.what = l.shown.limit(r.median)
			w.ratio = w.median / w.limit
			if lowIsGood(w.unit) {
				w.ratio = 1 / w.ratio
			}
		}
		out = append(out, w)
	}
	return out
}

func cores(procs int) string {
	if procs == 0 {
		return "all"
	}
	return fmt.Sprint(procs)
}

func lowIsGood(unit string) bool { return strings.HasSuffix(unit, "-ms") }

func startProfile(name string) (func() error, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

func groupNames() []string {
	var out []string
	for _, g := range groups {
		out = append(out, g.name)
	}
	return out
}
