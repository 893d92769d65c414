package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkMerge holds the options of merging against each other and the columns, as `schema.SchemaValidation` and the
// factories of Paimon's merge functions do.
func (s *Schema) checkMerge(o Options) error {
	if !s.Keyed() {
		return nil
	}
	switch o.MergeEngine {
	case Deduplicate, PartialUpdate, Aggregation, FirstRow:
	default:
		return s.refuse(optMergeEngine, "the engines are deduplicate, partial-update, aggregation and first-row; use one of them")
	}
	if o.MergeEngine == FirstRow && o.ChangelogProducer != "none" && o.ChangelogProducer != "lookup" {
		return s.refuse(optProducer, "a first-row table has the changelog producer none or lookup; choose one of them")
	}
	for _, check := range []func(Options) error{s.checkSequence, s.checkRowKindField, s.checkExpire, s.checkGroups, s.checkRemoval, s.checkFunctions} {
		if err := check(o); err != nil {
			return err
		}
	}
	return nil
}

func (s *Schema) checkSequence(o Options) error {
	for i, name := range o.SequenceFields {
		if slices.Contains(o.SequenceFields[:i], name) {
			return s.refuse(optSequenceField, fmt.Sprintf("names %q twice; name each column once", name))
		}
		if f := o.Merge.Functions[name].Function; f != "" {
			return s.refuse(fieldsPrefix+name+suffixFunction, "a column of \"sequence.field\" has no aggregate function; remove one of the options")
		}
		if t := s.Fields[s.mustField(name)].Type; !t.Primitive() {
			return s.refuse(optSequenceField, fmt.Sprintf("column %q has type %s, which has no order in calve; use a column of a primitive type", name, t.Root))
		}
	}
	if len(o.SequenceFields) > 0 && o.MergeEngine == FirstRow {
		return s.refuse(optSequenceField, "a first-row table keeps the row that came first; remove the option")
	}
	return nil
}

func (s *Schema) checkRowKindField(o Options) error {
	name := o.Merge.RowKindField
	if name == "" {
		return nil
	}
	if t := s.Fields[s.mustField(name)].Type; t.Root != Char && t.Root != VarChar {
		return s.refuse(optRowKindField, fmt.Sprintf("column %q has type %s; row kinds are texts such as \"+I\": name a STRING column", name, t))
	}
	return nil
}

func (s *Schema) checkExpire(o Options) error {
	_, set := s.Options[optExpireTime]
	if set && o.Merge.ExpireTime < time.Second {
		return s.refuse(optExpireTime, "rows live for at least a second; give a longer time or remove the option")
	}
	if set && o.Merge.TimeField == "" {
		return s.refuse(optExpireTime, "needs the option \"record-level.time-field\"; name a column with the time of the row")
	}
	if o.Merge.TimeField == "" {
		return nil
	}
	switch t := s.Fields[s.mustField(o.Merge.TimeField)].Type; t.Root {
	case Int, BigInt, Timestamp, TimestampLTZ:
		return nil
	default:
		return s.refuse(optTimeField, fmt.Sprintf("the column has type %s; a time is INT or BIGINT seconds or a TIMESTAMP", t))
	}
}

// checkGroups is for the sequence groups of a partial-update table.
func (s *Schema) checkGroups(o Options) error {
	if o.MergeEngine != PartialUpdate {
		return nil
	}
	owner := map[string]string{}
	for _, g := range o.Merge.Groups {
		option := fieldsPrefix + strings.Join(g.By, ",") + suffixGroup
		claim := func(name string) error { // Paimon lets some of them pass, and what they mean depends on the order of a hash table
			i, ok := s.Field(name)
			if !ok {
				return s.refuse(option, fmt.Sprintf("%q is not a column", name))
			}
			if slices.Contains(s.PrimaryKeys, name) {
				return s.refuse(option, fmt.Sprintf("column %q is part of the primary key, which never changes; leave it out", name))
			}
			if t := s.Fields[i].Type; slices.Contains(g.By, name) && !t.Primitive() {
				return s.refuse(option, fmt.Sprintf("column %q has type %s, which has no order in calve; use a column of a primitive type", name, t.Root))
			}
			if other, taken := owner[name]; taken && !(other == option && slices.Contains(g.By, name)) {
				return s.refuse(option, fmt.Sprintf("column %q is in option %q too; a column is in one group", name, other))
			}
			owner[name] = option
			return nil
		}
		for _, names := range [][]string{g.By, g.Fields} {
			for _, n := range names {
				if err := claim(n); err != nil {
					return err
				}
			}
		}
		for i, n := range g.Fields {
			if slices.Contains(g.Fields[:i], n) {
				return s.refuse(option, fmt.Sprintf("names column %q twice; name each column once", n))
			}
		}
		for _, n := range g.By {
			if o.Merge.Functions[n].Function != "" {
				return s.refuse(fieldsPrefix+n+suffixFunction, "a sequence column of a group has no aggregate function; remove one of the options")
			}
		}
	}
	return nil
}

// checkRemoval is for what makes a delete remove the whole row.
func (s *Schema) checkRemoval(o Options) error {
	m := &o.Merge
	if o.MergeEngine != PartialUpdate {
		return nil
	}
	switch {
	case m.RemoveOnDelete && m.IgnoreDelete:
		return s.refuse(optPartialRemove, "the table ignores deletes; set one of both options")
	case m.RemoveOnGroup != nil && m.IgnoreDelete:
		return s.refuse(optGroupRemove, "the table ignores deletes; set one of both options")
	case m.RemoveOnDelete && len(m.Groups) > 0:
		return s.refuse(optPartialRemove, "the table has sequence groups; use \"partial-update.remove-record-on-sequence-group\"")
	}
	for _, n := range m.RemoveOnGroup {
		if m.groupBy(n) < 0 {
			return s.refuse(optGroupRemove, fmt.Sprintf("%q is not a sequence column of a group", n))
		}
	}
	return nil
}

// checkFunctions is for the aggregate functions of all columns.
func (s *Schema) checkFunctions(o Options) error {
	if o.MergeEngine != PartialUpdate && o.MergeEngine != Aggregation {
		return nil
	}
	for _, f := range s.Fields {
		a := s.Aggregate(o, f.Name)
		option := fieldsPrefix + f.Name + suffixFunction
		if _, own := s.Options[option]; !own {
			option = optDefaultAgg
		}
		if why := unfit(a.Function, f.Type); why != "" {
			return s.refuse(option, fmt.Sprintf("column %q of type %s: %s", f.Name, f.Type, why))
		}
		for _, n := range a.NestedKey {
			if a.Function == AggNestedUpdate && !slices.ContainsFunc(f.Type.Element.Fields, func(f Field) bool { return f.Name == n }) {
				return s.refuse(fieldsPrefix+f.Name+suffixNestedKey, fmt.Sprintf("the rows in column %q have no field %q", f.Name, n))
			}
		}
		if a.IgnoreRetract && o.MergeEngine == Aggregation && o.Merge.RemoveOnDelete {
			return s.refuse(fieldsPrefix+f.Name+suffixIgnoreRetract, "the table removes a row when it is deleted (aggregation.remove-record-on-delete); set one of both options")
		}
		free := a.Function == "" || a.Function == AggLastNonNull || a.Function == AggPrimaryKey
		if o.MergeEngine == PartialUpdate && !free && o.Merge.GroupOf(f.Name) < 0 {
			return s.refuse(option, fmt.Sprintf("column %q is in no sequence group, which an aggregate function of a partial-update table needs; "+
				"add \"fields.SEQUENCE.sequence-group\"", f.Name))
		}
	}
	return nil
}

// unfit says why a function cannot merge values of the type, "" if it can.
func unfit(function string, t Type) string {
	switch function {
	case "", AggPrimaryKey, AggLastValue, AggLastNonNull, AggFirstValue, AggFirstNonNull:
		return ""
	case AggSum, AggProduct:
		if t.Root < TinyInt || t.Root > Decimal {
			return function + " is for numbers"
		}
		return ""
	case AggMax, AggMin:
		if t.Root == Boolean || !t.Primitive() {
			return function + " cannot compare such values"
		}
		return ""
	case AggListagg:
		if t.Root != VarChar {
			return "listagg is for STRING and VARCHAR"
		}
		return ""
	case AggBoolAnd, AggBoolOr:
		if t.Root != Boolean {
			return function + " is for BOOLEAN"
		}
		return ""
	case AggCollect:
		if t.Root != Array {
			return "collect is for ARRAY"
		}
		return ""
	case AggMergeMap:
		if t.Root != Map {
			return "merge_map is for MAP"
		}
		return ""
	case AggNestedUpdate:
		if t.Root != Array || t.Element.Root != Row {
			return "nested_update is for ARRAY<ROW>"
		}
		return ""
	case "rbm32", "rbm64", "hll_sketch", "theta_sketch", "merge_map_with_keytime", "nested_partial_update":
		return "calve does not know " + function + " yet; use another function"
	}
	return "there is no such aggregate function; correct its name"
}
