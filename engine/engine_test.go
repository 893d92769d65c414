package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func TestOlderEpochIsFenced(t *testing.T) {
	st := storage.NewMem()
	s := keyedSchema(t, false, nil)
	mustCreate(t, st, s)
	older := mustOpen(t, st, engine.Settings{Job: "j"})
	write := func(tab *engine.Table, id int64) {
		if err := tab.Write(t.Context(), batchOf(s, []row{{id: id, part: "x", name: "v"}})); err != nil {
			t.Fatal(err)
		}
	}
	write(older, 1)
	if _, err := older.Commit(t.Context(), progress(1)); err != nil {
		t.Fatal(err)
	}
	newer := mustOpen(t, st, engine.Settings{Job: "j"})
	if p, ok, _ := newer.LastProgress(t.Context()); !ok || p.Properties["calve.test"] != "1" {
		t.Fatalf("the newer epoch does not see the progress of the older: %v %v", p, ok)
	}
	write(older, 2)
	if _, err := older.Commit(t.Context(), progress(2)); !errors.Is(err, engine.ErrFenced) {
		t.Fatalf("the older epoch published: %v", err)
	}
	if err := older.Write(t.Context(), batchOf(s, []row{{id: 3, part: "x"}})); !errors.Is(err, engine.ErrPoisoned) {
		t.Fatalf("the fenced handle goes on: %v", err)
	}
	write(newer, 4)
	if _, err := newer.Commit(t.Context(), progress(3)); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, st); len(got) != 2 || got["x/1"] == "" || got["x/4"] == "" {
		t.Fatalf("%v", got)
	}
	mustVerify(t, st)
}

// TestTwoProcessesOneJob lets two handles of one job race, each taking the job over again when it is fenced. Every unit of
// work is in the append table exactly once, because its progress is in the snapshot that has its rows.
func TestTwoProcessesOneJob(t *testing.T) {
	const total = 60
	st := storage.NewMem()
	s := appendSchema(t)
	mustCreate(t, st, s)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for takeOvers := 0; takeOvers < 200; takeOvers++ {
				if raceJob(t, st, s, total) {
					return
				}
			}
			t.Error("never came to the end")
		})
	}
	wg.Wait()
	seen := map[int64]int{}
	for rec, err := range readerOf(st).Scan(t.Context(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range rec.Column(1).(*array.Int64).Int64Values() {
			seen[v]++
		}
	}
	for i := range int64(total) {
		if seen[i] != 1 {
			t.Errorf("unit %d is in the table %d times", i, seen[i])
		}
	}
	mustVerify(t, st)
}

// raceJob works from the job's last progress; false when it was fenced.
func raceJob(t *testing.T, st storage.Store, s *schema.Schema, total int) bool {
	tab, err := engine.Open(context.Background(), st, engine.Settings{Job: "j"}, testEnv())
	if errors.Is(err, engine.ErrFenced) {
		return false
	}
	if err != nil {
		t.Error(err)
		return true
	}
	defer func() { _ = tab.Close(context.Background()) }()
	p, _, _ := tab.LastProgress(context.Background())
	n, _ := strconv.Atoi(p.Properties["calve.test"])
	for ; n < total; n++ {
		err := tab.Write(context.Background(), batchOf(s, []row{{id: int64(n), part: "x"}}))
		if err == nil {
			_, err = tab.Commit(context.Background(), progress(n+1))
		}
		if errors.Is(err, engine.ErrFenced) || errors.Is(err, engine.ErrPoisoned) {
			return false
		}
		if err != nil {
			t.Error(err)
			return true
		}
	}
	return true
}

func TestCommitPublishesOnlyItsGeneration(t *testing.T) {
	st := storage.NewMem()
	s := appendSchema(t)
	mustCreate(t, st, s)
	tab := mustOpen(t, st, engine.Settings{Job: "j", BufferBytes: 1}) // every Write starts a flush
	n := 0
	for range 30 {
		n++
		if err := tab.Write(t.Context(), batchOf(s, []row{{id: int64(n), part: "x"}})); err != nil {
			t.Fatal(err)
		}
	}
	snap, err := tab.Commit(t.Context(), progress(n))
	if err != nil || snap.TotalRecordCount != 30 {
		t.Fatalf("%+v %v", snap, err)
	}
	if again, err := tab.Commit(t.Context(), progress(n)); err != nil || again != nil {
		t.Fatalf("a commit with nothing to say made %+v, %v", again, err)
	}
	if snap, err := tab.Commit(t.Context(), progress(n+1)); err != nil || snap == nil || snap.DeltaRecordCount != 0 {
		t.Fatalf("progress alone: %+v %v", snap, err)
	}
}

func TestCompactionNeverBlocksACommit(t *testing.T) {
	inner := storage.NewMem()
	s := keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "100"})
	mustCreate(t, inner, s)
	release := make(chan struct{})
	started := make(chan struct{}, 1)
	st := &slowReads{Store: inner, release: release, started: started}
	tab := mustOpen(t, st, engine.Settings{Job: "j", Compaction: 1})
	commit := func(n int) {
		if err := tab.Write(t.Context(), batchOf(s, []row{{id: int64(n), part: "x", name: "v"}, {id: -1, part: "x", name: fmt.Sprint(n)}})); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= 3; n++ {
		commit(n)
	}
	<-started // a compaction reads its inputs, and hangs
	for n := 4; n <= 10; n++ {
		commit(n)
	}
	if got := len(contents(t, inner)); got != 11 {
		t.Fatalf("%d rows are visible while a compaction hangs, want 11", got)
	}
	close(release)
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if rep := mustVerify(t, inner); rep.Rows != 11 || rep.FileRows != 11 {
		t.Fatalf("%+v", rep)
	}
}

// slowReads holds the opening of data files until released.
type slowReads struct {
	storage.Store
	release chan struct{}
	started chan struct{}
}

func (s *slowReads) Open(ctx context.Context, name string) (storage.File, error) {
	if strings.HasSuffix(name, ".parquet") {
		select {
		case s.started <- struct{}{}:
		default:
		}
		select {
		case <-s.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.Store.Open(ctx, name)
}

func TestForeignWriterIsMet(t *testing.T) {
	st := storage.NewMem()
	s := keyedSchema(t, false, map[string]string{"num-sorted-run.compaction-trigger": "3"})
	mustCreate(t, st, s)
	job := mustOpen(t, st, engine.Settings{Job: "j", Compaction: 1})
	model := map[string]string{}
	for n := range 20 {
		foreign := mustOpen(t, st, engine.Settings{})
		for i, tab := range []*engine.Table{job, foreign} {
			rows := []row{{id: int64(n * (1 - i)), part: "x", name: fmt.Sprint(n, i)}, {id: int64(1000 + i*100 + n), part: "x", name: "w"}}
			if i == 1 {
				rows = rows[1:] // one writer a key: the format leaves the winner of two writers open
			}
			if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
				t.Fatal(err)
			}
			if _, err := tab.Commit(t.Context(), progress(n+1)); err != nil {
				t.Fatal(err)
			}
			apply(model, rows)
		}
		if n%5 == 4 {
			if err := foreign.Compact(t.Context(), true); err != nil {
				t.Fatal(err)
			}
		}
		if err := foreign.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := contents(t, st); !maps.Equal(got, model) {
		t.Fatalf("%d rows, model %d", len(got), len(model))
	}
	mustVerify(t, st)
}

func TestLostProgressIsNotGuessed(t *testing.T) {
	st := storage.NewMem()
	s := appendSchema(t)
	mustCreate(t, st, s)
	expire := func() {
		m := manifest.Open(st, manifest.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)})
		other := mustOpen(t, st, engine.Settings{})
		for i := range 3 {
			if err := other.Write(t.Context(), batchOf(s, []row{{id: int64(i), part: "x"}})); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Commit(t.Context(), engine.Progress{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	tab := mustOpen(t, st, engine.Settings{Job: "j"})
	if _, err := tab.Commit(t.Context(), progress(7)); err != nil {
		t.Fatal(err)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	expire()
	again := mustOpen(t, st, engine.Settings{Job: "j"})
	if p, ok, _ := again.LastProgress(t.Context()); !ok || p.Properties["calve.test"] != "7" {
		t.Fatalf("the closing record does not help: %v %v", p, ok)
	}
	expire() // and this epoch never closes
	if _, err := engine.Open(t.Context(), st, engine.Settings{Job: "j"}, testEnv()); !errors.Is(err, engine.ErrProgressLost) {
		t.Fatalf("got %v, want ErrProgressLost", err)
	}
}

func TestRowsThatDoNotFitAreRefused(t *testing.T) {
	st := storage.NewMem()
	s := appendSchema(t)
	mustCreate(t, st, s)
	tab := mustOpen(t, st, engine.Settings{})
	b := batchOf(s, []row{{id: 1, part: "x"}})
	b.Kinds = []schema.RowKind{schema.Delete}
	if err := tab.Write(t.Context(), b); !errors.Is(err, engine.ErrRows) {
		t.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	rb.Field(0).AppendNull()
	rb.Field(1).AppendNull()
	rb.Field(2).AppendNull()
	if err := tab.Write(t.Context(), schema.Batch{Rec: rb.NewRecordBatch()}); !errors.Is(err, engine.ErrRows) || !strings.Contains(err.Error(), `"p"`) {
		t.Fatal(err)
	}
}
