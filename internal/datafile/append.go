package datafile

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// source is an array with its buffers at hand.
type source struct {
	a       arrow.Array
	n, nuls int
	at      int // offset of the first value
	valid   []byte
	fixed   []byte
	off     []int32 // text: n+1 offsets
	data    []byte
}

func newSource(a arrow.Array) source {
	d := a.Data()
	s := source{a: a, n: d.Len(), nuls: a.NullN(), at: d.Offset()}
	bufs := d.Buffers()
	if s.nuls > 0 && bufs[0] != nil {
		s.valid = bufs[0].Bytes()
	}
	if bufs[1] != nil {
		s.fixed = bufs[1].Bytes()
	}
	switch a.(type) {
	case *array.String, *array.Binary:
		if s.n > 0 {
			s.off = arrow.Int32Traits.CastFromBytes(s.fixed)[s.at : s.at+s.n+1]
		}
		if bufs[2] != nil {
			s.data = bufs[2].Bytes()
		}
	}
	return s
}

// numbers gives the values of a fixed-width array from one row to another.
func numbers[T any](s *source, from, to int) []T { return view[T](s.fixed)[s.at+from : s.at+to] }

// values gives all values of a fixed-width array.
func values[T any](a arrow.Array) []T {
	s := newSource(a)
	return numbers[T](&s, 0, s.n)
}

// appendRows adds rows to the page: their definition levels and the values that are not null.
func (e *columnEncoder) appendRows(s *source, from, k int) error {
	if s.nuls == 0 {
		if e.nulls > 0 {
			bitutil.SetBitsTo(e.valid, int64(e.rows), int64(k), true)
		}
		return e.appendValues(s, from, from+k)
	}
	present := bitutil.CountSetBits(s.valid, s.at+from, k)
	if present < k && e.nulls == 0 {
		e.valid = resize(e.valid, pageRows/8+8)
		bitutil.SetBitsTo(e.valid, 0, int64(e.rows), true)
	}
	if present < k || e.nulls > 0 {
		bitutil.CopyBitmap(s.valid, s.at+from, k, e.valid, e.rows)
	}
	e.nulls += k - present
	if present == k {
		return e.appendValues(s, from, from+k)
	}
	for i := from; i < from+k; {
		if !bitutil.BitIsSet(s.valid, s.at+i) {
			i++
			continue
		}
		run := i
		for i < from+k && bitutil.BitIsSet(s.valid, s.at+i) {
			i++
		}
		if err := e.appendValues(s, run, i); err != nil {
			return err
		}
	}
	return nil
}

// appendValues adds values that are not null.
func (e *columnEncoder) appendValues(s *source, from, to int) error {
	switch e.typ.Root {
	case schema.Boolean:
		e.appendBools(s, from, to)
	case schema.TinyInt:
		v := numbers[int8](s, from, to)
		addInts(&e.page, v)
		e.i32 = widen(e.i32, v)
	case schema.SmallInt:
		v := numbers[int16](s, from, to)
		addInts(&e.page, v)
		e.i32 = widen(e.i32, v)
	case schema.Int, schema.Date, schema.Time:
		v := numbers[int32](s, from, to)
		addInts(&e.page, v)
		e.appendInt32s(v)
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		v := numbers[int64](s, from, to)
		if e.phys == typeInt96 {
			e.vals = appendInt96(e.vals, v)
			return nil
		}
		addInts(&e.page, v)
		e.appendInt64s(v)
	case schema.Float:
		addFloats(&e.page, numbers[float32](s, from, to))
		e.appendFloats(s, from, to, 4)
	case schema.Double:
		addFloats(&e.page, numbers[float64](s, from, to))
		e.appendFloats(s, from, to, 8)
	case schema.Decimal:
		return e.appendDecimals(numbers[decimal128.Num](s, from, to))
	default:
		e.appendText(s.data, s.off[from:to+1])
	}
	return nil
}

func (e *columnEncoder) appendBools(s *source, from, to int) {
	n := to - from
	set := bitutil.CountSetBits(s.fixed, s.at+from, n)
	b := bounds{any: true, lo: 1}
	if set > 0 {
		b.hi = 1
	}
	if set < n {
		b.lo = 0
	}
	e.page.merge(&b, orderBool)
	need := (e.bits + n + 7) / 8
	for len(e.vals) < need {
		e.vals = append(e.vals, 0)
	}
	bitutil.CopyBitmap(s.fixed, s.at+from, n, e.vals, e.bits)
	e.bits += n
}

func (e *columnEncoder) appendInt32s(v []int32) {
	if e.enc != dictEncoding {
		e.i32 = append(e.i32, v...)
		return
	}
	for _, x := range v {
		e.idx = append(e.idx, e.dict.number(uint64(uint32(x)), 4))
	}
}

func (e *columnEncoder) appendInt64s(v []int64) {
	if e.enc != dictEncoding {
		e.i64 = append(e.i64, v...)
		return
	}
	for _, x := range v {
		e.idx = append(e.idx, e.dict.number(uint64(x), 8))
	}
}

func (e *columnEncoder) appendFloats(s *source, from, to, w int) {
	switch {
	case e.enc != dictEncoding:
		e.vals = append(e.vals, s.fixed[(s.at+from)*w:(s.at+to)*w]...)
	case w == 4:
		for _, x := range numbers[uint32](s, from, to) {
			e.idx = append(e.idx, e.dict.number(uint64(x), 4))
		}
	default:
		for _, x := range numbers[uint64](s, from, to) {
			e.idx = append(e.idx, e.dict.number(x, 8))
		}
	}
}

// appendDecimals narrows decimals to their stored form.
func (e *columnEncoder) appendDecimals(v []decimal128.Num) error {
	addDecimals(&e.page, v)
	fit := true
	switch e.phys {
	case typeInt32:
		for _, x := range v {
			lo := int64(x.LowBits())
			fit = fit && x.HighBits() == lo>>63 && lo >= math.MinInt32 && lo <= math.MaxInt32
			if e.enc == dictEncoding {
				e.idx = append(e.idx, e.dict.number(uint64(uint32(lo)), 4))
			} else {
				e.i32 = append(e.i32, int32(lo))
			}
		}
	case typeInt64:
		for _, x := range v {
			lo := int64(x.LowBits())
			fit = fit && x.HighBits() == lo>>63
			if e.enc == dictEncoding {
				e.idx = append(e.idx, e.dict.number(uint64(lo), 8))
			} else {
				e.i64 = append(e.i64, lo)
			}
		}
	default:
		n := len(e.vals)
		e.vals = append(e.vals, make([]byte, len(v)*e.width+16)...)
		fit = putDecimals(e.vals[n:], v, e.width)
		e.vals = e.vals[:n+len(v)*e.width]
	}
	if fit {
		return nil
	}
	for _, x := range v {
		if !x.FitsInPrecision(int32(e.typ.Precision)) {
			return fmt.Errorf("column %q: %s does not fit %s", e.name, x.ToString(int32(e.typ.Scale)), e.typ)
		}
	}
	return fmt.Errorf("column %q: a decimal does not fit %s", e.name, e.typ)
}

// putDecimals writes numbers of w bytes, big-endian; dst has 16 bytes to spare. It reports whether all fitted.
func putDecimals(dst []byte, v []decimal128.Num, w int) bool {
	var buf [16]byte
	fit := true
	for i, x := range v {
		binary.BigEndian.PutUint64(buf[:8], uint64(x.HighBits()))
		binary.BigEndian.PutUint64(buf[8:], x.LowBits())
		copy(dst[i*w:], buf[16-w:])
		if w < 16 {
			s := x.HighBits() >> uint(w*8-64-1) // must be nothing but the sign
			fit = fit && (s == 0 || s == -1)
		}
	}
	return fit
}

func (e *columnEncoder) appendText(data []byte, off []int32) {
	if e.enc == dictEncoding {
		e.appendTextIndexes(data, off)
		return
	}
	if e.order == orderText {
		addText(&e.page, data, off)
	}
	n := len(off) - 1
	size := int(off[n]-off[0]) + 4*n
	at := len(e.vals)
	e.vals = grow(e.vals, size+copyStep)
	dst := e.vals[:cap(e.vals)]
	for i := range n {
		v := data[off[i]:off[i+1]]
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(v)))
		at += 4
		if len(v) <= copyStep && int(off[i])+copyStep <= len(data) {
			copyShort(dst[at:at+copyStep], data[off[i]:int(off[i])+copyStep])
		} else {
			copy(dst[at:], v)
		}
		at += len(v)
	}
	e.vals = e.vals[:at]
}

// appendTextIndexes looks values up. Bounds are those of the entries that a page refers to: most values are compared
// with none.
func (e *columnEncoder) appendTextIndexes(data []byte, off []int32) {
	page := int32(len(e.meta.pages))
	for i := range len(off) - 1 {
		v := data[off[i]:off[i+1]]
		k := e.dict.text(v)
		e.idx = append(e.idx, k)
		if e.dict.seen[k] != page {
			e.dict.seen[k] = page
			if e.order == orderText {
				addText(&e.page, data, off[i:i+2])
			}
		}
	}
}

// stepRows gives how many of n values are about a page's room, at least one.
func stepRows(off []int32, n, room int) int {
	if int(off[n])-int(off[0])+4*n <= room {
		return n
	}
	lo, hi := 1, n // the answer is in [lo, hi]
	for lo < hi {
		m := (lo + hi + 1) / 2
		if int(off[m])-int(off[0])+4*m <= room {
			lo = m
		} else {
			hi = m - 1
		}
	}
	return lo
}

func widen[T int8 | int16](dst []int32, src []T) []int32 {
	for _, x := range src {
		dst = append(dst, int32(x))
	}
	return dst
}

// appendInt96 writes nanoseconds since 1970 as nanoseconds of the day and Julian day. Paimon's own writer divides towards
// zero, so that it has negative ones before 1970 (`ParquetRowDataWriter`, §8.2); it reads both forms, but Arrow's
// libraries refuse those.
func appendInt96(dst []byte, v []int64) []byte {
	const day = 86_400_000_000_000
	for _, x := range v {
		days := floorDiv(x, day)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(x-days*day))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(int32(days+julianEpoch)))
	}
	return dst
}

// leafOf gives the array of a leaf of a column.
func leafOf(a arrow.Array, steps []step) arrow.Array {
	for _, s := range steps {
		switch s.kind {
		case stepField:
			a = a.(*array.Struct).Field(s.kid)
		case stepList:
			a = a.(array.ListLike).ListValues()
		}
	}
	return a
}
