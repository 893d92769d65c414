package storage_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/calve-io/calve/storage"
	"github.com/calve-io/calve/storage/storagetest"
)

func TestMem(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Store { return storage.NewMem() })
}

// TestPlainStore runs the suite on a store that offers nothing beyond Store, as one from outside may.
func TestPlainStore(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.Store { return struct{ storage.Store }{storage.NewMem()} })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// contents reads a whole store.
func contents(t *testing.T, s storage.Store) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for info, err := range storage.Walk(t.Context(), s, "") {
		must(t, err)
		data, err := storage.ReadAll(t.Context(), s, info.Name, 1<<20)
		must(t, err)
		all[info.Name] = string(data)
	}
	return all
}

// survivors are the contents that a name has after many crashes; "absent" stands for none.
func survivors(t *testing.T, m *storage.Mem, name string) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for seed := range uint64(400) {
		got, ok := contents(t, m.CrashClone(rand.New(rand.NewPCG(seed, 0))))[name]
		if !ok {
			got = "absent"
		}
		seen[got]++
	}
	return seen
}

// wantSurvivors checks that crashes leave each of some contents, and apart from torn ones of full no others.
func wantSurvivors(t *testing.T, m *storage.Mem, name, full string, want ...string) {
	t.Helper()
	seen := survivors(t, m, name)
	for _, w := range want {
		if seen[w] == 0 {
			t.Errorf("%s: no crash leaves %q, only %q", name, w, slices.Sorted(maps.Keys(seen)))
		}
		delete(seen, w)
	}
	torn := 0
	for got := range seen {
		cut := strings.TrimRight(got, "\x00")
		if full == "" || !strings.HasPrefix(full, cut) || (cut != got && len(got) != len(full)) {
			t.Errorf("%s: a crash leaves %q", name, got)
		}
		torn++
	}
	if full != "" && torn < 3 {
		t.Errorf("%s: crashes leave %d torn contents, want more", name, torn)
	}
}

// TestCrashClone goes through everything a power cut may and may not do.
func TestCrashClone(t *testing.T) {
	ctx := t.Context()
	m := storage.NewMem()
	must(t, m.PutIfAbsent(ctx, "snapshot/snapshot-1", []byte("one")))
	wantSurvivors(t, m, "snapshot/snapshot-1", "", "one")

	u, err := m.Create(ctx, "bucket-0/data")
	must(t, err)
	_, err = u.Write([]byte("rows"))
	must(t, err)
	wantSurvivors(t, m, "bucket-0/data", "", "absent")
	must(t, u.Commit())
	wantSurvivors(t, m, "bucket-0/data", "", "rows")

	// A hint that never was durable may be missing, old or torn, and stays so however often it is written.
	must(t, m.Put(ctx, "snapshot/LATEST", []byte("first")))
	wantSurvivors(t, m, "snapshot/LATEST", "first", "absent", "first", "")
	must(t, m.Put(ctx, "snapshot/LATEST", []byte("second")))
	wantSurvivors(t, m, "snapshot/LATEST", "second", "absent", "first", "second", "")
	for i := range 100 {
		must(t, m.Put(ctx, "snapshot/LATEST", fmt.Appendf(nil, "hint %d", i)))
	}
	wantSurvivors(t, m, "snapshot/LATEST", "hint 99", "absent", "hint 99", "hint 98", "hint 97", "hint 96", "hint 95", "hint 94", "hint 93", "hint 92", "")

	// A Put over a durable object may be undone, but not the object.
	must(t, m.PutIfAbsent(ctx, "hints/v", []byte("durable")))
	must(t, m.Put(ctx, "hints/v", []byte("newer")))
	wantSurvivors(t, m, "hints/v", "newer", "durable", "newer", "")

	// A deletion may be undone until the next durable write into the folder, and not after it.
	must(t, m.Delete(ctx, "snapshot/snapshot-1"))
	wantSurvivors(t, m, "snapshot/snapshot-1", "", "absent", "one")
	must(t, m.PutIfAbsent(ctx, "elsewhere/x", nil))
	wantSurvivors(t, m, "snapshot/snapshot-1", "", "absent", "one")
	must(t, m.PutIfAbsent(ctx, "snapshot/snapshot-2", []byte("two")))
	wantSurvivors(t, m, "snapshot/snapshot-1", "", "absent")
	wantSurvivors(t, m, "snapshot/snapshot-2", "", "two")

	// A hint written over a deleted object.
	must(t, m.Delete(ctx, "hints/v"))
	must(t, m.Put(ctx, "hints/v", []byte("again")))
	wantSurvivors(t, m, "hints/v", "again", "absent", "durable", "newer", "again", "")
}

// TestCrashCloneApart checks that a clone is a store of its own, repeatable by its seed, whose content is durable.
func TestCrashCloneApart(t *testing.T) {
	ctx := t.Context()
	m := storage.NewMem()
	clock := time.Unix(1_700_000_000, 0)
	m.SetClock(func() time.Time { return clock })
	for i := range 20 {
		must(t, m.Put(ctx, fmt.Sprintf("d%d/hint", i%3), bytes.Repeat([]byte("x"), i)))
		must(t, m.PutIfAbsent(ctx, fmt.Sprintf("d%d/%d", i%3, i), []byte("y")))
	}
	must(t, m.Delete(ctx, "d0/0"))
	before := contents(t, m)
	const seed = 11
	clone := m.CrashClone(rand.New(rand.NewPCG(seed, 0)))
	again := m.CrashClone(rand.New(rand.NewPCG(seed, 0)))
	want := contents(t, clone)
	if !maps.Equal(want, contents(t, again)) {
		t.Errorf("seed %d gave two different clones", seed)
	}
	for s := range uint64(20) {
		if got := contents(t, clone.CrashClone(rand.New(rand.NewPCG(s, 0)))); !maps.Equal(got, want) {
			t.Errorf("a second crash, seed %d, changed %v to %v", s, want, got)
		}
	}
	must(t, clone.PutIfAbsent(ctx, "new", nil))
	must(t, clone.Delete(ctx, "d1/1"))
	if got := contents(t, m); !maps.Equal(got, before) {
		t.Errorf("writes to the clone changed the original to %v", got)
	}
	for info, err := range clone.List(ctx, "") {
		must(t, err)
		if !info.Dir && !info.ModTime.Equal(clock) {
			t.Errorf("%s has time %v, want the clock's", info.Name, info.ModTime)
		}
	}
}
