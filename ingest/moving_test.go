package ingest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema/schematest"
)

// TestMovingIsBounded: rows are deleted under their old keys, a thousand a second, and the inserts are elsewhere. Units are
// handed over when they are full, and ones that are not no later than the patience says; records of other formats wait
// for nothing.
func TestMovingIsBounded(t *testing.T) {
	for _, x := range []struct {
		pairs       bool
		batch, most int
	}{{true, 100, 100}, {true, 1 << 20, int(movingPatience/time.Millisecond) + 2}, {false, 1 << 20, 1}} {
		table := newFakeTable(schematest.Table(t, "id", "id BIGINT"))
		cfg := decode.Config{Schema: table.schema, BatchRows: x.batch}
		dec, err := decode.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		env, now := testEnv(), time.Unix(1e9, 0)
		env.Now = func() time.Time { return now }
		out := make(chan unit, 5000)
		b := &batcher{dec: dec, schema: table.schema, follower: newFollower(table, cfg, env, Events{}, Limits{}), out: out, pairs: x.pairs}
		most := 0
		for i := range 5000 {
			now = now.Add(time.Millisecond)
			if err := b.add(t.Context(), &decode.Record{Topic: "t", Value: fmt.Appendf(nil, `{"id":%d,"op":"d"}`, i), Headers: []decode.Header{{Name: headerNewKey}}}); err != nil {
				t.Fatal(err)
			}
			most = max(most, b.dec.Rows())
			b.emit(t.Context(), true, 0, noAdvance)
		}
		if most > x.most {
			t.Errorf("%+v: %d rows were gathered", x, most)
		}
	}
}

// TestMovingIsNoLoop: while a row is between two keys and nothing comes, the source waits, and then commits.
func TestMovingIsNoLoop(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	table := newFakeTable(schematest.Table(t, "id", "id BIGINT"))
	cfg := b.config()
	cfg.Decode = decode.Config{Format: decode.Debezium}
	env := testEnv()
	var looks atomic.Int64 // at the clock
	env.Now = func() time.Time { looks.Add(1); return time.Now() }
	p := startIn(env, cfg, table, &list{}, Events{})
	first := message("t", 0, "", `{"after":{"id":1},"op":"c"}`)
	moved := message("t", 0, "", `{"before":{"id":1},"op":"d"}`)
	moved.Headers = []kgo.RecordHeader{{Key: headerNewKey, Value: []byte(`{"id":2}`)}}
	b.sendAll([]*kgo.Record{first})
	table.until(t, "first row", func() bool { return len(table.committed()) == 1 })
	before := looks.Load()
	b.sendAll([]*kgo.Record{moved})
	table.until(t, "delete", func() bool { return len(table.committed()) == 2 })
	if n := looks.Load() - before; n > 300 {
		t.Errorf("the clock was looked at %d times", n)
	}
	if err := p.stop(t); err != nil {
		t.Fatal(err)
	}
}

// TestReplayOfMovedRow: a letter of a row that was deleted under its old key is replayed as any other.
func TestReplayOfMovedRow(t *testing.T) {
	mem := createTable(t, nil, "id BIGINT", "v INT", "off BIGINT")
	store, dead := refuse(t, mem, "j", `{"id":1,"v":1}`)
	d := NewDeadLetters(dead, DeadLetterSettings{}, testEnv())
	for i, headers := range [][]decode.Header{{{Name: headerNewKey, Value: []byte("{}")}}, nil} {
		l := Letter{Source: "x", Topic: "t", Offset: int64(i), Raw: fmt.Appendf(nil, `{"id":%d,"v":7}`, 7+i), Attempt: 1, Code: decode.BadValue, Headers: headers}
		if err := d.Add(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(t.Context(), Progress{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := Replay(t.Context(), store, dead, ReplayConfig{Decode: decode.Config{Format: decode.JSON}}, testEnv())
	if err != nil || res.Replayed != 2 {
		t.Errorf("%+v, %v", res, err)
	}
}
