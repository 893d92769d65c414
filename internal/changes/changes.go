// Package changes writes a change stream for others to read: as JSON lines, as Debezium envelopes, as CSV or as an Arrow
// stream.
package changes

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// Formats of the output. Each tells events of the stream too: see events.go.
const (
	JSON     = "json"     // {"snapshot":N,"kind":"+I","row":{…}}
	SSE      = "sse"      // the same as server-sent events
	Debezium = "debezium" // {"before":…,"after":…,"source":{…},"op":"c","ts_ms":…}
	CSV      = "csv"      // snapshot,kind,columns…
	Arrow    = "arrow"    // an Arrow IPC stream with the columns _snapshot and _kind in front
)

// Formats are those that people choose from.
var Formats = []string{JSON, Debezium, CSV, Arrow}

// Options say what an encoder is to write.
type Options struct {
	Source // of Debezium envelopes
	// Positions has each JSON line, each server-sent event (as its id) and each Arrow row (column _at) tell the position
	// behind it, as reader.ParsePosition reads it, and JSON the end of each snapshot.
	Positions bool
}

// Source is what a Debezium envelope tells of the table.
type Source struct{ Database, Table string }

// Encoder writes changes in one format. It is for one goroutine, and must be given all items of the stream, closing items
// too. Nothing of a snapshot is held back after its closing item.
type Encoder interface {
	Write(reader.Changes) error
	// Close ends what was written; it does not close what it was written to.
	Close() error
}

// New makes an encoder.
func New(format string, w io.Writer, o Options) (Encoder, error) {
	switch format {
	case JSON, SSE:
		return &lines{w: w, positions: o.Positions, sse: format == SSE}, nil
	case Debezium:
		return newEnvelopes(w, o.Source), nil
	case CSV:
		return &table{w: w}, nil
	case Arrow:
		return &stream{w: w, positions: o.Positions}, nil
	}
	return nil, fmt.Errorf("format %q: there are %s", format, strings.Join(Formats, ", "))
}

// ContentType is the media type of a format.
func ContentType(format string) string {
	switch format {
	case CSV:
		return "text/csv; charset=utf-8"
	case Arrow:
		return "application/vnd.apache.arrow.stream"
	case SSE:
		return "text/event-stream"
	}
	return "application/x-ndjson"
}

func kindAt(c *reader.Changes, i int) schema.RowKind {
	if c.RowKinds == nil {
		return schema.Insert
	}
	return c.RowKinds[i]
}

// lines writes a JSON object a line, or as the data of a server-sent event.
type lines struct {
	w         io.Writer
	positions bool
	sse       bool
	buf       []byte
}

// Write implements Encoder.
func (l *lines) Write(c reader.Changes) error {
	l.buf = l.buf[:0]
	if c.Rec == nil {
		name := eventName(&c)
		if name == "" || name == endEvent && !l.positions {
			return nil
		}
		l.begin(name, c.After(0))
		l.buf = appendEvent(l.buf, name, &c)
		l.end(c.After(0))
		_, err := l.w.Write(l.buf)
		return err
	}
	enc := rowjson.NewEncoder(c.Rec.Schema())
	head := fmt.Appendf(nil, `{"snapshot":%d,"kind":"`, c.Snapshot)
	for i := range int(c.Rec.NumRows()) {
		at := c.After(int64(i) + 1)
		l.begin("", at)
		l.buf = append(append(append(l.buf, head...), kindAt(&c, i).String()...), `","row":`...)
		l.buf = append(enc.Append(l.buf, c.Rec, i), '}')
		l.end(at)
	}
	_, err := l.w.Write(l.buf)
	return err
}

func (l *lines) begin(event string, at reader.Position) {
	if !l.sse {
		return
	}
	if event != "" {
		l.buf = append(append(append(l.buf, "event: "...), event...), '\n')
	}
	if l.positions {
		l.buf = append(at.Append(append(l.buf, "id: "...)), '\n')
	}
	l.buf = append(l.buf, "data: "...)
}

// end closes the line of an object; without server-sent events the position goes into the object.
func (l *lines) end(at reader.Position) {
	if l.sse {
		l.buf = append(l.buf, "\n\n"...)
		return
	}
	if l.positions {
		l.buf = append(l.buf[:len(l.buf)-1], `,"at":"`...)
		l.buf = append(at.Append(l.buf), `"}`...)
	}
	l.buf = append(l.buf, '\n')
}

// Close implements Encoder.
func (l *lines) Close() error { return nil }

// envelopes writes Debezium's envelope without schema block a line. An update told as -U and +U of one key is one event
// with both images; one told as +U alone has no image from before. If the key is not among the columns that are told, a +U
// belongs to the -U before it.
type envelopes struct {
	w      io.Writer
	from   Source
	source []byte // `,"source":{…` up to the snapshot
	buf    []byte
	before []byte // the row of a -U whose +U is still to come; nil: none
	key    []byte // of it
	ts     int64
	snap   int64
	at     []int  // columns of the key; nil: not all of them are told
	next   []byte // scratch: a key, as a JSON object
	// each, when not nil, is given every event with its key, instead of a line of buf. The key is empty if there is none.
	each func(key, event []byte)
}

func newEnvelopes(w io.Writer, from Source) *envelopes {
	s := append([]byte(nil), `,"source":{"connector":"calve","db":`...)
	s = append(rowjson.AppendString(s, from.Database), `,"table":`...)
	return &envelopes{w: w, from: from, source: append(rowjson.AppendString(s, from.Table), `,"snapshot_id":`...)}
}

// Write implements Encoder.
func (e *envelopes) Write(c reader.Changes) error {
	e.buf = e.buf[:0]
	if c.Rec != nil {
		e.rows(&c)
	} else {
		e.settle()
		e.happened(&c)
	}
	_, err := e.w.Write(e.buf)
	return err
}

func (e *envelopes) rows(c *reader.Changes) {
	enc := rowjson.NewEncoder(c.Rec.Schema())
	e.at = keyColumns(c)
	for i := range int(c.Rec.NumRows()) {
		row := enc.Append(nil, c.Rec, i)
		kind := kindAt(c, i)
		e.next = appendKey(e.next[:0], c, e.at, i)
		if kind == schema.UpdateAfter {
			if !bytes.Equal(e.key, e.next) {
				e.settle()
			}
			e.event(e.next, e.before, row, 'u', c.Snapshot, c.Time.UnixMilli())
			e.before = nil
			continue
		}
		e.settle()
		switch {
		case kind == schema.UpdateBefore:
			e.before, e.snap, e.ts = row, c.Snapshot, c.Time.UnixMilli()
			e.key = append(e.key[:0], e.next...)
		case kind == schema.Delete:
			e.event(e.next, row, nil, 'd', c.Snapshot, c.Time.UnixMilli())
		case c.State:
			e.event(e.next, nil, row, 'r', c.Snapshot, c.Time.UnixMilli())
		default:
			e.event(e.next, nil, row, 'c', c.Snapshot, c.Time.UnixMilli())
		}
	}
}

// keyColumns finds the columns of the primary key.
func keyColumns(c *reader.Changes) []int {
	if c.Schema == nil {
		return nil
	}
	var out []int
	for _, name := range c.Schema.PrimaryKeys {
		at := c.Rec.Schema().FieldIndices(name)
		if len(at) == 0 {
			return nil
		}
		out = append(out, at[0])
	}
	return out
}

// appendKey appends the key of a row as a JSON object; nothing if it has none.
func appendKey(dst []byte, c *reader.Changes, at []int, row int) []byte {
	for i, col := range at {
		dst = append(dst, "{,"[min(i, 1)])
		dst = append(rowjson.AppendString(dst, c.Rec.ColumnName(col)), ':')
		dst = rowjson.AppendValue(dst, c.Rec.Column(col), row)
	}
	if len(at) > 0 {
		dst = append(dst, '}')
	}
	return dst
}

// settle tells a -U after which no +U came: the row is gone.
func (e *envelopes) settle() {
	if e.before != nil {
		e.event(e.key, e.before, nil, 'd', e.snap, e.ts)
		e.before = nil
	}
}

func (e *envelopes) event(key, before, after []byte, op byte, snapshot, ts int64) {
	e.buf = append(append(e.buf, `{"before":`...), orNull(before)...)
	e.buf = append(append(e.buf, `,"after":`...), orNull(after)...)
	e.buf = fmt.Appendf(append(e.buf, e.source...), `%d,"ts_ms":%d},"op":"%c","ts_ms":%d}`, snapshot, ts, op, ts)
	e.end(key)
}

// end ends an event.
func (e *envelopes) end(key []byte) {
	if e.each == nil {
		e.buf = append(e.buf, '\n')
		return
	}
	e.each(key, e.buf)
	e.buf = e.buf[:0]
}

func orNull(row []byte) []byte {
	if row == nil {
		return []byte("null")
	}
	return row
}

// Close implements Encoder.
func (e *envelopes) Close() error {
	e.buf = e.buf[:0]
	e.settle()
	_, err := e.w.Write(e.buf)
	return err
}

// table writes CSV (RFC 4180): a line of names, and again when the columns change, in which the first is "snapshot"; then a
// line for each change. Nothing between two commas is null, "" an empty text; nested values are JSON.
type table struct {
	w     io.Writer
	names []string
	buf   []byte
	cell  []byte
}

// Write implements Encoder.
func (t *table) Write(c reader.Changes) error {
	t.buf = t.buf[:0]
	if c.Rec == nil {
		return t.happened(&c)
	}
	names := []string{"snapshot", "kind"}
	for _, f := range c.Rec.Schema().Fields() {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, t.names) {
		t.names = names
		for i, n := range names {
			t.next(i)
			t.buf = quoted(t.buf, []byte(n))
		}
		t.buf = append(t.buf, '\n')
	}
	for i := range int(c.Rec.NumRows()) {
		t.buf = fmt.Appendf(t.buf, "%d,%s", c.Snapshot, kindAt(&c, i))
		for _, col := range c.Rec.Columns() {
			if t.buf = append(t.buf, ','); col.IsNull(i) {
				continue
			}
			t.cell = rowjson.AppendValue(t.cell[:0], col, i)
			t.buf = quoted(t.buf, unquoted(t.cell))
		}
		t.buf = append(t.buf, '\n')
	}
	_, err := t.w.Write(t.buf)
	return err
}

func (t *table) next(i int) {
	if i > 0 {
		t.buf = append(t.buf, ',')
	}
}

// Close implements Encoder.
func (t *table) Close() error { return nil }
