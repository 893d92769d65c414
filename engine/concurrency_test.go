package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/storage"
)

// TestCloseDuringCompaction closes the table while a compaction hangs in the storage. Close does not wait for the
// storage, and what the compaction made is gone, unless a snapshot may name it.
func TestCloseDuringCompaction(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault error
		at    func(storage.Op) bool
		stay  bool // more files than the latest snapshot names: the inputs or the outputs of the compaction
	}{
		{"upload hangs", storage.ErrHang, isUploadEnd, false},
		{"upload's reply hangs", storage.LoseReply(storage.ErrHang), isUploadEnd, false},
		{"snapshot hangs", storage.ErrHang, isSnapshotPut, true},
		{"snapshot's reply hangs", storage.LoseReply(storage.ErrHang), isSnapshotPut, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			inner := storage.NewMem()
			s := keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "2"})
			mustCreate(t, inner, s)
			var compacting atomic.Bool
			hangs := make(chan struct{})
			var once sync.Once
			st := storage.WithFaults(inner, func(op storage.Op) error {
				if op.Kind == storage.OpOpen && strings.HasSuffix(op.Name, ".parquet") {
					compacting.Store(true) // only a compaction opens data files here
				}
				if compacting.Load() && tc.at(op) {
					once.Do(func() { close(hangs) })
					return tc.fault
				}
				return nil
			})
			tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j", Compaction: 1}, hasty())
			if err != nil {
				t.Fatal(err)
			}
			w := newWorkload(s, newRand(t))
			for range 2 {
				if err := w.step(tab); err != nil {
					t.Fatal(err)
				}
			}
			<-hangs
			if err := tab.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, want := dataFiles(t, inner), liveFiles(t, inner)
			if stayed := len(got) > len(want); stayed != tc.stay {
				t.Fatalf("on storage %v, named %v", got, want)
			}
			for f := range want {
				if !got[f] {
					t.Fatalf("%s is named and gone", f)
				}
			}
			again := mustOpen(t, inner, engine.Settings{Job: "j"})
			w.resume(t, inner, again, 2)
			if err := w.step(again); err != nil {
				t.Fatal(err)
			}
			w.check(t, inner)
			mustVerify(t, inner)
		})
	}
}

func isUploadEnd(op storage.Op) bool {
	return op.Kind == storage.OpCommit && strings.HasSuffix(op.Name, ".parquet")
}

func isSnapshotPut(op storage.Op) bool {
	return op.Kind == storage.OpPutIfAbsent && strings.HasPrefix(op.Name, "snapshot/")
}

// TestManyAtOnce lets writers, a committer, compactions and readers of figures run side by side and closes the table in
// the middle of it. Rows of a writer are there without a gap, at least up to the last acknowledged commit.
func TestManyAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const writers, each = 3, 1000
	for round := range 2 {
		st := storage.NewMem()
		s := keyedSchema(t, false, map[string]string{"bucket": "2", "num-sorted-run.compaction-trigger": "2"})
		mustCreate(t, st, s)
		tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j", Compaction: 2, BufferBytes: 10_000}, testEnv())
		if err != nil {
			t.Fatal(err)
		}
		wake, unsubscribe := tab.Watch()
		var written, acknowledged [writers]atomic.Int64
		var wg sync.WaitGroup
		for n := range writers {
			wg.Go(func() {
				for i := int64(0); ; i++ {
					if err := tab.Write(context.Background(), batchOf(s, []row{{part: "x", id: int64(n)*each + i, name: "v"}})); err != nil {
						if !errors.Is(err, engine.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if written[n].Add(1) == each {
						return
					}
				}
			})
		}
		commits := make(chan int, 1000)
		wg.Go(func() {
			defer close(commits)
			for n := 1; ; n++ {
				var before [writers]int64
				for i := range before {
					before[i] = written[i].Load()
				}
				if _, err := tab.Commit(context.Background(), progress(n)); err != nil {
					if !errors.Is(err, engine.ErrClosed) {
						t.Error(err)
					}
					return
				}
				for i := range before {
					acknowledged[i].Store(before[i])
				}
				select {
				case commits <- n:
				default:
				}
			}
		})
		wg.Go(func() {
			for range wake {
				if m := tab.Metrics(); m.Snapshot < 1 {
					t.Errorf("woken without a snapshot: %+v", m)
				}
			}
		})
		for range 3 + 2*round {
			<-commits
		}
		if err := tab.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		unsubscribe()
		got := contents(t, st)
		for n := range writers {
			rows := int64(0)
			for got[fmt.Sprint("x/", int64(n)*each+rows)] != "" && rows < each {
				rows++
			}
			if rows < acknowledged[n].Load() {
				t.Errorf("writer %d: %d rows without a gap, %d were acknowledged", n, rows, acknowledged[n].Load())
			}
			for i := rows; i < each; i++ {
				if got[fmt.Sprint("x/", int64(n)*each+i)] != "" {
					t.Fatalf("writer %d: row %d is missing, row %d is there", n, rows, i)
				}
			}
		}
		if onDisk, named := dataFiles(t, st), liveFiles(t, st); len(onDisk) < len(named) {
			t.Fatalf("%d files for %d named", len(onDisk), len(named))
		}
		mustVerify(t, st)
	}
}

// TestCloseWaitsForACommit closes the table while a Commit is about to put its snapshot: its files must not be dropped.
func TestCloseWaitsForACommit(t *testing.T) {
	disk := storage.NewMem()
	s := appendSchema(t)
	mustCreate(t, disk, s)
	var armed atomic.Bool
	reached, release := make(chan struct{}), make(chan struct{})
	st := storage.WithFaults(disk, func(op storage.Op) error {
		if isSnapshotPut(op) && armed.CompareAndSwap(true, false) {
			close(reached)
			<-release
		}
		return nil
	})
	tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j"}, hasty())
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Write(t.Context(), batchOf(s, []row{{part: "x", id: 1, name: "v"}})); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	committed, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := tab.Commit(context.Background(), progress(1))
		committed <- err
	}()
	<-reached
	go func() { closed <- tab.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	close(release)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if got := contents(t, disk); len(got) != 1 {
		t.Fatalf("%v", got)
	}
	mustVerify(t, disk)
}

// TestCommitEndsWithItsContext: a flush that hangs in the background does not hold a Commit longer than its context.
func TestCommitEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	disk := storage.NewMem()
	s := appendSchema(t)
	mustCreate(t, disk, s)
	var hang atomic.Bool
	hang.Store(true)
	st := storage.WithFaults(disk, func(op storage.Op) error {
		if isUploadEnd(op) && hang.Load() {
			return storage.ErrHang
		}
		return nil
	})
	tab, err := engine.Open(t.Context(), st, engine.Settings{Job: "j", BufferBytes: 1}, hasty())
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Write(t.Context(), batchOf(s, []row{{part: "x", id: 1}})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	if _, err := tab.Commit(ctx, progress(1)); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the end of the context", err)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if files := dataFiles(t, disk); len(files) > 0 {
		t.Fatalf("left behind: %v", files)
	}
}

// ticking is an environment whose timers of one length, or up to a second less, fire when the test says so.
func ticking(length time.Duration) (engine.Env, chan time.Time) {
	env := hasty()
	tick := make(chan time.Time)
	short := env.After
	env.After = func(d time.Duration) <-chan time.Time {
		if d > length-time.Second && d <= length {
			return tick
		}
		return short(d)
	}
	return env, tick
}

func TestExpiryLoop(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	disk := storage.NewMem()
	s := keyedSchema(t, false, map[string]string{"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"})
	mustCreate(t, disk, s)
	var broken atomic.Bool
	st := storage.WithFaults(disk, func(op storage.Op) error {
		if broken.Load() && op.Kind == storage.OpDelete {
			return errInjected
		}
		return nil
	})
	env, tick := ticking(time.Hour)
	var failures atomic.Int64
	set := engine.Settings{Job: "j", ExpireEvery: time.Hour, Events: engine.Events{Background: func(op string, err error) {
		if op != "expiry" || !errors.Is(err, errInjected) {
			t.Errorf("%s: %v", op, err)
		}
		failures.Add(1)
	}}}
	tab, err := engine.Open(t.Context(), st, set, env)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkload(s, newRand(t))
	for range 6 {
		if err := w.step(tab); err != nil {
			t.Fatal(err)
		}
	}
	broken.Store(true)
	tick <- time.Now()
	tick <- time.Now() // taken when the first expiry has ended
	broken.Store(false)
	tick <- time.Now()
	tick <- time.Now()
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := readerOf(disk).Meta().Earliest(t.Context())
	if err != nil || first.ID != 5 { // 1 fence and 6 commits, 3 kept
		t.Fatalf("the earliest snapshot is %+v, %v; want 5", first, err)
	}
	w.check(t, disk)
	mustVerify(t, disk)
}

// TestProgressSurvivesOthers lets another writer publish more snapshots than are kept while the job is idle. The job's
// own expiry must not cost it its progress, also when it is killed afterwards.
func TestProgressSurvivesOthers(t *testing.T) {
	disk := storage.NewMem()
	s := appendSchema(t)
	s.Options["snapshot.num-retained.min"], s.Options["snapshot.num-retained.max"] = "2", "3"
	mustCreate(t, disk, s)
	env, tick := ticking(time.Hour)
	tab, err := engine.Open(t.Context(), disk, engine.Settings{Job: "j", ExpireEvery: time.Hour}, env)
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Write(t.Context(), batchOf(s, []row{{part: "x", id: 1}})); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), progress(41)); err != nil {
		t.Fatal(err)
	}
	other := mustOpen(t, disk, engine.Settings{})
	for i := range int64(5) {
		if err := other.Write(t.Context(), batchOf(s, []row{{part: "y", id: i}})); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Commit(t.Context(), engine.Progress{}); err != nil {
			t.Fatal(err)
		}
	}
	tick <- time.Now()
	tick <- time.Now()
	killed := disk.CrashClone(newRand(t))
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, err := readerOf(killed).Meta().Earliest(t.Context()); err != nil || first.ID < 5 {
		t.Fatalf("nothing has expired: %+v, %v", first, err)
	}
	again := mustOpen(t, killed, engine.Settings{Job: "j"})
	if p, ok, err := again.LastProgress(t.Context()); err != nil || !ok || p.Properties["calve.test"] != "41" {
		t.Fatalf("progress %v, %v, %v", p, ok, err)
	}
	mustVerify(t, killed)
}

// TestRestartsLeaveNoRecords: the records of earlier epochs go with each opening.
func TestRestartsLeaveNoRecords(t *testing.T) {
	st := storage.NewMem()
	mustCreate(t, st, appendSchema(t))
	for range 5 {
		tab := mustOpen(t, st, engine.Settings{Job: "a/b c"})
		if err := tab.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for info, err := range storage.Walk(t.Context(), st, "calve") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if want := []string{"calve/jobs/a%2Fb%20c/closed-5", "calve/jobs/a%2Fb%20c/open-5"}; !slices.Equal(names, want) {
		t.Fatalf("%v, want %v", names, want)
	}
}

// TestCompactionAloneIsNoProgress: a compaction before the job's first commit must not look like progress.
func TestCompactionAloneIsNoProgress(t *testing.T) {
	st := storage.NewMem()
	s := keyedSchema(t, false, nil)
	mustCreate(t, st, s)
	other := mustOpen(t, st, engine.Settings{})
	for i := range int64(2) {
		if err := other.Write(t.Context(), batchOf(s, []row{{part: "x", id: i}})); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Commit(t.Context(), engine.Progress{}); err != nil {
			t.Fatal(err)
		}
	}
	job := mustOpen(t, st, engine.Settings{Job: "j"})
	if err := job.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if p, ok, err := job.LastProgress(t.Context()); ok || err != nil {
		t.Fatalf("progress %v, %v", p, err)
	}
}
