package datafile

import (
	"hash/maphash"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// Encoding of a column: what Paimon's own reader understands and nothing else. Never DELTA_LENGTH_BYTE_ARRAY and
// BYTE_STREAM_SPLIT (it refuses them) nor DELTA_BYTE_ARRAY (it reads wrong values).
type encoding uint8

const (
	plainEncoding encoding = iota
	deltaEncoding          // DELTA_BINARY_PACKED: integers only
	dictEncoding           // a dictionary, PLAIN once it grows beyond a megabyte
)

// sampleRows is how many rows of the first batch decide a column's encoding.
const sampleRows = 4096

// chooseEncoding looks at the first rows of a column. Integers are packed as differences unless few values that are
// far apart repeat; other columns get a dictionary if values repeat.
func chooseEncoding(t schema.Type, a arrow.Array) encoding {
	n := min(a.Len(), sampleRows)
	switch t.Root {
	case schema.Boolean:
		return plainEncoding
	case schema.Decimal:
		if decimalWidth(t.Precision) == 16 {
			return plainEncoding
		}
		return chooseInts(lowWords(values[decimal128.Num](a)[:n]))
	case schema.TinyInt, schema.SmallInt:
		return deltaEncoding
	case schema.Int, schema.Date, schema.Time:
		return chooseInts(widen64(values[int32](a)[:n]))
	case schema.Timestamp, schema.TimestampLTZ:
		if t.Precision > 6 {
			return plainEncoding // INT96
		}
		return chooseInts(values[int64](a)[:n])
	case schema.BigInt:
		return chooseInts(values[int64](a)[:n])
	}
	d := a.Data()
	var seen distinct
	switch a.(type) {
	case *array.Float32:
		for i, x := range values[uint32](a)[:n] {
			seen.add(mix(uint64(x)), i, n)
		}
	case *array.Float64:
		for i, x := range values[uint64](a)[:n] {
			seen.add(mix(x), i, n)
		}
	case *array.String, *array.Binary:
		if d.Buffers()[2] == nil {
			return plainEncoding
		}
		off := arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())[d.Offset():]
		data := d.Buffers()[2].Bytes()
		for i := range n {
			seen.add(maphash.Bytes(hashSeed, data[off[i]:off[i+1]]), i, n)
		}
	default:
		return plainEncoding
	}
	// What counts is how many of the later values are new: a dictionary of 5,000 entries still grows in such a sample.
	if n >= 64 && seen.late*5 <= n-n/2 {
		return dictEncoding
	}
	if n >= sampleRows && seen.late*5 <= 2*(n-n/2) {
		return dictEncoding
	}
	return plainEncoding
}

// hashSeed differs from run to run; it has no influence on a choice unless 64-bit hashes collide.
var hashSeed = maphash.MakeSeed()

func chooseInts(v []int64) encoding {
	if len(v) < 256 {
		return deltaEncoding
	}
	var seen distinct
	for i, x := range v {
		seen.add(mix(uint64(x)), i, len(v))
	}
	if seen.n*16 > len(v) {
		return deltaEncoding
	}
	if dict := bits.Len(uint(seen.n)); deltaBits(v) > 2*dict+4 {
		return dictEncoding
	}
	return deltaEncoding
}

// deltaBits is the mean width of a difference in DELTA_BINARY_PACKED, whose unit of width is 32 values.
func deltaBits(v []int64) int {
	const mini = 32
	total, blocks := 0, 0
	for from := 1; from+mini <= len(v); from += mini {
		lo, hi := v[from]-v[from-1], v[from]-v[from-1]
		for i := from + 1; i < from+mini; i++ {
			d := v[i] - v[i-1]
			lo, hi = min(lo, d), max(hi, d)
		}
		total += bits.Len64(uint64(hi) - uint64(lo))
		blocks++
	}
	if blocks == 0 {
		return 0
	}
	return total / blocks
}

// distinct counts different hashes: how many there are, and how many first came in the second half.
type distinct struct {
	slots   [2 * sampleRows]uint64
	n, late int
}

func (s *distinct) add(h uint64, i, n int) {
	h |= 1 // 0 is an empty slot
	for j := h >> 32 % uint64(len(s.slots)); ; j = (j + 1) % uint64(len(s.slots)) {
		switch s.slots[j] {
		case h:
			return
		case 0:
			s.slots[j] = h
			s.n++
			if i >= n/2 {
				s.late++
			}
			return
		}
	}
}

// mix spreads the bits of a number (the finalizer of MurmurHash3).
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func widen64(v []int32) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}

func lowWords(v []decimal128.Num) []int64 {
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x.LowBits())
	}
	return out
}
