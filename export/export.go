// Package export shows a Paimon table as an Iceberg v2 table without copying data: the table's own data files are
// named by Iceberg metadata that lives beside them. It also serves that metadata through the read side of Iceberg's
// REST catalog protocol.
//
// What is shown is the state as of the last compaction into the highest level (append tables: every file), because
// only there is each row once and none deleted. Each change of that set of files becomes one Iceberg snapshot, whose
// id is the id of the Paimon snapshot it shows. A change costs what changed: manifests without a removed file are
// named again, not written again (pack.go), and Paimon's own deltas say what changed (change.go).
//
// Publication is one conditional put of one metadata file (target.go). A crash before it leaves files that nothing
// names, which a later Publish removes; a crash after it leaves a hint that lags and files that nothing names any more.
package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/iceberg-go"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Env is what the exporter takes from the world outside. Now and NewID are required.
type Env struct {
	Now   func() time.Time                     // wall clock: ages of orphans, times of tables without a snapshot
	NewID func() string                        // a new UUID; the id of the Iceberg table and file names
	After func(time.Duration) <-chan time.Time // timers of Run; nil: Run tries a failed Publish again at the next wake-up only
	Log   *slog.Logger                         // nil: silent
}

// Settings are the numbers a user tunes. The zero value of each field means its default.
type Settings struct {
	// MaxSnapshots bounds the Iceberg snapshots that stay readable by time travel. Default 100. Those whose files
	// Paimon has expired go earlier.
	MaxSnapshots int
	// MaxMetadata is the number of former metadata files that are kept beside the current one. Default 20.
	MaxMetadata int
	// OrphanAge is the age at which a metadata file that nothing names is removed. It must exceed the time that any
	// Publish takes. Default 1 hour.
	OrphanAge time.Duration
	// RetryAfter is the time after which Run tries a failed Publish again, doubled up to 32 times with each failure in
	// a row. Default 1 second.
	RetryAfter time.Duration
	// Interval is how long Run rests after a Publish that added or removed files, so that a table that is compacted all the
	// time does not have a version for each compaction. What is left when wake is closed is published at once, and so is
	// what there is when the shown snapshot has expired, as its files are gone then. Default 0.
	Interval time.Duration
	// Published is called by Run after each Publish, also those that changed nothing or failed. It may be nil.
	Published func(Result, error)
	Env       Env
}

func (s Settings) withDefaults() Settings {
	if s.MaxSnapshots <= 0 {
		s.MaxSnapshots = 100
	}
	if s.MaxMetadata <= 0 {
		s.MaxMetadata = 20
	}
	if s.OrphanAge <= 0 {
		s.OrphanAge = time.Hour
	}
	if s.RetryAfter <= 0 {
		s.RetryAfter = time.Second
	}
	if s.Published == nil {
		s.Published = func(Result, error) {}
	}
	if s.Env.Log == nil {
		s.Env.Log = slog.New(slog.DiscardHandler)
	}
	return s
}

// Result tells what the exported table is after a Publish.
type Result struct {
	IcebergSnapshot  int64  // the current Iceberg snapshot, 0 for none
	PaimonSnapshot   int64  // the Paimon snapshot whose exported files these are, 0 for none
	Published        bool   // this Publish made a new version
	Files            int    // data files of the Iceberg table
	Rows             int64  // rows in them
	Added, Removed   int    // data files, by this Publish
	MetadataLocation string // of the current version
}

// Exporter publishes one table. Its methods are safe for concurrent use; Publish calls are done one after the other.
type Exporter struct {
	src      Source
	target   Target
	set      Settings
	files    files
	location string // of the table

	busy    chan struct{} // held by Publish
	state   *state        // what the last Publish left; nil: to be read
	rebuild bool          // a manifest turned out to be damaged: write them all anew
	swept   bool          // orphans of former processes were looked for
}

// New makes an exporter of the table into the target. Nothing is read or written before the first Publish.
func New(t Source, target Target, set Settings) *Exporter {
	store := t.Store()
	return &Exporter{
		src: t, target: target, set: set.withDefaults(), files: newFiles(store),
		location: strings.TrimSuffix(store.URL(""), "/"), busy: make(chan struct{}, 1),
	}
}

// state is the published version and what is known about its files.
type state struct {
	ref  Ref
	meta *tableMetadata         // nil: never exported
	list []iceberg.ManifestFile // manifests of the current snapshot
	at   map[string]string      // location of each data file's manifest, by the data file's location; nil: not read yet
	seen int64                  // newest Paimon snapshot known to have the exported files, 0: none
	mark string                 // commitOf that snapshot
	lost bool                   // the manifests are unreadable, or the table was moved: write them all anew
}

// attempts bounds how often Publish starts again because another exporter was faster.
const attempts = 5

// Publish makes the Iceberg table show the Paimon snapshot (0: the newest), unless it shows it or a newer one already.
// It is idempotent: after any error, a crash included, it may be called again.
func (e *Exporter) Publish(ctx context.Context, snapshotID int64) (Result, error) {
	select {
	case e.busy <- struct{}{}:
		defer func() { <-e.busy }()
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	var err error
	for range attempts {
		var r Result
		if r, err = e.publish(ctx, snapshotID); err == nil {
			return r, nil
		}
		again := errors.Is(err, ErrLost) || errors.Is(err, ErrDamaged) && e.rebuild && e.state != nil && !e.state.lost
		e.state = nil
		if !again {
			break
		}
	}
	return Result{}, fmt.Errorf("export %s: %w", e.location, err)
}

// publish is one attempt.
func (e *Exporter) publish(ctx context.Context, id int64) (Result, error) {
	if err := e.load(ctx); err != nil {
		return Result{}, err
	}
	p, err := e.plan(ctx, id)
	if err != nil {
		return Result{}, err
	}
	if p == nil || !p.needed {
		if p != nil && p.snap != nil {
			e.state.seen, e.state.mark = p.snap.ID, commitOf(p.snap)
		}
		return e.result(false, 0, 0), nil
	}
	if err := e.commit(ctx, p); err != nil {
		e.rebuild = e.rebuild || errors.Is(err, ErrDamaged)
		return Result{}, err
	}
	e.rebuild = false
	return e.result(true, len(p.change.added), len(p.change.removed)), nil
}

// load brings e.state up to the published version.
func (e *Exporter) load(ctx context.Context) error {
	ref, err := e.target.Current(ctx)
	if err != nil {
		return err
	}
	if e.state != nil && e.state.ref == ref {
		return nil
	}
	e.state = nil
	st := &state{ref: ref}
	if ref.Version == 0 {
		e.state = st
		return nil
	}
	data, err := e.target.Load(ctx, ref)
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrLost, err) // forgotten since Current saw it
	} else if err != nil {
		return err
	}
	if st.meta, err = parseMetadata(data, ref.MetadataLocation); err != nil {
		return err
	}
	st.seen, st.mark = st.meta.shown(), st.meta.Properties[PropCommit]
	if st.meta.Location != e.location {
		st.lost = true
		e.set.Env.Log.Info("the table was moved: its Iceberg metadata is written anew", "from", st.meta.Location, "to", e.location)
	} else if st.lost = e.rebuild; st.lost {
		st.at = map[string]string{}
	} else if cur := st.meta.current(); cur != nil {
		st.list, err = e.files.readList(ctx, cur.ManifestList)
		if err := e.tolerate(st, err); err != nil {
			return err
		}
	}
	e.state = st
	return nil
}

// tolerate turns damage of manifests into the decision to write them anew.
func (e *Exporter) tolerate(st *state, err error) error {
	if errors.Is(err, ErrDamaged) {
		e.set.Env.Log.Warn("Iceberg manifests are damaged: they are written anew", "table", e.location, "error", err)
		st.lost, st.list, st.at = true, nil, map[string]string{}
		return nil
	}
	return err
}

// result describes the current version.
func (e *Exporter) result(published bool, added, removed int) Result {
	r := Result{Published: published, Added: added, Removed: removed}
	st := e.state
	r.MetadataLocation, r.PaimonSnapshot = st.ref.MetadataLocation, st.seen
	if st.meta == nil || st.meta.CurrentSnapshotID == noSnapshot {
		return r
	}
	r.IcebergSnapshot = st.meta.CurrentSnapshotID
	for _, m := range st.list {
		r.Files += live(m)
		r.Rows += m.AddedRows() + m.ExistingRows()
	}
	return r
}

// lookAgain is after what time without a wake-up Run looks what there is: other processes expire snapshots that are shown, whose files
// are gone then, and who wakes it need not know.
const lookAgain = 10 * time.Minute

// Run publishes the newest snapshot now, after each wake-up and after ten minutes without one, until the context ends or
// wake is closed. Wake-ups that come during a Publish count as one. A failed Publish is tried again, at the latest at the
// next wake-up; Run itself fails only with the context's error.
func (e *Exporter) Run(ctx context.Context, wake <-chan int64) error {
	failures := 0
	for {
		r, err := e.Publish(ctx, 0)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e.set.Published(r, err)
		var retry <-chan time.Time
		if err == nil {
			failures = 0
			if r.Added+r.Removed > 0 {
				switch woken, ended := e.rest(ctx, wake, r.PaimonSnapshot); {
				case woken:
					continue
				case ended:
					return nil
				}
			}
			if e.set.Env.After != nil {
				retry = e.set.Env.After(lookAgain)
			}
		} else {
			e.set.Env.Log.Warn("export failed", "table", e.location, "error", err)
			if e.set.Env.After != nil {
				retry = e.set.Env.After(e.set.RetryAfter << min(failures, 5))
			}
			failures++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-wake:
			if !open {
				return nil
			}
		case <-retry:
		}
	}
}

// rest waits for the interval, or until its context or wake has ended or the snapshot that is shown has expired. woken says that
// there is something to publish by then.
func (e *Exporter) rest(ctx context.Context, wake <-chan int64, shown int64) (woken, ended bool) {
	left := e.set.Interval
	if left <= 0 || e.set.Env.After == nil {
		return false, false
	}
	var tick <-chan time.Time
	for {
		if tick == nil { // not longer than Run would wait without a wake-up
			step := min(left, lookAgain)
			left -= step
			tick = e.set.Env.After(step)
		}
		select {
		case <-ctx.Done():
			return woken, false
		case <-tick:
			if left <= 0 {
				return woken, false
			}
			tick = nil
		case _, open := <-wake:
			if !open {
				return woken, true
			}
			woken = true
		}
		if e.expired(ctx, shown) {
			return true, false
		}
	}
}

// expired reports whether a snapshot is older than all there are, also if that cannot be told: Publish will tell why.
func (e *Exporter) expired(ctx context.Context, id int64) bool {
	s, err := e.src.Earliest(ctx)
	return err != nil || s.ID > id
}

// newest resolves a snapshot id; nil: the table has no snapshot.
func (e *Exporter) newest(ctx context.Context, id int64) (*manifest.Snapshot, error) {
	if id > 0 {
		return e.src.Snapshot(ctx, id)
	}
	s, err := e.src.Latest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return nil, nil
	}
	return s, err
}

// schemaOf is the schema that a snapshot (nil: none) is read with.
func (e *Exporter) schemaOf(ctx context.Context, s *manifest.Snapshot) (*schema.Schema, error) {
	if s == nil {
		return e.src.LatestSchema(ctx)
	}
	return e.src.Schema(ctx, s.SchemaID)
}
