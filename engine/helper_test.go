package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
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

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a fixed one")

func newRand(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = 20261129
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func testEnv() engine.Env {
	return engine.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}
}

// hasty is an environment whose pauses are a millisecond at most: retries against a broken store soon give up.
func hasty() engine.Env {
	e := testEnv()
	e.After = func(d time.Duration) <-chan time.Time { return time.After(min(d, time.Millisecond)) }
	return e
}

func readerOf(st storage.Store) *reader.Reader {
	e := testEnv()
	return reader.Open(st, reader.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
}

type row struct {
	kind schema.RowKind
	part string
	id   int64
	name string
}

// keyedSchema is a small table. Its files are not compressed unless the options say so: under the race detector that is
// most of what a small file costs.
func keyedSchema(t *testing.T, partitioned bool, options map[string]string) *schema.Schema {
	t.Helper()
	options = maps.Clone(options)
	if options == nil {
		options = map[string]string{}
	}
	if options["file.compression"] == "" {
		options["file.compression"] = "none"
	}
	spec := schema.Spec{
		Columns:     []schema.Column{column(t, "p STRING NOT NULL"), column(t, "id BIGINT NOT NULL"), column(t, "name STRING")},
		PrimaryKeys: []string{"id"}, Options: options,
	}
	if partitioned {
		spec.PrimaryKeys, spec.PartitionKeys = []string{"p", "id"}, []string{"p"}
	}
	s, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appendSchema(t *testing.T) *schema.Schema {
	t.Helper()
	s, err := schema.New(schema.Spec{Columns: []schema.Column{column(t, "p STRING NOT NULL"), column(t, "id BIGINT NOT NULL"), column(t, "name STRING")},
		Options: map[string]string{"file.compression": "none"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func column(t *testing.T, s string) schema.Column {
	t.Helper()
	c, err := schema.ParseColumns(s)
	if err != nil {
		t.Fatal(err)
	}
	return c[0]
}

func batchOf(s *schema.Schema, rows []row) schema.Batch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	kinds := make([]schema.RowKind, len(rows))
	for i, r := range rows {
		b.Field(0).(*array.StringBuilder).Append(r.part)
		b.Field(1).(*array.Int64Builder).Append(r.id)
		b.Field(2).(*array.StringBuilder).Append(r.name)
		kinds[i] = r.kind
	}
	return schema.Batch{Rec: b.NewRecordBatch(), Kinds: kinds}
}

func mustCreate(t *testing.T, st storage.Store, s *schema.Schema) {
	t.Helper()
	if err := engine.Create(t.Context(), st, s); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t *testing.T, st storage.Store, set engine.Settings) *engine.Table {
	t.Helper()
	tab, err := engine.Open(t.Context(), st, set, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tab.Close(context.Background()); err != nil && !errors.Is(err, errInjected) {
			t.Error(err)
		}
	})
	return tab
}

func progress(n int) engine.Progress {
	return engine.Progress{Properties: map[string]string{"calve.test": strconv.Itoa(n)}}
}

// dataFiles walks a table for data files: what is on storage, whether or not a snapshot names it.
func dataFiles(t *testing.T, st storage.Store) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for info, err := range storage.Walk(context.Background(), st, "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(info.Name, ".parquet") {
			out[info.Name] = true
		}
	}
	return out
}

// liveFiles are the data files that the latest snapshot names.
func liveFiles(t *testing.T, st storage.Store) map[string]bool {
	t.Helper()
	m := readerOf(st).Meta()
	snap, err := m.Latest(context.Background())
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return map[string]bool{}
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.LatestSchema(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	opts, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := m.Live(context.Background(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for i := range entries {
		dir, err := manifest.DataDir(s, opts, entries[i].Partition, entries[i].Bucket)
		if err != nil {
			t.Fatal(err)
		}
		out[dir+"/"+entries[i].File.Name] = true
	}
	return out
}

// contents reads a table as key → name.
func contents(t *testing.T, st storage.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	for rec, err := range readerOf(st).Scan(context.Background(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			k := rec.Column(0).(*array.String).Value(i) + "/" + strconv.FormatInt(rec.Column(1).(*array.Int64).Value(i), 10)
			if _, ok := out[k]; ok {
				t.Fatalf("key %s twice", k)
			}
			out[k] = rec.Column(2).(*array.String).Value(i)
		}
	}
	return out
}

func mustVerify(t *testing.T, st storage.Store) *reader.Report {
	t.Helper()
	rep, err := readerOf(st).Verify(context.Background(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK() || rep.Snapshot > 0 && !rep.Folded {
		t.Fatalf("%+v", rep)
	}
	return rep
}

// apply brings the model up to date.
func apply(model map[string]string, rows []row) {
	for _, r := range rows {
		k := r.part + "/" + strconv.FormatInt(r.id, 10)
		if r.kind.IsAdd() {
			model[k] = r.name
		} else {
			delete(model, k)
		}
	}
}

func randomRows(rng *rand.Rand, partitioned bool) []row {
	rows := make([]row, 1+rng.IntN(120))
	for i := range rows {
		rows[i] = row{kind: schema.Insert, part: "x", id: int64(rng.IntN(200)), name: fmt.Sprint("n", rng.Uint64())}
		if partitioned {
			rows[i].part = []string{"a", "b/=%", "ç d"}[rng.IntN(3)]
		}
		if rng.IntN(4) == 0 {
			rows[i].kind = schema.Delete
		}
	}
	return rows
}

var errInjected = errors.New("injected")
