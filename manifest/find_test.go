package manifest

import (
	"bytes"
	"testing"

	"github.com/calve-io/calve/storage"
)

// TestFindSkipsManifests: a manifest that is not read may have added files that a manifest that is read removes.
func TestFindSkipsManifests(t *testing.T) {
	store := storage.WithCounter(storage.NewMem())
	tab := newKeyed(t, store, nil)
	a, b := file(t, "data-a.parquet", "a", 0, 0, 1, 10), file(t, "data-b.parquet", "b", 0, 0, 1, 10)
	commit(t, tab, Commit{Kind: Append, User: "u", Identifier: 1, Entries: []Entry{a}})
	s := commit(t, tab, Commit{Kind: Overwrite, User: "u", Identifier: 2, Entries: []Entry{gone(a), b}})
	want := func(e *Entry) bool { return bytes.Equal(e.Partition, b.Partition) }
	skipped := 0
	got, err := tab.Find(t.Context(), s, Filter{Identity: want, Manifest: func(m *Meta) bool {
		only := bytes.Equal(m.Partitions.Min, a.Partition) && bytes.Equal(m.Partitions.Max, a.Partition)
		if only {
			skipped++
		}
		return !only
	}})
	if err != nil || len(got) != 1 || got[0].File.Name != b.File.Name || skipped != 1 {
		t.Errorf("%d files, %d manifests skipped, %v", len(got), skipped, err)
	}
}
