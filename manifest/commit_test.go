package manifest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func mustType(t testing.TB, s string) schema.Type {
	t.Helper()
	typ, err := schema.ParseType(s)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// keyedSchema has a partition column p, the key k and a value.
func keyedSchema(t testing.TB, options map[string]string) *schema.Schema {
	t.Helper()
	opts := map[string]string{"bucket": "4"}
	for k, v := range options {
		opts[k] = v
	}
	s, err := schema.New(schema.Spec{
		Columns: []schema.Column{
			{Name: "p", Type: mustType(t, "STRING")}, {Name: "k", Type: mustType(t, "BIGINT")}, {Name: "v", Type: mustType(t, "STRING")},
		},
		PrimaryKeys: []string{"p", "k"}, PartitionKeys: []string{"p"}, Options: opts,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func row(t testing.TB, typ string, v any) []byte {
	t.Helper()
	b, err := binrow.EncodeRow([]schema.Type{mustType(t, typ)}, []any{v})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// file makes an entry that adds a file with the given keys.
func file(t testing.TB, name string, part string, bucket, level int, lo, hi int64) Entry {
	t.Helper()
	src, zero := FromAppend, int64(0)
	return Entry{
		Kind: Add, Partition: row(t, "STRING NOT NULL", part), Bucket: bucket, TotalBuckets: 4,
		File: DataFile{
			Name: name, Size: 100, Rows: hi - lo + 1, MinKey: row(t, "BIGINT NOT NULL", lo), MaxKey: row(t, "BIGINT NOT NULL", hi),
			KeyStats:   Stats{Min: row(t, "BIGINT", lo), Max: row(t, "BIGINT", hi), NullCounts: []*int64{&zero}},
			ValueStats: Stats{}, ValueStatsCols: []string{}, MinSeq: lo, MaxSeq: hi, Level: level, CreatedMillis: 1, DeleteRows: &zero, Source: &src,
		},
	}
}

// gone makes the entry that removes a file.
func gone(e Entry) Entry {
	e.Kind = Remove
	return e
}

// moved makes the entries that move a file to another level.
func moved(e Entry, level int) []Entry {
	up := e
	up.File.Level = level
	return []Entry{gone(e), up}
}

func newKeyed(t testing.TB, store storage.Store, options map[string]string) *Table {
	t.Helper()
	if err := Create(context.Background(), store, keyedSchema(t, options)); err != nil {
		t.Fatal(err)
	}
	return Open(store, testEnv(1))
}

func liveNames(t testing.TB, tab *Table, s *Snapshot) []string {
	t.Helper()
	live, err := tab.Live(context.Background(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(live))
	for i := range live {
		names[i] = fmt.Sprintf("%s@%d", live[i].File.Name, live[i].File.Level)
	}
	slices.Sort(names)
	return names
}

func commit(t testing.TB, tab *Table, c Commit) *Snapshot {
	t.Helper()
	if c.User == "" {
		c.User = "user"
	}
	if c.Kind == "" {
		c.Kind = Append
	}
	s, err := tab.Commit(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCreateAndSchema(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	tab := Open(store, testEnv(1))
	if _, err := tab.LatestSchema(ctx); !errors.Is(err, ErrNoTable) {
		t.Fatalf("no table: %v", err)
	}
	s := keyedSchema(t, nil)
	if err := Create(ctx, store, s); err != nil {
		t.Fatal(err)
	}
	if err := Create(ctx, store, keyedSchema(t, map[string]string{"bucket": "5"})); !errors.Is(err, ErrTableExists) {
		t.Fatalf("second creation: %v", err)
	}
	if _, err := tab.Latest(ctx); !errors.Is(err, ErrNoSnapshot) {
		t.Fatalf("no snapshot: %v", err)
	}
	if _, err := tab.Earliest(ctx); !errors.Is(err, ErrNoSnapshot) {
		t.Fatalf("no snapshot: %v", err)
	}
	if _, err := tab.LastOfUser(ctx, "x"); !errors.Is(err, ErrNoSnapshot) {
		t.Fatalf("no snapshot: %v", err)
	}
	got, err := tab.LatestSchema(ctx)
	if err != nil || got.ID != 0 || got.Options["bucket"] != "4" {
		t.Fatal(got, err)
	}
	next := *s
	next.ID = 1
	data, err := next.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.PutIfAbsent(ctx, "schema/schema-1", data); err != nil {
		t.Fatal(err)
	}
	if got, err = tab.LatestSchema(ctx); err != nil || got.ID != 1 {
		t.Fatal(got, err)
	}
	if snap := commit(t, tab, Commit{}); snap.SchemaID != 1 {
		t.Fatalf("snapshot has schema %d, the latest is 1", snap.SchemaID)
	}
}

func TestCommitSequence(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	tab := newKeyed(t, store, nil)
	a, b := file(t, "a", "x", 0, 0, 1, 10), file(t, "b", "x", 0, 0, 5, 15)
	mark := int64(42)
	s1 := commit(t, tab, Commit{Identifier: 1, Entries: []Entry{a, b}, Watermark: &mark, Properties: map[string]string{"calve.x": "1"}})
	if s1.ID != 1 || s1.TotalRecordCount != 21 || s1.DeltaRecordCount != 21 || *s1.Watermark != 42 || s1.Properties["calve.x"] != "1" {
		t.Fatalf("%+v", s1)
	}
	c := file(t, "c", "x", 0, 2, 1, 15)
	s2 := commit(t, tab, Commit{Identifier: 2, Kind: Compact, Entries: []Entry{c, gone(a), gone(b)}})
	if s2.ID != 2 || s2.TotalRecordCount != 15 || s2.DeltaRecordCount != -6 || *s2.Watermark != 42 || s2.Properties != nil {
		t.Fatalf("%+v", s2)
	}
	d := file(t, "d", "y", 3, 0, 7, 7)
	s3 := commit(t, tab, Commit{Identifier: 3, Entries: []Entry{d}})
	s4 := commit(t, tab, Commit{Identifier: 4, Kind: Compact, Entries: moved(d, 1)})

	// A second Table sees the same by reading everything.
	other := Open(store, testEnv(2))
	latest, err := other.Latest(ctx)
	if err != nil || latest.ID != 4 {
		t.Fatal(latest, err)
	}
	for _, want := range []struct {
		s    *Snapshot
		live string
	}{{s1, "a@0 b@0"}, {s2, "c@2"}, {s3, "c@2 d@0"}, {s4, "c@2 d@1"}} {
		s, err := other.Snapshot(ctx, want.s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if toJSON(t, s) != toJSON(t, want.s) {
			t.Fatalf("read %s\nwrote %s", toJSON(t, s), toJSON(t, want.s))
		}
		if got := strings.Join(liveNames(t, other, s), " "); got != want.live {
			t.Fatalf("snapshot %d: live %s, want %s", s.ID, got, want.live)
		}
	}
	delta, err := other.Delta(ctx, s4)
	if err != nil || len(delta) != 2 || delta[0].Kind != Remove || delta[1].Kind != Add || delta[1].File.Level != 1 {
		t.Fatal(delta, err)
	}
	if ch, err := other.Changelog(ctx, s4); ch != nil || err != nil {
		t.Fatal(ch, err)
	}
	if s, err := other.LastOfUser(ctx, "user"); err != nil || s.ID != 4 {
		t.Fatal(s, err)
	}
	if first, err := other.Earliest(ctx); err != nil || first.ID != 1 {
		t.Fatal(first, err)
	}
	if _, err := other.Snapshot(ctx, 5); !errors.Is(err, storage.ErrNotFound) || errors.Is(err, ErrSnapshotExpired) {
		t.Fatal(err)
	}
	for hint, want := range map[string]string{"snapshot/LATEST": "4", "snapshot/EARLIEST": "1"} {
		if got, err := storage.ReadAll(ctx, store, hint, 10); err != nil || string(got) != want {
			t.Fatalf("%s: %q %v", hint, got, err)
		}
	}
}

func TestCommitRefusals(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	tab := newKeyed(t, store, nil)
	a, b := file(t, "a", "x", 0, 0, 1, 10), file(t, "b", "x", 0, 2, 20, 30)
	commit(t, tab, Commit{Identifier: 1, Entries: []Entry{a}})
	commit(t, tab, Commit{Identifier: 2, Kind: Compact, Entries: []Entry{b}})
	wrongTotal := file(t, "w", "x", 0, 0, 1, 1)
	wrongTotal.TotalBuckets = 8
	otherLevel := a
	otherLevel.File.Level = 1
	cases := []struct {
		name     string
		c        Commit
		conflict bool
	}{
		{"no user", Commit{Kind: Append, User: ""}, false},
		{"unknown kind", Commit{Kind: "MERGE", User: "u"}, false},
		{"analyze", Commit{Kind: Analyze, User: "u"}, false},
		{"append removes", Commit{Kind: Append, User: "u", Entries: []Entry{gone(a)}}, false},
		{"file twice", Commit{Kind: Append, User: "u", Entries: []Entry{file(t, "n", "x", 0, 0, 1, 1), file(t, "n", "x", 0, 0, 1, 1)}}, false},
		{"path as name", Commit{Kind: Append, User: "u", Entries: []Entry{file(t, "../n", "x", 0, 0, 1, 1)}}, false},
		{"keys the wrong way round", Commit{Kind: Compact, User: "u", Entries: []Entry{file(t, "n", "x", 0, 2, 9, 8)}}, false},
		{"file already there", Commit{Kind: Compact, User: "u", Entries: []Entry{a}}, true},
		{"removed file is not there", Commit{Kind: Compact, User: "u", Entries: []Entry{gone(file(t, "q", "x", 0, 0, 1, 1))}}, true},
		{"removed file has another level", Commit{Kind: Compact, User: "u", Entries: []Entry{gone(otherLevel)}}, true},
		{"overlap from below", Commit{Kind: Compact, User: "u", Entries: []Entry{file(t, "n", "x", 0, 2, 15, 20)}}, true},
		{"overlap from above", Commit{Kind: Compact, User: "u", Entries: []Entry{file(t, "n", "x", 0, 2, 30, 31)}}, true},
		{"overlap inside", Commit{Kind: Compact, User: "u", Entries: []Entry{file(t, "n", "x", 0, 2, 25, 25)}}, true},
		{"overlap around", Commit{Kind: Overwrite, User: "u", Entries: []Entry{file(t, "n", "x", 0, 2, 10, 40)}}, true},
		{"overlap of two new", Commit{Kind: Compact, User: "u", Entries: []Entry{file(t, "n", "x", 0, 1, 1, 5), file(t, "m", "x", 0, 1, 5, 6)}}, true},
		{"another number of buckets", Commit{Kind: Compact, User: "u", Entries: []Entry{wrongTotal}}, true},
	}
	before := listing(t, store)
	for _, c := range cases {
		_, err := tab.Commit(ctx, c.c)
		if err == nil || errors.Is(err, ErrConflict) != c.conflict {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := listing(t, store); !slices.Equal(after, before) {
			t.Fatalf("%s: left files behind: %v", c.name, after)
		}
	}
	// What touches nothing else goes through.
	commit(t, tab, Commit{Kind: Compact, Entries: []Entry{
		file(t, "left", "x", 0, 2, 15, 19), file(t, "right", "x", 0, 2, 31, 40), file(t, "bucket", "x", 1, 2, 20, 30),
		file(t, "level", "x", 0, 1, 20, 30), file(t, "part", "y", 0, 2, 20, 30),
	}})
	commit(t, tab, Commit{Kind: Overwrite, Entries: []Entry{wrongTotal}})
}

// listing gives all names in a store.
func listing(t testing.TB, s storage.Store) []string {
	t.Helper()
	var names []string
	for info, err := range storage.Walk(context.Background(), s, "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	slices.Sort(names)
	return names
}

// TestForeignCommits lets a second Table commit in between: conflicts are found by deltas, appends go on.
func TestForeignCommits(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	mine := newKeyed(t, store, nil)
	theirs := Open(store, testEnv(2))
	a, b := file(t, "a", "x", 0, 0, 1, 10), file(t, "b", "x", 0, 0, 5, 15)
	commit(t, mine, Commit{Identifier: 1, Entries: []Entry{a, b}})
	commit(t, mine, Commit{Identifier: 2, Kind: Compact, Entries: moved(a, 1)}) // builds the index
	a.File.Level = 1
	counter := storage.WithCounter(store)
	mine.store = counter
	commit(t, theirs, Commit{User: "them", Kind: Compact, Entries: []Entry{gone(a), gone(b), file(t, "c", "x", 0, 2, 1, 15)}})
	_, err := mine.Commit(ctx, Commit{User: "user", Identifier: 3, Kind: Compact, Entries: []Entry{gone(b), file(t, "d", "x", 0, 1, 11, 15)}})
	if !errors.Is(err, ErrConflict) {
		t.Fatal(err)
	}
	// My index says that d would fit; only the foreign delta shows the overlap.
	if _, err := mine.Commit(ctx, Commit{User: "user", Identifier: 3, Kind: Compact, Entries: []Entry{file(t, "e", "x", 0, 2, 3, 4)}}); !errors.Is(err, ErrConflict) {
		t.Fatal(err)
	}
	s := commit(t, mine, Commit{Identifier: 4, Entries: []Entry{file(t, "f", "x", 0, 0, 1, 1)}})
	if got := strings.Join(liveNames(t, mine, s), " "); got != "c@2 f@0" || s.ID != 4 {
		t.Fatal(s.ID, got)
	}
	for _, n := range listing(t, store) {
		if strings.HasPrefix(n, "manifest/manifest-list") && !namedBySnapshots(t, theirs)[path.Base(n)] {
			t.Fatalf("%s is left behind", n)
		}
	}
}

// TestRemovesForeignFiles removes a file that another Table has just added: that the own head is older than the file is
// no conflict. Lost races are told.
func TestRemovesForeignFiles(t *testing.T) {
	store := storage.NewMem()
	mine := newKeyed(t, store, nil)
	theirs := Open(store, testEnv(2))
	a, b := file(t, "a", "x", 0, 0, 1, 10), file(t, "b", "x", 0, 0, 5, 15)
	commit(t, mine, Commit{Identifier: 1, Entries: []Entry{a}})
	commit(t, theirs, Commit{User: "them", Entries: []Entry{b}})
	s := commit(t, mine, Commit{Identifier: 2, Kind: Compact, Entries: []Entry{gone(a), gone(b), file(t, "c", "x", 0, 2, 1, 15)}})
	if got := strings.Join(liveNames(t, mine, s), " "); got != "c@2" || s.ID != 3 {
		t.Fatal(s.ID, got)
	}
	commit(t, theirs, Commit{User: "them", Identifier: 1, Entries: []Entry{file(t, "d", "x", 0, 0, 1, 1)}})
	lost := 0
	commit(t, mine, Commit{Identifier: 3, Entries: []Entry{file(t, "e", "x", 0, 0, 1, 1)}, Lost: func() { lost++ }})
	if lost != 1 {
		t.Fatalf("%d lost races were told", lost)
	}
}

// namedBySnapshots gives all metadata files that snapshots name.
func namedBySnapshots(t testing.TB, tab *Table) map[string]bool {
	t.Helper()
	ctx := context.Background()
	named := map[string]bool{}
	for _, s := range goldenSnapshots(t, tab) {
		named[s.BaseManifestList], named[s.DeltaManifestList] = true, true
		metas, err := tab.manifests(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range metas {
			named[m.Name] = true
		}
	}
	return named
}

// TestCommitReadsNothing counts storage calls of commits on a table without foreign writers.
func TestCommitReadsNothing(t *testing.T) {
	store := storage.WithCounter(storage.NewMem())
	tab := newKeyed(t, store, nil)
	zero := int64(0)
	var compacted Entry
	for i := range 10 {
		e := file(t, fmt.Sprint("f", i), "x", 0, 0, 1, 10)
		before := store.Counts()
		commit(t, tab, Commit{Identifier: int64(2 * i), Entries: []Entry{e}, SchemaID: &zero})
		if i > 0 {
			wantCalls(t, store, before)
		}
		before = store.Counts()
		entries := []Entry{gone(e), file(t, fmt.Sprint("c", i), "x", 0, 2, 1, 10)}
		if i > 0 {
			entries = append(entries, gone(compacted))
		}
		compacted = entries[1]
		commit(t, tab, Commit{Identifier: int64(2*i + 1), Kind: Compact, Entries: entries, SchemaID: &zero})
		if i > 0 {
			wantCalls(t, store, before)
		}
	}
}

// wantCalls checks that a commit wrote three files, put the snapshot and a hint, and read no byte. The one open is the
// look at the base after the put.
func wantCalls(t *testing.T, store *storage.Counter, before storage.Counts) {
	t.Helper()
	n := store.Counts().Since(before)
	if n.Of(storage.OpReadAll).Calls+n.Of(storage.OpRead).Calls+n.Of(storage.OpList).Calls+n.Of(storage.OpWalk).Calls != 0 ||
		n.Of(storage.OpOpen).Calls != 1 || n.Of(storage.OpCommit).Calls != 3 || n.Of(storage.OpPutIfAbsent).Calls != 1 || n.Of(storage.OpPut).Calls != 1 {
		t.Fatalf("a commit did: %s", n)
	}
}

// TestTailStepCost: reading one more snapshot costs the same on a small and on a large table, with no listing.
func TestTailStepCost(t *testing.T) {
	ctx := context.Background()
	var costs []storage.Counts
	for _, files := range []int{10, 10_000} {
		mem := storage.NewMem()
		tab := newKeyed(t, mem, nil)
		var entries []Entry
		for i := range files {
			entries = append(entries, file(t, fmt.Sprintf("base-%08d", i), "x", i%4, 2, int64(i)*10, int64(i)*10+5))
		}
		commit(t, tab, Commit{Identifier: 1, Kind: Compact, Entries: entries})
		commit(t, tab, Commit{Identifier: 2, Entries: []Entry{file(t, "new", "x", 0, 0, 1, 1)}})
		store := storage.WithCounter(mem)
		tail := Open(store, testEnv(1))
		before := store.Counts()
		s, err := tail.Snapshot(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		delta, err := tail.Delta(ctx, s)
		if err != nil || len(delta) != 1 || delta[0].File.Name != "new" {
			t.Fatal(delta, err)
		}
		n := store.Counts().Since(before)
		if n.Of(storage.OpReadAll).Calls != 3 || n.Total().Calls != 3 {
			t.Fatalf("a tail step did: %s", n)
		}
		costs = append(costs, n)
	}
	// Row counts and the size of the base list are varints, so a few bytes may differ.
	if d := costs[1].Total().Bytes - costs[0].Total().Bytes; d < -16 || d > 16 {
		t.Fatalf("small table: %s; large table: %s", costs[0], costs[1])
	}
}

func TestCheckRunsOnEachBase(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	mine := newKeyed(t, store, nil)
	theirs := Open(store, testEnv(2))
	commit(t, mine, Commit{Identifier: 1})
	commit(t, theirs, Commit{User: "them", Identifier: 1})
	var seen []int64
	fenced := errors.New("fenced")
	before := listing(t, store)
	_, err := mine.Commit(ctx, Commit{Kind: Append, User: "user", Identifier: 2, Check: func(_ context.Context, latest *Snapshot) error {
		seen = append(seen, latest.ID)
		if latest.CommitUser == "them" {
			return fenced
		}
		return nil
	}})
	if !errors.Is(err, fenced) || !slices.Equal(seen, []int64{1, 2}) {
		t.Fatal(seen, err)
	}
	if after := listing(t, store); !slices.Equal(after, before) {
		t.Fatalf("left behind: %v", after)
	}
}

func TestCommitNeverGoesBackInTime(t *testing.T) {
	store := storage.NewMem()
	tab := newKeyed(t, store, nil)
	first := commit(t, tab, Commit{Identifier: 1})
	tab.env.Now = func() time.Time { return time.UnixMilli(0) }
	if s := commit(t, tab, Commit{Identifier: 2}); s.TimeMillis < first.TimeMillis {
		t.Fatalf("time went back from %d to %d", first.TimeMillis, s.TimeMillis)
	}
}

func TestBatchIdentifierNamesNothing(t *testing.T) {
	store := storage.NewMem()
	mine := newKeyed(t, store, nil)
	theirs := Open(store, testEnv(2))
	commit(t, mine, Commit{Identifier: 1})
	commit(t, theirs, Commit{User: "batch", Identifier: math.MaxInt64, Entries: []Entry{file(t, "a", "x", 0, 0, 1, 1)}})
	s := commit(t, mine, Commit{User: "batch", Identifier: math.MaxInt64, Entries: []Entry{file(t, "b", "x", 0, 0, 1, 1)}})
	if got := strings.Join(liveNames(t, mine, s), " "); got != "a@0 b@0" {
		t.Fatal(got)
	}
}
