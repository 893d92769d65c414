package decode

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/calve-io/calve/schema"
)

// Kafka Connect's JSON converter puts the schema of a payload before it ("schemas.enable"), some kilobytes that say the
// same each time. Each different schema is read once; after that its bytes are compared.

// manner is how the values of a column come, as far as its type leaves it open.
type manner struct {
	unit     int  // decimal places below a second of numbers that are times
	binary   bool // decimals come as bytes
	scale    int  // of them
	unsigned bool
}

// connectSchema is what a schema says of the columns of the table.
type connectSchema struct {
	raw   []byte
	cols  []manner
	types map[string]schema.Type // of the fields of rows, where records may add columns
}

// maxConnectSchemas bounds the schemas that are remembered, and with maxConnectBytes the memory for them.
const (
	maxConnectSchemas = 64
	maxConnectBytes   = 1 << 20
)

// readSchema reads the schema before a payload.
func (d *jsonDecoder) readSchema(b []byte, i int) int {
	d.late = d.late || d.envelope.inPayload
	// What was read is a whole object: a text that begins with it has the same object there.
	if s := d.schema; s != nil && bytes.HasPrefix(b[i:], s.raw) {
		return i + len(s.raw)
	}
	for _, s := range d.schemas {
		if bytes.HasPrefix(b[i:], s.raw) {
			d.apply(s)
			return i + len(s.raw)
		}
	}
	e, at := skipValue(b, i, &d.nest)
	if e < 0 {
		return d.fault(e, at, nil)
	}
	if b[i] != '{' { // null: as if there were none
		return e
	}
	s := d.parseSchema(b[i:e])
	if len(d.schemas) >= maxConnectSchemas {
		d.schemas = d.schemas[:0]
	}
	if len(s.raw) <= maxConnectBytes/maxConnectSchemas {
		d.schemas = append(d.schemas, s)
	}
	d.apply(s)
	return e
}

// apply has the columns read as a schema says.
func (d *jsonDecoder) apply(s *connectSchema) {
	d.schema = s
	for i := range d.cols {
		d.cols[i].setManner(s.cols[i])
	}
}

// connect reads a message with plan p, whose columns come as the schema in it says; as configured if there is none.
func (d *jsonDecoder) connect(b []byte, p *plan) int {
	if d.schema != nil && !bytes.HasPrefix(b, schemaFirst) {
		d.unapply()
	}
	d.late = false
	e := d.document(b, p)
	if e < 0 || !d.late {
		return e
	}
	// The schema came after the payload: now it is known.
	d.begin()
	clear(d.envelope.keys)
	d.envelope, d.op, d.deleted, d.wishes = envelope{keys: d.envelope.keys}, opState{}, false, d.wishes[:0]
	return d.document(b, p)
}

var schemaFirst = []byte(`{"schema":`)

// unapply has the columns read as the configuration says, for a record without schema.
func (d *jsonDecoder) unapply() {
	d.schema = nil
	for i := range d.cols {
		d.cols[i].setManner(d.manners[i])
	}
}

func (c *column) setManner(m manner) {
	c.unit, c.binary, c.scale, c.unsigned = m.unit, m.binary, m.scale, m.unsigned
	for i := range c.kids {
		k := &c.kids[i]
		if c.shape == shapeList && k.shape != shapeStruct {
			k.setManner(m)
		}
	}
}

// connectField is a field of a schema.
type connectField struct {
	Type       string
	Name       string // of its meaning
	Field      string
	Fields     []connectField
	Items      *connectField
	Keys       *connectField
	Values     *connectField
	Parameters map[string]string
}

// parseSchema works out the manners of the columns from a schema: that of an envelope, whose rows are in "after" and
// "before", or of a row.
func (d *jsonDecoder) parseSchema(raw []byte) *connectSchema {
	s := &connectSchema{raw: bytes.Clone(raw), cols: make([]manner, len(d.cols))}
	copy(s.cols, d.manners)
	var root connectField
	if json.Unmarshal(raw, &root) != nil {
		return s // columns are read as without it
	}
	if d.cfg.Evolution.Adds() {
		s.types = map[string]schema.Type{}
		for _, c := range columnsOfConnect(raw, d.cfg.Format) {
			s.types[c.Name] = c.Type
		}
	}
	d.tell(s, root.rows(d.cfg.Format))
	return s
}

// tell notes how the columns of fields come.
func (d *jsonDecoder) tell(s *connectSchema, fields []connectField) {
	for i := range fields {
		for c := range d.cols {
			if d.cols[c].name == fields[i].Field && d.cols[c].meta == metaNone {
				s.cols[c] = fields[i].manner(s.cols[c])
			}
		}
	}
}

// manner is how values of the field come. What the schema does not say stays as it was.
func (f *connectField) manner(m manner) manner {
	if f.Type == "array" && f.Items != nil {
		return f.Items.manner(m)
	}
	m.binary = false
	switch f.meaning() {
	case "Decimal":
		m.binary = true
		if n, err := strconv.Atoi(f.Parameters["scale"]); err == nil && n >= 0 && n <= maxScale {
			m.scale = n
		}
	case "VariableScaleDecimal":
		m.binary = true
	case "Timestamp", "Time":
		m.unit = 3
	case "MicroTimestamp", "MicroTime":
		m.unit = 6
	case "NanoTimestamp", "NanoTime":
		m.unit = 9
	}
	m.unsigned = m.unsigned || f.unsigned()
	return m
}
