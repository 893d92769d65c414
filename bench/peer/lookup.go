package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/reader"
)

// keyBuilder makes batches of BIGINT keys.
type keyBuilder struct {
	s *arrow.Schema
	b *array.Int64Builder
	n int
}

func newKeys(s *arrow.Schema) *keyBuilder {
	return &keyBuilder{s: s, b: array.NewInt64Builder(memory.DefaultAllocator)}
}

func (k *keyBuilder) append(v int64) {
	k.b.Append(v)
	k.n++
}

func (k *keyBuilder) batch() arrow.RecordBatch {
	a := k.b.NewArray()
	defer a.Release()
	out := array.NewRecordBatch(k.s, []arrow.Array{a}, int64(k.n))
	k.n = 0
	return out
}

// lookUp finds rows and gives their number and a checksum.
func lookUp(ctx context.Context, l *reader.Lookup, keys []arrow.RecordBatch) (out [2]int64, err error) {
	for _, k := range keys {
		found, err := l.Get(ctx, k)
		if err != nil {
			return out, err
		}
		v, s := found.Rows.Column(1).(*array.Int64), found.Rows.Column(2).(*array.String)
		for _, at := range found.At {
			if at >= 0 {
				out[0]++
				out[1] += v.Value(int(at)) + int64(s.ValueLen(int(at)))
			}
		}
	}
	return out, nil
}
