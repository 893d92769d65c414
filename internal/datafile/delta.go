package datafile

import (
	"encoding/binary"
	"unsafe"

	"github.com/parquet-go/bitpack"
)

// maxDeltaBlock bounds the block size, of which writers use 128.
const maxDeltaBlock = 1 << 12

// decodeDelta fills dst from DELTA_BINARY_PACKED. b has slack behind it. Sums wrap around as the format says.
func decodeDelta[T int32 | int64](dst []T, b []byte) error {
	d := deltaReader{b: b}
	block, minis, total := d.uvarint(), d.uvarint(), d.uvarint()
	last := T(d.varint())
	if d.bad {
		return corruptf("delta-encoded page ends in its header")
	}
	if block == 0 || block%128 != 0 || block > maxDeltaBlock || minis == 0 || block%minis != 0 || block/minis%32 != 0 {
		return corruptf("delta blocks of %d values in %d parts", block, minis)
	}
	if total != uint64(len(dst)) {
		return corruptf("delta-encoded page has %d values, %d are declared", total, len(dst))
	}
	if len(dst) == 0 {
		return nil
	}
	dst[0] = last
	dst = dst[1:]
	size := int(block / minis)
	for len(dst) > 0 {
		least := T(d.varint())
		widths := d.take(int(minis))
		if d.bad {
			return corruptf("delta-encoded page ends %d values early", len(dst))
		}
		for _, w := range widths {
			part := dst[:min(size, len(dst))]
			if len(part) == 0 {
				break
			}
			if err := unpackDeltas(&d, part, uint(w), size); err != nil {
				return err
			}
			for i, x := range part {
				last += least + x
				part[i] = last
			}
			dst = dst[len(part):]
		}
	}
	return nil
}

// unpackDeltas reads the packed differences of one part of a block, which has size of them in the file.
func unpackDeltas[T int32 | int64](d *deltaReader, part []T, width uint, size int) error {
	if width == 0 {
		clear(part)
		return nil
	}
	if width > uint(unsafe.Sizeof(part[0]))*8 {
		return corruptf("differences of %d bits", width)
	}
	// Some writers cut the last part off where the values end.
	need := (len(part)*int(width) + 7) / 8
	if need > len(d.b) {
		return corruptf("delta-encoded page ends inside a block")
	}
	bitpack.Unpack(part, d.b[:need], width)
	d.b = d.b[min(len(d.b), size*int(width)/8):]
	return nil
}

// deltaReader reads the numbers between the packed parts.
type deltaReader struct {
	b   []byte
	bad bool
}

func (d *deltaReader) uvarint() uint64 {
	v, k := binary.Uvarint(d.b)
	if k <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[k:]
	return v
}

func (d *deltaReader) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *deltaReader) take(n int) []byte {
	if n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}
