package main

import (
	"strings"
	"testing"
)

// TestCalveSide: every workload runs, and what is read is the same before and after the compaction: one row for each
// key. The other side is held against it in each measured round.
func TestCalveSide(t *testing.T) {
	for _, w := range workloads {
		d := makeData(400, w.sparse)
		keys := map[int64]bool{}
		for _, rows := range d {
			for _, x := range rows {
				keys[x.k] = true
			}
		}
		times, sums, err := measure(t.Context(), &calve{dir: t.TempDir(), data: d}, "t", merged(common, w.options))
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		if sums[0] != sums[1] || sums[0].rows != int64(len(keys)) || sums[0].check == 0 {
			t.Errorf("%s: read %v, want %d rows", w.name, sums, len(keys))
		}
		rep := report{config: config{rounds: 1}, rows: commits * 400}
		rep.add(w.name, "calve", times)
		rep.add(w.name, "paimon-java", times)
		if page := rep.page(t.Context()); strings.Count(page, "| 1.0 |") != 2*len(phases)/2 {
			t.Errorf("%s: equal times are not a ratio of 1:\n%s", w.name, page)
		}
	}
}

// TestNoJars: the error says where the jars come from.
func TestNoJars(t *testing.T) {
	if _, err := startJava(t.Context(), t.TempDir()+"/none", t.TempDir(), makeData(1, false)); err == nil || !strings.Contains(err.Error(), "make interop") {
		t.Errorf("without jars: %v", err)
	}
}
