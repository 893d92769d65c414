package lsm

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
)

// sources are the batches of a flush as one table of rows, numbered through. Rows are copied out of the batches one by
// one: the batches are never joined, which would double the memory of the write buffer.
type sources struct {
	batches []datafile.Rows
	first   []int32  // number of each batch's first row
	of      []uint16 // batch of each row; nil: there is one batch
	n       int
}

// maxSources is how many batches a flush can tell apart. Callers join smaller batches before.
const maxSources = math.MaxUint16

func newSources(batches []datafile.Rows) (*sources, error) {
	s := &sources{batches: batches}
	if len(batches) > maxSources {
		return nil, fmt.Errorf("%d batches, at most %d at once", len(batches), maxSources)
	}
	total := int64(0)
	for _, b := range batches {
		s.first = append(s.first, int32(total))
		if total += int64(b.N); total > math.MaxInt32 {
			return nil, fmt.Errorf("more than %d rows at once", math.MaxInt32)
		}
	}
	s.n = int(total)
	if len(batches) == 1 {
		return s, nil
	}
	s.of = make([]uint16, 0, s.n)
	for i, b := range batches {
		at := len(s.of)
		s.of = s.of[:at+b.N]
		for j := at; j < len(s.of); j++ {
			s.of[j] = uint16(i)
		}
	}
	return s, nil
}

// place says where rows are: batch and row in it.
type place struct {
	src []uint16 // nil: all in the first batch
	row []int32
	to  []int32 // where each row goes in the copy; nil: they are in its order
}

// ordered gives the same rows in the order of the copy.
func (p place) ordered() place {
	if p.to == nil {
		return p
	}
	out := place{row: make([]int32, len(p.row))}
	for o, t := range p.to {
		out.row[t] = p.row[o]
	}
	if p.src != nil {
		out.src = make([]uint16, len(p.row))
		for o, t := range p.to {
			out.src[t] = p.src[o]
		}
	}
	return out
}

// locate finds the places of rows by number.
func (s *sources) locate(mem *arena, idx []int32) place {
	if s.of == nil {
		return place{row: idx}
	}
	p := place{src: slab[uint16](mem, len(idx)), row: slab[int32](mem, len(idx))}
	for o, i := range idx {
		b := s.of[i]
		p.src[o] = b
		p.row[o] = i - s.first[b]
	}
	return p
}

// column is one column of all batches.
func (s *sources) column(c int) []arrow.Array {
	out := make([]arrow.Array, len(s.batches))
	for i := range s.batches {
		out[i] = s.batches[i].Cols[c]
	}
	return out
}

// whole is a column of all batches as one array, for the few columns that a sort needs.
func (s *sources) whole(c int) (arrow.Array, error) {
	if len(s.batches) == 1 {
		return s.batches[0].Cols[c], nil
	}
	return array.Concatenate(s.column(c), memory.DefaultAllocator)
}

// kinds copies the kinds of rows; batches without kinds are inserts.
func (s *sources) kinds(mem *arena, p place) []int8 {
	dst := slab[int8](mem, len(p.row))
	all, none := make([][]int8, len(s.batches)), true
	for i := range all {
		all[i] = s.batches[i].Kinds
		none = none && all[i] == nil
	}
	switch {
	case none:
		clear(dst)
	case p.src == nil:
		takeInto(dst, all[0], p)
	default:
		clear(dst)
		for o, i := range p.row {
			k := all[p.src[o]]
			if k == nil {
				continue
			}
			if p.to != nil {
				o = int(p.to[o])
			}
			dst[o] = k[i]
		}
	}
	return dst
}

// takeInto copies rows of one batch.
func takeInto[T any](dst, v []T, p place) {
	if p.to == nil {
		for o, i := range p.row {
			dst[o] = v[i]
		}
		return
	}
	to := p.to[:len(p.row)]
	for o, i := range p.row {
		dst[to[o]] = v[i]
	}
}

// takeAt copies single rows of a column that lies in several arrays of one type. The places are those of rows.
func takeAt(mem *arena, srcs []arrow.Array, p place) (arrow.Array, error) {
	nulls := false
	for _, a := range srcs {
		if err := checkLayout(a); err != nil {
			return nil, fmt.Errorf("take: %w", err)
		}
		nulls = nulls || a.NullN() > 0
	}
	n := len(p.row)
	dt := srcs[0].DataType()
	if arrow.IsNested(dt.ID()) {
		return takeNested(mem, srcs, p.ordered())
	}
	bufs := make([]*memory.Buffer, 2, 3)
	nullN := 0
	if nulls {
		valid := takeBitsAt(mem, srcs, p, 0)
		nullN = n - bitutil.CountSetBits(valid, 0, n)
		bufs[0] = memory.NewBufferBytes(valid)
	}
	switch t := dt.(type) {
	case *arrow.BooleanType:
		bufs[1] = memory.NewBufferBytes(takeBitsAt(mem, srcs, p, 1))
	case arrow.BinaryDataType:
		off, data, err := takeStringsAt(mem, srcs, p)
		if err != nil {
			return nil, err
		}
		bufs[1] = bytesOf(off)
		bufs = append(bufs, memory.NewBufferBytes(data))
	case arrow.FixedWidthDataType:
		switch t.BitWidth() {
		case 8:
			bufs[1] = takeFixedAt[uint8](mem, srcs, p)
		case 16:
			bufs[1] = takeFixedAt[uint16](mem, srcs, p)
		case 32:
			bufs[1] = takeFixedAt[uint32](mem, srcs, p)
		case 64:
			bufs[1] = takeFixedAt[uint64](mem, srcs, p)
		case 128:
			bufs[1] = takeFixedAt[[2]uint64](mem, srcs, p)
		default:
			return nil, fmt.Errorf("take: %s is not supported", t)
		}
	default:
		return nil, fmt.Errorf("take: %s is not supported", t)
	}
	return newArray(dt, n, bufs, nullN, nil), nil
}

func takeFixedAt[T any](mem *arena, srcs []arrow.Array, p place) *memory.Buffer {
	dst := slab[T](mem, len(p.row))
	if p.src == nil {
		takeInto(dst, values[T](srcs[0]), p)
		return bytesOf(dst)
	}
	vals := make([][]T, len(srcs))
	for i, a := range srcs {
		vals[i] = values[T](a)
	}
	src := p.src[:len(p.row)]
	if p.to == nil {
		for o, i := range p.row {
			dst[o] = vals[src[o]][i]
		}
		return bytesOf(dst)
	}
	to := p.to[:len(p.row)]
	for o, i := range p.row {
		dst[to[o]] = vals[src[o]][i]
	}
	return bytesOf(dst)
}

func takeStringsAt(mem *arena, srcs []arrow.Array, p place) ([]int32, []byte, error) {
	offs, datas := make([][]int32, len(srcs)), make([][]byte, len(srcs))
	for i, a := range srcs {
		offs[i], datas[i] = strings32(a)
	}
	if p.to != nil {
		return scatterStrings(mem, offs, datas, p)
	}
	if p.src == nil {
		return takeStrings(mem, offs[0], datas[0], p.row)
	}
	n := len(p.row)
	off := slab[int32](mem, n+1)
	off[0] = 0
	total := int64(0)
	for o, i := range p.row {
		from := offs[p.src[o]]
		total += int64(from[i+1] - from[i])
		if total > math.MaxInt32 {
			return nil, nil, fmt.Errorf("%w: after %d of %d rows", ErrTooLarge, o, n)
		}
		off[o+1] = int32(total)
	}
	data := mem.bytes(int(total) + shortCopy)
	for at := 0; at < n; at += takeBlock {
		end := min(at+takeBlock, n)
		near := byte(0)
		for o := at; o < end; o++ { // as in touch
			d := datas[p.src[o]]
			if from := int(offs[p.src[o]][p.row[o]]); from < len(d) {
				near += d[from]
			}
		}
		data[total] = near // into the slack: only to keep the reads
		for o := at; o < end; o++ {
			i, from := p.row[o], offs[p.src[o]]
			copyShort(data, int(off[o]), datas[p.src[o]], int(from[i]), int(from[i+1]))
		}
	}
	return off, data[:total], nil
}

// scatterStrings copies strings to where p.to says.
func scatterStrings(mem *arena, offs [][]int32, datas [][]byte, p place) ([]int32, []byte, error) {
	n := len(p.row)
	off := slab[int32](mem, n+1)
	off[0] = 0
	row, to := p.row[:n], p.to[:n]
	lens := off[1:]
	b := uint16(0)
	for o, i := range row {
		if p.src != nil {
			b = p.src[o]
		}
		from := offs[b]
		lens[to[o]] = from[i+1] - from[i]
	}
	total := int64(0)
	for o, l := range lens {
		if total += int64(l); total > math.MaxInt32 {
			return nil, nil, fmt.Errorf("%w: after %d of %d rows", ErrTooLarge, o, n)
		}
		lens[o] = int32(total)
	}
	data := mem.bytes(int(total))
	for o, i := range row {
		if p.src != nil {
			b = p.src[o]
		}
		from := offs[b]
		copyExact(data, int(off[to[o]]), datas[b], int(from[i]), int(from[i+1]))
	}
	return off, data, nil
}

// takeBitsAt takes bits of the bitmap in buffer number buf; a missing validity bitmap counts as all ones.
func takeBitsAt(mem *arena, srcs []arrow.Array, p place, buf int) []byte {
	bits, base := make([][]byte, len(srcs)), make([]int, len(srcs))
	for i, a := range srcs {
		if a.Len() > 0 && (buf > 0 || a.NullN() > 0) {
			bits[i], base[i] = a.Data().Buffers()[buf].Bytes(), a.Data().Offset()
		}
	}
	dst := mem.cleared(int(bitutil.BytesForBits(int64(len(p.row)))))
	m, off := bits[0], base[0]
	for o, i := range p.row {
		if p.src != nil {
			m, off = bits[p.src[o]], base[p.src[o]]
		}
		b := byte(1)
		if m != nil {
			at := off + int(i)
			b = m[at>>3] >> (at & 7) & 1
		}
		if p.to != nil {
			o = int(p.to[o])
		}
		dst[o>>3] |= b << (o & 7)
	}
	return dst
}
