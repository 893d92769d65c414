package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// told is the change stream of a table by snapshot, in the order of the stream.
type told struct {
	snapshots []int64
	rows      map[int64][]row
	commit    map[int64]int // which commit of the workload a snapshot is, of APPEND snapshots
}

// tellAll reads the change stream from the first snapshot on, which must be there.
func tellAll(t *testing.T, st storage.Store) told {
	t.Helper()
	out := told{rows: map[int64][]row{}, commit: map[int64]int{}}
	rd := readerOf(st)
	for c, err := range rd.Tail(context.Background(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 1}}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Complete {
			out.snapshots = append(out.snapshots, c.Snapshot)
			s, err := rd.Meta().Snapshot(context.Background(), c.Snapshot)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := strconv.Atoi(s.Properties["calve.test"]); err == nil && s.CommitKind == manifest.Append && s.DeltaRecordCount > 0 {
				out.commit[c.Snapshot] = n
			}
			continue
		}
		for i := range int(c.Rec.NumRows()) {
			r := row{
				part: c.Rec.Column(0).(*array.String).Value(i), id: c.Rec.Column(1).(*array.Int64).Value(i),
				name: c.Rec.Column(2).(*array.String).Value(i),
			}
			if c.RowKinds != nil {
				r.kind = c.RowKinds[i]
			}
			out.rows[c.Snapshot] = append(out.rows[c.Snapshot], r)
		}
	}
	return out
}

// strict folds a change stream that tells rows before and after each change, and fails where it does not fit itself: a
// change that is told twice, or is missing, leaves a key that is there when it must not be, or has another row.
func (c told) strict(t *testing.T) map[string]string {
	t.Helper()
	state, before := map[string]string{}, map[string]bool{}
	for _, id := range c.snapshots {
		for _, r := range c.rows[id] {
			k := r.part + "/" + strconv.FormatInt(r.id, 10)
			old, there := state[k]
			switch r.kind {
			case schema.Insert:
				if there {
					t.Fatalf("snapshot %d: %s is inserted, and it is there", id, k)
				}
				state[k] = r.name
			case schema.UpdateBefore, schema.Delete:
				if !there || old != r.name {
					t.Fatalf("snapshot %d: %s %s with %q, and the stream has %q (%v)", id, r.kind, k, r.name, old, there)
				}
				delete(state, k)
				before[k] = r.kind == schema.UpdateBefore
			case schema.UpdateAfter:
				if !before[k] {
					t.Fatalf("snapshot %d: %s is updated without its row before", id, k)
				}
				state[k] = r.name
				before[k] = false
			}
		}
	}
	for k, waits := range before {
		if waits {
			t.Fatalf("%s: a row before an update, and none after it", k)
		}
	}
	return state
}

// inputs checks the stream of a table with the producer input: every commit of the workload tells what was written for it,
// the rows of a key in their order, and nothing else is told.
func (c told) inputs(t *testing.T, w *workload) {
	t.Helper()
	seen := map[int]bool{}
	byKey := func(a, b row) int { return int(a.id - b.id) }
	for _, id := range c.snapshots {
		n, ok := c.commit[id]
		if !ok {
			if len(c.rows[id]) > 0 {
				t.Fatalf("snapshot %d is no commit of rows and tells %d", id, len(c.rows[id]))
			}
			continue
		}
		if seen[n] {
			t.Fatalf("commit %d is there twice", n)
		}
		seen[n] = true
		want, got := slices.Clone(w.written[n]), slices.Clone(c.rows[id])
		slices.SortStableFunc(want, byKey)
		slices.SortStableFunc(got, byKey) // files of one commit follow each other
		if !slices.Equal(got, want) {
			t.Fatalf("commit %d tells\n%v, written was\n%v", n, got, want)
		}
	}
	for n := 1; n < len(w.states); n++ {
		if !seen[n] {
			t.Fatalf("commit %d of %d is not told", n, len(w.states)-1)
		}
	}
}

// producers are the tables that the tests of changelogs write.
var producers = []struct {
	name    string
	options map[string]string
}{
	{"input", map[string]string{"changelog-producer": "input"}},
	{"full-compaction", map[string]string{"changelog-producer": "full-compaction"}},
	{"lookup", map[string]string{"changelog-producer": "lookup", "num-levels": "4"}},
	{"gentle", map[string]string{"changelog-producer": "lookup", "lookup-compact": "gentle", "lookup-compact.max-interval": "2"}},
	{"vectors", map[string]string{"deletion-vectors.enabled": "true", "num-levels": "4"}},
	{"vectors-64-lookup", map[string]string{"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true", "changelog-producer": "lookup", "num-levels": "4"}},
	{"full-compaction-2", map[string]string{"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2", "num-levels": "4"}},
}

// checkTold checks the whole stream of a table against what was written to it and what it has. The table must be
// compacted, so that nothing waits.
func checkTold(t *testing.T, st storage.Store, w *workload) {
	t.Helper()
	c := tellAll(t, st)
	switch w.schema.Options["changelog-producer"] {
	case "input":
		c.inputs(t, w)
		return
	case "": // rows as they were written are told
		return
	}
	if got, want := c.strict(t), w.states[len(w.states)-1]; !maps.Equal(got, want) {
		t.Fatalf("the stream folds to %d rows, the table has %d:\n%v\n%v", len(got), len(want), got, want)
	}
}

// TestChangelogAfterCrash cuts the power anywhere: every change is told exactly once.
func TestChangelogAfterCrash(t *testing.T) {
	for _, p := range producers {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			rng := newRand(t)
			options := maps.Clone(p.options)
			options["num-sorted-run.compaction-trigger"], options["snapshot.num-retained.min"] = "2", "1000000"
			s := keyedSchema(t, false, options)
			calls := toldAfterCrash(t, s, rng, math.MaxInt)
			for range 25 {
				if toldAfterCrash(t, s, rng, 1+rng.IntN(calls)); t.Failed() {
					return
				}
			}
		})
	}
}

// toldAfterCrash is a workload on a store that dies at its n-th call, and goes on with what a disk would still have.
func toldAfterCrash(t *testing.T, s *schema.Schema, rng *rand.Rand, n int) int {
	t.Helper()
	disk := storage.NewMem()
	mustCreate(t, disk, s)
	var mu sync.Mutex
	calls, after := 0, disk
	st := storage.WithFaults(disk, func(storage.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls < n {
			return nil
		}
		if calls == n {
			after = disk.CrashClone(rng)
		}
		return errInjected
	})
	env := hasty()
	w := newWorkload(s, rand.New(rand.NewPCG(rng.Uint64(), 3)))
	acknowledged := 0
	tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j", Compaction: 1, BufferBytes: 300}, env)
	for i := 1; i <= 5 && err == nil; i++ {
		if err = w.step(tab); err == nil {
			acknowledged = i
		}
	}
	if tab != nil {
		_ = tab.Close(context.Background()) // may fail: the disk is dead
	}
	mu.Lock()
	defer mu.Unlock()
	again, err := engine.Open(t.Context(), after, engine.Settings{Job: "j", Compaction: 1}, env)
	if err != nil {
		t.Fatalf("crash at call %d: %v", n, err)
	}
	if s.Options["deletion-vectors.enabled"] != "" { // else what is on level 0 is not seen
		if err := again.Compact(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	w.resume(t, after, again, acknowledged)
	for range 2 {
		if err := w.step(again); err != nil {
			t.Fatalf("crash at call %d: %v", n, err)
		}
	}
	if err := again.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.check(t, after)
	checkTold(t, after, w)
	mustCompare(t, after)
	return calls
}

// mustCompare verifies a table, whatever can be said of its stream.
func mustCompare(t *testing.T, st storage.Store) {
	t.Helper()
	rep, err := readerOf(st).Verify(context.Background(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil || !rep.OK() {
		t.Fatalf("%v %+v", err, rep)
	}
}

// TestChangelogNothingLeft lets writes of files fail: what is not published is deleted, data and changelog alike.
func TestChangelogNothingLeft(t *testing.T) {
	for _, p := range producers {
		disk := storage.NewMem()
		s := keyedSchema(t, false, p.options)
		mustCreate(t, disk, s)
		left := math.MaxInt
		var mu sync.Mutex
		st := storage.WithFaults(disk, func(op storage.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if left--; left < 0 && op.Kind == storage.OpWrite {
				return errInjected
			}
			return nil
		})
		set := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			left = n
		}
		w := newWorkload(s, newRand(t))
		failed := 0
		for n := range 60 {
			tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j"}, hasty())
			if err != nil {
				t.Fatal(err)
			}
			done := len(w.states) - 1
			set(n)
			if err = w.step(tab); err == nil {
				done++
				err = tab.Compact(t.Context(), true)
			}
			if err != nil {
				failed++
			}
			set(math.MaxInt)
			if err := tab.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.states = w.states[:done+1]
			if got, want := dataFiles(t, disk), namedFiles(t, disk); !maps.Equal(got, want) {
				t.Fatalf("%s: on storage %v, named %v", p.name, got, want)
			}
			for name, named := range storedIndexes(t, disk) {
				if !named {
					t.Fatalf("%s: index file %s is left behind", p.name, name)
				}
			}
		}
		if failed < 5 {
			t.Fatalf("%s: only %d failures", p.name, failed)
		}
		tab := mustOpen(t, disk, engine.Settings{Job: "j"})
		if err := tab.Compact(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		checkTold(t, disk, w)
	}
}

// storedIndexes are the index files on storage, and whether a snapshot names them.
func storedIndexes(t *testing.T, st storage.Store) map[string]bool {
	t.Helper()
	m, out := readerOf(st).Meta(), map[string]bool{}
	for info, err := range storage.Walk(context.Background(), st, "index") {
		if err != nil {
			t.Fatal(err)
		}
		out[path.Base(info.Name)] = false
	}
	latest, err := m.Latest(context.Background())
	if err != nil {
		return out
	}
	earliest, err := m.Earliest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range m.EachSnapshot(context.Background(), earliest.ID, latest.ID) {
		if err != nil {
			t.Fatal(err)
		}
		entries, err := m.IndexFiles(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			if _, there := out[entries[i].Name]; !there {
				t.Fatalf("snapshot %d names index file %s, which is not there", s.ID, entries[i].Name)
			}
			out[entries[i].Name] = true
		}
	}
	return out
}

// namedFiles are the data and changelog files that any snapshot names.
func namedFiles(t *testing.T, st storage.Store) map[string]bool {
	t.Helper()
	m, out := readerOf(st).Meta(), map[string]bool{}
	ctx := context.Background()
	latest, err := m.Latest(ctx)
	if err != nil {
		return out
	}
	for s, err := range m.EachSnapshot(ctx, 1, latest.ID) {
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range []func(context.Context, *manifest.Snapshot) ([]manifest.Entry, error){m.Delta, m.Changelog} {
			entries, err := list(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			for i := range entries {
				out[fmt.Sprintf("bucket-%d/%s", entries[i].Bucket, entries[i].File.Name)] = true
			}
		}
	}
	return out
}

// TestChangelogExpires: changelog files go with their snapshots, or with the last tag of them.
func TestChangelogExpires(t *testing.T) {
	for _, p := range producers {
		options := maps.Clone(p.options)
		options["snapshot.num-retained.min"], options["snapshot.num-retained.max"], options["snapshot.time-retained"] = "1", "2", "1 s"
		st, s := storage.NewMem(), keyedSchema(t, false, options)
		mustCreate(t, st, s)
		tab := mustOpen(t, st, engine.Settings{Job: "j"})
		w := newWorkload(s, newRand(t))
		m := readerOf(st).Meta()
		newest := func() *manifest.Snapshot {
			latest, err := m.Latest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return latest
		}
		for n := range 6 {
			if err := w.step(tab); err != nil {
				t.Fatal(err)
			}
			if err := tab.Compact(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			if n == 2 {
				if err := m.CreateTag(t.Context(), "kept", newest(), 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		all := len(namedFiles(t, st))
		done, err := m.Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now())
		if err != nil || done.Snapshots < 10 {
			t.Fatal(done, err)
		}
		w.check(t, st)
		want := liveFiles(t, st)
		changes, err := m.Changelog(t.Context(), newest())
		if err != nil {
			t.Fatal(err)
		}
		for i := range changes {
			want["bucket-0/"+changes[i].File.Name] = true
		}
		if got := dataFiles(t, st); len(got) <= len(want) {
			t.Fatalf("%s: the tag has kept nothing: %v", p.name, got)
		}
		if _, err := m.DeleteTag(t.Context(), "kept"); err != nil {
			t.Fatal(err)
		}
		if got := dataFiles(t, st); !maps.Equal(got, want) || all < 12 {
			t.Fatalf("%s: of %d files are left\n%v, named\n%v", p.name, all, got, want)
		}
		for name, named := range storedIndexes(t, st) {
			if !named {
				t.Fatalf("%s: index file %s is left", p.name, name)
			}
		}
	}
}

// waitTold waits until the table has a state, and the stream of its changes, if it has one, folds to it.
func waitTold(t *testing.T, st storage.Store, want map[string]string) {
	t.Helper()
	s, err := readerOf(st).Meta().LatestSchema(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if maps.Equal(contents(t, st), want) && (s.Options["changelog-producer"] == "" || maps.Equal(tellAll(t, st).strict(t), want)) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the stream does not come to the table: %v, want %v", tellAll(t, st).strict(t), want)
}

// TestChangesAreToldInTheBackground: nobody asks for compactions, and the changes of committed rows are told all the same:
// by the writer's own process, or, of a write-only table, by a compaction worker's.
func TestChangesAreToldInTheBackground(t *testing.T) {
	for _, p := range producers {
		if p.name == "input" {
			continue
		}
		for _, worker := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s worker %v", p.name, worker), func(t *testing.T) {
				t.Parallel()
				options := maps.Clone(p.options)
				options["write-only"], options["num-sorted-run.compaction-trigger"] = strconv.FormatBool(worker), "20"
				if p.name == "gentle" { // its interval is not below the trigger
					options["num-sorted-run.compaction-trigger"] = "2"
				}
				s, st := keyedSchema(t, false, options), storage.NewMem()
				mustCreate(t, st, s)
				tab := mustOpen(t, st, engine.Settings{Job: "j", Compaction: 1})
				if worker {
					mustOpen(t, st, engine.Settings{Compaction: 1, Dedicated: true, FollowEvery: 5 * time.Millisecond})
				}
				w := newWorkload(s, newRand(t))
				for range 3 {
					for range 2 {
						if err := w.step(tab); err != nil {
							t.Fatal(err)
						}
					}
					waitTold(t, st, w.states[len(w.states)-1])
				}
			})
		}
	}
}

// TestFullCompactionKeepsToItsRhythm: nothing is told before the number of commits is full.
func TestFullCompactionKeepsToItsRhythm(t *testing.T) {
	s, st := keyedSchema(t, false, map[string]string{"changelog-producer": "full-compaction", "full-compaction.delta-commits": "4", "num-sorted-run.compaction-trigger": "20"}), storage.NewMem()
	mustCreate(t, st, s)
	tab := mustOpen(t, st, engine.Settings{Job: "j", Compaction: 1})
	w := newWorkload(s, newRand(t))
	for n := 1; n <= 12; n++ {
		if err := w.step(tab); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		want := w.states[n/4*4]
		if n%4 == 0 {
			waitTold(t, st, want)
		} else if got := tellAll(t, st).strict(t); !maps.Equal(got, want) {
			t.Fatalf("after %d commits the stream has %v, want %v", n, got, want)
		}
	}
}

// TestRivalCompactions lets several processes compact one table without claims: each result is installed once or not at
// all, changes are told once, and no deleted row comes back.
func TestRivalCompactions(t *testing.T) {
	for _, p := range producers {
		if p.name == "input" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			options := maps.Clone(p.options)
			options["write-only"], options["num-sorted-run.compaction-trigger"] = "true", "2"
			s, st := keyedSchema(t, false, options), storage.NewMem()
			mustCreate(t, st, s)
			tab := mustOpen(t, st, engine.Settings{Job: "j"})
			rivals := make([]*engine.Table, 3)
			for i := range rivals {
				rivals[i] = mustOpen(t, st, engine.Settings{Compaction: 1, Dedicated: true, FollowEvery: time.Millisecond})
			}
			w := newWorkload(s, newRand(t))
			for range 40 {
				if err := w.step(tab); err != nil {
					t.Fatal(err)
				}
			}
			conflicts := int64(0)
			for _, r := range rivals {
				if err := r.Compact(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				conflicts += r.Metrics().Conflicts
			}
			t.Logf("%d conflicts", conflicts)
			w.check(t, st)
			checkTold(t, st, w)
			mustCompare(t, st)
		})
	}
}
