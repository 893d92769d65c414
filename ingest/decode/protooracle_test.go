package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/calve-io/calve/schema"
)

// oracleProtos have everything that the library and calve must read alike.
var oracleProtos = []string{`syntax = "proto3"; import "google/protobuf/wrappers.proto"; message Top { int32 a = 1; int64 b = 2; uint32 c = 3; uint64 d = 4; sint32 e = 5; sint64 f = 6; fixed32 g = 7; fixed64 h = 8; sfixed32 i = 9; sfixed64 j = 10; float k = 11;
 double l = 12; bool m = 13; string n = 14; bytes o = 15; E p = 16; enum E { ZERO = 0; ONE = 1; MINUS = -1; FAR = 100000; } optional int32 q = 17; optional string r = 18; oneof s { int32 s1 = 19; string s2 = 20; M s3 = 21; double s4 = 22; }
 M t = 300; repeated int32 u = 301; repeated sint64 v = 302; repeated double w = 303; repeated string x = 304; repeated M y = 305; map<string, int32> z = 306; map<int64, M> za = 307; repeated E zb = 308; google.protobuf.StringValue zc = 309;
 repeated google.protobuf.UInt64Value zd = 310; repeated bool ze = 311; repeated fixed32 zf = 312 [packed = false];
 message M { int32 a = 1; optional int64 b = 2; repeated string c = 3; map<bool, bytes> d = 4; N e = 5; repeated N f = 6; google.protobuf.Int64Value g = 7; oneof h { bool h1 = 8; N h2 = 9; } } message N { sint32 a = 1; repeated uint32 b = 2; optional float c = 3; } }`,
	`syntax = "proto2"; message Top { optional int32 a = 1; optional int64 b = 2 [default = -5]; optional string c = 3 [default = "x"]; repeated int32 d = 4; repeated int64 e = 5 [packed = true]; optional E f = 6 [default = TWO]; enum E { ONE = 1; TWO = 2; }
 optional M g = 7; message M { optional bool a = 1 [default = true]; optional float b = 2 [default = 1.5]; repeated M2 c = 3; optional bytes d = 4 [default = "a\377"]; } message M2 { optional sint32 a = 1; } repeated E h = 8; oneof i { int32 i1 = 9; M i2 = 10; } }`}

// randomMessage fills a message.
func randomMessage(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if r.IntN(3) == 0 || depth > 4 {
			continue
		}
		switch {
		case fd.IsMap():
			for range r.IntN(3) {
				k := randomValue(r, fd.MapKey(), nil, depth).MapKey()
				m.Mutable(fd).Map().Set(k, randomValue(r, fd.MapValue(), m.Mutable(fd).Map().NewValue, depth))
			}
		case fd.IsList():
			l := m.Mutable(fd).List()
			for range r.IntN(4) {
				l.Append(randomValue(r, fd, l.NewElement, depth))
			}
		default:
			m.Set(fd, randomValue(r, fd, func() protoreflect.Value { return m.NewField(fd) }, depth))
		}
	}
}

func randomValue(r *rand.Rand, fd protoreflect.FieldDescriptor, empty func() protoreflect.Value, depth int) protoreflect.Value {
	bits := r.Uint64() >> r.IntN(64)
	if r.IntN(8) == 0 {
		bits = []uint64{0, math.MaxUint64, 1 << 63, math.MaxInt64, 1 << 31, math.MaxInt32}[r.IntN(6)]
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(bits&1 == 1)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(r.IntN(fd.Enum().Values().Len())).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(bits))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(bits))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(bits))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(bits)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(math.Float32frombits(uint32(bits)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(math.Float64frombits(bits))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.Repeat("é\"x", r.IntN(3)) + strconv.Itoa(r.IntN(100)))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(binaryOf(bits, r.IntN(9)))
	}
	v := empty()
	randomMessage(r, v.Message(), depth+1)
	return v
}

func binaryOf(bits uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(bits >> (8 * i))
	}
	return b
}

// sameMessage compares a row, or a ROW in it, with a message.
func sameMessage(got any, m protoreflect.Message) error {
	row, ok := got.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no row", got)
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if err := sameField(row[string(fd.Name())], fd, m); err != nil {
			return fmt.Errorf("%s: %w", fd.Name(), err)
		}
	}
	return nil
}

func sameField(got any, fd protoreflect.FieldDescriptor, m protoreflect.Message) error {
	inOneof := fd.ContainingOneof() != nil && !fd.ContainingOneof().IsSynthetic()
	switch {
	case fd.IsList():
		l, list := m.Get(fd).List(), got.([]any)
		if len(list) != l.Len() {
			return fmt.Errorf("%v, want %d elements", got, l.Len())
		}
		for i, x := range list {
			if err := sameValue(x, fd, l.Get(i)); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
		return nil
	case fd.IsMap():
		entries := map[string][]any{} // of two with the same key the last counts
		for _, x := range got.([]any) {
			pair := x.([]any)
			entries[fmt.Sprint(pair[0])] = pair
		}
		if want := m.Get(fd).Map(); want.Len() != len(entries) {
			return fmt.Errorf("%v, want %d entries", got, want.Len())
		}
		var err error
		m.Get(fd).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			pair := entries[k.String()]
			if pair == nil {
				err = fmt.Errorf("no entry %v in %v", k, got)
			} else {
				err = sameValue(pair[1], fd.MapValue(), v)
			}
			return err == nil
		})
		return err
	case fd.HasPresence() && !m.Has(fd) && (!fd.HasDefault() || inOneof):
		if got != nil {
			return fmt.Errorf("%v, want null", got)
		}
		return nil
	}
	return sameValue(got, fd, m.Get(fd))
}

func sameValue(got any, fd protoreflect.FieldDescriptor, v protoreflect.Value) error {
	want := ""
	switch fd.Kind() {
	case protoreflect.MessageKind:
		if knownOf(fd.Message()) == knownWrapper {
			inner := fd.Message().Fields().Get(0)
			return sameValue(got, inner, v.Message().Get(inner))
		}
		return sameMessage(got, v.Message())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		f, err := strconv.ParseFloat(fmt.Sprint(got), 64)
		if w := v.Float(); err == nil && (f == w || math.IsNaN(f) && math.IsNaN(w) || fd.Kind() == protoreflect.FloatKind && float32(f) == float32(w)) {
			return nil
		}
		return fmt.Errorf("%v, want %v", got, v)
	case protoreflect.BytesKind:
		want = base64.StdEncoding.EncodeToString(v.Bytes())
	case protoreflect.EnumKind:
		if x := fd.Enum().Values().ByNumber(v.Enum()); x != nil {
			want = string(x.Name())
		} else {
			want = strconv.Itoa(int(v.Enum()))
		}
	default:
		want = fmt.Sprint(v.Interface())
	}
	if fmt.Sprint(got) != want {
		return fmt.Errorf("%v, want %s", got, want)
	}
	return nil
}

// protoOracle decodes what the library decodes too, and holds the one against the other.
type protoOracle struct {
	d  *protoDecoder
	md protoreflect.MessageDescriptor
}

func newProtoOracle(t testing.TB, text string) protoOracle {
	cols, err := ColumnsOfProtobuf(WriterSchema{Kind: ProtobufSchema, Text: text}, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols})
	if err != nil {
		t.Fatal(err)
	}
	return protoOracle{protoDecoderOf(t, s, text), protoMessage(t, text, `{}`).Descriptor()}
}

var errLibrary = errors.New("the library does not know")

// unmarshal is the library's, which panics at some broken entries of maps.
func unmarshal(b []byte, m proto.Message) (err error) {
	defer func() {
		if recover() != nil {
			err = errLibrary
		}
	}()
	return proto.Unmarshal(b, m)
}

// check reports whether the bytes were taken.
func (o protoOracle) check(t *testing.T, b []byte) bool {
	t.Helper()
	want := dynamicpb.NewMessage(o.md)
	werr := unmarshal(b, want)
	err := o.d.Decode(&Record{Value: append([]byte{0, 0, 0, 0, 1, 0}, b...)})
	lines := linesOf(o.d)
	var row *RowError
	switch {
	case errors.Is(werr, errLibrary):
		return err == nil
	case err == nil && werr != nil:
		t.Fatalf("%x was taken; the library says %v", b, werr)
	case err != nil && !errors.As(err, &row):
		t.Fatalf("%x: %v", b, err)
	case err != nil && werr == nil && !strings.Contains(row.Reason, "UTF-8"):
		t.Fatalf("%x: %v; the library takes it", b, err)
	case err != nil:
		return false
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(lines[0][2:])))
	dec.UseNumber()
	var got any
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if err := sameMessage(got, want); err != nil {
		t.Fatalf("%x: %s: %v", b, lines[0], err)
	}
	return true
}

// TestProtoOracle reads random messages as the library does: as it writes them, with their fields in another order, two of
// them as one, and broken ones.
func TestProtoOracle(t *testing.T) {
	for k, text := range oracleProtos {
		o := newProtoOracle(t, text)
		taken := 0
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, uint64(k)))
			m := dynamicpb.NewMessage(o.md)
			randomMessage(r, m, 0)
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if !o.check(t, b) {
				t.Fatalf("seed %d: refused", seed)
			}
			var fields [][]byte
			for rest := b; len(rest) > 0; {
				_, _, n := protowire.ConsumeField(rest)
				fields, rest = append(fields, rest[:n]), rest[n:]
			}
			r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
			mixed := bytes.Join(append(fields, protowire.AppendVarint(protowire.AppendTag(nil, 77777, protowire.VarintType), 5)), nil)
			if !o.check(t, mixed) || !o.check(t, append(mixed[:len(mixed):len(mixed)], b...)) {
				t.Fatalf("seed %d: refused", seed)
			}
			for range 20 {
				broken := bytes.Clone(mixed)
				for range 1 + r.IntN(3) {
					broken[r.IntN(len(broken))] = byte(r.IntN(256))
				}
				if o.check(t, broken[:len(broken)-r.IntN(2)]) {
					taken++
				}
			}
		}
		if taken < 500 {
			t.Errorf("schema %d: only %d broken messages were taken: the test does not see much", k, taken)
		}
	}
}

func FuzzProtobuf(f *testing.F) {
	var all []protoOracle
	for k, text := range oracleProtos {
		o := newProtoOracle(f, text)
		all = append(all, o)
		m := dynamicpb.NewMessage(o.md)
		randomMessage(rand.New(rand.NewPCG(1, uint64(k))), m, 0)
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	known := `syntax = "proto3"; ` + protoImports + `message T { google.protobuf.Timestamp a = 1; google.protobuf.Duration b = 2; google.protobuf.Struct c = 3; google.protobuf.Value d = 4; google.type.Date e = 5; google.type.TimeOfDay f = 6; confluent.type.Decimal g = 7; }`
	d := protoDecoderOf(f, tableOf(f, "a TIMESTAMP(9), b DECIMAL(21, 9), c STRING, d STRING, e DATE, f TIME(3), g DECIMAL(10, 2)"), known)
	f.Add(protoFramed(f, 1, known, `{"a":"2024-01-01T00:00:00Z","b":"1s","c":{"a":[{"b":1}]},"d":"x","e":{"year":1,"month":1,"day":1},"f":{},"g":{"value":"AQ=="}}`)[framing+1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, o := range all {
			o.check(t, b)
		}
		framed := append([]byte{0, 0, 0, 0, 1, 0}, b...)
		if err := d.Decode(&Record{Value: framed}); err != nil && !errors.Is(err, ErrRow) {
			t.Fatal(err)
		}
		d.Take()
		if err := d.Decode(&Record{Value: append([]byte{0, 0, 0, 0, 1}, b...)}); err != nil && !errors.Is(err, ErrRow) {
			t.Fatal(err)
		}
		d.Take()
	})
}

func FuzzProtobufSchema(f *testing.F) {
	for _, text := range oracleProtos {
		f.Add(text)
		f.Add(serialized(f, WriterSchema{Kind: ProtobufSchema, Text: text}).Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cols, err := ColumnsOfProtobuf(WriterSchema{Kind: ProtobufSchema, Text: text}, "")
		if err != nil || len(cols) == 0 {
			return
		}
		s, err := schema.New(schema.Spec{Columns: cols})
		if err != nil {
			return
		}
		protoDecoderOf(t, s, text).Decode(&Record{Value: make([]byte, 100)})
	})
}
