package binrow

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// form says where the values of a column lie and how they become slots.
type form uint8

const (
	formInvalid form = iota
	formBool
	formInt8
	formInt16
	formInt32
	formInt64
	formFloat32
	formFloat64
	formDecimal // precision up to 18
	// From here on values use the variable part.
	formWideDecimal
	formMicros // timestamps above precision 3, from microseconds
	formNanos  // and from nanoseconds
	formBytes
)

// cell gives access to the values of one column without an interface call for each row. Exactly one of the slices
// is set, starting at the column's first row.
type cell struct {
	form form
	wide int // room kept in the variable part for a null

	nulls   []byte // validity bitmap, 1 = set; nil: no nulls
	nullOff int

	bits     []byte // booleans
	bitOff   int
	int8s    []int8
	int16s   []int16
	int32s   []int32
	int64s   []int64
	float32s []float32
	float64s []float64
	decimals []decimal128.Num
	offsets  []int32 // strings and binaries: one more than there are rows
	data     []byte
}

func (c *cell) null(row int) bool { return c.nulls != nil && !bitutil.BitIsSet(c.nulls, c.nullOff+row) }

func (c *cell) bytes(row int) []byte { return c.data[c.offsets[row]:c.offsets[row+1]] }

// slot gives the slot of a value that needs no variable part.
func (c *cell) slot(row int) uint64 {
	switch c.form {
	case formInt64:
		return uint64(c.int64s[row])
	case formInt32:
		return uint64(uint32(c.int32s[row]))
	case formInt16:
		return uint64(uint16(c.int16s[row]))
	case formInt8:
		return uint64(uint8(c.int8s[row]))
	case formFloat32:
		return uint64(math.Float32bits(c.float32s[row]))
	case formFloat64:
		return math.Float64bits(c.float64s[row])
	case formDecimal:
		return c.decimals[row].LowBits()
	case formBool:
		if bitutil.BitIsSet(c.bits, c.bitOff+row) {
			return 1
		}
	}
	return 0
}

// bindCells prepares columns for appendRow. It fails if a column has not the Arrow type of its schema type.
func bindCells(dst []cell, types []schema.Type, cols []arrow.Array) ([]cell, error) {
	if len(types) != len(cols) {
		return dst, fmt.Errorf("binrow: %d columns for %d types", len(cols), len(types))
	}
	for i, t := range types {
		c, err := bindCell(t, cols[i])
		if err != nil {
			return dst, fmt.Errorf("binrow: column %d: %w", i, err)
		}
		dst = append(dst, c)
	}
	return dst, nil
}

func bindCell(t schema.Type, a arrow.Array) (cell, error) {
	want, err := schema.ArrowType(t)
	if err != nil {
		return cell{}, err
	}
	if !t.Primitive() || a.DataType().ID() != want.ID() {
		return cell{}, fmt.Errorf("values of %s cannot be read from Arrow type %s", t, a.DataType())
	}
	c := cell{wide: wide(t)}
	if a.NullN() > 0 {
		c.nulls, c.nullOff = a.NullBitmapBytes(), a.Data().Offset()
	}
	switch a := a.(type) {
	case *array.Boolean:
		c.form, c.bitOff = formBool, a.Data().Offset()
		if buf := a.Data().Buffers()[1]; buf != nil {
			c.bits = buf.Bytes()
		}
	case *array.Int8:
		c.form, c.int8s = formInt8, a.Int8Values()
	case *array.Int16:
		c.form, c.int16s = formInt16, a.Int16Values()
	case *array.Int32:
		c.form, c.int32s = formInt32, a.Int32Values()
	case *array.Int64:
		c.form, c.int64s = formInt64, a.Int64Values()
	case *array.Float32:
		c.form, c.float32s = formFloat32, a.Float32Values()
	case *array.Float64:
		c.form, c.float64s = formFloat64, a.Float64Values()
	case *array.Decimal128:
		c.form, c.decimals = formDecimal, a.Values()
		if c.wide > 0 {
			c.form = formWideDecimal
		}
	default:
		err = c.bindOther(t, a)
	}
	return c, err
}

// bindOther binds times, dates, strings and binaries: views on integers and bytes.
func (c *cell) bindOther(t schema.Type, a arrow.Array) error {
	d := a.Data()
	switch a.(type) {
	case *array.Date32, *array.Time32:
		c.form, c.int32s = formInt32, int32s(d, d.Len())
	case *array.Timestamp:
		got := a.DataType().(*arrow.TimestampType).Unit
		if got != schema.TimeUnit(t) {
			return fmt.Errorf("values of %s cannot be read from Arrow timestamps in %s", t, got)
		}
		c.form = formInt64
		if buf := d.Buffers()[1]; buf != nil {
			c.int64s = arrow.Int64Traits.CastFromBytes(buf.Bytes())[d.Offset() : d.Offset()+d.Len()]
		}
		switch {
		case c.wide > 0 && got == arrow.Microsecond:
			c.form = formMicros
		case c.wide > 0:
			c.form = formNanos
		}
	case *array.String, *array.Binary:
		c.form = formBytes
		if d.Len() > 0 {
			c.offsets = int32s(d, d.Len()+1)
		}
		if buf := d.Buffers()[2]; buf != nil {
			c.data = buf.Bytes()
		}
	default:
		return fmt.Errorf("values of %s cannot be read from Arrow type %s", t, a.DataType())
	}
	return nil
}

// int32s gives n integers of the array's second buffer, from its offset on.
func int32s(d arrow.ArrayData, n int) []int32 {
	buf := d.Buffers()[1]
	if buf == nil {
		return nil
	}
	return arrow.Int32Traits.CastFromBytes(buf.Bytes())[d.Offset() : d.Offset()+n]
}
