package decode

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

func newTestDecoder(t testing.TB, cfg Config) *jsonDecoder {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*jsonDecoder)
}

// rowsOf takes the batch and gives its rows as cells, with the kind as the first cell.
func rowsOf(d Decoder) [][]any {
	b := d.Take()
	if b.Rec == nil {
		return nil
	}
	out := make([][]any, b.Len())
	for r := range out {
		kind := schema.Insert
		if b.Kinds != nil {
			kind = b.Kinds[r]
		}
		out[r] = []any{kind.String()}
		for c := range int(b.Rec.NumCols()) {
			out[r] = append(out[r], schema.Cell(b.Rec.Column(c), r))
		}
	}
	return out
}

func dec128(unscaled string) decimal128.Num {
	v, ok := new(big.Int).SetString(unscaled, 10)
	if !ok {
		panic("no number: " + unscaled)
	}
	return decimal128.FromBigInt(v)
}

const nines38 = "99999999999999999999999999999999999999"

var errRefused = errors.New("refused")

// valueCases are types with texts that they take and refuse.
var valueCases = []struct {
	typ, json string
	want      any
}{
	{"BOOLEAN", "true", true},
	{"BOOLEAN", "false", false},
	{"BOOLEAN", "null", nil},
	{"BOOLEAN", `"true"`, errRefused},
	{"BOOLEAN", "1", errRefused},
	{"BOOLEAN", "tru", errRefused},

	{"TINYINT", "-128", int8(-128)},
	{"TINYINT", "127", int8(127)},
	{"TINYINT", "128", errRefused},
	{"SMALLINT", "32767", int16(32767)},
	{"SMALLINT", "-32769", errRefused},
	{"INT", "2147483647", int32(math.MaxInt32)},
	{"INT", "-2147483648", int32(math.MinInt32)},
	{"INT", "2147483648", errRefused},
	{"INT", "5.0", int32(5)},
	{"INT", "1.5", errRefused},
	{"INT", "1e3", int32(1000)},
	{"INT", "12e-1", errRefused},
	{"INT", `"77"`, int32(77)},
	{"INT", `"abc"`, errRefused},
	{"INT", `""`, errRefused},
	{"INT", `" 7"`, errRefused},
	{"INT", "-0", int32(0)},
	{"INT", "01", errRefused},
	{"INT", "+1", errRefused},
	{"INT", "-", errRefused},
	{"INT", "1.", errRefused},
	{"INT", "1e", errRefused},
	{"INT", ".5", errRefused},
	{"INT", "true", errRefused},
	{"INT", "[1]", errRefused},
	{"BIGINT", "9223372036854775807", int64(math.MaxInt64)},
	{"BIGINT", "-9223372036854775808", int64(math.MinInt64)},
	{"BIGINT", "9223372036854775808", errRefused},
	{"BIGINT", "-9223372036854775809", errRefused},
	{"BIGINT", "9007199254740993", int64(9007199254740993)}, // beyond float64
	{"BIGINT", "123456789012345678", int64(123456789012345678)},
	{"BIGINT", "1234567890123456789", int64(1234567890123456789)},
	{"BIGINT", "99999999999999999999999", errRefused},
	{"BIGINT", "9223372036854775807.0", int64(math.MaxInt64)},
	{"BIGINT", "0.0000000000000000000000000001", errRefused},
	{"BIGINT", "100000000000000000000000e-5", int64(1000000000000000000)},
	{"BIGINT", "1e999999999999", errRefused},
	{"BIGINT", "0e999999999999", int64(0)},

	{"DOUBLE", "0.1", 0.1},
	{"DOUBLE", "-0.0", math.Copysign(0, -1)},
	{"DOUBLE", "1e308", 1e308},
	{"DOUBLE", "1e309", errRefused},
	{"DOUBLE", "5e-324", 5e-324},
	{"DOUBLE", "1e-400", 0.0},
	{"DOUBLE", `"1.5"`, 1.5},
	{"DOUBLE", `"Infinity"`, math.Inf(1)},
	{"DOUBLE", `"-Infinity"`, math.Inf(-1)},
	{"DOUBLE", "NaN", errRefused},
	{"DOUBLE", `"0x1p3"`, errRefused},
	{"DOUBLE", "142.38472938472938", 142.38472938472938},
	{"FLOAT", "16777217", float32(16777216)},
	{"FLOAT", "0.1", float32(0.1)},
	{"FLOAT", "3.5e38", errRefused},

	{"DECIMAL(10,2)", "12.34", dec128("1234")},
	{"DECIMAL(10,2)", `"-0.05"`, dec128("-5")},
	{"DECIMAL(10,2)", "12.345", errRefused}, // not rounded
	{"DECIMAL(10,2)", "12.3400", dec128("1234")},
	{"DECIMAL(10,2)", "99999999.99", dec128("9999999999")},
	{"DECIMAL(10,2)", "100000000", errRefused},
	{"DECIMAL(10,2)", "1.5e3", dec128("150000")},
	{"DECIMAL(10,2)", "15e-1", dec128("150")},
	{"DECIMAL(10,2)", "0e50", dec128("0")},
	{"DECIMAL(38,0)", nines38, dec128(nines38)},
	{"DECIMAL(38,0)", "-" + nines38, dec128("-" + nines38)},
	{"DECIMAL(38,0)", "1" + nines38, errRefused},
	{"DECIMAL(38,38)", "0." + nines38, dec128(nines38)},
	{"DECIMAL(38,38)", "1", errRefused},
	{"DECIMAL(38,10)", "1234567890123456789012345678.0123456789", dec128("12345678901234567890123456780123456789")},
	{"DECIMAL(20,0)", "18446744073709551615", dec128("18446744073709551615")},
	{"DECIMAL(19,0)", "10000000000000000000", errRefused},
	{"DECIMAL(20,0)", "1.8e19", dec128("18000000000000000000")},
	{"DECIMAL(38,4)", "0.00000000000000000000000000000000001e35", dec128("10000")},
	{"DECIMAL(10,2)", `"1,5"`, errRefused},

	{"STRING", `""`, ""},
	{"STRING", `"a\"\\\/\b\f\n\r\tz"`, "a\"\\/\b\f\n\r\tz"},
	{"STRING", `"\u00e9\u4e2D\ud83d\ude00"`, "é中😀"},
	{"STRING", `"é中😀"`, "é中😀"},
	{"STRING", `"\ud83d"`, errRefused},
	{"STRING", `"\ud83dx"`, errRefused},
	{"STRING", `"\ude00\ud83d"`, errRefused},
	{"STRING", `"\ud83d\u0041"`, errRefused},
	{"STRING", `"\x41"`, errRefused},
	{"STRING", `"\u12g4"`, errRefused},
	{"STRING", "\"a\tb\"", errRefused},
	{"STRING", "\"a\xff\"", errRefused},
	{"STRING", "\"\xed\xa0\x80\"", errRefused},
	{"STRING", `"abc`, errRefused},
	{"STRING", `12.50`, "12.50"},
	{"STRING", `true`, "true"},
	{"STRING", `{"a": [1, {}]}`, `{"a": [1, {}]}`},
	{"STRING", `{"a": [1, {}}`, errRefused},
	{"VARCHAR(3)", `"äöü"`, "äöü"},
	{"VARCHAR(3)", `"abcd"`, errRefused},
	{"CHAR(3)", `"ab"`, "ab"},
	{"CHAR(3)", `"äöü!"`, errRefused},
	{"BYTES", `"AAEC"`, []byte{0, 1, 2}},
	{"BYTES", `""`, []byte{}},
	{"BYTES", `"AAE="`, []byte{0, 1}},
	{"BYTES", `"AA\u0045="`, []byte{0, 1}},
	{"BYTES", `"AAE"`, errRefused},
	{"BYTES", `"A_E="`, errRefused},
	{"BYTES", `12`, errRefused},
	{"BINARY(2)", `"AAEC"`, errRefused},

	{"DATE", `"1970-01-01"`, int32(0)},
	{"DATE", `"1969-12-31"`, int32(-1)},
	{"DATE", `"2000-02-29"`, int32(11016)},
	{"DATE", `"1900-02-29"`, errRefused},
	{"DATE", `"0001-01-01"`, int32(minDay)},
	{"DATE", `"9999-12-31"`, int32(maxDay)},
	{"DATE", `"0000-12-31"`, errRefused},
	{"DATE", `"2023-13-01"`, errRefused},
	{"DATE", `"2023-06-31"`, errRefused},
	{"DATE", `"2023-6-1"`, errRefused},
	{"DATE", `"2023-06-01T00:00:00"`, errRefused},
	{"DATE", "0", int32(0)},
	{"DATE", "-719163", errRefused},
	{"DATE", "3000000", errRefused},

	{"TIME(3)", `"23:59:59.999"`, int32(dayMillis - 1)},
	{"TIME(3)", `"01:02"`, int32(3720000)},
	{"TIME(3)", `"24:00:00"`, errRefused},
	{"TIME(3)", `"01:02:03."`, errRefused},
	{"TIME(3)", "86400000", errRefused},
	{"TIME(3)", "1", int32(1)},

	{"TIMESTAMP(6)", `"2023-07-26 10:22:47.048491"`, int64(1690366967048491)},
	{"TIMESTAMP(6)", "1690366967048491", int64(1690366967048491)},
	{"TIMESTAMP(6)", `"2023-07-26T10:22:47.048491007"`, int64(1690366967048491)}, // finer digits are dropped
	{"TIMESTAMP(6)", `"1969-12-31T23:59:59.9999999"`, int64(-1)},                 // towards the past
	{"TIMESTAMP(3)", "-1", int64(-1)},
	{"TIMESTAMP(3)", `"2001-01-01"`, int64(978307200000)},
	{"TIMESTAMP(3)", `"2001-01-01 00:01"`, int64(978307260000)},
	{"TIMESTAMP(3)", `"2001-01-01X00:01"`, errRefused},
	{"TIMESTAMP(3)", `"2001-01-01 00:01:00 CET"`, errRefused},
	{"TIMESTAMP_LTZ(6)", `"2025-07-13T23:54:31.5+08:00"`, int64(1752422071500000)},
	{"TIMESTAMP_LTZ(6)", `"2025-07-13T15:54:31.5Z"`, int64(1752422071500000)},
	{"TIMESTAMP_LTZ(6)", `"2025-07-13 15:54:31.5 -0130"`, int64(1752427471500000)},
	{"TIMESTAMP_LTZ(6)", `"0001-01-01T00:00:00Z"`, int64(-62135596800000000)},
	{"TIMESTAMP_LTZ(6)", `"9999-12-31T23:59:59.999999Z"`, int64(253402300799999999)},
	{"TIMESTAMP_LTZ(6)", `"9999-12-31T23:59:59.999999-00:01"`, errRefused},
	{"TIMESTAMP_LTZ(6)", `"0001-01-01T00:00:00+01:00"`, errRefused},
	{"TIMESTAMP_LTZ(6)", "9223372036854775807", errRefused},
	{"TIMESTAMP(9)", `"2262-04-11T23:47:16.854775807"`, errRefused},
	{"TIMESTAMP(9)", `"2023-07-26 10:22:47.048491007"`, int64(1690366967048491007)},
}

func TestValues(t *testing.T) {
	for _, c := range valueCases {
		t.Run(c.typ+" "+c.json, func(t *testing.T) {
			d := newTestDecoder(t, Config{Schema: schematest.Table(t, "", "v "+c.typ)})
			for _, form := range []string{`{"v":%s}`, " {\t\"w\" : [1], \"v\" : %s , \"x\":{}\n}\r "} {
				err := d.Decode(&Record{Value: fmt.Appendf(nil, form, c.json)})
				if (err != nil) != (c.want == errRefused) {
					t.Fatalf("%s: error %v, want %v", form, err, c.want)
				}
				if err != nil && !errors.Is(err, ErrRow) {
					t.Fatalf("%v is no ErrRow", err)
				}
				rows := rowsOf(d)
				if err == nil && !reflect.DeepEqual(rows, [][]any{{"+I", c.want}}) {
					t.Fatalf("%s: got %#v, want %#v", form, rows, c.want)
				}
				if err != nil && rows != nil {
					t.Fatalf("%s: refused, but left %#v", form, rows)
				}
			}
		})
	}
}

// TestMalformed gives the byte at which each text stops being JSON.
func TestMalformed(t *testing.T) {
	d := newTestDecoder(t, Config{Schema: schematest.Table(t, "", "v INT", "s STRING")})
	cases := []struct {
		text string
		at   int
	}{
		{"", 0}, {" ", 1}, {"{", 1}, {`{"v"`, 4}, {`{"v":`, 5}, {`{"v":1`, 6}, {`{"v":1,`, 7}, {`{"v":1,}`, 7},
		{`{"v":1}}`, 7}, {`{"v":1} x`, 8}, {`[1]`, 0}, {`null`, 0}, {`{v:1}`, 1}, {`{"v" 1}`, 5}, {`{"v":1 "s":2}`, 7},
		{`{"v":1,"v":2}`, 11}, {`{"x":[1,]}`, 8}, {`{"x":[1 2]}`, 8}, {`{"x":{"a":1,}}`, 12}, {`{"x":nul}`, 5},
		{`{"x":"\q"}`, 6}, {"{\"x\":\"a\x01\"}", 7}, {"{\"x\xff\":1}", 3}, {"{\"s\":\"ab\xff\"}", 8},
		{`{"x":"\ud800"}`, 6}, {"\ufeff{}", 0}, {`{"s":"a`, 7}, {`{"x":[[}`, 7}, {`{"x":-}`, 5},
	}
	for _, c := range cases {
		err := d.Decode(&Record{Value: []byte(c.text)})
		var re *RowError
		if !errors.As(err, &re) || re.Offset != c.at {
			t.Errorf("%q: got %v, want an error at byte %d", c.text, err, c.at)
		}
	}
	deep := `{"x":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + "}"
	if err := d.Decode(&Record{Value: []byte(deep)}); err != nil {
		t.Errorf("depth %d: %v", maxDepth, err)
	}
	deep = `{"x":` + strings.Repeat(`[`, maxDepth+1) + "}"
	if err := d.Decode(&Record{Value: []byte(deep)}); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("depth %d: %v", maxDepth+1, err)
	}
}

// TestFailedRowLeavesNothing puts failing rows between good ones, at every field, and compares with the good ones alone.
func TestFailedRowLeavesNothing(t *testing.T) {
	cols := []string{"b BOOLEAN", "i INT", "l BIGINT", "f FLOAT", "d DOUBLE", "n DECIMAL(10,2)", "s STRING", "y BYTES", "t TIMESTAMP(6)", "q SMALLINT", "r TINYINT"}
	good := []string{`"b":true`, `"i":1`, `"l":2`, `"f":1.5`, `"d":2.5`, `"n":3.25`, `"s":"text"`, `"y":"AAEC"`, `"t":5`, `"q":6`, `"r":7`}
	nulls := []string{`"b":null`, `"i":null`, `"l":null`, `"f":null`, `"d":null`, `"n":null`, `"s":null`, `"y":null`, `"t":null`, `"q":null`, `"r":null`}
	row := func(f []string) string { return "{" + strings.Join(f, ",") + "}" }
	d := newTestDecoder(t, Config{Schema: schematest.Table(t, "", cols...)})
	want := newTestDecoder(t, Config{Schema: schematest.Table(t, "", cols...)})
	for round := range 40 {
		for at := range cols {
			for _, from := range [][]string{good, nulls} {
				f := append(append([]string{}, from[:at]...), `"bad":[`)
				if err := d.Decode(&Record{Value: []byte(row(f))}); err == nil {
					t.Fatal("a bad row was taken")
				}
			}
		}
		for _, f := range [][]string{good, nulls, good[round%5 : 7]} {
			for _, x := range []*jsonDecoder{d, want} {
				if err := x.Decode(&Record{Value: []byte(row(f))}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if a, b := rowsOf(d), rowsOf(want); !reflect.DeepEqual(a, b) || len(a) != 120 {
		t.Fatalf("%d rows with bad ones between\n%v\n%d without\n%v", len(a), a, len(b), b)
	}
}

func TestRowKinds(t *testing.T) {
	keyed := Config{Schema: schematest.Table(t, "id", "id BIGINT", "s STRING NOT NULL", "x INT")}
	cases := []struct {
		name, key, value string // value "-": null
		want             string // rows or the error
	}{
		{"plain", "", `{"id":1,"s":"a"}`, `[[+I 1 a <nil>]]`},
		{"insert", "", `{"op":"I","id":1,"s":"a","x":5}`, `[[+I 1 a 5]]`},
		{"null op", "", `{"id":1,"s":"a","op":null}`, `[[+I 1 a <nil>]]`},
		{"create", "", `{"id":1,"s":"a","op":"c"}`, `[[+I 1 a <nil>]]`},
		{"read", "", `{"id":1,"s":"a","op":"r"}`, `[[+I 1 a <nil>]]`},
		{"update", "", `{"id":1,"op":"U","s":"a"}`, `[[+U 1 a <nil>]]`},
		{"flink update", "", `{"id":1,"op":"+U","s":"a"}`, `[[+U 1 a <nil>]]`},
		{"flink before", "", `{"id":1,"op":"-U","s":"a"}`, `[[-U 1 a <nil>]]`},
		{"delete by key alone", "", `{"op":"D","id":1}`, `[[-D 1  <nil>]]`},
		{"delete with row", "", `{"op":"d","id":1,"s":"z","x":null}`, `[[-D 1 z <nil>]]`},
		{"delete without key", "", `{"op":"-D","s":"z"}`, `column "id": key column is missing or null; the key is (id)`},
		{"null key", "", `{"id":null,"s":"z"}`, `column "id": key column is missing or null; the key is (id)`},
		{"missing key", "", `{"s":"z"}`, `column "id": key column is missing or null; the key is (id)`},
		{"not null", "", `{"id":1}`, `column "s": is missing or null, but the column is NOT NULL`},
		{"unknown op", "", `{"op":"x","id":1}`, `operation "x" is unknown; known are I, U, D, c, r, u, d, +I, -U, +U, -D (at byte 6 of the value)`},
		{"op of another type", "", `{"op":1}`, `the operation is not a string (at byte 6 of the value)`},
		{"op twice", "", `{"op":"I","op":"D","id":1}`, `the operation is given twice (at byte 15 of the value)`},
		{"tombstone", `{"id":7}`, "-", `[[-D 7  <nil>]]`},
		{"tombstone, bare key", `7`, "-", `[[-D 7  <nil>]]`},
		{"tombstone, bad key", `{"id":"x"}`, "-", `column "id": "x" is not a value of type BIGINT NOT NULL (at byte 6 of the key)`},
		{"tombstone, other key", `{"z":1}`, "-", `column "id": key column is missing or null; the key is (id)`},
		{"tombstone, no key", ``, "-", `the value is null (a tombstone) and there is no key that says which row to delete`},
		{"tombstone, text key", `abc`, "-", `column "id": malformed JSON: unexpected character (at byte 0 of the key)`},
		{"empty value", `{"id":7}`, "", `the value is empty (at byte 0 of the value)`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkDecode(t, keyed, c.key, c.value, c.want) })
	}
	appends := Config{Schema: schematest.Table(t, "", "id BIGINT")}
	checkDecode(t, appends, "", `{"op":"c","id":1}`, `[[+I 1]]`)
	checkDecode(t, appends, "", `{"op":"u","id":1}`, `the table has no primary key: it takes inserts only, not +U`)
	checkDecode(t, appends, "1", "-", `the value is null (a tombstone), but the table has no primary key`)
	opColumn := Config{Schema: schematest.Table(t, "", "op STRING")}
	checkDecode(t, opColumn, "", `{"op":"D"}`, `[[+I D]]`)
	opColumn.OpField = "__op"
	checkDecode(t, opColumn, "", `{"op":"D","__op":"I"}`, `[[+I D]]`)
	small := Config{Schema: schematest.Table(t, "", "id BIGINT"), MaxRecordBytes: 10}
	checkDecode(t, small, "", `{"id":   1}`, `the value has 11 bytes, more than the record size limit of 10`)
}

// checkDecode decodes one record with a good one before and after it.
func checkDecode(t *testing.T, cfg Config, key, value, want string) {
	t.Helper()
	d := newTestDecoder(t, cfg)
	r := Record{Topic: "t", Partition: 3, Offset: 41, Timestamp: 1500, Value: []byte(value)}
	if value == "-" {
		r.Value = nil
	}
	if key != "" {
		r.Key = []byte(key)
	}
	for range 2 { // the second time with what the first has taught
		err := d.Decode(&r)
		rows := rowsOf(d)
		got := fmt.Sprint(rows)
		if err != nil {
			got = err.Error()
			if rows != nil {
				t.Errorf("%s %s: refused, but left %v", key, value, rows)
			}
		}
		if got != want {
			t.Errorf("%s %s:\n got %s\nwant %s", key, value, got, want)
		}
	}
}

// TestRowsThatCannotBeMerged refuses records whose rows the table's merge engine cannot take, one by one: the table would
// refuse the batch, and after a restart the same batch again.
func TestRowsThatCannotBeMerged(t *testing.T) {
	cases := []struct {
		options string
		record  string
		want    string // reason; "": it is taken
	}{
		{"merge-engine=first-row", `{"k":1,"a":1,"n":1,"op":"-D"}`, `"ignore-delete"`},
		{"merge-engine=first-row;ignore-delete=true", `{"k":1,"a":1,"n":1,"op":"-D"}`, ""},
		{"merge-engine=first-row", `{"k":1,"a":1,"n":1,"op":"+U"}`, ""},
		{"merge-engine=aggregation", `{"k":1,"a":1,"n":1,"op":"-D"}`, `column "n" is NOT NULL`},
		{"merge-engine=aggregation", `{"k":1,"a":1,"n":1}`, ""},
		{"merge-engine=aggregation;fields.n.aggregate-function=sum;fields.a.aggregate-function=product", `{"k":1,"a":0,"n":1,"op":"-U"}`, "a 0 cannot be taken"},
		{"merge-engine=aggregation;fields.n.aggregate-function=sum;fields.a.aggregate-function=product", `{"k":1,"a":2,"n":1,"op":"-U"}`, ""},
		{"merge-engine=partial-update;fields.a.sequence-group=n", `{"k":1,"a":1,"n":1,"op":"-U"}`, `column "n" is NOT NULL`},
		{"merge-engine=partial-update;fields.a.sequence-group=n", `{"k":1,"a":null,"n":1,"op":"-U"}`, ""},
		{"merge-engine=partial-update;fields.a.sequence-group=n", `{"k":1,"a":null,"n":1}`, "its value does not count"},
		{"rowkind.field=s", `{"k":1,"n":1,"s":"I"}`, `"s"`},
		{"rowkind.field=s", `{"k":1,"n":1}`, "is null"},
		{"rowkind.field=s", `{"k":1,"n":1,"s":"-D"}`, ""},
		{"rowkind.field=s;merge-engine=first-row", `{"k":1,"n":1,"s":"-D"}`, `"ignore-delete"`},
	}
	for _, c := range cases {
		s := schematest.Table(t, "k", "k INT", "a INT", "n INT NOT NULL", "s STRING")
		for _, o := range strings.Split(c.options, ";") {
			name, value, _ := strings.Cut(o, "=")
			s.Options[name] = value
		}
		d := newTestDecoder(t, Config{Schema: s})
		good := `{"k":2,"a":1,"n":1,"s":"+I"}`
		var refused error
		for _, text := range []string{good, c.record, good} {
			if err := d.Decode(&Record{Value: []byte(text)}); err != nil && refused == nil && text == c.record {
				refused = err
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if (refused == nil) != (c.want == "") || refused != nil && (!errors.Is(refused, ErrRow) || !strings.Contains(refused.Error(), c.want)) {
			t.Errorf("%s: %s: error %v, want %q", c.options, c.record, refused, c.want)
		}
		want := 3
		if c.want != "" {
			want = 2
		}
		if rows := rowsOf(d); len(rows) != want {
			t.Errorf("%s: %s: rows %v", c.options, c.record, rows)
		}
	}
}

func TestEnvelope(t *testing.T) {
	cfg := Config{Schema: schematest.Table(t, "day,id", "id BIGINT", "st STRING", "day STRING"), Format: Debezium}
	cases := []struct{ name, value, want string }{
		{"create", `{"before":null,"after":{"id":1,"st":"new","day":"a"},"op":"c"}`, `[[+I 1 new a]]`},
		{"read", `{"after":{"id":1,"st":"new","day":"a"},"op":"r"}`, `[[+I 1 new a]]`},
		{"op first", `{"op":"c","after":{"id":1,"st":"new","day":"a"},"source":{"op":"x"}}`, `[[+I 1 new a]]`},
		{"update", `{"before":{"id":1,"st":"old","day":"a"},"after":{"id":1,"st":"new","day":"a"},"op":"u"}`, `[[+U 1 new a]]`},
		{"moved", `{"before":{"id":7,"st":"x","day":"11"},"after":{"id":7,"st":"y","day":"12"},"op":"u"}`, `[[+U 7 y 12] [-D 7 x 11]]`},
		{"moved, before last", `{"after":{"id":7,"st":"y","day":"12"},"op":"u","before":{"id":7,"st":"x","day":"11"}}`, `[[+U 7 y 12] [-D 7 x 11]]`},
		{"same key in other words", `{"before":{"id":7.0,"st":"x","day":"\u0031"},"after":{"id":7,"st":"y","day":"1"},"op":"u"}`, `[[+U 7 y 1]]`},
		{"key twice in before", `{"before":{"id":7,"id":7},"after":null,"op":"d"}`, `a key column occurs twice in before (at byte 23 of the value)`},
		{"update without before", `{"before":null,"after":{"id":7,"st":"y","day":"12"},"op":"u"}`, `[[+U 7 y 12]]`},
		{"update, key alone before", `{"before":{"id":7,"st":null,"day":null},"after":{"id":7,"st":"y","day":"12"},"op":"u"}`,
			`column "day": is missing or null in before, so the row that the update replaces is not known (at byte 10 of the value)`},
		{"delete", `{"before":{"id":7,"st":"x","day":"11"},"after":null,"op":"d"}`, `[[-D 7 x 11]]`},
		{"delete, key alone", `{"before":{"id":7,"st":null,"day":null},"after":null,"op":"d"}`, `column "day": key column is missing or null; the key is (day, id)`},
		{"delete without before", `{"before":null,"op":"d"}`, `a delete without the row before it`},
		{"payload", `{"schema":{"type":"struct","fields":[{"op":1}]},"payload":{"before":null,"after":{"id":1,"st":"new","day":"a"},"op":"c"}}`, `[[+I 1 new a]]`},
		{"payload without object", `{"payload":[]}`, `the payload is not an object (at byte 11 of the value)`},
		{"payload in payload", `{"payload":{"payload":{"op":"d"},"after":{"id":1,"st":"new","day":"a"},"op":"c"}}`, `[[+I 1 new a]]`},
		{"payload malformed", `{"payload":{"payload":[,"op":"c"}}`, `malformed JSON: unexpected character (at byte 23 of the value)`},
		{"no after", `{"before":null,"after":null,"op":"c"}`, `an insert or update without the row after it`},
		{"no envelope", `{"id":1,"st":"new","day":"a"}`, `the envelope has no op; is this json rather than debezium-json?`},
		{"truncate", `{"op":"t"}`, `[]`},
		{"message", `{"op":"m","message":{"prefix":"x"}}`, `[]`},
		{"unknown", `{"op":"x"}`, `operation "x" is unknown; known are c, r, u, d, t and m (at byte 6 of the value)`},
		{"bad after", `{"after":{"id":"x"},"op":"c"}`, `column "id": "x" is not a value of type BIGINT NOT NULL (at byte 15 of the value)`},
		{"bad before", `{"before":{"id":"x","day":"1"},"op":"d"}`, `column "id": "x" is not a value of type BIGINT NOT NULL (at byte 16 of the value)`},
		{"after is a number", `{"after":5,"op":"c"}`, `before and after must be objects or null (at byte 9 of the value)`},
		{"after twice", `{"after":null,"after":null,"op":"c"}`, `the envelope has before or after twice (at byte 22 of the value)`},
		{"tombstone", "-", "[]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkDecode(t, cfg, `{"id":1}`, c.value, c.want) })
	}
}

// TestEnvelopeKeyFromMetadata: a key column that is metadata needs not be in before.
func TestEnvelopeKeyFromMetadata(t *testing.T) {
	cfg := Config{Schema: schematest.Table(t, "id,part", "id BIGINT", "part INT"), Format: Debezium, Metadata: map[string]string{"part": "partition"}}
	checkDecode(t, cfg, "", `{"before":{"id":7},"after":{"id":7},"op":"u"}`, `[[+U 7 3]]`)
	checkDecode(t, cfg, "", `{"before":{"id":6},"after":{"id":7},"op":"u"}`, `[[+U 7 3] [-D 6 3]]`)
	checkDecode(t, cfg, "", `{"before":{"id":6},"op":"d"}`, `[[-D 6 3]]`)
}

func TestMetadataColumns(t *testing.T) {
	s := schematest.Table(t, "", "v INT", "top STRING", "part INT", "off BIGINT", "ts TIMESTAMP(6)", "ms BIGINT", "k STRING", "kb BYTES", "pl BIGINT")
	meta := map[string]string{"top": "topic", "part": "partition", "off": "offset", "ts": "timestamp", "ms": "timestamp", "k": "key", "kb": "key", "pl": "partition"}
	cfg := Config{Schema: s, Metadata: meta}
	// Fields of the record do not reach metadata columns.
	checkDecode(t, cfg, "key1", `{"v":1,"off":99,"top":"x"}`, `[[+I 1 t 3 41 1500000 1500 key1 [107 101 121 49] 3]]`)
	checkDecode(t, cfg, "", `{"v":1}`, `[[+I 1 t 3 41 1500000 1500 <nil> <nil> 3]]`)
	checkDecode(t, cfg, "\xff", `{"v":1}`, `column "k": the record's key is not valid UTF-8; use a BYTES column for it`)
	for _, bad := range []struct{ col, what, want string }{
		{"v", "offset", `metadata column "v": "offset" needs type BIGINT, not INT`},
		{"zz", "offset", `metadata column "zz" is not a column of the table`},
		{"off", "size", `metadata column "off": "size" is unknown; use topic, partition, offset, timestamp, key, row-hash or copies`},
	} {
		_, err := New(Config{Schema: s, Metadata: map[string]string{bad.col: bad.what}})
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v", bad.col, err)
		}
	}
}

func TestEpochUnits(t *testing.T) {
	s := schematest.Table(t, "", "a TIMESTAMP(3)", "b TIMESTAMP(6)", "c TIMESTAMP_LTZ(6)")
	cfg := Config{Schema: s, EpochUnit: Milliseconds, EpochUnits: map[string]EpochUnit{"c": Seconds}}
	checkDecode(t, cfg, "", `{"a":-1.5,"b":1690366967048.491,"c":1690366967.048491007}`, `[[+I -2 1690366967048491 1690366967048491]]`)
	cfg.EpochUnits = map[string]EpochUnit{"c": Nanoseconds}
	checkDecode(t, cfg, "", `{"a":null,"b":1,"c":-1}`, `[[+I <nil> 1000 -1]]`)
	cfg.EpochUnits = map[string]EpochUnit{"c": "minutes"}
	if _, err := New(cfg); err == nil {
		t.Error("unknown unit was taken")
	}
}

func TestDefaults(t *testing.T) {
	s := schematest.Table(t, "", "a INT", "b STRING", "c INT")
	five, x := "5", "x\"y"
	s.Fields[0].Default, s.Fields[1].Default = &five, &x
	checkDecode(t, Config{Schema: s}, "", `{"c":1}`, `[[+I 5 x"y 1]]`)
	checkDecode(t, Config{Schema: s}, "", `{"a":null,"b":"z"}`, `[[+I <nil> z <nil>]]`)
	s.Fields[2].Default = &x
	if _, err := New(Config{Schema: s}); err == nil || !strings.Contains(err.Error(), `column "c"`) {
		t.Errorf("a bad default: %v", err)
	}
}

// TestFieldNames: names are case-sensitive, may need escapes, come in any order, and a learned order can change.
func TestFieldNames(t *testing.T) {
	s := schematest.Table(t, "", "Id INT", "id INT", "b INT")
	s.Fields[2].Name = "a\"\\\tß"
	d := newTestDecoder(t, Config{Schema: s})
	for i, v := range []string{
		`{"Id":1,"id":2,"a\"\\\tß":3}`, `{"id":2,"Id":1,"a\"\\\u0009\u00df":3}`, `{"\u0049d":1,"ID":9,"id":2,"a\u0022\\\tß":3}`,
		`{"u1":0,"Id":1,"u2":0,"id":2,"u3":0,"a\"\\\tß":3,"u4":0}`, `{"u3":0,"Id":1,"u1":0,"id":2,"u2":0,"a\"\\\tß":3}`,
	} {
		if err := d.Decode(&Record{Value: []byte(v)}); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	for i := range 500 { // more unknown names than are remembered
		if err := d.Decode(&Record{Value: fmt.Appendf(nil, `{"Id":1,"x%d":[],"id":2,"y%d":{},"a\"\\\tß":3}`, i, i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range rowsOf(d) {
		if fmt.Sprint(r) != "[+I 1 2 3]" {
			t.Fatalf("row %d is %v", i, r)
		}
	}
	if d.row.learned > maxLearned {
		t.Fatalf("%d bytes of names remembered", d.row.learned)
	}
	// The raw form of that name stands in no valid JSON.
	if err := d.Decode(&Record{Value: []byte("{\"a\"\\\tß\":3}")}); err == nil {
		t.Fatal("malformed name taken")
	}
}

func TestNoAllocations(t *testing.T) {
	recs, _ := benchMessages(appendFlat)
	d := newTestDecoder(t, Config{Schema: benchSchema(), BatchRows: 1 << 20})
	decode := func() {
		for i := range 1000 {
			if err := d.Decode(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	decode()
	d.rows = 0 // the buffers stay
	n := testing.AllocsPerRun(5, func() { decode(); d.rows = 0 })
	if n != 0 {
		t.Fatalf("%v allocations for 1000 messages", n)
	}
}
