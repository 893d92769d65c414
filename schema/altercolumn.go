package schema

import (
	"fmt"
	"slices"
	"strings"
)

func (c AddColumn) apply(a *alteration) error {
	if c.Type.NotNull {
		return fmt.Errorf("a new column must allow nulls: the rows that are there have no value for it")
	}
	return a.inList(c.Path, func(list []Field, name string) ([]Field, error) {
		if i := fieldNamed(list, name); i >= 0 {
			have := list[i]
			if sameShape(have.Type, c.Type) && (c.Comment == "" || have.Description == c.Comment) {
				return list, nil
			}
			return nil, fmt.Errorf("there is a column %q already, of type %s", dotted(c.Path), have.Type)
		}
		at, err := a.placeNew(list, c)
		if err != nil {
			return nil, err
		}
		a.highest++
		f := Field{ID: a.highest, Name: name, Description: c.Comment}
		f.Type = a.renumber(c.Type)
		a.changed = true
		return slices.Insert(list, at, f), nil
	})
}

// placeNew finds the index of a new field.
func (a *alteration) placeNew(list []Field, c AddColumn) (int, error) {
	switch c.Place.At {
	case First:
		return 0, nil
	case After, Before:
		i := fieldNamed(list, c.Place.Ref)
		if i < 0 {
			return 0, fmt.Errorf("there is no column %q to stand beside", c.Place.Ref)
		}
		if c.Place.At == After {
			i++
		}
		return i, nil
	case AnyPlace:
		if len(c.Path) == 1 && strings.EqualFold(a.old.Options["add-column-before-partition"], "true") {
			for i, f := range list {
				if slices.Contains(a.old.PartitionKeys, f.Name) {
					return i, nil
				}
			}
		}
	}
	return len(list), nil
}

// sameShape reports whether two types are the same but for the ids of their members.
func sameShape(x, y Type) bool {
	if len(x.Fields) != len(y.Fields) || (x.Key == nil) != (y.Key == nil) || (x.Element == nil) != (y.Element == nil) {
		return false
	}
	for i := range x.Fields {
		if x.Fields[i].Name != y.Fields[i].Name || !sameShape(x.Fields[i].Type, y.Fields[i].Type) {
			return false
		}
	}
	if x.Key != nil && !sameShape(*x.Key, *y.Key) || x.Element != nil && !sameShape(*x.Element, *y.Element) {
		return false
	}
	return x.Root == y.Root && x.Length == y.Length && x.Precision == y.Precision && x.Scale == y.Scale && x.NotNull == y.NotNull
}

func (c DropColumn) apply(a *alteration) error {
	if key := a.isKey(c.Path); key != "" {
		return fmt.Errorf("%q is a %s key column, which cannot be dropped", c.Path[0], key)
	}
	if _, ok := fieldAt(a.fields, c.Path); !ok {
		return a.missing(c.Path, func(Field) bool { return true })
	}
	return a.inList(c.Path, func(list []Field, name string) ([]Field, error) {
		if len(list) == 1 {
			return nil, fmt.Errorf("it is the last one")
		}
		a.changed = true
		i := fieldNamed(list, name)
		return slices.Delete(list, i, i+1), nil
	})
}

func (c RenameColumn) apply(a *alteration) error {
	if a.isKey(c.Path) == "partition" {
		return fmt.Errorf("%q is a partition column, which cannot be renamed: the folders of the partitions have its name", c.Path[0])
	}
	to := slices.Clone(c.Path)
	if len(to) > 0 {
		to[len(to)-1] = c.To
	}
	have, taken := fieldAt(a.fields, to)
	if _, ok := fieldAt(a.fields, c.Path); !ok {
		return a.missing(c.Path, func(then Field) bool { return taken && then.ID == have.ID })
	}
	if c.To == "" {
		return fmt.Errorf("the new name is empty")
	}
	if dotted(to) == dotted(c.Path) {
		return nil
	}
	if taken {
		return fmt.Errorf("there is a column %q already", dotted(to))
	}
	a.changed = true
	if len(c.Path) == 1 {
		a.primary = slices.Clone(a.primary)
		for i, k := range a.primary {
			if k == c.Path[0] {
				a.primary[i] = c.To
			}
		}
		a.renameInOptions(c.Path[0], c.To)
	}
	return a.inList(c.Path, func(list []Field, name string) ([]Field, error) {
		list[fieldNamed(list, name)].Name = c.To
		return list, nil
	})
}

func (c MoveColumn) apply(a *alteration) error {
	from := fieldNamed(a.fields, c.Name)
	if from < 0 {
		return a.noColumn([]string{c.Name})
	}
	rest := slices.Delete(slices.Clone(a.fields), from, from+1)
	to := len(rest)
	switch c.Place.At {
	case First:
		to = 0
	case After, Before:
		if to = fieldNamed(rest, c.Place.Ref); to < 0 {
			if c.Place.Ref == c.Name {
				return fmt.Errorf("a column cannot stand beside itself")
			}
			return a.noColumn([]string{c.Place.Ref})
		}
		if c.Place.At == After {
			to++
		}
	case AnyPlace:
		return fmt.Errorf("the new place is missing: first, last, after or before a column")
	}
	a.changed = a.changed || to != from
	a.fields = slices.Insert(rest, to, a.fields[from])
	return nil
}

func (c ChangeType) apply(a *alteration) error {
	return a.onType(c.Path, func(have Type) (Type, error) {
		want := c.Type
		if c.KeepNull {
			want.NotNull = have.NotNull
		}
		if sameShape(have, want) {
			return have, nil
		}
		if key := a.isKey(c.Path); key != "" {
			return have, fmt.Errorf("%q is a %s key column, whose type cannot change", c.Path[0], key)
		}
		if len(c.Path) == 1 && slices.Contains(splitNames(a.options[optBucketKey]), c.Path[0]) {
			return have, fmt.Errorf("%q is a bucket key column, whose type cannot change: rows of one value would be in two buckets", c.Path[0])
		}
		if err := a.checkNull(have, want.NotNull); err != nil {
			return have, err
		}
		implicitOnly := strings.EqualFold(a.old.Options["disable-explicit-type-casting"], "true")
		switch explicit := CanCast(have, want, true); {
		case !explicit && (!have.Primitive() || !want.Primitive()):
			return have, fmt.Errorf("%s cannot be read as %s; members of nested types are changed one by one", have, want)
		case !explicit:
			return have, fmt.Errorf("%s cannot be read as %s", have, want)
		case implicitOnly && !CanCast(have, want, false):
			return have, fmt.Errorf("%s read as %s may lose something, and the table option disable-explicit-type-casting forbids that", have, want)
		}
		a.changed = true
		return want, nil
	})
}

// checkNull refuses to forbid nulls where they were allowed.
func (a *alteration) checkNull(have Type, notNull bool) error {
	if have.NotNull || !notNull || strings.EqualFold(a.old.Options["alter-column-null-to-not-null.disabled"], "false") {
		return nil
	}
	return fmt.Errorf("nulls were allowed, so there may be some; to forbid them all the same, " +
		"set the table option alter-column-null-to-not-null.disabled to false first")
}

func (c ChangeNullability) apply(a *alteration) error {
	return a.onType(c.Path, func(have Type) (Type, error) {
		if have.NotNull == c.NotNull {
			return have, nil
		}
		if !c.NotNull && len(c.Path) == 1 && slices.Contains(a.primary, c.Path[0]) {
			return have, fmt.Errorf("%q is a primary key column, which is never null", c.Path[0])
		}
		if err := a.checkNull(have, c.NotNull); err != nil {
			return have, err
		}
		a.changed = true
		have.NotNull = c.NotNull
		return have, nil
	})
}

func (c ChangeComment) apply(a *alteration) error {
	return a.inList(c.Path, func(list []Field, name string) ([]Field, error) {
		i := fieldNamed(list, name)
		if i < 0 {
			return nil, a.noColumn(c.Path)
		}
		if list[i].Description != c.Comment {
			list[i].Description, a.changed = c.Comment, true
		}
		return list, nil
	})
}

func (c SetTableComment) apply(a *alteration) error {
	if a.comment != c.Comment {
		a.comment, a.changed = c.Comment, true
	}
	return nil
}
