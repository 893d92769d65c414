// Package server runs the pipelines of a configuration: it opens their tables, streams, compacts and exports, restarts
// what fails, and answers HTTP: status, metrics and the Iceberg REST catalog.
package server

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/storage"
)

// Server is a set of pipelines over one warehouse.
type Server struct {
	cfg       *config.Config
	warehouse storage.Store
	env       engine.Env
	families  []*family
	routed    []*routed
	crew      *crew // nil: this process owns all tables
	shared    shared
	working   sync.WaitGroup // pipelines and who looks for more of them

	mu        sync.Mutex // guards what follows
	pipelines []*pipeline
	byName    map[string]*pipeline
	byTable   map[string]*pipeline // the first of a table
	alive     int                  // pipelines that do not wait for a person
	away      error                // why nothing runs yet: the warehouse does not answer
	end       context.CancelFunc

	opts      Options
	started   time.Time
	guard     *guard
	patience  time.Duration // of each question of Probe
	acks      reader.Acks
	beat, cut time.Duration // of streams of changes: between heartbeats; for a write
	streams   atomic.Int64  // of changes that are being told
	sorting   *reader.SortMemory
}

// sortMemory is what all streams of changes together hold of rows that they tell in the order of their arrival: four full parts, or
// those of many small commits.
const sortMemory = 256 << 20

// Options are what the command line adds to a configuration.
type Options struct {
	Version string
	// Reset names pipelines that may begin again at their start position if their source is not the one their table was
	// filled from, or its log was cut. It holds for their first start only.
	Reset []string
	// Verify tries whether the warehouse can be worked with, before anything else is done. Errors of which storage.MayPass is
	// true are waited out. nil: it can be.
	Verify func(ctx context.Context) error
}

// Check finds what is wrong with a configuration beyond its form: how tables are to be created. All errors are reported
// at once.
func Check(cfg *config.Config) error {
	var errs []error
	for _, c := range cfg.Pipelines {
		if c.Create == nil || c.Create.Columns == "" {
			continue
		}
		if _, err := newSchema(c.Create, nil, time.Time{}); err != nil {
			errs = append(errs, fmt.Errorf("pipeline %s: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// New prepares the pipelines; nothing runs yet.
func New(cfg *config.Config, warehouse storage.Store, opts Options, env engine.Env) (*Server, error) {
	if err := Check(cfg); err != nil {
		return nil, err
	}
	g, err := newGuard(cfg.HTTP)
	if err != nil {
		return nil, err
	}
	reg, err := NewRegistry(cfg.Registry)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, warehouse: warehouse, env: env, opts: opts, started: env.Now(), guard: g,
		shared: shared{origin: float64(env.Rand()>>11) / (1 << 53), copyAll: cfg.Lookups.All, hubs: newHubs(env), registry: reg, opening: make(chan struct{}, maxOpening), sketching: make(chan struct{}, maxSketching)},
		byName: map[string]*pipeline{}, byTable: map[string]*pipeline{}, end: func() {}, patience: probeWait, sorting: reader.NewSortMemory(sortMemory),
		beat: max(time.Second, time.Duration(cfg.HTTP.Heartbeat)), cut: max(time.Second, time.Duration(cfg.HTTP.WriteTimeout))}
	var names []string
	for _, c := range cfg.Pipelines {
		if c.Many() {
			topics, err := config.NewTopics(c)
			if err != nil {
				return nil, fmt.Errorf("pipeline %s: %w", c.Name, err)
			}
			s.families = append(s.families, &family{cfg: c, topics: topics})
			continue
		}
		if c.Routed() {
			routes, err := config.NewRoutes(c)
			if err != nil {
				return nil, fmt.Errorf("pipeline %s: %w", c.Name, err)
			}
			s.routed = append(s.routed, &routed{cfg: c, routes: routes})
			names = append(names, c.Name+":TABLE")
			continue
		}
		path, err := config.TablePath(c.Table)
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: %w", c.Name, err)
		}
		dead, err := config.TablePath(c.DeadTable())
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: dead-letters.table: %w", c.Name, err)
		}
		p := newPipeline(c, storage.Sub(warehouse, path), storage.Sub(warehouse, dead), env)
		p.reset = slices.Contains(opts.Reset, c.Name)
		s.addLocked(p) // nobody else has the server yet
		names = append(names, c.Name)
	}
	for _, f := range s.families {
		names = append(names, f.cfg.Name+":TOPIC")
	}
	for _, r := range opts.Reset {
		if family, _, many := strings.Cut(r, ":"); !slices.Contains(names, r) && !(many && (slices.Contains(names, family+":TOPIC") || slices.Contains(names, family+":TABLE"))) {
			return nil, fmt.Errorf("there is no pipeline %q to reset; the configuration has %s", r, strings.Join(names, ", "))
		}
	}
	return s, nil
}

// Run runs until ctx ends; then every pipeline flushes, commits and closes, and Run returns nil. When a pipeline needs a
// person the others go on; Run returns when none is left. Listening (with the address) is called when HTTP is ready.
//
// Without pipelines it serves the catalog until ctx ends.
func (s *Server) Run(ctx context.Context, listening func(addr string)) (err error) {
	if s.opts.Verify != nil {
		s.away = errNoAnswer // until awaitWarehouse knows; nobody else is there yet
	}
	stopHTTP, err := s.serveHTTP(listening)
	if err != nil {
		return err
	}
	defer stopHTTP()
	s.shared.compactor = engine.NewCompactor(engine.CompactorSettings{Workers: s.cfg.Compaction.Workers, BytesPerSecond: int64(s.cfg.Compaction.Rate),
		SweepAfter: time.Duration(s.cfg.Compaction.SweepAfter)}, s.env)
	defer s.shared.compactor.Close()
	if c := s.cfg.Lookups; c.Dir != "" {
		s.shared.lookups = reader.NewLookupCache(reader.LookupCacheConfig{Dir: c.Dir, DirBytes: int64(c.Size)})
		defer func() { err = errors.Join(err, s.shared.lookups.Close()) }()
	}
	if s.shared.registry != nil {
		defer s.shared.registry.Close()
	}
	s.shared.budget = engine.NewBudget(int64(s.cfg.Memory))
	defer s.shared.hubs.close()
	if err := s.awaitWarehouse(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	leave := s.join()
	defer leave() // when the tables are free for others
	ctx, end := context.WithCancel(ctx)
	defer end()
	s.mu.Lock()
	s.alive, s.end = len(s.pipelines), end
	s.mu.Unlock()
	known := s.all()
	for _, p := range known {
		s.spawn(ctx, p)
	}
	for _, f := range s.families {
		s.working.Go(func() { s.find(ctx, f) })
	}
	for _, rt := range s.routed {
		s.working.Go(func() { s.runRoute(ctx, rt) })
	}
	if len(known)+len(s.families)+len(s.routed) == 0 && s.cfg.Listen != "" {
		<-ctx.Done() // a catalog alone serves until it is told to end
	}
	s.working.Wait()
	var errs []error
	for _, p := range s.all() {
		p.mu.Lock()
		if p.err != nil {
			errs = append(errs, fmt.Errorf("pipeline %s: %w", p.cfg.Name, p.err))
		}
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}

// join makes this process one of those that share the tables, if they do. Its end is to be told by leave.
func (s *Server) join() (leave func()) {
	if !s.cfg.Share.On {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.crew = newCrew(s.warehouse, time.Duration(s.cfg.Share.TTL), s.env, func() {
		for _, p := range s.all() {
			p.place(s.crew.owner(p.cfg.Table))
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.crew.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// addLocked takes a pipeline in; mu is held.
func (s *Server) addLocked(p *pipeline) {
	s.pipelines = append(s.pipelines, p)
	s.byName[p.cfg.Name] = p
	for _, table := range []string{p.cfg.Table, p.cfg.DeadTable()} {
		if p.setup == nil && s.byTable[table] == nil {
			s.byTable[table] = p
		}
	}
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
	// Streams of changes end with their context, else Shutdown would wait for them.
	base, end := context.WithCancel(context.Background())
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, BaseContext: func(net.Listener) context.Context { return base }}
	serve := func() error { return srv.Serve(l) }
	if h := s.cfg.HTTP; h.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(h.Certificate, h.Key)
		if err != nil {
			end()
			return nil, errors.Join(fmt.Errorf("keys \"http.certificate\" and \"http.key\": %w", err), l.Close())
		}
		srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		serve = func() error { return srv.ServeTLS(l, "", "") }
	}
	go func() { _ = serve() }() // ends with Shutdown
	if listening != nil {
		listening(l.Addr().String())
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		end()
		_ = srv.Shutdown(ctx)
		_ = srv.Close()
	}, nil
}

// route is a request that the server answers. openapi.json describes all of them.
type route struct {
	method, path string
	handler      http.Handler
}

func (s *Server) routes() []route {
	guarded := func(f http.HandlerFunc) http.Handler { return s.guard.wrap(f) }
	onTables := func(f http.HandlerFunc) http.Handler { return s.guard.wrap(s.there(f)) }
	return []route{
		{"GET", "/status", http.HandlerFunc(s.statusJSON)},
		{"GET", "/healthz", http.HandlerFunc(s.health)},
		{"GET", "/metrics", s.metricsHandler()},
		{"GET", "/v1/openapi.json", guarded(openAPI)},
		{"GET", "/v1/tables/{database}/{table}/changes", onTables(s.changes)},
		{"POST", "/v1/tables/{database}/{table}/consumers/{consumer}", onTables(s.acknowledge)},
		{"POST", "/v1/tables/{database}/{table}/rows", onTables(s.pushRows)},
		{"POST", "/v1/pipelines/{name}/resume", onTables(s.resumePipeline(false))},
		{"POST", "/v1/pipelines/{name}/reset", onTables(s.resumePipeline(true))},
	}
}

// Handler answers /, /status, /healthz, /metrics, /iceberg/ and /v1/.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+r.path, r.handler)
	}
	catalog := export.NewCatalog(s.warehouse, export.CatalogOptions{Config: s.clientConfig(), Log: s.env.Log})
	mux.Handle("/iceberg/", s.there(http.StripPrefix("/iceberg", catalog)))
	mux.Handle("/v1/", s.guard.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, problem{Status: http.StatusNotFound, What: "there is nothing here", Where: r.URL.Path, Do: "GET /v1/openapi.json"})
	})))
	return mux
}

// openAPIText describes the routes.
//
//go:embed openapi.json
var openAPIText []byte

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPIText) // the client is gone
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
