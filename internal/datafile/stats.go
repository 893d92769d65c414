package datafile

import (
	"bytes"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// ColumnStats are the statistics of one column of a file, as they go into a manifest.
//
// Min and Max are cells in the form of schema.Cell, nil when unknown: no value at all, binary columns, columns with a
// NaN, strings that cannot be shortened, and the modes none and counts. Nulls is the number of nulls, or -1 in the mode
// none: such columns are left out of densely stored statistics.
type ColumnStats struct {
	Min, Max any
	Nulls    int64
}

// keyStats is the mode of key columns, whatever the table says (`KeyValueDataFileWriter`).
const keyStats schema.StatsMode = "truncate(128)"

// defaultStats is the mode of value columns (`metadata.stats-mode`).
const defaultStats schema.StatsMode = "truncate(16)"

// keep cuts collected statistics down to what a mode keeps.
func keep(m schema.StatsMode, s ColumnStats) ColumnStats {
	switch m {
	case schema.StatsNone:
		return ColumnStats{Nulls: -1}
	case schema.StatsCounts:
		return ColumnStats{Nulls: s.Nulls}
	}
	n, ok := m.Truncate()
	if !ok {
		return s
	}
	lo, isText := s.Min.(string)
	if !isText {
		return s
	}
	hi, ok := truncateMax(s.Max.(string), n)
	if !ok { // as Paimon: without a maximum the minimum is not kept either
		return ColumnStats{Nulls: s.Nulls}
	}
	return ColumnStats{Min: truncateMin(lo, n), Max: hi, Nulls: s.Nulls}
}

// collector gathers the statistics of one column over all batches of a file.
type collector interface {
	add(a arrow.Array)
	// result gives full, untruncated statistics.
	result() ColumnStats
}

// newCollector picks the collector of a type. Types without an order that all engines agree on have counts only.
func newCollector(t schema.Type) collector {
	switch t.Root {
	case schema.Boolean:
		return &boolStats{}
	case schema.TinyInt:
		return &intStats[int8]{values: func(a arrow.Array) []int8 { return a.(*array.Int8).Int8Values() }}
	case schema.SmallInt:
		return &intStats[int16]{values: func(a arrow.Array) []int16 { return a.(*array.Int16).Int16Values() }}
	case schema.Int, schema.Date, schema.Time:
		return &intStats[int32]{values: func(a arrow.Array) []int32 { return values(a, arrow.Int32Traits.CastFromBytes) }}
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		return &intStats[int64]{values: func(a arrow.Array) []int64 { return values(a, arrow.Int64Traits.CastFromBytes) }}
	case schema.Float:
		return &floatStats[float32]{values: func(a arrow.Array) []float32 { return a.(*array.Float32).Float32Values() }}
	case schema.Double:
		return &floatStats[float64]{values: func(a arrow.Array) []float64 { return a.(*array.Float64).Float64Values() }}
	case schema.Decimal:
		return &decimalStats{}
	case schema.Char, schema.VarChar:
		return &stringStats{}
	}
	return &countStats{}
}

// countStats counts nulls.
type countStats struct{ nulls int64 }

func (s *countStats) add(a arrow.Array)   { s.nulls += int64(a.NullN()) }
func (s *countStats) result() ColumnStats { return ColumnStats{Nulls: s.nulls} }

// intStats are for integers and what is stored as such.
type intStats[T int8 | int16 | int32 | int64] struct {
	countStats
	values func(arrow.Array) []T
	lo, hi T
	any    bool
}

func (s *intStats[T]) add(a arrow.Array) {
	s.countStats.add(a)
	eachRun(a, func(from, to int) {
		v := s.values(a)[from:to]
		if !s.any {
			s.lo, s.hi, s.any = v[0], v[0], true
		}
		lo, hi := s.lo, s.hi
		for _, x := range v {
			lo, hi = min(lo, x), max(hi, x)
		}
		s.lo, s.hi = lo, hi
	})
}

func (s *intStats[T]) result() ColumnStats {
	if !s.any {
		return s.countStats.result()
	}
	return ColumnStats{Min: s.lo, Max: s.hi, Nulls: s.nulls}
}

// floatStats follow Parquet's rules, by which Paimon gets its own: a NaN makes the bounds unknown (engines sort it
// differently), and zeros are widened to -0 at the bottom and +0 at the top.
type floatStats[T float32 | float64] struct {
	countStats
	values   func(arrow.Array) []T
	lo, hi   T
	any, nan bool
}

func (s *floatStats[T]) add(a arrow.Array) {
	s.countStats.add(a)
	eachRun(a, func(from, to int) {
		v := s.values(a)[from:to]
		if !s.any {
			s.lo, s.hi, s.any = v[0], v[0], true
		}
		lo, hi, nan := s.lo, s.hi, s.nan
		for _, x := range v {
			nan = nan || x != x
			if x < lo {
				lo = x
			}
			if x > hi {
				hi = x
			}
		}
		s.lo, s.hi, s.nan = lo, hi, nan
	})
}

func (s *floatStats[T]) result() ColumnStats {
	if !s.any || s.nan {
		return s.countStats.result()
	}
	lo, hi := s.lo, s.hi
	if lo == 0 {
		lo = T(math.Copysign(0, -1))
	}
	if hi == 0 {
		hi = 0
	}
	return ColumnStats{Min: lo, Max: hi, Nulls: s.nulls}
}

// decimalStats compare unscaled values: all values of a column have the same scale.
type decimalStats struct {
	countStats
	lo, hi decimal128.Num
	any    bool
}

func (s *decimalStats) add(a arrow.Array) {
	s.countStats.add(a)
	eachRun(a, func(from, to int) {
		v := a.(*array.Decimal128).Values()[from:to]
		if !s.any {
			s.lo, s.hi, s.any = v[0], v[0], true
		}
		lo, hi := s.lo, s.hi
		for _, x := range v {
			if x.Less(lo) {
				lo = x
			}
			if hi.Less(x) {
				hi = x
			}
		}
		s.lo, s.hi = lo, hi
	})
}

func (s *decimalStats) result() ColumnStats {
	if !s.any {
		return s.countStats.result()
	}
	return ColumnStats{Min: s.lo, Max: s.hi, Nulls: s.nulls}
}

// boolStats: false is less than true.
type boolStats struct {
	countStats
	f, t bool
}

func (s *boolStats) add(a arrow.Array) {
	s.countStats.add(a)
	bits, off := []byte(nil), a.Data().Offset()
	if b := a.Data().Buffers()[1]; b != nil {
		bits = b.Bytes()
	}
	eachRun(a, func(from, to int) {
		set := bitutil.CountSetBits(bits, off+from, to-from)
		s.t = s.t || set > 0
		s.f = s.f || set < to-from
	})
}

func (s *boolStats) result() ColumnStats {
	if !s.f && !s.t {
		return s.countStats.result()
	}
	return ColumnStats{Min: !s.f, Max: s.t, Nulls: s.nulls}
}

// stringStats compare bytes, which for UTF-8 is the order of code points.
type stringStats struct {
	countStats
	lo, hi []byte
	any    bool
}

func (s *stringStats) add(a arrow.Array) {
	s.countStats.add(a)
	d := a.Data()
	if d.Len() == a.NullN() {
		return
	}
	off := arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())[d.Offset():]
	var data []byte
	if b := d.Buffers()[2]; b != nil {
		data = b.Bytes()
	}
	// The bounds are views into the batch until its end, then copies: a sorted column would copy every value.
	lo, hi, any := s.lo, s.hi, s.any
	eachRun(a, func(from, to int) {
		if !any {
			v := data[off[from]:off[from+1]]
			lo, hi, any = v, v, true
		}
		lo, hi = bounds(data, off[from:to+1], lo, hi)
	})
	s.lo, s.hi, s.any = bytes.Clone(lo), bytes.Clone(hi), any
}

// bounds widens lo and hi by the values between offsets. The first eight bytes decide most comparisons.
func bounds(data []byte, off []int32, lo, hi []byte) ([]byte, []byte) {
	pl, ph := prefix(lo), prefix(hi)
	for i := range len(off) - 1 {
		v := data[off[i]:off[i+1]]
		p := prefix(v)
		if p <= pl && bytes.Compare(v, lo) < 0 {
			lo, pl = v, p
		}
		if p >= ph && bytes.Compare(v, hi) > 0 {
			hi, ph = v, p
		}
	}
	return lo, hi
}

// prefix packs the first eight bytes so that numbers compare as the bytes do; missing ones are zero.
func prefix(v []byte) uint64 {
	if len(v) >= 8 {
		return uint64(v[0])<<56 | uint64(v[1])<<48 | uint64(v[2])<<40 | uint64(v[3])<<32 |
			uint64(v[4])<<24 | uint64(v[5])<<16 | uint64(v[6])<<8 | uint64(v[7])
	}
	var p uint64
	for i, b := range v {
		p |= uint64(b) << (56 - 8*i)
	}
	return p
}

func (s *stringStats) result() ColumnStats {
	if !s.any {
		return s.countStats.result()
	}
	return ColumnStats{Min: string(s.lo), Max: string(s.hi), Nulls: s.nulls}
}

// eachRun calls f for each run of rows that are not null.
func eachRun(a arrow.Array, f func(from, to int)) {
	n := a.Len()
	if n == 0 {
		return
	}
	switch a.NullN() {
	case 0:
		f(0, n)
		return
	case n:
		return
	}
	bits, off := a.NullBitmapBytes(), a.Data().Offset()
	for i := 0; i < n; {
		if !bitutil.BitIsSet(bits, off+i) {
			i++
			continue
		}
		from := i
		for i < n && bitutil.BitIsSet(bits, off+i) {
			i++
		}
		f(from, i)
	}
}
