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

// Sketch looks at the records at the beginning of a topic and gives what a table for them would need. As long as the topic
// has no record that tells a column, it waits. Records that do not fit the others are left out here: a pipeline refuses
// them when it comes to them, with the reason.
func (h *Hub) Sketch(ctx context.Context, topic string, format decode.Format, op string) (*decode.Sketch, error) {
	a, err := h.metadata(ctx, []string{topic})
	id, err := identify(a, err, topic, h.cfg.Brokers)
	if err != nil {
		return nil, err
	}
	at := map[int32]kgo.Offset{}
	for _, p := range id.partitions {
		at[p] = kgo.NewOffset().AtStart()
	}
	feed, err := h.open(ctx, topic, at)
	if err != nil {
		return nil, fmt.Errorf("read topic %q: %w", topic, err)
	}
	defer feed.close()
	s := decode.NewSketch(format, op)
	var enough <-chan time.Time
	for {
		if err := addTo(s, topic, feed.take(sketchRecords)); err != nil {
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

// addTo adds the records of a poll to a sketch.
func addTo(s *decode.Sketch, topic string, pieces []piece) error {
	for i := range pieces {
		p := &pieces[i]
		if p.Err != nil {
			return fmt.Errorf("read topic %q partition %d: %w", topic, p.Partition, p.Err)
		}
		for _, r := range p.Records {
			if !r.Attrs.IsControl() && s.Records() < sketchRecords {
				_ = s.Add(&decode.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value})
			}
			r.Recycle()
		}
	}
	return nil
}
