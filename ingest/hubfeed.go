package ingest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lane is a client that fetches, and who reads by it. Its goroutine polls, hands over to the feeds, and changes what is
// fetched between two polls, so that what a poll gives is always of the feeds that are there.
type lane struct {
	hub    *Hub
	client *kgo.Client
	room   chan struct{} // a feed that was full has room

	// Guarded by hub.mu.
	feeds map[string]*topicFeed // by topic
	adds  map[string]map[int32]kgo.Offset
	drops []*topicFeed
	wake  context.CancelFunc // ends the poll that waits
	ended bool               // the last feed has gone, and the client with it

	full map[*topicFeed]bool // feeds that were full; the lane's goroutine's

	closing sync.Once // two closings of a client at the same time race
}

// addLocked has partitions of a feed fetched; hub.mu is held.
func (l *lane) addLocked(f *topicFeed, at map[int32]kgo.Offset) {
	if l.adds == nil {
		l.adds = map[string]map[int32]kgo.Offset{}
	}
	parts := l.adds[f.topic]
	if parts == nil {
		parts = map[int32]kgo.Offset{}
		l.adds[f.topic] = parts
	}
	for part, o := range at {
		parts[part] = o
	}
	l.wakeLocked()
}

func (l *lane) wakeLocked() {
	if l.wake != nil {
		l.wake()
	}
}

// run is the lane's goroutine, until the hub is closed or the last feed has gone.
func (l *lane) run() {
	defer l.close()
	for l.hub.ctx.Err() == nil {
		ctx, wake := context.WithCancel(l.hub.ctx)
		if !l.change(wake) {
			wake()
			return
		}
		for ctx.Err() == nil {
			if l.hold(ctx); ctx.Err() == nil {
				fetches := l.client.PollFetches(ctx)
				pause := l.pause(fetches)
				l.deliver(fetches)
				l.rest(ctx, pause)
			}
		}
		wake()
	}
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, f := range l.feeds {
		f.put(0, [16]byte{}, []kgo.FetchPartition{{Err: errHubClosed}})
	}
}

// Making a request and reading the answer takes some µs and 400 bytes of memory for each topic, whatever it brings: lanes of
// many topics rest between fetches of few records, so that asking is not what they do most.
const (
	restTopics  = 64                    // no rest with fewer
	restRecords = 4096                  // nor behind a fetch of as many, or if as many are to be fetched yet
	restTime    = 50 * time.Microsecond // a topic
	restMost    = 100 * time.Millisecond
)

// pause is how long to rest behind a fetch, whose records are not handed over yet.
func (l *lane) pause(fetches kgo.Fetches) time.Duration {
	l.hub.mu.Lock()
	topics := len(l.feeds)
	l.hub.mu.Unlock()
	if topics < restTopics {
		return 0
	}
	records := int64(0)
	for i := range fetches {
		for j := range fetches[i].Topics {
			for _, p := range fetches[i].Topics[j].Partitions {
				if n := len(p.Records); n > 0 {
					records += int64(n) + max(0, p.HighWatermark-p.Records[n-1].Offset-1)
				}
			}
		}
	}
	if records >= restRecords {
		return 0
	}
	return min(restMost, restTime*time.Duration(topics))
}

func (l *lane) rest(ctx context.Context, pause time.Duration) {
	if pause <= 0 {
		return
	}
	select {
	case <-l.hub.env.After(pause):
	case <-ctx.Done():
	}
}

// close ends the client, once for the hub and the lane's goroutine.
func (l *lane) close() { l.closing.Do(l.client.Close) }

// change does what was asked for since the last one. It returns false when nobody reads any more.
func (l *lane) change(wake context.CancelFunc) bool {
	h := l.hub
	h.mu.Lock()
	l.wake = wake
	adds, drops := l.adds, l.drops
	l.adds, l.drops = nil, nil
	if len(drops) > 0 && len(drops) == len(l.feeds) {
		l.ended = true
		h.lanes = slices.DeleteFunc(h.lanes, func(o *lane) bool { return o == l })
	}
	h.mu.Unlock()
	if len(drops) > 0 && !l.ended {
		var topics []string
		for _, f := range drops {
			topics = append(topics, f.topic)
			delete(adds, f.topic) // who opens the topic again waits until it is forgotten
			delete(l.full, f)
		}
		l.client.ResumeFetchTopics(topics...)
		l.client.PurgeTopicsFromConsuming(topics...)
	}
	h.mu.Lock()
	for _, f := range drops {
		delete(l.feeds, f.topic)
		close(f.gone)
	}
	h.mu.Unlock()
	if l.ended {
		return false
	}
	l.client.AddConsumePartitions(adds)
	return true
}

// feedPatience is how long a lane waits for a feed that is full before it pauses it: a pipeline that only decodes has room
// by then, and a pause costs what was fetched ahead.
const feedPatience = 50 * time.Millisecond

// hold waits while there is nothing to fetch for, and pauses the feeds that stay full.
func (l *lane) hold(ctx context.Context) {
	for l.forgetRoomy(); len(l.full) > 0 && l.allFull(); l.forgetRoomy() {
		select {
		case <-l.room:
		case <-ctx.Done():
			return
		}
	}
	var patience <-chan time.Time
	over := false
	for f := range l.full {
		for !f.pauseIf(!over) {
			if patience == nil {
				patience = l.hub.env.After(feedPatience)
			}
			select {
			case <-l.room:
			case <-patience:
				over = true
			case <-ctx.Done():
				return
			}
		}
		delete(l.full, f)
	}
}

// forgetRoomy takes the feeds that have room by now off the full ones.
func (l *lane) forgetRoomy() {
	for f := range l.full {
		if !f.isFull() {
			delete(l.full, f)
		}
	}
}

// allFull reports whether all feeds are full, or paused because they were.
func (l *lane) allFull() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, f := range l.feeds {
		if !f.closed && !l.full[f] && !f.isPaused() {
			return false
		}
	}
	return true
}

// deliver hands over what a poll gave.
func (l *lane) deliver(fetches kgo.Fetches) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			if f := l.feeds[t.Topic]; f != nil && !f.closed {
				if f.put(h.bound(), t.TopicID, t.Partitions) {
					l.full[f] = true
				}
			}
		}
	}
}

// bound is what a feed may hold: less when many hold something.
func (h *Hub) bound() int64 {
	fetch := int64(h.cfg.FetchBytes)
	return min(2*fetch, max(fetch/4, 32*fetch/max(1, h.holding.Load())))
}

// topicFeed is what was fetched of a topic and is not read yet.
type topicFeed struct {
	lane   *lane
	topic  string
	closed bool          // guarded by hub.mu
	gone   chan struct{} // closed when the client has forgotten the topic
	filled chan struct{} // something was put; one is enough

	mu     sync.Mutex // guards what follows
	queue  []piece
	bytes  int64
	bound  int64 // as of the last put
	paused bool
	slow   bool // it had to be paused, and was not empty since
	failed bool // an error was put, behind which nobody reads
}

// piece is what one fetch gave of a partition.
type piece struct {
	topicID [16]byte
	bytes   int64
	upTo    mark // how far the partition was looked through, if that is not behind the last record; next 0: it is
	kgo.FetchPartition
}

// recordBytes is what a record takes beside its key, value and headers.
const recordBytes = 200

// sizeOf is about the memory that a record takes.
func sizeOf(r *kgo.Record) int64 {
	n := recordBytes + int64(len(r.Key)+len(r.Value))
	for i := range r.Headers {
		n += headerBytes + int64(len(r.Headers[i].Key)+len(r.Headers[i].Value))
	}
	return n
}

// headerBytes is what a header takes beside its name and value.
const headerBytes = 40

// put appends what was fetched, and reports whether the feed is to be held: it is full, or has an error. An error ends the
// reading of whoever comes to it, so nothing behind it is kept, and nothing more fetched: brokers answer a fetch that they
// refuse at once, each time.
func (f *topicFeed) put(bound int64, id [16]byte, parts []kgo.FetchPartition) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := len(f.queue)
	for i := range parts {
		if f.failed {
			break
		}
		p := piece{topicID: id, FetchPartition: parts[i]}
		f.failed = p.Err != nil
		if p.Err == nil && len(p.Records) == 0 {
			continue
		}
		for _, r := range p.Records {
			p.bytes += sizeOf(r)
		}
		f.bytes += p.bytes
		f.queue = append(f.queue, p)
	}
	if was == 0 && len(f.queue) > 0 {
		f.lane.hub.holding.Add(1)
	}
	f.bound = bound
	select {
	case f.filled <- struct{}{}:
	default:
	}
	return f.failed || f.bytes > f.bound
}

// poll gives pieces, in order, until they have most records; nil when there are none and ctx is nil or ends. Records are
// the caller's, to be recycled.
func (f *topicFeed) poll(ctx context.Context, most int) []piece {
	for {
		if p := f.take(most); p != nil || ctx == nil {
			return p
		}
		select {
		case <-f.filled:
		case <-ctx.Done():
			return nil
		}
	}
}

// await waits for something to poll, for at most a while.
func (f *topicFeed) await(ctx context.Context, most time.Duration) {
	select {
	case <-f.filled:
	case <-f.lane.hub.env.After(most):
	case <-ctx.Done():
	}
}

func (f *topicFeed) take(most int) []piece {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		f.slow = false
		return nil
	}
	n, records := 0, 0
	for n < len(f.queue) && records < most {
		records += len(f.queue[n].Records)
		f.bytes -= f.queue[n].bytes
		n++
	}
	out := f.queue[:n:n]
	f.queue = f.queue[n:]
	if len(f.queue) == 0 {
		f.queue = nil
		f.lane.hub.holding.Add(-1)
	}
	if f.bytes <= f.bound/2 && !f.failed {
		if f.paused {
			f.paused = false
			f.lane.client.ResumeFetchTopics(f.topic)
		}
		select {
		case f.lane.room <- struct{}{}:
		default:
		}
	}
	return out
}

func (f *topicFeed) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed || f.bytes > f.bound
}

func (f *topicFeed) isPaused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paused
}

// pauseIf pauses a feed that is full, or has an error; one that was not slow so far only if patient is unset. It reports
// whether the lane may go on.
func (f *topicFeed) pauseIf(patient bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.paused || !f.failed && f.bytes <= f.bound:
		return true
	case patient && !f.slow && !f.failed:
		return false
	}
	f.paused, f.slow = true, true
	f.lane.client.PauseFetchTopics(f.topic)
	return true
}

// add has further partitions read.
func (f *topicFeed) add(at map[int32]kgo.Offset) {
	h := f.lane.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if !f.closed {
		f.lane.addLocked(f, at)
	}
}

// close ends the reading; what is in the queue is dropped.
func (f *topicFeed) close() {
	h := f.lane.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	f.lane.drops = append(f.lane.drops, f)
	f.lane.wakeLocked()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) > 0 {
		h.holding.Add(-1)
	}
	f.queue, f.bytes = nil, 0
	select {
	case f.lane.room <- struct{}{}:
	default:
	}
}
