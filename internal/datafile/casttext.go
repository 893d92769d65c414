package datafile

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// toText writes values as Java's string casts do. Texts are cut to the type's length by code points, and filled up
// with blanks for CHAR; binaries are taken byte by byte, neither cut nor filled.
func toText(from, to schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		if v, ok := a.(*array.Binary); ok {
			return mapRows(a, b, func(i int) (bool, error) { b.BinaryBuilder.Append(v.Value(i)); return true, nil })
		}
		if v, ok := a.(*array.String); ok {
			return mapRows(a, b, func(i int) (bool, error) { b.Append(fitText(v.Value(i), to)); return true, nil })
		}
		write := textWriter(a, from)
		var buf []byte
		return mapRows(a, b, func(i int) (bool, error) {
			buf = write(buf[:0], i)
			b.Append(fitText(string(buf), to))
			return true, nil
		})
	}
}

// textWriter appends the text of a row's value.
func textWriter(a arrow.Array, from schema.Type) func(dst []byte, i int) []byte {
	switch a := a.(type) {
	case *array.Boolean:
		return func(dst []byte, i int) []byte { return strconv.AppendBool(dst, a.Value(i)) }
	case *array.Float32:
		return func(dst []byte, i int) []byte { return appendJavaFloat(dst, float64(a.Value(i)), 32) }
	case *array.Float64:
		return func(dst []byte, i int) []byte { return appendJavaFloat(dst, a.Value(i), 64) }
	case *array.Decimal128:
		return func(dst []byte, i int) []byte { return append(dst, a.Value(i).ToString(int32(from.Scale))...) }
	case *array.Date32:
		return func(dst []byte, i int) []byte { return appendDate(dst, int64(a.Value(i))) }
	case *array.Time32:
		return func(dst []byte, i int) []byte { return appendTime(dst, int64(a.Value(i)), from.Precision) }
	case *array.Timestamp:
		per := perSecond(from)
		return func(dst []byte, i int) []byte { return appendTimestamp(dst, int64(a.Value(i)), per, from.Precision) }
	}
	get := whole(a)
	return func(dst []byte, i int) []byte { return strconv.AppendInt(dst, get(i), 10) }
}

// appendJavaFloat writes a number as Double.toString and Float.toString do since Java 19, where older ones write a digit
// more than is needed for some numbers: with a point, and as 1.0E10 from 10^7 on and below 10^-3.
func appendJavaFloat(dst []byte, f float64, bits int) []byte {
	abs := math.Abs(f)
	switch {
	case f != f:
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	case abs != 0 && (abs < 1e-3 || abs >= 1e7):
		text := strconv.FormatFloat(f, 'E', -1, bits)
		if !strings.Contains(text, ".") { // two digits at least: the nearest two
			text = strconv.FormatFloat(f, 'E', 1, bits)
		}
		mantissa, exponent, _ := strings.Cut(text, "E")
		dst = append(dst, mantissa...)
		sign := ""
		if exponent[0] == '-' {
			sign = "-"
		}
		return append(append(append(dst, 'E'), sign...), strings.TrimLeft(exponent[1:], "0")...)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
	if !strings.Contains(string(dst[from:]), ".") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// fitText cuts a text to the length of a type and fills it up for CHAR.
func fitText(s string, to schema.Type) string {
	s = s[:codePoints(s, to.Length)]
	if to.Root != schema.Char {
		return s
	}
	if n := utf8.RuneCountInString(s); n < to.Length {
		s += strings.Repeat(" ", to.Length-n)
	}
	return s
}

// toBytes cuts texts and binaries to a length, and fills them up with zeros for BINARY.
func toBytes(to schema.Type) caster {
	return func(a arrow.Array) (arrow.Array, error) {
		b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)
		get := func(int) []byte { return nil }
		switch a := a.(type) {
		case *array.String:
			get = func(i int) []byte { return []byte(a.Value(i)) }
		case *array.Binary:
			get = a.Value
		}
		return mapRows(a, b, func(i int) (bool, error) {
			v := get(i)
			v = v[:min(len(v), to.Length)]
			if to.Root == schema.Binary && len(v) < to.Length {
				v = append(v[:len(v):len(v)], make([]byte, to.Length-len(v))...)
			}
			b.Append(v)
			return true, nil
		})
	}
}

// parseBool reads a truth value in any case.
func parseBool(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "t", "true", "y", "yes", "1":
		return true, true
	case "f", "false", "n", "no", "0":
		return false, true
	}
	return false, false
}

// parseInt reads an integer that fits the type; a fraction of digits is cut off (`BinaryStringUtils.toLong`).
func parseInt(s string, root schema.Root) (int64, bool) {
	before, after, _ := strings.Cut(s, ".")
	sign := ""
	if before != "" && (before[0] == '-' || before[0] == '+') {
		sign, before = before[:1], before[1:]
	}
	if len(s) <= len(sign) || strings.Trim(before+after, "0123456789") != "" {
		return 0, false
	}
	if before == "" {
		before = "0"
	}
	bits := map[schema.Root]int{schema.TinyInt: 8, schema.SmallInt: 16, schema.Int: 32, schema.BigInt: 64}[root]
	v, err := strconv.ParseInt(sign+before, 10, bits)
	return v, err == nil
}

// parseFloat reads what Double.parseDouble does: with blanks around, a type letter behind, NaN and Infinity in this
// spelling.
func parseFloat(s string, bits int) (float64, bool) {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	body := strings.TrimLeft(s, "+-")
	if len(s)-len(body) > 1 {
		return 0, false
	}
	if body == "NaN" || body == "Infinity" {
		f, err := strconv.ParseFloat(s[:len(s)-len(body)]+body[:3], bits)
		if body == "NaN" {
			return math.NaN(), true
		}
		return f, err == nil
	}
	hex := len(body) > 1 && (body[:2] == "0x" || body[:2] == "0X")
	if hex && !strings.ContainsAny(body, "pP") || strings.Contains(body, "_") || strings.ContainsAny(body, "iInN") {
		return 0, false
	}
	if n := len(s); n > 0 && strings.ContainsRune("fFdD", rune(s[n-1])) {
		s = s[:n-1]
	}
	f, err := strconv.ParseFloat(s, bits)
	if err != nil {
		// Out of range is infinity, as in Java.
		return f, math.IsInf(f, 0)
	}
	return f, true
}
