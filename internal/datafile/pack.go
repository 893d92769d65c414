package datafile

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// packRun is the most groups of eight values in a bit-packed run. Longer ones are allowed, but Java's writer makes none,
// so that readers may not be used to them.
const packRun = 63

// appendBitmap encodes n bits as bit-packed runs: definition levels and nothing else have one bit.
func appendBitmap(dst, bitmap []byte, n int) []byte {
	for groups := (n + 7) / 8; groups > 0; {
		g := min(groups, packRun)
		dst = append(dst, byte(g<<1|1))
		dst = append(dst, bitmap[:g]...)
		bitmap, groups = bitmap[g:], groups-g
	}
	return dst
}

// appendRun encodes a value repeated n times.
func appendRun(dst []byte, v uint32, n, width int) []byte {
	dst = binary.AppendUvarint(dst, uint64(n)<<1)
	for i := 0; i < width; i += 8 {
		dst = append(dst, byte(v>>i))
	}
	return dst
}

// appendIndexes encodes dictionary indexes of a width in Parquet's hybrid of run lengths and bit packing. Values are
// looked at in groups of eight: equal ones become a run, the others are packed.
func appendIndexes[T uint8 | uint32](dst []byte, idx []T, width int) []byte {
	if width == 0 {
		return appendRun(dst, 0, len(idx), 0)
	}
	for at := 0; at < len(idx); {
		if n := equalRun(idx[at:]); n >= 8 {
			dst = appendRun(dst, uint32(idx[at]), n, width)
			at += n
			continue
		}
		head := len(dst)
		dst = append(dst, 0)
		groups := 0
		for groups < packRun && at < len(idx) {
			if groups > 0 && equalRun(idx[at:min(len(idx), at+16)]) >= 16 {
				break
			}
			dst = pack8(dst, idx[at:min(len(idx), at+8)], width)
			at += 8
			groups++
		}
		dst[head] = byte(groups<<1 | 1)
	}
	return dst
}

// appendSized encodes levels of at most top, with their length in front.
func appendSized(dst []byte, levels []uint8, top uint8) []byte {
	at := len(dst)
	dst = appendIndexes(append(dst, 0, 0, 0, 0), levels, bits.Len8(top))
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// equalRun gives how many values from the first on are the same.
func equalRun[T uint8 | uint32](v []T) int {
	n := 1
	for n < len(v) && v[n] == v[0] {
		n++
	}
	return n
}

// pack8 appends eight values (missing ones are zero) of a width.
func pack8[T uint8 | uint32](dst []byte, v []T, width int) []byte {
	var acc uint64
	have := 0
	for i := range 8 {
		if i < len(v) {
			acc |= uint64(v[i]) << have
		}
		have += width
		if have >= 32 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(acc))
			acc >>= 32
			have -= 32
		}
	}
	for ; have > 0; have -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst
}

// Block sizes of DELTA_BINARY_PACKED that all writers use.
const (
	deltaBlock = 128
	deltaMini  = 32
)

// appendDelta encodes integers as DELTA_BINARY_PACKED. Differences wrap around as the format says.
func appendDelta[T int32 | int64](dst []byte, v []T) []byte {
	dst = binary.AppendUvarint(dst, deltaBlock)
	dst = binary.AppendUvarint(dst, deltaBlock/deltaMini)
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	if len(v) == 0 {
		return binary.AppendVarint(dst, 0)
	}
	dst = binary.AppendVarint(dst, int64(v[0]))
	mask := ^uint64(0) >> (64 - 8*unsafe.Sizeof(v[0]))
	var block [deltaBlock]uint64
	for at := 1; at < len(v); at += deltaBlock {
		part := v[at:min(len(v), at+deltaBlock)]
		last := v[at-1]
		least := part[0] - last
		for i, x := range part {
			d := x - last
			block[i] = uint64(d)
			least = min(least, d)
			last = x
		}
		dst = appendDeltaBlock(dst, &block, len(part), int64(least), mask)
	}
	return dst
}

// appendDeltaBlock packs n differences less the least of them.
func appendDeltaBlock(dst []byte, block *[deltaBlock]uint64, n int, least int64, mask uint64) []byte {
	dst = binary.AppendVarint(dst, least)
	head := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for m := 0; m*deltaMini < n; m++ {
		part := block[m*deltaMini : (m+1)*deltaMini]
		used := min(deltaMini, n-m*deltaMini)
		or := uint64(0)
		for i := range part[:used] {
			part[i] = (part[i] - uint64(least)) & mask
			or |= part[i]
		}
		clear(part[used:])
		width := bits.Len64(or)
		dst[head+m] = byte(width)
		if width > 0 {
			dst = pack32(dst, part, width)
		}
	}
	return dst
}

// pack32 appends 32 values of a width of 1 to 64 bits: 4 bytes for each bit.
func pack32(dst []byte, v []uint64, width int) []byte {
	var acc uint64
	have := 0
	for _, x := range v[:deltaMini] {
		acc |= x << have
		if have += width; have >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, acc)
			have -= 64
			acc = x >> (width - have) // 0 if nothing is left: a shift by 64
		}
	}
	if have > 0 { // 32 bits are left for odd widths
		dst = binary.LittleEndian.AppendUint32(dst, uint32(acc))
	}
	return dst
}
