package lsm

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// oracle merges the rows of one key one by one, as Paimon's merge functions do: a second reading of §11.4 that shares
// nothing with the columnar code but the options.
type oracle struct {
	s     *schema.Schema
	o     schema.Options
	store bool // the result goes to a file
	every bool // rows that are alone of their key are merged too, as a lookup compaction does
}

// merge merges rows of one key; ok is false when there is no result.
func (x *oracle) merge(rows []row) (out row, ok bool, err error) {
	rows = slices.Clone(rows)
	sort.SliceStable(rows, func(i, j int) bool {
		if c := x.compareBy(x.o.SequenceFields, rows[i].vals, rows[j].vals, x.o.Merge.SequenceDescending); c != 0 {
			return c < 0
		}
		return rows[i].seq < rows[j].seq
	})
	if len(rows) == 1 && !x.every {
		return rows[0], true, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	switch x.o.MergeEngine {
	case schema.Deduplicate, schema.FirstRow:
		for _, r := range rows {
			if !isAdd(r.kind) && x.o.Merge.IgnoreDelete {
				continue
			}
			if !isAdd(r.kind) && x.o.MergeEngine == schema.FirstRow {
				panic("first-row takes no deletes")
			}
			if !ok || x.o.MergeEngine == schema.Deduplicate {
				out, ok = r, true
			}
		}
		return out, ok, nil
	case schema.Aggregation:
		return x.aggregate(rows), true, nil
	}
	return x.partial(rows), true, nil
}

// compareBy compares columns, null first in either order.
func (x *oracle) compareBy(names []string, a, b []any, descending bool) int {
	for _, n := range names {
		i, _ := x.s.Field(n)
		v, w := a[i], b[i]
		switch {
		case v == nil && w == nil:
		case v == nil:
			return -1
		case w == nil:
			return 1
		default:
			if c := compareCells(v, w); c != 0 {
				if descending {
					return -c
				}
				return c
			}
		}
	}
	return 0
}

func (x *oracle) aggregate(rows []row) row {
	cells := x.accumulators()
	out := row{vals: make([]any, len(x.s.Fields))}
	for _, r := range rows {
		out.seq, out.kind = r.seq, 0
		if x.o.Merge.RemoveOnDelete && r.kind == 3 {
			out.vals, out.kind = slices.Clone(r.vals), 3
			continue
		}
		for i, c := range cells {
			if isAdd(r.kind) {
				out.vals[i] = c.agg(out.vals[i], r.vals[i])
			} else {
				out.vals[i] = c.retract(out.vals[i], r.vals[i])
			}
		}
	}
	return out
}

func (x *oracle) accumulators() []*accumulator {
	cells := make([]*accumulator, len(x.s.Fields))
	for i, f := range x.s.Fields {
		if a := x.s.Aggregate(x.o, f.Name); a.Function != "" {
			cells[i] = &accumulator{Aggregate: a, t: f.Type, store: x.store}
		}
	}
	return cells
}

// state is a partial-update record on its way.
type state struct {
	*oracle
	cells []*accumulator
	row   []any
}

func (x *oracle) partial(rows []row) row {
	st := &state{oracle: x, cells: x.accumulators(), row: make([]any, len(x.s.Fields))}
	out := row{}
	filled, inserted, removed := false, false, false
	for _, r := range rows {
		removed = false
		if isAdd(r.kind) {
			out.seq, inserted, filled = r.seq, true, true
			st.update(r.vals)
			continue
		}
		if !filled {
			st.row, filled = slices.Clone(r.vals), true
		}
		if x.o.Merge.IgnoreDelete {
			continue
		}
		out.seq = r.seq
		switch {
		case len(x.o.Merge.Groups) > 0:
			removed = st.retract(r)
		case x.o.Merge.RemoveOnDelete:
			if r.kind == 3 {
				removed, st.row = true, slices.Clone(r.vals)
			}
		default:
			panic("partial-update takes no deletes")
		}
	}
	if !inserted && x.o.Merge.IgnoreDelete {
		out.seq = rows[len(rows)-1].seq // Paimon gives 0, of a row that nobody sees
	}
	out.vals = st.row
	if removed || !inserted {
		out.kind = 3
	}
	return out
}

// group is the sequence group of a column; by says that it is a sequence column.
func (x *oracle) group(name string) (g *schema.SequenceGroup, by bool) {
	for i := range x.o.Merge.Groups {
		g := &x.o.Merge.Groups[i]
		if slices.Contains(g.By, name) {
			return g, true
		}
		if slices.Contains(g.Fields, name) {
			return g, false
		}
	}
	return nil, false
}

func (x *oracle) empty(g *schema.SequenceGroup, vals []any) bool {
	for _, n := range g.By {
		if i, _ := x.s.Field(n); vals[i] != nil {
			return false
		}
	}
	return true
}

func (st *state) update(vals []any) {
	old := slices.Clone(st.row)
	for i, f := range st.s.Fields {
		g, by := st.group(f.Name)
		c := st.cells[i]
		switch {
		case g == nil && c != nil:
			st.row[i] = c.agg(old[i], vals[i])
		case g == nil:
			if vals[i] != nil {
				st.row[i] = vals[i]
			}
		case st.empty(g, vals):
		case st.compareBy(g.By, vals, old, false) >= 0:
			if by || c == nil {
				st.row[i] = vals[i]
			} else {
				st.row[i] = c.agg(old[i], vals[i])
			}
		case c != nil:
			st.row[i] = c.agg(vals[i], old[i]) // the other way round
		}
	}
}

func (st *state) retract(r row) (removed bool) {
	old := slices.Clone(st.row)
	for _, n := range st.o.Merge.RemoveOnGroup {
		g, _ := st.group(n)
		if r.kind == 3 && !st.empty(g, r.vals) && st.compareBy(g.By, r.vals, old, false) >= 0 {
			st.row = slices.Clone(r.vals)
			return true
		}
	}
	for i, f := range st.s.Fields {
		g, by := st.group(f.Name)
		if g == nil || st.empty(g, r.vals) {
			continue
		}
		ahead := st.compareBy(g.By, r.vals, old, false) >= 0
		switch c := st.cells[i]; {
		case ahead && by:
			st.row[i] = r.vals[i]
		case ahead && c == nil:
			st.row[i] = nil
		case c != nil:
			st.row[i] = c.retract(old[i], r.vals[i])
		}
	}
	return false
}

// accumulator is an aggregate function of one column.
type accumulator struct {
	schema.Aggregate
	t     schema.Type
	store bool
	found bool // of the first_ functions
}

func (c *accumulator) agg(acc, v any) any {
	switch c.Function {
	case schema.AggPrimaryKey, schema.AggLastValue:
		return v
	case schema.AggFirstValue:
		if c.found {
			return acc
		}
		c.found = true
		return v
	case schema.AggFirstNonNull:
		if c.found || v == nil {
			return acc
		}
		c.found = true
		return v
	}
	if acc == nil || v == nil {
		if acc == nil {
			return v
		}
		return acc
	}
	switch c.Function {
	case schema.AggLastNonNull:
		return v
	case schema.AggMax:
		if compareCells(acc, v) < 0 {
			return v
		}
		return acc
	case schema.AggMin:
		if compareCells(acc, v) < 0 {
			return acc
		}
		return v
	case schema.AggBoolAnd:
		return acc.(bool) && v.(bool)
	case schema.AggBoolOr:
		return acc.(bool) || v.(bool)
	case schema.AggListagg:
		return c.join(acc.(string), v.(string))
	}
	return c.compute(acc, v, false)
}

func (c *accumulator) join(acc, v string) string {
	if v == "" {
		return acc
	}
	if acc == "" {
		return v
	}
	if !c.Distinct {
		return acc + c.Delimiter + v
	}
	have := strings.Split(acc, c.Delimiter)
	for _, part := range strings.Split(v, c.Delimiter) {
		if part != "" && !slices.Contains(have, part) {
			have, acc = append(have, part), acc+c.Delimiter+part
		}
	}
	return acc
}

func (c *accumulator) retract(acc, v any) any {
	if c.IgnoreRetract {
		return acc
	}
	switch c.Function {
	case schema.AggPrimaryKey:
		return v
	case schema.AggLastValue:
		return nil
	case schema.AggLastNonNull:
		if v != nil {
			return nil
		}
		return acc
	case schema.AggSum:
		if v == nil {
			return acc
		}
		if acc != nil {
			return c.compute(acc, v, true)
		}
		if d, ok := v.(decimal128.Num); ok {
			return c.decimal(new(big.Int).Neg(d.BigInt()), true)
		}
		switch z := v.(type) { // 0 - z would lose the sign of zero
		case float32:
			return -z
		case float64:
			return -z
		}
		return c.compute(zeroOf(v), v, true)
	case schema.AggProduct:
		if acc == nil || v == nil {
			return acc
		}
		return c.compute(acc, v, true)
	}
	panic(c.Function + " cannot take back")
}

func zeroOf(v any) any {
	switch v.(type) {
	case int8:
		return int8(0)
	case int16:
		return int16(0)
	case int32:
		return int32(0)
	}
	return int64(0)
}

// compute adds, subtracts, multiplies or divides.
func (c *accumulator) compute(acc, v any, back bool) any {
	sum := c.Function == schema.AggSum
	switch a := acc.(type) {
	case int8:
		return int8(integer(int64(a), int64(v.(int8)), sum, back))
	case int16:
		return int16(integer(int64(a), int64(v.(int16)), sum, back))
	case int32:
		return int32(integer(int64(a), int64(v.(int32)), sum, back))
	case int64:
		return integer(a, v.(int64), sum, back)
	case float32:
		b := v.(float32)
		switch {
		case sum && back:
			return a - b
		case sum:
			return a + b
		case back:
			return a / b
		}
		return a * b
	case float64:
		b := v.(float64)
		switch {
		case sum && back:
			return a - b
		case sum:
			return a + b
		case back:
			return a / b
		}
		return a * b
	}
	a, b := acc.(decimal128.Num).BigInt(), v.(decimal128.Num).BigInt()
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.t.Scale)), nil)
	switch {
	case sum && back:
		return c.decimal(a.Sub(a, b), false)
	case sum:
		return c.decimal(a.Add(a, b), false)
	case back:
		q := new(big.Rat).SetFrac(new(big.Int).Mul(a, unit), b) // in units of the scale
		if _, exact := new(big.Rat).Set(new(big.Rat).SetFrac(a, b)).FloatPrec(); !exact {
			panic("no end")
		}
		return c.decimal(halfUp(q), true)
	}
	return c.decimal(halfUp(new(big.Rat).SetFrac(a.Mul(a, b), unit)), true)
}

func integer(a, b int64, sum, back bool) int64 {
	switch {
	case sum && back:
		return a - b
	case sum:
		return a + b
	case back && b == 0:
		panic("divided by zero")
	case back:
		return a / b
	}
	return a * b
}

// halfUp rounds to an integer, halves away from zero.
func halfUp(q *big.Rat) *big.Int {
	n := new(big.Rat).Abs(q)
	n.Add(n, big.NewRat(1, 2))
	v := new(big.Int).Quo(n.Num(), n.Denom())
	if q.Sign() < 0 {
		v.Neg(v)
	}
	return v
}

// decimal is the value as the column's type can hold it, or nil. Short sums may have too many digits.
func (c *accumulator) decimal(v *big.Int, strict bool) any {
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.t.Precision)), nil)
	if over := new(big.Int).Abs(v).Cmp(limit) >= 0; over && (strict || c.t.Precision > 18 || !v.IsInt64()) {
		return nil
	}
	return decimal128.FromBigInt(v)
}
