// Package binrow encodes and decodes Paimon's BinaryRow, the compact row form of keys, partitions and statistics in
// manifests, and derives from it what the table layout depends on: the bucket of a row and the folder of a partition.
//
// A row is one kind byte, a null bit for each field, an 8-byte slot for each field and a variable part:
//
//	[kind][null bits, header filled up to a multiple of 8][slot 0]…[slot n-1][variable part, 8-byte words]
//
// All numbers are little-endian. The sources of the format are `data.BinaryRow`, `AbstractBinaryWriter`,
// `BinaryArray`, `BinaryMap` and `utils.MurmurHashUtils` of Paimon 1.3.1.
package binrow

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// EmptyRow is the serialized row without fields: the partition of an unpartitioned table, the keys of append files,
// the values of empty statistics. It must not be changed.
var EmptyRow = make([]byte, 12)

const (
	word       = 8 // slots, and everything in the variable part, are multiples of it
	headerBits = 8 // the kind byte takes the first bits of the null area
	inlineMax  = 7 // longest string or binary that fits into its slot
	inlineMark = 0x80
	wideBytes  = 16 // room of a DECIMAL above precision 18
	compactMax = 18 // largest DECIMAL precision that fits into a slot
)

// nullBytes is the size of the header with its null bits (`BinaryRow.calculateBitSetWidthInBytes`).
func nullBytes(arity int) int { return (arity + 63 + headerBits) / 64 * word }

// fixedBytes is the size of a row without its variable part.
func fixedBytes(arity int) int { return nullBytes(arity) + word*arity }

// wide reports whether values of the type take part of their bytes from the variable part although their size is
// known: room for them is kept even for null, which the hash depends on.
func wide(t schema.Type) int {
	switch t.Root {
	case schema.Decimal:
		if t.Precision > compactMax {
			return wideBytes
		}
	case schema.Timestamp, schema.TimestampLTZ:
		if t.Precision > 3 {
			return word
		}
	}
	return 0
}

// Encoder encodes rows of fixed types. It is not safe for concurrent use.
type Encoder struct {
	types []schema.Type
	cells []cell // of the columns last given to Append
	bound []arrow.Array
}

// NewEncoder makes an encoder for rows of the given types.
func NewEncoder(types []schema.Type) *Encoder { return &Encoder{types: types} }

// Append adds the BinaryRow of one row, of kind +I and without arity prefix, to dst. The columns must have the Arrow
// types of schema.ArrowType; only primitive types are taken. Calls with the same columns again cost less.
func (e *Encoder) Append(dst []byte, cols []arrow.Array, row int) ([]byte, error) {
	if err := e.bind(cols); err != nil {
		return dst, err
	}
	for i, c := range cols {
		if row < 0 || row >= c.Len() {
			return dst, fmt.Errorf("binrow: row %d is outside of column %d with %d rows", row, i, c.Len())
		}
	}
	return appendRow(dst, e.cells, row), nil
}

// bind prepares the columns unless they are the ones of the last call.
func (e *Encoder) bind(cols []arrow.Array) error {
	if e.cells != nil && len(cols) == len(e.bound) {
		same := true
		for i := range cols {
			same = same && cols[i] == e.bound[i]
		}
		if same {
			return nil
		}
	}
	cells, err := bindCells(e.cells[:0], e.types, cols)
	if err != nil {
		e.cells = nil
		return err
	}
	e.cells, e.bound = cells, append(e.bound[:0], cols...)
	return nil
}

// appendRow encodes one row of bound columns.
func appendRow(dst []byte, cells []cell, row int) []byte {
	base, nulls := len(dst), nullBytes(len(cells))
	dst = appendZeros(dst, nulls+word*len(cells))
	for i := range cells {
		c := &cells[i]
		slot := base + nulls + word*i
		if c.null(row) {
			setNull(dst[base:], i)
			dst = appendWideNull(dst, base, slot, c.wide)
			continue
		}
		switch c.form {
		case formBytes:
			dst = appendBytes(dst, base, slot, c.bytes(row))
		case formWideDecimal:
			dst = appendWideDecimal(dst, base, slot, c.decimals[row])
		case formMicros:
			dst = appendMicros(dst, base, slot, c.int64s[row])
		case formNanos:
			dst = appendNanos(dst, base, slot, c.int64s[row])
		default:
			binary.LittleEndian.PutUint64(dst[slot:], c.slot(row))
		}
	}
	return dst
}

var zeros [256]byte

func appendZeros(dst []byte, n int) []byte {
	for n > len(zeros) {
		dst = append(dst, zeros[:]...)
		n -= len(zeros)
	}
	return append(dst, zeros[:n]...)
}

// setNull marks field i of the row as null.
func setNull(row []byte, i int) {
	bit := i + headerBits
	row[bit/8] |= 1 << (bit % 8)
}

// appendWideNull keeps room in the variable part for a null of a wide type.
func appendWideNull(dst []byte, base, slot, room int) []byte {
	if room == 0 {
		return dst
	}
	binary.LittleEndian.PutUint64(dst[slot:], uint64(len(dst)-base)<<32)
	return appendZeros(dst, room)
}

// appendBytes puts a string or binary into its slot, or into the variable part if it is longer than 7 bytes.
func appendBytes(dst []byte, base, slot int, b []byte) []byte {
	if len(b) <= inlineMax {
		copy(dst[slot:slot+inlineMax], b)
		dst[slot+inlineMax] = inlineMark | byte(len(b))
		return dst
	}
	return appendVariable(dst, base, slot, b)
}

// appendVariable puts bytes into the variable part, filled up to a word, and their place into the slot.
func appendVariable(dst []byte, base, slot int, b []byte) []byte {
	binary.LittleEndian.PutUint64(dst[slot:], uint64(len(dst)-base)<<32|uint64(uint32(len(b))))
	dst = append(dst, b...)
	return appendZeros(dst, -len(b)&(word-1))
}

// appendWideDecimal writes the shortest two's complement bytes, big-endian, into 16 bytes of the variable part.
func appendWideDecimal(dst []byte, base, slot int, v decimal128.Num) []byte {
	var raw [wideBytes]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(v.HighBits()))
	binary.BigEndian.PutUint64(raw[8:], v.LowBits())
	from := 0
	// A leading byte is superfluous when it only repeats the sign bit of the next one.
	for from < wideBytes-1 && (raw[from] == 0 && raw[from+1] < 0x80 || raw[from] == 0xff && raw[from+1] >= 0x80) {
		from++
	}
	n := wideBytes - from
	binary.LittleEndian.PutUint64(dst[slot:], uint64(len(dst)-base)<<32|uint64(n))
	dst = append(dst, raw[from:]...)
	return appendZeros(dst, wideBytes-n)
}

func appendMicros(dst []byte, base, slot int, micros int64) []byte {
	millis, rest := floorDiv(micros, 1000)
	return appendTimestamp(dst, base, slot, millis, rest*1000)
}

func appendNanos(dst []byte, base, slot int, nanos int64) []byte {
	millis, rest := floorDiv(nanos, 1_000_000)
	return appendTimestamp(dst, base, slot, millis, rest)
}

// appendTimestamp writes a timestamp above precision 3: milliseconds in the variable part, the rest in the slot.
func appendTimestamp(dst []byte, base, slot int, millis, nanoOfMilli int64) []byte {
	binary.LittleEndian.PutUint64(dst[slot:], uint64(len(dst)-base)<<32|uint64(nanoOfMilli))
	return binary.LittleEndian.AppendUint64(dst, uint64(millis))
}

// floorDiv divides with a rest that is never negative.
func floorDiv(v, by int64) (quotient, rest int64) {
	quotient, rest = v/by, v%by
	if rest < 0 {
		quotient, rest = quotient-1, rest+by
	}
	return quotient, rest
}

// Serialize puts the arity, big-endian, in front of a row: the form in manifests
// (`utils.SerializationUtils.serializeBinaryRow`).
func Serialize(row []byte, arity int) []byte {
	out := make([]byte, 0, 4+len(row))
	return append(binary.BigEndian.AppendUint32(out, uint32(arity)), row...)
}
