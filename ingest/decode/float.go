package decode

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
)

// Text to float64 without reading the digits a second time, by the method of Lemire, "Number parsing at a gigabyte per
// second" (Software: Practice and Experience, 2021): one or two 64×64-bit products with a 128-bit power of ten decide
// nearly all numbers; the few that it cannot decide go to strconv.

// powMin and powMax bound the powers of ten at hand. Numbers beyond them are rare and go to strconv.
const (
	powMin = -64
	powMax = 64
)

// powers holds the upper 128 bits (high, low) of the powers of ten, cut off.
var powers = func() (p [powMax - powMin + 1][2]uint64) {
	ten, mask := big.NewInt(10), new(big.Int).SetUint64(math.MaxUint64)
	for e := powMin; e <= powMax; e++ {
		v := new(big.Int).Exp(ten, big.NewInt(int64(max(e, -e))), nil)
		if e < 0 {
			one := new(big.Int).Lsh(big.NewInt(1), 512)
			v = one.Quo(one, v)
		}
		if n := v.BitLen() - 128; n > 0 {
			v.Rsh(v, uint(n))
		} else {
			v.Lsh(v, uint(-n))
		}
		p[e-powMin][1] = new(big.Int).And(v, mask).Uint64()
		p[e-powMin][0] = v.Rsh(v, 64).Uint64()
	}
	return p
}()

// float64 gives the nearest float64 of the number written as text. ok is false when it is out of range.
func (num number) float64(text []byte) (f float64, ok bool) {
	if f, ok = num.exact(); ok {
		return f, true
	}
	if f, ok = num.nearest(); ok {
		return f, true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

// exactPow10 holds the powers of ten that a float64 holds exactly.
var exactPow10 = func() (p [23]float64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return p
}()

// exact computes the float64 in one rounding when mantissa and power of ten are both exact in a float64.
func (num number) exact() (float64, bool) {
	if num.more || num.mant > 1<<53 || num.exp < -22 || num.exp > 22 {
		return 0, false
	}
	f := float64(num.mant)
	if num.neg {
		f = -f
	}
	if num.exp < 0 {
		return f / exactPow10[-num.exp], true
	}
	return f * exactPow10[num.exp], true
}

// nearest computes the float64 from the product of the mantissa with a 128-bit power of ten, when that is certain.
func (num number) nearest() (float64, bool) {
	if num.more || num.mant == 0 || num.exp < powMin || num.exp > powMax {
		return 0, false
	}
	p := &powers[num.exp-powMin]
	shift := bits.LeadingZeros64(num.mant)
	m := num.mant << shift
	hi, lo := bits.Mul64(m, p[0])
	if hi&0x1ff == 0x1ff && lo+m < lo { // the lower half of the power may carry into the bits that round
		h2, l2 := bits.Mul64(m, p[1])
		var carry uint64
		lo, carry = bits.Add64(lo, h2, 0)
		hi += carry
		if hi&0x1ff == 0x1ff && lo+1 == 0 && l2+m < l2 {
			return 0, false
		}
	}
	top := hi >> 63
	mant := hi >> (top + 9) // 54 bits: one more than kept
	if lo == 0 && hi&0x1ff == 0 && mant&3 == 1 {
		return 0, false // perhaps exactly half way: round to even needs to know
	}
	mant = (mant + mant&1) >> 1
	// floor(exp × log2(10)) is (exp × 217706) >> 16 in this range.
	exp := num.exp*217706>>16 + 64 + 1023 - shift - int(1^top)
	if mant>>53 != 0 {
		mant >>= 1
		exp++
	}
	if exp < 1 || exp >= 2047 {
		return 0, false
	}
	f := uint64(exp)<<52 | mant&(1<<52-1)
	if num.neg {
		f |= 1 << 63
	}
	return math.Float64frombits(f), true
}
