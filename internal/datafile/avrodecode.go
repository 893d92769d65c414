package datafile

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// avroOp is how a value is encoded.
type avroOp uint8

const (
	avroNone    avroOp = iota // no bytes: a field that the file does not have, or null
	avroBool                  // a byte
	avroInt                   // a zigzag number
	avroFixed                 // width bytes
	avroBytes                 // a length and bytes
	avroDecimal               // the same, as a big-endian number
	avroRecord                // the kids, in order
	avroArray                 // blocks of the one kid
	avroMap                   // blocks of two kids
	avroPairs                 // the same: an array of records of two
)

// avroNode decodes values into the buffers of one Arrow array, or reads over them (out is false).
type avroNode struct {
	name   string
	op     avroOp
	nullAt int // branch of null in a union; -1: never null
	width  int
	kids   []*avroNode // in file order
	weight int         // values that a null here makes

	out    bool
	dt     arrow.DataType
	plain  arrow.DataType // of a value before the cast
	cast   caster
	fields []*avroNode // what the array consists of

	n, nulls int
	valid    []byte
	fixed    []byte
	off      []int32
	data     []byte
}

func errAvroEnd(n *avroNode) error { return corruptf("%s: a value exceeds its block", n.name) }

// decode reads one value from the start of b and gives the rest.
func (n *avroNode) decode(b []byte) ([]byte, error) {
	if n.nullAt >= 0 {
		branch, k := binary.Varint(b)
		if k <= 0 || branch < 0 || branch > 1 {
			return nil, corruptf("%s: branch %d of a union of two", n.name, branch)
		}
		b = b[k:]
		if branch == int64(n.nullAt) {
			n.appendNull()
			return b, nil
		}
	}
	switch n.op {
	case avroBool, avroInt, avroFixed:
		return n.number(b)
	case avroBytes, avroDecimal:
		return n.bytes(b)
	case avroRecord:
		var err error
		for _, k := range n.kids {
			if b, err = k.decode(b); err != nil {
				return nil, err
			}
		}
		if n.out {
			for _, f := range n.fields {
				if f.op == avroNone {
					f.appendNull()
				}
			}
			n.present()
		}
		return b, nil
	case avroNone:
		return b, nil
	}
	return n.list(b)
}

// present counts a value that is there.
func (n *avroNode) present() {
	if n.n&7 == 0 {
		n.valid = append(n.valid, 0)
	}
	n.valid[n.n>>3] |= 1 << (n.n & 7)
	n.n++
}

// appendNull adds a null, to what is inside of a struct too.
func (n *avroNode) appendNull() {
	if !n.out {
		return
	}
	if n.n&7 == 0 {
		n.valid = append(n.valid, 0)
	}
	n.n++
	n.nulls++
	switch n.op {
	case avroBool:
		n.fixed = append(n.fixed, 0)
	case avroInt, avroFixed, avroDecimal:
		n.fixed = append(n.fixed, make([]byte, n.width)...)
	case avroBytes:
		n.off = append(n.off, int32(len(n.data)))
	case avroRecord:
		for _, f := range n.fields {
			f.appendNull()
		}
	case avroArray, avroMap, avroPairs:
		n.off = append(n.off, int32(n.kids[0].n))
	}
}

func (n *avroNode) number(b []byte) ([]byte, error) {
	k := n.width
	switch n.op {
	case avroBool:
		if k = 1; len(b) > 0 && b[0] > 1 {
			return nil, corruptf("%s: boolean %d", n.name, b[0])
		}
	case avroInt:
		v, size := binary.Varint(b)
		if size <= 0 {
			return nil, errAvroEnd(n)
		}
		if n.out {
			if w := 64 - 8*n.width; v<<w>>w != v {
				return nil, corruptf("%s: number %d does not fit %d bytes", n.name, v, n.width)
			}
			var raw [8]byte
			binary.LittleEndian.PutUint64(raw[:], uint64(v))
			n.fixed = append(n.fixed, raw[:n.width]...)
			n.present()
		}
		return b[size:], nil
	}
	if len(b) < k {
		return nil, errAvroEnd(n)
	}
	if n.out {
		n.fixed = append(n.fixed, b[:k]...)
		n.present()
	}
	return b[k:], nil
}

func (n *avroNode) bytes(b []byte) ([]byte, error) {
	size, k := binary.Varint(b)
	if k <= 0 || size < 0 || size > int64(len(b)-k) {
		return nil, errAvroEnd(n)
	}
	v, rest := b[k:k+int(size)], b[k+int(size):]
	switch {
	case !n.out:
		return rest, nil
	case n.op == avroDecimal:
		if len(v) == 0 || len(v) > 16 {
			return nil, corruptf("%s: decimal of %d bytes", n.name, len(v))
		}
		at := len(n.fixed)
		n.fixed = append(n.fixed, make([]byte, 16)...)
		sign := byte(int8(v[0]) >> 7)
		for i := range 16 {
			n.fixed[at+i] = sign
			if i < len(v) {
				n.fixed[at+i] = v[len(v)-1-i]
			}
		}
	default:
		if len(n.data)+len(v) > math.MaxInt32 {
			return nil, unsupportedf("%s: more than 2 GiB in a row", n.name)
		}
		n.data = append(n.data, v...)
		n.off = append(n.off, int32(len(n.data)))
	}
	n.present()
	return rest, nil
}

// list reads the blocks of a list or map.
func (n *avroNode) list(b []byte) ([]byte, error) {
	for {
		count, k := binary.Varint(b)
		if k <= 0 {
			return nil, errAvroEnd(n)
		}
		b = b[k:]
		if count == 0 {
			break
		}
		if count < 0 { // followed by the size of the block
			if _, k = binary.Varint(b); k <= 0 {
				return nil, errAvroEnd(n)
			}
			b, count = b[k:], -count
		}
		if count < 0 || count > int64(len(b)) { // every element takes a byte
			return nil, corruptf("%s: %d elements in %d bytes", n.name, count, len(b))
		}
		for range count {
			var err error
			for _, kid := range n.kids {
				if b, err = kid.decode(b); err != nil {
					return nil, err
				}
			}
		}
	}
	if n.out {
		if n.kids[0].n > math.MaxInt32 {
			return nil, unsupportedf("%s: more than 2^31 elements in a batch", n.name)
		}
		n.off = append(n.off, int32(n.kids[0].n))
		n.present()
	}
	return b, nil
}

// finish gives the array of the values since the last finish.
func (n *avroNode) finish() (arrow.Array, error) {
	if n.op == avroNone {
		rows := n.n
		n.n, n.nulls, n.valid = 0, 0, nil
		return array.MakeArrayOfNull(memory.DefaultAllocator, n.dt, rows), nil
	}
	bufs := []*memory.Buffer{nil}
	if n.nulls > 0 {
		bufs[0] = memory.NewBufferBytes(n.valid)
	}
	dt, kids := n.dt, []arrow.ArrayData(nil)
	switch n.op {
	case avroBool:
		bits := make([]byte, (n.n+7)/8)
		for i, v := range n.fixed {
			bitutil.SetBitTo(bits, i, v != 0)
		}
		bufs, dt = append(bufs, memory.NewBufferBytes(bits)), n.plain
	case avroInt, avroFixed, avroDecimal:
		bufs, dt = append(bufs, memory.NewBufferBytes(aligned(n.fixed))), n.plain
	case avroBytes:
		bufs, dt = append(bufs, offsetsOf(n.off), memory.NewBufferBytes(n.data)), n.plain
	case avroArray, avroMap, avroPairs:
		bufs = append(bufs, offsetsOf(n.off))
	}
	for _, f := range n.fields {
		a, err := f.finish()
		if err != nil {
			return nil, err
		}
		kids = append(kids, a.Data())
	}
	if n.op == avroMap || n.op == avroPairs {
		if kids[0].NullN() > 0 {
			return nil, corruptf("%s has keys that are null", n.name)
		}
		kids = []arrow.ArrayData{array.NewData(dt.(*arrow.MapType).Elem(), kids[0].Len(), []*memory.Buffer{nil}, kids, 0, 0)}
	}
	a := array.MakeFromData(array.NewData(dt, n.n, bufs, kids, n.nulls, 0))
	n.n, n.nulls, n.valid, n.fixed, n.off, n.data = 0, 0, nil, nil, nil, nil
	if n.cast != nil {
		return n.cast(a)
	}
	return a, nil
}

// offsetsOf puts the first offset in front of the others.
func offsetsOf(ends []int32) *memory.Buffer {
	off := make([]int32, len(ends)+1)
	copy(off[1:], ends)
	return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(off))
}

// aligned gives the same bytes in memory that is aligned for numbers. Large allocations are.
func aligned(b []byte) []byte {
	if cap(b) >= 64 {
		return b
	}
	out := alignedBytes(len(b))
	copy(out, b)
	return out
}
