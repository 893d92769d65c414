package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/calve-io/calve/storage"
)

// family is a pipeline of a configuration that writes topics into tables of their own.
func (l *lab) family(name, table, topics string, more ...string) string {
	return fmt.Sprintf("- name: %s\n  table: %s\n  kafka: {brokers: [%s], %s, fields: {off: offset, part: partition}}\n  commit-interval: 10ms\n  expire-every: 0s\n  %s\n",
		name, table, strings.Join(l.ListenAddrs(), ","), topics, strings.Join(more, "\n  "))
}

// post sends a request without a body.
func (r *running) post(path string) (int, string) {
	r.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Post(r.url+path, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body := make([]byte, 1<<16)
	n, _ := resp.Body.Read(body)
	return resp.StatusCode, string(body[:n])
}

// TestManyTopics: topics that match are written into tables of their own, also one that is created later; each is a job.
// Two whose names make one table: the first has it, the other says why it cannot, also when the process starts again.
func TestManyTopics(t *testing.T) {
	l := newLab(t, "shop.Orders", "shop.items", "other", "listed", "shop.tmp")
	for _, topic := range []string{"shop.Orders", "shop.items", "other", "listed", "shop.tmp"} {
		l.fill(topic, 20)
	}
	section := l.family("lake", "raw.{topic}", `topics: [listed], topic-pattern: "shop[.-].*", except-pattern: ".*tmp"`, appendTable)
	r := l.start(Options{}, section)
	for topic, table := range map[string]string{"shop.Orders": "raw.shop_orders", "shop.items": "raw.shop_items", "listed": "raw.listed"} {
		if st := r.awaitRecords("lake:"+topic, 20); st.Table != table {
			t.Errorf("%s goes to %s", topic, st.Table)
		}
	}
	if err := errors.Join(l.CreateTopic("shop.new", 1, nil), l.CreateTopic("shop-items", 1, nil)); err != nil {
		t.Fatal(err)
	}
	l.fill("shop.new", 10)
	r.awaitRecords("lake:shop.new", 10)
	if st := r.awaitState("lake:shop-items", Failed); !strings.Contains(st.Error, "pipeline lake:shop.items writes table raw.shop_items already") {
		t.Error(st.Error)
	}
	if n := len(r.Status().Pipelines); n != 5 {
		t.Errorf("%d pipelines", n)
	}
	if err := r.end(); err == nil || !strings.Contains(err.Error(), "lake:shop-items") || strings.Contains(err.Error(), "lake:shop.new") {
		t.Errorf("Run: %v", err)
	}
	// Alone, the topic that came second is told by the table itself.
	again := l.start(Options{}, l.family("lake", "raw.{topic}", "topics: [shop-items]", appendTable))
	if st := again.awaitState("lake:shop-items", Failed); !strings.Contains(st.Error, `table raw.shop_items belongs to topic "shop.items"`) {
		t.Error(st.Error)
	}
	_ = again.end()
	l.fill("shop.Orders", 5)
	last := l.start(Options{}, section)
	last.awaitRecords("lake:shop.Orders", 5)
	_ = last.end()
	l.checkExact("raw.shop_orders", "shop.Orders")
	l.checkExact("raw.listed", "listed")
	l.checkExact("raw.shop_new", "shop.new")
}

// TestTopicLikeDeadLetters: where the table of a topic has the name that the dead letters of another have, whichever comes
// second is refused.
func TestTopicLikeDeadLetters(t *testing.T) {
	for _, topics := range [][2]string{{"orders__dead", "orders"}, {"orders", "orders__dead"}} {
		l := newLab(t, topics[:]...)
		r := l.start(Options{}, l.family("lake", "raw.{topic}", fmt.Sprintf("topics: [%s, %s]", topics[0], topics[1]), appendTable))
		if st := r.awaitState("lake:"+topics[1], Failed); !strings.Contains(st.Error, "pipeline lake:"+topics[0]+" writes table raw.orders__dead already") {
			t.Error(st.Error)
		}
		r.awaitState("lake:"+topics[0], Running)
		_ = r.end()
	}
}

// TestResume: of many tables one stops, because its topic was created again, and one because its storage fails. Neither
// keeps the others from going on. The one tries again by itself, or at once when it is told to; the other begins anew when
// that is asked for, and a topic that was gone is read on when it is there again.
func TestResume(t *testing.T) {
	l := newLab(t, "t0", "t1", "t2", "t3")
	for i := range 4 {
		l.fill(fmt.Sprint("t", i), 100)
	}
	r := l.start(Options{}, l.family("lake", "raw.{topic}", `topic-pattern: "t[0-9]"`, appendTable))
	for i := range 4 {
		r.awaitRecords(fmt.Sprint("lake:t", i), 100)
	}
	if err := errors.Join(l.DeleteTopic("t1"), l.CreateTopic("t1", 2, nil)); err != nil {
		t.Fatal(err)
	}
	st := r.awaitState("lake:t1", Failed)
	for _, want := range []string{"deleted and created again", "offsets below ", "calve reset lake:t1"} {
		if !strings.Contains(st.Error, want) {
			t.Errorf("%s: no %q", st.Error, want)
		}
	}
	if code, body := r.post("/v1/pipelines/lake:t2/resume"); code != http.StatusConflict || !strings.Contains(body, "it is running") {
		t.Errorf("resume of what runs: %d %s", code, body)
	}
	if code, _ := r.post("/v1/pipelines/lake:t9/resume"); code != http.StatusNotFound {
		t.Errorf("resume of nothing: %d", code)
	}
	if code, body := r.post("/v1/pipelines/lake:t1/resume"); code != http.StatusOK { // it fails again for the same reason
		t.Errorf("resume: %d %s", code, body)
	}
	r.awaitState("lake:t1", Failed)
	l.send("t1", `{"id":1000,"name":"new"}`)
	if code, body := r.post("/v1/pipelines/lake:t1/reset"); code != http.StatusOK {
		t.Errorf("reset: %d %s", code, body)
	}
	r.awaitRecords("lake:t1", 101)
	for i := range 4 {
		if i != 1 {
			l.fill(fmt.Sprint("t", i), 50)
			r.awaitRecords(fmt.Sprint("lake:t", i), 150)
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if got := l.ids("raw.t1"); len(got) != 101 || got[1000] != 1 {
		t.Errorf("%d rows after the reset", len(got))
	}
	l.checkExact("raw.t0", "t0")
}

// TestOneTableIsBroken: the storage of one table fails; the pipeline says so and tries again, others go on, and when the
// storage works again all arrives, at once after a resume.
func TestOneTableIsBroken(t *testing.T) {
	l := newLab(t, "a", "b")
	var broken atomic.Bool
	broken.Store(true)
	l.warehouse = storage.WithFaults(l.mem, func(op storage.Op) error {
		if broken.Load() && strings.HasPrefix(op.Name, "raw.db/a/") {
			return errors.New("injected")
		}
		return nil
	})
	l.fill("a", 10)
	l.fill("b", 10)
	r := l.start(Options{}, l.family("lake", "raw.{topic}", `topic-pattern: "."`, appendTable))
	r.awaitRecords("lake:b", 10)
	st := r.await("lake:a", "restart", func(st PipelineStatus) bool { return st.State == Waiting && st.Restarts > 0 })
	if !strings.Contains(st.Error, "injected") {
		t.Error(st.Error)
	}
	if code, body := r.get("/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "lake:a is waiting") {
		t.Errorf("/healthz: %d %s", code, body)
	}
	broken.Store(false)
	r.post("/v1/pipelines/lake:a/resume") // it may have begun by itself
	r.awaitRecords("lake:a", 10)
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	l.checkExact("raw.a", "a")
	l.checkExact("raw.b", "b")
}
