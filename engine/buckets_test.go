package engine

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestCommitCostsItsOwnBuckets: a commit to one bucket does the same on a table of 2 and of 200 buckets: it looks at no
// other bucket, and calls the storage as often.
func TestCommitCostsItsOwnBuckets(t *testing.T) {
	var calls []int64
	for _, buckets := range []int{2, 200} {
		cols, err := schema.ParseColumns("p STRING NOT NULL, id BIGINT NOT NULL")
		if err != nil {
			t.Fatal(err)
		}
		s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"p", "id"}, PartitionKeys: []string{"p"}, Options: map[string]string{"file.compression": "none"}})
		if err != nil {
			t.Fatal(err)
		}
		st := storage.WithCounter(storage.NewMem())
		if err := Create(t.Context(), st, s); err != nil {
			t.Fatal(err)
		}
		tab, err := Open(t.Context(), st, Settings{Job: "j"}, Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		write := func(parts int) {
			b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
			for i := range parts {
				b.Field(0).(*array.StringBuilder).Append(fmt.Sprint("p", i))
				b.Field(1).(*array.Int64Builder).Append(1)
			}
			if err := tab.Write(t.Context(), schema.Batch{Rec: b.NewRecordBatch()}); err != nil {
				t.Fatal(err)
			}
		}
		commit := func(n string) {
			if _, err := tab.Commit(t.Context(), Progress{Properties: map[string]string{"calve.test": n}}); err != nil {
				t.Fatal(err)
			}
		}
		write(buckets)
		commit("1")
		if n := len(tab.unpublished); n != 0 || len(tab.buckets) != buckets {
			t.Fatalf("%d buckets wait after the commit, of %d", n, len(tab.buckets))
		}
		before := st.Counts()
		write(1)
		if err := tab.flushActive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := tab.waitFlushed(t.Context(), tab.generation); err != nil {
			t.Fatal(err)
		}
		if n := len(tab.unpublished); n != 1 {
			t.Fatalf("%d buckets wait for a commit, want 1", n)
		}
		commit("2")
		calls = append(calls, st.Counts().Since(before).Total().Calls)
		if err := tab.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if calls[0] != calls[1] {
		t.Fatalf("a commit to one bucket makes %d calls on a table of 2 buckets and %d on one of 200", calls[0], calls[1])
	}
}
