package manifest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
)

// seed is printed by every random test; CALVE_SEED repeats one.
func seed(t testing.TB) uint64 {
	t.Helper()
	n := uint64(1)
	if s := os.Getenv("CALVE_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d (set CALVE_SEED to change it)", n)
	return n
}

// noWait lets others run instead of waiting.
func noWait(time.Duration) <-chan time.Time {
	runtime.Gosched()
	ch := make(chan time.Time, 1)
	ch <- time.Time{}
	return ch
}

var errInjected = errors.New("injected")

// flaky fails a share of all calls: before the work, after it with the reply lost, or in the middle of it.
func flaky(s storage.Store, rng *rand.Rand, share float64) storage.Store {
	var mu sync.Mutex
	return storage.WithFaults(s, func(op storage.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() >= share {
			return nil
		}
		switch rng.IntN(3) {
		case 0:
			return errInjected
		case 1:
			return storage.LoseReply(errInjected)
		}
		return storage.Partial(op.Len/2, errInjected)
	})
}

// worker commits its own files: appends, then moves and merges of what it appended.
type worker struct {
	user  string
	tab   *Table
	own   []Entry // its live files
	rng   *rand.Rand
	names int
	done  []string // "identifier/kind" of all commits that were acknowledged
}

// entries makes up the next change of a worker.
func (w *worker) entries(t testing.TB, bucket int) (CommitKind, []Entry) {
	if len(w.own) < 2 || w.rng.IntN(3) > 0 {
		w.names++
		return Append, []Entry{file(t, fmt.Sprintf("%s-%d", w.user, w.names), "x", bucket, 0, int64(w.names)*10, int64(w.names)*10+9)}
	}
	i := w.rng.IntN(len(w.own))
	e := w.own[i]
	if e.File.Level == 0 {
		return Compact, moved(e, 1)
	}
	return Overwrite, []Entry{gone(e)}
}

// apply does to the worker's model what its commit did to the table.
func (w *worker) apply(entries []Entry) {
	for _, e := range entries {
		if e.Kind == Remove {
			w.own = slices.DeleteFunc(w.own, func(o Entry) bool { return idOf(&o) == idOf(&e) })
		} else {
			w.own = append(w.own, e)
		}
	}
}

// land commits until it is certain that the change is there, exactly once.
func (w *worker) land(t testing.TB, id int64, kind CommitKind, entries []Entry) error {
	c := Commit{Kind: kind, User: w.user, Identifier: id, Entries: entries}
	for range 1000 {
		s, err := w.tab.Commit(context.Background(), c)
		if err == nil {
			if s.CommitUser != w.user || s.CommitIdentifier != id || s.CommitKind != kind {
				return fmt.Errorf("%s got somebody else's snapshot: %+v", w.user, s)
			}
			w.apply(entries)
			w.done = append(w.done, fmt.Sprintf("%s/%d/%s", w.user, id, kind))
			return nil
		}
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrCorrupt) || !errors.Is(err, errInjected) {
			return fmt.Errorf("%s commit %d: %w", w.user, id, err)
		}
	}
	return errors.New("the storage never recovered")
}

// racers runs committers against one table and checks what is there afterwards.
func racers(t *testing.T, store storage.Store, n, commits int, share float64) {
	sd := seed(t)
	if err := Create(context.Background(), store, keyedSchema(t, nil)); err != nil {
		t.Fatal(err)
	}
	workers := make([]*worker, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range workers {
		env := testEnv(sd + uint64(i))
		env.After = noWait
		w := &worker{user: fmt.Sprint("user", i), rng: rand.New(rand.NewPCG(sd, uint64(i)))}
		w.tab = Open(flaky(store, rand.New(rand.NewPCG(sd, uint64(100+i))), share), env)
		workers[i] = w
		wg.Go(func() {
			for id := range commits {
				kind, entries := w.entries(t, i)
				if errs[i] = w.land(t, int64(id), kind, entries); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	checkLanded(t, store, workers)
}

// checkLanded demands contiguous ids, each acknowledged commit exactly once and nothing else, and the live files that
// the workers believe in.
func checkLanded(t *testing.T, store storage.Store, workers []*worker) {
	t.Helper()
	tab := Open(store, testEnv(9))
	var got, want []string
	snaps := goldenSnapshots(t, tab)
	for i, s := range snaps {
		if s.ID != int64(i+1) {
			t.Fatalf("snapshot %d at place %d", s.ID, i)
		}
		got = append(got, fmt.Sprintf("%s/%d/%s", s.CommitUser, s.CommitIdentifier, s.CommitKind))
	}
	files, rows := []string{}, int64(0)
	for _, w := range workers {
		want = append(want, w.done...)
		for _, e := range w.own {
			files = append(files, fmt.Sprintf("%s@%d", e.File.Name, e.File.Level))
			rows += e.File.Rows
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	slices.Sort(files)
	if !slices.Equal(got, want) {
		t.Fatalf("%d snapshots, %d commits were acknowledged:\n got %v\nwant %v", len(got), len(want), got, want)
	}
	last := snaps[len(snaps)-1]
	if live := liveNames(t, tab, last); !slices.Equal(live, files) {
		t.Fatalf("live files\n got %v\nwant %v", live, files)
	}
	if last.TotalRecordCount != rows {
		t.Fatalf("%d rows stated, %d in live files", last.TotalRecordCount, rows)
	}
}

func TestRaceMem(t *testing.T)       { racers(t, storage.NewMem(), 16, 8, 0) }
func TestRaceMemFaults(t *testing.T) { racers(t, storage.NewMem(), 16, 5, 0.05) }

func TestRaceLocal(t *testing.T)       { racersLocal(t, 0) }
func TestRaceLocalFaults(t *testing.T) { racersLocal(t, 0.05) }

func racersLocal(t *testing.T, share float64) {
	store, err := storage.NewLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	racers(t, store, 16, 3, share)
}

// TestRaceLeavesNothing: without faults, what losers wrote is gone afterwards.
func TestRaceLeavesNothing(t *testing.T) {
	store := storage.NewMem()
	racers(t, store, 8, 10, 0)
	named := namedBySnapshots(t, Open(store, testEnv(1)))
	for _, name := range listing(t, store) {
		if strings.HasPrefix(name, "manifest/") && !named[path.Base(name)] {
			t.Errorf("%s is named by no snapshot", name)
		}
	}
}

// TestSharedTable: goroutines that share one Table wait for each other.
func TestSharedTable(t *testing.T) {
	tab := newKeyed(t, storage.NewMem(), nil)
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() {
			for id := range 5 {
				_, errs[i] = tab.Commit(context.Background(), Commit{Kind: Append, User: fmt.Sprint(i), Identifier: int64(id)})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if s, err := tab.Latest(context.Background()); err != nil || s.ID != 80 {
		t.Fatal(s, err)
	}
}

// TestUnknownOutcome takes the snapshot put through every way of ending badly.
func TestUnknownOutcome(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name    string
		fault   func(n int) error // for the n-th put of the snapshot
		lands   bool              // it is there in the end, without repeating
		unknown bool
	}{
		{"reply lost once", func(n int) error { return faultIf(n == 1, storage.LoseReply(errInjected)) }, true, false},
		{"reply lost twice", func(n int) error { return faultIf(n <= 2, storage.LoseReply(errInjected)) }, true, false},
		{"reply always lost", func(int) error { return storage.LoseReply(errInjected) }, false, true}, // there, but maybe not durable
		{"never arrives, no reply", func(int) error { return fmt.Errorf("%w: %w", storage.ErrUnknown, errInjected) }, false, true},
		{"refused every time", func(int) error { return errInjected }, false, false},
		{"refused five times", func(n int) error { return faultIf(n <= 5, errInjected) }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := storage.NewMem()
			tab := newKeyed(t, mem, nil)
			commit(t, tab, Commit{Identifier: 1})
			before := listing(t, mem)
			n, on := 0, true
			tab.store = storage.WithFaults(mem, func(op storage.Op) error {
				if on && op.Kind == storage.OpPutIfAbsent {
					n++
					return c.fault(n)
				}
				return nil
			})
			change := Commit{Kind: Append, User: "user", Identifier: 2, Entries: []Entry{file(t, "a", "x", 0, 0, 1, 1)}}
			s, err := tab.Commit(ctx, change)
			switch {
			case c.lands:
				if err != nil || s.ID != 2 {
					t.Fatal(s, err)
				}
				return
			case err == nil || errors.Is(err, storage.ErrUnknown) != c.unknown || !errors.Is(err, errInjected):
				t.Fatal(err)
			}
			after := listing(t, mem)
			if kept := len(after) > len(before); kept != c.unknown {
				t.Fatalf("files after the failure: %v", after)
			}
			// The put that was thought lost arrives now, after all, or never: repeating the commit gives one snapshot.
			on = false
			if c.unknown {
				data, err := encodeSnapshot(tab.undecided)
				if err != nil {
					t.Fatal(err)
				}
				if err := mem.PutIfAbsent(ctx, snapshotName(2), data); err != nil && !errors.Is(err, storage.ErrExists) {
					t.Fatal(err)
				}
			}
			s, err = tab.Commit(ctx, change)
			if err != nil || s.ID != 2 {
				t.Fatal(s, err)
			}
			if s = commit(t, tab, Commit{Identifier: 3}); s.ID != 3 {
				t.Fatal(s)
			}
			if live := strings.Join(liveNames(t, tab, s), " "); live != "a@0" {
				t.Fatal(live)
			}
		})
	}
}

func faultIf(yes bool, err error) error {
	if yes {
		return err
	}
	return nil
}

// TestLatePut: a put of unknown outcome arrives while the caller repeats the commit.
func TestLatePut(t *testing.T) {
	ctx := context.Background()
	mem := storage.NewMem()
	tab := newKeyed(t, mem, nil)
	commit(t, tab, Commit{Identifier: 1})
	var late []byte
	mode := "swallow"
	tab.store = storage.WithFaults(lateStore{mem, func(data []byte) {
		if mode == "swallow" {
			late = data
		}
	}}, func(op storage.Op) error {
		if op.Kind == storage.OpPutIfAbsent {
			switch mode {
			case "swallow":
				return nil
			case "arrive": // just before the repeated one
				mode = ""
				return faultIf(mem.PutIfAbsent(ctx, snapshotName(2), late) != nil, errInjected)
			}
		}
		return nil
	})
	change := Commit{Kind: Append, User: "user", Identifier: 2, Entries: []Entry{file(t, "a", "x", 0, 0, 1, 1)}}
	if _, err := tab.Commit(ctx, change); !errors.Is(err, storage.ErrUnknown) {
		t.Fatal(err)
	}
	mode = "arrive"
	tab.store = storage.WithFaults(mem, func(op storage.Op) error {
		if op.Kind == storage.OpPutIfAbsent && mode == "arrive" {
			mode = ""
			return faultIf(mem.PutIfAbsent(ctx, snapshotName(2), late) != nil, errInjected)
		}
		return nil
	})
	s, err := tab.Commit(ctx, change)
	if err != nil || s.ID != 2 {
		t.Fatal(s, err)
	}
	if latest, err := Open(mem, testEnv(1)).Latest(ctx); err != nil || latest.ID != 2 {
		t.Fatal(latest, err)
	}
	if live := strings.Join(liveNames(t, tab, s), " "); live != "a@0" {
		t.Fatal(live)
	}
}

// lateStore swallows conditional puts of snapshots: they are on their way, for ever.
type lateStore struct {
	*storage.Mem
	take func([]byte)
}

func (s lateStore) PutIfAbsent(_ context.Context, name string, data []byte) error {
	s.take(slices.Clone(data))
	return fmt.Errorf("put %s: %w", name, storage.ErrUnknown)
}

// TestCancelledCommit: a context that ends while the put is in doubt gives the third outcome, one that ends before it
// leaves no snapshot.
func TestCancelledCommit(t *testing.T) {
	mem := storage.NewMem()
	tab := newKeyed(t, mem, nil)
	commit(t, tab, Commit{Identifier: 1})
	for _, kind := range []storage.OpKind{storage.OpCreate, storage.OpPutIfAbsent} {
		ctx, cancel := context.WithCancel(context.Background())
		tab.store = storage.WithFaults(mem, func(op storage.Op) error {
			if op.Kind != kind {
				return nil
			}
			cancel()
			return storage.LoseReply(storage.ErrHang)
		})
		_, err := tab.Commit(ctx, Commit{Kind: Append, User: "user", Identifier: 2})
		if !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrUnknown) != (kind == storage.OpPutIfAbsent) {
			t.Fatalf("%v: %v", kind, err)
		}
	}
	tab.store = mem
	if s := commit(t, tab, Commit{Identifier: 2}); s.ID != 2 {
		t.Fatalf("the repeated commit made snapshot %d", s.ID)
	}
}

// TestSleeper: a committer that slept while others went on and expired the snapshots it knew does not believe in its
// own put below the earliest snapshot.
func TestSleeper(t *testing.T) {
	for _, empty := range []bool{false, true} {
		for _, known := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("empty=%v known=%d", empty, known), func(t *testing.T) {
				ctx := context.Background()
				mem := storage.NewMem()
				tab := newKeyed(t, mem, nil)
				for i := range known {
					commit(t, tab, Commit{Identifier: int64(i)})
				}
				slept := false
				sleeper := Open(storage.WithFaults(mem, func(op storage.Op) error {
					if op.Kind == storage.OpPutIfAbsent && !slept {
						slept = true
						for i := range 20 {
							commit(t, tab, Commit{Identifier: int64(100 + i), Entries: []Entry{file(t, fmt.Sprint("other", i), "x", 0, 0, 1, 1)}})
						}
						if _, err := tab.Expire(ctx, Retention{Min: 5, Max: 5}, time.UnixMilli(1<<41)); err != nil {
							t.Error(err)
						}
					}
					return nil
				}), testEnv(3))
				c := Commit{Kind: Append, User: "sleeper", Identifier: 1}
				if !empty {
					c.Entries = []Entry{file(t, "mine", "x", 1, 0, 1, 1)}
				}
				s, err := sleeper.Commit(ctx, c)
				if empty && errors.Is(err, storage.ErrUnknown) {
					return // an empty commit leaves no trace to look for
				}
				if err != nil || s.ID != int64(known+21) {
					t.Fatal(s, err)
				}
				first, err := Open(mem, testEnv(1)).Earliest(ctx)
				if err != nil || first.ID != int64(known+16) {
					t.Fatal(first, err)
				}
			})
		}
	}
}

// TestDoubtOutlivesBase: a put of unknown outcome is not repeated once its base has expired, which could bring an
// expired id back; when its file is found in what came later it counts.
func TestDoubtOutlivesBase(t *testing.T) {
	for _, arrives := range []bool{false, true} {
		ctx := context.Background()
		mem := storage.NewMem()
		tab := newKeyed(t, mem, nil)
		commit(t, tab, Commit{Identifier: 1})
		first := true
		sleeper := Open(storage.WithFaults(mem, func(op storage.Op) error {
			if op.Kind != storage.OpPutIfAbsent || !first {
				return nil
			}
			first = false
			if arrives {
				return storage.LoseReply(errInjected)
			}
			return storage.ErrUnknown
		}), testEnv(3))
		// PutOnce reads back at once; hide the outcome from it and let the world go on before the commit looks again.
		sleeper.store = blind{sleeper.store, func() bool { return first }, func() {
			for i := range 20 {
				commit(t, tab, Commit{Identifier: int64(100 + i), Entries: []Entry{file(t, fmt.Sprint("other", i), "x", 0, 0, 1, 1)}})
			}
			if _, err := tab.Expire(ctx, Retention{Min: 5, Max: 5}, time.UnixMilli(1<<41)); err != nil {
				t.Error(err)
			}
		}}
		s, err := sleeper.Commit(ctx, Commit{Kind: Append, User: "sleeper", Identifier: 1, Entries: []Entry{file(t, "mine", "x", 1, 0, 1, 1)}})
		if arrives && (err != nil || s.ID != 2) {
			t.Fatal(s, err)
		}
		if !arrives && !errors.Is(err, storage.ErrUnknown) {
			t.Fatal(s, err)
		}
		if ok, err := tab.exists(ctx, snapshotName(2)); err != nil || ok {
			t.Fatal("an expired id came back", err)
		}
	}
}

// blind fails the read-back that follows the first put, after something else has happened.
type blind struct {
	storage.Store
	armed   func() bool
	between func()
}

func (b blind) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	armed := b.armed()
	err := b.Store.PutIfAbsent(ctx, name, data)
	if !armed {
		return err
	}
	b.between()
	return blindness{err}
}

func (b blind) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	return storage.ReadAll(ctx, b.Store, name, limit)
}

// blindness is an error that PutOnce cannot settle: the name is taken, and gone when read back.
type blindness struct{ error }

func (b blindness) Is(target error) bool { return target == storage.ErrExists }
