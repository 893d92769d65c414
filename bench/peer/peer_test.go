package main

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/bench/dataset"
)

// TestCalveSide: every data set goes through a life, one row for each key is read, the same before and after the
// compaction. The others are held against it in each round that is measured.
func TestCalveSide(t *testing.T) {
	for _, set := range dataset.Sets {
		w, err := newJob(set, 300/float64(set.Rows))
		if err != nil {
			t.Fatal(err)
		}
		found := map[int64]bool{}
		for _, rows := range w.commits {
			for _, b := range rows {
				for _, k := range b.Column(0).(*array.Int64).Int64Values() {
					found[k] = true
				}
			}
		}
		l, err := (&calve{dir: t.TempDir(), job: w}).life(t.Context(), "t", nil)
		if err != nil {
			t.Fatalf("%s: %v", set.Name, err)
		}
		if l.sums[0] != l.sums[1] || l.sums[0].rows != int64(len(found)) || l.sums[0].check == 0 {
			t.Errorf("%s: read %v, want %d rows", set.Name, l.sums, len(found))
		}
		for _, phase := range []string{write, mergeRead, compact, read, compact1, codec1} {
			if l.times[phase].wall <= 0 {
				t.Errorf("%s: %s took no time", set.Name, phase)
			}
		}
	}
}

// TestReport: ratios are taken round by round, and the page, the line and the picture tell them.
func TestReport(t *testing.T) {
	set, err := dataset.Find("random")
	if err != nil {
		t.Fatal(err)
	}
	r := &report{cores: 2, rounds: 3, date: "2026-01-02", commit: "abc"}
	r.begin(&job{set: set, rows: 1e6})
	for i := 1; i <= 3; i++ {
		ours, theirs := map[string]timing{}, map[string]timing{}
		for _, p := range phases {
			ours[p] = timing{wall: float64(i), cpu: float64(i)}
			theirs[p] = timing{wall: float64(3 * i), cpu: float64(2 * i)}
		}
		ours[compact1], ours[codec1] = timing{1, 1}, timing{0.9, 0.9}
		ours[dedup(1)], ours[dedup(2)] = timing{1.5, 1.5}, timing{8, 8}
		r.add(ours, theirs)
	}
	want := "peers: l0_write_vs_paimon=2.00[2.00..2.00] compact_random_vs_paimon=2.00[2.00..2.00] compact_random_vs_duckdb=1.50[1.50..1.50] " +
		"merge_read_vs_paimon=2.00[2.00..2.00] compact_vs_codec_limit=0.90[0.90..0.90]"
	if got := r.line(); got != want {
		t.Errorf("line\n%s\nwant\n%s", got, want)
	}
	page := r.page()
	for _, want := range []string{"| write | **0.50 (0.33–1.00)** | 0.17 (0.11–0.33) | **3.0 (3.0–3.0)** | 2.0 (2.0–2.0) |", "DuckDB, 2 threads", "4.0 (2.7–8.0)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q:\n%s", want, page)
		}
	}
	if strings.Count(r.lines(), "\nBenchmarkPeers/random/") != 3*(8+4) {
		t.Errorf("lines:\n%s", r.lines())
	}
	svg, err := r.picture()
	if err != nil || !strings.HasPrefix(string(svg), "<svg") {
		t.Errorf("picture: %v: %.60s", err, svg)
	}
}

// TestNoPeers: errors say where the peers come from.
func TestNoPeers(t *testing.T) {
	if _, err := startJava(t.Context(), t.TempDir()+"/none", t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "make interop") {
		t.Errorf("without jars: %v", err)
	}
	if _, err := startDuck(t.Context(), t.TempDir()+"/none", ""); err == nil || !strings.Contains(err.Error(), "make interop") {
		t.Errorf("without DuckDB: %v", err)
	}
}
