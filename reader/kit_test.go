package reader_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func env() reader.Env {
	return reader.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}
}

// table is a table with rows (p, id, name), with primary key (p, id) and partitioned by p, or with neither.
type table struct {
	*storage.Mem
	t      *testing.T
	schema *schema.Schema
	model  map[string]string // of keyed tables: p/id → name
}

func newTable(t *testing.T, keyed bool, options ...string) *table {
	t.Helper()
	cols, err := schema.ParseColumns("p STRING NOT NULL, id BIGINT NOT NULL, name STRING")
	if err != nil {
		t.Fatal(err)
	}
	spec := schema.Spec{Columns: cols, Options: map[string]string{"file.compression": "none"}}
	for i := 0; i < len(options); i += 2 {
		spec.Options[options[i]] = options[i+1]
	}
	if keyed {
		spec.PrimaryKeys, spec.PartitionKeys = []string{"p", "id"}, []string{"p"}
	}
	s, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	x := &table{Mem: storage.NewMem(), t: t, schema: s, model: map[string]string{}}
	if err := engine.Create(t.Context(), x, s); err != nil {
		t.Fatal(err)
	}
	return x
}

// change is one row of a commit.
type change struct {
	kind schema.RowKind
	p    string
	id   int64
	name string
}

// write opens the table, makes one commit of each list of changes and compacts where a list is nil.
func (x *table) write(commits ...[]change) {
	x.t.Helper()
	e := env()
	tab, err := engine.Open(x.t.Context(), x, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		x.t.Fatal(err)
	}
	for _, changes := range commits {
		if changes == nil {
			if err := tab.Compact(x.t.Context(), true); err != nil {
				x.t.Fatal(err)
			}
			continue
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, x.schema.Arrow())
		kinds := make([]schema.RowKind, len(changes))
		for i, c := range changes {
			b.Field(0).(*array.StringBuilder).Append(c.p)
			b.Field(1).(*array.Int64Builder).Append(c.id)
			b.Field(2).(*array.StringBuilder).Append(c.name)
			kinds[i] = c.kind
			if key := fmt.Sprint(c.p, "/", c.id); c.kind.IsAdd() {
				x.model[key] = c.name
			} else {
				delete(x.model, key)
			}
		}
		if err := tab.Write(x.t.Context(), schema.Batch{Rec: b.NewRecordBatch(), Kinds: kinds}); err != nil {
			x.t.Fatal(err)
		}
		if _, err := tab.Commit(x.t.Context(), engine.Progress{}); err != nil {
			x.t.Fatal(err)
		}
	}
	if err := tab.Close(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// some makes n inserts or updates in two partitions.
func some(n int, name string) []change {
	var out []change
	for i := range n {
		out = append(out, change{schema.Insert, []string{"a", "b"}[i%2], int64(i / 2), name})
	}
	return out
}

func (x *table) reader() *reader.Reader { return reader.Open(x, env()) }

// add puts rows into a map of p/id → name.
func add(m map[string]string, rec arrow.RecordBatch, kinds []schema.RowKind) {
	for i := range int(rec.NumRows()) {
		key := fmt.Sprint(rec.Column(0).(*array.String).Value(i), "/", rec.Column(1).(*array.Int64).Value(i))
		if kinds != nil && !kinds[i].IsAdd() {
			delete(m, key)
			continue
		}
		m[key] = rec.Column(2).(*array.String).Value(i)
	}
}

func (x *table) expire(keep int) {
	x.t.Helper()
	if _, err := x.reader().Meta().Expire(x.t.Context(), manifest.Retention{Min: keep, Max: keep}, time.Now().Add(time.Hour)); err != nil {
		x.t.Fatal(err)
	}
}
