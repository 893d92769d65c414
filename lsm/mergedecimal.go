package lsm

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// compactDigits is the precision up to which Paimon keeps a decimal in a long (`data.Decimal`).
const compactDigits = 18

// narrowDigits is the precision up to which a decimal is stored in 32 bits. Paimon's Parquet writer cuts a sum with more
// digits than its type to them.
const narrowDigits = 9

// decimals computes with values of one DECIMAL type as Paimon does (`utils.DecimalUtils`, `data.Decimal.fromBigDecimal`).
// Its numbers are scratch space.
type decimals struct {
	precision, scale int
	limit            *big.Int // 10^precision
	unit             *big.Int // 10^scale
	a, b, c, r       big.Int
}

var ten = big.NewInt(10)

func newDecimals(c colRule) *decimals {
	return &decimals{
		precision: c.typ.Precision, scale: c.typ.Scale,
		limit: new(big.Int).Exp(ten, big.NewInt(int64(c.typ.Precision)), nil),
		unit:  new(big.Int).Exp(ten, big.NewInt(int64(c.typ.Scale)), nil),
	}
}

// foldDecimals is `FieldSumAgg` and `FieldProductAgg` of decimals. A result with too many digits is null, and the next
// value starts anew; but sums of up to 18 digits of precision may exceed it, as they do in Paimon.
func (m *merging) foldDecimals(c colRule, a arrow.Array) (arrow.Array, error) {
	v, valid, ops := values[decimal128.Num](a), validOf(a), m.opsOf(c)
	out, has := make([]decimal128.Num, len(m.ends)), make([]bool, len(m.ends))
	d := newDecimals(c)
	i := 0
	for g, end := range m.ends {
		var acc decimal128.Num
		ok := false
		for ; i < int(end); i++ {
			op := ops[i]
			if op == opReset || op&opInit != 0 {
				acc, ok, op = v[i], valid.has(i), op&^opInit
			}
			if op == opSkip || op == opReset || !valid.has(i) {
				continue
			}
			take := op == opTake || op == opLate
			switch {
			case !take && c.agg.IgnoreRetract:
			case !ok && take:
				acc, ok = v[i], true
			case !ok:
				if c.fn == foldSum {
					acc, ok = d.fit(d.set(&d.r, v[i].Negate()))
				}
			case c.fn == foldSum && take:
				acc, ok = d.sum(acc, v[i])
			case c.fn == foldSum:
				acc, ok = d.sum(acc, v[i].Negate())
			case take:
				d.r.Mul(d.set(&d.a, acc), d.set(&d.b, v[i]))
				acc, ok = d.fit(d.rounded(&d.r, d.unit))
			default:
				var err error
				if acc, ok, err = d.quotient(acc, v[i]); err != nil {
					return nil, fmt.Errorf("column %q: %w", c.name, err)
				}
			}
		}
		if m.rule.store && d.precision <= narrowDigits {
			acc = decimal128.FromI64(int64(int32(acc.LowBits())))
		}
		out[g], has[g] = acc, ok
	}
	return columnOf(a.DataType(), has, bytesOf(out)), nil
}

func (d *decimals) set(dst *big.Int, v decimal128.Num) *big.Int {
	if hi, lo := v.HighBits(), int64(v.LowBits()); hi == lo>>63 {
		return dst.SetInt64(lo)
	}
	return dst.Set(v.BigInt())
}

// fit gives the value if it has no more digits than the type.
func (d *decimals) fit(v *big.Int) (decimal128.Num, bool) {
	if v.CmpAbs(d.limit) >= 0 {
		return decimal128.Num{}, false
	}
	if v.IsInt64() {
		return decimal128.FromI64(v.Int64()), true
	}
	return decimal128.FromBigInt(v), true
}

func (d *decimals) sum(x, y decimal128.Num) (decimal128.Num, bool) {
	if d.precision <= compactDigits {
		a, b := int64(x.LowBits()), int64(y.LowBits())
		if s := a + b; (s > a) == (b > 0) {
			return decimal128.FromI64(s), true
		}
	}
	return d.fit(d.r.Add(d.set(&d.a, x), d.set(&d.b, y)))
}

// rounded divides v by n and rounds half up: away from zero. The result is in v.
func (d *decimals) rounded(v, n *big.Int) *big.Int {
	sign := int64(v.Sign() * n.Sign())
	v.QuoRem(v, n, &d.c)
	if d.c.Lsh(&d.c, 1).CmpAbs(n) >= 0 {
		v.Add(v, d.b.SetInt64(sign))
	}
	return v
}

var (
	errByZero  = errors.New("the deleted row's value 0 cannot be taken out of a product")
	errEndless = errors.New("the product divided by the deleted row's value has no end as a decimal fraction")
)

// quotient is `BigDecimal.divide` without rounding, which fails if the result has no end, then rounded to the scale.
func (d *decimals) quotient(x, y decimal128.Num) (decimal128.Num, bool, error) {
	if y == (decimal128.Num{}) {
		return y, false, errByZero
	}
	num, den := d.set(&d.a, x), d.set(new(big.Int), y)
	var g big.Int
	g.GCD(nil, nil, new(big.Int).Abs(num), new(big.Int).Abs(den))
	rest := new(big.Int).Quo(den, &g)
	for _, p := range []int64{2, 5} {
		f := big.NewInt(p)
		for {
			q, m := new(big.Int).QuoRem(rest, f, new(big.Int))
			if m.Sign() != 0 {
				break
			}
			rest = q
		}
	}
	if rest.CmpAbs(big.NewInt(1)) != 0 {
		return decimal128.Num{}, false, errEndless
	}
	v, ok := d.fit(d.rounded(d.r.Mul(num, d.unit), den))
	return v, ok, nil
}
