package binrow

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// Arity gives the number of fields of a serialized row.
func Arity(serialized []byte) (int, error) {
	if len(serialized) < 4 {
		return 0, fmt.Errorf("binrow: a serialized row has at least 4 bytes, this one has %d", len(serialized))
	}
	return int(int32(binary.BigEndian.Uint32(serialized))), nil
}

// Decode reads a serialized row, with arity prefix, of primitive types. Values have the forms of schema.Cell and
// share no memory with the input. Every length and offset is checked: the input may come from a damaged file.
func Decode(serialized []byte, types []schema.Type) ([]any, error) {
	arity, err := Arity(serialized)
	if err != nil {
		return nil, err
	}
	if arity != len(types) {
		return nil, fmt.Errorf("binrow: row has %d fields, %d are expected", arity, len(types))
	}
	row := serialized[4:]
	nulls := nullBytes(arity)
	if len(row) < nulls+word*arity {
		return nil, fmt.Errorf("binrow: row of %d fields has %d bytes, at least %d are needed", arity, len(row), nulls+word*arity)
	}
	out := make([]any, arity)
	for i, t := range types {
		if bit := i + headerBits; row[bit/8]>>(bit%8)&1 == 1 {
			continue
		}
		slot := nulls + word*i
		if out[i], err = decodeField(row, slot, fixedBytes(arity), t); err != nil {
			return nil, fmt.Errorf("binrow: field %d (%s) at offset %d: %w", i, t, 4+slot, err)
		}
	}
	return out, nil
}

// DecodeField reads one field of a serialized row of n fields, as Decode does.
func DecodeField(serialized []byte, n, i int, t schema.Type) (any, error) {
	arity, err := Arity(serialized)
	if err != nil {
		return nil, err
	}
	if arity != n || i < 0 || i >= n {
		return nil, fmt.Errorf("binrow: row has %d fields, field %d of %d is wanted", arity, i, n)
	}
	row, slot := serialized[4:], nullBytes(arity)+word*i
	if len(row) < fixedBytes(arity) {
		return nil, fmt.Errorf("binrow: row of %d fields has %d bytes, at least %d are needed", arity, len(row), fixedBytes(arity))
	}
	if bit := i + headerBits; row[bit/8]>>(bit%8)&1 == 1 {
		return nil, nil
	}
	v, err := decodeField(row, slot, fixedBytes(arity), t)
	if err != nil {
		return nil, fmt.Errorf("binrow: field %d (%s) at offset %d: %w", i, t, 4+slot, err)
	}
	return v, nil
}

// decodeField reads the field whose slot starts at the given offset; fixed is where the variable part starts.
func decodeField(row []byte, slot, fixed int, t schema.Type) (any, error) {
	v := binary.LittleEndian.Uint64(row[slot:])
	switch t.Root {
	case schema.Boolean:
		return byte(v) != 0, nil
	case schema.TinyInt:
		return int8(v), nil
	case schema.SmallInt:
		return int16(v), nil
	case schema.Int, schema.Date, schema.Time:
		return int32(v), nil
	case schema.BigInt:
		return int64(v), nil
	case schema.Float:
		return math.Float32frombits(uint32(v)), nil
	case schema.Double:
		return math.Float64frombits(v), nil
	case schema.Decimal:
		if t.Precision <= compactMax {
			return decimal128.FromI64(int64(v)), nil
		}
		return decodeWideDecimal(row, v, fixed)
	case schema.Timestamp, schema.TimestampLTZ:
		return decodeTimestamp(row, v, fixed, t)
	case schema.Char, schema.VarChar:
		b, err := decodeBytes(row, slot, v, fixed)
		return string(b), err
	case schema.Binary, schema.VarBinary:
		b, err := decodeBytes(row, slot, v, fixed)
		return append([]byte{}, b...), err
	}
	return nil, fmt.Errorf("only primitive types can be decoded")
}

// variable gives the part of the row that a slot points to.
func variable(row []byte, slot uint64, length, fixed int) ([]byte, error) {
	at := int64(slot >> 32)
	if at < int64(fixed) || at > int64(len(row)) || int64(length) > int64(len(row))-at {
		return nil, fmt.Errorf("%d bytes at %d are outside of the variable part, which goes from %d to %d", length, at, fixed, len(row))
	}
	return row[at : at+int64(length)], nil
}

func decodeBytes(row []byte, slot int, v uint64, fixed int) ([]byte, error) {
	if mark := byte(v >> 56); mark&inlineMark != 0 {
		n := int(mark &^ inlineMark)
		if n > inlineMax {
			return nil, fmt.Errorf("inline length %d is more than %d", n, inlineMax)
		}
		return row[slot : slot+n], nil
	}
	if uint32(v) > math.MaxInt32 {
		return nil, fmt.Errorf("length %d is more than a row can hold", uint32(v))
	}
	return variable(row, v, int(uint32(v)), fixed)
}

func decodeWideDecimal(row []byte, v uint64, fixed int) (any, error) {
	n := uint32(v)
	if n < 1 || n > wideBytes {
		return nil, fmt.Errorf("a decimal has 1 to %d bytes, not %d", wideBytes, n)
	}
	b, err := variable(row, v, int(n), fixed)
	if err != nil {
		return nil, err
	}
	var hi, lo uint64
	if b[0] >= 0x80 {
		hi, lo = math.MaxUint64, math.MaxUint64
	}
	for _, x := range b {
		hi, lo = hi<<8|lo>>56, lo<<8|uint64(x)
	}
	return decimal128.New(int64(hi), lo), nil
}

// decodeTimestamp gives the value in the unit of schema.TimeUnit.
func decodeTimestamp(row []byte, v uint64, fixed int, t schema.Type) (any, error) {
	if t.Precision <= 3 {
		return int64(v), nil
	}
	b, err := variable(row, v, word, fixed)
	if err != nil {
		return nil, err
	}
	millis, nanos := int64(binary.LittleEndian.Uint64(b)), int64(uint32(v))
	if nanos >= 1_000_000 {
		return nil, fmt.Errorf("%d nanoseconds of a millisecond are too many", nanos)
	}
	perMilli, rest := int64(1000), nanos/1000
	if t.Precision > 6 {
		perMilli, rest = 1_000_000, nanos
	}
	if millis > math.MaxInt64/perMilli-1 || millis < math.MinInt64/perMilli {
		return nil, fmt.Errorf("%d milliseconds since 1970 are outside of what %s can hold in 64 bits", millis, t)
	}
	return millis*perMilli + rest, nil
}
