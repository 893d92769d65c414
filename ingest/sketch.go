package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
)

// A sketch is finished with so many records, or so long after the first that told a column.
const (
	sketchRecords = 1000
	sketchWait    = time.Second
)

// SketchConfig says which records a sketch is made of.
type SketchConfig struct {
	Topic  string
	Format decode.Format
	Op     string // decode.Config.OpField
	// From is where the records begin that Has chooses; nil: at the beginning of the topic, all of them.
	From Progress
	Has  func(r *decode.Record) bool
}

// Sketch looks at the first records of a topic and gives what a table for them would need. As long as the topic
// has no record that tells a column, it waits. Records that do not fit the others are left out here: a pipeline refuses
// them when it comes to them, with the reason.
func (h *Hub) Sketch(ctx context.Context, cfg SketchConfig) (*decode.Sketch, error) {
	topic := cfg.Topic
	from, _, err := parsePosition(cfg.From.Properties)
	if err != nil {
		return nil, err
	}
	a, err := h.metadata(ctx, []string{topic})
	id, err := identify(a, err, topic, h.cfg.Brokers)
	if err != nil {
		return nil, err
	}
	at, err := h.sketchFrom(ctx, topic, id, &from)
	if err != nil {
		return nil, err
	}
	feed, err := h.open(ctx, topic, at)
	if err != nil {
		return nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	defer feed.close()
	s := decode.NewSketch(cfg.Format, cfg.Op)
	var enough <-chan time.Time
	for {
		if err := addTo(s, &cfg, feed.take(sketchRecords)); err != nil {
			return nil, err
		}
		if s.Records() >= sketchRecords {
			return s, nil
		}
		if enough == nil && len(s.Columns()) > 0 {
			enough = h.env.After(sketchWait)
		}
		select {
		case <-feed.filled:
		case <-enough:
			return s, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// sketchFrom gives where a sketch begins to read: where its records begin, if the log has that still, else with what the
// log has.
func (h *Hub) sketchFrom(ctx context.Context, topic string, id identity, from *position) (map[int32]kgo.Offset, error) {
	at := map[int32]kgo.Offset{}
	for _, p := range id.partitions {
		at[p] = kgo.NewOffset().AtStart()
	}
	if len(from.next) == 0 || from.topicID != id.topicID {
		return at, nil
	}
	logs, err := (&cluster{cfg: KafkaConfig{Topic: topic}, hub: h}).logs(ctx, id.partitions, nil)
	if err != nil {
		return nil, err
	}
	for p, l := range logs {
		if next, ok := from.next[p]; ok && l.check(topic, p, next) == nil {
			at[p] = kgo.NewOffset().At(next)
		}
	}
	return at, nil
}

// addTo adds the records of a poll to a sketch.
func addTo(s *decode.Sketch, cfg *SketchConfig, pieces []piece) error {
	for i := range pieces {
		p := &pieces[i]
		if p.Err != nil {
			return fmt.Errorf("read topic %q partition %d: %w", cfg.Topic, p.Partition, p.Err)
		}
		for _, r := range p.Records {
			if !r.Attrs.IsControl() && s.Records() < sketchRecords {
				rec := decode.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
				for _, h := range r.Headers {
					rec.Headers = append(rec.Headers, decode.Header{Name: h.Key, Value: h.Value})
				}
				if cfg.Has == nil || cfg.Has(&rec) {
					_ = s.Add(&rec)
				}
			}
			r.Recycle()
		}
	}
	return nil
}
