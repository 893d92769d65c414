package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func TestKeyedTable(t *testing.T) {
	w := newWorld(t, storage.NewMem(), keyed(t))
	e := w.exporter()

	r := w.publish(e, 0)
	if !r.Published || r.IcebergSnapshot != 0 || r.Files != 0 {
		t.Fatalf("first publish of an empty table: %+v", r)
	}
	if rows := scanned(t, w.store, ScanSpec{}); len(rows) != 0 {
		t.Fatalf("empty table has rows %v", rows)
	}

	w.commit(manifest.Append, w.write(w.part(0), 0, `{"id":7,"name":"level 0","amount":"1.00"}`))
	if r = w.publish(e, 0); r.Published {
		t.Fatalf("a file of level 0 was exported: %+v", r)
	}

	a := w.write(w.part(0), 2, `{"id":1,"name":"one","amount":"1.50"}`, `{"id":2,"name":null,"amount":null}`)
	b := w.write(w.part(1), 2, `{"id":3,"name":"three","amount":"-3.25"}`)
	s := w.commit(manifest.Compact, a, b)
	r = w.publish(e, 0)
	if !r.Published || r.IcebergSnapshot != s.ID || r.Files != 2 || r.Rows != 3 || r.Added != 2 || r.Removed != 0 {
		t.Fatalf("publish of snapshot %d: %+v", s.ID, r)
	}
	want := []string{`{"amount":"-3.25","id":3,"name":"three"}`, `{"amount":"1.5","id":1,"name":"one"}`, `{"amount":null,"id":2,"name":null}`}
	if got := scanned(t, w.store, ScanSpec{}); !slices.Equal(got, want) {
		t.Fatalf("rows %v, want %v", got, want)
	}
	w.check()

	if r = w.publish(e, s.ID); r.Published || r.IcebergSnapshot != s.ID || r.Rows != 3 {
		t.Fatalf("same snapshot again: %+v", r)
	}

	// The compaction of bucket 0 removes a row and rewrites the other.
	c := w.write(w.part(0), 2, `{"id":1,"name":"uno","amount":"2.00"}`)
	s2 := w.commit(manifest.Compact, removal(a), c)
	r = w.publish(e, 0)
	if !r.Published || r.IcebergSnapshot != s2.ID || r.Files != 2 || r.Rows != 2 || r.Added != 1 || r.Removed != 1 {
		t.Fatalf("publish of snapshot %d: %+v", s2.ID, r)
	}
	tab := w.check()
	if got, want := tab.CurrentSnapshot().Summary.Operation, table.OpOverwrite; got != want {
		t.Errorf("operation %s, want %s", got, want)
	}
	if got := scanned(t, w.store, ScanSpec{Columns: []string{"name"}}); !slices.Equal(got, []string{`{"name":"three"}`, `{"name":"uno"}`}) {
		t.Errorf("names %v", got)
	}
	if got := scanned(t, w.store, ScanSpec{Snapshot: s.ID}); !slices.Equal(got, want) {
		t.Errorf("rows of snapshot %d: %v, want %v", s.ID, got, want)
	}

	// Everything is deleted.
	s3 := w.commit(manifest.Compact, removal(b), removal(c))
	r = w.publish(e, 0)
	if r.IcebergSnapshot != s3.ID || r.Files != 0 || r.Rows != 0 || r.Removed != 2 {
		t.Fatalf("publish of the empty state: %+v", r)
	}
	if got, want := w.check().CurrentSnapshot().Summary.Operation, table.OpDelete; got != want {
		t.Errorf("operation %s, want %s", got, want)
	}
	// The next snapshot does not name the manifest of deleted files any more.
	w.commit(manifest.Compact, w.write(w.part(3), 2, `{"id":9,"name":"nine","amount":"9.00"}`))
	w.publish(e, 0)
	w.check()
	if n := len(e.state.list); n != 1 {
		t.Errorf("%d manifests, want 1", n)
	}
}

func TestUnchangedWritesNothing(t *testing.T) {
	counted := storage.WithCounter(storage.NewMem())
	w := newWorld(t, counted, keyed(t))
	e := w.exporter()
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	w.publish(e, 0)
	w.commit(manifest.Append, w.fake(w.part(0), 0, 10))
	written := counted.Counts()
	w.publish(e, 0)
	w.publish(e, 0)
	for _, kind := range []storage.OpKind{storage.OpCreate, storage.OpPut, storage.OpPutIfAbsent, storage.OpList, storage.OpDelete} {
		if n := counted.Counts().Since(written).Of(kind).Calls; n != 0 {
			t.Errorf("%d calls of %s for an unchanged set of files", n, kind)
		}
	}
}

func TestAppendTable(t *testing.T) {
	w := newWorld(t, storage.NewMem(), schema.Spec{Columns: columns(t, "a INT, b STRING")})
	e := w.exporter()
	x := w.write(w.part(0), 0, `{"a":1,"b":"x"}`)
	y := w.write(w.part(0), 0, `{"a":2,"b":"y"}`)
	w.commit(manifest.Append, x)
	w.publish(e, 0)
	w.commit(manifest.Append, y)
	w.publish(e, 0)
	if got := w.check().CurrentSnapshot().Summary.Operation; got != table.OpAppend {
		t.Errorf("operation %s, want append", got)
	}
	// A compaction of an append table changes no row.
	z := w.write(w.part(0), 0, `{"a":1,"b":"x"}`, `{"a":2,"b":"y"}`)
	w.commit(manifest.Compact, removal(x), removal(y), z)
	w.publish(e, 0)
	if got := w.check().CurrentSnapshot().Summary.Operation; got != table.OpReplace {
		t.Errorf("operation %s, want replace", got)
	}
	if got, want := scanned(t, w.store, ScanSpec{}), []string{`{"a":1,"b":"x"}`, `{"a":2,"b":"y"}`}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

// TestMetadata looks at what the metadata says about itself after four changes.
func TestMetadata(t *testing.T) {
	w := newWorld(t, storage.NewMem(), keyed(t))
	e := w.exporter()
	w.publish(e, 0)
	id := e.state.meta.TableUUID
	for range 4 {
		w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
		w.publish(e, 0)
	}
	tab := w.check()
	m := tab.Metadata()
	if m.Version() != 2 || m.TableUUID() != id || m.Location() != "mem://" || m.LastColumnID() != 3 || m.LastSequenceNumber() != 4 {
		t.Errorf("version %d, id %s, location %s, last column %d, last sequence number %d", m.Version(), m.TableUUID(), m.Location(), m.LastColumnID(), m.LastSequenceNumber())
	}
	for key, want := range map[string]string{PropSnapshot: "4", PropSchema: "0", propGC: "false",
		table.DefaultNameMappingKey: `[{"names":["id"],"field-id":1},{"names":["name"],"field-id":2},{"names":["amount"],"field-id":3}]`} {
		if got := m.Properties()[key]; got != want {
			t.Errorf("property %s is %q, want %q", key, got, want)
		}
	}
	var last *table.Snapshot
	for i, s := range m.Snapshots() {
		paimon, err := w.table.Snapshot(context.Background(), s.SnapshotID)
		if err != nil {
			t.Fatal(err)
		}
		if s.SnapshotID != int64(i+1) || s.SequenceNumber != int64(i+1) || s.TimestampMs != paimon.TimeMillis || *s.SchemaID != 0 {
			t.Errorf("snapshot %d: %s", i, s)
		}
		if (last == nil) != (s.ParentSnapshotID == nil) || last != nil && *s.ParentSnapshotID != last.SnapshotID {
			t.Errorf("parent of snapshot %d: %v", s.SnapshotID, s.ParentSnapshotID)
		}
		if s.Summary.Properties[PropSnapshot] != fmt.Sprint(s.SnapshotID) || s.Summary.Properties[PropChanged] != fmt.Sprint(s.SnapshotID) {
			t.Errorf("summary of snapshot %d: %v", s.SnapshotID, s.Summary)
		}
		last = &s
	}
	var log []int64
	for entry := range m.SnapshotLogs() {
		log = append(log, entry.SnapshotID)
	}
	if !slices.Equal(log, []int64{1, 2, 3, 4}) || m.LastUpdatedMillis() != last.TimestampMs {
		t.Errorf("snapshot log %v, last update %d", log, m.LastUpdatedMillis())
	}
	for name, ref := range m.Refs() {
		if name != table.MainBranch || ref.SnapshotID != 4 || ref.SnapshotRefType != table.BranchRef {
			t.Errorf("ref %s: %+v", name, ref)
		}
	}
	if got := len(slices.Collect(m.PreviousFiles())); got != 4 {
		t.Errorf("%d former metadata files, want 4", got)
	}
	// The clock of a committer that goes back does not take the Iceberg table's time back.
	w.now = start.Add(-time.Hour)
	w.commit(manifest.Append, w.fake(w.part(0), 2, 10))
	w.publish(e, 0)
	if got := w.check().CurrentSnapshot().TimestampMs; got < last.TimestampMs {
		t.Errorf("time went back by %d ms", last.TimestampMs-got)
	}
}

// TestJump publishes after several snapshots at once, and after a restart.
func TestJump(t *testing.T) {
	w := newWorld(t, storage.NewMem(), keyed(t))
	a, b := w.fake(w.part(0), 2, 10), w.fake(w.part(1), 2, 10)
	w.commit(manifest.Append, a, b)
	w.publish(w.exporter(), 0)
	c, d := w.fake(w.part(0), 2, 10), w.fake(w.part(2), 2, 5)
	w.commit(manifest.Compact, removal(a), c)
	w.commit(manifest.Compact, removal(c), d)
	s := w.commit(manifest.Append, w.fake(w.part(3), 0, 1))
	r := w.publish(w.exporter(), 0)
	if r.IcebergSnapshot != s.ID || r.Added != 1 || r.Removed != 1 {
		t.Fatalf("publish: %+v", r)
	}
	w.check()
	if r := w.publish(w.exporter(), 2); r.Published {
		t.Fatalf("an older snapshot was published over a newer one: %+v", r)
	}
	w.check()
}

func TestLevelChange(t *testing.T) {
	w := newWorld(t, storage.NewMem(), keyed(t))
	e := w.exporter()
	a := w.fake(w.part(0), 1, 10)
	w.commit(manifest.Append, a)
	w.publish(e, 0)
	up := a
	up.File.Level = 2
	w.commit(manifest.Compact, removal(a), up)
	if r := w.publish(e, 0); r.Added != 1 || r.Removed != 0 {
		t.Fatalf("a file that moved up: %+v", r)
	}
	w.check()
}

func TestRefusals(t *testing.T) {
	one, cols := int64(1), []string{"id"}
	for name, c := range map[string]struct {
		spec   schema.Spec
		change func(*manifest.Entry)
		want   string
	}{
		"milliseconds": {spec: schema.Spec{Columns: columns(t, "a INT, ts TIMESTAMP(3)")}, want: `column "ts"`},
		"time":         {spec: schema.Spec{Columns: columns(t, "tod TIME")}, want: `column "tod"`},
		"deleted rows": {spec: keyed(t), change: func(e *manifest.Entry) { e.File.DeleteRows = &one }, want: "1 deleted rows"},
		"orc":          {spec: keyed(t), change: func(e *manifest.Entry) { e.File.Name = "data-1.orc" }, want: "not a Parquet file"},
		"some columns": {spec: keyed(t), change: func(e *manifest.Entry) { e.File.WriteCols = cols }, want: "only some of the columns"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, storage.NewMem(), c.spec)
			f := w.fake(w.part(0), 2, 10)
			if c.change != nil {
				c.change(&f)
			}
			w.commit(manifest.Append, f)
			_, err := w.exporter().Publish(context.Background(), 0)
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one about %q", err, c.want)
			}
			if names := w.names(); len(names) > 0 {
				t.Errorf("a refused export left %v", names)
			}
		})
	}
}

func TestPartitionFieldZero(t *testing.T) {
	store := storage.NewMem()
	s, err := schema.New(schema.Spec{Columns: columns(t, "p INT, a INT"), PartitionKeys: []string{"p"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Fields {
		s.Fields[i].ID--
	}
	if err := manifest.Create(context.Background(), store, s); err != nil {
		t.Fatal(err)
	}
	_, err = openWorld(t, store, s).exporter().Publish(context.Background(), 0)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "field id 0") {
		t.Fatalf("error %v, want one about field id 0", err)
	}
}
