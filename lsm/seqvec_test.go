package lsm

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// TestSequenceOrder holds the codes of sequence columns against an order of values, in which null is the smallest.
func TestSequenceOrder(t *testing.T) {
	r := newRand(t)
	for range 200 {
		var cols []string
		for range 1 + r.IntN(3) {
			cols = append(cols, allTypes[r.IntN(len(allTypes))])
		}
		descending := r.IntN(2) == 0
		names, fields := []string{}, []string{"k INT"}
		for i, c := range cols {
			names = append(names, string(rune('a'+i)))
			fields = append(fields, names[i]+" "+c)
		}
		s := newSchema(t, []string{"k"}, nil, fields...)
		by, err := newSeqCols(s, names, descending)
		if err != nil {
			t.Fatal(err)
		}
		const n = 60
		vecs, vals := make([]seqVec, 2), make([][][]any, 2)
		for v := range vecs {
			arrays := make([]arrow.Array, len(cols))
			vals[v] = make([][]any, len(cols))
			for c := range cols {
				typ := s.Fields[c+1].Type
				for range n {
					var x any
					if r.IntN(4) > 0 {
						x = randValue(r, typ)
					}
					vals[v][c] = append(vals[v][c], x)
				}
				arrays[c] = sliced(t, r, typ, vals[v][c])
			}
			if vecs[v], err = by.encode(arrays, n); err != nil {
				t.Fatal(err)
			}
		}
		x := &oracle{s: s}
		for range 2000 {
			i, j := r.IntN(n), r.IntN(n)
			a, b := []any{nil}, []any{nil}
			for c := range cols {
				a, b = append(a, vals[0][c][i]), append(b, vals[1][c][j])
			}
			if got, want := sign(vecs[0].compare(i, &vecs[1], j)), sign(x.compareBy(names, a, b, descending)); got != want {
				t.Fatalf("%v, descending %v: %v and %v compare as %d, want %d", cols, descending, a, b, got, want)
			}
		}
	}
}

// TestBytesBehindNulls: what lies behind a null does not order it.
func TestBytesBehindNulls(t *testing.T) {
	data := array.NewData(arrow.BinaryTypes.String, 3, []*memory.Buffer{memory.NewBufferBytes([]byte{0b010}),
		bytesOf([]int32{0, 2, 3, 6}), memory.NewBufferBytes([]byte("xxayyy"))}, nil, 2, 0)
	by := &seqCols{cols: []keyCol{{name: "s", typ: schema.Type{Root: schema.VarChar, Length: schema.MaxLength}}}}
	v, err := by.encode([]arrow.Array{array.MakeFromData(data)}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if v.compare(0, &v, 2) != 0 || v.compare(0, &v, 1) >= 0 {
		t.Error("nulls differ, or are not the smallest")
	}
}
