package engine

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// TestBufferJoins: batches of a few rows become few batches, which keep all rows and their kinds in the order in which they came;
// large batches among them are left as they are.
func TestBufferJoins(t *testing.T) {
	for _, c := range []struct{ arrays, most int }{{290, 2}, {2, 2}, {20, 19}} { // arrays is what the buffer is told
		t.Run(fmt.Sprintf("%d arrays, up to %d rows", c.arrays, c.most), func(t *testing.T) { testBufferJoins(t, c.arrays, c.most) })
	}
}

func testBufferJoins(t *testing.T, arrays, mostRows int) {
	const rows = 20_000
	r := schematest.Rand(t)
	s := arrow.NewSchema([]arrow.Field{{Name: "i", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	a, kinds, bytes, most := &buffer{}, []schema.RowKind{}, int64(0), 0
	var large []arrow.RecordBatch
	for len(kinds) < rows {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s)
		batch := schema.Batch{}
		n := 1 + r.IntN(mostRows)
		if r.IntN(5000) == 0 {
			n = joinRows + 1
		}
		withKinds := r.IntN(2) == 0
		for range n {
			b.Field(0).(*array.Int64Builder).Append(int64(len(kinds)))
			if len(kinds)%7 == 0 {
				b.Field(1).AppendNull()
			} else {
				b.Field(1).(*array.StringBuilder).Append("row")
			}
			kind := schema.Insert
			if withKinds {
				kind = schema.RowKind(r.IntN(4))
				batch.Kinds = append(batch.Kinds, kind)
			}
			kinds = append(kinds, kind)
		}
		batch.Rec = b.NewRecordBatch()
		if n > joinRows {
			large = append(large, batch.Rec)
		}
		size := batchBytes(batch)
		bytes += size
		if err := a.add(batch, size, arrays); err != nil {
			t.Fatal(err)
		}
		most = max(most, len(a.batches))
	}
	if a.rows != len(kinds) || a.bytes != bytes {
		t.Errorf("%d rows of %d bytes, not %d of %d", a.rows, a.bytes, len(kinds), bytes)
	}
	if most > joinRows+100 || most*arrays > 2*looseArrays && mostRows < 10 {
		t.Errorf("up to %d batches", most)
	}
	if n := len(a.batches) - a.loose.batches; n > 100 {
		t.Errorf("%d batches are left", n)
	}
	at := 0
	for _, b := range a.batches {
		if len(large) > 0 && b.Len() > joinRows {
			if b.Rec != large[0] {
				t.Errorf("a batch of %d rows was copied", b.Len())
			}
			large = large[1:]
		}
		ids, texts := b.Rec.Column(0).(*array.Int64), b.Rec.Column(1).(*array.String)
		for i := range b.Len() {
			kind := schema.Insert
			if b.Kinds != nil {
				kind = b.Kinds[i]
			}
			if ids.Value(i) != int64(at) || texts.IsNull(i) != (at%7 == 0) || kind != kinds[at] {
				t.Fatalf("row %d is %d, %s, %s; want %s", at, ids.Value(i), texts.ValueStr(i), kind, kinds[at])
			}
			at++
		}
	}
	if at != len(kinds) || len(large) > 0 {
		t.Errorf("%d rows of %d; %d large batches are missing", at, len(kinds), len(large))
	}
}
