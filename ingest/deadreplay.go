package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// A replay decodes dead letters again and writes what has become right into the table they were meant for. Rows go into one
// table and letters leave another, in two commits, so a batch of letters goes like this:
//
//	the intent is put: a file with the batch's id and the letters that become rows   calve/replay/ID, in the table of dead letters
//	the rows are committed; the snapshot names the id                   calve.dead.batch
//	the letters are removed, those refused again get another attempt
//	the intent is deleted
//
// Both tables are opened for a job of their own, which fences a replay that was thought dead, and then a leftover intent
// tells all: if the job's last snapshot names its id, its letters are removed, else nothing of it was or will be written.
// Only if that snapshot has expired meanwhile is it unknown, and a person has to say (ErrReplayUnknown). What was said is
// done before the job begins anew, since the snapshot that this publishes would look like a proof that nothing was written.
const (
	replayJob     = "calve.dead-letters"
	kindReplay    = "dead-letters"
	propDeadBatch = "calve.dead.batch"
	intentDir     = "calve/replay"
)

// ErrReplayUnknown: a replay was killed between its two commits, and the snapshots that would tell whether the rows of its
// last batch were written have expired.
var ErrReplayUnknown = errors.New("it is not known any more whether a batch of dead letters was written")

// Bounds of a batch of a replay.
const (
	replayLetters = 5000
	replayBytes   = 16 << 20
	maxIntent     = 64 << 20
)

// Unknown says what is done with letters of which it is not known whether they were written.
type Unknown string

// What may be done with them.
const (
	UnknownFail  Unknown = ""      // nothing: the replay fails with ErrReplayUnknown
	UnknownWrite Unknown = "write" // decode and write them again: they may be in the table twice
	UnknownDrop  Unknown = "drop"  // remove them: they may be in no table
)

// ReplayConfig says what is replayed and how.
type ReplayConfig struct {
	// Decode says how records become rows; its Schema is taken from the table.
	Decode decode.Config
	// Registry has the schemas of records, of formats that need them: letters have the ids. Letters of such a format are
	// replayed for one topic at a time.
	Registry Registry
	// Where chooses letters, by a condition on their columns; "": all.
	Where string
	// Limit is the most letters to replay; 0: all.
	Limit   int64
	Unknown Unknown
	Events  Events
}

// ReplayResult counts letters.
type ReplayResult struct {
	Replayed  int64 `json:"replayed"`  // are rows now, and letters no more
	Rows      int64 `json:"rows"`      // made of them
	Refused   int64 `json:"refused"`   // once more
	Waiting   int64 `json:"waiting"`   // of records that their pipeline has not passed: it may yet read them itself
	Truncated int64 `json:"truncated"` // of which only the beginning was kept
	Recovered int64 `json:"recovered"` // written by a replay that was interrupted, and removed by this one
	Snapshot  int64 `json:"snapshot"`  // the last one published; 0: none
}

// Replay decodes dead letters again and writes what has become right. store and dead are the folders of the table and of
// its dead letters. Whenever it ends, also by a kill, every letter is a row or a letter; when it is called again it goes on.
//
// Rows are written as of now: in a table with a primary key they win over what came to their key since the record was
// refused, unless the table has a sequence.field. It writes beside the pipeline as another process would (README.md).
func Replay(ctx context.Context, store, dead storage.Store, cfg ReplayConfig, env Env) (res ReplayResult, err error) {
	if cfg.Decode.Format.Framed() && cfg.Registry == nil {
		return res, fmt.Errorf("%w: format %q needs a schema registry", ErrConfig, cfg.Decode.Format)
	}
	r := &replay{cfg: cfg, store: store, dead: dead, env: env, res: &res, jobs: map[jobSource]map[string]string{}, flushed: map[string]map[string]string{}, acked: make(chan struct{}, 1)}
	if err := r.open(ctx); err != nil {
		return res, errors.Join(err, r.close(ctx))
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if r.letters == nil { // there is no table of dead letters
		return res, nil
	}
	if err := r.positions(ctx); err != nil {
		return res, err
	}
	if r.schemas, err = newSchemaFetcher(&r.cfg.Decode, cfg.Registry, r.topic, env, cfg.Events); err != nil {
		return res, err
	}
	next, stop := iter.Pull2(ReadDeadLetters(ctx, dead, LetterQuery{Where: cfg.Where}, env))
	defer stop()
	r.next = next
	err = passes(ctx, r.table, r, cfg.Events, func(again bool) error { return r.pass(ctx, again) })
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return res, err
}

// replay is one run of Replay.
type replay struct {
	cfg         ReplayConfig
	store, dead storage.Store
	env         Env
	res         *ReplayResult
	table       *engine.Table
	letters     *engine.Table // nil: there is none
	next        func() (Letter, error, bool)
	jobs        map[jobSource]map[string]string // positions of the pipelines that have letters, from before these are read
	flushed     map[string]map[string]string    // by job: the positions that their last letters were written for
	taken       int64
	topic       string         // of the letters; of one of them if they have several
	schemas     *schemaFetcher // nil: records have no schema id

	// The source's goroutine:
	batch   batcher
	fetched []Letter // not committed, as far as the source knows
	emitted int      // of them
	ended   bool

	// The committer's goroutine:
	id     string   // of the batch that the next commit publishes
	done   []Letter // its letters
	again  map[letterKey]Letter
	failed error // after a commit of rows: nothing more may be committed

	acked     chan struct{} // letters are done; the committer sends and the source receives
	committed atomic.Int64  // of those in fetched
}

// jobSource is a pipeline and what its offsets count in.
type jobSource struct{ job, source string }

// letterKey is the key of a letter.
type letterKey struct {
	source, topic string
	partition     int32
	offset        int64
}

func (l *Letter) key() letterKey { return letterKey{l.Source, l.Topic, l.Partition, l.Offset} }

// intent is what a file in intentDir holds.
type intent struct {
	Batch   string        `json:"batch"`
	Letters []intentEntry `json:"letters"`
}

type intentEntry struct {
	Source    string    `json:"source"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"` // of the letter, so that a later one of the same record is another
}

// open opens both tables, fences other replays, and ends what an interrupted one has left.
func (r *replay) open(ctx context.Context) error {
	intents, err := r.intents(ctx)
	if err != nil {
		return err
	}
	settings := engine.Settings{Job: replayJob, Restart: len(intents) == 0}
	r.table, err = engine.Open(ctx, r.store, settings, r.env)
	if errors.Is(err, engine.ErrProgressLost) {
		if err := r.settleUnknown(ctx, intents, err); err != nil {
			return err
		}
		settings.Restart = true
		r.table, err = engine.Open(ctx, r.store, settings, r.env)
	}
	if err != nil {
		return err
	}
	if err := r.openLetters(ctx); err != nil || r.letters == nil {
		return err
	}
	if intents, err = r.intents(ctx); err != nil { // by now nobody else adds any that matter
		return err
	}
	last, known, err := r.table.LastProgress(ctx)
	if err != nil {
		return err
	}
	for _, in := range intents {
		if err := r.settle(ctx, in, known && last.Properties[propDeadBatch] == in.Batch); err != nil {
			return err
		}
	}
	return nil
}

// settleUnknown does what was said about batches of which it is not known whether they were written.
func (r *replay) settleUnknown(ctx context.Context, intents []intent, lost error) error {
	if r.cfg.Unknown == UnknownFail {
		n := 0
		for _, in := range intents {
			n += len(in.Letters)
		}
		return fmt.Errorf("%w: %d letters, named in %s: look whether their rows are there, then say what to do with them; %w",
			ErrReplayUnknown, n, r.dead.URL(intentDir), lost)
	}
	if err := r.openLetters(ctx); err != nil || r.letters == nil {
		return err
	}
	for _, in := range intents {
		if err := r.settle(ctx, in, r.cfg.Unknown == UnknownDrop); err != nil {
			return err
		}
	}
	return nil
}

// openLetters opens the table of dead letters, if it is there and not open.
func (r *replay) openLetters(ctx context.Context) error {
	if r.letters != nil {
		return nil
	}
	d := NewDeadLetters(r.dead, DeadLetterSettings{Engine: engine.Settings{Job: replayJob}}, r.env)
	err := d.open(ctx, false)
	r.letters = d.table
	return err
}

func (r *replay) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, t := range []*engine.Table{r.letters, r.table} {
		if t != nil {
			errs = append(errs, t.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// intents reads what interrupted replays have left.
func (r *replay) intents(ctx context.Context) (out []intent, err error) {
	for f, err := range r.dead.List(ctx, intentDir) {
		if errors.Is(err, storage.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.dead.URL(intentDir), err)
		}
		if f.Dir || !strings.HasSuffix(f.Name, ".json") {
			continue
		}
		data, err := storage.ReadAll(ctx, r.dead, f.Name, maxIntent)
		if errors.Is(err, storage.ErrNotFound) {
			continue // its replay has ended it
		}
		var in intent
		if err == nil {
			err = json.Unmarshal(data, &in)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.dead.URL(f.Name), err)
		}
		out = append(out, in)
	}
	return out, nil
}

func intentName(batch string) string { return intentDir + "/" + batch + ".json" }

// settle ends an interrupted batch: if its rows were written its letters go.
func (r *replay) settle(ctx context.Context, in intent, written bool) error {
	if written {
		times := map[letterKey]time.Time{}
		for _, e := range in.Letters {
			times[letterKey{e.Source, e.Topic, e.Partition, e.Offset}] = e.Time
		}
		rows := newLetterRows(r.letters.Schema())
		for l, err := range ReadDeadLetters(ctx, r.dead, LetterQuery{Bare: true}, r.env) {
			if err != nil {
				return err
			}
			if at, ok := times[l.key()]; ok && at.Equal(l.Time) {
				rows.add(&l, schema.Delete)
				r.res.Recovered++
			}
		}
		if err := r.publishLetters(ctx, rows, in.Batch); err != nil {
			return err
		}
	}
	return r.dead.Delete(ctx, intentName(in.Batch))
}

// publishLetters commits changes of the table of dead letters.
func (r *replay) publishLetters(ctx context.Context, rows *letterRows, batch string) error {
	if rows.n == 0 {
		return nil
	}
	if err := r.letters.Write(ctx, rows.take()); err != nil {
		return fmt.Errorf("write dead letters: %w", err)
	}
	if _, err := r.letters.Commit(ctx, Progress{Properties: map[string]string{PropKind: kindReplay, propDeadBatch: batch}}); err != nil {
		return fmt.Errorf("commit dead letters: %w", err)
	}
	return nil
}

// pass decodes letters from the last commit on.
func (r *replay) pass(ctx context.Context, again bool) error {
	cfg := r.cfg.Decode
	cfg.Schema = r.table.Schema()
	dec, err := decode.New(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	limits := Limits{CommitInterval: time.Hour}.withDefaults() // each batch is urgent
	follow := newFollower(r.table, cfg, r.env, r.cfg.Events, limits)
	r.batch = batcher{dec: dec, schema: cfg.Schema, follower: follow, place: r, schemas: r.schemas}
	r.fetched, r.emitted = r.fetched[r.committed.Swap(0):], 0
	select { // of the pass before
	case <-r.acked:
	default:
	}
	return pump(ctx, r.run, &committer{table: r.table, follower: follow, dead: r, env: r.env, events: r.cfg.Events, limits: limits, eager: again,
		progress: func() Progress {
			return Progress{Properties: map[string]string{PropKind: kindReplay, propDeadBatch: r.id}}
		},
		settled: func(c Committed) error { return r.published(ctx, c) },
	})
}

// run is the source's goroutine: it decodes a batch, hands it over and waits until it is done.
func (r *replay) run(ctx context.Context, out chan<- unit) error {
	r.batch.out = out
	for {
		for r.emitted < len(r.fetched) || int(r.committed.Load()) < len(r.fetched) {
			for i := r.emitted; i < len(r.fetched); i++ {
				rec := r.fetched[i].record()
				r.batch.source = r.fetched[i].Source
				if err := r.batch.add(ctx, &rec); err != nil {
					return stopped(ctx, err)
				}
			}
			r.batch.urgent = true
			if !r.batch.empty() && !r.batch.emit(ctx, true, -1, r.advance) {
				return nil
			}
			select {
			case <-r.acked:
			case <-ctx.Done():
				return nil
			}
		}
		r.fetched, r.emitted = nil, 0
		r.committed.Store(0)
		if err := r.fetch(); err != nil || len(r.fetched) == 0 {
			return err
		}
		if err := r.batch.follow(ctx, -1, r.advance); err != nil {
			return err
		}
	}
}

// emitBefore implements place. The record that is being decoded is counted when it has been.
func (r *replay) emitBefore(ctx context.Context) bool { return r.batch.emit(ctx, true, -1, r.advance) }

// advance tells the committer which letters a unit is made of.
func (r *replay) advance() func() {
	letters := r.fetched[r.emitted : r.emitted+int(r.batch.tally.Records)]
	r.emitted += len(letters)
	return func() {
		if len(r.done) == 0 {
			r.id = r.env.NewID()
		}
		r.done = append(r.done, letters...)
	}
}

// fetch reads the next batch of letters.
func (r *replay) fetch() error {
	for size := 0; !r.ended && len(r.fetched) < replayLetters && size < replayBytes; {
		if r.cfg.Limit > 0 && r.taken >= r.cfg.Limit {
			r.ended = true
			break
		}
		l, err, ok := r.next()
		if !ok {
			r.ended = true
			break
		}
		if err != nil {
			return err
		}
		switch {
		case !r.past(&l):
			r.res.Waiting++
		case l.Truncated:
			r.res.Truncated++
		default:
			r.fetched = append(r.fetched, l)
			r.taken++
			size += l.bytes()
		}
	}
	return nil
}

// positions notes which pipelines have letters, and then how far they have come.
func (r *replay) positions(ctx context.Context) error {
	for l, err := range ReadDeadLetters(ctx, r.dead, LetterQuery{Bare: true, Where: r.cfg.Where}, r.env) {
		if err != nil {
			return err
		}
		r.jobs[jobSource{l.Job, l.Source}] = nil
		if r.topic != "" && r.topic != l.Topic && r.cfg.Decode.Format.Framed() {
			return fmt.Errorf("%w: there are records of the topics %q and %q, whose schemas differ: choose one, as in topic = '%s'", ErrConfig, r.topic, l.Topic, l.Topic)
		}
		r.topic = l.Topic
	}
	asked := map[string]map[string]string{"": nil}
	for k := range r.jobs {
		props, ok := asked[k.job]
		if !ok {
			flushed, _, err := engine.ProgressOf(ctx, r.dead, k.job, r.env)
			if err != nil && !errors.Is(err, engine.ErrProgressLost) {
				return fmt.Errorf("how far job %q has refused records: %w", k.job, err)
			}
			r.flushed[k.job] = flushed.Properties
			p, _, err := engine.ProgressOf(ctx, r.store, k.job, r.env)
			if err != nil && !errors.Is(err, engine.ErrProgressLost) {
				return fmt.Errorf("how far job %q has come: %w", k.job, err)
			}
			props = p.Properties
			asked[k.job] = props
		}
		r.jobs[k] = props
	}
	return nil
}

// past reports whether the letter's pipeline has passed its record. If it has not, the process ended before it could, and
// the pipeline reads the record again, perhaps by now: it removes the letter then, which may have been read before. So
// what counts is a position from before the letters were read: those that it passes are there to stay. A letter of a
// pipeline or a source that had none at that time waits for the next replay.
func (r *replay) past(l *Letter) bool {
	if l.Job == "" {
		return true
	}
	props, known := r.jobs[jobSource{l.Job, l.Source}]
	if !known {
		return false
	}
	if props[PropKind] == kindKafka && props[PropTopicID] != l.Source {
		// Of a topic that is no more, unless the pipeline has just begun to read it: then its last letters are of it, and
		// its table does not know it yet.
		return r.flushed[l.Job][PropTopicID] != l.Source
	}
	return passed(props, l)
}

// Rewind implements DeadLetter: what was not committed is decoded again.
func (r *replay) Rewind(ctx context.Context, _ Progress) error {
	if r.id != "" { // nothing of it is written, or will be
		if err := r.dead.Delete(ctx, intentName(r.id)); err != nil {
			return err
		}
	}
	r.done, r.id, r.again = nil, "", map[letterKey]Letter{}
	return nil
}

// Add implements DeadLetter.
func (r *replay) Add(_ context.Context, l Letter) error {
	r.again[l.key()] = l
	return nil
}

// Flush implements DeadLetter: it puts the intent.
func (r *replay) Flush(ctx context.Context, next Progress) error {
	if r.failed != nil {
		return r.failed
	}
	in := intent{Batch: next.Properties[propDeadBatch]}
	for i := range r.done {
		l := &r.done[i]
		if _, refused := r.again[l.key()]; refused {
			continue
		}
		in.Letters = append(in.Letters, intentEntry{l.Source, l.Topic, l.Partition, l.Offset, l.Time})
	}
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if _, err = storage.PutOnce(ctx, r.dead, intentName(in.Batch), data); err != nil {
		return fmt.Errorf("note which dead letters are replayed: %w", err)
	}
	return nil
}

// published removes the letters of a batch whose rows are committed, or counts another attempt.
func (r *replay) published(ctx context.Context, c Committed) error {
	ctx = context.WithoutCancel(ctx)
	rows := newLetterRows(r.letters.Schema())
	refused := int64(0)
	for i := range r.done {
		l := &r.done[i]
		again, ok := r.again[l.key()]
		if !ok {
			rows.add(l, schema.Delete)
			continue
		}
		refused++
		l.Code, l.Reason, l.Attempt, l.Time = again.Code, again.Reason, l.Attempt+1, r.env.Now().UTC()
		rows.add(l, schema.UpdateAfter)
	}
	r.failed = r.publishLetters(ctx, rows, r.id)
	if r.failed == nil {
		r.failed = r.dead.Delete(ctx, intentName(r.id))
	}
	if r.failed != nil {
		return r.failed
	}
	r.res.Replayed += int64(len(r.done)) - refused
	r.res.Refused += refused
	r.res.Rows += c.Rows
	r.res.Snapshot = max(r.res.Snapshot, c.Snapshot)
	r.committed.Add(int64(len(r.done)))
	r.done, r.id, r.again = nil, "", map[letterKey]Letter{}
	select {
	case r.acked <- struct{}{}:
	default:
	}
	return nil
}
