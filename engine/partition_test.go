package engine_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/storage"
)

// TestPartitionValues: whatever a text has in it, it can be a partition: rows come back, and the storage takes the names.
func TestPartitionValues(t *testing.T) {
	dir := t.TempDir()
	local, err := storage.NewLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	values := []string{"", " ", "  ", ".", "..", "/", "a/b", `\`, "=", "%", "%2F", "a=b/c=d", "\x00", "\x01\x1f\x7f", "\n", "ä雪", "🧊", "__DEFAULT_PARTITION__", "'\"", strings.Repeat("x", 60), "null", "bucket-0", "*?[]{}:#^&"}
	for _, st := range []storage.Store{storage.NewMem(), local} {
		s := keyedSchema(t, true, nil)
		mustCreate(t, st, s)
		tab := mustOpen(t, st, engine.Settings{Job: "j"})
		want := map[string]string{}
		for i, v := range values {
			rows := []row{{part: v, id: int64(i), name: "n"}}
			if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
				t.Fatalf("%q: %v", v, err)
			}
			apply(want, rows)
		}
		if _, err := tab.Commit(t.Context(), progress(1)); err != nil {
			t.Fatal(err)
		}
		if err := tab.Compact(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, st); !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		mustVerify(t, st)
	}
}
