package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

func newArena(t *testing.T, d *duel, keys int) *arena {
	t.Helper()
	return &arena{ctx: t.Context(), d: d, dir: t.TempDir(), keys: keys, rep: &report{}, progress: io.Discard}
}

// TestLookupsOurs: ten of eleven keys are found.
func TestLookupsOurs(t *testing.T) {
	a := newArena(t, duels[0], 11_000)
	dir, _, err := a.load("t", a.keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := storage.NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	cache := reader.NewLookupCache(reader.LookupCacheConfig{Dir: filepath.Join(a.dir, "lookup"), DirBytes: 1 << 30})
	defer cache.Close()
	l, err := lab.Reader(st).OpenLookup(t.Context(), reader.Query{}, cache)
	if err != nil {
		t.Fatal(err)
	}
	const n = 2500
	keys := lookupKeys(l, 1, n, a.keys)
	found, err := lookUp(t.Context(), l, keys)
	if err != nil || len(keys) != 3 || found[0] < n*8/10 || found[0] > n*97/100 || found[1] == 0 {
		t.Errorf("%d batches, found %v, %v", len(keys), found, err)
	}
}

// TestChangesOurs: two tables of the same files get the same rows and tell as many changes; a third does not.
func TestChangesOurs(t *testing.T) {
	a := newArena(t, duels[1], 10_000)
	from, _, err := a.load("t", a.keys, map[string]string{"changelog-producer": "lookup"})
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{from, filepath.Join(a.dir, "b"), filepath.Join(a.dir, "c")}
	for _, d := range dirs[1:] {
		if err := copyTable(from, d); err != nil {
			t.Fatal(err)
		}
	}
	for i, d := range dirs {
		u, err := a.openUpdated(d, a.keys)
		if err != nil {
			t.Fatal(err)
		}
		took, err := u.round(t.Context(), 0, 2+i/2, 300)
		if err != nil || took.wall <= 0 {
			t.Fatal(took, err)
		}
		if err := u.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.sameTables(dirs[0], dirs[1]); err != nil {
		t.Error(err)
	}
	if err := a.sameTables(dirs[0], dirs[2]); err == nil {
		t.Error("other updates make the same table")
	}
}

// TestDuelReport: the page and the line tell the ratios.
func TestDuelReport(t *testing.T) {
	a := newArena(t, duels[0], 1234)
	f := a.begin(2_000_000)
	f.add(timing{1, 1}, timing{4, 3})
	f.more = " and=more"
	if got := a.rep.line(); got != "peers: lookups_vs_paimon=3.00[3.00..3.00] and=more" {
		t.Error(got)
	}
	if page := a.rep.page(); !strings.Contains(page, "of 1,234 rows") || !strings.Contains(page, "| lookups | **2.0 (2.0–2.0)** | 0.50 (0.50–0.50) | **4.0 (4.0–4.0)** | 3.0 (3.0–3.0) |") {
		t.Error(page)
	}
	if !strings.Contains(a.rep.lines(), "BenchmarkPeers/lookups/duel/paimon-java-0 1 4000000000 ns/op") {
		t.Error(a.rep.lines())
	}
}
