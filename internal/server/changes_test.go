package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// shop is a warehouse with the table shop.orders, and a server on it.
type shop struct {
	t   *testing.T
	mem *storage.Mem
	url string
}

func newShop(t *testing.T, store func(storage.Store) storage.Store, http string) *shop {
	t.Helper()
	x := &shop{t: t, mem: storage.NewMem()}
	cols, err := schema.ParseColumns("id BIGINT NOT NULL, item STRING")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}, Options: map[string]string{"file.compression": "none"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Create(t.Context(), x.table(), s); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("c", []byte("warehouse: mem://x\nlisten: 127.0.0.1:0\npipelines: []\nhttp: {write-timeout: 1s, heartbeat: 1s"+http+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	st := storage.Store(x.mem)
	if store != nil {
		st = store(st)
	}
	srv, err := New(cfg, st, Options{Version: "test"}, hastyEnv())
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(srv.Handler())
	t.Cleanup(web.Close)
	x.url = web.URL + "/v1/tables/shop/orders/changes"
	return x
}

func (x *shop) table() storage.Store { return storage.Sub(x.mem, "shop.db/orders") }

// write commits rows with these ids, as items of a text.
func (x *shop) write(item string, ids ...int64) {
	x.t.Helper()
	e := hastyEnv()
	tab, err := engine.Open(x.t.Context(), x.table(), engine.Settings{}, e)
	if err != nil {
		x.t.Fatal(err)
	}
	s, err := tab.Meta().LatestSchema(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for _, id := range ids {
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.StringBuilder).Append(item)
	}
	if err := tab.Write(x.t.Context(), schema.Batch{Rec: b.NewRecordBatch()}); err != nil {
		x.t.Fatal(err)
	}
	if _, err := tab.Commit(x.t.Context(), engine.Progress{}); err != nil {
		x.t.Fatal(err)
	}
	if err := tab.Close(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

// get asks with a query and headers (name, value, …).
func (x *shop) get(query string, headers ...string) *http.Response {
	x.t.Helper()
	ctx, cancel := context.WithCancel(x.t.Context())
	x.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url+query, nil)
	if err != nil {
		x.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { cancel(); resp.Body.Close() })
	return resp
}

func (x *shop) text(query string, headers ...string) string {
	x.t.Helper()
	body, err := io.ReadAll(x.get(query, headers...).Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return string(body)
}

// TestChanges: a bounded stream in each form, from its beginning and from any position.
func TestChanges(t *testing.T) {
	x := newShop(t, nil, "")
	x.write("a", 1, 2)
	x.write("b", 2)
	want := `{"snapshot":1,"kind":"+I","row":{"id":1,"item":"a"},"at":"1.1"}
{"snapshot":1,"kind":"+I","row":{"id":2,"item":"a"},"at":"1.2"}
{"snapshot":1,"event":"end","at":"2.0"}
{"snapshot":2,"kind":"+I","row":{"id":2,"item":"b"},"at":"2.1"}
{"snapshot":2,"event":"end","at":"3.0"}
`
	const all = "?from=earliest&follow=false"
	if got := x.text(all); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := x.text("?from=at:1.1&until=snapshot:1"); got != strings.Join(strings.SplitAfter(want, "\n")[1:3], "") {
		t.Errorf("from a position: %s", got)
	}
	if got := x.text("?from=full&follow=false&columns=item,id&where=item%20%3D%20%27b%27"); got != `{"snapshot":2,"kind":"+I","row":{"item":"b","id":2},"at":"2.1.state"}`+"\n"+`{"snapshot":2,"event":"end","at":"3.0"}`+"\n" {
		t.Errorf("with a condition: %s", got)
	}
	if got := x.text("?follow=false", "Accept", "text/event-stream", "Last-Event-ID", "2.0"); got != "id: 2.1\ndata: {\"snapshot\":2,\"kind\":\"+I\",\"row\":{\"id\":2,\"item\":\"b\"}}\n\nevent: end\nid: 3.0\ndata: {\"snapshot\":2,\"event\":\"end\"}\n\n" {
		t.Errorf("server-sent events: %q", got)
	}
	if got := x.text("?from=at:1.1.arrival&follow=false&order=arrival"); !strings.HasPrefix(got, `{"snapshot":1,"kind":"+I","row":{"id":2,"item":"a"},"at":"1.2.arrival"}`) {
		t.Errorf("in the order of arrival: %s", got)
	}
	r, err := ipc.NewReader(x.get(all, "Accept", "application/vnd.apache.arrow.stream").Body)
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for r.Next() {
		n += r.RecordBatch().NumRows()
	}
	if r.Err() != nil || n != 3 || r.Schema().Field(2).Name != "_at" {
		t.Error(n, r.Schema(), r.Err())
	}
	for _, encoding := range []string{"gzip", "zstd", "gzip, zstd;q=0.5", "br"} {
		resp := x.get(all, "Accept-Encoding", encoding)
		body := io.Reader(resp.Body)
		switch resp.Header.Get("Content-Encoding") {
		case "gzip":
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		case "zstd":
			dec, err := zstd.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			defer dec.Close()
			body = dec
		default:
			if encoding != "br" {
				t.Errorf("%s: not compressed", encoding)
			}
		}
		if got, err := io.ReadAll(body); err != nil || string(got) != want {
			t.Errorf("%s: %v %s", encoding, err, got)
		}
	}
	if got := x.text("?from=earliest&until=latest&consumer=web"); got != want {
		t.Errorf("with a consumer: %s", got)
	}
	if got, err := manifest.Open(x.table(), manifest.Env{NewID: hastyEnv().NewID}).Consumer(t.Context(), "web"); err != nil || got != 3 {
		t.Error(got, err)
	}
}

// TestChangesFollow: a stream that follows says that it is alive, tells what is committed, and ends with the client.
func TestChangesFollow(t *testing.T) {
	x := newShop(t, nil, "")
	resp := x.get("")
	lines := bufio.NewScanner(resp.Body)
	next := func() string {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		return lines.Text()
	}
	for range 2 {
		if got := next(); got != `{"snapshot":0,"event":"idle","at":"1.0"}` {
			t.Fatal(got)
		}
	}
	x.write("a", 1)
	got := next()
	for strings.Contains(got, "idle") {
		got = next()
	}
	if got != `{"snapshot":1,"kind":"+I","row":{"id":1,"item":"a"},"at":"1.1"}` {
		t.Fatal(got)
	}
	if got := next(); got != `{"snapshot":1,"event":"end","at":"2.0"}` {
		t.Fatal(got)
	}
}

// TestChangesArrowBeat: batches without rows say that an Arrow stream is alive, also before there is anything to tell.
func TestChangesArrowBeat(t *testing.T) {
	x := newShop(t, nil, "")
	r, err := ipc.NewReader(x.get("?columns=item", "Accept", "application/vnd.apache.arrow.stream").Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Schema(); got.NumFields() != 4 || got.Field(3).Name != "item" {
		t.Fatal(got)
	}
	for range 2 {
		if !r.Next() || r.RecordBatch().NumRows() != 0 {
			t.Fatal(r.Err())
		}
	}
	x.write("a", 1)
	for r.Next() {
		if n := r.RecordBatch().NumRows(); n == 1 {
			return
		}
	}
	t.Fatal(r.Err())
}

// TestChangesMany: there is a bound on the number of streams, and those that end make room.
func TestChangesMany(t *testing.T) {
	x := newShop(t, nil, ", max-streams: 2")
	first := x.get("")
	second := x.get("")
	if first.StatusCode != 200 || second.StatusCode != 200 {
		t.Fatal(first.Status, second.Status)
	}
	third := x.get("")
	body, err := io.ReadAll(third.Body)
	if err != nil || third.StatusCode != 503 || third.Header.Get("Retry-After") == "" || !bytes.Contains(body, []byte("max-streams")) {
		t.Fatal(third.Status, string(body), err)
	}
	first.Body.Close()
	for range 100 { // until the server has seen it
		if x.get("").StatusCode == 200 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("a stream that has ended makes no room")
}

// TestChangesRefused: mistakes have a status, and say what is wrong, where and what to do.
func TestChangesRefused(t *testing.T) {
	x := newShop(t, nil, "")
	x.write("a", 1)
	x.write("a", 2)
	x.write("a", 3)
	if _, err := manifest.Open(x.table(), manifest.Env{NewID: hastyEnv().NewID}).Expire(t.Context(), manifest.Retention{Min: 1, Max: 1}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"?from=snapshot:1&follow=false": {410, "the changes of snapshots 1 to 2"}, "?from=noon": {400, "from: invalid query"}, "?until=x": {400, "until: "},
		"?columns=nope": {400, `no column \"nope\"`}, "?where=id%20%3E": {400, "invalid query"}, "?form=json": {400, `unknown parameter \"form\"`},
		"?from=tag:x": {400, "no such tag"}, "?share=1": {400, "share: "}, "?on_gap=x": {400, "on_gap: "}, "?order=x": {400, "order: "}, "?follow=maybe": {400, "use true or false"},
		"?consumer=..%2Fx": {400, "not a name for a consumer"}, "?consumer=" + strings.Repeat("x", 300): {400, "300 bytes"}, "?consumer=calve-lease-x": {400, "for leases"},
	} {
		resp := x.get(query)
		body, err := io.ReadAll(resp.Body)
		var e struct{ Error problem }
		if json.Unmarshal(body, &e) != nil || err != nil || resp.StatusCode != want.status || !bytes.Contains(body, []byte(want.text)) || e.Error.What == "" || e.Error.Where == "" || e.Error.Do == "" {
			t.Errorf("%s: %d %s %v", query, resp.StatusCode, body, err)
		}
	}
	if got := x.text("?from=snapshot:1&follow=false&on_gap=rescan"); !strings.HasPrefix(got, `{"snapshot":3,"event":"gap","from":1,"to":2,"earliest":3,"latest":3,`) || strings.Count(got, "+I") != 3 {
		t.Error(got)
	}
	for path, status := range map[string]int{"/v1/tables/shop/none/changes": 404, "/v1/tables": 404, "/v1/tables/shop/a%2Fb/changes": 400, "/v1/tables/shop/orders$branch_b/changes": 400} {
		resp, err := http.Get(strings.TrimSuffix(x.url, "/v1/tables/shop/orders/changes") + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != status {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, status)
		}
	}
}

// TestChangesAuth: with tokens, only who has one is let in; without, only loopback addresses are.
func TestChangesAuth(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("first\n\n  second \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_TOKEN", "third")
	x := newShop(t, nil, ", token-env: TEST_TOKEN, token-file: "+file)
	for token, status := range map[string]int{"Bearer first": 200, "bearer second": 200, "Bearer third": 200, "": 401, "Bearer": 401, "Bearer fourth": 401, "Basic first": 401, "Bearer first second": 401} {
		resp := x.get("?follow=false", "Authorization", token)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || bytes.Contains(body, []byte("third")) {
			t.Errorf("%q: %d %s %v", token, resp.StatusCode, body, err)
		}
	}
	for _, c := range []config.HTTP{{TokenEnv: "TEST_NO_TOKEN"}, {TokenFile: file + "x"}, {TokenFile: os.DevNull}} {
		if _, err := newGuard(c); err == nil || !strings.Contains(err.Error(), `key "http.token-`) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	open, err := newGuard(config.HTTP{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ip, host, site string
		status         int
	}{
		{"127.0.0.1", "localhost:9000", "", 204}, {"::1", "[::1]:9000", "none", 204}, {"127.0.0.1", "127.0.0.1", "same-origin", 204},
		{"192.0.2.7", "localhost", "", 403}, {"127.0.0.1", "lake.example.org:9000", "", 403}, {"127.0.0.1", "localhost:9000", "cross-site", 403},
	} {
		req := httptest.NewRequest(http.MethodGet, "/v1/x", nil)
		req.Host = c.host
		req.Header.Set("Sec-Fetch-Site", c.site)
		req = req.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(c.ip)}))
		rec := httptest.NewRecorder()
		open.wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })).ServeHTTP(rec, req)
		if rec.Code != c.status {
			t.Errorf("%+v: %d", c, rec.Code)
		}
	}
}

// TestChangesSlowClient: a client that takes nothing is cut off, and the server has read little more than it took.
func TestChangesSlowClient(t *testing.T) {
	var read atomic.Int64
	x := newShop(t, func(s storage.Store) storage.Store {
		return storage.WithFaults(s, func(op storage.Op) error {
			if op.Kind == storage.OpRead && strings.HasSuffix(op.Name, ".parquet") {
				read.Add(int64(op.Len))
			}
			return nil
		})
	}, "")
	const commits, rows = 40, 1000
	ids := make([]int64, rows)
	for n := range commits {
		for i := range ids {
			ids[i] = int64(n*rows + i)
		}
		x.write(fmt.Sprint(n, strings.Repeat("x", 1000)), ids...)
	}
	resp := x.get("?from=earliest")
	time.Sleep(2 * time.Second)
	before := read.Load()
	body, err := io.ReadAll(resp.Body)
	if err == nil || !bytes.Contains(body, []byte(`"at":"1.1"`)) {
		t.Errorf("the stream was not cut off: %d bytes, %v", len(body), err)
	}
	if after := read.Load(); before > commits*rows*1000/2 || after != before {
		t.Errorf("%d bytes were read for a client that took none, %d in the end", before, after)
	}
}

// TestTLS: with a certificate the address speaks TLS.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := config.Parse("c", fmt.Appendf(nil, "warehouse: mem://x\nlisten: 127.0.0.1:0\npipelines: []\nhttp: {certificate: %s/cert.pem, key: %s/key.pem}\n", dir, dir))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := New(cfg, storage.NewMem(), Options{}, hastyEnv())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- srv.Run(ctx, func(a string) { addr <- a }) }()
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Get("https://" + <-addr + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := config.Parse("c", []byte("warehouse: mem://x\nhttp: {certificate: x}\n")); err == nil || !strings.Contains(err.Error(), "belong together") {
		t.Error(err)
	}
}
