package datafile

import (
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// caster converts a column from the type it had when the file was written to the type it has now.
type caster func(arrow.Array) (arrow.Array, error)

// casterOf picks a conversion; nil means that the values are the same in both types.
//
// There is one for every pair of primitive types that Paimon lets a column change between (schema.CanCast), with the
// results of `casting.CastExecutors` of Paimon 1.4.2 in a process whose time zone is UTC, oddities included. Numbers that
// do not fit a DECIMAL become null; values that Paimon cannot read as the new type are an error, as they are there.
func casterOf(from, to schema.Type) (caster, error) {
	a, err := schema.ArrowType(from)
	if err != nil {
		return nil, err
	}
	b, err := schema.ArrowType(to)
	if err != nil {
		return nil, err
	}
	if arrow.TypeEqual(a, b) && !shortens(from, to) {
		return nil, nil
	}
	if !schema.CanCast(from, to, true) {
		return nil, unsupportedf("the file has type %s, which cannot be read as %s", from, to)
	}
	var c caster
	switch {
	case isInt(to.Root):
		c = toInteger(from, to)
	case to.Root == schema.Float, to.Root == schema.Double:
		c = toFloat(from, to)
	case to.Root == schema.Decimal:
		c = toDecimal(from, to)
	case to.Root == schema.Boolean:
		c = toBoolean(from, to)
	case isText(to.Root):
		c = toText(from, to)
	case isBytes(to.Root):
		c = toBytes(to)
	case to.Root == schema.Date, to.Root == schema.Time:
		c = toClock(from, to)
	case isTime(to.Root):
		c = toTimestamp(from, to, b.(*arrow.TimestampType))
	}
	if c == nil {
		return nil, unsupportedf("the file has type %s, which cannot be read as %s", from, to)
	}
	return c, nil
}

func isInt(r schema.Root) bool   { return r >= schema.TinyInt && r <= schema.BigInt }
func isTime(r schema.Root) bool  { return r == schema.Timestamp || r == schema.TimestampLTZ }
func isText(r schema.Root) bool  { return r == schema.Char || r == schema.VarChar }
func isBytes(r schema.Root) bool { return r == schema.Binary || r == schema.VarBinary }

// shortens reports whether values of one type may be changed by the other although both have the same Arrow form.
func shortens(from, to schema.Type) bool {
	switch {
	case to.Root == schema.Char && from.Root != schema.Char, to.Root == schema.Binary && from.Root != schema.Binary:
		return true // filled up
	case isText(from.Root) && isText(to.Root), isBytes(from.Root) && isBytes(to.Root):
		return to.Length < from.Length || to.Root == from.Root && to.Length != from.Length && (to.Root == schema.Char || to.Root == schema.Binary)
	}
	return isTime(from.Root) && isTime(to.Root) && to.Precision < from.Precision
}

// cannotRead is the error for a value that has no counterpart in the new type.
func cannotRead(value string, from, to schema.Type) error {
	const most = 60
	if len(value) > most {
		value = value[:most] + "…"
	}
	return unsupportedf("the value %q of type %s cannot be read as %s", value, from, to)
}

// whole views integers, days, times and timestamps of any width as int64.
func whole(a arrow.Array) func(int) int64 {
	switch a := a.(type) {
	case *array.Int8:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int16:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int64:
		return a.Value
	case *array.Date32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Time32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Timestamp:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Boolean:
		return func(i int) int64 {
			if a.Value(i) {
				return 1
			}
			return 0
		}
	}
	return nil
}

// real views floats as float64.
func real(a arrow.Array) func(int) float64 {
	switch a := a.(type) {
	case *array.Float32:
		return func(i int) float64 { return float64(a.Value(i)) }
	case *array.Float64:
		return a.Value
	}
	return nil
}

// mapRows appends one value for each row that is not null. put may say that a value becomes null, or fail.
func mapRows[B array.Builder](a arrow.Array, b B, put func(i int) (bool, error)) (arrow.Array, error) {
	b.Reserve(a.Len())
	for i := range a.Len() {
		if a.IsNull(i) {
			b.AppendNull()
			continue
		}
		ok, err := put(i)
		if err != nil {
			return nil, err
		}
		if !ok {
			b.AppendNull()
		}
	}
	return b.NewArray(), nil
}

// intBuilder appends int64 values to a builder of integers, wrapping as Java's casts do.
func intBuilder(root schema.Root) (array.Builder, func(int64)) {
	mem := memory.DefaultAllocator
	switch root {
	case schema.TinyInt:
		b := array.NewInt8Builder(mem)
		return b, func(v int64) { b.UnsafeAppend(int8(v)) }
	case schema.SmallInt:
		b := array.NewInt16Builder(mem)
		return b, func(v int64) { b.UnsafeAppend(int16(v)) }
	case schema.Int:
		b := array.NewInt32Builder(mem)
		return b, func(v int64) { b.UnsafeAppend(int32(v)) }
	}
	b := array.NewInt64Builder(mem)
	return b, b.UnsafeAppend
}

func toInteger(from, to schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		b, put := intBuilder(to.Root)
		switch a := a.(type) {
		case *array.Float32, *array.Float64:
			get := real(a)
			return mapRows(a, b, func(i int) (bool, error) { put(floatToInt(get(i), to.Root)); return true, nil })
		case *array.Decimal128:
			cut := pow10(from.Scale)
			return mapRows(a, b, func(i int) (bool, error) {
				v := new(big.Int).Quo(a.Value(i).BigInt(), cut)
				put(int64(lowBits(v)))
				return true, nil
			})
		case *array.String:
			return mapRows(a, b, func(i int) (bool, error) {
				v, ok := parseInt(a.Value(i), to.Root)
				if !ok {
					return false, cannotRead(a.Value(i), from, to)
				}
				put(v)
				return true, nil
			})
		case *array.Timestamp:
			get, per := whole(a), perSecond(from)
			return mapRows(a, b, func(i int) (bool, error) { // milliseconds are cut down, seconds towards zero
				put(floorDiv(get(i), per/1000) / 1000)
				return true, nil
			})
		}
		get := whole(a)
		return mapRows(a, b, func(i int) (bool, error) { put(get(i)); return true, nil })
	}
}

// floatToInt cuts as Java does: NaN is 0, what is too large is the greatest value, of INT for the types below it, which
// take its lowest bits.
func floatToInt(f float64, root schema.Root) int64 {
	low, high := int64(-1<<63), int64(1<<63-1)
	if root != schema.BigInt {
		low, high = -1<<31, 1<<31-1
	}
	switch {
	case f != f:
		return 0
	case f <= float64(low):
		return low
	case f >= float64(high):
		return high
	}
	return int64(f)
}

// lowBits gives the lowest 64 bits of a number in two's complement (`BigInteger.longValue`).
func lowBits(v *big.Int) uint64 {
	low := new(big.Int).And(v, new(big.Int).SetUint64(1<<64-1)) // And treats negative numbers as two's complement
	return low.Uint64()
}

func toFloat(from, to schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		if to.Root == schema.Double {
			b := array.NewFloat64Builder(memory.DefaultAllocator)
			return floats(a, from, to, b, b.UnsafeAppend)
		}
		b := array.NewFloat32Builder(memory.DefaultAllocator)
		put := func(f float64) { b.UnsafeAppend(float32(f)) }
		if get := whole(a); get != nil { // one rounding, not two
			return mapRows(a, b, func(i int) (bool, error) { b.UnsafeAppend(float32(get(i))); return true, nil })
		}
		return floats(a, from, to, b, put)
	}
}

func floats(a arrow.Array, from, to schema.Type, b array.Builder, put func(float64)) (arrow.Array, error) {
	switch a := a.(type) {
	case *array.Decimal128:
		return mapRows(a, b, func(i int) (bool, error) { put(decimalToFloat(a.Value(i), from)); return true, nil })
	case *array.String:
		bits := 64
		if to.Root == schema.Float {
			bits = 32
		}
		return mapRows(a, b, func(i int) (bool, error) {
			f, ok := parseFloat(a.Value(i), bits)
			if !ok {
				return false, cannotRead(a.Value(i), from, to)
			}
			put(f)
			return true, nil
		})
	case *array.Float32, *array.Float64:
		get := real(a)
		return mapRows(a, b, func(i int) (bool, error) { put(get(i)); return true, nil })
	}
	get := whole(a)
	return mapRows(a, b, func(i int) (bool, error) { put(float64(get(i))); return true, nil })
}

func toBoolean(from, to schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		b := array.NewBooleanBuilder(memory.DefaultAllocator)
		if t, ok := a.(*array.String); ok {
			return mapRows(a, b, func(i int) (bool, error) {
				v, ok := parseBool(t.Value(i))
				if !ok {
					return false, cannotRead(t.Value(i), from, to)
				}
				b.UnsafeAppend(v)
				return true, nil
			})
		}
		get := whole(a)
		return mapRows(a, b, func(i int) (bool, error) { b.UnsafeAppend(get(i) != 0); return true, nil })
	}
}
