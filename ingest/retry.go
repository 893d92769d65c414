package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// retry tries an operation again with growing waits, for at most a while.
type retry struct {
	env      Env
	events   Events
	patience time.Duration
	what     string
	// final reports errors that trying again cannot mend; nil: none.
	final func(error) bool
}

// do runs f until it succeeds, fails for good, the patience is over, or ctx ends.
func (r retry) do(ctx context.Context, f func(context.Context) error) error {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 100*time.Millisecond, 5*time.Second
	b.RandomizationFactor = 0 // the jitter comes from env.Rand
	start := r.env.Now()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w (last error: %w)", r.what, context.Cause(ctx), err)
		}
		if r.final != nil && r.final(err) {
			return err
		}
		wait := b.NextBackOff()
		wait += time.Duration(r.env.Rand() % uint64(wait/2+1))
		if spent := r.env.Now().Sub(start); spent+wait > r.patience {
			return fmt.Errorf("%s: gave up after %s: %w", r.what, spent.Round(time.Millisecond), err)
		}
		if r.events.Retrying != nil {
			r.events.Retrying(r.what, err, wait)
		}
		select {
		case <-r.env.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last error: %w)", r.what, context.Cause(ctx), err)
		}
	}
}
