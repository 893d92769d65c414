package schema

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// FieldIDKey is the Arrow metadata key that carries a column's field id; Parquet libraries read and write it.
const FieldIDKey = "PARQUET:field_id"

// UTC is the time zone of TIMESTAMP_LTZ columns in Arrow.
const UTC = "UTC"

// ArrowType gives the Arrow form of a type: the one form in which its values move between packages. ARRAY is a list, MAP a
// map, MULTISET a map from element to number, ROW a struct, VARIANT a struct of its two binaries, in this order.
func ArrowType(t Type) (arrow.DataType, error) {
	switch t.Root {
	case Boolean:
		return arrow.FixedWidthTypes.Boolean, nil
	case TinyInt:
		return arrow.PrimitiveTypes.Int8, nil
	case SmallInt:
		return arrow.PrimitiveTypes.Int16, nil
	case Int:
		return arrow.PrimitiveTypes.Int32, nil
	case BigInt:
		return arrow.PrimitiveTypes.Int64, nil
	case Float:
		return arrow.PrimitiveTypes.Float32, nil
	case Double:
		return arrow.PrimitiveTypes.Float64, nil
	case Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}, nil
	case Char, VarChar:
		return arrow.BinaryTypes.String, nil
	case Binary, VarBinary:
		return arrow.BinaryTypes.Binary, nil
	case Date:
		return arrow.FixedWidthTypes.Date32, nil
	case Time:
		return arrow.FixedWidthTypes.Time32ms, nil
	case Timestamp:
		return &arrow.TimestampType{Unit: TimeUnit(t)}, nil
	case TimestampLTZ:
		return &arrow.TimestampType{Unit: TimeUnit(t), TimeZone: UTC}, nil
	case Array, Multiset, Map, Row:
		return arrowNested(t)
	case Variant:
		return variantType, nil
	}
	return nil, fmt.Errorf("type %s has no Arrow form in calve", t)
}

// Names of the two binaries of a VARIANT: the encoded value and the dictionary of its field names
// (`org.apache.paimon.data.variant.Variant`).
const (
	VariantValue    = "value"
	VariantMetadata = "metadata"
)

var variantType = arrow.StructOf(
	arrow.Field{Name: VariantValue, Type: arrow.BinaryTypes.Binary},
	arrow.Field{Name: VariantMetadata, Type: arrow.BinaryTypes.Binary})

// TimeUnit is the unit of a timestamp's Arrow values and of its cells: milliseconds up to precision 3, microseconds
// up to 6, nanoseconds above.
func TimeUnit(t Type) arrow.TimeUnit {
	switch {
	case t.Precision <= 3:
		return arrow.Millisecond
	case t.Precision <= 6:
		return arrow.Microsecond
	}
	return arrow.Nanosecond
}

func arrowNested(t Type) (arrow.DataType, error) {
	switch t.Root {
	case Array:
		f, err := arrowField(Field{ID: -1, Name: "element", Type: *t.Element})
		if err != nil {
			return nil, err
		}
		return arrow.ListOfField(f), nil
	case Row:
		fields, err := arrowFields(t.Fields)
		if err != nil {
			return nil, err
		}
		return arrow.StructOf(fields...), nil
	}
	// A MULTISET is a map from the element to how often it occurs.
	key, item := t.Key, t.Element
	if t.Root == Multiset {
		key, item = t.Element, &Type{Root: Int, NotNull: true}
	}
	k, err := ArrowType(*key)
	if err != nil {
		return nil, err
	}
	v, err := ArrowType(*item)
	if err != nil {
		return nil, err
	}
	m := arrow.MapOf(k, v)
	m.SetItemNullable(!item.NotNull)
	return m, nil
}

func arrowFields(fields []Field) ([]arrow.Field, error) {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		a, err := arrowField(f)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		out[i] = a
	}
	return out, nil
}

// arrowField turns one field; an id below 0 means that it has none.
func arrowField(f Field) (arrow.Field, error) {
	t, err := ArrowType(f.Type)
	if err != nil {
		return arrow.Field{}, err
	}
	out := arrow.Field{Name: f.Name, Type: t, Nullable: !f.Type.NotNull}
	if f.ID >= 0 {
		out.Metadata = arrow.NewMetadata([]string{FieldIDKey}, []string{strconv.Itoa(f.ID)})
	}
	return out, nil
}

// ArrowFields gives the Arrow fields of all columns, with nullability and field ids.
func (s *Schema) ArrowFields() ([]arrow.Field, error) { return arrowFields(s.Fields) }

// Arrow gives the Arrow schema of all columns. A column without a valid type is typed null.
func (s *Schema) Arrow() *arrow.Schema {
	out := make([]arrow.Field, len(s.Fields))
	for i, f := range s.Fields {
		a, err := arrowField(f)
		if err != nil {
			a = arrow.Field{Name: f.Name, Type: arrow.Null, Nullable: true}
		}
		out[i] = a
	}
	return arrow.NewSchema(out, nil)
}

// Cell gives one value, or nil for null. It is for keys, statistics, tests and printing: not for hot loops.
//
// The forms: bool, int8, int16, int32, int64, float32, float64, string and []byte (copies), decimal128.Num; DATE is
// int32 days, TIME int32 milliseconds, TIMESTAMP and TIMESTAMP_LTZ int64 in TimeUnit; ARRAY and ROW are []any,
// MAP and MULTISET [][2]any, VARIANT []any of its value and its metadata. Arrays of other Arrow types than ArrowType gives are a mistake of the caller: panic.
func Cell(a arrow.Array, row int) any {
	if a.IsNull(row) {
		return nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		return a.Value(row)
	case *array.Int8:
		return a.Value(row)
	case *array.Int16:
		return a.Value(row)
	case *array.Int32:
		return a.Value(row)
	case *array.Int64:
		return a.Value(row)
	case *array.Float32:
		return a.Value(row)
	case *array.Float64:
		return a.Value(row)
	case *array.Decimal128:
		return a.Value(row)
	case *array.String:
		return strings.Clone(a.Value(row)) // a cell must not keep a whole column alive
	case *array.Binary:
		return append([]byte{}, a.Value(row)...)
	case *array.Date32:
		return int32(a.Value(row))
	case *array.Time32:
		return int32(a.Value(row))
	case *array.Timestamp:
		return int64(a.Value(row))
	case *array.Null:
		return nil
	}
	return nestedCell(a, row)
}

func nestedCell(a arrow.Array, row int) any {
	switch a := a.(type) {
	case *array.Map: // before List: a map is a list of pairs
		from, to := a.ValueOffsets(row)
		out := make([][2]any, 0, to-from)
		for i := int(from); i < int(to); i++ {
			out = append(out, [2]any{Cell(a.Keys(), i), Cell(a.Items(), i)})
		}
		return out
	case *array.List:
		from, to := a.ValueOffsets(row)
		out := make([]any, 0, to-from)
		for i := int(from); i < int(to); i++ {
			out = append(out, Cell(a.ListValues(), i))
		}
		return out
	case *array.Struct:
		out := make([]any, a.NumField())
		for i := range out {
			out[i] = Cell(a.Field(i), row)
		}
		return out
	}
	panic(fmt.Sprintf("schema.Cell: Arrow type %s is none that schema.ArrowType gives", a.DataType()))
}
