package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/push"
)

// pushSection is a pipeline that takes rows for the table shop.NAME.
func pushSection(name, push, interval string) string {
	return fmt.Sprintf("- name: %s\n  table: shop.%s\n  push: %s\n  commit-interval: %s\n  expire-every: 0s\n  create: {columns: \"id BIGINT NOT NULL, name STRING\", primary-key: [id]}\n", name, name, push, interval)
}

// post sends a body and gives the status, the answer as JSON and the headers.
func (r *running) push(path, body string, headers ...string) (int, map[string]any, http.Header) {
	r.t.Helper()
	req, err := http.NewRequest("POST", r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	var v map[string]any
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		r.t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
	}
	resp.Body.Close()
	return resp.StatusCode, v, resp.Header
}

// TestPushWriter: the client package and the server understand each other.
func TestPushWriter(t *testing.T) {
	l := newLab(t)
	r := l.start(Options{}, pushSection("a", "{}", "5ms"))
	r.awaitState("a", Running)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	cfg := push.Config{URL: r.url + "/v1/tables/shop/a/rows", MaxBytes: 100, Client: &http.Client{Transport: transport}, NewID: uuid.NewString, After: time.After}
	for _, dead := range []bool{false, true} {
		cfg.DeadLetter = dead
		w, err := push.NewWriter(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if err := w.Append(t.Context(), fmt.Appendf(nil, `{"id":%d,"name":"n"}`, i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(t.Context()); err != nil || w.Total().Accepted != 20 || len(l.ids("shop.a")) != 20 {
			t.Errorf("%v %+v", err, w.Total())
		}
		if err := w.Append(t.Context(), []byte(`{"id":"x"}`)); err != nil {
			t.Error(err)
		}
		var refused *push.RefusedError
		if err := w.Close(t.Context()); errors.As(err, &refused) == dead || dead && (err != nil || w.Total().Refused != 1) {
			t.Errorf("%v %+v", err, w.Total())
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// TestPushArrowRows: an Arrow stream by its media type, packed or not; what is none is told.
func TestPushArrowRows(t *testing.T) {
	l := newLab(t)
	r := l.start(Options{}, pushSection("a", "{max-body: 64kb}", "5ms"))
	r.awaitState("a", Running)
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "name", Type: arrow.BinaryTypes.LargeString, Nullable: true}, {Name: "id", Type: arrow.PrimitiveTypes.Uint32}}, nil), strings.NewReader(`[{"id":1,"name":"a"},{"id":2,"name":null}]`))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(b.Schema()))
	if err := errors.Join(w.Write(b), w.Close()); err != nil {
		t.Fatal(err)
	}
	kind := []string{"Content-Type", "application/vnd.apache.arrow.stream"}
	if code, a, _ := r.push("/v1/tables/shop/a/rows", out.String(), append(kind, "Idempotency-Key", "k")...); code != 200 || a["accepted"] != 2.0 {
		t.Error(code, a)
	}
	if code, a, _ := r.push("/v1/tables/shop/a/rows", packed(t, "zstd", out.String()), append(kind, "Idempotency-Key", "k", "Content-Encoding", "zstd")...); code != 200 || a["repeated"] != true {
		t.Error(code, a)
	}
	if code, a, _ := r.push("/v1/tables/shop/a/rows", `{"id":3}`, kind...); code != 400 || !strings.Contains(fmt.Sprint(a), "no Arrow stream") {
		t.Error(code, a)
	}
	if code, a, _ := r.push("/v1/tables/shop/a/rows", strings.Repeat("x", 70<<10), kind...); code != 413 {
		t.Error(code, a)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if got := l.ids("shop.a"); len(got) != 2 {
		t.Errorf("ids %v", got)
	}
}

func packed(t *testing.T, how, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if how == "zstd" {
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPushRows sends rows in all ways that there are, and some that there are not.
func TestPushRows(t *testing.T) {
	l := newLab(t)
	r := l.start(Options{}, pushSection("a", "{max-body: 10kb, max-rows: 5}", "10ms"))
	r.awaitState("a", Running)
	const path = "/v1/tables/shop/a/rows"
	bomb := strings.Repeat("\n", 1<<20)
	for i, c := range []struct {
		path, body string
		headers    []string
		want       int
		text       string // in the answer
	}{
		{path, `{"id":1,"name":"a"}` + "\n" + `{"id":2}`, nil, 200, `"accepted":2`},
		{path + "?wait=durable&on-error=refuse", `{"id":3}`, []string{"Content-Type", "application/x-ndjson; charset=utf-8", "Idempotency-Key", "k"}, 200, `"repeated":false`},
		{path, `{"id":3}`, []string{"Idempotency-Key", "k"}, 200, `"repeated":true`},
		{path, `{"id":4}`, []string{"Idempotency-Key", "k"}, 409, "another body"},
		{path, packed(t, "gzip", `{"id":4}`), []string{"Content-Encoding", "gzip"}, 200, `"accepted":1`},
		{path, packed(t, "zstd", `{"id":5}`), []string{"Content-Encoding", "zstd", "Calve-Client", "c", "Calve-Sequence", "1"}, 200, `"accepted":1`},
		{path, `{"id":5}`, []string{"Calve-Client", "c", "Calve-Sequence", "0"}, 409, "last sequence number of the client is 1"},
		{path, `{"id":6}` + "\n" + `{"id":"x"}`, nil, 422, `"line":2`},
		{path + "?on-error=dead-letter", `{"id":6}` + "\n" + `{"id":"x"}`, nil, 200, `"refused":1`},
		{path, packed(t, "gzip", bomb), []string{"Content-Encoding", "gzip"}, 413, "more than 10240 bytes"},
		{path, packed(t, "zstd", bomb), []string{"Content-Encoding", "zstd"}, 413, "large"},
		{path, strings.Repeat("{\"id\":9}\n", 6), nil, 413, "more than 5 lines"},
		{path, "no gzip", []string{"Content-Encoding", "gzip"}, 400, "body cannot be read"},
		{path, packed(t, "gzip", `{"id":4}`)[:20], []string{"Content-Encoding", "gzip"}, 400, "body cannot be read"},
		{path, "", []string{"Content-Encoding", "br"}, 415, "gzip, zstd"},
		{path, "", []string{"Content-Type", "text/csv"}, 415, "application/x-ndjson"},
		{path + "?wait=none", "", nil, 400, "wait=durable"},
		{path, "", []string{"Calve-Client", "c"}, 400, "belong together"},
		{path, "", []string{"Calve-Client", "c", "Calve-Sequence", "-1"}, 400, "no number"},
		{path, "", []string{"Idempotency-Key", strings.Repeat("k", 300)}, 400, "200 bytes"},
		{"/v1/tables/shop/b/rows", "", nil, 404, "no pipeline takes rows"},
	} {
		code, answer, _ := r.push(c.path, c.body, c.headers...)
		text, err := json.Marshal(answer)
		if err != nil || code != c.want || !strings.Contains(string(text), c.text) {
			t.Errorf("request %d: %d %s, want %d and %s", i, code, text, c.want, c.text)
		}
	}
	if got := l.ids("shop.a"); !reflect.DeepEqual(got, map[int64]int{1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}) {
		t.Errorf("rows %v", got)
	}
	if n := l.count("shop.a__dead"); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	for _, p := range r.all() {
		if n := p.reading.Load(); n != 0 {
			t.Errorf("%d bytes of bodies are still held", n)
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// TestPushStops: who waits for a commit when the server is told to end is answered with it.
func TestPushStops(t *testing.T) {
	l := newLab(t)
	env := hastyEnv()
	env.After = time.After
	s, err := New(l.config(pushSection("a", "{waiting: 2kb}", "1h")), l.warehouse, Options{}, env)
	if err != nil {
		t.Fatal(err)
	}
	r := l.runServer(s)
	r.awaitState("a", Running)
	answers := make(chan int, 1)
	go func() {
		code, _, _ := r.push("/v1/tables/shop/a/rows", `{"id":1}`)
		answers <- code
	}()
	await(t, "a row that waits", func() bool { return r.Status().Pipelines[0].BufferedRows == 1 })
	code, _, header := r.push("/v1/tables/shop/a/rows", `{"id":2,"name":"`+strings.Repeat("x", 1500)+`"}`)
	if code != 429 || header.Get("Retry-After") == "" {
		t.Errorf("beside it: %d, retry after %q", code, header.Get("Retry-After"))
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if code := <-answers; code != 200 {
		t.Errorf("it is answered %d", code)
	}
	if got := l.ids("shop.a"); !reflect.DeepEqual(got, map[int64]int{1: 1}) {
		t.Errorf("rows %v", got)
	}
}

// TestPushElsewhere: a process that does not own the table names the one that does, and takes rows when it owns it again.
func TestPushElsewhere(t *testing.T) {
	l := newLab(t)
	r := l.start(Options{}, pushSection("a", "{}", "10ms"))
	r.awaitState("a", Running)
	const path = "/v1/tables/shop/a/rows"
	p := r.pushPipeline("shop.a")
	for _, c := range []struct {
		owner, text, retry string
		want               int
	}{
		{"other-0", `"details":{"owner":"other-0","written":"no"}`, "", 421},
		{"", `"details":{"written":"no"}`, "1", 503}, // this process is no member at the moment
	} {
		p.place(c.owner, false)
		for range 2 { // while the table is being closed, and then
			code, answer, header := r.push(path, `{"id":1}`)
			text, err := json.Marshal(answer)
			if err != nil || code != c.want || !strings.Contains(string(text), c.text) || header.Get("Retry-After") != c.retry {
				t.Errorf("owned by %q: %d %s, retry after %q", c.owner, code, text, header.Get("Retry-After"))
			}
			r.awaitState("a", Elsewhere)
		}
	}
	p.place("self-0", true)
	r.awaitState("a", Running)
	if code, answer, _ := r.push(path, `{"id":1}`); code != 200 {
		t.Errorf("owned again: %d %v", code, answer)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenAPI walks the routes: each is described, with its parameters, and nothing else is.
func TestOpenAPI(t *testing.T) {
	l := newLab(t)
	s, err := New(l.config(pushSection("a", "{}", "10ms")), l.warehouse, Options{}, hastyEnv())
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []struct{ Name, In string }
			Responses   map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(openAPIText, &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatal(err, doc.OpenAPI)
	}
	n := 0
	ids := map[string]bool{}
	for _, route := range s.routes() {
		op, ok := doc.Paths[route.path][strings.ToLower(route.method)]
		if !ok || op.OperationID == "" || ids[op.OperationID] || len(op.Responses) == 0 {
			t.Errorf("%s %s is not described", route.method, route.path)
		}
		ids[op.OperationID] = true
		for _, part := range strings.Split(route.path, "/") {
			if name := strings.Trim(part, "{}"); name != part && !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool { return p.Name == name && p.In == "path" }) {
				t.Errorf("%s has no parameter %s", route.path, name)
			}
		}
	}
	for _, methods := range doc.Paths {
		n += len(methods)
	}
	if n != len(s.routes()) {
		t.Errorf("%d operations are described, %d are there", n, len(s.routes()))
	}
	for name := range doc.Components.Schemas {
		if !bytes.Contains(openAPIText, []byte(`"#/components/schemas/`+name+`"`)) {
			t.Errorf("schema %s is not used", name)
		}
	}
}
