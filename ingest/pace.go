package ingest

import "time"

// pace says when a commit is due: an interval after the last one began, whatever that took, so that a busy table is
// committed every interval and no table more often. A row that comes when the last one began that long ago does not wait
// for another interval, only for the linger, so that rows that come together share a commit.
//
// While a commit is made nothing is written, so behind one that took long there are no less than half its time, or an
// interval, for what waits to be written.
//
// The beginning of the pipeline counts as a commit: what waits for it in a log is to make one snapshot of an interval's
// rows, and a pipeline that fails again and again is not to commit more often than others.
type pace struct {
	interval, linger time.Duration
	last, next       time.Time // a commit began; another may
}

// maxLinger bounds the linger, which is a tenth of the interval.
const maxLinger = 50 * time.Millisecond

func newPace(interval time.Duration, now time.Time) pace {
	return pace{interval: interval, linger: min(interval/10, maxLinger), last: now, next: now.Add(interval)}
}

// began notes that a commit begins, ended that it is made.
func (p *pace) began(now time.Time) {
	p.last, p.next = now, now.Add(p.interval)
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
