package decode

import (
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// shape is how the values of a column are laid out.
type shape uint8

const (
	shapeBool shape = iota
	shapeInt8
	shapeInt16
	shapeInt32
	shapeInt64
	shapeFloat32
	shapeFloat64
	shapeDecimal
	shapeText
	shapeBytes
	shapeDate      // in i32
	shapeTime      // in i32
	shapeTimestamp // in i64
	shapeStruct    // in kids
	shapeList      // off, and in kids
	shapeMap       // off, and in kids
)

// column builds one Arrow array. It is a builder whose buffers are written by row number: the rows [0, rows) of the
// decoder are done, a row being decoded is written behind them, and it becomes part of the column only when the decoder
// counts it. A failed row thus leaves nothing to take back but the null bits (clear).
type column struct {
	name     string
	typ      schema.Type
	shape    shape
	path     []string // of the table's schema
	notNull  bool
	key      bool // part of the primary key
	top      bool // a column of the table, not inside of one
	meta     metaField
	limit    int  // characters or bytes; 0: no limit
	unit     int  // times and timestamps: decimal places below a second of numbers
	stored   int  // timestamps: decimal places below a second of the Arrow unit
	binary   bool // exact decimals come as the bytes of their unscaled value
	scale    int  // of them
	unsigned bool // negative numbers are those above the signed half of 64 bits
	def      []byte
	hasDef   bool

	seen uint64 // number of the attempt that last set the column
	text span   // where the value stands in the message, for plans that track it

	i8   []int8
	i16  []int16
	i32  []int32
	i64  []int64
	f32  []float32
	f64  []float64
	dec  []decimal128.Num
	flag []byte // booleans, a bit each
	off  []int32
	data []byte
	hint int // bytes of data that the last batch had

	valid   []byte // a bit each, set unless null
	hasNull bool

	size    int            // rows there is room for
	kids    []column       // inside of a nested type
	members map[string]int // of a ROW: which of the kids has a name
}

func newColumn(f schema.Field) (column, error) {
	c := column{name: f.Name, typ: f.Type, notNull: f.Type.NotNull}
	switch t := f.Type; t.Root {
	case schema.Boolean:
		c.shape = shapeBool
	case schema.TinyInt:
		c.shape = shapeInt8
	case schema.SmallInt:
		c.shape = shapeInt16
	case schema.Int:
		c.shape = shapeInt32
	case schema.BigInt:
		c.shape = shapeInt64
	case schema.Float:
		c.shape = shapeFloat32
	case schema.Double:
		c.shape = shapeFloat64
	case schema.Decimal:
		c.shape = shapeDecimal
	case schema.Char, schema.VarChar:
		c.shape = shapeText
	case schema.Binary, schema.VarBinary:
		c.shape = shapeBytes
	case schema.Date:
		c.shape = shapeDate
	case schema.Time:
		c.shape, c.unit = shapeTime, 3
	case schema.Timestamp, schema.TimestampLTZ:
		c.shape = shapeTimestamp
		c.stored = storedDigits(t)
		c.unit = c.stored
	default:
		if err := c.nest(); err != nil {
			return c, err
		}
	}
	if f.Type.Length != schema.MaxLength {
		c.limit = f.Type.Length
	}
	if f.Default != nil {
		c.def, c.hasDef = []byte(*f.Default), true
	}
	return c, nil
}

// grow makes room for size rows, keeping the first rows and what is written of the next one or two.
func (c *column) grow(size int) {
	c.size = size
	switch c.shape {
	case shapeStruct:
		for i := range c.kids {
			c.kids[i].grow(max(size, c.kids[i].size))
		}
	case shapeList, shapeMap:
		c.off = resize(c.off, size+1)
	case shapeBool:
		c.flag = resize(c.flag, (size+7)/8)
	case shapeInt8:
		c.i8 = resize(c.i8, size)
	case shapeInt16:
		c.i16 = resize(c.i16, size)
	case shapeInt32, shapeDate, shapeTime:
		c.i32 = resize(c.i32, size)
	case shapeInt64, shapeTimestamp:
		c.i64 = resize(c.i64, size)
	case shapeFloat32:
		c.f32 = resize(c.f32, size)
	case shapeFloat64:
		c.f64 = resize(c.f64, size)
	case shapeDecimal:
		c.dec = resize(c.dec, size)
	case shapeText, shapeBytes:
		c.off = resize(c.off, size+1)
		if c.data == nil {
			c.data = make([]byte, 0, c.hint+c.hint/16)
		}
	}
	old := len(c.valid)
	c.valid = resize(c.valid, (size+7)/8)
	for i := old; i < len(c.valid); i++ {
		c.valid[i] = 0xff
	}
}

func resize[T any](s []T, size int) []T {
	out := make([]T, size)
	copy(out, s)
	return out
}

// setNull marks the row null. Its value is left as it is, but for the length of texts.
func (c *column) setNull(row int) {
	c.valid[row>>3] &^= 1 << (row & 7)
	c.hasNull = true
	if c.off != nil {
		c.off[row+1] = c.off[row]
	}
	if c.shape == shapeStruct {
		for i := range c.kids {
			c.kids[i].setNull(row)
		}
	}
}

func (c *column) isNull(row int) bool { return c.valid[row>>3]>>(row&7)&1 == 0 }

// clear makes a row fit to be written again.
func (c *column) clear(row int) {
	c.valid[row>>3] |= 1 << (row & 7)
	if c.shape == shapeStruct {
		for i := range c.kids {
			c.kids[i].clear(row)
		}
	}
}

// setZero writes the type's zero value.
func (c *column) setZero(row int) {
	c.clear(row)
	switch c.shape {
	case shapeBool:
		c.setBool(row, false)
	case shapeInt8:
		c.i8[row] = 0
	case shapeInt16:
		c.i16[row] = 0
	case shapeInt32, shapeDate, shapeTime:
		c.i32[row] = 0
	case shapeInt64, shapeTimestamp:
		c.i64[row] = 0
	case shapeFloat32:
		c.f32[row] = 0
	case shapeFloat64:
		c.f64[row] = 0
	case shapeDecimal:
		c.dec[row] = decimal128.Num{}
	case shapeText, shapeBytes, shapeList, shapeMap:
		c.off[row+1] = c.off[row]
	case shapeStruct:
		for i := range c.kids {
			c.kids[i].setZero(row)
		}
	}
}

func (c *column) setBool(row int, v bool) {
	bit := byte(1) << (row & 7)
	if v {
		c.flag[row>>3] |= bit
	} else {
		c.flag[row>>3] &^= bit
	}
}

// setData writes text or bytes; false: Arrow's offsets do not reach so far. Whatever an abandoned row left behind off[row] is
// overwritten.
func (c *column) setData(row int, v []byte) bool {
	from := c.off[row]
	if len(v) > math.MaxInt32-int(from) {
		return false
	}
	c.data = append(c.data[:from], v...)
	c.off[row+1] = int32(len(c.data))
	return true
}

// width is how many bytes a row takes, beside those of texts and of what is inside of arrays and maps.
func (c *column) width() int {
	n := 1 // for the null bit
	switch c.shape {
	case shapeStruct:
		for i := range c.kids {
			n += c.kids[i].width()
		}
	case shapeBool, shapeInt8:
		n++
	case shapeInt16:
		n += 2
	case shapeInt64, shapeFloat64, shapeTimestamp:
		n += 8
	case shapeDecimal:
		n += 16
	default:
		n += 4
	}
	return n
}

// same reports whether two rows hold the same value.
func (c *column) same(a, b int) bool {
	if c.isNull(a) || c.isNull(b) {
		return c.isNull(a) == c.isNull(b)
	}
	switch c.shape {
	case shapeBool:
		return c.flag[a>>3]>>(a&7)&1 == c.flag[b>>3]>>(b&7)&1
	case shapeInt8:
		return c.i8[a] == c.i8[b]
	case shapeInt16:
		return c.i16[a] == c.i16[b]
	case shapeInt32, shapeDate, shapeTime:
		return c.i32[a] == c.i32[b]
	case shapeInt64, shapeTimestamp:
		return c.i64[a] == c.i64[b]
	case shapeFloat32:
		return c.f32[a] == c.f32[b]
	case shapeFloat64:
		return c.f64[a] == c.f64[b]
	case shapeDecimal:
		return c.dec[a] == c.dec[b]
	}
	return string(c.data[c.off[a]:c.off[a+1]]) == string(c.data[c.off[b]:c.off[b+1]])
}

// take hands the first rows over as an Arrow array and leaves the column without buffers.
func (c *column) take(t arrow.DataType, rows int) arrow.Array {
	var validity *memory.Buffer
	nulls := 0
	if c.hasNull {
		if nulls = countNulls(c.valid, rows); nulls > 0 {
			validity = memory.NewBufferBytes(c.valid[:(rows+7)/8])
		}
	}
	bufs := []*memory.Buffer{validity}
	if c.shape != shapeStruct {
		bufs = append(bufs, memory.NewBufferBytes(c.values(rows)))
	}
	var kids []arrow.ArrayData
	switch {
	case c.kids != nil:
		kids = c.takeKids(t, rows)
	case c.off != nil:
		c.hint = int(c.off[rows])
		bufs = append(bufs, memory.NewBufferBytes(c.data[:c.hint]))
	}
	data := array.NewData(t, rows, bufs, kids, nulls, 0)
	defer data.Release()
	c.i8, c.i16, c.i32, c.i64, c.f32, c.f64, c.dec, c.flag, c.off, c.data = nil, nil, nil, nil, nil, nil, nil, nil, nil, nil
	c.valid, c.hasNull, c.size = nil, false, 0
	return array.MakeFromData(data)
}

// values gives the bytes of the first buffer after the validity bitmap.
func (c *column) values(rows int) []byte {
	switch c.shape {
	case shapeBool:
		return c.flag[:(rows+7)/8]
	case shapeInt8:
		return arrow.Int8Traits.CastToBytes(c.i8[:rows])
	case shapeInt16:
		return arrow.Int16Traits.CastToBytes(c.i16[:rows])
	case shapeInt32, shapeDate, shapeTime:
		return arrow.Int32Traits.CastToBytes(c.i32[:rows])
	case shapeInt64, shapeTimestamp:
		return arrow.Int64Traits.CastToBytes(c.i64[:rows])
	case shapeFloat32:
		return arrow.Float32Traits.CastToBytes(c.f32[:rows])
	case shapeFloat64:
		return arrow.Float64Traits.CastToBytes(c.f64[:rows])
	case shapeDecimal:
		return arrow.Decimal128Traits.CastToBytes(c.dec[:rows])
	}
	return arrow.Int32Traits.CastToBytes(c.off[:rows+1])
}

func countNulls(valid []byte, rows int) int {
	n := rows
	for _, b := range valid[:rows>>3] {
		n -= bits.OnesCount8(b)
	}
	if tail := rows & 7; tail > 0 {
		n -= bits.OnesCount8(valid[rows>>3] & (1<<tail - 1))
	}
	return n
}
