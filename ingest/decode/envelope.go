package decode

import (
	"bytes"

	"github.com/calve-io/calve/schema"
)

// Change events: the envelope of Debezium, and tombstones.

// span is where an object stands in a message; zero: the member is missing or null.
type span struct {
	from, to int
	seen     bool
}

// envelope is what was found in the envelope of the record being read. The object "after" is decoded where it stands,
// as most events are inserts and updates. Of "before" only its place and the text of its key are remembered, as few
// events need more.
type envelope struct {
	before, after span
	keys          []span // in before, by key column
	inPayload     bool

	position  logPosition // of the source's "sequence"
	file, pos uint64      // of its binlog
	sequenced bool
	hasFile   bool
}

// readAfter decodes the row in "after".
func (d *jsonDecoder) readAfter(b []byte, i int) int {
	return d.readRow(b, i, &d.envelope.after, &d.row)
}

// readBefore notes the row in "before".
func (d *jsonDecoder) readBefore(b []byte, i int) int {
	return d.readRow(b, i, &d.envelope.before, &d.keyText)
}

// readRow reads an object or null and remembers where it stands.
func (d *jsonDecoder) readRow(b []byte, i int, s *span, p *plan) int {
	if s.seen {
		return d.fail(i, nil, "the envelope has before or after twice")
	}
	s.seen = true
	if i >= len(b) || b[i] != '{' {
		e := literal(b, i, "null")
		if e < 0 {
			return d.fail(i, nil, "before and after must be objects or null")
		}
		return e
	}
	e := d.object(b, i+1, p)
	if e < 0 {
		return -1
	}
	s.from, s.to = i, e
	return e
}

// readKeyText notes where the value of a key column stands.
func (d *jsonDecoder) readKeyText(b []byte, i int, s *span) int {
	if s.seen {
		return d.fail(i, nil, "a key column occurs twice in before")
	}
	e, at := skipValue(b, i, &d.nest)
	if e < 0 {
		return d.fault(e, at, nil)
	}
	*s = span{i, e, true}
	return e
}

// readPayload goes into the payload of a Kafka Connect record with schema.
func (d *jsonDecoder) readPayload(b []byte, i int) int {
	if d.envelope.inPayload {
		e, at := skipValue(b, i, &d.nest)
		if e < 0 {
			return d.fault(e, at, nil)
		}
		return e
	}
	if i >= len(b) || b[i] != '{' {
		return d.fail(i, nil, "the payload is not an object")
	}
	d.envelope.inPayload = true
	if d.cfg.Format == DebeziumFlat {
		return d.object(b, i+1, &d.row)
	}
	return d.object(b, i+1, &d.root)
}

// debezium reads an envelope and makes its rows.
func (d *jsonDecoder) debezium(r *Record) int {
	clear(d.envelope.keys)
	d.envelope = envelope{keys: d.envelope.keys}
	if d.connect(r.Value, &d.root) < 0 {
		return -1
	}
	if !d.op.set {
		return d.fail(-1, nil, "the envelope has no op; is this "+string(JSON)+" rather than "+string(Debezium)+"?")
	}
	env := d.envelope
	if d.again(r) {
		d.begin()
		return 0
	}
	do := d.judge(r, d.op.event, env.before.to > 0, env.after.to > 0)
	switch do {
	case writeNothing:
		d.begin()
		return 0
	case writeFault:
		return -1
	case writeBefore:
		d.begin()
		if d.object(r.Value, env.before.from+1, &d.row) < 0 {
			return -1
		}
		return d.complete(r, schema.Delete)
	}
	if d.complete(r, d.op.kind) < 0 {
		return -1
	}
	d.replace = false
	switch {
	case do == writeBoth:
		d.begin()
		if d.object(r.Value, env.before.from+1, &d.row) < 0 {
			return -1
		}
		return d.complete(r, schema.Delete)
	case do == writeAfterMoved && !d.sameKeyText(r.Value):
		return d.moved(r)
	}
	return 0
}

// flat reads the row that is left of an envelope.
func (d *jsonDecoder) flat(r *Record) int {
	d.deleted, d.envelope.inPayload = false, false
	if d.connect(r.Value, &d.row) < 0 {
		return -1
	}
	ev := d.op.event
	if d.deleted {
		ev = eventDelete
	} else if ev == 0 {
		ev = eventOf(r)
	}
	switch d.judge(r, ev, ev == eventDelete, ev != eventDelete) {
	case writeFault:
		return -1
	case writeBefore:
		d.gone = append(d.gone[:0], r.Key...)
		return d.complete(r, schema.Delete)
	}
	d.gone = d.gone[:0]
	return d.complete(r, ev.kind())
}

// readDeleted reads whether a flat row is a deleted one: "true", "false", true, false or null.
func (d *jsonDecoder) readDeleted(b []byte, i int) int {
	e, at := skipValue(b, i, &d.nest)
	if e < 0 {
		return d.fault(e, at, nil)
	}
	switch string(b[i:e]) {
	case `"true"`, "true":
		d.deleted = true
	case `"false"`, "false", "null":
	default:
		return d.refuse(BadOp, i, nil, "__deleted is neither true nor false")
	}
	return e
}

// sameKeyText reports whether the key is written in before as it is in after. Then it is the same; else it may be.
func (d *jsonDecoder) sameKeyText(b []byte) bool {
	for n, i := range d.keys {
		before, after := d.envelope.keys[n], d.cols[i].text
		if !before.seen || string(b[before.from:before.to]) != string(b[after.from:after.to]) {
			return false
		}
	}
	return true
}

// moved reads the key in before and compares it: if an update changed it, the row under the old key has to go. The two
// rows have different keys, so their order does not matter.
func (d *jsonDecoder) moved(r *Record) int {
	after, from := d.at-1, d.envelope.before.from+1
	d.begin()
	if d.object(r.Value, from, &d.keyOnly) < 0 {
		return -1
	}
	same := true
	for _, i := range d.keys {
		c := &d.cols[i]
		if c.seen != d.attempt || c.isNull(d.at) {
			return d.refuse(NoKey, from-1, c, "is missing or null in before, so the row that the update replaces is not known")
		}
		same = same && c.same(d.at, after)
	}
	d.begin()
	if same {
		return 0
	}
	if d.object(r.Value, from, &d.row) < 0 {
		return -1
	}
	return d.complete(r, schema.Delete)
}

// tombstone reads a record without value.
func (d *jsonDecoder) tombstone(r *Record) int {
	switch {
	case d.cfg.Format == Debezium:
		return 0
	case d.cfg.Format == DebeziumFlat && (len(r.Key) == 0 || bytes.Equal(r.Key, d.gone)):
		return 0 // it follows the row that says so
	}
	if d.keyOfTombstone(r) < 0 {
		return -1
	}
	d.inKey = true
	if d.keyDocument(r.Key) < 0 {
		return -1
	}
	d.inKey = false
	return d.complete(r, schema.Delete)
}

// keyDocument reads the record's key: an object with the key columns, or, for a key of one column, its bare value.
func (d *jsonDecoder) keyDocument(b []byte) int {
	i := space(b, 0)
	if i < len(b) && b[i] == '{' {
		return d.document(b, &d.row)
	}
	if len(d.keys) != 1 {
		return d.fail(i, nil, "want a JSON object with the key columns ("+d.keyNames()+")")
	}
	if i = d.value(b, i, &d.cols[d.keys[0]]); i < 0 {
		return -1
	}
	return d.end(b, i)
}
