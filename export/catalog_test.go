package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// served is a warehouse with tables behind a catalog: db.a and db.b are exported, db.hidden is not, empty has no table.
func served(t *testing.T) (*world, *httptest.Server) {
	t.Helper()
	mem := storage.NewMem()
	var w *world
	for _, name := range []string{"db.db/a", "db.db/b", "db.db/hidden", "other.db/c"} {
		w2 := newWorld(t, storage.Sub(mem, name), keyed(t))
		w2.commit(manifest.Append, w2.write(w2.part(0), 2, `{"id":1,"name":"one","amount":"1.50"}`))
		if !strings.HasSuffix(name, "hidden") {
			w2.publish(w2.exporter(), 0)
		}
		if strings.HasSuffix(name, "/a") {
			w = w2
		}
	}
	for _, name := range []string{"empty.db/.keep", "stray/file", "file.db"} {
		if err := mem.Put(context.Background(), name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(NewCatalog(mem, CatalogOptions{Config: map[string]string{"s3.endpoint": "http://127.0.0.1:9000"}}))
	t.Cleanup(srv.Close)
	return w, srv
}

// TestCatalogClient uses the catalog through iceberg-go's client.
func TestCatalogClient(t *testing.T) {
	ctx := context.Background()
	w, srv := served(t)
	cat, err := rest.NewCatalog(ctx, "calve", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	spaces, err := cat.ListNamespaces(ctx, nil)
	if err != nil || fmt.Sprint(spaces) != "[[db] [empty] [other]]" {
		t.Errorf("namespaces %v, error %v", spaces, err)
	}
	props, err := cat.LoadNamespaceProperties(ctx, table.Identifier{"db"})
	if err != nil || props["location"] != "mem:///db.db" {
		t.Errorf("properties %v, error %v", props, err)
	}
	var tables []string
	for id, err := range cat.ListTables(ctx, table.Identifier{"db"}) {
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, strings.Join(id, "."))
	}
	if !slices.Equal(tables, []string{"db.a", "db.b"}) {
		t.Errorf("tables %v", tables)
	}
	for name, want := range map[string]bool{"a": true, "hidden": false, "nope": false} {
		if got, err := cat.CheckTableExists(ctx, table.Identifier{"db", name}); err != nil || got != want {
			t.Errorf("table %s exists: %v, error %v, want %v", name, got, err, want)
		}
	}
	tab, err := cat.LoadTable(ctx, table.Identifier{"db", "a"})
	if err != nil {
		t.Fatal(err)
	}
	if tab.Location() != w.exporter().location || tab.CurrentSnapshot().SnapshotID != 1 {
		t.Errorf("table at %s with snapshot %d", tab.Location(), tab.CurrentSnapshot().SnapshotID)
	}
	if _, err := cat.LoadTable(ctx, table.Identifier{"db", "hidden"}); !errors.Is(err, icecatalog.ErrNoSuchTable) {
		t.Errorf("load of a table that is not exported: error %v", err)
	}
	if _, err := cat.LoadTable(ctx, table.Identifier{"db", "sub", "a"}); !errors.Is(err, icecatalog.ErrNoSuchTable) {
		t.Errorf("load from a namespace of two levels: error %v", err)
	}
	// A client that asks what the catalog offers does not even try to write.
	if err := cat.DropTable(ctx, table.Identifier{"db", "a"}); err == nil || !strings.Contains(err.Error(), "not supported by server") {
		t.Errorf("drop: error %v", err)
	}
	_, _, err = cat.CommitTable(ctx, table.Identifier{"db", "a"}, nil, []table.Update{table.NewSetPropertiesUpdate(iceberg.Properties{"x": "y"})})
	if err == nil || !strings.Contains(err.Error(), "not supported by server") {
		t.Errorf("commit: error %v", err)
	}
}

// ask sends a request and gives status, decoded body and headers.
func ask(t *testing.T, srv *httptest.Server, method, path string, header ...string) (int, map[string]any, http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, srv.URL+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &body); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, data, err)
		}
	}
	return resp.StatusCode, body, resp.Header
}

func TestCatalogAnswers(t *testing.T) {
	_, srv := served(t)
	for _, c := range []struct {
		request string
		status  int
		typ     string // of the error
	}{
		{"GET /v1/config", 200, ""},
		{"GET /v1/config?warehouse=x", 200, ""},
		{"GET /v1/namespaces?parent=db", 200, ""},
		{"GET /v1/namespaces?parent=nope", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces?parent=db%1Fx", 404, "NoSuchNamespaceException"},
		{"HEAD /v1/namespaces/db", 204, ""},
		{"HEAD /v1/namespaces/empty", 204, ""},
		{"HEAD /v1/namespaces/nope", 404, ""},
		{"GET /v1/namespaces/nope", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces/a%1Fb", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces/..%2Fdb", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces/%00", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces/nope/tables", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces/empty/tables", 200, ""},
		{"HEAD /v1/namespaces/db/tables/a", 204, ""},
		{"HEAD /v1/namespaces/db/tables/hidden", 404, ""},
		{"GET /v1/namespaces/db/tables/nope", 404, "NoSuchTableException"},
		{"GET /v1/namespaces/nope/tables/a", 404, "NoSuchTableException"},
		{"GET /v1/namespaces/db%1Fx/tables/a", 404, "NoSuchTableException"},
		{"GET /v1/namespaces/db/tables/..%2F..%2Fdb.db%2Fa", 404, "NoSuchTableException"},
		{"GET /v1/namespaces/db/tables/.calve-x.tmp", 404, "NoSuchTableException"},
		{"GET /v1/namespaces/db/tables/%FF", 404, "NoSuchTableException"},
		{"GET /v1/namespaces/%FF/tables", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces/db/tables/a?snapshots=some", 400, "BadRequestException"},
		{"POST /v1/namespaces/db/tables/a/metrics", 204, ""},
		{"GET /v1/namespaces/db/views", 200, ""},
		{"GET /v1/namespaces/nope/views", 404, "NoSuchNamespaceException"},
		{"GET /v1/namespaces/db/views/v", 404, "NoSuchViewException"},
		{"HEAD /v1/namespaces/db/views/v", 404, ""},
		{"GET /v1/namespaces?pageSize=0", 400, "BadRequestException"},
		{"GET /v1/namespaces?pageToken=%21", 400, "BadRequestException"},
		{"POST /v1/namespaces", 403, "ForbiddenException"},
		{"DELETE /v1/namespaces/db", 403, "ForbiddenException"},
		{"POST /v1/namespaces/db/properties", 403, "ForbiddenException"},
		{"POST /v1/namespaces/db/tables", 403, "ForbiddenException"},
		{"POST /v1/namespaces/db/register", 403, "ForbiddenException"},
		{"POST /v1/namespaces/db/tables/a", 403, "ForbiddenException"},
		{"DELETE /v1/namespaces/db/tables/a", 403, "ForbiddenException"},
		{"POST /v1/tables/rename", 403, "ForbiddenException"},
		{"POST /v1/transactions/commit", 403, "ForbiddenException"},
		{"POST /v1/namespaces/db/views", 403, "ForbiddenException"},
		{"PUT /v1/namespaces/db", 403, "ForbiddenException"},
		{"POST /v1/namespaces/db/tables/a/plan", 501, "UnsupportedOperationException"},
		{"TRACE /v1/namespaces", 405, "UnsupportedOperationException"},
		{"GET /v1/nothing", 404, "NotFoundException"},
		{"GET /", 404, "NotFoundException"},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		status, body, _ := ask(t, srv, method, path)
		if status != c.status {
			t.Errorf("%s: status %d, want %d (%v)", c.request, status, c.status, body)
			continue
		}
		if c.typ == "" {
			continue
		}
		e, _ := body["error"].(map[string]any)
		if e["type"] != c.typ || e["code"] != float64(c.status) || e["message"] == "" {
			t.Errorf("%s: error %v, want type %s and code %d", c.request, body, c.typ, c.status)
		}
		if c.status == 403 && !strings.Contains(fmt.Sprint(e["message"]), "calve or another Paimon writer") {
			t.Errorf("%s: message %v does not say what to do", c.request, e["message"])
		}
	}
	if status, body, _ := ask(t, srv, "POST", "/v1/oauth/tokens"); status != 400 || body["error"] != "unsupported_grant_type" {
		t.Errorf("token: status %d, %v", status, body)
	}
}

func TestCatalogConfig(t *testing.T) {
	_, srv := served(t)
	_, body, _ := ask(t, srv, "GET", "/v1/config")
	if fmt.Sprint(body["defaults"]) != "map[s3.endpoint:http://127.0.0.1:9000]" || body["overrides"] == nil {
		t.Errorf("config %v", body)
	}
	_, body, _ = ask(t, srv, "GET", "/v1/namespaces/db/tables/a")
	if fmt.Sprint(body["config"]) != "map[]" { // no keys to give: what comes with the table would hide the client's own
		t.Errorf("config of a table: %v", body["config"])
	}
}

func TestCatalogPages(t *testing.T) {
	mem := storage.NewMem()
	for i := range 25 {
		if err := mem.Put(context.Background(), fmt.Sprintf("d%02d.db/x", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(NewCatalog(mem, CatalogOptions{}))
	defer srv.Close()
	for _, size := range []int{1, 7, 24, 25, 26} {
		var all []string
		token, pages := "", 0
		for {
			_, body, _ := ask(t, srv, "GET", fmt.Sprintf("/v1/namespaces?pageSize=%d&pageToken=%s", size, url.QueryEscape(token)))
			for _, n := range body["namespaces"].([]any) {
				all = append(all, n.([]any)[0].(string))
			}
			pages++
			next, more := body["next-page-token"].(string)
			if !more {
				break
			}
			token = next
		}
		if len(all) != 25 || !slices.IsSorted(all) || pages != (25+size-1)/size {
			t.Errorf("page size %d: %d names in %d pages", size, len(all), pages)
		}
	}
	// A page whose last name has gone continues where it was.
	_, body, _ := ask(t, srv, "GET", "/v1/namespaces?pageSize=3")
	if err := mem.Delete(context.Background(), "d02.db/x"); err != nil {
		t.Fatal(err)
	}
	_, body, _ = ask(t, srv, "GET", "/v1/namespaces?pageSize=1&pageToken="+body["next-page-token"].(string))
	if fmt.Sprint(body["namespaces"]) != "[[d03]]" {
		t.Errorf("after a deletion: %v", body)
	}
}

func TestCatalogLoad(t *testing.T) {
	w, srv := served(t)
	const path = "/v1/namespaces/db/tables/a"
	_, body, header := ask(t, srv, "GET", path)
	if body["metadata-location"] != "mem:///db.db/a/metadata/v1.metadata.json" {
		t.Errorf("metadata location %v", body["metadata-location"])
	}
	tag := header.Get("ETag")
	if status, _, _ := ask(t, srv, "GET", path, "If-None-Match", tag); tag == "" || status != http.StatusNotModified {
		t.Errorf("same tag %q: status %d", tag, status)
	}
	if status, _, _ := ask(t, srv, "GET", path+"?snapshots=refs", "If-None-Match", tag); status != http.StatusOK {
		t.Errorf("other snapshots, same tag: status %d", status)
	}
	w.commit(manifest.Append, w.write(w.part(1), 2, `{"id":2,"name":"two","amount":"1.50"}`))
	w.publish(w.exporter(), 0)
	status, body, _ := ask(t, srv, "GET", path, "If-None-Match", tag)
	if status != http.StatusOK || body["metadata-location"] != "mem:///db.db/a/metadata/v2.metadata.json" {
		t.Errorf("after a change: status %d, %v", status, body["metadata-location"])
	}
	snapshots := func(body map[string]any) string {
		var ids []string
		for _, s := range body["metadata"].(map[string]any)["snapshots"].([]any) {
			ids = append(ids, fmt.Sprint(s.(map[string]any)["snapshot-id"]))
		}
		return strings.Join(ids, " ")
	}
	if got := snapshots(body); got != "1 2" {
		t.Errorf("snapshots %s, want 1 2", got)
	}
	_, body, _ = ask(t, srv, "GET", path+"?snapshots=refs")
	if got := snapshots(body); got != "2" {
		t.Errorf("snapshots of refs %s, want 2", got)
	}
	data, err := json.Marshal(body["metadata"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.ParseMetadataBytes(data); err != nil {
		t.Errorf("metadata with referenced snapshots only: %v", err)
	}
}
