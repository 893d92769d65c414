package decode

import (
	"encoding/base64"
	"fmt"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Numbers of Connect and Debezium that are exact, and values that no type holds.

// Decimals is how exact decimals come in columns of type DECIMAL, as the option decimal.handling.mode of Debezium has it.
type Decimals string

const (
	// DecimalsText: as JSON numbers or as text ("string", and "double" as far as doubles are exact). The default.
	DecimalsText Decimals = "text"
	// DecimalsBinary: as base64 of the unscaled value in two's complement, big endian, with the column's scale
	// ("precise", Debezium's default); where the source has no scale as {"scale": n, "value": base64}.
	DecimalsBinary Decimals = "binary"
)

// Specials is what becomes of values that a column's type cannot hold though the source's can: dates and times that are
// infinite or beyond the years 1 to 9999, and decimals that are no number.
type Specials string

const (
	SpecialsRefused Specials = "refuse" // the record goes to the dead letters; the default
	SpecialsNull    Specials = "null"   // the cell is null, where it may be
)

// bindExact sets how the columns' numbers come.
func (d *rowBuilder) bindExact() error {
	switch d.cfg.Decimals {
	case "", DecimalsText:
	case DecimalsBinary:
		for i := range d.cols {
			d.cols[i].setBinary(true)
		}
	default:
		return fmt.Errorf("decimals %q is unknown; use %q or %q", d.cfg.Decimals, DecimalsText, DecimalsBinary)
	}
	switch d.cfg.Specials {
	case "", SpecialsRefused, SpecialsNull:
	default:
		return fmt.Errorf("specials %q is unknown; use %q or %q", d.cfg.Specials, SpecialsRefused, SpecialsNull)
	}
	for _, name := range d.cfg.Unsigned {
		i, ok := d.cfg.Schema.Field(name)
		if !ok || d.cols[i].shape != shapeDecimal || d.cols[i].typ.Precision-d.cols[i].typ.Scale < 20 {
			return fmt.Errorf("unsigned column %q: the table has no column of that name with 20 digits before the point, as DECIMAL(20, 0) has", name)
		}
		d.cols[i].unsigned = true
	}
	return nil
}

// keyUnsigned are the unsigned columns of the key.
func (cfg *Config) keyUnsigned() (out []string) {
	for _, name := range cfg.Unsigned {
		for _, k := range cfg.Schema.PrimaryKeys {
			if k == name {
				out = append(out, name)
			}
		}
	}
	return out
}

// setBinary says whether exact decimals come as bytes.
func (c *column) setBinary(on bool) {
	c.binary, c.scale = on, c.typ.Scale
	for i := range c.kids {
		c.kids[i].setBinary(on)
	}
}

// putUnscaled stores unscaled × 10^-scale, which may have another scale than the column as long as nothing is lost. The
// unscaled value is in two's complement, big endian, of at least one byte; whoever calls bounds it and the scale.
func (d *rowBuilder) putUnscaled(unscaled []byte, scale, at int, c *column) int {
	if len(unscaled) <= 16 && c.shape == shapeDecimal && scale == c.typ.Scale {
		if v := decimalOfBytes(unscaled); v.FitsInPrecision(int32(c.typ.Precision)) {
			c.dec[d.at] = v
			return 0
		}
	}
	d.digits = appendUnscaled(d.digits[:0], unscaled, scale)
	if c.shape == shapeText {
		return d.putMade(d.digits, at, 0, c)
	}
	num, _ := scanNumber(d.digits, 0)
	return d.putNumber(num, d.digits, at, c)
}

// trimSign leaves bytes out that say nothing but the sign, as the next one does.
func trimSign(unscaled []byte) []byte {
	for len(unscaled) > 1 && (unscaled[0] == 0 && unscaled[1] < 0x80 || unscaled[0] == 0xff && unscaled[1] >= 0x80) {
		unscaled = unscaled[1:]
	}
	return unscaled
}

// decimalOfBytes reads 1 to 16 bytes in two's complement, big endian.
func decimalOfBytes(b []byte) decimal128.Num {
	hi, lo := uint64(0), uint64(0)
	if b[0] >= 0x80 {
		hi, lo = ^hi, ^lo
	}
	for _, x := range b {
		hi, lo = hi<<8|lo>>56, lo<<8|uint64(x)
	}
	return decimal128.New(int64(hi), lo)
}

// appendUnscaled writes the number with scale places behind its point.
func appendUnscaled(to, s []byte, scale int) []byte {
	v := new(big.Int).SetBytes(s)
	if s[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(s))))
	}
	if v.Sign() < 0 {
		to = append(to, '-')
		v.Neg(v)
	}
	digits := v.String()
	switch {
	case scale <= 0:
		to = append(to, digits...)
		for ; scale < 0 && v.Sign() != 0; scale++ {
			to = append(to, '0')
		}
	case len(digits) > scale:
		to = append(append(append(to, digits[:len(digits)-scale]...), '.'), digits[len(digits)-scale:]...)
	default:
		to = append(to, '0', '.')
		for range scale - len(digits) {
			to = append(to, '0')
		}
		to = append(to, digits...)
	}
	return to
}

// maxScale bounds the scale of a decimal that says its own.
const maxScale = 16383 // PostgreSQL's

// putBase64Decimal stores a decimal whose unscaled value is given in base64.
func (d *rowBuilder) putBase64Decimal(s []byte, scale, at int, c *column) int {
	var buf [96]byte
	b := buf[:]
	if n := base64.StdEncoding.DecodedLen(len(s)); n > len(b) {
		b = make([]byte, n)
	}
	n, err := base64.StdEncoding.Strict().Decode(b, s)
	if err != nil {
		if d.lacking(c, s) {
			return 0
		}
		if isSpecial(s, c) {
			return d.special(s, "is no number", at, c)
		}
		return d.fail(at, c, excerpt(s)+" is not the base64 of a decimal; if the source sends decimals as text or numbers, set decimals to "+string(DecimalsText))
	}
	const most, mostText = 64, 1 << 16 // bytes; PostgreSQL's numeric has at most 61,300, which no column holds but text
	if n == 0 || c.shape == shapeDecimal && n > most || n > mostText {
		return d.fail(at, c, fmt.Sprintf("a decimal of %d bytes is out of range", n))
	}
	return d.putUnscaled(trimSign(b[:n]), scale, at, c)
}

// special handles what the column's type cannot hold though the source's can; reason is why the value was refused.
func (d *rowBuilder) special(s []byte, reason string, at int, c *column) int {
	if d.cfg.Specials != SpecialsNull || c.notNull || c.key || !isSpecial(s, c) {
		return d.fail(at, c, excerpt(s)+" "+reason)
	}
	c.setNull(d.at)
	d.touched = true
	return 0
}

// isSpecial reports whether a text, or the text of a number, is a value of the source that the column's type cannot hold.
func isSpecial(s []byte, c *column) bool {
	switch string(s) {
	case "infinity", "-infinity", "Infinity", "-Infinity", "NaN", "NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY":
		return true
	}
	if c.shape != shapeDate && c.shape != shapeTimestamp || len(s) == 0 {
		return false
	}
	if _, e := scanNumber(s, 0); e == len(s) {
		return true // a number out of range
	}
	if s[0] == '+' || s[0] == '-' {
		s = s[1:]
	}
	n := digits(s, 0) // years: 0000, and those of more than four digits or with a sign
	return n >= 4 && n < len(s) && s[n] == '-'
}
