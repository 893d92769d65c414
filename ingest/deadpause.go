package ingest

import (
	"errors"
	"fmt"
	"time"
)

// ErrTooManyRefused ends a pipeline that refuses more of its records than it may (PauseRule). All it has taken is
// committed, and the next run goes on behind it: so it is for a person to start it again, or for a new schema.
var ErrTooManyRefused = errors.New("too many records are refused")

// PauseRule says which share of refused records ends a pipeline, so that a topic is not emptied into the dead letters
// because of one mistake. The zero value: none does.
type PauseRule struct {
	Percent int           // of the records in the window; 0: never
	Window  time.Duration // default 1 min
	Least   int64         // records in the window before the share counts. Default 1000
}

// refusals counts records in a window that moves in steps of a tenth.
type refusals struct {
	rule              PauseRule
	slots             [10]struct{ records, rejected int64 }
	at                int       // the slot that is counted in
	until             time.Time // it ends
	records, rejected int64     // of all slots
}

func newRefusals(r PauseRule, now time.Time) *refusals {
	if r.Percent <= 0 {
		return nil
	}
	if r.Window <= 0 {
		r.Window = time.Minute
	}
	if r.Least <= 0 {
		r.Least = 1000
	}
	f := &refusals{rule: r}
	f.until = now.Add(f.step())
	return f
}

func (f *refusals) step() time.Duration { return max(1, f.rule.Window/time.Duration(len(f.slots))) }

// add counts records; the error matches ErrTooManyRefused if too many of them were refused by now.
func (f *refusals) add(now time.Time, records, rejected int64) error {
	if f == nil {
		return nil
	}
	if now.Sub(f.until) > f.rule.Window {
		*f = *newRefusals(f.rule, now)
	}
	for !now.Before(f.until) {
		f.at, f.until = (f.at+1)%len(f.slots), f.until.Add(f.step())
		s := &f.slots[f.at]
		f.records, f.rejected = f.records-s.records, f.rejected-s.rejected
		s.records, s.rejected = 0, 0
	}
	s := &f.slots[f.at]
	s.records, s.rejected = s.records+records, s.rejected+rejected
	f.records, f.rejected = f.records+records, f.rejected+rejected
	if rejected == 0 || f.records < f.rule.Least || f.rejected*100 < f.records*int64(f.rule.Percent) {
		return nil
	}
	return fmt.Errorf("%w: %d of %d records within %s, where %d %% is the bound", ErrTooManyRefused, f.rejected, f.records, f.rule.Window, f.rule.Percent)
}
