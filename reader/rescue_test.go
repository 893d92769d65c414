package reader_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestConsumerDiesInState: a reader that dies before it has taken all rows that its stream begins with gets them again,
// though it has a consumer.
func TestConsumerDiesInState(t *testing.T) {
	for taken := range 4 {
		x := newTable(t, true)
		x.write(some(8, "one"), []change{{0, "a", 100, "x"}}, []change{{0, "a", 101, "y"}})
		spec := reader.TailSpec{Consumer: "job", From: reader.Start{Mode: reader.Full}}
		x.die(spec, taken)
		folded := map[string]string{}
		if _, err := x.stream(x.reader(), spec, 0, folded); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(folded, x.model) {
			t.Errorf("dead after %d items: %d rows are told then, want %d", taken+1, len(folded), len(x.model))
		}
	}
}

// TestConsumerDiesInRescan: the same after a gap.
func TestConsumerDiesInRescan(t *testing.T) {
	x := newTable(t, true)
	x.write(some(8, "one"))
	spec := reader.TailSpec{Consumer: "job", OnGap: reader.Rescan}
	x.write(some(6, "two"), []change{{0, "a", 50, "x"}}, []change{{0, "a", 51, "y"}})
	x.expire(1)
	if err := x.reader().Meta().PutConsumer(t.Context(), "job", 2); err != nil { // its changes are gone
		t.Fatal(err)
	}
	x.die(spec, 1) // after the event, with the first rows
	folded := map[string]string{}
	if _, err := x.stream(x.reader(), spec, 0, folded); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(folded, x.model) {
		t.Errorf("%d rows are told, want %d", len(folded), len(x.model))
	}
}

// die takes so many items of a stream and does not come back for more after the next one.
func (x *table) die(spec reader.TailSpec, taken int) {
	x.t.Helper()
	for _, err := range x.reader().Tail(x.t.Context(), spec) {
		if err != nil {
			x.t.Fatal(err)
		}
		if taken--; taken < 0 {
			return
		}
	}
}

// TestBeyond: a stream does not wait for snapshots that a table will not have for long.
func TestBeyond(t *testing.T) {
	x := newTable(t, true)
	x.write(some(2, "one"))
	for _, from := range []string{"snapshot:4711", "at:4711.3"} {
		start, err := reader.ParseStart(from)
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.stream(x.reader(), reader.TailSpec{From: start, Follow: true}, 0, map[string]string{})
		if !errors.Is(err, reader.ErrQuery) {
			t.Errorf("%s: %v", from, err)
		}
	}
}

// TestBeyondEnd: a consumer of a table that was made anew is told so, also when nobody waits.
func TestBeyondEnd(t *testing.T) {
	x := newTable(t, true)
	x.write(some(2, "one"))
	if err := x.reader().Meta().PutConsumer(t.Context(), "job", 4711); err != nil {
		t.Fatal(err)
	}
	if _, err := x.stream(x.reader(), reader.TailSpec{Consumer: "job"}, 0, map[string]string{}); !errors.Is(err, reader.ErrQuery) {
		t.Error(err)
	}
}

// TestRollback: a stream that waits notices that the table went back.
func TestRollback(t *testing.T) {
	x := newTable(t, true)
	x.write(some(2, "one"), some(2, "two"), some(2, "three"), some(2, "four"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	beats := 0
	var last error
	for c, err := range x.reader().Tail(ctx, reader.TailSpec{Follow: true, Poll: time.Millisecond, Beat: 5 * time.Millisecond}) {
		if last = err; err != nil {
			break
		}
		if !c.Idle {
			continue
		}
		if beats++; beats == 2 {
			for _, name := range []string{"snapshot/snapshot-4", "snapshot/snapshot-3"} {
				if err := x.Delete(ctx, name); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.Put(ctx, "snapshot/LATEST", []byte("2")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(last, reader.ErrQuery) {
		t.Errorf("after %d beats: %v", beats, last)
	}
}

// TestProducerChanges: snapshots are told as the table was when they were made.
func TestProducerChanges(t *testing.T) {
	for _, p := range []string{"lookup", "full-compaction", "input"} {
		x := newTable(t, true)
		x.write(some(3, "one"), some(3, "two"), nil)
		s, _, err := x.reader().Meta().AlterSchema(t.Context(), []schema.Change{schema.SetOption{Name: "changelog-producer", Value: p}})
		if err != nil {
			t.Fatal(p, err)
		}
		x.schema = s
		x.write([]change{{0, "a", 100, "x"}}, nil)
		folded := map[string]string{}
		from := reader.Start{Mode: reader.FromSnapshot, Snapshot: 1}
		if _, err := x.stream(x.reader(), reader.TailSpec{From: from}, 0, folded); err != nil {
			t.Fatal(p, err)
		}
		if !maps.Equal(folded, x.model) {
			t.Errorf("%s: %d rows, want %d", p, len(folded), len(x.model))
		}
		if p == "input" {
			continue // for which rows before changes are computed
		}
		if _, err := x.stream(x.reader(), reader.TailSpec{From: from, BeforeImage: true}, 0, folded); !errors.Is(err, reader.ErrQuery) {
			t.Errorf("%s: rows before the changes of all snapshots: %v", p, err)
		}
	}
}

// TestSchemaInState: who resumes behind a schema event that comes before the rows of a whole snapshot gets these.
func TestSchemaInState(t *testing.T) {
	x := newTable(t, true)
	x.write(some(8, "one"))
	altered := false
	for c, err := range x.reader().Tail(t.Context(), reader.TailSpec{OnGap: reader.Rescan, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Complete && !altered {
			altered = true
			x.write([]change{{0, "a", 100, "x"}})
			s, _, err := x.reader().Meta().AlterSchema(t.Context(), []schema.Change{schema.SetOption{Name: "snapshot.num-retained.max", Value: "77"}})
			if err != nil {
				t.Fatal(err)
			}
			x.schema = s
			x.write([]change{{0, "a", 101, "y"}}, []change{{0, "a", 102, "y"}})
			x.expire(1)
			continue
		}
		if c.Event == nil || c.Event.Schema == nil {
			continue
		}
		folded := map[string]string{}
		at := c.After(0)
		if _, err := x.stream(x.reader(), reader.TailSpec{From: reader.Start{Mode: reader.FromPosition, At: at}}, 0, folded); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(folded, x.model) {
			t.Errorf("behind %s: %d rows, want %d", at, len(folded), len(x.model))
		}
		return
	}
}

// TestSinceGap: what has expired since a time is a gap.
func TestSinceGap(t *testing.T) {
	x := newTable(t, true)
	before := time.Now().Add(-time.Hour)
	x.write(some(2, "one"), some(2, "two"), some(2, "three"), some(2, "four"))
	from := reader.TailSpec{From: reader.Start{Mode: reader.FromTime, Time: before}}
	if _, err := x.stream(x.reader(), from, 0, map[string]string{}); err != nil {
		t.Fatal(err)
	}
	x.expire(1)
	_, err := x.stream(x.reader(), from, 0, map[string]string{})
	if _, ok := errors.AsType[*reader.GapError](err); !ok {
		t.Error(err)
	}
}

// TestPositionOfAnotherStream: a position among more rows than a stream tells is not one of it.
func TestPositionOfAnotherStream(t *testing.T) {
	x := newTable(t, true)
	x.write(some(8, "one"))
	from := reader.Start{Mode: reader.FromPosition, At: reader.Position{Snapshot: 1, Rows: 9}}
	if _, err := x.stream(x.reader(), reader.TailSpec{From: from}, 0, map[string]string{}); !errors.Is(err, reader.ErrQuery) {
		t.Error(err)
	}
}

// TestCurrent: a stream that is to tell the rows that come of changes is refused where it tells parts of them, or rows that
// may lose.
func TestCurrent(t *testing.T) {
	for _, c := range []struct {
		options map[string]string
		ok      bool
	}{
		{nil, true}, {map[string]string{"merge-engine": "first-row"}, false}, {map[string]string{"sequence.field": "n"}, false},
		{map[string]string{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}, false},
		{map[string]string{"merge-engine": "partial-update", "changelog-producer": "input"}, false},
		{map[string]string{"merge-engine": "partial-update", "changelog-producer": "lookup"}, true},
	} {
		cols, err := schema.ParseColumns("id BIGINT NOT NULL, n BIGINT")
		if err != nil {
			t.Fatal(err)
		}
		s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}, Options: c.options})
		if err != nil {
			t.Fatal(err)
		}
		m := storage.NewMem()
		if err := engine.Create(t.Context(), m, s); err != nil {
			t.Fatal(err)
		}
		for _, images := range []bool{false, true} {
			var got error
			for _, err := range reader.Open(m, env()).Tail(t.Context(), reader.TailSpec{Current: true, BeforeImage: images}) {
				got = err
			}
			if want := c.ok || images; want != (got == nil) || !want && !errors.Is(got, reader.ErrQuery) {
				t.Errorf("%v, images %t: %v", c.options, images, got)
			}
		}
	}
}
