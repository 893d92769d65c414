package engine

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/schema"
)

// flushActive starts to flush the active buffer in the background, so that writing goes on meanwhile. It blocks while
// two flushes are in flight. A failed flush poisons the table: its rows are in no snapshot, and the caller has to go
// back to its last committed progress.
func (t *Table) flushActive(ctx context.Context) error { return t.flushThen(ctx, nil) }

// flushThen does, under mu, something after the active buffer was taken away and before rows come into the next one.
func (t *Table) flushThen(ctx context.Context, then func() error) error {
	select {
	case t.slots <- struct{}{}:
	default:
		if t.compactor != nil {
			t.compactor.Borrow(tick) // rows come faster than they are flushed
		}
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.ctx.Done():
			return t.usable()
		}
	}
	t.mu.Lock()
	if err := t.usableLocked(); err != nil {
		t.mu.Unlock()
		<-t.slots
		return err
	}
	f := t.freezeLocked()
	var err error
	if then != nil {
		err = then()
	}
	t.mu.Unlock()
	if f == nil {
		<-t.slots
		return err
	}
	go func() {
		defer func() { <-t.slots }()
		t.flush(t.ctx, f)
	}()
	return err
}

// flush writes the level-0 files of a frozen buffer and notes them as ready for publication. If it fails it poisons the
// table, in the same step in which it ends: a Commit that waits for it must not publish without its rows.
func (t *Table) flush(ctx context.Context, f *frozen) {
	made, err := t.flushShares(ctx, f)
	f.batches = nil
	t.set.Budget.free(f.bytes)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range made {
		b := f.shares[i].bucket
		for _, file := range made[i].data {
			b.ready = append(b.ready, readyFile{f.generation, file, false})
		}
		for _, file := range made[i].changelog {
			b.ready = append(b.ready, readyFile{f.generation, file, true})
		}
		if len(b.ready) > 0 {
			t.unpublished[b] = struct{}{}
		}
	}
	if err != nil {
		t.failLocked(err)
	}
	if t.inflight[f.generation]--; t.inflight[f.generation] == 0 {
		delete(t.inflight, f.generation)
	}
	t.settled.Broadcast()
}

// waitFlushed waits until all flushes of the generations up to g have ended, or ctx has.
func (t *Table) waitFlushed(ctx context.Context, g int64) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.settled.Broadcast()
	})
	defer stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		running := false
		for n := range t.inflight {
			running = running || n <= g
		}
		if !running {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("waiting for flushes of %s: %w", t.store.URL(""), err)
		}
		t.settled.Wait()
	}
}

// manyShares is how many buckets a flush may have before their files get no statistics of columns: with hundreds of columns
// these would take more memory, here and in every reader of the manifests, than the rows.
const manyShares = 1000

// flushShares writes the files of each share; on an error it leaves none behind.
func (t *Table) flushShares(ctx context.Context, f *frozen) ([]flushed, error) {
	rows, err := f.sources()
	if err != nil {
		return nil, err
	}
	files := f.form.files
	files.NoStats = len(f.shares) > manyShares
	workers := min(t.set.Parallel, len(f.shares))
	files.Parallel = max(1, t.set.Parallel/workers)
	made, tells := make([]flushed, len(f.shares)), f.form.keys != nil && f.form.opts.ChangelogProducer == schema.ProducerInput
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i, s := range f.shares {
		g.Go(func() error {
			var err error
			if tells {
				made[i].data, made[i].changelog, err = files.FlushInput(gctx, s.bucket.part, rows, s.sel, s.firstSeq)
			} else {
				made[i].data, err = files.Flush(gctx, s.bucket.part, rows, s.sel, s.firstSeq)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, t.dropMade(ctx, f, made))
	}
	return made, nil
}

// dropMade removes the files of a flush that failed half way.
func (t *Table) dropMade(ctx context.Context, f *frozen, made []flushed) error {
	var errs []error
	for i, s := range f.shares {
		for _, m := range made[i].all() {
			for _, n := range m.Names() {
				errs = append(errs, t.store.Delete(context.WithoutCancel(ctx), s.bucket.part.Dir+"/"+n))
			}
		}
	}
	return errors.Join(errs...)
}
