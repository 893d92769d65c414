package reader_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// forged makes a table of the same schema and data files whose manifests say what forge makes of the entries.
func (x *table) forged(forge func([]manifest.Entry) []manifest.Entry) *reader.Reader {
	x.t.Helper()
	ctx := x.t.Context()
	r := x.reader()
	snap, err := r.Meta().Latest(ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	entries, err := r.Meta().Live(ctx, snap, nil)
	if err != nil {
		x.t.Fatal(err)
	}
	y := newTable(x.t, x.schema.Keyed())
	for info, err := range storage.Walk(ctx, x, "") {
		if err != nil {
			x.t.Fatal(err)
		}
		if !strings.HasSuffix(info.Name, ".parquet") {
			continue
		}
		data, err := storage.ReadAll(ctx, x, info.Name, 1<<20)
		if err != nil {
			x.t.Fatal(err)
		}
		if err := y.PutIfAbsent(ctx, info.Name, data); err != nil {
			x.t.Fatal(err)
		}
	}
	if _, err := y.reader().Meta().Commit(ctx, manifest.Commit{Kind: manifest.Append, User: "forger", Identifier: 1, Entries: forge(entries)}); err != nil {
		x.t.Fatal(err)
	}
	return y.reader()
}

// TestVerifyFinds goes through what manifests can say wrong about files that are sound.
func TestVerifyFinds(t *testing.T) {
	first := func(f func(*manifest.Entry)) func([]manifest.Entry) []manifest.Entry {
		return func(es []manifest.Entry) []manifest.Entry {
			f(&es[0])
			return es
		}
	}
	deletes := int64(3)
	for _, tc := range []struct {
		name  string
		forge func([]manifest.Entry) []manifest.Entry
		want  string
	}{
		{"nothing", first(func(*manifest.Entry) {}), ""},
		{"rows", first(func(e *manifest.Entry) { e.File.Rows++ }), "has 4 rows, the manifest says 5"},
		{"size", first(func(e *manifest.Entry) { e.File.Size-- }), "the manifest says"},
		{"deletes", first(func(e *manifest.Entry) { e.File.DeleteRows = &deletes }), "has 0 deletes, the manifest says 3"},
		{"sequence numbers", first(func(e *manifest.Entry) { e.File.MaxSeq-- }), "the manifest says 0 to"},
		{"keys", func(es []manifest.Entry) []manifest.Entry {
			es[0].File.MaxKey = es[0].File.MinKey
			return es
		}, "its first or last key is not the one in the manifest"},
		{"name", first(func(e *manifest.Entry) { e.File.Name = "data-lost-0.parquet" }), "not found"},
		{"format", first(func(e *manifest.Entry) { e.File.Name = "data-0.orc" }), "calve reads Parquet and Avro files, not orc"},
		{"level", first(func(e *manifest.Entry) { e.File.Level = 1 << 30 }), "is on level 1073741824"},
		{"overlap", func(es []manifest.Entry) []manifest.Entry {
			for i := range es {
				es[i].File.Level = 1
			}
			return es
		}, "overlap"},
		{"twice", func(es []manifest.Entry) []manifest.Entry {
			again := es[0]
			again.File.Level = 2
			return append(es, again)
		}, "is referenced twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := newTable(t, true)
			x.write(some(8, "one"), some(8, "two"))
			rep, err := x.forged(tc.forge).Verify(t.Context(), reader.VerifySpec{Data: true, Fold: true})
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(rep.Problems, "\n"); (text != "") != (tc.want != "") || !strings.Contains(text, tc.want) {
				t.Errorf("problems %q, want %q", text, tc.want)
			}
		})
	}
}

// TestVerifyLooksIntoColumns: a value that was altered is found by the fold, which reads all columns.
func TestVerifyLooksIntoColumns(t *testing.T) {
	x := newTable(t, false)
	x.write(some(6, strings.Repeat("snow", 100)))
	for info, err := range storage.Walk(t.Context(), x, "bucket-0") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := storage.ReadAll(t.Context(), x, info.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(data, []byte("snowsnow"))
		if at < 4 {
			t.Fatal("the text is not in the file as it is")
		}
		data[at-1] ^= 0x7f // of the length before it
		if err := x.Put(t.Context(), info.Name, data); err != nil {
			t.Fatal(err)
		}
		rep, err := x.reader().Verify(t.Context(), reader.VerifySpec{Data: true, Fold: true})
		if err != nil || rep.OK() || !strings.Contains(rep.Problems[0], info.Name) {
			t.Errorf("%+v %v", rep, err)
		}
	}
}

// TestVerifyEnds: the end of the context is an error, not a finding.
func TestVerifyEnds(t *testing.T) {
	x := newTable(t, true)
	x.write(some(8, "one"), some(8, "two"), nil)
	for n := 1; n < 40; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		st := storage.WithFaults(x, func(storage.Op) error {
			if calls.Add(1) == int64(n) {
				cancel()
			}
			return nil
		})
		rep, err := reader.Open(st, env()).Verify(ctx, reader.VerifySpec{Data: true, Fold: true})
		done := ctx.Err() == nil
		cancel()
		switch {
		case done && (err != nil || !rep.OK()):
			t.Fatalf("undisturbed: %+v %v", rep, err)
		case !done && err == nil && !rep.OK():
			t.Fatalf("canceled at call %d: %+v", n, rep)
		case !done && err != nil && !errors.Is(err, context.Canceled):
			t.Fatalf("canceled at call %d: %v", n, err)
		}
	}
}

// Streams are told in the newest schema, so the rows they are held against must be, too, also when nothing was committed
// since the schema was changed.
func TestVerifyAfterSchemaChanges(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		x := newTable(t, keyed)
		x.write(some(3, "a"), some(5, "b"))
		first, err := x.reader().Meta().LatestSchema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last := first.Fields[len(first.Fields)-1].Name
		for _, c := range []schema.Change{
			schema.AddColumn{Path: []string{"front"}, Type: schema.Type{Root: schema.Int}, Place: schema.Place{At: schema.First}},
			schema.RenameColumn{Path: []string{last}, To: "renamed"},
			schema.MoveColumn{Name: "renamed", Place: schema.Place{At: schema.First}},
		} {
			if _, _, err := x.reader().Meta().AlterSchema(t.Context(), []schema.Change{c}); err != nil {
				t.Fatal(err)
			}
			rep, err := x.reader().Verify(t.Context(), reader.VerifySpec{Data: true, Fold: true})
			if err != nil || !rep.OK() || !rep.Folded {
				t.Errorf("keyed %v, after %s: %+v, %v", keyed, c, rep, err)
			}
		}
	}
}
