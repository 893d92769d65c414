package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// refuse puts lines into a table of which some are refused, by a job; it gives the folders of the table and its letters.
func refuse(t *testing.T, mem *storage.Mem, job string, lines ...string) (store, dead storage.Store) {
	t.Helper()
	store, dead = mem, storage.Sub(mem, "dead")
	table, err := engine.Open(t.Context(), store, engine.Settings{Job: job}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	d := NewDeadLetters(dead, DeadLetterSettings{Engine: engine.Settings{Job: job}}, testEnv())
	_, err = RunLines(t.Context(), strings.NewReader(strings.Join(lines, "\n")), LinesConfig{Run: job}, table, d, testEnv(), Events{})
	if err = errors.Join(err, d.Close(t.Context()), table.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return store, dead
}

// TestReplay: what today's schema takes becomes rows, once, and the rest counts an attempt more.
func TestReplay(t *testing.T) {
	mem := createTable(t, nil, "id BIGINT", "v INT", "off BIGINT")
	store, dead := refuse(t, mem, "j", `{"id":1,"v":1}`, `{"id":2,"v":3000000000}`, `{"id":3,"v":"no"}`, `{"id":4`, `{"id":5,"v":4000000000,"w":"x"}`)
	ctx := t.Context()
	run := func(cfg ReplayConfig, want ReplayResult) {
		t.Helper()
		got, err := Replay(ctx, store, dead, cfg, testEnv())
		if got.Snapshot = 0; err != nil || got != want {
			t.Fatalf("%+v, want %+v; %v", got, want, err)
		}
	}
	run(ReplayConfig{}, ReplayResult{Refused: 4})
	alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}})
	run(ReplayConfig{Where: "code = 'malformed'"}, ReplayResult{Refused: 1})
	run(ReplayConfig{Limit: 1}, ReplayResult{Replayed: 1, Rows: 1})
	run(ReplayConfig{Decode: decode.Config{Evolution: decode.AddOnly}}, ReplayResult{Replayed: 1, Rows: 1, Refused: 2})
	run(ReplayConfig{}, ReplayResult{Refused: 2})
	want := map[string][]any{"1": {int64(1), int64(1), nil, nil}, "2": {int64(2), int64(3000000000), nil, nil}, "5": {int64(5), int64(4000000000), nil, "x"}}
	if got := scan(t, store, 1); !reflect.DeepEqual(got, want) {
		t.Errorf("rows %v", got)
	}
	var left []string
	for _, l := range lettersIn(t, dead) {
		left = append(left, fmt.Sprint(l.Offset, " ", l.Code, " ", l.Attempt))
	}
	if !reflect.DeepEqual(left, []string{"3 value 4", "4 malformed 5"}) {
		t.Errorf("letters %q", left)
	}
	if _, err := Replay(ctx, store, storage.Sub(mem, "nothing"), ReplayConfig{}, testEnv()); err != nil {
		t.Error("without letters:", err)
	}
}

// TestReplayWaits: letters whose records their pipeline may yet read are left alone.
func TestReplayWaits(t *testing.T) {
	mem := createTable(t, nil, "id BIGINT", "v INT", "off BIGINT")
	store, dead := refuse(t, mem, "j", `{"id":1,"v":1}`, `{"id":2,"v":"x"}`)
	d := newDead(t, dead, 0)
	if err := d.Add(t.Context(), Letter{Source: "j", Topic: "stdin", Offset: 3, Raw: []byte(`{"id":3}`), Attempt: 1, Code: decode.BadValue}); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(t.Context(), Progress{}); err != nil { // and here the process ended
		t.Fatal(err)
	}
	res, err := Replay(t.Context(), store, dead, ReplayConfig{}, testEnv())
	if res.Snapshot = 0; err != nil || res != (ReplayResult{Refused: 1, Waiting: 1}) {
		t.Errorf("%+v %v", res, err)
	}
}

// TestReplayOfNewTopic: a pipeline has begun with a topic that was created again, and its process ended before its table had a
// position in it. The letters of the new topic wait, as their records are read again; those of a topic that is no more do not.
func TestReplayOfNewTopic(t *testing.T) {
	mem := createTable(t, nil, "id BIGINT", "v INT", "off BIGINT")
	at := func(topicID string, next int64) Progress {
		p := position{topic: "t", topicID: topicID, next: map[int32]int64{0: next}}
		return Progress{Properties: p.properties()}
	}
	table, err := engine.Open(t.Context(), mem, engine.Settings{Job: "j"}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	d := newDead(t, storage.Sub(mem, "dead"), 0)
	letter := func(source string, offset int64, next Progress) {
		t.Helper()
		err := d.Add(t.Context(), Letter{Source: source, Topic: "t", Offset: offset, Raw: []byte(`{"id":1,"v":"x"}`), Attempt: 1, Code: decode.BadValue})
		if err = errors.Join(err, d.Flush(t.Context(), next)); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(p Progress) {
		t.Helper()
		if _, err := table.Commit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	replay := func(want ReplayResult) {
		t.Helper()
		res, err := Replay(t.Context(), mem, storage.Sub(mem, "dead"), ReplayConfig{}, testEnv())
		if res.Snapshot = 0; err != nil || res != want {
			t.Errorf("%+v %v, want %+v", res, err, want)
		}
	}
	letter("older", 7, at("older", 8))
	commit(at("older", 8))
	letter("old", 4, at("old", 5))
	commit(at("old", 5))
	letter("new", 0, at("new", 1))
	replay(ReplayResult{Refused: 2, Waiting: 1})
	commit(at("new", 1))
	replay(ReplayResult{Refused: 3})
	if err := table.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestReplayAvro: letters of Avro records have the id of their schema, by which they are decoded again.
func TestReplayAvro(t *testing.T) {
	reg := serve(t, registrytest.New(
		registrytest.Schema{Subject: "t-value", Version: 1, ID: 1, Text: `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"v","type":"long"}]}`}))
	mem := createTable(t, []string{"id"}, "id BIGINT", "v INT")
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	for id, v := range []int64{5, 3_000_000_000} {
		b.sendAll([]*kgo.Record{{Topic: "t", Value: binary.AppendVarint(binary.AppendVarint([]byte{0, 0, 0, 0, 1}, int64(id)), v)}})
	}
	cfg := b.config()
	cfg.Registry, cfg.Decode = reg, decode.Config{Format: decode.Avro}
	runUntil(t, mem, cfg, testEnv(), Events{}, `{"0":2}`)
	replay := ReplayConfig{Decode: decode.Config{Format: decode.Avro}}
	dead := storage.Sub(mem, "dead")
	if _, err := Replay(t.Context(), mem, dead, replay, testEnv()); !errors.Is(err, ErrConfig) {
		t.Errorf("without registry: %v", err)
	}
	replay.Registry = reg
	for _, want := range []ReplayResult{{Refused: 1}, {Replayed: 1, Rows: 1}} {
		res, err := Replay(t.Context(), mem, dead, replay, testEnv())
		if res.Snapshot = 0; err != nil || res != want {
			t.Errorf("%+v %v, want %+v", res, err, want)
		}
		alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}})
	}
	if got := scan(t, mem, 1); len(got) != 2 || got["1"][1] != int64(3_000_000_000) {
		t.Errorf("rows %v", got)
	}
}

// TestReplayRace: the letter of a record that its pipeline decodes again is read just before the pipeline removes it.
func TestReplayRace(t *testing.T) {
	mem := createTable(t, nil, "id BIGINT", "v INT", "off BIGINT")
	store, dead := refuse(t, mem, "j", `{"id":1,"v":1}`)
	ctx := t.Context()
	tab, err := engine.Open(ctx, store, engine.Settings{Job: "j"}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	at, _, err := tab.LastProgress(ctx)
	d := NewDeadLetters(dead, DeadLetterSettings{Engine: engine.Settings{Job: "j"}}, testEnv())
	next := Progress{Properties: linePosition{lines: 3, bytes: 23, records: 2, rejected: 1}.properties("stdin", "j")}
	err = errors.Join(err, d.Rewind(ctx, at),
		d.Add(ctx, Letter{Source: "j", Topic: "stdin", Offset: 3, Raw: []byte(`{"id":3}`), Attempt: 1, Code: decode.BadValue}),
		d.Flush(ctx, next), // and here the process ended
		d.Close(ctx), tab.Close(ctx))
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"/snapshot/", ".parquet"} {
		t.Run(when, func(t *testing.T) {
			mem := mem.CrashClone(schematest.Rand(t))
			dead := storage.Sub(mem, "dead")
			var ran atomic.Bool
			hooked := storage.WithFaults(dead, func(op storage.Op) error {
				if !strings.Contains("/"+op.Name, when) || op.Kind == storage.OpCommit || op.Kind == storage.OpPutIfAbsent || !ran.CompareAndSwap(false, true) {
					return nil
				}
				table, err := engine.Open(ctx, mem, engine.Settings{Job: "j"}, testEnv())
				if err != nil {
					return err
				}
				d := NewDeadLetters(dead, DeadLetterSettings{Engine: engine.Settings{Job: "j"}}, testEnv())
				in := strings.NewReader("{\"id\":1,\"v\":1}\n\n{\"id\":3}")
				_, err = RunLines(ctx, in, LinesConfig{Run: "j", Resume: true}, table, d, testEnv(), Events{})
				return errors.Join(err, d.Close(ctx), table.Close(ctx))
			})
			res, err := Replay(ctx, mem, hooked, ReplayConfig{}, testEnv())
			if err != nil || !ran.Load() || res.Rows != 0 {
				t.Errorf("%+v %v; the pipeline ran: %v", res, err, ran.Load())
			}
			if rows := scan(t, mem, 1); len(rows) != 2 { // it fails on doubled rows too
				t.Errorf("rows %v", rows)
			}
		})
	}
}

// interrupted gives what a replay of one letter leaves that is killed behind its intent, before or behind the commit of the rows.
func interrupted(t *testing.T, behind bool) *storage.Mem {
	t.Helper()
	mem := createTable(t, nil, "id BIGINT", "v INT", "off BIGINT")
	store, _ := refuse(t, mem, "j", `{"id":1,"v":1}`, `{"id":2,"v":3000000000}`)
	alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}})
	var down, intent atomic.Bool
	c := storage.WithFaults(store, func(op storage.Op) error {
		switch op.Kind {
		case storage.OpPutIfAbsent, storage.OpCommit, storage.OpPut, storage.OpCreate:
			if intent.Load() && (!behind || strings.HasPrefix(op.Name, "dead/")) {
				down.Store(true)
			}
			if strings.HasPrefix(op.Name, "dead/"+intentDir) {
				intent.Store(true)
			}
		}
		if down.Load() {
			return errCrash
		}
		return nil
	})
	if _, err := Replay(context.Background(), c, storage.Sub(c, "dead"), ReplayConfig{}, hasty()); err == nil || !intent.Load() {
		t.Fatal("it was not interrupted:", err)
	}
	return mem
}

// forgetReplay expires all snapshots of replays, as another engine may.
func forgetReplay(t *testing.T, mem *storage.Mem) {
	t.Helper()
	e := testEnv()
	other, err := engine.Open(t.Context(), mem, engine.Settings{Job: "other"}, e)
	if err == nil {
		err = other.Close(t.Context())
	}
	if err == nil {
		m := manifest.Open(mem, manifest.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
		_, err = m.Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, e.Now().Add(time.Hour))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplayUnknown: what is said about an interrupted batch counts only where the snapshots do not tell.
func TestReplayUnknown(t *testing.T) {
	for _, c := range []struct {
		unknown       Unknown
		behind, known bool
		want          int // rows
	}{
		{UnknownDrop, false, true, 2}, {UnknownWrite, false, true, 2}, {UnknownDrop, true, true, 2}, {UnknownWrite, true, true, 2},
		{UnknownDrop, false, false, 1}, {UnknownDrop, true, false, 2}, {UnknownWrite, false, false, 2},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			mem := interrupted(t, c.behind)
			if !c.known {
				forgetReplay(t, mem)
				if _, err := Replay(t.Context(), mem, storage.Sub(mem, "dead"), ReplayConfig{}, testEnv()); !errors.Is(err, ErrReplayUnknown) {
					t.Fatal("nothing was said:", err)
				}
			}
			res, err := Replay(t.Context(), mem, storage.Sub(mem, "dead"), ReplayConfig{Unknown: c.unknown}, testEnv())
			if rows, letters := scan(t, mem, 1), lettersIn(t, storage.Sub(mem, "dead")); err != nil || len(rows) != c.want || len(letters) != 0 {
				t.Errorf("%+v %v: rows %v, letters %v", res, err, rows, letters)
			}
		})
	}
}

// TestReplayUnknownCrash: a replay that is told to drop what may be written, and is killed anywhere, drops it in the end.
func TestReplayUnknownCrash(t *testing.T) {
	for left := int64(1); ; left++ {
		c := &crashing{mem: interrupted(t, true)}
		forgetReplay(t, c.mem)
		c.left.Store(left)
		store := c.store()
		_, err := Replay(context.Background(), store, storage.Sub(store, "dead"), ReplayConfig{Unknown: UnknownDrop}, hasty())
		if c.left.Load() > 0 {
			if err != nil || left < 5 {
				t.Error(left, err)
			}
			return
		}
		if _, err := Replay(t.Context(), c.mem, storage.Sub(c.mem, "dead"), ReplayConfig{Unknown: UnknownDrop}, testEnv()); err != nil {
			t.Fatal(left, err)
		}
		if rows := scan(t, c.mem, 1); len(rows) != 2 { // it fails on doubled rows too
			t.Fatal(left, rows)
		}
	}
}

// TestReplayCrash cuts the power at random storage calls until a replay comes through: each letter is a row once, or a letter.
func TestReplayCrash(t *testing.T) {
	r := schematest.Rand(t)
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	crashes, recovered := 0, int64(0)
	for range rounds {
		mem := createTable(t, nil, "id BIGINT", "v INT", "off BIGINT")
		var lines []string
		right := map[string][]any{}
		for i := range 40 {
			v := int64(3_000_000_000 + i)
			right[fmt.Sprint(i)] = []any{int64(i), v, nil}
			lines = append(lines, fmt.Sprintf(`{"id":%d,"v":%d}`, i, v))
		}
		lines = append(lines, `{"id":`)
		refuse(t, mem, "j", lines...)
		alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}})
		c := &crashing{mem: mem}
		for tries := 0; ; tries++ {
			c.left.Store(1 + r.Int64N(30))
			if tries > 12 {
				c.left.Store(1 << 40)
			}
			store := c.store()
			ctx, cancel := context.WithCancel(t.Context())
			res, err := Replay(ctx, store, storage.Sub(store, "dead"), ReplayConfig{Limit: 7 + r.Int64N(10)}, hasty())
			cancel()
			recovered += res.Recovered
			if c.left.Load() <= 0 {
				crashes++
				c.mem = c.mem.CrashClone(r)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(lettersIn(t, storage.Sub(c.mem, "dead"))) == 1 {
				break
			}
		}
		if got := scan(t, c.mem, 1); !reflect.DeepEqual(got, right) {
			t.Fatalf("%d rows, want %d", len(got), len(right))
		}
	}
	if crashes < rounds || recovered == 0 && !testing.Short() {
		t.Errorf("%d crashes, %d letters were recovered: too little was shown", crashes, recovered)
	}
}
