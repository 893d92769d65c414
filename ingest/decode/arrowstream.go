package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// ArrowStream reads the batches of an Arrow stream (Arrow's IPC streaming format) that is in memory, and may come from
// anywhere: before the library reads it, every length in its metadata is held against the bytes that are there.
// Of its batches every offset is held against the values, so that what the rows have is in the stream, once; but for the
// words of dictionaries, which rows may refer to any number of times.
type ArrowStream struct {
	in    *ipc.Reader
	check arrowChecker
}

// OpenArrowStream checks a stream and reads its schema. Streams whose buffers are compressed are refused: what they come to
// is not known beforehand.
func OpenArrowStream(b []byte) (*ArrowStream, error) {
	if err := checkStream(b); err != nil {
		return nil, err
	}
	in, err := ipc.NewReader(bytes.NewReader(b), ipc.WithBodySizeLimit(int64(len(b))+1), ipc.WithMetadataSizeLimit(int64(len(b))+1))
	if err != nil {
		return nil, err
	}
	return &ArrowStream{in: in}, nil
}

// Next gives the next batch, which is valid until the call after; io.EOF: there is none.
func (s *ArrowStream) Next() (arrow.RecordBatch, error) {
	if s.in.Next() {
		b := s.in.RecordBatch()
		return b, s.check.batch(b)
	}
	if err := s.in.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// Close frees what the stream holds.
func (s *ArrowStream) Close() { s.in.Release() }

var (
	errStream     = errors.New("it is no Arrow stream, or a broken one")
	errCompressed = errors.New("its buffers are compressed; send it without that, and compress the whole of it if need be")
)

// Bounds of what a stream's metadata may say.
const (
	maxArrowFields = 20_000
	maxArrowMeta   = 100_000 // entries
	maxArrowDepth  = 64
	maxDeltas      = 4 << 30 // bytes: each addition to a dictionary copies what it has
)

// What a message is (Message.fbs, union MessageHeader).
const (
	headSchema     = 1
	headDictionary = 2
	headBatch      = 3
)

// checkStream walks over the messages of a stream: each a mark of 0xffffffff, the length of its metadata, the metadata and
// a body, whose length the metadata says. A length of 0 ends the stream.
func checkStream(b []byte) error {
	size, deltas := int64(len(b)), int64(0)
	for first := true; ; first = false {
		if len(b) == 0 && !first { // its end may be left out
			return nil
		}
		if len(b) < 8 || binary.LittleEndian.Uint32(b) != 0xffffffff {
			return errStream
		}
		n := int64(binary.LittleEndian.Uint32(b[4:]))
		if b = b[8:]; n == 0 {
			if len(b) > 0 {
				return fmt.Errorf("%w: %d bytes are behind its end", errStream, len(b))
			}
			if first {
				return errStream
			}
			return nil
		}
		if n < 4 || n > int64(len(b)) {
			return errStream
		}
		f := flat{b: b[:n], most: 8 * size}
		body, err := f.message(first)
		if err != nil {
			return err
		}
		if f.delta {
			if deltas++; deltas > 1 && deltas*size > maxDeltas {
				return errors.New("its dictionaries grow too often; send each whole, or more rows in a batch")
			}
		}
		if b = b[n:]; body < 0 || body > int64(len(b)) {
			return errStream
		}
		b = b[body:]
	}
}

// flat reads a table of FlatBuffers without trusting it: what is beyond its bytes is bad, and 0.
type flat struct {
	b            []byte
	bad          bool
	fields, meta int   // counted
	most         int64 // values that an array may have: no type of columns takes less than a bit for one
	delta        bool  // it adds to a dictionary
}

func (f *flat) at(i, n int) []byte {
	if i < 0 || i > len(f.b)-n {
		f.bad = true
		return make([]byte, 8)
	}
	return f.b[i : i+n]
}

func (f *flat) u16(i int) int { return int(binary.LittleEndian.Uint16(f.at(i, 2))) }
func (f *flat) u32(i int) int { return int(binary.LittleEndian.Uint32(f.at(i, 4))) }

// field gives where a table has a field, by its number in the schema; 0: it has not.
func (f *flat) field(table, number int) int {
	list := table - int(int32(f.u32(table)))
	if at := 4 + 2*number; !f.bad && at+2 <= f.u16(list) {
		if off := f.u16(list + at); off > 0 {
			return table + off
		}
	}
	return 0
}

// refer follows an offset.
func (f *flat) refer(i int) int { return i + f.u32(i) }

// vector gives where the elements of a list are, and how many; none if the table does not have it.
func (f *flat) vector(table, number, size int) (from, n int) {
	i := f.field(table, number)
	if i == 0 {
		return 0, 0
	}
	at := f.refer(i)
	n = f.u32(at)
	if f.bad || n > (len(f.b)-at-4)/size {
		f.bad = true
		return 0, 0
	}
	return at + 4, n
}

// message checks a message's metadata and gives the length of its body.
func (f *flat) message(first bool) (body int64, err error) {
	root := f.refer(0)
	kind := 0
	if i := f.field(root, 1); i > 0 {
		kind = int(f.at(i, 1)[0])
	}
	if i := f.field(root, 3); i > 0 {
		body = int64(binary.LittleEndian.Uint64(f.at(i, 8)))
	}
	_, n := f.vector(root, 4, 4)
	f.meta += n
	i := f.field(root, 2)
	if f.bad || i == 0 || first != (kind == headSchema) {
		return 0, errStream
	}
	switch table := f.refer(i); kind {
	case headSchema:
		from, n := f.vector(table, 1, 4)
		for k := 0; k < n && !f.bad; k++ {
			f.column(f.refer(from+4*k), 0)
		}
		_, m := f.vector(table, 2, 4)
		f.meta += m
		f.vector(table, 3, 8)
	case headDictionary:
		if i := f.field(table, 1); i > 0 {
			err = f.batch(f.refer(i))
		}
		if i := f.field(table, 2); i > 0 {
			f.delta = f.at(i, 1)[0] != 0
		}
	case headBatch:
		err = f.batch(table)
	default:
		return 0, errStream
	}
	if f.bad || f.meta > maxArrowMeta {
		return 0, errStream
	}
	return body, err
}

// column checks a field of a schema, and those inside.
func (f *flat) column(table, depth int) {
	if f.fields++; f.fields > maxArrowFields || depth > maxArrowDepth || f.meta > maxArrowMeta {
		f.bad = true
		return
	}
	_, m := f.vector(table, 6, 4)
	f.meta += m
	from, n := f.vector(table, 5, 4)
	for k := 0; k < n && !f.bad; k++ {
		f.column(f.refer(from+4*k), depth+1)
	}
}

// batch checks a batch: its rows, nodes (which say how many values an array has), buffers, compression and counts of buffers.
func (f *flat) batch(table int) error {
	if i := f.field(table, 0); i > 0 {
		f.count(i)
	}
	from, n := f.vector(table, 1, 16)
	for k := range n {
		f.count(from + 16*k)
	}
	f.vector(table, 2, 16)
	f.vector(table, 4, 8)
	if f.field(table, 3) > 0 {
		return errCompressed
	}
	return nil
}

// count checks a number of values.
func (f *flat) count(i int) {
	if v := int64(binary.LittleEndian.Uint64(f.at(i, 8))); v < 0 || v > f.most {
		f.bad = true
	}
}
