package engine_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// truncatable are tables of all kinds of buckets.
func truncatable(t *testing.T) map[string]*schema.Schema {
	return map[string]*schema.Schema{
		"append":      appendSchema(t),
		"fixed":       keyedSchema(t, false, map[string]string{"bucket": "3"}),
		"partitioned": keyedSchema(t, true, map[string]string{"bucket": "2"}),
		"dynamic":     keyedSchema(t, false, map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "5"}),
		"vectors":     keyedSchema(t, false, map[string]string{"bucket": "1", "deletion-vectors.enabled": "true"}),
	}
}

// TestTruncate: the table is empty after it, together with the progress; rows before it that were not committed are gone,
// rows after it are there, and what other writers published just before goes too.
func TestTruncate(t *testing.T) {
	for name, s := range truncatable(t) {
		t.Run(name, func(t *testing.T) {
			st := storage.NewMem()
			mustCreate(t, st, s)
			tab := mustOpen(t, st, engine.Settings{Job: "j", Compaction: 1})
			write := func(tab *engine.Table, from, to int) {
				var rows []row
				for i := from; i < to; i++ {
					rows = append(rows, row{id: int64(i), part: fmt.Sprint(i % 2), name: "v"})
				}
				if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
					t.Fatal(err)
				}
			}
			commit := func(tab *engine.Table, n int) {
				if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := tab.Truncate(t.Context(), progress(0)); err != nil { // empty already
				t.Fatal(err)
			}
			for i := range 4 {
				write(tab, i*5, i*5+15)
				commit(tab, 1+i)
			}
			if name != "dynamic" { // which takes one writer at a time
				other := mustOpen(t, st, engine.Settings{})
				write(other, 100, 110)
				commit(other, 0)
			}
			write(tab, 200, 210)
			snap, err := tab.Truncate(t.Context(), progress(9))
			if err != nil {
				t.Fatal(err)
			}
			if snap.CommitKind != manifest.Overwrite || snap.TotalRecordCount != 0 {
				t.Errorf("snapshot %d is %s with %d rows", snap.ID, snap.CommitKind, snap.TotalRecordCount)
			}
			if p, _, _ := tab.LastProgress(t.Context()); p.Properties["calve.test"] != "9" {
				t.Errorf("progress %v", p)
			}
			if got := contents(t, st); len(got) != 0 {
				t.Errorf("%d rows are left: %v", len(got), got)
			}
			sound(t, st)
			write(tab, 7, 9)
			commit(tab, 10)
			if err := tab.Compact(t.Context(), true); err != nil { // rows on level 0 are not seen in a table with vectors
				t.Fatal(err)
			}
			if err := tab.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, st); !maps.Equal(got, map[string]string{"1/7": "v", "0/8": "v"}) && s.Keyed() || len(got) != 2 {
				t.Errorf("rows after it: %v", got)
			}
			sound(t, st)
		})
	}
}

// sound checks all files of a table; its changes cannot be folded over an OVERWRITE.
func sound(t *testing.T, st storage.Store) {
	t.Helper()
	rep, err := readerOf(st).Verify(t.Context(), reader.VerifySpec{Data: true})
	if err != nil || len(rep.Problems) > 0 {
		t.Errorf("verify: %v %+v", err, rep)
	}
}

// TestRowsBefore looks rows up in the table, and in the snapshots before if they are gone.
func TestRowsBefore(t *testing.T) {
	for name, s := range truncatable(t) {
		if !s.Keyed() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			st := storage.NewMem()
			mustCreate(t, st, s)
			tab := mustOpen(t, st, engine.Settings{Job: "j", Compaction: 1})
			commit := func(rows ...row) {
				if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
					t.Fatal(err)
				}
				if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
					t.Fatal(err)
				}
			}
			commit(row{id: 1, part: "a", name: "old"}, row{id: 2, part: "a", name: "two"}, row{id: 3, part: "b", name: "three"})
			commit(row{id: 1, part: "a", name: "new"})
			commit(row{id: 2, part: "a", kind: schema.Delete})
			commit(row{id: 4, part: "b", name: "four"})
			if err := tab.Write(t.Context(), batchOf(s, []row{{id: 1, part: "a", name: "not committed"}})); err != nil {
				t.Fatal(err)
			}
			b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
				{Name: "p", Type: arrow.BinaryTypes.String}, {Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil))
			for _, k := range []row{{id: 1, part: "a"}, {id: 2, part: "a"}, {id: 9, part: "a"}, {id: 3, part: "b"}} {
				b.Field(0).(*array.StringBuilder).Append(k.part)
				b.Field(1).(*array.Int64Builder).Append(k.id)
			}
			keys := b.NewRecordBatch()
			ask := func(steps int) (out []any) {
				found, err := tab.RowsBefore(t.Context(), keys, steps)
				if err != nil {
					t.Fatal(err)
				}
				for _, at := range found.At {
					if at < 0 {
						out = append(out, nil)
					} else {
						out = append(out, schema.Cell(found.Rows.Column(2), int(at)))
					}
				}
				return out
			}
			if got := fmt.Sprint(ask(0)); got != "[new <nil> <nil> three]" {
				t.Errorf("now: %s", got)
			}
			if got := fmt.Sprint(ask(10)); got != "[new two <nil> three]" {
				t.Errorf("before: %s", got)
			}
		})
	}
}
