package schema

import (
	"errors"
	"strings"
)

// ErrAlter: a change of the schema breaks a rule; the error says which.
var ErrAlter = errors.New("schema change refused")

// Change is one change of a table's schema (`schema.SchemaChange`). Columns are named by a path: the name of a column
// and, inside nested types, the names of ROW members, "element" for what an ARRAY or MULTISET holds and "value" for the
// values of a MAP: {"address", "city"}, {"tags", "element"}.
type Change interface {
	// apply makes the change in a. It leaves a as it is when it is so already.
	apply(a *alteration) error
	// String tells the change to people.
	String() string
}

// Place says where a column goes among its neighbours. The zero value is the end, or before the partition columns in
// tables with the option add-column-before-partition.
type Place struct {
	At  PlaceKind
	Ref string // with After and Before: the neighbour
}

// PlaceKind is the kind of a Place.
type PlaceKind uint8

// Kinds of places.
const (
	AnyPlace PlaceKind = iota
	First
	Last
	After
	Before
)

// String gives the words that ParseAddColumn reads, with a space in front; empty for AnyPlace.
func (p Place) String() string {
	switch p.At {
	case First:
		return " first"
	case Last:
		return " last"
	case After:
		return " after " + p.Ref
	case Before:
		return " before " + p.Ref
	}
	return ""
}

// AddColumn adds a column, which must be nullable: the rows that are there have no value for it. It gets a new field id.
// A column of that name with the same type and comment is so already, wherever it stands.
type AddColumn struct {
	Path    []string
	Type    Type
	Comment string
	Place   Place
}

// DropColumn removes a column that is no key. Its values stay in the old files and are not read any more, even if
// a column of that name is added again. A column that an earlier version of the schema had is dropped already.
type DropColumn struct{ Path []string }

// RenameColumn gives a column another name and keeps its field id; options that mention it are rewritten.
// Partition columns keep their name, because folders are named by it.
type RenameColumn struct {
	Path []string
	To   string
}

// MoveColumn moves a column of the table to another place.
type MoveColumn struct {
	Name  string
	Place Place
}

// ChangeType gives a column that is no key another type, which Paimon must know how to cast the old one to: CanCast.
// Old files keep their values; readers cast them.
type ChangeType struct {
	Path []string
	Type Type
	// KeepNull leaves the nullability as it is and ignores that of Type.
	KeepNull bool
}

// ChangeNullability allows or forbids nulls. Forbidding them where they were allowed needs the table option
// alter-column-null-to-not-null.disabled = false.
type ChangeNullability struct {
	Path    []string
	NotNull bool
}

// ChangeComment sets the comment of a column; empty removes it.
type ChangeComment struct {
	Path    []string
	Comment string
}

// SetOption sets a table option. Some are fixed once the table has a snapshot: TableOption.Fixed.
type SetOption struct{ Name, Value string }

// RemoveOption removes a table option; one that is not set is removed already.
type RemoveOption struct{ Name string }

// SetTableComment sets the comment of the table; empty removes it.
type SetTableComment struct{ Comment string }

func dotted(path []string) string { return strings.Join(path, ".") }

// String tells the change.
func (c AddColumn) String() string {
	return "add " + dotted(c.Path) + " " + c.Type.String() + c.Place.String()
}

// String tells the change.
func (c DropColumn) String() string { return "drop " + dotted(c.Path) }

// String tells the change.
func (c RenameColumn) String() string { return "rename " + dotted(c.Path) + " to " + c.To }

// String tells the change.
func (c MoveColumn) String() string { return "move " + c.Name + c.Place.String() }

// String tells the change.
func (c ChangeType) String() string { return "change " + dotted(c.Path) + " to " + c.Type.String() }

// String tells the change.
func (c ChangeNullability) String() string {
	if c.NotNull {
		return "forbid nulls in " + dotted(c.Path)
	}
	return "allow nulls in " + dotted(c.Path)
}

// String tells the change.
func (c ChangeComment) String() string { return "comment on " + dotted(c.Path) }

// String tells the change.
func (c SetOption) String() string { return "set " + c.Name + " = " + c.Value }

// String tells the change.
func (c RemoveOption) String() string { return "unset " + c.Name }

// String tells the change.
func (c SetTableComment) String() string { return "comment on the table" }
