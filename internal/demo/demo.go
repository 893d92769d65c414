package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/export"
	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Options say where the demo runs and what it shows.
type Options struct {
	Warehouse storage.Store // empty folder
	Out       io.Writer
	Env       engine.Env
	Flights   int           // how many of the 100,000 flights to play; 0: all
	Rate      int           // events a second; 0: as fast as it goes
	Interval  time.Duration // commit interval; default 500 ms
	Live      bool          // redraw one progress line instead of printing one a second
}

// Result is what the demo found.
type Result struct {
	Verified        bool
	Rows, Changes   int64
	Snapshots       int64
	IcebergSnapshot int64
	Problems        []string
}

// String is the demo's last line.
func (r Result) String() string {
	return fmt.Sprintf("demo: verified=%t rows=%d changes=%d snapshots=%d iceberg_snapshot=%d", r.Verified, r.Rows, r.Changes, r.Snapshots, r.IcebergSnapshot)
}

const (
	topic   = "flights"
	tableAt = "demo.db/flights"
)

// demo is a run in progress. The goroutines of the producer, the pipeline, the tail and the exporter run side by side;
// run owns them all.
type demo struct {
	Options
	store storage.Store
	dead  storage.Store // of its dead letters
	table *engine.Table

	produced   atomic.Int64
	read       atomic.Int64 // events read and committed
	tailRows   atomic.Int64
	tailSnap   atomic.Int64
	tailLag    atomic.Int64     // nanoseconds from commit to delivery, of the last step
	truth      map[int64]flight // what must come out; complete once the producer has ended
	folded     state
	outMu      sync.Mutex
	shownKinds map[schema.RowKind]int
}

// Run plays the flights and checks the result. An error means that the demo could not run; what it found wrong is in
// the Result.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Interval <= 0 {
		o.Interval = 500 * time.Millisecond
	}
	return newDemo(o).run(ctx)
}

func newDemo(o Options) *demo {
	return &demo{Options: o, store: storage.Sub(o.Warehouse, tableAt), dead: storage.Sub(o.Warehouse, tableAt+"__dead"), truth: map[int64]flight{}, folded: state{}, shownKinds: map[schema.RowKind]int{}}
}

func (d *demo) say(format string, args ...any) {
	d.outMu.Lock()
	defer d.outMu.Unlock()
	if d.Live {
		fmt.Fprint(d.Out, "\r\x1b[K")
	}
	fmt.Fprintf(d.Out, format+"\n", args...)
}

func (d *demo) run(ctx context.Context) (res Result, err error) {
	flights, err := loadFlights(d.Flights)
	if err != nil {
		return res, err
	}
	kafka, err := startBroker(topic)
	if err != nil {
		return res, err
	}
	defer kafka.Close()
	past := history(flights)
	if err := d.create(ctx); err != nil {
		return res, err
	}
	if err := d.load(ctx, flights[:past]); err != nil {
		return res, err
	}
	d.say("an embedded Kafka broker listens on %s; topic %q tells of %d flights:\n  scheduled, delayed, some corrected twice, some cancelled", kafka.addrs[0], topic, len(flights)-past)
	if err := d.open(ctx); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, d.table.Close(context.WithoutCancel(ctx))) }()
	if err := d.play(ctx, kafka, flights[past:]); err != nil {
		return res, err
	}
	d.say("the stream has ended; what is left is compacted into the top level and exported")
	if err := d.table.Compact(ctx, true); err != nil {
		return res, err
	}
	ex := d.exporter()
	r, err := ex.Publish(ctx, 0)
	if err != nil {
		return res, err
	}
	res, err = d.check(ctx)
	res.IcebergSnapshot = r.IcebergSnapshot
	return res, err
}

// create makes the table.
func (d *demo) create(ctx context.Context) error {
	cols, err := schema.ParseColumns("id BIGINT NOT NULL, date TIMESTAMP(6), delay INT, distance INT, origin STRING, destination STRING")
	if err != nil {
		return err
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}, TimeMillis: d.Env.Now().UnixMilli(),
		Options: map[string]string{"bucket": "2", "num-sorted-run.compaction-trigger": "4", "target-file-size": "64 kb"}})
	if err != nil {
		return err
	}
	if err := engine.Create(ctx, d.store, s); err != nil {
		return err
	}
	d.say("table %s:\n  Paimon, primary key id, 2 buckets; levels [0 1 2] show files on each", d.store.URL(""))
	return nil
}

// load writes past flights as one batch, as calve put does.
func (d *demo) load(ctx context.Context, flights []flight) (err error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, f := range flights {
		d.truth[f.ID] = f
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	tab, err := engine.Open(ctx, d.store, engine.Settings{}, d.Env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tab.Close(context.WithoutCancel(ctx))) }()
	dead := ingest.NewDeadLetters(d.dead, ingest.DeadLetterSettings{}, d.Env)
	defer func() { err = errors.Join(err, dead.Close(context.WithoutCancel(ctx))) }()
	res, err := ingest.RunLines(ctx, &lines, ingest.LinesConfig{Name: "history"}, tab, dead, d.Env, ingest.Events{})
	if err == nil && ctx.Err() == nil {
		d.say("%d past flights are loaded as a batch: snapshot %d", res.Rows, res.Snapshot)
	}
	return errors.Join(err, ctx.Err())
}

// open opens the table for the stream.
func (d *demo) open(ctx context.Context) (err error) {
	d.table, err = engine.Open(ctx, d.store, engine.Settings{Job: "demo", Compaction: 1, Events: engine.Events{
		Compacted: func(c engine.CompactInfo) {
			d.say("  compacted %s into level %d: %d files → %d (%d moved by metadata)", c.Bucket, c.Output, c.FilesIn, c.FilesOut, c.Moved)
		},
	}}, d.Env)
	return err
}

// play runs the stream until every event is committed and the tail has told it.
func (d *demo) play(ctx context.Context, kafka *broker, flights []flight) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pipeCtx, stopPipe := context.WithCancel(ctx)
	tailCtx, stopTail := context.WithCancel(ctx)
	defer stopTail()
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	start := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	allProduced := make(chan struct{})
	start(func() error {
		defer close(allProduced)
		return d.produce(ctx, kafka, flights)
	})
	var pipe sync.WaitGroup
	pipe.Add(1)
	start(func() error { defer pipe.Done(); return d.pipeline(pipeCtx, kafka) })
	start(func() error { return d.tail(tailCtx) })
	wake, unsubscribe := d.table.Watch()
	start(func() error {
		if err := d.exporter().Run(tailCtx, wake); tailCtx.Err() == nil {
			return err
		}
		return nil
	})
	d.show(ctx, allProduced)
	stopPipe()
	pipe.Wait()
	d.drainTail(ctx)
	unsubscribe()
	stopTail()
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return ctx.Err()
	}
}

// show prints progress until everything that was produced is read.
func (d *demo) show(ctx context.Context, allProduced <-chan struct{}) {
	began := d.Env.Now()
	done := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.Env.After(time.Second):
		}
		d.progress(began)
		select {
		case <-allProduced:
			done = true
		default:
		}
		if done && d.read.Load() >= d.produced.Load() {
			return
		}
	}
}

func (d *demo) progress(began time.Time) {
	m, n := d.table.Metrics(), d.read.Load()
	secs := d.Env.Now().Sub(began).Seconds()
	// Short enough for a line of 80 columns: a longer one could not be redrawn in place.
	line := fmt.Sprintf("%2.0f s  %6d events  %5.0f/s  snapshot %d  levels %v  tail lag %.0f ms",
		secs, n, float64(n)/secs, m.Snapshot, m.Files, float64(d.tailLag.Load())/1e6)
	if !d.Live {
		d.say("%s", line)
		return
	}
	d.outMu.Lock()
	defer d.outMu.Unlock()
	fmt.Fprint(d.Out, "\r\x1b[K"+line)
}

// drainTail waits until the tail has told the newest snapshot.
func (d *demo) drainTail(ctx context.Context) {
	for d.tailSnap.Load() < d.table.Metrics().Snapshot && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-d.Env.After(5 * time.Millisecond):
		}
	}
}

func (d *demo) pipeline(ctx context.Context, kafka *broker) error {
	dead := ingest.NewDeadLetters(d.dead, ingest.DeadLetterSettings{}, d.Env)
	err := ingest.RunKafka(ctx, ingest.KafkaConfig{
		HubConfig: ingest.HubConfig{Brokers: kafka.addrs}, Topic: topic, Limits: ingest.Limits{CommitInterval: d.Interval},
	}, d.table, dead, d.Env, ingest.Events{
		Committed: func(c ingest.Committed) { d.read.Add(c.Records) },
	})
	return errors.Join(err, dead.Close(context.WithoutCancel(ctx)))
}

func (d *demo) exporter() *export.Exporter {
	return export.New(d.table.Meta(), export.NewDirTarget(d.store), export.Settings{
		Env: export.Env{Now: d.Env.Now, NewID: d.Env.NewID, After: d.Env.After, Log: d.Env.Log},
		Published: func(r export.Result, err error) {
			if err == nil && r.Published && r.Rows > 0 {
				d.say("  exported Iceberg snapshot %d: %d files, %d rows", r.IcebergSnapshot, r.Files, r.Rows)
			}
		},
	})
}

func (d *demo) reader() *reader.Reader {
	return reader.Open(d.store, reader.Env{Now: d.Env.Now, After: d.Env.After, NewID: d.Env.NewID, Rand: d.Env.Rand, Log: d.Env.Log})
}

// tail folds the change stream and prints a few changes of each kind.
func (d *demo) tail(ctx context.Context) error {
	wake, unsubscribe := d.table.Watch()
	defer unsubscribe()
	for c, err := range d.reader().Tail(ctx, reader.TailSpec{From: reader.Start{Mode: reader.Earliest}, Follow: true, Wake: wake}) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if c.Rec != nil {
			d.tailRows.Add(c.Rec.NumRows())
			d.sample(c)
			if err := d.folded.add(c.Rec, c.RowKinds); err != nil {
				return err
			}
		}
		if c.Complete {
			d.tailLag.Store(int64(d.Env.Now().Sub(c.Time)))
			d.tailSnap.Store(c.Snapshot)
		}
	}
	return nil
}

// sample prints the first changes of each kind.
func (d *demo) sample(c reader.Changes) {
	enc := rowjson.NewEncoder(c.Rec.Schema())
	for i := range int(c.Rec.NumRows()) {
		kind := schema.Insert
		if c.RowKinds != nil {
			kind = c.RowKinds[i]
		}
		if d.shownKinds[kind] >= 3 {
			continue
		}
		d.shownKinds[kind]++
		d.say("  tail: snapshot %d %s %s", c.Snapshot, kind, enc.Append(nil, c.Rec, i))
	}
}

// check compares the table, the exported Iceberg table and the folded change stream with the truth.
func (d *demo) check(ctx context.Context) (Result, error) {
	want := truthState(d.truth)
	r := d.reader()
	table, tableErr := stateOf(r.Scan(ctx, reader.Query{}))
	iceberg, icebergErr := stateOf(export.Scan(ctx, d.store, export.ScanSpec{}))
	res := Result{Rows: int64(len(table)), Changes: d.tailRows.Load(), Snapshots: d.table.Metrics().Snapshot}
	for _, err := range []error{tableErr, icebergErr} {
		if err != nil {
			res.Problems = append(res.Problems, err.Error())
		}
	}
	for _, p := range []string{diff("table", table, want), diff("Iceberg table", iceberg, want), diff("folded change stream", d.folded, want)} {
		if p != "" {
			res.Problems = append(res.Problems, p)
		}
	}
	rep, err := r.Verify(ctx, reader.VerifySpec{Data: true, Fold: true})
	if err = errors.Join(err, ctx.Err()); err != nil {
		return res, err
	}
	res.Problems = append(res.Problems, rep.Problems...)
	if !rep.Folded && rep.OK() {
		res.Problems = append(res.Problems, "the change stream was not folded: "+rep.NotFolded)
	}
	res.Verified = len(res.Problems) == 0
	d.say("checked: input %d rows, table %d, Iceberg table %d, folded change stream %d;\n  files per level %v", len(want), len(table), len(iceberg), len(d.folded), rep.Levels)
	return res, nil
}
