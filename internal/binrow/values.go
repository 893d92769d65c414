package binrow

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// AppendValues adds the BinaryRow of single values, in the forms of schema.Cell, to dst. Nested types are taken too:
// []any for ARRAY and ROW, [][2]any for MAP and MULTISET.
func (e *Encoder) AppendValues(dst []byte, kind schema.RowKind, vals []any) ([]byte, error) {
	return appendValues(dst, kind, e.types, vals)
}

// EncodeStats gives the serialized rows of the smallest and largest values of columns; nil stands for unknown. They
// are encoded as nullable, whatever the columns are (`stats.SimpleStatsConverter`).
func EncodeStats(types []schema.Type, low, high []any) (minRow, maxRow []byte, err error) {
	if minRow, err = serializeValues(types, low); err != nil {
		return nil, nil, fmt.Errorf("smallest values: %w", err)
	}
	if maxRow, err = serializeValues(types, high); err != nil {
		return nil, nil, fmt.Errorf("largest values: %w", err)
	}
	return minRow, maxRow, nil
}

// EncodeRow gives the serialized row, with arity prefix and of kind +I, of single values: partitions and keys.
func EncodeRow(types []schema.Type, vals []any) ([]byte, error) { return serializeValues(types, vals) }

func serializeValues(types []schema.Type, vals []any) ([]byte, error) {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+fixedBytes(len(types))), uint32(len(types)))
	return appendValues(out, schema.Insert, types, vals)
}

func appendValues(dst []byte, kind schema.RowKind, types []schema.Type, vals []any) ([]byte, error) {
	if len(vals) != len(types) {
		return dst, fmt.Errorf("binrow: %d values for %d types", len(vals), len(types))
	}
	base, nulls := len(dst), nullBytes(len(types))
	dst = appendZeros(dst, nulls+word*len(types))
	dst[base] = byte(kind)
	for i, t := range types {
		slot := base + nulls + word*i
		if vals[i] == nil {
			setNull(dst[base:], i)
			dst = appendWideNull(dst, base, slot, wide(t))
			continue
		}
		var err error
		if dst, err = appendValue(dst, base, slot, t, vals[i]); err != nil {
			return dst[:base], fmt.Errorf("binrow: value %d: %w", i, err)
		}
	}
	return dst, nil
}

// appendValue writes one value that is not null into its slot and, if need be, the variable part. The slot may be
// that of a row or an element of an array; only as many bytes of it are written as the type has.
func appendValue(dst []byte, base, slot int, t schema.Type, v any) ([]byte, error) {
	switch t.Root {
	case schema.Char, schema.VarChar:
		if s, ok := v.(string); ok {
			return appendBytes(dst, base, slot, []byte(s)), nil
		}
	case schema.Binary, schema.VarBinary:
		if b, ok := v.([]byte); ok {
			return appendBytes(dst, base, slot, b), nil
		}
	case schema.Decimal:
		if d, ok := v.(decimal128.Num); ok && t.Precision > compactMax {
			return appendWideDecimal(dst, base, slot, d), nil
		} else if ok {
			binary.LittleEndian.PutUint64(dst[slot:], d.LowBits())
			return dst, nil
		}
	case schema.Timestamp, schema.TimestampLTZ:
		if n, ok := v.(int64); ok {
			return appendTime(dst, base, slot, t, n), nil
		}
	case schema.Array, schema.Multiset, schema.Map, schema.Row:
		nested, err := nestedBytes(t, v)
		if err != nil {
			return dst, err
		}
		return appendVariable(dst, base, slot, nested), nil
	default:
		if putNumber(dst[slot:], t, v) {
			return dst, nil
		}
	}
	return dst, fmt.Errorf("a value of %s cannot be a Go %T", t, v)
}

func appendTime(dst []byte, base, slot int, t schema.Type, v int64) []byte {
	switch schema.TimeUnit(t) {
	case arrow.Microsecond:
		return appendMicros(dst, base, slot, v)
	case arrow.Nanosecond:
		return appendNanos(dst, base, slot, v)
	}
	binary.LittleEndian.PutUint64(dst[slot:], uint64(v))
	return dst
}

// putNumber writes a number or boolean in the width of its type; false means that v has not the type's form.
func putNumber(b []byte, t schema.Type, v any) (ok bool) {
	switch t.Root {
	case schema.Boolean:
		var x bool
		if x, ok = v.(bool); x {
			b[0] = 1
		}
	case schema.TinyInt:
		var x int8
		x, ok = v.(int8)
		b[0] = byte(x)
	case schema.SmallInt:
		var x int16
		x, ok = v.(int16)
		binary.LittleEndian.PutUint16(b, uint16(x))
	case schema.Int, schema.Date, schema.Time:
		var x int32
		x, ok = v.(int32)
		binary.LittleEndian.PutUint32(b, uint32(x))
	case schema.Float:
		var x float32
		x, ok = v.(float32)
		binary.LittleEndian.PutUint32(b, math.Float32bits(x))
	case schema.BigInt:
		var x int64
		x, ok = v.(int64)
		binary.LittleEndian.PutUint64(b, uint64(x))
	case schema.Double:
		var x float64
		x, ok = v.(float64)
		binary.LittleEndian.PutUint64(b, math.Float64bits(x))
	}
	return ok
}

// nestedBytes gives the binary form of an ARRAY, MULTISET, MAP or ROW.
func nestedBytes(t schema.Type, v any) ([]byte, error) {
	switch v := v.(type) {
	case []any:
		switch t.Root {
		case schema.Array:
			return appendArray(nil, *t.Element, v)
		case schema.Row:
			types := make([]schema.Type, len(t.Fields))
			for i, f := range t.Fields {
				types[i] = f.Type
			}
			return appendValues(nil, schema.Insert, types, v)
		}
	case [][2]any:
		switch t.Root {
		case schema.Map:
			return mapBytes(*t.Key, *t.Element, v)
		case schema.Multiset:
			return mapBytes(*t.Element, schema.Type{Root: schema.Int, NotNull: true}, v)
		}
	}
	return nil, fmt.Errorf("a value of %s cannot be a Go %T", t, v)
}

// mapBytes writes the byte size of the key array, the key array and the value array.
func mapBytes(key, value schema.Type, pairs [][2]any) ([]byte, error) {
	keys, values := make([]any, len(pairs)), make([]any, len(pairs))
	for i, p := range pairs {
		keys[i], values[i] = p[0], p[1]
	}
	out, err := appendArray(make([]byte, 4), key, keys)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)-4))
	if out, err = appendArray(out, value, values); err != nil {
		return nil, fmt.Errorf("value: %w", err)
	}
	return out, nil
}

// elementBytes is the width of an array element (`BinaryArray.calculateFixLengthPartSize`).
func elementBytes(t schema.Type) int {
	switch t.Root {
	case schema.Boolean, schema.TinyInt:
		return 1
	case schema.SmallInt:
		return 2
	case schema.Int, schema.Date, schema.Time, schema.Float:
		return 4
	}
	return word
}

// appendArray writes size, null bits, elements filled up to a word, and the variable part. Other than in rows, nulls
// of wide types keep no room there, and offsets count from the start of the array.
func appendArray(dst []byte, t schema.Type, vals []any) ([]byte, error) {
	base, width := len(dst), elementBytes(t)
	header := 4 + (len(vals)+31)/32*4
	fixed := header + width*len(vals)
	dst = appendZeros(dst, fixed+(-fixed&(word-1)))
	binary.LittleEndian.PutUint32(dst[base:], uint32(len(vals)))
	for i, v := range vals {
		if v == nil {
			dst[base+4+i/8] |= 1 << (i % 8)
			continue
		}
		var err error
		if dst, err = appendValue(dst, base, base+header+width*i, t, canonicalNaN(v)); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return dst, nil
}

// canonicalNaN gives NaN the one bit pattern that Paimon's arrays have.
func canonicalNaN(v any) any {
	switch f := v.(type) {
	case float32:
		if f != f {
			return math.Float32frombits(0x7fc00000)
		}
	case float64:
		if f != f {
			return math.Float64frombits(0x7ff8000000000000)
		}
	}
	return v
}
