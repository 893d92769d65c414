package changes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// Record is a message of a topic: nil is no key, or as a value a tombstone, which deletes the key.
type Record struct{ Key, Value []byte }

// ErrRecords: the changes of this table cannot be told as records of this format.
var ErrRecords = errors.New("changes cannot be told as records")

// Records makes messages of changes. With JSON a message is the row as it is now, and a tombstone when it is gone: a topic
// that is compacted has the table. With Debezium it is an envelope, and schema changes are messages without key. Keys are
// the primary key as a JSON object. It is for one goroutine and must be given all items of the stream.
type Records struct {
	upsert bool
	env    *envelopes // Debezium
	out    []Record
	gone   []byte // key of a -U whose +U is still to come
}

// NewRecords makes a maker of records: of JSON or Debezium.
func NewRecords(format string, from Source) (*Records, error) {
	r := &Records{upsert: format == JSON}
	switch format {
	case JSON:
	case Debezium:
		r.env = newEnvelopes(nil, from)
		r.env.each = func(key, event []byte) {
			r.out = append(r.out, Record{Key: nilIfEmpty(key), Value: slices.Clone(event)})
		}
	default:
		return nil, fmt.Errorf("format %q: records are %s or %s", format, JSON, Debezium)
	}
	return r, nil
}

func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return slices.Clone(b)
}

// Held reports whether something of what was given is still to be told, with the next item.
func (r *Records) Held() bool {
	return r.gone != nil || r.env != nil && r.env.before != nil
}

// Append appends the records of an item; they are the caller's.
func (r *Records) Append(dst []Record, c reader.Changes) ([]Record, error) {
	r.out = dst
	switch {
	case r.env != nil && c.Rec != nil:
		if len(keyColumns(&c)) == 0 && c.Schema != nil && c.Schema.Keyed() { // and changes of a row would have no order
			return dst, noKey(&c)
		}
		r.env.rows(&c)
	case r.env != nil:
		r.env.settle()
		r.env.happened(&c)
	case c.Rec != nil:
		if err := r.upserts(&c); err != nil {
			return dst, err
		}
	case c.Event != nil && c.Event.Gap != nil:
		return dst, fmt.Errorf("%w: a gap cannot be told by rows and tombstones, as nobody knows which keys are gone; use Debezium envelopes", ErrRecords)
	default:
		r.settle()
	}
	dst, r.out = r.out, nil
	return dst, nil
}

func noKey(c *reader.Changes) error {
	return fmt.Errorf("%w: the columns %v of the primary key are not all among those that are told", ErrRecords, c.Schema.PrimaryKeys)
}

// settle tells a -U after which no +U came.
func (r *Records) settle() {
	if r.gone != nil {
		r.out = append(r.out, Record{Key: r.gone})
		r.gone = nil
	}
}

func (r *Records) upserts(c *reader.Changes) error {
	at := keyColumns(c)
	if len(at) == 0 && c.Schema != nil && c.Schema.Keyed() {
		return noKey(c)
	}
	enc := rowjson.NewEncoder(c.Rec.Schema())
	for i := range int(c.Rec.NumRows()) {
		kind := kindAt(c, i)
		key := appendKey(nil, c, at, i)
		if r.gone != nil && (kind != schema.UpdateAfter || !bytes.Equal(r.gone, key)) {
			r.settle()
		}
		r.gone = nil
		switch {
		case kind.IsAdd():
			r.out = append(r.out, Record{Key: key, Value: enc.Append(nil, c.Rec, i)})
		case key == nil:
			return fmt.Errorf("%w: a table without primary key has a %s, and there is no key to delete; use Debezium envelopes", ErrRecords, kind)
		case kind == schema.UpdateBefore:
			r.gone = key
		default:
			r.out = append(r.out, Record{Key: key})
		}
	}
	return nil
}
