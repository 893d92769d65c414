package decode

import (
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/calve-io/calve/schema"
)

// Forms whose records have a schema are read by plans, trees of nodes made once for each schema. What all of them share is
// what becomes of a value in its column.

// put is what becomes of a value that was read.
type put uint8

const (
	putSkip      put = iota
	putRefuse        // a type that the column cannot hold
	putKind          // text: the kind of the row
	putNumeral       // a number as the column takes it: exact, in range
	putInt32         // the common cases of numbers
	putInt64         //
	putFloat64       //
	putDate          // days
	putTime          // since midnight
	putTimestamp     // since 1970
	putDecimal       // unscaled bytes, with a scale
	putScaled        // a record of scale and unscaled bytes
	putText          // characters, the text of a number, a symbol
	putClock         // a time of day as text
	putUUID          // 16 bytes as text
	putBinary        // bytes
	putParse         // text of a number, date or time
	putBool          //
	putStruct        // a record in a ROW
	putList          // an array in an ARRAY
	putMap           // a map in a MAP
	putPairs         // an array of records of key and value in a MAP
)

// cell is how values of one type go into one column.
type cell struct {
	put    put
	to     *column
	inner  bool // the column is inside another
	symbol bool // texts are those of a schema: valid, and not in the record's bytes
	scale  int  // of decimals and texts of times

	// Times: value × mul / div, then within low and high.
	mul, div, low, high int64

	why string // putRefuse
}

// sense is what a whole number counts.
type sense uint8

const (
	senseNumber    sense = iota
	senseDate            // days since 1970
	senseTime            // since midnight
	senseTimestamp       // since 1970
)

// boolean chooses what is done with truth values. After each of these methods putSkip says that the column cannot hold them.
func (n *cell) boolean() {
	if n.to.shape == shapeBool {
		n.put = putBool
	}
}

// float chooses what is done with floating-point numbers.
func (n *cell) float() {
	if s := n.to.shape; s == shapeFloat32 || s == shapeFloat64 || s == shapeText {
		n.put = putNumeral
	}
}

// texts chooses what is done with strings.
func (n *cell) texts() {
	switch s := n.to.shape; {
	case s == shapeText:
		n.put = putText
	case s == shapeBytes:
		n.put = putBinary
	case s != shapeBool && s < shapeStruct:
		n.put = putParse
	}
}

// raw chooses what is done with bytes.
func (n *cell) raw() {
	switch n.to.shape {
	case shapeText:
		n.put = putText
	case shapeBytes:
		n.put = putBinary
	}
}

// refuses makes the cell refuse values, if its column cannot hold those of a type; what says which.
func (n *cell) refuses(what string) {
	if n.put == putSkip {
		n.put, n.why = putRefuse, "values of "+what+" cannot be kept in type "+n.to.typ.String()
	}
}

// whole chooses what is done with whole numbers; digits are those below a second that times and timestamps count.
func (n *cell) whole(s sense, digits int) {
	c := n.to
	switch c.shape {
	case shapeInt64:
		n.put = putInt64
	case shapeInt32:
		n.put = putInt32
	case shapeFloat64:
		n.put = putFloat64
	case shapeInt8, shapeInt16, shapeFloat32, shapeDecimal:
		n.put = putNumeral
	case shapeText:
		switch s {
		case senseTime:
			n.put, n.scale = putClock, digits
		case senseNumber: // of others the number would say nothing
			n.put = putText
		}
	case shapeDate:
		if s == senseNumber || s == senseDate {
			n.put = putDate
		}
	case shapeTime:
		if s != senseTime {
			digits = 3
		}
		if s == senseNumber || s == senseTime {
			n.put, n.mul, n.high = putTime, 1, dayMillis-1
			n.div = int64(pow10[max(0, digits-3)])
			n.mul = int64(pow10[max(0, 3-digits)])
		}
	case shapeTimestamp:
		if s != senseTimestamp {
			digits = c.unit
		}
		if s == senseNumber || s == senseTimestamp {
			n.put, n.mul, n.div = putTimestamp, 1, 1
			if digits > c.stored {
				n.div = int64(pow10[digits-c.stored])
			} else {
				n.mul = int64(pow10[c.stored-digits])
			}
			n.low, n.high = momentRange(c.stored)
		}
	}
}

// momentRange gives the first and last moment that a timestamp column can hold.
func momentRange(digits int) (low, high int64) {
	perDay := int64(86400 * pow10[digits])
	if digits == 9 {
		return -106751 * perDay, 106750*perDay + (perDay - 1)
	}
	return minDay * perDay, maxDay*perDay + (perDay - 1)
}

// numeric reports whether a column holds numbers.
func numeric(s shape) bool { return s >= shapeInt8 && s <= shapeDecimal }

// keyShape reports whether keys that are texts can be read into a column.
func keyShape(s shape) bool {
	switch s {
	case shapeBool, shapeBytes, shapeStruct, shapeList, shapeMap:
		return false
	}
	return true
}

// filler puts values into cells: each put… stores one in the row d.at of the cell's column and gives end, the position
// behind it, or -1.
type filler struct {
	rowBuilder
	kind opState
	text []byte // scratch
	made int    // bytes that symbols and defaults came to in this record
}

func (d *filler) overgrown(i int, c *column) int {
	return d.refuse(TooLarge, i, c, "symbols and defaults come to more than the record size limit of "+strconv.Itoa(d.cfg.MaxRecordBytes)+" bytes")
}

func (d *filler) putNull(end int, n *cell) int {
	switch {
	case n.to == nil:
	case n.inner:
		return d.innerNull(n.to, end)
	default:
		d.null(n.to)
	}
	return end
}

func (d *filler) putLong(v int64, at, end int, n *cell) int {
	c := n.to
	switch n.put {
	case putSkip:
	case putInt64:
		c.i64[d.at] = v
	case putInt32:
		if c.i32[d.at] = int32(v); v != int64(int32(v)) {
			return d.putNumeral(v, at, end, c)
		}
	case putFloat64:
		c.f64[d.at] = float64(v)
	case putTimestamp:
		if n.div > 1 {
			q := v / n.div
			if v%n.div < 0 {
				q--
			}
			v = q
		} else if n.mul > 1 {
			hi, lo := bits.Mul64(magnitude(v), uint64(n.mul))
			if hi != 0 || lo > math.MaxInt64 {
				return d.putSpecial(v, outOfRange, at, end, c)
			}
			v *= n.mul
		}
		if v < n.low || v > n.high {
			return d.putSpecial(v, outOfRange, at, end, c)
		}
		c.i64[d.at] = v
	case putTime:
		if v < 0 || v/n.div > n.high/n.mul {
			return d.tooLarge(strconv.AppendInt(nil, v, 10), at, c)
		}
		c.i32[d.at] = int32(v / n.div * n.mul)
	case putDate:
		if v < minDay || v > maxDay {
			return d.putSpecial(v, "is out of range for "+c.typ.String(), at, end, c)
		}
		c.i32[d.at] = int32(v)
	case putText:
		d.text = strconv.AppendInt(d.text[:0], v, 10)
		return d.putMade(d.text, at, end, c)
	case putClock:
		d.text = appendClock(d.text[:0], v, n.scale)
		return d.putMade(d.text, at, end, c)
	case putNumeral:
		return d.putNumeral(v, at, end, c)
	default:
		return d.fail(at, c, n.why)
	}
	return end
}

// putUnsigned is putLong for numbers that may be larger.
func (d *filler) putUnsigned(v uint64, at, end int, n *cell) int {
	if v <= math.MaxInt64 || n.put == putSkip || n.put == putRefuse {
		return d.putLong(int64(v), at, end, n)
	}
	d.text = strconv.AppendUint(d.text[:0], v, 10)
	switch n.put {
	case putText:
		return d.putMade(d.text, at, end, n.to)
	case putInt32, putInt64, putFloat64, putNumeral:
		if d.putNumber(number{mant: v}, d.text, at, n.to) < 0 {
			return -1
		}
		return end
	}
	return d.tooLarge(d.text, at, n.to)
}

// putSpecial handles a date or timestamp that the column cannot hold.
func (d *filler) putSpecial(v int64, reason string, at, end int, c *column) int {
	d.text = strconv.AppendInt(d.text[:0], v, 10)
	if d.special(d.text, reason, at, c) < 0 {
		return -1
	}
	return end
}

// magnitude is the absolute value, which the least number has too.
func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// appendClock writes a time as HH:MM:SS and its digits below a second. Databases know times below 0 and above 24 hours.
func appendClock(to []byte, v int64, digits int) []byte {
	u := magnitude(v)
	if v < 0 {
		to = append(to, '-')
	}
	below, sec := u%pow10[digits], u/pow10[digits]
	if sec < 36000 {
		to = append(to, '0')
	}
	to = strconv.AppendUint(to, sec/3600, 10)
	for _, x := range [2]uint64{sec / 60 % 60, sec % 60} {
		to = append(to, ':', byte('0'+x/10), byte('0'+x%10))
	}
	to = append(to, '.')
	for k := digits - 1; k >= 0; k-- {
		to = append(to, byte('0'+below/pow10[k]%10))
	}
	return to
}

// putNumeral stores a whole number by the rules for numbers of any form.
func (d *filler) putNumeral(v int64, at, end int, c *column) int {
	d.text = strconv.AppendInt(d.text[:0], v, 10)
	if d.putNumber(number{neg: v < 0, mant: magnitude(v)}, d.text, at, c) < 0 {
		return -1
	}
	return end
}

func (d *filler) putFloat(v float64, size, at, end int, n *cell) int {
	c := n.to
	switch {
	case n.put == putSkip:
	case n.put == putRefuse:
		return d.fail(at, c, n.why)
	case c.shape == shapeFloat64:
		c.f64[d.at] = v
	case c.shape == shapeFloat32:
		c.f32[d.at] = float32(v)
		if math.IsInf(float64(c.f32[d.at]), 0) && !math.IsInf(v, 0) {
			return d.tooLarge(strconv.AppendFloat(nil, v, 'g', -1, 64), at, c)
		}
	default:
		switch {
		case math.IsInf(v, 1):
			d.text = append(d.text[:0], "Infinity"...)
		case math.IsInf(v, -1):
			d.text = append(d.text[:0], "-Infinity"...)
		default:
			d.text = strconv.AppendFloat(d.text[:0], v, 'g', -1, size)
		}
		return d.putMade(d.text, at, end, c)
	}
	return end
}

// putData stores strings, bytes and symbols.
func (d *filler) putData(s []byte, at, end int, n *cell) int {
	c := n.to
	switch n.put {
	case putSkip:
		return end
	case putText, putParse:
		if n.symbol {
			if d.made += len(s); d.made > d.cfg.MaxRecordBytes {
				return d.overgrown(at, c)
			}
		} else if !utf8.Valid(s) {
			return d.refuse(Malformed, at, c, "is not valid UTF-8")
		}
		if n.put == putText {
			return d.putText(s, at, end, c)
		}
		if d.putString(s, at, c) < 0 {
			return -1
		}
		return end
	case putBinary:
		if c.limit > 0 && len(s) > c.limit {
			return d.fail(at, c, "has "+strconv.Itoa(len(s))+" bytes, more than "+c.typ.String()+" holds")
		}
		if !c.setData(d.at, s) {
			return d.overfull(at, c)
		}
		return end
	case putDecimal:
		return d.putUnscaledBytes(s, n.scale, at, end, c)
	case putUUID:
		d.text = appendUUID(d.text[:0], s)
		return d.putMade(d.text, at, end, c)
	case putKind:
		var ok bool
		if d.kind, ok = d.parseOp(s, at); !ok {
			return -1
		}
		return end
	}
	return d.fail(at, c, n.why)
}

// appendUUID writes 16 bytes as a UUID.
func appendUUID(to, s []byte) []byte {
	const hex = "0123456789abcdef"
	for i, c := range s {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			to = append(to, '-')
		}
		to = append(to, hex[c>>4], hex[c&15])
	}
	return to
}

// Bounds on decimals that come as unscaled bytes.
const (
	maxUnscaled = 512  // bytes
	maxDigits   = 1200 // of scale
)

// putUnscaledBytes stores a decimal given by its unscaled value, whose scale is bounded already.
func (d *filler) putUnscaledBytes(unscaled []byte, scale, at, end int, c *column) int {
	s := trimSign(unscaled)
	switch {
	case len(s) == 0:
		return d.fail(at, c, "a decimal of no bytes")
	case len(s) > maxUnscaled:
		return d.fail(at, c, "a decimal of "+strconv.Itoa(len(s))+" bytes")
	case d.putUnscaled(s, scale, at, c) < 0:
		return -1
	}
	return end
}

// completeUpsert ends the row d.at of a record that is no event: without a value it deletes, and its op field may say more.
func (d *filler) completeUpsert(r *Record) int {
	kind := schema.Insert
	switch {
	case r.Value == nil:
		kind = schema.Delete
	case d.kind.set:
		kind = d.kind.kind
	}
	return d.complete(r, kind)
}
