package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Table is a table opened for writing. Write, Commit, Compact and the rest may be called from several goroutines;
// rows of concurrent Writes have no order among each other.
//
// Locks, in the order they are taken: commitMu (held over a publication: one committer per table), then mu
// (held shortly, never over I/O).
type Table struct {
	store storage.Store
	meta  *manifest.Table
	set   Settings
	env   Env
	form  atomic.Pointer[form]          // stored under mu
	newer atomic.Pointer[schema.Schema] // newest schema seen
	// altered has the ids of the schemas that Alter made. alterMu is held while it makes one, so that nobody takes that for
	// another writer's.
	alterMu sync.Mutex
	altered map[int64]bool

	user    string // commit user
	epoch   int64  // 0: no job
	claimed bool   // the epoch is ours: a newer one in the table ends us; set before the table is shared

	commitMu   sync.Mutex
	known      int64 // newest snapshot whose effect is in the buckets; commitMu
	identifier int64 // last commit identifier used; commitMu
	last       int64 // newest snapshot of this job; commitMu
	progress   Progress
	hasWritten bool // progress is that of a snapshot of this job; commitMu

	mu          sync.Mutex
	buckets     map[bucketKey]*bucket
	parts       map[string]*partition
	active      *buffer
	nextSeq     int64                // above the sequence numbers of all buckets; with a primary key their rows are numbered by it together
	unpublished map[*bucket]struct{} // buckets with ready files: what a Commit costs depends on them alone
	poison      error
	doubtful    bool // a snapshot may have been published, or may yet appear, without our knowledge
	closed      bool
	loose       map[*bucket]struct{} // with rows that are not on the highest level, or with small files
	crowded     map[*bucket]struct{} // with more sorted runs than their writers may leave behind
	room        chan struct{}        // closed when writers that wait may go on; nil: none waits
	stallBegan  time.Time
	appends     int64         // snapshots seen that brought rows
	generation  int64         // grows with each Commit: rows of later generations are not its own
	inflight    map[int64]int // flushes that run, by the generation of their rows
	settled     *sync.Cond    // on mu: a flush has ended

	slots chan struct{} // one for each flush that may be in flight
	// compactor runs the background compactions; nil: none are to be done. private: it is this table's alone.
	compactor *Compactor
	private   bool
	// assigner chooses buckets; nil unless the table has dynamic ones.
	assigner *assigner
	watch    watchers
	metrics  metrics

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type bucketKey struct {
	partition string
	bucket    int
}

// readyFile is a flushed file that waits for the Commit of its generation.
type readyFile struct {
	generation int64
	file       manifest.DataFile
	changelog  bool // it tells changes, and holds no rows of the table
}

type partition struct {
	bytes  []byte
	values []any
}

// bucket is the engine's view of one (partition, bucket). Its fields are guarded by Table.mu.
type bucket struct {
	part    lsm.Part
	levels  *lsm.Levels
	nextSeq int64
	sel     []int32     // rows of the active buffer that belong here; unused when the buffer has one bucket
	ready   []readyFile // flushed, not yet published
	touched bool        // the active buffer has rows for it
	written int64       // generation of the last rows that were flushed
	waiting *task       // a compaction that waits
	running []*run      // compactions that run: two at most, of files that have nothing to do with each other
	held    bool        // by a compaction in the foreground
	failed  bool        // the last compaction failed, and will be tried again
	wrote   time.Time   // when rows last came to the bucket
	young   int         // snapshots that brought rows since level 0 was last empty
	since   int64       // Table.appends when the oldest rows came that are not on the highest level; 0: there are none
	oldest  time.Time   // when the oldest rows came that are not on the highest level; zero: there are none
}

// Create makes the table's folder with its first schema. It fails with manifest.ErrTableExists if there is one.
func Create(ctx context.Context, store storage.Store, s *schema.Schema) error {
	if err := s.CheckWritable(); err != nil {
		return err
	}
	return manifest.Create(ctx, store, s)
}

// Open opens the table in the store's root for writing. With Settings.Job it takes the job over from any other
// process: it publishes an empty snapshot that carries the new epoch, after which older epochs can publish no more.
func Open(ctx context.Context, store storage.Store, set Settings, env Env) (*Table, error) {
	set = set.withDefaults()
	menv := env.manifest()
	menv.Holds = set.Holds
	meta := manifest.Open(store, menv)
	s, err := meta.LatestSchema(ctx)
	if err != nil {
		return nil, err
	}
	t := &Table{
		store: store, meta: meta, set: set, env: env,
		buckets: map[bucketKey]*bucket{}, parts: map[string]*partition{}, active: &buffer{}, unpublished: map[*bucket]struct{}{},
		inflight: map[int64]int{}, slots: make(chan struct{}, 2), crowded: map[*bucket]struct{}{}, loose: map[*bucket]struct{}{},
	}
	t.settled = sync.NewCond(&t.mu)
	f, err := t.newForm(s)
	if err != nil {
		return nil, err
	}
	t.form.Store(f)
	if s.Keyed() && f.opts.Bucket == schema.BucketDynamic {
		t.assigner = newAssigner(f.opts, set.IndexKeys, env.Rand)
	}
	snap, err := meta.LatestListed(ctx)
	if err != nil && !errors.Is(err, manifest.ErrNoSnapshot) {
		return nil, err
	}
	if snap != nil {
		if err := t.findIndex(ctx, snap); err != nil {
			return nil, err
		}
		if err := t.load(ctx, snap); err != nil {
			return nil, err
		}
	}
	if err := t.claim(ctx); err != nil {
		return nil, err
	}
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.start()
	return t, nil
}

// load makes the buckets show the live files of a snapshot, whatever they showed before. What is written and not yet
// published stays. The caller owns the table alone or holds commitMu.
func (t *Table) load(ctx context.Context, snap *manifest.Snapshot) error {
	entries, err := t.meta.Live(ctx, snap, nil)
	if err != nil {
		return err
	}
	byBucket, buckets := map[bucketKey][]manifest.DataFile{}, t.form.Load().opts.Bucket
	for i := range entries {
		e := &entries[i]
		k := bucketKey{string(e.Partition), e.Bucket}
		byBucket[k] = append(byBucket[k], e.File)
		if e.TotalBuckets != buckets {
			return fmt.Errorf("table %s: bucket %d was written with %d buckets, the table option \"bucket\" now says %d: rescale the partition (rewrite it with INSERT OVERWRITE) before writing to it",
				t.store.URL(""), e.Bucket, e.TotalBuckets, buckets)
		}
	}
	t.watch.shown()
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range byBucket {
		if _, err := t.bucketLocked([]byte(k.partition), k.bucket); err != nil {
			return err
		}
	}
	for k, b := range t.buckets {
		if err := t.resetLocked(b, byBucket[k]); err != nil {
			return err
		}
		t.enqueueLocked(b)
	}
	t.setKnown(snap.ID)
	return nil
}

// setKnown notes the newest snapshot whose effect is in the buckets; commitMu is held, or the caller is alone.
func (t *Table) setKnown(id int64) {
	t.known = id
	t.metrics.snapshot.Store(id)
}

func (t *Table) resetLocked(b *bucket, files []manifest.DataFile) error {
	for i := range files {
		t.numberedLocked(b, &files[i])
	}
	f := t.form.Load()
	var err error
	b.levels, err = lsm.NewLevels(f.keys, f.policy.NumLevels, files)
	if err != nil {
		return fmt.Errorf("%s: %w", t.store.URL(b.part.Dir), err)
	}
	return nil
}

// numberedLocked notes that a file has used up sequence numbers; mu is held.
func (t *Table) numberedLocked(b *bucket, f *manifest.DataFile) {
	if f.MaxSeq < math.MaxInt64 {
		b.nextSeq = max(b.nextSeq, f.MaxSeq+1)
	} else {
		b.nextSeq = math.MaxInt64
	}
	t.nextSeq = max(t.nextSeq, b.nextSeq)
}

// bucketLocked finds or makes a bucket; mu is held.
func (t *Table) bucketLocked(part []byte, number int) (*bucket, error) {
	k := bucketKey{string(part), number}
	if b := t.buckets[k]; b != nil {
		return b, nil
	}
	f := t.form.Load()
	p := t.parts[string(part)]
	if p == nil {
		vals, err := binrow.Decode(part, f.schema.Types(f.schema.PartitionColumns()))
		if err != nil {
			return nil, fmt.Errorf("partition of %s: %w", t.store.URL(""), err)
		}
		p = &partition{bytes: []byte(k.partition), values: vals}
		t.parts[k.partition] = p
	}
	dir, err := manifest.DataDir(f.schema, f.opts, p.bytes, number)
	if err != nil {
		return nil, err
	}
	b := &bucket{part: lsm.Part{Partition: p.bytes, Values: p.values, Bucket: number, TotalBuckets: f.opts.Bucket, Dir: dir}}
	if err := t.resetLocked(b, nil); err != nil {
		return nil, err
	}
	t.buckets[k] = b
	return b, nil
}

// Schema is the schema that rows must have. It changes by Follow only.
func (t *Table) Schema() *schema.Schema { return t.form.Load().schema }

// Meta gives read access to the table's metadata.
func (t *Table) Meta() *manifest.Table { return t.meta }

// Epoch is the number of this opening of the job; 0 without a job.
func (t *Table) Epoch() int64 { return t.epoch }

// LastProgress is the progress of the newest snapshot of this job, and whether there is one.
func (t *Table) LastProgress(context.Context) (Progress, bool, error) {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	p := t.progress
	p.Properties = maps.Clone(p.Properties)
	return p, t.hasWritten, nil
}

// usable gives the error that makes every call fail, if there is one.
func (t *Table) usable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.usableLocked()
}

// Err says why the handle cannot be used any more, with ErrPoisoned or ErrClosed; nil while it can.
func (t *Table) Err() error { return t.usable() }

func (t *Table) usableLocked() error {
	if t.poison != nil {
		return fmt.Errorf("%s: %w: %w", t.store.URL(""), ErrPoisoned, t.poison)
	}
	if t.closed {
		return fmt.Errorf("%s: %w", t.store.URL(""), ErrClosed)
	}
	return nil
}

// fail makes the handle unusable: what is on storage is no longer known here.
func (t *Table) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failLocked(err)
}

func (t *Table) failLocked(err error) {
	unknown := errors.Is(err, storage.ErrUnknown)
	t.doubtful = t.doubtful || unknown
	if t.closed && !unknown {
		return // what Close interrupts has failed, but nothing is unknown
	}
	if t.poison == nil {
		t.poison = err
		t.roomLocked()
		t.env.Log.Error("table handle poisoned", "table", t.store.URL(""), "error", err)
	}
}

// Close stops background work and ends the job's epoch. Rows that were written but not committed are dropped: commit
// before. It waits for a Commit that runs, and for flushes and compactions to stop; their files are removed.
func (t *Table) Close(ctx context.Context) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.roomLocked()
	t.mu.Unlock()
	if t.compactor != nil {
		t.compactor.forget(t)
	}
	t.cancel()
	t.set.Budget.forget(t) // no Write adds to it any more, and those of other tables need not find it
	t.wg.Wait()
	if t.private {
		t.compactor.Close()
	}
	t.commitMu.Lock() // what a running Commit is about to publish must not be dropped
	defer t.commitMu.Unlock()
	defer t.watch.close()
	if err := t.waitFlushed(ctx, math.MaxInt64); err != nil {
		return err
	}
	t.dropUnpublished(ctx)
	t.mu.Lock()
	poisoned := t.poison != nil
	t.mu.Unlock()
	if poisoned {
		return nil
	}
	return t.release(ctx)
}

// dropUnpublished deletes flushed files that no snapshot will name. Errors are only logged: they become orphans.
func (t *Table) dropUnpublished(ctx context.Context) {
	t.mu.Lock()
	var names []string
	if !t.doubtful { // else the files may be published: they stay
		for b := range t.unpublished {
			for i := range b.ready {
				for _, n := range b.ready[i].file.Names() {
					names = append(names, b.part.Dir+"/"+n)
				}
			}
			b.ready = nil
		}
	}
	clear(t.unpublished)
	t.mu.Unlock()
	for _, n := range names {
		if err := t.store.Delete(ctx, n); err != nil {
			t.env.Log.Warn("cannot delete an unpublished file", "file", t.store.URL(n), "error", err)
		}
	}
}

// start runs the background goroutines; each ends when t.ctx does.
func (t *Table) start() {
	if t.set.Compaction > 0 {
		if t.compactor = t.set.Compactor; t.compactor == nil {
			t.compactor, t.private = NewCompactor(CompactorSettings{Workers: t.set.Compaction}, t.env), true
		}
		t.compactor.add(t)
	}
	t.mu.Lock()
	for _, b := range t.buckets {
		t.enqueueLocked(b)
	}
	t.mu.Unlock()
	if t.set.ExpireEvery > 0 {
		t.goFunc(t.expireLoop)
	}
	if t.set.FollowEvery > 0 {
		t.goFunc(t.followLoop)
	}
}

func (t *Table) goFunc(f func(context.Context)) {
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		f(t.ctx)
	}()
}

// Metrics are counters since the table was opened, and its present state.
type Metrics struct {
	RowsWritten, RowsCommitted          int64
	Commits, Compactions, CompactFailed int64
	CompactRowsIn, CompactBytesIn       int64
	CompactBytesOut                     int64
	Conflicts                           int64 // compactions dropped because their inputs were gone
	Races                               int64 // times that another writer took the snapshot number, and the commit was tried again
	Snapshot                            int64 // newest known
	BufferedRows, BufferedBytes         int64
	Files, Bytes                        []int64 // per level
	Levels                              int     // the table has
	CompactionQueue                     int
	LastCommit                          time.Duration
	FlushedBytes                        int64         // of the files that rows came to the table in
	CompactionDebt                      int64         // bytes that compactions have still to read, as far as it is known by now
	Runs                                int           // most sorted runs of a bucket
	Stalled                             bool          // writers wait for compaction
	StallTime                           time.Duration // they have waited so far
	TopAge                              time.Duration // age of the oldest rows that are not on the highest level
}

// WriteAmplification is how many bytes were written for each byte that was flushed; 0 before anything was.
func (m Metrics) WriteAmplification() float64 {
	if m.FlushedBytes == 0 {
		return 0
	}
	return float64(m.FlushedBytes+m.CompactBytesOut) / float64(m.FlushedBytes)
}

// SpaceAmplification is how many bytes the files have for each byte of the highest level: about how much of them is
// outdated, or not there yet. It is 0 while that level is empty. Tables without primary key have no levels.
func (m Metrics) SpaceAmplification() float64 {
	if len(m.Bytes) < m.Levels || m.Levels < 1 || m.Bytes[m.Levels-1] == 0 {
		return 0
	}
	sum := int64(0)
	for _, n := range m.Bytes {
		sum += n
	}
	return float64(sum) / float64(m.Bytes[m.Levels-1])
}

type metrics struct {
	rowsWritten, rowsCommitted, commits, compactions, compactFailed atomic.Int64
	compactRowsIn, compactBytesIn, compactBytesOut, conflicts       atomic.Int64
	races, lastCommit, snapshot, flushedBytes, stalled              atomic.Int64
}

// Metrics returns a snapshot of the table's figures.
func (t *Table) Metrics() Metrics {
	m := &t.metrics
	out := Metrics{
		RowsWritten: m.rowsWritten.Load(), RowsCommitted: m.rowsCommitted.Load(), Commits: m.commits.Load(),
		Compactions: m.compactions.Load(), CompactFailed: m.compactFailed.Load(), CompactRowsIn: m.compactRowsIn.Load(),
		CompactBytesIn: m.compactBytesIn.Load(), CompactBytesOut: m.compactBytesOut.Load(), Conflicts: m.conflicts.Load(), Races: m.races.Load(),
		LastCommit: time.Duration(m.lastCommit.Load()), Snapshot: m.snapshot.Load(), FlushedBytes: m.flushedBytes.Load(), Levels: 1,
	}
	if t.compactor != nil {
		out.CompactionQueue, out.CompactionDebt = t.compactor.load(t)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.form.Load(); f.keys != nil {
		out.Levels = f.policy.NumLevels
	}
	out.BufferedRows, out.BufferedBytes = int64(t.active.rows), t.active.bytes
	out.Stalled, out.StallTime = t.room != nil, t.stallTimeLocked()
	for b := range t.loose {
		if !b.oldest.IsZero() {
			out.TopAge = max(out.TopAge, t.env.Now().Sub(b.oldest))
		}
	}
	for _, b := range t.buckets {
		out.Runs = max(out.Runs, b.levels.NumRuns())
		for _, f := range b.levels.Files() {
			for len(out.Files) <= f.Level {
				out.Files, out.Bytes = append(out.Files, 0), append(out.Bytes, 0)
			}
			out.Files[f.Level]++
			out.Bytes[f.Level] += f.Size
		}
	}
	return out
}

// Plus adds the counters of two handles of a table; the present state is that of o.
func (m Metrics) Plus(o Metrics) Metrics {
	o.RowsWritten += m.RowsWritten
	o.RowsCommitted += m.RowsCommitted
	o.Commits += m.Commits
	o.Compactions += m.Compactions
	o.CompactFailed += m.CompactFailed
	o.CompactRowsIn += m.CompactRowsIn
	o.CompactBytesIn += m.CompactBytesIn
	o.CompactBytesOut += m.CompactBytesOut
	o.Conflicts += m.Conflicts
	o.Races += m.Races
	o.FlushedBytes += m.FlushedBytes
	o.StallTime += m.StallTime
	return o
}
