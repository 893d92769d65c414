package reader_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// sound verifies a stream that is right.
func sound(t *testing.T, what string, r *reader.Reader, spec reader.StreamSpec) *reader.StreamReport {
	t.Helper()
	rep, err := r.VerifyStream(t.Context(), spec)
	if err != nil || !rep.OK() {
		text, _ := json.Marshal(rep)
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
	return rep
}

// TestVerifyStream plays random histories over merge engines and changelog producers: their streams fold to the table at each
// snapshot, in one pass or in many, from wherever.
func TestVerifyStream(t *testing.T) {
	seed := uint64(20261201)
	r := rand.New(rand.NewPCG(seed, 4))
	opt := func(text string) map[string]string {
		m := map[string]string{}
		for _, o := range strings.Fields(text) {
			k, v, _ := strings.Cut(o, "=")
			m[k] = v
		}
		return m
	}
	changes := int64(0)
	for i, c := range []struct {
		options        string
		deletes, image bool
	}{
		{"", true, false},
		{"changelog-producer=input", true, false},
		{"bucket=-1 dynamic-bucket.target-row-num=10", true, false},
		{"deletion-vectors.enabled=true", true, false},
		{"changelog-producer=lookup", true, false},
		{"changelog-producer=lookup changelog-producer.row-deduplicate=true changelog-producer.row-deduplicate-ignore-fields=a", true, false},
		{"changelog-producer=lookup deletion-vectors.enabled=true", true, false},
		{"changelog-producer=lookup merge-engine=first-row", false, false},
		{"changelog-producer=lookup merge-engine=partial-update", false, false},
		{"changelog-producer=full-compaction", true, false},
		{"changelog-producer=full-compaction merge-engine=aggregation fields.a.aggregate-function=sum", true, false},
		{"", true, true},
		{"deletion-vectors.enabled=true", true, true},
		{"merge-engine=aggregation fields.f.aggregate-function=sum fields.b.aggregate-function=listagg", false, true},
		{"sequence.field=g", true, true},
		{"merge-engine=first-row", false, true},
	} {
		what := fmt.Sprintf("seed %d: %s, before images %v", seed, c.options, c.image)
		st := storage.NewMem()
		playImages(t, r, what, st, opt(c.options), c.deletes, i%2 == 1)
		rd := reader.Open(st, env())
		progress := int64(0)
		one := sound(t, what, rd, reader.StreamSpec{BeforeImage: c.image, Progress: func(reader.StreamReport) { progress++ }})
		if one.Compared != one.Snapshots || progress != one.Compared || one.Passes != 1 || one.Snapshot != one.Snapshots {
			t.Fatalf("%s: %+v after %d calls", what, one, progress)
		}
		changes += one.Changes
		many := sound(t, what, rd, reader.StreamSpec{BeforeImage: c.image, Memory: 17 << 10})
		if many.Passes < 2 && one.Rows > 25 || many.Rows != one.Rows || many.Changes != one.Changes || many.Compared != one.Compared {
			t.Fatalf("%s: %+v, in one pass %+v", what, many, one)
		}
		mid := one.Snapshot / 2
		part := sound(t, what, rd, reader.StreamSpec{BeforeImage: c.image, From: reader.Start{Mode: reader.FromSnapshot, Snapshot: mid}, Every: 3})
		if part.From != mid || part.Snapshot != one.Snapshot || part.Rows != one.Rows || part.Compared >= part.Snapshots && part.Snapshots > 1 {
			t.Fatalf("%s: from %d: %+v, from the beginning %+v", what, mid, part, one)
		}
		if opt(c.options)["bucket"] == "" {
			shared := int64(0)
			for i := range 2 {
				shared += sound(t, what, rd, reader.StreamSpec{BeforeImage: c.image, Share: reader.Share{Index: i, Of: 2}}).Rows
			}
			if shared != one.Rows {
				t.Fatalf("%s: shares have %d rows, the table %d", what, shared, one.Rows)
			}
		}
	}
	if changes < 1000 {
		t.Errorf("only %d changes", changes)
	}
}

// drop publishes a compaction that loses the first data file of the table.
func drop(t *testing.T, st storage.Store) {
	t.Helper()
	meta := reader.Open(st, env()).Meta()
	snap, err := meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries, err := meta.Live(t.Context(), snap, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries[0].Kind = manifest.Remove
	if _, err := meta.Commit(t.Context(), manifest.Commit{Kind: manifest.Compact, User: "thief", Identifier: 1, Entries: entries[:1]}); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyStreamFinds: rows that a compaction loses are told, with what stream and table have of them.
func TestVerifyStreamFinds(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		for _, memory := range []int64{0, 20 << 10} {
			x := newTable(t, keyed)
			x.write(some(60, "one"), some(6, "two"), some(2, "two"))
			drop(t, x) // of partition a: the first 30 rows
			x.write(some(4, "three"))
			rep, err := x.reader().VerifyStream(t.Context(), reader.StreamSpec{Memory: memory})
			if err != nil || rep.OK() || rep.Snapshot != 4 || len(rep.Differences) == 0 {
				t.Fatalf("keyed %v: %+v %v", keyed, rep, err)
			}
			first := rep.Differences[0]
			if keyed {
				if memory == 0 && (rep.Differ != 27 || len(rep.Differences) != 10 || string(first.Key) != `{"p":"a","id":3}`) {
					t.Errorf("%d differ, the first of %d is %s", rep.Differ, len(rep.Differences), first.Key)
				}
				if first.Snapshot != 4 || first.StreamAt != 1 || first.Table != nil || !strings.Contains(string(first.Stream), `"name":"one"`) || first.What != "the table has no row that the stream has" {
					t.Errorf("%+v", first)
				}
			} else if memory == 0 && rep.Differ != 60 || rep.Differ == 0 || first.What != "the stream has told the row 1 times, the table has it 0 times" || !strings.Contains(string(first.Key), `"name":"one"}`) {
				t.Errorf("%d differ: %s: %+v", rep.Differ, first.Key, first)
			}
		}
	}
}

// TestVerifyStreamOfOldRows: a table that has an older row of some keys than the stream has told.
func TestVerifyStreamOfOldRows(t *testing.T) {
	x := newTable(t, true)
	x.write(some(8, "one"), nil, some(4, "two"))
	meta := x.reader().Meta()
	snap, err := meta.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newer, err := meta.Live(t.Context(), snap, func(e *manifest.Entry) bool { return e.File.Level == 0 })
	if err != nil || len(newer) == 0 {
		t.Fatal(len(newer), err)
	}
	for i := range newer {
		newer[i].Kind = manifest.Remove
	}
	if _, err := meta.Commit(t.Context(), manifest.Commit{Kind: manifest.Compact, User: "thief", Identifier: 1, Entries: newer}); err != nil {
		t.Fatal(err)
	}
	rep, err := x.reader().VerifyStream(t.Context(), reader.StreamSpec{})
	if err != nil || rep.Differ != 4 || len(rep.Differences) != 4 {
		t.Fatalf("%+v %v", rep, err)
	}
	if d := rep.Differences[0]; d.What != "another row" || string(d.Key) != `{"p":"a","id":0}` || !strings.Contains(string(d.Stream), "two") || !strings.Contains(string(d.Table), "one") || d.StreamAt != snap.ID {
		t.Errorf("%+v", d)
	}
}

// TestVerifyStreamMisfits: a changelog that tells the same changes twice tells rows before changes that were not there.
func TestVerifyStreamMisfits(t *testing.T) {
	st := storage.NewMem()
	playImages(t, rand.New(rand.NewPCG(5, 5)), "misfits", st, map[string]string{"changelog-producer": "lookup"}, true, false)
	meta := reader.Open(st, env()).Meta()
	var again []manifest.Entry
	id := int64(0)
	for s, err := range meta.EachSnapshot(t.Context(), 1, 100) {
		if errors.Is(err, storage.ErrNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if again, err = meta.Changelog(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if id = s.ID; len(again) > 0 {
			break
		}
	}
	last, err := meta.Commit(t.Context(), manifest.Commit{Kind: manifest.Compact, User: "liar", Identifier: 1, Changelog: again})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := reader.Open(st, env()).VerifyStream(t.Context(), reader.StreamSpec{})
	if err != nil || rep.OK() || rep.Snapshot != last.ID || len(rep.Differences) == 0 {
		t.Fatalf("changelog of %d again: %+v %v", id, rep, err)
	}
	d := rep.Differences[0]
	if d.Snapshot != last.ID || !strings.HasPrefix(d.Change, "+I {") || d.What != "a +I of a key that has a row" && !strings.Contains(d.What, "no row") || len(d.Key) == 0 {
		t.Errorf("%+v", d)
	}
	if d.What == "a +I of a key that has a row" && (d.Stream == nil || d.StreamAt == 0 || d.StreamAt >= last.ID) {
		t.Errorf("%+v", d)
	}
}

// TestVerifyStreamGoesOn: where streams pass over a snapshot the fold goes on with its rows, as after an expiry.
func TestVerifyStreamGoesOn(t *testing.T) {
	st, err := storage.NewLocal(filepath.Join("../internal/testdata/golden", "golden.db", "pk_overwrite"))
	if err != nil {
		t.Fatal(err)
	}
	if rep := sound(t, "pk_overwrite", reader.Open(st, env()), reader.StreamSpec{}); rep.Rebased == 0 || rep.Compared != rep.Snapshots {
		t.Errorf("%+v", rep)
	}
	for _, keyed := range []bool{true, false} {
		x := newTable(t, keyed)
		x.write(some(8, "one"), some(6, "two"), nil, some(2, "three"))
		x.expire(2)
		first, err := x.reader().Meta().Earliest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if rep := sound(t, "expired", x.reader(), reader.StreamSpec{}); rep.From != first.ID || rep.Rebased != 0 || rep.Rows == 0 {
			t.Errorf("%+v", rep)
		}
	}
}

// TestVerifyStreamOfAnotherProducer: where the table gets another changelog producer, the stream tells other rows from then on.
func TestVerifyStreamOfAnotherProducer(t *testing.T) {
	x := newTable(t, true)
	x.write(some(8, "one"), some(4, "two"))
	for _, producer := range []string{"lookup", "none"} {
		if _, _, err := x.reader().Meta().AlterSchema(t.Context(), []schema.Change{schema.SetOption{Name: "changelog-producer", Value: producer}}); err != nil {
			t.Fatal(err)
		}
		x.write(some(6, producer), nil, some(2, producer+" again"))
	}
	if rep := sound(t, "another producer", x.reader(), reader.StreamSpec{}); rep.Rebased != 2 || rep.Compared != rep.Snapshots {
		t.Errorf("%+v", rep)
	}
}

// TestVerifyStreamRefuses: streams that do not fold by key, and starts without rows.
func TestVerifyStreamRefuses(t *testing.T) {
	for _, options := range []map[string]string{{"merge-engine": "partial-update"}, {"sequence.field": "g"}, {"merge-engine": "first-row"}} {
		st := storage.NewMem()
		playImages(t, rand.New(rand.NewPCG(1, 1)), "refused", st, options, false, false)
		if _, err := reader.Open(st, env()).VerifyStream(t.Context(), reader.StreamSpec{}); !errors.Is(err, reader.ErrQuery) || !strings.Contains(err.Error(), "--before-image") {
			t.Errorf("%v: %v", options, err)
		}
	}
	x := newTable(t, true)
	if rep := sound(t, "empty", x.reader(), reader.StreamSpec{}); rep.Snapshots != 0 {
		t.Errorf("%+v", rep)
	}
	x.write(some(4, "one"))
	for _, from := range []reader.Start{{Mode: reader.Latest}, {Mode: reader.FromSnapshot, Snapshot: 9}, {Mode: reader.FromTag, Tag: "none"}} {
		if _, err := x.reader().VerifyStream(t.Context(), reader.StreamSpec{From: from}); err == nil {
			t.Errorf("%+v is taken", from)
		}
	}
	if _, _, err := x.reader().Meta().AlterSchema(t.Context(), []schema.Change{schema.SetOption{Name: "record-level.expire-time", Value: "1 h"}}); err == nil {
		if _, err := x.reader().VerifyStream(t.Context(), reader.StreamSpec{}); !errors.Is(err, reader.ErrQuery) {
			t.Errorf("rows that expire: %v", err)
		}
	}
}
