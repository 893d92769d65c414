package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/calve-io/calve/manifest"
)

// Acks moves consumers whose readers say themselves what they have dealt with (TailSpec.Acks). One serves a process: it keeps
// the renewal of a consumer from undoing an acknowledgement. Where the two are in different processes an acknowledgement
// of the moment in which the other renews may be lost; then changes come again, and none is left out. It is safe for
// concurrent use.
type Acks struct {
	mu        sync.Mutex
	consumers map[string]*ackedConsumer // by URL, while somebody has one or waits for it
	// Those whose streams have ended: when there are maxEnded, the ones before them are forgotten.
	ended, endedBefore map[string]struct{}
}

const maxEnded = 4096

// ackedConsumer is held by who has put a value into it, while its consumer is read and written.
type ackedConsumer struct {
	held    chan struct{} // of size 1
	users   int           // streams, and who hold it or wait for it; guarded by Acks.mu, as is what follows
	streams int
}

func (a *Acks) use(key string, streams int) *ackedConsumer {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.consumers[key]
	if c == nil {
		c = &ackedConsumer{held: make(chan struct{}, 1)}
		if a.consumers == nil {
			a.consumers = map[string]*ackedConsumer{}
		}
		a.consumers[key] = c
	}
	c.users++
	c.streams += streams
	return c
}

func (a *Acks) leave(key string, c *ackedConsumer, streams int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(a.consumers, key)
	}
	if c.streams -= streams; streams == 0 {
		return
	}
	if len(a.ended) >= maxEnded || a.ended == nil {
		a.ended, a.endedBefore = map[string]struct{}{}, a.ended
	}
	a.ended[key] = struct{}{}
}

// streamed reports whether a stream of a consumer has begun in this process; of those that ended long ago nobody knows.
func (a *Acks) streamed(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.consumers[key]; c != nil && c.streams > 0 {
		return true
	}
	_, last := a.ended[key]
	_, before := a.endedBefore[key]
	return last || before
}

// stream notes that a stream of a consumer begins; from now on it can be acknowledged, also when the stream has ended.
func (a *Acks) stream(r *Reader, id string) (end func()) {
	key := r.store.URL(id)
	c := a.use(key, 1)
	return func() { a.leave(key, c, 1) }
}

// lock waits for a consumer as long as the context allows. Storage that does not answer keeps nobody waiting who asks for another.
func (a *Acks) lock(ctx context.Context, r *Reader, id string) (unlock func(), err error) {
	key := r.store.URL(id)
	c := a.use(key, 0)
	select {
	case c.held <- struct{}{}:
		return func() { <-c.held; a.leave(key, c, 0) }, nil
	case <-ctx.Done():
		a.leave(key, c, 0)
		return nil, fmt.Errorf("consumer %q is being read and written: %w", id, context.Cause(ctx))
	}
}

// Acknowledge tells that everything before a position that the stream told was dealt with, and renews the consumer. spec is
// that of the stream; its Consumer, Share and BeforeImage count. A consumer stands at a snapshot: a position within its
// changes moves it there, and its first rows come again unless the reader goes on at the position. It never moves back.
//
// It gives the snapshot that the consumer reads next: 0 if it is not registered, as it is not before all rows of the whole
// snapshot were dealt with with which a stream began. A name that is neither registered nor that of a stream that has begun in
// this process is manifest.ErrNoConsumer: what is registered holds expiry, and nobody would come for it.
func (a *Acks) Acknowledge(ctx context.Context, r *Reader, spec TailSpec, at Position) (int64, error) {
	if err := checkConsumer(spec.Consumer); err != nil {
		return 0, err
	}
	newest := int64(0)
	s, err := r.meta.Latest(ctx)
	switch {
	case err == nil:
		newest = s.ID
	case !errors.Is(err, manifest.ErrNoSnapshot):
		return 0, err
	}
	if at.Snapshot > newest+1 || at.Snapshot > newest && at.Rows > 0 {
		return 0, fmt.Errorf("%w: position %s is beyond the newest snapshot, which is %d", ErrQuery, at, newest)
	}
	id := spec.Share.Consumer(spec.Consumer)
	unlock, err := a.lock(ctx, r, id)
	if err != nil {
		return 0, err
	}
	defer unlock()
	next, err := r.meta.Consumer(ctx, id)
	if err != nil && (!errors.Is(err, manifest.ErrNoConsumer) || !a.streamed(r.store.URL(id))) {
		return 0, err
	}
	if at.State {
		return next, nil
	}
	next = max(next, at.Snapshot)
	back := int64(0)
	if spec.BeforeImage {
		back = 1
	}
	return next, r.meta.PutConsumerKeeping(ctx, id, next, max(1, next-back))
}

// takeAcked is takeLease for a consumer that its reader moves. One that is registered stays where it is, whatever the stream
// begins with. One that is not is registered, unless later: then, and with a hold, its reader does that when it has dealt with
// what comes before. What the consumer does not keep of what the stream tells a lease keeps: hold, or one that is taken here.
func (r *Reader) takeAcked(ctx context.Context, acks *Acks, id string, next, back int64, expires time.Duration, hold *lease, later bool) (*lease, error) {
	l := newLease(r, id, next, back, expires)
	l.acks, l.hold, l.told, l.registered = acks, hold, next, hold == nil && !later
	if err := l.renew(ctx); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	if l.hold == nil && (!l.registered || l.next > next) {
		var err error
		if l.hold, err = r.takeLease(ctx, r.LeaseID(), max(1, next-back), 0, expires); err != nil {
			return nil, err
		}
	}
	l.begin(ctx)
	return l, nil
}

// renew writes the consumer again as its reader left it, and gives the hold back when it is not needed any more. A consumer that
// was dropped meanwhile is registered where it stood.
func (l *lease) renew(ctx context.Context) error {
	if err := l.rewrite(ctx); err != nil || l.hold == nil || !l.registered {
		return err // of a consumer that is not registered nobody knows what will be acknowledged first
	}
	l.mu.Lock()
	told := l.told
	l.mu.Unlock()
	if told < l.next { // the consumer does not keep what is told
		l.hold.moved(max(1, told-l.back))
		return nil
	}
	hold := l.hold
	l.hold = nil
	return hold.close(ctx, true)
}

func (l *lease) rewrite(ctx context.Context) error {
	unlock, err := l.acks.lock(ctx, l.r, l.id)
	if err != nil {
		return err
	}
	defer unlock()
	next, err := l.r.meta.Consumer(ctx, l.id)
	switch {
	case err == nil:
		l.next, l.registered = next, true
	case !errors.Is(err, manifest.ErrNoConsumer):
		return err
	case !l.registered:
		return nil
	}
	return l.r.meta.PutConsumerKeeping(ctx, l.id, l.next, max(1, l.next-l.back))
}
