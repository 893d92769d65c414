package lsm

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0: the fixed one")

// newRand gives a generator whose seed is printed when the test fails.
func newRand(t testing.TB) *rand.Rand {
	s := *seed
	if s == 0 {
		s = 20260229
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d (run again with -seed=%d)", s, s)
		}
	})
	return rand.New(rand.NewPCG(s, 1))
}

func mustType(t testing.TB, s string) schema.Type {
	t.Helper()
	typ, err := schema.ParseType(s)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// allTypes are all types a column can have.
var allTypes = []string{
	"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(7, 2)", "DECIMAL(18, 4)", "DECIMAL(38, 10)",
	"CHAR(3)", "STRING", "BYTES", "BINARY(4)", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)",
}

// newSchema makes a table of columns "name TYPE"; the names in keys are its primary key.
func newSchema(t testing.TB, keys []string, options map[string]string, cols ...string) *schema.Schema {
	t.Helper()
	spec := schema.Spec{PrimaryKeys: keys, Options: options}
	for _, c := range cols {
		name, typ, _ := strings.Cut(c, " ")
		spec.Columns = append(spec.Columns, schema.Column{Name: name, Type: mustType(t, typ)})
	}
	s, err := schema.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// randValue gives a value in the form of schema.Cell: extremes, and otherwise few different ones.
func randValue(r *rand.Rand, t schema.Type) any {
	i := func(bits int) int64 {
		switch r.IntN(8) {
		case 0:
			return -1 << (bits - 1)
		case 1:
			return 1<<(bits-1) - 1
		case 2:
			return int64(r.Uint64()) >> (64 - bits)
		}
		return int64(r.IntN(40) - 20)
	}
	switch t.Root {
	case schema.Boolean:
		return r.IntN(2) == 0
	case schema.TinyInt:
		return int8(i(8))
	case schema.SmallInt:
		return int16(i(16))
	case schema.Int, schema.Date:
		return int32(i(32))
	case schema.Time:
		return int32(r.IntN(86_400_000))
	case schema.BigInt:
		return i(64)
	case schema.Timestamp, schema.TimestampLTZ:
		return i(52)
	case schema.Float:
		return []float32{0, 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, r.Float32() - 0.5}[r.IntN(9)]
	case schema.Double:
		return []float64{0, 1, -1, math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, -math.SmallestNonzeroFloat64, r.NormFloat64()}[r.IntN(9)]
	case schema.Decimal:
		limit := uint64(math.Pow10(min(t.Precision, 18)))
		v := decimal128.FromI64(int64(r.Uint64N(limit)))
		switch {
		case r.IntN(3) > 0:
			v = decimal128.FromI64(int64(r.IntN(9)))
		case t.Precision > 18:
			v = v.Mul(decimal128.FromU64(r.Uint64N(1e18)))
		}
		if r.IntN(2) == 0 {
			return v.Negate()
		}
		return v
	case schema.Char, schema.VarChar:
		return string(randBytes(r, t, "abé\x00\x01￿z"))
	case schema.Binary, schema.VarBinary:
		return randBytes(r, t, "\x00\x01\x02a\xff")
	}
	panic("no values of " + t.String())
}

// randBytes has long common prefixes, and lengths around those of the key prefix.
func randBytes(r *rand.Rand, t schema.Type, alphabet string) []byte {
	runes := []rune(alphabet)
	if t.Root == schema.Binary || t.Root == schema.VarBinary {
		runes = nil
	}
	b := []byte{}
	if t.Length > 100 && r.IntN(2) == 0 {
		b = append(b, "common-prefix-"[:r.IntN(15)]...)
	}
	for range r.IntN(min(t.Length, 6)) {
		if runes == nil {
			b = append(b, alphabet[r.IntN(len(alphabet))])
		} else {
			b = append(b, string(runes[r.IntN(len(runes))])...)
		}
	}
	return b
}

// column builds an array of random values; one in five is null unless the type is NOT NULL.
func column(t testing.TB, r *rand.Rand, typ schema.Type, n int) arrow.Array {
	vals := make([]any, n)
	for i := range vals {
		if typ.NotNull || r.IntN(5) > 0 {
			vals[i] = randValue(r, typ)
		}
	}
	return schematest.Array(t, typ, vals...)
}

// sliced gives the same values with an offset, as arrays cut from larger ones have.
func sliced(t testing.TB, r *rand.Rand, typ schema.Type, vals []any) arrow.Array {
	pre := r.IntN(70)
	all := make([]any, pre, pre+len(vals)+3)
	for i := range all {
		all[i] = randValue(r, typ)
	}
	all = append(append(all, vals...), randValue(r, typ))
	return array.NewSlice(schematest.Array(t, typ, all...), int64(pre), int64(pre+len(vals)))
}

// compareCells orders two values as Java does (§8.1).
func compareCells(a, b any) int {
	switch x := a.(type) {
	case bool:
		y := b.(bool)
		switch {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	case int8:
		return int(x) - int(b.(int8))
	case int16:
		return int(x) - int(b.(int16))
	case int32:
		return cmpOrdered(x, b.(int32))
	case int64:
		return cmpOrdered(x, b.(int64))
	case float32:
		return cmpOrdered(x, b.(float32))
	case float64:
		return cmpOrdered(x, b.(float64))
	case decimal128.Num:
		return x.Cmp(b.(decimal128.Num))
	case string:
		return strings.Compare(x, b.(string))
	case []byte:
		return bytes.Compare(x, b.([]byte))
	}
	panic(fmt.Sprintf("no order for %T", a))
}

func cmpOrdered[T int32 | int64 | float32 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func compareKeys(a, b []any) int {
	for i := range a {
		if c := compareCells(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

// bigintKey is the serialized BinaryRow of a key of one BIGINT column.
func bigintKey(v int64) []byte {
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = append(b, make([]byte, 8)...)
	return binary.LittleEndian.AppendUint64(b, uint64(v))
}

func fixedNow() time.Time { return time.UnixMilli(1_750_000_000_000).UTC() }
