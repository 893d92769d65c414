package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/calve-io/calve/storage"
)

func wantOnce(t *testing.T, s storage.Store, name, data string, want bool) {
	t.Helper()
	won, err := storage.PutOnce(t.Context(), s, name, []byte(data))
	if err != nil || won != want {
		t.Fatalf("put once %s: won %v, error %v; want %v", name, won, err, want)
	}
}

func testPutOnce(t *testing.T, s storage.Store) {
	wantOnce(t, s, "n", "mine", true)
	wantOnce(t, s, "n", "mine", true) // as after a retry: the bytes are the caller's
	for _, other := range []string{"", "min", "mine!", "MINE", "something much longer"} {
		wantOnce(t, s, "n", other, false)
	}
	wantObject(t, s, "n", []byte("mine"))
	wantOnce(t, s, "empty", "", true)
	wantOnce(t, s, "empty", "x", false)
}

// script makes faults that come one after the other at one kind of operation, then none.
func script(kind storage.OpKind, faults ...error) func(storage.Op) error {
	var next atomic.Int64
	return func(op storage.Op) error {
		if op.Kind != kind {
			return nil
		}
		if i := int(next.Add(1)) - 1; i < len(faults) {
			return faults[i]
		}
		return nil
	}
}

// testPutOnceLostReplies checks every way in which a conditional put can fail to answer.
func testPutOnceLostReplies(t *testing.T, s storage.Store) {
	down := errors.New("connection reset")
	unknown := fmt.Errorf("%w: %w", storage.ErrUnknown, down)
	lost := storage.LoseReply(down)
	cases := []struct {
		name   string
		faults []error
		taken  bool // the name holds another's bytes before
		won    bool
		err    error // what the error must be, nil for none
		stored bool  // our bytes are there afterwards
	}{
		{name: "done, reply lost", faults: []error{lost}, won: true, stored: true},
		{name: "done, reply lost twice", faults: []error{lost, lost}, won: true, stored: true},
		{name: "never arrived", faults: []error{unknown}, won: true, stored: true},
		{name: "never arrived, then done and reply lost", faults: []error{unknown, lost}, won: true, stored: true},
		{name: "never arrived, again and again", faults: []error{unknown, unknown, unknown, unknown, unknown}, err: storage.ErrUnknown},
		{name: "refused", faults: []error{down}, err: down},
		{name: "taken, reply lost", faults: []error{lost}, taken: true},
		{name: "taken, never arrived", faults: []error{unknown, unknown}, taken: true},
	}
	for i, c := range cases {
		name := fmt.Sprintf("snapshot/snapshot-%d", i)
		if c.taken {
			wantOnce(t, s, name, "theirs", true)
		}
		won, err := storage.PutOnce(t.Context(), storage.WithFaults(s, script(storage.OpPutIfAbsent, c.faults...)), name, []byte("ours"))
		if won != c.won || (c.err == nil) != (err == nil) || !errors.Is(err, c.err) {
			t.Errorf("%s: won %v, error %v; want %v, %v", c.name, won, err, c.won, c.err)
		}
		if c.err == down && errors.Is(err, storage.ErrUnknown) {
			t.Errorf("%s: a put that was certainly not made is reported as %v", c.name, err)
		}
		switch {
		case c.stored:
			wantObject(t, s, name, []byte("ours"))
		case c.taken:
			wantObject(t, s, name, []byte("theirs"))
		default:
			wantMissing(t, s, name)
		}
	}

	// When the object cannot be read back nothing is certain.
	broken := storage.WithFaults(s, func(op storage.Op) error {
		switch op.Kind {
		case storage.OpPutIfAbsent:
			return lost
		case storage.OpOpen, storage.OpReadAll:
			return down
		}
		return nil
	})
	_, err := storage.PutOnce(t.Context(), broken, "unreadable", []byte("ours"))
	wantErr(t, "put once, unreadable", err, storage.ErrUnknown)
	wantErr(t, "put once, unreadable", err, down)

	// A context that ends while the put hangs: the caller must not believe that it failed.
	ctx, cancel := context.WithCancel(t.Context())
	hang := storage.WithFaults(s, func(op storage.Op) error {
		cancel()
		return storage.LoseReply(storage.ErrHang)
	})
	_, err = storage.PutOnce(ctx, hang, "hung", []byte("ours"))
	wantErr(t, "put once, hung", err, storage.ErrUnknown)
	wantErr(t, "put once, hung", err, context.Canceled)
}

// testPutOnceRace checks that of racing writers exactly one wins every round, two of three losing replies, once or twice.
func testPutOnceRace(t *testing.T, s storage.Store) {
	lost := storage.LoseReply(errors.New("connection reset"))
	for round := range 10 {
		name := fmt.Sprintf("snapshot/snapshot-%d", round)
		won := make([]bool, writers)
		errs := make([]error, writers)
		race(func(w int) {
			flaky := storage.WithFaults(s, script(storage.OpPutIfAbsent, []error{lost, lost}[:w%3]...))
			won[w], errs[w] = storage.PutOnce(t.Context(), flaky, name, randomBytes(uint64(w), 700))
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		winner := slices.Index(won, true)
		if winner < 0 || slices.Contains(won[winner+1:], true) {
			t.Fatalf("round %d: winners %v, want exactly one", round, won)
		}
		got, err := storage.ReadAll(t.Context(), s, name, 1000)
		if err != nil || !bytes.Equal(got, randomBytes(uint64(winner), 700)) {
			t.Fatalf("round %d: the object is not the winner's: %v", round, err)
		}
	}
}
