package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report gathers the rounds.
type report struct {
	config config
	rows   int64 // that each phase takes in
	lines  []line
}

// line is one workload and engine.
type line struct {
	workload, engine string
	rounds           [][4]timing
}

func (r *report) add(workload, engine string, t [4]timing) {
	for i := range r.lines {
		if l := &r.lines[i]; l.workload == workload && l.engine == engine {
			l.rounds = append(l.rounds, t)
			return
		}
	}
	r.lines = append(r.lines, line{workload, engine, [][4]timing{t}})
}

func (r *report) of(workload, engine string) line {
	for _, l := range r.lines {
		if l.workload == workload && l.engine == engine {
			return l
		}
	}
	return line{}
}

// median of a phase's rates, in million input rows a second, with the least and the most.
func (r *report) rate(l line, phase int, of func(timing) float64) (med, lo, hi float64) {
	var v []float64
	for _, t := range l.rounds {
		v = append(v, float64(r.rows)/1e6/max(of(t[phase]), 1e-9))
	}
	slices.Sort(v)
	if len(v) == 0 {
		return 0, 0, 0
	}
	return v[len(v)/2], v[0], v[len(v)-1]
}

func wall(t timing) float64 { return t.wall }
func cpu(t timing) float64  { return t.cpu }

// page is the result as Markdown.
func (r *report) page(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# calve beside Paimon Java\n\nCommit %s, %s, %s, %d cores. Median of %d rounds, least and most beside it, in million input rows a second\n"+
		"(%d rows in eight commits of different keys; a fifth are older versions). Both write Parquet with zstd 1 into one\n"+
		"bucket on the same disk, in turn; a round counts only if both read the same rows. Written by `make bench-peer`.\n",
		commit(ctx), time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), r.config.rounds, r.rows)
	for _, w := range workloads {
		c, j := r.of(w.name, "calve"), r.of(w.name, "paimon-java")
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| | calve | Paimon Java | ratio | ratio per processor second |\n|---|---|---|--:|--:|\n", w.name, strings.ToUpper(w.about[:1])+w.about[1:])
		for p, name := range phases {
			cm, clo, chi := r.rate(c, p, wall)
			jm, jlo, jhi := r.rate(j, p, wall)
			cc, _, _ := r.rate(c, p, cpu)
			jc, _, _ := r.rate(j, p, cpu)
			fmt.Fprintf(&b, "| %s | **%.2f** (%.2f–%.2f) | %.2f (%.2f–%.2f) | %.1f | %.1f |\n", name, cm, clo, chi, jm, jlo, jhi, cm/jm, cc/jc)
		}
	}
	return b.String()
}

// commit is the version that is measured.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
