package lsm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
)

// Take copies single rows of one array, in the order of idx, to a new array. Types are those of Gather.
func Take(a arrow.Array, idx []int32) (arrow.Array, error) {
	for _, i := range idx {
		if int(i) >= a.Len() || i < 0 {
			return nil, fmt.Errorf("take: row %d of %d", i, a.Len())
		}
	}
	return takeAt(nil, []arrow.Array{a}, place{row: idx})
}

func takeSlice[T any](mem *arena, v []T, idx []int32) []T {
	dst := slab[T](mem, len(idx))
	for o, i := range idx {
		dst[o] = v[i]
	}
	return dst
}

func takeStrings(mem *arena, o []int32, d []byte, idx []int32) ([]int32, []byte, error) {
	off := slab[int32](mem, len(idx)+1)
	off[0] = 0
	total := int64(0)
	for r, i := range idx {
		total += int64(o[i+1] - o[i])
		if total > math.MaxInt32 {
			return nil, nil, fmt.Errorf("%w: after %d of %d rows", ErrTooLarge, r, len(idx))
		}
		off[r+1] = int32(total)
	}
	data := mem.bytes(int(total) + shortCopy)
	for at := 0; at < len(idx); at += takeBlock {
		block := idx[at:min(at+takeBlock, len(idx))]
		data[total] = touch(d, o, block) // into the slack: only to keep the reads
		for r, i := range block {
			copyShort(data, int(off[at+r]), d, int(o[i]), int(o[i+1]))
		}
	}
	return off, data[:total], nil
}

// takeBlock is the number of strings that are brought near before they are copied.
const takeBlock = 64

// touch reads the first byte of each string. These reads do not wait for each other, so that the strings of a block
// come from memory at the same time; copied right away, each would be waited for.
func touch(data []byte, off []int32, idx []int32) byte {
	sum := byte(0)
	for _, i := range idx {
		if from := int(off[i]); from < len(data) {
			sum += data[from]
		}
	}
	return sum
}

// shortCopy is the length of string up to which copyShort works without a branch on the length.
const shortCopy = 48

// copyShort copies src[from:to] to dst at at, where there is room for shortCopy bytes. A short string is copied as a
// block of fixed size, bytes behind its end included, which the next string overwrites: rows picked at random wait for
// memory, and without a branch or call that depends on the length the processor waits for many of them at a time.
func copyShort(dst []byte, at int, src []byte, from, to int) {
	if to-from <= shortCopy && from+shortCopy <= len(src) {
		d, s := dst[at:at+shortCopy], src[from:from+shortCopy]
		le := binary.LittleEndian // words, because the compiler calls memmove for arrays that might overlap
		a, b, c := le.Uint64(s), le.Uint64(s[8:]), le.Uint64(s[16:])
		e, f, g := le.Uint64(s[24:]), le.Uint64(s[32:]), le.Uint64(s[40:])
		le.PutUint64(d, a)
		le.PutUint64(d[8:], b)
		le.PutUint64(d[16:], c)
		le.PutUint64(d[24:], e)
		le.PutUint64(d[32:], f)
		le.PutUint64(d[40:], g)
		return
	}
	copy(dst[at:], src[from:to])
}
