package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// opened counts the index files that are opened.
type opened struct {
	mu    sync.Mutex
	names []string
}

func (o *opened) store(st storage.Store) storage.Store {
	return storage.WithFaults(st, func(op storage.Op) error {
		if (op.Kind == storage.OpOpen || op.Kind == storage.OpReadAll) && strings.HasPrefix(op.Name, "index/") {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.names = append(o.names, op.Name)
		}
		return nil
	})
}

// take gives the number since the last call.
func (o *opened) take() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.names)
	o.names = nil
	return n
}

// partRows are rows of one partition with the ids from..to-1.
func partRows(part string, from, to int64, name string) []row {
	rows := ids(from, to, name)
	for i := range rows {
		rows[i].part = part
	}
	return rows
}

func partitionedDynamic(t *testing.T) *schema.Schema {
	return keyedSchema(t, true, map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "5"})
}

// TestDynamicReadsWhatItNeeds: the index of a partition is read when its first row comes, and forgotten when it is quiet
// and there are many keys. Nobody's key changes its bucket by that.
func TestDynamicReadsWhatItNeeds(t *testing.T) {
	disk, seen := storage.NewMem(), &opened{}
	s := partitionedDynamic(t)
	mustCreate(t, disk, s)
	st := seen.store(disk)
	tab := mustOpen(t, st, engine.Settings{})
	want := map[string]string{}
	write := func(n int, rows []row) {
		t.Helper()
		writeCommit(t, tab, s, n, rows)
		apply(want, rows)
	}
	for p := range 8 { // two index files each
		write(p, partRows(fmt.Sprint("p", p), 0, 7, "a"))
	}
	if n := seen.take(); n != 0 {
		t.Errorf("%d index files were read for new partitions", n)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	tab = mustOpen(t, st, engine.Settings{IndexKeys: 20})
	if n := seen.take(); n != 0 {
		t.Errorf("%d index files were read for opening the table", n)
	}
	for i, c := range []struct{ part, files int }{{0, 2}, {0, 0}, {1, 2}, {0, 0}, {2, 2}, {0, 0}, {1, 2}, {2, 2}, {0, 2}} {
		write(100+i, partRows(fmt.Sprint("p", c.part), 0, 7+int64(i/8), fmt.Sprint("b", i))) // the last one has a new key
		if n := seen.take(); n != c.files {
			t.Errorf("%d: %d index files were read for rows of p%d, want %d", i, n, c.part, c.files)
		}
	}
	// A batch of all partitions needs them all at once.
	var all []row
	for p := range 8 {
		all = append(all, partRows(fmt.Sprint("p", p), 0, 9, "c")...)
	}
	write(200, all)
	if n := seen.take(); n < 12 || n > 16 {
		t.Errorf("%d index files were read for eight partitions", n)
	}
	mustVerify(t, disk)
	if got := contents(t, disk); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestDynamicQuietPartitions: after many commits a partition is forgotten, whatever room there is.
func TestDynamicQuietPartitions(t *testing.T) {
	disk, seen := storage.NewMem(), &opened{}
	s := partitionedDynamic(t)
	mustCreate(t, disk, s)
	tab := mustOpen(t, seen.store(disk), engine.Settings{})
	writeCommit(t, tab, s, 0, partRows("old", 0, 3, "a"))
	for i := range 101 {
		writeCommit(t, tab, s, i+1, partRows("new", 0, 1, fmt.Sprint(i)))
	}
	writeCommit(t, tab, s, 200, partRows("old", 0, 3, "b"))
	if n := seen.take(); n != 1 {
		t.Errorf("%d index files were read", n)
	}
	mustVerify(t, disk)
}

// TestDynamicForeignPartitions: two writers may give keys their buckets at the same time as long as these are in
// different partitions, and find what the other did; in one partition they may not.
func TestDynamicForeignPartitions(t *testing.T) {
	st := storage.NewMem()
	s := partitionedDynamic(t)
	mustCreate(t, st, s)
	one, two := mustOpen(t, st, engine.Settings{}), mustOpen(t, st, engine.Settings{})
	writeCommit(t, one, s, 1, partRows("x", 0, 3, "a"))
	writeCommit(t, two, s, 1, partRows("y", 0, 3, "a"))
	writeCommit(t, one, s, 2, partRows("x", 2, 6, "b"))
	writeCommit(t, two, s, 2, partRows("x", 3, 9, "c")) // reads what the other has assigned
	writeCommit(t, one, s, 3, partRows("y", 2, 6, "d"))
	if err := one.Write(t.Context(), batchOf(s, partRows("x", 8, 12, "e"))); err != nil {
		t.Fatal(err)
	}
	writeCommit(t, two, s, 3, partRows("x", 9, 10, "f"))
	if _, err := one.Commit(t.Context(), progress(4)); !errors.Is(err, engine.ErrAssigned) || !errors.Is(err, engine.ErrPoisoned) {
		t.Fatal(err)
	}
	mustVerify(t, st)
	if got := contents(t, st); len(got) != 16 || got["x/3"] != "c" || got["y/2"] != "d" || got["x/9"] != "f" {
		t.Errorf("%v", got)
	}
}

// TestDynamicFilesGone: the index files that were known here were replaced by another writer, and have expired with their
// snapshots.
func TestDynamicFilesGone(t *testing.T) {
	st := storage.NewMem()
	s := partitionedDynamic(t)
	mustCreate(t, st, s)
	two := mustOpen(t, st, engine.Settings{})
	writeCommit(t, two, s, 1, partRows("x", 0, 3, "a"))
	one := mustOpen(t, st, engine.Settings{})
	writeCommit(t, two, s, 2, partRows("x", 3, 5, "b"))
	if got := indexFiles(t, st); len(got) != 2 {
		t.Fatal(got)
	}
	_, live := indexOf(t, st)
	for _, name := range indexFiles(t, st) {
		if name != live[0] {
			if err := st.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	writeCommit(t, one, s, 1, partRows("x", 0, 7, "c"))
	mustVerify(t, st)
	if index, _ := indexOf(t, st); len(index[0]) != 5 || len(index[1]) != 2 {
		t.Errorf("%v", index)
	}
}
