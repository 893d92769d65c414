package engine_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestCommitCurrent: rows are not published under a schema that was replaced before the commit began, and those that are
// given up leave no file. A schema that is put while the snapshot is, is met by the next commit.
func TestCommitCurrent(t *testing.T) {
	mem := storage.NewMem()
	var during atomic.Pointer[func()] // called once, before a snapshot is put
	st := storage.WithFaults(mem, func(op storage.Op) error {
		if f := during.Load(); f != nil && isSnapshotPut(op) && during.CompareAndSwap(f, nil) {
			(*f)()
		}
		return nil
	})
	old := keyedSchema(t, false, map[string]string{"bucket": "2"})
	mustCreate(t, mem, old)
	tab := mustOpen(t, st, engine.Settings{Job: "j", BufferBytes: 1})
	write(t, tab, batchOf(old, plainRows(0, 4)))
	race := func() { alter(t, mem, addAge) }
	during.Store(&race)
	if _, err := tab.CommitCurrent(t.Context(), progress(1)); err != nil {
		t.Fatal(err)
	}
	if s := tab.NewSchema(); s != nil {
		t.Fatalf("schema %d is known before anybody looked", s.ID)
	}
	write(t, tab, batchOf(old, plainRows(2, 8)))
	for range 2 { // it is refused as often as it is asked for
		if _, err := tab.CommitCurrent(t.Context(), progress(2)); !errors.Is(err, engine.ErrNewSchema) {
			t.Fatalf("commit: %v", err)
		}
	}
	if p, _, _ := tab.LastProgress(t.Context()); p.Properties["calve.test"] != "1" {
		t.Fatalf("progress %v", p)
	}
	write(t, tab, batchOf(old, plainRows(8, 9)))
	if err := tab.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files, live := dataFiles(t, mem), liveFiles(t, mem); len(files) != len(live) {
		t.Errorf("files %v, of which %v are live", files, live)
	}
	next := tab.NewSchema()
	if err := tab.Follow(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	write(t, tab, aged(next, 2, 5))
	if _, err := tab.CommitCurrent(t.Context(), progress(2)); err != nil {
		t.Fatal(err)
	}
	want := []string{"2|p|2|new 2|", "3|p|3|new 3|", "4|p|4|new 4|", "<nil>|p|0|old 0|", "<nil>|p|1|old 1|"}
	if got := table(t, mem); !slices.Equal(got, want) {
		t.Errorf("rows %q", got)
	}
	write(t, tab, aged(next, 5, 6)) // the rows have all that is left
	alter(t, mem, schema.DropColumn{Path: []string{"name"}})
	if _, err := tab.CommitCurrent(t.Context(), progress(3)); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, mem)
}

// TestCommitStillPublishes: Commit publishes rows that are made for an older schema; a writer that cannot make them again
// has no other way.
func TestCommitStillPublishes(t *testing.T) {
	st := storage.NewMem()
	old := keyedSchema(t, false, nil)
	mustCreate(t, st, old)
	tab := mustOpen(t, st, engine.Settings{})
	write(t, tab, batchOf(old, plainRows(0, 2)))
	alter(t, st, addAge)
	if _, err := tab.CommitCurrent(t.Context(), engine.Progress{}); !errors.Is(err, engine.ErrNewSchema) {
		t.Fatalf("%v", err)
	}
	if n := metadataFiles(t, st); n != 0 {
		t.Errorf("the commit that was refused left %d files", n)
	}
	commit(t, tab)
	if got := table(t, st); !slices.Equal(got, []string{"<nil>|p|0|old 0|", "<nil>|p|1|old 1|"}) {
		t.Errorf("rows %q", got)
	}
}

// metadataFiles counts what is in the folder of manifests.
func metadataFiles(t *testing.T, st storage.Store) (n int) {
	t.Helper()
	for _, err := range storage.Walk(t.Context(), st, "manifest") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
