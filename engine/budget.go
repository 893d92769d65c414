package engine

import (
	"context"
	"sync"
)

// Budget is the memory that the write buffers of several tables share: all tables of a process, and all their partitions.
// When it is used up, the fullest buffer is flushed, whichever table it belongs to, and writers wait until enough has come
// free. A batch that is larger than all of it is taken alone.
//
// It counts the batches that wait in buffers and those that are being flushed. What a flush needs beside them is small: a
// writer for each of its goroutines.
type Budget struct {
	limit int64

	mu     sync.Mutex // taken after Table.mu, never before it
	used   int64
	active map[*Table]int64 // bytes in the buffer that takes rows
	freed  chan struct{}    // closed when something comes free; nil: nobody waits
}

// NewBudget makes a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{limit: bytes, active: map[*Table]int64{}} }

// Used is how many bytes are in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// take waits until a batch of t fits. No lock is held.
func (b *Budget) take(ctx context.Context, t *Table, size int64) error {
	if b == nil {
		return nil
	}
	for {
		b.mu.Lock()
		if b.used == 0 || b.used+size <= b.limit {
			b.used += size
			b.active[t] += size
			b.mu.Unlock()
			return nil
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed, fullest := b.freed, b.fullestLocked()
		b.mu.Unlock()
		if fullest != nil {
			if err := fullest.flushActive(ctx); err != nil {
				if fullest == t || ctx.Err() != nil {
					return err
				}
				b.forget(fullest) // it takes no more rows and drops those it has
				continue
			}
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		case <-t.ctx.Done():
			return t.usable()
		}
	}
}

// short reports whether a writer waits: what comes into a buffer then is flushed at once.
func (b *Budget) short() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.freed != nil
}

// fullestLocked is the table with the fullest buffer, nil if all are empty; mu is held.
func (b *Budget) fullestLocked() *Table {
	var out *Table
	most := int64(0)
	for t, n := range b.active {
		if n > most || n == most && n > 0 && t.store.URL("") < out.store.URL("") {
			out, most = t, n
		}
	}
	return out
}

// froze notes that bytes of t are being flushed from now on.
func (b *Budget) froze(t *Table, bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active[t] -= bytes; b.active[t] <= 0 {
		delete(b.active, t)
	}
}

// untake gives back what take has given, unless the table was forgotten since.
func (b *Budget) untake(t *Table, size int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active[t] < size {
		return
	}
	if b.active[t] -= size; b.active[t] == 0 {
		delete(b.active, t)
	}
	b.freeLocked(size)
}

// free gives bytes back that were flushed.
func (b *Budget) free(bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freeLocked(bytes)
}

func (b *Budget) freeLocked(bytes int64) {
	b.used -= bytes
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// forget gives back what is in the buffer of a table that takes no more rows.
func (b *Budget) forget(t *Table) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.active[t]; n > 0 {
		delete(b.active, t)
		b.freeLocked(n)
	}
}
