package main

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// sum is what a read saw: rows, and a checksum that does not depend on their order. PeerBench.java makes the same.
type sum struct{ rows, check int64 }

func (s *sum) add(rec arrow.RecordBatch) {
	s.rows += rec.NumRows()
	for c, col := range rec.Columns() {
		s.check += int64(c+1) * cells(col, 0, col.Len())
	}
}

// cells sums the cells [from, to) of a column up. Nulls count nothing.
func cells(a arrow.Array, from, to int) (n int64) {
	switch a := a.(type) {
	case *array.Int64:
		return total(a, a.Int64Values(), from, to, func(v int64) int64 { return v })
	case *array.Int32:
		return total(a, a.Int32Values(), from, to, func(v int32) int64 { return int64(v) })
	case *array.Timestamp:
		return total(a, a.TimestampValues(), from, to, func(v arrow.Timestamp) int64 { return int64(v) })
	case *array.Float64:
		return total(a, a.Float64Values(), from, to, func(v float64) int64 { return int64(math.Floor(v*100 + 0.5)) })
	case *array.String:
		of := a.ValueOffsets()
		for i := from; i < to; i++ {
			if a.IsValid(i) {
				n += int64(of[i+1] - of[i])
			}
		}
	case *array.Boolean:
		for i := from; i < to; i++ {
			if a.IsValid(i) {
				n += 13 - 2*int64(boolByte(a.Value(i)))
			}
		}
	case *array.Decimal128:
		for i := from; i < to; i++ {
			if a.IsValid(i) {
				n += int64(a.Value(i).LowBits())
			}
		}
	case *array.Struct:
		for i := from; i < to; i++ {
			if a.IsValid(i) {
				for f := range a.NumField() {
					n += cells(a.Field(f), i, i+1)
				}
			}
		}
	case *array.Map:
		for i := from; i < to; i++ {
			if at, end := a.ValueOffsets(i); a.IsValid(i) {
				n += end - at + cells(a.Keys(), int(at), int(end)) + cells(a.Items(), int(at), int(end))
			}
		}
	case *array.List:
		for i := from; i < to; i++ {
			if at, end := a.ValueOffsets(i); a.IsValid(i) {
				n += end - at + cells(a.ListValues(), int(at), int(end))
			}
		}
	}
	return n
}

// total sums what of makes of values that are not null.
func total[T any](a arrow.Array, vs []T, from, to int, of func(T) int64) (n int64) {
	if a.NullN() == 0 {
		for _, v := range vs[from:to] {
			n += of(v)
		}
		return n
	}
	for i, v := range vs[from:to] {
		if a.IsValid(from + i) {
			n += of(v)
		}
	}
	return n
}
