package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func dynamicSchema(t *testing.T, more map[string]string) *schema.Schema {
	options := map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "5"}
	for k, v := range more {
		options[k] = v
	}
	return keyedSchema(t, false, options)
}

func ids(from, to int64, name string) []row {
	var rows []row
	for i := from; i < to; i++ {
		rows = append(rows, row{part: "x", id: i, name: name})
	}
	return rows
}

// indexOf gives bucket → hashes, and the files, of the latest snapshot.
func indexOf(t *testing.T, st storage.Store) (map[int][]int32, []string) {
	t.Helper()
	meta := readerOf(st).Meta()
	snap, err := meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := meta.IndexFiles(t.Context(), snap)
	if err != nil {
		t.Fatal(err)
	}
	out, names := map[int][]int32{}, []string(nil)
	for _, e := range entries {
		data, err := storage.ReadAll(t.Context(), st, "index/"+e.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if out[e.Bucket], err = indexfile.DecodeHashes(nil, data); err != nil || e.Type != manifest.HashIndex || e.Rows != int64(len(out[e.Bucket])) {
			t.Fatal(e, err)
		}
		names = append(names, "index/"+e.Name)
	}
	return out, names
}

func writeCommit(t *testing.T, tab *engine.Table, s *schema.Schema, n int, rows []row) {
	t.Helper()
	if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
		t.Fatal(err)
	}
}

// TestDynamicBuckets: keys fill buckets up to the target, a known key stays in its bucket also after reopening, and
// compactions keep the index.
func TestDynamicBuckets(t *testing.T) {
	st := storage.NewMem()
	s := dynamicSchema(t, nil)
	mustCreate(t, st, s)
	tab := mustOpen(t, st, engine.Settings{})
	writeCommit(t, tab, s, 1, ids(0, 8, "a"))
	writeCommit(t, tab, s, 2, ids(4, 12, "b"))
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, names := indexOf(t, st)
	if len(before) != 3 || len(before[0]) != 5 || len(before[1]) != 5 || len(before[2]) != 2 {
		t.Fatalf("%v", before)
	}
	// In the order of arrival, by Paimon's hash of the key row.
	rec := batchOf(s, ids(0, 12, "")).Rec
	want := make([]int32, 12)
	if err := binrow.Hashes(want, s.Types(s.KeyColumns()), []arrow.Array{rec.Column(1)}, 12); err != nil {
		t.Fatal(err)
	}
	if got := slices.Concat(before[0], before[1], before[2]); !slices.Equal(got, want) {
		t.Errorf("hashes %v, want %v", got, want)
	}
	tab = mustOpen(t, st, engine.Settings{})
	writeCommit(t, tab, s, 3, append(ids(0, 12, "c"), row{kind: schema.Delete, part: "x", id: 3}))
	if _, again := indexOf(t, st); !slices.Equal(again, names) {
		t.Errorf("known keys wrote index files %v, there were %v", again, names)
	}
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, again := indexOf(t, st); !slices.Equal(again, names) {
		t.Errorf("a compaction changed the index files to %v", again)
	}
	writeCommit(t, tab, s, 4, ids(12, 30, "d"))
	after, _ := indexOf(t, st)
	if len(after) != 6 || len(after[2]) != 5 {
		t.Errorf("%v", after)
	}
	mustVerify(t, st)
	if got := contents(t, st); len(got) != 29 || got["x/0"] != "c" || got["x/29"] != "d" {
		t.Errorf("%v", got)
	}
}

func TestDynamicBucketsBound(t *testing.T) {
	st := storage.NewMem()
	s := dynamicSchema(t, map[string]string{"dynamic-bucket.max-buckets": "2"})
	mustCreate(t, st, s)
	tab := mustOpen(t, st, engine.Settings{})
	writeCommit(t, tab, s, 1, ids(0, 100, "a"))
	index, _ := indexOf(t, st)
	if len(index) != 2 || len(index[0])+len(index[1]) != 100 || len(index[0]) < 20 || len(index[1]) < 20 {
		t.Errorf("%d and %d keys in %d buckets", len(index[0]), len(index[1]), len(index))
	}
	mustVerify(t, st)
}

// TestDynamicForeignWriter: rows are not published on top of somebody else's choices.
func TestDynamicForeignWriter(t *testing.T) {
	st := storage.NewMem()
	s := dynamicSchema(t, nil)
	mustCreate(t, st, s)
	one := mustOpen(t, st, engine.Settings{})
	writeCommit(t, one, s, 1, ids(0, 3, "a"))
	two := mustOpen(t, st, engine.Settings{})
	writeCommit(t, two, s, 1, ids(3, 6, "b"))
	if err := one.Write(t.Context(), batchOf(s, ids(4, 5, "c"))); err != nil {
		t.Fatal(err)
	}
	_, err := one.Commit(t.Context(), progress(2))
	if !errors.Is(err, engine.ErrAssigned) || !errors.Is(err, engine.ErrPoisoned) {
		t.Fatal(err)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A writer that only compacts is in nobody's way.
	three := mustOpen(t, st, engine.Settings{})
	if err := three.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	writeCommit(t, two, s, 2, ids(0, 9, "d"))
	mustVerify(t, st)
	if got := contents(t, st); len(got) != 9 || got["x/4"] != "d" {
		t.Errorf("%v", got)
	}
	if got, want := dataFiles(t, st), liveFiles(t, st); len(got) < len(want) {
		t.Errorf("%v, live %v", got, want)
	}
	if _, live := indexOf(t, st); len(live) != 2 {
		t.Errorf("%v", live)
	}
}

// TestDynamicExpiry: index files go with the last snapshot that lists them; a tag keeps its own.
func TestDynamicExpiry(t *testing.T) {
	st := storage.NewMem()
	s := dynamicSchema(t, map[string]string{"dynamic-bucket.target-row-num": "1000"})
	mustCreate(t, st, s)
	tab := mustOpen(t, st, engine.Settings{})
	meta := readerOf(st).Meta()
	for i := range int64(6) {
		writeCommit(t, tab, s, int(i), ids(i*10, i*10+10, fmt.Sprint(i)))
		if i == 1 {
			snap, err := meta.Latest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := meta.CreateTag(t.Context(), "two", snap, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := indexFiles(t, st); len(got) != 6 {
		t.Fatalf("%v", got)
	}
	if _, err := meta.Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := indexFiles(t, st); len(got) != 2 {
		t.Errorf("with the tag there are %v", got)
	}
	if _, err := meta.DeleteTag(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	_, live := indexOf(t, st)
	if got := indexFiles(t, st); !slices.Equal(got, live) {
		t.Errorf("%v are left, %v are live", got, live)
	}
	mustVerify(t, st)
}

func indexFiles(t *testing.T, st storage.Store) []string {
	t.Helper()
	var out []string
	for info, err := range st.List(t.Context(), "index") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, info.Name)
	}
	return out
}

// TestDynamicFailedIndex: when an index file cannot be written nothing is published, and the next commit has it all.
func TestDynamicFailedIndex(t *testing.T) {
	disk := storage.NewMem()
	s := dynamicSchema(t, nil)
	mustCreate(t, disk, s)
	broken := true
	st := storage.WithFaults(disk, func(op storage.Op) error {
		if broken && strings.HasPrefix(op.Name, "index/") && op.Kind == storage.OpWrite {
			return errInjected
		}
		return nil
	})
	tab := mustOpen(t, st, engine.Settings{})
	if err := tab.Write(t.Context(), batchOf(s, ids(0, 7, "a"))); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), progress(1)); !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	if _, err := readerOf(disk).Meta().Latest(t.Context()); !errors.Is(err, manifest.ErrNoSnapshot) {
		t.Fatal("published:", err)
	}
	broken = false
	if _, err := tab.Commit(t.Context(), progress(1)); err != nil {
		t.Fatal(err)
	}
	if index, names := indexOf(t, disk); len(index[0]) != 5 || len(index[1]) != 2 || !slices.Equal(slices.Sorted(slices.Values(names)), indexFiles(t, disk)) {
		t.Errorf("%v %v", index, names)
	}
	mustVerify(t, disk)
}
