package ingest

import "time"

// pace says when a commit is due: at the beats of a clock that go an interval apart, whatever the last commit took, so
// that a busy table is committed every interval. A beat that follows a commit within half an interval is left out, a commit
// that begins late does not make the next one late. A row that comes when the beat behind the last commit is over does not
// wait for another, only for the linger, so that rows that come together share a commit.
//
// The beats of tables of one process lie at different moments (Limits.Phase): tables that begin at the same time, or are
// late for the same reason, would otherwise ask for the processor and the disk all at once, every interval.
//
// While a commit is made nothing is written, so behind one that took long there is half its time for what waits to be written.
// Commits begin half an interval apart or more.
//
// The beginning of the pipeline counts as a commit: what waits for it in a log is to make one snapshot of an interval's
// rows, and a pipeline that fails again and again is not to commit more often than others.
type pace struct {
	interval, linger time.Duration
	phase            time.Duration // of the beats, behind the multiples of the interval since 1970
	last, next       time.Time     // a commit began; another may
}

// maxLinger bounds the linger, which is a tenth of the interval.
const maxLinger = 50 * time.Millisecond

func newPace(l Limits, now time.Time) pace {
	l = l.withDefaults()
	p := pace{interval: l.CommitInterval, linger: min(l.CommitInterval/10, maxLinger), phase: l.Phase}
	p.began(now)
	return p
}

// began notes that a commit begins, ended that it is made.
func (p *pace) began(now time.Time) {
	p.last = now
	wait := p.beat(now)
	if wait < p.interval/2 {
		// Not a whole interval more, so that no row waits longer than one. From there it is back on the beat with the next
		// commit: half an interval behind the beat it would be late for that by as little as timers always are.
		wait = max(p.interval/2, wait+p.interval*3/8)
	}
	p.next = now.Add(wait)
}

// beat is how long it is to the next beat: more than nothing, at most an interval.
func (p *pace) beat(now time.Time) time.Duration {
	into := time.Duration((now.UnixNano() - int64(p.phase)) % int64(p.interval))
	if into < 0 {
		into += p.interval
	}
	return p.interval - into
}

func (p *pace) ended(now time.Time) {
	if room := now.Add(now.Sub(p.last) / 2); room.After(p.next) {
		p.next = room
	}
}

// wait is how long the first row that waits for a commit has to, if it came now; never longer than an interval, though a
// clock may be set back.
func (p *pace) wait(now time.Time) time.Duration {
	return min(max(p.next.Sub(now), p.linger), p.interval)
}
