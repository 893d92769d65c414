package ingest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// captureType is the type of the column that a source's column goes to. The captures know columns without a type of
// their own in calve as their nearest exact form: intervals and times of day as a number of microseconds, numeric
// without scale as text, bits as bytes.
func captureType(capture, table, column, source string) string {
	if table == "specials" { // what no date or timestamp of calve holds
		switch source {
		case "date", "timestamp without time zone":
			if capture == "pg-flat" {
				return "STRING"
			}
			return "BIGINT"
		case "timestamp with time zone":
			return "STRING"
		}
	}
	if strings.HasSuffix(source, "[]") {
		return "ARRAY<" + captureType(capture, table, column, strings.TrimSuffix(source, "[]")) + ">"
	}
	name, size, _ := strings.Cut(source, "(")
	size, rest, _ := strings.Cut(size, ")")
	switch name + rest {
	case "boolean":
		return "BOOLEAN"
	case "tinyint":
		return "TINYINT"
	case "smallint", "tinyint unsigned":
		return "SMALLINT"
	case "integer", "int", "mediumint", "smallint unsigned", "mediumint unsigned", "year":
		return "INT"
	case "bigint", "int unsigned", "int unsigned zerofill", "interval":
		return "BIGINT"
	case "bigint unsigned":
		return "DECIMAL(20, 0)"
	case "real", "float":
		return "FLOAT"
	case "double precision", "double":
		return "DOUBLE"
	case "numeric", "decimal", "decimal unsigned":
		if size == "" || capture == "pg-flat" && table == "specials_num" {
			return "STRING"
		}
		return "DECIMAL(" + size + ")"
	case "money":
		return "DECIMAL(19, 2)"
	case "date":
		return "DATE"
	case "time", "time without time zone":
		if capture == "pg-flat" {
			return "STRING"
		}
		if size == "3" {
			return "TIME(3)"
		}
		return "BIGINT"
	case "timestamp without time zone", "datetime":
		if size != "" && size <= "3" || name == "datetime" && size == "" {
			return "TIMESTAMP(3)"
		}
		return "TIMESTAMP(6)"
	case "timestamp with time zone", "timestamp":
		return "TIMESTAMP_LTZ(6)"
	case "bytea", "bit varying", "binary", "varbinary", "blob":
		return "BYTES"
	case "bit":
		if size == "1" {
			return "BOOLEAN"
		}
		return "BYTES"
	case "hstore":
		if capture == "pg-avro" {
			return "HSTORE"
		}
	case "point":
		return "POINT"
	}
	return "STRING"
}

const null = "\x01null"

// cellText gives a cell in the form that truthText gives a value of the source's type.
func cellText(v any, t arrow.DataType, source string) string {
	if v == nil {
		return null
	}
	if elem, ok := strings.CutSuffix(source, "[]"); ok {
		var out []string
		for _, x := range v.([]any) {
			out = append(out, cellText(x, t.(*arrow.ListType).Elem(), elem))
		}
		return fmt.Sprintf("%q", out)
	}
	name, _, _ := strings.Cut(source, "(")
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case float32:
		if name == "float" { // printed after widening
			return strconv.FormatFloat(float64(v), 'g', -1, 64)
		}
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case decimal128.Num:
		return v.ToString(t.(*arrow.Decimal128Type).Scale)
	case []byte:
		if strings.HasPrefix(name, "bit") {
			slices.Reverse(v) // little endian
			return new(big.Int).SetBytes(v).String()
		}
		return hex.EncodeToString(v)
	case [][2]any: // hstore in Avro
		m := map[string]*string{}
		for _, x := range v {
			m[x[0].(string)] = nil
			if s, ok := x[1].(string); ok {
				m[x[0].(string)] = &s
			}
		}
		return hstoreText(m)
	case []any: // point
		return fmt.Sprintf("%v %v", v[0], v[1])
	case string:
		switch name {
		case "hstore":
			return hstoreOfJSON(v)
		case "numeric":
			return plainNumber(v, source)
		case "time with time zone", "time without time zone", "time":
			return clockMicros(v)
		case "timestamp without time zone", "timestamp with time zone", "date":
			return isoText(v)
		}
		return v
	}
	switch x := t.(type) {
	case *arrow.Date32Type:
		return time.Unix(int64(v.(int32))*86400, 0).UTC().Format("2006-01-02")
	case *arrow.Time32Type:
		return strconv.Itoa(int(v.(int32)) * 1000)
	case *arrow.TimestampType:
		return sqlTime(arrow.Timestamp(v.(int64)).ToTime(x.Unit), false)
	}
	if name == "date" || name == "timestamp without time zone" { // kept as a number
		if name == "date" {
			return sqlTime(time.Unix(v.(int64)*86400, 0), true)
		}
		return sqlTime(time.UnixMicro(v.(int64)), false)
	}
	return fmt.Sprint(v)
}

// truthText gives a value as the source prints it in the form of cellText.
func truthText(p *string, source string) string {
	if p == nil {
		return null
	}
	v := *p
	if elem, ok := strings.CutSuffix(source, "[]"); ok {
		var out []string
		for _, x := range arrayParts(v) {
			out = append(out, truthText(x, elem))
		}
		return fmt.Sprintf("%q", out)
	}
	name, _, _ := strings.Cut(source, "(")
	switch name {
	case "boolean":
		return strconv.FormatBool(v == "t")
	case "real", "double precision", "float", "double":
		bits := 64
		if name == "real" {
			bits = 32
		}
		f, err := strconv.ParseFloat(v, bits)
		if err != nil {
			return err.Error()
		}
		return strconv.FormatFloat(f, 'g', -1, bits)
	case "money":
		return strings.NewReplacer("$", "", ",", "").Replace(v)
	case "interval":
		return intervalMicros(v)
	case "time", "time without time zone", "time with time zone":
		return clockMicros(v)
	case "bytea":
		return strings.TrimPrefix(v, `\x`)
	case "binary", "varbinary", "blob":
		return strings.ToLower(v)
	case "bit", "bit varying":
		return bitsText(v, source)
	case "point":
		v = strings.NewReplacer("POINT", "", "(", "", ")", "", ",", " ").Replace(v)
		return v
	case "hstore":
		return hstoreOfText(v)
	case "numeric":
		return plainNumber(v, source)
	case "timestamp without time zone", "timestamp with time zone", "timestamp", "datetime":
		v = strings.Replace(v, "+00", "", 1)
		if strings.Contains(v, ".") {
			v = strings.TrimRight(strings.TrimRight(v, "0"), ".")
		}
		return v
	case "int":
		if strings.Contains(source, "zerofill") {
			if v = strings.TrimLeft(v, "0"); v == "" {
				v = "0"
			}
		}
	}
	return v
}

// arrayParts reads an array as PostgreSQL prints it.
func arrayParts(s string) (out []*string) {
	s = strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}")
	for s != "" {
		var part string
		if s[0] == '"' {
			i := 1
			var b strings.Builder
			for ; s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
				b.WriteByte(s[i])
			}
			part, s = b.String(), s[i+1:]
			s = strings.TrimPrefix(s, ",")
			out = append(out, &part)
			continue
		}
		part, s, _ = strings.Cut(s, ",")
		if part == "NULL" {
			out = append(out, nil)
		} else {
			out = append(out, &part)
		}
	}
	return out
}

// intervalMicros is an interval as Debezium gives it: a year has 365.25 days, a month 30.4375.
func intervalMicros(s string) string {
	total := 0.0
	f := strings.Fields(s)
	for i := 0; i < len(f); i++ {
		if strings.Contains(f[i], ":") {
			n, _ := strconv.ParseInt(clockMicros(f[i]), 10, 64)
			total += float64(n)
			continue
		}
		n, _ := strconv.ParseFloat(f[i], 64)
		i++
		switch strings.TrimSuffix(f[i], "s") {
		case "year":
			total += n * 365.25 * 86400e6
		case "mon":
			total += n * 30.4375 * 86400e6
		case "day":
			total += n * 86400e6
		}
	}
	return strconv.FormatInt(int64(math.Round(total)), 10)
}

// clockMicros is a time of day, or a span, in microseconds; with a zone it is that of UTC.
func clockMicros(s string) string {
	s = strings.TrimSuffix(s, "Z")
	zone := ""
	if i := strings.LastIndexAny(s, "+-"); i > 0 {
		s, zone = s[:i], s[i:]
	}
	span := func(s string) int64 {
		neg := strings.HasPrefix(s, "-")
		var micros, unit int64 = 0, 3600e6
		for _, p := range strings.Split(strings.TrimLeft(s, "+-"), ":") {
			whole, frac, _ := strings.Cut(p, ".")
			n, _ := strconv.ParseInt(whole, 10, 64)
			micros += n * unit
			if frac != "" {
				n, _ := strconv.ParseInt((frac + "000000")[:6], 10, 64)
				micros += n
			}
			unit /= 60
		}
		if neg {
			return -micros
		}
		return micros
	}
	n := span(s)
	if zone != "" {
		n = (n - span(zone) + 86400e6) % 86400e6
	}
	return strconv.FormatInt(n, 10)
}

// plainNumber leaves out what Debezium does: zeros at the end of a number without scale.
func plainNumber(s, source string) string {
	switch s { // of decimal.handling.mode string
	case "NAN":
		return "NaN"
	case "POSITIVE_INFINITY":
		return "Infinity"
	case "NEGATIVE_INFINITY":
		return "-Infinity"
	}
	if source != "numeric" || !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

func bitsText(v, source string) string {
	if source == "bit(1)" {
		return strconv.FormatBool(v == "1")
	}
	base := 2
	if strings.Contains(v, "F") || !strings.HasPrefix(source, "bit varying") && len(v) < 5 {
		base = 16
	}
	n, ok := new(big.Int).SetString(v, base)
	if v == "" {
		return "0"
	}
	if !ok {
		return "no bits: " + v
	}
	return n.String()
}

func hstoreOfJSON(s string) string {
	var m map[string]*string
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		return err.Error()
	}
	return hstoreText(m)
}

func hstoreText(m map[string]*string) string {
	out, _ := json.Marshal(m)
	return string(out)
}

// hstoreOfText reads `"a"=>"1", "b"=>NULL`, whose strings are escaped as in JSON for the values that the captures have.
func hstoreOfText(s string) string {
	m := map[string]*string{}
	for s != "" {
		read := func() string {
			i := 1
			for s[i] != '"' {
				if s[i] == '\\' {
					i++
				}
				i++
			}
			var out string
			_ = json.Unmarshal([]byte(s[:i+1]), &out)
			s = s[i+1:]
			return out
		}
		k := read()
		s = strings.TrimPrefix(s, "=>")
		if strings.HasPrefix(s, "NULL") {
			m[k], s = nil, s[4:]
		} else {
			v := read()
			m[k] = &v
		}
		s = strings.TrimPrefix(s, ", ")
	}
	return hstoreText(m)
}

// sqlTime prints a time as PostgreSQL does.
func sqlTime(t time.Time, dateOnly bool) string {
	t = t.UTC()
	y, era := t.Year(), ""
	if y < 1 {
		y, era = 1-y, " BC"
	}
	out := fmt.Sprintf("%04d-%02d-%02d", y, t.Month(), t.Day())
	if !dateOnly {
		out += t.Format(" 15:04:05.999999999")
	}
	return out + era
}

// isoText turns ISO text as Debezium gives it, with years beyond four digits, into what PostgreSQL prints.
func isoText(s string) string {
	neg := strings.HasPrefix(s, "-")
	text := strings.TrimSuffix(strings.TrimLeft(s, "+-"), "Z")
	year, rest, ok := strings.Cut(text, "-")
	y, err := strconv.Atoi(year)
	if !ok || err != nil {
		return s // infinity
	}
	era := ""
	if neg {
		y, era = y+1, " BC"
	}
	rest = strings.Replace(rest, "T", " ", 1)
	if strings.Contains(rest, ".") {
		rest = strings.TrimRight(strings.TrimRight(rest, "0"), ".")
	}
	return fmt.Sprintf("%04d-%s%s", y, rest, era)
}
