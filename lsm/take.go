package lsm

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Take copies single rows of one array, in the order of idx, to a new array. Types are those of Gather.
func Take(a arrow.Array, idx []int32) (arrow.Array, error) {
	if err := checkLayout(a); err != nil {
		return nil, fmt.Errorf("take: %w", err)
	}
	for _, i := range idx {
		if int(i) >= a.Len() || i < 0 {
			return nil, fmt.Errorf("take: row %d of %d", i, a.Len())
		}
	}
	bufs := make([]*memory.Buffer, 2, 3)
	nullN := 0
	if a.NullN() > 0 {
		valid := takeBits(a, idx, 0)
		nullN = len(idx) - bitutil.CountSetBits(valid, 0, len(idx))
		bufs[0] = memory.NewBufferBytes(valid)
	}
	switch t := a.DataType().(type) {
	case *arrow.BooleanType:
		bufs[1] = memory.NewBufferBytes(takeBits(a, idx, 1))
	case arrow.BinaryDataType:
		off, data, err := takeStrings(a, idx)
		if err != nil {
			return nil, err
		}
		bufs[1] = bytesOf(off)
		bufs = append(bufs, memory.NewBufferBytes(data))
	case arrow.FixedWidthDataType:
		switch t.BitWidth() {
		case 8:
			bufs[1] = bytesOf(takeSlice(values[uint8](a), idx))
		case 16:
			bufs[1] = bytesOf(takeSlice(values[uint16](a), idx))
		case 32:
			bufs[1] = bytesOf(takeSlice(values[uint32](a), idx))
		case 64:
			bufs[1] = bytesOf(takeSlice(values[uint64](a), idx))
		case 128:
			bufs[1] = bytesOf(takeSlice(values[[2]uint64](a), idx))
		default:
			return nil, fmt.Errorf("take: %s is not supported", t)
		}
	default:
		return nil, fmt.Errorf("take: %s is not supported", t)
	}
	return newArray(a.DataType(), len(idx), bufs, nullN), nil
}

func takeSlice[T any](v []T, idx []int32) []T {
	dst := make([]T, len(idx))
	for o, i := range idx {
		dst[o] = v[i]
	}
	return dst
}

func takeStrings(a arrow.Array, idx []int32) ([]int32, []byte, error) {
	o, d := strings32(a)
	off := make([]int32, len(idx)+1)
	total := int64(0)
	for r, i := range idx {
		total += int64(o[i+1] - o[i])
		if total > math.MaxInt32 {
			return nil, nil, fmt.Errorf("%w: after %d of %d rows", ErrTooLarge, r, len(idx))
		}
		off[r+1] = int32(total)
	}
	data := make([]byte, total)
	for r, i := range idx {
		copy(data[off[r]:], d[o[i]:o[i+1]])
	}
	return off, data, nil
}

func takeBits(a arrow.Array, idx []int32, buf int) []byte {
	dst := make([]byte, bitutil.BytesForBits(int64(len(idx))))
	bits, off := a.Data().Buffers()[buf].Bytes(), a.Data().Offset()
	for o, i := range idx {
		p := off + int(i)
		dst[o>>3] |= bits[p>>3] >> (p & 7) & 1 << (o & 7)
	}
	return dst
}
