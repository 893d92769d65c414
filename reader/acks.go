package reader

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/calve-io/calve/manifest"
)

// Acks moves consumers whose readers say themselves what they have dealt with (TailSpec.Acks). One serves a process: it keeps
// the renewal of a consumer from undoing an acknowledgement. Where the two are in different processes an acknowledgement
// of the moment in which the other renews may be lost; then changes come again, and none is left out. It is safe for
// concurrent use.
type Acks struct {
	locks [64]sync.Mutex // by consumer; held while one is read and written
}

func (a *Acks) lock(r *Reader, id string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.store.URL(id))) // never fails
	return &a.locks[h.Sum32()%uint32(len(a.locks))]
}

// Acknowledge tells that everything before a position that the stream told was dealt with, and renews the consumer. spec is
// that of the stream; its Consumer, Share and BeforeImage count. A consumer stands at a snapshot: a position within its
// changes moves it there, and its first rows come again unless the reader goes on at the position. It never moves back.
//
// It gives the snapshot that the consumer reads next: 0 if it is not registered, as it is not before all rows of the whole
// snapshot were dealt with with which a stream began.
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
	mu := a.lock(r, id)
	mu.Lock()
	defer mu.Unlock()
	next, err := r.meta.Consumer(ctx, id)
	if err != nil && !errors.Is(err, manifest.ErrNoConsumer) {
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

// takeAcked is takeLease for a consumer that its reader moves. With hold, a lease on what the consumer does not keep yet, it is
// not registered: the reader does that when it has dealt with the rows that the stream begins with. anew: it may move back.
func (r *Reader) takeAcked(ctx context.Context, acks *Acks, id string, next, back int64, expires time.Duration, hold *lease, anew bool) (*lease, error) {
	l := newLease(r, id, next, back, expires)
	l.acks, l.hold = acks, hold
	if hold == nil {
		mu := acks.lock(r, id)
		mu.Lock()
		defer mu.Unlock()
		if !anew { // it may have been moved since it was asked for
			now, err := r.meta.Consumer(ctx, id)
			if err != nil && !errors.Is(err, manifest.ErrNoConsumer) {
				return nil, fmt.Errorf("lease: %w", err)
			}
			l.next = max(next, now)
		}
		if err := r.meta.PutConsumerKeeping(ctx, id, l.next, max(1, l.next-back)); err != nil {
			return nil, fmt.Errorf("lease: %w", err)
		}
	}
	l.begin(ctx)
	return l, nil
}

// renew writes the consumer again as its reader left it. One that was dropped meanwhile is registered where it stood.
func (l *lease) renew(ctx context.Context) error {
	mu := l.acks.lock(l.r, l.id)
	mu.Lock()
	defer mu.Unlock()
	next, err := l.r.meta.Consumer(ctx, l.id)
	switch {
	case err == nil:
		l.next = next
	case !errors.Is(err, manifest.ErrNoConsumer):
		return err
	case l.hold != nil:
		return nil
	}
	if err := l.r.meta.PutConsumerKeeping(ctx, l.id, l.next, max(1, l.next-l.back)); err != nil || l.hold == nil {
		return err
	}
	hold := l.hold // the consumer keeps the snapshots now
	l.hold = nil
	return hold.close(ctx, true)
}
