package ingest

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestStall: a stalled table takes no rows, but what it has is committed, and a pipeline that is told to stop does so.
func TestStall(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table := appendTable(t)
	cfg := b.config()
	cfg.Limits.CommitInterval = 100 * time.Millisecond
	p := start(cfg, table, &list{}, Events{})
	b.fill("t", 0, 0, 5)
	await := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	stall := func(on bool) {
		table.mu.Lock()
		defer table.mu.Unlock()
		if on {
			table.room = make(chan struct{})
		} else {
			close(table.room)
			table.room = nil
		}
	}
	await("nothing is written", func() bool { table.mu.Lock(); defer table.mu.Unlock(); return len(table.buffered)+len(table.rows) == 5 })
	stall(true)
	b.fill("t", 0, 5, 5)
	await("what was written is not committed", func() bool { return len(table.committed()) == 5 })
	time.Sleep(3 * cfg.Limits.CommitInterval)
	table.mu.Lock()
	if n := len(table.rows) + len(table.buffered); n != 5 {
		t.Errorf("%d rows in a stalled table", n)
	}
	table.mu.Unlock()
	stall(false)
	await("the rest is not committed", func() bool { return len(table.committed()) == 10 })
	stall(true)
	b.fill("t", 0, 10, 5)
	time.Sleep(20 * time.Millisecond)
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
	if got := len(table.committed()); got != 10 || table.property(PropOffsets) != `{"0":10}` {
		t.Errorf("%d rows, offsets %s", got, table.property(PropOffsets))
	}
	stall(false)
	p = start(cfg, table, &list{}, Events{})
	await("the next run does not go on", func() bool { return len(table.committed()) == 15 })
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
}
