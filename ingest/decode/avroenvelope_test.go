package decode

import (
	"fmt"
	"strings"
	"testing"
)

const envelopeAvro = `{"type":"record","name":"Envelope","fields":[{"name":"ts","type":"long"},{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"v","type":["null","string"]},{"name":"id","type":"int"}]}]},
 {"name":"after","type":["null","Value"]},{"name":"source","type":["null",{"type":"record","name":"S","fields":[{"name":"x","type":"string"}]}]},{"name":"op","type":"string"}]}`

// TestAvroEnvelope: what envelopes make of a table; the rules themselves are tested in JSON.
func TestAvroEnvelope(t *testing.T) {
	s := tableOf(t, "id BIGINT, v STRING", "id")
	schemas := &Schemas{}
	for i, text := range []string{envelopeAvro, `{"type":"record","name":"T","fields":[{"name":"id","type":"int"}]}`, strings.Replace(envelopeAvro, `["null","Value"]`, `["null","string"]`, 1)} {
		schemas.Add(i+1, WriterSchema{Kind: AvroSchema, Text: text})
	}
	d, err := New(Config{Schema: s, Format: DebeziumAvro, Schemas: schemas})
	if err != nil {
		t.Fatal(err)
	}
	row := func(id int32, v any) map[string]any { return map[string]any{"id": id, "v": v} }
	event := func(op string, before, after any) []byte {
		m := map[string]any{"ts": int64(5), "op": op, "before": nil, "after": nil, "source": map[string]any{"x": "y"}}
		if before != nil {
			m["before"] = before
		}
		if after != nil {
			m["after"] = after
		}
		return framed(t, 1, envelopeAvro, m)
	}
	cut := event("u", row(1, "a"), row(1, "b"))
	for _, c := range []struct {
		value []byte
		want  string
	}{
		{event("c", nil, row(1, "a")), `[+I{"id":1,"v":"a"}]`}, {event("r", nil, row(1, nil)), `[+I{"id":1,"v":null}]`}, {event("u", row(1, "a"), row(1, "b")), `[+U{"id":1,"v":"b"}]`},
		{event("u", nil, row(1, "b")), `[+U{"id":1,"v":"b"}]`}, {event("u", row(2, "a"), row(1, "b")), `[+U{"id":1,"v":"b"} -D{"id":2,"v":"a"}]`}, {event("d", row(1, "a"), nil), `[-D{"id":1,"v":"a"}]`},
		{nil, `[] <nil>`}, {event("m", nil, nil), `[] <nil>`}, {event("d", nil, nil), "delete without"}, {event("c", nil, nil), "without the row after"}, {event("x", nil, row(1, "a")), "operation"},
		{cut[:len(cut)-1], "end too early"}, {append(event("c", nil, row(1, "a")), 0), "1 bytes more"}, {framed(t, 2, `{"type":"record","name":"T","fields":[{"name":"id","type":"int"}]}`, map[string]any{"id": int32(1)}), "no envelope"},
		{[]byte{0, 0, 0, 0, 3, 0}, "no envelope"}, {[]byte{0, 0, 0, 0, 1, 0, 4}, "no such branch"}, {[]byte{0, 0, 0, 0, 1, 0, 0, 4}, "no such branch"}, {[]byte{0, 0, 0, 0, 1, 0}, "end too early"},
	} {
		err := d.Decode(&Record{Value: c.value})
		if got := fmt.Sprint(linesOf(d), " ", err); !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.value, got, c.want)
		}
	}
	if err := d.Decode(&Record{Value: event("c", nil, row(1, "a"))}); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(&Record{Value: event("t", nil, nil)}); err != nil {
		t.Fatal(err)
	}
	if b := d.Take(); !b.Truncate || b.Rec != nil {
		t.Errorf("truncate: %+v", b)
	}
	cols, err := ColumnsOfAvro(WriterSchema{Kind: AvroSchema, Text: envelopeAvro}, "after")
	if err != nil || len(cols) != 2 || cols[0].Name != "v" {
		t.Errorf("columns: %v %v", cols, err)
	}
}

func FuzzAvroEnvelope(f *testing.F) {
	schemas := &Schemas{}
	schemas.Add(1, WriterSchema{Kind: AvroSchema, Text: envelopeAvro})
	d, err := New(Config{Schema: tableOf(f, "id BIGINT, v STRING", "id"), Format: DebeziumAvro, Schemas: schemas})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0, 0, 0, 0, 1, 0, 2, 0, 2, 2, 0, 4, 0, 2, 'u'})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = d.Decode(&Record{Value: b})
		d.Take()
	})
}
