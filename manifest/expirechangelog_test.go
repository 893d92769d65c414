package manifest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// told plays a table whose changelogs live longer than its snapshots.
type told struct {
	t     testing.TB
	store storage.Store
	tab   *Table
	rng   *rand.Rand
	live  []Entry
	names int
}

// The retention of these tests: 3 snapshots, 9 changes.
var (
	toldOptions = map[string]string{
		"snapshot.num-retained.min": "3", "snapshot.num-retained.max": "3", "changelog.num-retained.min": "9", "changelog.num-retained.max": "9",
		"manifest.merge-min-count": "3",
	}
	toldRetention = Retention{Min: 3, Max: 3}
)

func newTold(t testing.TB, store storage.Store, rng *rand.Rand, producer string) *told {
	t.Helper()
	options := map[string]string{"changelog-producer": producer}
	for k, v := range toldOptions {
		options[k] = v
	}
	return &told{t: t, store: store, tab: newKeyed(t, store, options), rng: rng}
}

// commit makes a commit: an append, a compaction or a move, with a changelog where the table has that.
func (w *told) commit(producer string) {
	w.t.Helper()
	c := Commit{Kind: Append, Identifier: int64(w.names)}
	add := func(level int) Entry {
		w.names++
		e := file(w.t, fmt.Sprint("data-", w.names), "x", w.rng.IntN(2), level, int64(w.names)*10, int64(w.names)*10+9)
		e.File.ExtraFiles = []string{e.File.Name + ".index"}
		return e
	}
	switch n := len(w.live); {
	case n > 2 && w.rng.IntN(3) == 0:
		c.Kind = Compact
		src := FromCompact
		out := add(2)
		out.File.Source = &src
		w.rng.Shuffle(n, func(i, j int) { w.live[i], w.live[j] = w.live[j], w.live[i] })
		for _, e := range w.live[:2] {
			c.Entries = append(c.Entries, gone(e))
		}
		writeData(w.t, w.tab, []Entry{out})
		c.Entries = append(c.Entries, out)
		w.live = append(slices.Clone(w.live[2:]), out)
	case n > 0 && w.live[0].File.Level == 0 && w.rng.IntN(3) == 0:
		c.Kind = Compact
		c.Entries = moved(w.live[0], 1)
		w.live[0] = c.Entries[1]
	default:
		e := add(0)
		writeData(w.t, w.tab, []Entry{e})
		c.Entries = []Entry{e}
		w.live = append(w.live, e)
	}
	if producer != "none" && w.rng.IntN(3) > 0 {
		e := add(0)
		e.File.Name, e.File.ExtraFiles = "changelog-"+e.File.Name, nil
		writeData(w.t, w.tab, []Entry{e})
		c.Changelog = []Entry{e}
	}
	commit(w.t, w.tab, c)
}

// names gives the files of entries.
func (w *told) files(into map[string]bool, entries []Entry, which func(*Entry) bool) {
	w.t.Helper()
	for i := range entries {
		if !which(&entries[i]) {
			continue
		}
		p := dataPath(w.t, w.tab, &entries[i])
		into[p] = true
		for _, x := range entries[i].File.ExtraFiles {
			into[filepath.Dir(p)+"/"+x] = true
		}
	}
}

func (w *told) list(into map[string]bool, name string, size *int64) {
	w.t.Helper()
	metas, err := w.tab.readList(w.t.Context(), name, size)
	if err != nil {
		w.t.Fatal(err)
	}
	into["manifest/"+name] = true
	for _, m := range metas {
		into["manifest/"+m.Name] = true
	}
}

func added(e *Entry) bool { return e.Kind == Add }

// snapshot names what a snapshot, or a tag, needs.
func (w *told) snapshot(into map[string]bool, s *Snapshot) {
	w.t.Helper()
	w.list(into, s.BaseManifestList, s.BaseManifestListSize)
	w.list(into, s.DeltaManifestList, s.DeltaManifestListSize)
	live, err := w.tab.Live(w.t.Context(), s, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files(into, live, added)
	w.changes(into, s)
}

func (w *told) changes(into map[string]bool, s *Snapshot) {
	w.t.Helper()
	if s.ChangelogManifestList == nil {
		return
	}
	w.list(into, *s.ChangelogManifestList, s.ChangelogManifestListSize)
	entries, err := w.tab.Changelog(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files(into, entries, added)
}

// changelog names what a long-lived changelog needs, and what its expiry will find to delete.
func (w *told) changelog(into map[string]bool, s *Snapshot, producer string) {
	w.t.Helper()
	w.changes(into, s)
	if producer != "none" {
		return
	}
	w.list(into, s.BaseManifestList, s.BaseManifestListSize)
	w.list(into, s.DeltaManifestList, s.DeltaManifestListSize)
	w.removed(into, s)
	delta, err := w.tab.Delta(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files(into, delta, func(e *Entry) bool { return e.Kind == Add && *e.File.Source == FromAppend })
}

func (w *told) removed(into map[string]bool, s *Snapshot) {
	w.t.Helper()
	delta, err := w.tab.Delta(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files(into, delta, func(e *Entry) bool { return e.Kind == Remove && *e.File.Source == FromAppend })
}

// exactly checks that there is what snapshots, tags and long-lived changelogs need, and nothing else. It gives the earliest
// changes and the earliest snapshot.
func (w *told) exactly(what, producer string) (first, earliest int64) {
	w.t.Helper()
	ctx := w.t.Context()
	want := map[string]bool{}
	fresh := Open(w.store, testEnv(9))
	e, err := fresh.Earliest(ctx)
	if err != nil {
		w.t.Fatal(what, err)
	}
	f, err := fresh.EarliestTold(ctx)
	if err != nil {
		w.t.Fatal(what, err)
	}
	last, err := fresh.Latest(ctx)
	if err != nil {
		w.t.Fatal(what, err)
	}
	for id := f.ID; id <= last.ID; id++ {
		s, err := fresh.Told(ctx, id)
		if err != nil {
			w.t.Fatal(what, err)
		}
		if id < e.ID {
			w.changelog(want, s, producer)
		} else {
			w.snapshot(want, s)
		}
	}
	o, err := fresh.latestOptions(ctx)
	if err != nil {
		w.t.Fatal(what, err)
	}
	if producer == "none" && e.ID > 1 && o.ChangelogDecoupled() {
		w.removed(want, e)
	}
	tags, err := fresh.Tags(ctx)
	if err != nil {
		w.t.Fatal(what, err)
	}
	for _, s := range tags {
		w.snapshot(want, s)
	}
	for _, name := range listing(w.t, w.store) {
		if strings.HasPrefix(name, expiryDir+"/") {
			w.t.Errorf("%s: %s is left", what, name)
		}
		if strings.HasPrefix(name, "manifest/") || strings.Contains(name, "bucket-") {
			if !want[name] {
				w.t.Errorf("%s: %s is named by nothing and still there", what, name)
			}
			delete(want, name)
		}
	}
	for name := range want {
		w.t.Errorf("%s: %s is named and gone", what, name)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
	return f.ID, e.ID
}

// TestExpireChangelogs: snapshots leave their changelogs, which expire as their own options say; consumers and tags keep
// what they want, and what is named stays and nothing else, all along a random history.
func TestExpireChangelogs(t *testing.T) {
	sd := seed(t)
	ctx := t.Context()
	for round, producer := range []string{"none", "lookup", "input", "none"} {
		rng := rand.New(rand.NewPCG(sd, uint64(round)))
		w := newTold(t, storage.NewMem(), rng, producer)
		held := int64(0)
		for i := range 70 {
			w.commit(producer)
			latest, err := w.tab.Latest(ctx)
			if err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(8) {
			case 0:
				if err := w.tab.CreateTag(ctx, fmt.Sprint("t", i), latest, 0); err != nil {
					t.Fatal(err)
				}
			case 1:
				tags, err := w.tab.AllTags(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if len(tags) > 0 {
					if _, err := w.tab.DeleteTag(ctx, tags[rng.IntN(len(tags))].Name); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				held = latest.ID
				if err := w.tab.PutConsumer(ctx, "c", held); err != nil {
					t.Fatal(err)
				}
			case 3:
				held = 0
				if err := w.tab.DropConsumer(ctx, "c"); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(3) > 0 {
				continue
			}
			what := fmt.Sprintf("seed %d, %s, commit %d", sd, producer, i)
			by := w.tab
			if rng.IntN(2) == 0 {
				by = Open(w.store, testEnv(2))
			}
			if _, err := by.Expire(ctx, toldRetention, farFuture); err != nil {
				t.Fatal(what, err)
			}
			first, earliest := w.exactly(what, producer)
			wantEarliest := max(1, latest.ID-2)
			wantFirst := max(1, latest.ID-8)
			if held > 0 {
				wantEarliest, wantFirst = min(wantEarliest, max(held, earliest)), min(wantFirst, max(held, first))
			}
			if earliest != wantEarliest || first > wantFirst || first < wantFirst && held == 0 && earliest > first+6 {
				t.Fatalf("%s: changes from %d, snapshots from %d of %d; a consumer holds %d", what, first, earliest, latest.ID, held)
			}
		}
	}
}

// TestExpireChangelogsKilled: wherever an expiry is killed, the changes of a snapshot that can be found are whole, and the
// next expiry leaves what is named and nothing else.
func TestExpireChangelogsKilled(t *testing.T) {
	sd := seed(t)
	ctx := context.Background()
	for _, producer := range []string{"none", "lookup"} {
		for at := 1; ; at += 7 {
			what := fmt.Sprintf("seed %d, %s, killed at call %d", sd, producer, at)
			store := storage.NewMem()
			w := newTold(t, store, rand.New(rand.NewPCG(sd, uint64(at))), producer)
			for range 12 {
				w.commit(producer)
			}
			latest, err := w.tab.Latest(ctx)
			if err == nil {
				err = w.tab.CreateTag(ctx, "kept", latest, 0)
			}
			if err == nil {
				_, err = w.tab.Expire(ctx, toldRetention, farFuture)
			}
			if err != nil {
				t.Fatal(what, err)
			}
			for range 5 {
				w.commit(producer)
			}
			n, killed := 0, false
			var mu sync.Mutex
			dying := Open(storage.WithFaults(store, func(storage.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if n++; n >= at {
					killed = true
					return errInjected
				}
				return nil
			}), testEnv(1))
			if _, err := dying.Expire(ctx, toldRetention, farFuture); err != nil && !errors.Is(err, errInjected) {
				t.Fatal(what, err)
			}
			w.whole(what, producer)
			by := Open(store, testEnv(2))
			if _, err := by.Expire(ctx, toldRetention, farFuture); err != nil {
				t.Fatal(what, err)
			}
			if first, earliest := w.exactly(what, producer); first != 9 || earliest != 15 {
				t.Fatalf("%s: changes from %d, snapshots from %d", what, first, earliest)
			}
			if _, err := by.DeleteTag(ctx, "kept"); err != nil {
				t.Fatal(what, err)
			}
			w.exactly(what, producer)
			if !killed {
				break
			}
		}
	}
}

// whole checks that what tells the changes of a snapshot can be read, from some snapshot on up to the newest one.
func (w *told) whole(what, producer string) {
	w.t.Helper()
	ctx := w.t.Context()
	fresh := Open(w.store, testEnv(9))
	last, err := fresh.Latest(ctx)
	if err != nil {
		w.t.Fatal(what, err)
	}
	begun := false
	for id := int64(1); id <= last.ID; id++ {
		s, err := fresh.Told(ctx, id)
		if errors.Is(err, ErrSnapshotExpired) && !begun {
			continue
		}
		if err != nil {
			w.t.Fatal(what, err)
		}
		begun = true
		need := map[string]bool{}
		w.changes(need, s)
		if producer == "none" && s.CommitKind == Append {
			delta, err := w.tab.Delta(ctx, s)
			if err != nil {
				w.t.Fatal(what, err)
			}
			w.files(need, delta, added)
		}
		for name := range need {
			if ok, err := fresh.exists(ctx, name); err != nil || !ok {
				w.t.Fatalf("%s: %s, which tells changes of snapshot %d, is gone (%v)", what, name, id, err)
			}
		}
	}
}

// TestChangelogsEnd: when the options do not keep changelogs any more, all go, but for what a consumer wants.
func TestChangelogsEnd(t *testing.T) {
	ctx := t.Context()
	store := storage.NewMem()
	w := newTold(t, store, rand.New(rand.NewPCG(seed(t), 1)), "none")
	for range 20 {
		w.commit("none")
	}
	if _, err := w.tab.Expire(ctx, toldRetention, farFuture); err != nil {
		t.Fatal(err)
	}
	at := func(id int64) time.Time {
		s, err := w.tab.Told(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return time.UnixMilli(s.TimeMillis)
	}
	for _, c := range []struct{ id, since, upTo int64 }{{12, 12, 12}, {15, 15, 15}, {18, 18, 18}, {20, 20, 20}} {
		since, err := w.tab.ToldSince(ctx, at(c.id))
		upTo, err2 := w.tab.ToldUpTo(ctx, at(c.id))
		if errors.Join(err, err2) != nil || since.ID != c.since || upTo.ID != c.upTo {
			t.Error(c, since, upTo, err, err2)
		}
	}
	if _, err := w.tab.ToldUpTo(ctx, at(12).Add(-time.Second)); !errors.Is(err, ErrNotThatOld) {
		t.Error(err)
	}
	if s, err := w.tab.ToldSince(ctx, farFuture); s != nil || err != nil {
		t.Error(s, err)
	}
	w.unset()
	held := Open(store, testEnv(2))
	release := held.Hold(16)
	for _, c := range []struct{ gone, first int64 }{{4, 16}, {2, 18}} {
		done, err := held.Expire(ctx, toldRetention, farFuture)
		first, ferr := w.tab.EarliestTold(ctx)
		if err != nil || ferr != nil || int64(done.Changelogs) != c.gone || first.ID != c.first {
			t.Fatal(done, err, first, ferr)
		}
		release()
	}
	for _, name := range listing(t, store) {
		if strings.HasPrefix(name, "changelog/changelog-") || name == changelogLatestHint {
			t.Error(name, "is left")
		}
	}
}

// unset removes the options that keep changelogs.
func (w *told) unset() {
	w.t.Helper()
	var changes []schema.Change
	for name := range toldOptions {
		if strings.HasPrefix(name, "changelog.") {
			changes = append(changes, schema.RemoveOption{Name: name})
		}
	}
	if _, _, err := w.tab.AlterSchema(w.t.Context(), changes); err != nil {
		w.t.Fatal(err)
	}
}

// TestChangelogsUnset: the options go while a Table expires and goes on to; its next expiry deletes all changelogs, however
// few snapshots may go at a time, and what a tag does not name of what they told is gone once their successors expire.
// Deleting a tag before that expiry spares what they need.
func TestChangelogsUnset(t *testing.T) {
	sd := seed(t)
	ctx := t.Context()
	for round := range 12 {
		producer := []string{"none", "lookup"}[round%2]
		what := fmt.Sprintf("seed %d, round %d, %s", sd, round, producer)
		w := newTold(t, storage.NewMem(), rand.New(rand.NewPCG(sd, uint64(round))), producer)
		for range 6 {
			w.commit(producer)
		}
		s, err := w.tab.Latest(ctx)
		if err == nil {
			err = errors.Join(w.tab.CreateTag(ctx, "kept", s, 0), w.tab.CreateTag(ctx, "dropped", s, 0))
		}
		for range 6 {
			w.commit(producer)
		}
		if err == nil {
			_, err = w.tab.Expire(ctx, toldRetention, farFuture)
		}
		if err != nil {
			t.Fatal(what, err)
		}
		w.exactly(what, producer)
		w.unset()
		if round%4 < 2 {
			_, err = w.tab.DeleteTag(ctx, "kept")
		}
		if err == nil {
			_, err = w.tab.DeleteTag(ctx, "dropped")
		}
		if err != nil {
			t.Fatal(what, err)
		}
		w.whole(what, producer)
		few := toldRetention
		few.Limit = 2
		for i := range 5 {
			done, err := w.tab.Expire(ctx, few, farFuture)
			if err != nil {
				t.Fatal(what, err)
			}
			if first, earliest := w.exactly(what, producer); first != earliest || i == 0 && done.Changelogs == 0 {
				t.Fatalf("%s: changes from %d, snapshots from %d; %+v", what, first, earliest, done)
			}
			w.commit(producer)
			w.commit(producer)
		}
	}
}

// TestChangelogsUnsetKilled: the same, wherever that expiry is killed.
func TestChangelogsUnsetKilled(t *testing.T) {
	sd := seed(t)
	ctx := t.Context()
	for at := 1; ; at += 3 {
		what := fmt.Sprintf("seed %d, killed at call %d", sd, at)
		store := storage.NewMem()
		w := newTold(t, store, rand.New(rand.NewPCG(sd, uint64(at))), "none")
		for range 12 {
			w.commit("none")
		}
		if _, err := w.tab.Expire(ctx, toldRetention, farFuture); err != nil {
			t.Fatal(what, err)
		}
		w.commit("none")
		n, killed := 0, false
		var mu sync.Mutex
		dying := Open(storage.WithFaults(store, func(storage.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n >= at {
				killed = true
				return errInjected
			}
			return nil
		}), testEnv(1))
		first := w.tab
		if at%2 == 0 { // what is killed leaves changelogs, beside snapshots too
			first = dying
		}
		_, err := first.Expire(ctx, toldRetention, farFuture)
		w.unset()
		few := toldRetention
		few.Limit = 2
		if err == nil {
			_, err = dying.Expire(ctx, few, farFuture)
		}
		if err != nil && !errors.Is(err, errInjected) {
			t.Fatal(what, err)
		}
		w.whole(what, "none")
		if _, err := Open(store, testEnv(2)).Expire(ctx, toldRetention, farFuture); err != nil {
			t.Fatal(what, err)
		}
		if first, earliest := w.exactly(what, "none"); first != 11 || earliest != 11 {
			t.Fatalf("%s: changes from %d, snapshots from %d", what, first, earliest)
		}
		if !killed {
			break
		}
	}
}

// TestBranchChangelogs: what tells the changes of a branch's long-lived changelogs stays, whatever the options of the main
// branch are, for those are not the branch's.
func TestBranchChangelogs(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct{ main, branch string }{{"none", "none"}, {"lookup", "none"}, {"none", "lookup"}} {
		store := storage.NewMem()
		w := newTold(t, store, rand.New(rand.NewPCG(seed(t), 1)), c.main)
		w.unset()
		for range 20 {
			w.commit(c.branch)
		}
		var all []*Snapshot
		for id := int64(1); id <= 15; id++ {
			s, err := w.tab.Snapshot(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			putTag(t, store, "branch/branch-b/"+changelogName(id), s)
			all = append(all, s)
		}
		if _, err := w.tab.Expire(ctx, toldRetention, farFuture); err != nil {
			t.Fatal(err)
		}
		need := map[string]bool{}
		for _, s := range all {
			w.changes(need, s)
			if c.branch == "none" {
				w.list(need, s.DeltaManifestList, s.DeltaManifestListSize)
				delta, err := w.tab.Delta(ctx, s)
				if err != nil {
					t.Fatal(err)
				}
				w.files(need, delta, func(e *Entry) bool { return added(e) && appended(e) })
			}
		}
		for name := range need {
			if ok, err := w.tab.exists(ctx, name); err != nil || !ok {
				t.Errorf("main %s, branch %s: %s is gone (%v)", c.main, c.branch, name, err)
			}
		}
	}
}
