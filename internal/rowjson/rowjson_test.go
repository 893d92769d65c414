package rowjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// column builds an array from calls of its builder.
func column(t *testing.T, typ arrow.DataType, fill func(array.Builder)) arrow.Array {
	t.Helper()
	b := array.NewBuilder(memory.DefaultAllocator, typ)
	defer b.Release()
	fill(b)
	return b.NewArray()
}

// TestStrings: any bytes become a valid JSON string that encoding/json reads as the same text, with U+FFFD for what is
// not UTF-8, just as encoding/json writes it.
func TestStrings(t *testing.T) {
	texts := []string{"", "a", `"`, `\`, "\x00\x1f\x7f\u0080", "\n\r\t\b\f", "ä雪🧊", "\xff", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\u2028\u2029", "<&>", strings.Repeat("x\n", 5000)}
	for c := range 256 {
		texts = append(texts, "a"+string([]byte{byte(c)})+"b")
	}
	const seed = 20261129
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		b := make([]byte, rng.IntN(12))
		for i := range b {
			b[i] = byte(rng.Uint32() >> (8 * rng.IntN(2)))
		}
		texts = append(texts, string(b))
	}
	for _, s := range texts {
		got := AppendString([]byte("x"), s)[1:]
		var back, oracle string
		if err := json.Unmarshal(got, &back); err != nil || !utf8.Valid(got) {
			t.Fatalf("%q: %v: %s", s, err, got)
		}
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(want, &oracle); err != nil {
			t.Fatal(err)
		}
		if back != oracle {
			t.Fatalf("%q: reads back as %q, want %q", s, back, oracle)
		}
	}
}

// TestNumbers: integers and floats are what encoding/json makes of them, bit for bit when read back; what JSON has no
// number for is a string.
func TestNumbers(t *testing.T) {
	const seed = 20261129
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	doubles := []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e21, 1e20, 999999999999999900000, 1e-6, 1e-7, 9.999999e-7, math.MaxFloat64, math.SmallestNonzeroFloat64, 123456789012345680}
	for range 3000 {
		doubles = append(doubles, math.Float64frombits(rng.Uint64()))
	}
	for _, f := range doubles {
		col := column(t, arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(f) })
		checkFloat(t, AppendValue(nil, col, 0), f, 64)
		g := float32(f)
		col = column(t, arrow.PrimitiveTypes.Float32, func(b array.Builder) { b.(*array.Float32Builder).Append(g) })
		checkFloat(t, AppendValue(nil, col, 0), float64(g), 32)
	}
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		col := column(t, arrow.PrimitiveTypes.Int64, func(b array.Builder) { b.(*array.Int64Builder).Append(n) })
		if got := string(AppendValue(nil, col, 0)); got != strconv.FormatInt(n, 10) {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func checkFloat(t *testing.T, got []byte, f float64, bits int) {
	t.Helper()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		want := map[bool]string{true: `"NaN"`}[math.IsNaN(f)]
		if want == "" {
			want = map[bool]string{true: `"Infinity"`, false: `"-Infinity"`}[f > 0]
		}
		if string(got) != want {
			t.Fatalf("%v: %s, want %s", f, got, want)
		}
		return
	}
	if !json.Valid(got) {
		t.Fatalf("%v: %s is not JSON", f, got)
	}
	back, err := strconv.ParseFloat(string(got), bits)
	if err != nil || math.Float64bits(back) != math.Float64bits(f) {
		t.Fatalf("%v: reads back as %v, %v", f, back, err)
	}
	var want []byte
	if bits == 32 {
		want, err = json.Marshal(float32(f))
	} else {
		want, err = json.Marshal(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	if w := strings.Replace(string(want), "e-0", "e-", 1); strings.Replace(string(got), "e-0", "e-", 1) != w {
		t.Fatalf("%s, encoding/json writes %s", got, want)
	}
}

// TestCells holds one cell of each other type against its text.
func TestCells(t *testing.T) {
	us := time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC)
	for _, tc := range []struct {
		name string
		typ  arrow.DataType
		fill func(array.Builder)
		want string
	}{
		{"bool", arrow.FixedWidthTypes.Boolean, func(b array.Builder) { b.(*array.BooleanBuilder).Append(true) }, `true`},
		{"int8", arrow.PrimitiveTypes.Int8, func(b array.Builder) { b.(*array.Int8Builder).Append(-128) }, `-128`},
		{"int16", arrow.PrimitiveTypes.Int16, func(b array.Builder) { b.(*array.Int16Builder).Append(-32768) }, `-32768`},
		{"int32", arrow.PrimitiveTypes.Int32, func(b array.Builder) { b.(*array.Int32Builder).Append(math.MinInt32) }, `-2147483648`},
		{"null", arrow.BinaryTypes.String, func(b array.Builder) { b.AppendNull() }, `null`},
		{"decimal", &arrow.Decimal128Type{Precision: 38, Scale: 10}, func(b array.Builder) {
			n, err := decimal128.FromString("-9999999999999999999999999999.9999999999", 38, 10)
			if err != nil {
				t.Fatal(err)
			}
			b.(*array.Decimal128Builder).Append(n)
		}, `"-9999999999999999999999999999.9999999999"`},
		{"small decimal", &arrow.Decimal128Type{Precision: 10, Scale: 4}, func(b array.Builder) { b.(*array.Decimal128Builder).Append(decimal128.FromI64(-1)) }, `"-0.0001"`},
		{"binary", arrow.BinaryTypes.Binary, func(b array.Builder) { b.(*array.BinaryBuilder).Append([]byte{0, 255, 62}) }, `"` + base64.StdEncoding.EncodeToString([]byte{0, 255, 62}) + `"`},
		{"date", arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(-1) }, `"1969-12-31"`},
		{"first date", arrow.FixedWidthTypes.Date32, func(b array.Builder) { b.(*array.Date32Builder).Append(-719162) }, `"0001-01-01"`},
		{"time", arrow.FixedWidthTypes.Time32ms, func(b array.Builder) { b.(*array.Time32Builder).Append(86399999) }, `"23:59:59.999"`},
		{"milliseconds", &arrow.TimestampType{Unit: arrow.Millisecond}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(-1) }, `"1969-12-31T23:59:59.999"`},
		{"microseconds", &arrow.TimestampType{Unit: arrow.Microsecond}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(us.UnixMicro())) }, `"1969-12-31T23:59:59.999999"`},
		{"nanoseconds", &arrow.TimestampType{Unit: arrow.Nanosecond}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(1) }, `"1970-01-01T00:00:00.000000001"`},
		{"local time zone", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, func(b array.Builder) { b.(*array.TimestampBuilder).Append(0) }, `"1970-01-01T00:00:00.000000Z"`},
		{"list", arrow.ListOf(arrow.PrimitiveTypes.Int32), func(b array.Builder) {
			l := b.(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{1, 2}, nil)
		}, `[1,2]`},
	} {
		if got := string(AppendValue([]byte("x"), column(t, tc.typ, tc.fill), 0)); got != "x"+tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got[1:], tc.want)
		}
	}
}

// TestRows: a row is one JSON object, its names escaped like any text, its columns in order.
func TestRows(t *testing.T) {
	sc := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "a \"b\"\n\xff", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
	b.Field(1).(*array.StringBuilder).AppendValues([]string{"x", ""}, []bool{true, false})
	rec := b.NewRecordBatch()
	e := NewEncoder(sc)
	got := e.Append(e.Append(nil, rec, 0), rec, 1)
	if want := `{"id":1,"a \"b\"\n\ufffd":"x"}{"id":2,"a \"b\"\n\ufffd":null}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	dec := json.NewDecoder(bytes.NewReader(got))
	for range 2 {
		var v map[string]any
		if err := dec.Decode(&v); err != nil || len(v) != 2 {
			t.Errorf("%v %v", v, err)
		}
	}
	if got := NewEncoder(arrow.NewSchema(nil, nil)).Append(nil, array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1), 0); string(got) != "{}" {
		t.Errorf("no columns: %s", got)
	}
}

// TestNested: nested cells are written inside out with the same rules; maps are pairs, as their keys need not be strings.
func TestNested(t *testing.T) {
	row := arrow.StructOf(arrow.Field{Name: "a\"", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "b", Type: arrow.ListOf(&arrow.Decimal128Type{Precision: 5, Scale: 2}), Nullable: true})
	typ := arrow.MapOf(arrow.PrimitiveTypes.Int64, row)
	col := column(t, typ, func(b array.Builder) {
		m := b.(*array.MapBuilder)
		keys, items := m.KeyBuilder().(*array.Int64Builder), m.ItemBuilder().(*array.StructBuilder)
		list := items.FieldBuilder(1).(*array.ListBuilder)
		m.Append(true)
		keys.AppendValues([]int64{7, -1}, nil)
		items.Append(true)
		items.FieldBuilder(0).(*array.Int32Builder).Append(1)
		list.Append(true)
		list.ValueBuilder().(*array.Decimal128Builder).Append(decimal128.FromI64(150))
		list.ValueBuilder().AppendNull()
		items.AppendNull()
		m.AppendNull()
		m.Append(true)
		m.Append(true)
		keys.Append(0)
		items.Append(true)
		items.FieldBuilder(0).AppendNull()
		list.Append(true)
	})
	want := []string{`[[7,{"a\"":1,"b":["1.50",null]}],[-1,null]]`, `null`, `[]`, `[[0,{"a\"":null,"b":[]}]]`}
	for i, w := range want {
		if got := string(AppendValue(nil, col, i)); got != w || !json.Valid([]byte(got)) {
			t.Errorf("row %d: %s, want %s", i, got, w)
		}
		if got := string(AppendValue(nil, array.NewSlice(col, int64(i), int64(i+1)), 0)); got != w {
			t.Errorf("slice at row %d: %s, want %s", i, got, w)
		}
	}
}
