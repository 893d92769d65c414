package config

import (
	"encoding/json"
	"os"
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
	if time.Duration(p.CommitInterval) != 250*time.Millisecond || p.BufferSize != 32<<20 || !p.Export.Iceberg || time.Duration(p.Export.Interval) != 10*time.Second || p.Compaction.Workers != 1 ||
		p.Create.Options["bucket"] != "2" || p.Create.Options["write-only"] != "true" || p.Kafka.Start != "earliest" || p.Format.Type != "json" ||
		c.Log.Level != "info" || time.Duration(p.ExpireEvery) != time.Minute {
		t.Fatalf("%+v", c)
	}
}

func TestErrorsNameLineKeyAndAllowed(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"unknown key", "listen:", "lisen:", `calve.yaml:2: lisen: unknown key; allowed keys here: warehouse, s3, listen`},
		{"unknown nested key", "topic: orders", "toppics: orders", `pipelines[0].kafka.toppics: unknown key; allowed keys here: brokers, topic, topics, topic-pattern`},
		{"missing", "name: orders\n    ", "", `calve.yaml:4: pipelines[0].name: missing: Name of the job`},
		{"duration", "250ms", "soon", `calve.yaml:11: pipelines[0].commit-interval: "soon" is not a duration; allowed: a number with unit`},
		{"list", "[localhost:9092]", "here", `calve.yaml:6: pipelines[0].kafka.brokers: "here" is not a list`},
		{"enum", "topic: orders", "topic: orders, start: middle", `calve.yaml:6: pipelines[0].kafka.start: "middle" is not allowed; allowed: earliest, latest`},
		{"record field", "off: offset", "off: ofset", `"ofset" is not one of topic, partition, offset`},
		{"mapping", "kafka: {", "kafka: x #{", `calve.yaml:6: pipelines[0].kafka: "x" is not a mapping; allowed keys: brokers`},
		{"not yaml", "pipelines:", "pipelines: [", `is not YAML`},
		{"empty", good, "", `want one YAML document with the keys warehouse`},
		{"two documents", "warehouse:", "---\nx: 1\n---\nwarehouse:", `want one YAML document`},
		{"empty name", "name: orders", `name: ""`, `calve.yaml:4: pipelines[0].name: must not be empty: Name of the job`},
		{"null", "name: orders", `name:`, `calve.yaml:4: pipelines[0].name: missing: Name of the job`},
		{"no brokers", "[localhost:9092]", "[]", `calve.yaml:6: pipelines[0].kafka.brokers: must not be empty`},
		{"twice", "listen: 127.0.0.1:0", "listen: a\nlisten: b", `calve.yaml:3: listen: the key is given twice`},
		{"table name", "shop.orders", "shop/orders", `calve.yaml:5: pipelines[0].table: table name "shop/orders": use database.table`},
		{"truth value", "topic: orders", "topic: orders, tls: maybe", `calve.yaml:6: pipelines[0].kafka.tls: "maybe" is not a truth value; allowed: true, false`},
		{"number", "commit-interval: 250ms", "compaction: {workers: -1}", `calve.yaml:11: pipelines[0].compaction.workers: "-1" is not a number`},
		{"size", "commit-interval: 250ms", "buffer-size: big", `calve.yaml:11: pipelines[0].buffer-size: "big" is not a size; allowed: a number with unit`},
		{"credentials", "topic: orders", "topic: orders, sasl: {user: me}", `calve.yaml:6: pipelines[0].kafka.sasl: mechanism and user belong together`},
		{"mechanism", "topic: orders", "topic: orders, sasl: {mechanism: MAGIC}", `"MAGIC" is not allowed; allowed: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512`},
		{"two sources", "commit-interval: 250ms", "push: {}", `calve.yaml:4: pipelines[0]: give either kafka or push`},
		{"too much remembered", "commit-interval: 250ms", "commit-interval: 250ms\n  - {name: p, table: shop.p, push: {remember: 50001}, create: {columns: a INT}}", `pipelines[1].push.remember: 50001 is more than 50000`},
		{"a message without protobuf", "commit-interval: 250ms", "commit-interval: 250ms\n  - {name: p, table: shop.p, push: {}, create: {columns: a INT, message: M}}", `pipelines[1].create.message: it needs format.type protobuf`},
		{"push without columns", "commit-interval: 250ms", "commit-interval: 250ms\n  - {name: p, table: shop.p, push: {}, create: {}}", `pipelines[1].create: columns is missing: with push`},
		{"no registry", "commit-interval: 250ms", "format: {type: avro}", `pipelines[0].format: avro needs a schema registry; give registry.urls`},
		{"registry", "pipelines:", "registry: {user: me}\npipelines:", `calve.yaml:3: registry: user and password-env belong together`},
		{"two passwords", "topic: orders", "topic: orders, sasl: {mechanism: PLAIN, user: me, password-env: P, password-file: /p}", `use one of password, password-env and password-file`},
		{"no topic", "topic: orders, ", "", `calve.yaml:6: pipelines[0].kafka: give topic for one table; or topics`},
		{"both", "topic: orders", "topic: orders, topics: [a]", `calve.yaml:6: pipelines[0].kafka: give topic for one table; or topics`},
		{"same table", "topic: orders", "topics: [a]", `calve.yaml:5: pipelines[0].table: table: "shop.orders" is the same for all topics; it must have {topic}`},
		{"pattern", "topic: orders", "topic-pattern: 'a('", `kafka.topic-pattern: "a(" is no regular expression`},
		{"colon", "name: orders", "name: 'a:b'", `"a:b" has a colon`},
		{"text", "warehouse: file:///data/lake", "warehouse: [a]", `calve.yaml:1: warehouse: a list is not a text`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("calve.yaml", []byte(strings.Replace(good, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// TestLeftOut: keys without a value are as if they were not there, anchors and merged settings work, no pipeline is fine.
func TestLeftOut(t *testing.T) {
	c, err := Parse("c", []byte("warehouse: mem://\nlisten:\nlog:\n  level: debug\npipelines:\n- name: a\n  table: y\n  kafka: &k {brokers: [b:1], topic: t}\n  compaction:\n  commit-interval:\n- name: b\n  table: x\n  kafka: *k\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Pipelines[1]; p.Kafka.Topic != "t" || p.Kafka.Brokers[0] != "b:1" || p.Kafka.Start != "earliest" {
		t.Errorf("anchor: %+v", p)
	}
	if c.Compaction != (Budget{Workers: 2, SweepAfter: Duration(10 * time.Minute)}) {
		t.Errorf("budget %+v", c.Compaction)
	}
	if c, err := Parse("c", []byte("warehouse: mem://\ncompaction: {workers: 3, rate: 50mb, sweep-after: 0s}\n")); err != nil || c.Compaction != (Budget{Workers: 3, Rate: 50 << 20}) {
		t.Errorf("budget %+v, %v", c, err)
	}
	if p := c.Pipelines[0]; p.Compaction.Workers != 1 || time.Duration(p.CommitInterval) != time.Second || c.Listen != "127.0.0.1:8181" || c.Log.Level != "debug" || c.Log.Format != "text" {
		t.Errorf("defaults: %+v", c)
	}
	if c, err := Parse("c", []byte("warehouse: mem://\nlisten: \"\"\n")); err != nil || len(c.Pipelines) != 0 || c.Listen != "" {
		t.Errorf("only a catalog: %+v, %v", c, err)
	}
}

func TestTablePath(t *testing.T) {
	for name, want := range map[string]string{"shop.orders": "shop.db/orders", "orders": "default.db/orders", "a.b.c": "", ".x": "", "x.": "", "": "", "a/b": "", `a\b`: "", "..": "", "x..": "", "a.b$branch_c": ""} {
		got, err := TablePath(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestCutBranch(t *testing.T) {
	for name, want := range map[string][2]string{"a.b": {"a.b", ""}, "a.b$branch_c": {"a.b", "c"}, "b$branch_c.d": {"b", "c.d"}, "a.b$branch_": {"a.b$branch_", ""}, "a.b$snapshots": {"a.b$snapshots", ""}} {
		if table, branch := CutBranch(name); table != want[0] || branch != want[1] {
			t.Errorf("%q: %q %q", name, table, branch)
		}
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

func TestTopics(t *testing.T) {
	many := func(table string, k Kafka) Pipeline { return Pipeline{Name: "n", Table: table, Kafka: k} }
	topics, err := NewTopics(many("{1}.raw_{2}", Kafka{TopicPattern: `dbz\.([^.]+)\.(.+)`, ExceptPattern: `.*-tmp`}))
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]bool{"dbz.shop.orders": true, "xdbz.shop.orders": false, "dbz.shop.orders-tmp": false, "dbz.shop": false} {
		if topics.Has(topic) != want {
			t.Errorf("%s: %v", topic, !want)
		}
	}
	if p, err := topics.For("dbz.1-Shop.Order.Items"); err != nil || p.Table != "t1_shop.raw_order_items" || p.Name != "n:dbz.1-Shop.Order.Items" || p.Many() || p.Kafka.Topic != "dbz.1-Shop.Order.Items" {
		t.Errorf("%+v, %v", p, err)
	}
	topics, err = NewTopics(many("lake.{topic}", Kafka{Topics: []string{"a", "_B.c"}, TopicPattern: "x.*"}))
	if err != nil || !topics.Has("a") || !topics.Has("x") || topics.Has("b") {
		t.Errorf("%v", err)
	}
	if p, err := topics.For("_B.c"); err != nil || p.Table != "lake.t_b_c" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := topics.For(strings.Repeat("x", 129)); err == nil || !strings.Contains(err.Error(), "1 to 128") {
		t.Error(err)
	}
	for want, p := range map[string]Pipeline{
		"{3} stands for": many("a.{3}", Kafka{TopicPattern: "(a)(b)"}), "{1} stands for": many("a.{1}", Kafka{Topics: []string{"a"}, TopicPattern: "(a)"}),
		"{x} is unknown": many("a.{x}", Kafka{TopicPattern: "a"}), "use database.table": many("a/{topic}", Kafka{TopicPattern: "a"}),
	} {
		if _, err := NewTopics(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestSecret(t *testing.T) {
	file := t.TempDir() + "/p"
	if err := os.WriteFile(file, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CALVE_TEST_SECRET", "env")
	for want, s := range map[string]SASL{"plain": {Password: "plain"}, "env": {PasswordEnv: "CALVE_TEST_SECRET"}, "geheim": {PasswordFile: file}} {
		if got, err := s.Secret(); got != want || err != nil {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	for _, s := range []SASL{{PasswordEnv: "CALVE_TEST_NONE"}, {PasswordFile: file + "x"}} {
		if _, err := s.Secret(); err == nil {
			t.Errorf("%+v gives a password", s)
		}
	}
}

// TestRoutes: tables of records that choose them, and what cannot be.
func TestRoutes(t *testing.T) {
	parse := func(table, more string) (*Config, error) {
		return Parse("c.yaml", []byte("warehouse: mem://\nregistry: {urls: [http://r]}\npipelines:\n- name: n\n  table: \""+table+"\"\n  kafka: {brokers: [b], topic: t}\n"+more))
	}
	for _, c := range []struct{ table, more, want string }{
		{"s.{header:a}", "  route: {allow: \"[\"}\n", "route.allow: \"[\" is no regular expression"},
		{"s.{header:a}_{topic}", "", "table: {topic} is unknown beside {header:NAME} and {field:PATH}"},
		{"s.{field:a..b}", "  format: {type: avro}\n", "table: {field:a..b} has an empty name; use {field:NAME}, or {field:NAME.NAME}"},
		{"s.{field:a.b}", "  format: {type: debezium-avro}\n", "{field:a.b}: events of Debezium choose a table by a field only where they tell it of the row before, too: say format.before: full"},
		{"s.{field:a}", "  format: {type: debezium-json}\n", "{field:a}: events of Debezium choose a table by a field only where"},
		{"s.{field:a}", "  format: {type: debezium-flat-json}\n", "a row whose field changes would stay in its old table"},
		{"s.{header:b}_{field:a}", "  format: {type: debezium-flat-json, before: full}\n", "a row whose field changes would stay in its old table"},
		{"s.{header:a}", "  route: {max-tables: 0}\n", "max-tables: 0 is not between 1 and 10000"},
		{"s.{header:a}/x", "", "use database.table"},
		{"s.{header:a}", "  transactions: whole\n  format: {type: debezium-json}\n", "several tables"},
		{"s.{header:a}", "- name: n__\n  table: s.n__dead\n  kafka: {brokers: [b], topic: t}\n", "already written by pipeline"},
	} {
		if _, err := parse(c.table, c.more); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.table, c.more, err, c.want)
		}
	}
	for _, format := range []string{"debezium-json, before: full", "debezium-json, before: key", "debezium-flat-json, before: key", "debezium-avro, before: full", "debezium-avro, before: key",
		"json", "json-schema", "avro", "protobuf"} {
		if _, err := parse("s.{field:a}", "  format: {type: "+format+"}\n"); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
	for _, c := range []struct {
		table  string
		values []string
		want   string // table, or an error
		dead   string
	}{
		{"s.{header:a}_x", []string{"Acme-1"}, "s.acme_1_x", "s.n__dead"},
		{"{field:a.b}.{header:c}", []string{"7", "y"}, "t7.y", "n__dead"},
		{"s.{header:a}", []string{"a b"}, `header:a is "a b", which route.allow`, "s.n__dead"},
		{"s.{header:a}", []string{strings.Repeat("x", 64)}, "s." + strings.Repeat("x", 64), "s.n__dead"},
		{"s.{header:a}", []string{strings.Repeat("x", 65)}, "which route.allow", "s.n__dead"},
	} {
		cfg, err := parse(c.table, "")
		if err != nil {
			t.Fatal(err)
		}
		p := cfg.Pipelines[0]
		r, err := NewRoutes(p)
		if err != nil || !p.Routed() || p.Many() {
			t.Fatal(err)
		}
		one, err := r.For(c.values)
		switch {
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%s %q: %v, want %s", c.table, c.values, err, c.want)
		case err == nil && (one.Table != c.want || one.Name != "n:"+c.want || one.DeadTable() != c.want+"__dead" || !p.Makes(one.Table)):
			t.Errorf("%s %q: %s of %s, want %s", c.table, c.values, one.Table, one.Name, c.want)
		}
		if got := r.Unrouted(); got != c.dead {
			t.Errorf("%s: dead letters in %s, want %s", c.table, got, c.dead)
		}
	}
}
