// Package rowjson writes rows as JSON objects for people and programs: the text that `calve put` reads back.
//
// Numbers are numbers, except DECIMAL, which is a string with its exact digits, and NaN and infinities, which are
// strings. BINARY is base64, DATE is 2006-01-02, TIME is 15:04:05.000, TIMESTAMP is 2006-01-02T15:04:05.000000 with as
// many fraction digits as its unit has, and TIMESTAMP_LTZ the same in UTC with a Z. ARRAY is an array, ROW an object, MAP
// and MULTISET an array of [key, value] pairs in stored order (keys need not be strings), and VARIANT an object of the two
// binaries "value" and "metadata".
package rowjson

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Encoder writes the rows of record batches of one schema.
type Encoder struct {
	names [][]byte // `"name":` with its separator before it
}

// NewEncoder prepares the names of the columns.
func NewEncoder(sc *arrow.Schema) *Encoder {
	e := &Encoder{}
	for i, f := range sc.Fields() {
		var b []byte
		if i > 0 {
			b = append(b, ',')
		}
		e.names = append(e.names, append(AppendString(b, f.Name), ':'))
	}
	return e
}

// Append appends one row as a JSON object.
func (e *Encoder) Append(dst []byte, rec arrow.RecordBatch, row int) []byte {
	dst = append(dst, '{')
	for i, name := range e.names {
		dst = append(dst, name...)
		dst = AppendValue(dst, rec.Column(i), row)
	}
	return append(dst, '}')
}

// AppendValue appends one cell.
func AppendValue(dst []byte, col arrow.Array, row int) []byte {
	if col.IsNull(row) {
		return append(dst, "null"...)
	}
	switch c := col.(type) {
	case *array.Boolean:
		return strconv.AppendBool(dst, c.Value(row))
	case *array.Int8:
		return strconv.AppendInt(dst, int64(c.Value(row)), 10)
	case *array.Int16:
		return strconv.AppendInt(dst, int64(c.Value(row)), 10)
	case *array.Int32:
		return strconv.AppendInt(dst, int64(c.Value(row)), 10)
	case *array.Int64:
		return strconv.AppendInt(dst, c.Value(row), 10)
	case *array.Float32:
		return appendFloat(dst, float64(c.Value(row)), 32)
	case *array.Float64:
		return appendFloat(dst, c.Value(row), 64)
	case *array.String:
		return AppendString(dst, c.Value(row))
	case *array.Binary:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, c.Value(row))
		return append(dst, '"')
	case *array.Decimal128:
		dst = append(dst, '"')
		dst = append(dst, c.Value(row).ToString(c.DataType().(*arrow.Decimal128Type).Scale)...)
		return append(dst, '"')
	case *array.Date32:
		return appendTime(dst, c.Value(row).ToTime(), "2006-01-02")
	case *array.Time32:
		return appendTime(dst, time.UnixMilli(int64(c.Value(row))).UTC(), "15:04:05.000")
	case *array.Timestamp:
		return appendTimestamp(dst, c, row)
	}
	return appendNested(dst, col, row)
}

// appendNested appends a cell of a nested type; of any other type, null.
func appendNested(dst []byte, col arrow.Array, row int) []byte {
	switch c := col.(type) {
	case *array.Map: // before List: a map is a list of pairs
		from, to := c.ValueOffsets(row)
		dst = append(dst, '[')
		for i := int(from); i < int(to); i++ {
			if i > int(from) {
				dst = append(dst, ',')
			}
			dst = AppendValue(append(dst, '['), c.Keys(), i)
			dst = AppendValue(append(dst, ','), c.Items(), i)
			dst = append(dst, ']')
		}
		return append(dst, ']')
	case *array.List:
		from, to := c.ValueOffsets(row)
		dst = append(dst, '[')
		for i := int(from); i < int(to); i++ {
			if i > int(from) {
				dst = append(dst, ',')
			}
			dst = AppendValue(dst, c.ListValues(), i)
		}
		return append(dst, ']')
	case *array.Struct:
		dst = append(dst, '{')
		for i, f := range c.DataType().(*arrow.StructType).Fields() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendValue(append(AppendString(dst, f.Name), ':'), c.Field(i), row)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

func appendTimestamp(dst []byte, c *array.Timestamp, row int) []byte {
	t := c.DataType().(*arrow.TimestampType)
	layout := "2006-01-02T15:04:05.000000"
	switch t.Unit {
	case arrow.Millisecond:
		layout = "2006-01-02T15:04:05.000"
	case arrow.Nanosecond:
		layout = "2006-01-02T15:04:05.000000000"
	}
	if t.TimeZone != "" {
		layout += "Z"
	}
	return appendTime(dst, c.Value(row).ToTime(t.Unit), layout)
}

func appendTime(dst []byte, t time.Time, layout string) []byte {
	dst = append(dst, '"')
	dst = t.UTC().AppendFormat(dst, layout)
	return append(dst, '"')
}

func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	a := math.Abs(f)
	exponent := a != 0 && (a < 1e-6 || a >= 1e21)
	if bits == 32 { // the nearest float32 of the bound is not the bound
		exponent = a != 0 && (float32(a) < 1e-6 || float32(a) >= 1e21)
	}
	if exponent {
		return strconv.AppendFloat(dst, f, 'e', -1, bits)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, bits)
}

const hexDigits = "0123456789abcdef"

// AppendString appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), `\ufffd`...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
