package reader

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/lsm"
)

// columns is what a split reads for a projection: the columns of the condition first, so that batches can be left out
// before their other columns are decoded, then those asked for, then the key, which the merge needs.
type columns struct {
	read   []int // columns of the schema
	early  int   // of the condition
	out    []int // places in read of the columns asked for
	keys   []int // places in read of the key columns
	schema *arrow.Schema
	filter *predicate.Filter // nil: all rows are wanted
	rows   []int32           // scratch
}

// columns prepares a split for reading.
func (s *Split) columns(cols []int) (*columns, error) {
	c := &columns{schema: s.view.arrowSchema(cols)}
	if s.where != nil {
		c.read = s.where.all.Columns()
		c.early = len(c.read)
	}
	place := func(col int) int {
		at := slices.Index(c.read, col)
		if at < 0 {
			at = len(c.read)
			c.read = append(c.read, col)
		}
		return at
	}
	for _, col := range cols {
		c.out = append(c.out, place(col))
	}
	if s.view.keys != nil {
		for _, col := range s.view.rule.Columns(c.read) { // what the merge needs besides
			place(col)
		}
		for _, col := range s.view.schema.KeyColumns() {
			c.keys = append(c.keys, place(col))
		}
	}
	var err error
	if s.where != nil {
		c.filter, err = s.where.all.Filter(c.read)
	}
	return c, err
}

// batch gives the rows that are wanted, in the columns asked for; nil if there are none.
func (c *columns) batch(rows datafile.Rows) (arrow.RecordBatch, error) {
	cols := make([]arrow.Array, len(c.out))
	for i, at := range c.out {
		cols[i] = rows.Cols[at]
	}
	if c.filter == nil {
		return array.NewRecordBatch(c.schema, cols, int64(rows.N)), nil
	}
	sel, err := c.filter.Select(rows.Cols, rows.N)
	if err != nil {
		return nil, err
	}
	c.rows = sel.Rows(c.rows[:0])
	switch len(c.rows) {
	case 0:
		return nil, nil
	case rows.N:
		return array.NewRecordBatch(c.schema, cols, int64(rows.N)), nil
	}
	ranges := rangesOf(c.rows)
	for i := range cols {
		if cols[i], err = lsm.Gather([]arrow.Array{cols[i]}, ranges); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(c.schema, cols, int64(len(c.rows))), nil
}

// kinds gives those of the rows that batch gave last; nil stays nil.
func (c *columns) kinds(all []int8) []int8 {
	if c.filter == nil || all == nil {
		return all
	}
	out := make([]int8, len(c.rows))
	for i, row := range c.rows {
		out[i] = all[row]
	}
	return out
}

// rangesOf joins row numbers that follow each other.
func rangesOf(rows []int32) []lsm.Range {
	var out []lsm.Range
	for _, r := range rows {
		if n := len(out); n > 0 && out[n-1].Start+out[n-1].N == r {
			out[n-1].N++
		} else {
			out = append(out, lsm.Range{Start: r, N: 1})
		}
	}
	return out
}

// fileSpec says what to read of a file.
type fileSpec struct {
	datafile.ReadSpec
	only *predicate.Predicate // rows for which it is not true need not be read; nil: all are needed
}

// spec says what to read of the split's files. Where no other file may have the same keys, the whole condition chooses
// row groups, pages and batches; elsewhere what it says of the key.
func (s *Split) spec(c *columns) (fileSpec, error) {
	spec := fileSpec{ReadSpec: datafile.ReadSpec{Cols: c.read}}
	if s.where == nil {
		return spec, nil
	}
	p := s.where.keys
	if s.alone {
		p = s.where.all
	}
	if p == nil {
		return spec, nil
	}
	spec.only, spec.Prune = p, pruneBy(s.view, p)
	if !s.alone || c.early == len(c.read) {
		return spec, nil
	}
	f, err := p.Filter(c.read)
	if err != nil {
		return spec, err
	}
	spec.Early = c.early
	spec.Keep = func(rows datafile.Rows) (bool, error) {
		sel, err := f.Select(rows.Cols, rows.N)
		return err == nil && sel.Count() > 0, err
	}
	return spec, nil
}

// pruneBy lets a predicate judge the statistics in a file.
func pruneBy(v *view, p *predicate.Predicate) *datafile.Prune {
	out := &datafile.Prune{}
	for _, c := range p.Columns() {
		if v.schema.Fields[c].Type.Primitive() {
			out.Cols = append(out.Cols, c)
		}
	}
	out.Match = func(rows int64, stats func(int) datafile.ColumnStats) bool {
		return p.May(rows, func(col int) predicate.Stats {
			if i := slices.Index(out.Cols, col); i >= 0 {
				return predicate.Stats(stats(i))
			}
			return predicate.Stats{Nulls: -1}
		})
	}
	return out
}
