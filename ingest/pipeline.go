package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// Table is what a pipeline writes to: *engine.Table. Commit publishes everything written together with the progress in
// one atomic snapshot (nil when there is nothing to publish); LastProgress gives the progress of the last one.
// CommitCurrent does so unless the table has a schema by now for which the rows would have been made in another way
// (engine.ErrNewSchema); Discard gives up what is not committed.
type Table interface {
	Schema() *schema.Schema
	Write(ctx context.Context, b schema.Batch) error
	Commit(ctx context.Context, p Progress) (*manifest.Snapshot, error)
	CommitCurrent(ctx context.Context, p Progress) (*manifest.Snapshot, error)
	Discard(ctx context.Context) error
	// Truncate gives up what is not committed and publishes the progress in a snapshot after which the table is empty.
	Truncate(ctx context.Context, p Progress) (*manifest.Snapshot, error)
	// RowsBefore looks up the rows that keys have in the table as the last commit left it or, if they have none, had in one
	// of up to steps snapshots before.
	RowsBefore(ctx context.Context, keys arrow.RecordBatch, steps int) (engine.Found, error)
	LastProgress(ctx context.Context) (Progress, bool, error)
	// Stalled is nil when Write takes rows at once, else a channel that is closed when it is worth to ask again.
	Stalled() <-chan struct{}
	// NewSchema gives a newer schema than Schema that a commit came across, nil if there is none; LookForSchema looks on
	// the storage. Follow goes on with it: later batches have its columns.
	NewSchema() *schema.Schema
	LookForSchema(ctx context.Context) (*schema.Schema, error)
	// Holds reports whether rows made for one schema hold for a newer one too: engine.Table.Holds.
	Holds(made, newer *schema.Schema) bool
	// Alter changes the table's schema and gives the one that has all the changes; what is so already is left alone. The
	// handle goes on with the old one until Follow. An error that matches schema.ErrAlter says that the table cannot have them.
	Alter(ctx context.Context, changes []schema.Change) (*schema.Schema, error)
	Follow(ctx context.Context, s *schema.Schema) error
}

// Limits say when a pipeline commits: when the first of them is reached. Zero values mean the defaults.
type Limits struct {
	// CommitInterval lies between the beginnings of two commits of a busy table, half of it at least, unless rows or bytes
	// start one earlier, and is the longest time that a written row waits for its commit. A row of a quiet table waits a
	// tenth of it, at most 50 ms, for others. Default 1 s.
	CommitInterval time.Duration
	// Phase moves the commits within the interval: tables of one process should have different ones, so that they do not all
	// commit at the same moment.
	Phase time.Duration
	// CommitRows and CommitBytes (of records read) start a commit earlier. Defaults 4,000,000 rows and 1 GiB.
	CommitRows  int64
	CommitBytes int64
	// StopTimeout bounds the last flush and commit after the context has ended. Default 30 s.
	StopTimeout time.Duration
	// Whole, if it is not 0, keeps transactions of the source whole: a commit waits for at most this long for the rest of the
	// one that it would fall into. See whole.go. It is for Kafka, Debezium's JSON and topics of one partition.
	Whole time.Duration
	// Pause ends the pipeline with ErrTooManyRefused when so many records are refused.
	Pause PauseRule
}

func (l Limits) withDefaults() Limits {
	if l.CommitInterval <= 0 {
		l.CommitInterval = time.Second
	}
	if l.CommitRows <= 0 {
		l.CommitRows = 4_000_000
	}
	if l.CommitBytes <= 0 {
		l.CommitBytes = 1 << 30
	}
	if l.StopTimeout <= 0 {
		l.StopTimeout = 30 * time.Second
	}
	return l
}

// Events are called on what happens in a pipeline; nil functions are skipped. They run on the pipeline's goroutines and
// must return quickly.
type Events struct {
	// Started: reading begins at these positions (the next offset of each partition; nil for lines).
	Started func(positions map[int32]int64)
	// Partitions: the topic has new partitions, read from their beginning.
	Partitions func(positions map[int32]int64)
	// Committed: what was read since the last call is published.
	Committed func(Committed)
	// Followed: the table has a newer schema, and what is read from now on is decoded by it.
	Followed func(s *schema.Schema)
	// Evolved: a record asked for changes of the table's schema, and they were made.
	Evolved func(changes []schema.Change, s *schema.Schema)
	// Reread: records were decoded by an older schema than the table has; they are given up, and read and decoded again.
	Reread func(s *schema.Schema, records int64)
	// Split: a transaction of the source is in more than one commit, although Limits.Whole is set; or the last one that was
	// read is committed as far as it was read, since its source is gone.
	Split func()
	// Rejected: a record goes to the dead letters.
	Rejected func(Letter)
	// Retrying: an operation failed and is tried again after the wait.
	Retrying func(what string, err error, wait time.Duration)
}

// Committed tells about one commit of a pipeline.
type Committed struct {
	Snapshot   int64 // 0: there was nothing to publish
	Records    int64 // read; Records = rows made from one record each + Tombstones skipped + Rejected
	Rows       int64
	Bytes      int64
	Rejected   int64
	Tombstones int64 // records that made no row: those without value that said nothing new, truncates
	// Lag is the number of records in the log that are not read yet, as the broker last told; -1: unknown.
	Lag       int64
	Positions map[int32]int64 // the next offset of each partition; nil for lines
	Took      time.Duration   // by Commit
}

// unit is what the source hands to the committer in one step.
type unit struct {
	follow  *schema.Schema // later units have its columns; such a unit holds nothing else
	batch   decode.Batch
	rejects []Letter
	holes   []Letter // the records of batch.Holes, in case that they cannot be filled
	tally   Committed
	// advance moves the position past the unit's records; the committer calls it when the batch is written.
	advance func()
	urgent  bool // commit when it is written
	// Where transactions are kept whole: it ends inside one, or begins inside the one in which the unit before it ends.
	inside, continues bool
}

// committer owns everything between a unit and the snapshot. All of it runs on one goroutine.
type committer struct {
	table    Table
	follower *follower
	dead     DeadLetter
	env      Env
	events   Events
	limits   Limits
	// progress gives the position as advanced so far.
	progress  func() Progress
	positions func() map[int32]int64
	// rewindable reports whether everything since the last commit can be read again; nil: always. published is called
	// when the position as advanced so far is committed; it may be nil.
	rewindable func() bool
	published  func()
	// settled, if not nil, is called behind each commit; its error ends the pipeline.
	settled func(Committed) error
	// eager: commit each unit until one is published. Set after records were given up, so that a schema that changes all
	// the time does not keep them from being published.
	eager bool

	stop       <-chan struct{}  // the pipeline is told to end
	tick, idle <-chan time.Time // a commit is due then; nil: nothing waits for it
	pace       pace

	// Where transactions are kept whole: what was written ends inside one; the last commit was made there; one is due, and waits
	// no longer than this (nil: none is); the source is told that one is.
	inside, cut bool
	late        <-chan time.Time
	wanted      *atomic.Bool

	refusals *refusals // nil: any number may be
	tally    Committed // since the last commit
	total    Committed // of the run
	pending  bool
	// truncate: the next commit empties the table, and what was written before it is given up.
	truncate bool
	gone     func() bool    // why the source has ended: it cannot be read again
	first    *schema.Schema // of the first unit since the last commit
}

// idleInterval is how long a position may wait that moved without a record (over the markers of transactions). It must
// be kept, or retention could overtake it; but it is not worth a snapshot a second.
const idleInterval = 30 * time.Second

// run takes units until the channel is closed, then commits the rest.
func (c *committer) run(ctx context.Context, units <-chan unit) error {
	c.pace = newPace(c.limits, c.env.Now())
	if err := c.commit(ctx); err != nil {
		return err
	}
	for {
		late := false
		select {
		case u, ok := <-units:
			if !ok {
				return c.last(ctx, c.gone != nil && c.gone())
			}
			if stopped, err := c.room(ctx); err != nil {
				return err
			} else if stopped {
				return c.last(ctx, false)
			}
			if err := c.take(ctx, u); err != nil {
				return err
			}
			if over := c.refusals.add(c.env.Now(), u.tally.Records, u.tally.Rejected); over != nil {
				if err := c.commitDue(ctx); err != nil {
					return err // not that too many are refused: what was taken is to be read again first
				}
				return over
			}
			if u.tally.Records == 0 && c.idle == nil {
				c.idle = c.env.After(idleInterval)
			}
			if u.tally.Records > 0 && c.tick == nil {
				c.tick = c.env.After(c.pace.wait(c.env.Now()))
			}
			if c.late == nil && !c.eager && !u.urgent && !c.truncate && c.tally.Rows < c.limits.CommitRows && c.tally.Bytes < c.limits.CommitBytes {
				continue
			}
		case <-c.tick:
		case <-c.idle:
		case <-c.late:
			late = true
		}
		if !late && c.holds() {
			continue
		}
		if err := c.commitDue(ctx); err != nil {
			return err
		}
	}
}

// commitDue commits because the time has come, and begins to count anew.
func (c *committer) commitDue(ctx context.Context) error {
	c.tick, c.idle, c.late = nil, nil, nil
	if c.wanted != nil {
		c.wanted.Store(false)
	}
	return c.commit(ctx)
}

// last is the commit when the source has ended; gone: it is not there any more.
func (c *committer) last(ctx context.Context, gone bool) error {
	if !c.inside || c.truncate {
		return c.commit(ctx)
	}
	if !gone || !c.pending {
		return nil // the transaction is read again
	}
	// Nothing tells whether the last transaction is whole; of it and those before nothing could be read again.
	if err := c.commit(ctx); err != nil {
		return err
	}
	if c.events.Split != nil {
		c.events.Split()
	}
	return nil
}

// room waits while the table is stalled; what is written already is committed in its time meanwhile. A pipeline that is
// told to stop does not wait: what was not written is read by the next run.
func (c *committer) room(ctx context.Context) (stopped bool, err error) {
	for {
		late := false
		room := c.table.Stalled()
		if room == nil {
			return false, nil
		}
		select {
		case <-room:
			continue
		case <-c.stop:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-c.tick:
		case <-c.idle:
		case <-c.late:
			late = true
		}
		if !late && c.holds() {
			continue
		}
		if err := c.commitDue(ctx); err != nil {
			return false, err
		}
	}
}

// take writes a unit to the table. The order matters: the position moves only when the rows are in the table's buffer
// and the rejected records are with the dead letters, for the next commit publishes it.
func (c *committer) take(ctx context.Context, u unit) error {
	if u.follow != nil {
		if err := c.table.Follow(ctx, u.follow); err != nil {
			return fmt.Errorf("go on with schema %d: %w", u.follow.ID, err)
		}
		if c.events.Followed != nil {
			c.events.Followed(u.follow)
		}
		return nil
	}
	if err := c.fill(ctx, &u); err != nil {
		return err
	}
	c.truncate = u.batch.Truncate
	if u.batch.Rec != nil {
		if err := c.table.Write(ctx, u.batch.Batch); err != nil {
			return fmt.Errorf("write %d rows: %w", u.batch.Len(), err)
		}
	}
	for i := range u.rejects {
		if c.events.Rejected != nil {
			c.events.Rejected(u.rejects[i])
		}
		if err := c.dead.Add(ctx, u.rejects[i]); err != nil {
			return err
		}
	}
	u.advance()
	if c.cut && u.continues && c.events.Split != nil {
		c.events.Split()
	}
	c.inside, c.cut = u.inside, false
	c.tally.add(u.tally)
	if !c.pending {
		c.first = c.table.Schema()
	}
	c.pending = true
	return nil
}

// commit publishes what was taken. Rejected records are durable before a snapshot says that their offsets are passed.
func (c *committer) commit(ctx context.Context) error {
	if !c.pending {
		return nil
	}
	start := c.env.Now()
	c.pace.began(start)
	snap, err := c.publish(ctx)
	if err != nil {
		return err
	}
	c.follower.committed()
	if c.published != nil {
		c.published()
	}
	c.eager, c.truncate, c.cut = false, false, c.inside
	t, end := c.tally, c.env.Now()
	c.pace.ended(end)
	t.Took = end.Sub(start)
	if snap != nil {
		t.Snapshot = snap.ID
	}
	if c.positions != nil && c.events.Committed != nil {
		t.Positions = c.positions()
	}
	c.total.add(t)
	c.tally, c.pending = Committed{}, false
	if c.events.Committed != nil {
		c.events.Committed(t)
	}
	if c.settled != nil {
		return c.settled(t)
	}
	return nil
}

// publish commits, or gives outdated if what was taken has to be decoded again.
func (c *committer) publish(ctx context.Context) (*manifest.Snapshot, error) {
	commit, again := c.table.Commit, c.rewindable == nil || c.rewindable()
	if again {
		commit = c.table.CommitCurrent
		if c.tally.Rejected > 0 { // what was refused by an older schema may fit the newest
			if err := c.outdatedRejects(ctx); err != nil {
				return nil, err
			}
		}
	}
	if c.truncate {
		commit = c.table.Truncate
	}
	if err := c.dead.Flush(ctx, c.progress()); err != nil {
		return nil, err
	}
	snap, err := commit(ctx, c.progress())
	if errors.Is(err, engine.ErrNewSchema) {
		s := c.table.NewSchema()
		if s == nil { // a unit behind these rows had the table follow before they were published
			s = c.table.Schema()
		}
		return nil, &outdated{s, c.tally.Records}
	}
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	return snap, nil
}

// outdatedRejects looks for a newer schema, by which refused records are decoded again before they go to the dead letters.
func (c *committer) outdatedRejects(ctx context.Context) error {
	s, err := c.table.LookForSchema(ctx)
	if err != nil {
		return fmt.Errorf("before dead letters are written: %w", err)
	}
	if s == nil {
		s = c.table.Schema()
	}
	if !c.table.Holds(c.first, s) {
		return &outdated{s, c.tally.Records}
	}
	return nil
}

// add sums the counts and keeps the newest of the rest.
func (c *Committed) add(o Committed) {
	c.Records += o.Records
	c.Rows += o.Rows
	c.Bytes += o.Bytes
	c.Rejected += o.Rejected
	c.Tombstones += o.Tombstones
	c.Lag = o.Lag
	if o.Snapshot != 0 {
		c.Snapshot = o.Snapshot
	}
}

// source reads records and emits units until ctx ends (then it returns nil), its input ends (nil), or it cannot go on.
type source func(ctx context.Context, out chan<- unit) error

// pump runs a source and the committer until the source ends or either fails. When ctx ends the source stops, and what
// it has emitted is still written and committed, within the stop timeout.
func pump(ctx context.Context, src source, c *committer) error {
	// One unit may wait while another is written: decoding and writing overlap, and memory stays bounded.
	units := make(chan unit, 1)
	srcCtx, stopSource := context.WithCancel(ctx)
	defer stopSource()
	work, release := graceful(ctx, c.limits.StopTimeout, c.env)
	defer release()

	c.stop = ctx.Done()
	c.refusals = newRefusals(c.limits.Pause, c.env.Now())
	var srcErr error // not to be read before units are closed
	c.gone = func() bool {
		return errors.Is(srcErr, ErrSourceChanged) || errors.Is(srcErr, ErrLogTruncated) || errors.Is(srcErr, ErrNoTopic)
	}
	go func() {
		defer close(units)
		srcErr = src(srcCtx, units)
	}()
	err := c.run(work, units)
	stopSource()
	for range units { // the channel is closed when the source has ended
	}
	if err != nil {
		return errors.Join(err, srcErr)
	}
	return srcErr
}

// graceful gives a context that ends a while after its parent.
func graceful(parent context.Context, after time.Duration, env Env) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	done := make(chan struct{})
	go func() {
		select {
		case <-parent.Done():
		case <-done:
			return
		}
		select {
		case <-env.After(after):
			cancel(fmt.Errorf("stopping took longer than the stop timeout of %s", after))
		case <-done:
		}
	}()
	return ctx, func() { close(done); cancel(nil) }
}

// batcher gathers records into units on the source's side.
type batcher struct {
	dec      decode.Decoder
	schema   *schema.Schema // the decoder's
	follower *follower
	place    place
	schemas  *schemaFetcher // nil: records have no schema id
	source   string         // of dead letters
	out      chan<- unit
	rejects  []Letter
	holes    []Letter // records of which rows of the batch have holes
	kept     int      // bytes of both
	urgent   bool
	pairs    bool // the two events of a changed key are kept in one unit
	moving   moving
	whole    *wholes // nil: transactions are not kept whole
	tally    Committed
}

// place is where a source is in its stream.
type place interface {
	// emitBefore emits what was decoded before the record that is being decoded, with the position before it, and waits
	// for the committer. It reports whether that was done before ctx ended.
	emitBefore(ctx context.Context) bool
}

// maxKept bounds the memory of rejected records that wait for the committer.
const maxKept = 8 << 20

// add decodes one record, or keeps it with the reason for the dead letters. A record whose schema is not known is decoded
// when it is, one that needs another schema of the table when the table has it; the error is that of waiting or of the change.
func (b *batcher) add(ctx context.Context, r *decode.Record) error {
	before := b.dec.Rows()
	err := b.dec.Decode(r)
	if missing, ok := err.(*decode.MissingSchema); ok { // neither error is ever wrapped
		before, err = b.await(ctx, r, missing)
		switch err.(type) {
		case nil, *decode.RowError, *decode.NeedSchema:
		default:
			return err
		}
	}
	if need, ok := err.(*decode.NeedSchema); ok {
		if before, err = b.evolve(ctx, r, need); err != nil && !errors.Is(err, decode.ErrRow) {
			return err
		}
	}
	rows := int64(b.dec.Rows() - before)
	b.tally.Records++
	b.tally.Bytes += int64(len(r.Key) + len(r.Value))
	b.tally.Rows += rows
	switch {
	case err != nil:
		l := newLetter(r, b.source, err)
		b.rejects = append(b.rejects, l)
		b.kept += l.bytes()
		b.tally.Rejected++
	case rows <= 0: // a truncate drops the rows before it
		b.tally.Tombstones++
	}
	if b.pairs {
		b.moving.saw(r, b.follower.env)
	}
	if b.dec.Rows() == 0 && b.dec.Full() { // a truncate ends its unit
		b.moving = moving{}
	}
	switch n := b.dec.Holes(); {
	case n > len(b.holes):
		l := newLetter(r, b.source, decode.ErrRow)
		b.holes = append(b.holes, l)
		b.kept += l.bytes()
	case n < len(b.holes):
		b.holes = b.holes[:n]
	}
	return nil
}

// before emits what was decoded before the record that is being decoded, which cannot wait, whatever was to be kept
// together with it. An error means that the record was not decoded and must not be passed.
func (b *batcher) before(ctx context.Context) error {
	b.moving = moving{}
	if b.empty() || b.place.emitBefore(ctx) {
		b.whole.again()
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("the rows before a record could not be handed over to the table")
}

// full reports whether the unit should be emitted even if that means to wait.
func (b *batcher) full() bool { return b.dec.Full() || b.kept >= maxKept }

func (b *batcher) empty() bool { return b.tally.Records == 0 }

// emit hands the unit over, and reports whether it did: with wait unset it does so only if the committer has room, and
// before it is full not for a moment while a row is between two keys. When ctx has ended nothing is emitted: a unit that found no room then
// is given up, and the position must not pass its records with a later one.
func (b *batcher) emit(ctx context.Context, wait bool, lag int64, advance func() func()) bool {
	if !wait && len(b.out) == cap(b.out) { // only this goroutine sends, so room that is there stays
		return false
	}
	if ctx.Err() != nil || !b.full() && b.moving.left(b.follower.env) > 0 {
		return false
	}
	b.moving = moving{}
	b.tally.Lag = lag
	u := unit{batch: b.dec.Take(), rejects: b.rejects, holes: b.holes, tally: b.tally, advance: advance(), urgent: b.urgent, inside: b.whole.isOpen(), continues: b.whole.begunBefore()}
	b.rejects, b.holes, b.kept, b.tally, b.urgent = nil, nil, 0, Committed{}, false
	select {
	case b.out <- u:
		return true
	case <-ctx.Done():
		return false
	}
}
