package decode

import (
	"fmt"
	"strings"
	"testing"
)

// TestAvroRename: what becomes of fields whose aliases name columns, by policy and where it is not certain which they were.
func TestAvroRename(t *testing.T) {
	record := func(fields string) string { return `{"type":"record","name":"T","fields":[` + fields + `]}` }
	const id = `{"name":"id","type":"long"}`
	for _, x := range []struct {
		fields, reader string // reader "": the writer's
		policy         Evolution
		value          map[string]any
		want           string
	}{
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, "", Evolve, nil, "needs another schema: rename a to b"},
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, "", AddOnly, nil, "needs another schema: add b INT"},
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, "", Strict, nil, `field "b": there is no such column`},
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, "", Freeze, map[string]any{"id": int64(1), "b": 2}, `{"id":1,"a":null,"r":null,"s":null}`},
		// Several at once, and beside new ones.
		{id + `,{"name":"b","type":"int","aliases":["a"]},{"name":"more","type":"string"},{"name":"t","type":"string","aliases":["s","old"]}`, "", Evolve, nil,
			"rename a to b; add more STRING; rename s to t"},
		// Only the newest schema has the alias, or only the writer's: then older records would not find the column.
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, record(id + `,{"name":"b","type":"int"}`), Evolve, nil, "another schema: add b INT\n"},
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, record(id + `,{"name":"a","type":"int"}`), Evolve, nil, "another schema: add b INT\n"},
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, "none", Evolve, nil, "another schema: add b INT\n"},
		{id + `,{"name":"b","type":"int"}`, record(id + `,{"name":"b","type":"int","aliases":["a"]}`), Evolve, nil, "rename a to b"},
		// A writer that is neither the first nor the newest.
		{id + `,{"name":"b","type":"int"}`, record(id + `,{"name":"c","type":"int","aliases":["b","a"]}`), Evolve, nil, "rename a to c"},
		// Another case of the same name is no other column.
		{id + `,{"name":"A","type":"int","aliases":["a"]}`, "", Evolve, nil, "rename a to A"},
		// Fields of rows, also of a row that gets another name: they follow when it has it.
		{id + `,{"name":"r","type":{"type":"record","name":"R","fields":[{"name":"y","type":"int","aliases":["x"]}]}}`, "", Evolve, nil, "rename r.x to y"},
		{id + `,{"name":"q","aliases":["r"],"type":{"type":"record","name":"R","fields":[{"name":"y","type":"int","aliases":["x"]}]}}`, "", Evolve, nil, "needs another schema: rename r to q\n"},
		// The newest schema is of another record, also inside of one; two fields that it calls by one name.
		{id + `,{"name":"b","type":"int","aliases":["a"]}`, strings.Replace(record(id+`,{"name":"b","type":"int","aliases":["a"]}`), `"T"`, `"x.T"`, 1), Evolve, nil, "add b INT\n"},
		{id + `,{"name":"r","type":{"type":"record","name":"R","fields":[{"name":"y","type":"int","aliases":["x"]}]}}`,
			record(id + `,{"name":"r","type":{"type":"record","name":"Q","fields":[{"name":"y","type":"int","aliases":["x"]}]}}`), Evolve, nil, "another schema: add r.y INT\n"},
		{id + `,{"name":"b1","type":"int"},{"name":"b2","type":"int"}`, record(id + `,{"name":"c","type":"int","aliases":["a","b1","b2"]}`), Evolve, nil, "another schema: add b1 INT; add b2 INT\n"},
		// The column is there still; two columns; two fields; values that the column cannot hold; no column of the name.
		{id + `,{"name":"a","type":"int"},{"name":"b","type":"int"}`, record(id + `,{"name":"b","type":"int","aliases":["a"]}`), Evolve, nil, "add b INT"},
		{id + `,{"name":"b","type":"int"}`, record(id + `,{"name":"a","type":"int","default":0},{"name":"b","type":"int","aliases":["a"],"default":0}`), Evolve, nil, "add b INT"},
		{id + `,{"name":"b","type":"int","aliases":["a","s"]}`, "", Evolve, nil, "add b INT"},
		{id + `,{"name":"b","type":"int","aliases":["a"]},{"name":"c","type":"int"}`, record(id + `,{"name":"c","type":"int","aliases":["a"]}`), Evolve, nil, "add b INT; add c INT"},
		{id + `,{"name":"b","type":{"type":"array","items":"int"},"aliases":["a"]}`, "", Evolve, nil, "add b ARRAY<INT>"},
		{id + `,{"name":"b","type":"int","aliases":["none"]}`, "", Evolve, nil, "add b INT"},
		{id + `,{"name":"S","type":"int","aliases":["a"]}`, "", Evolve, nil, "in case alone"},
		// Keys: those of rows follow, those of partitions cannot.
		{`{"name":"key","type":"long","aliases":["id"]}`, "", Evolve, nil, "rename id to key"},
	} {
		text := record(x.fields)
		d := avroDecoderOf(t, tableOf(t, "id BIGINT NOT NULL, a INT, r ROW<x INT>, s STRING", "id"), text)
		d.cfg.Evolution = x.policy
		reader := x.reader
		if reader == "" {
			reader = text
		} else if reader == "none" {
			reader = ""
		}
		d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: reader})
		value := []byte{0, 0, 0, 0, 1, 2, 4, 6, 8, 10}
		if x.value != nil {
			value = framed(t, 1, text, x.value)
		}
		err := d.Decode(&Record{Value: value})
		if got := fmt.Sprint(linesOf(d), err, "\n"); !strings.Contains(got, x.want) {
			t.Errorf("%s, %s: %s, want %s", x.fields, x.policy, got, x.want)
		}
	}
}

// TestAvroRenameTypes: which columns a field may be that has another type.
func TestAvroRenameTypes(t *testing.T) {
	for _, x := range []struct{ column, field, want string }{
		{"INT", `"long"`, "rename a to b"},
		{"TINYINT", `["null","int"]`, "rename a to b"},
		{"BIGINT", `"int"`, "rename a to b"},
		{"FLOAT", `"double"`, "rename a to b"},
		{"VARCHAR(5)", `"string"`, "rename a to b"},
		{"BINARY(5)", `"bytes"`, "rename a to b"},
		{"DATE", `{"type":"int","logicalType":"date"}`, "rename a to b"},
		{"TIMESTAMP(6)", `{"type":"long","logicalType":"timestamp-millis"}`, "rename a to b"},
		{"DECIMAL(10, 2)", `{"type":"bytes","logicalType":"decimal","precision":12,"scale":2}`, "rename a to b"},
		{"ARRAY<INT>", `{"type":"array","items":"long"}`, "rename a to b"},
		{"MAP<STRING, INT>", `{"type":"map","values":"int"}`, "rename a to b"},
		{"ROW<x INT>", `{"type":"record","name":"R","fields":[{"name":"x","type":"long"}]}`, "rename a to b"},

		{"INT", `"string"`, "add b STRING"},
		{"STRING", `"int"`, "add b INT"},
		{"BOOLEAN", `"int"`, "add b INT"},
		{"DATE", `"int"`, "add b INT"},
		{"TIMESTAMP(3)", `"long"`, "add b BIGINT"},
		{"TIMESTAMP(3)", `{"type":"long","logicalType":"timestamp-micros"}`, "add b TIMESTAMP(6)"},
		{"INT", `"double"`, "add b DOUBLE"},
		{"INT", `["null","int","double"]`, "add b DOUBLE"},
		{"DOUBLE", `"long"`, "add b BIGINT"},
		{"DECIMAL(10, 2)", `"long"`, "add b BIGINT"},
		{"DECIMAL(10, 2)", `{"type":"bytes","logicalType":"decimal","precision":10,"scale":3}`, "add b DECIMAL(10, 3)"},
		{"DECIMAL(38, 10)", `{"type":"bytes","logicalType":"decimal","precision":38,"scale":0}`, "add b DECIMAL(38, 0)"},
		{"STRING", `"bytes"`, "add b BYTES"},
		{"ARRAY<INT>", `{"type":"array","items":"string"}`, "add b ARRAY<STRING>"},
		{"MAP<STRING, INT>", `{"type":"map","values":"string"}`, "add b MAP<STRING"},
		{"ROW<x INT>", `{"type":"record","name":"R","fields":[{"name":"x","type":"string"}]}`, "add b ROW<"},
		{"INT", `"null"`, `{"id":1,"a":null}`},
	} {
		text := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"b","type":` + x.field + `,"aliases":["a"]}]}`
		d := avroDecoderOf(t, tableOf(t, "id BIGINT NOT NULL, a "+x.column, "id"), text)
		d.cfg.Evolution = Evolve
		d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: text})
		err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2}})
		if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, x.want) {
			t.Errorf("%s, %s: %s, want %s", x.column, x.field, got, x.want)
		}
	}
	// Columns of the key do not get wider.
	text := `{"type":"record","name":"T","fields":[{"name":"key","type":"long","aliases":["id"]}]}`
	d := avroDecoderOf(t, tableOf(t, "id INT NOT NULL", "id"), text)
	d.cfg.Evolution = Evolve
	d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: text})
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2}}); err == nil || !strings.Contains(err.Error(), "add key BIGINT") {
		t.Error(err)
	}
}

// TestAvroRenameConfigured: a column that the configuration names keeps its name, and what has the row kind its meaning.
func TestAvroRenameConfigured(t *testing.T) {
	for _, x := range []struct{ columns, field, want string }{
		{"u DECIMAL(20, 0)", `{"name":"b","type":"long","aliases":["u"]}`, `field "b": its alias says that it is the column "u", which cannot be renamed: the pipeline's configuration has it among its unsigned columns`},
		{"u DECIMAL(20, 0), at TIMESTAMP(3)", `{"name":"b","type":"long","aliases":["at"]}`, `"at", which cannot be renamed: the pipeline's configuration gives its unit`},
		{"u DECIMAL(20, 0), op STRING", `{"name":"b","type":"string","aliases":["op"]}`, "add b STRING"},
		{"u DECIMAL(20, 0), b BIGINT", `{"name":"op","type":"long","aliases":["b"]}`, "add op BIGINT"},
		{"u DECIMAL(20, 0), p BIGINT", `{"name":"q","type":"long","aliases":["p"]}`, "add q BIGINT"},
		{"u DECIMAL(20, 0), p BIGINT, q BIGINT", `{"name":"p","type":"int","aliases":["q"]}`, `"q":null`},
	} {
		text := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},` + x.field + `]}`
		schemas := &Schemas{}
		schemas.Add(1, WriterSchema{Kind: AvroSchema, Text: text})
		schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: text})
		cfg := Config{Schema: tableOf(t, "id BIGINT NOT NULL, "+x.columns, "id"), Format: Avro, Schemas: schemas, Evolution: Evolve, Unsigned: []string{"u"}}
		if _, ok := cfg.Schema.Field("at"); ok {
			cfg.EpochUnits = map[string]EpochUnit{"at": "s"}
		}
		if _, ok := cfg.Schema.Field("p"); ok {
			cfg.Metadata = map[string]string{"p": "offset"}
		}
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2, 4}})
		if got := fmt.Sprint(linesOf(d), err); !strings.Contains(got, x.want) {
			t.Errorf("%s, %s: %s, want %s", x.columns, x.field, got, x.want)
		}
	}
}

// TestAvroRenameMixed: where rows are records of several names, no alias is believed; and a column that others give its
// former name again and again gets the new one a few times.
func TestAvroRenameMixed(t *testing.T) {
	other := `{"type":"record","name":"A","fields":[{"name":"id","type":"long"},{"name":"a","type":"int"}]}`
	text := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"b","type":"int","aliases":["a"]}]}`
	table := tableOf(t, "id BIGINT NOT NULL, a INT", "id")
	want := func(schemas *Schemas, what string) {
		t.Helper()
		d, err := New(Config{Schema: table, Format: Avro, Schemas: schemas, Evolution: Evolve})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2, 4}}); err == nil || err.Error() != "the record needs another schema: "+what {
			t.Errorf("%v, want %s", err, what)
		}
	}
	d := avroDecoderOf(t, table, text, other)
	d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: text})
	for range maxRenames {
		want(d.schemas, "rename a to b")
	}
	want(d.schemas, "add b INT")

	d = avroDecoderOf(t, table, text, other)
	d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: text})
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 2, 2, 4}}); err != nil {
		t.Fatal(err)
	}
	want(d.schemas, "add b INT")
}

// TestAvroRenamePartition: a column by which a table is partitioned keeps its name.
func TestAvroRenamePartition(t *testing.T) {
	s := tableOf(t, "id BIGINT NOT NULL, day STRING NOT NULL", "id", "day")
	s.PartitionKeys = []string{"day"}
	text := `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"date","type":"string","aliases":["day"]}]}`
	d := avroDecoderOf(t, s, text)
	d.cfg.Evolution = Evolve
	d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: text})
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2, 2, 'x'}}); err == nil || !strings.Contains(err.Error(), `field "date": its alias says that it is the column "day", which cannot be renamed`) {
		t.Error(err)
	}
}

// TestAvroRenameTombstone: a key keeps its name where its tombstones would not find it under another.
func TestAvroRenameTombstone(t *testing.T) {
	row := `{"type":"record","name":"T","fields":[{"name":"key","type":"long","aliases":["id"]}]}`
	old := `{"type":"record","name":"K","fields":[{"name":"id","type":"long"}]}`
	d := avroDecoderOf(t, tableOf(t, "id BIGINT NOT NULL, v INT", "id"), row, old)
	d.cfg.Evolution = Evolve
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 14}}); err == nil || strings.Contains(err.Error(), "rename") {
		t.Error(err)
	}
	if err := d.Decode(&Record{Key: []byte{0, 0, 0, 0, 2, 14}}); err != nil {
		t.Error(err)
	}
}

// TestAvroRenameKeys: tombstones whose keys have the former name of a column of the key, or a later one.
func TestAvroRenameKeys(t *testing.T) {
	row := `{"type":"record","name":"T","fields":[{"name":"key","type":"long","aliases":["id"]}]}`
	old := `{"type":"record","name":"K","fields":[{"name":"id","type":"long"}]}`
	later := `{"type":"record","name":"K","fields":[{"name":"later","type":"long","aliases":["key"]}]}`
	d := avroDecoderOf(t, tableOf(t, "key BIGINT NOT NULL, v INT", "key"), row, old, later)
	d.schemas.SetReader(WriterSchema{Kind: AvroSchema, Text: row})
	for id := 2; id <= 3; id++ {
		if err := d.Decode(&Record{Key: []byte{0, 0, 0, 0, byte(id), 14}}); err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(linesOf(d)); got != `[-D{"key":7,"v":null} -D{"key":7,"v":null}]` {
		t.Error(got)
	}
}
