package schema

import (
	"fmt"
	"slices"
)

const optRowTracking = "row-tracking.enabled"

// Columns that compacted files of tables with row tracking have behind those of the table (`table.SpecialFields`).
const (
	RowIDColumn    = "_ROW_ID"
	SequenceColumn = "_SEQUENCE_NUMBER"

	rowIDField    = 1<<31 - 6
	sequenceField = 1<<31 - 2
)

// WithRowTracking gives the schema of files that hold the id of each row and the snapshot it came with, as the last two
// columns. Other files have them in the manifest: those of whom readers say that such a column is null.
func (s *Schema) WithRowTracking(nullable bool) *Schema {
	out := *s
	out.Fields = append(slices.Clone(s.Fields),
		Field{ID: rowIDField, Name: RowIDColumn, Type: Type{Root: BigInt, NotNull: !nullable}},
		Field{ID: sequenceField, Name: SequenceColumn, Type: Type{Root: BigInt, NotNull: !nullable}})
	return &out
}

// checkRowTracking follows `schema.SchemaValidation.validateRowTracking`.
func (s *Schema) checkRowTracking(o Options) error {
	switch {
	case !o.RowTracking:
		return nil
	case s.Keyed():
		return s.refuse(optRowTracking, "rows of a table with a primary key have no ids; remove the option or the key")
	case o.Bucket != BucketDynamic:
		return s.refuse(optRowTracking, fmt.Sprintf("the table has %d buckets; a table with row ids has the option \"bucket\" = -1", o.Bucket))
	}
	return nil
}
