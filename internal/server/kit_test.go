package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(memberEnv); file != "" {
		if err := serveAsMember(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for something that must happen. Nothing is asserted about how quick it is.
const patience = 60 * time.Second

// hastyEnv has pauses of 20 ms at most: between restarts, commits and looks at the topic.
func hastyEnv() engine.Env {
	return engine.Env{Now: time.Now, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler),
		After: func(d time.Duration) <-chan time.Time { return time.After(min(d, 20*time.Millisecond)) }}
}

// lab is a broker and a warehouse.
type lab struct {
	*kfake.Cluster
	t         *testing.T
	warehouse storage.Store // what servers use
	mem       *storage.Mem  // what is there
	store     storage.Store // where readers look
	produced  map[string]int
}

func newLab(t *testing.T, topics ...string) *lab {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	mem := storage.NewMem()
	return &lab{Cluster: c, t: t, warehouse: mem, mem: mem, store: mem, produced: map[string]int{}}
}

// send produces records, keyed by themselves.
func (l *lab) send(topic string, values ...string) {
	l.t.Helper()
	p, err := kgo.NewClient(kgo.SeedBrokers(l.ListenAddrs()...)) // a new one: the topic may be another than the last time
	if err != nil {
		l.t.Fatal(err)
	}
	defer p.Close()
	var rs []*kgo.Record
	for _, v := range values {
		rs = append(rs, &kgo.Record{Topic: topic, Key: []byte(v), Value: []byte(v)})
	}
	if err := p.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		l.t.Fatal(err)
	}
}

// fill produces n new rows.
func (l *lab) fill(topic string, n int) {
	l.t.Helper()
	var values []string
	for range n {
		values = append(values, fmt.Sprintf(`{"id":%d,"name":"n"}`, l.produced[topic]))
		l.produced[topic]++
	}
	l.send(topic, values...)
}

// section is a pipeline of a configuration that writes a topic into the table shop.NAME.
func (l *lab) section(name, topic string, more ...string) string {
	return fmt.Sprintf("- name: %s\n  table: shop.%s\n  kafka: {brokers: [%s], topic: %s, fields: {off: offset, part: partition}}\n  commit-interval: 10ms\n  expire-every: 0s\n  %s\n",
		name, name, strings.Join(l.ListenAddrs(), ","), topic, strings.Join(more, "\n  "))
}

const (
	keyedTable  = `create: {columns: "id BIGINT NOT NULL, name STRING, part INT, off BIGINT", primary-key: [id], options: {num-sorted-run.compaction-trigger: 2}}`
	appendTable = `create: {columns: "id BIGINT NOT NULL, name STRING, part INT, off BIGINT"}`
)

func (l *lab) config(sections ...string) *config.Config {
	l.t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("warehouse: mem://\nlisten: 127.0.0.1:0\npipelines:\n"+strings.Join(sections, "")))
	if err != nil {
		l.t.Fatal(err)
	}
	return cfg
}

// running is a server in the background.
type running struct {
	*Server
	t    *testing.T
	url  string
	stop context.CancelFunc
	done chan error
}

func (l *lab) start(opts Options, sections ...string) *running {
	l.t.Helper()
	s, err := New(l.config(sections...), l.warehouse, opts, hastyEnv())
	if err != nil {
		l.t.Fatal(err)
	}
	return l.runServer(s)
}

func (l *lab) runServer(s *Server) *running {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, t: l.t, stop: cancel, done: make(chan error, 1)}
	addr := make(chan string, 1)
	go func() { r.done <- s.Run(ctx, func(a string) { addr <- a }) }()
	l.t.Cleanup(func() { cancel() })
	select {
	case a := <-addr:
		r.url = "http://" + a
	case err := <-r.done:
		l.t.Fatal(err)
	}
	return r
}

// end stops the server and gives what Run returned.
func (r *running) end() error {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		return err
	case <-time.After(patience):
		r.t.Fatal("the server does not end")
		return nil
	}
}

// await waits until the pipeline's status is as wanted.
func (r *running) await(name, what string, ok func(PipelineStatus) bool) PipelineStatus {
	r.t.Helper()
	var last PipelineStatus
	awaitf(r.t, func() bool {
		for _, p := range r.Status().Pipelines {
			if p.Name == name {
				last = p
				return ok(p)
			}
		}
		return false
	}, func() string { return fmt.Sprintf("pipeline %s: no %s: %+v", name, what, last) })
	return last
}

func await(t *testing.T, otherwise string, ok func() bool) {
	t.Helper()
	awaitf(t, ok, func() string { return otherwise })
}

// awaitf waits until ok; after a long while it fails with a text.
func awaitf(t *testing.T, ok func() bool, otherwise func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise())
		}
	}
}

func (r *running) awaitRecords(name string, n int) PipelineStatus {
	r.t.Helper()
	return r.await(name, fmt.Sprint(n, " records"), func(p PipelineStatus) bool { return p.Records == int64(n) && p.Lag == 0 })
}

func (r *running) awaitState(name string, s State) PipelineStatus {
	r.t.Helper()
	return r.await(name, "state "+string(s), func(p PipelineStatus) bool { return p.State == s })
}

// get fetches a page of the server.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (r *running) getJSON(path string) map[string]any {
	r.t.Helper()
	code, body := r.get(path)
	var v map[string]any
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != http.StatusOK {
		r.t.Fatalf("GET %s: %d %v %s", path, code, err, body)
	}
	return v
}

func (l *lab) reader(table string) *reader.Reader {
	l.t.Helper()
	path, err := config.TablePath(table)
	if err != nil {
		l.t.Fatal(err)
	}
	env := hastyEnv()
	return reader.Open(storage.Sub(l.store, path), reader.Env{Now: env.Now, After: env.After, NewID: env.NewID, Rand: env.Rand, Log: env.Log})
}

// count counts the rows of a table.
func (l *lab) count(table string) int {
	l.t.Helper()
	n := 0
	for rec, err := range l.reader(table).Scan(context.Background(), reader.Query{}) {
		if err != nil {
			l.t.Fatal(err)
		}
		n += int(rec.NumRows())
	}
	return n
}

// ids counts the rows of a table by id, and checks that the table is sound.
func (l *lab) ids(table string) map[int64]int {
	l.t.Helper()
	rd := l.reader(table)
	rep, err := rd.Verify(context.Background(), reader.VerifySpec{Data: true, Fold: true})
	if err != nil || !rep.OK() {
		l.t.Fatalf("table %s: %+v %v", table, rep, err)
	}
	out := map[int64]int{}
	for rec, err := range rd.Scan(context.Background(), reader.Query{}) {
		if err != nil {
			l.t.Fatal(err)
		}
		for _, v := range rec.Column(0).(*array.Int64).Int64Values() {
			out[v]++
		}
	}
	return out
}

// checkExact checks that a table has exactly the rows that fill has produced into the topic.
func (l *lab) checkExact(table, topic string) {
	l.t.Helper()
	got := l.ids(table)
	for id := range int64(l.produced[topic]) {
		if got[id] != 1 {
			l.t.Fatalf("table %s has row %d %d times", table, id, got[id])
		}
	}
	if len(got) != l.produced[topic] {
		l.t.Fatalf("table %s has %d rows, produced were %d", table, len(got), l.produced[topic])
	}
}
