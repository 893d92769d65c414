package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/calve-io/calve/lsm"
)

// CompactorSettings are the bounds on all compactions of a process. The zero value of each field means its default.
type CompactorSettings struct {
	// Workers is how many compactions make progress at the same time. Default 1.
	Workers int
	// BytesPerSecond bounds what compactions read, but for those that writers wait for. 0: no bound.
	BytesPerSecond int64
	// SweepAfter is the time without new rows after which a bucket is compacted to the highest level; 0: never.
	SweepAfter time.Duration
}

// Compactor runs the compactions of all tables of a process within one budget. What begins, and what pauses for what is
// more urgent, is decided by lsm.Next and lsm.Pauses; a compaction asks between two batches whether it may go on.
//
// Each compaction is a goroutine that belongs to its table and ends with it; a table without work has none. The lock is
// taken after Table.mu.
type Compactor struct {
	set CompactorSettings
	env Env

	mu       sync.Mutex
	tables   map[*Table]int // their numbers
	made     int            // tables so far
	waiting  []*task
	running  []*task // in the order they began
	meter    lsm.Meter
	speed    float64       // bytes a second of a compaction, as measured
	borrowed time.Time     // until here ingest uses what compaction can spare
	changed  chan struct{} // closed, and made anew, when what pauses may go on

	stop, done chan struct{}
}

// task is a compaction of a bucket that waits or runs.
type task struct {
	t      *Table
	b      *bucket
	reason lsm.Reason
	since  time.Time // it was asked for
	work   lsm.Work  // Compactor.mu; Waited is set when it is used
	read   int64     // bytes so far, without those of files that only move; Compactor.mu
}

// NewCompactor makes a compactor. Close it after the tables that use it.
func NewCompactor(set CompactorSettings, env Env) *Compactor {
	set.Workers = max(1, set.Workers)
	c := &Compactor{set: set, env: env, tables: map[*Table]int{}, meter: lsm.Meter{Rate: set.BytesPerSecond}, speed: firstSpeed,
		changed: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	go c.loop()
	return c
}

// Close ends the compactor's own goroutine.
func (c *Compactor) Close() {
	close(c.stop)
	<-c.done
}

// tick is how often the compactor looks for what time alone asks for; cold buckets can wait for sweepTicks of them.
const (
	tick       = time.Second
	sweepTicks = 10
)

// loop is the compactor's goroutine.
func (c *Compactor) loop() {
	defer close(c.done)
	for n := 1; ; n++ {
		select {
		case <-c.stop:
			return
		case <-c.env.After(tick):
		}
		c.mu.Lock()
		c.dispatchLocked() // what ingest has borrowed may be free again
		tables := slices.Collect(maps.Keys(c.tables))
		c.mu.Unlock()
		for _, t := range tables {
			if sweep := n%sweepTicks == 0; sweep || t.form.Load().policy.Fresh > 0 {
				t.askAged(c.set.SweepAfter)
			}
		}
	}
}

// firstSpeed is taken for the speed of a compaction before one was measured: rather slow.
const firstSpeed = 16 << 20

// measured learns how fast compactions are.
func (c *Compactor) measured(k *task, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.read < 1<<20 || took <= 0 {
		return // what it costs to begin is more than that
	}
	c.speed += (float64(k.read)/took.Seconds() - c.speed) / 4
}

// takes estimates how long a compaction takes.
func (c *Compactor) takes(bytes int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(float64(bytes) / max(1, c.speed) * float64(time.Second))
}

// Borrow gives compaction's processor time to ingest for a while: only compactions that keep a promise go on (writers wait
// for them, or are about to). It is called by a writer that has fallen behind, as often as it finds itself so.
func (c *Compactor) Borrow(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := c.env.Now().Add(d); until.After(c.borrowed) {
		c.borrowed = until
	}
}

// add makes a table known.
func (c *Compactor) add(t *Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	c.tables[t] = c.made
}

// forget drops the table and what waits of it; what runs ends with the table's context.
func (c *Compactor) forget(t *Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tables, t)
	c.waiting = slices.DeleteFunc(c.waiting, func(k *task) bool {
		if k.t == t {
			t.wg.Done()
		}
		return k.t == t
	})
}

// submit asks for a compaction. The table's mu is held, and the task is counted in its wait group.
func (c *Compactor) submit(k *task, w lsm.Work) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Table = c.tables[k.t]
	k.work, k.since = w, c.env.Now()
	c.waiting = append(c.waiting, k)
	c.dispatchLocked()
}

// update tells how many sorted runs the bucket of a task has by now.
func (c *Compactor) update(k *task, runs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.work.Runs == runs {
		return
	}
	was := k.work.Urgent()
	k.work.Runs = runs
	if k.work.Urgent() != was {
		k.work.Begun = slices.Contains(c.running, k)
		c.changedLocked()
		c.dispatchLocked()
	}
}

// finish takes a task that has ended off the running ones.
func (c *Compactor) finish(k *task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = slices.DeleteFunc(c.running, func(r *task) bool { return r == k })
	c.changedLocked()
	c.dispatchLocked()
}

func (c *Compactor) changedLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Compactor) budgetLocked() lsm.Budget {
	return lsm.Budget{Workers: c.set.Workers, Borrowed: c.env.Now().Before(c.borrowed)}
}

func works(tasks []*task, now time.Time) []lsm.Work {
	out := make([]lsm.Work, len(tasks))
	for i, k := range tasks {
		out[i] = k.work
		out[i].Waited = now.Sub(k.since)
	}
	return out
}

// dispatchLocked begins what may begin.
func (c *Compactor) dispatchLocked() {
	for len(c.waiting) > 0 {
		now := c.env.Now()
		i := lsm.Next(works(c.waiting, now), works(c.running, now), c.budgetLocked())
		if i < 0 {
			return
		}
		k := c.waiting[i]
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.running = append(c.running, k)
		c.changedLocked() // others may have to pause; they see it at their next batch
		go k.t.runTask(k)
	}
}

// pace is called by a running task after each batch. It waits while the task has to pause, and until the bytes are paid.
func (c *Compactor) pace(ctx context.Context, k *task, bytes int64) error {
	c.mu.Lock()
	k.read += bytes
	c.meter.Spend(c.env.Now(), bytes)
	for {
		wait := c.waitLocked(k)
		changed := c.changed
		c.mu.Unlock()
		if wait <= 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-c.env.After(wait):
		}
		c.mu.Lock()
	}
}

// waitLocked is how long a running task waits before it asks again; 0: it goes on.
func (c *Compactor) waitLocked(k *task) time.Duration {
	now := c.env.Now()
	i := slices.Index(c.running, k)
	if i >= 0 && lsm.Pauses(works(c.running, now), i, c.budgetLocked()) {
		return tick
	}
	if k.work.Pressing() {
		return 0
	}
	return c.meter.Wait(now)
}

// load tells of a table's tasks: how many wait, and what all of them read.
func (c *Compactor) load(t *Table) (waiting int, debt int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.waiting {
		if k.t == t {
			waiting++
			debt += k.work.Bytes
		}
	}
	for _, k := range c.running {
		if k.t == t {
			debt += k.work.Bytes
		}
	}
	return waiting, debt
}
