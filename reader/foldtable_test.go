package reader

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// TestFoldTable holds the table against a map: the same rows, the same sum whatever was there between, and what does not fit
// is given up by halves.
func TestFoldTable(t *testing.T) {
	seed := uint64(7)
	r := rand.New(rand.NewPCG(seed, 1))
	f, m := &foldTable{limit: 1 << 30}, map[uint64]uint64{}
	f.begin(0)
	keys := make([]uint64, 4000)
	for i := range keys {
		if keys[i] = r.Uint64(); i%2 == 0 { // many to one place
			keys[i] = keys[0]&^0xffffff | uint64(i+1)
		}
	}
	for range 60_000 {
		k := keys[r.IntN(len(keys))]
		if r.IntN(3) == 0 {
			f.del(k)
			delete(m, k)
		} else if m[k] = r.Uint64(); !f.put(k, m[k]) {
			t.Fatal("there is room")
		}
	}
	sum := uint64(0)
	for k, v := range m {
		sum += mix(k, v)
	}
	for _, k := range keys {
		got, there := f.get(k)
		if want, ok := m[k]; there != ok || got != want {
			t.Fatalf("seed %d: key %x: %d %v, want %d %v", seed, k, got, there, want, ok)
		}
	}
	if n, s := f.total(); n != int64(len(m)) || s != sum {
		t.Fatalf("seed %d: %d rows with sum %x, want %d with %x", seed, n, s, len(m), sum)
	}
	for _, k := range keys {
		f.del(k)
	}
	if n, s := f.total(); n != 0 || s != 0 {
		t.Fatalf("seed %d: %d rows with sum %x are left", seed, n, s)
	}

	f = &foldTable{limit: 1 << 20}
	all, passes := int64(0), 0
	for lo := 0; lo < foldShards; lo = f.hi {
		f.begin(lo)
		passes++
		own := rand.New(rand.NewPCG(seed, 2))
		for range 200_000 {
			k := own.Uint64()
			for f.has(k) && !f.put(k, 1) {
			}
		}
		n, _ := f.total()
		all += n
		if f.bytes > f.limit || f.hi == lo {
			t.Fatalf("%d bytes for shards %d to %d", f.bytes, lo, f.hi)
		}
	}
	if all != 200_000 || passes < 4 || passes > 16 {
		t.Errorf("%d rows in %d passes", all, passes)
	}
}

// TestHashRows: rows have the same hash if their cells are the same, wherever they are in their arrays.
func TestHashRows(t *testing.T) {
	sc := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "f", Type: arrow.PrimitiveTypes.Float64},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	add := func(a any, f float64, s any, l ...int32) {
		if a == nil {
			b.Field(0).AppendNull()
		} else {
			b.Field(0).(*array.Int64Builder).Append(int64(a.(int)))
		}
		b.Field(1).(*array.Float64Builder).Append(f)
		if s == nil {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.StringBuilder).Append(s.(string))
		}
		b.Field(3).(*array.ListBuilder).Append(true)
		b.Field(3).(*array.ListBuilder).ValueBuilder().(*array.Int32Builder).AppendValues(l, nil)
	}
	nan := math.Float64frombits(math.Float64bits(math.NaN()) ^ 1)
	add(0, 0, "")
	add(nil, 0, "")
	add(0, math.Copysign(0, -1), "")
	add(0, 0, nil)
	add(0, 0, "", 1)
	add(0, 0, "", 1, 2)
	add(0, math.NaN(), "x")
	distinct := 7
	add(0, nan, "x") // as the one before
	add(0, 0, "")    // as the first
	rec := b.NewRecordBatch()
	got := hashRows(nil, rec.Columns(), int(rec.NumRows()))
	seen := map[uint64]bool{}
	for _, h := range got[:distinct] {
		seen[h] = true
	}
	if len(seen) != distinct || got[7] != got[6] || got[8] != got[0] {
		t.Errorf("%x", got)
	}
	part := rec.NewSlice(4, 7)
	for i, h := range hashRows([]uint64{9, 9, 9, 9, 9}, part.Columns(), 3) {
		if h != got[4+i] {
			t.Errorf("row %d of a slice has another hash", i)
		}
	}
}
