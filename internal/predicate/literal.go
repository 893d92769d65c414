package predicate

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/cloudspannerecosystem/memefish/ast"

	"github.com/calve-io/calve/schema"
)

// literalKind is what a literal was written as.
type literalKind string

const (
	litNumber literalKind = "a number"
	litText   literalKind = "a text"
	litBytes  literalKind = "a binary"
	litDate   literalKind = "a date"
	litStamp  literalKind = "a timestamp"
	litBool   literalKind = "a boolean"
)

// literal is a constant of the condition.
type literal struct {
	kind literalKind
	text string // numbers with their sign, as written
	at   int    // byte of the input
}

func isLiteral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return isLiteral(e.Expr)
	case *ast.UnaryExpr:
		return e.Op != ast.OpNot && isLiteral(e.Expr)
	case *ast.IntLiteral, *ast.FloatLiteral, *ast.StringLiteral, *ast.BytesLiteral, *ast.DateLiteral, *ast.TimestampLiteral, *ast.BoolLiteral, *ast.NullLiteral:
		return true
	}
	return false
}

func (b *binder) literal(e ast.Expr) (literal, error) {
	lit := literal{at: b.src.at(int(e.Pos()))}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return b.literal(e.Expr)
	case *ast.UnaryExpr:
		in, err := b.literal(e.Expr)
		switch {
		case err != nil:
			return lit, err
		case in.kind != litNumber || e.Op != ast.OpMinus && e.Op != ast.OpPlus:
			return lit, b.fail(e, "%s cannot be used before %s", e.Op, in.kind)
		case e.Op == ast.OpPlus:
		case strings.HasPrefix(in.text, "-"):
			in.text = in.text[1:]
		default:
			in.text = "-" + strings.TrimPrefix(in.text, "+")
		}
		lit.kind, lit.text = litNumber, in.text
	case *ast.IntLiteral:
		lit.kind, lit.text = litNumber, e.Value
	case *ast.FloatLiteral:
		lit.kind, lit.text = litNumber, e.Value
	case *ast.StringLiteral:
		lit.kind, lit.text = litText, e.Value
	case *ast.BytesLiteral:
		lit.kind, lit.text = litBytes, string(e.Value)
	case *ast.DateLiteral:
		lit.kind, lit.text = litDate, e.Value.Value
	case *ast.TimestampLiteral:
		lit.kind, lit.text = litStamp, e.Value.Value
	case *ast.BoolLiteral:
		lit.kind, lit.text = litBool, strconv.FormatBool(e.Value)
	case *ast.NullLiteral:
		return lit, b.fail(e, "a comparison with NULL is never true: use IS NULL or IS NOT NULL")
	default:
		return lit, b.fail(e, "a literal is expected here; calculations and comparisons of columns with each other are not supported")
	}
	return lit, nil
}

// placement says where a literal lies among the values of a type.
type placement uint8

const (
	exact   placement = iota // it is one
	between                  // between one and the next
	below                    // below all
	above                    // above all
)

// coerced is a literal as a value of a column's type; with between, the value below it.
type coerced struct {
	v     value
	place placement
}

// coerce gives a literal in the type of a column.
func (b *binder) coerce(col int, lit literal) (coerced, error) {
	t := b.fields[col].Type
	refuse := func(want string) (coerced, error) {
		return coerced{}, b.src.fail(lit.at, "column %s cannot be compared with %s; write %s", b.describe(col), lit.kind, want)
	}
	wrong := func(err error) (coerced, error) {
		return coerced{}, b.src.fail(lit.at, "column %s: %s", b.describe(col), err)
	}
	switch t.Root {
	case schema.Boolean:
		if lit.kind != litBool {
			return refuse("TRUE or FALSE")
		}
		v := value{}
		if lit.text == "true" {
			v.i = 1
		}
		return coerced{v: v}, nil
	case schema.TinyInt, schema.SmallInt, schema.Int, schema.BigInt, schema.Decimal:
		if lit.kind != litNumber {
			return refuse("a number without quotes")
		}
		c, err := exactNumber(lit.text, t)
		if err != nil {
			return wrong(err)
		}
		return c, nil
	case schema.Float, schema.Double:
		if lit.kind != litNumber && lit.kind != litText {
			return refuse("a number without quotes, or 'NaN', 'Infinity' or '-Infinity'")
		}
		v, ok := floatOf(lit, t)
		if !ok {
			return refuse("a number without quotes, or 'NaN', 'Infinity' or '-Infinity'")
		}
		return coerced{v: value{f: v}}, nil
	case schema.Char, schema.VarChar:
		if lit.kind != litText {
			return refuse("a text in single quotes")
		}
		return coerced{v: value{s: lit.text}}, nil
	case schema.Binary, schema.VarBinary:
		if lit.kind != litBytes {
			return refuse("hexadecimal digits, X'00ff'")
		}
		return coerced{v: value{s: lit.text}}, nil
	case schema.Date:
		if lit.kind != litDate && lit.kind != litText {
			return refuse("DATE '2026-01-31'")
		}
	case schema.Time:
		if lit.kind != litText {
			return refuse("TIME '12:00:00'")
		}
	case schema.Timestamp, schema.TimestampLTZ:
		if lit.kind != litDate && lit.kind != litText && lit.kind != litStamp {
			return refuse("TIMESTAMP '2026-01-31 12:00:00'")
		}
	default:
		return coerced{}, b.src.fail(lit.at, "column %s is nested: only IS NULL and IS NOT NULL can be asked of it", b.describe(col))
	}
	c, err := moment(lit, t)
	if err != nil {
		return wrong(err)
	}
	return c, nil
}

func floatOf(lit literal, t schema.Type) (float64, bool) {
	bits := 64
	if t.Root == schema.Float {
		bits = 32
	}
	if lit.kind == litText {
		switch strings.ToLower(lit.text) {
		case "nan":
			return math.NaN(), true
		case "infinity", "+infinity", "inf", "+inf":
			return math.Inf(1), true
		case "-infinity", "-inf":
			return math.Inf(-1), true
		}
		return 0, false
	}
	v, err := strconv.ParseFloat(lit.text, bits)
	if err != nil && !math.IsInf(v, 0) { // too large: infinity, as the type rounds
		return 0, false
	}
	return unsigned(v), true
}

// maxDigits bounds a number's digits and exponent: what it costs to compare it exactly.
const maxDigits = 1000

// exactNumber gives a number as an integer or decimal.
func exactNumber(text string, t schema.Type) (coerced, error) {
	mant, expText, _ := strings.Cut(strings.ToLower(text), "e")
	exp := 0
	if expText != "" {
		var err error
		if exp, err = strconv.Atoi(expText); err != nil || exp > maxDigits || exp < -maxDigits {
			return coerced{}, fmt.Errorf("the exponent of %s is beyond %d", text, maxDigits)
		}
	}
	whole, frac, _ := strings.Cut(mant, ".")
	n, ok := new(big.Int).SetString(whole+frac, 10)
	if len(mant) > maxDigits || !ok {
		return coerced{}, fmt.Errorf("%.40s is no number of at most %d digits", text, maxDigits)
	}
	scale := 0
	if t.Root == schema.Decimal {
		scale = t.Scale
	}
	v, isExact := scaled(n, exp-len(frac)+scale)
	lo, hi := bounds(t)
	return placed(v, isExact, lo, hi, func(v *big.Int) value {
		if t.Root == schema.Decimal {
			return value{d: decimal128.FromBigInt(v)}
		}
		return value{i: v.Int64()}
	}), nil
}

// scaled multiplies by a power of ten, rounding down.
func scaled(n *big.Int, exp int) (v *big.Int, isExact bool) {
	if exp >= 0 {
		return new(big.Int).Mul(n, pow10(exp)), true
	}
	rest := new(big.Int)
	v, rest = new(big.Int).DivMod(n, pow10(-exp), rest) // Euclid's: the rest is not negative
	return v, rest.Sign() == 0
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// bounds are the least and greatest value of a type with exact values.
func bounds(t schema.Type) (lo, hi *big.Int) {
	bits := uint(63)
	switch t.Root {
	case schema.TinyInt:
		bits = 7
	case schema.SmallInt:
		bits = 15
	case schema.Int, schema.Date, schema.Time:
		bits = 31
	case schema.Decimal:
		hi = pow10(t.Precision)
		hi.Sub(hi, big.NewInt(1))
		return new(big.Int).Neg(hi), hi
	}
	hi = new(big.Int).Lsh(big.NewInt(1), bits)
	lo = new(big.Int).Neg(hi)
	return lo, hi.Sub(hi, big.NewInt(1))
}

// placed holds a number, rounded down, against the bounds of its type.
func placed(v *big.Int, isExact bool, lo, hi *big.Int, as func(*big.Int) value) coerced {
	switch {
	case v.Cmp(lo) < 0:
		return coerced{place: below}
	case v.Cmp(hi) > 0 || !isExact && v.Cmp(hi) == 0:
		return coerced{place: above}
	case isExact:
		return coerced{v: as(v)}
	}
	return coerced{v: as(v), place: between}
}

// moment reads a date, a time of the day or a timestamp.
func moment(lit literal, t schema.Type) (coerced, error) {
	text := strings.TrimSpace(lit.text)
	as := func(v *big.Int) value { return value{i: v.Int64()} }
	lo, hi := bounds(t)
	switch t.Root {
	case schema.Date:
		d, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return coerced{}, fmt.Errorf("'%s' is no date; write DATE '2026-01-31'", lit.text)
		}
		return coerced{v: value{i: d.Unix() / 86400}}, nil
	case schema.Time:
		for _, layout := range []string{"15:04:05", "15:04"} {
			if d, err := time.Parse(layout, text); err == nil {
				seconds := (d.Hour()*60+d.Minute())*60 + d.Second()
				v, isExact := scaled(big.NewInt(int64(seconds)*1e9+int64(d.Nanosecond())), -6)
				return placed(v, isExact, lo, hi, as), nil
			}
		}
		return coerced{}, fmt.Errorf("'%s' is no time of the day; write TIME '12:00:00'", lit.text)
	}
	at, err := parseStamp(text, t.Root == schema.TimestampLTZ)
	if err != nil {
		return coerced{}, fmt.Errorf("'%s' %w", lit.text, err)
	}
	n := new(big.Int).Mul(big.NewInt(at.Unix()), big.NewInt(1e9))
	n.Add(n, big.NewInt(int64(at.Nanosecond())))
	digits := map[arrow.TimeUnit]int{arrow.Millisecond: -6, arrow.Microsecond: -3}[schema.TimeUnit(t)]
	v, isExact := scaled(n, digits)
	return placed(v, isExact, lo, hi, as), nil
}

// parseStamp reads "2026-01-31 12:00:00.123456789", with fewer parts too, and with a zone if zoned.
func parseStamp(text string, zoned bool) (time.Time, error) {
	if len(text) > 10 && text[10] == 'T' {
		text = text[:10] + " " + text[11:]
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
		if layout == time.DateOnly {
			break
		}
		for _, zone := range []string{"Z07:00", " Z07:00"} {
			if at, err := time.Parse(layout+zone, text); err == nil {
				if !zoned {
					return at, fmt.Errorf("has a time zone, but the column has none; leave it out")
				}
				return at, nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("is no timestamp; write TIMESTAMP '2026-01-31 12:00:00'")
}
