package manifest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func alterable(t *testing.T) storage.Store {
	t.Helper()
	cols, err := schema.ParseColumns("id INT, a INT, b STRING")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	store := storage.NewMem()
	if err := Create(t.Context(), store, s); err != nil {
		t.Fatal(err)
	}
	return store
}

func add(name string) []schema.Change {
	return []schema.Change{schema.AddColumn{Path: []string{name}, Type: schema.Type{Root: schema.Int}}}
}

func TestAlterSchema(t *testing.T) {
	store := alterable(t)
	tab := Open(store, testEnv(1))
	s, made, err := tab.AlterSchema(t.Context(), add("c"))
	if err != nil || !made || s.ID != 1 || s.Fields[3].ID != 4 {
		t.Fatalf("%v %t %+v", err, made, s)
	}
	if s, made, err = tab.AlterSchema(t.Context(), add("c")); err != nil || made || s.ID != 1 {
		t.Fatalf("again: %v %t %+v", err, made, s)
	}
	other := Open(store, testEnv(2))
	if s, made, err = other.AlterSchema(t.Context(), []schema.Change{schema.DropColumn{Path: []string{"c"}}}); err != nil || !made || s.ID != 2 {
		t.Fatalf("%v %t", err, made)
	}
	if s, made, err = tab.AlterSchema(t.Context(), []schema.Change{schema.DropColumn{Path: []string{"c"}}}); err != nil || made || s.ID != 2 {
		t.Fatalf("dropped by another: %v %t", err, made)
	}
	if s, made, err = tab.AlterSchema(t.Context(), add("c")); err != nil || !made || s.ID != 3 || s.Fields[3].ID != 5 {
		t.Fatalf("added again: %v %t %+v", err, made, s)
	}
	if _, _, err = tab.AlterSchema(t.Context(), []schema.Change{schema.DropColumn{Path: []string{"id"}}}); !errors.Is(err, schema.ErrAlter) {
		t.Fatalf("%v", err)
	}
	if _, _, err = Open(storage.NewMem(), testEnv(1)).AlterSchema(t.Context(), add("c")); !errors.Is(err, ErrNoTable) {
		t.Fatalf("%v", err)
	}
	// Once there is a snapshot, fixed options stay.
	fixed := []schema.Change{schema.SetOption{Name: "data-file.path-directory", Value: "d"}}
	if _, err := tab.Commit(t.Context(), Commit{Kind: Append, User: "u", Identifier: 1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err = tab.AlterSchema(t.Context(), fixed); !errors.Is(err, schema.ErrAlter) {
		t.Fatalf("%v", err)
	}
}

// TestAlterRace: many change the schema at once over a storage that fails and loses replies. Every change that was
// reported is there, once, with an id of its own; one that was reported unknown is there or not.
func TestAlterRace(t *testing.T) {
	n := seed(t)
	store := alterable(t)
	const workers, each = 6, 5
	known := make([][]string, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			env := testEnv(n + uint64(w))
			env.After = noWait
			tab := Open(flaky(store, rand.New(rand.NewPCG(n, uint64(w))), 0.1), env)
			for i := range each {
				name := fmt.Sprintf("w%d_%d", w, i)
				for {
					_, _, err := tab.AlterSchema(context.Background(), add(name))
					if err == nil {
						known[w] = append(known[w], name)
						break
					}
					if errors.Is(err, schema.ErrAlter) {
						t.Errorf("%s: %v", name, err)
						break
					}
				}
			}
		}()
	}
	wg.Wait()
	last, err := Open(store, testEnv(n)).LatestSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last.ID != workers*each || last.HighestFieldID != 3+workers*each || len(last.Fields) != 3+workers*each {
		t.Errorf("schema %d has %d columns, ids up to %d", last.ID, len(last.Fields), last.HighestFieldID)
	}
	for _, names := range known {
		for _, name := range names {
			if _, ok := last.Field(name); !ok {
				t.Errorf("column %s is lost", name)
			}
		}
	}
}

// TestAlterConflict: a change that does not fit what another made meanwhile is refused, and nothing is published.
func TestAlterConflict(t *testing.T) {
	store := alterable(t)
	first := true
	faults := storage.WithFaults(store, func(op storage.Op) error {
		if op.Kind == storage.OpPutIfAbsent && first {
			first = false
			if _, _, err := Open(store, testEnv(9)).AlterSchema(t.Context(), []schema.Change{schema.DropColumn{Path: []string{"a"}}}); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	_, _, err := Open(faults, testEnv(1)).AlterSchema(t.Context(), []schema.Change{schema.ChangeType{Path: []string{"a"}, Type: schema.Type{Root: schema.BigInt}}})
	if !errors.Is(err, schema.ErrAlter) {
		t.Fatalf("%v", err)
	}
	if s, err := Open(store, testEnv(1)).LatestSchema(t.Context()); err != nil || s.ID != 1 {
		t.Errorf("%v %+v", err, s)
	}
}

// TestAlterUnknown: an outcome that cannot be learned is said to be unknown.
func TestAlterUnknown(t *testing.T) {
	store := alterable(t)
	dead := false
	faults := storage.WithFaults(store, func(op storage.Op) error {
		if op.Kind == storage.OpPutIfAbsent {
			dead = true
			return storage.LoseReply(errInjected)
		}
		if dead {
			return errInjected
		}
		return nil
	})
	_, _, err := Open(faults, testEnv(1)).AlterSchema(t.Context(), add("c"))
	if !errors.Is(err, storage.ErrUnknown) {
		t.Fatalf("%v", err)
	}
	if s, made, err := Open(store, testEnv(1)).AlterSchema(t.Context(), add("c")); err != nil || made || s.ID != 1 {
		t.Errorf("repeated: %v %t %+v", err, made, s)
	}
}
