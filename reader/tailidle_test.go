package reader_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// inUse is what the process holds of heap and stacks after a collection, in bytes.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestIdleTails has 1,000 tails of tables that nobody writes to: each look is one request, looks become rarer, and all tails
// together are small. Those that the writer's process wakes tell a commit at once, the others at their next look.
func TestIdleTails(t *testing.T) {
	const tails, tables, rows = 1000, 20, 200
	synctest.Test(t, func(t *testing.T) {
		var polls atomic.Int64
		e := env()
		e.After = func(d time.Duration) <-chan time.Time {
			polls.Add(1)
			return time.After(d)
		}
		mem := storage.NewMem()
		counted := storage.WithCounter(mem)
		var open []*engine.Table
		for i := range tables {
			open = append(open, wideTable(t, storage.Sub(mem, fmt.Sprint("t", i))))
			writeWide(t, open[i], rows, "x")
		}
		ctx, cancel := context.WithCancel(t.Context())
		before := inUse()
		var told [3]atomic.Int64 // rows told to tails that wait for looks, to those that are woken, and to those with rows before changes
		var of [3]int64          // tails
		var wg sync.WaitGroup
		for i := range tails {
			spec, kind := reader.TailSpec{Follow: true}, 0
			unwatch := func() {}
			switch i / tables % 4 {
			case 1, 3:
				kind = 1
				spec.Wake, unwatch = open[i%tables].Watch()
			case 2:
				kind, spec.BeforeImage = 2, true
			}
			of[kind]++
			r := reader.Open(storage.Sub(counted, fmt.Sprint("t", i%tables)), e)
			wg.Go(func() {
				defer unwatch()
				for c, err := range r.Tail(ctx, spec) {
					if err != nil {
						t.Error(err)
						return
					}
					if c.Rec != nil {
						told[kind].Add(c.Rec.NumRows())
					}
				}
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range told {
			if got := told[i].Load(); got != of[i]*rows {
				t.Fatalf("%d rows were told to %d tails", got, of[i])
			}
		}
		used := inUse() - before
		start, polled := counted.Counts(), polls.Load()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		n, requests := polls.Load()-polled, counted.Counts().Since(start).Total().Calls
		t.Logf("%d idle tails: %.1f MiB, %d looks in 100 s, %d requests", tails, float64(used)/(1<<20), n, requests)
		if requests > n || n > tails*90 {
			t.Errorf("%d requests of %d looks", requests, n)
		}
		if used > 100<<20 {
			t.Errorf("%d MiB", used>>20)
		}
		start, polled = counted.Counts(), polls.Load()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if n, requests := polls.Load()-polled, counted.Counts().Since(start).Total().Calls; requests > n || n > tails*21 {
			t.Errorf("after 100 s: %d requests of %d looks in as long", requests, n)
		}
		for _, tab := range open {
			writeWide(t, tab, 1, "y")
		}
		synctest.Wait()
		if got := told[1].Load(); got != of[1]*(rows+1) || told[0].Load() != of[0]*rows {
			t.Errorf("at once %d rows were told to tails that are woken, %d to others", got, told[0].Load())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got, images := told[0].Load(), told[2].Load(); got != of[0]*(rows+1) || images != of[2]*(rows+2) {
			t.Errorf("after five seconds %d and %d rows were told to tails that are not woken", got, images)
		}
		cancel()
		wg.Wait()
		for _, tab := range open {
			if err := tab.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// wideTable opens a new table of 30 columns.
func wideTable(t *testing.T, st storage.Store) *engine.Table {
	t.Helper()
	text := "id BIGINT NOT NULL"
	for i := range 29 {
		text += fmt.Sprintf(", c%d STRING", i)
	}
	cols, err := schema.ParseColumns(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}})
	if err == nil {
		err = engine.Create(t.Context(), st, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := env()
	tab, err := engine.Open(t.Context(), st, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func writeWide(t *testing.T, tab *engine.Table, rows int, text string) {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, tab.Schema().Arrow())
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		for c := range 29 {
			b.Field(1 + c).(*array.StringBuilder).Append(strings.Repeat(text, 20))
		}
	}
	if err := tab.Write(t.Context(), schema.Batch{Rec: b.NewRecordBatch()}); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
		t.Fatal(err)
	}
}
