package predicate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Filter evaluates a predicate over batches of some columns. It holds memory between calls and is for one goroutine.
type Filter struct {
	root *node
	at   []int // of a schema column: its place in the batch, -1
	sets map[*node]any
	free [][]uint64
}

// Filter prepares for batches whose columns are those of the schema with the given indexes, in that order. All Columns
// must be among them.
func (p *Predicate) Filter(cols []int) (*Filter, error) {
	f := &Filter{root: p.root, at: make([]int, len(p.fields)), sets: map[*node]any{}}
	for i := range f.at {
		f.at[i] = slices.Index(cols, i)
	}
	for _, c := range p.Columns() {
		if f.at[c] < 0 {
			return nil, fmt.Errorf("predicate: column %q is not among those read", p.fields[c].Name)
		}
	}
	p.root.walk(func(n *node) {
		if n.kind == kIn {
			f.sets[n] = setOf(n)
		}
	})
	return f, nil
}

// Selection says which rows of a batch were chosen. It is valid until the next Select.
type Selection struct {
	bits []uint64
	n    int
}

// Count is the number of chosen rows.
func (s Selection) Count() int {
	n := 0
	for _, w := range s.bits {
		n += bits.OnesCount64(w)
	}
	return n
}

// Rows appends the numbers of the chosen rows, ascending.
func (s Selection) Rows(dst []int32) []int32 {
	for i, w := range s.bits {
		for ; w != 0; w &= w - 1 {
			dst = append(dst, int32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return dst
}

// Select chooses the rows of a batch of n for which the predicate is true. The arrays have the types of
// schema.ArrowType.
func (f *Filter) Select(cols []arrow.Array, n int) (Selection, error) {
	dst := f.take(n)
	if err := f.eval(f.root, cols, n, dst); err != nil {
		return Selection{}, err
	}
	if tail := n % 64; tail != 0 {
		dst[len(dst)-1] &= 1<<tail - 1
	}
	f.free = append(f.free, dst)
	return Selection{bits: dst, n: n}, nil
}

// take gives a bitmap for n rows, of any content.
func (f *Filter) take(n int) []uint64 {
	words := (n + 63) / 64
	if k := len(f.free); k > 0 {
		b := f.free[k-1]
		f.free = f.free[:k-1]
		if cap(b) >= words {
			return b[:words]
		}
	}
	return make([]uint64, words)
}

// eval writes into dst where a node is true. Bits behind n have no meaning.
func (f *Filter) eval(n *node, cols []arrow.Array, rows int, dst []uint64) error {
	switch n.kind {
	case kTrue, kFalse:
		fill(dst, n.kind == kTrue)
		return nil
	case kAnd, kOr:
		return f.junction(n, cols, rows, dst)
	}
	a := cols[f.at[n.col]]
	switch n.kind {
	case kNull:
		fill(dst, true)
		clearNulls(dst, a)
		for i := range dst {
			dst[i] = ^dst[i]
		}
		return nil
	case kNotNull:
		fill(dst, true)
	default:
		if err := f.leaf(n, a, rows, dst); err != nil {
			return err
		}
		if n.not {
			for i := range dst {
				dst[i] = ^dst[i]
			}
		}
	}
	clearNulls(dst, a)
	return nil
}

func (f *Filter) junction(n *node, cols []arrow.Array, rows int, dst []uint64) error {
	fill(dst, n.kind == kAnd)
	tmp := f.take(rows)
	defer func() { f.free = append(f.free, tmp) }()
	for _, k := range n.kids {
		if err := f.eval(k, cols, rows, tmp); err != nil {
			return err
		}
		any := uint64(0)
		if n.kind == kAnd {
			for i := range dst {
				dst[i] &= tmp[i]
				any |= dst[i]
			}
			if any == 0 {
				return nil
			}
			continue
		}
		for i := range dst {
			dst[i] |= tmp[i]
		}
	}
	return nil
}

func fill(dst []uint64, v bool) {
	w := uint64(0)
	if v {
		w = ^w
	}
	for i := range dst {
		dst[i] = w
	}
}

// clearNulls clears the bits of nulls.
func clearNulls(dst []uint64, a arrow.Array) {
	if a.NullN() == 0 {
		return
	}
	if a.DataType().ID() == arrow.NULL {
		fill(dst, false)
		return
	}
	valid := a.Data().Buffers()[0]
	if valid == nil {
		return
	}
	for i := range dst {
		dst[i] &= word(valid.Bytes(), a.Data().Offset()+64*i)
	}
}

// word gives 64 bits of a bitmap from a bit on; those behind its end are zero.
func word(b []byte, bit int) uint64 {
	at, shift := bit/8, uint(bit%8)
	if at+9 <= len(b) {
		return binary.LittleEndian.Uint64(b[at:])>>shift | uint64(b[at+8])<<(64-shift)
	}
	var buf [16]byte
	if at < len(b) {
		copy(buf[:9], b[at:])
	}
	return binary.LittleEndian.Uint64(buf[:])>>shift | uint64(buf[8])<<(64-shift)
}

// leaf writes where values are in the range, the list or the pattern, whatever nulls hold.
func (f *Filter) leaf(n *node, a arrow.Array, rows int, dst []uint64) error {
	switch a := a.(type) {
	case *array.Boolean:
		b := a.Data().Buffers()[1].Bytes()
		for i := range dst {
			dst[i] = word(b, a.Data().Offset()+64*i)
			if n.rng.lo.i == 0 {
				dst[i] = ^dst[i]
			}
		}
	case *array.Int8:
		ints(f, n, a.Int8Values(), dst)
	case *array.Int16:
		ints(f, n, a.Int16Values(), dst)
	case *array.Int32:
		ints(f, n, a.Int32Values(), dst)
	case *array.Int64:
		ints(f, n, a.Int64Values(), dst)
	case *array.Date32:
		ints(f, n, cast[int32](a.Date32Values()), dst)
	case *array.Time32:
		ints(f, n, cast[int32](a.Time32Values()), dst)
	case *array.Timestamp:
		ints(f, n, cast[int64](a.TimestampValues()), dst)
	case *array.Float32:
		floats(f, n, a.Float32Values(), dst)
	case *array.Float64:
		floats(f, n, a.Float64Values(), dst)
	case *array.Decimal128:
		f.decimals(n, a.Values(), dst)
	case *array.String:
		if rows > 0 {
			f.texts(n, a.ValueOffsets(), a.ValueBytes(), dst)
		}
	case *array.Binary:
		if rows > 0 {
			f.texts(n, a.ValueOffsets(), a.ValueBytes(), dst)
		}
	case *array.Null:
		fill(dst, false)
	default:
		return fmt.Errorf("predicate: no comparison for Arrow type %s", a.DataType())
	}
	return nil
}

// cast views numbers as their own representation.
func cast[T, S any](v []S) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// setOf prepares a list for looking values up.
func setOf(n *node) any {
	switch n.form {
	case formFloat:
		m := make(map[uint64]struct{}, len(n.vals))
		for _, v := range n.vals {
			m[floatKey(v.f)] = struct{}{}
		}
		return m
	case formDecimal:
		m := make(map[decimal128.Num]struct{}, len(n.vals))
		for _, v := range n.vals {
			m[v.d] = struct{}{}
		}
		return m
	case formText:
		m := make(map[string]struct{}, len(n.vals))
		for _, v := range n.vals {
			m[v.s] = struct{}{}
		}
		return m
	}
	m := make(map[int64]struct{}, len(n.vals))
	for _, v := range n.vals {
		m[v.i] = struct{}{}
	}
	return m
}

// floatKey is the same for floats that are equal.
func floatKey(f float64) uint64 {
	if f != f {
		return math.MaxUint64
	}
	return math.Float64bits(unsigned(f))
}

// ints tests integers. A range is one comparison: values below it wrap around to large ones.
func ints[T int8 | int16 | int32 | int64](f *Filter, n *node, v []T, dst []uint64) {
	if n.kind == kIn {
		set := f.sets[n].(map[int64]struct{})
		lo, hi := n.vals[0].i, n.vals[len(n.vals)-1].i
		for w := range dst {
			m := uint64(0)
			for i, x := range v[64*w : min(64*w+64, len(v))] {
				if y := int64(x); y >= lo && y <= hi {
					if _, ok := set[y]; ok {
						m |= 1 << i
					}
				}
			}
			dst[w] = m
		}
		return
	}
	lo, hi, ok := n.intRange()
	if !ok {
		fill(dst, false)
		return
	}
	width := uint64(hi) - uint64(lo)
	for w := range dst {
		m := uint64(0)
		for i, x := range v[64*w : min(64*w+64, len(v))] {
			m |= bit(uint64(int64(x))-uint64(lo) <= width) << i
		}
		dst[w] = m
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// intRange gives the first and last integer of the range; false if there is none.
func (n *node) intRange() (lo, hi int64, ok bool) {
	lo, hi = math.MinInt64, math.MaxInt64
	if r := &n.rng; r.hasLo {
		if lo = r.lo.i; r.openLo {
			if lo == math.MaxInt64 {
				return 0, 0, false
			}
			lo++
		}
	}
	if r := &n.rng; r.hasHi {
		if hi = r.hi.i; r.openHi {
			if hi == math.MinInt64 {
				return 0, 0, false
			}
			hi--
		}
	}
	return lo, hi, lo <= hi
}

// floats tests floats. A range without end takes NaN, which is greater than all.
func floats[T float32 | float64](f *Filter, n *node, v []T, dst []uint64) {
	if n.kind == kIn {
		set := f.sets[n].(map[uint64]struct{})
		for w := range dst {
			m := uint64(0)
			for i, x := range v[64*w : min(64*w+64, len(v))] {
				if _, ok := set[floatKey(float64(x))]; ok {
					m |= 1 << i
				}
			}
			dst[w] = m
		}
		return
	}
	lo, hi, nan := n.floatRange()
	for w := range dst {
		m := uint64(0)
		for i, x := range v[64*w : min(64*w+64, len(v))] {
			y := float64(x)
			m |= bit(y >= lo && y <= hi || nan && y != y) << i
		}
		dst[w] = m
	}
}

// floatRange gives the range as closed bounds (lo > hi: no number) and whether NaN is in it.
func (n *node) floatRange() (lo, hi float64, nan bool) {
	lo, hi, nan = math.Inf(-1), math.Inf(1), !n.rng.hasHi
	none := func() { lo, hi = 1, 0 }
	if r := &n.rng; r.hasLo {
		switch {
		case r.lo.f != r.lo.f:
			none()
		case !r.openLo:
			lo = r.lo.f
		case math.IsInf(r.lo.f, 1):
			none()
		default:
			lo = math.Nextafter(r.lo.f, math.Inf(1))
		}
	}
	if r := &n.rng; r.hasHi {
		switch {
		case r.hi.f != r.hi.f:
			nan = !r.openHi
		case !r.openHi:
			hi = min(hi, r.hi.f)
		case math.IsInf(r.hi.f, -1):
			none()
		default:
			hi = min(hi, math.Nextafter(r.hi.f, math.Inf(-1)))
		}
	}
	return lo, hi, nan
}

func (f *Filter) decimals(n *node, v []decimal128.Num, dst []uint64) {
	set, _ := f.sets[n].(map[decimal128.Num]struct{})
	r := &n.rng
	for w := range dst {
		m := uint64(0)
		for i, x := range v[64*w : min(64*w+64, len(v))] {
			if n.kind == kIn {
				_, ok := set[x]
				m |= bit(ok) << i
				continue
			}
			low := r.hasLo && (x.Less(r.lo.d) || r.openLo && x == r.lo.d)
			high := r.hasHi && (r.hi.d.Less(x) || r.openHi && x == r.hi.d)
			m |= bit(!low && !high) << i
		}
		dst[w] = m
	}
}

// texts tests texts and binaries; off has one entry more than there are rows.
func (f *Filter) texts(n *node, off []int32, data []byte, dst []uint64) {
	set, _ := f.sets[n].(map[string]struct{})
	r := &n.rng
	one := n.kind == kRange && r.single(formText)
	rows := len(off) - 1
	for w := range dst {
		m := uint64(0)
		for i := 64 * w; i < min(64*w+64, rows); i++ {
			raw := data[off[i]-off[0] : off[i+1]-off[0]]
			s := unsafe.String(unsafe.SliceData(raw), len(raw))
			var ok bool
			switch {
			case one:
				ok = s == r.lo.s
			case n.kind == kRange:
				ok = !(r.hasLo && (s < r.lo.s || r.openLo && s == r.lo.s)) && !(r.hasHi && (s > r.hi.s || r.openHi && s == r.hi.s))
			case n.kind == kIn:
				_, ok = set[s]
			default:
				ok = n.like.match(s)
			}
			m |= bit(ok) << (i & 63)
		}
		dst[w] = m
	}
}
