package datafile

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// exactNumber is unscaled · 10^-scale.
type exactNumber struct {
	unscaled *big.Int
	scale    int
}

func toDecimal(from, to schema.Type) caster {
	dt := &arrow.Decimal128Type{Precision: int32(to.Precision), Scale: int32(to.Scale)}
	return func(a arrow.Array) (arrow.Array, error) {
		b := array.NewDecimal128Builder(memory.DefaultAllocator, dt)
		put := func(v exactNumber) (bool, error) {
			n, ok := toScale(v, to)
			if ok {
				b.UnsafeAppend(n)
			}
			return ok, nil
		}
		switch a := a.(type) {
		case *array.Float32, *array.Float64:
			get := real(a)
			return mapRows(a, b, func(i int) (bool, error) {
				text := strconv.FormatFloat(get(i), 'e', -1, 64)
				v, ok := parseDecimal(text)
				if !ok { // NaN and infinities
					return false, cannotRead(text, from, to)
				}
				return put(v)
			})
		case *array.Decimal128:
			return mapRows(a, b, func(i int) (bool, error) { return put(exactNumber{a.Value(i).BigInt(), from.Scale}) })
		case *array.String:
			return mapRows(a, b, func(i int) (bool, error) {
				v, ok := parseDecimal(a.Value(i))
				if !ok {
					return false, cannotRead(a.Value(i), from, to)
				}
				return put(v)
			})
		}
		get := whole(a)
		return mapRows(a, b, func(i int) (bool, error) { return put(exactNumber{big.NewInt(get(i)), 0}) })
	}
}

// maxDecimalText bounds the text of a number that is read as a decimal, as its digits are multiplied out.
const maxDecimalText = 4096

// parseDecimal reads what Java's BigDecimal does: digits with an optional sign, point and exponent, nothing around them.
func parseDecimal(s string) (exactNumber, bool) {
	if len(s) > maxDecimalText {
		return exactNumber{}, false
	}
	mantissa, exponent := s, int64(0)
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.ParseInt(s[i+1:], 10, 32)
		if err != nil {
			return exactNumber{}, false
		}
		mantissa, exponent = s[:i], n
	}
	sign := ""
	if mantissa != "" && (mantissa[0] == '+' || mantissa[0] == '-') {
		sign, mantissa = mantissa[:1], mantissa[1:]
	}
	before, after, _ := strings.Cut(mantissa, ".")
	digits := before + after
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return exactNumber{}, false
	}
	v, ok := new(big.Int).SetString(sign+digits, 10)
	if !ok {
		return exactNumber{}, false
	}
	return exactNumber{v, int(int64(len(after)) - exponent)}, true
}

// toScale rounds half up to the scale of a type. It fails if the result has too many digits.
func toScale(v exactNumber, t schema.Type) (decimal128.Num, bool) {
	n, shift := v.unscaled, t.Scale-v.scale
	switch {
	case n.Sign() == 0:
		return decimal128.Num{}, true
	case shift > 76:
		return decimal128.Num{}, false
	case shift > 0:
		n = new(big.Int).Mul(n, pow10(shift))
	case shift < -maxDecimalText-1: // smaller than any rounding reaches
		return decimal128.Num{}, true
	case shift < 0:
		d := pow10(-shift)
		half := new(big.Int).Rsh(d, 1)
		abs := new(big.Int).Abs(n)
		abs.Add(abs, half).Quo(abs, d)
		if n.Sign() < 0 {
			abs.Neg(abs)
		}
		n = abs
	}
	if new(big.Int).Abs(n).Cmp(pow10(t.Precision)) >= 0 {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(n), true
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// decimalToFloat follows `DecimalUtils.doubleValue`: decimals of up to 18 digits are divided as doubles, which may round
// twice; longer ones are rounded once.
func decimalToFloat(n decimal128.Num, t schema.Type) float64 {
	if t.Precision <= 18 {
		return float64(int64(n.LowBits())) / math.Pow10(t.Scale)
	}
	f, _ := strconv.ParseFloat(n.ToString(int32(t.Scale)), 64)
	return f
}
