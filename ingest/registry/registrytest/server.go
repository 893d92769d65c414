// Package registrytest is a schema registry for tests: what calve asks of one, over HTTP, from memory.
package registrytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
)

// Schema is one version of a subject, in the form that registries answer in.
type Schema struct {
	Subject    string      `json:"subject"`
	Version    int         `json:"version"`
	ID         int         `json:"id"`
	Type       string      `json:"schemaType,omitempty"` // AVRO (also ""), PROTOBUF, JSON
	References []Reference `json:"references,omitempty"`
	Text       string      `json:"schema"`
}

// Reference is how a schema names one that it refers to.
type Reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// Registry answers as a registry; it is a http.Handler and may be changed while it does.
type Registry struct {
	mu      sync.Mutex
	schemas []Schema
	down    bool
	allowed string // value of the Authorization header; "" for any
	asked   map[string]int
}

// New makes a registry of some schemas.
func New(schemas ...Schema) *Registry { return &Registry{schemas: schemas, asked: map[string]int{}} }

// Load reads the schemas of a file {"subjects":[…]}.
func Load(path string) (*Registry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct{ Subjects []Schema }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return New(file.Subjects...), nil
}

// Add adds a version.
func (r *Registry) Add(s Schema) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schemas = append(r.schemas, s)
}

// Down lets the registry answer with errors of its own, or not.
func (r *Registry) Down(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

// Allow refuses requests without this value of the Authorization header.
func (r *Registry) Allow(authorization string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allowed = authorization
}

// Asked counts the requests of a path.
func (r *Registry) Asked(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[path]
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[req.URL.Path]++
	switch {
	case r.down:
		fail(w, http.StatusServiceUnavailable, 50001, "down")
		return
	case r.allowed != "" && req.Header.Get("Authorization") != r.allowed:
		fail(w, http.StatusUnauthorized, 401, "who are you?")
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /schemas/ids/{id}", r.byID)
	mux.HandleFunc("GET /subjects/{subject}/versions/{version}", r.byVersion)
	mux.ServeHTTP(w, req)
}

func (r *Registry) byID(w http.ResponseWriter, req *http.Request) {
	for _, s := range r.schemas {
		if strconv.Itoa(s.ID) == req.PathValue("id") {
			answer(w, Schema{Type: s.Type, References: s.References, Text: s.Text})
			return
		}
	}
	fail(w, http.StatusNotFound, 40403, "Schema not found")
}

func (r *Registry) byVersion(w http.ResponseWriter, req *http.Request) {
	var found *Schema
	for i, s := range r.schemas {
		if v := req.PathValue("version"); s.Subject == req.PathValue("subject") && (v == "latest" || v == strconv.Itoa(s.Version)) {
			found = &r.schemas[i] // versions are in order
		}
	}
	if found == nil {
		fail(w, http.StatusNotFound, 40401, "Subject not found")
		return
	}
	answer(w, *found)
}

func answer(w http.ResponseWriter, s Schema) {
	if s.Type == "AVRO" {
		s.Type = "" // as registries do
	}
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	_ = json.NewEncoder(w).Encode(s)
}

func fail(w http.ResponseWriter, status, code int, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error_code": code, "message": message})
}
