package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func alter(t *testing.T, st storage.Store, changes ...schema.Change) *schema.Schema {
	t.Helper()
	e := testEnv()
	s, _, err := manifest.Open(st, manifest.Env{Now: e.Now, NewID: e.NewID, Rand: e.Rand}).AlterSchema(t.Context(), changes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var addAge = schema.AddColumn{Path: []string{"age"}, Type: schema.Type{Root: schema.Int}, Place: schema.Place{At: schema.First}}

// aged makes rows (age, p, id, name) or, with the id as BIGINT text, what the schema says.
func aged(s *schema.Schema, from, to int) schema.Batch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int32Builder).Append(int32(i))
		b.Field(1).(*array.StringBuilder).Append("p")
		b.Field(2).(*array.Int64Builder).Append(int64(i))
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprint("new ", i))
	}
	return schema.Batch{Rec: b.NewRecordBatch()}
}

func plainRows(from, to int) []row {
	var out []row
	for i := from; i < to; i++ {
		out = append(out, row{schema.Insert, "p", int64(i), fmt.Sprint("old ", i)})
	}
	return out
}

// TestOldRowsExpire: a full compaction finds rows that have expired also in files of an older schema, in which the time
// column had another place.
func TestOldRowsExpire(t *testing.T) {
	st := storage.NewMem()
	s, err := schema.New(schema.Spec{Columns: []schema.Column{column(t, "p STRING"), column(t, "id BIGINT NOT NULL"), column(t, "name STRING")},
		PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "1", "record-level.expire-time": "1 h", "record-level.time-field": "id"}})
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, st, s)
	now := time.Now()
	env := testEnv()
	env.Now = func() time.Time { return now }
	open := func() *engine.Table {
		tab, err := engine.Open(t.Context(), st, engine.Settings{}, env)
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	tab := open()
	writeCommit(t, tab, s, 1, []row{{part: "p", id: now.Unix()}, {part: "p", id: now.Unix() + 7200}})
	if err := errors.Join(tab.Compact(t.Context(), true), tab.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	alter(t, st, addAge)
	now = now.Add(90 * time.Minute)
	tab = open()
	if err := errors.Join(tab.Compact(t.Context(), true), tab.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if rows := table(t, st); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
}

// table scans all rows as text, sorted.
func table(t *testing.T, st storage.Store) []string {
	t.Helper()
	var out []string
	for rec, err := range readerOf(st).Scan(t.Context(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			line := ""
			for c := range int(rec.NumCols()) {
				line += fmt.Sprint(schema.Cell(rec.Column(c), i), "|")
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func write(t *testing.T, tab *engine.Table, b schema.Batch) {
	t.Helper()
	if err := tab.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, tab *engine.Table) {
	t.Helper()
	if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
		t.Fatal(err)
	}
}

// schemaIDs gives the schema ids of the live files.
func schemaIDs(t *testing.T, st storage.Store) []int64 {
	t.Helper()
	m := readerOf(st).Meta()
	snap, err := m.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	live, err := m.Live(t.Context(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for _, e := range live {
		out = append(out, e.File.SchemaID)
	}
	slices.Sort(out)
	return out
}

// TestFollow: a handle finishes its buffer under the old schema and goes on with the new one; compaction brings all
// files to it.
func TestFollow(t *testing.T) {
	st := storage.NewMem()
	old := keyedSchema(t, false, nil)
	mustCreate(t, st, old)
	tab := mustOpen(t, st, engine.Settings{})
	write(t, tab, batchOf(old, plainRows(0, 4)))
	commit(t, tab)
	if s := tab.NewSchema(); s != nil {
		t.Fatalf("new schema %d", s.ID)
	}
	next := alter(t, st, addAge)
	if s := tab.NewSchema(); s != nil {
		t.Fatalf("new schema %d without a look", s.ID)
	}
	write(t, tab, batchOf(old, plainRows(3, 6)))
	commit(t, tab)
	s := tab.NewSchema()
	if s == nil || s.ID != next.ID || tab.Schema().ID != old.ID {
		t.Fatalf("new schema %v", s)
	}
	write(t, tab, batchOf(old, plainRows(6, 8))) // stays in the buffer
	if err := tab.Follow(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if tab.NewSchema() != nil || tab.Schema().ID != next.ID {
		t.Fatalf("schema %d", tab.Schema().ID)
	}
	if err := tab.Write(t.Context(), batchOf(old, plainRows(0, 1))); !errors.Is(err, engine.ErrRows) {
		t.Errorf("a batch of the old schema: %v", err)
	}
	write(t, tab, aged(next, 7, 10))
	commit(t, tab)
	want := []string{"7|p|7|new 7|", "8|p|8|new 8|", "9|p|9|new 9|", "<nil>|p|0|old 0|", "<nil>|p|1|old 1|", "<nil>|p|2|old 2|",
		"<nil>|p|3|old 3|", "<nil>|p|4|old 4|", "<nil>|p|5|old 5|", "<nil>|p|6|old 6|"}
	if got := table(t, st); !slices.Equal(got, want) {
		t.Errorf("rows %q", got)
	}
	if got := schemaIDs(t, st); !slices.Equal(got, []int64{0, 0, 0, 1}) {
		t.Errorf("files of schemas %v", got)
	}
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := schemaIDs(t, st); !slices.Equal(got, []int64{1}) {
		t.Errorf("files of schemas %v after the compaction", got)
	}
	if got := table(t, st); !slices.Equal(got, want) {
		t.Errorf("rows %q after the compaction", got)
	}
}

// TestCompactNewerFiles: a handle that knows an old schema only compacts the files of another writer by theirs, and files
// that only move keep their schema.
func TestCompactNewerFiles(t *testing.T) {
	st := storage.NewMem()
	old := keyedSchema(t, false, nil)
	mustCreate(t, st, old)
	tab := mustOpen(t, st, engine.Settings{})
	write(t, tab, batchOf(old, plainRows(0, 2)))
	commit(t, tab)
	next := alter(t, st, addAge, schema.ChangeType{Path: []string{"name"}, Type: schema.Type{Root: schema.VarChar, Length: 5}})
	other := mustOpen(t, st, engine.Settings{})
	write(t, other, aged(next, 1, 3))
	commit(t, other)
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := schemaIDs(t, st); !slices.Equal(got, []int64{1}) {
		t.Errorf("files of schemas %v", got)
	}
	if got := table(t, st); !slices.Equal(got, []string{"1|p|1|new 1|", "2|p|2|new 2|", "<nil>|p|0|old 0|"}) {
		t.Errorf("rows %q", got)
	}
	// The single file of the old handle overlaps nothing and only moves.
	write(t, tab, batchOf(old, plainRows(100, 102)))
	commit(t, tab)
	if err := tab.Compact(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	ids := schemaIDs(t, st)
	if slices.Max(ids) != 1 {
		t.Errorf("files of schemas %v", ids)
	}
	if got := table(t, st); len(got) != 5 {
		t.Errorf("rows %q", got)
	}
}

// TestCompactRecasts: a full compaction rewrites files of the highest level whose columns had other types, and only those.
func TestCompactRecasts(t *testing.T) {
	st := storage.NewMem()
	old := keyedSchema(t, false, nil)
	mustCreate(t, st, old)
	tab := mustOpen(t, st, engine.Settings{})
	write(t, tab, batchOf(old, plainRows(0, 4)))
	commit(t, tab)
	full := func() []int64 {
		t.Helper()
		tab := mustOpen(t, st, engine.Settings{})
		if err := tab.Compact(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		return schemaIDs(t, st)
	}
	alter(t, st, schema.RenameColumn{Path: []string{"p"}, To: "part"}, schema.AddColumn{Path: []string{"x"}, Type: schema.Type{Root: schema.Int}})
	if ids := full(); !slices.Equal(ids, []int64{0}) {
		t.Errorf("files of schemas %v: one that only moves keeps its own", ids)
	}
	alter(t, st, schema.ChangeType{Path: []string{"name"}, Type: schema.Type{Root: schema.VarBinary, Length: schema.MaxLength}})
	if ids := full(); !slices.Equal(ids, []int64{2}) {
		t.Errorf("files of schemas %v: the types are not those of today", ids)
	}
	if rows := table(t, st); len(rows) != 4 {
		t.Errorf("rows %q", rows)
	}
}

// TestFollowRefused: what would need more than going on is refused, and the handle stays as it was.
func TestFollowRefused(t *testing.T) {
	st := storage.NewMem()
	old := keyedSchema(t, false, map[string]string{"bucket": "2"})
	mustCreate(t, st, old)
	tab := mustOpen(t, st, engine.Settings{})
	write(t, tab, batchOf(old, plainRows(0, 2)))
	commit(t, tab)
	next := alter(t, st, schema.SetOption{Name: "bucket", Value: "3"})
	got, err := tab.LookForSchema(t.Context())
	if err != nil || got == nil || got.ID != next.ID {
		t.Fatalf("%v %v", got, err)
	}
	if err := tab.Follow(t.Context(), got); !errors.Is(err, engine.ErrUnsupported) {
		t.Fatalf("%v", err)
	}
	write(t, tab, batchOf(old, plainRows(2, 4)))
	commit(t, tab)
	if rows := table(t, st); len(rows) != 4 {
		t.Errorf("rows %q", rows)
	}
}

// TestFollowLevels: another number of levels, and write-only, take effect without opening the table again.
func TestFollowLevels(t *testing.T) {
	st := storage.NewMem()
	old := keyedSchema(t, false, map[string]string{"write-only": "true"})
	mustCreate(t, st, old)
	tab := mustOpen(t, st, engine.Settings{Compaction: 1})
	for i := range 8 {
		write(t, tab, batchOf(old, plainRows(i, i+2)))
		commit(t, tab)
	}
	if m := tab.Metrics(); m.Compactions != 0 {
		t.Fatalf("%d compactions of a write-only table", m.Compactions)
	}
	next := alter(t, st, schema.RemoveOption{Name: "write-only"}, schema.SetOption{Name: "num-levels", Value: "4"})
	if err := tab.Follow(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); tab.Metrics().Compactions == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no compaction")
		}
	}
	if rows := table(t, st); len(rows) != 9 {
		t.Errorf("rows %q", rows)
	}
}
