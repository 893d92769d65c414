package ingest

import (
	"testing"

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
