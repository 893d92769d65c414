package decode

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/calve-io/calve/schema"
)

// Bounds of schemas; real ones stay far below.
const (
	maxProtoText  = 4 << 20
	maxProtoBytes = 1 << 20 // of a serialized one, which has far less text in a byte
	maxProtoDepth = 200     // of braces
)

// protoFile is the name of the schema that is compiled, which registries do not tell.
const protoFile = "calve-schema.proto"

// builtinProtos are the files that the serializers of Confluent's registry know and do not register: facts of
// confluent/meta.proto and confluent/type/decimal.proto, and of those of google/type that Kafka Connect uses. Those of
// google/protobuf come with the compiler.
var builtinProtos = map[string]string{
	"confluent/meta.proto": `syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }`,
	"confluent/type/decimal.proto": `syntax = "proto3"; package confluent.type; message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }`,
	"google/type/date.proto":       `syntax = "proto3"; package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }`,
	"google/type/timeofday.proto":  `syntax = "proto3"; package google.type; message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }`,
	"google/type/money.proto":      `syntax = "proto3"; package google.type; message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }`,
	"google/type/latlng.proto":     `syntax = "proto3"; package google.type; message LatLng { double latitude = 1; double longitude = 2; }`,
	"google/type/decimal.proto":    `syntax = "proto3"; package google.type; message Decimal { string value = 1; }`,
	"google/type/dayofweek.proto": `syntax = "proto3"; package google.type;
enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5; SATURDAY = 6; SUNDAY = 7; }`,
}

// parseProto compiles a schema, with those that it refers to.
func parseProto(w WriterSchema) (protoreflect.FileDescriptor, error) {
	if w.Kind != ProtobufSchema {
		return nil, fmt.Errorf("the schema is of kind %s, not %s", w.Kind, ProtobufSchema)
	}
	files, size := map[string]string{protoFile: w.Text}, len(w.Text)
	for _, r := range w.References {
		files[r.Name], size = r.Text, size+len(r.Text)
	}
	if size > maxProtoText {
		return nil, fmt.Errorf("the schema has %d bytes, more than %d", size, maxProtoText)
	}
	parsed := map[string]*descriptorpb.FileDescriptorProto{}
	for name, text := range files {
		f, err := serializedProto(name, text)
		switch {
		case err != nil:
			return nil, err
		case f != nil:
			parsed[name] = f
		case nested(text) > maxProtoDepth:
			return nil, fmt.Errorf("the schema has more than %d braces within each other", maxProtoDepth)
		}
	}
	find := func(path string) (protocompile.SearchResult, error) {
		if f := parsed[path]; f != nil {
			return protocompile.SearchResult{Proto: f}, nil
		}
		text, ok := files[path]
		if !ok {
			text, ok = builtinProtos[path]
		}
		if !ok {
			return protocompile.SearchResult{}, fmt.Errorf("the registry's schema does not refer to a schema of the name %q", path)
		}
		return protocompile.SearchResult{Source: strings.NewReader(text)}, nil
	}
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.ResolverFunc(find)), MaxParallelism: 1}
	out, err := c.Compile(context.Background(), protoFile)
	if err != nil {
		return nil, fmt.Errorf("the schema is not valid: %s", strings.TrimPrefix(err.Error(), protoFile+":"))
	}
	return out[0], nil
}

// serializedProto reads the form in which the serializers of Confluent's clients for Python and .NET register a schema: a
// google.protobuf.FileDescriptorProto in base64, which Confluent's registry turns into text, but others give back as it is.
// It is nil for text.
func serializedProto(name, text string) (*descriptorpb.FileDescriptorProto, error) {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(data) == 0 { // no text of a schema has only letters and digits
		return nil, nil
	}
	if len(data) > maxProtoBytes {
		return nil, fmt.Errorf("the serialized schema has %d bytes, more than %d", len(data), maxProtoBytes)
	}
	f := new(descriptorpb.FileDescriptorProto)
	if err := (proto.UnmarshalOptions{RecursionLimit: maxProtoDepth}).Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("the schema is neither text nor a serialized descriptor: %w", err)
	}
	f.Name = proto.String(name) // it is found by this one
	// The compiler expects what a parser leaves, so it is looked through before, whatever it refers to.
	if _, err := (protodesc.FileOptions{AllowUnresolvable: true}).New(f, nil); err != nil {
		return nil, fmt.Errorf("the schema is not valid: %w", err)
	}
	nameForJSON(f.MessageType)
	return f, nil
}

// nameForJSON gives fields the names that the compiler wants to be there, and compares. Nothing else uses them.
func nameForJSON(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		for _, f := range m.Field {
			if f.JsonName == nil {
				f.JsonName = proto.String(f.GetName())
			}
		}
		nameForJSON(m.NestedType)
	}
}

// nested counts how deep braces are within each other, as the compiler goes into them by recursion.
func nested(text string) (most int) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '{', '[', '<', '(':
			depth++
			most = max(most, depth)
		case '}', ']', '>', ')':
			depth = max(0, depth-1)
		}
	}
	return most
}

// maxProtoPath bounds how deep the message of a record may be declared within others.
const maxProtoPath = 64

// protoPath reads which message of its schema a record is, as the serializers of Confluent's registry write it behind the
// schema's id: a count and as many numbers in zigzag encoding, each that of a message within the one before; 0 alone stands
// for the first message. end is -1 when there is none.
func protoPath(b []byte, i int) (path []int, end int) {
	count, i := zigzag(b, i)
	switch {
	case i < 0 || count < 0 || count > maxProtoPath:
		return nil, -1
	case count == 0:
		return []int{0}, i
	}
	for range count {
		var v int64
		if v, i = zigzag(b, i); i < 0 || v < 0 || v > maxProtoText {
			return nil, -1
		}
		path = append(path, int(v))
	}
	return path, i
}

// spellPath writes a path as the serializers do: in the shortest way.
func spellPath(path []int) string {
	if len(path) == 1 && path[0] == 0 {
		return "\x00"
	}
	b := binary.AppendVarint(nil, int64(len(path)))
	for _, v := range path {
		b = binary.AppendVarint(b, int64(v))
	}
	return string(b)
}

// messageAt finds a message by its path. The entries of maps, which are messages for the compiler, do not count.
func messageAt(f protoreflect.FileDescriptor, path []int) (protoreflect.MessageDescriptor, error) {
	var found protoreflect.MessageDescriptor
	in := f.Messages()
	for _, want := range path {
		found = nil
		for i := 0; i < in.Len() && found == nil; i++ {
			if m := in.Get(i); !m.IsMapEntry() {
				if want == 0 {
					found = m
				}
				want--
			}
		}
		if found == nil {
			return nil, fmt.Errorf("the schema has no message at the place %v", path)
		}
		in = found.Messages()
	}
	return found, nil
}

// ColumnsOfProtobuf gives the columns of a table for records of a Protobuf schema. The row is the message of this name, which
// is relative to the schema's package or full; without one it is the first message.
//
//	bool                                       BOOLEAN
//	int32, sint32, sfixed32                    INT
//	int64, sint64, sfixed64, uint32, fixed32   BIGINT
//	uint64, fixed64                            DECIMAL(20, 0)
//	float, double                              FLOAT, DOUBLE
//	string, enum                               STRING
//	bytes                                      BYTES
//	repeated, map                              ARRAY, MAP
//	message                                    ROW
//	google.protobuf.Timestamp                  TIMESTAMP(6) WITH LOCAL TIME ZONE
//	google.protobuf.Duration                   DECIMAL(21, 9), in seconds
//	the wrappers of google.protobuf            the type that they wrap
//	google.protobuf.Struct, Value, ListValue   STRING, as JSON
//	google.type.Date, TimeOfDay                DATE, TIME(3)
//	confluent.type.Decimal                     DECIMAL(p, s) if the field's meta says a scale, else STRING
//
// Messages without a field give no column, as Paimon has no empty ROW, and groups give none. Columns take nulls: a later
// schema may lack the field. Messages that contain themselves are errors: give the columns by hand, leaving those out.
func ColumnsOfProtobuf(w WriterSchema, message string) ([]schema.Column, error) {
	f, err := parseProto(w)
	if err != nil {
		return nil, err
	}
	md, err := messageAt(f, []int{0})
	if message != "" {
		if md = messageNamed(f.Messages(), protoreflect.FullName(message)); md == nil && f.Package() != "" {
			md = messageNamed(f.Messages(), f.Package()+"."+protoreflect.FullName(message))
		}
		if err = nil; md == nil {
			err = fmt.Errorf("the schema has no message %q", message)
		}
	}
	if err != nil {
		return nil, err
	}
	var out []schema.Column
	m := protoMapper{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		m.at = nil
		t, ok, err := m.typeOf(fd)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", strings.Join(append([]string{string(fd.Name())}, m.at...), "."), err)
		}
		if ok {
			out = append(out, schema.Column{Name: string(fd.Name()), Type: t})
		}
	}
	return out, nil
}

// protoMapper finds the types of columns.
type protoMapper struct {
	path  []protoreflect.FullName
	at    []string // names of the fields around an error, within a column
	count int
}

// typeOf gives the type of a column for a field; not ok: there is nothing in it.
func (m *protoMapper) typeOf(fd protoreflect.FieldDescriptor) (out schema.Type, ok bool, err error) {
	if fd.IsMap() {
		k, _, _ := m.single(fd.MapKey())
		k.NotNull = true
		v, ok, err := m.single(fd.MapValue())
		return schema.Type{Root: schema.Map, Key: &k, Element: &v}, ok, err
	}
	t, ok, err := m.single(fd)
	if fd.IsList() {
		return schema.Type{Root: schema.Array, Element: &t}, ok, err
	}
	return t, ok, err
}

// single is typeOf for one of a field's values.
func (m *protoMapper) single(fd protoreflect.FieldDescriptor) (out schema.Type, ok bool, err error) {
	if m.count++; m.count > maxColumnTypes {
		return out, false, fmt.Errorf("the columns come to more than %d types", maxColumnTypes)
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return schema.Type{Root: schema.Boolean}, true, nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return schema.Type{Root: schema.Int}, true, nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return longType, true, nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return schema.Type{Root: schema.Decimal, Precision: 20}, true, nil
	case protoreflect.FloatKind:
		return schema.Type{Root: schema.Float}, true, nil
	case protoreflect.DoubleKind:
		return schema.Type{Root: schema.Double}, true, nil
	case protoreflect.StringKind, protoreflect.EnumKind:
		return textType, true, nil
	case protoreflect.BytesKind:
		return bytesType, true, nil
	case protoreflect.GroupKind:
		return out, false, nil
	}
	md := fd.Message()
	switch knownOf(md) {
	case knownTimestamp:
		return schema.Type{Root: schema.TimestampLTZ, Precision: 6}, true, nil
	case knownDuration:
		return schema.Type{Root: schema.Decimal, Precision: 21, Scale: 9}, true, nil
	case knownDate:
		return schema.Type{Root: schema.Date}, true, nil
	case knownTime:
		return schema.Type{Root: schema.Time, Precision: 3}, true, nil
	case knownDecimal:
		return decimalOfMeta(fd), true, nil
	case knownStruct, knownValue, knownList:
		return textType, true, nil
	case knownWrapper:
		return m.single(md.Fields().Get(0))
	}
	return m.message(md)
}

func (m *protoMapper) message(md protoreflect.MessageDescriptor) (out schema.Type, ok bool, err error) {
	for _, p := range m.path {
		if p == md.FullName() {
			return out, false, fmt.Errorf("the message %s contains itself", md.FullName())
		}
	}
	m.path = append(m.path, md.FullName())
	defer func() { m.path = m.path[:len(m.path)-1] }()
	out = schema.Type{Root: schema.Row}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		t, ok, err := m.typeOf(fd)
		if err != nil {
			m.at = append([]string{string(fd.Name())}, m.at...)
			return out, false, err
		}
		if ok {
			out.Fields = append(out.Fields, schema.Field{Name: string(fd.Name()), Type: t})
		}
	}
	return out, len(out.Fields) > 0, nil
}

// decimalOfMeta gives the type of a decimal from what the field's option confluent.field_meta says of it, as Kafka Connect
// writes it: the parameters precision and scale, or those of a decimal of Connect.
func decimalOfMeta(fd protoreflect.FieldDescriptor) schema.Type {
	params := paramsOf(fd)
	number := func(otherwise int, names ...string) int {
		for _, name := range names {
			if n, err := strconv.Atoi(params[name]); err == nil {
				return n
			}
		}
		return otherwise
	}
	scale, precision := number(-1, "scale"), number(maxPrecision, "precision", "connect.decimal.precision")
	if scale < 0 || precision < 1 || precision > maxPrecision || scale > precision {
		return textType
	}
	return schema.Type{Root: schema.Decimal, Precision: precision, Scale: scale}
}

// metaOption is the number of the option confluent.field_meta; its field 2 are the parameters, a map of texts.
const metaOption, metaParams = 1088, 2

// paramsOf gives the parameters of a field's confluent.field_meta.
func paramsOf(fd protoreflect.FieldDescriptor) map[string]string {
	out := map[string]string{}
	b, err := proto.Marshal(fd.Options())
	if err != nil {
		return out
	}
	eachField(b, func(number protowire.Number, meta []byte) {
		if number != metaOption {
			return
		}
		eachField(meta, func(number protowire.Number, entry []byte) {
			if number != metaParams {
				return
			}
			var pair [2]string
			eachField(entry, func(number protowire.Number, text []byte) {
				if number == 1 || number == 2 {
					pair[number-1] = string(text)
				}
			})
			out[pair[0]] = pair[1]
		})
	})
	return out
}

// eachField calls one for each field of a message that has a length.
func eachField(b []byte, one func(number protowire.Number, value []byte)) {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
			return
		}
		if wire == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			one(number, v)
		}
		b = b[n:]
	}
}
