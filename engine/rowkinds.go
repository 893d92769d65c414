package engine

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/schema"
)

// rowKinds says what a table's options make of the kinds of written rows: rowkind.field, ignore-delete and
// ignore-update-before (`table.sink.RowKindGenerator`, `utils.RowKindFilter`), and which kinds its merge engine cannot
// take.
type rowKinds struct {
	column  int // of rowkind.field, -1: none
	drop    [4]bool
	refuse  [4][]schema.Refusal // by kind
	refused bool                // there are refusals
	plain   bool                // nothing of it
}

func newRowKinds(s *schema.Schema, o schema.Options) *rowKinds {
	r := &rowKinds{column: -1}
	if !s.Keyed() {
		r.plain = true
		return r
	}
	if c, ok := s.Field(o.Merge.RowKindField); ok {
		r.column = c
	}
	r.drop[schema.Delete] = o.Merge.IgnoreDelete
	r.drop[schema.UpdateBefore] = o.Merge.IgnoreDelete || o.Merge.IgnoreUpdateBefore
	r.refuse = s.Refusals(o)
	for _, why := range r.refuse {
		r.refused = r.refused || len(why) > 0
	}
	r.plain = r.column < 0 && r.drop == [4]bool{} && !r.refused
	return r
}

// apply gives the batch as it is to be written: with the kinds that the column names, without the rows that are dropped.
func (r *rowKinds) apply(b schema.Batch) (schema.Batch, error) {
	if r.plain {
		return b, nil
	}
	if r.column >= 0 {
		var err error
		if b.Kinds, err = kindsOf(b.Rec.Column(r.column), b.Rec.ColumnName(r.column)); err != nil {
			return b, err
		}
	}
	dropped := 0
	for i, k := range b.Kinds {
		if k < schema.Insert || k > schema.Delete {
			return b, fmt.Errorf("%w: row %d has kind %d", ErrRows, i, k)
		}
		if r.drop[k] {
			dropped++
		}
	}
	if err := r.check(b); err != nil {
		return b, err
	}
	if dropped == 0 {
		return b, nil
	}
	return r.without(b, b.Len()-dropped)
}

// check refuses a batch with a row that the table cannot take.
func (r *rowKinds) check(b schema.Batch) error {
	if !r.refused || b.Kinds == nil && len(r.refuse[schema.Insert]) == 0 {
		return nil
	}
	for k := schema.Insert; k <= schema.Delete; k++ {
		for _, refusal := range r.refuse[k] {
			for i := range b.Len() {
				if (b.Kinds == nil && k == schema.Insert || b.Kinds != nil && b.Kinds[i] == k) && refuses(&refusal, b, i) {
					return fmt.Errorf("%w: row %d is %s: %s", ErrRows, i, k, refusal.Why)
				}
			}
		}
	}
	return nil
}

// refuses reports whether a refusal is for a row.
func refuses(f *schema.Refusal, b schema.Batch, row int) bool {
	switch f.When {
	case schema.RefuseNull, schema.RefuseSet:
		for _, c := range f.Columns {
			if b.Rec.Column(c).IsValid(row) {
				return f.When == schema.RefuseSet
			}
		}
		return f.When == schema.RefuseNull
	case schema.RefuseZero:
		switch c := b.Rec.Column(f.Columns[0]).(type) {
		case *array.Int8:
			return c.IsValid(row) && c.Value(row) == 0
		case *array.Int16:
			return c.IsValid(row) && c.Value(row) == 0
		case *array.Int32:
			return c.IsValid(row) && c.Value(row) == 0
		case *array.Int64:
			return c.IsValid(row) && c.Value(row) == 0
		case *array.Decimal128:
			return c.IsValid(row) && c.Value(row).Sign() == 0
		}
		return false
	}
	return true
}

// kindsOf reads row kinds from a column.
func kindsOf(a arrow.Array, name string) ([]schema.RowKind, error) {
	texts, ok := a.(*array.String)
	if !ok {
		return nil, fmt.Errorf("%w: column %q with the row kinds is %s", ErrRows, name, a.DataType())
	}
	kinds := make([]schema.RowKind, texts.Len())
	for i := range kinds {
		text := "null"
		if texts.IsValid(i) {
			text = texts.Value(i)
		}
		switch text {
		case "+I":
			kinds[i] = schema.Insert
		case "-U":
			kinds[i] = schema.UpdateBefore
		case "+U":
			kinds[i] = schema.UpdateAfter
		case "-D":
			kinds[i] = schema.Delete
		default:
			return nil, fmt.Errorf("%w: column %q of row %d is %q; the row kinds are +I, -U, +U and -D", ErrRows, name, i, text)
		}
	}
	return kinds, nil
}

// without copies the n rows that are not dropped.
func (r *rowKinds) without(b schema.Batch, n int) (schema.Batch, error) {
	keep, kinds := make([]int32, 0, n), make([]schema.RowKind, 0, n)
	for i, k := range b.Kinds {
		if !r.drop[k] {
			keep, kinds = append(keep, int32(i)), append(kinds, k)
		}
	}
	cols := make([]arrow.Array, b.Rec.NumCols())
	for c := range cols {
		var err error
		if cols[c], err = lsm.Take(b.Rec.Column(c), keep); err != nil {
			return b, fmt.Errorf("dropping rows: %w", err)
		}
	}
	return schema.Batch{Rec: array.NewRecordBatch(b.Rec.Schema(), cols, int64(n)), Kinds: kinds}, nil
}
