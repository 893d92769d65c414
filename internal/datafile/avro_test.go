package datafile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/twmb/avro/ocf"

	"github.com/calve-io/calve/schema"
)

// avroText is the Avro schema of a type as Paimon writes it (`AvroSchemaConverter`).
func avroText(t schema.Type, name string) any {
	var out any
	logical := func(kind, name string) any { return map[string]any{"type": kind, "logicalType": name} }
	unit := "millis"
	if t.Precision > 3 {
		unit = "micros"
	}
	switch t.Root {
	case schema.Boolean:
		out = "boolean"
	case schema.TinyInt, schema.SmallInt, schema.Int:
		out = "int"
	case schema.BigInt:
		out = "long"
	case schema.Float:
		out = "float"
	case schema.Double:
		out = "double"
	case schema.Char, schema.VarChar:
		out = "string"
	case schema.Binary, schema.VarBinary:
		out = "bytes"
	case schema.Date:
		out = logical("int", "date")
	case schema.Time:
		out = logical("int", "time-millis")
	case schema.Timestamp:
		out = logical("long", "timestamp-"+unit)
	case schema.TimestampLTZ:
		out = logical("long", "local-timestamp-"+unit)
	case schema.Decimal:
		out = map[string]any{"type": "bytes", "logicalType": "decimal", "precision": t.Precision, "scale": t.Scale}
	case schema.Array:
		out = map[string]any{"type": "array", "items": avroText(*t.Element, name)}
	case schema.Map, schema.Multiset:
		parts := partsOf(t)
		if t.Root == schema.Multiset {
			parts[1].NotNull = false
		}
		if parts[0].Root == schema.VarChar && parts[0].NotNull {
			out = map[string]any{"type": "map", "values": avroText(parts[1], name)}
			break
		}
		out = map[string]any{"type": "array", "logicalType": "map", "items": map[string]any{"type": "record", "name": name, "fields": []any{
			map[string]any{"name": "key", "type": avroText(parts[0], name+"_key")},
			map[string]any{"name": "value", "type": avroText(parts[1], name+"_value")}}}}
	case schema.Row:
		var fields []any
		for _, f := range t.Fields {
			fields = append(fields, map[string]any{"name": f.Name, "type": avroText(f.Type, name+"_"+f.Name)})
		}
		out = map[string]any{"type": "record", "name": name, "fields": fields}
	}
	if !t.NotNull {
		return []any{"null", out}
	}
	return out
}

// appendAvro encodes a cell.
func appendAvro(b []byte, t schema.Type, v any) []byte {
	if !t.NotNull {
		if v == nil {
			return append(b, 0)
		}
		b = append(b, 2)
	}
	text := func(v []byte) []byte { return append(binary.AppendVarint(b, int64(len(v))), v...) }
	switch v := v.(type) {
	case bool:
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	case int8:
		return binary.AppendVarint(b, int64(v))
	case int16:
		return binary.AppendVarint(b, int64(v))
	case int32:
		return binary.AppendVarint(b, int64(v))
	case int64:
		return binary.AppendVarint(b, v)
	case float32, float64:
		b, _ = binary.Append(b, binary.LittleEndian, v)
		return b
	case string:
		return text([]byte(v))
	case []byte:
		return text(v)
	case decimal128.Num:
		raw := make([]byte, 16)
		binary.BigEndian.PutUint64(raw, uint64(v.HighBits()))
		binary.BigEndian.PutUint64(raw[8:], v.LowBits())
		for len(raw) > 1 && (raw[0] == 0 && raw[1] < 0x80 || raw[0] == 0xff && raw[1] >= 0x80) {
			raw = raw[1:]
		}
		return text(raw)
	case [][2]any:
		parts := partsOf(t)
		if t.Root == schema.Multiset {
			parts[1].NotNull = false
		}
		for at := 0; at < len(v); at += 3 { // blocks with their size, as other writers make them
			var block []byte
			part := v[at:min(len(v), at+3)]
			for _, p := range part {
				block = appendAvro(appendAvro(block, parts[0], p[0]), parts[1], p[1])
			}
			b = append(binary.AppendVarint(binary.AppendVarint(b, -int64(len(part))), int64(len(block))), block...)
		}
		return append(b, 0)
	case []any:
		if t.Root == schema.Row {
			for i, f := range t.Fields {
				b = appendAvro(b, f.Type, v[i])
			}
			return b
		}
		if len(v) > 0 {
			b = binary.AppendVarint(b, int64(len(v)))
		}
		for _, x := range v {
			b = appendAvro(b, *t.Element, x)
		}
		return append(b, 0)
	}
	panic(fmt.Sprintf("%T", v))
}

// avroFile writes rows as an Avro file.
func avroFile(t testing.TB, s *schema.Schema, in Rows, codec string, perBlock int) []byte {
	t.Helper()
	row := schema.Type{Root: schema.Row, NotNull: true}
	row.Fields = append(row.Fields,
		schema.Field{Name: SeqColumn, Type: mustType(t, "BIGINT NOT NULL")}, schema.Field{Name: KindColumn, Type: mustType(t, "TINYINT NOT NULL")})
	row.Fields = append(row.Fields, s.Fields...)
	text, err := json.Marshal(avroText(row, "record"))
	if err != nil {
		t.Fatal(err)
	}
	codecs := map[string]ocf.Codec{"deflate": ocf.DeflateCodec(-1), "snappy": ocf.SnappyCodec(), "zstandard": ocf.MustZstdCodec(nil, nil)}
	entry := func(b []byte, v string) []byte { return append(binary.AppendVarint(b, int64(len(v))), v...) }
	b := []byte(avroMagic)
	b = binary.AppendVarint(b, 2)
	b = entry(entry(entry(entry(b, "avro.schema"), string(text)), "avro.codec"), codec)
	sync := []byte("0123456789abcdef")
	b = append(append(b, 0), sync...)
	for at := 0; at < in.N; at += perBlock {
		n := min(perBlock, in.N-at)
		var block []byte
		for i := at; i < at+n; i++ {
			cells := []any{in.Seq[i], in.Kinds[i]}
			for _, c := range in.Cols {
				cells = append(cells, schema.Cell(c, i))
			}
			block = appendAvro(block, row, cells)
		}
		if c := codecs[codec]; c != nil {
			if block, err = c.Compress(block); err != nil {
				t.Fatal(err)
			}
		}
		b = append(binary.AppendVarint(binary.AppendVarint(b, int64(n)), int64(len(block))), block...)
		b = append(b, sync...)
	}
	return b
}

// avroTypes are the columns that Avro files can hold.
func avroTypes(t testing.TB) *schema.Schema {
	s := allTypes(t)
	id := s.HighestFieldID
	for _, f := range nestedTypes(t).Fields[1:] {
		if text := f.Type.String(); strings.Contains(text, "VARIANT") || strings.Contains(text, "TIMESTAMP(9)") ||
			strings.Contains(text, "TIMESTAMP(7)") || strings.Contains(text, "TIMESTAMP(8)") {
			continue
		}
		id++
		f.ID = id
		number(&f.Type, &id)
		s.Fields = append(s.Fields, f)
	}
	return s
}

func readAvro(b []byte, fileSchema *schema.Schema, want ReadSpec) ([]Rows, error) {
	r, err := Open(openBytes(b), "test.parquet.avro", fileSchema, want)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(r)
}

func TestAvro(t *testing.T) {
	s := avroTypes(t)
	in := randomRows(newRand(41), s, 0, 500, valueShape{nulls: 0.2, repeats: 40})
	for i, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		b := avroFile(t, s, in, codec, 70)
		got, err := readAvro(b, s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: []int{1000, 33, 70, 1}[i]})
		if err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), in)
	}
	b := avroFile(t, s, in, "null", 70)
	// A projection in another order, and rows left out by batch.
	cols := []int{20, 0, len(s.Fields) - 1}
	got, err := readAvro(b, s, ReadSpec{Schema: s, Cols: cols, BatchRows: 100, Early: 1, Keep: func(r Rows) (bool, error) { return r.First != 100, nil }})
	if err != nil {
		t.Fatal(err)
	}
	all := concat(t, got, 3)
	if all.N != 400 {
		t.Fatalf("%d rows", all.N)
	}
	sameRows(t, s, cols, Rows{N: 400, Cols: all.Cols}, pickRows(t, in, cols, 0, 100, 200, 500))
}

// pickRows joins ranges of some columns.
func pickRows(t *testing.T, in Rows, cols []int, ranges ...int64) Rows {
	t.Helper()
	var out Rows
	for _, c := range cols {
		var parts []arrow.Array
		for i := 0; i < len(ranges); i += 2 {
			parts = append(parts, array.NewSlice(in.Cols[c], ranges[i], ranges[i+1]))
		}
		a, err := array.Concatenate(parts, alloc)
		if err != nil {
			t.Fatal(err)
		}
		out.Cols, out.N = append(out.Cols, a), a.Len()
	}
	return out
}

// TestAvroSchemaChange reads a file by field id and by the names it has, nested fields too.
func TestAvroSchemaChange(t *testing.T) {
	row := func(fields ...schema.Field) schema.Type { return schema.Type{Root: schema.Row, Fields: fields} }
	field := func(id int, name, typ string) schema.Field {
		return schema.Field{ID: id, Name: name, Type: mustType(t, typ)}
	}
	old := &schema.Schema{Fields: []schema.Field{field(0, "k", "BIGINT NOT NULL"), field(1, "a", "INT"),
		{ID: 2, Name: "r", Type: row(field(3, "x", "INT"), field(4, "y", "STRING"))}}}
	now := &schema.Schema{Fields: []schema.Field{{ID: 2, Name: "s", Type: row(field(9, "new", "DATE"), field(4, "z", "STRING"), field(3, "x", "BIGINT"))},
		field(1, "b", "BIGINT"), field(8, "a", "STRING")}}
	in := randomRows(newRand(5), old, 0, 200, valueShape{nulls: 0.3})
	got, err := readAvro(avroFile(t, old, in, "null", 30), old, ReadSpec{Schema: now, Cols: []int{0, 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	rows := concat(t, got, 3)
	for i := range rows.N {
		var wantA, wantR any
		if v, ok := schema.Cell(in.Cols[1], i).(int32); ok {
			wantA = int64(v)
		}
		if r, ok := schema.Cell(in.Cols[2], i).([]any); ok {
			x := r[0]
			if v, ok := x.(int32); ok {
				x = int64(v)
			}
			wantR = []any{nil, r[1], x}
		}
		for j, w := range []any{wantR, wantA, nil} {
			if g := anyText(schema.Cell(rows.Cols[j], i)); g != anyText(w) {
				t.Fatalf("row %d: column %d is %s, want %s", i, j, g, anyText(w))
			}
		}
	}
}

// TestAvroGolden reads the Avro files that Paimon wrote for a postponed bucket.
func TestAvroGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/paimon/golden.db/pk_postpone/bucket-postpone/*.avro")
	if err != nil || len(paths) != 2 {
		t.Fatal(paths, err)
	}
	text, err := os.ReadFile("testdata/paimon/golden.db/pk_postpone/schema/schema-0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := readAvro(b, s, ReadSpec{Schema: s, Cols: []int{0, 1}, KeyValue: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			for i := range r.N {
				got = append(got, fmt.Sprintf("%s %v %v", schema.RowKind(r.Kinds[i]), schema.Cell(r.Cols[0], i), schema.Cell(r.Cols[1], i)))
			}
		}
	}
	var want []string
	for _, c := range jsonLines[struct {
		Kind string
		Row  map[string]any
	}](t, "testdata/paimon/pk_postpone.expect/changes.jsonl") {
		want = append(want, fmt.Sprintf("%s %v %v", c.Kind, c.Row["k"], c.Row["v"]))
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// TestAvroHostile cuts and damages files.
func TestAvroHostile(t *testing.T) {
	s := avroTypes(t)
	in := randomRows(newRand(43), s, 0, 60, valueShape{nulls: 0.2, repeats: 40})
	for i, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		b := avroFile(t, s, in, codec, 25)
		r := newRand(uint64(i))
		for range 40 {
			if err := readHostileAvro(t, b[:r.IntN(len(b))], s); err == nil {
				t.Fatal("a file that is cut off was read")
			}
		}
		for range 150 {
			c := bytes.Clone(b)
			for range 1 + r.IntN(8) {
				c[r.IntN(len(c))] ^= byte(1 << r.IntN(8))
			}
			readHostileAvro(t, c, s)
		}
	}
	_, err := Open(openBytes(nil), "data-1.orc", s, ReadSpec{Schema: s})
	if err == nil || !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "file.format") {
		t.Fatalf("an ORC file: %v", err)
	}
}

func readHostileAvro(t testing.TB, b []byte, s *schema.Schema) error {
	t.Helper()
	before := allocated()
	_, err := readAvro(b, s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: 512})
	if n := allocated() - before; n > allocLimit+64*uint64(len(b)) {
		t.Fatalf("reading %d bytes allocated %d MB (%v)", len(b), n>>20, err)
	}
	if err != nil && (strings.Contains(err.Error(), "panic:") || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported)) {
		t.Fatal(err)
	}
	return err
}

// FuzzAvro feeds arbitrary bytes as Avro files.
func FuzzAvro(f *testing.F) {
	s := avroTypes(f)
	in := randomRows(newRand(44), s, 0, 20, valueShape{nulls: 0.2, repeats: 40})
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		f.Add(avroFile(f, s, in, codec, 12))
	}
	paths, err := filepath.Glob("testdata/paimon/golden.db/pk_postpone/bucket-postpone/*.avro")
	if err != nil || len(paths) == 0 {
		f.Fatal(err, paths)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { readHostileAvro(t, b, s) })
}
