// Package schema owns what a table is: data types and their mapping to Arrow, fields with their ids,
// row kinds, batches of rows, and the table options with their meaning.
// It is the vocabulary of every other package and imports none of them.
package schema

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// Root is the kind of a data type, without length, precision or nullability.
type Root uint8

// The data types of Paimon (`org.apache.paimon.types.DataTypeRoot`).
const (
	Invalid Root = iota
	Boolean
	TinyInt
	SmallInt
	Int
	BigInt
	Float
	Double
	Decimal
	Char
	VarChar // STRING is VARCHAR(2147483647)
	Binary
	VarBinary // BYTES is VARBINARY(2147483647)
	Date
	Time
	Timestamp
	TimestampLTZ
	Variant
	Array
	Multiset
	Map
	Row
)

// MaxLength is the length of STRING and BYTES.
const MaxLength = 1<<31 - 1

// Type is one data type. The zero value is invalid.
type Type struct {
	Root      Root
	Length    int // CHAR, VARCHAR, BINARY, VARBINARY
	Precision int // DECIMAL, TIME, TIMESTAMP, TIMESTAMP_LTZ
	Scale     int // DECIMAL
	NotNull   bool
	Element   *Type   // ARRAY, MULTISET: the element; MAP: the value
	Key       *Type   // MAP
	Fields    []Field // ROW
}

// Field is a column, or a member of a ROW.
type Field struct {
	ID          int     `json:"id"`
	Name        string  `json:"name"`
	Type        Type    `json:"type"`
	Description string  `json:"description,omitempty"`
	Default     *string `json:"defaultValue,omitempty"` // for writers only
}

// Schema is one version of a table's schema: the file `schema/schema-N`.
// It is immutable once built: all packages share one pointer per version.
type Schema struct {
	Version        int               `json:"version"`
	ID             int64             `json:"id"`
	Fields         []Field           `json:"fields"`
	HighestFieldID int               `json:"highestFieldId"`
	PartitionKeys  []string          `json:"partitionKeys"`
	PrimaryKeys    []string          `json:"primaryKeys"`
	Options        map[string]string `json:"options"`
	Comment        string            `json:"comment,omitempty"`
	TimeMillis     int64             `json:"timeMillis"`
}

// RowKind says what a row does to the table. The values are those of Paimon's `_VALUE_KIND` column.
type RowKind int8

// Row kinds in Paimon's byte values.
const (
	Insert       RowKind = 0 // +I
	UpdateBefore RowKind = 1 // -U
	UpdateAfter  RowKind = 2 // +U
	Delete       RowKind = 3 // -D
)

// IsAdd reports whether the row is part of the table after it was applied.
func (k RowKind) IsAdd() bool { return k == Insert || k == UpdateAfter }

// String gives the short form of Paimon and Flink: +I, -U, +U, -D.
func (k RowKind) String() string {
	switch k {
	case Insert:
		return "+I"
	case UpdateBefore:
		return "-U"
	case UpdateAfter:
		return "+U"
	case Delete:
		return "-D"
	}
	return "?"
}

// Batch is a set of rows in arrival order: the columns of one table schema, in its field order,
// and a kind for each row. Kinds nil means that every row is an insert.
// A Batch is read-only; who receives it may keep it as long as needed (buffers are garbage collected).
type Batch struct {
	Rec   arrow.RecordBatch
	Kinds []RowKind
}

// Len is the number of rows.
func (b Batch) Len() int { return int(b.Rec.NumRows()) }
