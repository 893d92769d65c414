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
		// Only the newest schema has the alias.
		{id + `,{"name":"b","type":"int"}`, record(id + `,{"name":"b","type":"int","aliases":["a"]}`), Evolve, nil, "rename a to b"},
		// A writer that is neither the first nor the newest.
		{id + `,{"name":"b","type":"int"}`, record(id + `,{"name":"c","type":"int","aliases":["b","a"]}`), Evolve, nil, "rename a to c"},
		// Another case of the same name is no other column.
		{id + `,{"name":"A","type":"int","aliases":["a"]}`, "", Evolve, nil, "rename a to A"},
		// Fields of rows, also of a row that gets another name: they follow when it has it.
		{id + `,{"name":"r","type":{"type":"record","name":"R","fields":[{"name":"y","type":"int","aliases":["x"]}]}}`, "", Evolve, nil, "rename r.x to y"},
		{id + `,{"name":"q","aliases":["r"],"type":{"type":"record","name":"R","fields":[{"name":"y","type":"int","aliases":["x"]}]}}`, "", Evolve, nil, "needs another schema: rename r to q\n"},
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

// TestAvroRenamePartition: a column by which a table is partitioned keeps its name.
func TestAvroRenamePartition(t *testing.T) {
	s := tableOf(t, "id BIGINT NOT NULL, day STRING NOT NULL", "id", "day")
	s.PartitionKeys = []string{"day"}
	d := avroDecoderOf(t, s, `{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"date","type":"string","aliases":["day"]}]}`)
	d.cfg.Evolution = Evolve
	if err := d.Decode(&Record{Value: []byte{0, 0, 0, 0, 1, 2, 2, 'x'}}); err == nil || !strings.Contains(err.Error(), `field "date": its alias says that it is the column "day", which cannot be renamed`) {
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
