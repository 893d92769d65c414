package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"

	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/schema"
)

// framed writes a value as the serializers of a registry do.
func framed(t testing.TB, id int, schemaText string, v any) []byte {
	t.Helper()
	return framedBy(t, id, avro.MustParse(schemaText), v)
}

func framedBy(t testing.TB, id int, s *avro.Schema, v any) []byte {
	t.Helper()
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(id))
	b, err := s.AppendEncode(b, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tableOf makes a schema of columns as in SQL.
func tableOf(t testing.TB, columns string, keys ...string) *schema.Schema {
	t.Helper()
	cols, err := schema.ParseColumns(columns)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func avroDecoderOf(t testing.TB, s *schema.Schema, texts ...string) *avroDecoder {
	t.Helper()
	schemas := &Schemas{}
	for i, text := range texts {
		schemas.Add(i+1, WriterSchema{Kind: AvroSchema, Text: text})
	}
	d, err := New(Config{Schema: s, Format: Avro, Schemas: schemas})
	if err != nil {
		t.Fatal(err)
	}
	return d.(*avroDecoder)
}

// linesOf takes the batch and gives its rows as JSON, with the kinds before them.
func linesOf(d Decoder) (out []string) {
	b := d.Take()
	if b.Rec == nil {
		return nil
	}
	enc := rowjson.NewEncoder(b.Rec.Schema())
	for i := range b.Len() {
		kind := schema.Insert
		if b.Kinds != nil {
			kind = b.Kinds[i]
		}
		out = append(out, kind.String()+string(enc.Append(nil, b.Rec, i)))
	}
	return out
}

func rat(n, d int64) *big.Rat { return big.NewRat(n, d) }

// TestAvroValues reads one value of a type into a column, and nulls of it, between rows that are refused.
func TestAvroValues(t *testing.T) {
	moment := time.Date(2024, 2, 29, 23, 59, 58, 123456789, time.UTC)
	for _, c := range []struct {
		typ    string
		v      any
		column string
		want   string // or what the error says
	}{
		{`"boolean"`, true, "BOOLEAN", "true"}, {`"boolean"`, true, "INT", "cannot be kept in type INT"},
		{`"int"`, int32(-7), "TINYINT", "-7"}, {`"int"`, int32(-129), "TINYINT", "out of range"}, {`"int"`, int32(7), "SMALLINT", "7"},
		{`"int"`, int32(1 << 30), "INT", "1073741824"}, {`"int"`, int32(-5), "BIGINT", "-5"}, {`"int"`, int32(5), "DOUBLE", "5"}, {`"int"`, int32(5), "FLOAT", "5"},
		{`"int"`, int32(5), "DECIMAL(5, 2)", `"5.00"`}, {`"int"`, int32(5000), "DECIMAL(5, 2)", "does not fit"}, {`"int"`, int32(5), "STRING", `"5"`}, {`"int"`, int32(3), "DATE", `"1970-01-04"`},
		{`"long"`, int64(-1 << 63), "BIGINT", "-9223372036854775808"}, {`"long"`, int64(1 << 31), "INT", "out of range"}, {`"long"`, int64(-1 << 63), "DECIMAL(38, 0)", `"-9223372036854775808"`},
		{`"long"`, int64(-1 << 63), "DOUBLE", "-9223372036854776000"}, {`"long"`, int64(1500), "TIMESTAMP(3)", `"1970-01-01T00:00:01.500"`}, {`"long"`, int64(1500), "TIME(3)", `"00:00:01.500"`},
		{`"float"`, float32(0.1), "FLOAT", "0.1"}, {`"float"`, float32(0.5), "DOUBLE", "0.5"}, {`"float"`, float32(0.1), "STRING", `"0.1"`}, {`"double"`, 1e300, "FLOAT", "out of range"},
		{`"double"`, 0.1, "DOUBLE", "0.1"}, {`"double"`, 0.1, "DECIMAL(3, 1)", "cannot be kept"},
		{`"string"`, "é", "STRING", `"é"`}, {`"string"`, "ééé", "VARCHAR(2)", "characters"}, {`"string"`, "\xff", "STRING", "UTF-8"}, {`"string"`, "ab", "BYTES", `"YWI="`}, {`"string"`, "abc", "BINARY(2)", "bytes"},
		{`"string"`, "12.50", "DECIMAL(4, 2)", `"12.50"`}, {`"string"`, "x", "INT", "not a value"}, {`"string"`, "2024-02-29T01:02:03+01:00", "TIMESTAMP(0)", `"2024-02-29T00:02:03.000"`}, {`"string"`, "true", "BOOLEAN", "cannot be kept"},
		{`"bytes"`, []byte("a\x00"), "BYTES", `"YQA="`}, {`"bytes"`, []byte("ab"), "STRING", `"ab"`}, {`"bytes"`, []byte{0xff}, "STRING", "UTF-8"}, {`"bytes"`, []byte("1"), "INT", "cannot be kept"},
		{`{"type":"fixed","name":"F","size":2}`, []byte("ab"), "BINARY(2)", `"YWI="`}, {`{"type":"fixed","name":"F","size":2}`, []byte("ab"), "STRING", "cannot be kept"},
		{`{"type":"enum","name":"E","symbols":["A","B"]}`, "B", "STRING", `"B"`},
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(-12345, 100), "DECIMAL(10, 2)", `"-123.45"`},
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(-12345, 100), "DECIMAL(10, 4)", `"-123.4500"`},
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(-12345, 100), "DECIMAL(10, 1)", "decimal places"},
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(-12345, 100), "DECIMAL(4, 2)", "does not fit"},
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(5, 100), "STRING", `"0.05"`}, {`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(5, 100), "DOUBLE", `0.05`},
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(500, 100), "BIGINT", `5`}, {`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, rat(505, 100), "BIGINT", `whole`},
		{`{"type":"fixed","name":"F","size":9,"logicalType":"decimal","precision":20,"scale":0}`, rat(-1, 1), "DECIMAL(20, 0)", `"-1"`},
		{`{"type":"bytes","logicalType":"decimal","precision":60,"scale":0}`, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(-3), 130)), "STRING", `"-4083388403051261561560495289181218537472"`},
		{`{"type":"int","logicalType":"date"}`, moment, "DATE", `"2024-02-29"`}, {`{"type":"int","logicalType":"date"}`, moment, "TIMESTAMP(3)", "cannot be kept"}, {`{"type":"int","logicalType":"date"}`, moment, "STRING", "cannot be kept"},
		{`{"type":"int","logicalType":"time-millis"}`, 3661001 * time.Millisecond, "TIME(3)", `"01:01:01.001"`}, {`{"type":"long","logicalType":"time-micros"}`, 3661001002 * time.Microsecond, "TIME(3)", `"01:01:01.001"`},
		{`{"type":"long","logicalType":"time-micros"}`, 3661001002 * time.Microsecond, "STRING", `"01:01:01.001002"`}, {`{"type":"long","logicalType":"time-micros"}`, 24 * time.Hour, "TIME(3)", "out of range"},
		{`{"type":"long","logicalType":"timestamp-millis"}`, moment, "TIMESTAMP(3)", `"2024-02-29T23:59:58.123"`}, {`{"type":"long","logicalType":"timestamp-micros"}`, moment, "TIMESTAMP(6)", `"2024-02-29T23:59:58.123456"`},
		{`{"type":"long","logicalType":"timestamp-millis"}`, moment, "TIMESTAMP(9)", `"2024-02-29T23:59:58.123000000"`}, {`{"type":"long","logicalType":"timestamp-nanos"}`, moment, "TIMESTAMP(3)", `"2024-02-29T23:59:58.123"`},
		{`{"type":"long","logicalType":"timestamp-micros"}`, moment.AddDate(-100, 0, 0), "TIMESTAMP(3)", `"1924-02-29T23:59:58.123"`}, {`{"type":"long","logicalType":"timestamp-micros"}`, moment, "BIGINT", "1709251198123456"},
		{`{"type":"long","logicalType":"local-timestamp-micros"}`, moment, "TIMESTAMP(6)", `"2024-02-29T23:59:58.123456"`}, {`{"type":"long","logicalType":"timestamp-millis"}`, moment.AddDate(8000, 0, 0), "TIMESTAMP(3)", "out of range"},
		{`{"type":"long","logicalType":"timestamp-millis"}`, moment.AddDate(300, 0, 0), "TIMESTAMP(9)", "out of range"},
		{`{"type":"string","logicalType":"uuid"}`, "0f0e0d0c-0b0a-0908-0706-050403020100", "STRING", `"0f0e0d0c-0b0a-0908-0706-050403020100"`},
		{`{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`, [16]byte{1, 2, 15: 255}, "STRING", `"01020000-0000-0000-0000-0000000000ff"`},
		{`{"type":"array","items":["null","long"]}`, []any{int64(1), nil}, "ARRAY<BIGINT>", "[1,null]"}, {`{"type":"array","items":["null","long"]}`, []any{int64(1), nil}, "ARRAY<BIGINT NOT NULL>", `"v.element": is missing or null`},
		{`{"type":"array","items":"string"}`, []string{"a", "x"}, "ARRAY<INT>", "v.element"}, {`{"type":"array","items":"int"}`, []int32{}, "ARRAY<INT>", "[]"},
		{`{"type":"map","values":"int"}`, map[string]int32{"k": 1}, "MAP<STRING NOT NULL, BIGINT>", `[["k",1]]`}, {`{"type":"map","values":"int"}`, map[string]int32{"7": 1}, "MAP<INT NOT NULL, BIGINT>", `[[7,1]]`},
		{`{"type":"array","items":{"type":"record","name":"P","fields":[{"name":"key","type":"int"},{"name":"value","type":["null","string"]}]}}`, []any{map[string]any{"key": int32(1), "value": "x"}}, "MAP<INT NOT NULL, STRING>", `[[1,"x"]]`},
		{`{"type":"record","name":"R","fields":[{"name":"b","type":"int"},{"name":"x","type":"string"},{"name":"a","type":["null","long"]}]}`, map[string]any{"b": int32(1), "x": "no", "a": int64(2)}, "ROW<a BIGINT, b INT, c INT>", `{"a":2,"b":1,"c":null}`},
		{`{"type":"record","name":"R","fields":[{"name":"b","type":"int"}]}`, map[string]any{"b": int32(1)}, "ROW<b INT, c INT NOT NULL>", `"v.c": is missing or null`},
		{`{"type":"record","name":"R","fields":[{"name":"b","type":"int"}]}`, map[string]any{"b": int32(1)}, "INT", "cannot be kept"},
		{`["int","string","null"]`, "x", "STRING", `"x"`}, {`["int","string","null"]`, int32(4), "STRING", `"4"`}, {`["int","string","null"]`, "x", "BIGINT", "not a value"},
		{`["int","long","null"]`, int64(9), "BIGINT", "9"}, {`["int",{"type":"array","items":"int"}]`, []int32{1}, "INT", "cannot be kept"},
	} {
		name := c.typ + " in " + c.column
		text := `{"type":"record","name":"Top","fields":[{"name":"v","type":` + c.typ + `},{"name":"n","type":"int"}]}`
		null := `{"type":"record","name":"Top","fields":[{"name":"n","type":"int"},{"name":"v","type":["null",` + strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(c.typ, `,"null"`, ""), "["), "]") + `]}]}`
		texts := []string{text, null}
		d := avroDecoderOf(t, tableOf(t, "n INT, v "+c.column), texts...)
		good := framed(t, 1, text, map[string]any{"v": c.v, "n": int32(1)})
		err := d.Decode(&Record{Value: good})
		if err == nil {
			for range 3 {
				if err := d.Decode(&Record{Value: good[:len(good)-1]}); err == nil {
					t.Fatal("half a record was taken")
				}
				if err := d.Decode(&Record{Value: framed(t, 2, null, map[string]any{"v": nil, "n": int32(2)})}); err != nil && !strings.Contains(c.column, "NOT NULL>") {
					t.Errorf("%s: null: %v", name, err)
				}
				if err := d.Decode(&Record{Value: good}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		lines := linesOf(d)
		got := fmt.Sprint(err)
		if err == nil {
			got = strings.TrimSuffix(strings.TrimPrefix(lines[0], `+I{"n":1,"v":`), "}")
			if len(lines) != 7 || lines[1] != `+I{"n":2,"v":null}` || lines[6] != lines[0] {
				t.Errorf("%s: rows %q", name, lines)
			}
		}
		if err != nil && (!errors.Is(err, ErrRow) || !strings.Contains(got, c.want)) || err == nil && got != c.want {
			t.Errorf("%s: %v gives %s, want %s", name, c.v, got, c.want)
		}
	}
}

// TestAvroResolution: fields are matched by name, by aliases and defaults of the reader's schema; the table's default
// goes before the reader's.
func TestAvroResolution(t *testing.T) {
	old := `{"type":"record","name":"T","fields":[{"name":"was","type":"int"},{"name":"gone","type":{"type":"array","items":{"type":"map","values":"string"}}},{"name":"id","type":"int"},
		{"name":"r","type":["null",{"type":"record","name":"R","fields":[{"name":"x0","type":"int"}]}]}]}`
	reader := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"now","type":"long","aliases":["was"]},{"name":"tags","type":{"type":"array","items":"string"},"default":["a","b"]},
		{"name":"word","type":"string","default":"reader"},{"name":"other","type":["null","string"],"default":null},
		{"name":"r","type":["null",{"type":"record","name":"R","fields":[{"name":"x","type":"double","aliases":["x0"]},{"name":"y","type":["string","null"],"default":"why"}]}]}]}`
	s := tableOf(t, "id BIGINT, now BIGINT, tags ARRAY<STRING>, word STRING, other STRING, r ROW<x DOUBLE, y STRING, z INT>, more INT")
	table := "table"
	s.Fields[3].Default = &table
	d := avroDecoderOf(t, s, old)
	value := framed(t, 1, old, map[string]any{"was": int32(1), "gone": []any{map[string]any{"k": "v"}}, "id": int32(2), "r": map[string]any{"x0": int32(5)}})
	decode := func(value []byte, want string) {
		t.Helper()
		if err := d.Decode(&Record{Value: value}); err != nil {
			t.Fatal(err)
		}
		if got := linesOf(d); len(got) != 1 || got[0] != want {
			t.Fatalf("%q, want %s", got, want)
		}
	}
	decode(value, `+I{"id":2,"now":null,"tags":null,"word":"table","other":null,"r":{"x":null,"y":null,"z":null},"more":null}`)
	d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: reader})
	decode(value, `+I{"id":2,"now":1,"tags":["a","b"],"word":"table","other":null,"r":{"x":5,"y":"why","z":null},"more":null}`)
	decode(framed(t, 1, old, map[string]any{"was": int32(1), "gone": []any{}, "id": int32(2), "r": nil}), `+I{"id":2,"now":1,"tags":["a","b"],"word":"table","other":null,"r":null,"more":null}`)
}

// TestAvroEvolution: fields of the writer's schema become columns by the pipeline's policy, before any of its values.
func TestAvroEvolution(t *testing.T) {
	text := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"more","type":["null","string"]},{"name":"r","type":["null",{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"double"}]}]}]}`
	odd := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"odd","type":["int","string"]}]}`
	wide := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"n","type":"long"}]}`
	twice := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"ID","type":"long"}]}`
	values := [][]byte{framed(t, 1, text, map[string]any{"id": int64(1), "more": nil, "r": nil}), framed(t, 2, odd, map[string]any{"id": int64(1), "odd": "x"}),
		framed(t, 3, wide, map[string]any{"id": int64(1), "n": int64(1) << 40}), framed(t, 4, twice, map[string]any{"id": int64(1), "ID": int64(2)})}
	for policy, want := range map[Evolution][4]string{
		Freeze:  {`+I{"id":1,"r":null,"n":null}`, `+I{"id":1,"r":null,"n":null}`, "out of range", `+I{"id":1,"r":null,"n":null}`},
		Strict:  {`field "more": there is no such column`, `field "odd": there is no such column`, "out of range", "no such column"},
		AddOnly: {"needs another schema: add more STRING; add r.b DOUBLE", `field "odd": there is no column type`, "out of range", "in case alone"},
		Evolve:  {"needs another schema: add more STRING; add r.b DOUBLE", `field "odd": there is no column type`, "change n to BIGINT", "in case alone"},
	} {
		d := avroDecoderOf(t, tableOf(t, "id BIGINT, r ROW<a INT>, n INT"), text, odd, wide, twice)
		d.cfg.Evolution = policy
		for i, v := range values {
			err := d.Decode(&Record{Value: v})
			if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, want[i]) {
				t.Errorf("%s, schema %d: %s, want %s", policy, i+1, got, want[i])
			}
		}
	}
}

// TestAvroFraming: what precedes the bytes, row kinds, and deletes by key.
func TestAvroFraming(t *testing.T) {
	row := `{"type":"record","name":"T","fields":[{"name":"op","type":["null","string"]},{"name":"id","type":"int"},{"name":"v","type":["null","string"]}]}`
	key := `{"type":"record","name":"K","fields":[{"name":"id","type":"long"}]}`
	d := avroDecoderOf(t, tableOf(t, "id BIGINT, v STRING", "id"), row, key, `"long"`, `["null","int"]`, `{"type":"record"`)
	d.schemas.Refuse(8, "nobody knows it")
	value := func(op any) []byte { return framed(t, 1, row, map[string]any{"op": op, "id": int32(1), "v": "x"}) }
	for _, c := range []struct {
		key, value []byte
		want       string
	}{
		{nil, value(nil), `+I{"id":1,"v":"x"}`}, {nil, value("u"), `+U{"id":1,"v":"x"}`}, {nil, value("d"), `-D{"id":1,"v":"x"}`}, {nil, value("?"), `operation "?" is unknown`},
		{framed(t, 2, key, map[string]any{"id": int64(4)}), nil, `-D{"id":4,"v":null}`}, {framed(t, 3, `"long"`, int64(5)), nil, `-D{"id":5,"v":null}`}, {nil, nil, "no key"},
		{[]byte("text"), nil, "byte 0 of the key"}, {framed(t, 4, `["null","int"]`, nil), nil, "missing or null"},
		{nil, []byte{}, "is empty"}, {nil, []byte{1, 0, 0, 0, 1}, "byte 1"}, {nil, []byte{0, 0, 0}, "ends within"}, {nil, append(value(nil), 0), "1 bytes more"},
		{nil, framed(t, 3, `"long"`, int64(5)), "not a record but long"}, {nil, []byte{0, 0, 0, 0, 5}, "not valid"}, {nil, []byte{0, 0, 0, 0, 8}, "nobody knows it"},
		{nil, []byte{0, 0, 0, 0, 9}, "schema of id 9 is not known yet"},
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
	d.schemas.Forget(8)
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 8}}); err == nil || errors.Is(err, ErrRow) {
		t.Errorf("forgotten: %v", err)
	}
}

const hostileAvro = `{"type":"record","name":"Top","fields":[{"name":"id","type":"int"},{"name":"list","type":["null",{"type":"record","name":"Node","fields":[{"name":"v","type":"int"},{"name":"next","type":["null","Node"]}]}]},
 {"name":"nulls","type":{"type":"array","items":"null"}},{"name":"a","type":{"type":"array","items":["null","string"]}},{"name":"m","type":{"type":"map","values":["null","int"]}},{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},
 {"name":"u","type":["int","string",{"type":"fixed","name":"F","size":3}]},{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},{"name":"r","type":["null",{"type":"record","name":"R","fields":[{"name":"x","type":"double"},{"name":"y","type":"boolean"}]}]}]}`

const hostileColumns = "id BIGINT, nulls ARRAY<INT>, a ARRAY<STRING>, m MAP<STRING NOT NULL, INT>, e STRING, u STRING, d DECIMAL(10, 2), r ROW<x DOUBLE, y BOOLEAN>"

func hostileSeed(t testing.TB) []byte {
	return framed(t, 1, hostileAvro, map[string]any{"id": int32(1), "list": map[string]any{"v": int32(1), "next": map[string]any{"v": int32(2), "next": nil}}, "nulls": []any{nil, nil}, "a": []any{"x", nil},
		"m": map[string]any{"k": int32(1)}, "e": "B", "u": "text", "d": rat(1, 2), "r": map[string]any{"x": 1.5, "y": true}})
}

// TestAvroHostile: no bytes make the decoder fail otherwise than with an error, or take memory that they do not have.
func TestAvroHostile(t *testing.T) {
	d := avroDecoderOf(t, tableOf(t, hostileColumns), hostileAvro)
	seed := hostileSeed(t)
	for i := framing; i < len(seed); i++ {
		for _, c := range []byte{0, 1, 2, 0x7f, 0x80, 0xff} {
			b := append([]byte(nil), seed...)
			b[i] = c
			checkHostile(t, d, b)
		}
		checkHostile(t, d, seed[:i])
	}
	deep := append([]byte(nil), seed[:framing]...)
	deep = append(deep, 2)
	for range 10_000 {
		deep = append(deep, 2, 0)
	}
	if err := d.Decode(&Record{Value: deep}); err == nil || !strings.Contains(err.Error(), "records within each other") {
		t.Errorf("deep: %v", err)
	}
	many := append(append([]byte(nil), seed[:framing]...), 2, 0)
	many = append(binary.AppendVarint(many, 1<<60), 0, 0, 0)
	if err := d.Decode(&Record{Value: many}); err == nil || !strings.Contains(err.Error(), "elements without a byte") {
		t.Errorf("many: %v", err)
	}
}

// checkHostile decodes; what is taken the library takes too.
func checkHostile(t *testing.T, d *avroDecoder, b []byte) {
	t.Helper()
	err := d.Decode(&Record{Value: b})
	d.Take()
	var missing *MissingSchema
	switch {
	case err == nil:
		var v any
		if rest, err := avro.MustParse(hostileAvro).Decode(b[framing:], &v); err != nil || len(rest) > 0 {
			t.Fatalf("%x was taken; the library says %v and leaves %d bytes", b, err, len(rest))
		}
	case !errors.Is(err, ErrRow) && !errors.As(err, &missing):
		t.Fatalf("%x: %v", b, err)
	}
}

func FuzzAvro(f *testing.F) {
	f.Add(hostileSeed(f))
	d := avroDecoderOf(f, tableOf(f, hostileColumns), hostileAvro)
	f.Fuzz(func(t *testing.T, b []byte) { checkHostile(t, d, b) })
}

func FuzzAvroSchema(f *testing.F) {
	f.Add(hostileAvro)
	f.Fuzz(func(t *testing.T, text string) {
		w := WriterSchema{Kind: AvroSchema, Text: text}
		cols, err := ColumnsOfAvro(w, "")
		if err != nil || len(cols) == 0 {
			return
		}
		s, err := schema.New(schema.Spec{Columns: cols})
		if err != nil {
			return
		}
		avroDecoderOf(t, s, text).Decode(&Record{Value: make([]byte, 100)})
	})
}

// TestColumnsOfAvro maps a schema.
func TestColumnsOfAvro(t *testing.T) {
	text := `{"type":"record","name":"T","fields":[{"name":"a","type":"int","doc":"first"},{"name":"b","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},{"name":"c","type":{"type":"long","logicalType":"local-timestamp-nanos"}},
	{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":12,"scale":3}},{"name":"e","type":{"type":"bytes","logicalType":"decimal","precision":64,"scale":3}},{"name":"f","type":{"type":"fixed","name":"F","size":4}},
	{"name":"g","type":{"type":"array","items":{"type":"record","name":"R","fields":[{"name":"x","type":"double"},{"name":"none","type":{"type":"record","name":"N","fields":[]}}]}}},{"name":"h","type":{"type":"map","values":"R"}},
	{"name":"i","type":{"type":"record","name":"N2","fields":[]}},{"name":"j","type":["int","double"]},{"name":"k","type":{"type":"int","logicalType":"time-millis"}},{"name":"l","type":{"type":"long","logicalType":"time-micros"}},
	{"name":"m","type":{"type":"enum","name":"E","symbols":["A"]}},{"name":"n","type":{"type":"int","logicalType":"date"}},{"name":"o","type":"null"},
	{"name":"p","type":{"type":"string","connect.name":"io.debezium.time.ZonedTimestamp"}},{"name":"q","type":{"type":"long","connect.name":"io.debezium.time.MicroTimestamp"}}]}`
	cols, err := ColumnsOfAvro(WriterSchema{Kind: AvroSchema, Text: text}, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cols {
		got = append(got, c.Name+" "+c.Type.String())
	}
	want := "a INT, b TIMESTAMP(6) WITH LOCAL TIME ZONE, c TIMESTAMP(9), d DECIMAL(12, 3), e STRING, f BINARY(4), g ARRAY<ROW<`x` DOUBLE>>, h MAP<STRING NOT NULL, ROW<`x` DOUBLE>>, j DOUBLE, k TIME(3), l STRING, m STRING, n DATE, p TIMESTAMP(6) WITH LOCAL TIME ZONE, q TIMESTAMP(6)"
	if s := strings.Join(got, ", "); s != want || cols[0].Comment != "first" {
		t.Errorf("%s\nwant\n%s", s, want)
	}
	for text, want := range map[string]string{
		`"int"`: "not a record", `{"type":"record","name":"T","fields":[{"name":"u","type":["int","string"]}]}`: `"u": there is no column type for a union of int, string`,
		`{"type":"record","name":"T","fields":[{"name":"u","type":["null",{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}]}]}`: `"u.next": the type record N contains itself`,
	} {
		if _, err := ColumnsOfAvro(WriterSchema{Kind: AvroSchema, Text: text}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Types that double with every level.
	var b strings.Builder
	b.WriteString(`{"type":"record","name":"T","fields":[{"name":"l0","type":{"type":"record","name":"R0","fields":[{"name":"x","type":"int"}]}}`)
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, `,{"name":"l%d","type":{"type":"record","name":"R%d","fields":[{"name":"a","type":"R%d"},{"name":"b","type":"R%d"}]}}`, i, i, i-1, i-1)
	}
	b.WriteString("]}")
	if _, err := ColumnsOfAvro(WriterSchema{Kind: AvroSchema, Text: b.String()}, ""); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("doubling types: %v", err)
	}
	d := avroDecoderOf(t, tableOf(t, "l0 ROW<x INT>"), b.String())
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2}}); !errors.Is(err, ErrRow) {
		t.Errorf("doubling types: %v", err)
	}
}

const benchAvro = `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"lsn","type":["null","long"]},{"name":"kind","type":["null","int"]},{"name":"email","type":["null","string"]},{"name":"product","type":["null","string"]},
{"name":"score","type":["null","double"]},{"name":"created_at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},{"name":"amount","type":["null",{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}]},
{"name":"qty","type":["null","int"]},{"name":"active","type":["null","boolean"]}]}`

// benchAvroMessages are the rows of BenchmarkDecodeFlat as Avro.
func benchAvroMessages(t testing.TB) ([]Record, int64) {
	recs, _ := benchMessages(appendFlat)
	d := newTestDecoder(t, Config{Schema: benchSchema(), BatchRows: 1 << 20})
	for i := range recs {
		if err := d.Decode(&recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	total, parsed := int64(0), avro.MustParse(benchAvro)
	for i, row := range rowsOf(d) {
		row = row[1:]
		m := map[string]any{}
		for c, f := range benchFields {
			m[f.Name] = row[c]
		}
		m["created_at"] = time.UnixMicro(1750000000000000 + int64(i)*1000)
		amount, _ := new(big.Rat).SetString(fmt.Sprint(row[7]))
		m["amount"] = amount
		recs[i].Value = framedBy(t, 1, parsed, m)
		total += int64(len(recs[i].Value))
	}
	return recs, total
}

func BenchmarkDecodeAvro(b *testing.B) {
	recs, total := benchAvroMessages(b)
	d := avroDecoderOf(b, benchSchema(), benchAvro)
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

func TestAvroNoAllocations(t *testing.T) {
	recs, _ := benchAvroMessages(t)
	d := avroDecoderOf(t, benchSchema(), benchAvro)
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
