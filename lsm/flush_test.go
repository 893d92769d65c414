package lsm

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// TestFlushMetadata: everything the manifest wants to know of a level-0 file.
func TestFlushMetadata(t *testing.T) {
	s := newSchema(t, []string{"k"}, map[string]string{"fields.v.stats-mode": "none", "fields.w.stats-mode": "counts"}, "k BIGINT", "v STRING", "w STRING", "x INT")
	b := newBucket(t, newRand(t), storage.NewMem(), s)
	b.files.Now = func() time.Time { return time.UnixMilli(1_000_000).In(time.FixedZone("east", 3600)) }
	b.seq = 40
	rows := []row{
		{vals: []any{int64(5), "a", "z", int32(1)}},
		{vals: []any{int64(3), "b", nil, int32(9)}},
		{kind: 3, vals: []any{int64(5), nil, nil, nil}},
		{kind: 2, vals: []any{int64(4), "c", "y", int32(-2)}},
	}
	f := b.flush(rows)[0]
	if f.Rows != 3 || *f.DeleteRows != 1 || f.MinSeq != rows[1].seq || f.MaxSeq != rows[3].seq || f.Level != 0 || *f.Source != manifest.FromAppend {
		t.Errorf("got %+v", f)
	}
	if f.CreatedMillis != 1_000_000+3600_000 {
		t.Errorf("creation time %d is not the local wall clock", f.CreatedMillis)
	}
	if string(f.MinKey) != string(bigintKey(3)) || string(f.MaxKey) != string(bigintKey(5)) {
		t.Errorf("keys %x to %x", f.MinKey, f.MaxKey)
	}
	if string(f.KeyStats.Min) != string(bigintKey(3)) || string(f.KeyStats.Max) != string(bigintKey(5)) || *f.KeyStats.NullCounts[0] != 0 {
		t.Errorf("key statistics %+v", f.KeyStats)
	}
	if f.ValueStatsAll || fmt.Sprint(f.ValueStatsCols) != "[k w x]" {
		t.Errorf("statistics of columns %v (all: %v)", f.ValueStatsCols, f.ValueStatsAll)
	}
	types := s.Types([]int{0, 2, 3})
	lo, err := binrow.Decode(f.ValueStats.Min, types)
	if err != nil {
		t.Fatal(err)
	}
	hi, err := binrow.Decode(f.ValueStats.Max, types)
	if err != nil {
		t.Fatal(err)
	}
	var nulls []int64
	for _, n := range f.ValueStats.NullCounts {
		nulls = append(nulls, *n)
	}
	if got := fmt.Sprint(lo, hi, nulls); got != "[3 <nil> -2] [5 <nil> 9] [0 2 1]" {
		t.Errorf("value statistics %s", got)
	}
	b.check()
}

// TestFlushStatsNotDense: all columns are described, those without statistics by nothing.
func TestFlushStatsNotDense(t *testing.T) {
	s := newSchema(t, []string{"k"}, map[string]string{"metadata.stats-dense-store": "false", "metadata.stats-mode": "none"}, "k BIGINT", "v STRING")
	b := newBucket(t, newRand(t), storage.NewMem(), s)
	f := b.flush([]row{{vals: []any{int64(5), "a"}}})[0]
	if !f.ValueStatsAll || len(f.ValueStats.NullCounts) != 2 || f.ValueStats.NullCounts[1] != nil {
		t.Errorf("got %+v", f.ValueStats)
	}
}

// TestFlushAppend: rows of a table without key keep their order, and files end at the target size.
func TestFlushAppend(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, nil, map[string]string{"target-file-size": "64 kb", "bucket": "-1"}, "v STRING", "n INT")
	b := newBucket(t, r, storage.NewMem(), s)
	var rows []row
	for i := range 140_000 {
		rows = append(rows, row{vals: []any{fmt.Sprintf("%x", r.Uint64()), int32(i)}})
	}
	in := rowsOf(t, r, s, rows)
	in.Seq, in.Kinds = nil, nil
	made, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{in}, nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) < 2 {
		t.Fatalf("%d files", len(made))
	}
	seq := int64(100)
	for _, f := range made {
		if f.MinSeq != seq || f.MaxSeq != seq+f.Rows-1 || f.Level != 0 || string(f.MinKey) != string(binrow.EmptyRow) || *f.DeleteRows != 0 {
			t.Errorf("file %+v, want sequence numbers from %d", f, seq)
		}
		seq += f.Rows
	}
	if got := b.readAll(made); len(got) != len(rows) || got[139_999].vals[0] != rows[139_999].vals[0] || got[70_000].vals[1] != int32(70_000) {
		t.Errorf("%d rows come back", len(got))
	}
	sel := []int32{5, 3, 139_999}
	made, err = b.files.Flush(t.Context(), b.part, []datafile.Rows{in}, sel, 7)
	if err != nil {
		t.Fatal(err)
	}
	got := b.readAll(made)
	if made[0].MinSeq != 7 || made[0].MaxSeq != 9 || got[0].vals[1] != int32(5) || got[2].vals[1] != int32(139_999) {
		t.Errorf("selected rows: %v", got)
	}
}

func TestFlushNothing(t *testing.T) {
	b := newBucket(t, newRand(t), storage.NewMem(), newSchema(t, []string{"k"}, nil, "k BIGINT"))
	empty := schematest.Array(t, b.s.Fields[0].Type)
	made, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{{Cols: []arrow.Array{empty}}}, nil, 0)
	if err != nil || len(made) != 0 || len(objects(t, b.files.Store)) != 0 {
		t.Errorf("no rows give %v, %v", made, err)
	}
}

func TestFlushErrors(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, nil, "k BIGINT", "v STRING")
	b := newBucket(t, r, storage.NewMem(), s)
	good := rowsOf(t, r, s, []row{{vals: []any{int64(1), "a"}}, {vals: []any{int64(2), "b"}}})
	null := good
	null.Cols = []arrow.Array{schematest.Array(t, s.Fields[0].Type, int64(1), nil), good.Cols[1]}
	short := good
	short.N = 1
	few := good
	few.Cols = good.Cols[:1]
	kinds := good
	kinds.Kinds = []int8{0}
	cases := []struct {
		name string
		rows datafile.Rows
		sel  []int32
		want string
	}{
		{"null key", null, nil, `key column "k" is null in row 1`},
		{"short column", short, nil, `column "k" has 2 rows, want 1`},
		{"missing column", few, nil, "rows have 1 columns, the table has 2"},
		{"few kinds", kinds, nil, "1 kinds for 2 rows"},
		{"selection", good, []int32{0, 2}, "row 2 is selected of 2"},
	}
	for _, c := range cases {
		if _, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{c.rows}, c.sel, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if got := objects(t, b.files.Store); len(got) != 0 {
		t.Errorf("failed flushes left %v", got)
	}
}

// TestFailedFlushLeavesNothing lets every call to the store fail in turn.
func TestFailedFlushLeavesNothing(t *testing.T) {
	r := newRand(t)
	boom := errors.New("boom")
	for _, fault := range []error{boom, storage.LoseReply(boom)} {
		for at := int64(1); ; at++ {
			mem := storage.NewMem()
			b := newBucket(t, r, mem, newSchema(t, []string{"k"}, nil, "k BIGINT", "v STRING"))
			var n atomic.Int64
			b.files.Store = storage.WithFaults(mem, func(op storage.Op) error {
				if op.Kind != storage.OpDelete && n.Add(1) == at {
					return fault
				}
				return nil
			})
			in := rowsOf(t, r, b.s, []row{{vals: []any{int64(1), "a"}}, {vals: []any{int64(2), "b"}}})
			_, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{in}, nil, 0)
			if n.Load() < at {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if !errors.Is(err, boom) {
				t.Fatalf("call %d: %v", at, err)
			}
			if got := objects(t, mem); len(got) != 0 {
				t.Fatalf("call %d: %v is left", at, got)
			}
		}
	}
}

// TestNoStats: files of a flush that leaves statistics out have none of their columns, and those of the key as ever.
func TestNoStats(t *testing.T) {
	s := newSchema(t, []string{"k"}, map[string]string{"metadata.stats-dense-store": "false"}, "k BIGINT", "v STRING")
	b := newBucket(t, newRand(t), storage.NewMem(), s)
	for _, without := range []bool{false, true} {
		b.files.NoStats = without
		made, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{wideRows(s, b.r, 10, 6, 5)}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		known := made[0].ValueStats.NullCounts[1] != nil
		if known == without || len(made[0].KeyStats.Min) == 0 || made[0].KeyStats.NullCounts[0] == nil {
			t.Errorf("without %t: %+v, key %+v", without, made[0].ValueStats, made[0].KeyStats)
		}
	}
}
