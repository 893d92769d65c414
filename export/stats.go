package export

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/big"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// maxBoundRunes bounds the length of string bounds in manifests. Paimon cuts at 16 code points unless the table asks
// for full statistics, and then a bound may be as long as the longest value.
const maxBoundRunes = 64

// columnStats are the statistics of one data file in Iceberg's form, by field id.
type columnStats struct {
	values, nulls map[int]int64
	lower, upper  map[int][]byte
}

// fileStats turns Paimon's value statistics into Iceberg's. file is the schema the file was written with, current the
// one the table is exported with. Whatever is missing, damaged or not certain to bound the column is left out: wrong
// bounds lose rows in filtered reads, missing ones only cost speed.
func fileStats(f *manifest.DataFile, file, current *schema.Schema) columnStats {
	st := columnStats{values: map[int]int64{}, nulls: map[int]int64{}, lower: map[int][]byte{}, upper: map[int][]byte{}}
	for _, c := range file.Fields { // counts are of columns that hold values: what is in nested ones is not counted
		if _, ok := current.FieldByID(c.ID); ok && c.Type.Primitive() {
			st.values[c.ID] = f.Rows
		}
	}
	if f.Tracked() {
		file = file.WithRowTracking(false)
	}
	cols, ok := statsColumns(f, file)
	if !ok {
		return st
	}
	types := file.Types(cols)
	lows, err1 := binrow.Decode(f.ValueStats.Min, types)
	highs, err2 := binrow.Decode(f.ValueStats.Max, types)
	bounded := err1 == nil && err2 == nil && len(lows) == len(cols) && len(highs) == len(cols)
	for n, i := range cols {
		field := file.Fields[i]
		at, ok := current.FieldByID(field.ID)
		if !ok || !field.Type.Primitive() {
			continue
		}
		if n < len(f.ValueStats.NullCounts) {
			if c := f.ValueStats.NullCounts[n]; c != nil && *c >= 0 && *c <= f.Rows {
				st.nulls[field.ID] = *c
			}
		}
		if !bounded {
			continue
		}
		if lo, hi, ok := bounds(lows[n], highs[n], current.Fields[at].Type); ok {
			st.lower[field.ID], st.upper[field.ID] = lo, hi
		}
	}
	return st
}

// statsColumns gives the columns that the file's value statistics describe, as indexes into the schema's fields.
func statsColumns(f *manifest.DataFile, s *schema.Schema) ([]int, bool) {
	if f.ValueStatsAll {
		cols := make([]int, len(s.Fields))
		for i := range cols {
			cols[i] = i
		}
		return cols, true
	}
	cols := make([]int, len(f.ValueStatsCols))
	for n, name := range f.ValueStatsCols {
		i, ok := s.Field(name)
		if !ok {
			return nil, false
		}
		cols[n] = i
	}
	return cols, true
}

// bounds encodes a column's minimum and maximum as Iceberg single values of the type (Iceberg spec, appendix D).
// It reports false unless both are there and certain.
func bounds(low, high any, t schema.Type) ([]byte, []byte, bool) {
	switch t.Root {
	case schema.Float, schema.Double:
		return floatBounds(low, high, t.Root == schema.Float)
	case schema.Char, schema.VarChar:
		return stringBounds(low, high)
	case schema.Binary, schema.VarBinary:
		return nil, nil, false // Paimon writes none (§9); what a foreign writer puts there is not specified
	case schema.Boolean:
		lo, ok1 := low.(bool)
		hi, ok2 := high.(bool)
		return boolByte(lo), boolByte(hi), ok1 && ok2 && (!lo || hi)
	case schema.Decimal:
		lo, ok1 := low.(decimal128.Num)
		hi, ok2 := high.(decimal128.Num)
		if !ok1 || !ok2 || hi.Less(lo) {
			return nil, nil, false
		}
		return twosComplement(lo.BigInt()), twosComplement(hi.BigInt()), true
	}
	lo, ok1 := integer(low)
	hi, ok2 := integer(high)
	if !ok1 || !ok2 || lo > hi {
		return nil, nil, false
	}
	switch t.Root {
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		return binary.LittleEndian.AppendUint64(nil, uint64(lo)), binary.LittleEndian.AppendUint64(nil, uint64(hi)), true
	}
	if lo < math.MinInt32 || hi > math.MaxInt32 {
		return nil, nil, false
	}
	return binary.LittleEndian.AppendUint32(nil, uint32(lo)), binary.LittleEndian.AppendUint32(nil, uint32(hi)), true
}

func boolByte(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// integer accepts the cell forms of integers, dates and timestamps (package schema, Cell).
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// floatBounds refuses NaN, which bounds must not be, and widens zeros: writers disagree on the order of -0.0 and 0.0.
func floatBounds(low, high any, single bool) ([]byte, []byte, bool) {
	lo, ok1 := float(low)
	hi, ok2 := float(high)
	if !ok1 || !ok2 || math.IsNaN(lo) || math.IsNaN(hi) || lo > hi {
		return nil, nil, false
	}
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	if hi == 0 {
		hi = 0
	}
	if !single {
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(lo)), binary.LittleEndian.AppendUint64(nil, math.Float64bits(hi)), true
	}
	l, h := float32(lo), float32(hi)
	if float64(l) != lo && !math.IsInf(lo, 0) || float64(h) != hi && !math.IsInf(hi, 0) {
		return nil, nil, false
	}
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(l)), binary.LittleEndian.AppendUint32(nil, math.Float32bits(h)), true
}

func float(v any) (float64, bool) {
	switch v := v.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// stringBounds keeps bounds short: a prefix bounds from below; from above only with its last character raised.
func stringBounds(low, high any) ([]byte, []byte, bool) {
	lo, ok1 := low.(string)
	hi, ok2 := high.(string)
	if !ok1 || !ok2 || !utf8.ValidString(lo) || !utf8.ValidString(hi) {
		return nil, nil, false
	}
	if bytes.Compare([]byte(lo), []byte(hi)) > 0 {
		return nil, nil, false
	}
	lower, upper := cut(lo), []byte(cut(hi))
	if len(upper) < len(hi) {
		if upper = raise(upper); upper == nil {
			return nil, nil, false
		}
	}
	return []byte(lower), upper, true
}

// cut gives the first maxBoundRunes characters.
func cut(s string) string {
	n := 0
	for i := range s {
		if n == maxBoundRunes {
			return s[:i]
		}
		n++
	}
	return s
}

// raise gives a string greater than every string that starts with b, or nil when there is none.
func raise(b []byte) []byte {
	for len(b) > 0 {
		r, size := utf8.DecodeLastRune(b)
		b = b[:len(b)-size]
		if r == utf8.MaxRune {
			continue
		}
		r++
		if r == 0xD800 { // surrogates are no characters
			r = 0xE000
		}
		return utf8.AppendRune(b, r)
	}
	return nil
}

// twosComplement is the shortest big-endian two's complement form.
func twosComplement(v *big.Int) []byte {
	if v.Sign() >= 0 {
		b := v.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			return append([]byte{0}, b...)
		}
		return b
	}
	n := uint(new(big.Int).Not(v).BitLen()/8 + 1)
	return new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), 8*n)).FillBytes(make([]byte, n))
}

// partitionValue gives a partition value in the form that iceberg-go writes into manifests.
func partitionValue(v any, t schema.Type) any {
	switch v := v.(type) {
	case int8:
		return int32(v)
	case int16:
		return int32(v)
	case int32:
		if t.Root == schema.Date {
			return iceberg.Date(v)
		}
		return v
	case int64:
		if t.Root == schema.Timestamp || t.Root == schema.TimestampLTZ {
			return iceberg.Timestamp(v)
		}
		return v
	case decimal128.Num:
		return iceberg.DecimalLiteral{Val: v, Scale: t.Scale}
	}
	return v
}
