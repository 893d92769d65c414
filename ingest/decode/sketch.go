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
	row     schema.Type // a ROW
	key     []string    // names in the records' keys; nil: none yet
	noKey   bool        // a record had no key that names columns
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
	case FramedJSON:
		if len(row) > frameBytes && row[0] == 0 {
			row = row[frameBytes:]
		}
	}
	if len(row) == 0 {
		return nil // a tombstone says nothing of columns
	}
	t, known, err := Infer(row)
	if err != nil {
		return refuse(err)
	}
	if row = bytes.TrimSpace(row); row[0] != '{' {
		return refuse(fmt.Errorf("want a JSON object, not %s", excerpt(row)))
	}
	if known {
		if t, err = joinRows(s.row, t); err != nil {
			return refuse(err)
		}
		s.row = t
	}
	s.records++
	s.addKey(r.Key)
	return nil
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
	for _, f := range s.row.Fields {
		if _, in := names[f.Name]; in {
			sorted = append(sorted, f.Name)
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
	var out []schema.Column
	for _, f := range s.row.Fields {
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
