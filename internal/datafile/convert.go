package datafile

import (
	"encoding/binary"
	"math"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// converter turns values as Parquet stores them into Arrow's: dst holds len(src)/(stored width) values.
type converter func(dst, src []byte) error

// fixedForm says how a fixed-width column gets from Parquet to Arrow.
type fixedForm struct {
	stored, width int // bytes of a value in the file and in Arrow
	convert       converter
}

// fixedFormOf picks the conversion for a file's column of a type, or says why there is none.
func fixedFormOf(l *leaf, t schema.Type) (fixedForm, error) {
	w := l.width()
	same := fixedForm{stored: w, width: w, convert: copyValues}
	switch t.Root {
	case schema.TinyInt:
		if l.phys == typeInt32 {
			return fixedForm{4, 1, toInt8}, nil
		}
	case schema.SmallInt:
		if l.phys == typeInt32 {
			return fixedForm{4, 2, toInt16}, nil
		}
	case schema.Int, schema.Date:
		if l.phys == typeInt32 {
			return same, nil
		}
	case schema.Time:
		if l.phys == typeInt32 && (l.unit == unitMillis || l.unit == unitNone) {
			return same, nil
		}
	case schema.BigInt:
		if l.phys == typeInt64 {
			return same, nil
		}
	case schema.Float:
		if l.phys == typeFloat {
			return same, nil
		}
	case schema.Double:
		if l.phys == typeDouble {
			return same, nil
		}
	case schema.Decimal:
		return decimalForm(l, t)
	case schema.Timestamp, schema.TimestampLTZ:
		return timestampForm(l, t)
	}
	return fixedForm{}, unsupportedf("type %s is stored as Parquet type %d", t, l.phys)
}

func decimalForm(l *leaf, t schema.Type) (fixedForm, error) {
	if l.decimal && int(l.scale) != t.Scale {
		return fixedForm{}, unsupportedf("type %s is stored with scale %d", t, l.scale)
	}
	switch {
	case l.phys == typeInt32:
		return fixedForm{4, 16, int32ToDecimal}, nil
	case l.phys == typeInt64:
		return fixedForm{8, 16, int64ToDecimal}, nil
	case l.phys == typeFixedBytes && l.length >= 1 && l.length <= 16:
		w := int(l.length)
		return fixedForm{w, 16, func(dst, src []byte) error { fixedToDecimal(dst, src, w); return nil }}, nil
	}
	return fixedForm{}, unsupportedf("type %s is stored as Parquet type %d of length %d", t, l.phys, l.length)
}

func timestampForm(l *leaf, t schema.Type) (fixedForm, error) {
	to := schema.TimeUnit(t)
	if l.phys == typeInt96 {
		per := int64(1)
		switch to {
		case arrow.Millisecond:
			per = 1_000_000
		case arrow.Microsecond:
			per = 1_000
		}
		return fixedForm{12, 8, func(dst, src []byte) error { return int96ToTime(dst, src, per) }}, nil
	}
	if l.phys != typeInt64 {
		return fixedForm{}, unsupportedf("type %s is stored as Parquet type %d", t, l.phys)
	}
	exp := map[timeUnit]int{unitMillis: 3, unitMicros: 6, unitNanos: 9}
	have, ok := exp[l.unit]
	want := map[arrow.TimeUnit]int{arrow.Millisecond: 3, arrow.Microsecond: 6, arrow.Nanosecond: 9}[to]
	if !ok || have == want {
		return fixedForm{8, 8, copyValues}, nil
	}
	return fixedForm{8, 8, func(dst, src []byte) error { return rescaleTimes(dst, src, want-have) }}, nil
}

func copyValues(dst, src []byte) error {
	copy(dst, src)
	return nil
}

func toInt8(dst, src []byte) error {
	for i := range len(src) / 4 {
		dst[i] = src[4*i]
	}
	return nil
}

func toInt16(dst, src []byte) error {
	for i := range len(src) / 4 {
		dst[2*i], dst[2*i+1] = src[4*i], src[4*i+1]
	}
	return nil
}

func int32ToDecimal(dst, src []byte) error {
	d := asDecimals(dst)
	for i := range len(src) / 4 {
		d[i] = decimal128.FromI64(int64(int32(binary.LittleEndian.Uint32(src[4*i:]))))
	}
	return nil
}

func int64ToDecimal(dst, src []byte) error {
	d := asDecimals(dst)
	for i := range len(src) / 8 {
		d[i] = decimal128.FromI64(int64(binary.LittleEndian.Uint64(src[8*i:])))
	}
	return nil
}

// fixedToDecimal reads big-endian two's complement numbers of w bytes.
func fixedToDecimal(dst, src []byte, w int) {
	d := asDecimals(dst)
	for i := range len(src) / w {
		v := src[i*w : (i+1)*w]
		hi := int64(int8(v[0])) >> 7
		lo := uint64(hi)
		for _, b := range v {
			hi = hi<<8 | int64(lo>>56)
			lo = lo<<8 | uint64(b)
		}
		d[i] = decimal128.New(hi, lo)
	}
}

// julianEpoch is the Julian day number of 1970-01-01.
const julianEpoch = 2440588

// int96ToTime reads nanoseconds of the day (which Paimon makes negative before 1970) and a Julian day.
func int96ToTime(dst, src []byte, per int64) error {
	const nanosOfDay = 86_400_000_000_000
	day := nanosOfDay / per
	for i := range len(src) / 12 {
		nanos := int64(binary.LittleEndian.Uint64(src[12*i:]))
		days := int64(int32(binary.LittleEndian.Uint32(src[12*i+8:]))) - julianEpoch
		if nanos > nanosOfDay || nanos < -nanosOfDay {
			return corruptf("timestamp at %d nanoseconds of a day", nanos)
		}
		rest := floorDiv(nanos, per)
		whole := days
		// One day is put to the rest, so that the others cannot be out of range where their sum is not.
		switch {
		case days > 0:
			whole, rest = days-1, rest+day
		case days < 0:
			whole, rest = days+1, rest-day
		}
		if whole > math.MaxInt64/day || whole < math.MinInt64/day {
			return unsupportedf("timestamp of day %d from 1970 does not fit its unit", days)
		}
		v := whole*day + rest
		if whole > 0 && rest > 0 && v < 0 || whole < 0 && rest < 0 && v >= 0 {
			return unsupportedf("timestamp of day %d from 1970 does not fit its unit", days)
		}
		binary.LittleEndian.PutUint64(dst[8*i:], uint64(v))
	}
	return nil
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// rescaleTimes multiplies or divides by a power of ten.
func rescaleTimes(dst, src []byte, digits int) error {
	f := int64(1)
	for range max(digits, -digits) {
		f *= 10
	}
	for i := range len(src) / 8 {
		v := int64(binary.LittleEndian.Uint64(src[8*i:]))
		if digits < 0 {
			v = floorDiv(v, f)
		} else if v > math.MaxInt64/f || v < math.MinInt64/f {
			return unsupportedf("timestamp %d does not fit when its unit is made %d times finer", v, f)
		} else {
			v *= f
		}
		binary.LittleEndian.PutUint64(dst[8*i:], uint64(v))
	}
	return nil
}

// asBytes views numbers as bytes.
func asBytes[T int32 | int64 | uint64](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

// view turns bytes of an aligned buffer into numbers.
func view[T any](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func asDecimals(b []byte) []decimal128.Num { return view[decimal128.Num](b) }

// alignedBytes makes a buffer whose start is aligned for every type and whose content is arbitrary: all of it must be
// written before anybody sees it.
func alignedBytes(n int) []byte {
	if n == 0 {
		return nil
	}
	return dirtyBytes(n)
}

// dirtyBytes makes a slice that is not cleared: clearing what is overwritten at once took an eighth of the time of
// decoding. The standard library has one allocation without clearing, that of strings.Builder, which gives its buffer
// away as a string. Buffers of 16 bytes and more are aligned to 8.
func dirtyBytes(n int) []byte {
	if n < 1<<10 {
		return asBytes(make([]uint64, (n+7)/8))[:n]
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteByte(0)
	return unsafe.Slice(unsafe.StringData(b.String()), n)
}
