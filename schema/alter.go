package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Past is what a change must know about the table besides its newest schema.
type Past struct {
	// Snapshots: something was committed to the table.
	Snapshots bool
	// Older gives the earlier versions of the schema; it is called only when a change names a column that is not there,
	// to tell one that is gone already from one that never was. Nil: there are none.
	Older func() ([]*Schema, error)
}

// Alter gives the schema that follows s when the changes are made in their order, with the next id, or s itself when
// all of it is so already. Field ids are never used again. s is not changed.
//
// The rules are those of `schema.SchemaManager.generateTableSchema`; errors match ErrAlter and say which change
// breaks which. A table that calve can write stays one: changes that end that are refused too.
func (s *Schema) Alter(changes []Change, past Past, timeMillis int64) (*Schema, error) {
	a := &alteration{old: s, past: past, fields: s.Fields, highest: s.HighestFieldID, comment: s.Comment,
		primary: s.PrimaryKeys, options: maps.Clone(s.Options)}
	if a.options == nil {
		a.options = map[string]string{}
	}
	for _, c := range changes {
		if err := c.apply(a); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrAlter, c, err)
		}
	}
	if !a.changed {
		return s, nil
	}
	a.keepDefaults()
	next := &Schema{Version: maxVersion, ID: s.ID + 1, Fields: a.fields, HighestFieldID: a.highest,
		PartitionKeys: s.PartitionKeys, PrimaryKeys: a.primary, Options: a.options, Comment: a.comment, TimeMillis: timeMillis}
	if err := next.checkAltered(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAlter, err)
	}
	return next, nil
}

// alteration is a schema on its way to the next one. Lists are never changed in place: they are shared with the old.
type alteration struct {
	old     *Schema
	past    Past
	fields  []Field
	highest int
	primary []string
	options map[string]string // own
	comment string
	changed bool
}

// keepDefaults writes down what tables of older versions meant by leaving options out, because the new schema has the
// present version.
func (a *alteration) keepDefaults() {
	if _, ok := a.options[optBucket]; !ok && a.old.Version <= 1 {
		a.options[optBucket] = "1"
	}
	if _, ok := a.options[optFileFormat]; !ok && a.old.Version <= 2 {
		a.options[optFileFormat] = defaultFormat(a.old.Version)
	}
}

// checkAltered holds an altered schema against the rules for whole schemas.
func (s *Schema) checkAltered(old *Schema) error {
	if err := s.validate(); err != nil {
		return err
	}
	if _, err := s.ParseOptions(); err != nil {
		return err
	}
	if err := s.checkMentions(); err != nil {
		return err
	}
	if old.CheckWritable() == nil {
		return s.CheckWritable()
	}
	if old.CheckReadable() == nil {
		return s.CheckReadable()
	}
	return nil
}

// older gives the earlier schemas.
func (a *alteration) older() ([]*Schema, error) {
	if a.past.Older == nil {
		return nil, nil
	}
	return a.past.Older()
}

// missing is the error for a column that is not there, or nil if gone says of an earlier schema that the change was
// made already.
func (a *alteration) missing(path []string, gone func(then Field) bool) error {
	older, err := a.older()
	if err != nil {
		return err
	}
	for _, s := range older {
		if f, ok := fieldAt(s.Fields, path); ok && gone(f) {
			return nil
		}
	}
	return a.noColumn(path)
}

func (a *alteration) noColumn(path []string) error {
	var names []string
	for _, f := range a.fields {
		names = append(names, f.Name)
	}
	return fmt.Errorf("there is no column %q; the table has %s", dotted(path), strings.Join(names, ", "))
}

// isKey says what key the column is part of, "" for none.
func (a *alteration) isKey(path []string) string {
	switch {
	case len(path) != 1:
		return "" // keys are never nested
	case slices.Contains(a.old.PartitionKeys, path[0]):
		return "partition"
	case slices.Contains(a.primary, path[0]):
		return "primary"
	}
	return ""
}

func fieldNamed(fields []Field, name string) int {
	return slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
}

// fieldAt finds the field that a path ends at; a path that ends at an element or value has none.
func fieldAt(fields []Field, path []string) (Field, bool) {
	if len(path) == 0 {
		return Field{}, false
	}
	i := fieldNamed(fields, path[0])
	if i < 0 {
		return Field{}, false
	}
	rest, t := path[1:], fields[i].Type
	for len(rest) > 0 && t.Root != Row {
		if t.Element == nil || rest[0] != innerName(t.Root) {
			return Field{}, false
		}
		rest, t = rest[1:], *t.Element
	}
	if len(rest) == 0 {
		return fields[i], len(path) == 1
	}
	if len(rest) == 1 {
		j := fieldNamed(t.Fields, rest[0])
		if j < 0 {
			return Field{}, false
		}
		return t.Fields[j], true
	}
	return fieldAt(t.Fields, rest)
}

// innerName is how a path names what a constructed type holds.
func innerName(r Root) string {
	switch r {
	case Array, Multiset:
		return "element"
	case Map:
		return "value"
	}
	return ""
}

// inList changes the list of fields that the last name of the path is, or would be, in: it clones what it changes.
func (a *alteration) inList(path []string, f func(list []Field, name string) ([]Field, error)) error {
	if len(path) == 0 || slices.Contains(path, "") {
		return fmt.Errorf("the column has no name")
	}
	fields, err := a.inFields(a.fields, path, 0, f)
	if err != nil {
		return err
	}
	a.fields = fields
	return nil
}

func (a *alteration) inFields(fields []Field, path []string, at int, f func([]Field, string) ([]Field, error)) ([]Field, error) {
	if at == len(path)-1 {
		return f(slices.Clone(fields), path[at])
	}
	i := fieldNamed(fields, path[at])
	if i < 0 {
		return nil, a.noColumn(path[:at+1])
	}
	t, err := a.inType(fields[i].Type, path, at+1, f)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(fields)
	out[i].Type = t
	return out, nil
}

func (a *alteration) inType(t Type, path []string, at int, f func([]Field, string) ([]Field, error)) (Type, error) {
	switch {
	case t.Root == Row:
		fields, err := a.inFields(t.Fields, path, at, f)
		t.Fields = fields
		return t, err
	case t.Element != nil && path[at] == innerName(t.Root) && at < len(path)-1:
		inner, err := a.inType(*t.Element, path, at+1, f)
		t.Element = &inner
		return t, err
	}
	return t, fmt.Errorf("%q has type %s, which has no members to name", dotted(path[:at]), t)
}

// onType changes the type that a path ends at.
func (a *alteration) onType(path []string, f func(Type) (Type, error)) error {
	fields, err := a.typeInFields(a.fields, path, 0, f)
	if err == nil {
		a.fields = fields
	}
	return err
}

func (a *alteration) typeInFields(fields []Field, path []string, at int, f func(Type) (Type, error)) ([]Field, error) {
	if at >= len(path) {
		return nil, fmt.Errorf("the column has no name")
	}
	i := fieldNamed(fields, path[at])
	if i < 0 {
		return nil, a.noColumn(path[:at+1])
	}
	t, err := a.typeInType(fields[i].Type, path, at+1, f)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(fields)
	out[i].Type = t
	return out, nil
}

func (a *alteration) typeInType(t Type, path []string, at int, f func(Type) (Type, error)) (Type, error) {
	switch {
	case at == len(path):
		return f(t)
	case t.Root == Row:
		fields, err := a.typeInFields(t.Fields, path, at, f)
		t.Fields = fields
		return t, err
	case t.Element != nil && path[at] == innerName(t.Root):
		inner, err := a.typeInType(*t.Element, path, at+1, f)
		t.Element = &inner
		return t, err
	}
	return t, fmt.Errorf("%q has type %s, which has no %q", dotted(path[:at]), t, path[at])
}

// renumber gives the members of a new type ids of their own: inner ones before the ROW that holds them
// (`types.ReassignFieldId`).
func (a *alteration) renumber(t Type) Type { return t.numbered(&a.highest) }
