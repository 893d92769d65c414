package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/storage"
)

// TestServe follows two pipelines from one topic through a life: tables are created, rows arrive, HTTP tells about them,
// the catalog serves the compacted part, stopping commits what was read, and a second process goes on exactly once.
func TestServe(t *testing.T) {
	l := newLab(t, "events")
	sections := []string{l.section("keyed", "events", keyedTable), l.section("plain", "events", appendTable)}
	l.fill("events", 40)
	l.send("events", `{"id":"not a number"}`)
	r := l.start(Options{Version: "v1.2"}, sections...)
	for _, p := range []string{"keyed", "plain"} {
		st := r.awaitRecords(p, 41)
		if st.State != Running || st.Rows != 40 || st.Rejected != 1 || st.Epoch != 1 || st.Snapshot < 2 || st.Commits < 1 || st.LastCommit.IsZero() || st.Location != "mem:///shop.db/"+p {
			t.Errorf("%s: %+v", p, st)
		}
	}
	l.fill("events", 40) // two sorted runs of one size: the keyed table is compacted
	r.awaitRecords("keyed", 81)
	r.await("keyed", "compacted and exported rows", func(p PipelineStatus) bool { return p.Compactions > 0 && p.IcebergRows > 0 })
	r.await("plain", "exported rows", func(p PipelineStatus) bool { return p.IcebergRows == 80 })
	checkHTTP(t, r)
	checkCatalog(t, r)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Status().Pipelines {
		if p.State != Stopped || p.Error != "" || p.ExportError != "" || p.Rows != 80 {
			t.Errorf("after the end: %+v", p)
		}
	}
	l.checkExact("shop.keyed", "events")
	l.checkExact("shop.plain", "events")

	l.fill("events", 15) // while nobody runs
	again := l.start(Options{}, sections...)
	again.awaitRecords("keyed", 15)
	again.awaitRecords("plain", 15)
	if err := again.end(); err != nil {
		t.Fatal(err)
	}
	if p := again.Status().Pipelines[1]; p.IcebergRows != 95 {
		t.Errorf("the last snapshot is not exported at the end: %+v", p)
	}
	l.checkExact("shop.keyed", "events")
	l.checkExact("shop.plain", "events")
}

func checkHTTP(t *testing.T, r *running) {
	t.Helper()
	if code, body := r.get("/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %s", code, body)
	}
	st := r.getJSON("/status")
	if st["version"] != "v1.2" || len(st["pipelines"].([]any)) != 2 {
		t.Errorf("/status: %v", st)
	}
	p := st["pipelines"].([]any)[0].(map[string]any)
	if p["name"] != "keyed" || p["state"] != "running" || p["rows"] != 80.0 || p["rejected"] != 1.0 || p["lag"] != 0.0 ||
		p["writeAmplification"].(float64) <= 1 || p["spaceAmplification"].(float64) < 1 || p["sortedRuns"].(float64) < 1 || p["stallSeconds"] != 0.0 || p["stalled"] != false {
		t.Errorf("/status: %v", p)
	}
	code, page := r.get("/")
	for _, want := range []string{"keyed", "plain", "shop.plain", "v1.2", "running"} {
		if code != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("/: %d, no %q", code, want)
		}
	}
	_, metrics := r.get("/metrics")
	for _, want := range []string{
		`calve_up{pipeline="keyed",table="shop.keyed"} 1`, `calve_rows_total{pipeline="plain",table="shop.plain"} 80`,
		`calve_rejected_total{pipeline="plain",table="shop.plain"} 1`, `calve_lag_records{pipeline="keyed",table="shop.keyed"} 0`,
		`calve_iceberg_rows{pipeline="plain",table="shop.plain"} 80`, `calve_files{level="2",pipeline="keyed",table="shop.keyed"}`,
		`calve_compaction_debt_bytes{pipeline="keyed",table="shop.keyed"} 0`, `calve_stall_seconds_total{pipeline="keyed",table="shop.keyed"} 0`,
		`calve_write_amplification{pipeline="plain",table="shop.plain"} 1`, `calve_sorted_runs{pipeline="keyed",table="shop.keyed"}`,
		`calve_epoch{pipeline="keyed",table="shop.keyed"} 1`, "go_goroutines",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics: no %s in\n%s", want, metrics)
		}
	}
	if code, _ := r.get("/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d", code)
	}
}

func checkCatalog(t *testing.T, r *running) {
	t.Helper()
	r.getJSON("/iceberg/v1/config")
	if got := r.getJSON("/iceberg/v1/namespaces"); fmt.Sprint(got["namespaces"]) != "[[shop]]" {
		t.Errorf("namespaces: %v", got)
	}
	table := r.getJSON("/iceberg/v1/namespaces/shop/tables/plain")
	meta := table["metadata"].(map[string]any)
	snaps, _ := meta["snapshots"].([]any)
	if len(snaps) == 0 || !strings.HasPrefix(table["metadata-location"].(string), "mem:///shop.db/plain/metadata/") {
		t.Fatalf("table: %v", table)
	}
	last := snaps[len(snaps)-1].(map[string]any)["summary"].(map[string]any)
	if last["total-records"] != "80" {
		t.Errorf("summary: %v", last)
	}
}

// TestOthersGoOn: a pipeline that another process has taken over, one whose topic was created again and one without
// table fail for good, each with what to do. The others go on.
func TestOthersGoOn(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	for _, topic := range []string{"a", "b", "c"} {
		l.fill(topic, 5)
	}
	r := l.start(Options{},
		l.section("fenced", "a", appendTable), l.section("recreated", "b", appendTable), l.section("good", "c", appendTable), l.section("tableless", "c"))
	for _, p := range []string{"fenced", "recreated", "good"} {
		r.awaitRecords(p, 5)
	}
	other, err := engine.Open(t.Context(), storage.Sub(l.mem, "shop.db/fenced"), engine.Settings{Job: "fenced"}, hastyEnv())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background()) }()
	l.fill("a", 1)
	if err := errors.Join(l.DeleteTopic("b"), l.CreateTopic("b", 2, nil)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"fenced": "fenced by a newer epoch", "recreated": "calve serve --reset recreated",
		"tableless": "create it first (with `calve create`, or a create section in the pipeline)",
	} {
		if st := r.awaitState(name, Failed); !strings.Contains(st.Error, want) || st.Restarts != 0 {
			t.Errorf("%s: %d restarts, %s; want %q", name, st.Restarts, st.Error, want)
		}
	}
	if code, body := r.get("/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "is failed: ") {
		t.Errorf("/healthz: %d %s", code, body)
	}
	l.fill("c", 7)
	r.awaitRecords("good", 12)
	err = r.end()
	if err == nil {
		t.Fatal("Run says that all is well")
	}
	for _, name := range []string{"fenced", "recreated", "tableless"} {
		if !strings.Contains(err.Error(), "pipeline "+name+": ") {
			t.Errorf("Run does not tell about %s: %v", name, err)
		}
	}
	if !errors.Is(err, engine.ErrFenced) || strings.Contains(err.Error(), "pipeline good") {
		t.Errorf("Run: %v", err)
	}
	l.checkExact("shop.good", "c")

	// A reset lets the one with the new topic begin again; nothing is deleted.
	l.send("b", `{"id":100,"name":"new"}`)
	reset := l.start(Options{Reset: []string{"recreated"}}, l.section("recreated", "b", appendTable))
	reset.awaitRecords("recreated", 1)
	if err := reset.end(); err != nil {
		t.Fatal(err)
	}
	if got := l.ids("shop.recreated"); len(got) != 6 || got[100] != 1 {
		t.Errorf("after the reset: %v", got)
	}
}

// TestUnreachableBroker: the status says what a pipeline waits for.
func TestUnreachableBroker(t *testing.T) {
	l := newLab(t, "a")
	section := strings.Replace(l.section("x", "a", appendTable), l.ListenAddrs()[0], "127.0.0.1:1", 1)
	r := l.start(Options{}, section)
	st := r.await("x", "reason", func(p PipelineStatus) bool { return p.Error != "" })
	if st.State != Starting || !strings.Contains(st.Error, "trying again to ") || !strings.Contains(st.Error, "127.0.0.1:1") || st.Lag != -1 {
		t.Errorf("%+v", st)
	}
	if _, page := r.get("/"); !strings.Contains(page, "trying again to ") || !strings.Contains(page, "<td>?</td>") {
		t.Error(page)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

func TestThousands(t *testing.T) {
	for in, want := range map[string]string{"0": "0", "12": "12", "123": "123", "1234": "1,234", "123456": "123,456", "1234567": "1,234,567", "-1": "-1", "-123": "-123", "-1234": "-1,234"} {
		if got := thousands(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// TestRunEndsWithItsLastPipeline: when no pipeline is left, Run returns by itself.
func TestRunEndsWithItsLastPipeline(t *testing.T) {
	l := newLab(t, "a")
	r := l.start(Options{}, l.section("tableless", "a"))
	select {
	case err := <-r.done:
		if err == nil || !strings.Contains(err.Error(), "no such table") {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("Run goes on without pipelines")
	}
}

// TestStorageFaults breaks the storage again and again while rows arrive. The pipelines restart from their last
// snapshots and lose and double nothing.
func TestStorageFaults(t *testing.T) {
	seed := uint64(20261129)
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	l := newLab(t, "events")
	broken := errors.New("injected")
	var mu sync.Mutex
	var faulty int
	faults := rand.New(rand.NewPCG(seed, 2))
	l.warehouse = storage.WithFaults(l.mem, func(op storage.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if faulty == 0 {
			return nil
		}
		faulty--
		switch faults.IntN(3) {
		case 0:
			return storage.LoseReply(broken)
		case 1:
			return fmt.Errorf("%w: %w", storage.ErrUnknown, broken)
		}
		return broken
	})
	r := l.start(Options{}, l.section("keyed", "events", keyedTable), l.section("plain", "events", appendTable))
	for range 6 {
		r.awaitState("keyed", Running)
		r.awaitState("plain", Running)
		mu.Lock()
		faulty = 20 + rng.IntN(40) // enough for a commit to give up
		mu.Unlock()
		l.fill("events", 1+rng.IntN(10))
		await(t, "the pipelines do not use the storage", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return faulty == 0
		})
	}
	for _, table := range []string{"keyed", "plain"} {
		await(t, "not all rows arrive in "+table, func() bool { return l.count("shop."+table) >= l.produced["events"] })
	}
	restarts := r.Status().Pipelines[0].Restarts + r.Status().Pipelines[1].Restarts
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if restarts == 0 {
		t.Error("nothing was restarted: the faults are too mild")
	}
	l.checkExact("shop.keyed", "events")
	l.checkExact("shop.plain", "events")
}

func TestSetupErrors(t *testing.T) {
	l := newLab(t, "a")
	for _, tc := range []struct{ section, want string }{
		{l.section("x", "a", `create: {columns: "id BIGINTEGER"}`), "pipeline x: pipeline setup: create.columns: "},
		{l.section("x", "a", `create: {columns: "id BIGINT", primary-key: [ident]}`), "pipeline x: pipeline setup: create: "},
	} {
		if _, err := New(l.config(tc.section), l.mem, Options{}, hastyEnv()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
	if _, err := New(l.config(l.section("x", "a")), l.mem, Options{Reset: []string{"y"}}, hastyEnv()); err == nil || !strings.Contains(err.Error(), `no pipeline "y" to reset; the configuration has x`) {
		t.Error(err)
	}
	cfg := l.config(l.section("x", "a"))
	cfg.Listen = "256.0.0.1:99999"
	s, err := New(cfg, l.mem, Options{}, hastyEnv())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), `(key "listen")`) {
		t.Error(err)
	}
}
