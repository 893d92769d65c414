package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
)

// TestClaim: a table that other processes compact too does nothing in a bucket it has no claim on, goes on asking, and
// under its claim sees what they have done in the meantime. It does so although the table is write-only. A claim that is
// lost ends the compaction, whose files are removed, and the next one does it.
func TestClaim(t *testing.T) {
	p := newPair(t, map[string]string{"num-sorted-run.compaction-trigger": "3", "write-only": "true", "snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"})
	writer := mustOpen(t, p.st, engine.Settings{})
	for range 6 {
		p.write(t, writer, "b")
	}
	var asked atomic.Int64
	compacted := make(chan engine.CompactInfo, 10)
	lost := errors.New("lost")
	claim := func(ctx context.Context, name string, work func(context.Context) error) (bool, error) {
		if !strings.Contains(name, "p=b") {
			if name != "expire" {
				t.Errorf("a claim on %q", name)
			}
			return true, work(ctx)
		}
		switch asked.Add(1) {
		case 1, 2:
			return false, nil
		case 3: // the other worker was faster
			if err := writer.Compact(ctx, true); err != nil {
				t.Error(err)
			}
		case 4:
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(lost)
			err := work(ctx)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("work without claim ends with %v", err)
			}
			return true, errors.Join(lost, err)
		case 5:
			return false, errors.New("no answer")
		}
		return true, work(ctx)
	}
	tab, err := engine.Open(t.Context(), p.st, engine.Settings{Compaction: 1, Dedicated: true, Claim: claim, FollowEvery: time.Second, ExpireEvery: time.Second,
		Events: engine.Events{Compacted: func(c engine.CompactInfo) { compacted <- c }}}, hasty())
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for done := false; !done; {
		for range 4 {
			p.write(t, writer, "b")
		}
		select {
		case c := <-compacted:
			done = c.RowsIn > 0 && asked.Load() >= 6 // rows written while the other compacted may be done by the third already
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("nothing was compacted; asked %d times", asked.Load())
		}
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n < 6 {
		t.Errorf("compacted without a claim: asked %d times", n)
	}
	if m := tab.Metrics(); m.Conflicts != 0 || m.CompactFailed != 2 {
		t.Errorf("%d conflicts, %d failures; want none, and the lost claim and the one without answer", m.Conflicts, m.CompactFailed)
	}
	if _, err := tab.Meta().Snapshot(t.Context(), 1); !errors.Is(err, manifest.ErrSnapshotExpired) {
		t.Errorf("the first snapshot of a write-only table: %v", err)
	}
	p.check(t)
	mustVerify(t, p.st)
}
