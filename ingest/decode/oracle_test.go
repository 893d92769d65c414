package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/valyala/fastjson"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

var oracleCols = []string{"b BOOLEAN", "l BIGINT", "i INT", "d DOUBLE", "n DECIMAL(20,5)", "s STRING"}

var errOracle = errors.New("refused by the oracle")

// escapes finds the escapes of JSON strings.
var escapes = regexp.MustCompile(`\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)`)
var exponent = regexp.MustCompile(`[eE][+-]?0*(\d+)$`)
var halfPair = regexp.MustCompile(`^\\u[dD][89a-fA-F][0-9a-fA-F]{2}$`)

// oracle gives the row by encoding/json and exact arithmetic. unsure: it cannot say (numbers with huge exponents).
func oracle(s *schema.Schema, text []byte) (row []any, unsure bool, err error) {
	if !json.Valid(text) || !utf8.Valid(text) {
		return nil, false, errOracle
	}
	for _, e := range escapes.FindAll(text, -1) {
		if halfPair.Match(e) {
			return nil, false, errOracle
		}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, false, errOracle
	}
	members := map[string]json.RawMessage{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false, err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, false, err
		}
		_, column := s.Field(name.(string))
		if _, twice := members[name.(string)]; twice && column {
			return nil, false, errOracle
		}
		members[name.(string)] = raw
	}
	row = []any{"+I"}
	for _, f := range s.Fields {
		raw, ok := members[f.Name]
		if !ok || string(raw) == "null" {
			row = append(row, nil)
			continue
		}
		v, u, err := oracleValue(f.Type, string(raw))
		if err != nil {
			return nil, u, err
		}
		unsure = unsure || u
		row = append(row, v)
	}
	return row, unsure, nil
}

func oracleValue(t schema.Type, raw string) (v any, unsure bool, err error) {
	text := raw
	if raw[0] == '"' {
		if err := json.Unmarshal([]byte(raw), &text); err != nil {
			return nil, false, err
		}
	}
	switch t.Root {
	case schema.VarChar:
		return text, false, nil
	case schema.Boolean:
		if raw != "true" && raw != "false" {
			return nil, false, errOracle
		}
		return raw == "true", false, nil
	}
	if t.Root == schema.Double && raw[0] == '"' {
		switch text {
		case "NaN", "Infinity", "-Infinity":
			f, _ := strconv.ParseFloat(text, 64)
			return f, false, nil
		}
	}
	if !json.Valid([]byte(text)) || strings.TrimSpace(text) != text || !strings.ContainsRune("-0123456789", rune(text[0])) {
		return nil, false, errOracle
	}
	if t.Root == schema.Double {
		f, err := strconv.ParseFloat(text, 64)
		return f, false, err
	}
	if m := exponent.FindStringSubmatch(text); m != nil && len(m[1]) > 3 {
		return nil, true, errOracle
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, false, fmt.Errorf("no number: %q", text)
	}
	if t.Root == schema.Decimal {
		scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil))
		limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Precision)), nil)
		if r.Mul(r, scale); !r.IsInt() || r.Num().CmpAbs(limit) >= 0 {
			return nil, false, errOracle
		}
		return decimal128.FromBigInt(r.Num()), false, nil
	}
	if !r.IsInt() || !r.Num().IsInt64() {
		return nil, false, errOracle
	}
	i := r.Num().Int64()
	if t.Root == schema.Int {
		if i != int64(int32(i)) {
			return nil, false, errOracle
		}
		return int32(i), false, nil
	}
	return i, false, nil
}

// sameRow compares cells; NaN equals NaN, and zeros have signs.
func sameRow(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, ok := a[i].(float64)
		y, ok2 := b[i].(float64)
		if ok && ok2 {
			if math.Float64bits(x) != math.Float64bits(y) && !(math.IsNaN(x) && math.IsNaN(y)) {
				return false
			}
		} else if !reflect.DeepEqual(a[i], b[i]) {
			return false
		}
	}
	return true
}

// compare decodes text and holds the outcome against the oracle.
func compare(t *testing.T, s *schema.Schema, d Decoder, text []byte) (taken bool) {
	t.Helper()
	err := d.Decode(&Record{Value: text})
	rows := rowsOf(d)
	want, unsure, werr := oracle(s, text)
	if unsure {
		return err == nil
	}
	if (err != nil) != (werr != nil) {
		t.Fatalf("%q: decoder says %v, oracle says %v", text, err, werr)
	}
	if err == nil && (len(rows) != 1 || !sameRow(rows[0], want)) {
		t.Fatalf("%q: got %#v, oracle %#v", text, rows, want)
	}
	return err == nil
}

// FuzzDecode holds the decoder against encoding/json on any input.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"b":true,"l":1,"i":-2,"d":1.5e3,"n":"12.345","s":"x\u00e9\ud83d\ude00"}`, `{"s":{"a":[1,2,{"b":null}]},"z":[]}`,
		`{"l":9223372036854775808}`, `{"n":1e-5,"d":"NaN"}`, `{"s":"\ud800"}`, "{\"s\":\"\xff\"}", `{"l":1,"l":2}`, `[1]`, `{"a":1}}`, ` { "i" : 1e2 } `,
	} {
		f.Add([]byte(s), byte(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, warm byte) {
		s := schematest.Table(t, "", oracleCols...)
		d := newTestDecoder(t, Config{Schema: s, OpField: "-"})
		if warm&1 == 1 { // with a learned order and an abandoned row
			for _, w := range []string{`{"b":true,"l":1,"i":-2,"d":1,"n":1,"s":"x"}`, `{"s":"abandoned","b":null,"l":null,`} {
				if err := d.Decode(&Record{Value: []byte(w)}); err == nil {
					d.Take()
				}
			}
		}
		if len(text) > 0 {
			compare(t, s, d, text)
		}
		// Other forms must not panic, and must leave nothing behind when they refuse.
		e := newTestDecoder(t, Config{Schema: schematest.Table(t, "l", oracleCols...), Format: Debezium})
		k := newTestDecoder(t, Config{Schema: schematest.Table(t, "l", oracleCols...)})
		for _, x := range []*jsonDecoder{e, k} {
			for _, r := range []Record{{Value: text}, {Key: text}, {Value: append([]byte(`{"op":"d","before":`), append(text, '}')...)}} {
				before := x.Rows()
				if err := x.Decode(&r); err != nil && x.Rows() != before {
					t.Fatalf("%q: refused (%v), but %d rows became %d", text, err, before, x.Rows())
				}
			}
			rowsOf(x)
		}
	})
}

// generator makes JSON texts, most of them valid, with the column names of oracleCols.
type generator struct{ r *rand.Rand }

func (g generator) pick(s ...string) string { return s[g.r.IntN(len(s))] }

func (g generator) space() string {
	if g.r.IntN(4) > 0 {
		return ""
	}
	return g.pick(" ", "\t", "\n", "  \r\n", "")
}

func (g generator) digits(n int) string {
	b := make([]byte, 1+g.r.IntN(n))
	for i := range b {
		b[i] = byte('0' + g.r.IntN(10))
	}
	if len(b) > 1 && b[0] == '0' {
		b[0] = '1'
	}
	return string(b)
}

func (g generator) number() string {
	s := g.pick("", "", "-") + g.digits(22)
	if g.r.IntN(2) == 0 {
		s = g.pick("", "-") + g.digits(4) + "." + strings.Repeat("0", g.r.IntN(4)) + g.digits(20)
	}
	if g.r.IntN(4) == 0 {
		s += g.pick("e", "E") + g.pick("", "-", "+") + strconv.Itoa(g.r.IntN(30))
	}
	return s
}

func (g generator) text() string {
	var b strings.Builder
	b.WriteByte('"')
	for range g.r.IntN(24) {
		b.WriteString(g.pick("a", "z", "0", "~", " ", "é", "中", "😀", "\u2028", `\n`, `\"`, `\\`, `\/`, `\u0041`, `\u00e9`, `\ud83d\ude00`, "\x7f", "abcdefghijk"))
		if g.r.IntN(400) == 0 {
			b.WriteString(g.pick("\x00", "\n", "\xff", `\ud83d`, `\x`, "\xc3"))
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (g generator) value(depth int) string {
	switch g.r.IntN(9) {
	case 0:
		return "null"
	case 1:
		return g.pick("true", "false")
	case 2, 3, 4:
		return g.number()
	case 5:
		return `"` + g.number() + `"`
	case 6:
		if depth < 4 {
			var parts []string
			for range g.r.IntN(4) {
				parts = append(parts, g.space()+g.value(depth+1)+g.space())
			}
			return "[" + g.space() + strings.Join(parts, ",") + "]"
		}
	case 7:
		if depth < 4 {
			return g.object(depth + 1)
		}
	}
	return g.text()
}

func (g generator) object(depth int) string {
	names := []string{"b", "l", "i", "d", "n", "s", "x", "yy", "", "ü"}
	g.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var parts []string
	for _, n := range names[:g.r.IntN(len(names)+1)] {
		v := g.value(depth)
		if g.r.IntN(3) > 0 { // mostly fitting
			switch n {
			case "b":
				v = g.pick("true", "false", "null")
			case "l", "i":
				v = g.digits(9)
			case "n":
				v = g.digits(14) + "." + g.digits(4)
			}
		}
		parts = append(parts, fmt.Sprintf(`%s"%s"%s:%s%s%s`, g.space(), n, g.space(), g.space(), v, g.space()))
	}
	return g.space() + "{" + strings.Join(parts, ",") + g.space() + "}"
}

// TestAgainstEncodingJSON decodes random texts, whole and with a byte changed, with one decoder.
func TestAgainstEncodingJSON(t *testing.T) {
	g := generator{schematest.Rand(t)}
	s := schematest.Table(t, "", oracleCols...)
	d := newTestDecoder(t, Config{Schema: s, OpField: "-"})
	taken, n := 0, 4000
	for range n {
		text := []byte(g.object(0))
		if compare(t, s, d, text) {
			taken++
		}
		if i := g.r.IntN(len(text)); g.r.IntN(2) == 0 {
			text[i] = byte(g.r.IntN(256))
		} else {
			text = append(text[:i], text[min(len(text), i+1+g.r.IntN(5)):]...)
		}
		compare(t, s, d, text)
	}
	if taken < n/10 || taken > n-n/10 {
		t.Errorf("%d of %d texts were taken: the generator tests one side only", taken, n)
	}
}

// TestAgainstFastjson compares the flat messages of the benchmark, field by field.
func TestAgainstFastjson(t *testing.T) {
	recs, _ := benchMessages(appendFlat)
	d := newTestDecoder(t, Config{Schema: benchSchema(), BatchRows: 1000})
	var p fastjson.Parser
	for i := range recs[:2000] {
		if err := d.Decode(&recs[i]); err != nil {
			t.Fatal(err)
		}
		v, err := p.ParseBytes(recs[i].Value)
		if err != nil {
			t.Fatal(err)
		}
		amount, err := decimal128.FromString(string(v.GetStringBytes("amount")), 10, 2)
		if err != nil {
			t.Fatal(err)
		}
		want := []any{"+I", v.GetInt64("id"), v.GetInt64("lsn"), int32(v.GetInt("kind")), string(v.GetStringBytes("email")), string(v.GetStringBytes("product")),
			v.GetFloat64("score"), v.GetInt64("created_at"), amount, int32(v.GetInt("qty")), v.GetBool("active")}
		if d.rows == 1000 {
			rows := rowsOf(d)
			if !sameRow(rows[999], want) {
				t.Fatalf("%s: got %v, want %v", recs[i].Value, rows[999], want)
			}
			continue
		}
		got := []any{"+I"}
		for c := range d.cols {
			got = append(got, peek(&d.cols[c], d.rows-1))
		}
		if !sameRow(got, want) {
			t.Fatalf("%s: got %v, want %v", recs[i].Value, got, want)
		}
	}
}

// peek reads a cell that is not taken yet.
func peek(c *column, row int) any {
	switch c.shape {
	case shapeBool:
		return c.flag[row>>3]>>(row&7)&1 == 1
	case shapeInt32:
		return c.i32[row]
	case shapeInt64, shapeTimestamp:
		return c.i64[row]
	case shapeFloat64:
		return c.f64[row]
	case shapeDecimal:
		return c.dec[row]
	}
	return string(c.data[c.off[row]:c.off[row+1]])
}

// TestFloats holds the conversion against strconv, near the hard cases too: halfway points and the ends of the range.
func TestFloats(t *testing.T) {
	r := schematest.Rand(t)
	n := 60000
	undecided := 0
	for i := range n {
		var text string
		switch i % 4 {
		case 0:
			text = strconv.FormatFloat(math.Float64frombits(r.Uint64()), 'g', -1, 64)
		case 1:
			text = strconv.FormatFloat(r.NormFloat64()*100, 'g', 1+r.IntN(18), 64)
		case 2:
			text = strconv.FormatUint(r.Uint64(), 10) + "e" + strconv.Itoa(r.IntN(130)-65)
		case 3: // halfway between two floats, with one digit more or less
			f := math.Abs(r.NormFloat64() * 1e6)
			mid := new(big.Rat).Add(new(big.Rat).SetFloat64(f), new(big.Rat).SetFloat64(math.Nextafter(f, math.Inf(1))))
			text = strings.TrimRight(mid.Mul(mid, big.NewRat(1, 2)).FloatString(15+r.IntN(50)), "0")
			text = strings.TrimSuffix(text, ".")
		}
		num, end := scanNumber([]byte(text), 0)
		if end != len(text) {
			if strings.Contains(text, "N") || strings.Contains(text, "I") {
				continue
			}
			t.Fatalf("%s: ends at %d", text, end)
		}
		if _, ok := num.nearest(); !ok {
			undecided++
		}
		got, ok := num.float64([]byte(text))
		want, err := strconv.ParseFloat(text, 64)
		if ok != (err == nil) || ok && math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%s: got %v %v, want %v %v", text, got, ok, want, err)
		}
	}
	if undecided > n*3/4 {
		t.Errorf("%d of %d left to strconv", undecided, n)
	}
}

// TestDates holds the calendar against package time, over the whole range in steps of 11 days, and day by day in
// the years that end a century.
func TestDates(t *testing.T) {
	for _, bad := range []string{"0000-12-31", "1900-02-29", "2023-00-01", "2023-04-31", "2023-01-00", "2023/01/01", "+023-01-01"} {
		if _, ok := parseDate([]byte(bad)); ok {
			t.Errorf("%s was taken", bad)
		}
	}
	day := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	var buf []byte
	for n, step := minDay, 0; n <= maxDay; n += step {
		buf = day.AppendFormat(buf[:0], "2006-01-02")
		if got, ok := parseDate(buf); !ok || got != n {
			t.Fatalf("%s: got %d %v, want %d", buf, got, ok, n)
		}
		if step = 11; day.Year()%100 == 0 {
			step = 1
		}
		day = day.AddDate(0, 0, step)
	}
}

// TestTimestamps holds parsing against package time, in random zones.
func TestTimestamps(t *testing.T) {
	r := schematest.Rand(t)
	for range 20000 {
		zone := time.FixedZone("", (r.IntN(36*60+1)-18*60)*60)
		want := time.Unix(r.Int64N(2*6e10)-6e10, int64(r.IntN(1e9))).In(zone)
		if y := want.UTC().Year(); y < 2 || y > 9998 || want.Year() < 1 {
			continue
		}
		text := want.Format([]string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999 -0700"}[r.IntN(3)])
		got, reason := parseTimestamp([]byte(text), 6)
		if reason != "" || got != want.UnixMicro() {
			t.Fatalf("%s: got %d %s, want %d", text, got, reason, want.UnixMicro())
		}
	}
}
