package datafile

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/calve-io/calve/schema"
)

// pageBytes is the size at which a data page ends. 256 KiB stay in the second-level cache from encoding to compression
// and back, which is 5 % faster than Paimon's 1 MiB.
const pageBytes = 256 << 10

// columnEncoder writes one column. It belongs to one goroutine at a time; the scratch space lives as long as the file.
type columnEncoder struct {
	fileColumn
	want arrow.DataType
	cw   file.ColumnChunkWriter // of the open row group

	levels []int16 // definition levels; all ones up to len(levels) when onesOnly
	ones   bool
	i32    []int32
	i64    []int64
	fixed  []byte
	views  []parquet.ByteArray
}

func newColumnEncoder(c fileColumn) (*columnEncoder, error) {
	want, err := schema.ArrowType(c.typ)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", c.name, err)
	}
	return &columnEncoder{fileColumn: c, want: want}, nil
}

// writeSeq writes sequence numbers.
func (e *columnEncoder) writeSeq(v []int64) error {
	_, err := e.cw.(*file.Int64ColumnChunkWriter).WriteBatch(v, nil, nil)
	return err
}

// writeKinds writes row kinds.
func (e *columnEncoder) writeKinds(v []int8) error {
	e.i32 = resize(e.i32, len(v))
	for i, x := range v {
		e.i32[i] = int32(x)
	}
	_, err := e.cw.(*file.Int32ColumnChunkWriter).WriteBatch(e.i32, nil, nil)
	return err
}

// check refuses arrays that are not what the column declares.
func (e *columnEncoder) check(a arrow.Array) error {
	if !arrow.TypeEqual(a.DataType(), e.want) {
		return fmt.Errorf("column %q of type %s needs Arrow %s, got %s", e.name, e.typ, e.want, a.DataType())
	}
	if n := a.NullN(); n > 0 && e.typ.NotNull {
		return fmt.Errorf("column %q is NOT NULL but %d of %d rows are null", e.name, n, a.Len())
	}
	return nil
}

// write appends an array to the open row group.
func (e *columnEncoder) write(a arrow.Array) error {
	if a.Len() == 0 {
		return nil
	}
	def, valid := e.definition(a)
	off := int64(a.Data().Offset())
	switch cw := e.cw.(type) {
	case *file.BooleanColumnChunkWriter:
		bits := a.Data().Buffers()[1].Bytes()
		if valid != nil {
			bits, off = e.presentBits(a, bits), 0
		}
		_, err := cw.WriteBitmapBatch(bits, off, a.Len()-a.NullN(), def, nil)
		return err
	case *file.Int32ColumnChunkWriter:
		v, err := e.int32s(a)
		if err == nil && valid != nil {
			_, err = cw.WriteBatchSpacedWithError(v, def, nil, valid, off)
		} else if err == nil {
			_, err = cw.WriteBatch(v, def, nil)
		}
		return err
	case *file.Int64ColumnChunkWriter:
		v, err := e.int64s(a)
		if err == nil && valid != nil {
			_, err = cw.WriteBatchSpacedWithError(v, def, nil, valid, off)
		} else if err == nil {
			_, err = cw.WriteBatch(v, def, nil)
		}
		return err
	case *file.Float32ColumnChunkWriter:
		v := values(a, arrow.Float32Traits.CastFromBytes)
		if valid != nil {
			_, err := cw.WriteBatchSpacedWithError(v, def, nil, valid, off)
			return err
		}
		_, err := cw.WriteBatch(v, def, nil)
		return err
	case *file.Float64ColumnChunkWriter:
		v := values(a, arrow.Float64Traits.CastFromBytes)
		if valid != nil {
			_, err := cw.WriteBatchSpacedWithError(v, def, nil, valid, off)
			return err
		}
		_, err := cw.WriteBatch(v, def, nil)
		return err
	case *file.ByteArrayColumnChunkWriter:
		return e.writeBytes(cw, a, def, valid)
	case *file.FixedLenByteArrayColumnChunkWriter:
		return e.writeFixed(cw, a, def, valid)
	}
	return fmt.Errorf("column %q: no encoder for %T", e.name, e.cw)
}

// presentBits gives the booleans that are not null. The library has a call that skips nulls, but in v18.8.0 it
// dereferences nil if a column begins with a batch of nulls only.
func (e *columnEncoder) presentBits(a arrow.Array, bits []byte) []byte {
	e.fixed = resize(e.fixed, (a.Len()+7)/8+8)
	n, off := 0, a.Data().Offset()
	eachRun(a, func(from, to int) {
		bitutil.CopyBitmap(bits, off+from, to-from, e.fixed, n)
		n += to - from
	})
	return e.fixed
}

// definition gives the definition levels (nil for required columns) and, if there are nulls, the validity bitmap.
func (e *columnEncoder) definition(a arrow.Array) (def []int16, valid []byte) {
	n := a.Len()
	if e.typ.NotNull {
		return nil, nil
	}
	if a.NullN() == 0 {
		if !e.ones || len(e.levels) < n {
			e.levels = resize(e.levels[:cap(e.levels)], n)
			for i := range e.levels {
				e.levels[i] = 1
			}
			e.ones = true
		}
		return e.levels[:n], nil
	}
	e.levels, e.ones = resize(e.levels, n), false
	bits, off := a.NullBitmapBytes(), a.Data().Offset()
	for i := range e.levels {
		j := off + i
		e.levels[i] = int16(bits[j>>3] >> (j & 7) & 1)
	}
	return e.levels, bits
}

// values gives the values of a fixed-width array, its offset applied.
func values[T any](a arrow.Array, cast func([]byte) []T) []T {
	d := a.Data()
	return cast(d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()]
}

func (e *columnEncoder) int32s(a arrow.Array) ([]int32, error) {
	switch a := a.(type) {
	case *array.Int8:
		e.i32 = widen(e.i32, a.Int8Values())
		return e.i32, nil
	case *array.Int16:
		e.i32 = widen(e.i32, a.Int16Values())
		return e.i32, nil
	case *array.Decimal128:
		v := a.Values()
		e.i32 = resize(e.i32, len(v))
		bad := false
		for i, x := range v {
			lo := int64(x.LowBits())
			bad = bad || x.HighBits() != lo>>63 || lo != int64(int32(lo))
			e.i32[i] = int32(lo)
		}
		if bad {
			return e.i32, e.checkDecimals(a)
		}
		return e.i32, nil
	}
	return values(a, arrow.Int32Traits.CastFromBytes), nil
}

func (e *columnEncoder) int64s(a arrow.Array) ([]int64, error) {
	d, ok := a.(*array.Decimal128)
	if !ok {
		return values(a, arrow.Int64Traits.CastFromBytes), nil
	}
	v := d.Values()
	e.i64 = resize(e.i64, len(v))
	bad := false
	for i, x := range v {
		lo := int64(x.LowBits())
		bad = bad || x.HighBits() != lo>>63
		e.i64[i] = lo
	}
	if bad {
		return e.i64, e.checkDecimals(d)
	}
	return e.i64, nil
}

func widen[T int8 | int16](dst []int32, src []T) []int32 {
	dst = resize(dst, len(src))
	for i, x := range src {
		dst[i] = int32(x)
	}
	return dst
}

// checkDecimals looks for the value that does not fit. What lies under a null may be anything.
func (e *columnEncoder) checkDecimals(a *array.Decimal128) error {
	for i, x := range a.Values() {
		if a.IsValid(i) && !x.FitsInPrecision(int32(e.typ.Precision)) {
			return fmt.Errorf("column %q: row %d: %s does not fit %s", e.name, i, x.ToString(int32(e.typ.Scale)), e.typ)
		}
	}
	return nil
}

// writeFixed writes decimals as big-endian two's complement numbers.
func (e *columnEncoder) writeFixed(cw *file.FixedLenByteArrayColumnChunkWriter, a arrow.Array, def []int16, valid []byte) error {
	d, ok := a.(*array.Decimal128)
	if !ok {
		return fmt.Errorf("column %q: no fixed-length form of %s", e.name, a.DataType())
	}
	v, w := d.Values(), fixedBytes(e.typ.Precision)
	e.fixed = resize(e.fixed, len(v)*w+16)
	if !putDecimals(e.fixed, v, w) {
		if err := e.checkDecimals(d); err != nil {
			return err
		}
	}
	raw := e.fixed[:len(v)*w]
	if valid != nil {
		_, err := cw.WriteBatchSpacedArrow(raw, def, nil, valid, int64(a.Data().Offset()))
		return err
	}
	_, err := cw.WriteBatchArrow(raw, def, nil)
	return err
}

// putDecimals writes numbers of w bytes; dst has 16 bytes to spare. It reports whether all fitted.
func putDecimals(dst []byte, v []decimal128.Num, w int) bool {
	var buf [16]byte
	fit := true
	for i, x := range v {
		binary.BigEndian.PutUint64(buf[:8], uint64(x.HighBits()))
		binary.BigEndian.PutUint64(buf[8:], x.LowBits())
		copy(dst[i*w:], buf[16-w:])
		if w < 16 {
			shift := uint(w*8 - 64 - 1) // bits of the high word that must all be the sign
			s := x.HighBits() >> shift
			fit = fit && (s == 0 || s == -1)
		}
	}
	return fit
}

// writeBytes writes strings and binaries in steps of at most about one page, so that long values do not make pages of
// hundreds of megabytes: the library looks at the page size only between calls and every 1,024 values.
func (e *columnEncoder) writeBytes(cw *file.ByteArrayColumnChunkWriter, a arrow.Array, def []int16, valid []byte) error {
	d := a.Data()
	off := arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
	var data []byte
	if b := d.Buffers()[2]; b != nil {
		data = b.Bytes()
	}
	n := d.Len()
	for from := 0; from < n; {
		to := from + stepRows(off[from:], n-from)
		var lv []int16
		if def != nil {
			lv = def[from:to]
		}
		if err := e.writeViews(cw, data, off[from:to+1], lv, valid, d.Offset()+from); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// stepRows gives how many of n values are about one page.
func stepRows(off []int32, n int) int {
	if int(off[n])-int(off[0]) <= pageBytes {
		return n
	}
	limit := off[0] + pageBytes
	lo, hi := 1, n // the answer is in [lo, hi]: at least one value, however long
	for lo < hi {
		m := (lo + hi + 1) / 2
		if off[m] <= limit {
			lo = m
		} else {
			hi = m - 1
		}
	}
	return lo
}

func (e *columnEncoder) writeViews(cw *file.ByteArrayColumnChunkWriter, data []byte, off []int32, def []int16, valid []byte, bit int) error {
	if cw.SupportsArrowOffsets() {
		if valid != nil {
			_, err := cw.WriteBatchSpacedArrow(data, off, def, nil, valid, int64(bit))
			return err
		}
		_, err := cw.WriteBatchArrow(data, off, def, nil)
		return err
	}
	n := len(off) - 1
	e.views = resize(e.views, n)[:0]
	for i := range n {
		if valid == nil || bitutil.BitIsSet(valid, bit+i) {
			e.views = append(e.views, data[off[i]:off[i+1]])
		}
	}
	_, err := cw.WriteBatch(e.views, def, nil)
	return err
}

// resize gives a slice of n elements whose content is arbitrary, reusing s where it is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
