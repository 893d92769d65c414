package decode

import (
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// rowRules are what the table says about the rows it takes, beside their types. The table would refuse a whole batch for
// one such row; here the record that made it goes to the dead letters.
type rowRules struct {
	any     bool
	kindCol int // column of the table option "rowkind.field", -1: none
	refuse  [4][]schema.Refusal
}

func newRowRules(s *schema.Schema) (rowRules, error) {
	r := rowRules{kindCol: -1}
	o, err := s.ParseOptions()
	if err != nil {
		return r, err
	}
	if c, ok := s.Field(o.Merge.RowKindField); ok && s.Keyed() {
		r.kindCol, r.any = c, true
	}
	r.refuse = s.Refusals(o)
	for _, why := range r.refuse {
		r.any = r.any || len(why) > 0
	}
	return r, nil
}

// obey refuses the row d.at, of some kind, if the table cannot take it.
func (d *rowBuilder) obey(kind schema.RowKind) int {
	if at := d.rules.kindCol; at >= 0 {
		c := &d.cols[at]
		if c.isNull(d.at) {
			return d.refuse(BadOp, -1, c, "is null; it holds the kind of the row, +I, -U, +U or -D")
		}
		switch text := c.data[c.off[d.at]:c.off[d.at+1]]; string(text) {
		case "+I":
			kind = schema.Insert
		case "-U":
			kind = schema.UpdateBefore
		case "+U":
			kind = schema.UpdateAfter
		case "-D":
			kind = schema.Delete
		default:
			return d.refuse(BadOp, -1, c, "is "+excerpt(text)+"; it holds the kind of the row, +I, -U, +U or -D")
		}
	}
	for i := range d.rules.refuse[kind] {
		if r := &d.rules.refuse[kind][i]; d.refuses(r) {
			return d.refuse(BrokeRule, -1, nil, "the table cannot take the row, which is "+kind.String()+": "+r.Why)
		}
	}
	return 0
}

// refuses reports whether a refusal is for the row d.at.
func (d *rowBuilder) refuses(r *schema.Refusal) bool {
	switch r.When {
	case schema.RefuseNull, schema.RefuseSet:
		for _, i := range r.Columns {
			if !d.cols[i].isNull(d.at) {
				return r.When == schema.RefuseSet
			}
		}
		return r.When == schema.RefuseNull
	case schema.RefuseZero:
		c := &d.cols[r.Columns[0]]
		return !c.isNull(d.at) && c.isZero(d.at)
	}
	return true
}

// isZero reports whether the row's number, whole or decimal, is 0.
func (c *column) isZero(row int) bool {
	switch c.shape {
	case shapeInt8:
		return c.i8[row] == 0
	case shapeInt16:
		return c.i16[row] == 0
	case shapeInt32:
		return c.i32[row] == 0
	case shapeInt64:
		return c.i64[row] == 0
	case shapeDecimal:
		return c.dec[row] == decimal128.Num{}
	}
	return false
}
