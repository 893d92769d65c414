package lsm

import (
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

func appendNested(t testing.TB, b array.Builder, v any) {
	if v == nil {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.MapBuilder:
		b.Append(true)
		for _, p := range v.([][2]any) {
			appendNested(t, b.KeyBuilder(), p[0])
			appendNested(t, b.ItemBuilder(), p[1])
		}
	case *array.ListBuilder:
		b.Append(true)
		for _, x := range v.([]any) {
			appendNested(t, b.ValueBuilder(), x)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i, x := range v.([]any) {
			appendNested(t, b.FieldBuilder(i), x)
		}
	case *array.Int32Builder:
		b.Append(v.(int32))
	case *array.StringBuilder:
		b.Append(v.(string))
	default:
		t.Fatalf("no builder for %T", b)
	}
}

func randNested(r *rand.Rand, t schema.Type) any {
	some := func(t schema.Type) any {
		if !t.NotNull && r.IntN(5) == 0 {
			return nil
		}
		if t.Primitive() {
			return randValue(r, t)
		}
		return randNested(r, t)
	}
	switch t.Root {
	case schema.Row:
		out := make([]any, len(t.Fields))
		for i, f := range t.Fields {
			out[i] = some(f.Type)
		}
		return out
	case schema.Array:
		out := make([]any, r.IntN(4))
		for i := range out {
			out[i] = some(*t.Element)
		}
		return out
	}
	out := make([][2]any, r.IntN(4))
	for i := range out {
		out[i] = [2]any{randValue(r, *t.Key), some(*t.Element)}
	}
	return out
}

// TestGatherNested copies ranges and single rows of lists, maps and structs, of sources with and without offsets.
func TestGatherNested(t *testing.T) {
	r := newRand(t)
	num, text := mustType(t, "INT"), mustType(t, "STRING NOT NULL")
	list := func(t schema.Type) schema.Type { return schema.Type{Root: schema.Array, Element: &t} }
	pair := func(k, v schema.Type) schema.Type { return schema.Type{Root: schema.Map, Key: &k, Element: &v} }
	row := func(types ...schema.Type) schema.Type {
		out := schema.Type{Root: schema.Row}
		for i, t := range types {
			out.Fields = append(out.Fields, schema.Field{ID: i, Name: string(rune('a' + i)), Type: t})
		}
		return out
	}
	for _, typ := range []schema.Type{
		list(num), list(list(text)), pair(text, num), row(num, text), row(list(num), row(text, pair(text, list(num)))),
		list(row(num, list(row(text)))), pair(text, row(list(text))),
	} {
		typ.NotNull = false
		dt, err := schema.ArrowType(typ)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			srcs, vals := make([]arrow.Array, 1+r.IntN(4)), make([][]any, 0, 4)
			for i := range srcs {
				b := array.NewBuilder(memory.DefaultAllocator, dt)
				n := 20 + r.IntN(200)
				for range n {
					if r.IntN(6) == 0 {
						b.AppendNull()
						continue
					}
					appendNested(t, b, randNested(r, typ))
				}
				srcs[i] = array.NewSlice(b.NewArray(), int64(r.IntN(9)), int64(n-r.IntN(9)))
				vals = append(vals, cells(srcs[i]))
			}
			ranges := randRanges(r, vals)
			var want []any
			for _, g := range ranges {
				want = append(want, vals[g.Src][g.Start:g.Start+g.N]...)
			}
			mem := newArena(2) // what was in the memory before must not matter
			for range 3 {
				mem.next()
				got, err := gather(mem, append(srcs, nil), ranges)
				if err != nil {
					t.Fatal(err)
				}
				sameCells(t, "gather "+typ.String(), got, want)
			}
			idx := make([]int32, r.IntN(200))
			want = want[:0]
			for i := range idx {
				idx[i] = int32(r.IntN(len(vals[0])))
				want = append(want, vals[0][idx[i]])
			}
			got, err := Take(srcs[0], idx)
			if err != nil {
				t.Fatal(err)
			}
			sameCells(t, "take "+typ.String(), got, want)
		}
	}
}

// TestNestedLayout: arrays whose offsets lie are refused, not read.
func TestNestedLayout(t *testing.T) {
	b := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32)
	for range 3 {
		b.Append(true)
		b.ValueBuilder().(*array.Int32Builder).Append(1)
	}
	a := b.NewArray()
	bufs := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes([]int32{0, 1, 2, 9}))}
	lied := array.MakeFromData(array.NewData(a.DataType(), 3, bufs, a.Data().Children(), 0, 0))
	if _, err := Take(lied, []int32{0, 2}); err == nil {
		t.Error("offsets beyond the elements are taken")
	}
}
