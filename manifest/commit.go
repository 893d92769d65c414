package manifest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Commit is one change of a table.
type Commit struct {
	Kind CommitKind
	// User and Identifier name the change: the user is stable for a writing job, the identifier grows with each of its
	// commits. math.MaxInt64 is the identifier of batch jobs and names nothing.
	User       string
	Identifier int64
	// Entries are the files added and removed. A removal repeats the whole description of the file (paimon-format §5.2).
	// The files must be durable already.
	Entries []Entry
	// Changelog are the changelog files of the change, durable already; all are added. They are told by the snapshot that
	// publishes Entries and belong to no later one.
	Changelog []Entry
	// Index are index files that come with the change, durable already. Each replaces the one of its partition, bucket
	// and type; all others stay (`manifest.IndexManifestFileHandler`, paimon-format §5.3).
	Index      []IndexEntry
	Properties map[string]string
	Watermark  *int64
	// SchemaID of the snapshot; nil: the latest at the time of the commit, which costs one look for a newer schema,
	// done while the manifests are written.
	SchemaID *int64
	// CheckSchema is asked about the newest schema of the table, which was looked up after Commit was called and before the
	// snapshot is put, each time there is something to put. An error ends the commit and is returned. Nil: any will do. It
	// is not asked when SchemaID is given.
	CheckSchema func(ctx context.Context, newest *schema.Schema) error
	// Check is the caller's own rule, asked about each snapshot that the commit is about to build on (nil: the table
	// is empty). An error ends the commit and is returned.
	Check func(ctx context.Context, latest *Snapshot) error
	// Lost is called each time that another writer has taken the number of the snapshot; the commit is then tried again
	// on top of what the other has published. It may be nil.
	Lost func()
}

const (
	// maxFailures is how many times in a row the storage may fail before a commit gives up. Lost races do not count:
	// each is somebody's success.
	maxFailures = 10
	minWait     = 10 * time.Millisecond
	maxWait     = 10 * time.Second       // after failures
	maxRaceWait = 200 * time.Millisecond // after lost races
)

// head is the newest snapshot that commits build on.
type head struct {
	snap  *Snapshot // nil: the table is empty
	metas []Meta    // its manifests in fold order
	index *index    // nil until a commit removes files
}

// Commit publishes a change as the next snapshot (paimon-format §2) and returns it. The outcome is one of three:
//
//   - nil: the snapshot is there, durable, exactly once.
//   - an error that is storage.ErrUnknown: the snapshot may be there or may still appear. Nothing was deleted. Repeat
//     the same Commit (same user, identifier and kind) on this Table to settle it, or open the table again and look
//     with LastOfUser.
//   - any other error: the snapshot is not there and will not appear. ErrConflict says that the change no longer fits
//     the table. The metadata files of the attempt are deleted, the data files are the caller's.
//
// A lost race is retried on the new base, keeping the manifests that were written. A commit whose user, identifier and
// kind turn out to be there already returns that snapshot.
//
// With no foreign writer in between a commit writes its manifest, its two lists, the snapshot and the LATEST hint, and
// reads no metadata; manifests that are merged on the way are read, see chooseMerge. What is removed is checked against
// an index of live files that costs one full read when it is first needed.
func (t *Table) Commit(ctx context.Context, c Commit) (*Snapshot, error) {
	if err := acquire(ctx, t.commits); err != nil {
		return nil, fmt.Errorf("commit to %s: %w", t.store.URL(""), err)
	}
	defer release(t.commits)
	p, err := t.prepare(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("commit to %s: %w", t.store.URL(""), err)
	}
	s, err := t.run(ctx, p)
	if err != nil {
		t.giveUp(ctx, p)
		return nil, fmt.Errorf("commit %d of %q to %s: %w", c.Identifier, c.User, t.store.URL(""), err)
	}
	p.cleanUp(ctx, t)
	t.undecided = nil
	t.saw(s)
	return s, nil
}

// errLost: somebody else took the snapshot id.
var errLost = errors.New("lost the race for the next snapshot")

// run tries until the outcome is certain or the storage has failed too often.
func (t *Table) run(ctx context.Context, p *pending) (*Snapshot, error) {
	failWait := waits(maxWait)
	raceWait := waits(maxRaceWait)
	for failures := 0; ; {
		s, err := t.attempt(ctx, p)
		if err == nil {
			return s, nil
		}
		p.again = true
		wait := raceWait
		if !errors.Is(err, errLost) {
			failures++
			if final(err) || ctx.Err() != nil || failures == maxFailures {
				return nil, p.outcome(err)
			}
			wait = failWait
			t.env.Log.Warn("commit is tried again", "table", t.store.URL(""), "failures", failures, "error", err)
		} else {
			failures = 0
			failWait.Reset()
			if p.commit.Lost != nil {
				p.commit.Lost()
			}
		}
		if err := t.pause(ctx, wait.NextBackOff()); err != nil {
			return nil, p.outcome(err)
		}
	}
}

// waits gives growing waits without jitter; pause adds the jitter from the environment's randomness.
func waits(limit time.Duration) *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{InitialInterval: minWait, Multiplier: 2, MaxInterval: limit}
	b.Reset()
	return b
}

// pause waits up to 20 % longer than d, so that committers who collided do not collide again.
func (t *Table) pause(ctx context.Context, d time.Duration) error {
	if t.env.After == nil {
		return ctx.Err()
	}
	d += time.Duration(t.env.Rand() % uint64(d/5+1))
	select {
	case <-t.env.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refusal marks an error that no retry can cure.
type refusal struct{ error }

// Unwrap gives the refusal's reason.
func (r refusal) Unwrap() error { return r.error }

// final reports that trying again is pointless.
func final(err error) bool {
	var r refusal
	return errors.As(err, &r) || errors.Is(err, ErrConflict) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupported) ||
		errors.Is(err, storage.ErrBadName) || errors.Is(err, storage.ErrReadOnly) || errors.Is(err, storage.ErrUnsafe)
}

// outcome makes sure that the caller learns when the result is not known: a put is in doubt, whatever ended the commit.
func (p *pending) outcome(err error) error {
	if p.doubt == nil || errors.Is(err, storage.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: snapshot %d may have been written: %w", storage.ErrUnknown, p.doubt.snap.ID, err)
}

// giveUp forgets what the failed commit may have made untrue. On an unknown outcome everything it wrote stays: a
// snapshot that appears later names it.
func (t *Table) giveUp(ctx context.Context, p *pending) {
	if p.doubt != nil {
		t.undecided, t.head = p.doubt.snap, nil
		return
	}
	p.cleanUp(ctx, t)
}

// attempt is one try. It ends with the snapshot, errLost, or what went wrong.
func (t *Table) attempt(ctx context.Context, p *pending) (*Snapshot, error) {
	if p.doubt != nil {
		return t.settle(ctx, p)
	}
	if err := t.refresh(ctx, p); err != nil {
		return nil, err
	}
	if s, err := t.alreadyDone(ctx, p); s != nil || err != nil {
		return s, err
	}
	change, err := t.judge(ctx, p)
	if errors.Is(err, ErrConflict) && !p.again {
		p.again = true // the head may be old, and the change made for what others have published since
		return t.attempt(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	next, err := t.write(ctx, p)
	if err != nil {
		return nil, err
	}
	p.doubt = next // from here on the snapshot may exist
	p.change = change
	return t.publish(ctx, p)
}

// publish does the atomic step for the snapshot in p.doubt.
func (t *Table) publish(ctx context.Context, p *pending) (*Snapshot, error) {
	d := p.doubt
	won, err := storage.PutOnce(ctx, t.store, snapshotName(d.snap.ID), d.data)
	switch {
	case errors.Is(err, storage.ErrUnknown):
		return nil, err // p.doubt stays: the next attempt settles it
	case err != nil:
		if !d.sent {
			p.doubt = nil // nothing was written, by the word of the store
		}
		return nil, err
	case !won:
		return nil, t.lost(ctx, p)
	}
	return t.won(ctx, p)
}

// settle finds out about a put whose outcome is not known. The name decides: while it is free, the put may still be on
// its way, so the very same bytes are put again; once it is taken, its content says who won.
func (t *Table) settle(ctx context.Context, p *pending) (*Snapshot, error) {
	d := p.doubt
	d.sent = true
	if d.base != nil {
		// If the base is gone, so may be the snapshot that took the id: putting it again could bring back an id that
		// was published and has expired.
		ok, err := t.exists(ctx, snapshotName(d.base.ID))
		if err != nil {
			return nil, err
		}
		if !ok {
			return t.won(ctx, p) // which looks at what was built upon this id
		}
	}
	return t.publish(ctx, p)
}

// lost cleans up after a race that is certainly lost and reports it.
func (t *Table) lost(ctx context.Context, p *pending) error {
	p.remove(ctx, t, p.doubt.snap.BaseManifestList)
	if p.index != nil {
		p.remove(ctx, t, p.index.file.name)
	}
	p.doubt = nil
	return errLost
}

// won makes the published snapshot the head, after looking that it is not an id whose first owner has expired.
func (t *Table) won(ctx context.Context, p *pending) (*Snapshot, error) {
	d := p.doubt
	genuine, err := t.confirm(ctx, d, p.commit.Entries)
	if err != nil {
		return nil, err
	}
	if !genuine {
		t.head = nil
		return nil, t.lost(ctx, p)
	}
	index := t.head.indexAfter(d, p.change)
	t.head = &head{snap: d.snap, metas: slices.Concat(d.base0, p.deltaMetas()), index: index}
	p.published(d.snap)
	if p.index != nil {
		t.indexes = p.index.list
	}
	p.doubt = nil
	return d.snap, nil
}

// indexAfter moves the index on by a commit's own change, which was checked before.
func (h *head) indexAfter(d *doubtful, c *change) *index {
	if h == nil || h.index == nil || h.snap != d.base || c == nil {
		return nil
	}
	if h.index.try(*c) != nil {
		return nil
	}
	return h.index
}

// prepare checks a commit and gives its files names.
func (t *Table) prepare(ctx context.Context, c Commit) (*pending, error) {
	if err := t.mainOnly(); err != nil {
		return nil, err
	}
	if c.Kind != Append && c.Kind != Compact && c.Kind != Overwrite {
		return nil, fmt.Errorf("kind %q cannot be committed", c.Kind)
	}
	if c.User == "" {
		return nil, errors.New("the commit has no user")
	}
	seen := make(map[fileID]struct{}, len(c.Entries))
	for i := range c.Entries {
		e := &c.Entries[i]
		if err := checkFileName(e.File.Name); err != nil {
			return nil, err
		}
		if e.Kind != Add && (e.Kind != Remove || c.Kind == Append) {
			return nil, fmt.Errorf("file %s: an entry of kind %d does not belong into a commit of kind %s", e.File.Name, e.Kind, c.Kind)
		}
		id := idOf(e)
		if _, twice := seen[id]; twice {
			return nil, fmt.Errorf("file %s is named by two entries", id)
		}
		seen[id] = struct{}{}
	}
	if err := checkChangelog(c.Changelog, seen); err != nil {
		return nil, err
	}
	if err := checkIndex(c.Index); err != nil {
		return nil, err
	}
	s, err := t.anySchema(ctx)
	if err != nil {
		return nil, err
	}
	options, err := s.ParseOptions()
	if err != nil {
		return nil, err
	}
	p := &pending{commit: c, schema: s, options: options, id: t.env.NewID()}
	// Removals first: within one commit a file that moves to another level is never there twice.
	p.commit.Entries = slices.Clone(c.Entries)
	slices.SortStableFunc(p.commit.Entries, func(a, b Entry) int { return int(b.Kind) - int(a.Kind) })
	if err := p.encodeChangelog(); err != nil {
		return nil, err
	}
	if options.RowTracking {
		p.tracked = &tracked{entries: p.commit.Entries}
		return p, nil // the entries depend on the snapshot before
	}
	return p, p.encodeDelta()
}

// identified reports that a snapshot is this very change, made by an earlier try of the caller. The identifier of
// batch jobs names nothing.
func (c *Commit) identified(s *Snapshot) bool {
	return c.Identifier != math.MaxInt64 && s.CommitUser == c.User && s.CommitIdentifier == c.Identifier && s.CommitKind == c.Kind
}
