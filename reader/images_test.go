package reader_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// told is a stream, by snapshot: kinds and rows as texts.
type told map[int64][]string

// images reads a stream with rows before changes.
func images(t *testing.T, r *reader.Reader, from reader.Start, until int64, each func(c reader.Changes)) told {
	t.Helper()
	out := told{}
	for c, err := range r.Tail(t.Context(), reader.TailSpec{From: from, Until: reader.Until{Snapshot: until}, BeforeImage: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec != nil && !c.State {
			enc := rowjson.NewEncoder(c.Rec.Schema())
			for i := range int(c.Rec.NumRows()) {
				out[c.Snapshot] = append(out[c.Snapshot], string(enc.Append([]byte(kindOf(c, i).String()+" "), c.Rec, i)))
			}
		}
		if each != nil {
			each(c)
		}
	}
	return out
}

func kindOf(c reader.Changes, i int) schema.RowKind {
	if c.RowKinds == nil {
		return schema.Insert
	}
	return c.RowKinds[i]
}

// checkImages folds the stream of a table: at each snapshot it is what a scan gives, each row before a change is the one that was
// held, and no update changes nothing; and wherever the stream begins it is the same. It gives the number of changes by kind.
func checkImages(t *testing.T, what string, r *reader.Reader) (count [4]int) {
	t.Helper()
	ctx := t.Context()
	s, err := r.Meta().LatestSchema(ctx)
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]string{}
	snapshots := []int64{}
	before := "" // the key of a -U whose +U must come
	all := images(t, r, reader.Start{}, 0, func(c reader.Changes) {
		if c.Complete {
			if before != "" {
				t.Fatalf("%s: snapshot %d ends with a -U", what, c.Snapshot)
			}
			snapshots = append(snapshots, c.Snapshot)
			if want := scanned(t, r, c.Snapshot, c.Schema); !maps.Equal(held, want) {
				t.Fatalf("%s: after snapshot %d (%s) the stream gives\n%s", what, c.Snapshot, c.Kind, difference(held, want))
			}
			return
		}
		enc := rowjson.NewEncoder(c.Rec.Schema())
		for i := range int(c.Rec.NumRows()) {
			k, row, kind := keyText(s, c.Rec, i), string(enc.Append(nil, c.Rec, i)), kindOf(c, i)
			if !c.State {
				count[kind]++
			}
			old, have := held[k]
			if kind != schema.UpdateAfter && before != "" || kind == schema.UpdateAfter && before == "" {
				t.Fatalf("%s: snapshot %d: %s %s after a -U of %q", what, c.Snapshot, kind, row, before)
			}
			switch kind {
			case schema.Insert:
				if have {
					t.Fatalf("%s: snapshot %d: +I %s, but %s is there", what, c.Snapshot, row, old)
				}
				held[k] = row
			case schema.UpdateAfter:
				if old == row || strings.TrimPrefix(before, "\x00") != old {
					t.Fatalf("%s: snapshot %d: an update to %s, of %s", what, c.Snapshot, row, old)
				}
				held[k], before = row, ""
			default:
				if old != row {
					t.Fatalf("%s: snapshot %d: %s %s, but the row is %s", what, c.Snapshot, kind, row, old)
				}
				if kind == schema.Delete {
					delete(held, k)
				} else {
					before = "\x00" + row
				}
			}
		}
	})
	for _, id := range snapshots {
		if id == snapshots[0] && id > 1 {
			continue // it was told as state
		}
		again := images(t, r, reader.Start{Mode: reader.FromSnapshot, Snapshot: id}, id+1, nil)
		for at, rows := range all {
			if at >= id && at <= id+1 && !slices.Equal(rows, again[at]) {
				t.Fatalf("%s: from snapshot %d on, snapshot %d tells\n%s\nand from the first one on\n%s", what, id, at, strings.Join(again[at], "\n"), strings.Join(rows, "\n"))
			}
		}
	}
	return count
}

func keyText(s *schema.Schema, rec arrow.RecordBatch, i int) string {
	var b strings.Builder
	for _, n := range s.PrimaryKeys {
		f, _ := s.Field(n)
		at := rec.Schema().FieldIndices(s.Fields[f].Name)
		fmt.Fprintf(&b, "%#v|", schema.Cell(rec.Column(at[0]), i))
	}
	return b.String()
}

// scanned are the rows of a snapshot in the columns of a schema, by key.
func scanned(t *testing.T, r *reader.Reader, id int64, in *schema.Schema) map[string]string {
	t.Helper()
	out := map[string]string{}
	for rec, err := range r.ScanThrough(t.Context(), id, in.ID) {
		if err != nil {
			t.Fatal(err)
		}
		enc := rowjson.NewEncoder(rec.Schema())
		for i := range int(rec.NumRows()) {
			out[keyText(in, rec, i)] = string(enc.Append(nil, rec, i))
		}
	}
	return out
}

func difference(got, want map[string]string) string {
	var b strings.Builder
	for k := range want {
		if got[k] != want[k] {
			fmt.Fprintf(&b, "%s: %q, want %q\n", k, got[k], want[k])
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			fmt.Fprintf(&b, "%s: %q, want nothing\n", k, got[k])
		}
	}
	return b.String()
}

// TestImages plays random histories over all merge engines.
func TestImages(t *testing.T) {
	seed := uint64(20261130)
	r := rand.New(rand.NewPCG(seed, 3))
	opt := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	var total [4]int
	for _, c := range []struct {
		name    string
		options map[string]string
		deletes bool
	}{
		{"deduplicate", opt(), true},
		{"input", opt("changelog-producer", "input"), true},
		{"sequence", opt("sequence.field", "g"), true},
		{"ignore-delete", opt("ignore-delete", "true"), true},
		{"first-row", opt("merge-engine", "first-row"), false},
		{"partial-update", opt("merge-engine", "partial-update"), false},
		{"partial-update, groups", opt("merge-engine", "partial-update", "fields.g.sequence-group", "b,f"), true},
		{"partial-update, removes", opt("merge-engine", "partial-update", "partial-update.remove-record-on-delete", "true"), true},
		{"aggregation", opt("merge-engine", "aggregation", "fields.a.aggregate-function", "sum", "fields.b.aggregate-function", "max", "fields.b.ignore-retract", "true"), true},
		{"aggregation of floats", opt("merge-engine", "aggregation", "fields.f.aggregate-function", "sum", "fields.b.aggregate-function", "listagg"), false},
		{"aggregation, removes", opt("merge-engine", "aggregation", "fields.a.aggregate-function", "sum", "aggregation.remove-record-on-delete", "true"), true},
		{"dynamic", opt("bucket", "-1", "dynamic-bucket.target-row-num", "10"), true},
	} {
		for round := range 2 {
			what := fmt.Sprintf("seed %d: %s, round %d", seed, c.name, round)
			st := storage.NewMem()
			playImages(t, r, what, st, c.options, c.deletes, round == 1)
			n := checkImages(t, what, reader.Open(st, env()))
			for i := range n {
				total[i] += n[i]
			}
		}
	}
	t.Logf("changes by kind: %v", total)
	for k, n := range total {
		if n < 100 {
			t.Errorf("only %d changes of kind %s", n, schema.RowKind(k))
		}
	}
}

func playImages(t *testing.T, r *rand.Rand, what string, st storage.Store, options map[string]string, deletes, partitioned bool) {
	t.Helper()
	cols, err := schema.ParseColumns("p STRING, id INT NOT NULL, a INT, b STRING, g INT, f DOUBLE")
	if err != nil {
		t.Fatal(err)
	}
	spec := schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}, Options: maps.Clone(options)}
	spec.Options["num-sorted-run.compaction-trigger"] = "3"
	if spec.Options["bucket"] == "" {
		spec.Options["bucket"] = "2"
	}
	if partitioned {
		spec.PrimaryKeys, spec.PartitionKeys = []string{"p", "id"}, []string{"p"}
	}
	s, err := schema.New(spec)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := engine.Create(t.Context(), st, s); err != nil {
		t.Fatal(err)
	}
	e := env()
	tab, err := engine.Open(t.Context(), st, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for range 8 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		kinds := make([]schema.RowKind, 1+r.IntN(30))
		for i := range kinds {
			id := r.IntN(40)
			b.Field(0).(*array.StringBuilder).Append([]string{"x", "y"}[id%2])
			b.Field(1).(*array.Int32Builder).Append(int32(id))
			for c := 2; c < 6; c++ {
				if r.IntN(4) == 0 {
					b.Field(c).AppendNull()
					continue
				}
				switch x := b.Field(c).(type) {
				case *array.Int32Builder:
					x.Append(int32(r.IntN(3)))
				case *array.StringBuilder:
					x.Append([]string{"u", "v"}[r.IntN(2)])
				case *array.Float64Builder:
					x.Append([]float64{0.1, 1e17, -1e17, 0.7}[r.IntN(4)])
				}
			}
			if deletes && r.IntN(4) == 0 {
				kinds[i] = schema.Delete
			}
		}
		if err := tab.Write(t.Context(), schema.Batch{Rec: b.NewRecordBatch(), Kinds: kinds}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r.IntN(3) == 0 {
			if err := tab.Compact(t.Context(), r.IntN(2) == 0); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestImagesShaped: a condition, shares and positions on such a stream. What it folds to is known: no delete or update is of a
// row that is not there.
func TestImagesShaped(t *testing.T) {
	r := rand.New(rand.NewPCG(20261130, 4))
	st := storage.NewMem()
	playImages(t, r, "shaped", st, map[string]string{"bucket": "3"}, true, false)
	rd := reader.Open(st, env())
	fold := func(spec reader.TailSpec, held map[int32]int32) {
		t.Helper()
		spec.BeforeImage, spec.Columns = true, []string{"id", "a"}
		for c, err := range rd.Tail(t.Context(), spec) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Rec == nil {
				continue
			}
			ids, as := c.Rec.Column(0).(*array.Int32), c.Rec.Column(1).(*array.Int32)
			for i := range ids.Len() {
				id, a := ids.Value(i), as.Value(i)
				if _, have := held[id]; have == (kindOf(c, i) == schema.Insert) || have && !kindOf(c, i).IsAdd() && held[id] != a {
					t.Fatalf("snapshot %d: %s of %d, %d; held %v", c.Snapshot, kindOf(c, i), id, a, held)
				}
				if kindOf(c, i) == schema.Delete {
					delete(held, id)
				} else {
					held[id] = a
				}
			}
		}
	}
	want := map[int32]int32{}
	for rec, err := range rd.Scan(t.Context(), reader.Query{Where: "a >= 1", Columns: []string{"id", "a"}}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			want[rec.Column(0).(*array.Int32).Value(i)] = rec.Column(1).(*array.Int32).Value(i)
		}
	}
	got := map[int32]int32{}
	fold(reader.TailSpec{Where: "a >= 1"}, got)
	if len(want) == 0 || !maps.Equal(got, want) {
		t.Errorf("with a condition: %v, want %v", got, want)
	}
	got = map[int32]int32{}
	for i := range 2 {
		fold(reader.TailSpec{Where: "a >= 1", Share: reader.Share{Index: i, Of: 2}}, got)
	}
	if !maps.Equal(got, want) {
		t.Errorf("in two shares: %v, want %v", got, want)
	}
	got = map[int32]int32{}
	latest, err := rd.Meta().Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fold(reader.TailSpec{Where: "a >= 1", Until: reader.Until{Snapshot: 5}}, got)
	fold(reader.TailSpec{Where: "a >= 1", From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 6}}, got)
	if latest.ID < 6 || !maps.Equal(got, want) {
		t.Errorf("in two parts: %v, want %v", got, want)
	}
}

// TestImagesConsumer: a stream with a consumer that is broken off anywhere, while everything expires that may, tells the same
// as one that nothing disturbs, because the snapshot before the next one stays too.
func TestImagesConsumer(t *testing.T) {
	seed := uint64(20261130)
	r := rand.New(rand.NewPCG(seed, 5))
	for round, options := range []map[string]string{{"bucket": "2"}, {"bucket": "2", "merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}} {
		st := storage.NewMem()
		what := fmt.Sprintf("seed %d, round %d", seed, round)
		playImages(t, r, what, st, options, round == 0, false)
		rd := reader.Open(st, env())
		first := reader.Start{Mode: reader.FromSnapshot, Snapshot: 1}
		want, got := images(t, rd, first, 0, nil), told{}
		spec := reader.TailSpec{From: first, BeforeImage: true, Consumer: "c"}
		stops, earliest := 0, int64(1)
		for done := false; !done; stops++ {
			left := r.IntN(40) // rows until the reader dies
			var part told = map[int64][]string{}
			done = true
			for c, err := range rd.Tail(t.Context(), spec) {
				if err != nil {
					t.Fatalf("%s, begun %d times: %v", what, stops+1, err)
				}
				for i := 0; c.Rec != nil && i < int(c.Rec.NumRows()); i++ {
					enc := rowjson.NewEncoder(c.Rec.Schema())
					part[c.Snapshot] = append(part[c.Snapshot], string(enc.Append([]byte(kindOf(c, i).String()+" "), c.Rec, i)))
					left--
				}
				if c.Complete {
					got[c.Snapshot] = part[c.Snapshot]
				}
				if done = left > 0 || c.Complete; !done {
					break
				}
			}
			all, err := rd.Meta().AllConsumers(t.Context())
			if err != nil || len(all) != 1 || all[0].Keeps != max(1, all[0].Next-1) {
				t.Fatal(what, all, err)
			}
			e, err := rd.Meta().Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour))
			if err != nil || !done && e.Earliest != all[0].Keeps {
				t.Fatal(what, e, all, err)
			}
			earliest = e.Earliest
		}
		if stops < 4 || earliest < 8 {
			t.Errorf("%s: begun %d times, earliest snapshot %d", what, stops, earliest)
		}
		for id := range got {
			if !slices.Equal(want[id], got[id]) {
				t.Errorf("%s: snapshot %d tells\n%s\nand undisturbed\n%s", what, id, strings.Join(got[id], "\n"), strings.Join(want[id], "\n"))
			}
		}
		if len(got) < len(want) {
			t.Errorf("%s: %d snapshots were told, want %d", what, len(got), len(want))
		}
	}
}

// TestImagesGolden reads the tables that Paimon wrote: with deletion vectors, changes of the schema, overwrites.
func TestImagesGolden(t *testing.T) {
	dirs, err := filepath.Glob("../internal/testdata/golden/golden.db/pk_*")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, dir := range dirs {
		st, err := storage.NewLocal(dir)
		if err != nil {
			t.Fatal(err)
		}
		r := reader.Open(st, env())
		s, err := r.Meta().LatestSchema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Options["changelog-producer"]; p == "lookup" || p == "full-compaction" {
			continue
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Logf("changes by kind: %v", checkImages(t, filepath.Base(dir), r))
		})
		checked++
	}
	if checked < 10 {
		t.Errorf("only %d tables", checked)
	}
	x := newTable(t, false)
	for _, err := range x.reader().Tail(t.Context(), reader.TailSpec{BeforeImage: true}) {
		if !errors.Is(err, reader.ErrQuery) {
			t.Errorf("a table without primary key: %v", err)
		}
	}
}
