package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/avro"
)

// avroKind is how values of an Avro type are written.
type avroKind uint8

const (
	avroNull avroKind = iota
	avroBoolean
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroRecord
	avroArray
	avroMap
	avroUnion
)

var avroKinds = map[string]avroKind{"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroLong, "float": avroFloat,
	"double": avroDouble, "bytes": avroBytes, "string": avroString, "fixed": avroFixed, "enum": avroEnum, "record": avroRecord,
	"error": avroRecord, "array": avroArray, "map": avroMap, "union": avroUnion}

// avroType is a type of a schema, with references resolved: types that contain themselves are cycles.
type avroType struct {
	kind      avroKind
	name      string // as written in the schema, for messages
	logical   string // logical type, or the name of Kafka Connect's or Debezium's
	precision int
	scale     int
	size      int // of fixed
	symbols   [][]byte
	fields    []avroField
	items     *avroType // elements of an array, values of a map
	branches  []*avroType
	doc       string
}

// avroField is a member of a record.
type avroField struct {
	name    string
	aliases []string
	typ     *avroType
	doc     string
	// deflt is the default in Avro's encoding; nil: there is none.
	deflt []byte
}

// Bounds of schemas; real ones stay far below.
const (
	maxAvroText  = 4 << 20
	maxAvroTypes = 100_000
	maxAvroDepth = 64
)

// avroBuilder turns the library's tree into types.
type avroBuilder struct {
	named map[string]*avroType
	count int
}

// parseAvro reads a schema, with those that it refers to.
func parseAvro(w WriterSchema) (t *avroType, err error) {
	if w.Kind != AvroSchema {
		return nil, fmt.Errorf("the schema is of kind %s, not %s", w.Kind, AvroSchema)
	}
	size := len(w.Text)
	for _, r := range w.References {
		size += len(r.Text)
	}
	if size > maxAvroText {
		return nil, fmt.Errorf("the schema has %d bytes, more than %d", size, maxAvroText)
	}
	var cache avro.SchemaCache
	lax := avro.WithLaxNames(nil) // Kafka Connect lets names through that Avro does not
	for _, r := range w.References {
		if _, err := cache.Parse(r.Text, lax); err != nil {
			return nil, fmt.Errorf("the schema %q that it refers to: %w", r.Name, err)
		}
	}
	s, err := cache.Parse(w.Text, lax)
	if err != nil {
		return nil, fmt.Errorf("the schema is not valid: %w", err)
	}
	b := avroBuilder{named: map[string]*avroType{}}
	return b.build(s.Root(), "", 0)
}

// build makes the type of a node; space is the namespace around it.
func (b *avroBuilder) build(n *avro.SchemaNode, space string, depth int) (*avroType, error) {
	if b.count++; b.count > maxAvroTypes || depth > maxAvroDepth {
		return nil, fmt.Errorf("the schema is too large: more than %d types, or %d within each other", maxAvroTypes, maxAvroDepth)
	}
	kind, known := avroKinds[n.Type]
	if !known {
		for _, name := range []string{space + "." + n.Type, n.Type} {
			if t := b.named[name]; t != nil {
				return t, nil
			}
		}
		return nil, fmt.Errorf("the schema names the type %q, which it does not define", n.Type)
	}
	t := &avroType{kind: kind, name: n.Type, logical: n.LogicalType, precision: n.Precision, scale: n.Scale, size: n.Size,
		doc: n.Doc}
	for _, x := range n.Symbols {
		t.symbols = append(t.symbols, []byte(x))
	}
	if connect, ok := n.Props["connect.name"].(string); ok && t.logical == "" {
		t.logical = connect
	}
	switch kind {
	case avroRecord, avroEnum, avroFixed:
		full := n.Name
		if !strings.Contains(full, ".") && n.Namespace != "" {
			full = n.Namespace + "." + full
		}
		t.name = n.Type + " " + full
		b.named[full] = t
		space = full[:max(0, strings.LastIndexByte(full, '.'))]
	case avroArray, avroMap:
		inner := n.Items
		if kind == avroMap {
			inner = n.Values
		}
		if inner == nil {
			return nil, fmt.Errorf("the schema has an %s of nothing", n.Type)
		}
		var err error
		t.items, err = b.build(inner, space, depth+1)
		return t, err
	}
	for i := range n.Branches {
		x, err := b.build(&n.Branches[i], space, depth+1)
		if err != nil {
			return nil, err
		}
		t.branches = append(t.branches, x)
	}
	for i := range n.Fields {
		f := &n.Fields[i]
		x, err := b.build(&f.Type, space, depth+1)
		if err != nil {
			return nil, err
		}
		out := avroField{name: f.Name, aliases: f.Aliases, typ: x, doc: f.Doc}
		if f.HasDefault {
			if out.deflt, err = encodeDefault(f); err != nil {
				return nil, fmt.Errorf("default of field %q: %w", f.Name, err)
			}
		}
		t.fields = append(t.fields, out)
	}
	return t, nil
}

// encodeDefault gives a field's default as it would be written.
func encodeDefault(f *avro.SchemaField) ([]byte, error) {
	s, err := f.Type.Schema(avro.WithLaxNames(nil))
	if err != nil {
		return nil, err
	}
	b, err := s.Encode(f.Default)
	if b == nil && err == nil {
		b = []byte{}
	}
	return b, err
}

// nullable splits a type into what it is beside null.
func (t *avroType) nullable() (rest []*avroType, null bool) {
	if t.kind != avroUnion {
		return []*avroType{t}, t.kind == avroNull
	}
	for _, x := range t.branches {
		if x.kind == avroNull {
			null = true
		} else {
			rest = append(rest, x)
		}
	}
	return rest, null
}

// nullBranch is the number of the branch of a union that is null, -1: none.
func (t *avroType) nullBranch() int8 {
	return int8(slices.IndexFunc(t.branches, func(x *avroType) bool { return x.kind == avroNull }))
}

// single gives the one type that a value has when it is not null; nil if it may have several.
func (t *avroType) single() *avroType {
	if rest, _ := t.nullable(); len(rest) == 1 {
		return rest[0]
	}
	return nil
}

// Digits below a second of what Avro, Kafka Connect and Debezium name times and timestamps.
var avroTimes = map[string]int{
	"time-millis": 3, "time-micros": 6, "time-nanos": 9, "org.apache.kafka.connect.data.Time": 3,
	"io.debezium.time.Time": 3, "io.debezium.time.MicroTime": 6, "io.debezium.time.NanoTime": 9,
}

var avroTimestamps = map[string]int{
	"timestamp-millis": 3, "timestamp-micros": 6, "timestamp-nanos": 9,
	"local-timestamp-millis": 3, "local-timestamp-micros": 6, "local-timestamp-nanos": 9,
	"org.apache.kafka.connect.data.Timestamp": 3,
	"io.debezium.time.Timestamp":              3, "io.debezium.time.MicroTimestamp": 6, "io.debezium.time.NanoTimestamp": 9,
}

// avroDates are the names of days since 1970.
var avroDates = map[string]bool{"date": true, "org.apache.kafka.connect.data.Date": true, "io.debezium.time.Date": true}

// scaledName is Debezium's decimal whose values have a scale each: a record of scale and unscaled bytes.
const scaledName = "io.debezium.data.VariableScaleDecimal"

// isDecimal reports whether bytes of the type are an unscaled number.
func (t *avroType) isDecimal() bool {
	return (t.kind == avroBytes || t.kind == avroFixed) && t.logical == "decimal"
}

// describe names the type in messages.
func (t *avroType) describe() string {
	switch {
	case t.isDecimal() && t.beyondScale():
		return fmt.Sprintf("%s (decimal of scale %d)", t.name, t.scale)
	case t.logical != "":
		return t.name + " (" + t.logical + ")"
	}
	return t.name
}

// beyondScale reports whether a decimal has more places before or behind its point than are written out.
func (t *avroType) beyondScale() bool { return t.scale < -maxDigits || t.scale > maxDigits }
