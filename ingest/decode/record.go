// Package decode turns the records of sources into rows of a table: Arrow batches that grow column by column, without an
// allocation a row. Each form of a record has a decoder; all of them share the columns and the rules of the table
// (builder.go), so a value means the same whichever form it came in.
package decode

import (
	"errors"
	"fmt"
)

// Record is one message of a source. The slices belong to the source and are read during a call only.
type Record struct {
	Topic     string // for lines: the name of the input
	Partition int32
	Offset    int64 // for lines: the line number, from 1
	Timestamp int64 // milliseconds since 1970; 0: the source has none
	Key       []byte
	Value     []byte // nil (not empty): a tombstone
	Headers   []Header
	Cut       int // bytes at the end of the value that the source did not keep: the record is too large
}

// Header is one header of a record. Names may occur more than once.
type Header struct {
	Name  string
	Value []byte
}

// Header gives the value of the first header of a name.
func (r *Record) Header(name string) (value []byte, ok bool) {
	for i := range r.Headers {
		if r.Headers[i].Name == name {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

// ErrRow matches every error that is about one record: the record goes to the dead letters and the stream goes on.
var ErrRow = errors.New("record does not fit the table")

// RowError says why a record was refused. Nothing of the record is left in the batch.
type RowError struct {
	Offset int    // byte offset in the record's value (or key) where it went wrong; -1: none
	InKey  bool   // the offset is in the record's key
	Column string // "" when no column is concerned
	Reason string
}

// Error gives the reason with the column and the byte offset.
func (e *RowError) Error() string {
	s := e.Reason
	if e.Column != "" {
		s = fmt.Sprintf("column %q: %s", e.Column, s)
	}
	if e.Offset >= 0 {
		where := "the value"
		if e.InKey {
			where = "the key"
		}
		s = fmt.Sprintf("%s (at byte %d of %s)", s, e.Offset, where)
	}
	return s
}

// Is makes errors.Is(err, ErrRow) true.
func (e *RowError) Is(target error) bool { return target == ErrRow }

// excerpt shortens input for an error message.
func excerpt(b []byte) string {
	const most = 40
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}
