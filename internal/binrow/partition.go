package binrow

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// PartitionPath gives the folder of a partition, "dt=2024-05-14/hh=7/", or "" for an unpartitioned table. The values
// have the forms of schema.Cell. legacy and defaultName are the options partition.legacy-name and
// partition.default-name (`utils.InternalRowPartitionComputer`, `utils.PartitionPathUtils`).
func PartitionPath(names []string, types []schema.Type, vals []any, legacy bool, defaultName string) (string, error) {
	if len(names) != len(types) || len(names) != len(vals) {
		return "", fmt.Errorf("binrow: %d partition names, %d types and %d values", len(names), len(types), len(vals))
	}
	var b strings.Builder
	for i, name := range names {
		text := ""
		if vals[i] != nil {
			var err error
			if text, err = valueText(types[i], vals[i], legacy); err != nil {
				return "", fmt.Errorf("partition column %q: %w", name, err)
			}
		}
		// Null and blank values share one folder; the manifest's partition row tells them apart.
		if blank(text) {
			text = defaultName
		}
		escapePath(&b, name)
		b.WriteByte('=')
		escapePath(&b, text)
		b.WriteByte('/')
	}
	return b.String(), nil
}

// blank reports whether all characters are white space in Java's meaning (`Character.isWhitespace`).
func blank(s string) bool {
	for _, r := range s {
		switch {
		case r >= 0x09 && r <= 0x0d, r >= 0x1c && r <= 0x1f:
		case r == 0xa0 || r == 0x2007 || r == 0x202f: // the spaces that do not break a line are not white space there
			return false
		case !unicode.Is(unicode.Z, r):
			return false
		}
	}
	return true
}

// escapePath writes text as a part of a folder name: %XX for control characters and those with a meaning in paths.
func escapePath(b *strings.Builder, text string) {
	const upper = "0123456789ABCDEF"
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c < 0x20 || c == 0x7f || strings.IndexByte("\"#%'*/:=?\\{}[]^", c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(upper[c>>4])
			b.WriteByte(upper[c&15])
			continue
		}
		b.WriteByte(c)
	}
}

// valueText is the text of a value in a folder name: with legacy Java's toString of Paimon's internal value, else the
// SQL cast to STRING.
func valueText(t schema.Type, v any, legacy bool) (string, error) {
	switch x := v.(type) {
	case bool:
		return strconv.FormatBool(x), wrongForm(t, v, schema.Boolean)
	case int8:
		return strconv.Itoa(int(x)), wrongForm(t, v, schema.TinyInt)
	case int16:
		return strconv.Itoa(int(x)), wrongForm(t, v, schema.SmallInt)
	case int32:
		return int32Text(t, x, legacy)
	case int64:
		return int64Text(t, x, legacy)
	case float32:
		return javaFloat(float64(x), 32), wrongForm(t, v, schema.Float)
	case float64:
		return javaFloat(x, 64), wrongForm(t, v, schema.Double)
	case decimal128.Num:
		return x.ToString(int32(t.Scale)), wrongForm(t, v, schema.Decimal)
	case string:
		return x, wrongForm(t, v, schema.Char, schema.VarChar)
	}
	return "", wrongForm(t, v)
}

// wrongForm is nil if the type's root is one of those given.
func wrongForm(t schema.Type, v any, roots ...schema.Root) error {
	for _, r := range roots {
		if t.Root == r {
			return nil
		}
	}
	return fmt.Errorf("a Go %T of type %s has no text in a folder name", v, t)
}

func int32Text(t schema.Type, v int32, legacy bool) (string, error) {
	switch {
	case t.Root == schema.Date && !legacy:
		return dateText(time.Unix(int64(v)*86400, 0).UTC())
	case t.Root == schema.Time && !legacy:
		return timeText(v, t.Precision), nil
	}
	return strconv.Itoa(int(v)), wrongForm(t, v, schema.Int, schema.Date, schema.Time)
}

func int64Text(t schema.Type, v int64, legacy bool) (string, error) {
	switch t.Root {
	case schema.BigInt:
		return strconv.FormatInt(v, 10), nil
	case schema.TimestampLTZ:
		if !legacy {
			return "", fmt.Errorf("folder names of %s depend on the time zone of each Java process while "+
				"partition.legacy-name is false; set it to true or partition by another type", t)
		}
		return isoText(instant(t, v)), nil
	case schema.Timestamp:
		if legacy {
			return isoText(instant(t, v)), nil
		}
		return timestampText(instant(t, v), t.Precision)
	}
	return "", wrongForm(t, v)
}

// instant reads a timestamp cell as UTC wall clock.
func instant(t schema.Type, v int64) time.Time {
	per := int64(1000)
	switch schema.TimeUnit(t) {
	case arrow.Microsecond:
		per = 1_000_000
	case arrow.Nanosecond:
		per = 1_000_000_000
	}
	s, rest := floorDiv(v, per)
	return time.Unix(s, rest*(1_000_000_000/per)).UTC()
}

// dateText writes year-month-day with a year of exactly four digits: of longer years the last four
// (`utils.DateTimeUtils`).
func dateText(t time.Time) (string, error) {
	y, m, d := t.Date()
	if y < 0 {
		return "", fmt.Errorf("the year %d has no text; only years from 0 on have", y)
	}
	return fmt.Sprintf("%04d-%02d-%02d", y%10000, m, d), nil
}

// timestampText has at least precision digits after the second, and more only if they are not zero
// (`DateTimeUtils.formatTimestamp`).
func timestampText(t time.Time, precision int) (string, error) {
	date, err := dateText(t)
	if err != nil {
		return "", err
	}
	fraction := fmt.Sprintf("%09d", t.Nanosecond())
	for len(fraction) > precision && fraction[len(fraction)-1] == '0' {
		fraction = fraction[:len(fraction)-1]
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return fmt.Sprintf("%s %02d:%02d:%02d%s", date, t.Hour(), t.Minute(), t.Second(), fraction), nil
}

// timeText stops after the last digit that is not zero, but has one digit at least (`formatTimestampMillis`).
func timeText(millis int32, precision int) string {
	const day = 86_400_000
	_, v := floorDiv(int64(millis), day)
	if millis >= 0 {
		v = int64(millis)
	}
	out := fmt.Sprintf("%02d:%02d:%02d", v/3_600_000%100, v/60_000%60, v/1000%60)
	rest := v % 1000
	for i := range precision {
		if i == 0 {
			out += "."
		}
		out += strconv.Itoa(int(rest / 100))
		if rest = rest % 100 * 10; rest == 0 {
			break
		}
	}
	return out
}

// isoText is Java's LocalDateTime.toString: seconds only if they or the fraction are not zero, and 3, 6 or 9 digits
// of fraction.
func isoText(t time.Time) string {
	y, m, d := t.Date()
	year := fmt.Sprintf("%04d", y)
	switch {
	case y < 0:
		year = fmt.Sprintf("-%04d", -y)
	case y > 9999:
		year = fmt.Sprintf("+%d", y)
	}
	out := fmt.Sprintf("%s-%02d-%02dT%02d:%02d", year, m, d, t.Hour(), t.Minute())
	n := t.Nanosecond()
	if t.Second() == 0 && n == 0 {
		return out
	}
	out += fmt.Sprintf(":%02d", t.Second())
	switch {
	case n == 0:
		return out
	case n%1_000_000 == 0:
		return out + fmt.Sprintf(".%03d", n/1_000_000)
	case n%1000 == 0:
		return out + fmt.Sprintf(".%06d", n/1000)
	}
	return out + fmt.Sprintf(".%09d", n)
}

// javaFloat is Java's Float.toString and Double.toString as of JDK 19, the shortest digits that tell the value:
// plain from 10^-3 up to 10^7, else with an exponent; always with a point.
func javaFloat(v float64, bits int) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 0):
		if v < 0 {
			return "-Infinity"
		}
		return "Infinity"
	}
	if a := math.Abs(v); a == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(v, 'f', -1, bits)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, bits), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent) // FormatFloat gives a number
	return mantissa + "E" + strconv.Itoa(n)
}
