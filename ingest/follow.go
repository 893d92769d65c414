package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// follower carries the news of a newer schema of the table from where it is noticed to the source's goroutine, which
// decodes by it from then on.
//
// It is noticed by a commit, whose snapshot names it, and by a source that had nothing to read for a while: what comes
// next may be meant for the new columns. In between, records are decoded by the schema that was known; a commit refuses
// what was made of them if the new schema would have made something else of it, and they are decoded again (see passes).
type follower struct {
	table  Table
	env    Env
	events Events
	decode decode.Config
	// patience is how long a failing storage is asked to change a schema before the pipeline begins anew.
	patience time.Duration
	gap      time.Duration // a source that was idle for longer looks for a newer schema
	news     atomic.Pointer[schema.Schema]

	since time.Time // the source has read records since; owned by the source's goroutine
}

func newFollower(table Table, cfg decode.Config, env Env, events Events, limits Limits) *follower {
	return &follower{table: table, env: env, events: events, decode: cfg, patience: time.Minute, gap: limits.withDefaults().CommitInterval, since: env.Now()}
}

// committed is called by the committer after a commit.
func (f *follower) committed() {
	if s := f.table.NewSchema(); s != nil {
		f.tell(s)
	}
}

// tell keeps the newest schema.
func (f *follower) tell(s *schema.Schema) {
	for {
		old := f.news.Load()
		if old != nil && old.ID >= s.ID || f.news.CompareAndSwap(old, s) {
			return
		}
	}
}

// arrived is called by the source when it has records at hand, before they are decoded.
func (f *follower) arrived(ctx context.Context) {
	now := f.env.Now()
	idle := now.Sub(f.since) > f.gap
	f.since = now
	if !idle {
		return
	}
	s, err := f.table.LookForSchema(ctx)
	switch {
	case err != nil: // the next commit tells
		f.env.Log.Debug("cannot look for a newer schema", "error", err)
	case s != nil:
		f.tell(s)
	}
}

// next gives a decoder for a newer schema, if there is news of one; seen is what the one before has seen.
func (f *follower) next(now *schema.Schema, seen string) (*schema.Schema, decode.Decoder, error) {
	s := f.news.Load()
	if s == nil || s.ID <= now.ID {
		return nil, nil, nil
	}
	cfg := f.decode
	cfg.Schema, cfg.Seen = s, seen
	dec, err := decode.New(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: schema %d of the table: %w", ErrConfig, s.ID, err)
	}
	return s, dec, nil
}

// follow goes on with a newer schema, if there is one: what is decoded goes out under the old one first. It is called
// between the arrival of records and their decoding.
func (b *batcher) follow(ctx context.Context, lag int64, advance func() func()) error {
	b.follower.arrived(ctx)
	b.schemas.again()
	return b.goOn(ctx, func() bool { return b.empty() || b.emit(ctx, true, lag, advance) })
}

// goOn goes on with a newer schema, if there is news of one; emit hands over what is decoded, and is false if ctx ended.
func (b *batcher) goOn(ctx context.Context, emit func() bool) error {
	s, dec, err := b.follower.next(b.schema, b.dec.Seen())
	if err != nil || s == nil || !emit() {
		return err
	}
	select {
	case b.out <- unit{follow: s}:
		b.schema, b.dec = s, dec
	case <-ctx.Done():
	}
	return nil
}

// outdated ends a pass over the source: records since the last commit were decoded by an older schema than the table has.
type outdated struct {
	schema  *schema.Schema
	records int64
}

// Error implements error.
func (o *outdated) Error() string {
	return fmt.Sprintf("%d records were decoded before the table had schema %d", o.records, o.schema.ID)
}

// passes runs pass, and when its records turn out to be outdated runs it again from the last commit on, decoding by the
// newest schema. Positions and rows are published together, so that nothing is lost or doubled by that. The order of
// events, and why no value of a new column can be missed, is at engine.Table.CommitCurrent.
//
// Each further pass follows a change of the schema that somebody made since the pass before, and commits the first that
// it reads (again says so), so that only changes without end could keep a stream from its commits.
//
// Dead letters are told from where each pass reads on.
func passes(ctx context.Context, table Table, dead DeadLetter, events Events, pass func(again bool) error) error {
	for again := false; ; again = true {
		at, _, err := table.LastProgress(ctx)
		if err == nil {
			err = dead.Rewind(ctx, at)
		}
		if err != nil {
			return stopped(ctx, err)
		}
		err = pass(again)
		var old *outdated
		if !errors.As(err, &old) {
			return err
		}
		if ctx.Err() != nil {
			return nil // what was not committed is read by the next run
		}
		if err := table.Discard(ctx); err != nil {
			return fmt.Errorf("give up %d records to decode them by schema %d: %w", old.records, old.schema.ID, err)
		}
		if err := table.Follow(ctx, old.schema); err != nil {
			return fmt.Errorf("go on with schema %d: %w", old.schema.ID, err)
		}
		if events.Followed != nil {
			events.Followed(old.schema)
		}
		if events.Reread != nil {
			events.Reread(old.schema, old.records)
		}
	}
}
