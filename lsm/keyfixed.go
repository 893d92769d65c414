package lsm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// Codes of fixed width: the value as a big-endian number with its sign bit flipped.
const (
	sign8  = 1 << 7
	sign16 = 1 << 15
	sign32 = 1 << 31
	sign64 = 1 << 63
)

func code8(v int8) uint64   { return uint64(uint8(v) ^ sign8) }
func code16(v int16) uint64 { return uint64(uint16(v) ^ sign16) }
func code32(v int32) uint64 { return uint64(uint32(v) ^ sign32) }
func code64(v int64) uint64 { return uint64(v) ^ sign64 }

// codeF32 orders floats by value: a negative number has all its bits flipped, a positive one only its sign.
func codeF32(f float32) uint64 {
	switch {
	case f == 0:
		f = 0 // -0 is 0
	case f != f:
		return 1<<32 - 1
	}
	b := math.Float32bits(f)
	return uint64(b ^ (uint32(int32(b)>>31) | sign32))
}

// codeF64 is codeF32 for doubles.
func codeF64(f float64) uint64 {
	switch {
	case f == 0:
		f = 0
	case f != f:
		return math.MaxUint64
	}
	b := math.Float64bits(f)
	return b ^ (uint64(int64(b)>>63) | sign64)
}

// check holds a key column against its type: after it, the loops below can trust the array's layout.
func (c keyCol) check(a arrow.Array) error {
	want, err := schema.ArrowType(c.typ)
	if err != nil {
		return fmt.Errorf("key column %q: %w", c.name, err)
	}
	if got := a.DataType(); !arrow.TypeEqual(got, want) {
		return fmt.Errorf("key column %q is %s, want %s", c.name, got, want)
	}
	if err := checkLayout(a); err != nil {
		return fmt.Errorf("key column %q: %w", c.name, err)
	}
	return nil
}

// orFixed ORs the codes of a column, shifted left by shift bits, into dst. Only columns of at most eight bytes.
func (k *Keys) orFixed(dst []uint64, a arrow.Array, col int, shift uint) error {
	c := k.cols[col]
	if err := c.check(a); err != nil {
		return err
	}
	n := len(dst)
	switch c.typ.Root {
	case schema.Boolean:
		d := a.Data()
		bits := d.Buffers()[1].Bytes()
		for i := range dst {
			if bitutil.BitIsSet(bits, d.Offset()+i) {
				dst[i] |= 1 << shift
			}
		}
	case schema.TinyInt:
		orCodes(dst, values[int8](a)[:n], shift, code8)
	case schema.SmallInt:
		orCodes(dst, values[int16](a)[:n], shift, code16)
	case schema.Int, schema.Date, schema.Time:
		for i, v := range values[int32](a)[:n] {
			dst[i] |= code32(v) << shift
		}
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		for i, v := range values[int64](a)[:n] {
			dst[i] |= code64(v) << shift
		}
	case schema.Float:
		orCodes(dst, values[float32](a)[:n], shift, codeF32)
	case schema.Double:
		orCodes(dst, values[float64](a)[:n], shift, codeF64)
	case schema.Decimal:
		for i, v := range values[decimal128.Num](a)[:n] {
			u, err := c.unscaled(v)
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
			dst[i] |= u << shift
		}
	default:
		return fmt.Errorf("key column %q: %s cannot be part of a key", c.name, c.typ)
	}
	return nil
}

func orCodes[T any](dst []uint64, v []T, shift uint, code func(T) uint64) {
	for i, x := range v {
		dst[i] |= code(x) << shift
	}
}

// unscaled is the code of a decimal of up to 18 digits.
func (c keyCol) unscaled(v decimal128.Num) (uint64, error) {
	lo := int64(v.LowBits())
	if v.HighBits() != lo>>63 {
		return 0, fmt.Errorf("key column %q: a value exceeds %s", c.name, c.typ)
	}
	if c.width == 4 {
		if lo != int64(int32(lo)) {
			return 0, fmt.Errorf("key column %q: the value %d exceeds %s", c.name, lo, c.typ)
		}
		return code32(int32(lo)), nil
	}
	return code64(lo), nil
}

// putFixed writes the codes of a column at the positions, which it advances.
func (k *Keys) putFixed(data []byte, pos []uint32, a arrow.Array, col int) error {
	c := k.cols[col]
	if c.width == 16 {
		if err := c.check(a); err != nil {
			return err
		}
		for i, v := range values[decimal128.Num](a)[:len(pos)] {
			p := pos[i]
			binary.BigEndian.PutUint64(data[p:], code64(v.HighBits()))
			binary.BigEndian.PutUint64(data[p+8:], v.LowBits())
			pos[i] = p + 16
		}
		return nil
	}
	// Codes of eight bytes or less take a detour over a word a row; composites are not the hot path.
	words := make([]uint64, len(pos))
	if err := k.orFixed(words, a, col, 0); err != nil {
		return err
	}
	switch c.width {
	case 1:
		for i, w := range words {
			data[pos[i]] = byte(w)
			pos[i]++
		}
	case 2:
		for i, w := range words {
			binary.BigEndian.PutUint16(data[pos[i]:], uint16(w))
			pos[i] += 2
		}
	case 4:
		for i, w := range words {
			binary.BigEndian.PutUint32(data[pos[i]:], uint32(w))
			pos[i] += 4
		}
	default:
		for i, w := range words {
			binary.BigEndian.PutUint64(data[pos[i]:], w)
			pos[i] += 8
		}
	}
	return nil
}
