package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry"
	"github.com/calve-io/calve/internal/config"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// State is what a pipeline does at the moment.
type State string

// States of a pipeline.
const (
	Starting State = "starting"
	Running  State = "running"
	Waiting  State = "waiting" // failed, and will try again
	Failed   State = "failed"  // needs a person
	Paused   State = "paused"  // refuses too many records; goes on when the table has a new schema
	Stopped  State = "stopped"
	// Elsewhere: another process owns the table, where processes share them.
	Elsewhere State = "elsewhere"
)

// shared is what all pipelines of a process use.
type shared struct {
	compactor *engine.Compactor
	lookups   *reader.LookupCache // nil: none
	copyAll   bool
	budget    *engine.Budget
	hubs      *hubs
	registry  *registry.Client // nil: none
	opening   chan struct{}    // room for those who open their tables
	sketching chan struct{}    // room for those of a route who look for their columns
	streams   atomic.Int64     // begun so far
	origin    float64          // of their phases, as part of an interval
}

// pipeline runs one stream into one table, again and again until it is told to stop or needs a person.
type pipeline struct {
	cfg   config.Pipeline
	store storage.Store // the table's folder
	dead  storage.Store // that of the table of its dead letters
	env   engine.Env
	log   *slog.Logger
	holds *manifest.Holds           // of reads of the table in this process, over restarts
	topic string                    // whose name, or records, made the table's name; "" where the table is named
	route *ingest.Route             // reads the topic, if its records choose their tables; nil: this pipeline does
	begin ingest.Progress           // with a route: where the table's records begin
	has   func(*decode.Record) bool // with a route: whether a record is the table's
	setup error                     // why it cannot run

	*shared                       // set before the pipeline runs, as are the next two
	needed  func(d int)           // a person is needed (-1), or not any more (+1)
	ask     func(context.Context) // who owns which table; nil: this process owns all
	wake    chan struct{}         // resumed, or the owner changed

	pusher  atomic.Pointer[ingest.Pusher] // while it takes rows
	reading atomic.Int64                  // bytes of bodies that are held

	mu        sync.Mutex         // guards what follows
	reset     bool               // the source may be another one; until the first start
	resumed   bool               // somebody wants it to go on; until it does
	mine      bool               // this process owns the table
	owner     string             // which process does; "" where they do not share
	abandon   context.CancelFunc // ends what runs, since the table is another process's
	state     State
	err       error
	lastErr   error // the last one, also when it is over
	lastErrAt time.Time
	retrying  error // what the stream is trying again, while it does
	since     time.Time
	restarts  int64
	table     *engine.Table // nil: not open
	totals    totals
	export    export.Result
	exportErr error
}

// totals are sums over all runs of the process.
type totals struct {
	Records, Rows, Rejected, Bytes, Commits int64
	Lag                                     int64
	LastSnapshot                            int64
	LastCommit                              time.Time
	Before                                  engine.Metrics // of handles that are closed
}

func newPipeline(cfg config.Pipeline, store, dead storage.Store, env engine.Env) *pipeline {
	log := env.Log.With("pipeline", cfg.Name, "table", cfg.Table)
	env.Log = log
	return &pipeline{cfg: cfg, store: store, dead: dead, env: env, log: log, holds: manifest.NewHolds(), state: Starting, since: env.Now(),
		totals: totals{Lag: -1}, wake: make(chan struct{}, 1)}
}

func (p *pipeline) set(s State, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.err, p.retrying, p.since = s, err, nil, p.env.Now()
	if err != nil {
		p.lastErr, p.lastErrAt = err, p.since
	}
}

// needsPerson tells errors that a restart does not heal.
func needsPerson(err error) bool {
	for _, e := range []error{engine.ErrFenced, engine.ErrProgressLost, ingest.ErrSourceChanged, ingest.ErrLogTruncated, ingest.ErrDeadLettersFull,
		ingest.ErrConfig, ingest.ErrNoTopic, manifest.ErrNoTable, manifest.ErrCorrupt, engine.ErrUnsupported, storage.ErrUnsafe, errSetup} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// followEvery is how soon an idle pipeline sees what other engines write into its table, to compact it.
const followEvery = 2 * time.Second

// errSetup marks mistakes in the pipeline's configuration that only its table can tell.
var errSetup = errors.New("pipeline setup")

// once opens the table and runs the stream until ctx ends or something fails.
func (p *pipeline) once(ctx context.Context) (err error) {
	p.set(Starting, nil)
	p.mu.Lock()
	p.resumed = false
	p.mu.Unlock()
	if p.setup != nil {
		return p.setup
	}
	var hub *ingest.Hub
	if p.cfg.Push == nil {
		if hub, err = p.hubs.get(p.cfg.Kafka); err != nil {
			return err
		}
	}
	found, err := p.findColumns(ctx, hub)
	if err != nil {
		return err
	}
	tab, err := p.open(ctx, found)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.table = tab
	p.mu.Unlock()
	stopExport := p.startExport(ctx, tab, p.store, func(r export.Result, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exportErr = err
		if err == nil {
			p.export = r
		}
	})
	defer func() {
		// The stream has committed what it could; ctx may have ended, but the job's record is still to be closed, and the
		// last snapshot to be exported.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, tab.Close(closing))
		stopExport(closing)
		p.mu.Lock()
		p.totals.Before = p.totals.Before.Plus(tab.Metrics())
		p.table = nil
		p.mu.Unlock()
	}()
	return p.stream(ctx, tab, hub)
}

// open opens the table, and creates it before if it is not there.
func (p *pipeline) open(ctx context.Context, found *foundColumns) (*engine.Table, error) {
	select {
	case p.opening <- struct{}{}:
		defer func() { <-p.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := p.ensureTable(ctx, found); err != nil {
		return nil, err
	}
	if err := p.own(ctx); err != nil {
		return nil, err
	}
	return engine.Open(ctx, p.store, engine.Settings{
		Job: p.cfg.Name, BufferBytes: int64(p.cfg.BufferSize), Compaction: p.cfg.Compaction.Workers, Compactor: p.compactor, Budget: p.budget,
		Lookups: p.lookups, CopyAll: p.copyAll,
		Holds:       p.holds,
		ExpireEvery: time.Duration(p.cfg.ExpireEvery), FollowEvery: followEvery,
		Events: engine.Events{
			Compacted: func(c engine.CompactInfo) {
				p.log.Info("compacted", "snapshot", c.Snapshot, "bucket", c.Bucket, "level", c.Output, "files_in", c.FilesIn, "files_out", c.FilesOut, "moved", c.Moved, "rows_in", c.RowsIn, "took", c.Took)
			},
		},
	}, p.env)
}

func (p *pipeline) ensureTable(ctx context.Context, found *foundColumns) error {
	meta := manifest.Open(p.store, manifest.Env{Now: p.env.Now, After: p.env.After, NewID: p.env.NewID, Rand: p.env.Rand, Log: p.log})
	_, err := meta.LatestSchema(ctx)
	if !errors.Is(err, manifest.ErrNoTable) {
		return err
	}
	c := p.cfg.Create
	if c == nil {
		return fmt.Errorf("table %s: %w (with `calve create`, or a create section in the pipeline)", p.cfg.Table, err)
	}
	s, err := newSchema(c, found, p.env.Now())
	if err != nil {
		return err
	}
	if err := engine.Create(ctx, p.store, s); err != nil && !errors.Is(err, manifest.ErrTableExists) {
		return err
	}
	p.log.Info("created the table", "location", p.store.URL(""))
	return nil
}

// newSchema makes the schema of a create section; found are the columns to take where it has none.
func newSchema(c *config.Create, found *foundColumns, now time.Time) (*schema.Schema, error) {
	var cols []schema.Column
	key := c.PrimaryKey
	if found != nil {
		cols = found.columns
		if len(key) == 0 {
			key = found.key
		}
	}
	if c.Columns != "" {
		var err error
		if cols, err = schema.ParseColumns(c.Columns); err != nil {
			return nil, fmt.Errorf("%w: create.columns: %w", errSetup, err)
		}
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: key, PartitionKeys: c.Partition, Options: c.Options, TimeMillis: now.UnixMilli()})
	if err != nil {
		return nil, fmt.Errorf("%w: create: %w", errSetup, err)
	}
	return s, nil
}

// startExport publishes the table beside the stream. The function it returns is called after the table was closed: it
// waits until the last snapshot is published too, at most until its context ends.
func (p *pipeline) startExport(ctx context.Context, tab *engine.Table, store storage.Store, told func(export.Result, error)) (stop func(context.Context)) {
	if !p.cfg.Export.Iceberg {
		return func(context.Context) {}
	}
	ex := export.New(tab.Meta(), export.NewDirTarget(store), export.Settings{
		Interval: time.Duration(p.cfg.Export.Interval),
		Env:      export.Env{Now: p.env.Now, NewID: p.env.NewID, After: p.env.After, Log: p.log},
		Published: func(r export.Result, err error) {
			told(r, err)
			if err == nil && r.Published { // failures are logged by the exporter
				p.log.Info("exported", "location", store.URL(""), "iceberg_snapshot", r.IcebergSnapshot, "files", r.Files, "rows", r.Rows, "added", r.Added, "removed", r.Removed)
			}
		},
	})
	wake, _ := tab.WatchTop() // ends when the table is closed
	ectx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = ex.Run(ectx, wake) // it ends with its context or the table; failures were told by Published
	}()
	return func(closing context.Context) {
		defer cancel()
		select {
		case <-done:
		case <-closing.Done():
			cancel()
			<-done
		}
	}
}

// Decoding says how a pipeline makes rows of records. A table whose columns come from its records gets those of later
// records too, unless the configuration says otherwise.
func Decoding(p *config.Pipeline) decode.Config {
	evolution := decode.Evolution(p.Format.Evolution)
	if evolution == "" && p.Create != nil && p.Create.Columns == "" {
		evolution = decode.Evolve
	}
	return decode.Config{Format: decode.Format(p.Format.Type), OpField: p.Format.Op, Metadata: p.Kafka.Fields,
		Evolution: evolution, Decimals: decode.Decimals(p.Format.Decimals), Unsigned: p.Format.Unsigned,
		Specials: decode.Specials(p.Format.Specials), Unavailable: p.Format.Unavailable, DropRepeats: p.Format.DropRepeats,
		Before: decode.Before(p.Format.Before)}
}

// phase is where in the commit interval the commits of a stream that begins now lie: those of all streams of the process
// are spread evenly, however many there are, as the multiples of the golden ratio are, from a place that differs from process
// to process.
func (s *shared) phase(interval time.Duration) time.Duration {
	_, part := math.Modf(s.origin + float64(s.streams.Add(1))/math.Phi)
	return time.Duration(part * float64(interval))
}

// beat is how far apart the beginnings of commits lie. It is shorter than the interval by what a commit usually takes, and by
// how late it may be on a busy machine, so that rows can be read within the interval and snapshots lie no more than an interval apart.
func (p *pipeline) beat() time.Duration {
	interval := time.Duration(p.cfg.CommitInterval)
	return interval - min(interval/10, 100*time.Millisecond)
}

func (p *pipeline) stream(ctx context.Context, tab *engine.Table, hub *ingest.Hub) error {
	env := ingest.Env{Now: p.env.Now, After: p.env.After, NewID: p.env.NewID, Rand: p.env.Rand, Log: p.log}
	if p.cfg.Push != nil {
		return p.pushStream(ctx, tab, env)
	}
	p.mu.Lock()
	reset := p.reset
	p.mu.Unlock()
	k := p.cfg.Kafka
	dead, closeDead := p.deadLetters(ctx, env, p.cfg.Name)
	defer closeDead()
	var reg ingest.Registry
	if p.registry != nil {
		reg = p.registry
	}
	var whole time.Duration
	if p.cfg.Transactions != "" {
		whole = time.Duration(p.cfg.TransactionFor)
	}
	err := ingest.RunKafka(ctx, ingest.KafkaConfig{
		Registry: reg, Hub: hub, Topic: k.Topic, Route: p.route, RouteTable: p.cfg.Table, Start: ingest.Start(k.Start), Reset: reset, Decode: Decoding(&p.cfg),
		Limits: ingest.Limits{CommitInterval: p.beat(), Phase: p.phase(p.beat()), CommitRows: int64(p.cfg.CommitRows), CommitBytes: int64(p.cfg.CommitBytes),
			Whole: whole, Pause: ingest.PauseRule{Percent: p.cfg.Dead.Percent, Window: time.Duration(p.cfg.Dead.Window), Least: int64(p.cfg.Dead.Least)}},
	}, tab, dead, env, ingest.Events{
		Started: func(pos map[int32]int64) {
			p.set(Running, nil)
			p.mu.Lock()
			p.reset = false
			p.mu.Unlock()
			p.log.Info("reading", "positions", pos)
		},
		Committed: p.committed,
		Followed: func(s *schema.Schema) {
			p.log.Info("the table has a new schema", "schema", s.ID)
		},
		Evolved: func(changes []schema.Change, s *schema.Schema) {
			p.log.Info("a record changed the table's schema", "changes", fmt.Sprint(changes), "schema", s.ID)
		},
		Reread: func(s *schema.Schema, n int64) {
			p.log.Info("records that came before the new schema was noticed are read again", "schema", s.ID, "records", n)
		},
		Split: func() {
			p.log.Warn("a transaction of the source is in more than one snapshot")
		},
		Rejected: func(l ingest.Letter) {
			p.log.Warn("record refused", "topic", l.Topic, "partition", l.Partition, "offset", l.Offset, "reason", l.Reason)
		},
		Retrying: func(what string, err error, wait time.Duration) {
			p.log.Warn("trying again", "what", what, "error", err, "in", wait)
			p.mu.Lock()
			p.retrying = fmt.Errorf("trying again to %s: %w", what, err)
			p.mu.Unlock()
		},
	})
	if errors.Is(err, ingest.ErrSourceChanged) || errors.Is(err, ingest.ErrLogTruncated) {
		err = fmt.Errorf("%w (to reset it: calve reset %[2]s, or calve serve --reset %[2]s)", err, p.cfg.Name)
	}
	return err
}

// behind reports that more records wait in the log than were read since the last commit: the stream does not keep up.
func behind(c ingest.Committed) bool { return c.Lag > max(c.Records, minLag) }

// minLag is how many records may always wait: they are read in a moment.
const minLag = 10_000

func (p *pipeline) committed(c ingest.Committed) {
	if behind(c) {
		p.compactor.Borrow(2 * time.Duration(p.cfg.CommitInterval))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retrying = nil
	t := &p.totals
	t.Records += c.Records
	t.Rows += c.Rows
	t.Rejected += c.Rejected
	t.Bytes += c.Bytes
	t.Lag = c.Lag
	if c.Snapshot > 0 {
		t.Commits++
		t.LastSnapshot, t.LastCommit = c.Snapshot, p.env.Now()
	}
}
