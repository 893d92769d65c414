package reader_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// until waits, of real time, for what another goroutine is about to bring.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// TestAckedStreamBehindConsumer: a stream that begins behind the consumer that its reader moves leaves that where it is, and a
// lease that goes along keeps what comes between, while it is told and no longer.
func TestAckedStreamBehindConsumer(t *testing.T) {
	x := newTable(t, true)
	x.write(some(4, "one"), some(4, "two"), some(4, "three"), some(4, "four"), some(4, "five"))
	m := x.reader().Meta()
	s, err := m.Snapshot(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.CreateTag(t.Context(), "two", s, 0); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]reader.Start{
		"a snapshot": {Mode: reader.FromSnapshot, Snapshot: 3}, "a position": {Mode: reader.FromPosition, At: reader.Position{Snapshot: 3}},
		"a tag": {Mode: reader.FromTag, Tag: "two"},
	} {
		t.Run(name, func(t *testing.T) { x.behind(t, from) })
	}
}

// behind reads with consumer web, which is at 5, from snapshot 3 on.
func (x *table) behind(t *testing.T, from reader.Start) {
	if err := x.reader().Meta().PutConsumer(t.Context(), "web", 5); err != nil {
		t.Fatal(err)
	}
	renewed := make(chan struct{})
	st := storage.WithFaults(x, func(op storage.Op) error {
		if op.Kind == storage.OpCommit && strings.HasSuffix(op.Name, "/consumer-web") {
			select {
			case renewed <- struct{}{}:
			default:
			}
		}
		return nil
	})
	e := env()
	e.After = func(d time.Duration) <-chan time.Time { return time.After(min(d, time.Millisecond)) } // leases hurry
	var acks reader.Acks
	spec := reader.TailSpec{From: from, Consumer: "web", IgnoreProgress: true, Acks: &acks}
	kept := func() (low int64) { // by leases; 0: there is none
		for id, next := range x.consumers() {
			if strings.HasPrefix(id, manifest.LeasePrefix) {
				low = next
			}
		}
		return low
	}
	var told []int64
	for c, err := range reader.Open(st, e).Tail(t.Context(), spec) {
		if err != nil {
			t.Fatalf("after snapshots %v: %v", told, err)
		}
		if c.State || !c.Complete {
			continue
		}
		told = append(told, c.Snapshot)
		for range 3 { // the last two are renewals that have begun since
			<-renewed
		}
		until(t, "a lease that goes along", func() bool { return kept() == map[int64]int64{3: 3, 4: 4, 5: 0}[c.Snapshot] })
	}
	if got := x.consumers(); len(told) != 3 || !maps.Equal(got, map[string]int64{"web": 5}) {
		t.Error(told, got)
	}
}

// mute is a store in which the file of one consumer does not answer.
type mute struct {
	storage.Store
	name  string
	asked chan struct{}
}

func (m mute) Open(ctx context.Context, name string) (storage.File, error) {
	if name != m.name {
		return m.Store.Open(ctx, name)
	}
	m.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAcksBesideMuteStorage: while storage does not answer for one consumer, others are acknowledged, and who waits for that one
// waits as long as its context allows, a stream that ends not at all.
func TestAcksBesideMuteStorage(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	x := newTable(t, true)
	x.write(some(4, "one"))
	var acks reader.Acks
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan struct{})
	e := env()
	e.After = func(d time.Duration) <-chan time.Time { return time.After(min(d, time.Millisecond)) }
	slow, stop := context.WithCancel(ctx)
	spec := reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 1}, Consumer: "a", Acks: &acks, Follow: true}
	for c, err := range reader.Open(x, e).Tail(t.Context(), spec) {
		if err != nil {
			t.Fatal(err)
		}
		if !c.Complete {
			continue
		}
		st := mute{Store: x, name: "consumer/consumer-a", asked: make(chan struct{})}
		go func() {
			defer close(ended)
			if _, err := acks.Acknowledge(slow, reader.Open(st, env()), reader.TailSpec{Consumer: "a"}, reader.Position{Snapshot: 1}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		<-st.asked
		time.Sleep(20 * time.Millisecond) // the stream is about to renew its consumer
		break
	}
	if ctx.Err() != nil {
		t.Fatal("the end of a stream waits for storage that another waits for")
	}
	for i := range 200 {
		if err := x.reader().Meta().PutConsumer(ctx, fmt.Sprint("b", i), 1); err != nil {
			t.Fatal(err)
		}
		if next, err := acks.Acknowledge(ctx, x.reader(), reader.TailSpec{Consumer: fmt.Sprint("b", i)}, reader.Position{Snapshot: 1}); err != nil || next != 1 {
			t.Fatal(i, next, err)
		}
	}
	short, end := context.WithTimeout(ctx, time.Millisecond)
	defer end()
	if _, err := acks.Acknowledge(short, x.reader(), reader.TailSpec{Consumer: "a"}, reader.Position{Snapshot: 1}); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Fatal(err)
	}
	stop()
	<-ended
	if next, err := acks.Acknowledge(ctx, x.reader(), reader.TailSpec{Consumer: "a"}, reader.Position{Snapshot: 2}); err != nil || next != 2 {
		t.Fatal(next, err)
	}
}

// TestAcksOfNobody: a name that is not registered and that no stream has had is not registered by an acknowledgement: it would
// hold expiry, and nobody would come for it. Streams that ended are known, the last few thousand of them.
func TestAcksOfNobody(t *testing.T) {
	x := newTable(t, true)
	x.write(some(4, "one"))
	var acks reader.Acks
	ack := func(name string, at reader.Position) (int64, error) {
		return acks.Acknowledge(t.Context(), x.reader(), reader.TailSpec{Consumer: name}, at)
	}
	end := reader.Position{Snapshot: 2}
	for _, at := range []reader.Position{end, {Snapshot: 1, Rows: 1, State: true}} {
		if next, err := ack("job", at); !errors.Is(err, manifest.ErrNoConsumer) {
			t.Error(next, err)
		}
	}
	read := func(name string, from reader.Start, dealt func(reader.Position)) {
		for c, err := range x.reader().Tail(t.Context(), reader.TailSpec{Consumer: name, Acks: &acks, From: from}) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Complete && dealt != nil {
				dealt(c.After(0))
			}
		}
	}
	full := reader.Start{Mode: reader.Full}
	read("at once", full, func(at reader.Position) {
		if next, err := ack("at once", at); err != nil || next != 2 {
			t.Error(next, err)
		}
	})
	read("later", full, nil)
	if next, err := ack("later", end); err != nil || next != 2 {
		t.Error(next, err)
	}
	read("gone", full, nil)
	for i := range reader.MaxEnded {
		acks.Streamed(x.reader(), fmt.Sprint(i))
	}
	if next, err := ack("gone", end); err != nil || next != 2 {
		t.Error(next, err)
	}
	if err := x.reader().Meta().DropConsumer(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for i := range reader.MaxEnded {
		acks.Streamed(x.reader(), fmt.Sprint("more ", i))
	}
	if next, err := ack("gone", end); !errors.Is(err, manifest.ErrNoConsumer) {
		t.Error(next, err)
	}
	if n := acks.Known(); n > 2*reader.MaxEnded {
		t.Error(n, "names are known")
	}
	if got := x.consumers(); !maps.Equal(got, map[string]int64{"at once": 2, "later": 2}) {
		t.Error(got)
	}
}
