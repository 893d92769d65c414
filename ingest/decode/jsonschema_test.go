package decode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/calve-io/calve/schema"
)

// TestFramedJSON: JSON behind the id of a schema, with keys that are framed too or not; places are those in the record.
func TestFramedJSON(t *testing.T) {
	d, err := New(Config{Schema: tableOf(t, "id BIGINT, s STRING", "id"), Format: FramedJSON})
	if err != nil {
		t.Fatal(err)
	}
	frame := func(s string) []byte { return append([]byte{0, 0, 0, 0, 9}, s...) }
	for _, c := range []struct {
		key, value []byte
		want       string
	}{
		{nil, frame(`{"id":1,"s":"x"}`), `+I{"id":1,"s":"x"}`}, {[]byte("any"), frame(`{"id":1,"op":"d"}`), `-D{"id":1,"s":null}`}, {frame(`{"id":2}`), nil, `-D{"id":2,"s":null}`},
		{[]byte(`3`), nil, `-D{"id":3,"s":null}`}, {nil, nil, "no key"}, {nil, []byte{}, "is empty"}, {nil, []byte(`{"id":1}`), "begins with the byte 123"}, {nil, []byte{0, 0}, "ends within"},
		{nil, frame(`{"id":"x"}`), "at byte 11 of the value"}, {frame(`{"id":"x"}`), nil, "at byte 11 of the key"}, {[]byte(`{"id":"x"}`), nil, "at byte 6 of the key"}, {nil, frame(``), "is empty"},
	} {
		err := d.Decode(&Record{Key: c.key, Value: c.value})
		if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, c.want) {
			t.Errorf("%q %q: %s, want %s", c.key, c.value, got, c.want)
		}
	}
}

// TestColumnsOfJSONSchema maps a schema, and what it refers to.
func TestColumnsOfJSONSchema(t *testing.T) {
	w := WriterSchema{Kind: JSONSchema, Text: `{"type":"object","title":"T","definitions":{"addr":{"type":"object","properties":{"city":{"type":"string"},"next":{"$ref":"#/definitions/addr"}}},"a/b~c":{"type":"boolean"}},
	"properties":{"id":{"type":"integer"},"small":{"type":"integer","format":"int32"},"price":{"type":["null","number"]},"ok":{"$ref":"#/definitions/a~1b~0c"},"name":{"type":"string","title":"Date"},"at":{"type":"string","format":"date-time"},
	"day":{"oneOf":[{"type":"null"},{"type":"string","format":"date"}]},"clock":{"type":"string","format":"time"},"raw":{"type":"string","contentEncoding":"base64"},"addr":{"$ref":"#/definitions/addr"},"tags":{"type":"array","items":{"type":"string"}},
	"any":{},"free":{"type":"object"},"none":{"type":"object","additionalProperties":false},"null":{"type":"null"},"byname":{"type":"object","additionalProperties":{"type":"integer"}},"list":{"type":"array"},"pair":{"type":"array","items":[{"type":"string"}]},
	"mixed":{"anyOf":[{"type":"integer"},{"type":"string"}]},"num":{"type":["integer","number"]},"enum":{"enum":["a","b",null]},"ints":{"enum":[1,2]},"one":{"const":true},"all":{"allOf":[{"type":"object","properties":{"x":{"type":"integer"}}},{"$ref":"other.json"},{"$ref":"other.json#/properties/deep"}]},
	"gone":{"$ref":"nowhere.json"},"wrong":true,"other":{"$ref":"other.json#/properties/deep/properties/d"}}}`,
		References: []SchemaFile{{"other.json", `{"type":"object","properties":{"y":{"type":"string"},"deep":{"type":"object","properties":{"d":{"type":"number","format":"float"},"up":{"$ref":"#"}}}}}`}}}
	check := func(w WriterSchema, want string) {
		t.Helper()
		cols, err := ColumnsOfJSONSchema(w)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range cols {
			got = append(got, c.Name+" "+c.Type.String())
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%s\nwant\n%s", s, want)
		}
	}
	check(w, "id BIGINT, small INT, price DOUBLE, ok BOOLEAN, name STRING, at TIMESTAMP(6) WITH LOCAL TIME ZONE, day DATE, clock STRING, raw BYTES, addr ROW<`city` STRING, `next` STRING>, tags ARRAY<STRING>, any STRING, free STRING, byname MAP<STRING NOT NULL, BIGINT>, list STRING, pair STRING, mixed STRING, num DOUBLE, enum STRING, ints BIGINT, one BOOLEAN, all ROW<`x` BIGINT, `y` STRING, `deep` ROW<`d` FLOAT, `up` STRING>, `d` FLOAT, `up` ROW<`y` STRING, `deep` ROW<`d` FLOAT, `up` STRING>>>, gone STRING, wrong STRING, other FLOAT")
	check(WriterSchema{Kind: JSONSchema, Text: connectJSON}, "id BIGINT, n TINYINT, f FLOAT, amount DECIMAL(38, 2), d DATE, t TIME(3), ts TIMESTAMP(3), raw BYTES, m MAP<STRING NOT NULL, INT>, r ROW<`a` SMALLINT, `b` STRING>")
	for text, want := range map[string]string{`x`: "no JSON", `{"type":"string"}`: "not an object", `{"type":"object"}`: "not an object", `{"$ref":"#"}`: "not an object", strings.Repeat(" ", maxJSONSchema+1): "more than"} {
		if _, err := ColumnsOfJSONSchema(WriterSchema{Kind: JSONSchema, Text: text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	if _, err := ColumnsOfJSONSchema(WriterSchema{Kind: AvroSchema, Text: `{}`}); err == nil {
		t.Error("a schema of Avro was taken")
	}
	var b strings.Builder // schemas that double with every level
	b.WriteString(`{"type":"object","properties":{"m":{"$ref":"#/d/l39"}},"d":{"l0":{"type":"integer"}`)
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, `,"l%d":{"type":"object","properties":{"a":{"$ref":"#/d/l%d"},"b":{"$ref":"#/d/l%d"}}}`, i, i-1, i-1)
	}
	b.WriteString("}}")
	if _, err := ColumnsOfJSONSchema(WriterSchema{Kind: JSONSchema, Text: b.String()}); err != nil {
		t.Error(err)
	}
}

// connectJSON is a schema in the form of Kafka Connect's converter.
const connectJSON = `{"type":"object","title":"Value","properties":{"r":{"connect.index":9,"oneOf":[{"type":"null"},{"type":"object","title":"R","properties":{"a":{"type":"integer","connect.type":"int16","connect.index":0},"b":{"type":"string","connect.index":1}}}]},
"id":{"type":"integer","connect.type":"int64","connect.index":0},"n":{"connect.index":1,"oneOf":[{"type":"null"},{"type":"integer","connect.type":"int8"}]},"f":{"type":"number","connect.type":"float32","connect.index":2},
"amount":{"type":"number","title":"org.apache.kafka.connect.data.Decimal","connect.type":"bytes","connect.index":3,"connect.version":1,"connect.parameters":{"scale":"2"}},"d":{"type":"integer","title":"org.apache.kafka.connect.data.Date","connect.type":"int32","connect.index":4},
"t":{"type":"integer","title":"org.apache.kafka.connect.data.Time","connect.type":"int32","connect.index":5},"ts":{"type":"integer","title":"org.apache.kafka.connect.data.Timestamp","connect.type":"int64","connect.index":6},
"raw":{"type":"string","connect.type":"bytes","connect.index":7},"m":{"type":"object","connect.type":"map","additionalProperties":{"type":"integer","connect.type":"int32"},"connect.index":8}}}`

// TestJSONSchemaTypes: with a registry the schema says how values come, and of which type new columns are, also within ROWs.
func TestJSONSchemaTypes(t *testing.T) {
	schemas := &Schemas{}
	schemas.Add(1, WriterSchema{Kind: JSONSchema, Text: connectJSON})
	schemas.Add(2, WriterSchema{Kind: JSONSchema, Text: `{"type":"object","properties":{"id":{"type":"integer"},"at":{"type":"string","format":"date-time"},"r":{"type":"object","properties":{"c":{"type":"string","format":"date"}}}}}`})
	schemas.Refuse(3, "nobody knows it")
	cols, err := ColumnsOfJSONSchema(WriterSchema{Kind: JSONSchema, Text: connectJSON})
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Schema: s, Format: FramedJSON, Schemas: schemas, Evolution: Evolve})
	if err != nil {
		t.Fatal(err)
	}
	frame := func(id byte, s string) []byte { return append([]byte{0, 0, 0, 0, id}, s...) }
	rest := `,"n":null,"f":null,"amount":null,"d":null,"t":null,"ts":null,"raw":null,"m":null,"r":null}`
	for _, c := range []struct {
		value []byte
		want  string
	}{
		{frame(1, `{"id":1,"n":-7,"f":0.5,"amount":"z8c=","d":19782,"t":3661001,"ts":1709251198123,"raw":"YQ==","m":{"k":1},"r":{"a":1,"b":"x"}}`), `+I{"id":1,"n":-7,"f":0.5,"amount":"-123.45","d":"2024-02-29","t":"01:01:01.001","ts":"2024-02-29T23:59:58.123","raw":"YQ==","m":[["k",1]],"r":{"a":1,"b":"x"}}`},
		{frame(1, `{"id":1,"amount":-1.5}`), `"amount":"-1.50"`}, {frame(2, `{"id":1,"at":"2024-02-29T00:00:00Z"}`), "add at TIMESTAMP(6) WITH LOCAL TIME ZONE"}, {frame(2, `{"id":1,"at":null}`), `+I{"id":1` + rest},
		{frame(2, `{"id":1,"r":{"c":"2024-02-29"}}`), "add r.c DATE"}, {frame(2, `{"id":1,"z":"2024-02-29"}`), "add z STRING"}, {frame(2, `{"id":1,"amount":"12.5"}`), `"amount":"12.50"`},
		{frame(3, `{"id":1,"amount":"12.5"}`), `"amount":"12.50"`}, {frame(4, `{"id":1}`), "schema of id 4 is not known yet"}, {frame(1, `{"id":1,"amount":"z8c="}`), `"amount":"-123.45"`},
	} {
		err := d.Decode(&Record{Value: c.value})
		if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.value, got, c.want)
		}
	}
}

func FuzzJSONSchema(f *testing.F) {
	f.Add(connectJSON)
	f.Fuzz(func(t *testing.T, text string) {
		cols, err := ColumnsOfJSONSchema(WriterSchema{Kind: JSONSchema, Text: text})
		if err == nil && len(cols) > maxColumnTypes {
			t.Error("too many columns")
		}
	})
}

// TestJSONSchemaReadOnce: a large part of a schema is read once, however many references lead to it.
func TestJSONSchemaReadOnce(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"properties":{`)
	for i := range 500 {
		fmt.Fprintf(&text, `"f%d":{"$ref":"#/definitions/d"},`, i)
	}
	text.WriteString(`"last":{"type":"string"}},"definitions":{"d":{"properties":{"x":{"enum":[1` + strings.Repeat(",1", 10_000) + `]}}}}}`)
	var cols []schema.Column
	var err error
	n := testing.AllocsPerRun(1, func() { cols, err = ColumnsOfJSONSchema(WriterSchema{Kind: JSONSchema, Text: text.String()}) })
	if err != nil || len(cols) != 501 || cols[499].Type.String() != "ROW<`x` BIGINT>" || n > 200_000 {
		t.Errorf("%d columns, %v allocations, %v", len(cols), n, err)
	}
}
