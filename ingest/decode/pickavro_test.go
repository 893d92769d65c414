package decode

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// picked asks a picker as a route does, and checks that what was in the buffer stays.
func picked(t testing.TB, p *Picker, r *Record) (text string, ok bool, err error) {
	t.Helper()
	b, ok, err := p.Pick([]byte("before "), r)
	text, kept := strings.CutPrefix(string(b), "before ")
	if !kept {
		t.Errorf("the buffer was lost: %q", b)
	}
	return text, ok, err
}

func pickerOf(t testing.TB, format Format, path string, kind SchemaKind, texts ...string) *Picker {
	t.Helper()
	p, err := NewPicker(format, path)
	if err != nil {
		t.Fatal(err)
	}
	p.Schemas = &Schemas{}
	for i, text := range texts {
		p.Schemas.Add(i+1, WriterSchema{Kind: kind, Text: text})
	}
	return p
}

const noPick = "-" // there is no field

// checkPick compares with what is wanted: a text, noPick, or behind ! what the error says.
func checkPick(t testing.TB, p *Picker, r *Record, want string) {
	t.Helper()
	text, ok, err := picked(t, p, r)
	if said, bad := strings.CutPrefix(want, "!"); bad {
		if err == nil || !errors.Is(err, ErrRow) || !strings.Contains(err.Error(), said) {
			t.Errorf("%s of %q %q: %q %v, want %s", strings.Join(p.path, "."), r.Key, r.Value, text, err, want)
		}
		return
	}
	if !ok {
		text = noPick
	}
	if err != nil || text != want {
		t.Errorf("%s of %q %q: %q %v, want %q", strings.Join(p.path, "."), r.Key, r.Value, text, err, want)
	}
}

const pickAvro = `{"type":"record","name":"shop.Row","fields":[
 {"name":"list","type":{"type":"array","items":["null","string"]}},{"name":"map","type":{"type":"map","values":"double"}},
 {"name":"at","type":["null",{"type":"record","name":"At","fields":[{"name":"raw","type":"bytes"},{"name":"who","type":["null","string"]},{"name":"up","type":["null","At"]}]}]},
 {"name":"who","type":"string"},{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["ONE","TWO"]}},{"name":"small","type":"int"},{"name":"large","type":["long","null"]},{"name":"yes","type":"boolean"},
 {"name":"any","type":["null","string","long","boolean",{"type":"array","items":"int"},"At"]},{"name":"day","type":{"type":"int","logicalType":"date"}},
 {"name":"id","type":{"type":"fixed","name":"Id","size":16,"logicalType":"uuid"}},{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
 {"name":"time","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"float","type":"double"},{"name":"fixed","type":{"type":"fixed","name":"F","size":3}}]}`

func pickRow(with ...any) map[string]any {
	m := map[string]any{"list": []any{"x", nil}, "map": map[string]any{"k": 1.5}, "at": nil, "who": "w", "kind": "TWO", "small": int32(-7), "large": int64(1) << 40, "yes": true, "any": nil,
		"day": int32(19782), "id": [16]byte{1, 15: 255}, "price": rat(1, 2), "time": int64(5), "float": 1.5, "fixed": []byte("abc")}
	for i := 0; i < len(with); i += 2 {
		m[with[i].(string)] = with[i+1]
	}
	return m
}

// TestPickAvro: a field is found in records of Avro by its type, and nothing is found where there is none.
func TestPickAvro(t *testing.T) {
	at := func(who any, up any) map[string]any {
		return map[string]any{"raw": []byte("\xff"), "who": who, "up": up}
	}
	for _, c := range []struct {
		path  string
		value map[string]any
		want  string
	}{
		{"who", pickRow(), "w"}, {"who", pickRow("who", ""), ""}, {"who", pickRow("who", "a\xff"), "!is not valid UTF-8"}, {"kind", pickRow(), "TWO"}, {"small", pickRow(), "-7"},
		{"large", pickRow(), "1099511627776"}, {"large", pickRow("large", nil), noPick}, {"yes", pickRow(), "true"}, {"yes", pickRow("yes", false), "false"},
		{"at.who", pickRow(), noPick}, {"at.who", pickRow("at", at("x", nil)), "x"}, {"at.who", pickRow("at", at(nil, nil)), noPick}, {"at.up.who", pickRow("at", at("x", at("y", nil))), "y"},
		{"at.up.up.who", pickRow("at", at("x", at("y", nil))), noPick}, {"at.none", pickRow("at", at("x", nil)), noPick}, {"none", pickRow(), noPick}, {"who.x", pickRow(), noPick}, {"list.x", pickRow(), noPick},
		{"any", pickRow(), noPick}, {"any", pickRow("any", "s"), "s"}, {"any", pickRow("any", int64(5)), "5"}, {"any", pickRow("any", false), "false"}, {"any.who", pickRow("any", at("deep", nil)), "deep"}, {"any.who", pickRow("any", "s"), noPick},
		{"any", pickRow("any", []any{int32(1)}), "!type array, which chooses no table"}, {"any", pickRow("any", at("x", nil)), "!type record shop.At, which chooses no table"},
		{"at", pickRow("at", at("x", nil)), "!type record shop.At"}, {"at", pickRow(), noPick}, {"at.raw", pickRow("at", at("x", nil)), `!the field "at.raw" is of the type bytes`}, {"list", pickRow(), "!type array"}, {"map", pickRow(), "!type map"},
		{"day", pickRow(), "2024-02-29"}, {"day", pickRow("day", int32(1<<30)), "!a date of day 1073741824"}, {"id", pickRow(), "01000000-0000-0000-0000-0000000000ff"},
		{"price", pickRow(), "!type bytes (decimal)"}, {"time", pickRow(), "!type long (timestamp-millis)"}, {"float", pickRow(), "!type double"}, {"fixed", pickRow(), "!type fixed shop.F"},
	} {
		p := pickerOf(t, Avro, c.path, AvroSchema, pickAvro)
		r := &Record{Value: framed(t, 1, pickAvro, c.value)}
		for range 2 { // by a new plan, and by the one that was made
			checkPick(t, p, r, c.want)
		}
	}
}

// TestPickAvroSchemas: records of several schemas that have the field in different places, and schemas that cannot be had.
func TestPickAvroSchemas(t *testing.T) {
	second := `{"type":"record","name":"Row","fields":[{"name":"who","type":"long"}]}`
	without := `{"type":"record","name":"Row","fields":[{"name":"tenant","type":"string","aliases":["who"]}]}`
	p := pickerOf(t, Avro, "who", AvroSchema, pickAvro, second, without, `"long"`, `{"type":"record"`)
	p.Schemas.Add(6, WriterSchema{Kind: ProtobufSchema, Text: `message T {}`})
	p.Schemas.Refuse(7, "nobody knows it")
	for range 2 {
		for _, c := range []struct {
			value []byte
			want  string
		}{
			{framed(t, 1, pickAvro, pickRow()), "w"}, {framed(t, 2, second, map[string]any{"who": int64(8)}), "8"}, {framed(t, 3, without, map[string]any{"tenant": "x"}), noPick},
			{framed(t, 4, `"long"`, int64(5)), "!schema id 4: the writer's schema is not a record but long (at byte 1 of the value)"}, {[]byte{0, 0, 0, 0, 5}, "!schema id 5: the schema is not valid"},
			{[]byte{0, 0, 0, 0, 6}, "!is of kind PROTOBUF"}, {[]byte{0, 0, 0, 0, 7}, "!nobody knows it"}, {[]byte{}, "!is empty"}, {[]byte(`{"who":"x"}`), "!begins with the byte 123"}, {[]byte{0, 0, 0}, "!ends within"},
		} {
			checkPick(t, p, &Record{Value: c.value}, c.want)
		}
	}
	r := &Record{Value: append([]byte{0, 0, 0, 0, 9}, framed(t, 2, second, map[string]any{"who": int64(3)})[framing:]...)}
	var missing *MissingSchema
	if _, _, err := picked(t, p, r); !errors.As(err, &missing) || missing.ID != 9 || errors.Is(err, ErrRow) {
		t.Errorf("a schema that nobody has asked for: %v", err)
	}
	p.Schemas.Refuse(9, "not there")
	checkPick(t, p, r, "!not there")
	p.Schemas.Forget(9)
	if _, _, err := picked(t, p, r); !errors.As(err, &missing) {
		t.Errorf("a schema that was forgotten: %v", err)
	}
	p.Schemas.Add(9, WriterSchema{Kind: AvroSchema, Text: second})
	checkPick(t, p, r, "3")
	p.Schemas = nil
	checkPick(t, p, r, "3")
	if _, _, err := picked(t, p, &Record{Value: []byte{0, 0, 0, 0, 10}}); !errors.As(err, &missing) {
		t.Errorf("without schemas: %v", err)
	}
	p.Schemas = &Schemas{}
	for id := range 3 * maxPicks { // what is remembered has a bound
		p.Schemas.Add(100+id, WriterSchema{Kind: AvroSchema, Text: second})
		checkPick(t, p, &Record{Value: append(binary.BigEndian.AppendUint32([]byte{0}, uint32(100+id)), 2)}, "1")
	}
	if n := len(p.avro.plans); n > maxPicks {
		t.Errorf("%d plans are kept", n)
	}
}

// TestPickAvroKeys: a record without value is asked by its key. The tombstone of an event says nothing, whatever its key is.
func TestPickAvroKeys(t *testing.T) {
	key := `{"type":"record","name":"K","fields":[{"name":"id","type":"long"},{"name":"who","type":["null","string"]}]}`
	rec := map[string]any{"id": int64(4), "who": "k"}
	for _, format := range []Format{Avro, DebeziumAvro} {
		p := pickerOf(t, format, "who", AvroSchema, key, `"long"`, `{"type":"record"`)
		good := framed(t, 1, key, rec)
		if format == DebeziumAvro {
			for _, k := range [][]byte{good, {0, 0, 0, 0, 3}, {0, 0, 0, 0, 8}, []byte(`{"id":1}`), {0, 0}, nil} {
				checkPick(t, p, &Record{Key: k}, noPick)
			}
			checkPick(t, p, &Record{Value: good}, "!no envelope")
			continue
		}
		checkPick(t, p, &Record{Key: good}, "k")
		checkPick(t, p, &Record{Key: framed(t, 1, key, map[string]any{"id": int64(4), "who": nil})}, noPick)
		checkPick(t, p, &Record{}, noPick)
		checkPick(t, p, &Record{Key: framed(t, 2, `"long"`, int64(5))}, noPick)
		checkPick(t, p, &Record{Key: []byte{0, 0, 0, 0, 3}}, "!(at byte 1 of the key)")
		checkPick(t, p, &Record{Key: good[:len(good)-1]}, "!of the key")
		checkPick(t, p, &Record{Key: []byte(`{"id":1}`)}, "!begins with the byte 123, not with 0 and the id of a schema (at byte 0 of the key)")
		var missing *MissingSchema
		if _, _, err := picked(t, p, &Record{Key: []byte{0, 0, 0, 0, 8}}); !errors.As(err, &missing) || missing.ID != 8 {
			t.Errorf("key of another schema: %v", err)
		}
		checkPick(t, p, &Record{Value: good}, "k") // the same schema for keys and values
	}
}

// TestPickAvroEvents: of envelopes the row after counts, else the one before; a row whose value changes is in another table.
func TestPickAvroEvents(t *testing.T) {
	row := func(v any) map[string]any { return map[string]any{"id": int32(1), "v": v} }
	late := `{"type":"record","name":"Envelope","fields":[{"name":"op","type":["null","string"]},{"name":"after","type":[{"type":"record","name":"Value","fields":[{"name":"id","type":"int"},{"name":"v","type":["string","null"]}]},"null"]},
	 {"name":"source","type":"string"},{"name":"before","type":["Value","null"]},{"name":"end","type":"long"}]}`
	for _, c := range []struct {
		op            string
		before, after any
		want, whole   string // whole "": as want
	}{
		{"c", nil, row("x"), "x", ""}, {"r", nil, row("x"), "x", ""}, {"u", row("x"), row("x"), "x", ""}, {"d", row("x"), nil, "x", ""}, {"d", row(nil), nil, noPick, ""},
		{"u", nil, row("y"), "y", "!does not tell the row before"}, {"U", nil, row("y"), "y", "!does not tell the row before"}, {"u", row(nil), row("y"), "y", ""}, {"u", row("x"), row("y"), `!was "x" before`, ""},
		{"u", row("x"), row(nil), noPick, ""}, {"t", nil, nil, noPick, ""}, {"m", nil, nil, noPick, ""}, {"c", nil, row("a\xff"), "!UTF-8", ""},
	} {
		p := pickerOf(t, DebeziumAvro, "v", AvroSchema, envelopeAvro, late)
		values := [][]byte{framed(t, 1, envelopeAvro, map[string]any{"ts": int64(5), "op": c.op, "before": c.before, "after": c.after, "source": map[string]any{"x": "y"}}),
			framed(t, 2, late, map[string]any{"op": c.op, "before": c.before, "after": c.after, "source": "s", "end": int64(1)})}
		for _, b := range values {
			p.Whole = false
			checkPick(t, p, &Record{Value: b}, c.want)
			if p.Whole = true; c.whole != "" {
				checkPick(t, p, &Record{Value: b}, c.whole)
			} else {
				checkPick(t, p, &Record{Value: b}, c.want)
			}
		}
	}
	p := pickerOf(t, DebeziumAvro, "v", AvroSchema, envelopeAvro)
	for value, want := range map[string]string{"\x00\x04": "!no such branch (at byte 6 of the value)", "\x00\x00\x04": "!no such branch", "\x00": "!end too early", "\x00\x02\x02\x02": "!end too early", "\x00\x00\x02\x02\x7f": "!end too early"} {
		checkPick(t, p, &Record{Value: append([]byte{0, 0, 0, 0, 1}, value...)}, want)
	}
}

// pickHostile asks for fields of bytes that may be anything: whatever they are, it gives a text or an error of the record.
func pickHostile(t testing.TB, pickers []*Picker, b []byte) {
	t.Helper()
	for _, p := range pickers {
		for _, r := range []Record{{Value: b}, {Key: b}} {
			var missing *MissingSchema
			if text, ok, err := picked(t, p, &r); err != nil && !errors.Is(err, ErrRow) && !errors.As(err, &missing) || ok && len(text) > max(64, len(b)) {
				t.Fatalf("%x: %q %v %v", b, text, ok, err)
			}
		}
	}
}

func hostilePickers(t testing.TB) (out []*Picker) {
	for _, path := range []string{"id", "e", "u", "r.y", "list.next.next.v", "m", "none"} {
		out = append(out, pickerOf(t, Avro, path, AvroSchema, hostileAvro, pickAvro))
	}
	for _, whole := range []bool{false, true} {
		p := pickerOf(t, DebeziumAvro, "v", AvroSchema, hostileAvro, pickAvro, envelopeAvro)
		p.Whole = whole
		out = append(out, p)
	}
	return out
}

// asDecoded checks that what a picker finds is what a decoder reads into a column of texts, for records that it takes.
func asDecoded(t testing.TB, d Decoder, pickers map[string]*Picker, b []byte) {
	t.Helper()
	if d.Decode(&Record{Value: b}) != nil {
		d.Take()
		return
	}
	lines := linesOf(d)
	var row any
	if err := json.Unmarshal([]byte(lines[0][2:]), &row); err != nil {
		t.Fatal(err)
	}
	for path, p := range pickers {
		v := row
		for step := range strings.SplitSeq(path, ".") {
			m, _ := v.(map[string]any)
			v = m[step]
		}
		want, ok := v.(string)
		if text, found, err := picked(t, p, &Record{Value: b}); err != nil || found != ok || text != want {
			t.Fatalf("%s of %x: %q %v %v, decoded is %v", path, b, text, found, err, v)
		}
	}
}

func pickersOf(t testing.TB, format Format, kind SchemaKind, text string, paths ...string) map[string]*Picker {
	out := map[string]*Picker{}
	for _, path := range paths {
		out[path] = pickerOf(t, format, path, kind, text)
	}
	return out
}

// TestPickAvroAsDecoded: a field is what the decoder reads, whatever the bytes are.
func TestPickAvroAsDecoded(t *testing.T) {
	d := avroDecoderOf(t, tableOf(t, "who STRING, kind STRING, small STRING, large STRING, id STRING, at ROW<who STRING, up ROW<who STRING>>"), pickAvro)
	pickers := pickersOf(t, Avro, AvroSchema, pickAvro, "who", "kind", "small", "large", "id", "at.who", "at.up.who")
	at := func(up any) map[string]any { return map[string]any{"raw": []byte("r"), "who": "x", "up": up} }
	for _, v := range []map[string]any{pickRow(), pickRow("at", at(at(nil)), "large", nil, "any", int64(3))} {
		seed := framed(t, 1, pickAvro, v)
		for i := range seed {
			for c := range 256 {
				b := append([]byte(nil), seed...)
				b[i] = byte(c)
				asDecoded(t, d, pickers, b)
			}
		}
	}
}

// TestPickAvroHostile: no bytes make it fail otherwise than with an error, go deep or take long.
func TestPickAvroHostile(t *testing.T) {
	pickers := hostilePickers(t)
	event := framed(t, 3, envelopeAvro, map[string]any{"ts": int64(5), "op": "u", "before": map[string]any{"v": "x", "id": int32(1)}, "after": map[string]any{"v": "x", "id": int32(1)}, "source": nil})
	for _, seed := range [][]byte{hostileSeed(t), framed(t, 2, pickAvro, pickRow()), event} {
		for i := range seed {
			pickHostile(t, pickers, seed[:i])
			for _, c := range []byte{0, 1, 2, 0x7f, 0x80, 0xff} {
				b := append([]byte(nil), seed...)
				b[i] = c
				pickHostile(t, pickers, b)
			}
		}
	}
	deep := []byte{0, 0, 0, 0, 1, 2, 2}
	for range 10_000 {
		deep = append(deep, 2, 2)
	}
	p := pickerOf(t, Avro, "e", AvroSchema, hostileAvro)
	checkPick(t, p, &Record{Value: deep}, "!records within each other")
	many := append(binary.AppendVarint([]byte{0, 0, 0, 0, 1, 2, 0}, 1<<60), 0, 0, 0)
	checkPick(t, p, &Record{Value: many}, "!elements without a byte")
	checkPick(t, p, &Record{Value: hostileSeed(t)}, "B") // nothing of them is left
	checkPick(t, pickerOf(t, Avro, "id", AvroSchema, hostileAvro), &Record{Value: binary.AppendVarint([]byte{0, 0, 0, 0, 1}, 1<<31)}, "!an int of more than 32 bits")
}

func FuzzPickAvro(f *testing.F) {
	f.Add(hostileSeed(f))
	f.Add(framed(f, 2, pickAvro, pickRow()))
	pickers := hostilePickers(f)
	f.Fuzz(func(t *testing.T, b []byte) { pickHostile(t, pickers, b) })
}

// TestPickAvroCosts: to find a field allocates nothing.
func TestPickAvroCosts(t *testing.T) {
	row := map[string]any{"v": "x", "id": int32(1)}
	for _, c := range []struct {
		p *Picker
		b []byte
		w string
	}{
		{pickerOf(t, Avro, "who", AvroSchema, pickAvro), framed(t, 1, pickAvro, pickRow()), "w"},
		{pickerOf(t, DebeziumAvro, "v", AvroSchema, envelopeAvro), framed(t, 1, envelopeAvro, map[string]any{"ts": int64(5), "op": "u", "before": row, "after": row, "source": nil}), "x"},
	} {
		buf, r := make([]byte, 0, 64), &Record{Value: c.b}
		pick := func() {
			if text, ok, err := c.p.Pick(buf[:0], r); string(text) != c.w || !ok || err != nil {
				t.Error(text, ok, err)
			}
		}
		if n := testing.AllocsPerRun(100, pick); n > 0 {
			t.Errorf("%v allocations a record", n)
		}
	}
}
