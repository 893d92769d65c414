package lsm

import (
	"bytes"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
)

// TestTakeInMemoryOrder copies rows of several batches in the order in which they lie, for every type, and finds each where
// it belongs.
func TestTakeInMemoryOrder(t *testing.T) {
	r := newRand(t)
	for _, name := range allTypes {
		typ := mustType(t, name)
		for batches := 1; batches <= 3; batches++ {
			var in []datafile.Rows
			var all, want []any
			var kinds, wantKinds []int8
			for b := range batches {
				c := typ
				c.NotNull = r.IntN(2) == 0
				v := cells(column(t, r, c, 100+r.IntN(800)))
				rows := datafile.Rows{N: len(v), Cols: []arrow.Array{sliced(t, r, typ, v)}}
				k := make([]int8, len(v))
				if b%2 == 0 {
					for i := range k {
						k[i] = int8(r.IntN(4))
					}
					rows.Kinds = k
				}
				in, all, kinds = append(in, rows), append(all, v...), append(kinds, k...)
			}
			rows, err := newSources(in)
			if err != nil {
				t.Fatal(err)
			}
			idx := make([]int32, nearMin+r.IntN(500))
			for i := range idx {
				idx[i] = int32(r.IntN(len(all)))
				want, wantKinds = append(want, all[idx[i]]), append(wantKinds, kinds[idx[i]])
			}
			mem := newArena(1)
			for range 2 { // the second time in memory that is not clear
				mem.next()
				near, to := inMemoryOrder(mem, idx)
				if near == nil || !slices.IsSorted(near) {
					t.Fatalf("%d of %d rows in random order are taken as they are, or not sorted", len(idx), len(all))
				}
				at := rows.locate(mem, near)
				at.to = to
				got, err := takeAt(mem, rows.column(0), at)
				if err != nil {
					t.Fatal(err)
				}
				sameCells(t, name, got, want)
				if got := rows.kinds(mem, at); !slices.Equal(got, wantKinds) {
					t.Fatalf("kinds %v, want %v", got, wantKinds)
				}
				p := at.ordered()
				if got, err = takeAt(nil, rows.column(0), p); err != nil {
					t.Fatal(err)
				}
				sameCells(t, "ordered "+name, got, want)
			}
		}
	}
}

// TestInMemoryOrderOfFew leaves rows as they are where sorting them gives nothing.
func TestInMemoryOrderOfFew(t *testing.T) {
	r := newRand(t)
	few, follow := make([]int32, nearMin-1), make([]int32, 4*nearMin)
	for i := range few {
		few[i] = r.Int32N(1 << 20)
	}
	for i := range follow { // blocks of 16, in any order
		follow[i] = int32(i%16 + i/16*7919%1024*16)
	}
	for _, idx := range [][]int32{few, follow, nil} {
		if rows, to := inMemoryOrder(nil, idx); rows != nil || to != nil {
			t.Errorf("%d rows were sorted", len(idx))
		}
	}
	for _, top := range []int32{nearMin, 1 << 11, 1 << 22, 1<<31 - 1} {
		idx := make([]int32, 2*nearMin)
		for i := range idx {
			idx[i] = r.Int32N(top)
		}
		idx[7] = top
		rows, to := inMemoryOrder(nil, idx)
		if !slices.IsSorted(rows) || len(rows) != len(idx) {
			t.Fatalf("rows up to %d are not sorted", top)
		}
		for o, i := range rows {
			if idx[to[o]] != i {
				t.Fatalf("rows up to %d: row %d goes to %d, where %d stands", top, i, to[o], idx[to[o]])
			}
		}
	}
}

func TestCopyExact(t *testing.T) {
	src := make([]byte, 200)
	for i := range src {
		src[i] = byte(i + 1)
	}
	for n := range 80 {
		for _, at := range []int{0, 3} {
			for _, from := range []int{0, 5, len(src) - n} {
				dst := make([]byte, at+n+8)
				copyExact(dst, at, src, from, from+n)
				want := make([]byte, at+n+8)
				copy(want[at:], src[from:from+n])
				if !bytes.Equal(dst, want) {
					t.Fatalf("%d bytes from %d to %d: %v, want %v", n, from, at, dst, want)
				}
				exact := make([]byte, at+n) // nothing behind it is needed
				if copyExact(exact, at, src, from, from+n); !bytes.Equal(exact, want[:at+n]) {
					t.Fatalf("%d bytes at the end: %v, want %v", n, exact, want[:at+n])
				}
			}
		}
	}
}
