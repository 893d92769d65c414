package datafile

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// order is how the values of a type are compared.
type order uint8

const (
	orderNone  order = iota // binaries and INT96: Paimon keeps no bounds of them
	orderInt                // integers and what is stored as such
	orderFloat              // FLOAT and DOUBLE
	orderDecimal
	orderBool
	orderText // bytes, which for UTF-8 is the order of code points
)

func orderOf(t schema.Type) order {
	switch t.Root {
	case schema.Boolean:
		return orderBool
	case schema.TinyInt, schema.SmallInt, schema.Int, schema.BigInt, schema.Date, schema.Time:
		return orderInt
	case schema.Timestamp, schema.TimestampLTZ:
		if t.Precision > 6 {
			return orderNone // INT96 has no order
		}
		return orderInt
	case schema.Float, schema.Double:
		return orderFloat
	case schema.Decimal:
		return orderDecimal
	case schema.Char, schema.VarChar:
		return orderText
	}
	return orderNone
}

// bounds are the least and greatest value of a page, a column chunk or a file; only the fields of the order are used.
//
// Floats follow Parquet's rules, by which Paimon gets its statistics: a NaN makes the bounds unknown (engines sort it
// differently), and zeros are widened to -0 at the bottom and +0 at the top.
type bounds struct {
	any      bool // any value at all
	lost     bool // the bounds are not known: there is a NaN, or the file that pages were copied from does not say
	cut      bool // texts that may have been cut, as in a page index: bounds, but perhaps no values
	lo, hi   int64
	flo, fhi float64
	dlo, dhi decimal128.Num
	tlo, thi []byte
}

// known reports whether there are bounds.
func (b *bounds) known(o order) bool { return b.any && !b.lost && o != orderNone }

// merge widens b by other bounds.
func (b *bounds) merge(x *bounds, o order) {
	if !x.any {
		return
	}
	if !b.any {
		*b = *x
		return
	}
	b.lost, b.cut = b.lost || x.lost, b.cut || x.cut
	switch {
	case o == orderInt, o == orderBool:
		b.lo, b.hi = min(b.lo, x.lo), max(b.hi, x.hi)
	case o == orderFloat:
		b.flo, b.fhi = min(b.flo, x.flo), max(b.fhi, x.fhi)
	case o == orderDecimal:
		if x.dlo.Less(b.dlo) {
			b.dlo = x.dlo
		}
		if b.dhi.Less(x.dhi) {
			b.dhi = x.dhi
		}
	case o == orderText:
		if bytes.Compare(x.tlo, b.tlo) < 0 {
			b.tlo = x.tlo
		}
		if bytes.Compare(x.thi, b.thi) > 0 {
			b.thi = x.thi
		}
	}
}

// addInts widens b by integers.
func addInts[T int8 | int16 | int32 | int64](b *bounds, v []T) {
	if len(v) == 0 {
		return
	}
	lo, hi := v[0], v[0]
	for _, x := range v {
		lo, hi = min(lo, x), max(hi, x)
	}
	b.merge(&bounds{any: true, lo: int64(lo), hi: int64(hi)}, orderInt)
}

func addFloats[T float32 | float64](b *bounds, v []T) {
	if len(v) == 0 {
		return
	}
	lo, hi, nan := v[0], v[0], false
	for _, x := range v {
		nan = nan || x != x
		if x < lo {
			lo = x
		}
		if x > hi {
			hi = x
		}
	}
	b.merge(&bounds{any: true, lost: nan, flo: float64(lo), fhi: float64(hi)}, orderFloat)
}

func addDecimals(b *bounds, v []decimal128.Num) {
	if len(v) == 0 {
		return
	}
	lo, hi := v[0], v[0]
	for _, x := range v {
		if x.Less(lo) {
			lo = x
		}
		if hi.Less(x) {
			hi = x
		}
	}
	b.merge(&bounds{any: true, dlo: lo, dhi: hi}, orderDecimal)
}

// addText widens b by the values between offsets. The bounds are views until keepText. The first eight bytes decide
// most comparisons.
func addText(b *bounds, data []byte, off []int32) {
	if len(off) < 2 {
		return
	}
	if !b.any {
		v := data[off[0]:off[1]]
		b.any, b.tlo, b.thi = true, v, v
	}
	lo, hi := b.tlo, b.thi
	pl, ph := prefix(lo), prefix(hi)
	for i := range len(off) - 1 {
		v := data[off[i]:off[i+1]]
		p := prefix(v)
		if p <= pl && bytes.Compare(v, lo) < 0 {
			lo, pl = v, p
		}
		if p >= ph && bytes.Compare(v, hi) > 0 {
			hi, ph = v, p
		}
	}
	b.tlo, b.thi = lo, hi
}

// keepText makes the bounds independent of the batch they came from.
func (b *bounds) keepText() { b.tlo, b.thi = bytes.Clone(b.tlo), bytes.Clone(b.thi) }

// prefix packs the first eight bytes so that numbers compare as the bytes do; missing ones are zero.
func prefix(v []byte) uint64 {
	if len(v) >= 8 {
		return binary.BigEndian.Uint64(v)
	}
	var p uint64
	for i, b := range v {
		p |= uint64(b) << (56 - 8*i)
	}
	return p
}

// floats gives the bounds of floats with zeros widened.
func (b *bounds) floats() (lo, hi float64) {
	lo, hi = b.flo, b.fhi
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	if hi == 0 {
		hi = 0
	}
	return lo, hi
}

// cells gives the bounds as schema.Cell does, nil if they are not known.
func (b *bounds) cells(t schema.Type) (lo, hi any) {
	o := orderOf(t)
	if !b.known(o) {
		return nil, nil
	}
	switch t.Root {
	case schema.Boolean:
		return b.lo != 0, b.hi != 0
	case schema.TinyInt:
		return int8(b.lo), int8(b.hi)
	case schema.SmallInt:
		return int16(b.lo), int16(b.hi)
	case schema.Int, schema.Date, schema.Time:
		return int32(b.lo), int32(b.hi)
	case schema.Float:
		x, y := b.floats()
		return float32(x), float32(y)
	case schema.Double:
		x, y := b.floats()
		return x, y
	case schema.Decimal:
		return b.dlo, b.dhi
	case schema.Char, schema.VarChar:
		return string(b.tlo), string(b.thi)
	}
	return b.lo, b.hi
}

// stored gives the bounds as Parquet's PLAIN encoding has them (text without length).
func (b *bounds) stored(t schema.Type) (lo, hi []byte) {
	put := func(phys parquetType, v int64) []byte {
		switch phys {
		case typeBoolean:
			return []byte{byte(v)}
		case typeInt32, typeFloat:
			return binary.LittleEndian.AppendUint32(nil, uint32(v))
		}
		return binary.LittleEndian.AppendUint64(nil, uint64(v))
	}
	phys, width := physicalOf(t)
	switch orderOf(t) {
	case orderText:
		return b.tlo, b.thi
	case orderFloat:
		x, y := b.floats()
		if phys == typeFloat {
			return put(phys, int64(math.Float32bits(float32(x)))), put(phys, int64(math.Float32bits(float32(y))))
		}
		return put(phys, int64(math.Float64bits(x))), put(phys, int64(math.Float64bits(y)))
	case orderDecimal:
		if phys == typeFixedBytes {
			buf := make([]byte, 2*width+16)
			putDecimals(buf, []decimal128.Num{b.dlo, b.dhi}, width)
			return buf[:width:width], buf[width : 2*width : 2*width]
		}
		return put(phys, int64(b.dlo.LowBits())), put(phys, int64(b.dhi.LowBits()))
	}
	return put(phys, b.lo), put(phys, b.hi)
}

// boundsOf is the inverse of stored: bounds of some values, from statistics that are in the order of the type. They are lost
// if one is missing or no value of the type.
func boundsOf(t schema.Type, lo, hi []byte) bounds {
	b := bounds{any: true}
	phys, width := physicalOf(t)
	o := orderOf(t)
	if o == orderText {
		if b.lost = lo == nil || hi == nil; !b.lost {
			b.tlo, b.thi = bytes.Clone(lo), bytes.Clone(hi)
		}
		return b
	}
	if o == orderBool {
		width = 1
	}
	if b.lost = o == orderNone || len(lo) != width || len(hi) != width; b.lost {
		return b
	}
	number := func(v []byte) int64 {
		switch width {
		case 1:
			return int64(v[0] & 1)
		case 4:
			return int64(int32(binary.LittleEndian.Uint32(v)))
		}
		return int64(binary.LittleEndian.Uint64(v))
	}
	switch o {
	case orderFloat:
		if phys == typeFloat {
			b.flo, b.fhi = float64(math.Float32frombits(uint32(number(lo)))), float64(math.Float32frombits(uint32(number(hi))))
		} else {
			b.flo, b.fhi = math.Float64frombits(uint64(number(lo))), math.Float64frombits(uint64(number(hi)))
		}
		b.lost = b.flo != b.flo || b.fhi != b.fhi
	case orderDecimal:
		if phys == typeFixedBytes {
			b.dlo, b.dhi = bigEndian(lo), bigEndian(hi)
		} else {
			b.dlo, b.dhi = decimal128.FromI64(number(lo)), decimal128.FromI64(number(hi))
		}
	default:
		b.lo, b.hi = number(lo), number(hi)
	}
	return b
}

// bigEndian reads a number of at most 16 bytes in two's complement.
func bigEndian(v []byte) decimal128.Num {
	var buf [16]byte
	if v[0]&0x80 != 0 {
		for i := range buf {
			buf[i] = 0xff
		}
	}
	copy(buf[16-len(v):], v)
	return decimal128.New(int64(binary.BigEndian.Uint64(buf[:8])), binary.BigEndian.Uint64(buf[8:]))
}

// shorten cuts texts of more than so many bytes to so many characters: what is kept of a page or a file must not grow with
// its longest texts. The bounds are lost if the upper one cannot be shortened.
func (b *bounds) shorten(size, characters int) {
	if len(b.tlo) > size {
		b.tlo, b.cut = []byte(truncateMin(string(b.tlo), characters)), true
	}
	if len(b.thi) > size {
		s, ok := truncateMax(string(b.thi), characters)
		b.thi, b.cut = []byte(s), true
		b.lost = b.lost || !ok
	}
}

// indexBytes is the length to which texts are cut in the page index (as Parquet's Java library does).
const indexBytes = 64

// indexed gives the bounds for the page index, where a shorter text that is still a bound will do. There are none if
// a text cannot be shortened.
func (b *bounds) indexed(t schema.Type) (lo, hi []byte, ok bool) {
	lo, hi = b.stored(t)
	if orderOf(t) != orderText {
		return lo, hi, true
	}
	if len(lo) > indexBytes {
		lo = []byte(truncateMin(string(lo), indexBytes/4))
	}
	if len(hi) > indexBytes {
		s, short := truncateMax(string(hi), indexBytes/4)
		if !short {
			return nil, nil, false
		}
		hi = []byte(s)
	}
	return lo, hi, true
}
