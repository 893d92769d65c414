package lsm

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Lists, maps and structs are copied like strings: a row of a list is a range of its elements, so taking rows of a list
// is gathering ranges of the array inside, down to the leaves.

// checkNested is checkLayout for lists, maps and structs of at least one row.
func checkNested(a arrow.Array) error {
	d := a.Data()
	end := d.Offset() + d.Len()
	switch t := a.DataType().(type) {
	case *arrow.StructType:
		for i, c := range d.Children() {
			if c.Len() < end {
				return fmt.Errorf("%s array of %d rows has %d in field %d", t, end, c.Len(), i)
			}
		}
		for i := range t.NumFields() {
			if err := checkLayout(a.(*array.Struct).Field(i)); err != nil {
				return err
			}
		}
		return nil
	case *arrow.ListType, *arrow.MapType:
		bufs := d.Buffers()
		if len(bufs) < 2 || bufs[1] == nil || bufs[1].Len() < 4*(end+1) || len(d.Children()) != 1 {
			return fmt.Errorf("%s array of %d rows has too few offsets", t, end)
		}
		off := arrow.GetData[int32](bufs[1].Bytes())
		if n := d.Children()[0].Len(); off[d.Offset()] < 0 || off[end] < off[d.Offset()] || int(off[end]) > n {
			return fmt.Errorf("%s array has offsets %d to %d in %d elements", t, off[d.Offset()], off[end], n)
		}
		return checkLayout(a.(array.ListLike).ListValues())
	}
	return fmt.Errorf("%s arrays are not supported", a.DataType())
}

// listOffsets gives the offsets (length+1, from the first row on) of a list or map.
func listOffsets(a arrow.Array) []int32 {
	d := a.Data()
	if d.Len() == 0 {
		return []int32{0}
	}
	return arrow.GetData[int32](d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
}

// takeNested copies single rows of lists, maps or structs as ranges.
func takeNested(mem *arena, srcs []arrow.Array, p place) (arrow.Array, error) {
	var ranges []Range
	for o, i := range p.row {
		src := int32(0)
		if p.src != nil {
			src = int32(p.src[o])
		}
		if n := len(ranges); n > 0 && ranges[n-1].Src == src && ranges[n-1].Start+ranges[n-1].N == i {
			ranges[n-1].N++
			continue
		}
		ranges = append(ranges, Range{src, i, 1})
	}
	if len(ranges) == 0 {
		return array.NewSlice(srcs[0], 0, 0), nil
	}
	return gather(mem, srcs, ranges)
}

// gatherNested copies ranges of rows of arrays that passed checkLayout: what is inside, and the offsets in bufs. A
// source that no range names may be nil.
func gatherNested(mem *arena, t arrow.DataType, srcs []arrow.Array, ranges []Range, rows int, bufs []*memory.Buffer) ([]*memory.Buffer, []arrow.Array, error) {
	if st, ok := t.(*arrow.StructType); ok {
		kids, fields := make([]arrow.Array, st.NumFields()), make([]arrow.Array, len(srcs))
		for i := range kids {
			for n, s := range srcs {
				if s == nil {
					continue
				}
				if s.(*array.Struct).NumField() != len(kids) {
					return nil, nil, fmt.Errorf("gather: %s and %s in one column", s.DataType(), t)
				}
				fields[n] = s.(*array.Struct).Field(i)
			}
			var err error
			if kids[i], err = gather(mem, fields, ranges); err != nil {
				return nil, nil, err
			}
		}
		return bufs[:1], kids, nil
	}
	offs := make([][]int32, len(srcs))
	for i, s := range srcs {
		if s != nil {
			offs[i] = listOffsets(s)
		}
	}
	p := newPieces(mem, rows)
	for _, r := range ranges {
		if err := p.add(r.Src, offs[r.Src][r.Start:r.Start+r.N+1]); err != nil {
			return nil, nil, err
		}
	}
	return p.gather(mem, srcs, bufs)
}

// pieces are the ranges of elements that make up new lists.
type pieces struct {
	off    []int32
	row    int
	ranges []Range
}

func newPieces(mem *arena, rows int) *pieces {
	p := &pieces{off: slab[int32](mem, rows+1)}
	p.off[0] = 0
	return p
}

// add appends the lists between the offsets of a source.
func (p *pieces) add(src int32, off []int32) error {
	base, first, last := p.off[p.row], off[0], off[len(off)-1]
	if int64(base)+int64(last)-int64(first) > math.MaxInt32 {
		return fmt.Errorf("%w: after %d rows", ErrTooLarge, p.row)
	}
	for _, x := range off[1:] {
		p.row++
		p.off[p.row] = base + x - first
	}
	if last == first {
		return nil
	}
	if n := len(p.ranges); n > 0 && p.ranges[n-1].Src == src && p.ranges[n-1].Start+p.ranges[n-1].N == first {
		p.ranges[n-1].N += last - first
		return nil
	}
	p.ranges = append(p.ranges, Range{src, first, last - first})
	return nil
}

// gather copies the elements.
func (p *pieces) gather(mem *arena, srcs []arrow.Array, bufs []*memory.Buffer) ([]*memory.Buffer, []arrow.Array, error) {
	bufs[1] = bytesOf(p.off)
	inside := make([]arrow.Array, len(srcs))
	var some arrow.Array
	for i, s := range srcs {
		if s != nil {
			inside[i] = s.(array.ListLike).ListValues()
			some = inside[i]
		}
	}
	if len(p.ranges) == 0 {
		return bufs, []arrow.Array{array.NewSlice(some, 0, 0)}, nil
	}
	kid, err := gather(mem, inside, p.ranges)
	if pairs, ok := kid.(*array.Struct); ok && kid.Data().Offset() != 0 {
		kid = rebased(pairs)
	}
	return bufs, []arrow.Array{kid}, err
}

// rebased gives the same rows without an offset, which the Arrow library overlooks in the pairs of a map.
func rebased(s *array.Struct) arrow.Array {
	bufs, kids := []*memory.Buffer{nil}, make([]arrow.Array, s.NumField())
	for i := range kids {
		kids[i] = s.Field(i)
	}
	if s.NullN() > 0 {
		bits := make([]byte, bitutil.BytesForBits(int64(s.Len())))
		bitutil.CopyBitmap(s.NullBitmapBytes(), s.Data().Offset(), s.Len(), bits, 0)
		bufs[0] = memory.NewBufferBytes(bits)
	}
	return newArray(s.DataType(), s.Len(), bufs, s.NullN(), kids)
}
