package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/storage"
)

// routed is a pipeline whose records choose their tables. Its tables are objects in the warehouse, calve/routes/NAME/TABLE,
// each put once, before any record of the table is passed by others; they say where the table begins. Each has a pipeline.
type routed struct {
	cfg    config.Pipeline
	routes *config.Routes
	full   bool            // it has as many tables as it may have; see routeFull
	tables map[string]bool // those that it had when routeFull looked last

	// Guarded by Server.mu.
	route *ingest.Route // nil: not begun
	err   error         // of the last look for tables
}

// routesDir has a folder for each pipeline whose records choose their tables.
const routesDir = "calve/routes"

// maxRouteEntry bounds what is read of an object: positions of thousands of partitions.
const maxRouteEntry = 4 << 20

// Objects beside those of tables, whose names do not begin so: originName says where a route began that begins at the end
// of its topic, markName up to where all records without table are dead letters, or were.
const (
	originName = "-origin"
	markName   = "-letters"
)

// isRouteEntry reports whether an object is that of a table.
func isRouteEntry(info storage.Info) bool {
	return !info.Dir && !strings.HasPrefix(path.Base(info.Name), "-")
}

// routeEntry is what such an object holds.
type routeEntry struct {
	Table  string            `json:"table"`
	Values []string          `json:"values"` // of the headers and fields, in the template's order
	Begin  map[string]string `json:"begin"`  // a position in the topic, as in snapshots
}

func (rt *routed) dir() string { return path.Join(routesDir, url.PathEscape(rt.cfg.Name)) }

// runRoute finds the tables of a route, has their pipelines run and the topic read, until ctx ends.
func (s *Server) runRoute(ctx context.Context, rt *routed) {
	if !s.beginRoute(ctx, rt) {
		return
	}
	p := newPipeline(rt.cfg, s.warehouse, s.warehouse, s.env) // only for its dead letters
	p.shared = &s.shared
	folder, err := config.TablePath(rt.routes.Unrouted())
	if err != nil { // New has seen that it is one
		return
	}
	p.dead = storage.Sub(s.warehouse, folder)
	env := ingest.Env{Now: s.env.Now, After: s.env.After, NewID: s.env.NewID, Rand: s.env.Rand, Log: p.log}
	// Any process may write these letters, whoever else does: they have no job.
	dead, closeDead := p.deadLetters(ctx, env, "")
	defer closeDead()
	hub, err := s.shared.hubs.get(rt.cfg.Kafka)
	if err != nil { // beginRoute had it
		return
	}
	var reg ingest.Registry
	if s.shared.registry != nil {
		reg = s.shared.registry
	}
	route := ingest.NewRoute(ingest.RouteConfig{Hub: hub, Topic: rt.cfg.Kafka.Topic, Start: ingest.Start(rt.cfg.Kafka.Start), Keys: rt.keys, Registry: reg,
		Admit: func(within context.Context, key string, at ingest.Progress) (string, bool, error) {
			e, won, err := s.admit(within, rt, key, at)
			if err != nil {
				return "", false, err
			}
			// Its pipeline lives as long as the server does.
			return e.Table, won && s.owns(e.Table), s.adoptRouted(ctx, rt, e)
		},
		Begin: func(ctx context.Context, at ingest.Progress) (ingest.Progress, error) {
			return s.routeOrigin(ctx, rt, at)
		},
		Dead: dead,
		SaveMark: func(ctx context.Context, at ingest.Progress) error {
			data, err := json.Marshal(at.Properties)
			if err != nil {
				return err
			}
			return s.warehouse.Put(ctx, path.Join(rt.dir(), markName), data)
		},
		LoadMark: func(ctx context.Context) (at ingest.Progress, err error) {
			data, err := storage.ReadAll(ctx, s.warehouse, path.Join(rt.dir(), markName), maxRouteEntry)
			if errors.Is(err, storage.ErrNotFound) {
				return at, nil
			}
			if err == nil && json.Unmarshal(data, &at.Properties) != nil {
				return ingest.Progress{}, nil // a loss of power has torn it; without it letters may come again, none is lost
			}
			return at, err
		},
	}, env, ingest.Events{
		Rejected: func(l ingest.Letter) {
			p.log.Warn("record without table", "topic", l.Topic, "partition", l.Partition, "offset", l.Offset, "reason", l.Reason)
		},
		Retrying: func(what string, err error, wait time.Duration) {
			p.log.Warn("trying again", "what", what, "error", err, "in", wait)
		},
	})
	s.mu.Lock()
	rt.route = route
	s.mu.Unlock()
	s.findRouted(ctx, rt) // beginRoute could read them
	s.working.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-s.env.After(findEvery): // other processes may have found some
				s.findRouted(ctx, rt)
			case <-ctx.Done():
			}
		}
	})
	route.Run(ctx)
}

// beginRoute waits until the tables of a route can be listed. It is false when they do not fit the configuration, or ctx ended.
func (s *Server) beginRoute(ctx context.Context, rt *routed) bool {
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, findEvery) {
		_, err := s.shared.hubs.get(rt.cfg.Kafka)
		if err == nil {
			_, err = s.routeEntries(ctx, rt)
		}
		s.mu.Lock()
		rt.err = err
		s.mu.Unlock()
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		s.env.Log.Warn("cannot look for the tables of a pipeline", "pipeline", rt.cfg.Name, "error", err, "again_in", wait)
		if errors.Is(err, errSetup) {
			return false
		}
		select {
		case <-s.env.After(wait):
		case <-ctx.Done():
			return false
		}
	}
}

// routeEntries reads the tables of a route, by name.
func (s *Server) routeEntries(ctx context.Context, rt *routed) (map[string]routeEntry, error) {
	out := map[string]routeEntry{}
	for info, err := range s.warehouse.List(ctx, rt.dir()) {
		if errors.Is(err, storage.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", s.warehouse.URL(rt.dir()), err)
		}
		if !isRouteEntry(info) {
			continue
		}
		e, err := s.routeEntry(ctx, rt, info.Name)
		if err != nil {
			return nil, err
		}
		out[e.Table] = e
	}
	return out, nil
}

func (s *Server) routeEntry(ctx context.Context, rt *routed, name string) (e routeEntry, err error) {
	data, err := storage.ReadAll(ctx, s.warehouse, name, maxRouteEntry)
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		return e, fmt.Errorf("%s: %w", s.warehouse.URL(name), err)
	}
	if len(e.Values) != len(rt.routes.Choices()) || e.Table != path.Base(name) {
		return e, fmt.Errorf("%w: %s was made for another template than %q: give the pipeline another name", errSetup, s.warehouse.URL(name), rt.cfg.Table)
	}
	if c, err := rt.routes.For(e.Values); err == nil && c.Table != e.Table { // one that is not allowed any more goes on
		return e, fmt.Errorf("%w: %s was made for another template than %q: give the pipeline another name", errSetup, s.warehouse.URL(name), rt.cfg.Table)
	}
	return e, nil
}

// findRouted has pipelines run for the tables of a route that have none.
func (s *Server) findRouted(ctx context.Context, rt *routed) {
	entries, err := s.routeEntries(ctx, rt)
	for _, table := range slices.Sorted(maps.Keys(entries)) {
		if aerr := s.adoptRouted(ctx, rt, entries[table]); aerr != nil {
			err = errors.Join(err, aerr)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.env.Log.Warn("cannot look for the tables of a pipeline", "pipeline", rt.cfg.Name, "error", err)
	}
	s.mu.Lock()
	rt.err = err
	s.mu.Unlock()
}

// adoptRouted has a pipeline run for a table of a route, unless there is one.
func (s *Server) adoptRouted(ctx context.Context, rt *routed, e routeEntry) error {
	if err := rt.route.Know(keyOf(e.Values), e.Table, ingest.Progress{Properties: e.Begin}); err != nil {
		return err
	}
	cfg, err := rt.routes.For(e.Values)
	if err != nil { // it is not allowed any more, but it is there
		cfg = rt.cfg
		cfg.Name, cfg.Table, cfg.Dead.Table = rt.cfg.Name+":"+e.Table, e.Table, ""
	}
	path, err := config.TablePath(cfg.Table)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.byName[cfg.Name] != nil {
		s.mu.Unlock()
		return nil
	}
	var setup error
	for _, table := range []string{cfg.Table, cfg.DeadTable()} {
		if other := s.byTable[table]; other != nil {
			setup = fmt.Errorf("%w: pipeline %s writes table %s already; give one of them another table", errSetup, other.cfg.Name, table)
		}
	}
	p := newPipeline(cfg, storage.Sub(s.warehouse, path), storage.Sub(s.warehouse, config.DeadTable(path)), s.env)
	p.topic, p.setup, p.reset = rt.describe(e.Values), setup, slices.Contains(s.opts.Reset, cfg.Name)
	p.route, p.begin, p.has = rt.route, ingest.Progress{Properties: e.Begin}, rt.has(e.Values)
	s.addLocked(p)
	s.alive++
	s.mu.Unlock()
	s.env.Log.Info("found a table", "pipeline", cfg.Name, "table", cfg.Table, "for", p.topic)
	s.spawn(ctx, p)
	return nil
}

// describe says which records of the topic are a table's.
func (rt *routed) describe(values []string) string {
	var b strings.Builder
	b.WriteString(rt.cfg.Kafka.Topic)
	for i, c := range rt.routes.Choices() {
		fmt.Fprintf(&b, " %s=%s", c, values[i])
	}
	return b.String()
}

// admit makes room for the records of a key that no table has. won: this process has put the entry, which begins at the
// given place.
func (s *Server) admit(ctx context.Context, rt *routed, key string, at ingest.Progress) (e routeEntry, won bool, err error) {
	refuse := func(reason string) error {
		return &decode.RowError{Offset: -1, Code: decode.NoTable, Reason: reason}
	}
	values := valuesOf(key)
	cfg, err := rt.routes.For(values)
	if err != nil {
		return e, false, refuse(err.Error())
	}
	tooMany := func() error {
		return refuse(fmt.Sprintf("it would make the table %s, and the pipeline has %d, as many as route.max-tables allows", cfg.Table, rt.cfg.Route.Max))
	}
	if rt.full && !rt.tables[cfg.Table] { // no request for each of many values
		return e, false, tooMany()
	}
	name := path.Join(rt.dir(), cfg.Table)
	e, err = s.routeEntry(ctx, rt, name)
	if errors.Is(err, storage.ErrNotFound) {
		full, ferr := s.routeFull(ctx, rt)
		if ferr != nil {
			return e, false, ferr
		}
		if full {
			return e, false, tooMany()
		}
		e = routeEntry{Table: cfg.Table, Values: values, Begin: at.Properties}
		data, merr := json.MarshalIndent(e, "", "  ")
		if merr != nil {
			return e, false, merr
		}
		if won, err = storage.PutOnce(ctx, s.warehouse, name, data); err == nil && !won { // another process has found it
			e, err = s.routeEntry(ctx, rt, name)
		}
	}
	if err != nil {
		return e, false, err
	}
	if !slices.Equal(e.Values, values) {
		return e, false, refuse(fmt.Sprintf("%q makes the same table %s as %q, which came first", values, cfg.Table, e.Values))
	}
	return e, won, nil
}

// routeFull reports whether a route has as many tables as it may have. Its tables stay, so that is asked for once. Callers
// come one at a time.
func (s *Server) routeFull(ctx context.Context, rt *routed) (bool, error) {
	if rt.full {
		return true, nil
	}
	tables := map[string]bool{}
	for info, err := range s.warehouse.List(ctx, rt.dir()) {
		if errors.Is(err, storage.ErrNotFound) {
			break
		}
		if err != nil {
			return false, fmt.Errorf("list %s: %w", s.warehouse.URL(rt.dir()), err)
		}
		if isRouteEntry(info) {
			tables[path.Base(info.Name)] = true
		}
	}
	rt.full, rt.tables = len(tables) >= rt.cfg.Route.Max, tables
	return rt.full, nil
}

// owns reports whether this process writes a table.
func (s *Server) owns(table string) bool {
	if s.crew == nil {
		return true
	}
	_, mine := s.crew.owner(table)
	return mine
}

// routeOrigin keeps where a route begins that begins at the end of its topic: ingest.RouteConfig.Begin.
func (s *Server) routeOrigin(ctx context.Context, rt *routed, at ingest.Progress) (ingest.Progress, error) {
	name := path.Join(rt.dir(), originName)
	data, err := json.Marshal(at.Properties)
	if err != nil {
		return at, err
	}
	if won, err := storage.PutOnce(ctx, s.warehouse, name, data); err != nil || won {
		return at, err
	}
	var was ingest.Progress
	if data, err = storage.ReadAll(ctx, s.warehouse, name, maxRouteEntry); err == nil {
		err = json.Unmarshal(data, &was.Properties)
	}
	return was, err
}

// keys makes a function that finds what of a record chooses its table: ingest.RouteConfig.Keys. schemas may be nil where
// records name none.
func (rt *routed) keys(schemas *decode.Schemas) ingest.KeyFunc {
	choices := rt.routes.Choices()
	pickers := make([]*decode.Picker, len(choices))
	format := decode.Format(rt.cfg.Format.Type)
	for i, c := range choices {
		if !c.Header {
			var err error
			if pickers[i], err = decode.NewPicker(format, c.Name); err == nil { // New has seen that it can be made
				pickers[i].Whole = decode.Before(rt.cfg.Format.Before) == decode.BeforeFull
				pickers[i].Schemas = schemas
			}
		}
	}
	return func(dst []byte, r *decode.Record) ([]byte, bool, error) {
		for i, c := range choices {
			at, ok := len(dst), false
			dst = append(dst, 0, 0, 0, 0)
			var err error
			if pickers[i] != nil {
				dst, ok, err = pickers[i].Pick(dst, r)
			} else {
				var v []byte
				if v, ok = r.Header(c.Name); ok {
					dst = append(dst, v...)
				}
			}
			if err != nil {
				return dst, false, err
			}
			if !ok && r.Value == nil && format.Events() {
				return dst, false, nil // a tombstone says nothing that the event or row before it has not said
			}
			if !ok {
				return dst, false, &decode.RowError{Offset: -1, Code: decode.NoTable, Reason: fmt.Sprintf("the record has no %s, which chooses its table", c)}
			}
			binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		}
		return dst, true, nil
	}
}

// has makes a function that says whether a record is of a table. It is asked where columns are those of the first records,
// which is nowhere where records need a registry.
func (rt *routed) has(values []string) func(*decode.Record) bool {
	keys, want := rt.keys(nil), keyOf(values)
	var buf []byte
	return func(r *decode.Record) bool {
		key, ok, err := keys(buf[:0], r)
		buf = key
		return err == nil && ok && string(key) == want
	}
}

// keyOf gives the key of values, valuesOf those of a key: each behind its length in four bytes.
func keyOf(values []string) string {
	var b []byte
	for _, v := range values {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return string(b)
}

func valuesOf(key string) (out []string) {
	for len(key) >= 4 {
		n := int(binary.BigEndian.Uint32([]byte(key[:4])))
		out = append(out, key[4:4+n])
		key = key[4+n:]
	}
	return out
}
