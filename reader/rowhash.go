package reader

import (
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/cespare/xxhash/v2"

	"github.com/calve-io/calve/internal/rowjson"
)

// Seeds of the hashes below: odd numbers without a pattern.
const (
	seedCell = 0x9e3779b97f4a7c15
	seedNull = 0xd1342543de82ef95
	seedPair = 0x94d049bb133111eb
)

// mix makes a number in which every bit depends on two others (the folded multiplication of wyhash). Their order counts.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^seedCell, b^seedPair)
	return hi ^ lo
}

// hashRows makes of each row a number that depends on all its cells, a column at a time. Cells that calve takes for equal
// count as equal: all NaN are one, 0.0 and -0.0 are two. Numbers of batches with the same columns can be compared. dst is
// used again.
func hashRows(dst []uint64, cols []arrow.Array, n int) []uint64 {
	dst = append(dst[:0], make([]uint64, n)...)
	for _, c := range cols {
		hashColumn(dst, c)
	}
	for i, h := range dst {
		dst[i] = mix(h, seedNull)
	}
	return dst
}

func hashColumn(dst []uint64, a arrow.Array) {
	switch c := a.(type) {
	case *array.Int8:
		hashInts(dst, c, c.Int8Values())
	case *array.Int16:
		hashInts(dst, c, c.Int16Values())
	case *array.Int32:
		hashInts(dst, c, c.Int32Values())
	case *array.Int64:
		hashInts(dst, c, c.Int64Values())
	case *array.Date32:
		hashInts(dst, c, c.Date32Values())
	case *array.Time32:
		hashInts(dst, c, c.Time32Values())
	case *array.Timestamp:
		hashInts(dst, c, c.TimestampValues())
	case *array.Boolean:
		hashCells(dst, c, func(i int) uint64 {
			if c.Value(i) {
				return 1
			}
			return 0
		})
	case *array.Float32:
		hashCells(dst, c, func(i int) uint64 {
			if x := c.Value(i); x == x {
				return uint64(math.Float32bits(x))
			}
			return uint64(math.Float32bits(float32(math.NaN())))
		})
	case *array.Float64:
		hashCells(dst, c, func(i int) uint64 {
			if x := c.Value(i); x == x {
				return math.Float64bits(x)
			}
			return math.Float64bits(math.NaN())
		})
	case *array.Decimal128:
		hashCells(dst, c, func(i int) uint64 {
			x := c.Value(i)
			return mix(uint64(x.HighBits()), x.LowBits())
		})
	case *array.String:
		hashCells(dst, c, func(i int) uint64 { return xxhash.Sum64String(c.Value(i)) })
	case *array.Binary:
		hashCells(dst, c, func(i int) uint64 { return xxhash.Sum64(c.Value(i)) })
	default:
		var text []byte
		hashCells(dst, a, func(i int) uint64 {
			text = rowjson.AppendValue(text[:0], a, i)
			return xxhash.Sum64(text)
		})
	}
}

func hashInts[T ~int8 | ~int16 | ~int32 | ~int64](dst []uint64, a arrow.Array, vals []T) {
	if a.NullN() > 0 {
		hashCells(dst, a, func(i int) uint64 { return uint64(vals[i]) })
		return
	}
	for i, v := range vals {
		dst[i] = mix(dst[i], uint64(v))
	}
}

func hashCells(dst []uint64, a arrow.Array, cell func(i int) uint64) {
	nulls := a.NullN() > 0
	for i, h := range dst {
		if nulls && a.IsNull(i) {
			dst[i] = mix(h+1, seedNull)
		} else {
			dst[i] = mix(h, cell(i))
		}
	}
}
