package manifest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
)

// farFuture makes every snapshot old.
var farFuture = time.UnixMilli(1 << 41)

// dataPath is where a file's bytes are.
func dataPath(t testing.TB, tab *Table, e *Entry) string {
	t.Helper()
	s, err := tab.LatestSchema(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	opt, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := DataDir(s, opt, e.Partition, e.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/" + e.File.Name
}

// writeData makes the data files of entries.
func writeData(t testing.TB, tab *Table, entries []Entry) {
	t.Helper()
	for i := range entries {
		if entries[i].Kind != Add {
			continue
		}
		p := dataPath(t, tab, &entries[i])
		names := []string{p}
		for _, x := range entries[i].File.ExtraFiles {
			names = append(names, path.Dir(p)+"/"+x)
		}
		for _, n := range names {
			u, err := tab.store.Create(context.Background(), n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := u.Write([]byte("data")); err != nil {
				t.Fatal(err)
			}
			if err := u.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// history makes a table with n commits of appends, moves, compactions and overwrites, with data files.
func history(t testing.TB, tab *Table, rng *rand.Rand, n int) {
	t.Helper()
	w := &worker{user: "h", tab: tab, rng: rng}
	for id := range n {
		kind, entries := w.entries(t, rng.IntN(3))
		for i := range entries {
			if kind == Append && rng.IntN(4) == 0 {
				entries[i].File.ExtraFiles = []string{entries[i].File.Name + ".index"}
			}
		}
		if kind == Append {
			writeData(t, tab, entries)
		}
		if err := w.land(t, int64(id), kind, entries); err != nil {
			t.Fatal(err)
		}
	}
}

func putTag(t testing.TB, store storage.Store, name string, s *Snapshot) {
	t.Helper()
	data, err := encodeSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	data = []byte(strings.Replace(string(data), "{", `{ "tagCreateTime": [2026, 1, 2, 3, 4, 5, 6], "tagTimeRetained": 3600.000000000,`, 1))
	if err := store.PutIfAbsent(context.Background(), name, data); err != nil {
		t.Fatal(err)
	}
}

// wantExactly checks that data, manifest and snapshot folders hold what the snapshots name and nothing else.
func wantExactly(t testing.TB, tab *Table, snaps []*Snapshot) {
	t.Helper()
	ctx := context.Background()
	want := map[string]bool{}
	for _, s := range snaps {
		want["manifest/"+s.BaseManifestList], want["manifest/"+s.DeltaManifestList] = true, true
		metas, err := tab.manifests(ctx, s)
		if err != nil {
			t.Fatalf("snapshot %d: %v", s.ID, err)
		}
		for _, m := range metas {
			want["manifest/"+m.Name] = true
		}
		live, err := tab.Live(ctx, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range live {
			p := dataPath(t, tab, &live[i])
			want[p] = true
			for _, x := range live[i].File.ExtraFiles {
				want[path.Dir(p)+"/"+x] = true
			}
		}
	}
	for _, name := range listing(t, tab.store) {
		if strings.HasPrefix(name, "manifest/") || strings.Contains(name, "bucket-") {
			if !want[name] {
				t.Errorf("%s is named by nothing and still there", name)
			}
			delete(want, name)
		}
	}
	for name := range want {
		t.Errorf("%s is named and gone", name)
	}
}

func TestExpire(t *testing.T) {
	sd := seed(t)
	ctx := context.Background()
	for round := range uint64(3) {
		rng := rand.New(rand.NewPCG(sd, round))
		store := storage.NewMem()
		tab := newKeyed(t, store, nil)
		history(t, tab, rng, 120)
		all := goldenSnapshots(t, tab)
		keep := slices.Clone(all[len(all)-10:])
		for _, id := range []int{5, 40, 41, 113} {
			putTag(t, store, fmt.Sprint("tag/tag-t", id), all[id-1])
			if id < 111 {
				keep = append(keep, all[id-1])
			}
		}
		putTag(t, store, "branch/branch-b/tag/tag-x", all[69])
		putTag(t, store, "branch/branch-b/snapshot/snapshot-70", all[69])
		keep = append(keep, all[69])
		if err := store.Put(ctx, "consumer/consumer-slow", []byte(`{"nextSnapshot": 90}`)); err != nil {
			t.Fatal(err)
		}
		r := Retention{Min: 10, Max: 10, Limit: 50}
		for _, want := range []int64{51, 90, 90} {
			done, err := tab.Expire(ctx, r, farFuture)
			if err != nil || done.Earliest != want {
				t.Fatal(done, err)
			}
		}
		if err := store.Delete(ctx, "consumer/consumer-slow"); err != nil {
			t.Fatal(err)
		}
		done, err := tab.Expire(ctx, r, farFuture)
		if err != nil || done.Earliest != 111 || done.Snapshots != 21 {
			t.Fatal(done, err)
		}
		wantExactly(t, tab, keep)
		other := Open(store, testEnv(2))
		if _, err := other.Snapshot(ctx, 110); !errors.Is(err, ErrSnapshotExpired) {
			t.Fatal(err)
		}
		if _, err := tab.Snapshot(ctx, 1); !errors.Is(err, ErrSnapshotExpired) {
			t.Fatal(err)
		}
		if s, err := other.Earliest(ctx); err != nil || s.ID != 111 {
			t.Fatal(s, err)
		}
		commit(t, tab, Commit{Identifier: 1000})
	}
}

func TestExpireRules(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		keep Retention
		now  int64 // snapshot i of 20 has time i
		want int64
	}{
		{"all old, minimum", Retention{Min: 10}, 100, 11},
		{"age decides", Retention{Min: 1, Age: 15 * time.Millisecond}, 20, 5},
		{"minimum over age", Retention{Min: 18, Age: 5 * time.Millisecond}, 20, 3},
		{"maximum over age", Retention{Min: 1, Max: 4, Age: time.Hour}, 20, 17},
		{"minimum over maximum", Retention{Min: 6, Max: 4, Age: time.Hour}, 20, 15},
		{"limit", Retention{Min: 1, Limit: 3}, 100, 4},
		{"zero value keeps the newest", Retention{}, 100, 20},
		{"nothing old enough", Retention{Min: 1, Age: time.Hour}, 20, 1},
	} {
		store := storage.NewMem()
		tab := newKeyed(t, store, nil)
		if done, err := tab.Expire(ctx, c.keep, farFuture); err != nil || done != (Expired{}) {
			t.Fatal(done, err)
		}
		n := int64(0)
		tab.env.Now = func() time.Time { n++; return time.UnixMilli(n) }
		for i := range 20 {
			commit(t, tab, Commit{Identifier: int64(i)})
		}
		done, err := tab.Expire(ctx, c.keep, time.UnixMilli(c.now))
		if err != nil || done.Earliest != c.want || done.Snapshots != int(c.want-1) {
			t.Errorf("%s: %+v %v, want %d", c.name, done, err, c.want)
		}
	}
}

// TestExpireFails: whatever call of an expiry fails, the snapshots that stay are whole, and the next expiry ends what
// the failed one began.
func TestExpireFails(t *testing.T) {
	sd := seed(t)
	ctx := context.Background()
	for at := 1; ; at += 19 {
		store := storage.NewMem()
		tab := newKeyed(t, store, nil)
		history(t, tab, rand.New(rand.NewPCG(sd, uint64(at))), 40)
		all := goldenSnapshots(t, tab)
		n := 0
		failed := false
		var mu = make(chan struct{}, 1)
		broken := Open(storage.WithFaults(store, func(storage.Op) error {
			mu <- struct{}{}
			defer func() { <-mu }()
			if n++; n >= at {
				failed = true
				return errInjected
			}
			return nil
		}), testEnv(1))
		r := Retention{Min: 5, Max: 5}
		_, err := broken.Expire(ctx, r, farFuture)
		if err != nil && !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		for _, s := range all { // whatever snapshot can be seen is whole
			if ok, err := tab.exists(ctx, snapshotName(s.ID)); err != nil || !ok && s.ID > 35 {
				t.Fatalf("failure at call %d: snapshot %d is gone (%v)", at, s.ID, err)
			} else if !ok {
				continue
			}
			live, err := tab.Live(ctx, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range live {
				if ok, err := tab.exists(ctx, dataPath(t, tab, &live[i])); err != nil || !ok {
					t.Fatalf("failure at call %d: %s of snapshot %d is gone (%v)", at, live[i].File.Name, s.ID, err)
				}
			}
		}
		if done, err := Open(store, testEnv(1)).Expire(ctx, r, farFuture); err != nil || done.Earliest != 36 {
			t.Fatal(done, err)
		}
		wantExactly(t, tab, all[35:])
		if !failed {
			return
		}
	}
}

// unanswered carries out the first conditional put of a record of an expiry, and answers it with an error.
type unanswered struct {
	storage.Store
	answer error
	puts   int
}

func (u *unanswered) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	err := u.Store.PutIfAbsent(ctx, name, data)
	if strings.HasPrefix(name, expiryDir+"/") {
		if u.puts++; err == nil && u.puts == 1 {
			return u.answer
		}
	}
	return err
}

// TestExpireReplyLost: the answer to the put of an expiry's record is lost, or a client that tries again finds what its first try
// has put; the expiry goes on.
func TestExpireReplyLost(t *testing.T) {
	for _, answer := range []error{storage.ErrUnknown, storage.ErrExists} {
		t.Run(answer.Error(), func(t *testing.T) {
			store := storage.NewMem()
			tab := newKeyed(t, store, nil)
			history(t, tab, rand.New(rand.NewPCG(seed(t), 7)), 40)
			all := goldenSnapshots(t, tab)
			broken := &unanswered{Store: store, answer: answer}
			done, err := Open(broken, testEnv(1)).Expire(t.Context(), Retention{Min: 5, Max: 5}, farFuture)
			if err != nil || done.Earliest != 36 || broken.puts == 0 {
				t.Fatal(done, err, broken.puts)
			}
			wantExactly(t, tab, all[35:])
		})
	}
}

// TestCrash cuts the power at random calls of a run of commits and expiries: what was acknowledged is there and whole,
// and work goes on.
func TestCrash(t *testing.T) {
	sd := seed(t)
	ctx := context.Background()
	for round := range uint64(60) {
		rng := rand.New(rand.NewPCG(sd, round))
		mem := storage.NewMem()
		if err := Create(ctx, mem, keyedSchema(t, nil)); err != nil {
			t.Fatal(err)
		}
		var clone *storage.Mem
		acked, ackedAtCrash := int64(0), int64(0)
		crashAt := 1 + rng.IntN(600)
		n := 0
		var mu = make(chan struct{}, 1)
		tab := Open(storage.WithFaults(mem, func(storage.Op) error {
			mu <- struct{}{}
			defer func() { <-mu }()
			if n++; n == crashAt {
				clone, ackedAtCrash = mem.CrashClone(rng), acked
			}
			return nil
		}), testEnv(sd+round))
		w := &worker{user: "w", tab: tab, rng: rng}
		const keep = 4
		for id := int64(1); clone == nil; id++ {
			kind, entries := w.entries(t, rng.IntN(3))
			if kind == Append {
				writeData(t, Open(mem, testEnv(1)), entries)
			}
			if err := w.land(t, id, kind, entries); err != nil {
				t.Fatal(err)
			}
			acked = id
			if id%5 == 0 {
				if _, err := tab.Expire(ctx, Retention{Min: keep, Max: keep}, farFuture); err != nil {
					t.Fatal(err)
				}
			}
		}
		after := Open(clone, testEnv(sd))
		latest, err := after.LatestListed(ctx) // as whoever begins to write: the hint may be as old as the cut made it
		if err != nil && !errors.Is(err, ErrNoSnapshot) {
			t.Fatal(err)
		}
		last := int64(0)
		if latest != nil {
			last = latest.ID
		}
		if last != ackedAtCrash && last != ackedAtCrash+1 {
			t.Fatalf("round %d: %d commits were acknowledged, the latest snapshot is %d", round, ackedAtCrash, last)
		}
		whole(t, after, max(1, ackedAtCrash-keep+1), last)
		if latest == nil {
			continue
		}
		for i := range 3 {
			commit(t, after, Commit{User: "next", Identifier: int64(i), Entries: []Entry{}})
		}
		if done, err := after.Expire(ctx, Retention{Min: 2, Max: 2}, farFuture); err != nil || done.Earliest != last+2 {
			t.Fatal(round, done, err)
		}
		whole(t, after, last+2, last+3)
		fresh := Open(clone, testEnv(sd))
		if s, err := fresh.Earliest(ctx); err != nil || s.ID != last+2 {
			t.Fatal(s, err)
		}
		if _, err := fresh.Snapshot(ctx, last+1); !errors.Is(err, ErrSnapshotExpired) {
			t.Fatal(err)
		}
	}
}

// whole checks that snapshots and everything they name are there.
func whole(t testing.TB, tab *Table, from, to int64) {
	t.Helper()
	ctx := context.Background()
	for s, err := range tab.EachSnapshot(ctx, from, to) {
		if err != nil {
			t.Fatal(err)
		}
		live, err := tab.Live(ctx, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range live {
			if ok, err := tab.exists(ctx, dataPath(t, tab, &live[i])); err != nil || !ok {
				t.Fatalf("snapshot %d names %s, which is gone (%v)", s.ID, live[i].File.Name, err)
			}
		}
	}
}

// TestStragglers: snapshots that a power cut brought back below the earliest do not count, and the next expiry of a
// new process removes them.
func TestStragglers(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	tab := newKeyed(t, store, nil)
	var saved []byte
	for i := range 12 {
		s := commit(t, tab, Commit{Identifier: int64(i), Entries: []Entry{file(t, fmt.Sprint("f", i), "x", 0, 0, 1, 1)}})
		if s.ID == 3 {
			var err error
			if saved, err = encodeSnapshot(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := tab.Expire(ctx, Retention{Min: 4, Max: 4}, farFuture); err != nil {
		t.Fatal(err)
	}
	if err := store.PutIfAbsent(ctx, snapshotName(3), saved); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, earliestHint); err != nil {
		t.Fatal(err)
	}
	after := Open(store, testEnv(2))
	if s, err := after.Earliest(ctx); err != nil || s.ID != 9 {
		t.Fatal(s, err)
	}
	done, err := after.Expire(ctx, Retention{Min: 2, Max: 2}, farFuture)
	if err != nil || done.Earliest != 11 {
		t.Fatal(done, err)
	}
	for _, name := range listing(t, store) {
		if name == snapshotName(3) {
			t.Fatal("the straggler is still there")
		}
	}
}
