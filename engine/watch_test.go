package engine_test

import (
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestWatchTop: who shows the highest level is told the first snapshot and those after which it, the schema or the history
// may be another, whoever made them so; of a table without key it is told all.
func TestWatchTop(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		st, s := storage.NewMem(), appendSchema(t)
		if keyed {
			s = keyedSchema(t, false, map[string]string{"bucket": "1"})
		}
		mustCreate(t, st, s)
		tab := mustOpen(t, st, engine.Settings{Job: "j"})
		all, _ := tab.Watch()
		top, end := tab.WatchTop()
		closed := func(tab *engine.Table) {
			t.Helper()
			if err := tab.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		commit := func(by *engine.Table) {
			t.Helper()
			n++
			if err := by.Write(t.Context(), batchOf(s, []row{{part: "x", id: int64(n), name: "v"}})); err != nil {
				t.Fatal(err)
			}
			if _, err := by.Commit(t.Context(), progress(n)); err != nil {
				t.Fatal(err)
			}
		}
		told := func(what string, want bool) {
			t.Helper()
			id := int64(0)
			select {
			case id = <-all:
			default:
				t.Errorf("keyed %v: %s: Watch is not told", keyed, what)
			}
			select {
			case got := <-top:
				if !want && keyed || got != id {
					t.Errorf("keyed %v: %s: WatchTop is told %d, Watch %d", keyed, what, got, id)
				}
			default:
				if want || !keyed {
					t.Errorf("keyed %v: %s: WatchTop is not told", keyed, what)
				}
			}
		}
		commit(tab)
		told("the first", true)
		commit(tab)
		told("rows on level 0", false)
		if keyed {
			if err := tab.Compact(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			told("compacted", true)
			commit(tab)
			told("rows on level 0 again", false)
			other := mustOpen(t, st, engine.Settings{Job: "other"})
			if err := other.Compact(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			closed(other)
			commit(tab)
			told("compacted by another", true)
			commit(tab)
			told("rows behind it", false)
		}
		if _, err := tab.Alter(t.Context(), []schema.Change{schema.AddColumn{Path: []string{"more"}, Type: schema.Type{Root: schema.BigInt}}}); err != nil {
			t.Fatal(err)
		}
		commit(tab)
		told("another schema", true)
		commit(tab)
		told("the same schema", false)
		end()
		if _, open := <-top; open {
			t.Error("a subscription that was ended is open")
		}
		closed(tab)
		if _, open := <-all; open {
			t.Error("the table is closed, a subscription is open")
		}
	}
}
