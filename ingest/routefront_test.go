package ingest

import "testing"

// TestRouteFront: a table that is behind does not take back the stream of those that are up to date, also while one of the
// topic that was there before has read further.
func TestRouteFront(t *testing.T) {
	r := &Route{env: testEnv(), ctx: t.Context(), feeds: map[string]*routeFeed{}}
	add := func(id string, at int64) *stream {
		s := &stream{r: r, source: identity{topicID: id}, next: map[int32]int64{0: at}, epoch: map[int32]int32{}, subs: map[*routeFeed]bool{}}
		r.streams = append(r.streams, s)
		return s
	}
	add("old", 10_000_000)
	live, behind := add("new", 900_000), add("new", 100_000)
	f := r.newFeedLocked("table", position{topicID: "new", next: map[int32]int64{0: 700_000}})
	r.attach(f)
	if f.stream != behind || live.next[0] != 900_000 {
		t.Errorf("the stream of the others was taken back to %v", live.next)
	}
}
