package reader_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/calve-io/calve/reader"
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
