package datafile

import (
	"encoding/json"
	"fmt"

	"github.com/calve-io/calve/schema"

	"github.com/apache/arrow-go/v18/arrow"
)

// avroType is a type of an Avro schema, with a union of null and another type folded into it.
type avroType struct {
	kind    string
	logical string
	nullAt  int // branch of null in the union; -1: no union
	fields  []avroField
	items   *avroType // of an array or the values of a map
	size    int       // of a fixed
	scale   int
	least   int // bytes that a value takes at least
}

type avroField struct {
	name string
	typ  *avroType
}

// avroParser turns the JSON of a schema into types.
type avroParser struct{ named map[string]*avroType }

// avroJSON is a type that is an object.
type avroJSON struct {
	Type      json.RawMessage `json:"type"`
	Logical   string          `json:"logicalType"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Fields    []struct {
		Name string          `json:"name"`
		Type json.RawMessage `json:"type"`
	} `json:"fields"`
	Items  json.RawMessage `json:"items"`
	Values json.RawMessage `json:"values"`
	Size   int             `json:"size"`
	Scale  int             `json:"scale"`
}

func (p *avroParser) parse(raw json.RawMessage, depth int) (*avroType, error) {
	if depth > maxDepth {
		return nil, unsupportedf("Avro schema nested too deep")
	}
	if len(raw) == 0 {
		return nil, corruptf("Avro schema: a type is missing")
	}
	switch raw[0] {
	case '"':
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return nil, corruptf("Avro schema: %w", err)
		}
		return p.byName(name)
	case '[':
		return p.union(raw, depth)
	}
	var o avroJSON
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, corruptf("Avro schema: %w", err)
	}
	var kind string
	if json.Unmarshal(o.Type, &kind) != nil { // {"type": {…}}
		return p.parse(o.Type, depth+1)
	}
	t := &avroType{kind: kind, logical: o.Logical, nullAt: -1, size: o.Size, scale: o.Scale}
	err := p.object(t, &o, depth)
	if err == nil && o.Name != "" {
		p.named[o.Name] = t
		p.named[o.Namespace+"."+o.Name] = t
	}
	return t, err
}

// byName gives a type that is a word: a basic one, or one that was defined before.
func (p *avroParser) byName(name string) (*avroType, error) {
	least, known := avroLeast[name]
	if known {
		return &avroType{kind: name, nullAt: -1, least: least}, nil
	}
	if t := p.named[name]; t != nil {
		return t, nil
	}
	return nil, unsupportedf("Avro type %q", name)
}

// avroLeast are the basic types, with the least number of bytes of a value.
var avroLeast = map[string]int{"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}

// object reads what an object says of its type beyond the kind.
func (p *avroParser) object(t *avroType, o *avroJSON, depth int) (err error) {
	switch t.kind {
	case "record":
		for _, f := range o.Fields {
			x, err := p.parse(f.Type, depth+1)
			if err != nil {
				return err
			}
			t.fields = append(t.fields, avroField{f.Name, x})
			t.least = min(t.least+x.least, 1<<20)
		}
		return nil
	case "array", "map":
		raw := o.Items
		if t.kind == "map" {
			raw = o.Values
		}
		t.items, err = p.parse(raw, depth+1)
		t.least = 1
		return err
	case "fixed":
		if t.size < 0 || t.size > 1<<20 {
			return unsupportedf("Avro fixed of %d bytes", t.size)
		}
		t.least = t.size
		return nil
	}
	basic, err := p.byName(t.kind)
	if err != nil {
		return err
	}
	logical, scale := t.logical, t.scale
	*t = *basic
	t.logical, t.scale = logical, scale
	return nil
}

// union reads a union of null and one other type, in any order.
func (p *avroParser) union(raw json.RawMessage, depth int) (*avroType, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, corruptf("Avro schema: %w", err)
	}
	if len(parts) != 2 {
		return nil, unsupportedf("Avro union of %d types", len(parts))
	}
	var types [2]*avroType
	for i := range parts {
		t, err := p.parse(parts[i], depth+1)
		if err != nil {
			return nil, err
		}
		types[i] = t
	}
	for i := range types {
		if other := *types[1-i]; types[i].kind == "null" && types[i].nullAt < 0 && other.nullAt < 0 && other.kind != "null" {
			other.nullAt, other.least = i, 1
			return &other, nil
		}
	}
	return nil, unsupportedf("Avro union that is not of null and another type")
}

// plan finds the wanted columns in the file.
func (a *avroReader) plan(text []byte, fileSchema *schema.Schema, want ReadSpec) error {
	p := &avroParser{named: map[string]*avroType{}}
	t, err := p.parse(text, 0)
	if err != nil {
		return err
	}
	if t.kind != "record" || t.nullAt >= 0 || t.least == 0 {
		return unsupportedf("the file's rows are of Avro type %s of at least %d bytes, not records", t.kind, t.least)
	}
	a.root = &avroNode{op: avroRecord, nullAt: -1}
	a.root.kids = make([]*avroNode, len(t.fields))
	add := func(name string, from, to schema.Type) (*avroNode, error) {
		for i, f := range t.fields {
			if f.name == name {
				n, err := newAvroNode(f.typ, name, from, to)
				if err == nil && a.root.kids[i] != nil {
					err = unsupportedf("column %q is wanted twice", name)
				}
				a.root.kids[i] = n
				return n, err
			}
		}
		return nil, nil
	}
	for _, i := range want.Cols {
		f := want.Schema.Fields[i]
		dt, err := schema.ArrowType(f.Type)
		if err != nil {
			return err
		}
		a.types = append(a.types, dt)
		var n *avroNode
		if at, ok := fileSchema.FieldByID(f.ID); ok {
			then := fileSchema.Fields[at]
			if n, err = add(then.Name, then.Type, f.Type); err != nil {
				return fmt.Errorf("column %q: %w", f.Name, err)
			}
		}
		a.cols = append(a.cols, n)
	}
	if want.KeyValue {
		long, tiny := schema.Type{Root: schema.BigInt, NotNull: true}, schema.Type{Root: schema.TinyInt, NotNull: true}
		if a.seq, err = add(SeqColumn, long, long); err == nil {
			a.kind, err = add(KindColumn, tiny, tiny)
		}
		if err == nil && (a.seq == nil || a.kind == nil) {
			err = corruptf("the file has no columns %s and %s: it is no key-value file", SeqColumn, KindColumn)
		}
		if err != nil {
			return err
		}
	}
	for i, f := range t.fields {
		if a.root.kids[i] == nil {
			if a.root.kids[i], err = skipAvroNode(f.typ); err != nil {
				return err
			}
		}
		a.root.weight += a.root.kids[i].weight
	}
	return nil
}

// newAvroNode plans a value: from is its type in the file's schema, to the type it is wanted in
// (`AvroSchemaConverter`, §8.3).
func newAvroNode(t *avroType, name string, from, to schema.Type) (*avroNode, error) {
	dt, err := schema.ArrowType(to)
	if err != nil {
		return nil, err
	}
	n := &avroNode{name: name, nullAt: t.nullAt, dt: dt, out: true, weight: 1}
	mismatch := unsupportedf("%s: type %s is stored as Avro %s %s", name, from, t.kind, t.logical)
	if !from.Primitive() && from.Root != to.Root {
		return nil, unsupportedf("%s: the file has type %s, which cannot be read as %s", name, from, to)
	}
	switch from.Root {
	case schema.Row:
		if t.kind != "record" {
			return nil, mismatch
		}
		return n, n.row(t, from, to)
	case schema.Array:
		if t.kind != "array" {
			return nil, mismatch
		}
		n.op = avroArray
		return n, n.inside([]*avroType{t.items}, []string{"element"}, from, to)
	case schema.Map, schema.Multiset:
		if t.kind == "map" {
			n.op = avroMap
			return n, n.inside([]*avroType{{kind: "string", nullAt: -1, least: 1}, t.items}, []string{"key", "value"}, from, to)
		}
		if t.kind != "array" || t.items.kind != "record" || t.items.nullAt >= 0 || len(t.items.fields) != 2 {
			return nil, mismatch
		}
		n.op = avroPairs // keys that are not text: an array of records
		return n, n.inside([]*avroType{t.items.fields[0].typ, t.items.fields[1].typ}, []string{"key", "value"}, from, to)
	}
	if n.op, n.width = avroValueOp(t, from); n.op == avroNone {
		return nil, mismatch
	}
	if from.Root == schema.Decimal && t.scale != from.Scale {
		return nil, mismatch
	}
	n.plain, err = schema.ArrowType(from)
	if err == nil {
		n.cast, err = casterOf(from, to)
	}
	return n, err
}

// avroValueOp says how a value is read, and how wide it is in Arrow.
func avroValueOp(t *avroType, from schema.Type) (avroOp, int) {
	kinds := map[schema.Root]struct {
		kind  string
		op    avroOp
		width int
	}{
		schema.Boolean: {"boolean", avroBool, 0}, schema.TinyInt: {"int", avroInt, 1}, schema.SmallInt: {"int", avroInt, 2},
		schema.Int: {"int", avroInt, 4}, schema.Date: {"int", avroInt, 4}, schema.Time: {"int", avroInt, 4},
		schema.BigInt: {"long", avroInt, 8}, schema.Float: {"float", avroFixed, 4}, schema.Double: {"double", avroFixed, 8},
		schema.Char: {"string", avroBytes, 0}, schema.VarChar: {"string", avroBytes, 0},
		schema.Binary: {"bytes", avroBytes, 0}, schema.VarBinary: {"bytes", avroBytes, 0},
		schema.Decimal: {"bytes", avroDecimal, 16}, schema.Timestamp: {"long", avroInt, 8}, schema.TimestampLTZ: {"long", avroInt, 8},
	}
	k, ok := kinds[from.Root]
	if !ok || k.kind != t.kind {
		return avroNone, 0
	}
	if isTime(from.Root) {
		// TIMESTAMP has the logical types that Avro means for instants, and TIMESTAMP_LTZ the local ones; the unit counts.
		want := map[arrow.TimeUnit]string{arrow.Millisecond: "timestamp-millis", arrow.Microsecond: "timestamp-micros"}[schema.TimeUnit(from)]
		if t.logical != want && t.logical != "local-"+want {
			return avroNone, 0
		}
	}
	return k.op, k.width
}

// row plans the fields of a ROW, by id and by the name they had.
func (n *avroNode) row(t *avroType, from, to schema.Type) error {
	n.op, n.kids = avroRecord, make([]*avroNode, len(t.fields))
	for _, f := range to.Fields {
		dt, err := schema.ArrowType(f.Type)
		if err != nil {
			return err
		}
		kid := &avroNode{op: avroNone, dt: dt, out: true}
		if then := fieldByID(from.Fields, f.ID); then != nil {
			for i, x := range t.fields {
				if x.name == then.Name && n.kids[i] == nil {
					if kid, err = newAvroNode(x.typ, n.name+"."+f.Name, then.Type, f.Type); err != nil {
						return err
					}
					n.kids[i] = kid
				}
			}
		}
		n.fields = append(n.fields, kid)
	}
	return n.skipRest(t)
}

// skipRest plans the fields that are not wanted.
func (n *avroNode) skipRest(t *avroType) (err error) {
	for i, f := range t.fields {
		if n.kids[i] == nil {
			if n.kids[i], err = skipAvroNode(f.typ); err != nil {
				return err
			}
		}
		n.weight += n.kids[i].weight
	}
	return nil
}

// inside plans what a list or map holds.
func (n *avroNode) inside(types []*avroType, names []string, from, to schema.Type) error {
	have, want := partsOf(from), partsOf(to)
	least := 0
	for i, t := range types {
		k, err := newAvroNode(t, n.name+"."+names[i], have[i], want[i])
		if err != nil {
			return err
		}
		n.kids = append(n.kids, k)
		least += t.least
		n.weight += k.weight
	}
	if least == 0 {
		return unsupportedf("%s: elements without any bytes", n.name)
	}
	n.fields = n.kids
	return nil
}

// skipAvroNode plans a value that is read over.
func skipAvroNode(t *avroType) (*avroNode, error) {
	n := &avroNode{nullAt: t.nullAt}
	switch t.kind {
	case "null":
		n.op = avroNone
	case "boolean":
		n.op = avroBool
	case "int", "long":
		n.op = avroInt
	case "float":
		n.op, n.width = avroFixed, 4
	case "double":
		n.op, n.width = avroFixed, 8
	case "fixed":
		n.op, n.width = avroFixed, t.size
	case "bytes", "string":
		n.op = avroBytes
	case "record":
		n.op, n.kids = avroRecord, make([]*avroNode, len(t.fields))
		return n, n.skipRest(t)
	default:
		n.op = avroArray
		if t.kind == "map" {
			n.op, n.kids = avroMap, []*avroNode{{op: avroBytes, nullAt: -1}}
		}
		if t.items.least == 0 && n.op == avroArray {
			return nil, unsupportedf("Avro array of elements without any bytes")
		}
		k, err := skipAvroNode(t.items)
		n.kids = append(n.kids, k)
		return n, err
	}
	return n, nil
}
