package manifest

import (
	"strings"
	"testing"

	"github.com/calve-io/calve/storage"
)

// TestSnapshotSize: a snapshot that nobody could read is not put, and the table goes on without it.
func TestSnapshotSize(t *testing.T) {
	mem := storage.NewMem()
	if err := Create(t.Context(), mem, keyedSchema(t, nil)); err != nil {
		t.Fatal(err)
	}
	tab := Open(mem, testEnv(1))
	commit := func(id int64, size int) error {
		_, err := tab.Commit(t.Context(), Commit{User: "u", Identifier: id, Kind: Append, Properties: map[string]string{"x": strings.Repeat("y", size)}})
		return err
	}
	if err := commit(1, maxSnapshotSize); err == nil || !strings.Contains(err.Error(), "properties are too large") {
		t.Errorf("too large: %v", err)
	}
	if err := commit(2, maxSnapshotSize-10_000); err != nil {
		t.Error(err)
	}
	if s, err := Open(mem, testEnv(2)).Latest(t.Context()); err != nil || s.ID != 1 || s.CommitIdentifier != 2 {
		t.Errorf("%+v %v", s, err)
	}
}
