package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// workload writes steps until it is done or something fails. states[n] is the table after n commits.
type workload struct {
	schema *schema.Schema
	rng    *rand.Rand
	states []map[string]string
	keyed  bool
	// written[n] is what commit n wrote. A commit that is done again writes other rows.
	written map[int][]row
}

func newWorkload(s *schema.Schema, rng *rand.Rand) *workload {
	return &workload{schema: s, rng: rng, states: []map[string]string{{}}, keyed: s.Keyed(), written: map[int][]row{}}
}

// step writes the rows of the next commit and publishes them. The state is noted first: a commit whose reply is lost
// may have happened.
func (w *workload) step(tab *engine.Table) error {
	n := len(w.states)
	next := maps.Clone(w.states[n-1])
	batches := 1 + w.rng.IntN(2)
	var all [][]row
	for b := range batches {
		rows := make([]row, 1+w.rng.IntN(12))
		for i := range rows {
			rows[i] = row{part: "x", id: int64(w.rng.IntN(20)), name: fmt.Sprint(n, "-", b, "-", i)}
			switch {
			case !w.keyed:
				rows[i].id = int64(n*1000 + b*100 + i)
			case w.rng.IntN(4) == 0:
				rows[i].kind = schema.Delete
			}
		}
		apply(next, rows)
		all = append(all, rows)
	}
	w.states = append(w.states, next)
	w.written[n] = slices.Concat(all...)
	for _, rows := range all {
		if err := tab.Write(context.Background(), batchOf(w.schema, rows)); err != nil {
			return err
		}
	}
	_, err := tab.Commit(context.Background(), progress(n))
	return err
}

// resume takes the states back to what the table says it has, and checks it.
func (w *workload) resume(t *testing.T, st storage.Store, tab *engine.Table, least int) {
	t.Helper()
	p, ok, err := tab.LastProgress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if ok {
		if n, err = strconv.Atoi(p.Properties["calve.test"]); err != nil {
			t.Fatal(err)
		}
	}
	if n < least || n >= len(w.states) {
		t.Fatalf("the table stands at commit %d, acknowledged were %d, tried %d", n, least, len(w.states)-1)
	}
	w.states = w.states[:n+1]
	w.check(t, st)
}

func (w *workload) check(t *testing.T, st storage.Store) {
	t.Helper()
	n := len(w.states) - 1
	if got := contents(t, st); !maps.Equal(got, w.states[n]) {
		t.Fatalf("after commit %d the table has %d rows, the model %d:\n%v\n%v", n, len(got), len(w.states[n]), got, w.states[n])
	}
}

// TestCrash cuts the power at a random call to the storage, in the middle of writing, flushing, committing, compacting,
// expiring and opening. What a disk would still have is opened again: no acknowledged commit is lost, none is there in
// part or twice, and the job goes on.
func TestCrash(t *testing.T) {
	for _, tc := range []struct {
		name   string
		schema *schema.Schema
		points int
	}{
		{"keyed", keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "2", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}), 50},
		{"append", appendSchema(t), 15},
		{"dynamic", keyedSchema(t, false, map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "3", "num-sorted-run.compaction-trigger": "2", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}), 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rng := newRand(t)
			calls := crashAt(t, tc.schema, rng, math.MaxInt)
			for range tc.points {
				if crashAt(t, tc.schema, rng, 1+rng.IntN(calls)); t.Failed() {
					return
				}
			}
		})
	}
}

// crashAt runs the workload on a store that dies at its n-th call, and recovers. It gives the number of calls made.
func crashAt(t *testing.T, s *schema.Schema, rng *rand.Rand, n int) int {
	t.Helper()
	disk := storage.NewMem()
	mustCreate(t, disk, s)
	var mu sync.Mutex
	calls := 0
	after := disk // what is left after the crash
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
	w := newWorkload(s, rand.New(rand.NewPCG(rng.Uint64(), 2)))
	acknowledged := 0
	set := engine.Settings{Job: "j", Compaction: 1, BufferBytes: 300, ExpireEvery: time.Millisecond}
	tab, err := engine.Open(t.Context(), st, set, env)
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
	again, err := engine.Open(t.Context(), after, engine.Settings{Job: "j"}, env)
	if err != nil {
		t.Fatalf("crash at call %d: %v", n, err)
	}
	w.resume(t, after, again, acknowledged)
	for range 2 {
		if err := w.step(again); err != nil {
			t.Fatalf("crash at call %d: %v", n, err)
		}
	}
	if err := again.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.check(t, after)
	// A power cut can bring back snapshots whose files are gone; the next expiry takes them away again.
	if _, err := readerOf(after).Meta().Expire(t.Context(), manifest.Retention{Min: 1, Max: 3}, time.Now()); err != nil {
		t.Fatal(err)
	}
	w.check(t, after)
	mustVerify(t, after)
	return calls
}

// TestLostReplies loses every third reply to the conditional put of a snapshot, of commits and compactions alike.
func TestLostReplies(t *testing.T) {
	disk := storage.NewMem()
	s := keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "2", "bucket": "-1", "dynamic-bucket.target-row-num": "7"})
	mustCreate(t, disk, s)
	var puts, lost atomic.Int64
	st := storage.WithFaults(disk, func(op storage.Op) error {
		if op.Kind == storage.OpPutIfAbsent && strings.HasPrefix(op.Name, "snapshot/") && puts.Add(1)%3 == 0 {
			lost.Add(1)
			return storage.LoseReply(errInjected)
		}
		return nil
	})
	tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j", Compaction: 1}, hasty())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkload(s, newRand(t))
	for range 15 {
		if err := w.step(tab); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lost.Load() < 5 {
		t.Fatalf("only %d replies were lost", lost.Load())
	}
	w.check(t, disk)
	mustVerify(t, disk)
	if got, want := dataFiles(t, disk), liveFiles(t, disk); len(got) < len(want) {
		t.Fatalf("%d files for %d live ones", len(got), len(want))
	}
}

// TestUnknownOutcome lets the storage go away with the put of a snapshot, before or after it was done. The handle is
// poisoned and deletes nothing; the next one finds out.
func TestUnknownOutcome(t *testing.T) {
	for _, happened := range []bool{false, true} {
		t.Run(fmt.Sprint("happened ", happened), func(t *testing.T) {
			disk := storage.NewMem()
			s := keyedSchema(t, false, nil)
			mustCreate(t, disk, s)
			var armed, down atomic.Bool
			st := storage.WithFaults(disk, func(op storage.Op) error {
				if down.Load() {
					return errInjected
				}
				if armed.Load() && op.Kind == storage.OpPutIfAbsent {
					down.Store(true)
					if happened {
						return storage.LoseReply(errInjected)
					}
					return fmt.Errorf("%w: %w", storage.ErrUnknown, errInjected)
				}
				return nil
			})
			tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j"}, hasty())
			if err != nil {
				t.Fatal(err)
			}
			w := newWorkload(s, newRand(t))
			if err := w.step(tab); err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			if err := w.step(tab); !errors.Is(err, engine.ErrPoisoned) || !errors.Is(err, errInjected) {
				t.Fatalf("got %v, want ErrPoisoned with its cause", err)
			}
			if _, err := tab.Commit(t.Context(), progress(9)); !errors.Is(err, engine.ErrPoisoned) {
				t.Fatalf("a poisoned handle commits: %v", err)
			}
			down.Store(false) // Close could delete files now, and must not
			armed.Store(false)
			if err := tab.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := mustOpen(t, disk, engine.Settings{Job: "j"})
			want := 1
			if happened {
				want = 2
			}
			w.resume(t, disk, again, want)
			if len(w.states)-1 != want {
				t.Fatalf("the table stands at commit %d, want %d", len(w.states)-1, want)
			}
			if err := w.step(again); err != nil {
				t.Fatal(err)
			}
			w.check(t, disk)
			mustVerify(t, disk)
		})
	}
}

// TestDiskFull fills the disk while rows are flushed, between commits or in one. Nothing is published without them,
// nothing is left behind, and the job goes on from its last commit when there is room again.
func TestDiskFull(t *testing.T) {
	for _, buffer := range []int64{1, 1 << 20} { // 1: each Write starts a flush in the background
		disk := storage.NewMem()
		s := keyedSchema(t, false, nil)
		mustCreate(t, disk, s)
		var full atomic.Bool
		var room atomic.Int64
		st := storage.WithFaults(disk, func(op storage.Op) error {
			if full.Load() && op.Kind == storage.OpWrite && strings.HasSuffix(op.Name, ".parquet") && room.Add(-1) < 0 {
				return storage.Partial(op.Len/2, errInjected)
			}
			return nil
		})
		w := newWorkload(s, newRand(t))
		for range 40 {
			tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j", BufferBytes: buffer}, hasty())
			if err != nil {
				t.Fatal(err)
			}
			done := len(w.states) - 1
			w.resume(t, disk, tab, done)
			full.Store(true)
			room.Store(int64(w.rng.IntN(3)))
			if err := w.step(tab); err == nil {
				done++
			} else if !errors.Is(err, engine.ErrPoisoned) || !errors.Is(err, errInjected) {
				t.Fatalf("got %v, want ErrPoisoned with its cause", err)
			}
			full.Store(false)
			if err := tab.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.states = w.states[:done+1]
			if got, want := dataFiles(t, disk), liveFiles(t, disk); !maps.Equal(got, want) {
				t.Fatalf("on storage %v, named %v", got, want)
			}
		}
		w.check(t, disk)
		mustVerify(t, disk)
	}
}

// TestFailingCompactionLeavesNothing lets a full compaction fail at each of its calls in turn.
func TestFailingCompactionLeavesNothing(t *testing.T) {
	disk := storage.NewMem()
	s := keyedSchema(t, false, nil)
	mustCreate(t, disk, s)
	var left atomic.Int64
	left.Store(math.MaxInt64)
	st := storage.WithFaults(disk, func(op storage.Op) error {
		if left.Add(-1) < 0 && op.Kind != storage.OpDelete {
			return errInjected
		}
		return nil
	})
	open := func() *engine.Table {
		tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j"}, hasty())
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	tab := open()
	w := newWorkload(s, newRand(t))
	for range 3 {
		if err := w.step(tab); err != nil {
			t.Fatal(err)
		}
	}
	failures, orphans := 0, map[string]bool{}
	for calls := int64(0); ; calls++ {
		left.Store(calls)
		err := tab.Compact(t.Context(), true)
		left.Store(math.MaxInt64)
		w.check(t, disk)
		if err == nil {
			break
		}
		failures++
		if !errors.Is(err, errInjected) {
			t.Fatal(err)
		}
		if errors.Is(err, engine.ErrPoisoned) { // the put of the snapshot: its files have to stay
			_ = tab.Close(t.Context())
			tab = open()
			orphans = dataFiles(t, disk)
			continue
		}
		got, want := dataFiles(t, disk), liveFiles(t, disk)
		maps.DeleteFunc(got, func(f string, _ bool) bool { return orphans[f] && !want[f] })
		if !maps.Equal(got, want) {
			t.Fatalf("after a failure at call %d, %v: on storage %v, named %v", calls, err, got, want)
		}
	}
	if failures < 10 {
		t.Fatalf("the compaction failed only %d times", failures)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rep := mustVerify(t, disk); rep.Files != 1 {
		t.Fatalf("%+v", rep)
	}
}
