package lsm

import (
	"cmp"
	"time"
)

// Reason is why a compaction is asked for.
type Reason uint8

// Reasons of compactions. The order is that in which they are done when nothing is urgent.
const (
	Aged  Reason = iota // the highest level would become older than the table allows
	Shape               // Pick asks for it
	Cold                // nothing was written for a while: everything goes to the highest level
)

// String names the reason.
func (r Reason) String() string { return [...]string{"aged", "shape", "cold"}[r] }

// Work is a compaction that waits or runs, as the scheduler sees it. What the scheduler decides follows from it alone:
// there is no clock here.
type Work struct {
	Reason Reason
	Table  int           // works of one table share its Limit
	Limit  int           // how many works of the table may run at once, not counting pressing ones
	Runs   int           // sorted runs of the bucket
	Stop   int           // Policy.StopTrigger: with more runs than this the bucket's writers wait
	Bytes  int64         // what it reads
	Waited time.Duration // since it was asked for
	Begun  bool          // it ran before it was urgent, and may take long yet
}

// Budget is what all compactions of a process may use together.
type Budget struct {
	Workers  int  // works that make progress at the same time
	Borrowed bool // ingest has fallen behind and uses what compaction does not need for its promises
}

const (
	bigWork = 64 << 20 // works that read as much are big: they take seconds
	// Works that read less are small: they wait for storage nearly all of their time, and take no worker. With many tables
	// that are busy there are many of them at once.
	smallWork = 1 << 20
	// smallWorks is how many of them are under way at most, and one more for each smallWaiting that wait: commits of many
	// tables are not to wait for all their compactions at once. smallMost is the most, also of urgent ones.
	smallWorks   = 4
	smallWaiting = 8
	smallMost    = 16
	// spareWorks is how many works may be begun beyond the number of workers, while others of lower precedence pause.
	spareWorks = 2
	// patience is how long a work waits until it counts as half as large.
	patience = 10 * time.Second
)

// Urgent reports that the bucket's writers wait for the work, or are about to.
func (w Work) Urgent() bool { return w.Runs >= w.Stop }

// small reports that the work takes no worker.
func (w Work) small() bool { return w.Bytes < smallWork }

// precedence orders works that compete for a worker: 0 urgent and soon done, 1 other works that keep a promise (urgent
// ones, those that keep the highest level young), 2 the rest. One of lower precedence pauses for one of higher, but never
// for its own kind.
func (w Work) precedence() int {
	switch {
	case w.Urgent() && w.Bytes < bigWork && !w.Begun:
		return 0
	case w.Urgent(), w.Reason == Aged:
		return 1
	}
	return 2
}

// Pressing reports that the work goes on while ingest borrows, and is not held to the rate of bytes.
func (w Work) Pressing() bool { return w.precedence() < 2 }

// before orders waiting works: by precedence; urgent ones by how far their writers are beyond the bound, others by reason;
// then the cheapest first, where a work becomes cheaper as it waits, so that large ones have their turn.
func before(a, b *Work) int {
	if c := cmp.Compare(a.precedence(), b.precedence()); c != 0 {
		return c
	}
	if a.Urgent() && b.Urgent() {
		if c := cmp.Compare(b.Runs-b.Stop, a.Runs-a.Stop); c != 0 {
			return c
		}
	} else if c := cmp.Compare(a.Reason, b.Reason); c != 0 {
		return c
	}
	return cmp.Compare(a.cost(), b.cost())
}

func (w *Work) cost() float64 {
	halvings := min(float64(w.Waited)/float64(patience), 60)
	cost := float64(max(w.Bytes, 1))
	for ; halvings >= 1; halvings-- {
		cost /= 2
	}
	return cost
}

// Next chooses the waiting work that begins now: an index, or -1 if all have to wait.
//
// A work begins when fewer than the number of workers run that it would not make pause. So an urgent one begins at once,
// whatever runs: one of the others pauses (see Pauses). With more than one worker a worker is kept free of big works that
// are not pressing. Small works begin beside all others.
func Next(waiting, running []Work, b Budget) int {
	small, queued := 0, 0
	for i := range running {
		if running[i].small() {
			small++
		}
	}
	for i := range waiting {
		if waiting[i].small() {
			queued++
		}
	}
	room := min(smallMost, smallWorks+queued/smallWaiting)
	full := len(running)-small >= b.Workers+spareWorks
	best := -1
	for i := range waiting {
		w := &waiting[i]
		if w.small() && (small >= smallMost || !w.Urgent() && ahead(w, running) >= room) || !w.small() && full {
			continue
		}
		if mayBegin(w, running, b) && (best < 0 || before(w, &waiting[best]) < 0) {
			best = i
		}
	}
	return best
}

// ahead counts the small works that run and that a waiting one does not go before: of those it does, some may pause.
func ahead(w *Work, running []Work) (n int) {
	for i := range running {
		if running[i].small() && running[i].precedence() <= w.precedence() {
			n++
		}
	}
	return n
}

func mayBegin(w *Work, running []Work, b Budget) bool {
	p := w.precedence()
	if b.Borrowed && p == 2 {
		return false
	}
	inTheWay, big, ofTable := 0, 0, 0
	for i := range running {
		r := &running[i]
		if r.precedence() <= p && !r.small() {
			inTheWay++
		}
		if r.precedence() == 2 {
			if r.Bytes >= bigWork {
				big++
			}
			if r.Table == w.Table {
				ofTable++
			}
		}
	}
	if inTheWay >= b.Workers && !w.small() {
		return false
	}
	return p < 2 || ofTable < w.Limit && (w.Bytes < bigWork || big < max(1, b.Workers-1))
}

// Pauses reports whether the i-th running work waits at its next batch: because workers are taken by works of higher
// precedence, or by those of its own that began before it; or because ingest borrows. Works are in the order they began.
func Pauses(running []Work, i int, b Budget) bool {
	p := running[i].precedence()
	if b.Borrowed && p == 2 {
		return true
	}
	if running[i].small() {
		return false
	}
	ahead := 0
	for j := range running {
		if running[j].small() {
			continue
		}
		if q := running[j].precedence(); q < p || q == p && j < i {
			ahead++
		}
	}
	return ahead >= b.Workers
}

// Meter keeps works to a rate of bytes; the zero value knows no bound. It is not safe for concurrent use.
type Meter struct {
	Rate int64 // bytes a second; 0: no bound

	at  time.Time // until here everything is paid
	has bool
}

// Spend notes that bytes were read at a time. Up to a second's worth that was not used is there to be spent at once.
func (m *Meter) Spend(now time.Time, bytes int64) {
	if m.Rate <= 0 {
		return
	}
	if free := now.Add(-time.Second); !m.has || m.at.Before(free) {
		m.at, m.has = free, true
	}
	// Never more than a minute ahead: what does not wait for the rate must not stop all others for longer.
	m.at = m.at.Add(min(time.Minute, time.Duration(float64(bytes)/float64(m.Rate)*float64(time.Second))))
	if most := now.Add(time.Minute); m.at.After(most) {
		m.at = most
	}
}

// Wait is how long to wait until what was spent is paid.
func (m *Meter) Wait(now time.Time) time.Duration {
	if m.Rate <= 0 || !m.has {
		return 0
	}
	return max(0, m.at.Sub(now))
}

// AgedIn is how long the compaction of a bucket to the highest level can still wait, if rows below that level are never to
// be older than target: 0 or less when it has to begin. The later it begins the fewer there are of them, for each rewrites
// what it meets; so it begins when twice the time it takes is left, and a tenth of the target.
//
// A target that is too short for that is not kept: half of the time is spent on it.
func AgedIn(oldest, target, takes time.Duration) time.Duration {
	return max(target-target/10-2*takes, takes) - oldest
}

// PickYoung chooses newest runs of level 0 that become one file of level 0 while another compaction of the bucket runs,
// which has the files that busy tells. It is there so that a long compaction does not keep the bucket's writers waiting:
// it looks from Trigger such runs on, and earlier if the bucket is about to have more runs than StopTrigger.
func PickYoung(l *Levels, p Policy, busy func(name string) bool) (Job, bool) {
	if p.Append != nil {
		return Job{}, false
	}
	var young []SortedRun
	all := l.Runs()
	for _, r := range all {
		if r.Level > 0 || busy(r.Files[0].Name) {
			break
		}
		young = append(young, r)
	}
	n := 0
	switch extra := len(young) - p.Trigger; {
	case len(young) < 2:
	case extra >= 0:
		n = similar(young, max(extra, 0)+1, p)
	case len(all) >= p.StopTrigger:
		n = 2
	}
	if n == 1 && len(all) >= p.StopTrigger {
		n = 2
	}
	if n >= 2 {
		n = similar(young, n, p)
	}
	for n >= 2 && !oneFile(young[:n], p) {
		n--
	}
	if n < 2 {
		return Job{}, false
	}
	return Job{Files: runFiles(young[:n])}, true
}
