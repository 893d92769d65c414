package lsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Range names rows of one source: N rows from Start on. N is at least 1.
type Range struct {
	Src, Start, N int32
}

// ErrTooLarge: a gathered string column would need offsets beyond 2 GiB. Gather fewer rows at once.
var ErrTooLarge = errors.New("column exceeds 2 GiB")

// Gather copies the rows of the ranges, in their order, from the sources to a new array. All sources have one type:
// any fixed-width type, boolean, string or binary, and lists, maps and structs of them. A source that no range names may be nil. If the ranges are one piece
// of one source the result shares its buffers.
func Gather(srcs []arrow.Array, ranges []Range) (arrow.Array, error) {
	return gather(nil, srcs, ranges)
}

// gather is Gather with memory from an arena.
func gather(mem *arena, srcs []arrow.Array, ranges []Range) (arrow.Array, error) {
	var first arrow.Array
	rows, nulls := 0, false
	for _, r := range ranges {
		rows += int(r.N)
		first = srcs[r.Src]
	}
	if first == nil {
		return nil, errors.New("gather: no ranges")
	}
	if len(ranges) == 1 {
		r := ranges[0]
		if int(r.N) == first.Len() {
			first.Retain()
			return first, nil
		}
		return array.NewSlice(first, int64(r.Start), int64(r.Start+r.N)), nil
	}
	for _, s := range srcs {
		if s == nil {
			continue
		}
		if err := checkLayout(s); err != nil {
			return nil, fmt.Errorf("gather: %w", err)
		}
		if s.DataType().ID() != first.DataType().ID() {
			return nil, fmt.Errorf("gather: %s and %s in one column", s.DataType(), first.DataType())
		}
		nulls = nulls || s.NullN() > 0
	}
	bufs := make([]*memory.Buffer, 2, 3)
	nullN := 0
	if nulls {
		valid := gatherBits(mem, srcs, ranges, rows, 0)
		nullN = rows - bitutil.CountSetBits(valid, 0, rows)
		bufs[0] = memory.NewBufferBytes(valid)
	}
	var kids []arrow.Array
	var err error
	if arrow.IsNested(first.DataType().ID()) {
		bufs, kids, err = gatherNested(mem, first.DataType(), srcs, ranges, rows, bufs)
	} else {
		err = gatherValues(mem, first.DataType(), srcs, ranges, rows, &bufs)
	}
	if err != nil {
		return nil, err
	}
	return newArray(first.DataType(), rows, bufs, nullN, kids), nil
}

func newArray(t arrow.DataType, rows int, bufs []*memory.Buffer, nullN int, kids []arrow.Array) arrow.Array {
	var inside []arrow.ArrayData
	for _, k := range kids {
		inside = append(inside, k.Data())
	}
	d := array.NewData(t, rows, bufs, inside, nullN, 0)
	defer d.Release()
	return array.MakeFromData(d)
}

// gatherValues fills bufs[1] (and bufs[2] of strings).
func gatherValues(mem *arena, t arrow.DataType, srcs []arrow.Array, ranges []Range, rows int, bufs *[]*memory.Buffer) error {
	b := *bufs
	switch t := t.(type) {
	case *arrow.BooleanType:
		b[1] = memory.NewBufferBytes(gatherBits(mem, srcs, ranges, rows, 1))
		return nil
	case arrow.BinaryDataType:
		off, data, err := gatherStrings(mem, srcs, ranges, rows)
		if err != nil {
			return err
		}
		b[1] = bytesOf(off)
		*bufs = append(b, memory.NewBufferBytes(data))
		return nil
	case arrow.FixedWidthDataType:
		switch t.BitWidth() {
		case 8:
			b[1] = gatherFixed[uint8](mem, srcs, ranges, rows)
		case 16:
			b[1] = gatherFixed[uint16](mem, srcs, ranges, rows)
		case 32:
			b[1] = gatherFixed[uint32](mem, srcs, ranges, rows)
		case 64:
			b[1] = gatherFixed[uint64](mem, srcs, ranges, rows)
		case 128:
			b[1] = gatherFixed[[2]uint64](mem, srcs, ranges, rows)
		default:
			return fmt.Errorf("gather: %s is not supported", t)
		}
		return nil
	}
	return fmt.Errorf("gather: %s is not supported", t)
}

// bytesOf wraps a slice of numbers as a buffer without copying.
func bytesOf[T any](v []T) *memory.Buffer {
	var zero T
	n := len(v) * int(unsafe.Sizeof(zero))
	return memory.NewBufferBytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), n))
}

func gatherFixed[T any](mem *arena, srcs []arrow.Array, ranges []Range, rows int) *memory.Buffer {
	vals := make([][]T, len(srcs))
	for i, s := range srcs {
		if s != nil {
			vals[i] = values[T](s)
		}
	}
	return bytesOf(gatherSlices(mem, vals, ranges, rows))
}

// gatherSlices is Gather for plain slices.
func gatherSlices[T any](mem *arena, vals [][]T, ranges []Range, rows int) []T {
	dst := slab[T](mem, rows)
	o := 0
	for _, r := range ranges {
		src := vals[r.Src]
		if r.N == 1 { // the usual case of random keys: no call
			dst[o] = src[r.Start]
			o++
			continue
		}
		o += copy(dst[o:], src[r.Start:r.Start+r.N])
	}
	return dst
}

func gatherStrings(mem *arena, srcs []arrow.Array, ranges []Range, rows int) ([]int32, []byte, error) {
	offs := make([][]int32, len(srcs))
	datas := make([][]byte, len(srcs))
	for i, s := range srcs {
		if s != nil {
			offs[i], datas[i] = strings32(s)
		}
	}
	total := int64(0)
	for _, r := range ranges {
		o := offs[r.Src]
		total += int64(o[r.Start+r.N] - o[r.Start])
	}
	if total > math.MaxInt32 {
		return nil, nil, fmt.Errorf("%w: %d bytes in %d rows", ErrTooLarge, total, rows)
	}
	off, data := slab[int32](mem, rows+1), mem.bytes(int(total)+shortCopy)
	off[0] = 0
	row, at := 1, int32(0)
	for _, r := range ranges {
		o := offs[r.Src]
		if r.N == 1 {
			a, b := o[r.Start], o[r.Start+1]
			copyShort(data, int(at), datas[r.Src], int(a), int(b))
			at += b - a
			off[row] = at
			row++
			continue
		}
		o = o[r.Start : r.Start+r.N+1]
		base := at - o[0]
		at += int32(copy(data[at:], datas[r.Src][o[0]:o[r.N]]))
		for _, x := range o[1:] {
			off[row] = base + x
			row++
		}
	}
	return off, data[:total], nil
}

// gatherBits gathers the bitmap in buffer number buf; a missing validity bitmap counts as all ones. Bits are collected in a
// word: ranges are often of one row, and a store for each bit costs as much as the rest of gathering.
func gatherBits(mem *arena, srcs []arrow.Array, ranges []Range, rows, buf int) []byte {
	type bitmap struct {
		bits []byte
		off  int
	}
	maps := make([]bitmap, len(srcs))
	for i, s := range srcs {
		if s == nil || s.Len() == 0 || (buf == 0 && s.NullN() == 0) {
			continue
		}
		maps[i] = bitmap{s.Data().Buffers()[buf].Bytes(), s.Data().Offset()}
	}
	const step = 56                        // bits that eight bytes hold wherever they begin
	dst := mem.bytes((rows + 63) / 64 * 8) // every word is written
	o, word, fill := 0, uint64(0), 0
	for _, r := range ranges {
		m, n := &maps[r.Src], int(r.N)
		if n == 1 && m.bits != nil {
			p := m.off + int(r.Start)
			word |= uint64(m.bits[p>>3]>>(p&7)&1) << fill
			if fill++; fill == 64 {
				binary.LittleEndian.PutUint64(dst[o:], word)
				o, word, fill = o+8, 0, 0
			}
			continue
		}
		for p := m.off + int(r.Start); n > 0; p, n = p+step, n-step {
			k := min(n, step)
			w := ^uint64(0)
			if m.bits != nil {
				w = bitsAt(m.bits, p)
			}
			w &= 1<<k - 1
			word |= w << fill
			if fill += k; fill >= 64 {
				binary.LittleEndian.PutUint64(dst[o:], word)
				o, fill = o+8, fill-64
				word = w >> (k - fill)
			}
		}
	}
	if fill > 0 {
		binary.LittleEndian.PutUint64(dst[o:], word)
	}
	return dst[:bitutil.BytesForBits(int64(rows))]
}

// bitsAt gives the bits of a bitmap from position p on, at least 56 if it has as many.
func bitsAt(b []byte, p int) (w uint64) {
	b = b[p>>3:]
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b) >> (p & 7)
	}
	for i, v := range b {
		w |= uint64(v) << (8 * i)
	}
	return w >> (p & 7)
}
