package binrow

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// vector is one line of the vector files that Paimon 1.3.1 wrote.
type vector struct {
	Types         []string
	Values        []json.RawMessage
	RowKind       string
	Hex           string
	SerializedHex string
	Hash          int32
	Bucket        map[string]int
}

func readVectors[T any](t testing.TB, name string, least int) []T {
	t.Helper()
	data, err := os.ReadFile("../testdata/golden/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if len(out) < least {
		t.Fatalf("%s has %d vectors, at least %d are expected", name, len(out), least)
	}
	return out
}

// typeOf reads a type text, nested ones included: "MAP<STRING, ARRAY<INT>>", "ROW<`x` INT>".
func typeOf(t testing.TB, text string) schema.Type {
	t.Helper()
	root, rest, nested := strings.Cut(text, "<")
	if !nested {
		typ, err := schema.ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		return typ
	}
	var parts []schema.Type
	var fields []schema.Field
	for _, p := range splitTop(strings.TrimSuffix(rest, ">")) {
		if root == "ROW" {
			name, typ, _ := strings.Cut(strings.TrimPrefix(p, "`"), "` ")
			fields = append(fields, schema.Field{Name: name, Type: typeOf(t, typ)})
			continue
		}
		parts = append(parts, typeOf(t, p))
	}
	switch root {
	case "ARRAY":
		return schema.Type{Root: schema.Array, Element: &parts[0]}
	case "MAP":
		return schema.Type{Root: schema.Map, Key: &parts[0], Element: &parts[1]}
	case "ROW":
		return schema.Type{Root: schema.Row, Fields: fields}
	}
	t.Fatalf("unknown type %s", text)
	return schema.Type{}
}

// splitTop cuts at the commas outside of brackets.
func splitTop(s string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range s {
		switch r {
		case '<', '(':
			depth++
		case '>', ')':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, strings.TrimSpace(s[from:i])), i+1
			}
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

// valueOf reads a value in the form of the vector files.
func valueOf(t testing.TB, typ schema.Type, raw json.RawMessage) any {
	t.Helper()
	if string(raw) == "null" {
		return nil
	}
	switch typ.Root {
	case schema.Array:
		out := []any{}
		for _, e := range decodeInto[[]json.RawMessage](t, raw) {
			out = append(out, valueOf(t, *typ.Element, e))
		}
		return out
	case schema.Map:
		out := [][2]any{}
		for _, e := range decodeInto[[][2]json.RawMessage](t, raw) {
			out = append(out, [2]any{valueOf(t, *typ.Key, e[0]), valueOf(t, *typ.Element, e[1])})
		}
		return out
	case schema.Row:
		members := decodeInto[map[string]json.RawMessage](t, raw)
		out := []any{}
		for _, f := range typ.Fields {
			out = append(out, valueOf(t, f.Type, members[f.Name]))
		}
		return out
	}
	return primitiveOf(t, typ, strings.Trim(string(raw), `"`), raw)
}

func decodeInto[T any](t testing.TB, raw json.RawMessage) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return out
}

func primitiveOf(t testing.TB, typ schema.Type, text string, raw json.RawMessage) any {
	t.Helper()
	integer := func() int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch typ.Root {
	case schema.Boolean:
		return text == "true"
	case schema.TinyInt:
		return int8(integer())
	case schema.SmallInt:
		return int16(integer())
	case schema.Int, schema.Time:
		return int32(integer())
	case schema.BigInt:
		return integer()
	case schema.Float:
		f, err := strconv.ParseFloat(text, 32)
		if err != nil {
			t.Fatal(err)
		}
		if math.IsNaN(f) {
			return math.Float32frombits(0x7fc00000) // Java's NaN
		}
		return float32(f)
	case schema.Double:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		if math.IsNaN(f) {
			return math.Float64frombits(0x7ff8000000000000)
		}
		return f
	case schema.Decimal:
		d, err := decimal128.FromString(text, int32(typ.Precision), int32(typ.Scale))
		if err != nil {
			t.Fatal(err)
		}
		return d
	case schema.Date:
		at, err := time.Parse("2006-01-02", text)
		if err != nil {
			t.Fatal(err)
		}
		return int32(at.Unix() / 86400)
	case schema.Timestamp, schema.TimestampLTZ:
		at, err := time.Parse("2006-01-02T15:04:05.999999999", text)
		if err != nil {
			t.Fatal(err)
		}
		switch schema.TimeUnit(typ) {
		case arrow.Millisecond:
			return at.UnixMilli()
		case arrow.Microsecond:
			return at.UnixMicro()
		}
		return at.UnixNano()
	case schema.Binary, schema.VarBinary:
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return decodeInto[string](t, raw)
}

func (v vector) decode(t testing.TB) ([]schema.Type, []any) {
	t.Helper()
	types, vals := make([]schema.Type, len(v.Types)), make([]any, len(v.Types))
	for i := range types {
		types[i] = typeOf(t, v.Types[i])
		vals[i] = valueOf(t, types[i], v.Values[i])
	}
	return types, vals
}

var kinds = map[string]schema.RowKind{"+I": schema.Insert, "-U": schema.UpdateBefore, "+U": schema.UpdateAfter, "-D": schema.Delete}

func primitive(types []schema.Type) bool {
	for _, t := range types {
		if !t.Primitive() {
			return false
		}
	}
	return true
}

// column builds an Arrow array of single values; it starts at an offset in its buffers, as slices do.
func column(t testing.TB, typ schema.Type, vals ...any) arrow.Array {
	t.Helper()
	b := schematest.Builder(t, typ)
	b.AppendEmptyValue()
	b.AppendNull()
	b.AppendEmptyValue()
	for _, v := range vals {
		schematest.Append(b, v)
	}
	whole := b.NewArray()
	return array.NewSlice(whole, 3, int64(whole.Len()))
}

func columns(t testing.TB, types []schema.Type, vals []any) []arrow.Array {
	t.Helper()
	out := make([]arrow.Array, len(types))
	for i := range types {
		out[i] = column(t, types[i], vals[i])
	}
	return out
}

func TestRowVectors(t *testing.T) {
	all := append(readVectors[vector](t, "binaryrow-vectors.json", 71), readVectors[vector](t, "hash-vectors.json", 68)...)
	arrowRows := 0
	for i, v := range all {
		types, vals := v.decode(t)
		what := fmt.Sprintf("vector %d %v %s", i, v.Types, v.Values)
		e := NewEncoder(types)
		row, err := e.AppendValues([]byte("head"), kinds[v.RowKind], vals)
		if err == nil && reverseMaps(vals) && hex.EncodeToString(row[4:]) != v.Hex {
			row, err = e.AppendValues([]byte("head"), kinds[v.RowKind], vals)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		row = row[4:]
		if got := hex.EncodeToString(row); got != v.Hex {
			t.Errorf("%s:\ngot  %s\nwant %s", what, got, v.Hex)
		}
		serialized := Serialize(row, len(types))
		if got := hex.EncodeToString(serialized); got != v.SerializedHex {
			t.Errorf("%s: serialized\ngot  %s\nwant %s", what, got, v.SerializedHex)
		}
		if got := Hash(row); got != v.Hash {
			t.Errorf("%s: hash %d, want %d", what, got, v.Hash)
		}
		if !primitive(types) {
			continue
		}
		if back, err := Decode(serialized, types); err != nil || !sameValues(back, vals) {
			t.Errorf("%s: decoded %v, %v", what, back, err)
		}
		if v.RowKind != "+I" {
			continue
		}
		arrowRows++
		fromArrow, err := e.Append([]byte("head"), columns(t, types, vals), 0)
		if err != nil || hex.EncodeToString(fromArrow[4:]) != v.Hex {
			t.Errorf("%s: from Arrow (%v)\ngot  %x\nwant %s", what, err, fromArrow, v.Hex)
		}
	}
	if arrowRows < 100 {
		t.Errorf("only %d vectors were encoded from Arrow", arrowRows)
	}
}

// reverseMaps reverses the pairs of maps and reports whether it met one. The vector files list the pairs sorted by the
// text of their keys, but Paimon encoded them in the order of its hash map; no vector has more than two pairs.
func reverseMaps(vals []any) (found bool) {
	for _, v := range vals {
		if m, ok := v.([][2]any); ok && len(m) > 1 {
			slices.Reverse(m)
			found = true
		}
	}
	return found
}

// sameValues is DeepEqual that takes NaN as equal to itself.
func sameValues(a, b []any) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b)
}

func TestBucketVectors(t *testing.T) {
	for i, v := range readVectors[vector](t, "hash-vectors.json", 68) {
		if len(v.Bucket) < 12 {
			t.Fatalf("vector %d has %d bucket counts", i, len(v.Bucket))
		}
		types, vals := v.decode(t)
		cols := columns(t, types, vals)
		for count, want := range v.Bucket {
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Fatal(err)
			}
			if got := Bucket(v.Hash, n); got != want {
				t.Errorf("vector %d: bucket %d of %d, want %d", i, got, n, want)
			}
			got := []int32{-1}
			if err := Buckets(got, types, cols, 1, n); err != nil || int(got[0]) != want {
				t.Errorf("vector %d: %v %s: Buckets gives %d of %d (%v), want %d", i, v.Types, v.Values, got[0], n, err, want)
			}
		}
	}
}

func TestPartitionPathVectors(t *testing.T) {
	type pathVector struct {
		LegacyPartitionName bool
		Types               []string
		Values              json.RawMessage
		Path, SerializedHex string
	}
	for i, v := range readVectors[pathVector](t, "partition-path-vectors.json", 14) {
		names, raws := orderedMembers(t, v.Values)
		types, vals := vector{Types: v.Types, Values: raws}.decode(t)
		got, err := PartitionPath(names, types, vals, v.LegacyPartitionName, "__DEFAULT_PARTITION__")
		if err != nil || got != v.Path {
			t.Errorf("vector %d (%v):\ngot  %s\nwant %s", i, err, got, v.Path)
		}
		row, err := EncodeRow(types, vals)
		if err != nil || hex.EncodeToString(row) != v.SerializedHex {
			t.Errorf("vector %d: row %x (%v), want %s", i, row, err, v.SerializedHex)
		}
	}
}

// orderedMembers gives the members of a JSON object in their order.
func orderedMembers(t *testing.T, raw json.RawMessage) (names []string, values []json.RawMessage) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		names, values = append(names, name.(string)), append(values, v)
	}
	return names, values
}
