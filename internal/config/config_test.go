package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const good = `warehouse: file:///data/lake
listen: 127.0.0.1:0
pipelines:
  - name: orders
    table: shop.orders
    kafka: {brokers: [localhost:9092], topic: orders, fields: {off: offset}}
    create:
      columns: id BIGINT NOT NULL, name STRING
      primary-key: [id]
      options: {bucket: 2, write-only: true}
    commit-interval: 250ms
`

func TestParse(t *testing.T) {
	c, err := Parse("calve.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Pipelines[0]
	if time.Duration(p.CommitInterval) != 250*time.Millisecond || p.BufferSize != 64<<20 || !p.Export.Iceberg || p.Compaction.Workers != 1 ||
		p.Create.Options["bucket"] != "2" || p.Create.Options["write-only"] != "true" || p.Kafka.Start != "earliest" || p.Format.Type != "json" ||
		c.Log.Level != "info" || time.Duration(p.ExpireEvery) != time.Minute {
		t.Fatalf("%+v", c)
	}
}

func TestErrorsNameLineKeyAndAllowed(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"unknown key", "listen:", "lisen:", `calve.yaml:2: lisen: unknown key; allowed keys here: warehouse, s3, listen`},
		{"unknown nested key", "topic: orders", "topics: orders", `pipelines[0].kafka.topics: unknown key; allowed keys here: brokers, topic, start`},
		{"missing", "name: orders\n    ", "", `calve.yaml:4: pipelines[0].name: missing: Name of the job`},
		{"duration", "250ms", "soon", `calve.yaml:11: pipelines[0].commit-interval: "soon" is not a duration; allowed: a number with unit`},
		{"list", "[localhost:9092]", "here", `calve.yaml:6: pipelines[0].kafka.brokers: "here" is not a list`},
		{"enum", "topic: orders", "topic: orders, start: middle", `calve.yaml:6: pipelines[0].kafka.start: "middle" is not allowed; allowed: earliest, latest`},
		{"record field", "off: offset", "off: ofset", `"ofset" is not one of topic, partition, offset`},
		{"mapping", "kafka: {", "kafka: x #{", `calve.yaml:6: pipelines[0].kafka: "x" is not a mapping; allowed keys: brokers`},
		{"not yaml", "pipelines:", "pipelines: [", `is not YAML`},
		{"empty", good, "", `want one YAML document with the keys warehouse`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("calve.yaml", []byte(strings.Replace(good, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestOnePipelinePerTable(t *testing.T) {
	i := strings.Index(good, "  - name")
	_, err := Parse("c", []byte(good+good[i:]))
	if err == nil || !strings.Contains(err.Error(), "is used twice") || !strings.Contains(err.Error(), "one pipeline a table") {
		t.Fatal(err)
	}
}

func TestSchemaKnowsEveryKey(t *testing.T) {
	b, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"warehouse", "commit-interval", "primary-key", "debezium-json", "additionalProperties\":false"} {
		if !strings.Contains(string(b), key) {
			t.Errorf("schema lacks %s", key)
		}
	}
}
