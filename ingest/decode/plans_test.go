package decode

import (
	"slices"
	"strings"
	"testing"
)

// TestReaderOutOfBounds: a newest schema that calve cannot read takes nothing from records of older ones.
func TestReaderOutOfBounds(t *testing.T) {
	d := avroDecoderOf(t, tableOf(t, "a BIGINT"), `{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}`)
	deep := strings.Repeat(`{"type":"array","items":`, maxAvroDepth+6) + `"int"` + strings.Repeat(`}`, maxAvroDepth+6)
	d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: `{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"deep","type":` + deep + `}]}`})
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2}}); err != nil {
		t.Error(err)
	}
}

// TestInnerNullOfRefused: a null enters no NOT NULL field of a ROW, whatever the type it is a null of.
func TestInnerNullOfRefused(t *testing.T) {
	d := avroDecoderOf(t, tableOf(t, "r ROW<x INT NOT NULL, y INT>"), `{"type":"record","name":"R","fields":[{"name":"r","type":{"type":"record","name":"P","fields":[{"name":"x","type":["null","boolean"]},{"name":"y","type":["null","boolean"]}]}}]}`)
	if code := codeOf(t, d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 0, 0}})); code != IsNull {
		t.Errorf("%q, rows %v", code, linesOf(d))
	}
	d = avroDecoderOf(t, tableOf(t, "r ROW<x INT, y INT>"), `{"type":"record","name":"R","fields":[{"name":"r","type":{"type":"record","name":"P","fields":[{"name":"x","type":["null","boolean"]},{"name":"y","type":"int"}]}}]}`)
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 0, 4}}); err != nil {
		t.Error(err)
	}
	if rows := linesOf(d); !slices.Equal(rows, []string{`+I{"r":{"x":null,"y":2}}`}) {
		t.Errorf("rows %v", rows)
	}
}

// TestFieldOfMetadataName: a field with the name of a column that takes something else is ignored, whatever the policy.
func TestFieldOfMetadataName(t *testing.T) {
	for _, how := range Evolutions {
		d, err := New(Config{Schema: tableOf(t, "id BIGINT, ts BIGINT"), Metadata: map[string]string{"ts": "offset"}, Evolution: how})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(&Record{Offset: 4, Value: []byte(`{"id":1,"ts":99}`)}); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if rows := linesOf(d); !slices.Equal(rows, []string{`+I{"id":1,"ts":4}`}) {
			t.Errorf("%s: rows %v", how, rows)
		}
	}
}
