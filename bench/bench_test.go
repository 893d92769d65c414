package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// tiny sizes make every benchmark run once in a test.
var tiny = sizes{
	count: 1, per: time.Millisecond, limitPer: time.Millisecond, codecRows: 3000, runRows: 1000, manyFiles: 20, planFiles: 300, lookupRows: 100_000, kafka: 2000,
	tail: 200 * time.Millisecond, commits: 50 * time.Millisecond, busyPerSec: 2000,
}

// TestEveryGroupRuns runs all groups but "sort", which builds a test binary, and looks for figures that are missing.
func TestEveryGroupRuns(t *testing.T) {
	k := &kit{sizes: tiny, dir: t.TempDir()}
	var err error
	if k.limits, err = newLimits(k); err != nil {
		t.Fatal(err)
	}
	var results bytes.Buffer
	r := &run{ctx: t.Context(), kit: k, out: &results, figures: map[key][]float64{}}
	for _, g := range groups {
		if g.name == innerGroup.name {
			continue
		}
		if err := r.group(g); err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
	}
	table := r.table()
	if len(table) < 25 {
		t.Errorf("only %d lines in the table", len(table))
	}
	for _, w := range table {
		if math.IsNaN(w.median) || w.median <= 0 && w.unit != "over-ms" {
			t.Errorf("%s: figure %v", w.title, w.median)
		}
		if hasLimit := !math.IsNaN(w.limit); hasLimit && (w.limit <= 0 || w.ratio <= 0) || w.what == "" {
			t.Errorf("%s: limit %v (%s), ratio %v", w.title, w.limit, w.what, w.ratio)
		}
	}
	for line := range strings.Lines(results.String()) {
		if _, ok := parseSample(line); !ok {
			t.Errorf("not in Go's benchmark format: %q", line)
		}
	}
}

func TestStepsCountTheSame(t *testing.T) {
	calls := map[int]float64{}
	for _, n := range []int{10, 50} {
		g, err := growNames(t.Context(), storage.NewMem(), n)
		if err != nil {
			t.Fatal(err)
		}
		b, end, err := g.tailBench(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := b.op(t.Context(), &clock{}); err != nil {
				t.Fatal(err)
			}
		}
		calls[n] = b.more(nil)[0].value
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if calls[10] != calls[50] || calls[10] == 0 {
		t.Errorf("storage calls of a tail step: %v", calls)
	}
}

// TestModelSeesWrongRows alters what a compaction made, in turn, and the model must notice each of it.
func TestModelSeesWrongRows(t *testing.T) {
	s, err := newTable(thin)
	if err != nil {
		t.Fatal(err)
	}
	runs := makeRuns(s, 3, 500, 1)
	f, err := filesOf(storage.NewMem(), s, 1)
	if err != nil {
		t.Fatal(err)
	}
	job := lsm.Job{Output: topLevel, DropDeletes: true, Full: true}
	for _, r := range runs {
		made, err := f.Flush(t.Context(), bucket0(), []datafile.Rows{r}, nil, r.Seq[0])
		if err != nil {
			t.Fatal(err)
		}
		job.Files = append(made, job.Files...)
	}
	change, err := f.Compact(t.Context(), bucket0(), job)
	if err != nil {
		t.Fatal(err)
	}
	check := func(m *model, files []manifest.DataFile) error {
		return m.check(context.Background(), f, bucket0(), files, true)
	}
	m := newModel(runs)
	if err := check(m, change.Added); err != nil {
		t.Fatal(err)
	}
	if check(m, nil) == nil {
		t.Error("missing rows were not noticed")
	}
	if check(m, append(slices.Clone(change.Added), change.Added...)) == nil {
		t.Error("doubled rows were not noticed")
	}
	older := &model{runs: runs, last: maps.Clone(m.last)}
	for k, p := range m.last {
		if m.kind(p).IsAdd() {
			older.last[k] = place{p.run, (p.row + 1) % int32(runs[p.run].N)}
			break
		}
	}
	if check(older, change.Added) == nil {
		t.Error("a wrong version of a row was not noticed")
	}
	for c := range s.Fields {
		bad := slices.Clone(runs)
		for i, r := range bad {
			bad[i].Cols = slices.Clone(r.Cols)
			bad[i].Cols[c] = array.NewNull(r.N) // as if the column were null
		}
		if check(&model{runs: bad, last: m.last}, change.Added) == nil {
			t.Errorf("a wrong column %d was not noticed", c)
		}
	}
}

func TestRowsAreAsDescribed(t *testing.T) {
	s, err := newTable(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range []int{1, 100} {
		keys := drawKeys(1, 1000, span)
		if len(keys) != 1000 || !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != 1000 {
			t.Errorf("span %d: %d keys, sorted %v", span, len(keys), slices.IsSorted(keys))
		}
		if !slices.Equal(keys, drawKeys(1, 1000, span)) {
			t.Error("keys differ from one run to the next")
		}
	}
	r := makeRuns(s, 1, 20_000, 1)[0]
	if keys := r.Cols[0].(*array.Int64).Int64Values(); slices.IsSorted(keys) {
		t.Error("rows arrive in key order")
	}
	nulls := 0
	for i, c := range r.Cols {
		if f := s.Fields[i]; f.Type.NotNull != (f.Name == "k") {
			t.Errorf("column %s: NOT NULL is %v", f.Name, f.Type.NotNull)
		}
		nulls += c.NullN()
	}
	if share := float64(nulls) / float64(r.N); share < 0.10 || share > 0.16 {
		t.Errorf("%.3f nulls a row", share)
	}
	if size := float64(len(plain(r))) / float64(r.N); size < 85 || size > 105 {
		t.Errorf("%.1f bytes a row", size)
	}
	in, err := sorted(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameRows(in, r); err != "" {
		t.Error(err)
	}
}

// sameRows looks up some rows of one set in another.
func sameRows(a, b datafile.Rows) string {
	at := map[int64]int{}
	for i, k := range b.Cols[0].(*array.Int64).Int64Values() {
		at[k] = i
	}
	last := int64(-1)
	for i, k := range a.Cols[0].(*array.Int64).Int64Values() {
		j, ok := at[k]
		if !ok || k <= last || a.Seq[i] != b.Seq[j] || a.Kinds[i] != b.Kinds[j] {
			return "key, sequence number or kind differs"
		}
		last = k
		for c := range a.Cols {
			if !sameCell(a.Cols[c], i, b.Cols[c], j) {
				return "cell differs"
			}
		}
	}
	return ""
}

func TestSamplesAreGoBenchmarkFormat(t *testing.T) {
	for _, s := range []sample{
		{"Flush/thin/mem", 1, 7, []metric{{123456, "ns/op"}, {2.345, "Mrows/s"}, {0, "B/op"}}},
		{"Compact/rand", 2, 1, []metric{{9.5, "ns/op"}, {0.1234, "x"}}},
	} {
		var b strings.Builder
		if err := writeSample(&b, s); err != nil {
			t.Fatal(err)
		}
		got, ok := parseSample(b.String())
		if !ok || got.name != s.name || got.procs != s.procs || got.n != s.n || len(got.metrics) != len(s.metrics) {
			t.Fatalf("%q became %+v", b.String(), got)
		}
		for i, m := range s.metrics {
			if g := got.metrics[i]; g.unit != m.unit || math.Abs(g.value-m.value) > 0.005*m.value {
				t.Errorf("%v became %v", m, g)
			}
		}
	}
	for _, bad := range []string{"", "PASS", "ok  \tx\t1s", "BenchmarkX", "BenchmarkX\t1\t2", "BenchmarkX\tone\t2 ns/op", "BenchmarkX\t1\ttwo ns/op", "cpu: AMD"} {
		if s, ok := parseSample(bad); ok {
			t.Errorf("%q became %+v", bad, s)
		}
	}
}

func TestStatistics(t *testing.T) {
	if s := spreadOf([]float64{3, 1, 2}); s != (spread{1, 2, 3}) {
		t.Error(s)
	}
	if s := spreadOf([]float64{4, 1, 2, 3}); s != (spread{1, 2.5, 4}) {
		t.Error(s)
	}
	if s := spreadOf(nil); !math.IsNaN(s.median) {
		t.Error(s)
	}
	ds := make([]time.Duration, 100)
	for i := range ds {
		ds[99-i] = time.Duration(i + 1)
	}
	if a, b := quantile(ds, 0.5), quantile(ds, 0.99); a != 50 || b != 99 {
		t.Errorf("p50 %d, p99 %d", a, b)
	}
	for v, want := range map[float64]string{0: "0", 0.12345: "0.1235", 12.345: "12.35", 123.45: "123.5", 12345.6: "12346"} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

func TestTableShowsTheShareOfTheLimit(t *testing.T) {
	r := &run{figures: map[key][]float64{
		{"A", 1, "Mrows/s"}: {1, 2, 3}, {"L", 1, "Mrows/s"}: {4}, {"B", 0, "p50-ms"}: {8}, {"L", 1, "p50-ms"}: {2},
	}}
	r.lines = []line{
		{"A", 1, &shown{title: "fast", unit: "Mrows/s", limit: func(med lookup) (float64, string) { return med("L", 1, "Mrows/s"), "the wall" }}},
		{"B", 0, &shown{title: "soon", unit: "p50-ms", limit: func(med lookup) (float64, string) { return med("L", 1, "p50-ms"), "the disk" }}},
		{"B", 0, &shown{title: "free", unit: "p50-ms", noLimit: "none"}},
	}
	got := markdown(r.table())
	for _, want := range []string{
		"| fast | 1 | **2.00** M rows/s (1.00–3.00) | 4.00 M rows/s: the wall | 50 % |\n",
		"| soon | all | **8.00** ms (8.00–8.00) | 2.00 ms: the disk | 25 % |\n",
		"| free | all | **8.00** ms (8.00–8.00) | none |  |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	var page strings.Builder
	f := facts{cpu: "some processor", commit: "abc", date: "2026-01-02", cores: 2, goVersion: "go1", fs: "ext4"}
	if err := writePage(&page, pageData{Facts: f, Kit: &kit{sizes: whole}, Results: "results/x.txt", Table: got}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{got, "some processor", "5 rounds", "1,000,000 JSON records", "250,000 rows", "results/x.txt"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		args []string
		out  string
		bad  bool
	}{
		{nil, "bench", false},
		{[]string{"-quick"}, "", false},
		{[]string{"-run", "flush"}, "", false},
		{[]string{"-quick", "-o", "x"}, "x", false},
		{[]string{"-run", "("}, "", true},
		{[]string{"flush"}, "", true},
	} {
		s, err := parseFlags(tc.args)
		if (err != nil) != tc.bad || err == nil && s.out != tc.out {
			t.Errorf("%q: %+v, %v", tc.args, s, err)
		}
	}
	if err := mainErr(t.Context(), []string{"-quick", "-run", "no such group", "-dir", t.TempDir()}, io.Discard); err == nil || !strings.Contains(err.Error(), "compact-rand-thin-mem") {
		t.Errorf("unknown group: %v", err)
	}
}
