package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// Some steps of lsm are its own affair and cannot be called from here. Its own benchmarks measure them; they are run
// as a test binary, one benchmark a sample.
const lsmPackage = "github.com/calve-io/calve/lsm"

var innerGroup = group{name: "sort", limits: []limitOf{{memcpy, 1}}, open: openInner}

func openInner(k *kit, r *run) ([]*benchmark, func() error, error) {
	bin := filepath.Join(k.dir, "lsm.test")
	if msg, err := exec.CommandContext(r.ctx, "go", "test", "-c", "-o", bin, lsmPackage).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("go test -c %s: %w: %s", lsmPackage, err, msg)
	}
	var out []*benchmark
	for _, v := range []struct {
		name, pattern, title string
	}{
		{"Sort/bigint/250000", "^BenchmarkSort$/^bigint$/^250000$", "sort 250,000 random BIGINT keys"},
		{"Sort/prefixed/250000", "^BenchmarkSort$/^prefixed$/^250000$", "sort 250,000 strings with a common prefix"},
		{"MergePlan/rand", "^BenchmarkMergePlan$/^rand$", "plan a merge of 8 runs, random keys"},
		{"MergePlan/clus", "^BenchmarkMergePlan$/^clus$", "plan a merge of 8 runs, clustered keys"},
	} {
		out = append(out, &benchmark{
			name: v.name, procs: 1,
			own: func(ctx context.Context, per time.Duration) (sample, error) {
				return runTestBinary(ctx, bin, v.name, v.pattern, per)
			},
			shown: &shown{title: v.title, unit: "Mrows/s", limit: func(med lookup) (float64, string) {
				return med(memcpy, 1, "MB/s") / 16, "copying 16 bytes a row once"
			}},
		})
	}
	return out, nil, nil
}

// runTestBinary runs one benchmark of a test binary on one core.
func runTestBinary(ctx context.Context, bin, name, pattern string, per time.Duration) (sample, error) {
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", per.String(), "-test.cpu", "1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w: %s", name, err, errs.Bytes())
	}
	for l := range bytes.Lines(text) {
		if s, ok := parseSample(string(l)); ok && s.name == name {
			return s, nil
		}
	}
	return sample{}, fmt.Errorf("%s: %s has no such benchmark any more: correct the list in bench/inner.go", name, lsmPackage)
}
