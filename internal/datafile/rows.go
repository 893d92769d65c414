// Package datafile writes and reads Paimon's Parquet data files: key-value files of primary-key tables and plain
// files of append tables, with their statistics.
package datafile

import "github.com/apache/arrow-go/v18/arrow"

// Rows are rows in file order: the columns asked for and, for key-value files, sequence number and kind of each row.
// They are the unit that moves between file, merge and file.
//
// Rows from a Reader are valid until they are released by the garbage collector: buffers are not reused behind the
// caller's back.
type Rows struct {
	N     int
	Seq   []int64 // nil for append files
	Kinds []int8  // nil for append files: `_VALUE_KIND` in Paimon's byte values
	Cols  []arrow.Array
}
