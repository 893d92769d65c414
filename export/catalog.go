package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"

	"github.com/calve-io/calve/storage"
)

// CatalogOptions are what a catalog tells its clients beside the tables.
type CatalogOptions struct {
	// Config are client properties, handed out as defaults of the catalog: s3.endpoint, s3.region,
	// s3.path-style-access, and, if clients shall get them from here, s3.access-key-id and s3.secret-access-key.
	// With keys they are handed out with every table, too. Without keys they are not: DuckDB (1.5.5) takes what comes
	// with a table for the whole access to its files, and would leave out the user's own keys.
	Config map[string]string
	// Log is told what clients are not: errors of the storage. Nil: silent.
	Log *slog.Logger
}

// NewCatalog serves the exported tables of a warehouse through the Iceberg REST catalog protocol (Iceberg's
// open-api/rest-catalog-open-api.yaml), without a prefix: paths start with /v1/. A namespace is a database, the folder
// DB.db; a table is a folder in it that has metadata/. Tables are written through calve and Paimon only, so whatever
// would change something is refused in a way that clients report and do not retry.
func NewCatalog(warehouse storage.Store, opts CatalogOptions) http.Handler {
	c := &catalog{warehouse: warehouse, config: opts.Config, tableConfig: map[string]string{}, log: opts.Log}
	if c.config == nil {
		c.config = map[string]string{}
	}
	if c.config["s3.access-key-id"] != "" {
		c.tableConfig = c.config
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /v1/config":                                         c.getConfig,
		"GET /v1/namespaces":                                     c.listNamespaces,
		"GET /v1/namespaces/{namespace}":                         c.getNamespace,
		"HEAD /v1/namespaces/{namespace}":                        c.headNamespace,
		"GET /v1/namespaces/{namespace}/tables":                  c.listTables,
		"GET /v1/namespaces/{namespace}/tables/{table}":          c.loadTable,
		"HEAD /v1/namespaces/{namespace}/tables/{table}":         c.headTable,
		"POST /v1/namespaces/{namespace}/tables/{table}/metrics": c.metrics,
		"GET /v1/namespaces/{namespace}/views":                   c.listViews,
		"GET /v1/namespaces/{namespace}/views/{view}":            c.noView,
		"POST /v1/oauth/tokens":                                  noTokens,
		"/":                                                      refuse,
	} {
		mux.Handle(pattern, c.handle(h))
	}
	return mux
}

// endpoints is what GET /v1/config says the catalog can do; clients do not ask for more.
var endpoints = []string{
	"GET /v1/{prefix}/namespaces",
	"GET /v1/{prefix}/namespaces/{namespace}",
	"HEAD /v1/{prefix}/namespaces/{namespace}",
	"GET /v1/{prefix}/namespaces/{namespace}/tables",
	"GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
	"GET /v1/{prefix}/namespaces/{namespace}/views",
	"GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
}

type catalog struct {
	warehouse   storage.Store
	config      map[string]string // for /v1/config
	tableConfig map[string]string // for each table
	log         *slog.Logger
}

// handler answers a request with a value to be sent as JSON (nil: nothing, 204) or an error.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

// apiError is an answer in the protocol's error form (ErrorModel).
type apiError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    int    `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

func apiErrorf(code int, typ, format string, args ...any) error {
	return &apiError{Message: fmt.Sprintf(format, args...), Type: typ, Code: code}
}

var (
	// errNotModified answers a conditional request whose table did not change.
	errNotModified = errors.New("not modified")
	// errAnswered: the handler wrote the answer itself.
	errAnswered = errors.New("answered")
)

func (c *catalog) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := h(w, r)
		var api *apiError
		switch {
		case err == nil && v == nil:
			w.WriteHeader(http.StatusNoContent)
			return
		case err == nil:
			c.send(w, http.StatusOK, v)
			return
		case errors.Is(err, errNotModified):
			w.WriteHeader(http.StatusNotModified)
			return
		case errors.Is(err, errAnswered), errors.Is(err, context.Canceled): // cancelled: the client left
			return
		case !errors.As(err, &api):
			c.log.Error("catalog request failed", "method", r.Method, "path", r.URL.Path, "error", err)
			api = &apiError{Message: err.Error(), Type: "InternalServerError", Code: http.StatusInternalServerError}
		}
		c.send(w, api.Code, map[string]any{"error": api})
	})
}

func (c *catalog) send(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		c.log.Error("catalog answer not encoded", "error", err)
		http.Error(w, `{"error":{"message":"the answer could not be encoded","type":"InternalServerError","code":500}}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(data); err != nil {
		c.log.Debug("catalog answer not sent", "error", err)
	}
}

// readOnly is the sentence for everyone who tries to change something.
const readOnly = "this catalog is read-only: the table's rows are written through calve or another Paimon writer, " +
	"and its Iceberg metadata follows by itself"

// refuse answers every request that no other handler takes.
func refuse(_ http.ResponseWriter, r *http.Request) (any, error) {
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		return nil, apiErrorf(http.StatusNotFound, "NotFoundException", "no such path %s: paths of the Iceberg REST catalog start with /v1/", r.URL.Path)
	}
	switch {
	case r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/plan") || strings.HasSuffix(r.URL.Path, "/tasks")):
		return nil, apiErrorf(http.StatusNotImplemented, "UnsupportedOperationException", "this catalog does not plan scans; plan from the table's metadata")
	case r.Method == http.MethodPost || r.Method == http.MethodDelete || r.Method == http.MethodPut || r.Method == http.MethodPatch:
		return nil, apiErrorf(http.StatusForbidden, "ForbiddenException", "%s %s is refused: %s", r.Method, r.URL.Path, readOnly)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return nil, apiErrorf(http.StatusMethodNotAllowed, "UnsupportedOperationException", "method %s is not part of the protocol", r.Method)
	}
	return nil, apiErrorf(http.StatusNotFound, "NotFoundException", "%s %s is not offered by this catalog; GET /v1/config lists what is", r.Method, r.URL.Path)
}

func (c *catalog) getConfig(http.ResponseWriter, *http.Request) (any, error) {
	return map[string]any{"defaults": c.config, "overrides": map[string]string{}, "endpoints": endpoints}, nil
}

// noTokens answers the protocol's (deprecated) token endpoint in the form that OAuth2 prescribes for errors.
func noTokens(w http.ResponseWriter, _ *http.Request) (any, error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, `{"error":"unsupported_grant_type","error_description":"this catalog needs no token: leave credential and token out of the client's configuration"}`)
	return nil, errAnswered
}

// metrics takes a scan report and forgets it.
func (c *catalog) metrics(_ http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, 1<<20)); err != nil {
		return nil, apiErrorf(http.StatusBadRequest, "BadRequestException", "unreadable report: %v", err)
	}
	return nil, nil
}

// loadTable answers with the metadata file as it is stored. The ETag lets a client ask whether there is a newer one.
func (c *catalog) loadTable(w http.ResponseWriter, r *http.Request) (any, error) {
	store, err := c.table(r)
	if err != nil {
		return nil, err
	}
	snapshots := r.URL.Query().Get("snapshots")
	if snapshots != "" && snapshots != "all" && snapshots != "refs" {
		return nil, apiErrorf(http.StatusBadRequest, "BadRequestException", "snapshots=%s: allowed are all and refs", snapshots)
	}
	ref, data, err := loadNewest(r.Context(), store)
	if err != nil {
		return nil, err
	}
	if ref.Version == 0 {
		return nil, noTable(r)
	}
	sum := sha256.Sum256([]byte(ref.MetadataLocation + "\n" + snapshots))
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		return nil, errNotModified
	}
	if snapshots == "refs" {
		if data, err = onlyReferenced(data); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, ref.MetadataLocation, err)
		}
	}
	return map[string]any{"metadata-location": ref.MetadataLocation, "metadata": json.RawMessage(data), "config": c.tableConfig}, nil
}

// loadNewest reads the published metadata of a table. The version that was newest may be forgotten before it is read.
func loadNewest(ctx context.Context, store storage.Store) (Ref, []byte, error) {
	target := NewDirTarget(store)
	for range attempts - 1 {
		ref, err := target.peek(ctx)
		if err != nil || ref.Version == 0 {
			return Ref{}, nil, err
		}
		data, err := target.Load(ctx, ref)
		if !errors.Is(err, storage.ErrNotFound) {
			return ref, data, err
		}
	}
	return Ref{}, nil, fmt.Errorf("%w: versions of %s are removed faster than they can be read", ErrLost, store.URL(metadataDir))
}

// onlyReferenced leaves out the snapshots that no branch or tag names.
func onlyReferenced(data []byte) ([]byte, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	type id struct {
		ID int64 `json:"snapshot-id"`
	}
	var refs map[string]id
	var all []json.RawMessage
	if m["refs"] != nil {
		if err := json.Unmarshal(m["refs"], &refs); err != nil {
			return nil, err
		}
	}
	if m["snapshots"] != nil {
		if err := json.Unmarshal(m["snapshots"], &all); err != nil {
			return nil, err
		}
	}
	named := map[id]bool{}
	for ref := range maps.Values(refs) {
		named[ref] = true
	}
	kept := []json.RawMessage{}
	for _, raw := range all {
		var s id
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		if named[s] {
			kept = append(kept, raw)
		}
	}
	var err error
	if m["snapshots"], err = json.Marshal(kept); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}
