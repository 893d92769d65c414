package lsm

import (
	"fmt"
	"slices"

	"github.com/calve-io/calve/schema"
)

// MergeRule is what a table's options say about the rows of one key: in which order they are taken, and what becomes of
// them (§11.4). A key with one row only is never merged: its row stays as it is, whatever its kind
// (`mergetree.compact.ReducerMergeFunctionWrapper`).
//
// The details are those of Paimon 1.4: a row that removes a record (`aggregation.remove-record-on-delete` and the
// like) leaves its own values behind, on which later rows of the same merge build, and `listagg` skips empty texts.
// A MergeRule is immutable.
type MergeRule struct {
	schema *schema.Schema
	engine string

	seq   *seqCols // sequence.field; nil: sequence numbers alone
	seqAt []int    // its columns in the schema

	// grouped: all rows of a key are needed. Otherwise the newest is the result, as it is.
	grouped      bool
	ignoreDelete bool
	remove       bool // a row of kind -D removes what was there
	lookup       bool // a row above level 0 has everything below it merged in

	groups []seqGroup
	cols   []colRule // by schema column
}

// seqGroup is a sequence group of a partial-update table.
type seqGroup struct {
	by     *seqCols
	at     []int // the sequence columns in the schema
	remove bool  // a row of kind -D that is not behind removes the whole record
}

// colRule is how a column is merged.
type colRule struct {
	name  string
	typ   schema.Type
	fn    foldFunc
	agg   schema.Aggregate
	group int // sequence group, -1: none
}

// foldFunc is how the values of one key become one.
type foldFunc uint8

const (
	foldKey          foldFunc = iota // any row's value: they are equal
	foldFill                         // the last that is not null (partial-update)
	foldMember                       // the last of its sequence group, null when that was taken back
	foldBy                           // the same for a sequence column, which is not taken back
	foldLast                         // last_value
	foldLastNonNull                  // last_non_null_value
	foldFirst                        // first_value
	foldFirstNonNull                 // first_non_null_value
	foldMax
	foldMin
	foldAnd
	foldOr
	foldSum // from here on the result is none of the values
	foldProduct
	foldListagg
	foldCollect
	foldMergeMap
	foldNestedUpdate
)

var foldFuncs = map[string]foldFunc{
	schema.AggPrimaryKey: foldKey, schema.AggLastValue: foldLast, schema.AggLastNonNull: foldLastNonNull,
	schema.AggFirstValue: foldFirst, schema.AggFirstNonNull: foldFirstNonNull, schema.AggMax: foldMax, schema.AggMin: foldMin,
	schema.AggBoolAnd: foldAnd, schema.AggBoolOr: foldOr, schema.AggSum: foldSum, schema.AggProduct: foldProduct,
	schema.AggListagg: foldListagg, schema.AggCollect: foldCollect, schema.AggMergeMap: foldMergeMap,
	schema.AggNestedUpdate: foldNestedUpdate,
}

// NewMergeRule makes the rule of a keyed table, whose schema has passed CheckReadable.
func NewMergeRule(s *schema.Schema, o schema.Options) (*MergeRule, error) {
	r := &MergeRule{schema: s, engine: o.MergeEngine, ignoreDelete: o.Merge.IgnoreDelete, remove: o.Merge.RemoveOnDelete, lookup: o.Lookup()}
	if r.engine == "" {
		r.engine = schema.Deduplicate
	}
	r.grouped = r.engine != schema.Deduplicate || r.ignoreDelete
	if len(o.SequenceFields) > 0 {
		var err error
		if r.seq, err = newSeqCols(s, o.SequenceFields, o.Merge.SequenceDescending); err != nil {
			return nil, err
		}
		r.seqAt = columnsNamed(s, o.SequenceFields)
	}
	if r.engine == schema.PartialUpdate {
		for _, g := range o.Merge.Groups {
			by, err := newSeqCols(s, g.By, false)
			if err != nil {
				return nil, err
			}
			remove := slices.ContainsFunc(g.By, func(n string) bool { return slices.Contains(o.Merge.RemoveOnGroup, n) })
			r.groups = append(r.groups, seqGroup{by, columnsNamed(s, g.By), remove})
		}
	}
	if r.engine != schema.PartialUpdate && r.engine != schema.Aggregation {
		return r, nil
	}
	for _, f := range s.Fields {
		c := colRule{name: f.Name, typ: f.Type, agg: s.Aggregate(o, f.Name), group: -1}
		if r.engine == schema.PartialUpdate {
			c.group = o.Merge.GroupOf(f.Name)
		}
		fn, ok := foldFuncs[c.agg.Function]
		switch {
		case c.agg.Function == "" && c.group < 0:
			fn = foldFill
		case c.agg.Function == "":
			fn = foldMember
			if slices.Contains(r.groups[c.group].at, len(r.cols)) {
				fn = foldBy
			}
		case !ok:
			return nil, fmt.Errorf("column %q: calve does not know the aggregate function %q", f.Name, c.agg.Function)
		}
		c.fn = fn
		r.cols = append(r.cols, c)
	}
	return r, nil
}

// allRows is the rule for a merge that has to see all rows of a key, also where the newest is the result.
func (r *MergeRule) allRows() *MergeRule {
	all := *r
	all.grouped = true
	return &all
}

// Newest reports whether the newest row of a key is what the table has.
func (r *MergeRule) Newest() bool { return !r.grouped && r.seq == nil }

func columnsNamed(s *schema.Schema, names []string) []int {
	out := make([]int, len(names))
	for i, n := range names {
		out[i], _ = s.Field(n)
	}
	return out
}

// Columns adds to the columns of a projection, given as positions in the schema, those that must be read to merge
// them: the key, the columns of `sequence.field`, the sequence columns of the groups of which a column is read or that
// can remove a record.
func (r *MergeRule) Columns(cols []int) []int {
	out := slices.Clone(cols)
	add := func(more []int) {
		for _, c := range more {
			if !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	add(r.schema.KeyColumns())
	add(r.seqAt)
	for i, g := range r.groups {
		if g.remove || slices.ContainsFunc(cols, func(c int) bool { return r.cols[c].group == i }) {
			add(g.at)
		}
	}
	return out
}

// bound is a rule for runs with some of the columns.
type bound struct {
	*MergeRule
	seqPos []int        // where the columns of sequence.field are
	groups []boundGroup // the sequence groups whose sequence columns are there
	cols   []colRule    // by position; group is an index into groups
	store  bool         // the result goes to a file
}

// boundGroup is a sequence group of runs with some of the columns.
type boundGroup struct {
	seqGroup
	pos []int
}

// bind finds the rule's columns among those of the runs, given as positions in the schema.
func (r *MergeRule) bind(cols []int, store bool) (*bound, error) {
	b := &bound{MergeRule: r, store: store}
	find := func(want []int) ([]int, bool) {
		pos := make([]int, len(want))
		for i, c := range want {
			if pos[i] = slices.Index(cols, c); pos[i] < 0 {
				return nil, false
			}
		}
		return pos, true
	}
	var ok bool
	if b.seqPos, ok = find(r.seqAt); !ok {
		return nil, fmt.Errorf("merge: a column of sequence.field is not read")
	}
	index := make([]int, len(r.groups))
	for i, g := range r.groups {
		index[i] = -1
		if pos, ok := find(g.at); ok {
			index[i] = len(b.groups)
			b.groups = append(b.groups, boundGroup{g, pos})
		} else if g.remove {
			return nil, fmt.Errorf("merge: a sequence column of a group that removes records is not read")
		}
	}
	if r.cols == nil {
		return b, nil
	}
	for _, c := range cols {
		rule := r.cols[c]
		if rule.group >= 0 {
			if rule.group = index[rule.group]; rule.group < 0 {
				return nil, fmt.Errorf("merge: column %q is read without the sequence columns of its group", rule.name)
			}
		}
		b.cols = append(b.cols, rule)
	}
	return b, nil
}
