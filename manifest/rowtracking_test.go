package manifest

import (
	"context"
	"fmt"
	"path"
	"slices"
	"testing"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// trackedFile makes an entry as a writer of an append table with row tracking does.
func trackedFile(name string, rows int64, src FileSource) Entry {
	zero := int64(0)
	return Entry{Kind: Add, Partition: binrow.EmptyRow, TotalBuckets: -1, File: DataFile{
		Name: name, Size: 100, Rows: rows, MinKey: binrow.EmptyRow, MaxKey: binrow.EmptyRow, ValueStatsCols: []string{},
		MinSeq: 7, MaxSeq: 6 + rows, DeleteRows: &zero, Source: &src,
	}}
}

// TestRowTracking: two writers take turns, each on top of what it saw last, so that every second commit loses a race and
// makes its entries anew. Ids follow each other without a gap, and no manifest is left over.
func TestRowTracking(t *testing.T) {
	s, err := schema.New(schema.Spec{Columns: []schema.Column{{Name: "v", Type: mustType(t, "STRING")}},
		Options: map[string]string{"bucket": "-1", "row-tracking.enabled": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	store, ctx := storage.NewMem(), context.Background()
	if err := Create(ctx, store, s); err != nil {
		t.Fatal(err)
	}
	var tabs []*Table
	lost := 0
	for i := range 2 {
		env := testEnv(uint64(i))
		env.After = noWait
		tabs = append(tabs, Open(store, env))
	}
	next := int64(0)
	for n := range 10 {
		entries := []Entry{trackedFile(fmt.Sprintf("a%d", n), int64(n+1), FromAppend), trackedFile(fmt.Sprintf("b%d", n), 3, FromAppend)}
		snap := commit(t, tabs[n%2], Commit{User: fmt.Sprint("user", n%2), Identifier: int64(n), Entries: entries, Lost: func() { lost++ }})
		got, err := tabs[0].Delta(ctx, snap)
		if err != nil {
			t.Fatal(err)
		}
		assigned := Assigned(entries, snap)
		for i, rows := range []int64{int64(n + 1), 3} {
			for _, e := range []Entry{got[i], assigned[i]} {
				if f := e.File; f.Name != entries[i].File.Name || f.FirstRowID == nil || *f.FirstRowID != next || f.MinSeq != snap.ID || f.MaxSeq != snap.ID {
					t.Errorf("snapshot %d: %s has first row id %v, want %d, sequence numbers %d to %d", snap.ID, f.Name, f.FirstRowID, next, f.MinSeq, f.MaxSeq)
				}
			}
			next += rows
		}
		if *snap.NextRowID != next || entries[0].File.FirstRowID != nil {
			t.Errorf("snapshot %d: next row id %d, want %d", snap.ID, *snap.NextRowID, next)
		}
	}
	if lost < 8 {
		t.Errorf("only %d races were lost", lost)
	}
	// A compaction brings no new rows.
	live, err := tabs[0].Live(ctx, must(tabs[0].Latest(ctx)), nil)
	if err != nil {
		t.Fatal(err)
	}
	made := trackedFile("c", live[0].File.Rows+live[1].File.Rows, FromCompact)
	made.File.WriteCols = []string{"v", schema.RowIDColumn, schema.SequenceColumn}
	snap := commit(t, tabs[0], Commit{Kind: Compact, Identifier: 99, Entries: []Entry{gone(live[0]), gone(live[1]), made}})
	if delta, err := tabs[0].Delta(ctx, snap); err != nil || len(delta) != 3 || delta[2].File.FirstRowID != nil || delta[2].File.MinSeq != 7 || *snap.NextRowID != next {
		t.Errorf("compaction: %+v, %v, next row id %d", delta, err, *snap.NextRowID)
	}
	checkManifestFolder(t, store, tabs[0])
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// checkManifestFolder holds that every file in it is named by a snapshot or one of its lists.
func checkManifestFolder(t *testing.T, store storage.Store, tab *Table) {
	t.Helper()
	ctx := context.Background()
	named := map[string]bool{}
	for s, err := range tab.EachSnapshot(ctx, 1, must(tab.Latest(ctx)).ID) {
		if err != nil {
			t.Fatal(err)
		}
		named[s.BaseManifestList], named[s.DeltaManifestList] = true, true
		for _, m := range must(tab.manifests(ctx, s)) {
			named[m.Name] = true
		}
	}
	var over []string
	for info, err := range store.List(ctx, "manifest") {
		if err != nil {
			t.Fatal(err)
		}
		if name := path.Base(info.Name); !named[name] {
			over = append(over, name)
		}
	}
	if slices.Sort(over); len(over) > 0 {
		t.Errorf("left over: %v", over)
	}
}
