package ingest

import (
	"context"
	"errors"
	"maps"
	"time"
)

// fullWait is how soon a route whose dead letters are full looks whether there is room again.
const fullWait = 5 * time.Second

// bury writes records without table to the dead letters, which have all of the topic's up to some offsets then. Records
// that are looked through once more, for tables that are behind, make no letters again: somebody may have replayed or
// dropped them. While the dead letters are full it waits, as no table may pass the records. ctx is the stream's.
func (r *Route) bury(ctx context.Context, s *stream, letters []Letter, upTo map[int32]int64) error {
	at := position{cluster: s.source.cluster, topic: r.cfg.Topic, topicID: s.source.topicID, next: upTo}
	full := false
	for {
		var err error
		letters, err = r.tryBury(ctx, letters, &at)
		if full || errors.Is(err, ErrDeadLettersFull) {
			r.mu.Lock()
			if r.err = stopped(ctx, err); err != nil && !full {
				r.failedLocked(err)
			}
			r.mu.Unlock()
		}
		if full = errors.Is(err, ErrDeadLettersFull); !full {
			return err
		}
		select {
		case <-r.env.After(fullWait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryBury is bury without waiting for room. It gives the letters that there was no room for.
func (r *Route) tryBury(ctx context.Context, letters []Letter, at *position) ([]Letter, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	try := retry{env: r.env, events: r.events, patience: r.c.cfg.Patience, what: "write dead letters", final: func(err error) bool { return errors.Is(err, ErrDeadLettersFull) }}
	wrote := false
	err := try.do(ctx, func(ctx context.Context) error {
		if letters = r.unmarked(letters, at); len(letters) == 0 && !wrote {
			return nil
		}
		if err := r.loadMark(ctx, at); err != nil { // another process may have written them
			return err
		}
		letters = r.unmarked(letters, at)
		n, err := r.writeLetters(ctx, letters)
		if r.events.Rejected != nil {
			for i := range letters[:n] {
				r.events.Rejected(letters[i])
			}
		}
		wrote = wrote || n > 0
		if letters = letters[n:]; err != nil {
			return err
		}
		r.markUp(at)
		if r.cfg.SaveMark == nil {
			return nil
		}
		return r.cfg.SaveMark(ctx, Progress{Properties: r.mark.properties()})
	})
	return letters, err
}

// writeLetters gives how many of the letters are durable.
func (r *Route) writeLetters(ctx context.Context, letters []Letter) (n int, err error) {
	if len(letters) == 0 {
		return 0, nil
	}
	for n < len(letters) && err == nil {
		if err = r.cfg.Dead.Add(ctx, letters[n]); err == nil {
			n++
		}
	}
	if err == nil || n > 0 && errors.Is(err, ErrDeadLettersFull) { // what there is room for is written, so that it goes on when letters are dropped
		if ferr := r.cfg.Dead.Flush(ctx, Progress{}); ferr != nil {
			n, err = 0, ferr
		}
	} else {
		n = 0
	}
	if c, ok := r.cfg.Dead.(interface{ Close(context.Context) error }); ok && err != nil && n == 0 {
		err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) // another try opens the table again
	}
	return n, err
}

// unmarked leaves out the letters of records up to the mark; asking is held.
func (r *Route) unmarked(letters []Letter, at *position) (out []Letter) {
	if !r.mark.counts(at) {
		return letters
	}
	for i := range letters {
		if letters[i].Offset >= r.mark.next[letters[i].Partition] {
			out = append(out, letters[i])
		}
	}
	return out
}

// counts reports whether a position is certainly one in the same topic as another one.
func (p *position) counts(at *position) bool {
	return p.topicID != "" && p.topicID == at.topicID && p.cluster == at.cluster
}

// loadMark learns what other processes, and this one before it was started, have marked; asking is held.
func (r *Route) loadMark(ctx context.Context, at *position) error {
	if r.cfg.LoadMark == nil {
		return nil
	}
	kept, err := r.cfg.LoadMark(ctx)
	if err != nil {
		return err
	}
	if pos, ok, err := parsePosition(kept.Properties); err == nil && ok && pos.counts(at) {
		r.markUp(&pos)
	}
	return nil
}

// markUp moves the mark on; asking is held.
func (r *Route) markUp(to *position) {
	if !r.mark.counts(to) {
		r.mark = position{cluster: to.cluster, topic: to.topic, topicID: to.topicID, next: maps.Clone(to.next)}
		return
	}
	for part, next := range to.next {
		r.mark.next[part] = max(r.mark.next[part], next)
	}
}
