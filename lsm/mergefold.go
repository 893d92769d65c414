package lsm

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// bitset is a bitmap from some bit on; without bits, all are set.
type bitset struct {
	bits []byte
	off  int
}

func (b bitset) has(i int) bool {
	return b.bits == nil || b.bits[(b.off+i)>>3]>>((b.off+i)&7)&1 != 0
}

// validOf tells which rows of an array are not null.
func validOf(a arrow.Array) bitset {
	if a.NullN() == 0 {
		return bitset{}
	}
	return bitset{a.Data().Buffers()[0].Bytes(), a.Data().Offset()}
}

// valid tells which of the groups' rows have a value in a column.
func (m *merging) valid(srcs []arrow.Array) bitset {
	for _, s := range srcs {
		if s.NullN() > 0 {
			return bitset{bits: gatherBits(nil, srcs, m.rows, len(m.rows), 0)}
		}
	}
	return bitset{}
}

// opsOf is what the rows do to a column.
func (m *merging) opsOf(c colRule) []uint8 {
	if c.group >= 0 {
		return m.groupOps[c.group]
	}
	return m.ops
}

// noRetract is the failure of functions that cannot take a value back (`FieldAggregator.retract`).
func noRetract(c colRule) error {
	return fmt.Errorf("column %q: %s cannot take a deleted row's value back; set the table option \"fields.%s.ignore-retract\" to true "+
		"to leave the column as it is", c.name, c.agg.Function, c.name)
}

// choose finds for each group the row whose value the column has in the end, or none for null.
func (m *merging) choose(c colRule, srcs []arrow.Array) ([]int32, error) {
	switch c.fn {
	case foldMax, foldMin:
		return m.chooseOrdered(c, srcs)
	case foldAnd, foldOr:
		return m.chooseBool(c, srcs)
	case foldFirst, foldFirstNonNull:
		return m.chooseFirst(c, srcs)
	}
	return m.chooseLast(c, m.valid(srcs)), nil
}

// chooseLast is for `FieldLastValueAgg`, `FieldLastNonNullValueAgg` and the columns of partial-update tables that have
// no function.
func (m *merging) chooseLast(c colRule, valid bitset) []int32 {
	ops, out := m.opsOf(c), make([]int32, len(m.ends))
	fill := c.fn == foldFill || c.fn == foldLastNonNull
	i := 0
	for g, end := range m.ends {
		acc := none
		for ; i < int(end); i++ {
			op := ops[i]
			if op&opInit != 0 {
				acc, op = int32(i), op&^opInit
			}
			switch op {
			case opReset:
				acc = int32(i)
			case opTake:
				if !fill || valid.has(i) {
					acc = int32(i)
				}
			case opLate:
				if c.fn == foldLastNonNull && (acc == none || !valid.has(int(acc))) {
					acc = int32(i)
				}
			case opDrop, opLateDrop:
				switch {
				case c.agg.IgnoreRetract || op == opLateDrop && (c.fn == foldMember || c.fn == foldBy):
				case c.fn == foldBy:
					acc = int32(i)
				case c.fn == foldLast || c.fn == foldMember || valid.has(i):
					acc = none
				}
			}
		}
		out[g] = acc
	}
	return out
}

// chooseFirst is for `FieldFirstValueAgg` and `FieldFirstNonNullValueAgg`. A record that is removed does not make the
// next value the first one.
func (m *merging) chooseFirst(c colRule, srcs []arrow.Array) ([]int32, error) {
	ops, out, valid := m.opsOf(c), make([]int32, len(m.ends)), m.valid(srcs)
	i := 0
	for g, end := range m.ends {
		acc, found := none, false
		for ; i < int(end); i++ {
			op := ops[i]
			if op&opInit != 0 {
				acc, op = int32(i), op&^opInit
			}
			switch op {
			case opReset:
				acc = int32(i)
			case opTake:
				if !found && (c.fn == foldFirst || valid.has(i)) {
					acc, found = int32(i), true
				}
			case opLate: // the value so far is added to this row's
				if !found && (c.fn == foldFirst || acc != none && valid.has(int(acc))) {
					found = true
				} else {
					acc = int32(i)
				}
			case opDrop, opLateDrop:
				if !c.agg.IgnoreRetract {
					return nil, noRetract(c)
				}
			}
		}
		out[g] = acc
	}
	return out, nil
}

// chooseOrdered is for `FieldMaxAgg` and `FieldMinAgg`.
func (m *merging) chooseOrdered(c colRule, srcs []arrow.Array) ([]int32, error) {
	a, err := gather(nil, srcs, m.rows)
	if err != nil {
		return nil, err
	}
	order, err := orderOf(c, a)
	if err != nil {
		return nil, err
	}
	ops, out, valid := m.opsOf(c), make([]int32, len(m.ends)), validOf(a)
	want := 1
	if c.fn == foldMin {
		want = -1
	}
	i := 0
	for g, end := range m.ends {
		acc := none
		for ; i < int(end); i++ {
			op := ops[i]
			if op&opInit != 0 {
				acc, op = int32(i), op&^opInit
			}
			switch op {
			case opReset:
				acc = int32(i)
			case opTake, opLate:
				if valid.has(i) && (acc == none || !valid.has(int(acc)) || order.compare(i, &order, int(acc)) == want) {
					acc = int32(i)
				}
			case opDrop, opLateDrop:
				if !c.agg.IgnoreRetract {
					return nil, noRetract(c)
				}
			}
		}
		out[g] = acc
	}
	return out, nil
}

// orderOf orders values as `InternalRowUtils.compare` does: floating point numbers as Java's compare methods, for which
// the zeros differ.
func orderOf(c colRule, a arrow.Array) (seqVec, error) {
	switch c.typ.Root {
	case schema.Float:
		w := make([]uint64, a.Len())
		for i, f := range values[float32](a) {
			b := uint64(1<<32 - 1)
			if f == f {
				u := math.Float32bits(f)
				b = uint64(u ^ (uint32(int32(u)>>31) | sign32))
			}
			w[i] = b
		}
		return seqVec{words: w}, nil
	case schema.Double:
		w := make([]uint64, a.Len())
		for i, f := range values[float64](a) {
			w[i] = math.MaxUint64
			if f == f {
				u := math.Float64bits(f)
				w[i] = u ^ (uint64(int64(u)>>63) | sign64)
			}
		}
		return seqVec{words: w}, nil
	}
	k := keyCol{name: c.name, typ: c.typ, width: keyWidth(c.typ)}
	if c.typ.Root == schema.Decimal {
		k.width = 16
	}
	s := seqCols{cols: []keyCol{k}}
	return s.encode([]arrow.Array{a}, a.Len())
}

// chooseBool is for `FieldBoolAndAgg` and `FieldBoolOrAgg`: the value that decides stays.
func (m *merging) chooseBool(c colRule, srcs []arrow.Array) ([]int32, error) {
	a, err := gather(nil, srcs, m.rows)
	if err != nil {
		return nil, err
	}
	ops, out, valid := m.opsOf(c), make([]int32, len(m.ends)), validOf(a)
	decides := c.fn == foldOr
	value := bitset{a.Data().Buffers()[1].Bytes(), a.Data().Offset()}
	i := 0
	for g, end := range m.ends {
		acc := none
		for ; i < int(end); i++ {
			op := ops[i]
			if op&opInit != 0 {
				acc, op = int32(i), op&^opInit
			}
			switch op {
			case opReset:
				acc = int32(i)
			case opTake, opLate:
				if valid.has(i) && (acc == none || !valid.has(int(acc)) || value.has(int(acc)) != decides) {
					acc = int32(i)
				}
			case opDrop, opLateDrop:
				if !c.agg.IgnoreRetract {
					return nil, noRetract(c)
				}
			}
		}
		out[g] = acc
	}
	return out, nil
}

// fold computes the column's value of each group, where it is none of the rows'.
func (m *merging) fold(c colRule, srcs []arrow.Array) (arrow.Array, error) {
	a, err := gather(nil, srcs, m.rows)
	if err != nil {
		return nil, err
	}
	switch c.fn {
	case foldListagg:
		return m.listagg(c, a)
	case foldCollect, foldMergeMap, foldNestedUpdate:
		return m.foldElements(c, a)
	}
	switch c.typ.Root {
	case schema.TinyInt:
		return foldNumbers[int8](m, c, a)
	case schema.SmallInt:
		return foldNumbers[int16](m, c, a)
	case schema.Int:
		return foldNumbers[int32](m, c, a)
	case schema.BigInt:
		return foldNumbers[int64](m, c, a)
	case schema.Float:
		return foldNumbers[float32](m, c, a)
	case schema.Double:
		return foldNumbers[float64](m, c, a)
	case schema.Decimal:
		return m.foldDecimals(c, a)
	}
	return nil, fmt.Errorf("column %q: %s of %s", c.name, c.agg.Function, c.typ)
}

type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~float32 | ~float64
}

// foldNumbers is `FieldSumAgg` and `FieldProductAgg`: integers wrap around as Java's do.
func foldNumbers[T number](m *merging, c colRule, a arrow.Array) (arrow.Array, error) {
	v, valid, ops := values[T](a), validOf(a), m.opsOf(c)
	out, has := make([]T, len(m.ends)), make([]bool, len(m.ends))
	i := 0
	for g, end := range m.ends {
		var acc T
		ok := false
		for ; i < int(end); i++ {
			op := ops[i]
			if op == opReset || op&opInit != 0 {
				acc, ok, op = v[i], valid.has(i), op&^opInit
			}
			if op == opSkip || op == opReset || !valid.has(i) {
				continue
			}
			if op == opTake || op == opLate {
				acc, ok = added(c.fn, acc, v[i], ok), true
				continue
			}
			if c.agg.IgnoreRetract {
				continue
			}
			if !ok {
				if c.fn == foldSum {
					acc, ok = -v[i], true
				}
				continue
			}
			var err error
			if acc, err = removed(c, acc, v[i]); err != nil {
				return nil, err
			}
		}
		out[g], has[g] = acc, ok
	}
	return columnOf(a.DataType(), has, bytesOf(out)), nil
}

func added[T number](fn foldFunc, acc, v T, ok bool) T {
	switch {
	case !ok:
		return v
	case fn == foldSum:
		return acc + v
	}
	return acc * v
}

func removed[T number](c colRule, acc, v T) (T, error) {
	if c.fn == foldSum {
		return acc - v, nil
	}
	if one := T(1); v == 0 && one/2 == 0 {
		return 0, fmt.Errorf("column %q: the deleted row's value 0 cannot be taken out of a product", c.name)
	}
	return acc / v, nil
}

// columnOf makes an array of one value per group. vals are the buffers behind the bitmap of nulls.
func columnOf(t arrow.DataType, has []bool, vals ...*memory.Buffer) arrow.Array {
	bits, nulls := nullBitmap(has)
	return newArray(t, len(has), append([]*memory.Buffer{bits}, vals...), nulls, nil)
}

// nullBitmap is nil if there are no nulls.
func nullBitmap(has []bool) (*memory.Buffer, int) {
	nulls := 0
	for _, ok := range has {
		if !ok {
			nulls++
		}
	}
	if nulls == 0 {
		return nil, 0
	}
	return memory.NewBufferBytes(bitmapOf(has)), nulls
}

func bitmapOf(has []bool) []byte {
	bits := make([]byte, bitutil.BytesForBits(int64(len(has))))
	for i, ok := range has {
		if ok {
			bits[i>>3] |= 1 << (i & 7)
		}
	}
	return bits
}
