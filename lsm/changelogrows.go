package lsm

import (
	"bytes"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
)

// told are the changes of one part of a merge: rows of the windows, and of the merged rows behind them.
type told struct {
	ranges []Range
	kinds  []int8
	n      int
}

func (t *told) add(r Range, kind schema.RowKind) {
	t.ranges = append(t.ranges, r)
	for range r.N {
		t.kinds = append(t.kinds, int8(kind))
	}
	t.n += int(r.N)
}

// before finds the row of each group that readers of the stream know; Src none: they know none. ok is false for groups
// that tell nothing.
func (t *telling) before(p part) (old []Range, ok []bool) {
	old, ok = make([]Range, len(p.groups.ends)), make([]bool, len(p.groups.ends))
	from := int32(0)
	for g, end := range p.groups.ends {
		old[g] = Range{Src: none}
		low := math.MaxInt
		for _, r := range p.groups.rows[from:end] {
			l := p.wins[r.Src].level
			switch {
			case t.full && l == t.top, !t.full && l > 0 && l < low:
				old[g], low = r, l
			}
			ok[g] = ok[g] || t.full || l == 0
		}
		from = end
	}
	return old, ok
}

// hide takes away the results of groups whose key was there before, in a first-row table.
func (t *telling) hide(m *merging, p part) {
	if !t.first || t.full {
		return
	}
	from := int32(0)
	for g, end := range p.groups.ends {
		if r := slices.IndexFunc(p.groups.rows[from:end], func(r Range) bool { return p.wins[r.Src].level == maxLevels }); r >= 0 {
			m.from[g] = none
		}
		from = end
	}
}

// changes are what a part of a merge changes. out are its merged rows, and slots, starts say where in it those of the groups
// are; m is nil where there are no groups.
func (t *telling) changesOf(p part, m *merging, slots, starts []int32, out datafile.Rows) (datafile.Rows, error) {
	if t.quiet {
		return datafile.Rows{}, nil
	}
	var list told
	old, ok := t.before(p)
	merged := int32(len(p.wins))
	same, err := t.unchanged(p, m, old, slots, starts, out)
	if err != nil {
		return datafile.Rows{}, err
	}
	g := 0
	for i, r := range p.ranges {
		if g == len(p.groups.at) || int(p.groups.at[g]) != i {
			if t.full && p.wins[r.Src].level != t.top {
				list.add(r, schema.Insert)
			}
			continue
		}
		is := m.from[g] != none && isAdd(m.kind[g])
		was := old[g].Src != none && isAdd(p.wins[old[g].Src].rows.Kinds[old[g].Start])
		switch {
		case !ok[g] || same[g]:
		case is && was && !t.first:
			list.add(old[g], schema.UpdateBefore)
			list.add(Range{merged, starts[slots[g]], 1}, schema.UpdateAfter)
		case is && !was:
			kind := schema.Insert
			if t.first {
				kind = schema.RowKind(m.kind[g])
			}
			list.add(Range{merged, starts[slots[g]], 1}, kind)
		case was && !t.first:
			list.add(old[g], schema.Delete)
		}
		g++
	}
	return list.gather(p, out)
}

// gather copies the changes. They get memory of their own: where they go, and how long they are kept, has nothing to do with
// the merged rows.
func (t *told) gather(p part, out datafile.Rows) (datafile.Rows, error) {
	if t.n == 0 {
		return datafile.Rows{}, nil
	}
	rows := datafile.Rows{N: t.n, Kinds: t.kinds, Cols: make([]arrow.Array, len(p.wins[0].rows.Cols))}
	seqs := make([][]int64, len(p.wins)+1)
	srcs := make([]arrow.Array, len(p.wins)+1)
	for i, w := range p.wins {
		seqs[i] = w.rows.Seq
	}
	seqs[len(p.wins)] = out.Seq
	rows.Seq = gatherSlices(nil, seqs, t.ranges, t.n)
	for c := range rows.Cols {
		for i, w := range p.wins {
			srcs[i] = w.rows.Cols[c]
		}
		if srcs[len(p.wins)] = nil; out.N > 0 {
			srcs[len(p.wins)] = out.Cols[c]
		}
		var err error
		if rows.Cols[c], err = gather(nil, srcs, t.ranges); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// unchanged tells the groups whose row before and after are the same in the columns that count. It looks at these a column
// at a time, and only at keys that were the same in those before.
func (t *telling) unchanged(p part, m *merging, old []Range, slots, starts []int32, out datafile.Rows) ([]bool, error) {
	same := make([]bool, len(old))
	if !t.dedup {
		return same, nil
	}
	var groups []int
	var before, after []Range
	for g := range old {
		if old[g].Src != none && isAdd(p.wins[old[g].Src].rows.Kinds[old[g].Start]) && slots[g] >= 0 && isAdd(m.kind[g]) {
			groups = append(groups, g)
			before, after = append(before, old[g]), append(after, Range{0, starts[slots[g]], 1})
		}
	}
	if len(groups) == 0 {
		return same, nil
	}
	equal := make([]bool, len(groups))
	for i := range equal {
		equal[i] = true
	}
	srcs := make([]arrow.Array, len(p.wins))
	for _, c := range t.same {
		for i, w := range p.wins {
			srcs[i] = w.rows.Cols[c]
		}
		a, err := gather(nil, srcs, before)
		if err != nil {
			return nil, err
		}
		b, err := gather(nil, []arrow.Array{out.Cols[c]}, after)
		if err != nil {
			return nil, err
		}
		keepEqual(equal, a, b)
	}
	for i, g := range groups {
		same[g] = equal[i]
	}
	return same, nil
}

// keepEqual leaves those true whose cells are equal: both null, or the same value. Floats are equal if they have the same
// bits or are both NaN, as for Java's Double.compare, which Paimon 2.0 asks (`codegen.EqualiserCodeGenerator`). Paimon 1.4
// compares them by ==: it tells updates of NaN to NaN, and none of 0.0 to -0.0.
func keepEqual(equal []bool, a, b arrow.Array) {
	va, vb := validOf(a), validOf(b)
	for i, e := range equal {
		if e && (!va.has(i) || !vb.has(i)) {
			equal[i] = va.has(i) == vb.has(i)
		}
	}
	both := func(i int) bool { return equal[i] && va.has(i) }
	switch t := a.DataType().(type) {
	case *arrow.BooleanType:
		x, y := a.(*array.Boolean), b.(*array.Boolean)
		keep(equal, both, func(i int) bool { return x.Value(i) == y.Value(i) })
	case arrow.BinaryDataType:
		ao, ad := strings32(a)
		bo, bd := strings32(b)
		keep(equal, both, func(i int) bool { return bytes.Equal(ad[ao[i]:ao[i+1]], bd[bo[i]:bo[i+1]]) })
	case *arrow.Float32Type:
		x, y := values[float32](a), values[float32](b)
		keep(equal, both, func(i int) bool {
			return math.Float32bits(x[i]) == math.Float32bits(y[i]) || x[i] != x[i] && y[i] != y[i]
		})
	case *arrow.Float64Type:
		x, y := values[float64](a), values[float64](b)
		keep(equal, both, func(i int) bool {
			return math.Float64bits(x[i]) == math.Float64bits(y[i]) || x[i] != x[i] && y[i] != y[i]
		})
	case arrow.FixedWidthDataType:
		if n := t.BitWidth() / 8; !arrow.IsNested(t.ID()) {
			x, y := fixedBytes(a, n), fixedBytes(b, n)
			keep(equal, both, func(i int) bool { return bytes.Equal(x[i*n:(i+1)*n], y[i*n:(i+1)*n]) })
			return
		}
		keep(equal, both, func(i int) bool { return nestedEqual(a, b, i) })
	default:
		keep(equal, both, func(i int) bool { return nestedEqual(a, b, i) })
	}
}

func keep(equal []bool, look func(int) bool, same func(int) bool) {
	for i := range equal {
		if look(i) {
			equal[i] = same(i)
		}
	}
}

func nestedEqual(a, b arrow.Array, i int) bool {
	return array.SliceApproxEqual(a, int64(i), int64(i+1), b, int64(i), int64(i+1), array.WithNaNsEqual(true), array.WithAbsTolerance(0))
}

// fixedBytes are the values of an array, n bytes each.
func fixedBytes(a arrow.Array, n int) []byte {
	d := a.Data()
	if d.Len() == 0 {
		return nil
	}
	return d.Buffers()[1].Bytes()[d.Offset()*n : (d.Offset()+d.Len())*n]
}
