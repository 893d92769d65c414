package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Refusal is why a table cannot take some rows: its merge engine would fail when it meets them. Paimon finds out when it
// merges rows, and by then the row is in the table, or in a buffer that can be neither written nor given up.
type Refusal struct {
	Why string
	// When says which rows it is for, by their values in Columns, which are positions in the schema.
	When    RefuseWhen
	Columns []int
}

// RefuseWhen says for which rows a Refusal is.
type RefuseWhen uint8

const (
	RefuseAlways RefuseWhen = iota // all rows
	RefuseNull                     // rows in which all of the columns are null
	RefuseSet                      // rows in which one of the columns is not null
	RefuseZero                     // rows in which the one column, a whole number or DECIMAL, is 0
)

// Refusals are the rows that the table cannot take, by their kind, in the order of the columns.
//
// A column that is NOT NULL has to have a value after each merge, also after one of the newest rows alone. In Paimon
// `format.parquet.writer.ParquetRowDataWriter` fails if it has none.
func (s *Schema) Refusals(o Options) [4][]Refusal {
	var out [4][]Refusal
	for k := Insert; k <= Delete; k++ {
		switch {
		case !s.Keyed(), !k.IsAdd() && o.Merge.IgnoreDelete, k == UpdateBefore && o.Merge.IgnoreUpdateBefore:
		case o.MergeEngine == FirstRow && !k.IsAdd():
			out[k] = always("a first-row table takes no deletes; set the table option \"ignore-delete\" to drop them")
		case o.MergeEngine == PartialUpdate:
			out[k] = s.partialRefusals(o, k)
		case o.MergeEngine == Aggregation && !k.IsAdd() && !(o.Merge.RemoveOnDelete && k == Delete):
			out[k] = s.retractRefusals(o)
		}
	}
	return out
}

func always(why string) []Refusal { return []Refusal{{Why: why}} }

// retractRefusals are for rows that take values of an aggregation table back.
func (s *Schema) retractRefusals(o Options) []Refusal {
	var out []Refusal
	for i, f := range s.Fields {
		a := s.Aggregate(o, f.Name)
		switch {
		case a.Function == AggPrimaryKey:
		case !a.IgnoreRetract && !retracts(a.Function):
			out = append(out, always(cannotRetract(f, a))...)
		case f.Type.NotNull && (a.IgnoreRetract || a.Function != AggSum):
			// Without a value before it, only sum makes one of what is taken back.
			out = append(out, always(fmt.Sprintf("column %q is NOT NULL and merged with %s, which can leave it without a value when one is "+
				"taken back; make the column nullable", f.Name, a.Function))...)
		case a.Function == AggProduct && !a.IgnoreRetract:
			out = append(out, byZero(i, f)...)
		}
	}
	return out
}

// partialRefusals are for rows of a partial-update table.
func (s *Schema) partialRefusals(o Options, k RowKind) []Refusal {
	m := &o.Merge
	if len(m.Groups) == 0 {
		if k.IsAdd() || m.RemoveOnDelete {
			return nil
		}
		return always("a partial-update table takes no deletes; set one of the table options \"ignore-delete\" and " +
			"\"partial-update.remove-record-on-delete\", or use sequence groups")
	}
	var out []Refusal
	for i, f := range s.Fields {
		g := m.GroupOf(f.Name)
		if g < 0 || m.groupBy(f.Name) >= 0 {
			continue
		}
		by := make([]int, len(m.Groups[g].By))
		for n, name := range m.Groups[g].By {
			by[n] = s.mustField(name)
		}
		add := func(why string) { out = append(out, Refusal{why, RefuseSet, by}) }
		removes := k == Delete && slices.ContainsFunc(m.Groups[g].By, func(n string) bool { return slices.Contains(m.RemoveOnGroup, n) })
		switch a := s.Aggregate(o, f.Name); {
		case k.IsAdd():
			if f.Type.NotNull && !slices.ContainsFunc(by, func(c int) bool { return s.Fields[c].Type.NotNull }) {
				out = append(out, Refusal{fmt.Sprintf("column %q is NOT NULL, and its value does not count while the sequence (%s) of its group is null; "+
					"give the sequence a value or make the column nullable", f.Name, strings.Join(m.Groups[g].By, ", ")), RefuseNull, by})
			}
		case !a.IgnoreRetract && !retracts(a.Function):
			add(cannotRetract(f, a))
		case f.Type.NotNull && !a.IgnoreRetract && (a.Function == "" && !removes || a.Function == AggLastValue || a.Function == AggLastNonNull):
			add(fmt.Sprintf("column %q is NOT NULL and is emptied when its sequence group is taken back; make the column nullable", f.Name))
		case a.Function == AggProduct && !a.IgnoreRetract:
			out = append(out, byZero(i, f)...)
		}
	}
	return out
}

func cannotRetract(f Field, a Aggregate) string {
	return fmt.Sprintf("column %q is merged with %s, which cannot take a value back; set the table option %q to true to leave the column as it is",
		f.Name, a.Function, fieldsPrefix+f.Name+suffixIgnoreRetract)
}

// byZero is for the column of a product: a value is taken out of it by division.
func byZero(column int, f Field) []Refusal {
	if f.Type.Root == Float || f.Type.Root == Double {
		return nil
	}
	return []Refusal{{fmt.Sprintf("column %q is a product, out of which a 0 cannot be taken", f.Name), RefuseZero, []int{column}}}
}

// retracts reports whether an aggregate function can take a value back.
func retracts(function string) bool {
	switch function {
	case AggMax, AggMin, AggFirstValue, AggFirstNonNull, AggListagg, AggBoolAnd, AggBoolOr:
		return false
	}
	return true
}
