package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cluster asks the brokers about the topic and holds it against the position.
type cluster struct {
	cfg     KafkaConfig
	hub     *Hub
	schemas *schemaFetcher // nil: records have no schema id
	env     Env
	events  Events
}

// identity is what a topic is at a moment.
type identity struct {
	cluster, topicID string
	partitions       []int32 // sorted
}

// topicID gives the text form of a topic id; "" when the brokers have none (before Kafka 2.8).
func topicID(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return uuid.UUID(id).String()
}

// describe asks for the topic's identity.
func (c *cluster) describe(ctx context.Context) (identity, error) {
	a, err := c.hub.metadata(ctx, []string{c.cfg.Topic})
	return identify(a, err, c.cfg.Topic, c.hub.cfg.Brokers)
}

// answer is what brokers tell of topics.
type answer struct {
	cluster string
	topics  map[string]*kmsg.MetadataResponseTopic
}

// metadata asks the brokers for topics; nil: all. The answer is theirs of this moment: the client would give one that it
// has kept for seconds, which may be of a topic that was deleted since.
func (h *Hub) metadata(ctx context.Context, topics []string) (answer, error) {
	req := kmsg.NewPtrMetadataRequest()
	for i := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topics[i]
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, h.admin)
	if err != nil {
		return answer{}, err
	}
	a := answer{topics: make(map[string]*kmsg.MetadataResponseTopic, len(resp.Topics))}
	if resp.ClusterID != nil {
		a.cluster = *resp.ClusterID
	}
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			a.topics[*t.Topic] = t
		}
	}
	return a, nil
}

// identify finds a topic in what brokers answered.
func identify(a answer, err error, topic string, brokers []string) (identity, error) {
	if err != nil {
		return identity{}, fmt.Errorf("metadata of topic %q from %v: %w%s", topic, brokers, err, hint(err))
	}
	t := a.topics[topic]
	if t == nil {
		return identity{}, fmt.Errorf("%w: %q on %v", ErrNoTopic, topic, brokers)
	}
	if err := kerr.ErrorForCode(t.ErrorCode); errors.Is(err, kerr.UnknownTopicOrPartition) {
		return identity{}, fmt.Errorf("%w: %q on %v", ErrNoTopic, topic, brokers)
	} else if err != nil {
		return identity{}, fmt.Errorf("metadata of topic %q: %w", topic, err)
	}
	id := identity{cluster: a.cluster, topicID: topicID(t.TopicID)}
	for _, p := range t.Partitions {
		id.partitions = append(id.partitions, p.Partition)
	}
	slices.Sort(id.partitions)
	return id, nil
}

// hint says what may be behind a connection that was closed.
func hint(err error) string {
	if errors.Is(err, io.EOF) {
		return " (the broker closed the connection: wrong SASL credentials, or TLS on one side only?)"
	}
	return ""
}

// verify asks whether the topic is still the one of the position.
func (c *cluster) verify(ctx context.Context, p *position) (identity, error) {
	id, err := c.describe(ctx)
	if err != nil {
		return id, err
	}
	return id, c.same(id, p)
}

// same holds an identity against the position's. What either does not know is not compared.
func (c *cluster) same(id identity, p *position) error {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	const advice = "start over with a reset, or fill a new table"
	switch {
	case p.topic != c.cfg.Topic:
		return fmt.Errorf("%w: it was topic %q, now %q is configured; %s", ErrSourceChanged, p.topic, c.cfg.Topic, advice)
	case differ(id.cluster, p.cluster):
		return fmt.Errorf("%w: topic %q was read from cluster %s, the brokers %v belong to cluster %s; check the address; if the cluster was rebuilt, %s",
			ErrSourceChanged, p.topic, p.cluster, c.hub.cfg.Brokers, id.cluster, advice)
	case differ(id.topicID, p.topicID):
		return fmt.Errorf("%w: topic %q had id %s, now it has %s: it was deleted and created again; %s",
			ErrSourceChanged, p.topic, p.topicID, id.topicID, advice)
	}
	return nil
}

// begin finds where to read on. A new pipeline, and with Reset one whose source changed, begins at cfg.Start.
func (c *cluster) begin(ctx context.Context, stored position, found bool) (pos position, err error) {
	r := retry{env: c.env, events: c.events, patience: c.cfg.Patience, what: "ask the brokers about topic " + c.cfg.Topic, final: isFinal}
	err = r.do(ctx, func(ctx context.Context) (err error) {
		pos, err = c.tryBegin(ctx, stored, found)
		return err
	})
	return pos, err
}

// explain adds to ErrSourceChanged which offsets were read, and which the topic of today has.
func (c *cluster) explain(ctx context.Context, err error, was *position) error {
	if was.topic != c.cfg.Topic || ctx.Err() != nil {
		return err
	}
	var now string
	if id, derr := c.describe(ctx); derr == nil {
		if logs, lerr := c.logs(ctx, id.partitions, nil); lerr == nil {
			now = "; now it has " + ranges(id.partitions, func(p int32) (int64, int64) { return logs[p].start, logs[p].end })
		}
	}
	return fmt.Errorf("%w (offsets below %s were read%s)", err, ranges(slices.Sorted(maps.Keys(was.next)), func(p int32) (int64, int64) { return -1, was.next[p] }), now)
}

// ranges names offsets of partitions, of the first ones if there are many; a start below 0 is left out.
func ranges(partitions []int32, of func(int32) (start, end int64)) string {
	var b strings.Builder
	for i, p := range partitions {
		if i == 16 {
			fmt.Fprintf(&b, " and so on, %d partitions", len(partitions))
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		start, end := of(p)
		if start < 0 {
			fmt.Fprintf(&b, "%d of partition %d", end, p)
		} else {
			fmt.Fprintf(&b, "[%d, %d) in partition %d", start, end, p)
		}
	}
	return b.String()
}

// isFinal tells errors that need a person from those that may pass by themselves.
func isFinal(err error) bool {
	if errors.Is(err, ErrSourceChanged) || errors.Is(err, ErrLogTruncated) {
		return true
	}
	var ke *kerr.Error
	return errors.As(err, &ke) && !ke.Retriable
}

func (c *cluster) tryBegin(ctx context.Context, stored position, found bool) (position, error) {
	id, err := c.describe(ctx)
	if err != nil {
		return position{}, err
	}
	fresh := position{cluster: id.cluster, topic: c.cfg.Topic, topicID: id.topicID,
		next: map[int32]int64{}, epoch: map[int32]int32{}, records: stored.records, rejected: stored.rejected}
	if found {
		err := c.same(id, &stored)
		switch {
		case err == nil:
			fresh.next, fresh.epoch, fresh.seen = stored.next, stored.epoch, stored.seen
		case !c.cfg.Reset:
			return position{}, c.explain(ctx, err, &stored)
		default:
			c.env.Log.Warn("starting over with the source, as a reset allows", "topic", c.cfg.Topic, "why", err)
			found = false
		}
	}
	return fresh, c.fill(ctx, &fresh, id.partitions, found)
}

// fill completes the position: partitions without one get theirs, and each must lie within its log.
func (c *cluster) fill(ctx context.Context, pos *position, partitions []int32, known bool) error {
	for part := range pos.next {
		if slices.Contains(partitions, part) {
			continue
		}
		if !c.cfg.Reset {
			return fmt.Errorf("%w: topic %q has no partition %d any more, of which offset %d is next", ErrLogTruncated, pos.topic, part, pos.next[part])
		}
		delete(pos.next, part)
		delete(pos.epoch, part)
	}
	logs, err := c.logs(ctx, partitions, pos.epoch)
	if err != nil {
		return err
	}
	for _, part := range partitions {
		l := logs[part]
		next, has := pos.next[part]
		if has {
			err := l.check(pos.topic, part, next)
			if err == nil {
				continue
			}
			if !c.cfg.Reset {
				return err
			}
			c.env.Log.Warn("starting over with a partition, as a reset allows", "topic", pos.topic, "partition", part, "why", err)
			delete(pos.epoch, part)
		}
		// Records between the lost position and the beginning of the log cannot be had, so they do not count as
		// skipped; a partition that is new to a known pipeline holds only records that nobody read.
		if c.cfg.Start == Latest && (!known || has && next > l.end) {
			pos.next[part] = l.end
		} else {
			pos.next[part] = l.start
		}
	}
	return nil
}

// extent is the range of offsets that a partition's log holds: [start, end). Of it only what lies before common is known
// to be the log that the position was read from (-1: not known).
type extent struct{ start, end, common int64 }

// check says whether reading can go on at next. Offsets inside a log may be missing (compaction, transactions).
func (e extent) check(topic string, part int32, next int64) error {
	switch {
	case next < e.start:
		return fmt.Errorf("%w: topic %q partition %d: offset %d is next, but the log begins at %d: up to %d records were removed before they were read (retention too short?); "+
			"a reset goes on at %d without them", ErrLogTruncated, topic, part, next, e.start, e.start-next, e.start)
	case next > e.end:
		return cutError(topic, part, next, fmt.Sprintf("ends at %d", e.end))
	case e.common >= 0 && next > e.common:
		return cutError(topic, part, next, fmt.Sprintf("was cut back to %d and has grown to %d since", e.common, e.end))
	}
	return nil
}

// cutError says that the brokers lost records that were read.
func cutError(topic string, part int32, next int64, what string) error {
	return fmt.Errorf("%w: topic %q partition %d: offset %d is next, but the log %s: the brokers lost records that are in the table (unclean leader election, or a restored topic); "+
		"find out what happened; a reset reads the partition from its beginning", ErrLogTruncated, topic, part, next, what)
}

// logs asks for the extents of partitions. epochs are the leader epochs of the last records read (KIP-320).
func (c *cluster) logs(ctx context.Context, partitions []int32, epochs map[int32]int32) (map[int32]extent, error) {
	starts, err := c.hub.ask.ListStartOffsets(ctx, c.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("start offsets of topic %q: %w", c.cfg.Topic, err)
	}
	ends, err := c.hub.ask.ListEndOffsets(ctx, c.cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("end offsets of topic %q: %w", c.cfg.Topic, err)
	}
	common, err := c.common(ctx, epochs)
	if err != nil {
		return nil, err
	}
	out := make(map[int32]extent, len(partitions))
	for _, part := range partitions {
		s, ok1 := starts.Lookup(c.cfg.Topic, part)
		e, ok2 := ends.Lookup(c.cfg.Topic, part)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("offsets of topic %q: no answer for partition %d", c.cfg.Topic, part)
		}
		if err := errors.Join(s.Err, e.Err); err != nil {
			return nil, fmt.Errorf("offsets of topic %q partition %d: %w", c.cfg.Topic, part, err)
		}
		x := extent{s.Offset, e.Offset, -1}
		if at, known := common[part]; known {
			x.common = at
		}
		out[part] = x
	}
	return out, nil
}

// common asks up to which offset the logs are the ones whose last read records had these leader epochs.
func (c *cluster) common(ctx context.Context, epochs map[int32]int32) (map[int32]int64, error) {
	if len(epochs) == 0 {
		return nil, nil
	}
	answers, err := c.hub.ask.OffsetForLeaderEpoch(ctx, kadm.OffsetForLeaderEpochRequest{c.cfg.Topic: epochs})
	if err != nil {
		return nil, fmt.Errorf("leader epochs of topic %q: %w", c.cfg.Topic, err)
	}
	out := map[int32]int64{}
	for part, a := range answers[c.cfg.Topic] {
		if a.Err != nil {
			return nil, fmt.Errorf("leader epoch of topic %q partition %d: %w", c.cfg.Topic, part, a.Err)
		}
		if a.EndOffset >= 0 { // below: the broker no longer knows the epoch
			out[part] = a.EndOffset
		}
	}
	return out, nil
}
