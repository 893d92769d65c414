package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/storage"
)

// family finds the topics of a pipeline that reads many, and has a pipeline run for each.
type family struct {
	cfg    config.Pipeline
	topics *config.Topics
	err    error // of the last look; guarded by Server.mu
}

// findEvery is the time between two looks for new topics.
const findEvery = 30 * time.Second

// find looks for topics until ctx ends. Topics that a list names are there from the start, whether brokers know them or
// not.
func (s *Server) find(ctx context.Context, f *family) {
	for _, topic := range f.cfg.Kafka.Topics {
		s.adopt(ctx, f, topic)
	}
	if f.cfg.Kafka.TopicPattern == "" {
		return
	}
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, findEvery) {
		names, err := s.topicsOf(ctx, f.cfg.Kafka)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		f.err = err
		s.mu.Unlock()
		if err != nil {
			s.env.Log.Warn("cannot look for topics", "pipeline", f.cfg.Name, "error", err, "again_in", wait)
		} else {
			wait = findEvery
		}
		for _, topic := range names {
			if f.topics.Has(topic) {
				s.adopt(ctx, f, topic)
			}
		}
		select {
		case <-s.env.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) topicsOf(ctx context.Context, k config.Kafka) ([]string, error) {
	hub, err := s.shared.hubs.get(k)
	if err != nil {
		return nil, err
	}
	return hub.Topics(ctx)
}

// adopt has a pipeline run for a topic, unless there is one. One that stopped because its topic was gone goes on.
func (s *Server) adopt(ctx context.Context, f *family, topic string) {
	cfg, err := f.topics.For(topic)
	var path string
	if err == nil {
		path, err = config.TablePath(cfg.Table)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errSetup, err)
	}
	s.mu.Lock()
	if p := s.byName[cfg.Name]; p != nil {
		s.mu.Unlock()
		if p.failedFor(ingest.ErrNoTopic) {
			_ = p.resume(false)
		}
		return
	}
	for _, table := range []string{cfg.Table, cfg.DeadTable()} { // dead letters of one may have the name of the other
		if other := s.byTable[table]; err == nil && other != nil {
			err = fmt.Errorf("%w: pipeline %s writes table %s already; give one of them a pipeline of its own with another table", errSetup, other.cfg.Name, table)
		}
	}
	p := newPipeline(cfg, storage.Sub(s.warehouse, path), storage.Sub(s.warehouse, config.DeadTable(path)), s.env)
	p.topic, p.setup, p.reset = topic, err, slices.Contains(s.opts.Reset, cfg.Name)
	s.addLocked(p)
	s.alive++
	s.mu.Unlock()
	s.env.Log.Info("found a topic", "pipeline", cfg.Name, "topic", topic, "table", cfg.Table)
	s.spawn(ctx, p)
}

// sourceFile is where a table says which topic it belongs to, if its name was made of the topic's.
const sourceFile = "calve/source-topic"

// maxTopic bounds what is read of it; Kafka's names have at most 249 characters.
const maxTopic = 1 << 10

// own writes down that the table is of the pipeline's topic. The first topic whose name makes the table's has it, in
// whatever order and by whichever process others are found.
func (p *pipeline) own(ctx context.Context) error {
	if p.topic == "" {
		return nil
	}
	won, err := storage.PutOnce(ctx, p.store, sourceFile, []byte(p.topic))
	if err != nil || won {
		return err
	}
	has, err := storage.ReadAll(ctx, p.store, sourceFile, maxTopic)
	if err == nil && string(has) != p.topic {
		err = fmt.Errorf("%w: table %s belongs to topic %q, whose name makes the same table as %q; give one of them a pipeline of its own with another table",
			errSetup, p.cfg.Table, has, p.topic)
	}
	return err
}

// failedFor reports whether the pipeline waits for a person because of an error.
func (p *pipeline) failedFor(target error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == Failed && errors.Is(p.err, target)
}
