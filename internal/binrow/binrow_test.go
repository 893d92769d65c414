package binrow

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// allTypes are all primitive types, with the borders between their encodings.
var allTypes = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(18, 0)", "DECIMAL(19, 3)",
	"DECIMAL(38, 10)", "CHAR(3)", "VARCHAR(9)", "STRING", "BINARY(3)", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)",
	"TIMESTAMP(4)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(9)",
}

// random gives a value of the type, or null; extremes are frequent.
func random(t testing.TB, rng *rand.Rand, typ schema.Type) any {
	if rng.IntN(8) == 0 {
		return nil
	}
	n := int64(rng.Uint64()) >> rng.IntN(64)
	if rng.IntN(6) == 0 {
		n = []int64{0, -1, math.MaxInt64, math.MinInt64}[rng.IntN(4)]
	}
	switch typ.Root {
	case schema.Boolean:
		return n%2 == 0
	case schema.TinyInt:
		return int8(n)
	case schema.SmallInt:
		return int16(n)
	case schema.Int, schema.Date, schema.Time:
		return int32(n)
	case schema.BigInt:
		return n
	case schema.Float:
		return float32(n) / 3
	case schema.Double:
		return float64(n) / 3
	case schema.Decimal:
		if typ.Precision > compactMax {
			return decimal128.New(int64(rng.Uint64())>>(8+rng.IntN(56)), rng.Uint64())
		}
		return decimal128.FromI64(n)
	case schema.Char, schema.VarChar:
		return strings.Repeat("é", rng.IntN(5)) + strings.Repeat("x", rng.IntN(20))
	case schema.Binary, schema.VarBinary:
		return bytes.Repeat([]byte{byte(n)}, rng.IntN(20))
	case schema.Timestamp, schema.TimestampLTZ:
		// Milliseconds around the largest microseconds do not come back exactly to the border: stay inside.
		return n / 2
	}
	t.Fatalf("no random value of %s", typ)
	return nil
}

// TestRandomRows checks, for rows of random types and values, that both encoders agree, that decoding gives the values
// back, that Buckets agrees with Hash of the encoded row, and that the length is whole words.
func TestRandomRows(t *testing.T) {
	seed := uint64(20250731)
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 300 {
		var types []schema.Type
		for range 1 + rng.IntN(4)*rng.IntN(20) {
			types = append(types, typeOf(t, allTypes[rng.IntN(len(allTypes))]))
		}
		const rows = 5
		values := make([][]any, rows)
		byColumn := make([][]any, len(types))
		for r := range values {
			for c, typ := range types {
				v := random(t, rng, typ)
				values[r], byColumn[c] = append(values[r], v), append(byColumn[c], v)
			}
		}
		cols := make([]arrow.Array, len(types))
		for c, typ := range types {
			cols[c] = column(t, typ, byColumn[c]...)
		}
		buckets := 1 + rng.IntN(1000)
		got := make([]int32, rows)
		if err := Buckets(got, types, cols, rows, buckets); err != nil {
			t.Fatalf("seed %d round %d: %v", seed, round, err)
		}
		e := NewEncoder(types)
		for r, vals := range values {
			what := fmt.Sprintf("seed %d round %d row %d: %v %#v", seed, round, r, types, vals)
			a, err := e.Append(nil, cols, r)
			b, err2 := e.AppendValues(nil, schema.Insert, vals)
			if err != nil || err2 != nil || !bytes.Equal(a, b) {
				t.Fatalf("%s:\nfrom Arrow  %x %v\nfrom values %x %v", what, a, err, b, err2)
			}
			if len(a)%word != 0 {
				t.Fatalf("%s: %d bytes", what, len(a))
			}
			back, err := Decode(Serialize(a, len(types)), types)
			if err != nil || !reflect.DeepEqual(back, vals) {
				t.Fatalf("%s: decoded %#v, %v", what, back, err)
			}
			for c := range cols {
				if cell := schema.Cell(cols[c], r); !reflect.DeepEqual(cell, vals[c]) {
					t.Fatalf("%s: cell %d is %#v", what, c, cell)
				}
			}
			if want := Bucket(Hash(a), buckets); int(got[r]) != want {
				t.Fatalf("%s: bucket %d, want %d of %d", what, got[r], want, buckets)
			}
		}
	}
}

func TestEmptyRow(t *testing.T) {
	row, err := NewEncoder(nil).Append(nil, nil, 0)
	if err != nil || !bytes.Equal(Serialize(row, 0), EmptyRow) {
		t.Errorf("the row without fields is %x, %v", row, err)
	}
	if vals, err := Decode(EmptyRow, nil); err != nil || len(vals) != 0 {
		t.Errorf("decoded: %v, %v", vals, err)
	}
	if n, err := Arity(EmptyRow); n != 0 || err != nil {
		t.Errorf("arity %d, %v", n, err)
	}
}

func TestEncodeStats(t *testing.T) {
	types := []schema.Type{typeOf(t, "INT NOT NULL"), typeOf(t, "STRING"), typeOf(t, "DECIMAL(20, 2)")}
	low, high, err := EncodeStats(types, []any{int32(1), nil, decimal128.FromI64(-5)}, []any{int32(9), nil, nil})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		row  []byte
		want []any
	}{{low, []any{int32(1), nil, decimal128.FromI64(-5)}}, {high, []any{int32(9), nil, nil}}} {
		if got, err := Decode(c.row, types); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, %v, want %v", got, err, c.want)
		}
	}
	if _, _, err := EncodeStats(types, []any{int32(1)}, []any{nil, nil, nil}); err == nil || !strings.Contains(err.Error(), "smallest") {
		t.Errorf("too few values: %v", err)
	}
	if _, _, err := EncodeStats(types, []any{nil, nil, nil}, []any{"x", nil, nil}); err == nil || !strings.Contains(err.Error(), "largest") {
		t.Errorf("a string for INT: %v", err)
	}
}

// TestWrongValues gives every type a Go value of another type.
func TestWrongValues(t *testing.T) {
	intType := schema.Type{Root: schema.Int}
	types := []schema.Type{
		{Root: schema.Array, Element: &intType}, {Root: schema.Row, Fields: []schema.Field{{Name: "a", Type: intType}}},
		{Root: schema.Map, Key: &intType, Element: &intType}, {Root: schema.Multiset, Element: &intType}, {Root: schema.Variant}, {},
	}
	for _, name := range allTypes {
		types = append(types, typeOf(t, name))
	}
	for _, typ := range types {
		for _, v := range []any{struct{}{}, uint8(1), int(1)} {
			if row, err := NewEncoder([]schema.Type{typ}).AppendValues(nil, schema.Insert, []any{v}); err == nil {
				t.Errorf("%s takes %T: %x", typ, v, row)
			}
		}
	}
	// A wide value in an array of narrow elements must not reach over its end.
	tiny := schema.Type{Root: schema.Array, Element: &schema.Type{Root: schema.TinyInt}}
	vals := []any{int8(1), int8(1), int8(1), int8(1), int8(1), int8(1), int8(1), int64(1)}
	if _, err := NewEncoder([]schema.Type{tiny}).AppendValues(nil, schema.Insert, []any{vals}); err == nil {
		t.Error("an array of TINYINT takes an int64")
	}
	bad := schema.Type{Root: schema.Map, Key: &intType, Element: &intType}
	for _, pair := range [][2]any{{"x", int32(1)}, {int32(1), "x"}} {
		if _, err := NewEncoder([]schema.Type{bad}).AppendValues(nil, schema.Insert, []any{[][2]any{pair}}); err == nil {
			t.Errorf("a MAP<INT, INT> takes %v", pair)
		}
	}
}

func TestMultiset(t *testing.T) {
	str, count := typeOf(t, "STRING"), typeOf(t, "INT")
	pairs := []any{[][2]any{{"a", int32(2)}}}
	got, err := NewEncoder([]schema.Type{{Root: schema.Multiset, Element: &str}}).AppendValues(nil, schema.Insert, pairs)
	want, err2 := NewEncoder([]schema.Type{{Root: schema.Map, Key: &str, Element: &count}}).AppendValues(nil, schema.Insert, pairs)
	if err != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Errorf("%x %v, as a map %x %v", got, err, want, err2)
	}
}

func TestCanonicalNaNInArrays(t *testing.T) {
	for _, c := range []struct {
		typ      string
		odd, one any
	}{
		{"FLOAT", math.Float32frombits(0x7fc00001), math.Float32frombits(0x7fc00000)},
		{"DOUBLE", math.Float64frombits(0x7ff8000000000001), math.Float64frombits(0x7ff8000000000000)},
	} {
		typ := typeOf(t, c.typ)
		e := NewEncoder([]schema.Type{{Root: schema.Array, Element: &typ}})
		a, err := e.AppendValues(nil, schema.Insert, []any{[]any{c.odd}})
		b, err2 := e.AppendValues(nil, schema.Insert, []any{[]any{c.one}})
		if err != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: arrays with NaN differ: %x %x (%v, %v)", c.typ, a, b, err, err2)
		}
	}
}

func TestWrongColumns(t *testing.T) {
	intType, ts := typeOf(t, "INT"), typeOf(t, "TIMESTAMP(6)")
	ints := column(t, intType, int32(1), int32(2))
	millis := column(t, typeOf(t, "TIMESTAMP(3)"), int64(1))
	var null arrow.Array = array.NewNull(3)
	cases := []struct {
		name  string
		types []schema.Type
		cols  []arrow.Array
		row   int
		want  string
	}{
		{"too few columns", []schema.Type{intType, intType}, []arrow.Array{ints}, 0, "1 columns for 2 types"},
		{"other type", []schema.Type{typeOf(t, "BIGINT")}, []arrow.Array{ints}, 0, "BIGINT cannot be read from Arrow type int32"},
		{"other unit", []schema.Type{ts}, []arrow.Array{millis}, 0, "timestamps in ms"},
		{"null type", []schema.Type{intType}, []arrow.Array{null}, 0, "null"},
		{"variant", []schema.Type{{Root: schema.Variant}}, []arrow.Array{null}, 0, "VARIANT"},
		{"nested", []schema.Type{{Root: schema.Array, Element: &intType}}, []arrow.Array{ints}, 0, "ARRAY"},
		{"row too large", []schema.Type{intType}, []arrow.Array{ints}, 2, "row 2 is outside"},
		{"row below 0", []schema.Type{intType}, []arrow.Array{ints}, -1, "row -1 is outside"},
	}
	for _, c := range cases {
		if _, err := NewEncoder(c.types).Append(nil, c.cols, c.row); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not say %q", c.name, err, c.want)
		}
	}
	// After an error the encoder works on.
	e := NewEncoder([]schema.Type{intType})
	if _, err := e.Append(nil, []arrow.Array{millis}, 0); err == nil {
		t.Error("timestamps are taken as INT")
	}
	if _, err := e.Append(nil, []arrow.Array{ints}, 1); err != nil {
		t.Error(err)
	}
}

// TestEncoderSeesNewColumns checks that the encoder does not keep the values of columns given before.
func TestEncoderSeesNewColumns(t *testing.T) {
	intType := typeOf(t, "INT")
	e := NewEncoder([]schema.Type{intType})
	for _, v := range []int32{7, 8} {
		row, err := e.Append(nil, []arrow.Array{column(t, intType, v)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(Serialize(row, 1), []schema.Type{intType}); err != nil || got[0] != v {
			t.Errorf("%v, %v, want %d", got, err, v)
		}
	}
}

func TestBucketErrors(t *testing.T) {
	intType := typeOf(t, "INT")
	types, cols := []schema.Type{intType}, []arrow.Array{column(t, intType, int32(1), nil)}
	for _, c := range []struct {
		dst, n, buckets int
		want            string
	}{{2, 2, 0, "number of buckets"}, {2, 2, -1, "number of buckets"}, {1, 2, 4, "do not fit"}, {3, 3, 4, "3 are needed"}, {2, -1, 4, "do not fit"}} {
		if err := Buckets(make([]int32, c.dst), types, cols, c.n, c.buckets); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := BucketsMod(make([]int32, 2), intType, cols[0], 2, 4); err == nil || !strings.Contains(err.Error(), "null") {
		t.Errorf("mod of null: %v", err)
	}
	if err := BucketsMod(make([]int32, 1), typeOf(t, "DATE"), column(t, typeOf(t, "DATE"), int32(1)), 1, 4); err == nil {
		t.Error("mod of DATE is taken")
	}
}

func TestBucketMod(t *testing.T) {
	for _, c := range []struct {
		v    int64
		n    int
		want int32
	}{{0, 3, 0}, {7, 3, 1}, {-1, 3, 2}, {-3, 3, 0}, {math.MinInt64, 10, 2}, {math.MaxInt64, 10, 7}} {
		got := make([]int32, 1)
		if err := BucketsMod(got, typeOf(t, "BIGINT"), column(t, typeOf(t, "BIGINT"), c.v), 1, c.n); err != nil || got[0] != c.want {
			t.Errorf("%d mod %d = %d, %v, want %d", c.v, c.n, got[0], err, c.want)
		}
	}
	got := make([]int32, 1)
	if err := BucketsMod(got, typeOf(t, "INT"), column(t, typeOf(t, "INT"), int32(-5)), 1, 4); err != nil || got[0] != 3 {
		t.Errorf("-5 mod 4 = %d, %v", got[0], err)
	}
}

func TestBucketExtremes(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 1024, 1 << 30, math.MaxInt32} {
		for _, h := range []int32{0, 1, -1, math.MaxInt32, math.MinInt32, math.MinInt32 + 1} {
			want := Bucket(h, n)
			if want < 0 || want >= n {
				t.Errorf("bucket of hash %d is %d of %d", h, want, n)
			}
			got := []int32{h}
			reduce(got, int32(n))
			if int(got[0]) != want {
				t.Errorf("reduce of hash %d by %d is %d, want %d", h, n, got[0], want)
			}
		}
	}
}

func benchmarkBuckets(b *testing.B, typeNames ...string) {
	const rows = 8192
	rng := rand.New(rand.NewPCG(1, 2))
	var types []schema.Type
	var cols []arrow.Array
	for _, name := range typeNames {
		typ := typeOf(b, name)
		at, err := schema.ArrowType(typ)
		if err != nil {
			b.Fatal(err)
		}
		bld := array.NewBuilder(memory.DefaultAllocator, at)
		for range rows {
			switch bld := bld.(type) {
			case *array.Int64Builder:
				bld.Append(int64(rng.Uint64()))
			case *array.Int32Builder:
				bld.Append(int32(rng.Uint32()))
			case *array.StringBuilder:
				bld.Append(fmt.Sprintf("customer-%08d", rng.IntN(1e8)))
			}
		}
		types, cols = append(types, typ), append(cols, bld.NewArray())
	}
	dst := make([]int32, rows)
	b.ReportAllocs()
	for b.Loop() {
		if err := Buckets(dst, types, cols, rows, 12); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds()/1e6, "Mrows/s")
}

func BenchmarkBuckets(b *testing.B) {
	for _, types := range [][]string{{"BIGINT"}, {"INT"}, {"STRING"}, {"BIGINT", "INT"}, {"BIGINT", "STRING"}} {
		b.Run(strings.Join(types, "+"), func(b *testing.B) { benchmarkBuckets(b, types...) })
	}
}
