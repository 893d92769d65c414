package decode

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/calve-io/calve/schema"
)

// value reads a JSON value into a column; b[i] is its first byte.
func (d *jsonDecoder) value(b []byte, i int, c *column) int {
	if !d.mark(c) {
		return d.fail(i, c, "the field occurs twice")
	}
	if i >= len(b) {
		return d.fault(faultEnd, i, c)
	}
	if b[i] == 'n' {
		e := literal(b, i, "null")
		if e < 0 {
			return d.fault(e, i, c)
		}
		d.null(c)
		return e
	}
	return d.content(b, i, c)
}

// content reads a value that is not null into row d.at of a column.
func (d *jsonDecoder) content(b []byte, i int, c *column) int {
	switch c.shape {
	case shapeText:
		return d.valueText(b, i, c)
	case shapeInt64:
		if v, e := scanInt(b, i); e >= 0 {
			c.i64[d.at] = v
			return e
		}
		return d.valueNumber(b, i, c)
	case shapeInt32:
		if v, e := scanInt(b, i); e >= 0 && v == int64(int32(v)) {
			c.i32[d.at] = int32(v)
			return e
		}
		return d.valueNumber(b, i, c)
	case shapeBool:
		return d.valueBool(b, i, c)
	case shapeBytes:
		return d.valueBytes(b, i, c)
	case shapeStruct:
		return d.valueRow(b, i, c)
	case shapeList:
		return d.valueList(b, i, c)
	case shapeMap:
		return d.valueMap(b, i, c)
	}
	return d.valueNumber(b, i, c)
}

func (d *jsonDecoder) valueText(b []byte, i int, c *column) int {
	if b[i] != '"' {
		if c.binary && b[i] == '{' {
			if e, is := d.scaledDecimal(b, i, c); is {
				return e
			}
		}
		e, at := skipValue(b, i, &d.nest)
		if e < 0 {
			return d.fault(e, at, c)
		}
		return d.putText(b[i:e], i, e, c)
	}
	e, high := scanPlain(b, i+1)
	if e < len(b) && b[e] == '"' && high&highs == 0 && (c.limit == 0 || e-i-1 <= c.limit) {
		if !c.setData(d.at, b[i+1:e]) {
			return d.overfull(i, c)
		}
		return e + 1
	}
	s, e := d.text(b, i, c)
	if e < 0 {
		return -1
	}
	return d.putText(s, i, e, c)
}

// putText stores text after checking its length.
func (d *rowBuilder) putText(s []byte, at, end int, c *column) int {
	if c.limit > 0 && len(s) > c.limit {
		if n := utf8.RuneCount(s); n > c.limit && d.lacking(c, s) {
			return end
		} else if n > c.limit && !d.widen(c, textType) {
			return d.fail(at, c, "has "+strconv.Itoa(n)+" characters, more than "+c.typ.String()+" holds")
		}
	}
	if !c.setData(d.at, s) {
		return d.overfull(at, c)
	}
	return end
}

// putMade stores text that was made of a value of another kind, and may be far longer than that.
func (d *rowBuilder) putMade(s []byte, at, end int, c *column) int {
	if d.bytes += len(s); d.bytes > d.most {
		return d.overfull(at, c)
	}
	return d.putText(s, at, end, c)
}

// overfull refuses a record whose values are far larger than its bytes.
func (d *rowBuilder) overfull(at int, c *column) int {
	return d.refuse(TooLarge, at, c, "the record's values come to more than "+strconv.Itoa(maxSwell)+" times the record size limit of "+strconv.Itoa(d.cfg.MaxRecordBytes)+" bytes")
}

// scaledDecimal reads a decimal that says its own scale, {"scale": n, "value": base64}; is reports whether it is one.
func (d *jsonDecoder) scaledDecimal(b []byte, i int, c *column) (e int, is bool) {
	scale, value := int64(-1), [2]int{-1, -1}
	start := i
	for i++; ; {
		e, name, end := d.member(b, i, c)
		if e < 0 {
			return -1, true
		}
		if i = e; end {
			break
		}
		switch {
		case string(name) == "scale" && scale < 0:
			if scale, i = scanInt(b, i); i < 0 || scale < 0 || scale > maxScale {
				return 0, false
			}
		case string(name) == "value" && value[0] < 0 && i < len(b) && b[i] == '"':
			if e, _, _ = skipString(b, i+1); e < 0 {
				return 0, false
			}
			value = [2]int{i + 1, e - 1}
			i = e
		default:
			return 0, false
		}
	}
	if scale < 0 || value[0] < 0 {
		return 0, false
	}
	if d.putBase64Decimal(b[value[0]:value[1]], int(scale), start, c) < 0 {
		return -1, true
	}
	return i, true
}

func (d *jsonDecoder) valueBool(b []byte, i int, c *column) int {
	if e := literal(b, i, "true"); e > 0 {
		c.setBool(d.at, true)
		return e
	}
	if e := literal(b, i, "false"); e > 0 {
		c.setBool(d.at, false)
		return e
	}
	return d.mismatch(b, i, c)
}

func (d *jsonDecoder) valueBytes(b []byte, i int, c *column) int {
	if b[i] != '"' {
		return d.mismatch(b, i, c)
	}
	s, e := d.text(b, i, c)
	if e < 0 || d.putBase64(s, i, c) < 0 {
		return -1
	}
	return e
}

// putBase64 stores the bytes that a text stands for.
func (d *rowBuilder) putBase64(s []byte, i int, c *column) int {
	from := int(c.off[d.at])
	if len(s) > math.MaxInt32-from {
		return d.overfull(i, c)
	}
	c.data = slices.Grow(c.data[:from], base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Strict().Decode(c.data[from:cap(c.data)], s)
	if err != nil {
		return d.fail(i, c, "is not base64 (standard alphabet, padded): "+excerpt(s))
	}
	if c.limit > 0 && n > c.limit {
		if d.lacking(c, c.data[from:from+n]) {
			return 0
		}
	}
	if c.limit > 0 && n > c.limit && !d.widen(c, bytesType) {
		return d.fail(i, c, "has "+strconv.Itoa(n)+" bytes, more than "+c.typ.String()+" holds")
	}
	c.data = c.data[:from+n]
	c.off[d.at+1] = int32(len(c.data))
	return 0
}

// mismatch reports a value of a wrong type, or that it is no value at all.
func (d *jsonDecoder) mismatch(b []byte, i int, c *column) int {
	e, at := skipValue(b, i, &d.nest)
	if e < 0 {
		return d.fault(e, at, c)
	}
	return d.fail(i, c, excerpt(b[i:e])+" is not a value of type "+c.typ.String())
}

// valueNumber reads the types whose values are numbers, or numbers, dates and times in strings.
func (d *jsonDecoder) valueNumber(b []byte, i int, c *column) int {
	if b[i] == '"' {
		s, e := d.text(b, i, c)
		if e < 0 || d.putString(s, i, c) < 0 {
			return -1
		}
		return e
	}
	num, e := scanNumber(b, i)
	if e < 0 {
		if c.shape == shapeDecimal && b[i] == '{' {
			if e, is := d.scaledDecimal(b, i, c); is {
				return e
			}
		}
		return d.mismatch(b, i, c)
	}
	if d.putNumber(num, b[i:e], i, c) < 0 {
		return -1
	}
	return e
}

// putString stores a string in a column of numbers, dates or times.
func (d *rowBuilder) putString(s []byte, at int, c *column) int {
	switch c.shape {
	case shapeDate:
		days, ok := parseDate(s)
		if !ok || len(s) != 10 && (len(s) != 11 || s[10] != 'Z') {
			return d.special(s, "is no date (want YYYY-MM-DD)", at, c)
		}
		c.i32[d.at] = int32(days)
		return 0
	case shapeTime:
		nanos, n, ok := parseClock(s)
		if !ok || n != len(s) && (n+1 != len(s) || s[n] != 'Z') {
			return d.fail(at, c, excerpt(s)+" is no time (want HH:MM[:SS[.fraction]])")
		}
		c.i32[d.at] = int32(nanos / 1e6)
		return 0
	case shapeTimestamp:
		v, reason := parseTimestamp(s, c.stored)
		if reason != "" {
			return d.special(s, reason, at, c)
		}
		c.i64[d.at] = v
		return 0
	case shapeDecimal:
		if c.binary {
			return d.putBase64Decimal(s, c.scale, at, c)
		}
	}
	if num, e := scanNumber(s, 0); e == len(s) {
		return d.putNumber(num, s, at, c)
	}
	return d.putWord(s, at, c)
}

// putWord stores the numbers that JSON has no numerals for.
func (d *rowBuilder) putWord(s []byte, at int, c *column) int {
	var f float64
	switch string(s) {
	case "NaN":
		f = math.NaN()
	case "Infinity":
		f = math.Inf(1)
	case "-Infinity":
		f = math.Inf(-1)
	default:
		return d.notValue(s, at, c)
	}
	switch c.shape {
	case shapeFloat64:
		c.f64[d.at] = f
	case shapeFloat32:
		c.f32[d.at] = float32(f)
	default:
		return d.notValue(s, at, c)
	}
	return 0
}

// notValue refuses a text that is no value of the column's type, unless it is one that has a meaning of its own.
func (d *rowBuilder) notValue(s []byte, at int, c *column) int {
	if d.lacking(c, s) {
		return 0
	}
	return d.special(s, "is not a value of type "+c.typ.String(), at, c)
}

// putNumber stores a number; text is how it is written.
func (d *rowBuilder) putNumber(num number, text []byte, at int, c *column) int {
	switch c.shape {
	case shapeFloat64:
		f, ok := num.float64(text)
		if !ok {
			return d.tooLarge(text, at, c)
		}
		c.f64[d.at] = f
	case shapeFloat32:
		f, err := strconv.ParseFloat(string(text), 32)
		if err != nil && !d.widen(c, schema.Type{Root: schema.Double}) {
			return d.tooLarge(text, at, c)
		}
		c.f32[d.at] = float32(f)
	case shapeDecimal:
		if c.unsigned && num.neg && num.exp == 0 && !num.more && num.mant <= 1<<63 {
			text = strconv.AppendUint(nil, -num.mant, 10)
			num = number{mant: -num.mant}
		}
		v, reason := scanDecimal(num, text, c.typ.Precision, c.typ.Scale)
		if reason != "" && !d.widenDecimal(c, num, text) {
			return d.fail(at, c, excerpt(text)+" "+reason)
		}
		c.dec[d.at] = v
	case shapeTimestamp:
		v, reason := epochTimestamp(num, c.unit, c.stored)
		if reason != "" {
			return d.special(text, reason, at, c)
		}
		c.i64[d.at] = v
	default:
		return d.putInteger(num, text, at, c)
	}
	return 0
}

func (d *rowBuilder) putInteger(num number, text []byte, at int, c *column) int {
	v, rest, ok := num.scaled(0)
	if c.shape == shapeTime && c.unit != 3 { // finer digits are dropped, as those of text are
		v, _, ok = num.scaled(3 - c.unit)
		rest = false
	}
	if !ok {
		return d.tooLarge(text, at, c)
	}
	if rest {
		return d.fail(at, c, excerpt(text)+" is not a whole number")
	}
	switch c.shape {
	case shapeInt64:
		c.i64[d.at] = v
	case shapeInt32:
		c.i32[d.at] = int32(v)
		ok = v == int64(int32(v)) || d.widen(c, longType)
	case shapeInt16:
		c.i16[d.at] = int16(v)
		ok = v == int64(int16(v)) || d.widen(c, longType)
	case shapeInt8:
		c.i8[d.at] = int8(v)
		ok = v == int64(int8(v)) || d.widen(c, longType)
	case shapeDate:
		c.i32[d.at] = int32(v)
		if v < minDay || v > maxDay {
			return d.special(text, outOfRange, at, c)
		}
	case shapeTime:
		c.i32[d.at] = int32(v)
		ok = v >= 0 && v < dayMillis
	}
	if !ok {
		return d.tooLarge(text, at, c)
	}
	return 0
}

func (d *rowBuilder) tooLarge(text []byte, at int, c *column) int {
	return d.fail(at, c, excerpt(text)+" is out of range for "+c.typ.String())
}

// setDefault sets a column's default value.
func (d *rowBuilder) setDefault(c *column) bool {
	switch c.shape {
	case shapeText:
		d.bytes += len(c.def)
		return d.putText(c.def, -1, 0, c) >= 0
	case shapeBytes:
		d.bytes += len(c.def)
		return c.setData(d.at, c.def) || d.overfull(-1, c) >= 0
	case shapeBool:
		v := string(c.def) == "true"
		if !v && string(c.def) != "false" {
			return d.fail(-1, c, excerpt(c.def)+" is not true or false") >= 0
		}
		c.setBool(d.at, v)
		return true
	case shapeStruct, shapeList, shapeMap:
		return d.fail(-1, c, "defaults of nested types are not known") >= 0
	}
	return d.putString(c.def, -1, c) >= 0
}
