package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/calve-io/calve/ingest/decode"
)

// Registry gives the schemas that records were written with: *registry.Client. Errors that match decode.ErrNoSchema say
// that it does not know a schema, others that it cannot be asked at the moment.
type Registry interface {
	Schema(ctx context.Context, id int) (decode.WriterSchema, error)
	Latest(ctx context.Context, subject string) (decode.WriterSchema, error)
}

const (
	// unknownFor is how long an id that the registry does not know is asked for again before its records are refused: a
	// registry of several nodes tells a new schema a little later. Once that was in vain, further ids are refused when the
	// registry has denied them once, for refusedFor: bytes that are no schema's id hold the topic once a minute, not each time.
	unknownFor = 10 * time.Second
	// refusedFor is how long they are refused before the registry is asked again.
	refusedFor = time.Minute
	// mostRefused bounds what is remembered of them.
	mostRefused = 10_000
)

// schemaFetcher asks the registry for what a decoder misses. It belongs to the source's goroutine.
type schemaFetcher struct {
	registry Registry
	schemas  *decode.Schemas
	subject  string // its newest schema is the reader's; "": there is none
	env      Env
	events   Events
	refused  map[int]time.Time
	vain     time.Time // an id was waited for in vain until then
}

// newSchemaFetcher gives nil for formats whose records have no schema id, or need none. It sets the schemas of the
// configuration.
func newSchemaFetcher(cfg *decode.Config, registry Registry, topic string, env Env, events Events) (*schemaFetcher, error) {
	if !cfg.Format.Framed() && (cfg.Format != decode.FramedJSON || registry == nil) {
		return nil, nil
	}
	if registry == nil {
		return nil, fmt.Errorf("%w: format %q needs a schema registry", ErrConfig, cfg.Format)
	}
	cfg.Schemas = &decode.Schemas{}
	return &schemaFetcher{registry: registry, schemas: cfg.Schemas, subject: topic + "-value", env: env, events: events, refused: map[int]time.Time{}}, nil
}

// fetch waits until the schema of an id is known or its records are refused. A registry that does not answer is waited
// for; an error says that ctx has ended.
func (f *schemaFetcher) fetch(ctx context.Context, id int) error {
	start, wait := f.env.Now(), 100*time.Millisecond
	for {
		settled, err := f.try(ctx, id, start)
		if settled {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause := wait + time.Duration(f.env.Rand()%uint64(wait/2))
		if f.events.Retrying != nil {
			f.events.Retrying(fmt.Sprintf("fetch schema id %d", id), err, pause)
		}
		select {
		case <-f.env.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// try asks once, and reports whether the schema is known or its records are refused then; it was asked for first at start.
func (f *schemaFetcher) try(ctx context.Context, id int, start time.Time) (settled bool, err error) {
	err = f.ask(ctx, id)
	if err == nil {
		return true, nil
	}
	if now := f.env.Now(); errors.Is(err, decode.ErrNoSchema) && ctx.Err() == nil {
		waited := now.Sub(start) >= unknownFor
		if waited {
			f.vain = now
		}
		if waited || now.Sub(f.vain) < refusedFor {
			f.refuse(id, err.Error(), now)
			return true, nil
		}
	}
	return false, err
}

// ask asks once, for the schema and for the newest one of the subject, if there is one, which may be newer than what was
// known of it.
func (f *schemaFetcher) ask(ctx context.Context, id int) error {
	w, err := f.registry.Schema(ctx, id)
	if err != nil {
		return err
	}
	if f.subject == "" {
		f.schemas.Add(id, w)
		return nil
	}
	latest, err := f.registry.Latest(ctx, f.subject)
	switch {
	case err == nil && latest.Kind == w.Kind:
		f.schemas.SetReader(latest)
	case err != nil && !errors.Is(err, decode.ErrNoSchema): // subjects may be named otherwise
		return err
	}
	f.schemas.Add(id, w)
	return nil
}

// refuse lets records of an id be refused until again.
func (f *schemaFetcher) refuse(id int, reason string, now time.Time) {
	if len(f.refused) >= mostRefused { // to ask for them again is better than to remember all that somebody makes up
		for old := range f.refused {
			f.schemas.Forget(old)
		}
		clear(f.refused)
	}
	f.schemas.Refuse(id, reason)
	f.refused[id] = now
}

// again lets ids that were refused for long enough be asked for again.
func (f *schemaFetcher) again() {
	if f == nil || len(f.refused) == 0 {
		return
	}
	now := f.env.Now()
	for id, since := range f.refused {
		if now.Sub(since) > refusedFor {
			delete(f.refused, id)
			f.schemas.Forget(id)
		}
	}
}

// await fetches the schema that a record misses and decodes it; what was read before it does not wait for that. It gives
// the number of rows in the batch before the record, and the error of decoding it, or of ctx.
func (b *batcher) await(ctx context.Context, r *decode.Record, missing *decode.MissingSchema) (rows int, err error) {
	for {
		if err := b.before(ctx); err != nil {
			return 0, err
		}
		if err := b.schemas.fetch(ctx, missing.ID); err != nil {
			return 0, err
		}
		rows = b.dec.Rows()
		err = b.dec.Decode(r)
		more, ok := err.(*decode.MissingSchema)
		if !ok {
			return rows, err
		}
		missing = more
	}
}
