package datafile

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// memFile is a storage.File over bytes.
type memFile struct{ *bytes.Reader }

func openBytes(b []byte) memFile     { return memFile{bytes.NewReader(b)} }
func (m memFile) Close() error       { return nil }
func (m memFile) Size() int64        { return m.Reader.Size() }
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0xca1fe)) }

// allTypes are columns of every type that can be written, nullable and (name ending in _nn) not.
func allTypes(t testing.TB) *schema.Schema {
	t.Helper()
	types := []string{
		"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "DECIMAL(18, 4)",
		"DECIMAL(19, 3)", "DECIMAL(38, 10)", "CHAR(5)", "VARCHAR(20)", "STRING", "BINARY(4)", "VARBINARY(9)", "BYTES", "DATE",
		"TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
	}
	s := &schema.Schema{Version: 3, PrimaryKeys: []string{"k"}, Options: map[string]string{}}
	s.Fields = append(s.Fields, schema.Field{ID: 0, Name: "k", Type: mustType(t, "BIGINT NOT NULL")})
	for i, x := range types {
		s.Fields = append(s.Fields,
			schema.Field{ID: 2*i + 1, Name: fmt.Sprintf("c%d", i), Type: mustType(t, x)},
			schema.Field{ID: 2*i + 2, Name: fmt.Sprintf("c%d_nn", i), Type: mustType(t, x+" NOT NULL")})
	}
	s.HighestFieldID = 2 * len(types)
	return s
}

func mustType(t testing.TB, s string) schema.Type {
	t.Helper()
	x, err := schema.ParseType(s)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// valueShape says how random values of a column repeat.
type valueShape struct {
	nulls   float64 // share of nulls
	repeats int     // that many different values; 0 is no limit
	long    int     // length of an occasional long string
}

// randomColumn makes n values of a type.
func randomColumn(r *rand.Rand, t schema.Type, n int, sh valueShape) arrow.Array {
	dt, err := schema.ArrowType(t)
	if err != nil {
		panic(err)
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	b.Reserve(n)
	pool := make([]any, sh.repeats)
	for i := range pool {
		pool[i] = randomCell(r, t, sh)
	}
	for range n {
		switch {
		case !t.NotNull && r.Float64() < sh.nulls:
			b.AppendNull()
		case len(pool) > 0:
			schematest.Append(b, pool[r.IntN(len(pool))])
		default:
			schematest.Append(b, randomCell(r, t, sh))
		}
	}
	return b.NewArray()
}

// randomCell makes one value; one in eight is an extreme one.
func randomCell(r *rand.Rand, t schema.Type, sh valueShape) any {
	if !t.Primitive() {
		return randomNested(r, t, sh)
	}
	extreme := r.IntN(8) == 0
	pick := func(vs ...int64) int64 { return vs[r.IntN(len(vs))] }
	switch t.Root {
	case schema.Boolean:
		return r.IntN(2) == 0
	case schema.TinyInt:
		return int8(r.Uint32())
	case schema.SmallInt:
		return int16(r.Uint32())
	case schema.Int, schema.Date:
		if extreme {
			return int32(pick(math.MinInt32, math.MaxInt32, 0, -1))
		}
		return int32(r.IntN(100000) - 50000)
	case schema.Time:
		return int32(pick(0, 86399999, int64(r.IntN(86400000))))
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		if extreme {
			return pick(math.MinInt64, math.MaxInt64, 0, -1)
		}
		return r.Int64N(1<<50) - 1<<49
	case schema.Float:
		if extreme {
			return []float32{float32(math.Inf(1)), float32(math.Copysign(0, -1)), math.MaxFloat32, math.SmallestNonzeroFloat32}[r.IntN(4)]
		}
		return float32(r.NormFloat64())
	case schema.Double:
		if extreme {
			return []float64{math.Inf(-1), math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64}[r.IntN(4)]
		}
		return r.NormFloat64() * 1e10
	case schema.Decimal:
		return randomDecimal(r, t.Precision, extreme)
	}
	return randomText(r, t, sh)
}

func randomDecimal(r *rand.Rand, precision int, extreme bool) decimal128.Num {
	digits := 1 + r.IntN(precision)
	s := strings.Repeat("9", precision)
	if !extreme {
		s = fmt.Sprintf("%0*d%018d", max(digits-18, 1), r.Int64N(9), r.Int64N(1e18))[:digits]
	}
	if r.IntN(2) == 0 {
		s = "-" + s
	}
	n, err := decimal128.FromString(s, int32(precision), 0)
	if err != nil {
		panic(err)
	}
	return n
}

func randomText(r *rand.Rand, t schema.Type, sh valueShape) any {
	n := r.IntN(24)
	if sh.long > 0 && r.IntN(50) == 0 {
		n = sh.long
	}
	n = min(n, t.Length)
	if t.Root == schema.Binary || t.Root == schema.VarBinary {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	runes := []rune("aé☃😀\u0000\U0010FFFFz")
	var sb strings.Builder
	for range n {
		if n > 100 {
			sb.WriteByte(byte('a' + r.IntN(26)))
			continue
		}
		sb.WriteRune(runes[r.IntN(len(runes))])
	}
	return sb.String()
}

// randomRows makes key-value rows with ascending keys from first on.
func randomRows(r *rand.Rand, s *schema.Schema, first, n int, sh valueShape) Rows {
	out := Rows{N: n, Seq: make([]int64, n), Kinds: make([]int8, n)}
	for i := range n {
		out.Seq[i], out.Kinds[i] = r.Int64N(1<<40), int8(r.IntN(4))
	}
	for i, f := range s.Fields {
		if i == 0 {
			b := array.NewInt64Builder(memory.DefaultAllocator)
			for j := range n {
				b.Append(int64(first + j))
			}
			out.Cols = append(out.Cols, b.NewArray())
			continue
		}
		out.Cols = append(out.Cols, randomColumn(r, f.Type, n, sh))
	}
	return out
}

// writeFile writes batches to a file in memory.
func writeFile(t testing.TB, cfg WriterConfig, batches ...Rows) ([]byte, Info) {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	info, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if info.Size != int64(buf.Len()) {
		t.Fatalf("Info says %d bytes, the file has %d", info.Size, buf.Len())
	}
	return buf.Bytes(), info
}

// readFile reads a file whole.
func readFile(b []byte, fileSchema *schema.Schema, want ReadSpec) ([]Rows, error) {
	r, err := Open(openBytes(b), "test.parquet", fileSchema, want)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(r)
}

func readAll(r *Reader) ([]Rows, error) {
	var out []Rows
	for {
		rows, err := r.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, rows)
	}
}

func allColumns(s *schema.Schema) []int {
	out := make([]int, len(s.Fields))
	for i := range out {
		out[i] = i
	}
	return out
}

// concat joins batches of the same columns.
func concat(t testing.TB, batches []Rows, cols int) Rows {
	t.Helper()
	var out Rows
	parts := make([][]arrow.Array, cols)
	for _, b := range batches {
		out.N += b.N
		out.Seq = append(out.Seq, b.Seq...)
		out.Kinds = append(out.Kinds, b.Kinds...)
		if len(b.Cols) != cols {
			t.Fatalf("%d columns, want %d", len(b.Cols), cols)
		}
		for i, c := range b.Cols {
			parts[i] = append(parts[i], c)
		}
	}
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		a, err := array.Concatenate(p, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		out.Cols = append(out.Cols, a)
	}
	return out
}

// sameRows fails if rows differ anywhere. Floats are compared by bits.
func sameRows(t testing.TB, s *schema.Schema, cols []int, got, want Rows) {
	t.Helper()
	if got.N != want.N {
		t.Fatalf("%d rows, want %d", got.N, want.N)
	}
	for i := range want.Seq {
		if got.Seq[i] != want.Seq[i] || got.Kinds[i] != want.Kinds[i] {
			t.Fatalf("row %d: seq %d kind %d, want %d, %d", i, got.Seq[i], got.Kinds[i], want.Seq[i], want.Kinds[i])
		}
	}
	for j, c := range cols {
		a, b := got.Cols[j], want.Cols[j]
		if !arrow.TypeEqual(a.DataType(), b.DataType()) {
			t.Fatalf("column %s is %s, want %s", s.Fields[c].Name, a.DataType(), b.DataType())
		}
		if a.NullN() != b.NullN() {
			t.Fatalf("column %s has %d nulls, want %d", s.Fields[c].Name, a.NullN(), b.NullN())
		}
		if t := a.DataType().ID(); t != arrow.FLOAT32 && t != arrow.FLOAT64 && !arrow.IsNested(t) && array.Equal(a, b) {
			continue
		}
		for i := range want.N {
			if x, y := cellText(a, i), cellText(b, i); x != y {
				t.Fatalf("column %s (%s), row %d: %.80q, want %.80q", s.Fields[c].Name, s.Fields[c].Type, i, x, y)
			}
		}
	}
}

func cellText(a arrow.Array, i int) string {
	switch v := schema.Cell(a, i).(type) {
	case float32:
		return fmt.Sprintf("f%x", math.Float32bits(v))
	case float64:
		return fmt.Sprintf("d%x", math.Float64bits(v))
	case []byte:
		return "b" + string(v)
	case []any, [][2]any:
		return anyText(v)
	default:
		return fmt.Sprintf("%T %v", v, v)
	}
}

// longColumn has n values of a length that differ in their first bytes.
func longColumn(t schema.Type, n, length int) arrow.Array {
	dt, err := schema.ArrowType(t)
	if err != nil {
		panic(err)
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	fill := strings.Repeat("x", length-8)
	for i := range n {
		if v := fmt.Sprintf("%08d", i) + fill; t.Root == schema.VarChar {
			schematest.Append(b, v)
		} else {
			schematest.Append(b, []byte(v))
		}
	}
	return b.NewArray()
}

var alloc = memory.DefaultAllocator

func num(v int64) decimal128.Num { return decimal128.FromI64(v) }

func asDecimalText(v any) *big.Int { return v.(decimal128.Num).BigInt() }
