//go:build interop

package interop

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/parquet/variant"
)

// extremes are values that break things, by type word, in the normal form.
var extremes = map[string][]any{
	"TINYINT":  {-128, 127, 0, -1},
	"SMALLINT": {-32768, 32767, 0, -1},
	"INT":      {-2147483648, 2147483647, 0, -1},
	"BIGINT":   {"-9223372036854775808", "9223372036854775807", 0, -1},
	"FLOAT":    {"NaN", "Infinity", "-Infinity", "-0.0", "0.0", "3.4028235e38", "-3.4028235e38", "1.4e-45", "0.1"},
	"DOUBLE": {"NaN", "Infinity", "-Infinity", "-0.0", "0.0", "1.7976931348623157e308", "-1.7976931348623157e308",
		"4.9e-324", "0.1", "0.3333333333333333"},
	"DATE": {"1969-12-31", "1970-01-01", "0001-01-01", "9999-12-31", "1582-10-04", "2000-02-29"},
}

// texts are strings that break things. Those of a common prefix differ behind what statistics keep of a string.
var texts = []string{"", " ", "a", "a\u0000", "a\u0000b", "A", "z", "zażółć gęślą jaźń", "日本語", "😀🏳️‍🌈", "e\u0301", "\u07ff\uffff\U0010ffff",
	"\ufeffx", "quote \"'`\\ end", "tab\tline\nreturn\r", "%2F/..=:", "a common prefix of texts", "a common prefix of texts!",
	"a common prefix of", "a common prefix of\U0010ffff\U0010ffff", "__DEFAULT_PARTITION__", "NULL", "null"}

// valuer makes random values in the normal form.
type valuer struct{ *rand.Rand }

func (r valuer) chance(percent int) bool { return r.IntN(100) < percent }

func oneOf[T any](r valuer, from ...T) T { return from[r.IntN(len(from))] }

// value makes a value of the kind; never null.
func (r valuer) value(k Kind) any {
	if list := extremes[k.Word]; len(list) > 0 && r.chance(25) {
		return oneOf(r, list...)
	}
	switch k.Word {
	case "BOOLEAN":
		return r.chance(50)
	case "TINYINT":
		return r.IntN(256) - 128
	case "SMALLINT":
		return r.IntN(1<<16) - 1<<15
	case "INT":
		return r.IntN(oneOf(r, 100, 1<<31)) - oneOf(r, 0, 50)
	case "BIGINT":
		return strconv.FormatInt(r.Int64N(oneOf[int64](r, 100, math.MaxInt64))-oneOf[int64](r, 0, 50), 10)
	case "FLOAT":
		return strconv.FormatFloat(float64(float32(r.NormFloat64()*math.Pow(10, float64(r.IntN(40)-20)))), 'g', -1, 32)
	case "DOUBLE":
		return strconv.FormatFloat(r.NormFloat64()*math.Pow(10, float64(r.IntN(300)-150)), 'g', -1, 64)
	case "DECIMAL":
		return r.decimal(k)
	case "CHAR", "VARCHAR", "STRING":
		return r.text(k)
	case "BINARY", "VARBINARY", "BYTES":
		return r.bytes(k)
	case "DATE":
		return time.Unix(int64(r.IntN(40000)-15000)*86400, 0).UTC().Format(time.DateOnly)
	case "TIME":
		unit := int64(math.Pow10(max(0, 3-k.Precision)))
		return r.Int64N(86_400_000) / unit * unit
	case "TIMESTAMP", "TIMESTAMP_LTZ":
		return r.moment(k)
	}
	if k.Word == "VARIANT" {
		return r.variant()
	}
	if len(k.Fields) > 0 {
		return r.nested(k)
	}
	panic("no values for type " + k.Word) // the generator chose it: a mistake in the suite
}

func (r valuer) decimal(k Kind) string {
	digits := make([]byte, 1+r.IntN(k.Precision))
	if r.chance(20) {
		digits = make([]byte, k.Precision)
	}
	for i := range digits {
		digits[i] = byte('0' + r.IntN(10))
	}
	if r.chance(15) {
		digits = []byte(oneOf(r, "0", "1", strings.Repeat("9", k.Precision)))
	}
	n, _ := new(big.Int).SetString(oneOf(r, "", "-")+string(digits), 10) // digits by construction
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(k.Scale)), nil)
	return new(big.Rat).SetFrac(n, scale).FloatString(k.Scale)
}

func (r valuer) text(k Kind) string {
	s := oneOf(r, texts...)
	switch {
	case r.chance(40):
		s = fmt.Sprintf("%s%d", s, r.IntN(1000))
	case r.chance(4):
		s = strings.Repeat(s+"long ", 300)
	}
	if most := k.Precision; k.Word != "STRING" {
		runes := []rune(s)
		if k.Word == "CHAR" { // Paimon does not pad
			for len(runes) < most {
				runes = append(runes, ' ')
			}
		}
		s = string(runes[:min(len(runes), most)])
	}
	return s
}

func (r valuer) bytes(k Kind) string {
	n := r.IntN(20)
	if k.Word != "BYTES" {
		n = min(n, k.Precision)
	}
	if k.Word == "BINARY" {
		n = k.Precision
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = oneOf(r, 0, 0xff, 0x7f, 0x80, byte(r.IntN(256)))
	}
	return hex.EncodeToString(b)
}

func (r valuer) moment(k Kind) string {
	day := time.Unix(int64(r.IntN(40000)-15000)*86400, 0).UTC()
	if r.chance(20) && k.Precision <= 6 { // calve holds nanoseconds in 64 bits: the years 1678 to 2261
		day, _ = time.Parse(time.DateOnly, oneOf(r, extremes["DATE"]...).(string))
	}
	unit := int64(math.Pow10(9 - k.Precision))
	nanos := r.Int64N(86_400_000_000_000) / unit * unit
	if r.chance(20) {
		nanos = 86_400_000_000_000 - unit
	}
	return day.Add(time.Duration(nanos)).Format("2006-01-02T15:04:05.000000000")
}

// age makes a time that is long ago or in the far future: nobody's clock is near.
func (r valuer) age(k Kind) any {
	sec := r.Int64N(1_500_000_000) - 500_000_000
	if r.chance(50) {
		sec = 1_950_000_000 + r.Int64N(190_000_000)
	}
	switch k.Word {
	case "INT":
		return sec
	case "BIGINT":
		if r.chance(50) && sec > 1_000_000_000 {
			sec *= 1000 // milliseconds
		}
		return sec
	}
	return time.Unix(sec, 0).UTC().Format("2006-01-02T15:04:05.000000000")
}

// variant makes the two parts of a VARIANT of a random document.
func (r valuer) variant() any {
	document, err := json.Marshal(r.document(3))
	if err != nil {
		panic(err) // a document of the generator's own
	}
	v, err := variant.ParseJSONBytes(document, false)
	if err != nil {
		panic(err)
	}
	return map[string]any{"value": hex.EncodeToString(v.Bytes()), "metadata": hex.EncodeToString(v.Metadata().Bytes())}
}

func (r valuer) document(depth int) any {
	switch x := r.IntN(8); {
	case x == 0:
		return nil
	case x == 1:
		return r.chance(50)
	case x == 2:
		return r.IntN(1 << oneOf(r, 6, 14, 30, 50))
	case x < 5 || depth == 0:
		return oneOf(r, texts...)
	case x == 5:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, r.document(depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range r.IntN(4) {
		object[oneOf(r, "a", "b", "key", "日本", "")] = r.document(depth - 1)
	}
	return object
}

// inner makes a value inside of another one; null where it may be.
func (r valuer) inner(k Kind) any {
	if !k.NotNull && r.chance(20) {
		return nil
	}
	return r.value(k)
}

func (r valuer) nested(k Kind) any {
	if k.Word == "ROW" {
		row := map[string]any{}
		for _, f := range k.Fields {
			row[f.Name] = r.inner(f.Kind)
		}
		return row
	}
	list, seen := []any{}, map[string]bool{}
	for range oneOf(r, 0, 1, 2, 3, 5) {
		switch k.Word {
		case "ARRAY":
			list = append(list, r.inner(k.Fields[0].Kind))
		case "MAP", "MULTISET":
			key := r.value(k.Fields[0].Kind)
			if text := fmt.Sprint(key); !seen[text] { // a key is in a map once
				seen[text] = true
				value := any(1 + r.IntN(3))
				if k.Word == "MAP" {
					value = r.inner(k.Fields[1].Kind)
				}
				list = append(list, []any{key, value})
			}
		}
	}
	return list
}
