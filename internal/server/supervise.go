package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest"
)

// maxOpening is how many tables are opened at the same time, which takes more memory and requests than to have them open.
const maxOpening = 16

// maxSketching is how many tables of routes have the topic read for their columns at the same time.
const maxSketching = 4

// spawn runs a pipeline in the background until ctx ends.
func (s *Server) spawn(ctx context.Context, p *pipeline) {
	p.shared, p.needed = &s.shared, s.count
	if s.crew != nil {
		p.ask = s.crew.look
		p.place(s.crew.owner(p.cfg.Table))
	} else {
		p.place("", true)
	}
	s.working.Go(func() { p.run(ctx) })
}

// count notes that a pipeline works again (+1) or waits for a person (-1). When none is left, and none can be found, Run
// ends.
func (s *Server) count(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive += d
	if s.alive == 0 && len(s.families)+len(s.routed) == 0 {
		s.end()
	}
}

// run supervises the pipeline until ctx ends: what failed and may pass is tried again, what needs a person waits for one,
// and a table that another process owns is left alone.
func (p *pipeline) run(ctx context.Context) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.RandomizationFactor = 500*time.Millisecond, 30*time.Second, 0
	for {
		own, abandon, ok := p.await(ctx)
		if !ok {
			p.set(Stopped, nil)
			return
		}
		began := p.env.Now()
		err := p.once(own)
		lost := own.Err() != nil
		abandon()
		switch {
		case ctx.Err() != nil && (err == nil || !needsPerson(err)):
			p.set(Stopped, err)
			p.log.Info("pipeline stopped", "error", err)
			return
		case lost && ctx.Err() == nil:
			p.log.Info("another process owns the table now", "error", err)
			continue
		case errors.Is(err, engine.ErrFenced) && p.ask != nil:
			p.ask(ctx) // who is to have the table by now? The one that took it, or this process still
		case needsPerson(err):
			p.set(Failed, err)
			p.log.Error("pipeline failed and waits for a person", "error", err, "then", "calve resume "+p.cfg.Name)
			if ctx.Err() != nil || !p.rest(ctx) {
				return
			}
			pause.Reset()
			continue
		case errors.Is(err, ingest.ErrTooManyRefused):
			p.pause(ctx, err)
			continue
		case err == nil: // the stream ended by itself, which it does not
			err = errors.New("the stream ended")
		}
		if p.env.Now().Sub(began) > time.Minute {
			pause.Reset()
		}
		wait := pause.NextBackOff()
		p.set(Waiting, err)
		p.mu.Lock()
		p.restarts++
		p.mu.Unlock()
		p.log.Warn("pipeline failed and will be restarted from its last snapshot", "error", err, "in", wait)
		select {
		case <-ctx.Done():
			p.set(Stopped, nil)
			return
		case <-p.wake:
			pause.Reset()
		case <-p.env.After(wait):
		}
	}
}

// await waits until this process owns the table. The context it gives ends with ctx, or when another process is to have it.
func (p *pipeline) await(ctx context.Context) (own context.Context, abandon context.CancelFunc, ok bool) {
	for ctx.Err() == nil {
		p.mu.Lock()
		if p.mine {
			own, p.abandon = context.WithCancel(ctx)
			abandon = p.abandon
			p.mu.Unlock()
			return own, abandon, true
		}
		if p.state != Elsewhere {
			p.state, p.err, p.retrying, p.since = Elsewhere, nil, nil, p.env.Now()
		}
		p.mu.Unlock()
		select {
		case <-p.wake:
		case <-ctx.Done():
		}
	}
	return nil, nil, false
}

// rest waits until somebody resumes the pipeline, or its table is another process's. It returns false when ctx ends.
func (p *pipeline) rest(ctx context.Context) bool {
	p.needed(-1)
	for {
		if p.told() {
			p.needed(+1)
			return true
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// told reports whether somebody has resumed the pipeline, or its table is another process's by now.
func (p *pipeline) told() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resumed || !p.mine
}

// place says which process owns the table.
func (p *pipeline) place(owner string, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.mine
	p.owner, p.mine = owner, mine
	if was && !mine && p.abandon != nil {
		p.abandon()
	}
	if was != mine {
		p.pokeLocked()
	}
}

func (p *pipeline) pokeLocked() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// errBusy: a pipeline that runs needs nobody.
var errBusy = errors.New("the pipeline is not waiting for anything")

// resume has a pipeline that failed, or waits before it tries again, begin at once; with reset it may begin its source
// anew if that is not the one its table was filled from, or was cut. It fails with errBusy if there is nothing to resume.
func (p *pipeline) resume(reset bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != Failed && p.state != Waiting && p.state != Paused {
		return fmt.Errorf("%w: it is %s", errBusy, p.state)
	}
	p.resumed, p.reset = true, p.reset || reset
	p.pokeLocked()
	return nil
}
