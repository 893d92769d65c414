package lsm

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// checkLayout reports an array whose buffers are too short for its length, so that raw access cannot panic.
func checkLayout(a arrow.Array) error {
	d := a.Data()
	end := d.Offset() + d.Len()
	if d.Len() == 0 {
		return nil
	}
	bufs := d.Buffers()
	size := func(i int) int {
		if i >= len(bufs) || bufs[i] == nil {
			return 0
		}
		return bufs[i].Len()
	}
	if d.NullN() != 0 && int64(size(0)) < bitutil.BytesForBits(int64(end)) {
		return fmt.Errorf("%s array of %d rows has a null bitmap of %d bytes", a.DataType(), end, size(0))
	}
	switch t := a.DataType().(type) {
	case arrow.BinaryDataType:
		if t.ID() != arrow.STRING && t.ID() != arrow.BINARY {
			return fmt.Errorf("%s arrays are not supported", t)
		}
		if size(1) < 4*(end+1) {
			return fmt.Errorf("%s array of %d rows has %d bytes of offsets", t, end, size(1))
		}
		off := arrow.GetData[int32](bufs[1].Bytes())
		first, last := off[d.Offset()], off[end]
		if first < 0 || last < first || int(last) > size(2) {
			return fmt.Errorf("%s array has offsets %d to %d in %d bytes", t, first, last, size(2))
		}
	case arrow.FixedWidthDataType:
		if int64(size(1)) < bitutil.BytesForBits(int64(end)*int64(t.BitWidth())) {
			return fmt.Errorf("%s array of %d rows has %d bytes", t, end, size(1))
		}
	default:
		return checkNested(a)
	}
	return nil
}

// values is the fixed-width buffer of an array that passed checkLayout, from its first row on.
func values[T any](a arrow.Array) []T {
	d := a.Data()
	if d.Len() == 0 {
		return nil
	}
	b := d.Buffers()[1].Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), d.Offset()+d.Len())[d.Offset():]
}

// strings32 is the offsets (length+1, from the first row on) and the bytes of a string or binary array that passed
// checkLayout.
func strings32(a arrow.Array) ([]int32, []byte) {
	d := a.Data()
	if d.Len() == 0 {
		return []int32{0}, nil
	}
	b := d.Buffers()
	off := arrow.GetData[int32](b[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
	if len(b) < 3 || b[2] == nil {
		return off, nil
	}
	return off, b[2].Bytes()
}
