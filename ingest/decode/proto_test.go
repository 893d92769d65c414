package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/calve-io/calve/schema"
)

func protoDecoderOf(t testing.TB, s *schema.Schema, texts ...string) *protoDecoder {
	t.Helper()
	schemas := &Schemas{}
	for i, text := range texts {
		schemas.Add(i+1, WriterSchema{Kind: ProtobufSchema, Text: text})
	}
	d, err := New(Config{Schema: s, Format: Protobuf, Schemas: schemas})
	if err != nil {
		t.Fatal(err)
	}
	return d.(*protoDecoder)
}

// protoMessage gives a message of a schema from its JSON.
func protoMessage(t testing.TB, text, json string, path ...int) *dynamicpb.Message {
	t.Helper()
	f, err := parseProto(WriterSchema{Kind: ProtobufSchema, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	if len(path) == 0 {
		path = []int{0}
	}
	md, err := messageAt(f, path)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(md)
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(json, err)
	}
	return m
}

// protoFramed writes a message as the serializers of a registry do.
func protoFramed(t testing.TB, id int, text, json string, path ...int) []byte {
	t.Helper()
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(id))
	if len(path) == 0 {
		b = append(b, 0)
	} else {
		b = binary.AppendVarint(b, int64(len(path)))
		for _, k := range path {
			b = binary.AppendVarint(b, int64(k))
		}
	}
	out, err := proto.MarshalOptions{}.MarshalAppend(b, protoMessage(t, text, json, path...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const protoImports = `import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto"; import "google/protobuf/any.proto"; import "google/type/date.proto"; import "google/type/timeofday.proto"; import "confluent/type/decimal.proto"; import "confluent/meta.proto";
`

// TestProtoValues reads one value of a type into a column.
func TestProtoValues(t *testing.T) {
	const p2, p3 = "proto2", "proto3"
	for _, c := range []struct {
		syntax, field, json, column string
		want                        string // or what the error says
	}{
		{p3, "bool v = 2;", `{"v":true}`, "BOOLEAN", "true"}, {p3, "bool v = 2;", `{}`, "BOOLEAN", "false"}, {p3, "optional bool v = 2;", `{}`, "BOOLEAN", "null"}, {p3, "bool v = 2;", `{"v":true}`, "INT", "cannot be kept in type INT"},
		{p3, "int32 v = 2;", `{"v":-7}`, "INT", "-7"}, {p3, "int32 v = 2;", `{"v":-129}`, "TINYINT", "out of range"}, {p3, "int32 v = 2;", `{"v":-7}`, "BIGINT", "-7"}, {p3, "int32 v = 2;", `{"v":5}`, "DECIMAL(5, 2)", `"5.00"`}, {p3, "int32 v = 2;", `{"v":5}`, "STRING", `"5"`},
		{p3, "sint32 v = 2;", `{"v":-2147483648}`, "INT", "-2147483648"}, {p3, "sfixed32 v = 2;", `{"v":-5}`, "INT", "-5"}, {p3, "fixed32 v = 2;", `{"v":4294967295}`, "BIGINT", "4294967295"}, {p3, "uint32 v = 2;", `{"v":4294967295}`, "INT", "out of range"},
		{p3, "int64 v = 2;", `{"v":"-9223372036854775808"}`, "BIGINT", "-9223372036854775808"}, {p3, "sint64 v = 2;", `{"v":"-9223372036854775808"}`, "BIGINT", "-9223372036854775808"}, {p3, "sfixed64 v = 2;", `{"v":"-3"}`, "DECIMAL(20, 0)", `"-3"`},
		{p3, "uint64 v = 2;", `{"v":"18446744073709551615"}`, "DECIMAL(20, 0)", `"18446744073709551615"`}, {p3, "uint64 v = 2;", `{"v":"18446744073709551615"}`, "BIGINT", "out of range"}, {p3, "fixed64 v = 2;", `{"v":"18446744073709551615"}`, "STRING", `"18446744073709551615"`},
		{p3, "uint64 v = 2;", `{"v":"18446744073709551615"}`, "DOUBLE", `18446744073709552000`}, {p3, "uint64 v = 2;", `{"v":"7"}`, "BIGINT", "7"}, {p3, "uint64 v = 2;", `{"v":"18446744073709551615"}`, "TIMESTAMP(3)", "out of range"}, {p3, "int64 v = 2;", `{"v":"1500"}`, "TIMESTAMP(3)", `"1970-01-01T00:00:01.500"`},
		{p3, "float v = 2;", `{"v":0.1}`, "FLOAT", "0.1"}, {p3, "float v = 2;", `{"v":0.5}`, "DOUBLE", "0.5"}, {p3, "double v = 2;", `{"v":1e300}`, "FLOAT", "out of range"}, {p3, "double v = 2;", `{"v":0.1}`, "DECIMAL(3, 1)", "cannot be kept"},
		{p3, "string v = 2;", `{"v":"é"}`, "STRING", `"é"`}, {p3, "string v = 2;", `{}`, "STRING", `""`}, {p3, "optional string v = 2;", `{}`, "STRING", `null`}, {p3, "string v = 2;", `{"v":"ééé"}`, "VARCHAR(2)", "characters"}, {p3, "string v = 2;", `{"v":"12.50"}`, "DECIMAL(4, 2)", `"12.50"`}, {p3, "string v = 2;", `{"v":"x"}`, "INT", "not a value"},
		{p3, "bytes v = 2;", `{"v":"YQA="}`, "BYTES", `"YQA="`}, {p3, "bytes v = 2;", `{"v":"YWI="}`, "STRING", `"ab"`}, {p3, "bytes v = 2;", `{"v":"/w=="}`, "STRING", "UTF-8"}, {p3, "bytes v = 2;", `{"v":"YWI="}`, "BINARY(1)", "bytes"}, {p3, "bytes v = 2;", `{}`, "BYTES", `""`},
		{p3, "E v = 2; enum E { A = 0; B = 5; N = -1; }", `{"v":"B"}`, "STRING", `"B"`}, {p3, "E v = 2; enum E { A = 0; B = 5; }", `{}`, "STRING", `"A"`}, {p3, "E v = 2; enum E { A = 0; N = -1; }", `{"v":"N"}`, "STRING", `"N"`}, {p3, "E v = 2; enum E { A = 0; }", `{"v":7}`, "STRING", `"7"`},
		{p3, "E v = 2; enum E { option allow_alias = true; A = 0; B = 5; C = 5; }", `{"v":"C"}`, "STRING", `"B"`}, {p3, "E v = 2; enum E { A = 0; B = 500; }", `{"v":"B"}`, "STRING", `"B"`}, {p3, "E v = 2; enum E { A = 0; B = 5; }", `{"v":"B"}`, "INT", `5`}, {p3, "E v = 2; enum E { A = 0; B = 5; }", `{"v":"B"}`, "DATE", `cannot be kept`},
		{p2, "optional int32 v = 2;", `{}`, "INT", "null"}, {p2, "optional int32 v = 2 [default = -4];", `{}`, "INT", "-4"}, {p2, "optional sint64 v = 2 [default = -4];", `{}`, "BIGINT", "-4"}, {p2, `optional string v = 2 [default = "why"];`, `{}`, "STRING", `"why"`}, {p2, `optional bytes v = 2 [default = "a\000"];`, `{}`, "BYTES", `"YQA="`},
		{p2, "optional double v = 2 [default = 2.5];", `{}`, "DOUBLE", "2.5"}, {p2, "optional float v = 2 [default = 2.5];", `{}`, "FLOAT", "2.5"}, {p2, "optional bool v = 2 [default = true];", `{}`, "BOOLEAN", "true"}, {p2, "optional E v = 2 [default = B]; enum E { A = 0; B = 5; }", `{}`, "STRING", `"B"`}, {p2, "optional uint64 v = 2 [default = 18446744073709551615];", `{}`, "STRING", `"18446744073709551615"`},
		{p3, "oneof o { int32 v = 2; string w = 3; }", `{"w":"x"}`, "INT", "null"}, {p3, "oneof o { int32 v = 2; string w = 3; }", `{"v":0}`, "INT", "0"},
		{p3, "repeated int32 v = 2;", `{"v":[1,-2,3]}`, "ARRAY<INT>", "[1,-2,3]"}, {p3, "repeated int32 v = 2;", `{}`, "ARRAY<INT>", "[]"}, {p3, "repeated int32 v = 2;", `{"v":[1]}`, "INT", "repeated int32 cannot be kept"}, {p3, "repeated string v = 2;", `{"v":["1"]}`, "INT", "repeated string cannot be kept"}, {p3, "repeated string v = 2;", `{"v":["1","x"]}`, "ARRAY<INT>", `"v.element"`},
		{p2, "repeated double v = 2;", `{"v":[0.5,1]}`, "ARRAY<DOUBLE>", "[0.5,1]"}, {p3, "repeated M v = 2; message M { int32 a = 1; }", `{"v":[{"a":1},{}]}`, "ARRAY<ROW<a INT>>", `[{"a":1},{"a":0}]`}, {p3, "repeated google.protobuf.StringValue v = 2;", `{"v":["x",""]}`, "ARRAY<STRING>", `["x",""]`},
		{p3, "map<string, int64> v = 2;", `{"v":{"k":"1"}}`, "MAP<STRING NOT NULL, BIGINT>", `[["k",1]]`}, {p3, "map<int32, M> v = 2; message M { optional string a = 1; }", `{"v":{"7":{}}}`, "MAP<INT NOT NULL, ROW<a STRING>>", `[[7,{"a":null}]]`}, {p3, "map<bool, bytes> v = 2;", `{"v":{"true":"YQ=="}}`, "MAP<BOOLEAN NOT NULL, BYTES>", `[[true,"YQ=="]]`}, {p3, "map<string, int64> v = 2;", `{"v":{"k":"1"}}`, "STRING", `a map cannot be kept`},
		{p3, "map<string, string> v = 2;", `{}`, "MAP<STRING NOT NULL, STRING>", `[]`}, {p3, "map<int32, string> v = 2;", `{"v":{"0":""}}`, "MAP<STRING NOT NULL, STRING>", `[["0",""]]`},
		{p3, "M v = 2; message M { int32 b = 1; string x = 2; optional int64 a = 3; }", `{"v":{"b":1,"x":"no","a":"2"}}`, "ROW<a BIGINT, b INT, c INT>", `{"a":2,"b":1,"c":null}`}, {p3, "M v = 2; message M { int32 b = 1; }", `{}`, "ROW<b INT>", `null`}, {p3, "M v = 2; message M { int32 b = 1; }", `{"v":{}}`, "ROW<b INT>", `{"b":0}`},
		{p3, "M v = 2; message M { int32 b = 1; }", `{"v":{}}`, "ROW<b INT, c INT NOT NULL>", `"v.c": is missing or null`}, {p3, "M v = 2; message M { int32 b = 1; }", `{"v":{}}`, "INT", `M cannot be kept`}, {p3, "M v = 2; message M { int32 b = 1; M next = 2; }", `{"v":{"next":{"b":2,"next":{}}}}`, "ROW<b INT, next ROW<b INT>>", `{"b":0,"next":{"b":2}}`},
		{p3, "google.protobuf.Timestamp v = 2;", `{"v":"2024-02-29T23:59:58.123456789Z"}`, "TIMESTAMP(6)", `"2024-02-29T23:59:58.123456"`}, {p3, "google.protobuf.Timestamp v = 2;", `{"v":"1900-02-28T23:59:58.123456789Z"}`, "TIMESTAMP(9)", `"1900-02-28T23:59:58.123456789"`}, {p3, "google.protobuf.Timestamp v = 2;", `{"v":"0001-01-01T00:00:00Z"}`, "TIMESTAMP(9)", `out of range`},
		{p3, "google.protobuf.Timestamp v = 2;", `{"v":"0001-01-01T00:00:00Z"}`, "STRING", `"0001-01-01T00:00:00.000000000Z"`}, {p3, "google.protobuf.Timestamp v = 2;", `{}`, "TIMESTAMP(3)", `null`}, {p3, "google.protobuf.Timestamp v = 2;", `{"v":"1969-12-31T23:59:59Z"}`, "ROW<seconds BIGINT, nanos INT>", `{"seconds":-1,"nanos":0}`}, {p3, "google.protobuf.Timestamp v = 2;", `{}`, "BIGINT", `null`},
		{p3, "google.protobuf.Timestamp v = 2;", `{"v":"1969-12-31T23:59:59Z"}`, "BIGINT", "Timestamp cannot be kept"}, {p3, "google.protobuf.Timestamp v = 2;", `{"v":"9999-12-31T23:59:59.999Z"}`, "STRING", `"9999-12-31T23:59:59.999000000Z"`},
		{p3, "google.protobuf.Duration v = 2;", `{"v":"-1.000000001s"}`, "DECIMAL(21, 9)", `"-1.000000001"`}, {p3, "google.protobuf.Duration v = 2;", `{"v":"315576000000s"}`, "DECIMAL(21, 9)", `"315576000000.000000000"`}, {p3, "google.protobuf.Duration v = 2;", `{"v":"-0.5s"}`, "STRING", `"-0.500000000s"`}, {p3, "google.protobuf.Duration v = 2;", `{"v":"2s"}`, "BIGINT", `2`}, {p3, "google.protobuf.Duration v = 2;", `{"v":"0.5s"}`, "DOUBLE", `0.5`},
		{p3, "google.protobuf.StringValue v = 2;", `{"v":""}`, "STRING", `""`}, {p3, "google.protobuf.StringValue v = 2;", `{}`, "STRING", `null`}, {p3, "google.protobuf.BoolValue v = 2;", `{"v":false}`, "BOOLEAN", `false`}, {p3, "google.protobuf.UInt64Value v = 2;", `{"v":"18446744073709551615"}`, "DECIMAL(20, 0)", `"18446744073709551615"`}, {p3, "google.protobuf.DoubleValue v = 2;", `{"v":1.5}`, "DOUBLE", `1.5`},
		{p3, "google.protobuf.Struct v = 2;", `{"v":{"a":[1,"x\n\"",null,true,1e30,{}]}}`, "STRING", `"{\"a\":[1,\"x\\u000a\\\"\",null,true,1e+30,{}]}"`}, {p3, "google.protobuf.Value v = 2;", `{"v":null}`, "STRING", `"null"`}, {p3, "google.protobuf.ListValue v = 2;", `{"v":[[],{}]}`, "STRING", `"[[],{}]"`}, {p3, "google.protobuf.Struct v = 2;", `{"v":{}}`, "BYTES", `Struct cannot be kept`},
		{p3, "google.type.Date v = 2;", `{"v":{"year":2024,"month":2,"day":29}}`, "DATE", `"2024-02-29"`}, {p3, "google.type.Date v = 2;", `{"v":{"year":2024,"month":2,"day":30}}`, "DATE", `no date`}, {p3, "google.type.Date v = 2;", `{"v":{"year":2024}}`, "DATE", `no date`}, {p3, "google.type.Date v = 2;", `{"v":{"year":2024,"month":12,"day":9}}`, "STRING", `"2024-12-09"`},
		{p3, "google.type.TimeOfDay v = 2;", `{"v":{"hours":23,"minutes":59,"seconds":1,"nanos":5000000}}`, "TIME(3)", `"23:59:01.005"`}, {p3, "google.type.TimeOfDay v = 2;", `{"v":{"hours":24}}`, "TIME(3)", `no time`}, {p3, "google.type.TimeOfDay v = 2;", `{"v":{"nanos":1}}`, "STRING", `"00:00:00.000000001"`},
		{p3, "confluent.type.Decimal v = 2;", `{"v":{"value":"z8c=","scale":2}}`, "DECIMAL(10, 2)", `"-123.45"`}, {p3, "confluent.type.Decimal v = 2;", `{"v":{"value":"z8c=","scale":2}}`, "STRING", `"-123.45"`}, {p3, "confluent.type.Decimal v = 2;", `{"v":{"value":"z8c=","scale":2}}`, "BIGINT", `whole`}, {p3, "confluent.type.Decimal v = 2;", `{"v":{}}`, "DECIMAL(10, 2)", `no bytes`}, {p3, "confluent.type.Decimal v = 2;", `{"v":{"value":"AQ==","scale":100000}}`, "STRING", `scale 100000`},
		{p2, "optional group V = 2 { optional int32 a = 1; }", `{"v":{"a":1}}`, "ROW<a INT>", "null"}, {p3, "google.protobuf.Any v = 2;", `{"v":{"@type":"type.googleapis.com/google.protobuf.Empty","value":{}}}`, "ROW<type_url STRING>", `{"type_url":"type.googleapis.com/google.protobuf.Empty"}`},
	} {
		text := fmt.Sprintf("syntax = %q; package t; %s message Top { %s %s int32 n = 1; %s }", c.syntax, protoImports, map[string]string{p2: "optional"}[c.syntax], "", c.field)
		d := protoDecoderOf(t, tableOf(t, "n INT, v "+c.column), text)
		name := c.field + " " + c.json + " in " + c.column
		good := protoFramed(t, 1, text, c.json)
		err := d.Decode(&Record{Value: good})
		got := fmt.Sprint(err)
		if err == nil {
			for i := len(good) - 1; i > framing+1; i-- { // half a record may be one, or not
				before := d.Rows()
				if err := d.Decode(&Record{Value: good[:i]}); err != nil && (!errors.Is(err, ErrRow) || d.Rows() != before) {
					t.Errorf("%s: %d bytes: %v", name, i, err)
				}
			}
			if err := d.Decode(&Record{Value: good}); err != nil {
				t.Errorf("%s: again: %v", name, err)
			}
			lines := linesOf(d)
			if lines[0] != lines[len(lines)-1] {
				t.Errorf("%s: rows %q", name, lines)
			}
			got = strings.TrimSuffix(lines[0][strings.Index(lines[0], `"v":`)+4:], "}")
		}
		if err != nil && (!errors.Is(err, ErrRow) || !strings.Contains(got, c.want)) || err == nil && got != c.want {
			t.Errorf("%s: gives %s, want %s", name, got, c.want)
		}
	}
}

// TestProtoOptionalWins: a field that occurs twice, and a oneof of which several members are there.
func TestProtoOptionalWins(t *testing.T) {
	text := `syntax = "proto3"; message T { oneof o { int32 a = 1; string b = 2; M c = 3; int32 gone = 9; } M m = 4; repeated int32 l = 5; message M { int32 x = 1; optional string y = 2; repeated int32 z = 3; } }`
	d := protoDecoderOf(t, tableOf(t, "a INT, b STRING, c ROW<x INT, y STRING, z ARRAY<INT>>, m ROW<x INT, y STRING, z ARRAY<INT>>, l ARRAY<INT>"), text)
	for _, c := range []struct{ bytes, want string }{
		{"\x08\x01\x12\x01b", `{"a":null,"b":"b","c":null,"m":null,"l":[]}`},
		{"\x12\x01b\x08\x01", `{"a":1,"b":null,"c":null,"m":null,"l":[]}`},
		{"\x08\x01\x48\x05", `{"a":null,"b":null,"c":null,"m":null,"l":[]}`},
		{"\x1a\x04\x08\x05\x18\x01\x08\x01\x1a\x02\x18\x02", `{"a":null,"b":null,"c":{"x":0,"y":null,"z":[2]},"m":null,"l":[]}`},
		{"\x22\x02\x08\x05\x28\x01\x22\x05\x12\x01y\x18\x07\x2a\x02\x02\x03\x22\x03\x1a\x01\x08\x28\x04", `{"a":null,"b":null,"c":null,"m":{"x":5,"y":"y","z":[7,8]},"l":[1,2,3,4]}`},
		{"\x08\x01\x08\x02\x0a\x01x\x15abcd\x7b\x08\x01\x7c", `{"a":2,"b":null,"c":null,"m":null,"l":[]}`}, // other wire types, and a group
	} {
		if err := d.Decode(&Record{Value: append([]byte{0, 0, 0, 0, 1, 0}, c.bytes...)}); err != nil {
			t.Errorf("%q: %v", c.bytes, err)
			continue
		}
		if got := linesOf(d); len(got) != 1 || got[0] != "+I"+c.want {
			t.Errorf("%q: %s, want %s", c.bytes, got, c.want)
		}
	}
	for _, bad := range []string{"\x08", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "\x12\x05b", "\x00\x01", "\x0b", "\x0b\x14", "\x0c", "\x0e\x01", "\x22\x01\x08", "\x2a\x01\xff", strings.Repeat("\x7b", 200) + strings.Repeat("\x7c", 200), "\xff\xff\xff\xff\xff\x01\x01"} {
		if code := codeOf(t, d.Decode(&Record{Value: append([]byte{0, 0, 0, 0, 1, 0}, bad...)})); code != Malformed {
			t.Errorf("%q: %q, %s", bad, code, linesOf(d))
		}
	}
}

// TestProtoFraming: what precedes the bytes, row kinds, and deletes by key.
func TestProtoFraming(t *testing.T) {
	row := `syntax = "proto3"; message Other { int32 z = 1; } message T { string op = 1; int32 id = 2; string v = 3; map<string, string> ignored = 4; message In { message Deep { int64 id = 1; } } enum Op { NONE_UNSPECIFIED = 0; d = 1; } message Kind { Op op = 1; int64 id = 2; } }`
	key := `syntax = "proto3"; message K { int64 id = 1; }`
	d := protoDecoderOf(t, tableOf(t, "id BIGINT, v STRING", "id"), row, key, `syntax = "proto3"; message`, `syntax = "proto3"; import "gone.proto"; message X { gone.Y y = 1; }`)
	d.schemas.Refuse(8, "nobody knows it")
	d.schemas.Add(9, WriterSchema{Kind: AvroSchema, Text: `"int"`})
	value := func(json string) []byte { return protoFramed(t, 1, row, json, 1) }
	for _, c := range []struct {
		key, value []byte
		want       string
	}{
		{nil, value(`{"id":1,"v":"x"}`), `+I{"id":1,"v":"x"}`}, {nil, value(`{"op":"u","id":1,"v":"x"}`), `+U{"id":1,"v":"x"}`}, {nil, value(`{"op":"d","id":1}`), `-D{"id":1,"v":""}`}, {nil, value(`{"op":"?"}`), `operation "?" is unknown`},
		{nil, protoFramed(t, 1, row, `{"op":"d","id":"4"}`, 1, 1), `-D{"id":4,"v":null}`}, {nil, protoFramed(t, 1, row, `{"id":"4"}`, 1, 1), `+I{"id":4,"v":null}`}, {nil, protoFramed(t, 1, row, `{"id":"5"}`, 1, 0, 0), `+I{"id":5,"v":null}`},
		{protoFramed(t, 2, key, `{"id":"4"}`), nil, `-D{"id":4,"v":null}`}, {protoFramed(t, 2, key, `{}`), nil, `-D{"id":0,"v":null}`}, {nil, nil, "no key"}, {[]byte("text"), nil, "byte 0 of the key"}, {protoFramed(t, 1, row, `{}`), nil, "missing or null"},
		{nil, []byte{}, "is empty"}, {nil, []byte{1, 0, 0, 0, 1}, "byte 1"}, {nil, []byte{0, 0, 0}, "ends within"}, {nil, []byte{0, 0, 0, 0, 1}, "which message"}, {nil, []byte{0, 0, 0, 0, 1, 2}, "which message"}, {nil, []byte{0, 0, 0, 0, 1, 1}, "which message"}, {nil, []byte{0, 0, 0, 0, 1, 2, 1}, "which message"},
		{nil, append([]byte{0, 0, 0, 0, 1}, binary.AppendVarint(nil, 1<<40)...), "which message"}, {nil, []byte{0, 0, 0, 0, 1, 2, 8}, "no message at the place [4]"}, {nil, []byte{0, 0, 0, 0, 1, 4, 2, 4}, "no message at the place [1 2]"},
		{nil, []byte{0, 0, 0, 0, 3, 0}, "not valid"}, {nil, []byte{0, 0, 0, 0, 4, 0}, `"gone.proto"`}, {nil, []byte{0, 0, 0, 0, 8, 0}, "nobody knows it"}, {nil, []byte{0, 0, 0, 0, 9, 0}, "of kind AVRO"}, {nil, []byte{0, 0, 0, 0, 10, 0}, "schema of id 10 is not known yet"},
		{nil, value(`{"id":1,"v":"x"}`), `+I{"id":1,"v":"x"}`},
	} {
		err := d.Decode(&Record{Key: c.key, Value: c.value})
		got := fmt.Sprint(linesOf(d), err)
		if !strings.Contains(got, c.want) {
			t.Errorf("%q %q: %s, want %s", c.key, c.value, got, c.want)
		}
		var missing *MissingSchema
		if errors.As(err, &missing) == errors.Is(err, ErrRow) && err != nil {
			t.Errorf("%v is of no kind, or of both", err)
		}
	}
}

// TestProtoEvolution: fields of the writer's schema become columns by the pipeline's policy, before any of its values; a
// field that was renamed is known by its number.
func TestProtoEvolution(t *testing.T) {
	text := `syntax = "proto3"; message T { int64 id = 1; string more = 2; R r = 3; Empty none = 4; message R { int32 a = 1; double b = 2; } message Empty {} }`
	self := `syntax = "proto3"; message T { int64 id = 1; Node node = 2; message Node { Node next = 1; } }`
	wide := `syntax = "proto3"; message T { int64 id = 1; int64 n = 2; }`
	twice := `syntax = "proto3"; message T { int64 id = 1; int64 ID = 2; }`
	values := [][]byte{protoFramed(t, 1, text, `{"id":1}`), protoFramed(t, 2, self, `{"id":1}`), protoFramed(t, 3, wide, `{"id":1,"n":"1099511627776"}`), protoFramed(t, 4, twice, `{"id":1}`)}
	for policy, want := range map[Evolution][4]string{
		Freeze:  {`+I{"id":1,"r":null,"n":null}`, `+I{"id":1,"r":null,"n":null}`, "out of range", `+I{"id":1,"r":null,"n":null}`},
		Strict:  {`field "more": there is no such column`, `field "node": there is no such column`, "out of range", "no such column"},
		AddOnly: {"needs another schema: add more STRING; add r.b DOUBLE", `contains itself`, "out of range", "in case alone"},
		Evolve:  {"needs another schema: add more STRING; add r.b DOUBLE", `contains itself`, "change n to BIGINT", "in case alone"},
	} {
		d := protoDecoderOf(t, tableOf(t, "id BIGINT, r ROW<a INT>, n INT"), text, self, wide, twice)
		d.cfg.Evolution = policy
		for i, v := range values {
			err := d.Decode(&Record{Value: v})
			if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, want[i]) {
				t.Errorf("%s, schema %d: %s, want %s", policy, i+1, got, want[i])
			}
		}
	}
	was := `syntax = "proto3"; message T { int64 was = 1; R r = 2; message R { int32 a0 = 7; } }`
	d := protoDecoderOf(t, tableOf(t, "now BIGINT, r ROW<a INT>"), was)
	d.cfg.Evolution = Evolve
	d.schemas.SetReader(WriterSchema{Kind: ProtobufSchema, Text: `syntax = "proto3"; message T { int64 now = 1; R r = 2; message R { int32 a = 7; } }`})
	if err := d.Decode(&Record{Value: protoFramed(t, 1, was, `{"was":"3","r":{"a0":4}}`)}); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(linesOf(d)); got != `[+I{"now":3,"r":{"a":4}}]` {
		t.Error(got)
	}
}

// TestColumnsOfProtobuf maps a schema, and what it refers to.
func TestColumnsOfProtobuf(t *testing.T) {
	text := `syntax = "proto3"; package t; ` + protoImports + `import "other.proto"; message Top { bool a = 1; int32 b = 2; uint32 c = 3; fixed64 d = 4; float e = 5; double f = 6; string g = 7; bytes h = 8; E i = 9; enum E { X = 0; }
	google.protobuf.Timestamp j = 10; google.protobuf.Duration k = 11; google.protobuf.Int32Value l = 12; google.protobuf.Struct m = 13; google.type.Date n = 14; google.type.TimeOfDay o = 15; confluent.type.Decimal p = 16;
	confluent.type.Decimal q = 17 [(confluent.field_meta) = { params: [{key: "precision", value: "12"}, {key: "scale", value: "3"}] }]; repeated string r = 18; map<int32, sub.M> s = 19; sub.M u = 20; google.protobuf.Empty v = 21; repeated sub.M w = 22;
	oneof x { string y = 23; int64 z = 24; } optional sint64 aa = 25; }`
	w := WriterSchema{Kind: ProtobufSchema, Text: text, References: []SchemaFile{{"other.proto", `syntax = "proto2"; package sub; message M { required int32 a = 1; optional N n = 2; message N { } optional group G = 3 { } }`}}}
	cols, err := ColumnsOfProtobuf(w, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cols {
		got = append(got, c.Name+" "+c.Type.String())
	}
	want := "a BOOLEAN, b INT, c BIGINT, d DECIMAL(20, 0), e FLOAT, f DOUBLE, g STRING, h BYTES, i STRING, j TIMESTAMP(6) WITH LOCAL TIME ZONE, k DECIMAL(21, 9), l INT, m STRING, n DATE, o TIME(3), p STRING, q DECIMAL(12, 3), r ARRAY<STRING>, s MAP<INT NOT NULL, ROW<`a` INT>>, u ROW<`a` INT>, w ARRAY<ROW<`a` INT>>, y STRING, z BIGINT, aa BIGINT"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("%s\nwant\n%s", s, want)
	}
	for text, want := range map[string]string{
		`syntax = "proto3";`: "no message", `x`: "not valid", `syntax = "proto3"; message T { U u = 1; message U { repeated V v = 1; } message V { U u = 1; } }`: `"u.v.u": the message T.U contains itself`,
		`syntax = "proto3"; ` + strings.Repeat("message M {", 300) + strings.Repeat("}", 300): "braces", strings.Repeat(" ", maxProtoText+1): "bytes, more than",
	} {
		if _, err := ColumnsOfProtobuf(WriterSchema{Kind: ProtobufSchema, Text: text}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	var b strings.Builder // types that double with every level
	b.WriteString(`syntax = "proto3"; message T { M39 m = 1; } message M0 { int32 x = 1; }`)
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, ` message M%d { M%d a = 1; M%d b = 2; }`, i, i-1, i-1)
	}
	if _, err := ColumnsOfProtobuf(WriterSchema{Kind: ProtobufSchema, Text: b.String()}, ""); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("doubling types: %v", err)
	}
}

const benchProto = `syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "confluent/type/decimal.proto"; message T { int64 id = 1; optional int64 lsn = 2; int32 kind = 3; string email = 4; string product = 5; double score = 6;
google.protobuf.Timestamp created_at = 7; confluent.type.Decimal amount = 8; int32 qty = 9; bool active = 10; }`

// benchProtoMessages are the rows of BenchmarkDecodeFlat as Protobuf.
func benchProtoMessages(t testing.TB) ([]Record, int64) {
	recs, _ := benchMessages(appendFlat)
	d := newTestDecoder(t, Config{Schema: benchSchema(), BatchRows: 1 << 20})
	for i := range recs {
		if err := d.Decode(&recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	md := protoMessage(t, benchProto, `{}`).Descriptor()
	total := int64(0)
	for i, row := range rowsOf(d) {
		m := dynamicpb.NewMessage(md)
		for c, f := range benchFields {
			fd, v := md.Fields().ByName(protoreflect.Name(f.Name)), row[1:][c]
			switch {
			case v == nil || fd == nil:
			case f.Name == "created_at":
				x := m.Mutable(fd).Message()
				x.Set(x.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfInt64(1750000000+int64(i)))
				x.Set(x.Descriptor().Fields().ByNumber(2), protoreflect.ValueOfInt32(123456000))
			case f.Name == "amount":
				x := m.Mutable(fd).Message()
				x.Set(x.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfBytes([]byte{byte(i >> 8 & 0x7f), byte(i)}))
				x.Set(x.Descriptor().Fields().ByNumber(3), protoreflect.ValueOfInt32(2))
			default:
				m.Set(fd, protoreflect.ValueOf(v))
			}
		}
		b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{0, 0, 0, 0, 1, 0}, m)
		if err != nil {
			t.Fatal(err)
		}
		recs[i].Value = b
		total += int64(len(b))
	}
	return recs, total
}

func BenchmarkDecodeProtobuf(b *testing.B) {
	recs, total := benchProtoMessages(b)
	d := protoDecoderOf(b, benchSchema(), benchProto)
	b.SetBytes(total)
	b.ReportAllocs()
	for b.Loop() {
		for i := range recs {
			if err := d.Decode(&recs[i]); err != nil {
				b.Fatal(err)
			}
			if d.Full() {
				d.Take()
			}
		}
	}
	b.ReportMetric(float64(len(recs)*b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}

func TestProtoNoAllocations(t *testing.T) {
	recs, _ := benchProtoMessages(t)
	d := protoDecoderOf(t, benchSchema(), benchProto)
	d.cfg.BatchRows = 1 << 20
	decode := func() {
		for i := range 1000 {
			if err := d.Decode(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	decode()
	d.rows = 0 // the buffers stay
	if n := testing.AllocsPerRun(5, func() { decode(); d.rows = 0 }); n != 0 {
		t.Fatalf("%v allocations for 1000 messages", n)
	}
}

// TestProtoPlans: one message of one schema has one plan, however records write its place, and places without message none.
func TestProtoPlans(t *testing.T) {
	d := protoDecoderOf(t, tableOf(t, "x INT"), `syntax = "proto3"; message A { message B { message C { int32 x = 1; } C c = 1; } B b = 1; }`)
	long := func(v byte, n int) []byte { // the number v in n bytes
		b := []byte{v}
		for i := 1; i < n; i++ {
			b[i-1] |= 0x80
			b = append(b, 0)
		}
		return b
	}
	rows := 0
	for i := range 4 * 4 * 4 {
		r := append([]byte{0, 0, 0, 0, 1}, long(6, 1+i%4)...)
		r = append(append(append(append(r, long(0, 1+i/4%4)...), long(0, 1+i/16)...), 0), 8, 5)
		if err := d.Decode(&Record{Value: r}); err != nil {
			t.Fatal(err)
		}
		rows++
		if err := d.Decode(&Record{Value: append([]byte{0, 0, 0, 0, 1, 2}, long(2+2*byte(i), 1)...)}); !errors.Is(err, ErrRow) {
			t.Fatal(err)
		}
	}
	for _, first := range []string{"\x00", "\x02\x00", "\x80\x00"} {
		if err := d.Decode(&Record{Value: []byte("\x00\x00\x00\x00\x01" + first)}); err != nil {
			t.Fatal(err)
		}
		rows++
	}
	if lines := linesOf(d); len(lines) != rows || lines[0] != `+I{"x":5}` || len(d.values) != 2 || d.nodes == 0 {
		t.Errorf("%d plans of %d nodes, rows %v", len(d.values), d.nodes, lines)
	}
}
