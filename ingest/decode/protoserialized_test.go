package decode

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// serialized gives a schema, and those it refers to, as clients for Python register them.
func serialized(t testing.TB, w WriterSchema) WriterSchema {
	t.Helper()
	f, err := parseProto(w)
	if err != nil {
		t.Fatal(err)
	}
	out := WriterSchema{Kind: w.Kind, Text: inBase64(t, bareNames(protodesc.ToFileDescriptorProto(f)))}
	for i, r := range w.References {
		r.Text = serialized(t, WriterSchema{Kind: w.Kind, Text: r.Text, References: w.References[:i]}).Text
		out.References = append(out.References, r)
	}
	return out
}

// bareNames takes the names for JSON away, as in what is compiled into programs.
func bareNames(f *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	var strip func(messages []*descriptorpb.DescriptorProto)
	strip = func(messages []*descriptorpb.DescriptorProto) {
		for _, m := range messages {
			for _, field := range m.Field {
				field.JsonName = nil
			}
			strip(m.NestedType)
		}
	}
	strip(f.MessageType)
	return f
}

func inBase64(t testing.TB, f *descriptorpb.FileDescriptorProto) string {
	t.Helper()
	data, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(data)
}

// TestProtoSerialized: a schema that is registered as a serialized descriptor says what its text does.
func TestProtoSerialized(t *testing.T) {
	schemas := []WriterSchema{
		{Text: `syntax = "proto3"; package a; import "b.proto"; message M { b.P place = 1; optional int32 n = 2; map<string, b.P> all = 3; }`,
			References: []SchemaFile{{Name: "b.proto", Text: `syntax = "proto2"; package b; message P { optional string city = 1 [default = "Nuuk"]; }`}}},
		{Text: `syntax = "proto3"; ` + protoImports + ` message M { google.protobuf.Timestamp at = 1; oneof o { google.type.Date day = 2; confluent.type.Decimal d = 3; } repeated int64 r = 4; E e = 5; enum E { X = 0; Y = 7; } }`},
	}
	for _, text := range oracleProtos {
		schemas = append(schemas, WriterSchema{Text: text})
	}
	for _, w := range schemas {
		w.Kind = ProtobufSchema
		want, err := ColumnsOfProtobuf(w, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := ColumnsOfProtobuf(serialized(t, w), "")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: columns %v, of the text %v: %v", w.Text, got, want, err)
		}
	}
}

// TestProtoSerializedBad: what is no descriptor is an error that says so.
func TestProtoSerializedBad(t *testing.T) {
	deep := &descriptorpb.DescriptorProto{Name: proto.String("M")}
	for range 2 * maxProtoDepth {
		deep = &descriptorpb.DescriptorProto{Name: proto.String("M"), NestedType: []*descriptorpb.DescriptorProto{deep}}
	}
	file := func(m ...*descriptorpb.DescriptorProto) string {
		return inBase64(t, &descriptorpb.FileDescriptorProto{Syntax: proto.String("proto3"), MessageType: m})
	}
	field := func(name, of string, number int32) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, TypeName: &of, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()}
	}
	for text, want := range map[string]string{
		"AAAA":                                "neither text nor a serialized descriptor",
		file(deep):                            "neither text nor a serialized descriptor",
		file(&descriptorpb.DescriptorProto{}): "not valid",
		file(&descriptorpb.DescriptorProto{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{field("a", ".M", 0)}}):                      "not valid",
		file(&descriptorpb.DescriptorProto{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{field("a", ".M", 1), field("b", ".M", 1)}}): "not valid",
		file(&descriptorpb.DescriptorProto{Name: proto.String("M"), Field: []*descriptorpb.FieldDescriptorProto{field("a", ".absent", 1)}}):                 "not valid",
		inBase64(t, &descriptorpb.FileDescriptorProto{Syntax: proto.String("proto3"), Dependency: []string{"gone.proto"}}):                                  `"gone.proto"`,
		inBase64(t, &descriptorpb.FileDescriptorProto{Syntax: proto.String("proto9")}):                                                                      "not valid",
	} {
		if _, err := ColumnsOfProtobuf(WriterSchema{Kind: ProtobufSchema, Text: text}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// TestProtoMessageNamed: the row need not be the schema's first message.
func TestProtoMessageNamed(t *testing.T) {
	w := WriterSchema{Kind: ProtobufSchema, Text: `syntax = "proto3"; package a.b; message First { int32 x = 1; } message Row { string y = 1; message In { bool z = 1; } }`}
	for name, want := range map[string]string{"": "x", "First": "x", "Row": "y", "a.b.Row": "y", "Row.In": "z", "a.b.Row.In": "z", "In": "", "b.Row": "", "Row.": "", "a.b.": ""} {
		cols, err := ColumnsOfProtobuf(w, name)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "no message") {
				t.Errorf("%q: %v, %v", name, cols, err)
			}
			continue
		}
		if err != nil || len(cols) != 1 || cols[0].Name != want {
			t.Errorf("%q: %v, %v, want %s", name, cols, err, want)
		}
	}
}
