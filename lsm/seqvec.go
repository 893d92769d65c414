package lsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// seqCols are columns whose values order rows of one key: those of `sequence.field`, or of a sequence group. Null comes
// before every value in either order (`codegen.GenerateUtils.generateRowCompare`, §11.4).
type seqCols struct {
	cols       []keyCol
	descending bool
}

func newSeqCols(s *schema.Schema, names []string, descending bool) (*seqCols, error) {
	out := &seqCols{descending: descending}
	for _, n := range names {
		i, ok := s.Field(n)
		if !ok {
			return nil, fmt.Errorf("sequence column %q is not a column", n)
		}
		f := s.Fields[i]
		c := keyCol{name: n, typ: f.Type, width: keyWidth(f.Type)}
		if f.Type.Root == schema.Decimal {
			c.width = 16 // sums may exceed their precision
		}
		out.cols = append(out.cols, c)
	}
	return out, nil
}

// seqVec holds the order of rows by sequence columns. The zero value has all rows equal.
type seqVec struct {
	// A single column of at most eight bytes: its codes, with 0 for null, which code 0 shares.
	words []uint64
	null  func(int) bool // nil: no nulls
	// Anything else: row i is data[off[i]:off[i+1]].
	off  []uint32
	data []byte
}

// compare orders row i of v and row j of o, both made by the same seqCols.
func (v *seqVec) compare(i int, o *seqVec, j int) int {
	if v.words != nil {
		a, b := v.words[i], o.words[j]
		switch {
		case a < b:
			return -1
		case a > b:
			return 1
		case a != 0 || v.null == nil && o.null == nil:
			return 0
		}
		x, y := v.null != nil && v.null(i), o.null != nil && o.null(j)
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	}
	if v.off == nil {
		return 0
	}
	return bytes.Compare(v.data[v.off[i]:v.off[i+1]], o.data[o.off[j]:o.off[j+1]])
}

// encode orders n rows; cols are the sequence columns.
func (s *seqCols) encode(cols []arrow.Array, n int) (seqVec, error) {
	for i, c := range s.cols {
		if err := c.check(cols[i]); err != nil {
			return seqVec{}, err
		}
		if cols[i].Len() < n {
			return seqVec{}, fmt.Errorf("sequence column %q has %d rows, want %d", c.name, cols[i].Len(), n)
		}
	}
	if len(s.cols) == 1 && s.cols[0].width > 0 && s.cols[0].width <= 8 {
		w, err := s.words(0, cols[0], n)
		return seqVec{words: w, null: nulls(cols[0])}, err
	}
	return s.encodeBytes(cols, n)
}

// nulls tells which rows are null; nil if none is.
func nulls(a arrow.Array) func(int) bool {
	if a.NullN() == 0 {
		return nil
	}
	bits, off := a.Data().Buffers()[0].Bytes(), a.Data().Offset()
	return func(i int) bool { return !bitutil.BitIsSet(bits, off+i) }
}

// words are the codes of a column of at most eight bytes, 0 where it is null.
func (s *seqCols) words(col int, a arrow.Array, n int) ([]uint64, error) {
	k := Keys{cols: s.cols}
	w := make([]uint64, n)
	if err := k.orFixed(w, a, col, 0); err != nil {
		return nil, err
	}
	if s.descending {
		all := ^uint64(0) >> (64 - 8*s.cols[col].width)
		for i := range w {
			w[i] = ^w[i] & all
		}
	}
	if null := nulls(a); null != nil {
		for i := range w {
			if null(i) {
				w[i] = 0
			}
		}
	}
	return w, nil
}

// encodeBytes writes each column as a byte that tells null from a value, and the value's code.
func (s *seqCols) encodeBytes(cols []arrow.Array, n int) (seqVec, error) {
	vars := make([]varCol, len(cols))
	fixed, total := uint64(0), uint64(0)
	for i, c := range s.cols {
		fixed += uint64(1 + c.width)
		if c.width > 0 {
			continue
		}
		var err error
		if vars[i], err = newVarCol(c, emptyNulls(cols[i]), n); err != nil {
			return seqVec{}, err
		}
		total += vars[i].total
	}
	if total += fixed * uint64(n); total > math.MaxUint32 {
		return seqVec{}, fmt.Errorf("sequence columns of %d rows need %d bytes, more than a batch may have", n, total)
	}
	v := seqVec{off: make([]uint32, n+1), data: make([]byte, total)}
	layOut(v.off, vars, uint32(fixed))
	pos := make([]uint32, n)
	copy(pos, v.off)
	from := make([]uint32, n)
	for i, c := range s.cols {
		null := nulls(cols[i])
		for r := range pos {
			if null == nil || !null(r) {
				v.data[pos[r]] = 1
			}
			pos[r]++
		}
		copy(from, pos)
		if err := s.put(&v, vars, pos, cols[i], i); err != nil {
			return seqVec{}, err
		}
		s.finish(v.data, from, pos, null, c.width > 0)
	}
	return v, nil
}

func (s *seqCols) put(v *seqVec, vars []varCol, pos []uint32, a arrow.Array, col int) error {
	switch c := s.cols[col]; c.width {
	case 0:
		vars[col].put(v.data, pos)
	case 16:
		for i, x := range values[decimal128.Num](a)[:len(pos)] {
			binary.BigEndian.PutUint64(v.data[pos[i]:], code64(x.HighBits()))
			binary.BigEndian.PutUint64(v.data[pos[i]+8:], x.LowBits())
			pos[i] += 16
		}
	default:
		k := Keys{cols: s.cols}
		return k.putFixed(v.data, pos, a, col)
	}
	return nil
}

// finish turns codes around for descending order and blanks those of nulls, whose bytes mean nothing.
func (s *seqCols) finish(data []byte, from, to []uint32, null func(int) bool, fixed bool) {
	if !s.descending && (null == nil || !fixed) {
		return
	}
	for i := range from {
		code := data[from[i]:to[i]]
		switch {
		case null != nil && null(i):
			if fixed {
				clear(code)
			}
		case s.descending:
			for j := range code {
				code[j] = ^code[j]
			}
		}
	}
}

// emptyNulls gives the strings of a with nothing behind nulls, where Arrow allows any bytes.
func emptyNulls(a arrow.Array) arrow.Array {
	null := nulls(a)
	if null == nil {
		return a
	}
	off, data := strings32(a)
	hidden := false
	for i := range a.Len() {
		hidden = hidden || null(i) && off[i] != off[i+1]
	}
	if !hidden {
		return a
	}
	ends, out, has := make([]int32, 1, len(off)), make([]byte, 0, len(data)), make([]bool, a.Len())
	for i := range has {
		if has[i] = !null(i); has[i] {
			out = append(out, data[off[i]:off[i+1]]...)
		}
		ends = append(ends, int32(len(out)))
	}
	return columnOf(a.DataType(), has, bytesOf(ends), memory.NewBufferBytes(out))
}
