package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/schema"
)

// maxJSONSchema bounds a schema's bytes, with those of what it refers to; real ones stay far below.
const maxJSONSchema = 4 << 20

// ColumnsOfJSONSchema gives the columns of a table for records of a JSON Schema whose root is an object.
//
//	boolean                             BOOLEAN
//	integer; format int32               BIGINT; INT
//	number; format float                DOUBLE; FLOAT
//	string; format date-time, date      STRING; TIMESTAMP(6) WITH LOCAL TIME ZONE, DATE
//	string, contentEncoding base64      BYTES
//	object with properties              ROW
//	object with additionalProperties    MAP<STRING, …>, if these have a schema
//	array                               ARRAY
//	oneOf, anyOf of null and another    the other; of integer and number DOUBLE
//	allOf                               all of them together
//	$ref                                what it refers to, in the document or one that the registry has for it
//	const, enum                         the type of its values
//
// Where Kafka Connect wrote the schema, connect.type and its titles say more: int8, int16, float32, bytes, map, and the
// logical types Decimal, Date, Time and Timestamp, also Debezium's. Anything else that a value may be is kept as its JSON
// in a STRING: other unions, arrays without items, objects of which nothing is said, and what contains itself. Objects that
// can have no members give no column. Columns take nulls: a later schema may lack the property.
func ColumnsOfJSONSchema(w WriterSchema) ([]schema.Column, error) {
	root, err := connectOf(w)
	if err != nil {
		return nil, err
	}
	var out []schema.Column
	for i := range root.Fields {
		if t, ok := root.Fields[i].column(0); ok {
			out = append(out, schema.Column{Name: root.Fields[i].Field, Type: t})
		}
	}
	return out, nil
}

// connectOf gives a JSON Schema's root in the form that Kafka Connect's schemas have.
func connectOf(w WriterSchema) (connectField, error) {
	if w.Kind != JSONSchema {
		return connectField{}, fmt.Errorf("the schema is of kind %s, not %s", w.Kind, JSONSchema)
	}
	m := schemaMapper{docs: map[string]json.RawMessage{"": json.RawMessage(w.Text)}, places: map[string]map[string]json.RawMessage{}, nodes: map[*byte]*jsonNode{}}
	size := len(w.Text)
	for _, r := range w.References {
		m.docs[r.Name], size = json.RawMessage(r.Text), size+len(r.Text)
	}
	if size > maxJSONSchema {
		return connectField{}, fmt.Errorf("the schema has %d bytes, more than %d", size, maxJSONSchema)
	}
	if !json.Valid([]byte(w.Text)) {
		return connectField{}, errors.New("the schema is no JSON")
	}
	root := m.field(m.docs[""], "", 0)
	if root.Type != "struct" {
		return root, errors.New("the schema's root is not an object with properties")
	}
	return root, nil
}

// jsonNode is what is read of a schema.
type jsonNode struct {
	Ref        string            `json:"$ref"`
	Type       jsonTypes         `json:"type"`
	Format     string            `json:"format"`
	Title      string            `json:"title"`
	Encoding   string            `json:"contentEncoding"`
	Connect    string            `json:"connect.type"`
	Index      *int              `json:"connect.index"`
	Parameters map[string]string `json:"connect.parameters"`
	Properties jsonProperties    `json:"properties"`
	Additional json.RawMessage   `json:"additionalProperties"`
	Items      json.RawMessage   `json:"items"`
	OneOf      []json.RawMessage `json:"oneOf"`
	AnyOf      []json.RawMessage `json:"anyOf"`
	AllOf      []json.RawMessage `json:"allOf"`
	Enum       []json.RawMessage `json:"enum"`
	Const      json.RawMessage   `json:"const"`

	values *connectField // nil: Enum and Const were not looked at
}

// jsonTypes are the types of a schema, without null.
type jsonTypes struct {
	names []string
	null  bool
}

// UnmarshalJSON reads one name or a list of them.
func (t *jsonTypes) UnmarshalJSON(b []byte) error {
	var all []string
	if len(b) > 0 && b[0] == '"' {
		all = make([]string, 1)
		if err := json.Unmarshal(b, &all[0]); err != nil {
			return err
		}
	} else if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for _, name := range all {
		if name == "null" {
			t.null = true
		} else {
			t.names = append(t.names, name)
		}
	}
	return nil
}

// jsonProperties are members in the order of the document.
type jsonProperties []jsonProperty

type jsonProperty struct {
	name string
	raw  json.RawMessage
}

// UnmarshalJSON reads an object.
func (p *jsonProperties) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return fmt.Errorf("properties are no object: %w", err)
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := tok.(string)
		x := jsonProperty{name: name}
		if err := dec.Decode(&x.raw); err != nil {
			return err
		}
		*p = append(*p, x)
	}
	return nil
}

// schemaMapper turns a schema into fields of Connect.
type schemaMapper struct {
	docs   map[string]json.RawMessage
	places map[string]map[string]json.RawMessage // objects that references went through
	nodes  map[*byte]*jsonNode                   // of what was read, by where it begins: references lead there again
	refs   []string                              // that are being followed
	count  int
}

// anything is the field of values that are kept as JSON, nothing that of values of which none is kept.
var anything, nothing = connectField{Type: "string"}, connectField{Type: "struct"}

// field gives the field for a schema in a document.
func (m *schemaMapper) field(raw json.RawMessage, doc string, depth int) connectField {
	if m.count++; m.count > maxColumnTypes || depth > maxInferDepth {
		return anything
	}
	n := m.read(raw)
	if n == nil || len(n.Type.names) > maxJSONTypes {
		return anything
	}
	if n.Ref != "" {
		return m.follow(n.Ref, doc, depth)
	}
	if len(n.AllOf) > 0 {
		return m.all(n, doc, depth)
	}
	if of := slices.Concat(n.OneOf, n.AnyOf); len(of) > 0 && len(n.Properties) == 0 {
		return m.union(of, doc, depth)
	}
	switch len(n.Type.names) {
	case 0:
		switch {
		case n.Type.null:
			return nothing
		case len(n.Properties) > 0:
			return m.object(n, doc, depth)
		}
		if n.values == nil {
			v := fieldOfValues(append(n.Enum, n.Const))
			n.values = &v
		}
		return *n.values
	case 1:
		return m.single(n.Type.names[0], n, doc, depth)
	}
	var fields []connectField
	for _, name := range n.Type.names {
		fields = append(fields, m.single(name, n, doc, depth))
	}
	return joinFields(fields)
}

// maxJSONTypes bounds the types that one value may be of: there are seven.
const maxJSONTypes = 7

// read reads a schema; nil: it is none. Each is read once, however many references lead to it, or to what it is in.
func (m *schemaMapper) read(raw json.RawMessage) *jsonNode {
	if len(raw) == 0 {
		return nil
	}
	n, ok := m.nodes[&raw[0]]
	if !ok {
		if n = new(jsonNode); json.Unmarshal(raw, n) != nil {
			n = nil
		}
		m.nodes[&raw[0]] = n
	}
	return n
}

// follow gives what a reference refers to: a document and a place in it, as a JSON pointer (RFC 6901).
func (m *schemaMapper) follow(ref, doc string, depth int) connectField {
	name, pointer, _ := strings.Cut(ref, "#")
	if name == "" {
		name = doc
	}
	id := name + "#" + pointer
	raw, ok := m.docs[name]
	if !ok || slices.Contains(m.refs, id) {
		return anything
	}
	if pointer != "" && pointer[0] != '/' {
		return anything
	}
	for end := 0; end < len(pointer); {
		from := end + 1
		if end = strings.IndexByte(pointer[from:], '/') + from; end < from {
			end = len(pointer)
		}
		step, err := url.PathUnescape(pointer[from:end])
		if err != nil {
			return anything
		}
		raw = m.members(name+"#"+pointer[:from-1], raw)[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	m.refs = append(m.refs, id)
	defer func() { m.refs = m.refs[:len(m.refs)-1] }()
	return m.field(raw, name, depth+1)
}

// members gives those of an object or a list, which stands at a place, by name or number. Each is looked at once.
func (m *schemaMapper) members(place string, raw json.RawMessage) map[string]json.RawMessage {
	out, ok := m.places[place]
	if ok {
		return out
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &out) != nil && json.Unmarshal(raw, &list) == nil {
		out = map[string]json.RawMessage{}
		for i, x := range list {
			out[strconv.Itoa(i)] = x
		}
	}
	m.places[place] = out
	return out
}

// union gives what may be one of several things.
func (m *schemaMapper) union(of []json.RawMessage, doc string, depth int) connectField {
	var fields []connectField
	for _, raw := range of {
		if n := m.read(raw); n != nil && n.Type.null && len(n.Type.names) == 0 {
			m.count++
			continue
		}
		fields = append(fields, m.field(raw, doc, depth+1))
	}
	if len(fields) == 0 {
		return nothing
	}
	return joinFields(fields)
}

// joinFields gives the field that holds the values of all: the same, or numbers.
func joinFields(fields []connectField) connectField {
	out := fields[0]
	for _, f := range fields[1:] {
		switch {
		case out.Type == f.Type && out.Name == f.Name && out.Type != "struct" && out.Type != "array" && out.Type != "map":
		case out.Name == "" && f.Name == "" && isNumeral(out.Type) && isNumeral(f.Type):
			out = connectField{Type: "float64"}
		default:
			return anything
		}
	}
	return out
}

func isNumeral(t string) bool {
	return strings.HasPrefix(t, "int") || strings.HasPrefix(t, "float")
}

// all gives what has the properties of several schemas.
func (m *schemaMapper) all(n *jsonNode, doc string, depth int) connectField {
	fields := []connectField{}
	if len(n.Properties) > 0 {
		fields = append(fields, m.object(n, doc, depth))
	}
	for _, raw := range n.AllOf {
		fields = append(fields, m.field(raw, doc, depth+1))
	}
	out := fields[0]
	for _, f := range fields[1:] {
		if out.Type != "struct" || f.Type != "struct" {
			continue // further conditions of the first
		}
		for _, x := range f.Fields {
			if !slices.ContainsFunc(out.Fields, func(o connectField) bool { return o.Field == x.Field }) {
				out.Fields = append(out.Fields, x)
			}
		}
	}
	return out
}

// fieldOfValues gives what can be one of some values.
func fieldOfValues(values []json.RawMessage) connectField {
	var fields []connectField
	for _, v := range values {
		switch t, known, err := Infer(v); {
		case len(v) == 0 || err == nil && !known:
		case err != nil:
			return anything
		case t.Root == schema.Boolean:
			fields = append(fields, connectField{Type: "boolean"})
		case t.Root == schema.BigInt:
			fields = append(fields, connectField{Type: "int64"})
		case t.Root == schema.Double:
			fields = append(fields, connectField{Type: "float64"})
		default:
			fields = append(fields, anything)
		}
	}
	if len(fields) == 0 {
		return anything
	}
	return joinFields(fields)
}

// single gives the field of one type.
func (m *schemaMapper) single(name string, n *jsonNode, doc string, depth int) connectField {
	out := connectField{Type: n.Connect, Parameters: n.Parameters}
	if strings.HasPrefix(n.Title, "org.apache.kafka.connect.data.") || strings.HasPrefix(n.Title, "io.debezium.") {
		out.Name = n.Title
	}
	switch name {
	case "boolean":
		out.Type = "boolean"
	case "integer":
		if !isNumeral(out.Type) {
			if out.Type = "int64"; n.Format == "int32" {
				out.Type = "int32"
			}
		}
	case "number":
		if !isNumeral(out.Type) && out.Type != "bytes" {
			if out.Type = "float64"; n.Format == "float" {
				out.Type = "float32"
			}
		}
	case "string":
		switch {
		case out.Type == "bytes" || n.Encoding == "base64":
			out.Type = "bytes"
		default:
			if out.Type = "string"; out.Name == "" {
				out.Name = map[string]string{"date-time": "io.debezium.time.ZonedTimestamp", "date": "org.apache.kafka.connect.data.Date"}[n.Format]
			}
		}
	case "array":
		return m.array(n, doc, depth)
	case "object":
		return m.object(n, doc, depth)
	default:
		return anything
	}
	return out
}

// array gives the field of an array; Connect writes maps whose keys are no texts as arrays of entries.
func (m *schemaMapper) array(n *jsonNode, doc string, depth int) connectField {
	items := bytes.TrimSpace(n.Items)
	if len(items) == 0 || items[0] != '{' || n.Connect == "map" {
		return anything
	}
	e := m.field(items, doc, depth+1)
	return connectField{Type: "array", Items: &e}
}

// object gives the field of an object: of its properties, or of a map.
func (m *schemaMapper) object(n *jsonNode, doc string, depth int) connectField {
	rest := bytes.TrimSpace(n.Additional)
	if len(n.Properties) == 0 {
		switch {
		case len(rest) > 0 && rest[0] == '{':
			v := m.field(rest, doc, depth+1)
			return connectField{Type: "map", Keys: &connectField{Type: "string"}, Values: &v}
		case string(rest) == "false":
			return nothing
		}
		return anything
	}
	out := connectField{Type: "struct"}
	order := map[string]int{}
	for i, p := range n.Properties {
		f := m.field(p.raw, doc, depth+1)
		f.Field = p.name
		out.Fields = append(out.Fields, f)
		if order[p.name] = i; len(out.Fields) < maxColumnTypes {
			if n := m.read(p.raw); n != nil && n.Index != nil {
				order[p.name] = *n.Index
			}
		}
	}
	slices.SortStableFunc(out.Fields, func(a, b connectField) int { return order[a.Field] - order[b.Field] })
	return out
}
