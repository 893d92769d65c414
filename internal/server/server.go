// Package server runs the pipelines of a configuration: it opens their tables, streams, compacts and exports, restarts
// what fails, and answers HTTP: status, metrics and the Iceberg REST catalog.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/storage"
)

// Server is a set of pipelines over one warehouse.
type Server struct {
	cfg       *config.Config
	warehouse storage.Store
	env       engine.Env
	pipelines []*pipeline
	version   string
	started   time.Time
}

// New prepares the pipelines; nothing runs yet. Paths maps a table name to its folder in the warehouse.
func New(cfg *config.Config, warehouse storage.Store, paths func(string) (string, error), version string, env engine.Env) (*Server, error) {
	s := &Server{cfg: cfg, warehouse: warehouse, env: env, version: version, started: env.Now()}
	for _, c := range cfg.Pipelines {
		path, err := paths(c.Table)
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: %w", c.Name, err)
		}
		s.pipelines = append(s.pipelines, newPipeline(c, storage.Sub(warehouse, path), env))
	}
	return s, nil
}

// Run runs until ctx ends; then every pipeline flushes, commits and closes, and Run returns nil. When a pipeline needs a
// person the others go on; Run returns when none is left. Listening (with the address) is called when HTTP is ready.
func (s *Server) Run(ctx context.Context, listening func(addr string)) error {
	stopHTTP, err := s.serveHTTP(listening)
	if err != nil {
		return err
	}
	defer stopHTTP()
	errs := make([]error, len(s.pipelines))
	var wg sync.WaitGroup
	for i, p := range s.pipelines {
		wg.Go(func() {
			if err := p.run(ctx); err != nil {
				errs[i] = fmt.Errorf("pipeline %s: %w", p.cfg.Name, err)
			}
		})
	}
	if len(s.pipelines) == 0 && s.cfg.Listen != "" {
		<-ctx.Done() // a catalog alone serves until it is told to end
	}
	wg.Wait()
	return errors.Join(errs...)
}

// serveHTTP starts the HTTP server; the function it returns stops it.
func (s *Server) serveHTTP(listening func(string)) (stop func(), err error) {
	if s.cfg.Listen == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listening on %s (key \"listen\"): %w", s.cfg.Listen, err)
	}
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }() // ends with Shutdown
	if listening != nil {
		listening(l.Addr().String())
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		_ = srv.Close()
	}, nil
}

// Handler answers /, /status, /healthz, /metrics and /iceberg/.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /status", s.statusJSON)
	mux.HandleFunc("GET /healthz", s.health)
	mux.Handle("GET /metrics", s.metricsHandler())
	mux.Handle("/iceberg/", http.StripPrefix("/iceberg", export.NewCatalog(s.warehouse, export.CatalogOptions{Config: s.clientConfig(), Log: s.env.Log})))
	return mux
}

// clientConfig is what catalog clients need to reach the files. Credentials are not handed out.
func (s *Server) clientConfig() map[string]string {
	c := map[string]string{}
	if !strings.HasPrefix(s.warehouse.URL(""), "s3://") {
		return c
	}
	if s.cfg.S3.Endpoint != "" {
		c["s3.endpoint"] = s.cfg.S3.Endpoint
		c["s3.path-style-access"] = "true"
	}
	if s.cfg.S3.Region != "" {
		c["s3.region"], c["client.region"] = s.cfg.S3.Region, s.cfg.S3.Region
	}
	return c
}
