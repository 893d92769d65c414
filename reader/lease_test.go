package reader_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// consumers gives the positions of all consumers.
func (x *table) consumers() map[string]int64 {
	x.t.Helper()
	all, err := x.reader().Meta().Consumers(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	return all
}

// stream reads a tail to its end, or until it has told so many snapshots, and folds it.
func (x *table) stream(r *reader.Reader, spec reader.TailSpec, most int, into map[string]string) (told []string, err error) {
	x.t.Helper()
	n := 0
	for c, err := range r.Tail(x.t.Context(), spec) {
		if err != nil {
			return told, err
		}
		switch {
		case c.Event != nil && c.Event.Gap != nil:
			told = append(told, fmt.Sprintf("gap %d-%d", c.Event.Gap.From, c.Event.Gap.To))
			clear(into)
		case c.Rec != nil:
			add(into, c.Rec, c.RowKinds)
		case c.Complete:
			told = append(told, fmt.Sprint(c.Snapshot, map[bool]string{true: " state"}[c.State]))
			if n++; n == most {
				return told, nil
			}
		}
	}
	return told, nil
}

// TestConsumerResumes: a tail with a consumer goes on where it was, which is where its reader had asked for more, and
// expiry leaves what it has yet to read.
func TestConsumerResumes(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	x := newTable(t, true)
	x.write(some(8, "one"), some(6, "two"), some(4, "three"), []change{{schema.Delete, "a", 0, ""}}, nil)
	spec := reader.TailSpec{Consumer: "job"}
	folded := map[string]string{}
	told, err := x.stream(x.reader(), spec, 2, folded)
	if err != nil || !slices.Equal(told, []string{"1", "2"}) {
		t.Fatal(told, err)
	}
	// The reader left at the closing item of snapshot 2, so nobody knows whether it has dealt with it.
	if got := x.consumers(); !maps.Equal(got, map[string]int64{"job": 2}) {
		t.Fatal(got)
	}
	x.expire(1)
	if told, err = x.stream(x.reader(), spec, 0, folded); err != nil || !slices.Equal(told, []string{"2", "3", "4", "5", "6"}) {
		t.Fatal(told, err)
	}
	if !maps.Equal(folded, x.model) {
		t.Errorf("folded %v, want %v", folded, x.model)
	}
	if got := x.consumers(); !maps.Equal(got, map[string]int64{"job": 7}) {
		t.Fatal(got)
	}
	if told, err = x.stream(x.reader(), spec, 0, folded); err != nil || len(told) != 0 {
		t.Fatal(told, err)
	}
	spec.IgnoreProgress = true
	clear(folded)
	if told, err = x.stream(x.reader(), spec, 0, folded); err != nil || len(told) < 3 || !strings.HasSuffix(told[0], "state") || !maps.Equal(folded, x.model) {
		t.Fatal(told, err)
	}
	// Two readers that share the buckets have a position each.
	for i := range 2 {
		if _, err := x.stream(x.reader(), reader.TailSpec{Consumer: "pair", Share: reader.Share{Index: i, Of: 2}}, 0, folded); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.consumers(); got["pair.0-of-2"] != 7 || got["pair.1-of-2"] != 7 {
		t.Error(got)
	}
}

// TestLate: snapshots expire under a reader without a lease. It is told what is gone and where it can go on, or, when it
// wants that, the stream does so by itself and says so; a reader with a lease loses nothing.
func TestLate(t *testing.T) {
	x := newTable(t, true)
	key := func(kind schema.RowKind, name string) []change { return []change{{kind, "a", 9, name}} }
	x.write(key(schema.Insert, "A"), nil)
	leased, plain := map[string]string{}, map[string]string{}
	for _, r := range []struct {
		spec reader.TailSpec
		into map[string]string
	}{{reader.TailSpec{Consumer: "leased"}, leased}, {reader.TailSpec{}, plain}} {
		if told, err := x.stream(x.reader(), r.spec, 0, r.into); err != nil || !slices.Equal(told, []string{"1", "2"}) {
			t.Fatal(told, err)
		}
	}
	x.write(key(schema.Delete, "A"), nil, key(schema.Insert, "A"), nil)
	x.expire(2)
	told, err := x.stream(x.reader(), reader.TailSpec{Consumer: "leased"}, 0, leased)
	if err != nil || !slices.Equal(told, []string{"3", "4", "5", "6"}) || !maps.Equal(leased, x.model) {
		t.Fatal(told, err, leased)
	}
	x.expire(2)
	late := reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 3}}
	_, err = x.stream(x.reader(), late, 0, plain)
	gap, ok := errors.AsType[*reader.GapError](err)
	if !ok || !errors.Is(err, manifest.ErrSnapshotExpired) || gap.From != 3 || gap.To != 4 || gap.Earliest != 5 || gap.Latest != 6 || gap.Until.IsZero() {
		t.Fatalf("%#v %v", gap, err)
	}
	for _, part := range []string{"snapshots 3 to 4 of mem:///", "snapshots 5 to 6", "rescan"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	late.OnGap = reader.Rescan
	if told, err = x.stream(x.reader(), late, 0, plain); err != nil || !slices.Equal(told, []string{"gap 3-4", "6 state"}) || !maps.Equal(plain, x.model) {
		t.Fatal(told, err, plain)
	}
}

// TestExpiredWhileRead: files that go while their snapshot is read are a gap too, told in the middle of a snapshot.
func TestExpiredWhileRead(t *testing.T) {
	x := newTable(t, true)
	x.write(some(2, "one"), some(8, "two"), some(4, "three"), some(2, "four"), nil)
	expired := false
	st := storage.WithFaults(x, func(op storage.Op) error {
		if op.Kind == storage.OpOpen && strings.HasSuffix(op.Name, ".parquet") && !expired {
			expired = true
			x.expire(1)
		}
		return nil
	})
	folded := map[string]string{}
	told, err := x.stream(reader.Open(st, env()), reader.TailSpec{OnGap: reader.Rescan}, 0, folded)
	if err != nil || !slices.Equal(told, []string{"gap 1-5", "6 state"}) || !maps.Equal(folded, x.model) {
		t.Fatal(told, err, folded)
	}
}

// TestLeaseRenews: a lease that does not move is written again, so that it does not look dead, also while whoever takes the
// rows is slow; and the expiries of the process's own handle wait for what is being read.
func TestLeaseRenews(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	x := newTable(t, true)
	x.write(some(4, "one"), some(4, "two"), some(4, "three"))
	e := env()
	e.After = func(time.Duration) <-chan time.Time { return time.After(time.Millisecond) }
	writes := make(chan string, 1000)
	st := storage.WithFaults(x, func(op storage.Op) error {
		if op.Kind == storage.OpCreate && strings.HasPrefix(op.Name, "consumer/") {
			writes <- op.Name
		}
		return nil
	})
	meta := manifest.Open(st, manifest.Env{Now: e.Now, NewID: e.NewID, Rand: e.Rand})
	for c, err := range reader.Over(meta, e).Tail(t.Context(), reader.TailSpec{Consumer: "slow"}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Snapshot != 2 || c.Rec == nil {
			continue
		}
		for range 5 {
			if name := <-writes; name != "consumer/consumer-slow" {
				t.Fatal(name)
			}
		}
		if err := meta.DropConsumer(t.Context(), "slow"); err != nil {
			t.Fatal(err)
		}
		done, err := meta.Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour))
		if err != nil || done.Earliest != 2 {
			t.Fatal(done, err)
		}
	}
	release, err := x.reader().Lease(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if c := x.consumers(); len(c) != 2 || c["slow"] != 4 {
		t.Error(c)
	}
	if err := release(t.Context()); err != nil || len(x.consumers()) != 1 {
		t.Error(x.consumers(), err)
	}
	if _, err := x.reader().Lease(t.Context(), 1); !errors.Is(err, manifest.ErrSnapshotExpired) || len(x.consumers()) != 1 {
		t.Error(x.consumers(), err)
	}
}

// TestLeaseIsNotWritten: a consumer that cannot be registered ends the stream before it begins, and one whose last
// position cannot be kept says so at its end.
func TestLeaseIsNotWritten(t *testing.T) {
	x := newTable(t, true)
	x.write(some(4, "one"), some(4, "two"))
	for _, allowed := range []int{0, 1} {
		n := 0
		st := storage.WithFaults(x, func(op storage.Op) error {
			if op.Kind == storage.OpCreate {
				if n++; n > allowed {
					return errors.New("no right to write")
				}
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		told, err := 0, error(nil)
		for c, e := range reader.Open(st, env()).Tail(ctx, reader.TailSpec{Consumer: "c"}) {
			if err = e; c.Complete {
				told++
			}
		}
		cancel()
		if err == nil || !strings.Contains(err.Error(), "no right to write") || told != 2*allowed {
			t.Errorf("%d writes allowed: %d snapshots, then %v", allowed, told, err)
		}
	}
}
