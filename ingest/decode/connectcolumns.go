package decode

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/calve-io/calve/schema"
)

// columnsOfConnect gives the columns of the rows in messages whose schema is given as Kafka Connect's JSON converter writes
// it, by field name; none if it is no such schema. Values keep every digit: what no type of a table holds becomes BIGINT
// (times finer than milliseconds, intervals) or STRING (decimals without a scale).
func columnsOfConnect(raw []byte, format Format) []schema.Column {
	var root connectField
	if json.Unmarshal(raw, &root) != nil {
		return nil
	}
	var out []schema.Column
	for _, f := range root.rows(format) {
		if t, ok := f.column(0); ok {
			out = append(out, schema.Column{Name: f.Field, Type: t})
		}
	}
	return out
}

// rows gives the fields of the rows: of an envelope those in "after", or else "before".
func (f *connectField) rows(format Format) []connectField {
	if format != Debezium {
		return f.Fields
	}
	var rows []connectField
	for i := range f.Fields {
		if x := &f.Fields[i]; x.Field == "after" || x.Field == "before" && rows == nil {
			rows = x.Fields
		}
	}
	return rows
}

// meaning is the name of the field's type without the package.
func (f *connectField) meaning() string { return f.Name[strings.LastIndexByte(f.Name, '.')+1:] }

// unsigned reports whether the source has the field as an unsigned number of 64 bits, which comes as a signed one.
func (f *connectField) unsigned() bool {
	return f.Type == "int64" && strings.HasPrefix(f.Parameters["__debezium.source.column.type"], "BIGINT UNSIGNED")
}

// column gives the type of a column for the field; a struct without fields has none.
func (f *connectField) column(depth int) (schema.Type, bool) {
	if depth > maxInferDepth {
		return textType, false
	}
	switch f.meaning() {
	case "Decimal":
		return f.decimal(), true
	case "VariableScaleDecimal":
		return textType, true
	case "Date":
		return schema.Type{Root: schema.Date}, true
	case "Time":
		return schema.Type{Root: schema.Time, Precision: 3}, true
	case "Timestamp":
		return schema.Type{Root: schema.Timestamp, Precision: 3}, true
	case "MicroTimestamp":
		return schema.Type{Root: schema.Timestamp, Precision: 6}, true
	case "NanoTimestamp":
		return schema.Type{Root: schema.Timestamp, Precision: 9}, true
	case "ZonedTimestamp":
		return schema.Type{Root: schema.TimestampLTZ, Precision: 6}, true
	}
	return f.plain(depth)
}

// plain gives the type of a field by its form alone.
func (f *connectField) plain(depth int) (schema.Type, bool) {
	switch f.Type {
	case "boolean":
		return schema.Type{Root: schema.Boolean}, true
	case "int8":
		return schema.Type{Root: schema.TinyInt}, true
	case "int16":
		return schema.Type{Root: schema.SmallInt}, true
	case "int32":
		return schema.Type{Root: schema.Int}, true
	case "int64":
		if f.unsigned() {
			return schema.Type{Root: schema.Decimal, Precision: 20}, true
		}
		return longType, true
	case "float", "float32":
		return schema.Type{Root: schema.Float}, true
	case "double", "float64":
		return schema.Type{Root: schema.Double}, true
	case "bytes":
		return bytesType, true
	case "array":
		if f.Items == nil {
			return textType, true
		}
		e, ok := f.Items.column(depth + 1)
		return schema.Type{Root: schema.Array, Element: &e}, ok
	case "map":
		if f.Keys == nil || f.Values == nil || f.Keys.Type != "string" {
			return textType, true
		}
		v, ok := f.Values.column(depth + 1)
		key := textType
		key.NotNull = true
		return schema.Type{Root: schema.Map, Key: &key, Element: &v}, ok
	case "struct":
		t := schema.Type{Root: schema.Row}
		for i := range f.Fields {
			if x, ok := f.Fields[i].column(depth + 1); ok {
				t.Fields = append(t.Fields, schema.Field{Name: f.Fields[i].Field, Type: x})
			}
		}
		return t, len(t.Fields) > 0
	}
	return textType, true
}

// maxPrecision is how many digits a DECIMAL has at most.
const maxPrecision = 38

// decimal gives the type of a decimal of a known scale; without a precision it is the largest.
func (f *connectField) decimal() schema.Type {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(f.Parameters[name]); err == nil {
			return n
		}
		return otherwise
	}
	precision, scale := number("connect.decimal.precision", maxPrecision), number("scale", 0)
	if scale < 0 || precision < 1 || precision > maxPrecision || scale > precision {
		return textType
	}
	return schema.Type{Root: schema.Decimal, Precision: precision, Scale: scale}
}
