package reader

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/calve-io/calve/manifest"
)

// SortMemory is what streams hold together of rows that are to be told in the order of their arrival (TailSpec.SortMemory). It is
// safe for concurrent use. A stream takes at most a quarter of what is free when it begins with a part of its rows, but may always
// take a sixty-fourth of all: the more of it slow readers hold, the smaller are the parts of the others, and more than a dozen of them
// must hold theirs before one waits.
type SortMemory struct {
	free *semaphore.Weighted
	size int64
	held atomic.Int64
}

// NewSortMemory makes one of so many bytes, at least one.
func NewSortMemory(bytes int64) *SortMemory {
	bytes = max(1, bytes)
	return &SortMemory{free: semaphore.NewWeighted(bytes), size: bytes}
}

// part is what one stream may take now, at least one byte.
func (m *SortMemory) part() int64 {
	return max(1, m.size/64, (m.size-m.held.Load())/4)
}

// take waits for memory as long as the context allows, in the order of calls, and calls beat whenever a tick comes; its error ends
// the wait. Nil has enough at all times.
func (m *SortMemory) take(ctx context.Context, bytes int64, tick func() <-chan time.Time, beat func() error) (free func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if !m.free.TryAcquire(bytes) {
		if err := m.wait(ctx, bytes, tick, beat); err != nil {
			return nil, err
		}
	}
	m.held.Add(bytes)
	return func() {
		m.held.Add(-bytes)
		m.free.Release(bytes)
	}, nil
}

func (m *SortMemory) wait(ctx context.Context, bytes int64, tick func() <-chan time.Time, beat func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- m.free.Acquire(ctx, bytes) }()
	for {
		select {
		case err := <-got:
			if err != nil {
				return fmt.Errorf("waiting for %d bytes to sort rows in: %w", bytes, err)
			}
			return nil
		case <-tick():
			if err := beat(); err != nil {
				cancel()
				if <-got == nil {
					m.free.Release(bytes)
				}
				return err
			}
		}
	}
}

// What rows of files are reckoned to take when they are to be sorted: of what a file has on storage, decoded and with room
// to spare, so that few are read again for more; and of few rows, at least.
const (
	sortedGrowth = 4
	sortedLeast  = 64 << 10
)

// need reckons what the rows with numbers from least to most take, at most so many bytes.
func (s *sorter) need(files []manifest.Entry, least, most, bytes int64) int64 {
	all := 0.0
	for i := range files {
		f := &files[i].File
		from, to := max(f.MinSeq, least), min(f.MaxSeq, most)
		if from > to {
			continue
		}
		part := (float64(to) - float64(from) + 1) / (float64(f.MaxSeq) - float64(f.MinSeq) + 1)
		all += part * (sortedRow*float64(f.Rows) + sortedGrowth*float64(f.Size))
	}
	return min(bytes, int64(min(max(sortedLeast, all), 1<<62)))
}
