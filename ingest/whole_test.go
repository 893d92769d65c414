package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
)

// inTransaction is an event of a transaction; of none if it is 0.
func inTransaction(tx, v int) *kgo.Record {
	block := "null"
	if tx > 0 {
		block = fmt.Sprintf(`{"id":"tx%d","total_order":1,"data_collection_order":1}`, tx)
	}
	return message("t", 0, "", fmt.Sprintf(`{"before":null,"after":{"v":%d},"op":"c","transaction":%s}`, v, block))
}

// wholeRun is a pipeline that keeps transactions whole.
type wholeRun struct {
	*pipeline
	*broker
	table *fakeTable

	mu      sync.Mutex
	commits []int64 // the position of each
	splits  int
}

func (r *wholeRun) start(t *testing.T, wait time.Duration, rows int) {
	cfg := r.config()
	cfg.Decode.Format, cfg.Decode.BatchRows = decode.Debezium, rows
	cfg.Limits.CommitInterval, cfg.Limits.Whole = time.Millisecond, wait
	r.pipeline = start(cfg, r.table, &list{}, Events{
		Committed: func(c Committed) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.commits = append(r.commits, c.Positions[0])
		},
		Split: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.splits++
		},
	})
}

// position is the last one that is committed.
func (r *wholeRun) position() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.commits); n > 0 {
		return r.commits[n-1]
	}
	return 0
}

// await waits until a position, or one behind it, is committed; in vain it does something again and again.
func (r *wholeRun) await(t *testing.T, position int64, vain func()) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); r.position() < position; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("position %d is committed, not %d", r.position(), position)
		}
		vain()
	}
}

// TestWholeTransactions: transactions come in pieces of any size, units are smaller and larger than them, commits are due
// all the time, and the pipeline is stopped in the middle of one: every commit stands between two.
func TestWholeTransactions(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, rows := range []int{3, 1000} {
		r := &wholeRun{broker: newBroker(t, kfake.SeedTopics(1, "t")), table: appendTable(t)}
		r.start(t, time.Hour, rows)
		ends := map[int64]bool{0: true}
		var events []*kgo.Record
		tx := 0
		add := func(n int) {
			tx++
			id := tx
			if rng.IntN(8) == 0 { // rows of a snapshot
				id, n = 0, 1
			}
			for range n {
				events = append(events, inTransaction(id, len(events)))
			}
			ends[int64(len(events))] = true
		}
		one := func() { // a transaction of one event, which the next one ends
			add(1)
			r.sendAll(events[len(events)-1:])
		}
		for range 60 {
			add(1 + rng.IntN(12))
		}
		all := int64(len(events))
		for left := events; len(left) > 0; {
			n := min(len(left), 1+rng.IntN(9))
			r.sendAll(left[:n])
			left = left[n:]
			time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
		}
		r.await(t, all, one)
		open := int64(len(events))
		r.sendAll([]*kgo.Record{inTransaction(tx+1, 0), inTransaction(tx+1, 0)})
		for range 5 { // the pipeline is told to end at some moment
			time.Sleep(time.Millisecond)
		}
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
		for _, at := range r.commits {
			if !ends[at] {
				t.Errorf("units of %d rows: a commit stands at %d, inside a transaction", rows, at)
			}
		}
		if got := int64(len(r.table.committed())); got != r.position() {
			t.Errorf("%d rows are committed, the position is %d", got, r.position())
		}
		if len(r.commits) < 10 || r.splits > 0 || r.position() > open {
			t.Errorf("%d commits to %d and %d splits of %d events", len(r.commits), r.position(), r.splits, len(events))
		}
		// What was given up is read again.
		r.table.crash()
		r.start(t, time.Hour, rows)
		r.await(t, open+3, func() {
			tx += 2
			r.sendAll([]*kgo.Record{inTransaction(tx, 0)})
		})
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
		if got := int64(len(r.table.committed())); got != r.position() {
			t.Errorf("%d rows are committed, the position is %d", got, r.position())
		}
	}
}

// TestWholeIsBounded: a transaction whose end is not told is committed after a while, and what was split is told; a row that
// belongs to none needs no end.
func TestWholeIsBounded(t *testing.T) {
	nothing := func() {}
	r := &wholeRun{broker: newBroker(t, kfake.SeedTopics(1, "t")), table: appendTable(t)}
	r.start(t, 20*time.Millisecond, 1000)
	r.sendAll([]*kgo.Record{inTransaction(1, 0), inTransaction(1, 1)})
	r.await(t, 2, nothing)
	r.sendAll([]*kgo.Record{inTransaction(2, 2)})
	r.await(t, 3, nothing)
	if r.splits != 0 {
		t.Errorf("%d splits of transactions that were whole", r.splits)
	}
	r.sendAll([]*kgo.Record{inTransaction(2, 3), inTransaction(3, 4)})
	r.await(t, 5, nothing)
	if r.splits != 1 {
		t.Errorf("%d splits are told, there was one", r.splits)
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	r.start(t, time.Hour, 1000)
	r.sendAll([]*kgo.Record{inTransaction(0, 5)})
	r.await(t, 6, nothing)
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
}

// TestWholeOfLostSource: what was read of a topic that is gone cannot be read again, and is committed.
func TestWholeOfLostSource(t *testing.T) {
	r := &wholeRun{broker: newBroker(t, kfake.SeedTopics(1, "t")), table: appendTable(t)}
	r.start(t, time.Hour, 1)
	r.sendAll([]*kgo.Record{inTransaction(1, 0), inTransaction(1, 1), inTransaction(2, 2), inTransaction(2, 3)})
	r.table.until(t, "rows", func() bool {
		r.table.mu.Lock()
		defer r.table.mu.Unlock()
		return len(r.table.buffered)+len(r.table.rows) == 4
	})
	if err := errors.Join(r.DeleteTopic("t"), r.CreateTopic("t", 1, nil)); err != nil {
		t.Fatal(err)
	}
	checkError(t, r.pipeline.wait(t), ErrSourceChanged, "deleted and created again")
	if got := len(r.table.committed()); got != 4 || r.position() != 4 || r.splits != 1 {
		t.Errorf("%d rows are committed, the position is %d, %d splits are told", got, r.position(), r.splits)
	}
}

// TestWholeNeedsOnePartition: where the order of events is not known, and what transaction they are of, it is refused.
func TestWholeNeedsOnePartition(t *testing.T) {
	for _, x := range []struct {
		partitions int32
		format     decode.Format
	}{{2, decode.Debezium}, {1, decode.JSON}, {1, decode.DebeziumFlat}} {
		b := newBroker(t, kfake.SeedTopics(x.partitions, "t"))
		cfg := b.config()
		cfg.Decode.Format, cfg.Limits.Whole = x.format, time.Second
		if err := start(cfg, appendTable(t), &list{}, Events{}).wait(t); !errors.Is(err, ErrConfig) {
			t.Errorf("%d partitions, %s: %v", x.partitions, x.format, err)
		}
	}
}

// TestWholeOfCapture: in what a connector of PostgreSQL really sent, events are told to be of one transaction exactly if the
// source says that they are.
func TestWholeOfCapture(t *testing.T) {
	several := 0
	for table, records := range readCapture(t, "pg-schema-precise").records {
		type last struct{ id, tx string }
		was := map[int32]last{}
		for i := range records {
			r := &records[i]
			if r.Value == nil {
				continue
			}
			var event struct {
				Payload struct {
					Source      struct{ TxID json.Number }
					Transaction *struct{ ID string }
				}
			}
			if err := json.Unmarshal([]byte(*r.Value), &event); err != nil {
				t.Fatal(err)
			}
			now := last{id: string(decode.TransactionID(decode.Debezium, []byte(*r.Value)))}
			if event.Payload.Transaction == nil {
				if now.id != "" {
					t.Fatalf("%s: %q is of no transaction", table, now.id)
				}
			} else if now.tx = event.Payload.Source.TxID.String(); now.id == "" {
				t.Fatalf("%s: no transaction in %s", table, *r.Value)
			}
			before := was[r.Partition]
			if now.tx != "" && before.tx != "" && (now.tx == before.tx) != (now.id == before.id) {
				t.Fatalf("%s: transactions %s and %s have ids %s and %s", table, before.tx, now.tx, before.id, now.id)
			}
			if now.tx != "" && now.tx == before.tx {
				several++
			}
			was[r.Partition] = now
		}
	}
	if several < 100 {
		t.Errorf("only %d events follow one of the same transaction", several)
	}
}
