package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// Records may change the schema of their table (decode.Evolution). The order of events, on the source's goroutine:
//
//	decode → the record needs changes → Table.Alter → emit what was decoded before → the table follows → decode again
//
// What was decoded before is right under the new schema too: a record that had a value for one of its columns would have
// asked for it. So a commit may hold rows of several schemas, and nothing is read again, unless somebody else changed the
// schema in between (engine.Table.Holds). A crash between the change and
// the commit leaves a table with columns that no row has a value for yet; the record comes again and finds them.

// alter changes the table's schema.
func (f *follower) alter(ctx context.Context, changes []schema.Change) (s *schema.Schema, err error) {
	r := retry{env: f.env, events: f.events, patience: f.patience, what: "change the table's schema",
		final: func(err error) bool { return errors.Is(err, schema.ErrAlter) }}
	err = r.do(ctx, func(ctx context.Context) error {
		s, err = f.table.Alter(ctx, changes)
		return err
	})
	if err == nil && f.events.Evolved != nil {
		f.events.Evolved(changes, s)
	}
	return s, err
}

// maxEvolutions bounds how often one record may ask for changes: a ROW that was not there may hold what does not fit.
const maxEvolutions = 8

// evolve makes the changes that a record needs, goes on by the new schema, and decodes the record again. It gives the
// number of rows in the batch before the record, and why it is refused (ErrRow); other errors end the source.
func (b *batcher) evolve(ctx context.Context, r *decode.Record, need *decode.NeedSchema) (rows int, err error) {
	for range maxEvolutions {
		s, err := b.follower.alter(ctx, need.Changes)
		if errors.Is(err, schema.ErrAlter) {
			// Perhaps somebody else has made the column, of another type.
			newer, lerr := b.follower.table.LookForSchema(ctx)
			if lerr != nil {
				return 0, fmt.Errorf("after a change of the schema was refused: %w", lerr)
			}
			if newer != nil && newer.ID > b.schema.ID {
				s, err = newer, nil
			}
		}
		if errors.Is(err, schema.ErrAlter) {
			return b.dec.Rows(), &decode.RowError{Offset: -1, Code: decode.NoSchema, Reason: err.Error()}
		}
		if err != nil {
			return 0, err
		}
		b.follower.tell(s)
		if err := b.before(ctx); err != nil {
			return 0, err
		}
		if err := b.goOn(ctx, b.empty); err != nil {
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		rows := b.dec.Rows()
		err = b.dec.Decode(r)
		var more *decode.NeedSchema
		if !errors.As(err, &more) {
			return rows, err
		}
		need = more
	}
	return b.dec.Rows(), &decode.RowError{Offset: -1, Code: decode.NoSchema, Reason: fmt.Sprintf("the table's schema was changed %d times for it, and it still does not fit: %s", maxEvolutions, need)}
}
