package changes

import (
	"fmt"
	"time"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// What is in a stream and is no row:
//
//	gap     changes that were to be told are gone; all rows told before are void, those of a whole snapshot follow
//	schema  the rows that follow are in a new schema
//	end     a snapshot has been told to its end (only where positions are told)
//
// JSON and server-sent events: {"snapshot":N,"event":"gap","from":…,"to":…,"earliest":…,"latest":…} and
// {"snapshot":N,"event":"schema","schema":{…}}. Debezium: op "t" (truncate), and a message with tableChanges as in its
// schema history. CSV: a line N,gap with empty cells, and a line of names. Arrow: another stream, whose metadata tell it.
const (
	gapEvent    = "gap"
	schemaEvent = "schema"
	endEvent    = "end"
)

// eventName names what an item without rows tells; "" for nothing.
func eventName(c *reader.Changes) string {
	switch {
	case c.Complete:
		return endEvent
	case c.Event == nil:
		return ""
	case c.Event.Gap != nil:
		return gapEvent
	case c.Event.Schema != nil && c.Schema != nil:
		return schemaEvent
	}
	return ""
}

// appendEvent appends an event as a JSON object.
func appendEvent(dst []byte, name string, c *reader.Changes) []byte {
	dst = fmt.Appendf(dst, `{"snapshot":%d,"event":"%s"`, c.Snapshot, name)
	switch name {
	case gapEvent:
		g := c.Event.Gap
		dst = fmt.Appendf(dst, `,"from":%d,"to":%d,"earliest":%d,"latest":%d`, g.From, g.To, g.Earliest, g.Latest)
		dst = appendTime(dst, "since", g.Since)
		dst = appendTime(dst, "until", g.Until)
	case schemaEvent:
		dst = append(dst, `,"schema":`...)
		dst = appendSchema(dst, c.Schema)
	}
	return append(dst, '}')
}

func appendTime(dst []byte, name string, at time.Time) []byte {
	if at.IsZero() {
		return dst
	}
	return fmt.Appendf(dst, `,"%s":"%s"`, name, at.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// appendSchema appends a schema's id, fields and keys.
func appendSchema(dst []byte, s *schema.Schema) []byte {
	dst = fmt.Appendf(dst, `{"id":%d,"fields":[`, s.ID)
	for i := range s.Fields {
		f := &s.Fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rowjson.AppendString(fmt.Appendf(dst, `{"id":%d,"name":`, f.ID), f.Name)
		dst = rowjson.AppendString(append(dst, `,"type":`...), f.Type.String())
		dst = append(dst, '}')
	}
	dst = append(dst, `],"primaryKeys":`...)
	return append(appendNames(dst, s.PrimaryKeys), '}')
}

func appendNames(dst []byte, names []string) []byte {
	dst = append(dst, '[')
	for i, n := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rowjson.AppendString(dst, n)
	}
	return append(dst, ']')
}

// happened writes an event as Debezium has it.
func (e *envelopes) happened(c *reader.Changes) {
	switch eventName(c) {
	case gapEvent:
		e.event(nil, nil, nil, 't', c.Snapshot, c.Time.UnixMilli())
	case schemaEvent:
		e.buf = fmt.Appendf(append(append(e.buf, '{'), e.source[1:]...), `%d,"ts_ms":%d},"ts_ms":%d,"tableChanges":[{"type":"ALTER","id":`, c.Snapshot, c.Time.UnixMilli(), c.Time.UnixMilli())
		e.buf = append(rowjson.AppendString(e.buf, fmt.Sprintf("%q.%q", e.from.Database, e.from.Table)), `,"table":{"primaryKeyColumnNames":`...)
		e.buf = append(appendNames(e.buf, c.Schema.PrimaryKeys), `,"columns":[`...)
		for i := range c.Schema.Fields {
			f := &c.Schema.Fields[i]
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.buf = rowjson.AppendString(append(e.buf, `{"name":`...), f.Name)
			typ := f.Type
			optional := !typ.NotNull
			typ.NotNull = false
			e.buf = rowjson.AppendString(append(e.buf, `,"typeName":`...), typ.String())
			e.buf = fmt.Appendf(e.buf, `,"optional":%t,"position":%d}`, optional, i+1)
		}
		e.buf = append(e.buf, "]}}]}"...)
		e.end(nil)
	}
}

// happened writes an event as a line of CSV.
func (t *table) happened(c *reader.Changes) error {
	switch eventName(c) {
	case gapEvent:
		t.buf = fmt.Appendf(t.buf, "%d,%s", c.Snapshot, gapEvent)
		for range max(0, len(t.names)-2) {
			t.buf = append(t.buf, ',')
		}
		t.buf = append(t.buf, '\n')
	case schemaEvent:
		t.names = nil // they come again with the next row
	}
	if len(t.buf) == 0 {
		return nil
	}
	_, err := t.w.Write(t.buf)
	return err
}
