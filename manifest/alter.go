package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// AlterSchema makes changes of the schema (schema.Alter) and publishes the result as the next schema file by one
// conditional put. It gives the schema that has all the changes, and whether this call made a new one: what is so already
// is left alone, so a call whose outcome was not learned can be repeated.
//
// When somebody else changes the schema at the same time, the changes are made again on top of theirs; if they do not
// fit any more the error matches schema.ErrAlter and nothing was published. An error that matches storage.ErrUnknown
// means that the new schema may be there, or may yet appear.
//
// Snapshots and data files are not touched: the next commit of any writer names the new schema, and what was written
// before is read through it.
func (t *Table) AlterSchema(ctx context.Context, changes []schema.Change) (*schema.Schema, bool, error) {
	var doubt *doubtfulSchema
	wait := waits(maxRaceWait)
	for failures := 0; ; {
		s, made, err := t.alterOnce(ctx, changes, &doubt)
		switch {
		case err == nil && s != nil:
			return s, made, nil
		case err != nil:
			failures++
			if !errors.Is(err, storage.ErrUnknown) || failures == maxFailures || ctx.Err() != nil {
				return nil, false, alterFailed(t, err, doubt)
			}
			t.env.Log.Warn("schema change is tried again", "table", t.store.URL(""), "failures", failures, "error", err)
		}
		if err := t.pause(ctx, wait.NextBackOff()); err != nil {
			return nil, false, alterFailed(t, err, doubt)
		}
	}
}

// doubtfulSchema is a schema whose put had an outcome that could not be learned.
type doubtfulSchema struct {
	schema *schema.Schema
	data   []byte
}

// alterFailed says of a failure whether it is certain that nothing was published.
func alterFailed(t *Table, err error, doubt *doubtfulSchema) error {
	if doubt != nil && !errors.Is(err, storage.ErrUnknown) {
		err = fmt.Errorf("%w: %w", storage.ErrUnknown, err)
	}
	if doubt != nil {
		return fmt.Errorf("alter %s: whether schema %d was written is not known; run the same change again, what is done already is left alone: %w",
			t.store.URL(""), doubt.schema.ID, err)
	}
	return fmt.Errorf("alter %s: %w", t.store.URL(""), err)
}

// alterOnce makes one attempt; without a schema and without an error it has lost a race.
func (t *Table) alterOnce(ctx context.Context, changes []schema.Change, doubt **doubtfulSchema) (*schema.Schema, bool, error) {
	if *doubt != nil {
		// The name decides: its content is ours, another's, or the very same bytes are put again.
		return t.putSchema(ctx, (*doubt).schema, (*doubt).data, doubt)
	}
	latest, err := t.LatestSchema(ctx)
	if err != nil {
		return nil, false, err
	}
	_, err = t.Latest(ctx)
	if err != nil && !errors.Is(err, ErrNoSnapshot) {
		return nil, false, err
	}
	next, err := latest.Alter(changes, schema.Past{Snapshots: err == nil, Older: func() ([]*schema.Schema, error) {
		return t.olderSchemas(ctx, latest.ID)
	}}, t.env.Now().UnixMilli())
	if err != nil || next == latest {
		return next, false, err
	}
	data, err := next.Encode()
	if err != nil {
		return nil, false, err
	}
	return t.putSchema(ctx, next, data, doubt)
}

func (t *Table) putSchema(ctx context.Context, next *schema.Schema, data []byte, doubt **doubtfulSchema) (*schema.Schema, bool, error) {
	won, err := storage.PutOnce(ctx, t.store, schemaName(next.ID), data)
	if err != nil {
		if errors.Is(err, storage.ErrUnknown) {
			*doubt = &doubtfulSchema{next, bytes.Clone(data)}
		}
		return nil, false, err
	}
	*doubt = nil
	if !won {
		return nil, false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schemas[next.ID] = next
	t.newest = max(t.newest, next.ID)
	return next, true, nil
}

// olderSchemas reads the versions before one. Paimon never deletes them, but other tools may: missing ones are left out.
func (t *Table) olderSchemas(ctx context.Context, before int64) ([]*schema.Schema, error) {
	var out []*schema.Schema
	for id := before - 1; id >= 0; id-- {
		s, err := t.Schema(ctx, id)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
