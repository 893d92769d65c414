package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// tenants produces rows of tenants, with ids that count from 0 over all of them.
type tenants struct {
	*lab
	next int64
	of   map[string]map[int64]int // ids by tenant
}

func newTenants(t *testing.T, topic string) *tenants {
	return &tenants{lab: newLab(t, topic), of: map[string]map[int64]int{}}
}

// sendTenants produces one row for each name, with the header tenant and, in its value, the field who.
func (x *tenants) sendTenants(topic string, names ...string) {
	x.t.Helper()
	var rs []*kgo.Record
	for _, name := range names {
		rs = append(rs, &kgo.Record{Topic: topic, Key: fmt.Append(nil, x.next), Headers: []kgo.RecordHeader{{Key: "other", Value: []byte("x")}, {Key: "tenant", Value: []byte(name)}},
			Value: fmt.Appendf(nil, `{"id":%d,"name":"n","at":{"who":%q}}`, x.next, name)})
		if x.of[name] == nil {
			x.of[name] = map[int64]int{}
		}
		x.of[name][x.next]++
		x.next++
	}
	x.produce(rs...)
}

func (x *tenants) produce(rs ...*kgo.Record) {
	x.t.Helper()
	p, err := kgo.NewClient(kgo.SeedBrokers(x.ListenAddrs()...))
	if err != nil {
		x.t.Fatal(err)
	}
	defer p.Close()
	if err := p.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		x.t.Fatal(err)
	}
}

// awaitRows waits until a table has all rows of a tenant, and checks that it has them once.
func (x *tenants) awaitRows(table, tenant string) {
	x.t.Helper()
	awaitf(x.t, func() bool {
		path, _ := config.TablePath(table)
		if _, err := x.mem.Open(context.Background(), path+"/snapshot/LATEST"); err != nil {
			return false
		}
		return x.count(table) >= len(x.of[tenant])
	}, func() string {
		return fmt.Sprintf("table %s does not have the %d rows of %s", table, len(x.of[tenant]), tenant)
	})
	if got := x.ids(table); !maps.Equal(got, x.of[tenant]) {
		x.t.Errorf("table %s has %d rows of %d", table, len(got), len(x.of[tenant]))
	}
}

// unrouted gives the reasons of the records without table.
func (x *tenants) unrouted(table string) (out []string) {
	x.t.Helper()
	path, err := config.TablePath(table)
	if err != nil {
		x.t.Fatal(err)
	}
	env := hastyEnv()
	for l, err := range ingest.ReadDeadLetters(x.t.Context(), storage.Sub(x.store, path), ingest.LetterQuery{}, ingest.Env(env)) {
		if err != nil {
			x.t.Fatal(err)
		}
		out = append(out, string(l.Code)+" "+l.Reason)
	}
	return out
}

// TestRoutes: records choose their tables by a header. Those that may not, or name none, are dead letters; a second run
// finds the tables again and goes on.
func TestRoutes(t *testing.T) {
	x := newTenants(t, "orders")
	section := x.section("all", "orders", "table: shop.{header:tenant}_orders", "route: {max-tables: 3}", appendTable)
	section = strings.Replace(section, "  table: shop.all\n", "", 1)
	x.sendTenants("orders", "a", "b", "a", "a", "b", "7-up", "a")
	r := x.start(Options{}, section)
	for tenant, table := range map[string]string{"a": "shop.a_orders", "b": "shop.b_orders", "7-up": "shop.t7_up_orders"} {
		x.awaitRows(table, tenant)
	}
	bad := x.next
	x.sendTenants("orders", "../x", "7_up", "c", "")
	x.produce(&kgo.Record{Topic: "orders", Value: fmt.Appendf(nil, `{"id":%d}`, 99)})
	for range 100 {
		x.sendTenants("orders", "a", "b", "b")
	}
	x.awaitRows("shop.a_orders", "a")
	x.awaitRows("shop.b_orders", "b")
	reasons := x.unrouted("shop.all__dead")
	text := strings.Join(reasons, "\n")
	for _, want := range []string{`header:tenant is "../x", which route.allow`, `["7_up"] makes the same table shop.t7_up_orders as ["7-up"]`, "route.max-tables", `header:tenant is ""`, "no header:tenant"} {
		if !strings.Contains(text, want) {
			t.Errorf("no letter says %s:\n%s", want, text)
		}
	}
	if len(reasons) != 5 || x.next-bad != 304 {
		t.Errorf("%d letters:\n%s", len(reasons), text)
	}
	st := r.Status()
	if len(st.Pipelines) != 3 || len(st.Problems) > 0 {
		t.Errorf("%d pipelines, %v", len(st.Pipelines), st.Problems)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	x.sendTenants("orders", "a", "7-up")
	again := x.start(Options{}, section)
	x.awaitRows("shop.a_orders", "a")
	x.awaitRows("shop.t7_up_orders", "7-up")
	again.awaitState("all:shop.b_orders", Running)
	if err := again.end(); err != nil {
		t.Fatal(err)
	}
	x.awaitRows("shop.b_orders", "b")
	if n := len(x.unrouted("shop.all__dead")); n != 5 {
		t.Errorf("%d letters", n)
	}
}

// TestRouteByField: tables are made of the first records that choose them by a field within their value.
func TestRouteByField(t *testing.T) {
	x := newTenants(t, "orders")
	x.sendTenants("orders", "a", "b", "a")
	section := strings.Replace(x.section("all", "orders", `table: "{field:at.who}.orders"`, "create: {}"), "  table: shop.all\n", "", 1)
	r := x.start(Options{}, section)
	x.awaitRows("a.orders", "a")
	x.awaitRows("b.orders", "b")
	x.sendTenants("orders", "c", "a")
	x.awaitRows("c.orders", "c")
	x.awaitRows("a.orders", "a")
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	x.produce(&kgo.Record{Topic: "orders", Value: []byte(`{"id":1,"at":{}}`)}, &kgo.Record{Topic: "orders", Value: []byte(`{"id":1,`)})
	r = x.start(Options{}, section)
	await(t, "no letters", func() bool { return len(x.unrouted("default.all__dead")) == 2 })
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// TestRouteTombstones: a tombstone says nothing that what was before it has not said, so it needs no table; where its key
// tells the table it goes there.
func TestRouteTombstones(t *testing.T) {
	for _, c := range []struct {
		format, key string
		ok, letter  bool
	}{
		{"debezium-json", `{"id":1}`, false, false},
		{"debezium-flat-json", `{"id":1}`, false, false},
		{"debezium-flat-json", `{"id":1,"who":"a"}`, true, false},
		{"json", `{"id":1}`, false, true},
		{"debezium-avro", `{"id":1}`, false, false},
		{"debezium-avro", "\x00\x00\x00\x00\x01\x02", false, false},
		{"debezium-avro", "\x00\x00\x00\x00\x02\x02\x02a", false, false},
		{"debezium-avro", "\x00\x00\x00\x00\x09", false, false}, // of a schema that nobody knows
		{"avro", "\x00\x00\x00\x00\x02\x02\x02a", true, false},
		{"avro", "\x00\x00\x00\x00\x01\x02", false, true},
		{"protobuf", "\x00\x00\x00\x00\x03\x00\x12\x01a", true, false},
		{"protobuf", "", false, true},
	} {
		cfg := config.Pipeline{Name: "all", Table: "shop.{field:who}", Route: config.Route{Allow: ".*"}, Format: config.Format{Type: c.format, Before: "key"}}
		routes, err := config.NewRoutes(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rt := &routed{cfg: cfg, routes: routes}
		schemas := &decode.Schemas{}
		schemas.Add(1, decode.WriterSchema{Kind: decode.AvroSchema, Text: `{"type":"record","name":"K","fields":[{"name":"id","type":"long"}]}`})
		schemas.Add(2, decode.WriterSchema{Kind: decode.AvroSchema, Text: `{"type":"record","name":"K","fields":[{"name":"id","type":"long"},{"name":"who","type":"string"}]}`})
		schemas.Add(3, decode.WriterSchema{Kind: decode.ProtobufSchema, Text: `syntax = "proto3"; message K { int64 id = 1; string who = 2; }`})
		key, ok, err := rt.keys(schemas)(nil, &decode.Record{Key: []byte(c.key)})
		if ok != c.ok || errors.Is(err, decode.ErrRow) != c.letter || ok && string(key) != keyOf([]string{"a"}) {
			t.Errorf("%s %s: %q %v %v", c.format, c.key, key, ok, err)
		}
	}
}

// TestRouteOneTableIsBroken: the storage of one table fails for a while. The others go on, new ones are found, and when it
// works again the table gets what is its own.
func TestRouteOneTableIsBroken(t *testing.T) {
	x := newTenants(t, "orders")
	var broken atomic.Bool
	broken.Store(true)
	x.warehouse = storage.WithFaults(x.mem, func(op storage.Op) error {
		if broken.Load() && strings.HasPrefix(op.Name, "shop.db/bad_orders/") {
			return errors.New("injected")
		}
		return nil
	})
	section := strings.Replace(x.section("all", "orders", "table: shop.{header:tenant}_orders", appendTable), "  table: shop.all\n", "", 1)
	x.sendTenants("orders", "bad", "a", "bad")
	r := x.start(Options{}, section)
	x.awaitRows("shop.a_orders", "a")
	for range 50 {
		x.sendTenants("orders", "bad", "a", "b")
	}
	x.awaitRows("shop.a_orders", "a")
	x.awaitRows("shop.b_orders", "b")
	if st := r.await("all:shop.bad_orders", "restart", func(st PipelineStatus) bool { return st.Restarts > 0 }); !strings.Contains(st.LastError, "injected") {
		t.Error(st.LastError)
	}
	broken.Store(false)
	r.post("/v1/pipelines/all:shop.bad_orders/resume")
	x.awaitRows("shop.bad_orders", "bad")
	for range 5 { // and goes on with the others
		x.sendTenants("orders", "bad", "a", "b")
	}
	for tenant := range x.of {
		x.awaitRows("shop."+tenant+"_orders", tenant)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// TestRouteCrashes cuts the power at random calls to the storage, while records for known and new tables come: in the end
// every table has its rows once, and every record without table is a letter once.
func TestRouteCrashes(t *testing.T) {
	rng := schematest.Rand(t)
	x := newTenants(t, "orders")
	section := strings.Replace(x.section("all", "orders", "table: shop.{header:tenant}_orders", appendTable), "  table: shop.all\n", "", 1)
	rounds, crashes := 25, 0
	if testing.Short() {
		rounds = 8
	}
	for round := range rounds {
		var names []string
		for range 40 {
			names = append(names, fmt.Sprintf("t%d", rng.IntN(2+round/2)))
		}
		x.sendTenants("orders", append(names, "not allowed")...)
		var left atomic.Int64
		left.Store(1 + rng.Int64N(150))
		dying := storage.WithFaults(x.mem, func(op storage.Op) error {
			switch op.Kind {
			case storage.OpCommit, storage.OpPutIfAbsent, storage.OpPut, storage.OpCreate:
				if left.Add(-1) == 0 {
					return storage.LoseReply(errors.New("crash"))
				}
			}
			if left.Load() < 0 {
				return errors.New("crash")
			}
			return nil
		})
		x.warehouse = dying
		r := x.start(Options{}, section)
		deadline := 0
		awaitf(t, func() bool { deadline++; return left.Load() <= 0 || deadline > 200 }, func() string { return "neither crash nor end" })
		if left.Load() <= 0 {
			crashes++
		}
		left.Store(-1)
		_ = r.end()
		x.mem = x.mem.CrashClone(rng)
		x.store = x.mem
	}
	x.warehouse = x.mem
	r := x.start(Options{}, section)
	letters := len(x.of["not allowed"])
	delete(x.of, "not allowed")
	for tenant := range x.of {
		x.awaitRows("shop."+tenant+"_orders", tenant)
	}
	await(t, "letters are missing", func() bool { return len(x.unrouted("shop.all__dead")) >= letters })
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	for tenant := range x.of {
		x.awaitRows("shop."+tenant+"_orders", tenant)
	}
	if n := len(x.unrouted("shop.all__dead")); n != letters || crashes < rounds/2 {
		t.Errorf("%d letters, want %d; %d crashes", n, letters, crashes)
	}
}

// TestRouteFullAsks: when a route has all the tables that it may have, values that it does not know cost no requests.
func TestRouteFullAsks(t *testing.T) {
	x := newTenants(t, "orders")
	var asked atomic.Int64
	x.warehouse = storage.WithFaults(x.mem, func(op storage.Op) error {
		if strings.HasPrefix(op.Name, "calve/routes/all/shop.") {
			asked.Add(1)
		}
		return nil
	})
	section := strings.Replace(x.section("all", "orders", "table: shop.{header:tenant}_orders", "route: {max-tables: 1}", appendTable), "  table: shop.all\n", "", 1)
	x.sendTenants("orders", "a")
	r := x.start(Options{}, section)
	x.awaitRows("shop.a_orders", "a")
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("user-%d", i))
	}
	was := asked.Load()
	x.sendTenants("orders", append(names, "a")...)
	x.awaitRows("shop.a_orders", "a")
	if n := asked.Load() - was; n > 20 {
		t.Errorf("%d requests one after the other for 200 values that are refused", n)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// avroOrders are two schemas of one row, which have the field within at in different places.
var avroOrders = [2]string{`{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"at","type":["null",{"type":"record","name":"At","fields":[{"name":"who","type":["null","string"]}]}]}]}`,
	`{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"note","type":["null","string"]},{"name":"at","type":["null",{"type":"record","name":"At","fields":[{"name":"n","type":"int"},{"name":"who","type":["null","string"]}]}]}]}`}

// sendFramed produces one record for each name, by a function that makes its value of an id; "" makes none of a tenant.
func (x *tenants) sendFramed(topic string, value func(id int64, name string) []byte, names ...string) {
	x.t.Helper()
	var rs []*kgo.Record
	for _, name := range names {
		rs = append(rs, &kgo.Record{Topic: topic, Value: value(x.next, name)})
		if name != "" {
			if x.of[name] == nil {
				x.of[name] = map[int64]int{}
			}
			x.of[name][x.next]++
		}
		x.next++
	}
	x.produce(rs...)
}

// avroOrder makes a function of the schema of an id, which is 1 or 2.
func (x *tenants) avroOrder(schema int) func(id int64, name string) []byte {
	s := avro.MustParse(avroOrders[schema-1])
	return func(id int64, name string) []byte {
		row := map[string]any{"id": id, "note": "n", "at": nil}
		if name != "" {
			row["at"] = map[string]any{"who": name, "n": int32(1)}
		}
		b, err := s.AppendEncode([]byte{0, 0, 0, 0, byte(schema)}, row)
		if err != nil {
			x.t.Fatal(err)
		}
		return b
	}
}

// TestRouteByFieldOfAvro: records in Avro go to the tables that a field within them names. While the registry does not
// answer they wait; when it does they come into their tables, once, and none of them is a dead letter.
func TestRouteByFieldOfAvro(t *testing.T) {
	x := newTenants(t, "orders")
	reg := registrytest.New(registrytest.Schema{Subject: "orders-value", Version: 1, ID: 1, Text: avroOrders[0]})
	srv := httptest.NewServer(reg)
	defer srv.Close()
	reg.Down(true)
	section := strings.Replace(x.section("all", "orders", `table: "shop.{field:at.who}_orders"`, "format: {type: avro}", `create: {columns: "id BIGINT NOT NULL, part INT, off BIGINT"}`), "  table: shop.all\n", "", 1) +
		"registry: {urls: [" + srv.URL + "]}\n"
	x.sendFramed("orders", x.avroOrder(1), "a", "b", "a", "", "b")
	r := x.start(Options{}, section)
	await(t, "nothing says that the registry does not answer", func() bool {
		return strings.Contains(strings.Join(r.Status().Problems, "\n"), "trying again to fetch schema id 1")
	})
	if st := r.Status(); len(st.Pipelines) > 0 {
		t.Errorf("%d tables of records that could not be read", len(st.Pipelines))
	}
	reg.Down(false)
	x.awaitRows("shop.a_orders", "a")
	x.awaitRows("shop.b_orders", "b")
	reg.Down(true)
	x.sendFramed("orders", x.avroOrder(1), "b", "a")
	x.awaitRows("shop.a_orders", "a") // of a schema that is known
	x.awaitRows("shop.b_orders", "b")
	x.sendFramed("orders", x.avroOrder(2), "a", "", "c", "b")
	await(t, "the second schema is not asked for", func() bool { return reg.Asked("/schemas/ids/2") > 2 })
	reg.Add(registrytest.Schema{Subject: "orders-value", Version: 2, ID: 2, Text: avroOrders[1]})
	reg.Down(false)
	for _, tenant := range []string{"a", "b", "c"} {
		x.awaitRows("shop."+tenant+"_orders", tenant)
	}
	await(t, "no letters", func() bool { return len(x.unrouted("shop.all__dead")) >= 2 })
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	letters := x.unrouted("shop.all__dead")
	if text := strings.Join(letters, "\n"); len(letters) != 2 || strings.Count(text, "route the record has no field:at.who, which chooses its table") != 2 {
		t.Errorf("letters:\n%s", text)
	}
	if st := r.Status(); len(st.Problems) > 0 {
		t.Errorf("problems %v", st.Problems)
	}
	for tenant := range x.of {
		if _, err := x.mem.Open(t.Context(), "shop.db/"+tenant+"_orders__dead/snapshot/LATEST"); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the table of %s has refused records: %v", tenant, err)
		}
	}
}

// TestRouteByFieldOfForms: Protobuf and events of Debezium in Avro; a row that moves is a dead letter, and so is a record of
// a schema that cannot be read.
func TestRouteByFieldOfForms(t *testing.T) {
	x := &tenants{lab: newLab(t, "protos", "events"), of: map[string]map[int64]int{}}
	envelope := `{"type":"record","name":"Envelope","fields":[{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"who","type":"string"}]}]},
	 {"name":"after","type":["null","Value"]},{"name":"op","type":"string"}]}`
	srv := httptest.NewServer(registrytest.New(
		registrytest.Schema{Subject: "protos-value", Version: 1, ID: 3, Type: "PROTOBUF", Text: `syntax = "proto3"; message Order { int64 id = 1; At at = 2; } message At { string who = 1; }`},
		registrytest.Schema{Subject: "events-value", Version: 1, ID: 4, Text: envelope}, registrytest.Schema{Subject: "other", Version: 1, ID: 5, Text: `"long"`}))
	defer srv.Close()
	section := func(name, topic, table string, more ...string) string {
		return strings.Replace(x.section(name, topic, append(more, `table: "`+table+`"`)...), "  table: shop."+name+"\n", "", 1)
	}
	s := avro.MustParse(envelope)
	event := func(op string, before, after any) *kgo.Record {
		b, err := s.AppendEncode([]byte{0, 0, 0, 0, 4}, map[string]any{"op": op, "before": before, "after": after})
		if err != nil {
			t.Fatal(err)
		}
		return &kgo.Record{Topic: "events", Key: []byte("k"), Value: b} // all in one partition
	}
	row := func(id int64, who string) map[string]any { return map[string]any{"id": id, "who": who} }
	x.produce(event("c", nil, row(1, "a")), event("c", nil, row(2, "b")), event("u", row(1, "a"), row(1, "b")), event("u", nil, row(2, "b")), event("c", nil, row(3, "b")), event("d", row(3, "b"), nil),
		&kgo.Record{Topic: "events", Value: []byte{0, 0, 0, 0, 5, 2}}, &kgo.Record{Topic: "events", Key: []byte("3")})
	proto := func(id byte, who string) *kgo.Record {
		return &kgo.Record{Topic: "protos", Value: append([]byte{0, 0, 0, 0, 3, 0, 8, id, 0x12, byte(len(who) + 2), 0x0a, byte(len(who))}, who...)}
	}
	x.produce(proto(1, "a"), proto(2, "b"), proto(3, "a"), &kgo.Record{Topic: "protos", Value: []byte{0, 0, 0, 0, 3, 0, 8, 4}}, &kgo.Record{Topic: "protos", Value: []byte{0, 0, 0, 0, 3, 0, 8}})
	r := x.start(Options{}, section("p", "protos", "p.{field:at.who}", "format: {type: protobuf}", `create: {columns: "id BIGINT NOT NULL, part INT, off BIGINT"}`)+
		section("e", "events", "e.{field:who}", "format: {type: debezium-avro, before: full}", `create: {columns: "id BIGINT NOT NULL, part INT, off BIGINT", primary-key: [id]}`), "registry: {urls: ["+srv.URL+"]}\n")
	r.await("e:e.b", "3 records", func(p PipelineStatus) bool { return p.Records == 3 }) // the delete is one of them
	for table, want := range map[string]map[int64]int{"p.a": {1: 1, 3: 1}, "p.b": {2: 1}, "e.a": {1: 1}, "e.b": {2: 1}} {
		x.of[table] = want
		x.awaitRows(table, table)
	}
	for table, want := range map[string][]string{"p.p__dead": {"malformed the bytes end too early", "route the record has no field:at.who"},
		"e.e__dead": {`was "a" before: the row is in another table`, "the update does not tell the row before it", "schema id 5: the writer's schema is no envelope"}} {
		await(t, "no letters in "+table, func() bool { return len(x.unrouted(table)) >= len(want) })
		letters := x.unrouted(table)
		for _, w := range want {
			if text := strings.Join(letters, "\n"); len(letters) != len(want) || strings.Count(text, w) != 1 {
				t.Errorf("%s: no letter says %s:\n%s", table, w, text)
			}
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}
