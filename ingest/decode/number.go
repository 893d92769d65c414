package decode

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// pow10 holds the powers of ten that fit 64 bits.
var pow10 = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// digitRun gives how many of the 8 bytes at the start of x (little endian) are digits.
func digitRun(x uint64) int {
	y := x ^ ones*'0'
	// 0x76 carries bytes above 9 into bit 7; the mask keeps carries inside their byte.
	return bits.TrailingZeros64((((y&(ones*0x7f))+ones*0x76)|y)&highs) >> 3
}

// parse8 gives the number written by 8 digits (little endian, values 0-9 in each byte): pairs, then fours, then all.
func parse8(x uint64) uint64 {
	x = x*10 + x>>8
	const mask = 0x000000ff000000ff
	return ((x&mask)*(100+1000000<<32) + (x>>16&mask)*(1+10000<<32)) >> 32
}

// scanDigits adds the digits at i to v, which overflows silently after 19 of them: the caller counts.
func scanDigits(b []byte, i int, v uint64) (uint64, int) {
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		n := digitRun(x)
		// The digits move to the high end; zeros come in before them.
		v = v*pow10[n] + parse8(x<<(64-8*n)&(ones*0x0f))
		i += n
		if n < 8 {
			return v, i
		}
	}
	for ; i < len(b) && b[i]-'0' < 10; i++ {
		v = v*10 + uint64(b[i]-'0')
	}
	return v, i
}

// scanInt reads a plain integer of at most 18 digits, the common case; end is -1 when it is anything else.
func scanInt(b []byte, i int) (v int64, end int) {
	start, neg := i, false
	if i < len(b) && b[i] == '-' {
		neg = true
		start++
	}
	var u uint64
	if start+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[start:])
		n := digitRun(x)
		u, end = parse8(x<<(64-8*n)&(ones*0x0f)), start+n
		if n == 8 {
			u, end = scanDigits(b, end, u)
		}
	} else {
		u, end = scanDigits(b, start, 0)
	}
	n := end - start
	if n == 0 || n > 18 || b[start] == '0' && n > 1 {
		return 0, -1
	}
	if end < len(b) {
		if c := b[end]; c == '.' || c|0x20 == 'e' {
			return 0, -1
		}
	}
	if neg {
		return -int64(u), end
	}
	return int64(u), end
}

// number is a decimal number: (-1)^neg × mant × 10^exp. With more set, digits beyond the 19th were dropped from mant,
// and at least one of them was not zero.
type number struct {
	neg, more bool
	mant      uint64
	exp       int
}

// maxExp bounds exponents, so that sums of them cannot overflow; no column type comes near it.
const maxExp = 1 << 20

// scanNumber reads a number by JSON's grammar. end is a fault when there is none.
func scanNumber(b []byte, i int) (num number, end int) {
	if i < len(b) && b[i] == '-' {
		num.neg = true
		i++
	}
	start := i
	u, end := scanDigits(b, i, 0)
	n := end - start
	if n == 0 || b[start] == '0' && n > 1 {
		return num, faultNumber
	}
	frac := 0
	i = end
	if i < len(b) && b[i] == '.' {
		u, end = scanDigits(b, i+1, u)
		if frac = end - i - 1; frac == 0 {
			return num, faultNumber
		}
		i = end
	}
	num.mant, num.exp = u, -frac
	if n+frac > 19 {
		num.long(b[start:i])
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		e, end := scanExponent(b, i+1)
		if end < 0 {
			return num, faultNumber
		}
		num.exp += e
		i = end
	}
	return num, i
}

// long reads the mantissa again when it has more than 19 digits (leading zeros counted).
func (num *number) long(text []byte) {
	num.mant, num.exp = 0, 0
	point, kept := false, 0
	for _, c := range text {
		if c == '.' {
			point = true
			continue
		}
		if kept < 19 {
			num.mant = num.mant*10 + uint64(c-'0')
			if num.mant != 0 {
				kept++
			}
			if point {
				num.exp--
			}
			continue
		}
		num.more = num.more || c != '0'
		if !point {
			num.exp++
		}
	}
}

func scanExponent(b []byte, i int) (e, end int) {
	neg := false
	if i < len(b) && (b[i] == '+' || b[i] == '-') {
		neg = b[i] == '-'
		i++
	}
	start := i
	for ; i < len(b) && b[i]-'0' < 10; i++ {
		if e < maxExp {
			e = e*10 + int(b[i]-'0')
		}
	}
	if i == start {
		return 0, faultNumber
	}
	e = min(e, maxExp)
	if neg {
		e = -e
	}
	return e, i
}

// scaled gives floor(value × 10^shift); rest reports whether something was cut. ok is false when it does not fit 64 bits.
func (num number) scaled(shift int) (v int64, rest, ok bool) {
	u, e := num.mant, num.exp+shift
	rest = num.more
	switch {
	case u == 0:
		return 0, false, true
	case e < -19:
		u, rest = 0, true
	case e < 0:
		p := pow10[-e]
		rest = rest || u%p != 0
		u /= p
	case e > 19:
		return 0, rest, false
	case e > 0:
		if num.more { // the dropped digits would count
			return 0, rest, false
		}
		hi, lo := bits.Mul64(u, pow10[e])
		if hi != 0 {
			return 0, rest, false
		}
		u = lo
	}
	if !num.neg {
		return int64(u), rest, u <= math.MaxInt64
	}
	if rest { // floor
		u++
	}
	return -int64(u), rest, u <= 1<<63
}

// scanDecimal gives the unscaled value of DECIMAL(precision, scale). The number must have been validated by scanNumber,
// whose result num is; text is all of it. reason says what is wrong.
func scanDecimal(num number, text []byte, precision, scale int) (v decimal128.Num, reason string) {
	if shift := num.exp + scale; !num.more && shift >= 0 && shift <= 18 {
		// mant < 2^64 and 10^shift < 2^60: the product fits 128 bits.
		hi, lo := bits.Mul64(num.mant, pow10[shift])
		if hi == 0 && (precision > 19 || lo < pow10[precision]) {
			v = decimal128.New(0, lo)
			if num.neg {
				v = v.Negate()
			}
			return v, ""
		}
	}
	return longDecimal(num.neg, text, precision, scale)
}

// longDecimal is scanDecimal for any length: it walks the digits once more.
func longDecimal(neg bool, text []byte, precision, scale int) (v decimal128.Num, reason string) {
	first, last, e := significant(text)
	if first > last {
		return v, "" // zero
	}
	count, point := 0, false
	for _, c := range text[first : last+1] {
		if c == '.' {
			point = true
			continue
		}
		count++
		if point {
			e--
		}
	}
	if e+scale < 0 {
		return v, "has more than " + strconv.Itoa(scale) + " decimal places"
	}
	if count+e+scale > precision {
		return v, "does not fit DECIMAL(" + strconv.Itoa(precision) + ", " + strconv.Itoa(scale) + ")"
	}
	var hi, lo uint64
	for _, c := range text[first : last+1] {
		if c != '.' {
			hi, lo = mul10add(hi, lo, uint64(c-'0'))
		}
	}
	for range e + scale {
		hi, lo = mul10add(hi, lo, 0)
	}
	v = decimal128.New(int64(hi), lo)
	if neg {
		v = v.Negate()
	}
	return v, ""
}

// significant finds the first and last digit of a number's mantissa that are not zero, and the power of ten of the last
// one's place if no point follows the first one: value = digits(first..last) × 10^e, less the places behind a point
// between them. first > last means zero.
func significant(text []byte) (first, last, e int) {
	first, last = len(text), -1
	mantissa, point := len(text), -1
	for i, c := range text {
		if c|0x20 == 'e' {
			x, _ := scanExponent(text, i+1)
			mantissa, e = i, x
			break
		}
		if c == '.' {
			point = i
		} else if c-'1' < 9 {
			first, last = min(first, i), i
		}
	}
	switch {
	case first > last:
	case point < 0 || last < point: // whole: zeros stand behind the last digit
		end := mantissa
		if point >= 0 {
			end = point
		}
		e += end - 1 - last
	case first > point: // the places between the point and the first digit
		e -= first - 1 - point
		e -= last - first + 1
	}
	return first, last, e
}

func mul10add(hi, lo, d uint64) (uint64, uint64) {
	h, l := bits.Mul64(lo, 10)
	l, c := bits.Add64(l, d, 0)
	return hi*10 + h + c, l
}
