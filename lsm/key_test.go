package lsm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// randKeySchema has one to four key columns of any type, in an order of their own, among other columns.
func randKeySchema(t testing.TB, r *rand.Rand, options map[string]string, values ...string) *schema.Schema {
	n := 1 + r.IntN(4)
	var keys, cols []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%d", i))
		cols = append(cols, fmt.Sprintf("k%d %s", i, allTypes[r.IntN(len(allTypes))]))
	}
	for i, v := range values {
		cols = append(cols, fmt.Sprintf("v%d %s", i, v))
	}
	r.Shuffle(len(cols), func(i, j int) { cols[i], cols[j] = cols[j], cols[i] })
	return newSchema(t, keys, options, cols...)
}

// randKeys gives n keys and their columns in key order.
func randKeys(t testing.TB, r *rand.Rand, types []schema.Type, n int) ([][]any, []arrow.Array) {
	rows := make([][]any, n)
	for i := range rows {
		rows[i] = make([]any, len(types))
		for c := range types {
			if i > 0 && r.IntN(3) == 0 { // values that come again make ties in front columns
				rows[i][c] = rows[r.IntN(i)][c]
			} else {
				rows[i][c] = randValue(r, types[c])
			}
		}
	}
	return rows, keyArrays(t, r, types, rows)
}

func keyArrays(t testing.TB, r *rand.Rand, types []schema.Type, rows [][]any) []arrow.Array {
	cols := make([]arrow.Array, len(types))
	for c := range types {
		vals := make([]any, len(rows))
		for i := range rows {
			vals[i] = rows[i][c]
		}
		cols[c] = sliced(t, r, types[c], vals)
	}
	return cols
}

func sign(i int) int { return max(-1, min(1, i)) }

// TestKeyOrder holds the order of normalized keys against the order of values, over random key schemas, and the codes
// of single keys against those of columns.
func TestKeyOrder(t *testing.T) {
	r := newRand(t)
	exact := 0
	for round := range 300 {
		s := randKeySchema(t, r, nil)
		types := s.Types(s.KeyColumns())
		k := NewKeys(s)
		rows, cols := randKeys(t, r, types, 30)
		v, err := k.Encode(cols, len(rows))
		if err != nil {
			t.Fatalf("round %d, keys %v: %v", round, types, err)
		}
		rows2, cols2 := randKeys(t, r, types, 30)
		w, err := k.Encode(cols2, len(rows2))
		if err != nil {
			t.Fatal(err)
		}
		if v.Exact {
			exact++
		}
		for i := range rows {
			for j := range rows {
				if got, want := v.Compare(i, &v, j), sign(compareKeys(rows[i], rows[j])); got != want {
					t.Fatalf("round %d, keys %v: %v against %v is %d, want %d", round, types, rows[i], rows[j], got, want)
				}
			}
			for j := range rows2 {
				if got, want := v.Compare(i, &w, j), sign(compareKeys(rows[i], rows2[j])); got != want {
					t.Fatalf("round %d, keys %v: %v against %v of another vector is %d, want %d", round, types, rows[i], rows2[j], got, want)
				}
			}
		}
		checkSerialized(t, k, types, rows, &v)
	}
	if exact == 0 || exact == 300 {
		t.Errorf("%d of 300 key vectors were exact: the test misses a case", exact)
	}
}

// checkSerialized holds FromSerialized against Encode.
func checkSerialized(t *testing.T, k *Keys, types []schema.Type, rows [][]any, v *KeyVec) {
	t.Helper()
	enc := binrow.NewEncoder(types)
	for i, row := range rows {
		b, err := enc.AppendValues(nil, schema.Insert, row)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.FromSerialized(binrow.Serialize(b, len(types)))
		if err != nil {
			t.Fatalf("key %v: %v", row, err)
		}
		if word64([]byte(got)) != v.Prefix[i] {
			t.Fatalf("key %v: serialized prefix %x, column prefix %x", row, word64([]byte(got)), v.Prefix[i])
		}
		if code := string(k.AppendCode(nil, v, i)); code != got {
			t.Fatalf("key %v: serialized code %x, column code %x", row, got, code)
		}
		rest := ""
		if len(got) > 8 {
			rest = got[8:]
		}
		if rest != string(v.rest(i)) {
			t.Fatalf("key %v: serialized rest %x, column rest %x", row, rest, v.rest(i))
		}
	}
}

// TestKeyPrefixFree: strings that are prefixes of each other, and zeros, at all lengths around the eight bytes of the
// prefix, before a second column that could be taken for a part of the first.
func TestKeyPrefixFree(t *testing.T) {
	s := newSchema(t, []string{"a", "b"}, nil, "a STRING", "b STRING")
	k := NewKeys(s)
	var rows [][]any
	for n := range 12 {
		for _, end := range []string{"", "\x00", "\x01", "\x02", "\x00\x00", "\x01\x01", "\xff"} {
			for _, b := range []string{"", "\x00", "x", "\x02"} {
				rows = append(rows, []any{strings.Repeat("p", n) + end, b})
			}
		}
	}
	types := s.Types(s.KeyColumns())
	v, err := k.Encode(keyArrays(t, newRand(t), types, rows), len(rows))
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		for j := range rows {
			if got, want := v.Compare(i, &v, j), sign(compareKeys(rows[i], rows[j])); got != want {
				t.Fatalf("%q against %q is %d, want %d", rows[i], rows[j], got, want)
			}
		}
	}
}

func TestKeyFloats(t *testing.T) {
	doubles := []float64{math.Inf(-1), -math.MaxFloat32, -1.0, -math.SmallestNonzeroFloat32, math.Copysign(0, -1), 0.0, math.SmallestNonzeroFloat32, 1.0, math.Inf(1), math.NaN(), math.Copysign(math.NaN(), -1)}
	want := []int{0, 1, 2, 3, 4, 4, 6, 7, 8, 9, 9} // equal numbers: equal keys
	for _, name := range []string{"FLOAT", "DOUBLE"} {
		s := newSchema(t, []string{"k"}, nil, "k "+name)
		vals := make([]any, len(doubles))
		for i, d := range doubles {
			if vals[i] = d; name == "FLOAT" {
				vals[i] = float32(d)
			}
		}
		v, err := NewKeys(s).Encode([]arrow.Array{schematest.Array(t, s.Fields[0].Type, vals...)}, len(vals))
		if err != nil {
			t.Fatal(err)
		}
		for i := range vals {
			for j := range vals {
				if got := v.Compare(i, &v, j); got != sign(want[i]-want[j]) {
					t.Errorf("%s: %v against %v is %d", name, vals[i], vals[j], got)
				}
			}
		}
	}
}

func TestKeyErrors(t *testing.T) {
	dec := mustType(t, "DECIMAL(4, 0)")
	cases := []struct {
		name string
		typ  string
		col  arrow.Array
		want string
	}{
		{"null", "INT", schematest.Array(t, mustType(t, "INT"), int32(1), nil), `key column "k" is null in row 1`},
		{"type", "INT", schematest.Array(t, mustType(t, "BIGINT"), int64(1), int64(2)), `key column "k" is int64, want int32`},
		{"unit", "TIMESTAMP(6)", schematest.Array(t, mustType(t, "TIMESTAMP(3)"), int64(1), int64(2)), `is timestamp[ms], want timestamp[us]`},
		{"short", "INT", schematest.Array(t, mustType(t, "INT"), int32(1)), `has 1 rows, want 2`},
		{"wide decimal", "DECIMAL(4, 0)", schematest.Array(t, dec, decimal128.FromI64(1), decimal128.FromI64(1<<40)), `exceeds DECIMAL(4, 0)`},
		{"wider decimal", "DECIMAL(4, 0)", schematest.Array(t, dec, decimal128.FromI64(1), decimal128.New(7, 0)), `exceeds DECIMAL(4, 0)`},
	}
	for _, c := range cases {
		s := newSchema(t, []string{"k"}, nil, "k "+c.typ)
		_, err := NewKeys(s).Encode([]arrow.Array{c.col}, 2)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := NewKeys(newSchema(t, []string{"k"}, nil, "k INT")).FromSerialized([]byte{1, 2, 3}); err == nil {
		t.Error("a truncated key is accepted")
	}
}

// TestSortNewest holds the sort against a stable comparison sort, at sizes on both sides of the radix sort's limit.
func TestSortNewest(t *testing.T) {
	r := newRand(t)
	for round := range 120 {
		s := randKeySchema(t, r, nil)
		types := s.Types(s.KeyColumns())
		n := []int{0, 1, 2, 50, radixMin - 1, radixMin, 700}[r.IntN(7)]
		rows, cols := randKeys(t, r, types, n)
		switch r.IntN(4) {
		case 0:
			slices.SortStableFunc(rows, compareKeys)
			cols = keyArrays(t, r, types, rows)
		case 1: // unique and sorted: the short cut
			slices.SortStableFunc(rows, compareKeys)
			rows = slices.CompactFunc(rows, func(a, b []any) bool { return compareKeys(a, b) == 0 })
			cols = keyArrays(t, r, types, rows)
		}
		v, err := NewKeys(s).Encode(cols, len(rows))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := sortNewest(&v), naiveNewest(rows); !slices.Equal(got, want) {
			t.Fatalf("round %d, %d rows of %v: got %v, want %v", round, len(rows), types, got, want)
		}
	}
}

func naiveNewest(rows [][]any) []int32 {
	idx := make([]int32, len(rows))
	for i := range idx {
		idx[i] = int32(i)
	}
	slices.SortStableFunc(idx, func(a, b int32) int { return compareKeys(rows[a], rows[b]) })
	var out []int32
	for i, x := range idx {
		if i+1 == len(idx) || compareKeys(rows[x], rows[idx[i+1]]) != 0 {
			out = append(out, x)
		}
	}
	return out
}

// TestSortTies: keys that differ far behind their prefixes, and many that do not differ.
func TestSortTies(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, nil, "k STRING")
	typ := s.Types([]int{0})
	for _, width := range []int{0, 20, 100, 300} { // 300 bytes are deeper than maxTieDepth words
		var rows [][]any
		for range 3000 {
			rows = append(rows, []any{strings.Repeat("x", width) + fmt.Sprint(r.IntN(900)) + strings.Repeat("y", r.IntN(3)*width)})
		}
		v, err := NewKeys(s).Encode(keyArrays(t, r, typ, rows), len(rows))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(sortNewest(&v), naiveNewest(rows)) {
			t.Errorf("width %d: wrong order", width)
		}
	}
	// The same rests behind two prefixes: the last of one and the first of the other are not one key. And with
	// different ones, the words of prefix and rest need an odd number of digits each.
	for _, rests := range []int{1, 7, 200} {
		var rows [][]any
		for i := range 16 * radixMin {
			rows = append(rows, []any{fmt.Sprintf("prefix-%d the rest is %c", i%2, r.IntN(rests))})
		}
		v, err := NewKeys(s).Encode(keyArrays(t, r, typ, rows), len(rows))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := sortNewest(&v), naiveNewest(rows); !slices.Equal(got, want) {
			t.Errorf("two prefixes, %d rests: %v, want %v", rests, got, want)
		}
	}
}

// TestHostileArrays: arrays whose buffers are shorter than they say are errors, not panics.
func TestHostileArrays(t *testing.T) {
	s := newSchema(t, []string{"k"}, nil, "k STRING")
	good := schematest.Array(t, s.Fields[0].Type, "a", "b")
	bufs := good.Data().Buffers()
	d := array.NewData(good.DataType(), 5, bufs, nil, 0, 0)
	if err := checkLayout(&fakeArray{Array: good, data: d}); err == nil {
		t.Error("an array of 5 rows with offsets for 2 is accepted")
	}
}

// fakeArray has other data than its methods say, which Arrow's own constructors refuse.
type fakeArray struct {
	arrow.Array
	data arrow.ArrayData
}

func (f *fakeArray) Data() arrow.ArrayData { return f.data }
