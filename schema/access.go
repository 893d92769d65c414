package schema

import "slices"

// Field finds a column by name.
func (s *Schema) Field(name string) (int, bool) {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i, true
		}
	}
	return -1, false
}

// FieldByID finds a top-level column by its field id.
func (s *Schema) FieldByID(id int) (int, bool) {
	for i := range s.Fields {
		if s.Fields[i].ID == id {
			return i, true
		}
	}
	return -1, false
}

// Covers reports whether rows that were made for s lack nothing that rows made for next would have: every column of next
// is in s, under its name, with its type. It is so when columns were only dropped or moved, or options changed.
func (s *Schema) Covers(next *Schema) bool {
	for i := range next.Fields {
		f := &next.Fields[i]
		at, ok := s.Field(f.Name)
		if !ok || s.Fields[at].ID != f.ID || !s.Fields[at].Type.Equal(f.Type) {
			return false
		}
	}
	return true
}

// Keyed reports whether the table has a primary key.
func (s *Schema) Keyed() bool { return len(s.PrimaryKeys) > 0 }

// Partitioned reports whether the table has partition columns.
func (s *Schema) Partitioned() bool { return len(s.PartitionKeys) > 0 }

// KeyColumns gives the trimmed primary key: the primary key without the partition columns, in primary-key order,
// as indexes into Fields. It is *the key* of key-value files, of merging and of `_MIN_KEY`.
func (s *Schema) KeyColumns() []int {
	var out []int
	for _, n := range s.PrimaryKeys {
		if !slices.Contains(s.PartitionKeys, n) {
			out = append(out, s.mustField(n))
		}
	}
	return out
}

// PartitionColumns gives the partition columns in partition-key order, as indexes into Fields.
func (s *Schema) PartitionColumns() []int { return s.indexes(s.PartitionKeys) }

// BucketColumns gives the columns whose hash chooses the bucket: those of the option bucket-key in its order, else
// the trimmed primary key. It is empty for append tables without bucket-key.
func (s *Schema) BucketColumns() []int {
	if names := splitNames(s.Options[optBucketKey]); len(names) > 0 {
		return s.indexes(names)
	}
	return s.KeyColumns()
}

// Types gives the types of the columns.
func (s *Schema) Types(cols []int) []Type {
	out := make([]Type, len(cols))
	for i, c := range cols {
		out[i] = s.Fields[c].Type
	}
	return out
}

// Names gives the names of the columns.
func (s *Schema) Names(cols []int) []string {
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = s.Fields[c].Name
	}
	return out
}

func (s *Schema) indexes(names []string) []int {
	var out []int
	for _, n := range names {
		out = append(out, s.mustField(n))
	}
	return out
}

// mustField finds a column that validate has found before.
func (s *Schema) mustField(name string) int {
	i, ok := s.Field(name)
	if !ok {
		panic("schema: column " + name + " of a key is missing: the Schema was not made by Parse or New")
	}
	return i
}

// Field ids of what is inside of collections, which have none in the schema (`SpecialFields.getArrayElementFieldId` and its
// siblings, §8.2).
const (
	insideIDBase = 536870911
	insideIDStep = 1024
)

// ElementID is the Parquet and Iceberg id of the element of an ARRAY, or of the value of a MAP or MULTISET: fieldID is that
// of the nearest field around, depth counts from 1 the collections from that field to this one.
func ElementID(fieldID, depth int) int { return insideIDBase + fieldID*insideIDStep + depth }

// KeyID is the same for the key of a MAP and the element of a MULTISET.
func KeyID(fieldID, depth int) int { return insideIDBase - fieldID*insideIDStep - depth }
