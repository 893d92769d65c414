package changes

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/reader"
)

// Columns in front of the table's in an Arrow stream.
const (
	SnapshotColumn = "_snapshot"
	KindColumn     = "_kind" // +I, -U, +U or -D
)

// stream writes an Arrow IPC stream. When the columns of the table change the stream ends and another one follows it, as
// its format has one schema for all batches.
type stream struct {
	w   io.Writer
	out *ipc.Writer
	of  *arrow.Schema // of the table
	sch *arrow.Schema
}

// Write implements Encoder.
func (s *stream) Write(c reader.Changes) error {
	if c.Rec == nil {
		return nil
	}
	if s.out == nil || !s.of.Equal(c.Rec.Schema()) {
		if err := s.Close(); err != nil {
			return err
		}
		s.of = c.Rec.Schema()
		s.sch = arrow.NewSchema(append([]arrow.Field{
			{Name: SnapshotColumn, Type: arrow.PrimitiveTypes.Int64}, {Name: KindColumn, Type: arrow.BinaryTypes.String},
		}, s.of.Fields()...), nil)
		s.out = ipc.NewWriter(s.w, ipc.WithSchema(s.sch))
	}
	n := int(c.Rec.NumRows())
	snaps, kinds := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	snaps.Reserve(n)
	for i := range n {
		snaps.UnsafeAppend(c.Snapshot)
		kinds.Append(kindAt(&c, i).String())
	}
	cols := append([]arrow.Array{snaps.NewArray(), kinds.NewArray()}, c.Rec.Columns()...)
	return s.out.Write(array.NewRecordBatch(s.sch, cols, int64(n)))
}

// Close implements Encoder.
func (s *stream) Close() error {
	if s.out == nil {
		return nil
	}
	err := s.out.Close()
	s.out = nil
	return err
}
