package datafile

import (
	"encoding/binary"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/parquet-go/bitpack"
)

// runs walks Parquet's hybrid of run lengths and bit packing. Every run is cut to what is still wanted.
type runs struct {
	b     []byte
	width int // bits of a value
	left  int // values wanted
}

// run is one of the two: packed bits, or one value repeated.
type run struct {
	n      int
	packed []byte
	value  uint32
}

func (r *runs) next() (run, error) {
	h, k := binary.Uvarint(r.b)
	if k <= 0 {
		return run{}, corruptf("run lengths end %d values early", r.left)
	}
	r.b = r.b[k:]
	if h&1 == 1 {
		n := r.left
		if groups := h >> 1; groups < uint64(r.left+7)/8 {
			n = int(groups) * 8
		}
		if n == 0 {
			return run{}, corruptf("empty run")
		}
		bytes := (n*r.width + 7) / 8
		if bytes > len(r.b) {
			return run{}, corruptf("bit-packed run of %d values exceeds its page", n)
		}
		out := run{n: n, packed: r.b[:bytes]}
		// The last group is whole in the file even if not all of it is wanted.
		whole := min(uint64(len(r.b)), (h>>1)*uint64(r.width))
		r.b = r.b[whole:]
		r.left -= n
		return out, nil
	}
	bytes := (r.width + 7) / 8
	if bytes > len(r.b) {
		return run{}, corruptf("run exceeds its page")
	}
	out := run{n: r.left}
	if n := h >> 1; n < uint64(r.left) {
		out.n = int(n)
	}
	if out.n == 0 {
		return run{}, corruptf("empty run")
	}
	for i := range bytes {
		out.value |= uint32(r.b[i]) << (8 * i)
	}
	r.b = r.b[bytes:]
	r.left -= out.n
	return out, nil
}

// decodeRuns fills dst with values of the given width. b has slack behind it.
func decodeRuns(dst []int32, b []byte, width int) error {
	if width > 32 {
		return corruptf("values of %d bits", width)
	}
	if width == 0 {
		clear(dst)
		return nil
	}
	r := runs{b: b, width: width, left: len(dst)}
	for at := 0; at < len(dst); {
		one, err := r.next()
		if err != nil {
			return err
		}
		part := dst[at : at+one.n]
		if one.packed != nil {
			bitpack.Unpack(part, one.packed, uint(width))
		} else {
			v := int32(one.value)
			for i := range part {
				part[i] = v
			}
		}
		at += one.n
	}
	return nil
}

// decodeLevels reads n definition levels of an optional column as a validity bitmap, into buf if it is large enough.
// The result is nil if no row is null; valid is how many are not.
func decodeLevels(buf, b []byte, n int) (bitmap []byte, valid int, err error) {
	r := runs{b: b, width: 1, left: n}
	bitmap = buf
	started := false
	for at := 0; at < n; {
		one, err := r.next()
		if err != nil {
			return nil, 0, err
		}
		if one.packed == nil && one.value == 1 && one.n == n {
			return nil, n, nil
		}
		if !started {
			bitmap = resize(buf, (n+7)/8+8)
			started = true
		}
		switch {
		case one.packed != nil:
			bitutil.CopyBitmap(one.packed, 0, one.n, bitmap, at)
		case one.value > 1:
			return nil, 0, corruptf("definition level %d", one.value)
		default:
			bitutil.SetBitsTo(bitmap, int64(at), int64(one.n), one.value == 1)
		}
		at += one.n
	}
	if n == 0 {
		return nil, 0, nil
	}
	return bitmap, bitutil.CountSetBits(bitmap, 0, n), nil
}

// decodeSmall fills dst with levels of at most top.
func decodeSmall(dst []uint8, b []byte, top uint8) error {
	width := bits.Len8(top)
	if width == 0 {
		clear(dst)
		return nil
	}
	r := runs{b: b, width: width, left: len(dst)}
	most := uint8(0)
	for at := 0; at < len(dst); {
		one, err := r.next()
		if err != nil {
			return err
		}
		part := dst[at : at+one.n]
		at += one.n
		if one.packed == nil {
			if one.value > uint32(top) {
				return corruptf("level %d where %d is the most", one.value, top)
			}
			for i := range part {
				part[i] = uint8(one.value)
			}
			continue
		}
		most = max(most, unpackSmall(part, one.packed, width))
	}
	if most > top {
		return corruptf("level %d where %d is the most", most, top)
	}
	return nil
}

// unpackSmall unpacks values of at most 8 bits, and gives the greatest.
func unpackSmall(dst []uint8, packed []byte, width int) uint8 {
	mask, most := uint64(1)<<width-1, uint8(0)
	for len(dst) > 0 {
		var x uint64
		for i, b := range packed[:min(width, len(packed))] {
			x |= uint64(b) << (8 * i)
		}
		packed = packed[min(width, len(packed)):]
		n := min(8, len(dst))
		for i := range n {
			v := uint8(x & mask)
			x >>= width
			dst[i], most = v, max(most, v)
		}
		dst = dst[n:]
	}
	return most
}
