package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// Finding is what Probe found out about one thing that a configuration names.
type Finding struct {
	What   string `json:"what"` // the thing, such as "warehouse file:///lake"
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what is there, or what is wrong and what to do
}

// probeWait bounds each question of Probe to a broker, a registry or the storage.
const probeWait = 15 * time.Second

// Probe asks everything that a configuration names whether pipelines could work with it: the address to listen on, the
// warehouse by a conditional put, the brokers, the topics, the tables and the schema registry. It changes nothing that
// stays, and reads no records.
func (s *Server) Probe(ctx context.Context) []Finding {
	defer s.shared.hubs.close()
	out := []Finding{finding("warehouse "+s.warehouse.URL(""), s.probeWarehouse(ctx))}
	if s.cfg.Listen != "" {
		out = append(out, finding("address "+s.cfg.Listen, func() (string, error) {
			l, err := net.Listen("tcp", s.cfg.Listen)
			if err != nil {
				return "", fmt.Errorf("%w (key \"listen\"; does another process have it?)", err)
			}
			return "free", l.Close()
		}))
	}
	asked := map[string][]string{} // topics by brokers
	for _, c := range s.cfg.Pipelines {
		if c.Push != nil {
			out = append(out, finding("pipeline "+c.Name, func() (string, error) { return s.probeTable(ctx, c, nil) }))
			continue
		}
		var names []string
		brokers := strings.Join(c.Kafka.Brokers, ",")
		if u := c.Kafka.SASL.User; u != "" {
			brokers += " as " + u
		}
		if has, ok := asked[brokers]; ok {
			names = has
		} else {
			out = append(out, finding("brokers "+brokers, func() (string, error) {
				within, cancel := context.WithTimeout(ctx, s.patience)
				defer cancel()
				var err error
				names, err = s.topicsOf(within, c.Kafka)
				return fmt.Sprintf("answer; %d topics", len(names)), err
			}))
			asked[brokers] = names
		}
		if names != nil {
			out = append(out, s.probePipeline(ctx, c, names)...)
		}
	}
	return out
}

func finding(what string, ask func() (string, error)) Finding {
	detail, err := ask()
	if err != nil {
		return Finding{what, false, err.Error()}
	}
	return Finding{what, true, detail}
}

// probeWarehouse puts an object where none is, sees that a second put of the name is refused, and removes it.
func (s *Server) probeWarehouse(ctx context.Context) func() (string, error) {
	return func() (_ string, err error) {
		ctx, cancel := context.WithTimeout(ctx, s.patience)
		defer cancel()
		name := "calve/probe-" + s.env.NewID()
		won, err := storage.PutOnce(ctx, s.warehouse, name, []byte("first"))
		if err != nil {
			return "", fmt.Errorf("cannot write: %w", err)
		}
		defer func() {
			if derr := s.warehouse.Delete(ctx, name); derr != nil {
				err = errors.Join(err, fmt.Errorf("cannot delete: %w", derr))
			}
		}()
		again, err := storage.PutOnce(ctx, s.warehouse, name, []byte("second"))
		if err != nil {
			return "", fmt.Errorf("cannot write: %w", err)
		}
		if !won || again {
			return "", errors.New("conditional puts do not hold: an object was put over another one")
		}
		return "can be written; conditional puts hold", nil
	}
}

// probePipeline looks whether the topics of a pipeline are there, and its tables can be written.
func (s *Server) probePipeline(ctx context.Context, c config.Pipeline, names []string) []Finding {
	if c.Routed() {
		return []Finding{finding("pipeline "+c.Name, func() (string, error) {
			if !slices.Contains(names, c.Kafka.Topic) {
				return "", fmt.Errorf("topic %q: %w", c.Kafka.Topic, ingest.ErrNoTopic)
			}
			routes, err := config.NewRoutes(c)
			if err != nil {
				return "", err
			}
			within, cancel := context.WithTimeout(ctx, s.patience)
			defer cancel()
			entries, err := s.routeEntries(within, &routed{cfg: c, routes: routes})
			return fmt.Sprintf("topic %s is there; its records have chosen %d tables so far", c.Kafka.Topic, len(entries)), err
		})}
	}
	if !c.Many() {
		return []Finding{finding("pipeline "+c.Name, func() (string, error) { return s.probeTable(ctx, c, names) })}
	}
	topics, err := config.NewTopics(c)
	if err != nil { // New has seen that it is none
		return []Finding{{"pipeline " + c.Name, false, err.Error()}}
	}
	all := slices.Clone(c.Kafka.Topics)
	for _, name := range names {
		if topics.Has(name) && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	var out []Finding
	tables, fine := map[string]string{}, 0
	for _, topic := range all {
		one, err := topics.For(topic)
		if other, ok := tables[one.Table]; err == nil && ok {
			err = fmt.Errorf("topics %q and %q make the same table %s; give one of them a pipeline of its own with another table", other, topic, one.Table)
		}
		tables[one.Table] = topic
		if err == nil {
			_, err = s.probeTable(ctx, one, names)
		}
		if err != nil {
			out = append(out, Finding{"pipeline " + one.Name, false, err.Error()})
		} else {
			fine++
		}
	}
	return append(out, Finding{"pipeline " + c.Name, true, fmt.Sprintf("%d topics match, %d of them are fine", len(all), fine)})
}

// probeTable looks whether one topic can be written to its table.
func (s *Server) probeTable(ctx context.Context, c config.Pipeline, names []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	source := "clients push"
	if c.Push == nil {
		source = "topic " + c.Kafka.Topic + " is there"
	}
	if c.Push == nil && !slices.Contains(names, c.Kafka.Topic) {
		return "", fmt.Errorf("topic %q: %w", c.Kafka.Topic, ingest.ErrNoTopic)
	}
	path, err := config.TablePath(c.Table)
	if err != nil {
		return "", err
	}
	p := newPipeline(c, storage.Sub(s.warehouse, path), storage.Sub(s.warehouse, config.DeadTable(path)), s.env)
	p.shared = &s.shared
	if decode.Format(c.Format.Type).Framed() {
		if _, err := p.registry.Latest(ctx, c.Kafka.Topic+"-value"); err != nil {
			return "", fmt.Errorf("schema registry: %w", err)
		}
	}
	meta := manifest.Open(p.store, manifest.Env{Now: s.env.Now, After: s.env.After, NewID: s.env.NewID, Rand: s.env.Rand, Log: s.env.Log})
	sch, err := meta.LatestSchema(ctx)
	made := "is there"
	switch {
	case errors.Is(err, manifest.ErrNoTable) && c.Create == nil:
		return "", fmt.Errorf("table %s: %w (with `calve create`, or a create section in the pipeline)", c.Table, err)
	case errors.Is(err, manifest.ErrNoTable):
		made = "will be created"
		if c.Create.Columns == "" {
			return fmt.Sprintf("%s; table %s will be created from what comes", source, c.Table), nil
		}
		sch, err = newSchema(c.Create, nil, s.env.Now())
	}
	if err != nil {
		return "", fmt.Errorf("table %s: %w", c.Table, err)
	}
	if err := sch.CheckWritable(); err != nil {
		return "", fmt.Errorf("table %s: %w", c.Table, err)
	}
	if f := decode.Format(c.Format.Type); !f.Framed() { // else it needs a schema that records name
		if _, err := decode.New(decode.Config{Schema: sch, Format: f, OpField: c.Format.Op, Metadata: c.Kafka.Fields}); err != nil {
			return "", fmt.Errorf("table %s: %w", c.Table, err)
		}
	}
	return fmt.Sprintf("%s; table %s %s", source, c.Table, made), nil
}
