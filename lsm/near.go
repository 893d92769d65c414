package lsm

import (
	"encoding/binary"
	"math/bits"
)

// Rows that are sorted by key lie all over the batches that they came in. Copied in the order of their keys, each cell of
// each is another cache line and often another page of memory, which costs far more than the copy. So a step of rows is
// copied in the order in which it lies in memory, and each cell is put where it belongs: what is written to is small enough
// to stay near the processor.

// nearMin is the number of rows from which that pays.
const nearMin = 1024

// inMemoryOrder gives rows in ascending order, and where each stands in idx; nil, nil if they are few, or follow each other
// for the most part anyway. Rows are not negative.
func inMemoryOrder(mem *arena, idx []int32) (rows, to []int32) {
	if len(idx) < nearMin {
		return nil, nil
	}
	jumps, last, top := 0, idx[0], int32(0)
	for _, i := range idx {
		if d := i - last; d < 0 || d > 16 {
			jumps++
		}
		last, top = i, max(top, i)
	}
	if jumps < len(idx)/8 {
		return nil, nil
	}
	ws, tmp := slab[uint64](mem, len(idx)), slab[uint64](mem, len(idx))
	for o, i := range idx {
		ws[o] = uint64(i)<<32 | uint64(o)
	}
	const digit = 11
	var at [1 << digit]uint32
	for shift := 32; shift < 32+bits.Len32(uint32(top)); shift += digit {
		clear(at[:])
		for _, w := range ws {
			at[w>>shift&(1<<digit-1)]++
		}
		sum := uint32(0)
		for d, c := range at {
			at[d] = sum
			sum += c
		}
		for _, w := range ws {
			d := w >> shift & (1<<digit - 1)
			tmp[at[d]] = w
			at[d]++
		}
		ws, tmp = tmp, ws
	}
	rows, to = slab[int32](mem, len(idx)), slab[int32](mem, len(idx))
	for o, w := range ws {
		rows[o], to[o] = int32(w>>32), int32(uint32(w))
	}
	return rows, to
}

// copyExact copies src[from:to] to dst at at and writes nothing beside it, other than copyShort: what is there may be a
// string already. Up to 32 bytes are copied without a call.
func copyExact(dst []byte, at int, src []byte, from, to int) {
	n := to - from
	le := binary.LittleEndian
	switch {
	case n > 32:
		copy(dst[at:], src[from:to])
	case n > 16:
		d, s := dst[at:at+n], src[from:to]
		a, b, c, e := le.Uint64(s), le.Uint64(s[8:]), le.Uint64(s[n-16:]), le.Uint64(s[n-8:])
		le.PutUint64(d, a)
		le.PutUint64(d[8:], b)
		le.PutUint64(d[n-16:], c)
		le.PutUint64(d[n-8:], e)
	case n >= 8:
		d, s := dst[at:at+n], src[from:to]
		a, b := le.Uint64(s), le.Uint64(s[n-8:])
		le.PutUint64(d, a)
		le.PutUint64(d[n-8:], b)
	case n >= 4:
		d, s := dst[at:at+n], src[from:to]
		a, b := le.Uint32(s), le.Uint32(s[n-4:])
		le.PutUint32(d, a)
		le.PutUint32(d[n-4:], b)
	case n > 0:
		d, s := dst[at:at+n], src[from:to]
		a, b, c := s[0], s[n>>1], s[n-1]
		d[0], d[n>>1], d[n-1] = a, b, c
	}
}
