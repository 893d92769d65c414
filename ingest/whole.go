package ingest

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/calve-io/calve/ingest/decode"
)

// Transactions of the source can be kept whole (Limits.Whole): then no commit falls between two events of one. It is of the
// table's own events that this is said, in a topic of one partition, where those of a transaction stand together; tables of
// other topics are committed by pipelines of their own. Nothing in the topic says that a transaction is over but the
// beginning of the next one, so:
//
//	source:     an event of another transaction, and a commit is wanted ─▶ the unit before it goes out
//	committer:  a commit is due inside a transaction ─▶ it wants one, and commits behind the next unit that ends between two
//
// If that does not come within Limits.Whole the transaction counts as over. Units may end inside a transaction, so that one
// of any size needs no more memory than another.
//
// Three commits do not wait: that of a truncate; the one before rows are looked up whose values an event leaves out; and
// the one before a pipeline pauses. A pipeline that ends gives up the events of a transaction that may not be over, and reads
// them again when it goes on; unless it ends because its source is gone.

// wholes is what the source knows of the transaction that it is in. The methods of nil tell of none.
type wholes struct {
	format decode.Format
	id     []byte       // of the last record's transaction
	open   bool         // there may be more events of it
	same   bool         // the last record is of the transaction of the one before
	first  bool         // so is the first record of the unit
	wanted *atomic.Bool // the committer waits for its end
}

func (w *wholes) isOpen() bool      { return w != nil && w.open }
func (w *wholes) begunBefore() bool { return w != nil && w.first }

// again notes that the last record is now the first of a unit.
func (w *wholes) again() {
	if w != nil {
		w.first = w.same
	}
}

// between is called before a record is decoded. If it begins another transaction, and a commit waits for that, what came
// before goes out. A tombstone is of the transaction of the event before it.
func (s *kafkaSource) between(ctx context.Context, r *decode.Record) error {
	w := s.batch.whole
	if w == nil {
		return nil
	}
	if r.Value != nil {
		id := decode.TransactionID(w.format, r.Value)
		if w.same = w.open && bytes.Equal(w.id, id); !w.same {
			w.open, w.first = false, w.first && !s.batch.empty()
			if w.wanted.Load() {
				s.batch.moving = moving{}
				if !s.emitBefore(ctx) {
					return context.Cause(ctx)
				}
				w.first = false
			}
		}
		w.id, w.open = append(w.id[:0], id...), id != nil
	} else {
		w.same = w.open
	}
	if s.batch.empty() {
		w.first = w.same
	}
	return nil
}

// newWholes gives both sides what they need, or says why transactions cannot be kept whole.
func (c *cluster) newWholes(pos *position) (*wholes, error) {
	switch {
	case c.cfg.Limits.Whole <= 0:
		return nil, nil
	case c.cfg.Decode.Format != decode.Debezium:
		return nil, fmt.Errorf("%w: transactions can be kept whole in records of format %q only", ErrConfig, decode.Debezium)
	}
	return &wholes{format: c.cfg.Decode.Format, wanted: &atomic.Bool{}}, checkWhole(c.cfg.Topic, len(pos.next))
}

func checkWhole(topic string, partitions int) error {
	if partitions == 1 {
		return nil
	}
	return fmt.Errorf("%w: topic %q has %d partitions, between which the events of a transaction have no order; transactions can be kept whole where there is one",
		ErrConfig, topic, partitions)
}

// holds puts a commit that is due off, if what was written ends inside a transaction, and reports whether it did.
func (c *committer) holds() bool {
	if !c.inside || c.truncate {
		return false
	}
	c.tick, c.idle = nil, nil
	if c.late == nil {
		c.late = c.env.After(c.limits.Whole)
		c.wanted.Store(true)
	}
	return true
}
