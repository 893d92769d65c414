package engine_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

var partitionsFlag = flag.Int("partitions", 200, "partitions of TestManyPartitions; 20000 is what it is about")

// TestBudgetFlushesTheFullest: when two tables have used up what they share, the fuller buffer is flushed, also if a batch
// of the other came last.
func TestBudgetFlushesTheFullest(t *testing.T) {
	budget := engine.NewBudget(40_000)
	open := func() (*engine.Table, *schema.Schema) {
		st, s := storage.NewMem(), keyedSchema(t, false, nil)
		mustCreate(t, st, s)
		return mustOpen(t, st, engine.Settings{Budget: budget}), s
	}
	large, s := open()
	small, _ := open()
	write := func(tab *engine.Table, n int) {
		var rows []row
		for i := range n {
			rows = append(rows, row{id: int64(i), name: strings.Repeat("x", 100)})
		}
		if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
			t.Fatal(err)
		}
	}
	write(small, 50)
	write(large, 200)
	if n := large.Metrics().BufferedRows; n != 200 {
		t.Fatalf("%d rows wait, want 200", n)
	}
	write(small, 100)
	if a, b := large.Metrics().BufferedRows, small.Metrics().BufferedRows; a != 0 || b == 0 {
		t.Errorf("%d rows wait in the fuller buffer, %d in the other", a, b)
	}
}

// TestBudgetShared lets many writers of several tables share a budget that holds a few of their batches: it is not
// exceeded, nobody waits forever, and all rows arrive.
func TestBudgetShared(t *testing.T) {
	const limit, tables, batches = 64 << 10, 4, 60
	budget := engine.NewBudget(limit)
	var g errgroup.Group
	stores, want := make([]storage.Store, tables), make([]map[string]string, tables)
	for i := range tables {
		st, s := storage.NewMem(), keyedSchema(t, true, map[string]string{"bucket": "2"})
		stores[i], want[i] = st, map[string]string{}
		mustCreate(t, st, s)
		tab := mustOpen(t, st, engine.Settings{Job: "j", Budget: budget})
		var all [][]row
		for n := range batches {
			var rows []row
			for j := range 40 {
				rows = append(rows, row{part: fmt.Sprint(j % 5), id: int64(n*40 + j), name: strings.Repeat("x", 90)})
			}
			apply(want[i], rows)
			all = append(all, rows)
		}
		g.Go(func() error {
			for n, rows := range all {
				if err := tab.Write(context.Background(), batchOf(s, rows)); err != nil {
					return err
				}
				if used := budget.Used(); used > limit {
					return fmt.Errorf("%d bytes of %d are in use", used, limit)
				}
				if n%20 == 19 {
					if _, err := tab.Commit(context.Background(), progress(n)); err != nil {
						return err
					}
				}
			}
			return tab.Close(context.Background())
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if used := budget.Used(); used != 0 {
		t.Errorf("%d bytes are in use in the end", used)
	}
	for i := range stores {
		if got := contents(t, stores[i]); !maps.Equal(got, want[i]) {
			t.Errorf("table %d: %d rows, want %d", i, len(got), len(want[i]))
		}
	}
}

// TestManyPartitions flushes rows of very many partitions and 290 columns at once, two rows each, then a value of 8 MiB. With
// -partitions 20000 -v it says how much memory the process had at most; 512 MiB is the aim.
func TestManyPartitions(t *testing.T) {
	const columns, cap = 290, 512 << 20
	cols := []schema.Column{column(t, "p INT NOT NULL"), column(t, "id BIGINT NOT NULL")}
	for i := range columns {
		cols = append(cols, column(t, fmt.Sprintf("c%d STRING", i)))
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"p", "id"}, PartitionKeys: []string{"p"},
		Options: map[string]string{"file.compression": "none", "data-file.thin-mode": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := storage.NewLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, st, s)
	tab := mustOpen(t, st, engine.Settings{Job: "j", BufferBytes: 256 << 20, Budget: engine.NewBudget(256 << 20)})
	if *partitionsFlag > 1000 {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(cap * 8 / 10))
	}
	batch := func(rows int, value func(i, c int) string) schema.Batch {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		defer b.Release()
		b.Reserve(rows)
		for i := range rows {
			b.Field(0).(*array.Int32Builder).Append(int32(i / 2 % *partitionsFlag))
			b.Field(1).(*array.Int64Builder).Append(int64(i))
			for c := range columns {
				b.Field(2 + c).(*array.StringBuilder).Append(value(i, c))
			}
		}
		return schema.Batch{Rec: b.NewRecordBatch()}
	}
	if err := tab.Write(t.Context(), batch(2**partitionsFlag, func(i, c int) string { return fmt.Sprint("v", i+c) })); err != nil {
		t.Fatal(err)
	}
	if err := tab.Write(t.Context(), batch(1, func(_, c int) string { return strings.Repeat("x", 8<<20>>(c*8)) })); err != nil {
		t.Fatal(err)
	}
	info, err := tab.Commit(t.Context(), progress(1))
	if err != nil {
		t.Fatal(err)
	}
	m := tab.Metrics()
	files := int64(0)
	for _, n := range m.Files {
		files += n
	}
	if files < int64(*partitionsFlag) || files > int64(*partitionsFlag)+4 {
		t.Errorf("%d files of %d partitions (%v)", files, *partitionsFlag, info)
	}
	status, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(l, "VmHWM") || strings.HasPrefix(l, "VmRSS") {
			t.Log(l)
		}
	}
	runtime.KeepAlive(tab)
}
