package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
)

// codeOf gives the code of a refusal, "" if there is none.
func codeOf(t *testing.T, err error) Code {
	t.Helper()
	var row *RowError
	if err != nil && !errors.As(err, &row) {
		t.Fatal(err)
	}
	if row == nil {
		return ""
	}
	return row.Code
}

// avroList frames a record of one array of n elements.
func avroList(n int, element ...byte) []byte {
	b := binary.AppendVarint([]byte{0, 0, 0, 0, 1}, int64(n))
	for range n {
		b = append(b, element...)
	}
	return append(b, 0)
}

// TestDecimalsOfAnyScale: a schema may give a scale with which one byte would be 64 kB of text, and a record one of 1,200
// digits. The former are refused, the latter are counted.
func TestDecimalsOfAnyScale(t *testing.T) {
	const text = `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"bytes","logicalType":"decimal","precision":%d,"scale":%[1]d}}}]}`
	s := tableOf(t, "a ARRAY<STRING>")
	if code := codeOf(t, avroDecoderOf(t, s, fmt.Sprintf(text, maxDigits)).Decode(&Record{Value: avroList(3, 2, 1)})); code != "" {
		t.Error("three decimals of", maxDigits, "digits:", code)
	}
	d := avroDecoderOf(t, s, fmt.Sprintf(text, 65536))
	if err := d.Decode(&Record{Value: avroList(33_000, 2, 1)}); codeOf(t, err) != BadValue || !strings.Contains(err.Error(), "scale 65536") {
		t.Error("a scale of 65536:", err)
	}
	variable := `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"record","name":"io.debezium.data.VariableScaleDecimal","fields":[{"name":"scale","type":"int"},{"name":"value","type":"bytes"}],"connect.name":"io.debezium.data.VariableScaleDecimal"}}}]}`
	element := append(binary.AppendVarint(nil, 1200), 2, 1)
	d = avroDecoderOf(t, s, variable)
	if err := d.Decode(&Record{Value: avroList(30_000, element...)}); err != nil || !d.Full() {
		t.Errorf("36 MB of digits: %v, full %v", err, d.Full())
	}
	if rows := d.Take().Len(); rows != 1 || d.Full() {
		t.Errorf("%d rows, full %v", rows, d.Full())
	}
	d.cfg.MaxRecordBytes = 200_000
	if code := codeOf(t, d.Decode(&Record{Value: avroList(10_000, element...)})); code != TooLarge {
		t.Errorf("12 MB of digits in 40 kB, with 200 kB for records: %q", code)
	}
	if err := d.Decode(&Record{Value: avroList(1, element...)}); err != nil || !d.Full() && d.Rows() != 1 {
		t.Error("the record behind it:", err)
	}
}

// TestDecimalsInJSON: as TestDecimalsOfAnyScale, for decimals that come as the base64 of their unscaled value.
func TestDecimalsInJSON(t *testing.T) {
	d, err := New(Config{Schema: tableOf(t, "a ARRAY<STRING>, s STRING"), Decimals: DecimalsBinary, MaxRecordBytes: 200_000})
	if err != nil {
		t.Fatal(err)
	}
	element := fmt.Sprintf(`{"scale":%d,"value":"AQ=="}`, maxScale)
	for _, c := range []struct {
		value string
		code  Code
	}{
		{`{"a":[` + element + strings.Repeat(","+element, 10) + `]}`, ""},
		{`{"a":[` + element + strings.Repeat(","+element, 1000) + `]}`, TooLarge},
		{`{"s":{"scale":0,"value":"` + strings.Repeat("AAAA", 30_000) + `"}}`, BadValue},
	} {
		if code := codeOf(t, d.Decode(&Record{Value: []byte(c.value)})); code != c.code {
			t.Errorf("%.80q: %q, want %q", c.value, code, c.code)
		}
	}
}

// TestColumnOfTexts: a column takes no more bytes than the offsets reach.
func TestColumnOfTexts(t *testing.T) {
	c := column{off: []int32{math.MaxInt32 - 3, 0}}
	if c.setData(0, []byte("four")) || c.off[1] != 0 || c.data != nil {
		t.Error("four bytes went behind all but three")
	}
	d, err := New(Config{Schema: tableOf(t, "id BIGINT, s STRING, b BYTES")})
	if err != nil {
		t.Fatal(err)
	}
	rows := &d.(*jsonDecoder).rowBuilder
	for i := range rows.cols[1:] {
		rows.cols[1+i].off[0] = math.MaxInt32 - 3
	}
	for _, text := range []string{`{"id":1,"s":"four"}`, `{"id":1,"s":"f\u006fur"}`, `{"id":1,"b":"Zm91cg=="}`} {
		if code := codeOf(t, d.Decode(&Record{Value: []byte(text)})); code != TooLarge {
			t.Errorf("%s: %q", text, code)
		}
	}
}

// TestElementsOfNothing: what elements take counts, though they have no bytes, or few and many fields; it ends the batch
// and, where it is too much for one record, that one.
func TestElementsOfNothing(t *testing.T) {
	d := avroDecoderOf(t, tableOf(t, "a ARRAY<BIGINT>"), `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}`)
	empty := append(binary.AppendVarint([]byte{0, 0, 0, 0, 1}, maxEmpty), 0)
	for !d.Full() && d.Rows() < 300 {
		if err := d.Decode(&Record{Value: empty}); err != nil {
			t.Fatal(err)
		}
	}
	if took := 8 * cap(d.cols[0].kids[0].i64); took > 4*d.cfg.BatchBytes {
		t.Errorf("%d records of %d bytes took %d bytes", d.Rows(), len(empty), took)
	}

	var fields []string
	for i := range 100 {
		fields = append(fields, fmt.Sprintf("f%d BIGINT", i))
	}
	s := tableOf(t, "a ARRAY<ROW<"+strings.Join(fields, ", ")+">>, m MAP<STRING, ROW<"+strings.Join(fields, ", ")+">>")
	const limit = 10_000
	j, err := New(Config{Schema: s, MaxRecordBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	a := avroDecoderOf(t, s, `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"record","name":"P","fields":[{"name":"f1","type":["null","long"]}]}}}]}`)
	a.cfg.MaxRecordBytes = limit
	var m strings.Builder
	for i := range 300 {
		fmt.Fprintf(&m, `,"%d":{}`, i)
	}
	for _, c := range []struct {
		d     Decoder
		value string
		code  Code
	}{
		{j, `{"a":[{}` + strings.Repeat(`,{}`, 300) + `]}`, TooLarge},
		{j, `{"a":[{}` + strings.Repeat(`,{}`, 60) + `]}`, ""},
		{j, `{"m":{"x":{}` + m.String() + `}}`, TooLarge},
		{j, `{"m":{"x":{}}}`, ""},
		{a, string(avroList(300, 0)), TooLarge},
		{a, string(avroList(60, 0)), ""},
	} {
		if code := codeOf(t, c.d.Decode(&Record{Value: []byte(c.value)})); code != c.code {
			t.Errorf("%.40q: %q, want %q", c.value, code, c.code)
		}
	}
}

// TestBatchOfKeysAndDefaults: what is not in the value fills the batch as well, and records that write nothing do not.
func TestBatchOfKeysAndDefaults(t *testing.T) {
	s, text := tableOf(t, "id BIGINT, k BYTES, s STRING"), strings.Repeat("x", 1000)
	s.Fields[2].Default = &text
	d, err := New(Config{Schema: s, Metadata: map[string]string{"k": "key"}, BatchBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	for !d.Full() && d.Rows() < 100 {
		if err := d.Decode(&Record{Value: []byte("{}"), Key: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if d.Rows() > 10 {
		t.Errorf("the batch has %d rows", d.Rows())
	}
	d, err = New(Config{Schema: tableOf(t, "id BIGINT", "id"), Format: Debezium, BatchBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(&Record{Value: []byte(`{"op":"m","x":"` + strings.Repeat("x", 30_000) + `"}`)}); err != nil || d.Rows() != 0 || d.Full() {
		t.Errorf("a message of the log: %v, %d rows, full %v", err, d.Rows(), d.Full())
	}
}

// TestSymbolsOnce: a schema's symbols are kept once, however many fields refer to them.
func TestSymbolsOnce(t *testing.T) {
	var s strings.Builder
	s.WriteString(`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"enum","name":"E","symbols":["S"`)
	for i := range 3000 {
		fmt.Fprintf(&s, `,"S%d"`, i)
	}
	s.WriteString(`]}}`)
	for i := range 3000 {
		fmt.Fprintf(&s, `,{"name":"f%d","type":"E"}`, i)
	}
	s.WriteString(`]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := NewAvroSizer(WriterSchema{Kind: AvroSchema, Text: s.String()}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
		t.Errorf("a schema of %d bytes took %d MiB", s.Len(), took>>20)
	}
}
