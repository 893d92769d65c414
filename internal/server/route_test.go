package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
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
	} {
		cfg := config.Pipeline{Name: "all", Table: "shop.{field:who}", Route: config.Route{Allow: ".*"}, Format: config.Format{Type: c.format, Before: "key"}}
		routes, err := config.NewRoutes(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rt := &routed{cfg: cfg, routes: routes}
		key, ok, err := rt.keys()(nil, &decode.Record{Key: []byte(c.key)})
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
