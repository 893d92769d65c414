package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TailSpec is what a tail reads and how it waits.
type TailSpec struct {
	From   Start
	Until  Until
	Follow bool         // wait for new snapshots; else end at the newest one
	Wake   <-chan int64 // announces new snapshots in the writer's process; nil: only polling
	// Poll is the pause between two looks for the next snapshot; default 200 ms. When nothing comes it grows to a twentieth
	// of the time that nothing came, at most to five seconds.
	Poll time.Duration
	// Beat, with Follow: an Idle item comes when there is nothing to tell, and again each time that long; also while the stream
	// waits for SortMemory. 0: none.
	Beat time.Duration
	// Columns are named as in the schema at the start. A column that is renamed meanwhile is followed by its field id; one
	// that is dropped is left out from then on. Nil: all, new ones too as they come.
	Columns []string
	// Where, when not empty, is a condition on the columns of the schema at the start: what is told folds to the rows for
	// which it is true. A row that comes to fulfil it is an insert, one that ceases to a delete. In tables that tell no rows
	// before their changes (changelog producers none and input), a row that does not fulfil it is told as a -D of its key,
	// of which only the key counts, unless its key rules that out; a reader must bear deletes of what it does not have.
	Where string
	Share Share // which buckets; zero: all
	// Order is the order of the changes of one snapshot. A position in one order is not one in another.
	Order  Order
	sorted int64 // bytes of rows that are sorted at once; 0: sortedAtOnce
	// SortMemory, when not nil, is shared with other streams in the order of arrival, which wait for each other, also for those who
	// take the rows, when more than a dozen hold their parts; else the stream has some of its own, about 64 MiB.
	SortMemory *SortMemory
	OnGap      OnGap // what to do when changes to be told are gone
	// Consumer is the name of a consumer, a lease on the table: Paimon's file with the next snapshot to read, which expiry
	// by any engine leaves, with all after it. The tail begins where the consumer stands if it is registered, moves it when
	// it is asked for more after the closing item of a snapshot, at most once a second, and renews it otherwise. With a
	// Share its name has "." and the share behind it. Only a table that may be written to can have one.
	Consumer string
	// Acks, when not nil, has the consumer move only when its reader says so (Acks.Acknowledge), which may be elsewhere: then the
	// tail registers it, unless it begins with the rows of a whole snapshot or at a position, and renews it. One that is
	// registered is never moved by a tail, wherever that begins: what was told was not dealt with.
	Acks *Acks
	// IgnoreProgress has the consumer begin at From also when it is registered (`consumer.ignore-progress`).
	IgnoreProgress bool
	// BeforeImage has the changes of a table with a primary key, whose changelog producer is none or input, computed from the
	// rows before and after each snapshot: -U and +U, +I and -D are exactly what a scan of the one and of the other differ by,
	// and no update is told that changes nothing in the columns, or those of Where. Compactions and OVERWRITE snapshots are told where they
	// change rows. The stream is the same wherever it begins; it needs the snapshot before the one that it begins with, which
	// a Consumer of such a tail keeps too.
	BeforeImage bool
	// Lookups, when not nil, is what BeforeImage looks rows up with, instead of a cache of its own: one that makes local copies
	// of data files (LookupCacheConfig.Dir) spares it to decode pages. It is not closed.
	Lookups *LookupCache
	// Current has +I and +U tell the row that the key has from then on, and refuses tables whose stream does not: those that
	// merge rows, or may prefer an older one, unless they have a changelog or BeforeImage computes it.
	Current bool
}

// Changes are rows of one snapshot in the order in which they apply, or tell of something else (Event, Complete). Rows of
// different buckets have no order, unless TailSpec.Order says so.
type Changes struct {
	Snapshot int64
	Kind     manifest.CommitKind
	State    bool   // rows of a whole snapshot, told as inserts, because earlier changes are gone or were not asked for
	Bucket   string // folder of the bucket; "" for rows of several, in the order of their arrival
	Arrival  bool   // rows come in the order of their arrival
	// Schema is what the rows are in: the newest schema there was when the tail began, and from the first snapshot of a
	// newer one on, that. Rows of older files are read through it.
	Schema   *schema.Schema
	Rec      arrow.RecordBatch // nil in the closing item of a snapshot and in events; without rows in an idle item
	RowKinds []schema.RowKind  // nil: all inserts
	First    int64             // rows of the snapshot that were told before these
	Event    *Event            // not nil: there are no rows; this happened
	// Complete marks the closing item of the snapshot: all its changes were delivered. A reader that has dealt with them
	// resumes at snapshot Snapshot+1.
	Complete bool
	// Idle marks a heartbeat (TailSpec.Beat), without rows: all snapshots up to this one were told, and there is no newer one yet;
	// or, with Arrival, the stream waits within this one for memory to sort rows in (TailSpec.SortMemory).
	Idle bool
	Time time.Time // when the snapshot was made, by the writer's clock
}

// Event is something in a stream that is not a change of rows. One field is set.
type Event struct {
	// Gap: what it names was not told. All rows that were told before are void; those of a whole snapshot follow as state.
	Gap *GapError
	// Schema: from here on rows are in Changes.Schema; until here they were in this one.
	Schema *schema.Schema
}

// After is the position of a reader that has dealt with the first n rows of the item, or with all of a closing or
// idle item.
func (c *Changes) After(n int64) Position {
	if c.Complete || c.Idle && !c.Arrival {
		return Position{Snapshot: c.Snapshot + 1}
	}
	return Position{Snapshot: c.Snapshot, Rows: c.First + n, State: c.State, Arrival: c.Arrival}
}

// Tail delivers changes snapshot by snapshot. A step reads one snapshot file, one delta manifest list, the manifests it
// names and the data files those name; never a listing, never the table. Snapshots that change no rows (compactions)
// yield only their closing item.
//
// OVERWRITE snapshots yield only their closing item too, as in Paimon's streaming reads: what they replace is not told,
// unless the table has the option streaming-read-overwrite.
//
// The sequence ends at the newest snapshot or where Until says, or with Follow when ctx ends (no error then). When the
// next snapshot has been expired the error is a *GapError, which matches manifest.ErrSnapshotExpired.
func (r *Reader) Tail(ctx context.Context, spec TailSpec) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		l := &lens{}
		if err := l.open(ctx, r, spec); err != nil {
			yield(Changes{}, err)
			return
		}
		r.tailThrough(ctx, l, spec)(yield)
	}
}

// tailThrough is Tail from a schema on.
func (r *Reader) tailThrough(ctx context.Context, l *lens, spec TailSpec) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		defer func() { _ = l.images.close() }() // of files that were only read
		t := &tail{r: r, l: l, spec: spec, give: yield, until: spec.Until}
		err := t.run(ctx)
		if t.unstream != nil {
			t.unstream()
		}
		left := t.left // whoever took the rows will take no more
		if lerr := t.lease.close(ctx, false); lerr != nil && !left {
			if errors.Is(err, errEnd) {
				err = nil
			}
			err = errors.Join(err, fmt.Errorf("the position of the reader could not be kept: %w", lerr))
			yield(Changes{}, err)
			return
		}
		stopped := spec.Follow && ctx.Err() != nil
		if !errors.Is(err, errEnd) && !stopped && !left {
			yield(Changes{}, err)
		}
	}
}

// errEnd ends a tail without an error.
var errEnd = errors.New("end of the change stream")

// tail is one reader of the stream.
type tail struct {
	r     *Reader
	l     *lens
	spec  TailSpec
	give  func(Changes, error) bool
	left  bool   // give has said that it wants no more
	lease *lease // nil: no consumer
	// unstream, when not nil, tells Acks that the stream has ended.
	unstream func()
	// awaited: the snapshot that it waits for can come, as far as is known.
	awaited bool
	until   Until // where Latest has become a snapshot

	logged bool // the last one was a long-lived changelog

	failed     error     // what went wrong while rows were told
	skip, told int64     // rows of the present snapshot: those not to be told again, those read
	last       time.Time // when the last snapshot that was dealt with was made
}

// origin is where a tail begins.
type origin struct {
	next  int64              // the changes of this snapshot and of all later ones
	state *manifest.Snapshot // not nil: after its rows
}

// run tells everything. It never returns nil.
func (t *tail) run(ctx context.Context) error {
	if t.until.Latest {
		s, err := t.r.meta.Latest(ctx)
		if errors.Is(err, manifest.ErrNoSnapshot) {
			return errEnd
		}
		if err != nil {
			return err
		}
		t.until = Until{Snapshot: s.ID}
	}
	o, err := t.origin(ctx)
	if err == nil {
		err = t.beforeEnd(o)
	}
	for {
		if err == nil {
			err = t.from(ctx, o)
		}
		gap, ok := errors.AsType[*GapError](err)
		if !ok || t.spec.OnGap != Rescan || gap.Latest == 0 {
			return err
		}
		if o, err = t.rescan(ctx, gap); err == error(gap) {
			return gap
		}
	}
}

// within refuses to wait for snapshots beyond the next one: who asks for them has seen another table, or this one before it
// was rolled back.
func (t *tail) within(ctx context.Context, next int64) error {
	if t.awaited || next <= 1 {
		return nil
	}
	t.awaited = true
	newest := int64(0)
	switch s, err := t.r.meta.Latest(ctx); {
	case err == nil:
		newest = s.ID
	case !errors.Is(err, manifest.ErrNoSnapshot):
		return err
	}
	if next > newest+1 {
		return fmt.Errorf("%w: the stream is to go on at snapshot %d, and the newest one is %d: the table was rolled back or made anew since; begin with --from full, or reset the consumer", ErrQuery, next, newest)
	}
	return nil
}

// origin finds where to begin.
func (t *tail) origin(ctx context.Context) (origin, error) {
	meta, from := t.r.meta, t.spec.From
	if id := t.consumer(); id != "" && !t.spec.IgnoreProgress {
		next, err := meta.Consumer(ctx, id)
		if !errors.Is(err, manifest.ErrNoConsumer) {
			return origin{next: next}, err
		}
	}
	switch from.Mode {
	case FromSnapshot:
		return origin{next: from.Snapshot}, nil
	case FromPosition:
		if t.skip = from.At.Rows; t.skip > 0 && !from.At.State && from.At.Arrival != (t.spec.Order == Arrival) {
			return origin{}, fmt.Errorf("%w: position %s is of a stream in another order: go on with the order it was told in, or begin with a snapshot", ErrQuery, from.At)
		}
		if !from.At.State {
			return origin{next: from.At.Snapshot}, nil
		}
		s, err := meta.Snapshot(ctx, from.At.Snapshot)
		if err != nil {
			return origin{}, t.gapOr(ctx, from.At.Snapshot, err)
		}
		return origin{next: s.ID + 1, state: s}, nil
	case FromTag:
		tag, err := meta.Tag(ctx, from.Tag)
		if err != nil {
			return origin{}, err
		}
		return origin{next: tag.Snapshot.ID + 1, state: tag.Snapshot}, nil
	case FromTime:
		since := meta.ToldSince
		if t.l.images != nil {
			since = meta.SnapshotSince
		}
		s, err := since(ctx, from.Time)
		if err == nil && s != nil {
			return t.since(ctx, s)
		}
		if err != nil && !errors.Is(err, manifest.ErrNoSnapshot) {
			return origin{}, err
		}
		from.Mode = Latest // nothing as young yet: what comes next will be
	case Earliest:
		s, err := meta.Earliest(ctx)
		if err == nil && s.ID > 1 && t.l.images == nil {
			if _, lerr := meta.LongLived(ctx, 1); !errors.Is(lerr, storage.ErrNotFound) {
				return origin{next: 1}, lerr
			}
		}
		if errors.Is(err, manifest.ErrNoSnapshot) || err == nil && s.ID == 1 {
			return origin{next: 1}, nil
		}
		if err != nil {
			return origin{}, err
		}
		return origin{next: s.ID + 1, state: s}, nil
	}
	if from.Mode == Full {
		s, err := t.newest(ctx)
		if errors.Is(err, manifest.ErrNoSnapshot) {
			return origin{next: 1}, nil
		}
		if err != nil {
			return origin{}, err
		}
		return origin{next: s.ID + 1, state: s}, nil
	}
	s, err := meta.Latest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return origin{next: 1}, nil
	}
	if err != nil {
		return origin{}, err
	}
	return origin{next: s.ID + 1}, nil
}

// newest is the newest snapshot that the stream may tell.
func (t *tail) newest(ctx context.Context) (*manifest.Snapshot, error) {
	s, err := t.r.meta.Latest(ctx)
	if err == nil && t.until.Snapshot > 0 && t.until.Snapshot < s.ID {
		s, err = t.r.numbered(ctx, t.until.Snapshot)
	}
	if err == nil && t.late(s) {
		s, err = t.r.meta.SnapshotAt(ctx, t.until.Time)
	}
	return s, err
}

// late reports whether a snapshot was made after the time at which the stream ends.
func (t *tail) late(s *manifest.Snapshot) bool {
	return !t.until.Time.IsZero() && s.TimeMillis > t.until.Time.UnixMilli()
}

// beforeEnd refuses to begin with rows that are of later than the end.
func (t *tail) beforeEnd(o origin) error {
	if s := o.state; s != nil && (t.until.Snapshot > 0 && t.until.Snapshot < s.ID || t.late(s)) {
		return fmt.Errorf("%w: the stream is to end before snapshot %d, with whose rows it begins", ErrQuery, s.ID)
	}
	return nil
}

// since begins with the first snapshot that is left of those since a time; if the one before it has expired, more of them may
// have.
func (t *tail) since(ctx context.Context, first *manifest.Snapshot) (origin, error) {
	o := origin{next: first.ID}
	if first.ID == 1 {
		return o, nil
	}
	if _, err := t.read(ctx, first.ID-1); errors.Is(err, manifest.ErrSnapshotExpired) {
		return o, t.gapOr(ctx, first.ID-1, err)
	} else if err != nil {
		return o, err
	}
	return o, nil
}

// rescan tells the gap and begins anew with the newest snapshot.
func (t *tail) rescan(ctx context.Context, gap *GapError) (origin, error) {
	s, err := t.newest(ctx)
	if errors.Is(err, manifest.ErrSnapshotExpired) || errors.Is(err, manifest.ErrNotThatOld) {
		return origin{}, gap // its end is gone, too
	}
	if err != nil {
		return origin{}, err
	}
	t.skip, t.told = 0, 0
	if t.l.screen != nil {
		t.l.screen.held = nil
	}
	c := changesOf(s, t.l.view)
	c.State, c.Event = true, &Event{Gap: gap}
	if !t.pass(c) {
		return origin{}, errEnd
	}
	return origin{next: s.ID + 1, state: s}, nil
}

// consumer is the name of the consumer, "" if there is none.
func (t *tail) consumer() string { return t.spec.Share.Consumer(t.spec.Consumer) }

// register takes the consumer: from now on expiry waits for it. hold is a lease of what it does not keep before its reader has
// registered it itself; nil: there is none.
func (t *tail) register(ctx context.Context, next int64, hold *lease) (err error) {
	back := int64(0)
	if t.l.images != nil {
		back = 1 // where the rows before the changes are
	}
	if t.spec.Acks != nil {
		t.lease, err = t.r.takeAcked(ctx, t.spec.Acks, t.consumer(), next, back, t.l.opts.ConsumerExpiration, hold, t.spec.From.Mode == FromPosition)
		return err
	}
	t.lease, err = t.r.takeLease(ctx, t.consumer(), next, back, t.l.opts.ConsumerExpiration)
	return err
}

// begin tells the rows that an origin begins with. A consumer is registered, or moved, only when all of them were taken:
// its file cannot say that some are still to come, and a reader that dies before begins anew. A lease of its own keeps the
// changes after them until then.
func (t *tail) begin(ctx context.Context, o origin) (err error) {
	if t.consumer() != "" {
		l, lerr := t.r.takeLease(ctx, t.r.LeaseID(), o.state.ID, 0, t.l.opts.ConsumerExpiration)
		if lerr != nil {
			return lerr
		}
		// Registered first, the consumer itself keeps them from then on.
		defer func() {
			if err == nil && t.lease == nil && t.spec.Acks != nil {
				if err = t.register(ctx, o.next, l); err == nil {
					return
				}
			}
			if err == nil && t.lease == nil {
				err = t.register(ctx, o.next, nil)
			}
			err = errors.Join(err, l.close(ctx, true))
		}()
	}
	if err := t.state(ctx, o.state); err != nil {
		return t.gapOr(ctx, o.state.ID, err)
	}
	return nil
}

// read reads what tells the changes of a snapshot. Rows before changes are in the snapshot before, so that they cannot be
// computed of a long-lived changelog.
func (t *tail) read(ctx context.Context, id int64) (*manifest.Snapshot, error) {
	if t.l.images != nil {
		return t.r.meta.Snapshot(ctx, id)
	}
	if t.logged { // so may be the next
		if c, err := t.r.meta.LongLived(ctx, id); !errors.Is(err, storage.ErrNotFound) {
			return c, err
		}
		t.logged = false
	}
	s, err := t.r.meta.Snapshot(ctx, id)
	if errors.Is(err, manifest.ErrSnapshotExpired) {
		if s, err = t.r.meta.Told(ctx, id); err == nil {
			t.logged = true
		}
	}
	return s, err
}

// gapOr turns the error of reading a snapshot into a *GapError if its changes are gone.
func (t *tail) gapOr(ctx context.Context, id int64, err error) error {
	return t.r.gapOr(ctx, id, t.last, t.l.images == nil, err)
}

// from tells everything from an origin on.
func (t *tail) from(ctx context.Context, o origin) error {
	if t.consumer() != "" && t.spec.Acks != nil && t.unstream == nil { // now its reader can have something to acknowledge
		t.unstream = t.spec.Acks.stream(t.r, t.consumer())
	}
	if o.state != nil {
		if err := t.begin(ctx, o); err != nil {
			return err
		}
	}
	if t.consumer() != "" && t.lease == nil {
		if err := t.register(ctx, o.next, nil); err != nil {
			return err
		}
	}
	t.lease.moved(o.next)
	for next := o.next; ; next++ {
		if t.until.Snapshot > 0 && next > t.until.Snapshot {
			return errEnd
		}
		snap, err := t.next(ctx, next)
		if err == nil && t.late(snap) {
			return errEnd
		}
		if err == nil {
			err = t.step(ctx, snap)
		}
		if err != nil && (errors.Is(err, errEnd) || ctx.Err() != nil) {
			return err
		}
		if err != nil {
			return t.gapOr(ctx, next, err)
		}
		t.last, t.awaited = time.UnixMilli(snap.TimeMillis), true
		t.lease.moved(next + 1)
	}
}

// The longest pause between two looks, how many of them are for the snapshot itself before one is for whether it can still
// come, and after what time without anything new a tail gives back what it holds.
const (
	longestPoll = 5 * time.Second
	looksPerGap = 16
	restAfter   = 10 * time.Second
)

// next reads a snapshot, waiting for it with Follow. A look costs one request.
func (t *tail) next(ctx context.Context, id int64) (*manifest.Snapshot, error) {
	meta := t.r.meta
	s, err := t.read(ctx, id)
	wake, poll := t.spec.Wake, cmp.Or(max(0, t.spec.Poll), 200*time.Millisecond)
	since, beat, resting := t.r.env.Now(), time.Time{}, false
	for looks := 1; ; looks++ {
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, storage.ErrNotFound) || errors.Is(err, manifest.ErrSnapshotExpired) {
			return nil, err
		}
		if err := t.within(ctx, id); err != nil {
			return nil, err
		}
		if !t.spec.Follow {
			return nil, errEnd
		}
		now := t.r.env.Now()
		if !resting && now.Sub(since) >= restAfter {
			resting = true
			t.l.images.rest()
		}
		pause := max(poll, min(longestPoll, now.Sub(since)/20))
		if b := t.spec.Beat; b > 0 {
			if pause = min(pause, b); now.Sub(beat) >= b {
				beat = now
				if !t.pass(Changes{Snapshot: id - 1, Schema: t.l.schema, Rec: t.l.nothing(), Time: t.last, Idle: true}) {
					return nil, errEnd
				}
			}
		}
		woken := false
		// A wake-up that came before the failed read left its value in the channel, so none is missed.
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case _, woken = <-wake:
			if !woken {
				wake = nil // the writer is gone; go on by polling
			}
		case <-t.r.env.After(pause):
		}
		if woken || looks%looksPerGap != 0 {
			s, err = meta.Look(ctx, id)
			continue
		}
		// While the snapshot before it is there, it has not come and gone.
		if _, berr := meta.Look(ctx, id-1); berr != nil {
			t.awaited = false // or the table was rolled back
			s, err = t.read(ctx, id)
		}
	}
}

// pass gives an item to whoever takes the rows.
func (t *tail) pass(c Changes) bool {
	t.left = t.left || !t.give(c, nil)
	return !t.left
}

// place gives rows that are to be told, but for those that were told before the stream was resumed.
func (t *tail) place(c Changes, _ error) bool {
	n := c.Rec.NumRows()
	c.First = t.told
	t.told += n
	if drop := t.skip - c.First; drop >= n {
		return true
	} else if drop > 0 {
		c.First += drop
		if c.Rec = c.Rec.NewSlice(drop, n); c.RowKinds != nil {
			c.RowKinds = c.RowKinds[drop:]
		}
	}
	return t.pass(c)
}

// tell gives what the condition leaves of rows.
func (t *tail) tell(c Changes, _ error) bool {
	if t.l.screen == nil {
		return t.place(c, nil)
	}
	out, err := t.l.screen.apply(c)
	if err != nil {
		t.failed = err
		return false
	}
	return t.all(out)
}

func (t *tail) all(some []Changes) bool {
	for _, c := range some {
		if !t.place(c, nil) {
			return false
		}
	}
	return true
}

// close gives the closing item of a snapshot.
func (t *tail) close(base Changes) error {
	if t.l.screen != nil && !t.all(t.l.screen.flush()) {
		return errEnd
	}
	if t.skip > t.told {
		return fmt.Errorf("%w: the stream is to go on behind row %d of snapshot %d, of which it tells %d: its position is of a stream with another condition, share, order or table", ErrQuery, t.skip, base.Snapshot, t.told)
	}
	base.Bucket, base.Complete = "", true
	base.First, t.told, t.skip = t.told, 0, 0
	if !t.pass(base) {
		return errEnd
	}
	return nil
}
