package manifest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/storage"
)

func TestChooseMerge(t *testing.T) {
	// Each letter is a manifest: a digit has 4^digit entries, F is full, x has removals only (10 of them), z may not be rewritten.
	parse := func(s string) ([]Meta, map[string]struct{}) {
		frozen := map[string]struct{}{}
		var metas []Meta
		for i, c := range s {
			m := Meta{Name: fmt.Sprint(i), Size: 10, Added: 1}
			switch {
			case c >= '0' && c <= '9':
				for range c - '0' {
					m.Added *= 4
				}
			case c == 'F':
				m.Size, m.Added = 100, 5000
			case c == 'x':
				m.Added, m.Deleted = 0, 2000
			case c == 'z':
				frozen[m.Name] = struct{}{}
			}
			metas = append(metas, m)
		}
		return metas, frozen
	}
	for _, c := range []struct {
		list string
		want string // the part that is merged; "" for none; ! in front: everything, without removals
	}{
		{"", ""},
		{"000", ""},
		{"0000", "0000"},
		{"00000", "00000"},
		{"1000", ""},
		{"10000", "0000"},
		{"1110000", "0000"},
		{"11110", "11110"},
		{"11111000", "11111000"},
		{"2111", ""},
		{"211110000", "11110000"},
		{"22220", "22220"},
		{"F0000", "0000"},
		{"FFFFFF", ""},
		{"F1F0000", "0000"},
		{"0001000", ""},
		{"00010000", "0000"},
		{"z000", ""},
		{"00z0000", "0000"},
		{"0000z00", ""},
		{"3x", "!3x"},
		{"FFx", ""},
		{"Fxx", "!Fxx"},
		{"zFxx", ""},
	} {
		metas, frozen := parse(c.list)
		lo, all, ok := chooseMerge(metas, frozen, 4, 100)
		got := ""
		if ok {
			got = c.list[lo:]
		}
		if all {
			got = "!" + got
		}
		if got != c.want {
			t.Errorf("%q: merges %q, want %q", c.list, got, c.want)
		}
	}
}

// TestMergeKeepsLive runs random histories with small limits and compares each snapshot with a model.
func TestMergeKeepsLive(t *testing.T) {
	sd := seed(t)
	for round := range uint64(6) {
		rng := rand.New(rand.NewPCG(sd, round))
		store := storage.NewMem()
		tab := newKeyed(t, store, map[string]string{"manifest.merge-min-count": "3", "manifest.target-file-size": "8 kb"})
		w := &worker{user: "m", tab: tab, rng: rng}
		most := 0
		for id := range 400 {
			kind, entries := w.entries(t, rng.IntN(3))
			if err := w.land(t, int64(id), kind, entries); err != nil {
				t.Fatal(err)
			}
			if id%20 == 0 {
				var want []string
				for _, e := range w.own {
					want = append(want, fmt.Sprintf("%s@%d", e.File.Name, e.File.Level))
				}
				slices.Sort(want)
				if got := liveNames(t, tab, tab.head.snap); !slices.Equal(got, want) {
					t.Fatalf("commit %d: live\n got %v\nwant %v", id, got, want)
				}
			}
			most = max(most, len(tab.head.metas))
		}
		if most > 40 {
			t.Errorf("the list grew to %d manifests", most)
		}
		// The cached head is what a reader finds.
		metas, err := tab.manifests(context.Background(), tab.head.snap)
		if err != nil || toJSON(t, metas) != toJSON(t, tab.head.metas) {
			t.Fatal("the remembered manifests differ from the stored ones", err)
		}
	}
}

// TestMergeDropsDead: a table that is rewritten again and again keeps its metadata small.
func TestMergeDropsDead(t *testing.T) {
	tab := newKeyed(t, storage.NewMem(), nil)
	var prev []Entry
	for id := range 60 {
		var entries []Entry
		for i := range 50 {
			entries = append(entries, file(t, fmt.Sprintf("f%d-%d", id, i), "x", 0, 2, int64(i)*10, int64(i)*10+9))
		}
		next := slices.Clone(entries)
		for _, e := range prev {
			entries = append(entries, gone(e))
		}
		commit(t, tab, Commit{Identifier: int64(id), Kind: Compact, Entries: entries})
		prev = next
		total := int64(0)
		for _, m := range tab.head.metas {
			total += m.Added + m.Deleted
		}
		if total > 50+deadSlack+200 {
			t.Fatalf("commit %d: %d entries for 50 live files", id, total)
		}
	}
	if got := liveNames(t, tab, tab.head.snap); len(got) != 50 {
		t.Fatal(got)
	}
}

// TestMergeLeavesWhatItCannotRead: a manifest with fields of a newer writer is read, and never rewritten.
func TestMergeLeavesWhatItCannotRead(t *testing.T) {
	ctx := context.Background()
	store := storage.NewMem()
	tab := newKeyed(t, store, map[string]string{"manifest.merge-min-count": "3"})
	s := commit(t, tab, Commit{Identifier: 1, Entries: []Entry{file(t, "a", "x", 0, 0, 1, 1)}})
	metas, err := tab.readList(ctx, s.DeltaManifestList, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Replace the manifest and the lists that state its size by what a newer writer would have made.
	newer := strings.Replace(entrySchemaText, `{"name":"_KIND"`, `{"name":"_NEW","type":["null","string"],"default":null},{"name":"_KIND"`, 1)
	entries, _, err := tab.readManifest(ctx, &metas[0])
	if err != nil {
		t.Fatal(err)
	}
	data := encodeForeign(t, newer, "_NEW", "kept", entries)
	metas[0].Size = int64(len(data))
	list, err := encodeMetas(s.DeltaManifestList, metas)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(list))
	s.DeltaManifestListSize = &size
	snap, err := encodeSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"manifest/" + metas[0].Name: data, "manifest/" + s.DeltaManifestList: list, snapshotName(1): snap} {
		if err := store.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
		if err := store.PutIfAbsent(ctx, name, data); err != nil {
			t.Fatal(err)
		}
	}
	tab = Open(store, testEnv(1))
	for i := range 10 {
		s = commit(t, tab, Commit{Identifier: int64(2 + i), Entries: []Entry{file(t, fmt.Sprint("b", i), "x", 0, 0, 1, 1)}})
	}
	if tab.head.metas[0].Name != metas[0].Name {
		t.Fatal("the newer manifest was rewritten")
	}
	if len(tab.head.metas) > 6 {
		t.Fatalf("%d manifests: what comes after the newer one is not merged", len(tab.head.metas))
	}
	if got := liveNames(t, tab, s); len(got) != 11 {
		t.Fatal(got)
	}
}
