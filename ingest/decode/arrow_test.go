package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

func arrowDecoderOf(t testing.TB, s *schema.Schema) *arrowDecoder {
	t.Helper()
	d, err := New(Config{Schema: s, Format: Arrow})
	if err != nil {
		t.Fatal(err)
	}
	return d.(*arrowDecoder)
}

// batchOf makes a batch of JSON.
func batchOf(t testing.TB, json string, fields ...arrow.Field) arrow.RecordBatch {
	t.Helper()
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil), strings.NewReader(json))
	if err != nil {
		t.Fatal(json, err)
	}
	return b
}

func arrowField(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

// TestArrowValues reads one value of a type into a column, as a slice of a batch, and nulls of it.
func TestArrowValues(t *testing.T) {
	str, i64 := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	for _, c := range []struct {
		typ          arrow.DataType
		json, column string
		want         string // or what the error says
	}{
		{arrow.FixedWidthTypes.Boolean, `true`, "BOOLEAN", "true"}, {arrow.FixedWidthTypes.Boolean, `true`, "INT", "cannot be kept in type INT"},
		{arrow.PrimitiveTypes.Int8, `-7`, "TINYINT", "-7"}, {arrow.PrimitiveTypes.Int16, `-300`, "SMALLINT", "-300"}, {arrow.PrimitiveTypes.Int16, `-300`, "TINYINT", "out of range"}, {arrow.PrimitiveTypes.Int32, `5`, "BIGINT", "5"}, {i64, `5`, "INT", "5"}, {i64, `5000000000`, "INT", "out of range"},
		{arrow.PrimitiveTypes.Uint8, `200`, "SMALLINT", "200"}, {arrow.PrimitiveTypes.Uint16, `65535`, "INT", "65535"}, {arrow.PrimitiveTypes.Uint32, `4294967295`, "BIGINT", "4294967295"}, {arrow.PrimitiveTypes.Uint64, `18446744073709551615`, "DECIMAL(20, 0)", `"18446744073709551615"`}, {arrow.PrimitiveTypes.Uint64, `18446744073709551615`, "BIGINT", "out of range"},
		{arrow.FixedWidthTypes.Float16, `-0.5`, "FLOAT", "-0.5"}, {arrow.PrimitiveTypes.Float32, `0.5`, "DOUBLE", "0.5"}, {arrow.PrimitiveTypes.Float64, `0.1`, "DOUBLE", "0.1"}, {arrow.PrimitiveTypes.Float64, `1e300`, "FLOAT", "out of range"}, {arrow.PrimitiveTypes.Float64, `1.5`, "INT", "cannot be kept"},
		{str, `"é"`, "STRING", `"é"`}, {str, `"ééé"`, "VARCHAR(2)", "characters"}, {str, `"12.5"`, "DECIMAL(4, 2)", `"12.50"`}, {str, `"x"`, "INT", "not a value"}, {arrow.BinaryTypes.LargeString, `"x"`, "STRING", `"x"`},
		{arrow.BinaryTypes.Binary, `"YQA="`, "BYTES", `"YQA="`}, {arrow.BinaryTypes.LargeBinary, `"YWI="`, "STRING", `"ab"`}, {arrow.BinaryTypes.Binary, `"/w=="`, "STRING", "UTF-8"}, {&arrow.FixedSizeBinaryType{ByteWidth: 2}, `"YWI="`, "BINARY(2)", `"YWI="`},
		{&arrow.Decimal128Type{Precision: 10, Scale: 2}, `"-123.45"`, "DECIMAL(10, 2)", `"-123.45"`}, {&arrow.Decimal128Type{Precision: 10, Scale: 2}, `"-123.45"`, "DECIMAL(12, 4)", `"-123.4500"`}, {&arrow.Decimal128Type{Precision: 10, Scale: 2}, `"-123.45"`, "DECIMAL(10, 1)", `decimal places`}, {&arrow.Decimal256Type{Precision: 50, Scale: 0}, `"12345678901234567890123456789012345678901234567890"`, "STRING", `"12345678901234567890123456789012345678901234567890"`},
		{&arrow.Decimal32Type{Precision: 5, Scale: 1}, `"1.5"`, "DECIMAL(5, 1)", `"1.5"`}, {&arrow.Decimal64Type{Precision: 12, Scale: 1}, `"-1.5"`, "DOUBLE", `-1.5`},
		{arrow.FixedWidthTypes.Date32, `"2024-02-29"`, "DATE", `"2024-02-29"`}, {arrow.FixedWidthTypes.Date64, `"1969-12-31"`, "DATE", `"1969-12-31"`}, {arrow.FixedWidthTypes.Date32, `"2024-02-29"`, "TIMESTAMP(3)", `cannot be kept`},
		{arrow.FixedWidthTypes.Time32s, `"01:02:03"`, "TIME(3)", `"01:02:03.000"`}, {arrow.FixedWidthTypes.Time32ms, `"01:02:03.004"`, "TIME(3)", `"01:02:03.004"`}, {arrow.FixedWidthTypes.Time64us, `"01:02:03.004005"`, "TIME(3)", `"01:02:03.004"`}, {arrow.FixedWidthTypes.Time64ns, `"01:02:03.004005006"`, "STRING", `"01:02:03.004005006"`}, {arrow.FixedWidthTypes.Time32s, `"01:02:03"`, "STRING", `"01:02:03."`},
		{&arrow.TimestampType{Unit: arrow.Second}, `"2024-02-29 01:02:03"`, "TIMESTAMP(3)", `"2024-02-29T01:02:03.000"`}, {&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, `"2024-02-29 01:02:03.123456Z"`, "TIMESTAMP_LTZ(6)", `"2024-02-29T01:02:03.123456Z"`}, {&arrow.TimestampType{Unit: arrow.Nanosecond}, `"1969-12-31 23:59:59.999999999"`, "TIMESTAMP(3)", `"1969-12-31T23:59:59.999"`}, {&arrow.TimestampType{Unit: arrow.Second}, `"2024-02-29 01:02:03"`, "BIGINT", `1709168523`},
		{arrow.ListOf(i64), `[1,null,3]`, "ARRAY<BIGINT>", "[1,null,3]"}, {arrow.ListOf(i64), `[1,null]`, "ARRAY<BIGINT NOT NULL>", `"v.element": is missing or null`}, {arrow.LargeListOf(str), `["a"]`, "ARRAY<STRING>", `["a"]`}, {arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float64), `[0.5,1]`, "ARRAY<DOUBLE>", `[0.5,1]`}, {arrow.ListOf(i64), `[1]`, "BIGINT", "cannot be kept"},
		{arrow.MapOf(str, i64), `[{"key":"k","value":1},{"key":"l","value":null}]`, "MAP<STRING NOT NULL, BIGINT>", `[["k",1],["l",null]]`}, {arrow.MapOf(str, i64), `[]`, "MAP<STRING NOT NULL, BIGINT>", `[]`}, {arrow.MapOf(str, i64), `[]`, "STRING", `cannot be kept`},
		{arrow.StructOf(arrowField("b", i64), arrowField("x", str), arrowField("a", arrow.ListOf(arrow.StructOf(arrowField("q", str))))), `{"b":1,"x":"no","a":[{"q":"w"},null]}`, "ROW<a ARRAY<ROW<q STRING>>, b INT, c INT>", `{"a":[{"q":"w"},null],"b":1,"c":null}`}, {arrow.StructOf(arrowField("b", i64)), `{"b":1}`, "ROW<b INT, c INT NOT NULL>", `"v.c": is missing or null`}, {arrow.StructOf(arrowField("b", i64)), `{"b":1}`, "INT", `cannot be kept`},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: str}, `"x"`, "STRING", `"x"`}, {&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32, ValueType: i64}, `7`, "INT", `7`}, {arrow.FixedWidthTypes.Duration_s, `5`, "BIGINT", `cannot be kept`}, {arrow.Null, `null`, "BIGINT", `null`},
	} {
		name := c.typ.String() + " in " + c.column
		d := arrowDecoderOf(t, tableOf(t, "n INT, v "+c.column))
		all := batchOf(t, `[{"n":0,"v":null},{"n":1,"v":`+c.json+`},{"n":2,"v":null},{"n":1,"v":`+c.json+`}]`, arrowField("v", c.typ), arrowField("n", arrow.PrimitiveTypes.Int32))
		b := all.NewSlice(1, 4)
		var err error
		for i := range 3 {
			if e := d.Decode(&Record{Rows: b, Row: i}); e != nil && (i != 1 || !strings.Contains(c.want, "cannot")) {
				err = e
			}
		}
		lines := linesOf(d)
		got := fmt.Sprint(err)
		if err == nil && len(lines) == 3 {
			got = strings.TrimSuffix(strings.TrimPrefix(lines[0], `+I{"n":1,"v":`), "}")
			if lines[1] != `+I{"n":2,"v":null}` || lines[2] != lines[0] {
				t.Errorf("%s: rows %q", name, lines)
			}
		}
		if err != nil && (!errors.Is(err, ErrRow) || !strings.Contains(got, c.want)) || err == nil && got != c.want {
			t.Errorf("%s: gives %s, want %s", name, got, c.want)
		}
		if text, whole := RowText(b, 1, 100); string(text) != `{"v":null,"n":2}` || !whole {
			t.Errorf("%s: %s", name, text)
		}
		all = batchOf(t, `[{"v":`+c.json+`}]`, arrowField("v", c.typ))
		v, err := json.Marshal(all.Column(0).GetOneForMarshal(0))
		if err != nil {
			t.Fatal(err)
		}
		for _, most := range []int{1000, 8} {
			want := `{"v":` + string(v) + `}`
			if text, whole := RowText(all, 0, most); whole != (len(want) <= most) || len(text) != min(len(want), most) || whole && !jsonAlike(string(text), want) {
				t.Errorf("%s: %s, want %s", name, text, want)
			}
		}
	}
}

// TestArrowColumns: kinds of rows, columns that are none, and what a schema asks for.
func TestArrowColumns(t *testing.T) {
	i64, str := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	b := batchOf(t, `[{"op":"d","id":1,"more":"x","r":{"a":1,"b":2}},{"op":null,"id":2,"more":"y","r":null}]`,
		arrowField("op", str), arrowField("id", i64), arrowField("more", str), arrowField("r", arrow.StructOf(arrowField("a", i64), arrowField("b", i64))))
	for policy, want := range map[Evolution]string{
		Freeze: `[-D{"id":1,"r":{"a":1}} +I{"id":2,"r":null}]`, Strict: `field "more": there is no such column`, AddOnly: "needs another schema: add more STRING; add r.b BIGINT",
	} {
		d := arrowDecoderOf(t, tableOf(t, "id BIGINT, r ROW<a BIGINT>", "id"))
		d.cfg.Evolution = policy
		err := errors.Join(d.Decode(&Record{Rows: b}), d.Decode(&Record{Rows: b, Row: 1}))
		if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
	}
	d := arrowDecoderOf(t, tableOf(t, "id BIGINT, r ROW<a BIGINT>", "id"))
	twice := batchOf(t, `[]`, arrowField("id", i64), arrowField("id", i64))
	for _, r := range []Record{{}, {Rows: b, Row: 2}, {Rows: b, Row: -1}, {Rows: twice}} {
		if err := d.Decode(&r); !errors.Is(err, ErrRow) {
			t.Errorf("%v", err)
		}
	}
	cols, err := ColumnsOfArrow(arrow.NewSchema([]arrow.Field{arrowField("a", arrow.PrimitiveTypes.Uint64), arrowField("b", &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}), arrowField("c", arrow.FixedWidthTypes.Time64us), arrowField("d", arrow.Null),
		arrowField("e", arrow.MapOf(str, arrow.ListOf(arrow.StructOf(arrowField("x", &arrow.FixedSizeBinaryType{ByteWidth: 4}))))), arrowField("f", &arrow.Decimal256Type{Precision: 50}), arrowField("g", &arrow.DictionaryType{IndexType: i64, ValueType: str})}, nil))
	if got := fmt.Sprint(cols, err); !strings.Contains(got, "DECIMAL(20, 0)") || len(cols) != 6 || cols[3].Type.String() != "MAP<STRING NOT NULL, ARRAY<ROW<`x` BINARY(4)>>>" {
		t.Error(got)
	}
	if _, err := ColumnsOfArrow(arrow.NewSchema([]arrow.Field{arrowField("a", arrow.FixedWidthTypes.Duration_s)}, nil)); err == nil {
		t.Error("a duration is a column")
	}
}

// jsonAlike: the same but for the order of members.
func jsonAlike(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// TestRowTextBound: what a refused row comes to is bounded, whatever count a few bytes say, or how often they are referred to.
func TestRowTextBound(t *testing.T) {
	const n, most = 1_000_000, 1000
	off := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, n}))
	nulls := arrow.ListOf(arrow.Null)
	many := array.NewListData(array.NewData(nulls, 1, []*memory.Buffer{nil, off}, []arrow.ArrayData{array.NewNull(n).Data()}, 0, 0))
	long, err := json.Marshal([]map[string]string{{"v": strings.Repeat("x", n)}})
	if err != nil {
		t.Fatal(err)
	}
	str := batchOf(t, string(long), arrowField("v", arrow.BinaryTypes.String)).Column(0)
	words := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String},
		array.MakeFromData(array.NewData(arrow.PrimitiveTypes.Int32, 1, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, 4))}, nil, 0, 0)), str)
	for _, a := range []arrow.Array{many, str, words} {
		b := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{arrowField("a", a.DataType())}, nil), []arrow.Array{a}, 1)
		var text []byte
		whole := true
		if got := testing.AllocsPerRun(1, func() { text, whole = RowText(b, 0, most) }); whole || len(text) != most || got > 1000 {
			t.Errorf("%s: %d bytes, %v allocations", a.DataType(), len(text), got)
		}
	}
}

// arrowStreamOf writes batches as a stream.
func arrowStreamOf(t testing.TB, opts []ipc.Option, batches ...arrow.RecordBatch) []byte {
	t.Helper()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, append(opts, ipc.WithSchema(batches[0].Schema()))...)
	for _, x := range batches {
		if err := w.Write(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func hostileArrow(t testing.TB) []byte {
	str := arrow.BinaryTypes.String
	fields := []arrow.Field{arrowField("id", arrow.PrimitiveTypes.Int64), arrowField("s", str), arrowField("d", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: str}), arrowField("l", arrow.ListOf(arrow.StructOf(arrowField("x", arrow.PrimitiveTypes.Float64)))),
		arrowField("m", arrow.MapOf(str, arrow.PrimitiveTypes.Int32)), arrowField("b", arrow.FixedWidthTypes.Boolean), arrowField("e", &arrow.Decimal128Type{Precision: 10, Scale: 2}), arrowField("f", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8))}
	b := batchOf(t, `[{"id":1,"s":"x","d":"a","l":[{"x":1},null],"m":[{"key":"k","value":1}],"b":true,"e":"1.25","f":[1,2]},{"id":2,"s":null,"d":"b","l":[],"m":[],"b":null,"e":null,"f":null}]`, fields...)
	return arrowStreamOf(t, nil, b, b)
}

const hostileArrowColumns = "id BIGINT, s STRING, d STRING, l ARRAY<ROW<x DOUBLE>>, m MAP<STRING NOT NULL, INT>, b BOOLEAN, e DECIMAL(10, 2), f ARRAY<TINYINT>"

// readStream decodes a stream and gives its rows; what is wrong with it is an error, not a panic.
func readStream(t testing.TB, d *arrowDecoder, b []byte) (rows int, err error) {
	t.Helper()
	in, err := OpenArrowStream(b)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	for {
		batch, err := in.Next()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		for i := range int(min(batch.NumRows(), 1000)) {
			if err := d.Decode(&Record{Rows: batch, Row: i}); err != nil && !errors.Is(err, ErrRow) {
				t.Fatal(err)
			}
			rows++
		}
		d.Take()
	}
}

// TestArrowStreamHostile: no bytes make the reader fail otherwise than with an error, or take memory that they do not have.
func TestArrowStreamHostile(t *testing.T) {
	seed := hostileArrow(t)
	d := arrowDecoderOf(t, tableOf(t, hostileArrowColumns))
	if rows, err := readStream(t, d, seed); err != nil || rows != 4 {
		t.Fatal(rows, err)
	}
	if rows, err := readStream(t, d, seed[:len(seed)-8]); err != nil || rows != 4 { // the end may be left out
		t.Fatal(rows, err)
	}
	for i := range len(seed) - 8 {
		if i%8 != 0 {
			continue
		}
		if _, err := readStream(t, d, seed[:i]); err == nil && i < 16 {
			t.Errorf("%d bytes were taken", i)
		}
	}
	broken, r := 0, rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := bytes.Clone(seed)
		for range 1 + r.IntN(4) {
			i := r.IntN(len(b))
			switch r.IntN(3) {
			case 0:
				b[i] = byte(r.IntN(256))
			case 1:
				b[i] = 0xff
			default:
				for k := i &^ 3; k < min(len(b), i&^3+4); k++ {
					b[k] = 0x7f
				}
			}
		}
		if _, err := readStream(t, d, b); err != nil {
			broken++
		}
	}
	if broken < 1000 {
		t.Errorf("only %d of 20,000 broken streams were refused", broken)
	}
	packed := arrowStreamOf(t, []ipc.Option{ipc.WithZstd()}, batchOf(t, `[{"id":1}]`, arrowField("id", arrow.PrimitiveTypes.Int64)))
	for _, c := range []struct {
		b    []byte
		want string
	}{{nil, "no Arrow stream"}, {[]byte("{}"), "no Arrow stream"}, {append(bytes.Clone(seed), 1), "behind its end"}, {packed, "are compressed"}, {[]byte("\xff\xff\xff\xff\x00\x00\x00\x00"), "no Arrow stream"}} {
		if _, err := readStream(t, d, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v", c.b, err)
		}
	}
}

// arrayOf makes an array of offsets, or indices, and what they are of.
func arrayOf(typ arrow.DataType, limits []int32, inside arrow.Array) arrow.Array {
	first := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(limits))}
	if arrow.IsBaseBinary(typ.ID()) {
		return array.MakeFromData(array.NewData(typ, len(limits)-1, append(first, inside.Data().Buffers()[1]), nil, 0, 0))
	}
	return array.MakeFromData(array.NewData(typ, len(limits)-1, first, []arrow.ArrayData{inside.Data()}, 0, 0))
}

// TestArrowOverlap: what rows have is in the stream once, so that the work of a stream is bounded by its bytes.
func TestArrowOverlap(t *testing.T) {
	i8 := arrow.PrimitiveTypes.Int8
	ten := batchOf(t, `[{"v":1},{"v":2},{"v":3},{"v":4},{"v":5},{"v":6},{"v":7},{"v":8},{"v":9},{"v":10}]`, arrowField("v", i8)).Column(0)
	list := arrow.ListOf(i8)
	for _, c := range []struct {
		a    arrow.Array
		want string
	}{
		{arrayOf(list, []int32{0, 4, 4, 10}, ten), ""}, {arrayOf(list, []int32{3, 4, 9}, ten), ""}, {arrayOf(arrow.BinaryTypes.Binary, []int32{0, 4, 10}, ten), ""},
		{arrayOf(list, []int32{0, 10, 0, 10}, ten), "run backwards"}, {arrayOf(list, []int32{0, 4, 11}, ten), "beyond the values"}, {arrayOf(list, []int32{-1, 4}, ten), "run backwards"},
		{arrayOf(arrow.BinaryTypes.Binary, []int32{0, 10, 0, 10}, ten), "run backwards"},
		{arrayOf(arrow.ListOf(list), []int32{0, 3}, arrayOf(list, []int32{0, 10, 0, 10}, ten)), "run backwards"},
	} {
		b := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{arrowField("a", c.a.DataType())}, nil), []arrow.Array{c.a}, int64(c.a.Len()))
		err := new(arrowChecker).batch(b)
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) {
			t.Errorf("%v: %v, want %q", c.a, err, c.want)
		}
	}
	for _, a := range []arrow.Array{arrayOf(list, []int32{0, 10, 0, 10}, ten), arrayOf(arrow.ListOf(arrow.Null), []int32{0, 4000}, array.NewNull(4000))} {
		b := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{arrowField("a", a.DataType())}, nil), []arrow.Array{a}, int64(a.Len()))
		if _, err := readStream(t, arrowDecoderOf(t, tableOf(t, "b INT")), arrowStreamOf(t, nil, b)); err == nil {
			t.Errorf("a stream of %v is taken", a.DataType())
		}
	}
}

// TestArrowSwell: rows that refer to one long word any number of times are bounded all together, refused ones too.
func TestArrowSwell(t *testing.T) {
	word := batchOf(t, `[{"v":"`+strings.Repeat("x", 1000)+`"}]`, arrowField("v", arrow.BinaryTypes.String)).Column(0)
	index := array.MakeFromData(array.NewData(arrow.PrimitiveTypes.Int32, 100, []*memory.Buffer{nil, memory.NewBufferBytes(make([]byte, 400))}, nil, 0, 0))
	words := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, index, word)
	b := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{arrowField("a", words.DataType())}, nil), []arrow.Array{words}, 100)
	for column, refused := range map[string]bool{"a STRING": false, "a INT": true} {
		d, err := New(Config{Schema: tableOf(t, column), Format: Arrow, MaxSwell: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 51 {
			if err = d.Decode(&Record{Rows: b, Row: i}); errors.Is(err, ErrRow) != (refused && i < 50) || errors.Is(err, ErrSwell) != (i == 50) {
				t.Fatalf("%s: row %d: %v", column, i, err)
			}
		}
	}
}

func FuzzArrowStream(f *testing.F) {
	f.Add(hostileArrow(f))
	d := arrowDecoderOf(f, tableOf(f, hostileArrowColumns))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = readStream(t, d, b) })
}

func TestArrowNoAllocations(t *testing.T) {
	str, i64 := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	var rows []string
	for i := range 1000 {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"email":"james%d","score":%d.5,"amount":"%d.25","created_at":"2024-01-01 00:00:00"}`, i, i, i, i))
	}
	b := batchOf(t, "["+strings.Join(rows, ",")+"]", arrowField("id", i64), arrowField("email", str), arrowField("score", arrow.PrimitiveTypes.Float64), arrowField("amount", &arrow.Decimal128Type{Precision: 10, Scale: 2}),
		arrowField("created_at", &arrow.TimestampType{Unit: arrow.Millisecond}))
	d := arrowDecoderOf(t, benchSchema())
	r := Record{Rows: b}
	decode := func() {
		for r.Row = range 1000 {
			if err := d.Decode(&r); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.cfg.BatchRows = 1 << 20
	decode()
	d.rows = 0 // the buffers stay
	if n := testing.AllocsPerRun(5, func() { decode(); d.rows = 0 }); n != 0 {
		t.Fatalf("%v allocations for 1000 rows", n)
	}
}
