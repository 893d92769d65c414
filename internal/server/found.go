package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// foundColumns are the columns of a table that is not there yet, where the configuration leaves them out.
type foundColumns struct {
	columns []schema.Column
	key     []string
}

// findColumns looks what columns a new table should have: those of the registry's newest schema, or of the first records
// of the topic, which it waits for. It gives nil if the table is there, or the configuration says it.
func (p *pipeline) findColumns(ctx context.Context, hub *ingest.Hub) (*foundColumns, error) {
	if p.cfg.Create == nil || p.cfg.Create.Columns != "" {
		return nil, nil
	}
	meta := manifest.Open(p.store, manifest.Env{Now: p.env.Now, After: p.env.After, NewID: p.env.NewID, Rand: p.env.Rand, Log: p.log})
	if _, err := meta.LatestSchema(ctx); !errors.Is(err, manifest.ErrNoTable) {
		return nil, err
	}
	format := decode.Format(p.cfg.Format.Type)
	found := &foundColumns{}
	switch {
	case format.Framed():
		cols, err := p.registeredColumns(ctx)
		if err != nil {
			return nil, err
		}
		found.columns = cols
	case hub == nil:
		return nil, fmt.Errorf("%w: create.columns is missing", errSetup)
	default:
		p.log.Info("the table is not there; its columns are made of the topic's first records")
		s, err := p.sketch(ctx, hub, ingest.SketchConfig{Topic: p.cfg.Kafka.Topic, Format: format, Op: p.cfg.Format.Op, From: p.begin, Has: p.has})
		if err != nil {
			return nil, fmt.Errorf("columns of the table %s: %w", p.cfg.Table, err)
		}
		found.columns, found.key = s.Columns(), s.Key()
		if err := p.retype(ctx, format, found); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Kafka.Fields)) {
		t := decode.MetadataType(p.cfg.Kafka.Fields[name])
		at := slices.IndexFunc(found.columns, func(c schema.Column) bool { return c.Name == name })
		if at < 0 {
			found.columns = append(found.columns, schema.Column{Name: name, Type: t})
		} else {
			found.columns[at].Type = t
		}
	}
	return found, nil
}

// retype has the columns be those of the registry's schema, where records are JSON with one; columns that only records have
// come behind them.
func (p *pipeline) retype(ctx context.Context, format decode.Format, found *foundColumns) error {
	if format != decode.FramedJSON || p.registry == nil {
		return nil
	}
	said, err := p.registeredColumns(ctx)
	if errors.Is(err, decode.ErrNoSchema) || errors.Is(err, errSetup) { // the subject has another name, or says nothing of columns
		p.log.Warn("the registry does not tell the columns; they are those of the topic's first records", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	op := p.cfg.Format.Op
	said = slices.DeleteFunc(said, func(c schema.Column) bool { // the field with the row kind is no column
		return c.Name == op && !slices.ContainsFunc(found.columns, func(o schema.Column) bool { return o.Name == op })
	})
	for _, c := range found.columns {
		if !slices.ContainsFunc(said, func(o schema.Column) bool { return o.Name == c.Name }) {
			said = append(said, c)
		}
	}
	found.columns = said
	return nil
}

// sketch looks at the first records of a table. A route may find many tables at once, each of which has the topic read for
// it until its columns are known, so they go in turn.
func (p *pipeline) sketch(ctx context.Context, hub *ingest.Hub, cfg ingest.SketchConfig) (*decode.Sketch, error) {
	if p.route != nil {
		select {
		case p.sketching <- struct{}{}:
			defer func() { <-p.sketching }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return hub.Sketch(ctx, cfg)
}
