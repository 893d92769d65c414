package decode

import (
	"errors"
	"strings"
	"testing"
)

const pickProto = `syntax = "proto3"; package shop; import "google/protobuf/wrappers.proto"; import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto";
message Order { string who = 1; optional string may = 2; At at_place = 3; Kind kind = 4; oneof place { At first = 5; At second = 6; string other = 7; }
 sint32 s32 = 8; sint64 s64 = 9; int32 i32 = 10; int64 i64 = 11; uint32 u32 = 12; uint64 u64 = 13; fixed32 f32 = 14; fixed64 f64 = 15; sfixed32 sf32 = 16; sfixed64 sf64 = 17; bool yes = 18;
 google.protobuf.StringValue text = 19; google.protobuf.Int64Value number = 20; google.protobuf.BytesValue raws = 21; google.protobuf.Timestamp time = 22; google.protobuf.Struct tree = 23;
 bytes raw = 24; double d = 25; float f = 26; repeated string many = 27; map<string, string> pairs = 28; repeated At places = 29; }
message At { string who = 1; At up = 2; } enum Kind { NONE = 0; SOME = 1; }`

// TestPickProto: a field is found in a message as the decoder reads it: the last occurrence, the default of what is not there.
func TestPickProto(t *testing.T) {
	for _, c := range []struct{ path, json, want string }{
		{"who", `{"who":"w"}`, "w"}, {"who", `{}`, ""}, {"may", `{}`, noPick}, {"may", `{"may":""}`, ""}, {"may", `{"may":"x"}`, "x"},
		{"at_place.who", `{"atPlace":{"who":"x"}}`, "x"}, {"atPlace.who", `{"atPlace":{"who":"x"}}`, "x"}, {"at_place.who", `{"atPlace":{}}`, ""}, {"at_place.who", `{}`, noPick}, {"at_place.up.who", `{"atPlace":{"who":"x","up":{"who":"y"}}}`, "y"}, {"at_place.up.who", `{"atPlace":{"who":"x"}}`, noPick},
		{"kind", `{"kind":"SOME"}`, "SOME"}, {"kind", `{}`, "NONE"}, {"kind", `{"kind":7}`, "7"}, {"other", `{"other":"x"}`, "x"}, {"other", `{}`, noPick}, {"other", `{"first":{}}`, noPick}, {"second.who", `{"second":{"who":"z"}}`, "z"},
		{"s32", `{"s32":-2147483648}`, "-2147483648"}, {"s64", `{"s64":"-9223372036854775808"}`, "-9223372036854775808"}, {"i32", `{"i32":-5}`, "-5"}, {"i64", `{"i64":"-5"}`, "-5"}, {"u32", `{"u32":4294967295}`, "4294967295"}, {"u64", `{"u64":"18446744073709551615"}`, "18446744073709551615"},
		{"f32", `{"f32":4294967295}`, "4294967295"}, {"f64", `{"f64":"18446744073709551615"}`, "18446744073709551615"}, {"sf32", `{"sf32":-1}`, "-1"}, {"sf64", `{"sf64":"-1"}`, "-1"}, {"i64", `{}`, "0"}, {"yes", `{"yes":true}`, "true"}, {"yes", `{}`, "false"},
		{"text", `{"text":"x"}`, "x"}, {"text", `{"text":""}`, ""}, {"text", `{}`, noPick}, {"number", `{"number":"7"}`, "7"}, {"number", `{"number":"0"}`, "0"}, {"text.value", `{"text":"x"}`, "x"},
		{"raws", `{}`, "!type bytes"}, {"raw", `{"raw":""}`, "!the field \"raw\" is of the type bytes, which chooses no table"}, {"time", `{}`, "!google.protobuf.Timestamp"}, {"tree", `{}`, "!google.protobuf.Struct"}, {"d", `{}`, "!type double"}, {"f", `{}`, "!type float"},
		{"many", `{"many":["x"]}`, "!repeated string"}, {"pairs", `{}`, "!type map"}, {"at_place", `{}`, "!type shop.At"}, {"places.who", `{"places":[{"who":"x"}]}`, noPick}, {"pairs.x", `{"pairs":{"x":"y"}}`, noPick}, {"who.x", `{"who":"y"}`, noPick}, {"none", `{}`, noPick},
	} {
		p := pickerOf(t, Protobuf, c.path, ProtobufSchema, pickProto)
		r := &Record{Value: protoFramed(t, 1, pickProto, c.json)}
		for range 2 {
			checkPick(t, p, r, c.want)
			checkPick(t, p, &Record{Key: r.Value}, c.want)
		}
	}
}

// TestPickProtoTwice: occurrences that add up, and members of a oneof that replace each other, as in decoding.
func TestPickProtoTwice(t *testing.T) {
	for _, c := range []struct{ path, bytes, want string }{
		{"who", "\x0a\x01a\x0a\x01b", "b"}, {"at_place.who", "\x1a\x03\x0a\x01a\x1a\x00", "a"}, {"at_place.who", "\x1a\x03\x0a\x01a\x1a\x03\x0a\x01b", "b"}, {"at_place.up.who", "\x1a\x05\x12\x03\x0a\x01a\x1a\x02\x12\x00", "a"},
		{"first.who", "\x2a\x03\x0a\x01a", "a"}, {"first.who", "\x2a\x03\x0a\x01a\x32\x00", noPick}, {"first.who", "\x2a\x03\x0a\x01a\x3a\x01x", noPick}, {"first.who", "\x2a\x03\x0a\x01a\x32\x00\x2a\x00", ""}, {"other", "\x3a\x01x\x32\x00", noPick}, {"other", "\x32\x00\x3a\x01x", "x"},
		{"first.who", "\x2a\x03\x0a\x01a\x38\x01", "a"}, // another wire type than the schema says: as if it were not there
		{"who", "\x08\x01\x0a\x01a\x08\x01", "a"}, {"who", "\x7b\x0a\x01b\x7c", ""}, {"text", "\x9a\x01\x03\x0a\x01x\x9a\x01\x00", "x"}, {"who", "\x0a\x01\xff", "!UTF-8"}, {"who", "\x0a\x01", "!end too early"}, {"who", "\x0a\x01a\x0b", "!are no Protobuf (at byte 10"}, {"at_place.who", "\x1a\x02\x0a\x01", "!end too early"},
	} {
		checkPick(t, pickerOf(t, Protobuf, c.path, ProtobufSchema, pickProto), &Record{Value: append([]byte{0, 0, 0, 0, 1, 0}, c.bytes...)}, c.want)
	}
}

// TestPickProtoSchemas: messages of several schemas, defaults of proto2, and what cannot be read.
func TestPickProtoSchemas(t *testing.T) {
	other := `syntax = "proto2"; message A { optional int64 x = 1; message In { optional string who = 9 [default = "nobody"]; } } message B { oneof o { string who = 2 [default = "no"]; } optional group G = 3 { optional string who = 1; } }`
	p := pickerOf(t, Protobuf, "who", ProtobufSchema, pickProto, other, `message {`)
	p.Schemas.Refuse(7, "nobody knows it")
	for range 2 {
		for value, want := range map[string]string{
			"\x00\x00\x00\x00\x01\x00\x0a\x01a": "a", "\x00\x00\x00\x00\x01\x02\x02\x0a\x01b": "b", "\x00\x00\x00\x00\x01\x02\x00\x0a\x01c": "c", "\x00\x00\x00\x00\x02\x00": noPick, "\x00\x00\x00\x00\x02\x04\x00\x00\x4a\x01x": "x", "\x00\x00\x00\x00\x02\x04\x00\x00": "nobody", "\x00\x00\x00\x00\x02\x02\x02": noPick, "\x00\x00\x00\x00\x02\x02\x02\x12\x01y": "y",
			"\x00\x00\x00\x00\x02\x02\x08": "!schema id 2: the schema has no message at the place [4]", "\x00\x00\x00\x00\x03\x00": "!schema id 3: the schema is not valid", "\x00\x00\x00\x00\x07\x00": "!nobody knows it", "\x00\x00\x00\x00\x02\x01": "!which message of its schema", "\x00\x00\x00\x00\x02": "!which message", "": "!is empty", "x": "!begins with the byte 120",
		} {
			checkPick(t, p, &Record{Value: []byte(value)}, want)
			if value != "" {
				checkPick(t, p, &Record{Key: []byte(value)}, strings.Replace(want, "value", "key", 1))
			}
		}
	}
	checkPick(t, p, &Record{}, noPick)
	checkPick(t, pickerOf(t, Protobuf, "g.who", ProtobufSchema, other), &Record{Value: []byte("\x00\x00\x00\x00\x01\x02\x02\x1b\x0a\x01x\x1c")}, noPick)
	var missing *MissingSchema
	r := &Record{Value: []byte("\x00\x00\x00\x00\x09\x00\x0a\x01a")}
	if _, _, err := picked(t, p, r); !errors.As(err, &missing) || missing.ID != 9 || errors.Is(err, ErrRow) {
		t.Errorf("a schema that nobody has asked for: %v", err)
	}
	p.Schemas.Add(9, WriterSchema{Kind: ProtobufSchema, Text: pickProto})
	checkPick(t, p, r, "a")
}

func hostileProtoPickers(t testing.TB) (out []*Picker) {
	for _, path := range []string{"who", "at_place.up.up.who", "first.who", "kind", "f64", "text", "none"} {
		out = append(out, pickerOf(t, Protobuf, path, ProtobufSchema, pickProto))
	}
	return out
}

const hostileOrder = `{"who":"w","atPlace":{"up":{"up":{"who":"x"}}},"kind":"SOME","first":{"who":"z"},"f64":"9","text":"t","many":["a"],"pairs":{"a":"b"}}`

func protoAsDecoded(t testing.TB) (Decoder, map[string]*Picker) {
	d := protoDecoderOf(t, tableOf(t, "who STRING, may STRING, kind STRING, other STRING, s32 STRING, u64 STRING, f32 STRING, sf64 STRING, text STRING, number STRING, at_place ROW<who STRING, up ROW<who STRING>>, first ROW<who STRING>, second ROW<who STRING>"), pickProto)
	return d, pickersOf(t, Protobuf, ProtobufSchema, pickProto, "who", "may", "kind", "other", "s32", "u64", "f32", "sf64", "text", "number", "at_place.who", "at_place.up.who", "first.who", "second.who")
}

// TestPickProtoAsDecoded: a field is what the decoder reads, whatever the bytes are.
func TestPickProtoAsDecoded(t *testing.T) {
	d, pickers := protoAsDecoded(t)
	for _, v := range []string{`{}`, hostileOrder, `{"who":"w","may":"m","kind":7,"second":{"who":"s"},"s32":-5,"u64":"9","f32":7,"sf64":"-1","text":"t","number":"-3","atPlace":{"who":"a","up":{"who":"b"}}}`} {
		seed := protoFramed(t, 1, pickProto, v)
		for i := range seed {
			for c := range 256 {
				b := append([]byte(nil), seed...)
				b[i] = byte(c)
				asDecoded(t, d, pickers, b)
			}
		}
		asDecoded(t, d, pickers, append(seed, protoFramed(t, 1, pickProto, hostileOrder)[framing+1:]...)) // one more time
	}
}

// TestPickProtoHostile: no bytes make it fail otherwise than with an error.
func TestPickProtoHostile(t *testing.T) {
	pickers := hostileProtoPickers(t)
	seed := protoFramed(t, 1, pickProto, hostileOrder)
	for i := range seed {
		pickHostile(t, pickers, seed[:i])
		for _, c := range []byte{0, 1, 2, 0x0b, 0x7f, 0x80, 0xff} {
			b := append([]byte(nil), seed...)
			b[i] = c
			pickHostile(t, pickers, b)
		}
	}
	for path := range 300 { // what is remembered of messages that a schema does not have
		pickHostile(t, pickers, append(seed[:5:5], 2, byte(path)|0x80, byte(path>>8)))
	}
	for _, p := range pickers {
		if len(p.proto.plans) > 10 {
			t.Errorf("%d plans are kept", len(p.proto.plans))
		}
	}
}

func FuzzPickProto(f *testing.F) {
	f.Add(protoFramed(f, 1, pickProto, hostileOrder))
	pickers := hostileProtoPickers(f)
	d, same := protoAsDecoded(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		pickHostile(t, pickers, b)
		asDecoded(t, d, same, b)
	})
}

// TestPickProtoCosts: to find a field allocates nothing.
func TestPickProtoCosts(t *testing.T) {
	p := pickerOf(t, Protobuf, "at_place.up.up.who", ProtobufSchema, pickProto)
	buf, r := make([]byte, 0, 64), &Record{Value: protoFramed(t, 1, pickProto, hostileOrder)}
	if n := testing.AllocsPerRun(100, func() {
		if text, ok, err := p.Pick(buf[:0], r); string(text) != "x" || !ok || err != nil {
			t.Error(text, ok, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a record", n)
	}
}
