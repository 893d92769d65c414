package lsm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// pair is a row on its way through the sort: eight bytes of its key and its place in arrival order.
type pair struct {
	key uint64
	idx uint32
}

// radixMin is the size from which the radix sort beats the comparison sort (measured, see BenchmarkSort).
const radixMin = 64

// sortNewest sorts the rows of v by key and keeps of each key the row that came last: the in-buffer merge of the
// deduplicate engine. It returns row numbers in key order.
func sortNewest(v *KeyVec) []int32 { return sortKeys(v, false) }

// sortAll sorts the rows of v by key, and those of one key by arrival. It returns row numbers.
func sortAll(v *KeyVec) []int32 { return sortKeys(v, true) }

func sortKeys(v *KeyVec, all bool) []int32 {
	n := v.Len()
	if v.ascending() < 0 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(i)
		}
		return out
	}
	if v.Exact && n >= radixMin {
		if out, ok := sortPacked(v.Prefix, all); ok {
			return out
		}
	}
	ps, tmp := make([]pair, n), make([]pair, n)
	for i, k := range v.Prefix {
		ps[i] = pair{k, uint32(i)}
	}
	if s := sortPairs(ps, tmp); &s[0] != &ps[0] {
		ps, tmp = s, ps
	}
	if !v.Exact {
		v.sortTies(ps, tmp, 8, 0)
	}
	out := make([]int32, 0, n)
	for i := range ps {
		if !all && i+1 < n && ps[i].key == ps[i+1].key && v.sameRest(ps[i].idx, ps[i+1].idx) {
			continue
		}
		out = append(out, int32(ps[i].idx))
	}
	return out
}

// sortPacked is sortKeys for exact keys whose differing bits and a row number fit into one word, as those of numbers
// that are close to each other do: words sort with half the memory traffic of pairs.
func sortPacked(keys []uint64, all bool) ([]int32, bool) {
	low, width := span(keys)
	idxBits := bits.Len(uint(len(keys) - 1))
	if width+idxBits > 64 {
		return nil, false
	}
	ws, tmp := make([]uint64, len(keys)), make([]uint64, len(keys))
	mask := uint64(1)<<width - 1
	for i, k := range keys {
		ws[i] = k>>low&mask<<idxBits | uint64(i)
	}
	for shift := idxBits; shift < idxBits+width; shift += 8 {
		var at [256]uint32
		for _, w := range ws {
			at[byte(w>>shift)]++
		}
		if at[byte(ws[0]>>shift)] == uint32(len(ws)) {
			continue
		}
		starts(&at)
		for _, w := range ws {
			d := byte(w >> shift)
			tmp[at[d]] = w
			at[d]++
		}
		ws, tmp = tmp, ws
	}
	out := make([]int32, 0, len(keys))
	row := uint64(1)<<idxBits - 1
	for i, w := range ws {
		if all || i+1 == len(ws) || w>>idxBits != ws[i+1]>>idxBits {
			out = append(out, int32(w&row))
		}
	}
	return out, true
}

// span is the range of bits in which keys differ.
func span(keys []uint64) (low, width int) {
	all, some := ^uint64(0), uint64(0)
	for _, k := range keys {
		all &= k
		some |= k
	}
	diff := all ^ some
	if diff == 0 {
		return 0, 0
	}
	low = bits.TrailingZeros64(diff)
	return low, bits.Len64(diff) - low
}

// starts turns counts into the positions at which each digit begins.
func starts(at *[256]uint32) {
	sum := uint32(0)
	for d, c := range at {
		at[d] = sum
		sum += c
	}
}

func (v *KeyVec) sameRest(i, j uint32) bool {
	return v.Exact || bytes.Equal(v.rest(int(i)), v.rest(int(j)))
}

// maxTieDepth bounds the recursion of sortTies; deeper ties are compared.
const maxTieDepth = 16

// sortTies orders rows of equal words by what follows: every group of ties is sorted by the next eight bytes of the
// code, from byte d on. Afterwards the pairs hold their prefixes again.
func (v *KeyVec) sortTies(ps, tmp []pair, d, depth int) {
	for a := 0; a < len(ps); {
		b := a + 1
		for b < len(ps) && ps[b].key == ps[a].key {
			b++
		}
		if b-a > 1 {
			v.sortGroup(ps[a:b], tmp, d, depth)
		}
		a = b
	}
}

func (v *KeyVec) sortGroup(ps, tmp []pair, d, depth int) {
	word := ps[0].key
	if len(ps) < radixMin || depth == maxTieDepth {
		slices.SortFunc(ps, func(x, y pair) int {
			if c := bytes.Compare(v.tail(int(x.idx), d), v.tail(int(y.idx), d)); c != 0 {
				return c
			}
			return cmp.Compare(x.idx, y.idx)
		})
		return
	}
	more := false
	for i := range ps {
		t := v.tail(int(ps[i].idx), d)
		ps[i].key = word64(t)
		more = more || len(t) > 8
	}
	if s := sortPairs(ps, tmp[:len(ps)]); &s[0] != &ps[0] {
		copy(ps, s)
	}
	if more {
		v.sortTies(ps, tmp, d+8, depth+1)
	}
	for i := range ps {
		ps[i].key = word
	}
}

// word64 is the first eight bytes of b, big endian, padded with zeros.
func word64(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	w := uint64(0)
	for i, c := range b {
		w |= uint64(c) << (56 - 8*i)
	}
	return w
}

// sortPairs sorts by key, stably: rows of one key stay in arrival order. It returns the sorted pairs, which are in ps
// or in tmp.
func sortPairs(ps, tmp []pair) []pair {
	if len(ps) < radixMin {
		slices.SortFunc(ps, func(a, b pair) int {
			if c := cmp.Compare(a.key, b.key); c != 0 {
				return c
			}
			return cmp.Compare(a.idx, b.idx)
		})
		return ps
	}
	return radix(ps, tmp)
}

// radix is a least-significant-digit radix sort that skips digits which are the same in all keys.
func radix(ps, tmp []pair) []pair {
	var all, any uint64 = ^uint64(0), 0
	for i := range ps {
		all &= ps[i].key
		any |= ps[i].key
	}
	diff := all ^ any
	for shift := 0; shift < 64; shift += 8 {
		if diff>>shift&0xff == 0 {
			continue
		}
		var at [256]uint32
		for i := range ps {
			at[byte(ps[i].key>>shift)]++
		}
		starts(&at)
		for _, p := range ps {
			d := byte(p.key >> shift)
			tmp[at[d]] = p
			at[d]++
		}
		ps, tmp = tmp, ps
	}
	return ps
}

// sameKey is the end of the rows of order that have the key of row from.
func sameKey(order []int32, v *KeyVec, from int) int {
	to := from + 1
	for to < len(order) && v.Compare(int(order[from]), v, int(order[to])) == 0 {
		to++
	}
	return to
}

// sortSequence sorts rows of one key, which stand in order of arrival, by their sequence fields.
func sortSequence(order []int32, v *KeyVec, by *seqVec) {
	for from := 0; from < len(order); {
		to := sameKey(order, v, from)
		if to-from > 1 {
			slices.SortStableFunc(order[from:to], func(a, b int32) int { return by.compare(int(a), by, int(b)) })
		}
		from = to
	}
}

// keepLast keeps the last row of each key.
func keepLast(order []int32, v *KeyVec) []int32 {
	out := order[:0]
	for from := 0; from < len(order); {
		to := sameKey(order, v, from)
		out = append(out, order[to-1])
		from = to
	}
	return out
}
