package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
)

// back is how many snapshots a reader goes back at most.
const back = 10

// scanning scans the newest snapshot, or one shortly before it, again and again, and compares each with the history.
func scanning(ctx context.Context, r *reader.Reader, h *history, keys int, rng *rand.Rand, done func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
		latest, err := r.Snapshot(ctx, reader.Query{})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		id := max(1, latest.ID-rng.Int64N(back))
		got, err := scan(ctx, r, id, keys)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, manifest.ErrSnapshotExpired) {
			continue
		}
		if err == nil {
			err = h.check(ctx, "scan", id, got)
		}
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		done()
	}
}

func scan(ctx context.Context, r *reader.Reader, snapshot int64, keys int) (content, error) {
	got := newRows(keys)
	for rec, err := range r.Scan(ctx, reader.Query{Snapshot: snapshot, Parallel: 2}) {
		if err == nil {
			err = got.fold(rec, nil)
		}
		if err != nil {
			return content{}, err
		}
	}
	return got.content, nil
}

// tailing folds the change stream from the first snapshot on and compares it with the history at every snapshot, until
// ctx ends. done is told of each snapshot and how long after its commit it was through.
func tailing(ctx context.Context, r *reader.Reader, spec reader.TailSpec, h *history, keys int, done func(snapshot int64, lag time.Duration)) error {
	got, before := newRows(keys), content{}
	for c, err := range r.Tail(ctx, spec) {
		if err != nil {
			return fmt.Errorf("tail: %w", err)
		}
		if c.Rec != nil {
			if err := got.fold(c.Rec, c.RowKinds); err != nil {
				return fmt.Errorf("tail at snapshot %d: %w", c.Snapshot, err)
			}
		}
		if !c.Complete {
			continue
		}
		lag := time.Since(c.Time)
		if c.Kind != manifest.Append {
			// What a compaction publishes is known to be right only after the next commit: do not wait for it.
			if got.content != before {
				return fmt.Errorf("tail: snapshot %d (%s) changes rows", c.Snapshot, c.Kind)
			}
			done(c.Snapshot, lag)
			continue
		}
		before = got.content
		if err := h.check(ctx, "tail", c.Snapshot, got.content); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		done(c.Snapshot, lag)
	}
	return nil
}

// folding folds the changes of the newest snapshots, now as they are told and now with rows before them, and holds them
// against the table, again and again until ctx ends. done is told how many snapshots it were.
func folding(ctx context.Context, r *reader.Reader, every time.Duration, done func(snapshots int64)) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		latest, err := r.Snapshot(ctx, reader.Query{})
		var rep *reader.StreamReport
		if err == nil && latest.ID > back {
			rep, err = r.VerifyStream(ctx, reader.StreamSpec{
				From: reader.Start{Mode: reader.FromSnapshot, Snapshot: latest.ID - back}, Until: reader.Until{Snapshot: latest.ID}, Every: back / 2, BeforeImage: n%2 == 1})
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, manifest.ErrSnapshotExpired): // it fell behind
		case err != nil:
			return fmt.Errorf("fold: %w", err)
		case rep != nil:
			if err := streamError(rep); err != nil {
				return fmt.Errorf("fold: %w", err)
			}
			done(rep.Snapshots)
		}
	}
}

// streamError says where a stream and its table differ.
func streamError(r *reader.StreamReport) error {
	if r.OK() {
		return nil
	}
	d := r.Differences[0]
	return fmt.Errorf("%d differ at snapshot %d; %s: %s: change %q, stream %s (snapshot %d), table %s", r.Differ, d.Snapshot, d.Key, d.What, d.Change, d.Stream, d.StreamAt, d.Table)
}
