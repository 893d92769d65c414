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

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// folded is what a stream folds to: rows by key, or how often each row is there in a table without key.
type folded struct {
	s    *schema.Schema
	only *predicate.Filter // nil: all rows
	rows map[string]string
	bag  map[string]int
}

func newFolded(t *testing.T, s *schema.Schema, where string) *folded {
	t.Helper()
	f := &folded{s: s, rows: map[string]string{}, bag: map[string]int{}}
	if where == "" {
		return f
	}
	p, err := predicate.Parse(where, s)
	if err != nil {
		t.Fatal(err)
	}
	cols := make([]int, len(s.Fields))
	for i := range cols {
		cols[i] = i
	}
	if f.only, err = p.Filter(cols); err != nil {
		t.Fatal(err)
	}
	return f
}

// add folds changes; with a condition, what it is not true for is not there.
func (f *folded) add(t *testing.T, c *reader.Changes) {
	t.Helper()
	fits := map[int32]bool{}
	if f.only != nil {
		sel, err := f.only.Select(c.Rec.Columns(), int(c.Rec.NumRows()))
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range sel.Rows(nil) {
			fits[i] = true
		}
	}
	enc := rowjson.NewEncoder(c.Rec.Schema())
	for i := range int(c.Rec.NumRows()) {
		row := string(enc.Append(nil, c.Rec, i))
		there := (c.RowKinds == nil || c.RowKinds[i].IsAdd())
		switch fit := f.only == nil || fits[int32(i)]; {
		case !f.s.Keyed() && fit && there:
			f.bag[row]++
		case !f.s.Keyed():
		case fit && there:
			f.rows[keyOf(f.s, c.Rec, i)] = row
		default:
			delete(f.rows, keyOf(f.s, c.Rec, i))
		}
	}
}

func keyOf(s *schema.Schema, rec arrow.RecordBatch, i int) string {
	var key []byte
	for _, c := range s.KeyColumns() {
		key = append(rowjson.AppendValue(key, rec.Column(c), i), ' ')
	}
	return string(key)
}

func (f *folded) equal(o *folded) bool { return maps.Equal(f.rows, o.rows) && maps.Equal(f.bag, o.bag) }

// checkTailWhere folds a stream with a condition and one without, and compares after each snapshot.
func checkTailWhere(t *testing.T, store storage.Store, s *schema.Schema, where string) (told, all int) {
	t.Helper()
	want, got := newFolded(t, s, where), newFolded(t, s, "")
	wants := map[int64]*folded{}
	for c, err := range reader.Open(store, env()).Tail(t.Context(), reader.TailSpec{}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec != nil {
			want.add(t, &c)
			all += int(c.Rec.NumRows())
		}
		if c.Complete {
			wants[c.Snapshot] = &folded{rows: maps.Clone(want.rows), bag: maps.Clone(want.bag)}
		}
	}
	ends := 0
	for c, err := range reader.Open(store, env()).Tail(t.Context(), reader.TailSpec{Where: where}) {
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if c.Rec != nil {
			if c.Rec.NumRows() == 0 || c.RowKinds != nil && len(c.RowKinds) != int(c.Rec.NumRows()) || int(c.Rec.NumCols()) != len(s.Fields) {
				t.Fatalf("%s: %d rows with %d kinds and %d columns", where, c.Rec.NumRows(), len(c.RowKinds), c.Rec.NumCols())
			}
			got.add(t, &c)
			told += int(c.Rec.NumRows())
		}
		if c.Complete {
			if ends++; !got.equal(wants[c.Snapshot]) {
				t.Fatalf("%s: at snapshot %d the stream folds to\n%v %v, want\n%v %v", where, c.Snapshot, got.rows, got.bag, wants[c.Snapshot].rows, wants[c.Snapshot].bag)
			}
		}
	}
	if ends != len(wants) {
		t.Fatalf("%s: %d snapshots, want %d", where, ends, len(wants))
	}
	return told, all
}

// TestTailWhere: a stream with a condition folds to the rows for which it is true, after every snapshot, whatever the
// table tells of its changes.
func TestTailWhere(t *testing.T) {
	told, all, refused := 0, 0, 0
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5))
		x := makeRandom(t, r)
		for range 4 {
			where := randomWhere(r, x.schema, r.IntN(3))
			if m := x.schema.Options["merge-engine"]; m != "" && m != "deduplicate" {
				// Parts of rows: the stream cannot say which rows fulfil a condition on other columns than the key.
				for _, err := range reader.Open(x.store, env()).Tail(t.Context(), reader.TailSpec{Where: "n = 1 OR id = 5"}) {
					if !errors.Is(err, reader.ErrQuery) || !strings.Contains(err.Error(), m) {
						t.Fatal(err)
					}
					refused++
				}
				where = fmt.Sprintf("id > %d", r.IntN(300))
			}
			n, of := checkTailWhere(t, x.store, x.schema, where)
			told, all = told+n, all+of
		}
	}
	if told*10 > all*9 || refused == 0 {
		t.Errorf("%d of %d changes were told, %d conditions refused", told, all, refused)
	}
}

// TestGoldenTailWhere: the same with the changelogs of Paimon.
func TestGoldenTailWhere(t *testing.T) {
	wheres := []string{"k < 5", "n % 2", "n >= 2", "v LIKE 'a%'", "v LIKE 'b%' OR n IN (1, 3, 5)", "n IS NULL", "k > 3 AND v <> 'a1'", "n < 100"}
	for _, name := range []string{"pk_changelog_lookup", "pk_changelog_full_compaction", "pk_changelog_input"} {
		st, err := storage.NewLocal(filepath.Join("../internal/testdata/golden/golden.db", name))
		if err != nil {
			t.Fatal(err)
		}
		s, err := reader.Open(st, env()).Meta().LatestSchema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told, all := 0, 0
		for _, where := range wheres {
			if where == "n % 2" {
				continue // not in the language
			}
			n, of := checkTailWhere(t, st, s, where)
			told, all = told+n, all+of
		}
		if told == 0 || told == all {
			t.Errorf("%s: %d of %d changes", name, told, all)
		}
	}
}

// TestTailShares: the shares of a stream are the stream, and no key is in two of them.
func TestTailShares(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 9))
		x := makeRandom(t, r)
		whole := newFolded(t, x.schema, "")
		n := 0
		fold := func(share reader.Share, into *folded) (keys map[string]bool) {
			keys = map[string]bool{}
			for c, err := range x.open().Tail(t.Context(), reader.TailSpec{Share: share}) {
				if err != nil {
					t.Fatal(err)
				}
				if c.Rec == nil {
					continue
				}
				into.add(t, &c)
				n += int(c.Rec.NumRows())
				for i := range int(c.Rec.NumRows()) {
					keys[keyOf(x.schema, c.Rec, i)] = true
				}
			}
			return keys
		}
		fold(reader.Share{}, whole)
		all, parts := n, newFolded(t, x.schema, "")
		n = 0
		seen := map[string]bool{}
		for i := range 3 {
			for k := range fold(reader.Share{Index: i, Of: 3}, parts) {
				if x.keyed && seen[k] {
					t.Fatalf("seed %d: key %s is in two shares", seed, k)
				}
				seen[k] = true
			}
		}
		if n != all || !parts.equal(whole) {
			t.Fatalf("seed %d: shares have %d changes, the stream %d", seed, n, all)
		}
	}
}

func (x *randomTable) open() *reader.Reader { return reader.Open(x.store, env()) }

// TestResumeAnywhere: a stream resumed at any position tells exactly the rest, also with a condition and in the middle of
// the rows of a snapshot.
func TestResumeAnywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	x := newTable(t, true)
	for range 4 {
		var rows []change
		for range 1 + r.IntN(12) {
			rows = append(rows, change{[]schema.RowKind{schema.Insert, schema.Insert, schema.Delete}[r.IntN(3)], []string{"a", "b"}[r.IntN(2)], r.Int64N(9), fmt.Sprint("n", r.IntN(5))})
		}
		x.write(rows)
	}
	for _, base := range []reader.TailSpec{{}, {From: reader.Start{Mode: reader.Full}}, {Where: "name > 'n1'"}} {
		type line struct{ at, text string }
		read := func(spec reader.TailSpec) (out []line) {
			for c, err := range x.reader().Tail(t.Context(), spec) {
				if err != nil {
					t.Fatal(err)
				}
				if c.Complete {
					out = append(out, line{c.After(0).String(), fmt.Sprint("end ", c.Snapshot)})
				}
				if c.Rec == nil {
					continue
				}
				enc := rowjson.NewEncoder(c.Rec.Schema())
				for i := range int(c.Rec.NumRows()) {
					kind := schema.Insert
					if c.RowKinds != nil {
						kind = c.RowKinds[i]
					}
					out = append(out, line{c.After(int64(i) + 1).String(), fmt.Sprint(c.Snapshot, kind, string(enc.Append(nil, c.Rec, i)))})
				}
			}
			return out
		}
		all := read(base)
		if len(all) < 10 {
			t.Fatal(all)
		}
		for i, l := range all {
			start, err := reader.ParseStart("at:" + l.at)
			if err != nil {
				t.Fatal(err)
			}
			spec := base
			spec.From = start
			if rest := read(spec); !slices.Equal(rest, all[i+1:]) {
				t.Fatalf("%+v: resumed at %s:\n%v, want\n%v", base, l.at, rest, all[i+1:])
			}
		}
	}
	for _, bad := range []string{"", "3", "3.", ".3", "0.1", "3.-1", "3.1.st", "x.1"} {
		if _, err := reader.ParsePosition(bad); !errors.Is(err, reader.ErrQuery) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestStartsAndEnds: where streams begin and end.
func TestStartsAndEnds(t *testing.T) {
	x := newTable(t, true)
	x.write(some(4, "one"), some(4, "two"), some(4, "three"), some(4, "four"))
	meta := x.reader().Meta()
	second, err := meta.Snapshot(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := meta.CreateTag(t.Context(), "second", second, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, until, want string }{
		{"earliest", "", "1,2,3,4"}, {"full", "", "4 state"}, {"tag:second", "", "2 state,3,4"}, {"latest", "", ""},
		{"earliest", "snapshot:2", "1,2"}, {"tag:second", "snapshot:2", "2 state"}, {"snapshot:3", "snapshot:2", ""},
		{"snapshot:3", "latest", "3,4"}, {"full", "snapshot:9", "4 state"}, {"full", "snapshot:3", "3 state"},
		{"full", "latest", "4 state"}, {"full", "time:2999-01-01", "4 state"}, {"earliest", "time:1970-01-01", ""}, {"snapshot:4", "time:2999-01-01", "4"},
	} {
		from, err1 := reader.ParseStart(c.from)
		until, err2 := reader.ParseUntil(c.until)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		told, err := x.stream(x.reader(), reader.TailSpec{From: from, Until: until}, 0, map[string]string{})
		if err != nil || strings.Join(told, ",") != c.want {
			t.Errorf("from %s until %s: %v %v, want %s", c.from, c.until, told, err, c.want)
		}
	}
	for _, end := range []reader.Until{{Snapshot: 1}, {Time: time.UnixMilli(1)}} {
		for _, start := range []reader.Start{{Mode: reader.FromTag, Tag: "second"}, {Mode: reader.Full}} {
			told, err := x.stream(x.reader(), reader.TailSpec{From: start, Until: end}, 0, map[string]string{})
			if full := start.Mode == reader.Full && end.Snapshot == 1; full != (err == nil) || full != (strings.Join(told, ",") == "1 state") {
				t.Errorf("%+v until %+v: %v %v", start, end, told, err)
			}
		}
	}
	x.expire(2)
	for _, start := range []reader.Start{{}, {Mode: reader.Full}} {
		if told, err := x.stream(x.reader(), reader.TailSpec{From: start, Until: reader.Until{Snapshot: 1}}, 0, map[string]string{}); err == nil || len(told) > 0 {
			t.Errorf("%+v until a snapshot that has expired: %v %v", start, told, err)
		}
	}
	for _, bad := range []string{"snapshot:0", "time:", "now", "tag:x"} {
		if _, err := reader.ParseUntil(bad); !errors.Is(err, reader.ErrQuery) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for in, want := range map[string]reader.Share{"": {}, "0/1": {Of: 1}, "2/3": {Index: 2, Of: 3}} {
		if got, err := reader.ParseShare(in); err != nil || got != want {
			t.Error(in, got, err)
		}
	}
	for _, bad := range []string{"3/3", "-1/2", "1", "a/b", "0/0", "0/99999999"} {
		if _, err := reader.ParseShare(bad); !errors.Is(err, reader.ErrQuery) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestTailFollowsSchema: changes of the schema are events, the stream goes on: columns and conditions follow their fields,
// and a column that was dropped is left out.
func TestTailFollowsSchema(t *testing.T) {
	cols, err := schema.ParseColumns("id INT NOT NULL, name STRING, n INT")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	x := &randomTable{store: storage.NewMem(), schema: s}
	if err := engine.Create(t.Context(), x.store, s); err != nil {
		t.Fatal(err)
	}
	alter := func(changes ...schema.Change) {
		t.Helper()
		if x.schema, _, err = x.open().Meta().AlterSchema(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	x.commit(t, `{"id":1,"name":"a","n":1}`, `{"id":2,"name":"b","n":2}`)
	var got []string
	step := 0
	for c, err := range x.open().Tail(t.Context(), reader.TailSpec{Where: "name = 'b' OR name = 'c'", Columns: []string{"n", "id", "name"}}) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case c.Event != nil:
			got = append(got, fmt.Sprintf("schema %d→%d", c.Event.Schema.ID, c.Schema.ID))
		case c.Rec != nil:
			enc := rowjson.NewEncoder(c.Rec.Schema())
			for i := range int(c.Rec.NumRows()) {
				kind := schema.Insert
				if c.RowKinds != nil {
					kind = c.RowKinds[i]
				}
				got = append(got, kind.String()+string(enc.Append(nil, c.Rec, i)))
			}
		case c.Complete && step == 0:
			step++
			alter(schema.RenameColumn{Path: []string{"name"}, To: "title"}, schema.AddColumn{Path: []string{"name"}, Type: schema.Type{Root: schema.Int}})
			x.commit(t, `{"id":2,"title":"x","n":3,"name":7}`, `{"id":3,"title":"c","n":3,"name":7}`)
		case c.Complete && step == 1:
			step++
			alter(schema.DropColumn{Path: []string{"n"}})
			x.commit(t, `{"id":4,"title":"b","name":7}`)
		case c.Complete && step == 2:
			step++
			alter(schema.DropColumn{Path: []string{"title"}})
			x.commit(t, `{"id":5,"name":8}`)
			// The condition has lost its column.
			for c, err := range x.open().Tail(t.Context(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: c.Snapshot}, Where: "title = 'b'"}) {
				if !errors.Is(err, reader.ErrQuery) {
					t.Fatal(c, err)
				}
			}
		}
		if step == 3 {
			break
		}
	}
	want := []string{`-D{"n":1,"id":1,"name":"a"}`, `+I{"n":2,"id":2,"name":"b"}`, "schema 0→1", `-D{"n":3,"id":2,"title":"x"}`, `+I{"n":3,"id":3,"title":"c"}`,
		"schema 1→2", `+I{"id":4,"title":"b"}`}
	if !slices.Equal(got, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
