package ingest

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/schema/schematest"
)

func init() { otherCaptures["pg-avro"] = capturePgAvro }

// capturePgAvro reads the events of a PostgreSQL connector in Avro, of all their writers' schemas.
func capturePgAvro(t *testing.T) {
	text, err := os.ReadFile(captureDir + "pg-avro.registry.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Subjects []registrytest.Schema }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	schemas := &decode.Schemas{}
	for _, s := range file.Subjects {
		schemas.Add(s.ID, decode.WriterSchema{Kind: decode.SchemaKind(s.Type), Text: s.Text})
	}
	c := readCapture(t, "pg-avro")
	for _, records := range c.records {
		for i := range records {
			for _, p := range []**string{&records[i].Key, &records[i].Value} {
				if *p == nil {
					continue
				}
				b, err := base64.StdEncoding.DecodeString(**p)
				if err != nil {
					t.Fatal(err)
				}
				raw := string(b)
				*p = &raw
			}
		}
	}
	r := schematest.Rand(t)
	for _, table := range slices.Sorted(maps.Keys(c.tables)) {
		t.Run(table, func(t *testing.T) {
			c.check(t, c.tables[table], decode.Config{Format: decode.DebeziumAvro, Schemas: schemas}, r)
		})
	}
}
