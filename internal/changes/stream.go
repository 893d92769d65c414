package changes

import (
	"errors"
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
	PositionColumn = "_at"   // with Options.Positions: where a reader that has dealt with the row resumes
)

// Keys of the metadata of an Arrow stream's schema, in a stream that begins because something happened: EventKey is "gap"
// or "schema", DetailKey the event as JSON.
const (
	EventKey  = "calve.event"
	DetailKey = "calve.event.detail"
)

// stream writes an Arrow IPC stream. When the columns of the table change the stream ends and another one follows it, as
// its format has one schema for all batches; so it does when something else happens that is no row, which the metadata of
// the new one's schema tell. Where no row follows that stream is empty.
type stream struct {
	w         io.Writer
	positions bool
	told      *arrow.Metadata // of an event that the next stream tells
	out       *ipc.Writer
	of        *arrow.Schema // of the table
	sch       *arrow.Schema
}

// Write implements Encoder.
func (s *stream) Write(c reader.Changes) error {
	if c.Rec == nil {
		name := eventName(&c)
		if name == "" {
			return nil
		}
		if err := s.tell(); err != nil || name == endEvent {
			return err
		}
		md := arrow.NewMetadata([]string{EventKey, DetailKey}, []string{name, string(appendEvent(nil, name, &c))})
		s.told = &md
		return s.end()
	}
	if s.out == nil || !s.of.Equal(c.Rec.Schema()) {
		if err := s.end(); err != nil {
			return err
		}
		s.open(c.Rec.Schema())
	}
	n := int(c.Rec.NumRows())
	snaps, kinds, at := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	snaps.Reserve(n)
	var text []byte
	for i := range n {
		snaps.UnsafeAppend(c.Snapshot)
		kinds.Append(kindAt(&c, i).String())
		if s.positions {
			text = c.After(int64(i) + 1).Append(text[:0])
			at.BinaryBuilder.Append(text)
		}
	}
	cols := []arrow.Array{snaps.NewArray(), kinds.NewArray()}
	if s.positions {
		cols = append(cols, at.NewArray())
	}
	return s.out.Write(array.NewRecordBatch(s.sch, append(cols, c.Rec.Columns()...), int64(n)))
}

// open begins a stream for rows of the table's columns.
func (s *stream) open(of *arrow.Schema) {
	s.of = of
	fields := []arrow.Field{{Name: SnapshotColumn, Type: arrow.PrimitiveTypes.Int64}, {Name: KindColumn, Type: arrow.BinaryTypes.String}}
	if s.positions {
		fields = append(fields, arrow.Field{Name: PositionColumn, Type: arrow.BinaryTypes.String})
	}
	s.sch = arrow.NewSchema(append(fields, of.Fields()...), s.told)
	s.out, s.told = ipc.NewWriter(s.w, ipc.WithSchema(s.sch)), nil
}

// Close implements Encoder.
func (s *stream) Close() error { return errors.Join(s.tell(), s.end()) }

// tell writes an empty stream if there is an event that no row has followed.
func (s *stream) tell() error {
	if s.told == nil {
		return nil
	}
	if s.of == nil {
		s.of = arrow.NewSchema(nil, nil)
	}
	s.open(s.of)
	return s.end()
}

// end ends the stream that is being written.
func (s *stream) end() error {
	if s.out == nil {
		return nil
	}
	err := s.out.Close()
	s.out = nil
	return err
}
