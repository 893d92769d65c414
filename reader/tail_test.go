package reader_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestTailAfterExpiry: a stream from the earliest snapshot tells the state before what is left, and folds to the table.
func TestTailAfterExpiry(t *testing.T) {
	x := newTable(t, true)
	x.write(some(20, "one"), some(8, "two"), []change{{schema.Delete, "a", 0, ""}, {schema.Delete, "b", 3, ""}}, nil, some(4, "three"), []change{{schema.Delete, "b", 1, ""}})
	x.expire(2)
	folded := map[string]string{}
	var told []string
	for c, err := range x.reader().Tail(t.Context(), reader.TailSpec{}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec != nil {
			if !strings.HasPrefix(c.Bucket, "p=") {
				t.Errorf("bucket %q", c.Bucket)
			}
			add(folded, c.Rec, c.RowKinds)
		}
		if c.Complete {
			told = append(told, fmt.Sprint(c.Snapshot, c.State))
		}
	}
	if want := []string{"6 true", "7 false"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if !maps.Equal(folded, x.model) {
		t.Errorf("folded %v, want %v", folded, x.model)
	}
	rep, err := x.reader().Verify(t.Context(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil || !rep.OK() || !rep.Folded || rep.Snapshots != 2 || rep.Rows != int64(len(x.model)) {
		t.Errorf("%+v %v", rep, err)
	}
	for _, err := range x.reader().Tail(t.Context(), reader.TailSpec{From: reader.Start{Mode: reader.FromSnapshot, Snapshot: 2}}) {
		if !errors.Is(err, manifest.ErrSnapshotExpired) {
			t.Errorf("a stream from an expired snapshot: %v", err)
		}
	}
}

// TestFollow: a stream that follows delivers what is committed, woken by the writer or by itself, survives the end of
// the writer, and ends without an error when its context does.
func TestFollow(t *testing.T) {
	for _, how := range []string{"polls", "is woken", "outlives the writer"} {
		t.Run(how, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			x := newTable(t, true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// From the earliest: the latest is found out when the goroutine runs, and may then be the first commit already.
			spec := reader.TailSpec{Follow: true, Poll: time.Millisecond}
			wake := make(chan int64, 1)
			switch how {
			case "is woken":
				spec.Poll, spec.Wake = time.Hour, wake
			case "outlives the writer":
				spec.Wake = wake
				close(wake)
			}
			delivered, done := make(chan int64, 10), make(chan error, 1)
			go func() {
				for c, err := range x.reader().Tail(ctx, spec) {
					if err != nil {
						done <- err
						return
					}
					if c.Complete {
						delivered <- c.Snapshot
					}
				}
				done <- nil
			}()
			for n := int64(1); n <= 3; n++ {
				x.write(some(3, fmt.Sprint(n)))
				if how == "is woken" {
					wake <- n
				}
				if got := <-delivered; got != n {
					t.Fatalf("delivered snapshot %d, want %d", got, n)
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCutShort: a stream that does not follow must not look complete when its context ends or a read fails.
func TestCutShort(t *testing.T) {
	x := newTable(t, true)
	x.write(some(4, "one"), some(4, "two"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	complete := 0
	for c, err := range x.reader().Tail(ctx, reader.TailSpec{}) {
		last = err
		if c.Complete {
			complete++
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || complete != 1 {
		t.Errorf("%d snapshots, then %v", complete, last)
	}
	broken := errors.New("broken")
	var reads atomic.Int64
	st := storage.WithFaults(x, func(op storage.Op) error {
		if op.Kind == storage.OpOpen && strings.HasSuffix(op.Name, ".parquet") && reads.Add(1) == 2 {
			return broken
		}
		return nil
	})
	last = nil
	for _, err := range reader.Open(st, env()).Tail(t.Context(), reader.TailSpec{}) {
		last = err
	}
	if !errors.Is(last, broken) || !strings.Contains(last.Error(), "changes of snapshot 1") {
		t.Errorf("got %v", last)
	}
}

// TestStop: a consumer that has enough is asked no more.
func TestStop(t *testing.T) {
	x := newTable(t, true)
	x.write(some(4, "one"), some(4, "two"), some(2, "three"))
	x.expire(2)
	for stop := range 5 {
		n := 0
		for range x.reader().Tail(t.Context(), reader.TailSpec{Columns: []string{"name"}}) {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Fatalf("%d items before the end, want %d", n, stop+1)
		}
	}
}

func TestParseStart(t *testing.T) {
	for in, want := range map[string]reader.Start{
		"earliest": {Mode: reader.Earliest}, "latest": {Mode: reader.Latest}, "snapshot:7": {Mode: reader.FromSnapshot, Snapshot: 7},
	} {
		if got, err := reader.ParseStart(in); err != nil || got != want {
			t.Errorf("%s: %+v %v", in, got, err)
		}
	}
	for _, in := range []string{"", "Latest", "snapshot:", "snapshot:0", "snapshot:-1", "snapshot:x", "7"} {
		if _, err := reader.ParseStart(in); !errors.Is(err, reader.ErrQuery) {
			t.Errorf("%q: %v", in, err)
		}
	}
}
