package reader

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/calve-io/calve/manifest"
)

// SortMemory is what streams hold together of rows that are to be told in the order of their arrival (TailSpec.SortMemory). It is
// safe for concurrent use.
type SortMemory struct {
	free *semaphore.Weighted
	size int64
}

// NewSortMemory makes one of so many bytes, at least one.
func NewSortMemory(bytes int64) *SortMemory {
	bytes = max(1, bytes)
	return &SortMemory{free: semaphore.NewWeighted(bytes), size: bytes}
}

// take waits for memory as long as the context allows. Nil has enough at all times.
func (m *SortMemory) take(ctx context.Context, bytes int64) (free func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if err := m.free.Acquire(ctx, bytes); err != nil {
		return nil, fmt.Errorf("waiting for %d bytes to sort rows in: %w", bytes, err)
	}
	return func() { m.free.Release(bytes) }, nil
}

// What rows of files are reckoned to take when they are to be sorted: of what a file has on storage, decoded and with room
// to spare, so that few are read again for more; and of few rows, at least.
const (
	sortedGrowth = 4
	sortedLeast  = 64 << 10
)

// need reckons what the rows with numbers from least to most take, at most s.most.
func (s *sorter) need(files []manifest.Entry, least, most int64) int64 {
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
	return min(s.most, int64(min(max(sortedLeast, all), 1<<62)))
}
