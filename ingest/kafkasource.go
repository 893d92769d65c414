package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
)

// kafkaSource reads the partitions of a topic from a position.
type kafkaSource struct {
	c     *cluster
	feed  recordFeed
	batch batcher

	// read is how far records are decoded: owned by the source's goroutine.
	read position
	// done is how far they are written to the table: owned by the committer's goroutine.
	done position
	// moved are the partitions that moved since the last unit.
	moved map[int32]mark

	ends map[int32]int64 // end of each partition's log, as the last fetch told

	// The record being decoded: its partition as fetched, how far that moves by the records before it in the piece, if
	// there are any, and its headers.
	fetched *kgo.FetchPartition
	before  mark
	behind  bool
	headers []decode.Header
	record  decode.Record // as it is decoded, which keeps nothing of it

	known  map[int32]bool // partitions being read: the watcher's, and while adding is set its goroutine's
	adding atomic.Bool
	seen   time.Time // when the topic was there; the watcher's
	adders sync.WaitGroup
}

// mark is how far a partition has moved: the next offset, and the leader epoch of the record before it (-1: not known).
type mark struct {
	next  int64
	epoch int32
}

// newKafkaSource begins to read from the position.
func newKafkaSource(ctx context.Context, c *cluster, batch batcher, pos position) (*kafkaSource, error) {
	s := &kafkaSource{c: c, batch: batch, read: pos, done: pos,
		moved: map[int32]mark{}, ends: map[int32]int64{}, known: map[int32]bool{}}
	s.read.next, s.read.epoch = maps.Clone(pos.next), maps.Clone(pos.epoch)
	offsets := map[int32]kgo.Offset{}
	for part, next := range pos.next {
		// The epoch lets the client ask whether the log up to here is still the one that was read (KIP-320).
		epoch, ok := pos.epoch[part]
		if !ok {
			epoch = -1
		}
		offsets[part] = kgo.NewOffset().At(next).WithEpoch(epoch)
		s.known[part] = true
	}
	if c.cfg.Route != nil {
		s.feed = c.cfg.Route.open(c.cfg.RouteTable, pos)
		return s, nil
	}
	feed, err := c.hub.open(ctx, c.cfg.Topic, offsets)
	s.feed = feed
	return s, err
}

// pollRecords bounds the records decoded between two looks at the committer.
const pollRecords = 16384

// run is the source's goroutine.
func (s *kafkaSource) run(parent context.Context, out chan<- unit) error {
	s.batch.out, s.batch.place = out, s
	ctx, fail := context.WithCancelCause(parent)
	s.seen = s.c.env.Now()
	was := s.read // its maps are not used by the watcher
	unwatch := s.c.hub.watchTopic(s.c.cfg.Topic, func(id identity, err error) { s.looked(ctx, fail, &was, id, err) })
	defer s.adders.Wait()
	defer fail(nil)
	defer unwatch()
	for ctx.Err() == nil {
		// While something waits to be emitted, take only what is at hand.
		pollCtx, waiting := ctx, !s.batch.empty() || len(s.moved) > 0
		if waiting {
			pollCtx = nil
		}
		pieces := s.feed.poll(pollCtx, pollRecords)
		if len(pieces) > 0 {
			if err := s.batch.follow(ctx, s.lag(), s.advance); err != nil {
				return err
			}
		}
		if err := s.take(ctx, pieces); err != nil {
			return err
		}
		if s.batch.empty() && len(s.moved) == 0 {
			continue
		}
		// Wait for the committer when the batch is full, or when there is nothing else to do.
		idle := waiting && len(pieces) == 0
		if !s.batch.emit(ctx, idle || s.batch.full(), s.lag(), s.advance) && idle {
			s.feed.await(ctx, s.batch.moving.left(s.c.env))
		}
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// take decodes what a poll gave, after checking that it is from the topic that is to be read.
func (s *kafkaSource) take(ctx context.Context, pieces []piece) error {
	certain := true
	var checked [16]byte // pieces of one poll are from one topic, but for a moment
	for i := range pieces {
		p := &pieces[i]
		switch {
		case p.topicID == [16]byte{}:
			certain = certain && (s.read.topicID == "" || len(p.Records) == 0)
		case p.topicID != checked:
			if err := s.c.same(identity{topicID: topicID(p.topicID)}, &s.read); err != nil {
				return err
			}
			checked = p.topicID
		}
		if err := s.partition(ctx, &p.FetchPartition); err != nil {
			return err
		}
		if p.upTo.next > 0 && ctx.Err() == nil { // else records may not have been decoded
			s.note(&p.FetchPartition, p.upTo)
		}
	}
	if certain {
		return nil
	}
	// Brokers before Kafka 3.1 do not say which topic a fetch is from: ask before its records go anywhere.
	r := retry{env: s.c.env, events: s.c.events, patience: s.c.cfg.Patience, what: "check the topic's identity", final: isFinal}
	err := r.do(ctx, func(ctx context.Context) error {
		_, err := s.c.verify(ctx, &s.read)
		return err
	})
	return stopped(ctx, err)
}

// partition decodes the records of one partition.
func (s *kafkaSource) partition(ctx context.Context, p *kgo.FetchPartition) error {
	if p.Err != nil {
		return s.fetchError(ctx, p.Partition, p.Err)
	}
	if len(p.Records) == 0 {
		return nil
	}
	next, known := s.read.next[p.Partition]
	last := len(p.Records) - 1
	s.fetched, s.behind = p, false
	for i, r := range p.Records {
		if known && r.Offset < next {
			return cutError(s.read.topic, p.Partition, next, fmt.Sprintf("goes on at %d", r.Offset))
		}
		next, known = r.Offset+1, true
		if !r.Attrs.IsControl() {
			rec := &s.record
			*rec = decode.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
				Timestamp: max(0, r.Timestamp.UnixMilli()), Key: r.Key, Value: r.Value, Headers: s.headersOf(r)}
			err := s.between(ctx, rec)
			if err == nil {
				err = s.batch.add(ctx, rec)
			}
			if err != nil {
				return stopped(ctx, err)
			}
		}
		s.before, s.behind = mark{next, r.LeaderEpoch}, true
		if i == last || s.batch.full() {
			s.note(p, s.before)
		}
		if s.batch.full() { // a poll may hold more than a batch
			s.batch.emit(ctx, true, s.lag(), s.advance)
		}
		r.Recycle() // what the batch and the dead letters keep is copied
	}
	return nil
}

// headersOf gives the headers of a record, until it is called again.
func (s *kafkaSource) headersOf(r *kgo.Record) []decode.Header {
	s.headers = s.headers[:0]
	for _, h := range r.Headers {
		s.headers = append(s.headers, decode.Header{Name: h.Key, Value: h.Value})
	}
	return s.headers
}

// emitBefore implements place. The position never stands behind a record without its leader epoch, not even where the log
// has a gap before the next one: with an older epoch the log would seem to have been cut back.
func (s *kafkaSource) emitBefore(ctx context.Context) bool {
	if s.behind {
		s.note(s.fetched, s.before)
	}
	return s.batch.emit(ctx, true, s.lag(), s.advance)
}

// note moves a partition.
func (s *kafkaSource) note(p *kgo.FetchPartition, to mark) {
	s.read.next[p.Partition] = to.next
	s.moved[p.Partition] = to
	s.ends[p.Partition] = p.HighWatermark
}

// advance gives the function that moves the committed position to where reading is now.
func (s *kafkaSource) advance() func() {
	moved, tally, seen := s.moved, s.batch.tally, s.batch.dec.Seen()
	s.moved = map[int32]mark{}
	return func() {
		for part, m := range moved {
			s.done.next[part] = m.next
			if s.done.epoch[part] = m.epoch; m.epoch < 0 {
				delete(s.done.epoch, part) // better none than that of a record further back
			}
		}
		s.done.seen = seen
		s.done.records += tally.Records
		s.done.rejected += tally.Rejected
	}
}

// lag counts the records of the log that are not read, as of the last fetches.
func (s *kafkaSource) lag() (n int64) {
	for part, end := range s.ends {
		n += max(0, end-s.read.next[part])
	}
	return n
}

// fetchError finds out what an error of the client means for the position.
func (s *kafkaSource) fetchError(ctx context.Context, part int32, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	var lost *kgo.ErrDataLoss
	switch {
	case errors.As(err, &lost):
		return cutError(s.read.topic, part, lost.ConsumedTo, fmt.Sprintf("was cut back to %d", lost.ResetTo))
	case errors.Is(err, kerr.OffsetOutOfRange):
		return s.outOfRange(ctx, part)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kgo.ErrClientClosed):
		if verr := s.lost(ctx); verr != nil {
			return verr
		}
	}
	if ctx.Err() != nil {
		return nil // the watcher knows why
	}
	return fmt.Errorf("read topic %q partition %d at offset %d: %w", s.read.topic, part, s.read.next[part], err)
}

// outOfRange says on which side of the log the position lies.
func (s *kafkaSource) outOfRange(ctx context.Context, part int32) error {
	r := retry{env: s.c.env, events: s.c.events, patience: s.c.cfg.Patience, what: "find the position's place in the log", final: isFinal}
	var log extent
	next := s.read.next[part]
	err := r.do(ctx, func(ctx context.Context) error {
		if _, err := s.c.verify(ctx, &s.read); err != nil {
			return err
		}
		logs, err := s.c.logs(ctx, []int32{part}, nil)
		if err != nil {
			return err
		}
		log = logs[part]
		return log.check(s.read.topic, part, next)
	})
	if err == nil { // nothing is known to be lost: another start asks again
		err = fmt.Errorf("topic %q partition %d: the broker refuses offset %d, though its log is [%d, %d)", s.read.topic, part, next, log.start, log.end)
	}
	return stopped(ctx, err)
}

// lost finds out whether the topic is gone or another one.
func (s *kafkaSource) lost(ctx context.Context) error {
	r := retry{env: s.c.env, events: s.c.events, patience: s.c.cfg.Patience, what: "look for topic " + s.read.topic, final: isFinal}
	return stopped(ctx, r.do(ctx, func(ctx context.Context) error {
		_, err := s.c.verify(ctx, &s.read)
		return err
	}))
}

// looked is told of the topic now and then: new partitions are read from their beginning; another topic under the same
// name ends the pipeline, and so does none for longer than the patience. Brokers that do not answer are no reason to stop:
// the client waits for them. was is the position that reading began with.
func (s *kafkaSource) looked(ctx context.Context, fail context.CancelCauseFunc, was *position, id identity, err error) {
	if err == nil {
		err = s.c.same(id, was)
	}
	now := s.c.env.Now()
	if errors.Is(err, ErrSourceChanged) || errors.Is(err, ErrNoTopic) && now.Sub(s.seen) > s.c.cfg.Patience {
		fail(err)
		return
	}
	if !errors.Is(err, ErrNoTopic) {
		s.seen = now
	}
	if err != nil {
		s.retrying(ctx, err)
		return
	}
	if s.batch.whole != nil && len(id.partitions) > 1 {
		fail(checkWhole(s.c.cfg.Topic, len(id.partitions)))
		return
	}
	if s.adding.Load() || !slices.ContainsFunc(id.partitions, func(p int32) bool { return !s.known[p] }) {
		return
	}
	s.adding.Store(true)
	s.adders.Go(func() { // it asks the brokers, which others must not wait for
		defer s.adding.Store(false)
		if err := s.addPartitions(ctx, id.partitions); err != nil {
			s.retrying(ctx, err)
		}
	})
}

// retrying tells that a look at the topic failed; there will be another.
func (s *kafkaSource) retrying(ctx context.Context, err error) {
	if ctx.Err() == nil && s.c.events.Retrying != nil {
		s.c.events.Retrying("look at topic "+s.c.cfg.Topic, err, s.c.hub.cfg.RefreshInterval)
	}
}

// addPartitions starts reading partitions that were not there before.
func (s *kafkaSource) addPartitions(ctx context.Context, partitions []int32) error {
	var added []int32
	for _, part := range partitions {
		if !s.known[part] {
			added = append(added, part)
		}
	}
	logs, err := s.c.logs(ctx, added, nil)
	if err != nil {
		return err
	}
	offsets, starts := map[int32]kgo.Offset{}, map[int32]int64{}
	for _, part := range added {
		starts[part] = logs[part].start
		offsets[part] = kgo.NewOffset().At(logs[part].start)
		s.known[part] = true
	}
	s.feed.add(offsets)
	if s.c.events.Partitions != nil {
		s.c.events.Partitions(starts)
	}
	return nil
}
