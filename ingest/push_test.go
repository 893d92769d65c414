package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// pushing is a pusher that runs on a table of its own.
type pushing struct {
	*Pusher
	t      *testing.T
	mem    *storage.Mem
	cancel context.CancelFunc
	done   chan error
}

func startPush(t *testing.T, mem *storage.Mem, cfg PushConfig) *pushing {
	t.Helper()
	table, err := engine.Open(t.Context(), mem, engine.Settings{Job: "p"}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	dead := NewDeadLetters(storage.Sub(mem, "dead"), DeadLetterSettings{Engine: engine.Settings{Job: "p"}}, testEnv())
	cfg.Snapshot = table.Metrics().Snapshot
	p, err := NewPusher(t.Context(), cfg, table, dead, testEnv(), Events{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &pushing{p, t, mem, cancel, make(chan error, 1)}
	go func() {
		x.done <- errors.Join(p.Run(ctx), dead.Close(context.Background()), table.Close(context.Background()))
	}()
	t.Cleanup(x.stop)
	return x
}

func (x *pushing) stop() {
	x.t.Helper()
	if x.cancel == nil {
		return
	}
	x.cancel()
	x.cancel = nil
	if err := <-x.done; err != nil {
		x.t.Error(err)
	}
}

func (x *pushing) ok(r PushRequest, want PushAnswer) {
	x.t.Helper()
	a, err := x.Push(x.t.Context(), r)
	if want.Snapshot < 0 {
		want.Snapshot = a.Snapshot
	}
	a.Lines = nil
	if err != nil || !reflect.DeepEqual(a, want) {
		x.t.Errorf("push %s: %+v %v, want %+v", r.Body, a, err, want)
	}
}

func push(body string) PushRequest { return PushRequest{Body: []byte(body)} }

// TestPush: answers, keys and sequence numbers, also over a restart.
func TestPush(t *testing.T) {
	mem := createTable(t, nil, "id BIGINT", "v STRING", "off BIGINT")
	cfg := PushConfig{Limits: Limits{CommitInterval: time.Millisecond}, Remember: 3}
	x := startPush(t, mem, cfg)
	x.ok(push(`{"id":1,"v":"a"}`+"\n\n"+`{"id":2}`), PushAnswer{Snapshot: 2, Accepted: 2})
	x.ok(push(""), PushAnswer{})
	key := push(`{"id":3}`)
	key.Key = "k1"
	x.ok(key, PushAnswer{Snapshot: 3, Accepted: 1})
	x.ok(key, PushAnswer{Snapshot: 3, Accepted: 1, Repeated: true})
	other := push(`{"id":4}`)
	other.Key = "k1"
	if _, err := x.Push(t.Context(), other); !errors.Is(err, ErrRepeat) {
		t.Errorf("a key for another body: %v", err)
	}
	seq := func(n int64, body string) PushRequest {
		return PushRequest{Client: "c", Sequence: n, Body: []byte(body)}
	}
	x.ok(seq(7, `{"id":5}`), PushAnswer{Snapshot: 4, Accepted: 1})
	x.stop()
	x = startPush(t, mem, cfg)
	x.ok(seq(7, `{"id":5}`), PushAnswer{Snapshot: 5, Accepted: 1, Repeated: true}) // 5 opened the job again: it has the row
	x.ok(key, PushAnswer{Snapshot: 3, Accepted: 1, Repeated: true})
	if _, err := x.Push(t.Context(), seq(6, `{"id":9}`)); !errors.Is(err, ErrRepeat) || !strings.Contains(err.Error(), "number of the client is 7") {
		t.Errorf("a number that is passed: %v", err)
	}
	x.ok(seq(9, `{"id":6}`), PushAnswer{Snapshot: 6, Accepted: 1})
	for _, k := range []string{"k2", "k3"} {
		r := push("")
		r.Key = k
		x.ok(r, PushAnswer{Snapshot: -1})
	}
	r := push("")
	r.Key = "k4"
	if _, err := x.Push(t.Context(), r); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "push.remember") {
		t.Errorf("one key more than are remembered: %v", err)
	}
	x.ok(key, PushAnswer{Snapshot: 3, Accepted: 1, Repeated: true}) // not driven out
	x.ok(seq(10, `{"id":7}`), PushAnswer{Snapshot: -1, Accepted: 1})
}

// TestPushRefused: bad lines refuse a request or become dead letters; a look for a newer schema comes before.
func TestPushRefused(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "v INT")
	x := startPush(t, mem, PushConfig{Limits: Limits{CommitInterval: time.Millisecond}, MaxRows: 5})
	bad := push(`{"id":1,"v":1}` + "\n" + `{"id":2,"v":3000000000}` + "\n" + `{"id":`)
	_, err := x.Push(t.Context(), bad)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Refused != 2 || refused.Lines[0].Line != 2 || refused.Lines[0].Code != decode.BadValue || refused.Lines[1].Code != decode.Malformed {
		t.Fatalf("%v", err)
	}
	if len(scan(t, mem, 1)) != 0 {
		t.Error("rows of a refused request are there")
	}
	bad.DeadLetter, bad.Key = true, "key"
	x.ok(bad, PushAnswer{Snapshot: 2, Accepted: 1, Refused: 2})
	x.ok(bad, PushAnswer{Snapshot: 2, Accepted: 1, Refused: 2, Repeated: true})
	letters := lettersIn(t, storage.Sub(mem, "dead"))
	if len(letters) != 2 || letters[0].Offset != 0 || letters[1].Offset != 1 || string(letters[1].Raw) != `{"id":` || string(letters[1].Headers[0].Value) != "3" || string(letters[1].Headers[1].Value) != "key" {
		t.Errorf("letters %+v", letters)
	}
	alterTable(t, mem, schema.ChangeType{Path: []string{"v"}, Type: schema.Type{Root: schema.BigInt}})
	x.ok(push(`{"id":2,"v":3000000000}`), PushAnswer{Snapshot: 3, Accepted: 1})
	alterTable(t, mem, addColumn("w"))
	x.ok(push(`{"id":3,"w":"x"}`), PushAnswer{Snapshot: 4, Accepted: 1}) // decoded without w, found by the commit
	want := map[string][]any{"1": {int64(1), int64(1), nil}, "2": {int64(2), int64(3000000000), nil}, "3": {int64(3), nil, "x"}}
	if got := scan(t, mem, 1); !reflect.DeepEqual(got, want) {
		t.Errorf("rows %v", got)
	}
	if _, err := x.Push(t.Context(), push(strings.Repeat("{\"id\":1}\n", 6))); !errors.Is(err, ErrTooMuch) {
		t.Errorf("too many lines: %v", err)
	}
	x.stop()
	if _, err := x.Push(t.Context(), push(`{"id":5}`)); !errors.Is(err, ErrNotWritten) {
		t.Errorf("after the end: %v", err)
	}
}

// TestPushBusy: requests beyond what may wait are refused at once, and those that wait share a commit.
func TestPushBusy(t *testing.T) {
	mem := createTable(t, []string{"id"}, "id BIGINT", "v INT")
	x := startPush(t, mem, PushConfig{Limits: Limits{CommitInterval: time.Hour}, Waiting: 4000})
	answers := make(chan PushAnswer, 10)
	for i := range 3 {
		go func() {
			a, err := x.Push(context.Background(), push(fmt.Sprintf(`{"id":%d}`, i)))
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	for end := time.Now().Add(30 * time.Second); x.waiting.Load() < 3000; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("they do not wait")
		}
	}
	if _, err := x.Push(t.Context(), push(`{"id":9}`)); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	x.stop() // which commits what was taken, or says that it was not
	for range 3 {
		if a := <-answers; a.Accepted == 1 && a.Snapshot != 2 {
			t.Errorf("answer %+v", a)
		}
	}
	if x.waiting.Load() != 0 {
		t.Errorf("%d bytes still wait", x.waiting.Load())
	}
}

func TestPushMemory(t *testing.T) {
	for _, bad := range []string{"a", "k,1,2,3,4", "k,1,zz,3,4,5", "k,-1,2,3,4,5", ",1,2,3,4,5"} {
		if _, err := parsePushMemory(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	var m pushMemory
	now := time.Unix(1e9, 0)
	put := func(key, client string, seq int64) {
		m.put(&pushed{PushRequest: PushRequest{Key: key, Client: client, Sequence: seq}, sum: 0xffffffff}, PushAnswer{Accepted: seq}, now)
	}
	for i := range 5 {
		put("", "c", int64(i))
		put(fmt.Sprint("k", i), "", 0)
	}
	m.trim(now, 3)
	for range 2 {
		back, err := parsePushMemory(m.String())
		if err != nil || back.String() != m.String() {
			t.Errorf("%s %v", m.String(), err)
		}
		if len(m.clients.list) != 1 || m.clients.list[0].sequence != 4 || len(m.keys.list) != 5 || m.keys.young(now) != 5 {
			t.Errorf("remembered %+v", m)
		}
		now = now.Add(pushHorizon)
		m.trim(now, 3) // they are just young enough
	}
	put("k5", "", 0)
	m.trim(now, 3)
	if len(m.clients.list) != 1 || len(m.keys.list) != 3 || m.keys.young(now) != 1 || m.keys.find("k"+m.keys.list[1].id[1:]) == nil {
		t.Errorf("after the horizon: %+v", m)
	}
	now = now.Add(-time.Hour)
	if m.trim(now, 3); m.keys.young(now) != 3 || m.keys.young(now.Add(2*pushHorizon)) != 0 {
		t.Errorf("after the clock was set back: %+v", m)
	}
	old, err := parsePushMemory("kx,0,f,7,1,0")
	if err != nil || old.keys.young(now) != 0 || old.keys.list[0].answer.Snapshot != 7 {
		t.Errorf("of an older version: %+v %v", old, err)
	}
}

// TestPushMemoryMany: a commit of many requests beside many that are remembered takes no time for each pair.
func TestPushMemoryMany(t *testing.T) {
	var m pushMemory
	now, start := time.Unix(1e9, 0), time.Now()
	for i := range 100_000 {
		m.put(&pushed{PushRequest: PushRequest{Key: fmt.Sprint("k", i)}}, PushAnswer{}, now)
		if i == 50_000 {
			m.trim(now, 50_000)
		}
	}
	m.trim(now, 50_000)
	if took := time.Since(start); len(m.keys.list) != 100_000 || took > 10*time.Second {
		t.Errorf("%d keys in %v", len(m.keys.list), took)
	}
}

// pushUntilCrash opens the table as a new process does and has clients send what they have, until the store dies or all
// is answered.
func pushUntilCrash(t *testing.T, c *crashing, clients []*pushClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := c.store()
	table, err := engine.Open(ctx, store, engine.Settings{Job: "p"}, hasty())
	if err != nil {
		return
	}
	dead := NewDeadLetters(storage.Sub(store, "dead"), DeadLetterSettings{Engine: engine.Settings{Job: "p"}}, hasty())
	p, err := NewPusher(ctx, PushConfig{Limits: Limits{CommitInterval: time.Millisecond, StopTimeout: time.Second}, Snapshot: table.Metrics().Snapshot}, table, dead, hasty(), Events{})
	if err == nil {
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		var wg sync.WaitGroup
		for _, x := range clients {
			wg.Go(func() { x.send(p) })
		}
		wg.Wait()
		cancel()
		<-done
	}
	_ = errors.Join(dead.Close(context.Background()), table.Close(context.Background())) // the store may be dead
}

// pushClient sends numbered requests and repeats each until it is answered.
type pushClient struct {
	t        *testing.T
	name     string
	next     int64
	upTo     int64
	repeated int
}

func (x *pushClient) send(p *Pusher) {
	for x.next < x.upTo {
		r := PushRequest{DeadLetter: true, Body: fmt.Appendf(nil, `{"id":%d,"v":%q}`+"\n"+`{"v":`+"\n", x.next, x.name)}
		if x.name == "a" {
			r.Client, r.Sequence = x.name, x.next
		} else {
			r.Key = fmt.Sprint(x.name, x.next)
		}
		a, err := p.Push(context.Background(), r)
		if err != nil {
			if !errors.Is(err, ErrOutcome) && !errors.Is(err, ErrNotWritten) {
				x.t.Errorf("client %s: %v", x.name, err)
			}
			return
		}
		if a.Accepted != 1 || a.Refused != 1 || a.Snapshot == 0 {
			x.t.Errorf("client %s, request %d: %+v", x.name, x.next, a)
		}
		if a.Repeated {
			x.repeated++
		}
		x.next++
	}
}

// TestPushCrash cuts the power at random storage calls while clients send and repeat: every answered request is in the
// table once, none is there twice, and so with the letters.
func TestPushCrash(t *testing.T) {
	r := schematest.Rand(t)
	c := &crashing{mem: createTable(t, nil, "id BIGINT", "v STRING", "off BIGINT")}
	clients := []*pushClient{{t: t, name: "a"}, {t: t, name: "b"}, {t: t, name: "c"}}
	rounds, crashes := 30, 0
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		for _, x := range clients {
			x.upTo += 1 + r.Int64N(4)
		}
		c.only = ""
		if c.left.Store(1 + r.Int64N(60)); round%2 == 1 { // just when a snapshot is put
			c.only = "snapshot/"
			c.left.Store(2 + r.Int64N(4))
		}
		if round == rounds-1 {
			c.left.Store(1 << 40)
		}
		pushUntilCrash(t, c, clients)
		if c.left.Load() <= 0 {
			crashes++
			c.mem = c.mem.CrashClone(rand.New(rand.NewPCG(r.Uint64(), 1)))
		}
	}
	rows, total, repeated := scan(t, c.mem, 2), 0, 0
	for _, x := range clients {
		for i := range x.upTo {
			if rows[fmt.Sprint(i, x.name)] == nil {
				t.Fatalf("row %d of client %s is not there: %v", i, x.name, rows)
			}
		}
		total += int(x.upTo)
		repeated += x.repeated
	}
	letters := lettersIn(t, storage.Sub(c.mem, "dead"))
	if len(rows) != total || len(letters) != total {
		t.Errorf("%d rows and %d letters of %d requests", len(rows), len(letters), total)
	}
	if crashes < rounds/2 || repeated == 0 && !testing.Short() {
		t.Errorf("%d crashes and %d requests that were repeated: too little was shown", crashes, repeated)
	}
}

// TestPushArrow: Arrow streams are written once, refused or become dead letters as lines do, within the same limits.
func TestPushArrow(t *testing.T) {
	mem := createTable(t, nil, "id BIGINT NOT NULL", "v INT", "off BIGINT")
	x := startPush(t, mem, PushConfig{Limits: Limits{CommitInterval: time.Millisecond}, MaxRows: 10})
	stream := func(json string) []byte {
		b, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "id", Type: arrow.PrimitiveTypes.Int32, Nullable: true}}, nil), strings.NewReader(json))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := ipc.NewWriter(&out, ipc.WithSchema(b.Schema()))
		if err := errors.Join(w.Write(b), w.Write(b.NewSlice(0, 0)), w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	good := PushRequest{Arrow: true, Key: "k", Body: stream(`[{"id":1,"v":5},{"id":2}]`)}
	x.ok(good, PushAnswer{Snapshot: -1, Accepted: 2})
	x.ok(good, PushAnswer{Snapshot: -1, Accepted: 2, Repeated: true})
	bad := PushRequest{Arrow: true, Body: stream(`[{"id":3,"v":7},{"id":null,"v":1},{"id":4,"v":5000000000}]`)}
	var refused *RefusedError
	if _, err := x.Push(t.Context(), bad); !errors.As(err, &refused) || refused.Refused != 2 || refused.Lines[0].Line != 2 || refused.Lines[1].Code != decode.BadValue {
		t.Errorf("%v", err)
	}
	bad.DeadLetter = true
	x.ok(bad, PushAnswer{Snapshot: -1, Accepted: 1, Refused: 2})
	for _, body := range [][]byte{nil, []byte(`{"id":1}`), good.Body[:len(good.Body)/2]} {
		if _, err := x.Push(t.Context(), PushRequest{Arrow: true, Body: body}); !errors.Is(err, ErrStream) {
			t.Errorf("%.10q: %v", body, err)
		}
	}
	many := PushRequest{Arrow: true, Body: stream("[" + strings.Repeat(`{"id":9},`, 10) + `{"id":9}]`)}
	if _, err := x.Push(t.Context(), many); !errors.Is(err, ErrTooMuch) {
		t.Errorf("11 rows: %v", err)
	}
	x.stop()
	if got := jsonRows(t, mem); !slices.Equal(got, []string{`{"id":1,"v":5,"off":null}`, `{"id":2,"v":null,"off":null}`, `{"id":3,"v":7,"off":null}`}) {
		t.Errorf("rows %v", got)
	}
	letters := lettersIn(t, storage.Sub(mem, "dead"))
	if len(letters) != 2 || string(letters[1].Raw) != `{"v":5000000000,"id":4}` {
		t.Errorf("letters %v", letters)
	}
}
