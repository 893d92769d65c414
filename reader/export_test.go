package reader

import (
	"context"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// SortAtOnce bounds the bytes that are sorted at once.
func SortAtOnce(s TailSpec, bytes int64) TailSpec {
	s.sorted = bytes
	return s
}

// ScanThrough reads the rows of a snapshot through a schema of the table.
func (r *Reader) ScanThrough(ctx context.Context, snapshot, schemaID int64) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		v, err := r.view(ctx, schemaID)
		if err != nil {
			yield(nil, err)
			return
		}
		snap, err := r.meta.Snapshot(ctx, snapshot)
		if err != nil {
			yield(nil, err)
			return
		}
		splits, err := r.plan(ctx, v, snap, v.batchSight(), nil)
		if err == nil {
			var cols []int
			if cols, err = v.projection(nil); err == nil {
				err = r.scanInOrder(ctx, splits, cols, yield)
			}
		}
		if err != nil && err != errEnd {
			yield(nil, err)
		}
	}
}

// SortedRow is what is counted of a row that is sorted, beside its columns.
const SortedRow = sortedRow

// MaxEnded is of how many streams that ended a consumer is known.
const MaxEnded = maxEnded

// Streamed is a stream of a consumer that ends at once.
func (a *Acks) Streamed(r *Reader, id string) { a.stream(r, id)() }

// Known is how many consumers are known.
func (a *Acks) Known() int { return len(a.consumers) + len(a.ended) + len(a.endedBefore) }

// Free is how many bytes nobody has, found by taking them.
func (m *SortMemory) Free() int64 {
	low := int64(0)
	for step := m.size; step > 0; step /= 2 {
		for low+step <= m.size && m.free.TryAcquire(low+step) {
			m.free.Release(low + step)
			low += step
		}
	}
	return low
}

// Hold takes bytes as a stream does; the function gives them back.
func (m *SortMemory) Hold(bytes int64) func() {
	free, err := m.take(context.Background(), bytes, func() <-chan time.Time { return nil }, nil)
	if err != nil {
		panic(err)
	}
	return free
}
