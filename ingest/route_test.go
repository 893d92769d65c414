package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema/schematest"
)

// routes is a route into fake tables, by the key of the records.
type routes struct {
	*broker
	cfg    KafkaConfig
	route  *Route
	dead   *list
	stop   func()
	mu     sync.Mutex
	tables map[string]*fakeTable
	runs   map[string]*pipeline
	faults map[string]func() (error, bool)
	want   map[string]map[[2]int64]int64
	next   [2]int64
	mark   *Progress // what the route keeps of its letters
}

// newRoutes makes a route; of a key of which ready is false the pipeline does not come by itself.
func newRoutes(t *testing.T, b *broker, was *routes, fetch int32, ready func(key string) bool) *routes {
	t.Helper()
	x := &routes{broker: b, cfg: b.config(), dead: &list{}, tables: map[string]*fakeTable{}, runs: map[string]*pipeline{}, faults: map[string]func() (error, bool){}, want: map[string]map[[2]int64]int64{}, mark: &Progress{}}
	if was != nil {
		x.mark = was.mark
	}
	env := testEnv()
	env.After = func(d time.Duration) <-chan time.Time { return time.After(min(d, 20*time.Millisecond)) }
	x.cfg.FetchBytes = fetch
	x.cfg.Hub = b.hub(x.cfg)
	x.route = NewRoute(RouteConfig{Hub: x.cfg.Hub, Topic: "t", Dead: x.dead,
		SaveMark: func(_ context.Context, at Progress) error { *x.mark = at; return nil },
		LoadMark: func(context.Context) (Progress, error) { return *x.mark, nil },
		Keys: func(*decode.Schemas) KeyFunc {
			return func(dst []byte, r *decode.Record) ([]byte, bool, error) {
				if len(r.Key) == 0 {
					return dst, false, &decode.RowError{Offset: -1, Code: decode.NoTable, Reason: "no key"}
				}
				return append(dst, r.Key...), string(r.Key) != "nobody", nil
			}
		},
		Admit: func(_ context.Context, key string, at Progress) (string, bool, error) {
			if err := x.route.Know(key, "table "+key, at); err != nil {
				return "", false, err
			}
			table := appendTable(t)
			table.fault = func(string) (error, bool) {
				x.mu.Lock()
				defer x.mu.Unlock()
				if f := x.faults[key]; f != nil {
					return f()
				}
				return nil, false
			}
			x.mu.Lock()
			x.tables[key] = table
			x.mu.Unlock()
			if ready(key) {
				x.begin(key)
			}
			return "table " + key, true, nil
		}}, env, Events{})
	if was != nil {
		x.want, x.next = was.want, was.next
		for key, table := range was.tables {
			x.tables[key] = table
			p, _ := was.route.begins("table " + key)
			if err := x.route.Know(key, "table "+key, Progress{Properties: p.properties()}); err != nil {
				t.Fatal(err)
			}
			x.begin(key)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.route.Run(ctx)
	}()
	x.stop = func() {
		t.Helper()
		cancel()
		<-done
		for _, p := range x.runs {
			if err := p.stop(t); err != nil {
				t.Error(err)
			}
		}
	}
	return x
}

// begin runs the pipeline of a key.
func (x *routes) begin(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	cfg := x.cfg
	cfg.Route, cfg.RouteTable = x.route, "table "+key
	x.runs[key] = start(cfg, x.tables[key], &list{}, Events{})
}

func (x *routes) table(key string) *fakeTable {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tables[key]
}

// sendKeys produces one record for each key, in turn into both partitions.
func (x *routes) sendKeys(keys ...string) {
	x.t.Helper()
	var rs []*kgo.Record
	for i, key := range keys {
		part := int64(i % 2)
		if x.want[key] == nil {
			x.want[key] = map[[2]int64]int64{}
		}
		x.want[key][[2]int64{part, x.next[part]}] = x.next[0] + x.next[1]
		rs = append(rs, message("t", int32(part), key, fmt.Sprintf(`{"v":%d}`, x.next[0]+x.next[1])))
		x.next[part]++
	}
	x.sendAll(rs)
}

// all waits until the tables of the keys have what was sent.
func (x *routes) all(keys ...string) {
	x.t.Helper()
	for _, key := range keys {
		deadline := time.Now().Add(30 * time.Second)
		for x.table(key) == nil || len(x.table(key).committed()) < len(x.want[key]) {
			if time.Now().After(deadline) {
				x.t.Fatalf("%s does not have its %d rows", key, len(x.want[key]))
			}
			time.Sleep(2 * time.Millisecond)
		}
		checkOffsets(x.t, x.table(key).committed(), x.want[key])
	}
}

func (x *routes) streams() int {
	x.route.mu.Lock()
	defer x.route.mu.Unlock()
	return len(x.route.streams)
}

func always(string) bool { return true }

func many(n int, keys ...string) (out []string) {
	for range n {
		out = append(out, keys...)
	}
	return out
}

// TestRouteKeepsIdleTables: a table without records makes no commits while others do. After a restart its records begin
// where it was; what it has is not read into it again.
func TestRouteKeepsIdleTables(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 0, always)
	x.sendKeys("idle", "a", "", "nobody", "idle", "a")
	x.all("idle", "a")
	commits := func() int64 {
		f := x.table("idle")
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.commits
	}
	was := commits()
	for range 20 {
		x.sendKeys(many(50, "a", "b", "a")...)
		x.all("a", "b")
	}
	if n := commits() - was; n != 0 {
		t.Errorf("%d commits of an idle table", n)
	}
	if d := x.dead.all(); len(d) != 1 {
		t.Errorf("letters %v", d)
	}
	x.stop()
	before := x.table("idle").property(PropOffsets)
	x = newRoutes(t, b, x, 0, always)
	x.sendKeys(many(10, "c", "idle", "b")...)
	x.all("idle", "a", "b", "c")
	if now := x.table("idle").property(PropOffsets); now == before {
		t.Errorf("the position is %s still", now)
	}
	if n := x.streams(); n != 1 {
		t.Errorf("the topic is read %d times", n)
	}
	x.stop()
}

// TestRouteSlowTable: a table that takes nothing for a while does not keep the others waiting, and has everything in the
// end, when the topic is read once again.
func TestRouteSlowTable(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 8<<10, func(key string) bool { return key != "slow" })
	x.cfg.Decode.BatchRows = 50
	x.sendKeys("slow", "a")
	x.all("a")
	x.table("slow").wait = make(chan struct{})
	x.begin("slow")
	for range 10 {
		x.sendKeys(many(200, "slow", "a", "b")...)
		x.all("a", "b")
	}
	close(x.table("slow").wait)
	x.all("slow", "a", "b")
	for range 5 {
		x.sendKeys(many(20, "slow", "a", "b")...)
		x.all("slow", "a", "b")
	}
	for deadline := time.Now().Add(20 * time.Second); x.streams() != 1; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the topic is read %d times", x.streams())
		}
	}
	x.stop()
}

// TestRouteLateTable: a table whose pipeline comes long after its first record begins there, also when its records are too
// many to be kept for it.
func TestRouteLateTable(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 8<<10, func(key string) bool { return key == "a" })
	x.sendKeys("a", "a", "small", "large")
	for range 5 {
		x.sendKeys(many(300, "large", "a")...)
		x.all("a")
	}
	for _, key := range []string{"small", "large"} {
		x.begin(key)
		x.all(key)
	}
	x.stop()
}

// TestRoutePendingAlone: the only table known is one whose pipeline does not come, and its records are more than are kept
// for it. The tables of other records are found, and it has its own when it comes.
func TestRoutePendingAlone(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 8<<10, func(key string) bool { return key != "broken" })
	for range 20 {
		x.sendKeys(many(300, "broken")...)
	}
	x.sendKeys("good", "good")
	x.all("good")
	x.begin("broken")
	x.all("broken")
	x.stop()
}

// awaitLetters waits until the route has written so many letters.
func (x *routes) awaitLetters(n int) {
	x.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(x.dead.all()) < n; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatalf("letters %v, want %d", x.dead.all(), n)
		}
	}
}

// TestRouteLettersOnce: a letter that was replayed or dropped is not written again when the topic is looked through again
// for a table that is behind.
func TestRouteLettersOnce(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 0, always)
	x.sendKeys("idle", "idle")
	x.all("idle")
	x.sendKeys("", "a", "a", "a")
	x.all("a")
	x.awaitLetters(1)
	x.stop()
	x = newRoutes(t, b, x, 0, always) // its letters are those that are written from now on
	x.sendKeys("a", "idle", "", "a")
	x.all("a", "idle")
	x.awaitLetters(1)
	x.sendKeys("a", "idle")
	x.all("a", "idle")
	if l := x.dead.all(); len(l) != 1 {
		t.Errorf("letters %v", l)
	}
	x.stop()
}

// fullLetters are dead letters that have no more room after some, until they are given more.
type fullLetters struct {
	list
	room atomic.Int64
}

func (f *fullLetters) Add(ctx context.Context, l Letter) error {
	if f.room.Add(-1) < 0 {
		f.room.Add(1)
		return ErrDeadLettersFull
	}
	return f.list.Add(ctx, l)
}

// TestRouteLettersFull: while the dead letters are full all tables wait, and go on without anybody having to start them.
func TestRouteLettersFull(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 0, always)
	x.sendKeys("a", "b")
	x.all("a", "b")
	full := &fullLetters{}
	full.room.Store(1)
	x.route.asking.Lock()
	x.route.cfg.Dead = full
	x.route.asking.Unlock()
	x.sendKeys("", "a", "", "b", "", "a")
	for deadline := time.Now().Add(20 * time.Second); !errors.Is(x.route.Err(), ErrDeadLettersFull); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing tells that the letters are full")
		}
	}
	full.room.Store(5)
	x.sendKeys("a", "b")
	x.all("a", "b")
	if l := full.all(); len(l) != 3 || x.route.Err() != nil {
		t.Errorf("letters %v, error %v", l, x.route.Err())
	}
	x.stop()
}

// TestRouteFails lets the tables of a route fail at random, with and without effect, while it runs, over several runs.
func TestRouteFails(t *testing.T) {
	r := schematest.Rand(t)
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 0, always)
	keys := []string{"a", "b", "c", "d"}
	crashes := 0
	for round := range 20 {
		var sent []string
		for range 60 {
			sent = append(sent, keys[r.IntN(min(len(keys), 1+round))])
		}
		x.mu.Lock()
		for _, key := range keys {
			left, lost := r.IntN(4), r.IntN(2) == 0
			x.faults[key] = func() (error, bool) {
				if left--; left < 0 {
					return errCrash, lost
				}
				return nil, false
			}
		}
		x.mu.Unlock()
		x.sendKeys(sent...)
		time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
		for _, key := range keys { // those that have failed begin again, each by itself
			x.mu.Lock()
			p := x.runs[key]
			x.mu.Unlock()
			if p != nil && len(p.done) > 0 {
				crashes++
				_ = p.wait(t)
				x.table(key).crash()
				x.begin(key)
			}
		}
	}
	x.mu.Lock()
	clear(x.faults)
	x.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	for key, p := range maps.Clone(x.runs) {
		if len(p.done) > 0 {
			_ = p.wait(t)
			x.table(key).crash()
			x.begin(key)
		}
	}
	x.all(keys...)
	if crashes < 5 || !reflect.DeepEqual(x.dead.all(), []string(nil)) {
		t.Errorf("%d crashes, letters %v", crashes, x.dead.all())
	}
	x.stop()
}

// TestRouteHostileKeys: what is remembered of refused keys is bounded in bytes.
func TestRouteHostileKeys(t *testing.T) {
	r := &Route{cfg: RouteConfig{Admit: func(context.Context, string, Progress) (string, bool, error) {
		return "", false, &decode.RowError{Offset: -1, Code: decode.NoTable, Reason: "not allowed"}
	}}, env: testEnv(), c: &cluster{cfg: KafkaConfig{Topic: "t", Patience: time.Minute}}, tables: map[string]choice{}}
	s := &stream{r: r, chosen: map[string]choice{}, keys: func(dst []byte, r *decode.Record) ([]byte, bool, error) { return append(dst, r.Key...), true, nil }}
	for i := range 300 {
		key := strings.Repeat("x", 64<<10) + string(rune('a'+i%26)) + strings.Repeat("y", i)
		_, _ = s.choose(t.Context(), &decode.Record{Key: []byte(key)})
	}
	n := 0
	for k := range s.chosen {
		n += len(k)
	}
	if n > 300*maxRefusedKey {
		t.Errorf("%d keys of refused records hold %d KiB", len(s.chosen), n>>10)
	}
}

// TestRouteHeaderBytes: headers that are kept for a table count.
func TestRouteHeaderBytes(t *testing.T) {
	var bun bundle
	bun.add(&kgo.Record{Offset: 1, Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "h", Value: make([]byte, 1<<20)}}})
	hub, err := NewHub(HubConfig{Brokers: []string{"127.0.0.1:1"}}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	r := &Route{cfg: RouteConfig{Hub: hub}}
	f := &routeFeed{r: r, next: map[int32]int64{0: 0}, epoch: map[int32]int32{}, told: map[int32]int64{0: 0}, filled: make(chan struct{}, 1)}
	f.give(&dealt{part: 0, last: mark{2, 0}}, &bun)
	if f.bytes < 1<<20 {
		t.Errorf("1 MiB of headers is kept and counts as %d bytes", f.bytes)
	}
}
