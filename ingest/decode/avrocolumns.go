package decode

import (
	"fmt"
	"strings"

	"github.com/calve-io/calve/schema"
)

// ColumnsOfAvro gives the columns of a table for records of an Avro schema. of names the field whose record is the row:
// "" for the record itself, "after" for Debezium's envelopes.
//
//	boolean, int, long, float, double    BOOLEAN, INT, BIGINT, FLOAT, DOUBLE
//	string, enum, uuid                   STRING
//	bytes, fixed(n)                      BYTES, BINARY(n)
//	decimal(p, s)                        DECIMAL(p, s); STRING beyond 38 digits and for Debezium's VariableScaleDecimal
//	date                                 DATE
//	time-millis; finer times             TIME(3); STRING, as Paimon keeps times in milliseconds
//	timestamp-millis, -micros, -nanos    TIMESTAMP(3), (6), (9) WITH LOCAL TIME ZONE
//	the same with local-                 TIMESTAMP(3), (6), (9)
//	record, array, map                   ROW, ARRAY, MAP<STRING, …>
//	union of null and another            the other
//	union of int and long                BIGINT; with float or double: DOUBLE
//
// What Kafka Connect and Debezium name times and timestamps goes the same way: Debezium's Timestamp, MicroTimestamp and
// NanoTimestamp have no zone, a ZonedTimestamp is a TIMESTAMP(6) WITH LOCAL TIME ZONE. Records without a field give no
// column, as Paimon has no empty ROW. Columns take nulls even if the schema does not, since a later schema may lack the
// field. Other unions, and types that contain themselves, are errors: give the columns by hand, leaving those out.
func ColumnsOfAvro(w WriterSchema, of string) ([]schema.Column, error) {
	t, err := parseAvro(w)
	if err != nil {
		return nil, err
	}
	if of != "" {
		f := t.field(of)
		if f == nil || f.typ.single() == nil {
			return nil, fmt.Errorf("the schema's type %s has no record %q; is it an envelope?", t.name, of)
		}
		t = f.typ.single()
	}
	if t.kind != avroRecord {
		return nil, fmt.Errorf("the schema's type is %s, not a record", t.name)
	}
	var out []schema.Column
	m := avroMapper{}
	for i := range t.fields {
		f := &t.fields[i]
		x, ok, err := m.typeOf(f.typ)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", strings.Join(append([]string{f.name}, m.at...), "."), err)
		}
		if ok {
			out = append(out, schema.Column{Name: f.name, Type: x, Comment: f.doc})
		}
	}
	return out, nil
}

// avroMapper finds the types of columns.
type avroMapper struct {
	path  []*avroType
	at    []string // names of the fields around an error, within a column
	count int
}

// maxColumnTypes bounds the types in columns: named types that occur twice in each other double each time.
const maxColumnTypes = 10_000

func text() schema.Type { return schema.Type{Root: schema.VarChar, Length: schema.MaxLength} }

// typeOf gives the type of a column; not ok: there is nothing in it.
func (m *avroMapper) typeOf(t *avroType) (out schema.Type, ok bool, err error) {
	if m.count++; m.count > maxColumnTypes {
		return out, false, fmt.Errorf("the columns come to more than %d types", maxColumnTypes)
	}
	for _, p := range m.path {
		if p == t {
			return out, false, fmt.Errorf("the type %s contains itself", t.name)
		}
	}
	m.path = append(m.path, t)
	defer func() { m.path = m.path[:len(m.path)-1] }()
	switch t.kind {
	case avroNull:
		return out, false, nil
	case avroUnion:
		return m.union(t)
	case avroRecord:
		return m.record(t)
	case avroArray, avroMap:
		x, ok, err := m.typeOf(t.items)
		if err != nil || !ok {
			return out, false, err
		}
		if t.kind == avroArray {
			return schema.Type{Root: schema.Array, Element: &x}, true, nil
		}
		k := text()
		k.NotNull = true
		return schema.Type{Root: schema.Map, Key: &k, Element: &x}, true, nil
	}
	return singleType(t), true, nil
}

func (m *avroMapper) record(t *avroType) (out schema.Type, ok bool, err error) {
	if t.logical == scaledName {
		return text(), true, nil
	}
	out = schema.Type{Root: schema.Row}
	for i := range t.fields {
		x, ok, err := m.typeOf(t.fields[i].typ)
		if err != nil {
			m.at = append([]string{t.fields[i].name}, m.at...)
			return out, false, err
		}
		if ok {
			out.Fields = append(out.Fields, schema.Field{Name: t.fields[i].name, Type: x})
		}
	}
	return out, len(out.Fields) > 0, nil
}

func (m *avroMapper) union(t *avroType) (out schema.Type, ok bool, err error) {
	rest, _ := t.nullable()
	switch len(rest) {
	case 0:
		return out, false, nil
	case 1:
		return m.typeOf(rest[0])
	}
	root := schema.BigInt
	var names []string
	number := true
	for _, x := range rest {
		number = number && x.kind >= avroInt && x.kind <= avroDouble && x.logical == ""
		if x.kind == avroFloat || x.kind == avroDouble {
			root = schema.Double
		}
		names = append(names, x.describe())
	}
	if !number {
		return out, false, fmt.Errorf("there is no column type for a union of %s", strings.Join(names, ", "))
	}
	return schema.Type{Root: root}, true, nil
}

// singleType gives the type for single values.
func singleType(t *avroType) schema.Type {
	if digits, ok := avroTimestamps[t.logical]; ok && t.kind == avroLong {
		root := schema.TimestampLTZ
		if strings.HasPrefix(t.logical, "local-") || strings.HasPrefix(t.logical, "io.debezium.") {
			root = schema.Timestamp
		}
		return schema.Type{Root: root, Precision: digits}
	}
	if digits, ok := avroTimes[t.logical]; ok && t.kind <= avroLong {
		if digits > 3 {
			return text()
		}
		return schema.Type{Root: schema.Time, Precision: 3}
	}
	switch t.kind {
	case avroBoolean:
		return schema.Type{Root: schema.Boolean}
	case avroInt:
		if avroDates[t.logical] {
			return schema.Type{Root: schema.Date}
		}
		return schema.Type{Root: schema.Int}
	case avroLong:
		return schema.Type{Root: schema.BigInt}
	case avroFloat:
		return schema.Type{Root: schema.Float}
	case avroDouble:
		return schema.Type{Root: schema.Double}
	}
	switch {
	case t.logical == "io.debezium.time.ZonedTimestamp":
		return schema.Type{Root: schema.TimestampLTZ, Precision: 6}
	case t.isDecimal() && t.precision <= 38 && t.scale >= 0 && t.scale <= t.precision:
		return schema.Type{Root: schema.Decimal, Precision: t.precision, Scale: t.scale}
	case t.isDecimal(), t.kind == avroString, t.kind == avroEnum, t.logical == "uuid":
		return text()
	case t.kind == avroFixed && t.size > 0:
		return schema.Type{Root: schema.Binary, Length: t.size}
	}
	return schema.Type{Root: schema.VarBinary, Length: schema.MaxLength}
}
