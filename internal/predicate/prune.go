package predicate

import (
	"sort"
	"strings"

	"github.com/calve-io/calve/schema"
)

// Stats is what is known of a column in some rows: every value that is not null lies between Min and Max, each nil if
// not known, and Nulls values are null, -1 if not known. Of FLOAT and DOUBLE there may always be a NaN beside: writers
// differ in whether it counts.
type Stats struct {
	Min, Max any // cells (schema.Cell) of the column's type
	Nulls    int64
}

// May reports whether the predicate may be true for one of some rows, by what is known of its columns. False is certain.
func (p *Predicate) May(rows int64, stats func(col int) Stats) bool {
	return rows > 0 && p.root.may(rows, stats)
}

func (n *node) may(rows int64, stats func(col int) Stats) bool {
	switch n.kind {
	case kTrue:
		return true
	case kFalse:
		return false
	case kAnd:
		for _, k := range n.kids {
			if !k.may(rows, stats) {
				return false
			}
		}
		return true
	case kOr:
		for _, k := range n.kids {
			if k.may(rows, stats) {
				return true
			}
		}
		return false
	}
	s := stats(n.col)
	switch {
	case n.kind == kNull:
		return s.Nulls != 0
	case s.Nulls == rows:
		return false
	case n.kind == kNotNull:
		return true
	}
	return n.mayValues(s)
}

// mayValues holds a leaf about values against their bounds.
func (n *node) mayValues(s Stats) bool {
	lo, hasLo := n.form.valueOf(s.Min)
	hi, hasHi := n.form.valueOf(s.Max)
	if n.form == formFloat {
		hasLo, hasHi = hasLo && lo.f == lo.f, hasHi && hi.f == hi.f
	}
	if n.not {
		// Only if all values are one value can they all be what is not wanted. A NaN may be among floats.
		if !hasLo || !hasHi || n.form == formFloat || n.form.compare(lo, hi) != 0 {
			return true
		}
		return !n.takes(lo)
	}
	switch n.kind {
	case kRange:
		r := &n.rng
		if n.form == formFloat && !r.hasHi { // takes NaN
			return true
		}
		if hasHi && r.hasLo && !(n.form == formFloat && r.lo.f != r.lo.f) {
			if d := n.form.compare(hi, r.lo); d < 0 || d == 0 && r.openLo {
				return false
			}
		}
		if hasLo && r.hasHi && !(n.form == formFloat && r.hi.f != r.hi.f) {
			if d := n.form.compare(lo, r.hi); d > 0 || d == 0 && r.openHi {
				return false
			}
		}
	case kIn:
		if last := n.vals[len(n.vals)-1]; n.form == formFloat && last.f != last.f {
			return true
		}
		i := 0
		if hasLo {
			i = sort.Search(len(n.vals), func(i int) bool { return n.form.compare(n.vals[i], lo) >= 0 })
		}
		return i < len(n.vals) && !(hasHi && n.form.compare(n.vals[i], hi) > 0)
	case kLike:
		p := n.like.prefix
		if hasHi && hi.s < p { // everything that begins with p is at least p
			return false
		}
		if hasLo && lo.s > p && !strings.HasPrefix(lo.s, p) { // and at most as large as what begins with it
			return false
		}
	}
	return true
}

// takes reports whether a leaf without its not is true for a value.
func (n *node) takes(v value) bool {
	switch n.kind {
	case kRange:
		r := &n.rng
		if r.hasLo {
			if d := n.form.compare(v, r.lo); d < 0 || d == 0 && r.openLo {
				return false
			}
		}
		if r.hasHi {
			if d := n.form.compare(v, r.hi); d > 0 || d == 0 && r.openHi {
				return false
			}
		}
		return true
	case kIn:
		i := sort.Search(len(n.vals), func(i int) bool { return n.form.compare(n.vals[i], v) >= 0 })
		return i < len(n.vals) && n.form.compare(n.vals[i], v) == 0
	case kLike:
		return n.like.match(v.s)
	}
	return true
}

// maxPoints bounds how many values Points gives.
const maxPoints = 1000

// Points gives values, as cells, of which a column has one in every row for which the predicate is true. ok is false if
// there is no such finite set, or a large one. Floats are left out: equal ones differ in their bits.
func (p *Predicate) Points(col int) (cells []any, ok bool) {
	vals, ok := p.root.points(col)
	if !ok || len(vals) > maxPoints {
		return nil, false
	}
	for _, v := range vals {
		cells = append(cells, cellOf(p.fields[col].Type, v))
	}
	return cells, true
}

func (n *node) points(col int) (vals []value, ok bool) {
	switch n.kind {
	case kFalse:
		return nil, true
	case kAnd:
		for _, k := range n.kids {
			if v, is := k.points(col); is && (!ok || len(v) < len(vals)) {
				vals, ok = v, true
			}
		}
		return vals, ok
	case kOr:
		for _, k := range n.kids {
			v, is := k.points(col)
			if !is {
				return nil, false
			}
			vals = append(vals, v...)
		}
		return vals, true
	}
	return n.equals(col)
}

// equals gives the values a leaf takes.
func (n *node) equals(col int) ([]value, bool) {
	switch {
	case n.col != col || n.not || n.form == formFloat:
	case n.kind == kIn:
		return n.vals, true
	case n.kind == kRange && n.rng.single(n.form):
		return []value{n.rng.lo}, true
	}
	return nil, false
}

// MayHave reports whether the predicate may be true for one of some rows, by an index that knows which values they have:
// has reports false only if no row has the cell in the column. It is asked about equality only, not of floats.
func (p *Predicate) MayHave(has func(col int, cell any) bool) bool {
	return p.root.mayHave(p.fields, has)
}

func (n *node) mayHave(fields []schema.Field, has func(col int, cell any) bool) bool {
	switch n.kind {
	case kFalse:
		return false
	case kAnd:
		for _, k := range n.kids {
			if !k.mayHave(fields, has) {
				return false
			}
		}
		return true
	case kOr:
		for _, k := range n.kids {
			if k.mayHave(fields, has) {
				return true
			}
		}
		return false
	}
	if vals, ok := n.equals(n.col); ok && n.kind > kNotNull {
		for _, v := range vals {
			if has(n.col, cellOf(fields[n.col].Type, v)) {
				return true
			}
		}
		return false
	}
	return true
}
