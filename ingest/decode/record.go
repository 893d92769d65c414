// Package decode turns the records of sources into rows of a table: Arrow batches that grow column by column, without an
// allocation a row. Each form of a record has a decoder; all of them share the columns and the rules of the table
// (builder.go), so a value means the same whichever form it came in.
package decode

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
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

	// Rows has the record as its row Row, where the form is Arrow; then there is no Value.
	Rows arrow.RecordBatch
	Row  int
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
	Code   Code
	Reason string
}

// Code says in one word why a record was refused, for counting and for choosing what to decode again. The set is small
// and its words stay.
type Code string

// The codes.
const (
	Malformed   Code = "malformed"   // the bytes are not of the form they should have: cut off, no JSON, no UTF-8, empty
	TooLarge    Code = "too-large"   // more bytes than the limit of a record, or far more in memory
	NotRecord   Code = "record"      // well formed, but not what the format says a record is: no object, an incomplete event
	BadOp       Code = "operation"   // a row kind that is unknown, or that the table does not take
	NoKey       Code = "key"         // a key column, or the key of a delete, is missing or null
	IsNull      Code = "null"        // a NOT NULL column is missing or null
	BadValue    Code = "value"       // a column cannot hold the value: another type, out of range, too long
	NoSchema    Code = "schema"      // the registry does not know the writer's schema, or the table would need a change that policy forbids or that cannot be
	Unavailable Code = "unavailable" // a value is not in the record, and the table has no row to take it from
	BrokeRule   Code = "rule"        // the table's merge engine cannot take the row
	NoTable     Code = "route"       // the record says no table, or one that is not allowed, where records choose theirs
)

// CodeOf gives the code of an error that matches ErrRow.
func CodeOf(err error) Code {
	var row *RowError
	if errors.As(err, &row) && row.Code != "" {
		return row.Code
	}
	return NotRecord
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
