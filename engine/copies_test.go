package engine_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/lookup"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestCompactionsUseCopies: compactions that look old rows up do so in local copies, which a compaction makes of what it writes,
// and do not read the large file then. What they tell is right.
func TestCompactionsUseCopies(t *testing.T) {
	for _, options := range []map[string]string{{"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}} {
		rng := newRand(t)
		st := storage.WithCounter(storage.NewMem())
		s := keyedSchema(t, false, options)
		mustCreate(t, st, s)
		dir := t.TempDir()
		cache := lookup.NewCache(lookup.CacheConfig{Dir: dir, DirBytes: 1 << 30})
		t.Cleanup(func() { _ = cache.Close() })
		tab := mustOpen(t, st, engine.Settings{Lookups: cache})
		const keys = 20_000
		model := map[string]string{}
		put := func(rows []row) (read int64) {
			t.Helper()
			before := st.Counts()
			err := tab.Write(t.Context(), batchOf(s, rows))
			if err == nil {
				_, err = tab.Commit(t.Context(), engine.Progress{})
			}
			if err == nil {
				err = tab.Compact(t.Context(), false)
			}
			if err != nil {
				t.Fatal(err)
			}
			apply(model, rows)
			return st.Counts().Since(before).Of(storage.OpRead).Bytes
		}
		var all []row
		for i := range int64(keys) {
			all = append(all, row{id: i, part: "p", name: fmt.Sprint("a name of some length ", rng.Uint64())})
		}
		const large = keys * 20 // bytes of the text alone
		put(all)
		few := func() []row {
			out := make([]row, 10)
			for i := range out {
				out[i] = row{id: int64(i*keys/10) + rng.Int64N(keys/10), part: "p", name: fmt.Sprint("new ", rng.Uint64())}
				if i%4 == 3 {
					out[i].kind = schema.Delete
				}
			}
			return out
		}
		copies := func() int {
			have, err := filepath.Glob(filepath.Join(dir, "*.lookup"))
			if err != nil {
				t.Fatal(err)
			}
			return len(have)
		}
		put(few()) // of the large file a copy is made
		if n := copies(); n != 1 {
			t.Fatalf("%v: %d copies, want 1", options, n)
		}
		if read := put(few()); read > large/4 {
			t.Errorf("%v: with a copy a compaction reads %d bytes, the texts alone have %d", options, read, large)
		}
		if err := tab.Compact(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if n := copies(); n != 2 {
			t.Fatalf("%v: %d copies after a full compaction, want 2", options, n)
		}
		if read := put(few()); read > large/4 {
			t.Errorf("%v: with the copy that a compaction made the next reads %d bytes, the texts alone have %d", options, read, large)
		}
		if got := contents(t, st); len(got) != len(model) {
			t.Errorf("%v: %d rows, want %d", options, len(got), len(model))
		} else {
			for k, v := range model {
				if got[k] != v {
					t.Fatalf("%v: key %s is %q, want %q", options, k, got[k], v)
				}
			}
		}
		if options["changelog-producer"] != "" {
			if state := tellAll(t, st).strict(t); len(state) != len(model) {
				t.Errorf("the stream folds to %d rows, want %d", len(state), len(model))
			}
		}
	}
}
