package decode

import (
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// What becomes of Avro values: each put… stores one in the row d.at of the node's column and gives end, the position
// behind it, or -1.

func (d *avroDecoder) putNull(end int, n *avroNode) int {
	switch {
	case n.to == nil:
	case n.inner:
		return d.innerNull(n.to, end)
	default:
		d.null(n.to)
	}
	return end
}

func (d *avroDecoder) putLong(v int64, at, end int, n *avroNode) int {
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
		if v < 0 || v/n.div > n.high {
			return d.tooLarge(strconv.AppendInt(nil, v, 10), at, c)
		}
		c.i32[d.at] = int32(v / n.div)
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

// putSpecial handles a date or timestamp that the column cannot hold.
func (d *avroDecoder) putSpecial(v int64, reason string, at, end int, c *column) int {
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
func (d *avroDecoder) putNumeral(v int64, at, end int, c *column) int {
	d.text = strconv.AppendInt(d.text[:0], v, 10)
	if d.putNumber(number{neg: v < 0, mant: magnitude(v)}, d.text, at, c) < 0 {
		return -1
	}
	return end
}

func (d *avroDecoder) putFloat(v float64, size, at, end int, n *avroNode) int {
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
func (d *avroDecoder) putData(s []byte, at, end int, n *avroNode) int {
	c := n.to
	switch n.put {
	case putSkip:
		return end
	case putText, putParse:
		if n.kind == avroEnum {
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
func (d *avroDecoder) putUnscaledBytes(unscaled []byte, scale, at, end int, c *column) int {
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
