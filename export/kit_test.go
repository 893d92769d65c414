package export

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// world is a Paimon table under test, with the files its newest snapshot should have.
type world struct {
	t       testing.TB
	store   storage.Store
	table   *manifest.Table
	schema  *schema.Schema
	options schema.Options
	rng     *rand.Rand
	now     time.Time
	ident   int64
	seq     int64
	live    map[string]manifest.Entry // exported files by location
}

// columns parses a column list.
func columns(t testing.TB, list string) []schema.Column {
	t.Helper()
	cols, err := schema.ParseColumns(list)
	if err != nil {
		t.Fatal(err)
	}
	return cols
}

// keyed is the usual table of these tests.
func keyed(t testing.TB) schema.Spec {
	return schema.Spec{Columns: columns(t, "id BIGINT NOT NULL, name STRING, amount DECIMAL(12,2)"), PrimaryKeys: []string{"id"},
		Options: map[string]string{"bucket": "4"}}
}

func newWorld(t testing.TB, store storage.Store, spec schema.Spec) *world {
	t.Helper()
	spec.TimeMillis = start.UnixMilli()
	s, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.Create(context.Background(), store, s); err != nil {
		t.Fatal(err)
	}
	return openWorld(t, store, s)
}

var start = time.Date(2024, 5, 14, 12, 0, 0, 0, time.UTC)

func openWorld(t testing.TB, store storage.Store, s *schema.Schema) *world {
	t.Helper()
	w := &world{t: t, store: store, rng: rand.New(rand.NewPCG(seed, 1)), now: start, live: map[string]manifest.Entry{}}
	w.table = manifest.Open(store, manifest.Env{Now: w.clock, NewID: w.id, Rand: w.rng.Uint64})
	w.use(s)
	return w
}

// seed makes the tests deterministic.
const seed = 20240514

func (w *world) use(s *schema.Schema) {
	opt, err := s.ParseOptions()
	if err != nil {
		w.t.Fatal(err)
	}
	w.schema, w.options = s, opt
}

// clock goes forward a second with each look.
func (w *world) clock() time.Time {
	w.now = w.now.Add(time.Second)
	return w.now
}

func (w *world) id() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return uuid.UUID(b).String()
}

func (w *world) env() Env { return Env{Now: w.clock, NewID: w.id} }

func (w *world) exporter() *Exporter {
	return New(w.table, NewDirTarget(w.store), Settings{Env: w.env()})
}

// part describes a bucket of the partition with these values.
func (w *world) part(bucket int, partition ...any) lsm.Part {
	w.t.Helper()
	types := w.schema.Types(w.schema.PartitionColumns())
	p := lsm.Part{Partition: binrow.EmptyRow, Values: partition, Bucket: bucket, TotalBuckets: max(w.options.Bucket, 1)}
	var err error
	if len(types) > 0 {
		if p.Partition, err = binrow.EncodeRow(types, partition); err != nil {
			w.t.Fatal(err)
		}
	}
	if p.Dir, err = manifest.DataDir(w.schema, w.options, p.Partition, bucket); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// write makes one data file of rows in JSON at a level and describes it as an added file.
func (w *world) write(p lsm.Part, level int, rows ...string) manifest.Entry {
	w.t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, w.schema.Arrow(), strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		w.t.Fatal(err)
	}
	f := lsm.Files{Store: w.store, Schema: w.schema, Options: w.options, Now: w.clock,
		NewName: func() string { return "data-" + w.id() + "-0.parquet" }}
	made, err := f.Flush(context.Background(), p, []datafile.Rows{{N: int(rec.NumRows()), Cols: rec.Columns()}}, nil, w.seq)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(made) != 1 {
		w.t.Fatalf("flush made %d files, want 1", len(made))
	}
	w.seq += rec.NumRows()
	made[0].Level = level
	return manifest.Entry{Kind: manifest.Add, Partition: p.Partition, Bucket: p.Bucket, TotalBuckets: p.TotalBuckets, File: made[0]}
}

// fake describes a file that does not exist, for tests of metadata.
func (w *world) fake(p lsm.Part, level int, rows int64) manifest.Entry {
	zero, src := int64(0), manifest.FromCompact
	low, high := w.seq, w.seq+max(rows, 1)-1
	key := func(v int64) []byte {
		if !w.schema.Keyed() {
			return binrow.EmptyRow
		}
		b, err := binrow.EncodeRow(w.schema.Types(w.schema.KeyColumns()), []any{v})
		if err != nil {
			w.t.Fatal(err)
		}
		return b
	}
	w.seq += max(rows, 1)
	return manifest.Entry{Kind: manifest.Add, Partition: p.Partition, Bucket: p.Bucket, TotalBuckets: p.TotalBuckets, File: manifest.DataFile{
		Name: "data-" + w.id() + "-0.parquet", Size: 1000 + rows, Rows: rows, Level: level, DeleteRows: &zero, Source: &src,
		SchemaID: w.schema.ID, MinSeq: low, MaxSeq: high, MinKey: key(low), MaxKey: key(high), ValueStatsCols: []string{},
		KeyStats:   manifest.Stats{Min: binrow.EmptyRow, Max: binrow.EmptyRow},
		ValueStats: manifest.Stats{Min: binrow.EmptyRow, Max: binrow.EmptyRow},
	}}
}

// removal is the entry that removes an added file.
func removal(e manifest.Entry) manifest.Entry {
	e.Kind = manifest.Remove
	return e
}

// commit makes a snapshot of the entries.
func (w *world) commit(kind manifest.CommitKind, entries ...manifest.Entry) *manifest.Snapshot {
	w.t.Helper()
	w.ident++
	s, err := w.table.Commit(context.Background(), manifest.Commit{Kind: kind, User: "test", Identifier: w.ident, Entries: entries})
	if err != nil {
		w.t.Fatal(err)
	}
	w.track(entries)
	return s
}

// track keeps w.live.
func (w *world) track(entries []manifest.Entry) {
	v, err := newView(w.schema, w.store)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		loc, err := v.location(&e)
		if err != nil {
			w.t.Fatal(err)
		}
		if !v.exports(&e) {
			continue
		}
		if e.Kind == manifest.Add {
			w.live[loc] = e
		} else {
			delete(w.live, loc)
		}
	}
}

func (w *world) publish(e *Exporter, id int64) Result {
	w.t.Helper()
	r, err := e.Publish(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// check compares the exported table with w.live, and itself with itself.
func (w *world) check() *table.Table {
	w.t.Helper()
	ctx := context.Background()
	tab, err := OpenTable(ctx, w.store)
	if err != nil {
		w.t.Fatal(err)
	}
	got, rows := planned(w.t, tab, 0)
	want := make([]string, 0, len(w.live))
	var wantRows int64
	for loc, e := range w.live {
		want, wantRows = append(want, loc), wantRows+e.File.Rows
	}
	sort.Strings(want)
	if !slices.Equal(got, want) {
		w.t.Fatalf("exported files differ\nmissing %v\ntoo many %v", without(want, got), without(got, want))
	}
	if rows != wantRows {
		w.t.Fatalf("exported files have %d rows, want %d", rows, wantRows)
	}
	if cur := tab.CurrentSnapshot(); cur != nil {
		for key, n := range map[string]int64{"total-data-files": int64(len(want)), "total-records": wantRows, "total-files-size": w.size()} {
			if got := cur.Summary.Properties[key]; got != fmt.Sprint(n) {
				w.t.Fatalf("summary of snapshot %d: %s is %s, want %d", cur.SnapshotID, key, got, n)
			}
		}
	} else if len(want) > 0 {
		w.t.Fatal("no current snapshot")
	}
	return tab
}

// without gives what a has and b has not.
func without(a, b []string) (out []string) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) size() (n int64) {
	for _, e := range w.live {
		n += e.File.Size
	}
	return n
}

// planned gives the files that iceberg-go would read of a snapshot (0: the current one), and their rows.
func planned(t testing.TB, tab *table.Table, snapshot int64) ([]string, int64) {
	t.Helper()
	var opts []table.ScanOption
	if snapshot != 0 {
		opts = append(opts, table.WithSnapshotID(snapshot))
	}
	tasks, err := tab.Scan(opts...).PlanFiles(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	files, rows := []string{}, int64(0)
	for _, task := range tasks {
		files, rows = append(files, task.File.FilePath()), rows+task.File.Count()
	}
	sort.Strings(files)
	return files, rows
}

// scanned gives the rows of the exported table as JSON, sorted.
func scanned(t testing.TB, store storage.Store, spec ScanSpec) []string {
	t.Helper()
	out := []string{}
	for batch, err := range Scan(context.Background(), store, spec) {
		if err != nil {
			t.Fatal(err)
		}
		data, err := batch.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		batch.Release()
		text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(data)), "["), "]")
		for _, row := range strings.Split(text, "\n,") {
			if row = strings.TrimSpace(row); row != "" {
				out = append(out, row)
			}
		}
	}
	sort.Strings(out)
	return out
}

// names lists the metadata folder.
func (w *world) names() []string {
	w.t.Helper()
	var out []string
	for info, err := range w.store.List(context.Background(), metadataDir) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, strings.TrimPrefix(info.Name, metadataDir+"/"))
	}
	return out
}
