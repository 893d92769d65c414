package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Field ids at and above this are Paimon's own: `_KEY_` columns start at Integer.MAX_VALUE / 2, the system columns
// end at Integer.MAX_VALUE (`table.SpecialFields`).
const firstReservedID = 1<<30 - 1

// reserved are the column names that Paimon gives to its own columns (`table.SpecialFields`).
var reserved = []string{"_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"}

// keyPrefix starts the names of the key columns in key-value files.
const keyPrefix = "_KEY_"

// validate checks what every schema must hold, whoever wrote it.
func (s *Schema) validate() error {
	if s.Version < 1 || s.Version > maxVersion {
		return fmt.Errorf("version %d is not known; calve knows 1 to %d: was it written by a newer Paimon?", s.Version, maxVersion)
	}
	if s.ID < 0 {
		return fmt.Errorf("id %d is negative", s.ID)
	}
	if len(s.Fields) == 0 {
		return errors.New("there are no columns")
	}
	ids := map[int]string{}
	if err := checkFields(s.Fields, ids, ""); err != nil {
		return err
	}
	for id, name := range ids {
		if id > s.HighestFieldID {
			return fmt.Errorf("column %q has id %d, above highestFieldId %d", name, id, s.HighestFieldID)
		}
	}
	for _, f := range s.Fields {
		if err := checkName(f.Name); err != nil {
			return err
		}
	}
	if err := s.checkKeys("partition key", s.PartitionKeys); err != nil {
		return err
	}
	if err := s.checkKeys("primary key", s.PrimaryKeys); err != nil {
		return err
	}
	if s.Keyed() && len(s.KeyColumns()) == 0 {
		return fmt.Errorf("the primary key %v has only partition columns; add a column that is not a partition key", s.PrimaryKeys)
	}
	return s.checkBucketKey()
}

// checkBucketKey follows `schema.SchemaValidation`.
func (s *Schema) checkBucketKey() error {
	names := splitNames(s.Options[optBucketKey])
	if err := s.checkKeys("bucket key", names); err != nil {
		return err
	}
	for _, n := range names {
		if s.Keyed() && !slices.Contains(s.PrimaryKeys, n) {
			return fmt.Errorf("bucket key %q is not part of the primary key %v", n, s.PrimaryKeys)
		}
		if slices.Contains(s.PartitionKeys, n) {
			return fmt.Errorf("bucket key %q is a partition key", n)
		}
	}
	return nil
}

// checkFields checks names and ids of one level, and of all levels below it.
func checkFields(fields []Field, ids map[int]string, path string) error {
	names := make(map[string]bool, len(fields))
	for _, f := range fields {
		full := path + f.Name
		if f.Name == "" {
			return fmt.Errorf("column with id %d has no name", f.ID)
		}
		if names[f.Name] {
			return fmt.Errorf("the column name %q is given twice", full)
		}
		names[f.Name] = true
		if f.ID < 0 || f.ID >= firstReservedID {
			return fmt.Errorf("column %q has id %d, which is not between 0 and %d", full, f.ID, firstReservedID-1)
		}
		if other, taken := ids[f.ID]; taken {
			return fmt.Errorf("columns %q and %q have the same id %d", other, full, f.ID)
		}
		ids[f.ID] = full
		if err := checkNested(f.Type, ids, full); err != nil {
			return err
		}
	}
	return nil
}

func checkNested(t Type, ids map[int]string, path string) error {
	switch t.Root {
	case Invalid:
		return fmt.Errorf("column %q has no type", path)
	case Array, Multiset:
		return checkNested(*t.Element, ids, path+".element")
	case Map:
		if err := checkNested(*t.Key, ids, path+".key"); err != nil {
			return err
		}
		return checkNested(*t.Element, ids, path+".value")
	case Row:
		return checkFields(t.Fields, ids, path+".")
	}
	return nil
}

func checkName(name string) error {
	if strings.HasPrefix(name, keyPrefix) {
		return fmt.Errorf("column name %q starts with %s, which Paimon keeps for key columns; choose another", name, keyPrefix)
	}
	if slices.Contains(reserved, name) {
		return fmt.Errorf("column name %q is one of Paimon's own (%s); choose another", name, strings.Join(reserved, ", "))
	}
	return nil
}

// checkKeys checks that the names are columns of primitive type, each once.
func (s *Schema) checkKeys(what string, names []string) error {
	for i, n := range names {
		at, ok := s.Field(n)
		if !ok {
			return fmt.Errorf("%s %q is not a column", what, n)
		}
		if slices.Contains(names[:i], n) {
			return fmt.Errorf("%s %q is given twice", what, n)
		}
		if t := s.Fields[at].Type; !t.Primitive() {
			return fmt.Errorf("%s %q has type %s; only primitive types can be keys", what, n, t)
		}
	}
	return nil
}
