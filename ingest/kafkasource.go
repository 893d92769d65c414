package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
)

// kafkaSource reads the partitions of a topic from a position.
type kafkaSource struct {
	c      *cluster
	client *kgo.Client
	batch  batcher

	// read is how far records are decoded: owned by the source's goroutine.
	read position
	// done is how far they are written to the table: owned by the committer's goroutine.
	done position
	// moved are the partitions that moved since the last unit.
	moved map[int32]mark

	ends map[int32]int64 // end of each partition's log, as the last fetch told

	// The record being decoded: its partition as fetched, its offset and headers.
	fetched *kgo.FetchPartition
	offset  int64
	headers []decode.Header

	known map[int32]bool // partitions being read: owned by the watcher
}

// mark is how far a partition has moved: the next offset, and the leader epoch of the record before it (-1: not known).
type mark struct {
	next  int64
	epoch int32
}

// newKafkaSource makes the client that reads from the position.
func newKafkaSource(c *cluster, opts []kgo.Opt, batch batcher, pos position) (*kafkaSource, error) {
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
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.cfg.Topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Markers of transactions carry offsets too: with them a position reaches the end of the log.
		kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(c.cfg.FetchBytes),
		kgo.WithPools(&recordPool{}),
		kgo.FetchMaxPartitionBytes(max(1<<20, c.cfg.FetchBytes/4)),
	)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	s.client = client
	return s, nil
}

// pollRecords bounds the records decoded between two looks at the committer.
const pollRecords = 16384

// run is the source's goroutine.
func (s *kafkaSource) run(parent context.Context, out chan<- unit) error {
	s.batch.out, s.batch.place = out, s
	ctx, fail := context.WithCancelCause(parent)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer fail(nil)
	watcher.Add(1)
	go func() {
		defer watcher.Done()
		if err := s.watch(ctx); err != nil {
			fail(err)
		}
	}()
	for ctx.Err() == nil {
		// While something waits to be emitted, take only what is at hand.
		pollCtx, waiting := ctx, !s.batch.empty() || len(s.moved) > 0
		if waiting {
			pollCtx = nil
		}
		fetches := s.client.PollRecords(pollCtx, pollRecords)
		if fetches.NumRecords() > 0 {
			if err := s.batch.follow(ctx, s.lag(), s.advance); err != nil {
				return err
			}
		}
		if err := s.take(ctx, fetches); err != nil {
			return err
		}
		if s.batch.empty() && len(s.moved) == 0 {
			continue
		}
		// Wait for the committer when the batch is full, or when there is nothing else to do.
		idle := waiting && fetches.NumRecords() == 0
		s.batch.emit(ctx, idle || s.batch.full(), s.lag(), s.advance)
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// take decodes what a poll gave, after checking that it is from the topic that is to be read.
func (s *kafkaSource) take(ctx context.Context, fetches kgo.Fetches) error {
	certain := true
	for _, f := range fetches {
		for i := range f.Topics {
			t := &f.Topics[i]
			id := topicID(t.TopicID)
			if id == "" {
				certain = certain && (s.read.topicID == "" || numRecords(t) == 0)
			} else if err := s.c.same(identity{topicID: id}, &s.read); err != nil {
				return err
			}
			for j := range t.Partitions {
				if err := s.partition(ctx, &t.Partitions[j]); err != nil {
					return err
				}
			}
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

func numRecords(t *kgo.FetchTopic) (n int) {
	for i := range t.Partitions {
		n += len(t.Partitions[i].Records)
	}
	return n
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
	for i, r := range p.Records {
		if known && r.Offset < next {
			return cutError(s.read.topic, p.Partition, next, fmt.Sprintf("goes on at %d", r.Offset))
		}
		next, known = r.Offset+1, true
		if !r.Attrs.IsControl() {
			s.fetched, s.offset = p, r.Offset
			err := s.batch.add(ctx, &decode.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
				Timestamp: max(0, r.Timestamp.UnixMilli()), Key: r.Key, Value: r.Value, Headers: s.headersOf(r)})
			if err != nil {
				return stopped(ctx, err)
			}
		}
		if i == last || s.batch.full() {
			s.note(p, mark{r.Offset + 1, r.LeaderEpoch})
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

// emitBefore implements place.
func (s *kafkaSource) emitBefore(ctx context.Context) bool {
	s.note(s.fetched, mark{s.offset, -1})
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
	moved, tally := s.moved, s.batch.tally
	s.moved = map[int32]mark{}
	return func() {
		for part, m := range moved {
			s.done.next[part] = m.next
			if m.epoch >= 0 {
				s.done.epoch[part] = m.epoch
			}
		}
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
	return fmt.Errorf("read topic %q partition %d at offset %d: %w", s.read.topic, part, s.read.next[part], err)
}

// outOfRange says on which side of the log the position lies.
func (s *kafkaSource) outOfRange(ctx context.Context, part int32) error {
	r := retry{env: s.c.env, events: s.c.events, patience: s.c.cfg.Patience, what: "find the position's place in the log", final: isFinal}
	return stopped(ctx, r.do(ctx, func(ctx context.Context) error {
		if _, err := s.c.verify(ctx, &s.read); err != nil {
			return err
		}
		logs, err := s.c.logs(ctx, []int32{part}, nil)
		if err != nil {
			return err
		}
		next := s.read.next[part]
		if err := logs[part].check(s.read.topic, part, next); err != nil {
			return err
		}
		return fmt.Errorf("%w: topic %q partition %d: the broker refuses offset %d, though its log is [%d, %d)",
			ErrLogTruncated, s.read.topic, part, next, logs[part].start, logs[part].end)
	}))
}

// lost finds out whether the topic is gone or another one.
func (s *kafkaSource) lost(ctx context.Context) error {
	r := retry{env: s.c.env, events: s.c.events, patience: s.c.cfg.Patience, what: "look for topic " + s.read.topic, final: isFinal}
	return stopped(ctx, r.do(ctx, func(ctx context.Context) error {
		_, err := s.c.verify(ctx, &s.read)
		return err
	}))
}

// watch looks at the topic now and then: new partitions are read from their beginning; another topic under the same name
// ends the pipeline, and so does none for longer than the patience. Brokers that do not answer are no reason to stop: the
// client waits for them.
func (s *kafkaSource) watch(ctx context.Context) error {
	identity := s.read // its maps are not used here
	seen := s.c.env.Now()
	for {
		select {
		case <-s.c.env.After(s.c.cfg.RefreshInterval):
		case <-ctx.Done():
			return nil
		}
		id, err := s.c.verify(ctx, &identity)
		now := s.c.env.Now()
		if errors.Is(err, ErrSourceChanged) || errors.Is(err, ErrNoTopic) && now.Sub(seen) > s.c.cfg.Patience {
			return err
		}
		if !errors.Is(err, ErrNoTopic) {
			seen = now
		}
		if err == nil {
			err = s.addPartitions(ctx, id.partitions)
		}
		if err != nil && ctx.Err() == nil && s.c.events.Retrying != nil {
			s.c.events.Retrying("look at topic "+s.c.cfg.Topic, err, s.c.cfg.RefreshInterval)
		}
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
	if len(added) == 0 {
		return nil
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
	s.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{s.c.cfg.Topic: offsets})
	if s.c.events.Partitions != nil {
		s.c.events.Partitions(starts)
	}
	return nil
}
