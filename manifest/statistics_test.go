package manifest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestTableStatistics: the statistics that another engine's ANALYZE has left are named by every later snapshot until the
// schema changes, and their file stays as long as a snapshot names it (paimon-format §2.3 step 7).
func TestTableStatistics(t *testing.T) {
	store := storage.NewMem()
	tab := newKeyed(t, store, nil)
	const name, path = "stat-0a-0", "statistics/stat-0a-0"
	first := commit(t, tab, Commit{Identifier: 1, Entries: []Entry{file(t, "a", "x", 0, 0, 1, 2)}})
	if first.Statistics != nil {
		t.Fatalf("statistics %q before there are any", *first.Statistics)
	}
	analyzed := *first // as Flink's and Spark's ANALYZE TABLE publish it
	stats := name
	analyzed.ID, analyzed.CommitKind, analyzed.CommitUser, analyzed.Statistics = 2, Analyze, "spark", &stats
	data, err := encodeSnapshot(&analyzed)
	if err != nil {
		t.Fatal(err)
	}
	for p, text := range map[string][]byte{path: []byte("{}"), "snapshot/snapshot-2": data} {
		if err := store.PutIfAbsent(t.Context(), p, text); err != nil {
			t.Fatal(err)
		}
	}
	expire := func() {
		t.Helper()
		if _, err := tab.Expire(t.Context(), Retention{Min: 1, Max: 1}, time.UnixMilli(1_800_000_000_000)); err != nil {
			t.Fatal(err)
		}
	}
	there := func() bool { return slices.Contains(listing(t, store), path) }
	for id := int64(2); id < 5; id++ {
		s := commit(t, tab, Commit{Identifier: id, Entries: []Entry{file(t, strings.Repeat("b", int(id)), "x", 0, 0, 10*id, 10*id+1)}})
		if s.Statistics == nil || *s.Statistics != name {
			t.Fatalf("snapshot %d does not name the statistics", s.ID)
		}
		if expire(); !there() {
			t.Fatalf("an expiry has removed the statistics that snapshot %d names", s.ID)
		}
	}
	if _, _, err := tab.AlterSchema(t.Context(), []schema.Change{schema.AddColumn{Path: []string{"w"}, Type: schema.Type{Root: schema.Int}}}); err != nil {
		t.Fatal(err)
	}
	if s := commit(t, tab, Commit{Identifier: 9, Entries: []Entry{file(t, "c", "x", 0, 0, 90, 91)}}); s.Statistics != nil {
		t.Errorf("the snapshot of another schema names statistics %q", *s.Statistics)
	}
	if expire(); there() {
		t.Error("statistics that no snapshot names are still there")
	}
}
