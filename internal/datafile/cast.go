package datafile

import (
	"math"
	"math/big"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// caster converts a column from the type it had when the file was written to the type it has now.
type caster func(arrow.Array) (arrow.Array, error)

// casterOf picks a conversion; nil means that the values are the same in both types.
//
// These are the changes that lose nothing or that Paimon makes without being told to (`casting.CastExecutors`):
// numbers to wider numbers, to DECIMAL and to DOUBLE, decimals to other precisions, integers to narrower ones (which
// wrap), timestamps to other precisions, zones (UTC), DATE and TIME, texts and binaries to other lengths. A number that
// does not fit a decimal becomes null, as in Paimon.
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
	var c caster
	switch {
	case isInt(from.Root) && isInt(to.Root):
		c = intCaster(to.Root)
	case isNumber(from.Root) && to.Root == schema.Double:
		c = doubleCaster(from)
	case isInt(from.Root) && to.Root == schema.Float:
		c = floatCaster()
	case isNumber(from.Root) && to.Root == schema.Decimal:
		c = decimalCaster(from, to)
	case isTime(from.Root) && isTime(to.Root):
		c = timestampCaster(from, to, b)
	case isTime(from.Root) && (to.Root == schema.Date || to.Root == schema.Time):
		c = clockCaster(from, to)
	case isText(from.Root) && isText(to.Root), isBytes(from.Root) && isBytes(to.Root):
		c = lengthCaster(to)
	}
	if c == nil {
		return nil, unsupportedf("the file has type %s, which cannot be read as %s", from, to)
	}
	return c, nil
}

func isInt(r schema.Root) bool    { return r >= schema.TinyInt && r <= schema.BigInt }
func isNumber(r schema.Root) bool { return r >= schema.TinyInt && r <= schema.Decimal }
func isTime(r schema.Root) bool   { return r == schema.Timestamp || r == schema.TimestampLTZ }
func isText(r schema.Root) bool   { return r == schema.Char || r == schema.VarChar }
func isBytes(r schema.Root) bool  { return r == schema.Binary || r == schema.VarBinary }

// shortens reports whether values of one text or binary type may be too long for the other.
func shortens(from, to schema.Type) bool {
	return (isText(from.Root) || isBytes(from.Root)) && to.Length < from.Length
}

// reader64 gives integers as int64.
func reader64(a arrow.Array) func(int) int64 {
	switch a := a.(type) {
	case *array.Int8:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int16:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int64:
		return a.Value
	case *array.Timestamp:
		return func(i int) int64 { return int64(a.Value(i)) }
	}
	return nil
}

// mapRows appends one value for each row that is not null; put reports false for a value that becomes null.
func mapRows[B array.Builder](a arrow.Array, b B, put func(i int) bool) arrow.Array {
	b.Reserve(a.Len())
	for i := range a.Len() {
		if a.IsNull(i) || !put(i) {
			b.AppendNull()
		}
	}
	return b.NewArray()
}

func intCaster(to schema.Root) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		get := reader64(a)
		mem := memory.DefaultAllocator
		switch to {
		case schema.TinyInt:
			b := array.NewInt8Builder(mem)
			return mapRows(a, b, func(i int) bool { b.UnsafeAppend(int8(get(i))); return true }), nil
		case schema.SmallInt:
			b := array.NewInt16Builder(mem)
			return mapRows(a, b, func(i int) bool { b.UnsafeAppend(int16(get(i))); return true }), nil
		case schema.Int:
			b := array.NewInt32Builder(mem)
			return mapRows(a, b, func(i int) bool { b.UnsafeAppend(int32(get(i))); return true }), nil
		}
		b := array.NewInt64Builder(mem)
		return mapRows(a, b, func(i int) bool { b.UnsafeAppend(get(i)); return true }), nil
	}
}

func floatCaster() caster {
	return func(a arrow.Array) (arrow.Array, error) {
		get := reader64(a)
		b := array.NewFloat32Builder(memory.DefaultAllocator)
		return mapRows(a, b, func(i int) bool { b.UnsafeAppend(float32(get(i))); return true }), nil
	}
}

func doubleCaster(from schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		b := array.NewFloat64Builder(memory.DefaultAllocator)
		var get func(int) float64
		switch a := a.(type) {
		case *array.Float32:
			get = func(i int) float64 { return float64(a.Value(i)) }
		case *array.Decimal128:
			get = func(i int) float64 {
				f, _ := strconv.ParseFloat(a.Value(i).ToString(int32(from.Scale)), 64)
				return f
			}
		default:
			ints := reader64(a)
			get = func(i int) float64 { return float64(ints(i)) }
		}
		return mapRows(a, b, func(i int) bool { b.UnsafeAppend(get(i)); return true }), nil
	}
}

func decimalCaster(from, to schema.Type) caster {
	dt := &arrow.Decimal128Type{Precision: int32(to.Precision), Scale: int32(to.Scale)}
	return func(a arrow.Array) (arrow.Array, error) {
		b := array.NewDecimal128Builder(memory.DefaultAllocator, dt)
		var get func(int) (*big.Int, int)
		switch a := a.(type) {
		case *array.Float32:
			get = func(i int) (*big.Int, int) { return decimalOf(strconv.FormatFloat(float64(a.Value(i)), 'e', -1, 64)) }
		case *array.Float64:
			get = func(i int) (*big.Int, int) { return decimalOf(strconv.FormatFloat(a.Value(i), 'e', -1, 64)) }
		case *array.Decimal128:
			get = func(i int) (*big.Int, int) { return a.Value(i).BigInt(), from.Scale }
		default:
			ints := reader64(a)
			get = func(i int) (*big.Int, int) { return big.NewInt(ints(i)), 0 }
		}
		return mapRows(a, b, func(i int) bool {
			v, scale := get(i)
			n, ok := toScale(v, scale, to)
			if ok {
				b.UnsafeAppend(n)
			}
			return ok
		}), nil
	}
}

// decimalOf reads a float's shortest text, e.g. "-1.25e+02", as digits and scale. It is nil for NaN and infinities.
func decimalOf(s string) (*big.Int, int) {
	mant, exp := s, 0
	for i := range s {
		if s[i] == 'e' {
			mant = s[:i]
			exp, _ = strconv.Atoi(s[i+1:])
		}
	}
	digits, scale := make([]byte, 0, len(mant)), 0
	for i := range mant {
		if mant[i] == '.' {
			scale = len(mant) - i - 1
			continue
		}
		digits = append(digits, mant[i])
	}
	v, ok := new(big.Int).SetString(string(digits), 10)
	if !ok {
		return nil, 0
	}
	return v, scale - exp
}

// toScale rounds half up to the scale of a type. It fails if the result has too many digits.
func toScale(v *big.Int, scale int, t schema.Type) (decimal128.Num, bool) {
	if v == nil {
		return decimal128.Num{}, false
	}
	shift := t.Scale - scale
	switch {
	case shift > 76 && v.Sign() != 0:
		return decimal128.Num{}, false
	case shift > 0:
		v = new(big.Int).Mul(v, pow10(min(shift, 76)))
	case shift < 0:
		d := pow10(-shift)
		half := new(big.Int).Rsh(d, 1)
		abs := new(big.Int).Abs(v)
		abs.Add(abs, half).Quo(abs, d)
		if v.Sign() < 0 {
			abs.Neg(abs)
		}
		v = abs
	}
	if new(big.Int).Abs(v).Cmp(pow10(t.Precision)) >= 0 {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(v), true
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

func perSecond(t schema.Type) int64 {
	switch schema.TimeUnit(t) {
	case arrow.Millisecond:
		return 1e3
	case arrow.Microsecond:
		return 1e6
	}
	return 1e9
}

func timestampCaster(from, to schema.Type, dt arrow.DataType) caster {
	have, want := perSecond(from), perSecond(to)
	return func(a arrow.Array) (arrow.Array, error) {
		get := reader64(a)
		b := array.NewTimestampBuilder(memory.DefaultAllocator, dt.(*arrow.TimestampType))
		bad := false
		out := mapRows(a, b, func(i int) bool {
			v := get(i)
			switch f := want / max(have, 1); {
			case have >= want:
				v = floorDiv(v, have/want)
			case v > math.MaxInt64/f || v < math.MinInt64/f:
				bad = true
			default:
				v *= f
			}
			b.UnsafeAppend(arrow.Timestamp(v))
			return true
		})
		if bad {
			return nil, unsupportedf("a timestamp of type %s does not fit %s", from, to)
		}
		return out, nil
	}
}

// clockCaster takes the day or the time of the day.
func clockCaster(from, to schema.Type) caster {
	per := perSecond(from)
	return func(a arrow.Array) (arrow.Array, error) {
		get := reader64(a)
		if to.Root == schema.Date {
			b := array.NewDate32Builder(memory.DefaultAllocator)
			return mapRows(a, b, func(i int) bool { b.UnsafeAppend(arrow.Date32(floorDiv(get(i), per*86400))); return true }), nil
		}
		b := array.NewTime32Builder(memory.DefaultAllocator, arrow.FixedWidthTypes.Time32ms.(*arrow.Time32Type))
		return mapRows(a, b, func(i int) bool {
			v := get(i)
			b.UnsafeAppend(arrow.Time32((v - floorDiv(v, per*86400)*per*86400) / (per / 1000)))
			return true
		}), nil
	}
}

// lengthCaster cuts texts (by code points) and binaries to a length; CHAR and BINARY are filled up to it.
func lengthCaster(to schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		if t, ok := a.(*array.String); ok {
			b := array.NewStringBuilder(memory.DefaultAllocator)
			return mapRows(a, b, func(i int) bool { b.Append(fitText(t.Value(i), to)); return true }), nil
		}
		t := a.(*array.Binary)
		b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
		return mapRows(a, b, func(i int) bool {
			v := t.Value(i)
			v = v[:min(len(v), to.Length)]
			for to.Root == schema.Binary && len(v) < to.Length {
				v = append(v[:len(v):len(v)], make([]byte, to.Length-len(v))...)
			}
			b.Append(v)
			return true
		}), nil
	}
}

func fitText(s string, to schema.Type) string {
	s = s[:codePoints(s, to.Length)]
	if to.Root != schema.Char {
		return s
	}
	n := 0
	for range s {
		n++
	}
	for ; n < to.Length; n++ {
		s += " "
	}
	return s
}
