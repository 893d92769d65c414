package ingest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRouteErrorOfPartition: a table that is behind has lost records of partition 1 to retention; one of the same stream
// that is further on has lost nothing, and reads on without anybody having to start it.
func TestRouteErrorOfPartition(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 0, always)
	x.sendKeys(many(3, "a", "a")...)
	x.all("a")
	r := x.route
	r.mu.Lock()
	live := r.streams[0]
	// One that nobody runs takes over, and has been taken back for a table that is behind.
	s := &stream{r: r, source: live.source, next: map[int32]int64{0: 3, 1: 1}, epoch: map[int32]int32{}, logs: map[int32]extent{}, subs: map[*routeFeed]bool{}, turn: 1}
	behind := r.newFeedLocked("behind", position{topic: "t", topicID: s.source.topicID, next: map[int32]int64{0: 3, 1: 1}})
	for _, f := range []*routeFeed{behind, r.feeds["table a"]} {
		if f.stream != nil {
			f.stream.sync(f)
		}
		s.subs[f], f.stream = true, s
	}
	clear(live.subs)
	r.endLocked(live)
	r.streams = append(r.streams, s)
	r.mu.Unlock()
	refused := []piece{{FetchPartition: kgo.FetchPartition{Partition: 1, Err: kerr.OffsetOutOfRange}}}
	if err := s.deal(t.Context(), refused, 0); err != nil {
		t.Errorf("an error of a place that was left: %v", err)
	}
	s.fail(s.deal(t.Context(), refused, 1)) // as run does
	if q := behind.take(10); len(q) != 1 || q[0].Err != kerr.OffsetOutOfRange || q[0].Partition != 1 {
		t.Errorf("the table that is behind is told %v", q)
	}
	x.sendKeys(many(3, "a", "a")...)
	x.all("a")
	x.mu.Lock()
	p := x.runs["a"]
	x.mu.Unlock()
	if len(p.done) > 0 {
		t.Errorf("the pipeline of a table that has lost nothing ended: %v", p.wait(t))
	}
	x.stop()
}

// TestRouteTopicCreatedAgain: of a topic that was created again all records are looked through, also by a route that began at
// the end of its log, and after another start; and not over and over when the tables' places in the old topic are told again.
func TestRouteTopicCreatedAgain(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(2, "t"))
	x := newRoutes(t, b, nil, 0, always)
	x.sendKeys("a", "a")
	x.all("a")
	x.stop()
	if err := errors.Join(b.DeleteTopic("t"), b.CreateTopic("t", 2, nil)); err != nil {
		t.Fatal(err)
	}
	b.p = producer(t, b.Cluster)
	old, _ := x.route.begins("table a")
	r := newRoutes(t, b, nil, 0, always)
	r.stop() // only its configuration is of use
	cfg, env, began := r.route.cfg, r.route.env, time.Now()
	cfg.Start = Latest
	env.Now = func() time.Time { return began.Add(20 * time.Since(began)) }
	r.route = NewRoute(cfg, env, Events{})
	if err := r.route.Know("a", "table a", Progress{Properties: old.properties()}); err != nil {
		t.Fatal(err)
	}
	b.sendAll([]*kgo.Record{message("t", 0, "new", `{"v":7}`)}) // before anybody reads
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.route.Run(ctx) }()
	r.want = map[string]map[[2]int64]int64{"new": {{0, 0}: 7}}
	r.all("new")
	id := r.route.furthest().topicID
	if err := r.route.Know("a", "table a", Progress{Properties: old.properties()}); err != nil {
		t.Fatal(err)
	}
	if now := r.route.furthest().topicID; now != id || id == old.topicID {
		t.Errorf("the route is in topic %s, it was in %s and its tables in %s", now, id, old.topicID)
	}
	cancel()
	<-done
	if err := r.runs["new"].stop(t); err != nil {
		t.Error(err)
	}
}

func (r *Route) furthest() position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.best
}

// TestRouteNewPartitions: a route without tables reads partitions that are added.
func TestRouteNewPartitions(t *testing.T) {
	b := newBroker(t, kfake.SeedTopics(1, "t"))
	x := newRoutes(t, b, nil, 0, always)
	b.sendAll([]*kgo.Record{message("t", 0, "nobody", `{"v":1}`)})
	for deadline := time.Now().Add(20 * time.Second); x.route.furthest().next == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the route does not begin")
		}
	}
	resp, err := kadm.NewClient(b.p).UpdatePartitions(t.Context(), 3, "t")
	if err != nil || resp.Error() != nil {
		t.Fatal(err, resp.Error())
	}
	b.p = producer(t, b.Cluster)
	b.sendAll([]*kgo.Record{message("t", 2, "new", `{"v":2}`)})
	x.want = map[string]map[[2]int64]int64{"new": {{2, 0}: 2}}
	x.all("new")
	x.stop()
}

// TestRouteFarBehind: a table that is far behind never takes back the stream of those that are up to date, be there as many
// streams as may be.
func TestRouteFarBehind(t *testing.T) {
	r := &Route{cfg: RouteConfig{}, env: testEnv(), ctx: t.Context(), feeds: map[string]*routeFeed{}}
	add := func(at int64) *stream {
		s := &stream{r: r, next: map[int32]int64{0: at}, epoch: map[int32]int32{}, subs: map[*routeFeed]bool{}}
		r.streams = append(r.streams, s)
		return s
	}
	front, a, b := add(10_000_000), add(500_000), add(3_000_000)
	join := func(table string, at int64) *stream {
		f := r.newFeedLocked(table, position{next: map[int32]int64{0: at}})
		r.attach(f)
		return f.stream
	}
	for range 3 {
		if s := join("loop", 9_000_000); s != b {
			t.Error("a table that is a million records behind is not read for by the nearest of those that are behind")
		}
	}
	if s := join("behind", 2_000_000); s != b || b.next[0] != 2_000_000 {
		t.Errorf("the stream of those that are behind is at %v", b.next)
	}
	if s := join("near", 9_990_000); s != front || front.next[0] != 9_990_000 {
		t.Errorf("a table that is nearby is not read for with the others, which are at %v", front.next)
	}
	if s := join("first", 0); s != a || a.next[0] != 0 {
		t.Errorf("the last stream is at %v", a.next)
	}
}
