package reader

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/schema"
)

// screen lets through what a condition leaves of a stream of changes, so that folding what comes out gives those rows of
// the table for which the condition is true. A row that comes to fulfil it is an insert, one that ceases to a delete.
//
// Where a table tells rows before their changes, a -U and its +U say exactly which. Where it does not, a row that does not
// fulfil the condition may replace one that did, and is told as a -D of its key (of such a row only the key counts), unless
// the key itself rules the condition out: then no row of it was ever told. So is a delete, whose other columns may be
// anything.
type screen struct {
	all   *predicate.Filter
	keys  *predicate.Filter // what the condition says of the key; nil: nothing
	keyAt []int             // places of the key among the columns that are read; nil: the table has no key
	// exact: inserts have no row before them, and deletes tell the row that was there.
	exact  bool
	schema *arrow.Schema // of what comes out: the first columns of what is read

	held    *Changes // a -U at the end of a batch, whose +U may be in the next one
	heldFit bool     // whether it fulfils the condition
	rows    []int32  // of a batch that are told
	fit     []int32  // of fits
}

// newScreen makes a screen for changes in some columns, which have exact rows before them if images says so; read are these
// and what it needs besides.
func newScreen(v *view, w *where, cols []int, images bool) (s *screen, read []int, err error) {
	s = &screen{schema: v.arrowSchema(cols)}
	read = slices.Clone(cols)
	place := func(c int) int {
		at := slices.Index(read, c)
		if at < 0 {
			at = len(read)
			read = append(read, c)
		}
		return at
	}
	for _, c := range w.all.Columns() {
		place(c)
	}
	if v.keys != nil {
		s.exact = images || v.opts.TellsBefore()
		for _, c := range v.schema.KeyColumns() {
			s.keyAt = append(s.keyAt, place(c))
		}
		if !s.exact && !w.keyOnly() {
			if err := v.newestWins(); err != nil {
				return nil, nil, fmt.Errorf("%w: a condition on other columns than the key cannot be asked of the changes of this table: %w", ErrQuery, err)
			}
		}
		if w.keys != nil {
			if s.keys, err = w.keys.Filter(read); err != nil {
				return nil, nil, err
			}
		}
	}
	s.all, err = w.all.Filter(read)
	return s, read, err
}

// newestWins reports whether the row of a key that is written last is the row that the key has then; if not, the error says
// why.
func (v *view) newestWins() error {
	o, late := v.opts, ""
	switch {
	case o.MergeEngine == schema.PartialUpdate || o.MergeEngine == schema.Aggregation:
		return fmt.Errorf("with merge engine %s and changelog producer %s they are parts of rows; have the rows before and after them computed (--before-image)", o.MergeEngine, o.ChangelogProducer)
	case len(o.SequenceFields) > 0:
		late = "sequence.field"
	case o.MergeEngine == schema.FirstRow:
		late = "merge engine first-row"
	default:
		return nil
	}
	return fmt.Errorf("with %s a row that comes later need not be the one that stays; have the rows before and after them computed (--before-image)", late)
}

// keyOnly reports whether the condition asks for nothing but the primary key.
func (w *where) keyOnly() bool {
	keys := w.view.schema.KeyColumns()
	return !slices.ContainsFunc(w.all.Columns(), func(c int) bool { return !slices.Contains(keys, c) })
}

// tells is what says of a file or page that it has nothing to tell: all versions of a key are the same there.
func (w *where) tells(exact bool) *predicate.Predicate {
	if w.view.keys == nil || exact {
		return w.all
	}
	return w.keys
}

// apply gives what is left of a batch, in the order of the stream.
func (s *screen) apply(c Changes) ([]Changes, error) {
	n := int(c.Rec.NumRows())
	fits, err := s.fits(s.all, c.Rec)
	if err != nil {
		return nil, err
	}
	mayKey := []bool(nil) // of a key that the condition does not rule out; nil: all are
	if s.keys != nil && !s.exact {
		if mayKey, err = s.fits(s.keys, c.Rec); err != nil {
			return nil, err
		}
	}
	kindOf := func(i int) schema.RowKind {
		if c.RowKinds == nil {
			return schema.Insert
		}
		return c.RowKinds[i]
	}
	var out []Changes
	s.rows = s.rows[:0]
	var kinds []schema.RowKind
	tell := func(i int, k schema.RowKind) { s.rows, kinds = append(s.rows, int32(i)), append(kinds, k) }
	i := 0
	if s.held != nil && n > 0 {
		if kindOf(0) == schema.UpdateAfter && s.sameKey(s.held.Rec, 0, c.Rec, 0) {
			before, after := update(s.heldFit, fits[0])
			if s.heldFit {
				s.held.RowKinds = []schema.RowKind{before}
				out = append(out, s.project(*s.held))
			}
			if fits[0] {
				tell(0, after)
			}
			s.held, i = nil, 1
		} else {
			out = s.flush()
		}
	}
	for ; i < n; i++ {
		k := kindOf(i)
		if k == schema.UpdateBefore && s.keyAt != nil {
			if i+1 == n {
				held := c
				held.Rec = c.Rec.NewSlice(int64(i), int64(n))
				s.held, s.heldFit = &held, fits[i]
				break
			}
			if kindOf(i+1) == schema.UpdateAfter && s.sameKey(c.Rec, i, c.Rec, i+1) {
				before, after := update(fits[i], fits[i+1])
				if fits[i] {
					tell(i, before)
				}
				if fits[i+1] {
					tell(i+1, after)
				}
				i++
				continue
			}
		}
		switch {
		case fits[i]:
			tell(i, k)
		case s.keyAt == nil || s.exact && k != schema.UpdateAfter || mayKey != nil && !mayKey[i]:
		default:
			tell(i, schema.Delete)
		}
	}
	if len(s.rows) == 0 {
		return out, nil
	}
	c.RowKinds = kinds
	if !slices.ContainsFunc(kinds, func(k schema.RowKind) bool { return k != schema.Insert }) {
		c.RowKinds = nil
	}
	c = s.project(c)
	if len(s.rows) < n {
		cols := slices.Clone(c.Rec.Columns())
		ranges := rangesOf(s.rows)
		for j := range cols {
			if cols[j], err = lsm.Gather([]arrow.Array{cols[j]}, ranges); err != nil {
				return nil, err
			}
		}
		c.Rec = array.NewRecordBatch(s.schema, cols, int64(len(s.rows)))
	}
	return append(out, c), nil
}

// update gives the kinds of the two rows of an update, by which of them fulfil the condition.
func update(before, after bool) (schema.RowKind, schema.RowKind) {
	switch {
	case before && !after:
		return schema.Delete, schema.UpdateAfter
	case after && !before:
		return schema.UpdateBefore, schema.Insert
	}
	return schema.UpdateBefore, schema.UpdateAfter
}

// flush gives a -U after which no +U came: the row is gone. It must be called when a snapshot ends.
func (s *screen) flush() []Changes {
	if s.held == nil {
		return nil
	}
	held := *s.held
	s.held = nil
	if !s.heldFit && s.exact {
		return nil
	}
	if !s.heldFit && s.keys != nil {
		if may, err := s.fits(s.keys, held.Rec); err == nil && !may[0] {
			return nil
		}
	}
	held.RowKinds = []schema.RowKind{schema.Delete}
	return []Changes{s.project(held)}
}

// project leaves the columns that were asked for.
func (s *screen) project(c Changes) Changes {
	c.Rec = array.NewRecordBatch(s.schema, c.Rec.Columns()[:s.schema.NumFields()], c.Rec.NumRows())
	return c
}

// fits says for which rows a filter is true.
func (s *screen) fits(f *predicate.Filter, rec arrow.RecordBatch) ([]bool, error) {
	n := int(rec.NumRows())
	sel, err := f.Select(rec.Columns(), n)
	if err != nil {
		return nil, err
	}
	out := make([]bool, n)
	s.fit = sel.Rows(s.fit[:0])
	for _, i := range s.fit {
		out[i] = true
	}
	return out, nil
}

// sameKey compares the keys of two rows.
func (s *screen) sameKey(a arrow.RecordBatch, i int, b arrow.RecordBatch, j int) bool {
	for _, at := range s.keyAt {
		if !array.SliceEqual(a.Column(at), int64(i), int64(i)+1, b.Column(at), int64(j), int64(j)+1) {
			return false
		}
	}
	return true
}
