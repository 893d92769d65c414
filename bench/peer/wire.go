package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// save writes the rows of a commit as PeerBench.java reads them: their number, then each column. A column is a byte per
// row that says whether it is null, then the values, big-endian: longs, ints, doubles, bytes, 16 bytes of a large
// decimal. Texts, arrays and maps have one offset more than rows, and what the offsets point into.
func save(name string, batches []arrow.RecordBatch) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := &wire{w: bufio.NewWriterSize(f, 1<<20)}
	rows := 0
	for _, b := range batches {
		rows += int(b.NumRows())
	}
	w.int(rows)
	for c := range int(batches[0].NumCols()) {
		var parts []arrow.Array
		for _, b := range batches {
			parts = append(parts, b.Column(c))
		}
		col, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			return err
		}
		if err := w.column(col); err != nil {
			return fmt.Errorf("column %d: %w", c, err)
		}
	}
	return w.w.Flush()
}

// wire writes values; bufio keeps the first error for Flush.
type wire struct{ w *bufio.Writer }

func (w *wire) long(v uint64) {
	_, _ = w.w.Write(binary.BigEndian.AppendUint64(w.w.AvailableBuffer(), v))
}
func (w *wire) int(v int) {
	_, _ = w.w.Write(binary.BigEndian.AppendUint32(w.w.AvailableBuffer(), uint32(v)))
}

// compactDigits is the number of digits up to which Paimon keeps a decimal in a long.
const compactDigits = 18

func (w *wire) column(a arrow.Array) error {
	for i := range a.Len() {
		_ = w.w.WriteByte(boolByte(a.IsNull(i)))
	}
	switch a := a.(type) {
	case *array.Int64:
		each(a.Int64Values(), func(v int64) { w.long(uint64(v)) })
	case *array.Timestamp:
		each(a.TimestampValues(), func(v arrow.Timestamp) { w.long(uint64(v)) })
	case *array.Int32:
		each(a.Int32Values(), func(v int32) { w.int(int(v)) })
	case *array.Float64:
		each(a.Float64Values(), func(v float64) { w.long(math.Float64bits(v)) })
	case *array.Boolean:
		for i := range a.Len() {
			_ = w.w.WriteByte(boolByte(a.Value(i)))
		}
	case *array.Decimal128:
		large := a.DataType().(*arrow.Decimal128Type).Precision > compactDigits
		for i := range a.Len() {
			v := a.Value(i)
			if large {
				w.long(uint64(v.HighBits()))
			}
			w.long(v.LowBits())
		}
	case *array.String:
		w.offsets(a.ValueOffsets())
		_, _ = w.w.Write(a.ValueBytes())
	case *array.Struct:
		for f := range a.NumField() {
			if err := w.column(a.Field(f)); err != nil {
				return err
			}
		}
	case *array.Map: // before List, which it is too
		w.offsets(a.Offsets())
		return errors.Join(w.column(a.Keys()), w.column(a.Items()))
	case *array.List:
		w.offsets(a.Offsets())
		return w.column(a.ListValues())
	default:
		return fmt.Errorf("no form for %s", a.DataType())
	}
	return nil
}

// offsets must begin at 0, as those of arrays just concatenated do.
func (w *wire) offsets(of []int32) { each(of, func(v int32) { w.int(int(v)) }) }

func each[T any](vs []T, do func(T)) {
	for _, v := range vs {
		do(v)
	}
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
