// Package datafile writes and reads Paimon's Parquet data files: key-value files of primary-key tables and plain
// files of append tables, with their statistics. Avro data files are read.
//
// Both directions are calve's own code, columnar from end to end: Arrow arrays go into pages and come out of pages
// without a row in between. Own code for two reasons. Speed: the writer of the Arrow library spends more time on
// building dictionaries, levels and statistics than zstd does on compressing them. Safety: the libraries allocate what
// a file's headers claim. The other libraries are in the tests, as judges.
//
//	writer.go     Writer: row groups, what the manifest wants to know, footer
//	encode.go     one column: Arrow array → page → column chunk; append.go  its values
//	choose.go     which encoding; dictwrite.go, pack.go  the encodings
//	bounds.go     least and greatest values; stats.go, truncate.go  what a manifest keeps of them
//	meta.go       page headers, page index, footer; layout.go  the columns of a file
//
//	reader.go     Reader: projection by field id, batches
//	column.go     one column: pages → Arrow array; text.go, convert.go, cast.go  its values
//	page.go       pages; rle.go, delta.go  their encodings; codec.go  compression
//	prune.go      which rows are read at all; pageindex.go  the statistics that say so; skip.go  passing over the others
//	footer.go     metadata; thrift.go  what it is written in
//	nested.go     columns of nested types: levels → Arrow array; levels.go  their leaves
//	avro.go       Avro files: blocks; avroplan.go  schema and projection; avrodecode.go  values → Arrow arrays
package datafile

import "github.com/apache/arrow-go/v18/arrow"

// Rows are rows in file order: the columns asked for and, for key-value files, sequence number and kind of each row.
// They are the unit that moves between file, merge and file.
//
// Rows from a Reader are valid until they are released by the garbage collector: buffers are not reused behind the
// caller's back.
type Rows struct {
	N     int
	First int64   // from a Reader: the number of the first row in its file; the others follow without a gap
	Seq   []int64 // nil for append files
	Kinds []int8  // nil for append files: `_VALUE_KIND` in Paimon's byte values
	Cols  []arrow.Array
}
