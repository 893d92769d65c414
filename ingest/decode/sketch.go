package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/schema"
)

// Sketch gathers from the first records of a topic what a table for them would need: the columns in the order in which
// they come up, with the types that Infer gives them, and the key. It is not safe for concurrent use.
type Sketch struct {
	format  Format
	op      string
	row     schema.Type     // a ROW
	said    []schema.Column // what schemas in the records say (Kafka Connect's JSON converter)
	key     []string        // names in the records' keys; nil: none yet
	noKey   bool            // a record had no key that names columns
	records int
}

// frameBytes is what stands before JSON whose schema a registry has: a zero and the schema's id.
const frameBytes = 5

// NewSketch begins a sketch of records in one of the forms; op is the field that holds the row kind (DecoderConfig.OpField).
func NewSketch(format Format, op string) *Sketch {
	if op == "" {
		op = "op"
	}
	return &Sketch{format: format, op: op, row: schema.Type{Root: schema.Row}}
}

// Add looks at a record. An error, which matches ErrRow, says that the record is no such record, or that it fits no
// column that the records before it made; it has left no trace then.
func (s *Sketch) Add(r *Record) error {
	refuse := func(err error) error { return &RowError{Offset: -1, Reason: err.Error()} }
	row := r.Value
	switch s.format {
	case Debezium:
		var err error
		if row, err = rowOfEnvelope(r.Value); err != nil {
			return refuse(err)
		}
	case DebeziumFlat:
		if m := messageOf(row); m != nil {
			row = m.Payload
		}
	case FramedJSON:
		if len(row) > frameBytes && row[0] == 0 {
			row = row[frameBytes:]
		}
	}
	if len(row) == 0 || string(row) == "null" {
		return nil // a tombstone says nothing of columns
	}
	m := messageOf(r.Value)
	if columns := s.declared(m); columns != nil {
		s.declare(columns)
	} else if err := s.infer(row); err != nil {
		return refuse(err)
	}
	s.records++
	s.addKey(r.Key)
	return nil
}

// infer takes the columns that a row's values show.
func (s *Sketch) infer(row []byte) error {
	t, known, err := Infer(row)
	if err != nil {
		return err
	}
	if row = bytes.TrimSpace(row); row[0] != '{' {
		return fmt.Errorf("want a JSON object, not %s", excerpt(row))
	}
	if known {
		if t, err = joinRows(s.row, t); err != nil {
			return err
		}
		s.row = t
	}
	return nil
}

// declared gives the columns that a message says itself.
func (s *Sketch) declared(m *message) []schema.Column {
	if m == nil || !s.format.Events() {
		return nil
	}
	return columnsOfConnect(m.Schema, s.format)
}

// message is what Kafka Connect's JSON converter writes with schemas.
type message struct{ Schema, Payload json.RawMessage }

// messageOf reads a message that begins with its schema; nil if it is none.
func messageOf(value []byte) *message {
	if !bytes.HasPrefix(value, schemaFirst) {
		return nil
	}
	m := &message{}
	if json.Unmarshal(value, m) != nil || len(m.Schema) == 0 || m.Schema[0] != '{' {
		return nil
	}
	return m
}

// declare takes the columns that a schema says: a later one adds to those before.
func (s *Sketch) declare(columns []schema.Column) {
	for _, c := range columns {
		if s.format == DebeziumFlat && strings.HasPrefix(c.Name, "__") {
			continue
		}
		if !slices.ContainsFunc(s.said, func(o schema.Column) bool { return o.Name == c.Name }) {
			s.said = append(s.said, c)
		}
	}
}

// rowOfEnvelope gives the row in a change event, after it or before it; none for a tombstone or an event without rows.
func rowOfEnvelope(value []byte) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	var e struct {
		Before, After json.RawMessage
		Payload       *struct{ Before, After json.RawMessage }
	}
	if err := json.Unmarshal(value, &e); err != nil {
		return nil, fmt.Errorf("malformed JSON: %w", err)
	}
	if e.Payload != nil {
		e.Before, e.After = e.Payload.Before, e.Payload.After
	}
	for _, row := range []json.RawMessage{e.After, e.Before} {
		if len(row) > 0 && string(row) != "null" {
			return row, nil
		}
	}
	return nil, nil
}

// addKey notes the names in a record's key: a JSON object, bare or as the payload of a Kafka Connect record.
func (s *Sketch) addKey(key []byte) {
	if s.noKey {
		return
	}
	names, ok := namesOf(key)
	if payload, has := names["payload"]; ok && has && len(names) == 2 {
		names, ok = namesOf(payload)
	}
	sorted := make([]string, 0, len(names))
	for _, c := range s.Columns() {
		if _, in := names[c.Name]; in {
			sorted = append(sorted, c.Name)
		}
	}
	if !ok || len(sorted) == 0 || len(sorted) < len(names) || s.key != nil && !slices.Equal(s.key, sorted) {
		s.noKey, s.key = true, nil
		return
	}
	s.key = sorted
}

func namesOf(object []byte) (names map[string]json.RawMessage, ok bool) {
	return names, len(object) > 0 && json.Unmarshal(object, &names) == nil && names != nil
}

// Records is the number of records that the sketch is made of.
func (s *Sketch) Records() int { return s.records }

// Columns gives the columns so far. In change events and rows with a row kind, the field of the kind is none.
func (s *Sketch) Columns() []schema.Column {
	out := slices.Clone(s.said)
	for _, f := range s.row.Fields {
		if slices.ContainsFunc(out, func(c schema.Column) bool { return c.Name == f.Name }) {
			continue
		}
		switch {
		case (s.format == JSON || s.format == FramedJSON) && f.Name == s.op && f.Type.Equal(textType):
			continue
		case s.format == DebeziumFlat && strings.HasPrefix(f.Name, "__"):
			continue // what the transformation adds
		}
		out = append(out, schema.Column{Name: f.Name, Type: f.Type})
	}
	return out
}

// Key gives the columns that the keys of all records name; none if a record has no such key.
func (s *Sketch) Key() []string { return slices.Clone(s.key) }
