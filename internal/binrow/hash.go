package binrow

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/schema"
)

// Constants of Murmur3 x86 32, and Paimon's seed (`utils.MurmurHashUtils`).
const (
	seed = 42
	c1   = 0xcc9e2d51
	c2   = 0x1b873593
)

// nullWord is the first word of a header whose field 0 is null.
const nullWord = 1 << headerBits

func mix(h, k uint32) uint32 {
	h ^= bits.RotateLeft32(k*c1, 15) * c2
	return bits.RotateLeft32(h, 13)*5 + 0xe6546b64
}

// mixSlot mixes the two words of a slot.
func mixSlot(h uint32, slot uint64) uint32 { return mix(mix(h, uint32(slot)), uint32(slot>>32)) }

func finish(h, length uint32) int32 {
	h ^= length
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return int32(h)
}

// Hash is Paimon's hash of a row without arity prefix. Rows are whole words; bytes after the last whole 4-byte word
// of anything else are ignored.
func Hash(row []byte) int32 {
	h := uint32(seed)
	rest := row
	for ; len(rest) >= 4; rest = rest[4:] {
		h = mix(h, binary.LittleEndian.Uint32(rest))
	}
	return finish(h, uint32(len(row)))
}

// Bucket is the bucket of a hash among n (`bucket.DefaultBucketFunction`): the absolute value of Java's remainder.
func Bucket(hash int32, n int) int {
	// In 64 bits, so that the most negative hash has an absolute value.
	r := int64(hash) % int64(n)
	if r < 0 {
		r = -r
	}
	return int(r)
}

// BucketMod is the bucket of an integer key under bucket-function.type = mod (`bucket.ModBucketFunction`).
func BucketMod(v int64, n int) int {
	_, r := floorDiv(v, int64(n))
	return int(r)
}

// Buckets writes the bucket of each of the first n rows to dst, by the default bucket function. The columns are the
// bucket columns in their order, with their types.
func Buckets(dst []int32, types []schema.Type, cols []arrow.Array, n, buckets int) error {
	if err := checkBuckets(dst, cols, n, buckets); err != nil {
		return err
	}
	if buckets == 1 {
		clear(dst[:n])
		return nil
	}
	if err := Hashes(dst, types, cols, n); err != nil {
		return err
	}
	reduce(dst[:n], int32(buckets))
	return nil
}

// Hashes writes Paimon's hash of each of the first n rows to dst. The columns are the fields of the row in their order,
// with their types.
func Hashes(dst []int32, types []schema.Type, cols []arrow.Array, n int) error {
	if err := checkBuckets(dst, cols, n, 1); err != nil {
		return err
	}
	cells, err := bindCells(make([]cell, 0, len(cols)), types, cols)
	if err != nil {
		return err
	}
	dst = dst[:n]
	switch {
	case len(cells) == 1 && cells[0].form < formWideDecimal:
		hashSingle(dst, &cells[0])
	case fixedWidth(cells):
		hashFixed(dst, cells)
	default:
		hashRows(dst, cells)
	}
	return nil
}

// BucketsMod is Buckets for bucket-function.type = mod, which takes one INT or BIGINT column. Paimon defines no
// bucket for null there; it is an error.
func BucketsMod(dst []int32, typ schema.Type, col arrow.Array, n, buckets int) error {
	if err := checkBuckets(dst, []arrow.Array{col}, n, buckets); err != nil {
		return err
	}
	c, err := bindCell(typ, col)
	if err != nil {
		return fmt.Errorf("binrow: %w", err)
	}
	if typ.Root != schema.Int && typ.Root != schema.BigInt {
		return fmt.Errorf("binrow: bucket function mod takes INT or BIGINT, not %s", typ)
	}
	for i := range dst[:n] {
		switch {
		case c.null(i):
			return fmt.Errorf("binrow: row %d: bucket function mod has no bucket for null", i)
		case c.form == formInt32:
			dst[i] = int32(BucketMod(int64(c.int32s[i]), buckets))
		default:
			dst[i] = int32(BucketMod(c.int64s[i], buckets))
		}
	}
	return nil
}

func checkBuckets(dst []int32, cols []arrow.Array, n, buckets int) error {
	if buckets < 1 || buckets > 1<<31-1 {
		return fmt.Errorf("binrow: %d is not a number of buckets", buckets)
	}
	if n < 0 || n > len(dst) {
		return fmt.Errorf("binrow: %d rows do not fit into %d results", n, len(dst))
	}
	for i, c := range cols {
		if c.Len() < n {
			return fmt.Errorf("binrow: column %d has %d rows, %d are needed", i, c.Len(), n)
		}
	}
	return nil
}

// reduce turns hashes into buckets.
func reduce(hashes []int32, buckets int32) {
	if buckets&(buckets-1) == 0 {
		// The absolute value of the remainder by a power of two: no division needed.
		mask := buckets - 1
		for i, h := range hashes {
			sign := h >> 31
			hashes[i] = ((h ^ sign) - sign) & mask
		}
		return
	}
	for i, h := range hashes {
		r := h % buckets
		if r < 0 {
			r = -r
		}
		hashes[i] = r
	}
}

func fixedWidth(cells []cell) bool {
	for i := range cells {
		if cells[i].form >= formWideDecimal {
			return false
		}
	}
	return len(cells) > 0 && nullBytes(len(cells)) == word
}

// hashSingle hashes rows of one fixed-width field: two words of header and the slot.
func hashSingle(dst []int32, c *cell) {
	start := mixSlot(seed, 0)
	switch {
	case c.nulls != nil:
		null := finish(mixSlot(mixSlot(seed, nullWord), 0), 2*word)
		for i := range dst {
			dst[i] = null
			if !c.null(i) {
				dst[i] = finish(mixSlot(start, c.slot(i)), 2*word)
			}
		}
	case c.form == formInt64:
		for i, v := range c.int64s[:len(dst)] {
			dst[i] = finish(mixSlot(start, uint64(v)), 2*word)
		}
	case c.form == formInt32:
		for i, v := range c.int32s[:len(dst)] {
			dst[i] = finish(mix(mix(start, uint32(v)), 0), 2*word)
		}
	default:
		for i := range dst {
			dst[i] = finish(mixSlot(start, c.slot(i)), 2*word)
		}
	}
}

// hashFixed hashes rows of up to 56 fixed-width fields without building them.
func hashFixed(dst []int32, cells []cell) {
	length := uint32(fixedBytes(len(cells)))
	for i := range dst {
		var header uint64
		for k := range cells {
			if cells[k].null(i) {
				header |= 1 << (headerBits + k)
			}
		}
		h := mixSlot(seed, header)
		for k := range cells {
			var slot uint64
			if header>>(headerBits+k)&1 == 0 {
				slot = cells[k].slot(i)
			}
			h = mixSlot(h, slot)
		}
		dst[i] = finish(h, length)
	}
}

// hashRows builds each row in one reused buffer and hashes it.
func hashRows(dst []int32, cells []cell) {
	row := make([]byte, 0, fixedBytes(len(cells))+64)
	for i := range dst {
		row = appendRow(row[:0], cells, i)
		dst[i] = Hash(row)
	}
}
