package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/calve-io/calve/manifest"
)

// How often a lease is written at most, and how often at least: a third of the time after which the table's option
// consumer.expiration-time would drop it, or renewEvery if that is shorter or there is no such time, since whoever
// expires may have been given one on its own.
const (
	leasePace  = time.Second
	renewEvery = time.Minute
)

// lease is a consumer that moves with its reader. One goroutine writes it, beside the reader, so that it is renewed also
// while whoever takes the rows is slow.
type lease struct {
	r     *Reader
	id    string
	every time.Duration
	back  int64 // how many snapshots before the next one the reader needs

	// With acks others move it. Then next, what was acknowledged, hold and registered are the goroutine's, and close's after it
	// has ended.
	acks       *Acks
	hold       *lease // on what the consumer does not keep of what is told; nil: it keeps all
	registered bool

	mu   sync.Mutex
	told int64         // with acks: the snapshot that is told
	next int64         // what the reader needs next
	wake chan struct{} // holds a value when next has moved

	written int64 // owned by the goroutine, and by close after it has ended
	stop    context.CancelFunc
	done    chan struct{}
}

// takeLease registers a consumer that reads snapshot next and needs so many before it, and keeps it alive until it is
// given back.
func (r *Reader) takeLease(ctx context.Context, id string, next, back int64, expires time.Duration) (*lease, error) {
	l := newLease(r, id, next, back, expires)
	if err := l.write(ctx); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	l.begin(ctx)
	return l, nil
}

func newLease(r *Reader, id string, next, back int64, expires time.Duration) *lease {
	every := renewEvery
	if third := expires / 3; third > 0 {
		every = max(leasePace, min(every, third))
	}
	return &lease{r: r, id: id, every: every, back: back, next: next, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// begin starts the goroutine.
func (l *lease) begin(ctx context.Context) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go l.keep(ctx)
}

// moved says which snapshot is needed next; it costs nothing. A nil lease does nothing.
func (l *lease) moved(next int64) {
	if l == nil {
		return
	}
	if l.acks != nil { // the next renewal sees it
		l.mu.Lock()
		l.told = max(l.told, next)
		l.mu.Unlock()
		return
	}
	l.mu.Lock()
	l.next = max(l.next, next)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // it knows
	}
}

// keep writes the lease when it has moved, at most once in leasePace, and renews it when it has not.
func (l *lease) keep(ctx context.Context) {
	defer close(l.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-l.r.env.After(l.every):
		}
		if err := l.write(ctx); err != nil && ctx.Err() == nil {
			l.r.env.Log.Warn("the lease of a reader could not be renewed, will try again", "table", l.r.store.URL(""), "consumer", l.id, "error", err)
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.r.env.After(leasePace):
		}
	}
}

func (l *lease) write(ctx context.Context) error {
	if l.acks != nil {
		return l.renew(ctx)
	}
	l.mu.Lock()
	next := l.next
	l.mu.Unlock()
	if err := l.r.meta.PutConsumerKeeping(ctx, l.id, next, max(1, next-l.back)); err != nil {
		return err
	}
	l.written = next
	return nil
}

// close ends the lease's goroutine and leaves the consumer at the reader's last position, or drops it.
func (l *lease) close(ctx context.Context, drop bool) error {
	if l == nil {
		return nil
	}
	l.stop()
	<-l.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if l.acks != nil {
		return l.hold.close(ctx, true)
	}
	if drop {
		return l.r.meta.DropConsumer(ctx, l.id)
	}
	if l.written == l.next { // nobody else has it any more
		return nil
	}
	return l.write(ctx)
}

// LeaseID makes the name of a consumer for a read that has no position to keep.
func (r *Reader) LeaseID() string { return manifest.LeasePrefix + r.env.NewID() }

// Lease keeps a snapshot, and all after it, from expiry in any process until release is called. It is a consumer that
// renews itself; one of a process that was killed is dropped by calve's expiry after manifest.LeaseTime, and by Paimon's
// if the table has consumer.expiration-time. It fails with a *GapError when the snapshot is gone.
func (r *Reader) Lease(ctx context.Context, snapshot int64) (release func(context.Context) error, err error) {
	s, err := r.meta.LatestSchema(ctx)
	if err != nil {
		return nil, err
	}
	o, err := s.ParseOptions()
	if err != nil {
		return nil, err
	}
	l, err := r.takeLease(ctx, r.LeaseID(), snapshot, 0, o.ConsumerExpiration)
	if err != nil {
		return nil, err
	}
	release = func(ctx context.Context) error { return l.close(ctx, true) }
	// An expiry that had looked before may have taken it.
	if _, err := r.meta.Snapshot(ctx, snapshot); err != nil {
		return nil, errors.Join(r.gapOr(ctx, snapshot, time.Time{}, false, err), release(ctx))
	}
	return release, nil
}
