package lsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

func cells(a arrow.Array) []any {
	out := make([]any, a.Len())
	for i := range out {
		out[i] = schema.Cell(a, i)
	}
	return out
}

func sameCells(t *testing.T, what string, got arrow.Array, want []any) {
	t.Helper()
	if got.Len() != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, got.Len(), len(want))
	}
	nulls := 0
	for i, w := range want {
		if g, w := fmt.Sprintf("%#v", schema.Cell(got, i)), fmt.Sprintf("%#v", w); g != w {
			t.Fatalf("%s: row %d is %s, want %s", what, i, g, w)
		}
		if w == nil {
			nulls++
		}
	}
	if got.NullN() != nulls {
		t.Fatalf("%s: null count %d, want %d", what, got.NullN(), nulls)
	}
}

// TestGather copies random ranges and rows of sources with and without nulls and offsets, for every type.
func TestGather(t *testing.T) {
	r := newRand(t)
	for _, name := range allTypes {
		typ := mustType(t, name)
		for range 12 {
			var srcs []arrow.Array
			var vals [][]any
			for range 1 + r.IntN(4) {
				c := typ
				c.NotNull = r.IntN(2) == 0
				v := cells(column(t, r, c, 1+r.IntN(300)))
				vals = append(vals, v)
				srcs = append(srcs, sliced(t, r, typ, v))
			}
			ranges := randRanges(r, vals)
			var want []any
			for _, g := range ranges {
				want = append(want, vals[g.Src][g.Start:g.Start+g.N]...)
			}
			srcs = append(srcs, nil) // a source without ranges
			got, err := Gather(srcs, ranges)
			if err != nil {
				t.Fatal(err)
			}
			sameCells(t, "gather "+name, got, want)

			idx := make([]int32, r.IntN(200))
			want = want[:0]
			for i := range idx {
				idx[i] = int32(r.IntN(len(vals[0])))
				want = append(want, vals[0][idx[i]])
			}
			if got, err = Take(srcs[0], idx); err != nil {
				t.Fatal(err)
			}
			sameCells(t, "take "+name, got, want)
		}
	}
}

func randRanges(r *rand.Rand, vals [][]any) []Range {
	out := make([]Range, 1+r.IntN(40))
	for i := range out {
		s := r.IntN(len(vals))
		start := r.IntN(len(vals[s]))
		n := 1
		if r.IntN(2) == 0 {
			n += r.IntN(len(vals[s]) - start)
		}
		out[i] = Range{int32(s), int32(start), int32(n)}
	}
	return out
}

func TestGatherWhole(t *testing.T) {
	a := schematest.Array(t, mustType(t, "INT"), int32(1), nil, int32(3))
	got, err := Gather([]arrow.Array{a}, []Range{{0, 0, 3}})
	if err != nil || got != a {
		t.Errorf("a whole source is copied (%v)", err)
	}
	got, err = Gather([]arrow.Array{a}, []Range{{0, 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	sameCells(t, "slice", got, []any{nil, int32(3)})
	if &got.Data().Buffers()[1].Bytes()[0] != &a.Data().Buffers()[1].Bytes()[0] {
		t.Error("one range of one source is copied")
	}
}

func TestGatherErrors(t *testing.T) {
	ints, longs := schematest.Array(t, mustType(t, "INT"), int32(1)), schematest.Array(t, mustType(t, "BIGINT"), int64(1))
	two := []Range{{0, 0, 1}, {1, 0, 1}}
	if _, err := Gather([]arrow.Array{ints, longs}, two); err == nil || !strings.Contains(err.Error(), "int32") {
		t.Errorf("mixed types: %v", err)
	}
	if _, err := Gather(nil, nil); err == nil {
		t.Error("no ranges: no error")
	}
	if _, err := Take(ints, []int32{1}); err == nil {
		t.Error("a row beyond the end: no error")
	}
	list := array.NewFixedSizeListBuilder(memory.DefaultAllocator, 1, arrow.PrimitiveTypes.Int32)
	list.Append(true)
	list.ValueBuilder().(*array.Int32Builder).Append(1)
	other := list.NewArray()
	if _, err := Gather([]arrow.Array{other, other}, two); err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("a type that is none of ours: %v", err)
	}
	if _, err := Take(other, []int32{0}); err == nil {
		t.Error("take of a type that is none of ours: no error")
	}
}

// TestGatherTooLarge names one large string so often that 32-bit offsets do not suffice.
func TestGatherTooLarge(t *testing.T) {
	big := schematest.Array(t, mustType(t, "STRING"), strings.Repeat("x", 64<<20))
	ranges := make([]Range, 33)
	for i := range ranges {
		ranges[i] = Range{0, 0, 1}
	}
	if _, err := Gather([]arrow.Array{big}, ranges); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	if _, err := Take(big, make([]int32, 33)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("take: got %v, want ErrTooLarge", err)
	}
}

// TestHalves: the two halves of a batch have all its rows in order.
func TestHalves(t *testing.T) {
	r := newRand(t)
	for range 200 {
		p := part{}
		for range 1 + r.IntN(6) {
			n := int32(1 + r.IntN(5))
			p.ranges = append(p.ranges, Range{0, int32(r.IntN(100)), n})
			p.rows += int(n)
		}
		if p.rows < 2 {
			continue
		}
		a, b := p.halves()
		if a.rows != p.rows/2 || a.rows+b.rows != p.rows {
			t.Fatalf("%d rows cut in %d and %d", p.rows, a.rows, b.rows)
		}
		if got, want := flat(append(a.ranges, b.ranges...)), flat(p.ranges); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func flat(rs []Range) string {
	var out []int32
	for _, r := range rs {
		for i := range r.N {
			out = append(out, r.Start+i)
		}
	}
	return fmt.Sprint(out)
}
