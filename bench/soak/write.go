package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/schema"
)

// columns of the soak's table. What stands in name and amount follows from the version, so that every cell can be checked.
const columns = "k BIGINT NOT NULL, version BIGINT, name STRING, amount DECIMAL(12, 2), at TIMESTAMP(6)"

func name(dst []byte, version int64) []byte {
	return strconv.AppendInt(append(dst, "row of version "...), version, 10)
}

func amount(version int64) decimal128.Num { return decimal128.FromI64(version % 1_000_000) }

// batchEvery is the pause between two batches.
const batchEvery = 50 * time.Millisecond

// writer writes rows at a fixed rate and commits at a fixed interval, and notes what each commit must have published.
type writer struct {
	set     settings
	table   *engine.Table
	model   *rows
	history *history
	rng     *rand.Rand

	version int64 // of the newest row
	behind  time.Duration
	commits []time.Duration
	last    int64 // snapshot of the last commit
}

// run writes until the time is over. The schedule does not wait for commits: what they hold up is made good afterwards,
// and the most it was behind is noted.
func (w *writer) run(ctx context.Context) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, w.table.Schema().Arrow())
	defer b.Release()
	begin := time.Now()
	nextCommit := begin.Add(w.set.commit)
	for n := int64(0); ; n++ {
		due := begin.Add(time.Duration(n) * batchEvery)
		if due.Sub(begin) >= w.set.time {
			return w.commit(ctx)
		}
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		} else if -wait > w.behind {
			w.behind = -wait
		}
		if err := w.batch(ctx, b, w.set.rate*int(batchEvery)/int(time.Second), due); err != nil {
			return err
		}
		if time.Now().After(nextCommit) {
			if err := w.commit(ctx); err != nil {
				return err
			}
			nextCommit = nextCommit.Add(w.set.commit)
			if now := time.Now(); nextCommit.Before(now) {
				nextCommit = now
			}
		}
	}
}

// batch writes rows of random keys, some of them deletes.
func (w *writer) batch(ctx context.Context, b *array.RecordBuilder, n int, at time.Time) error {
	kinds := make([]schema.RowKind, n)
	var text []byte
	for i := range n {
		w.version++
		k, kept := w.rng.Int64N(int64(w.set.keys)), w.version
		if w.rng.IntN(100) < w.set.deletes {
			kinds[i], kept = schema.Delete, 0
		}
		if err := w.model.put(k, kept); err != nil {
			return err
		}
		b.Field(0).(*array.Int64Builder).Append(k)
		b.Field(1).(*array.Int64Builder).Append(w.version)
		text = name(text[:0], w.version)
		b.Field(2).(*array.StringBuilder).BinaryBuilder.Append(text)
		b.Field(3).(*array.Decimal128Builder).Append(amount(w.version))
		b.Field(4).(*array.TimestampBuilder).Append(arrow.Timestamp(at.UnixMicro()))
	}
	return w.table.Write(ctx, schema.Batch{Rec: b.NewRecordBatch(), Kinds: kinds})
}

func (w *writer) commit(ctx context.Context) error {
	begin := time.Now()
	s, err := w.table.Commit(ctx, engine.Progress{})
	if err != nil {
		return err
	}
	if s == nil {
		return nil // no batch came since the last one
	}
	w.commits = append(w.commits, time.Since(begin))
	w.last = s.ID
	w.history.note(s.ID, w.model.content)
	return nil
}
