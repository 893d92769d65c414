package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestStallBoundsRuns: while compaction is slower than writing, writers wait. Level 0 stays bounded, commits of what is
// written go on, no row is lost, and the time is counted.
func TestStallBoundsRuns(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rng := newRand(t)
	mem := storage.NewMem()
	slow := &slowCompaction{Store: mem, pause: 15 * time.Millisecond}
	const stop = 5
	s := keyedSchema(t, false, map[string]string{"bucket": "2", "num-sorted-run.compaction-trigger": "3", "num-sorted-run.stop-trigger": fmt.Sprint(stop)})
	mustCreate(t, mem, s)
	c := engine.NewCompactor(engine.CompactorSettings{Workers: 1}, testEnv())
	defer c.Close()
	tab, err := engine.Open(t.Context(), slow, engine.Settings{Job: "j", Compaction: 1, Compactor: c, BufferBytes: 1}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	model, most := map[string]string{}, 0
	for n := 1; n <= 40; n++ {
		rows := randomRows(rng, false)
		if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
			t.Fatal(err)
		}
		apply(model, rows)
		if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
			t.Fatal(err)
		}
		most = max(most, tab.Metrics().Runs)
	}
	m := tab.Metrics()
	if most > stop+1 { // a write begins with stop runs at most, and makes one
		t.Errorf("a bucket had %d sorted runs; writers stop beyond %d", most, stop)
	}
	if m.StallTime <= 0 || m.WriteAmplification() <= 1 {
		t.Errorf("%+v", m)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, mem); !maps.Equal(got, model) {
		t.Errorf("the table has %d rows, the model %d", len(got), len(model))
	}
	mustVerify(t, mem)
}

// slowCompaction makes each read of a data file slow: here only compactions read them.
type slowCompaction struct {
	storage.Store
	pause time.Duration
}

func (s *slowCompaction) Open(ctx context.Context, name string) (storage.File, error) {
	if strings.HasSuffix(name, ".parquet") {
		time.Sleep(s.pause)
	}
	return s.Store.Open(ctx, name)
}

// held is a store in which compactions of large files hang until they are let go.
type held struct {
	storage.Store
	mu      sync.Mutex
	big     map[string]bool // data files that are large
	started chan struct{}
	release chan struct{}
}

func (h *held) Open(ctx context.Context, name string) (storage.File, error) {
	h.mu.Lock()
	big := h.big[name[strings.LastIndexByte(name, '/')+1:]]
	h.mu.Unlock()
	if big {
		select {
		case h.started <- struct{}{}:
		default:
		}
		select {
		case <-h.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return h.Store.Open(ctx, name)
}

// TestYoungRunsGoOn: while a long compaction of a bucket hangs, new runs become one, and writers go on.
func TestYoungRunsGoOn(t *testing.T) {
	mem := storage.NewMem()
	s := keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "3", "num-sorted-run.stop-trigger": "6"})
	mustCreate(t, mem, s)
	seed := mustOpen(t, mem, engine.Settings{})
	for i := range 3 {
		write(t, seed, batchOf(s, plainRows(i, i+100)))
		commit(t, seed)
	}
	h := &held{Store: mem, big: map[string]bool{}, started: make(chan struct{}, 10), release: make(chan struct{})}
	for f := range liveFiles(t, mem) {
		h.big[f[strings.LastIndexByte(f, '/')+1:]] = true
	}
	tab := mustOpen(t, h, engine.Settings{Job: "j", Compaction: 1})
	<-h.started
	for n := 1; n <= 20; n++ {
		write(t, tab, batchOf(s, []row{{schema.Insert, "p", int64(1000 + n), "young"}, {schema.Insert, "p", 5, fmt.Sprint(n)}}))
		if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
			t.Fatal(err)
		}
	}
	if m := tab.Metrics(); m.Runs > 7 || m.Compactions == 0 {
		t.Errorf("%d runs after %d compactions", m.Runs, m.Compactions)
	}
	close(h.release)
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	got := contents(t, mem)
	if len(got) != 102+20 || got["p/5"] != "20" {
		t.Errorf("%d rows, row 5 is %q", len(got), got["p/5"])
	}
	mustVerify(t, mem)
}

// TestBorrow: while ingest borrows, what is not urgent waits.
func TestBorrow(t *testing.T) {
	st := storage.NewMem()
	s := keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "4"})
	mustCreate(t, st, s)
	c := engine.NewCompactor(engine.CompactorSettings{}, testEnv())
	defer c.Close()
	tab := mustOpen(t, st, engine.Settings{Job: "j", Compaction: 1, Compactor: c})
	defer func() {
		if err := tab.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	c.Borrow(time.Hour)
	for n := 1; n <= 3; n++ {
		write(t, tab, batchOf(s, plainRows(0, n)))
		if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
			t.Fatal(err)
		}
	}
	if m := tab.Metrics(); m.Compactions != 0 || m.CompactionQueue != 1 || m.CompactionDebt == 0 || m.Runs != 3 {
		t.Errorf("while ingest borrows: %+v", m)
	}
	for n := 4; n <= 8; n++ { // these do not wait for ever
		write(t, tab, batchOf(s, plainRows(0, n)))
		if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
			t.Fatal(err)
		}
	}
	if m := tab.Metrics(); m.Compactions == 0 {
		t.Errorf("writers were about to wait: %+v", m)
	}
}

// TestStallEnds: writers that wait go on when the table becomes another process's to compact, and when it is closed.
func TestStallEnds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, storage.Store, *engine.Table) error{
		"write-only": func(t *testing.T, st storage.Store, tab *engine.Table) error {
			return tab.Follow(t.Context(), alter(t, st, schema.SetOption{Name: "write-only", Value: "true"}))
		},
		"close": func(t *testing.T, _ storage.Store, tab *engine.Table) error { return tab.Close(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := storage.NewMem()
			s := keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2"})
			mustCreate(t, mem, s)
			slow := &slowReads{Store: mem, release: make(chan struct{}), started: make(chan struct{}, 1)}
			tab := mustOpen(t, slow, engine.Settings{Job: "j", Compaction: 1})
			for n := 1; n <= 3; n++ { // compaction hangs from the second on
				write(t, tab, batchOf(s, plainRows(0, n)))
				if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
					t.Fatal(err)
				}
			}
			room := tab.Stalled()
			if room == nil || !tab.Metrics().Stalled {
				t.Fatal("the table is not stalled")
			}
			short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := tab.Write(short, batchOf(s, plainRows(0, 1))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("write: %v", err)
			}
			if err := end(t, mem, tab); err != nil {
				t.Fatal(err)
			}
			<-room
			if tab.Stalled() != nil || tab.Metrics().StallTime <= 0 {
				t.Errorf("%+v", tab.Metrics())
			}
			close(slow.release)
		})
	}
}
