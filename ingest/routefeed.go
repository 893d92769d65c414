package ingest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordFeed is where a source has its records from.
type recordFeed interface {
	// poll gives pieces, in order, until they have most records; nil when there are none and ctx is nil or ends. Records
	// are the caller's, to be recycled.
	poll(ctx context.Context, most int) []piece
	// await waits for something to poll, for at most a while.
	await(ctx context.Context, most time.Duration)
	// add has further partitions read.
	add(at map[int32]kgo.Offset)
	// close ends the reading; what is in the queue is dropped.
	close()
}

// routeFeed is what a route has read for one table. A feed whose table takes nothing is detached: its route reads on for
// the others, and the feed is read for anew, from where it stopped, when its table has taken what is in the queue.
type routeFeed struct {
	r     *Route
	table string

	// Guarded by Route.mu.
	source  identity        // cluster and id of the topic
	stream  *stream         // nil: detached
	next    map[int32]int64 // it has all before; of a feed with a stream its stream's position counts where that is higher
	epoch   map[int32]int32
	told    map[int32]int64 // as far as pieces have said
	since   time.Time       // of the last piece
	begin   map[int32]int64 // of a pending one: where it began
	pending bool            // the table's pipeline has not come yet
	closed  bool

	filled chan struct{} // something was put, or it was detached; one is enough

	mu     sync.Mutex // guards what follows
	queue  []piece
	bytes  int64
	bound  int64 // as of the last put
	failed bool  // an error was put, behind which nobody reads
}

func (f *routeFeed) poke() {
	select {
	case f.filled <- struct{}{}:
	default:
	}
}

// put appends a piece.
func (f *routeFeed) put(p piece) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed {
		return
	}
	f.failed = p.Err != nil
	if len(f.queue) == 0 {
		f.r.cfg.Hub.holding.Add(1)
	}
	f.queue, f.bytes, f.bound = append(f.queue, p), f.bytes+p.bytes, f.r.cfg.Hub.bound()
	f.poke()
}

func (f *routeFeed) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes > f.bound
}

func (f *routeFeed) isEmpty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue) == 0
}

// poll implements recordFeed. A feed without anything has itself attached to a stream.
func (f *routeFeed) poll(ctx context.Context, most int) []piece {
	for {
		if p := f.take(most); p != nil || ctx == nil {
			return p
		}
		f.r.attach(f)
		select {
		case <-f.filled:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *routeFeed) take(most int) []piece {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return nil
	}
	n, records := 0, 0
	for n < len(f.queue) && records < most {
		records += len(f.queue[n].Records)
		f.bytes -= f.queue[n].bytes
		n++
	}
	out := f.queue[:n:n]
	if f.queue = f.queue[n:]; len(f.queue) == 0 {
		f.queue = nil
		f.r.cfg.Hub.holding.Add(-1)
	}
	select {
	case f.r.room <- struct{}{}:
	default:
	}
	return out
}

// await implements recordFeed.
func (f *routeFeed) await(ctx context.Context, most time.Duration) {
	select {
	case <-f.filled:
	case <-f.r.env.After(most):
	case <-ctx.Done():
	}
}

// add implements recordFeed. Where the stream has passed the beginning of a partition, the feed reads it alone.
func (f *routeFeed) add(at map[int32]kgo.Offset) {
	r := f.r
	r.mu.Lock()
	defer r.mu.Unlock()
	s := f.stream
	if s != nil {
		s.sync(f)
	}
	for part, o := range at {
		start := o.EpochOffset().Offset
		f.next[part], f.told[part] = start, start
		if s == nil {
			continue
		}
		switch next, known := s.next[part]; {
		case !known:
			s.next[part] = start
			s.reopen()
		case next > start:
			delete(s.subs, f)
			f.stream, s = nil, nil
			f.poke()
		}
	}
}

// close implements recordFeed.
func (f *routeFeed) close() {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	f.closeLocked()
}

// closeLocked is close; Route.mu is held.
func (f *routeFeed) closeLocked() {
	if f.closed {
		return
	}
	f.closed = true
	if f.stream != nil {
		delete(f.stream.subs, f)
		f.stream = nil
	}
	if f.r.feeds[f.table] == f {
		delete(f.r.feeds, f.table)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) > 0 {
		f.r.cfg.Hub.holding.Add(-1)
	}
	f.queue, f.bytes, f.failed = nil, 0, true
	select {
	case f.r.room <- struct{}{}:
	default:
	}
}

// give hands over what of a partition's records is the feed's, up to a mark; Route.mu is held.
func (f *routeFeed) give(d *dealt, b *bundle) {
	from, known := f.next[d.part]
	if !known || d.last.next <= f.told[d.part] {
		return
	}
	p := piece{topicID: d.topicID, upTo: d.last,
		FetchPartition: kgo.FetchPartition{Partition: d.part, HighWatermark: d.high, LogStartOffset: d.low}}
	if b != nil {
		all := b.records()
		skip, _ := slices.BinarySearchFunc(all, from, func(r *kgo.Record, at int64) int { return int(min(1, max(-1, r.Offset-at))) })
		p.Records = all[skip:]
	}
	for _, r := range p.Records {
		p.bytes += sizeOf(r)
	}
	f.told[d.part] = d.last.next
	if d.last.next > from {
		f.next[d.part], f.epoch[d.part] = d.last.next, d.last.epoch
	}
	f.put(p)
}

// tellRest tells the feed how far its stream has come in partitions that had nothing for it; Route.mu is held.
func (f *routeFeed) tellRest(s *stream) {
	for part, next := range s.next {
		if told, known := f.told[part]; known && next > told {
			f.give(&dealt{part: part, topicID: s.rawID, high: s.logs[part].end, low: s.logs[part].start, last: mark{next, s.epochOf(part)}}, nil)
		}
	}
	f.since = f.r.env.Now()
}

// bundle copies the records of one table out of what was fetched, so that a table that is slow keeps none of that.
type bundle struct {
	list  []kgo.Record
	arena []byte
}

// bundleBytes is the size of the pieces of memory that records are copied into.
const bundleBytes = 32 << 10

func (b *bundle) add(r *kgo.Record) {
	c := kgo.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Attrs: r.Attrs, LeaderEpoch: r.LeaderEpoch,
		Key: b.keep(r.Key), Value: b.keep(r.Value)}
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, kgo.RecordHeader{Key: h.Key, Value: b.keep(h.Value)})
	}
	b.list = append(b.list, c)
}

func (b *bundle) keep(data []byte) []byte {
	if data == nil {
		return nil
	}
	if cap(b.arena)-len(b.arena) < len(data) {
		b.arena = make([]byte, 0, max(min(bundleBytes, 256+4*cap(b.arena)), len(data)))
	}
	at := len(b.arena)
	b.arena = append(b.arena, data...)
	return b.arena[at:len(b.arena):len(b.arena)]
}

func (b *bundle) records() []*kgo.Record {
	out := make([]*kgo.Record, len(b.list))
	for i := range b.list {
		out[i] = &b.list[i]
	}
	return out
}
