package lsm

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/internal/binrow"
)

// FromSerialized turns a file's `_MIN_KEY` or `_MAX_KEY` (a BinaryRow with arity prefix) into the normalized bytes
// that Encode gives for the same key.
func (k *Keys) FromSerialized(b []byte) (string, error) {
	vals, err := binrow.Decode(b, k.types)
	if err != nil {
		return "", fmt.Errorf("key of a data file: %w", err)
	}
	return k.fromCells(vals)
}

// fromCells gives the normalized bytes of a key in the form of schema.Cell.
func (k *Keys) fromCells(vals []any) (string, error) {
	var dst []byte
	var err error
	for i, v := range vals {
		if dst, err = k.cols[i].append(dst, v); err != nil {
			return "", err
		}
	}
	return string(dst), nil
}

// append appends the code of one value in the form of schema.Cell.
func (c keyCol) append(dst []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case nil:
		return nil, fmt.Errorf("key column %q is null", c.name)
	case bool:
		b := byte(0)
		if x {
			b = 1
		}
		return append(dst, b), nil
	case int8:
		return append(dst, byte(code8(x))), nil
	case int16:
		return binary.BigEndian.AppendUint16(dst, uint16(code16(x))), nil
	case int32:
		return binary.BigEndian.AppendUint32(dst, uint32(code32(x))), nil
	case int64:
		return binary.BigEndian.AppendUint64(dst, code64(x)), nil
	case float32:
		return binary.BigEndian.AppendUint32(dst, uint32(codeF32(x))), nil
	case float64:
		return binary.BigEndian.AppendUint64(dst, codeF64(x)), nil
	case string:
		return appendString(dst, x), nil
	case []byte:
		return appendString(dst, x), nil
	case decimal128.Num:
		return c.appendDecimal(dst, x)
	}
	return nil, fmt.Errorf("key column %q: a %T cannot be part of a key", c.name, v)
}

func (c keyCol) appendDecimal(dst []byte, v decimal128.Num) ([]byte, error) {
	if c.width == 16 {
		dst = binary.BigEndian.AppendUint64(dst, code64(v.HighBits()))
		return binary.BigEndian.AppendUint64(dst, v.LowBits()), nil
	}
	u, err := c.unscaled(v)
	if err != nil {
		return nil, err
	}
	if c.width == 4 {
		return binary.BigEndian.AppendUint32(dst, uint32(u)), nil
	}
	return binary.BigEndian.AppendUint64(dst, u), nil
}
