package lsm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// elements collects what a group has in a list or map: elements of its rows, by number among those of all rows. Sets
// and maps of Java have no order that means anything; here elements stay in the order in which they came.
type elements struct {
	c     colRule
	off   []int32
	kid   arrow.Array // all elements
	valid bitset
	ids   []string // of the part of each element that tells them apart; empty until it is asked for
	of    []arrow.Array

	acc   []int32
	has   bool // acc is not null
	place map[string]int
	known bool // place is that of acc
	tmp   []int32

	scratch []byte
}

// foldElements is `FieldCollectAgg`, `FieldMergeMapAgg` and `FieldNestedUpdateAgg`.
func (m *merging) foldElements(c colRule, a arrow.Array) (arrow.Array, error) {
	list, ok := a.(array.ListLike)
	if !ok {
		return nil, fmt.Errorf("column %q: %s of %s", c.name, c.agg.Function, a.DataType())
	}
	e := &elements{c: c, off: listOffsets(a), kid: list.ListValues(), valid: validOf(a), place: map[string]int{}}
	if err := e.identify(); err != nil {
		return nil, err
	}
	ops, ends, idx, has := m.opsOf(c), make([]int32, 1, len(m.ends)+1), []int32{}, make([]bool, len(m.ends))
	i := 0
	for g, end := range m.ends {
		e.set(nil, false)
		for ; i < int(end); i++ {
			op := ops[i]
			if op == opReset || op&opInit != 0 {
				e.set(e.row(i))
				op &^= opInit
			}
			switch op {
			case opTake:
				e.add(e.row(i))
			case opLate:
				e.addBefore(e.row(i))
			case opDrop, opLateDrop:
				if row, ok := e.row(i); ok && e.has && !c.agg.IgnoreRetract {
					e.takeBack(row)
				}
			}
		}
		if has[g] = e.has; e.has {
			idx = append(idx, e.acc...)
		}
		if len(idx) > math.MaxInt32 {
			return nil, fmt.Errorf("column %q: %w: %s of %d keys", c.name, ErrTooLarge, c.agg.Function, g+1)
		}
		ends = append(ends, int32(len(idx)))
	}
	kid, err := Take(e.kid, idx)
	if err != nil {
		return nil, err
	}
	if pairs, ok := kid.(*array.Struct); ok && kid.Data().Offset() != 0 {
		kid = rebased(pairs)
	}
	bits, nulls := nullBitmap(has)
	return newArray(a.DataType(), len(has), []*memory.Buffer{bits, bytesOf(ends)}, nulls, []arrow.Array{kid}), nil
}

// identify finds the columns whose values tell elements apart.
func (e *elements) identify() error {
	e.of = []arrow.Array{e.kid}
	pairs, ok := e.kid.(*array.Struct)
	if e.c.fn == foldCollect || e.c.fn == foldNestedUpdate && len(e.c.agg.NestedKey) == 0 {
		return nil
	}
	if !ok {
		return fmt.Errorf("column %q: %s of %s", e.c.name, e.c.agg.Function, e.kid.DataType())
	}
	if e.c.fn == foldMergeMap {
		e.of[0] = pairs.Field(0)
		return nil
	}
	e.of = e.of[:0]
	for _, n := range e.c.agg.NestedKey {
		i, ok := pairs.DataType().(*arrow.StructType).FieldIdx(n)
		if !ok {
			return fmt.Errorf("column %q has no field %q, which fields.%s.nested-key names", e.c.name, n, e.c.name)
		}
		e.of = append(e.of, pairs.Field(i))
	}
	return nil
}

// row gives the elements of a row; ok is false where the row is null.
func (e *elements) row(i int) (list []int32, ok bool) {
	if !e.valid.has(i) {
		return nil, false
	}
	e.tmp = e.tmp[:0]
	for n := e.off[i]; n < e.off[i+1]; n++ {
		e.tmp = append(e.tmp, n)
	}
	return e.tmp, true
}

func (e *elements) set(list []int32, ok bool) {
	e.acc, e.has, e.known = append(e.acc[:0], list...), ok, false
}

// id is what tells element n apart.
func (e *elements) id(n int32) string {
	if e.ids == nil {
		e.ids = make([]string, e.kid.Len())
	}
	if e.ids[n] == "" {
		e.scratch = e.scratch[:0]
		for _, a := range e.of {
			e.scratch = appendIdentity(e.scratch, a, int(n))
		}
		e.ids[n] = string(e.scratch)
	}
	return e.ids[n]
}

// index makes place right: where the last of the equal elements of acc is. With merge, acc keeps one of them each: the
// last one, in the place of the first.
func (e *elements) index(merge bool) {
	if e.known {
		return
	}
	clear(e.place)
	old := e.acc
	if merge {
		e.acc = e.acc[:0]
	}
	for i, n := range old {
		id := e.id(n)
		switch at, seen := e.place[id]; {
		case !merge:
			e.place[id] = i
		case seen:
			e.acc[at] = n
		default:
			e.place[id] = len(e.acc)
			e.acc = append(e.acc, n)
		}
	}
	e.known = true
}

// put adds an element, in the place of an equal one if replace is set, else only if there is none.
func (e *elements) put(n int32, replace bool) {
	id := e.id(n)
	at, seen := e.place[id]
	switch {
	case !seen:
		e.place[id] = len(e.acc)
		e.acc = append(e.acc, n)
	case replace:
		e.acc[at] = n
	}
}

// add adds a row to what is there.
func (e *elements) add(row []int32, ok bool) {
	distinct := e.c.fn == foldCollect && e.c.agg.Distinct
	switch {
	case !ok && !distinct || !ok && !e.has:
	case !e.has && !distinct:
		e.set(row, true)
	case distinct:
		e.has = true
		e.index(e.c.typ.Element != nil && e.c.typ.Element.Primitive()) // of nested elements what is there is taken as it is
		for _, n := range row {
			e.put(n, false)
		}
	case e.c.fn == foldCollect:
		e.acc, e.known = append(e.acc, row...), false
	case e.c.fn == foldMergeMap:
		e.index(true)
		for _, n := range row {
			e.put(n, true)
		}
	default:
		e.addNested(row)
	}
}

// addNested adds rows to a nested table, up to its limit.
func (e *elements) addNested(row []int32) {
	room := e.c.agg.CountLimit - len(e.acc)
	if room <= 0 {
		return
	}
	e.acc, e.known = e.live(e.acc), false
	for _, n := range row {
		if room > 0 && !e.kid.IsNull(int(n)) {
			e.acc = append(e.acc, n)
			room--
		}
	}
	if len(e.c.agg.NestedKey) > 0 {
		e.index(true)
	}
}

// live leaves null elements out.
func (e *elements) live(list []int32) []int32 {
	out := list[:0]
	for _, n := range list {
		if !e.kid.IsNull(int(n)) {
			out = append(out, n)
		}
	}
	return out
}

// addBefore adds what is there to a row. A collection is not turned around, unless retracts are ignored, which in Paimon
// is a wrapper around the function that does not know of this (`FieldIgnoreRetractAgg`).
func (e *elements) addBefore(row []int32, ok bool) {
	if e.c.fn == foldCollect && !e.c.agg.IgnoreRetract {
		e.add(row, ok)
		return
	}
	old, had := append([]int32(nil), e.acc...), e.has
	e.set(row, ok)
	e.add(old, had)
}

// takeBack takes a row's elements away.
func (e *elements) takeBack(row []int32) {
	nested := e.c.fn == foldNestedUpdate
	if len(row) == 0 && !nested {
		return
	}
	count := map[string]int{}
	for _, n := range row {
		if !nested || !e.kid.IsNull(int(n)) {
			count[e.id(n)]++
		}
	}
	if nested {
		e.acc = e.live(e.acc)
	}
	if e.c.fn == foldMergeMap || nested && len(e.c.agg.NestedKey) > 0 {
		e.known = false
		e.index(true)
	}
	out := e.acc[:0]
	for _, n := range e.acc {
		switch id := e.id(n); {
		case count[id] == 0:
			out = append(out, n)
		case e.c.fn == foldCollect: // one for each
			count[id]--
		}
	}
	e.acc, e.known = out, false
}

// appendIdentity writes a value so that equal ones, and no others, have the same bytes. NaN is equal to itself, and the
// zeros differ, as in Java's Double.equals.
func appendIdentity(dst []byte, a arrow.Array, i int) []byte {
	if a.IsNull(i) {
		return append(dst, 0)
	}
	dst = append(dst, 1)
	switch x := a.(type) {
	case *array.Struct:
		for f := range x.NumField() {
			dst = appendIdentity(dst, x.Field(f), i)
		}
		return dst
	case array.ListLike:
		from, to := x.ValueOffsets(i)
		dst = binary.BigEndian.AppendUint32(dst, uint32(to-from))
		for n := from; n < to; n++ {
			dst = appendIdentity(dst, x.ListValues(), int(n))
		}
		return dst
	case *array.Float32:
		if f := x.Value(i); f != f {
			return binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(math.NaN())))
		}
	case *array.Float64:
		if f := x.Value(i); f != f {
			return binary.BigEndian.AppendUint64(dst, math.Float64bits(math.NaN()))
		}
	case *array.Boolean:
		if x.Value(i) {
			return append(dst, 1)
		}
		return append(dst, 0)
	case *array.String:
		return append(binary.BigEndian.AppendUint32(dst, uint32(x.ValueLen(i))), x.Value(i)...)
	case *array.Binary:
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(x.Value(i)))), x.Value(i)...)
	}
	w, ok := a.DataType().(arrow.FixedWidthDataType)
	if !ok {
		return dst
	}
	n := w.BitWidth() / 8
	at := (a.Data().Offset() + i) * n
	return append(dst, a.Data().Buffers()[1].Bytes()[at:at+n]...)
}
