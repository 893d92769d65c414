package manifest

import (
	"context"
	"fmt"
	"testing"

	"github.com/calve-io/calve/storage"
)

// benchCommits measures commits of 8 level-0 files, each ninth of which removes what gathered, as a compaction does.
func benchCommits(b *testing.B, store storage.Store) {
	tab := newKeyed(b, store, nil)
	var gathered []Entry
	id := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		id++
		c := Commit{Kind: Append, User: "bench", Identifier: id}
		if len(gathered) >= 64 {
			c.Kind = Compact
			for _, e := range gathered {
				c.Entries = append(c.Entries, gone(e))
			}
			gathered = nil
		} else {
			for i := range 8 {
				c.Entries = append(c.Entries, file(b, fmt.Sprintf("data-%d-%d", id, i), "x", i%4, 0, 1, 100))
			}
			gathered = append(gathered, c.Entries...)
		}
		if _, err := tab.Commit(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCommitMem(b *testing.B) { benchCommits(b, storage.NewMem()) }

func BenchmarkCommitLocal(b *testing.B) {
	store, err := storage.NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	benchCommits(b, store)
}

// manyFiles makes a table of n files, as golden entries of a 12-column table describe them, over several manifests.
func manyFiles(b *testing.B, n int) (*Table, *Snapshot) {
	b.Helper()
	golden := openGolden(b, "pk_fixed")
	s, err := golden.Latest(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	live, err := golden.Live(context.Background(), s, nil)
	if err != nil {
		b.Fatal(err)
	}
	sch, err := golden.LatestSchema(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	store := storage.NewMem()
	if err := Create(context.Background(), store, sch); err != nil {
		b.Fatal(err)
	}
	tab := Open(store, testEnv(1))
	const each = 1000
	for start := 0; start < n; start += each {
		c := Commit{Kind: Append, User: "bench", Identifier: int64(start)}
		for i := range each {
			e := live[i%len(live)]
			e.Kind, e.File.Level = Add, 0
			e.File.Name = fmt.Sprintf("data-7ed284f2-8aab-459c-819e-%012x-0.parquet", (start+i)*7919)
			c.Entries = append(c.Entries, e)
		}
		if s, err = tab.Commit(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
	return tab, s
}

func BenchmarkLive10k(b *testing.B) {
	tab, s := manyFiles(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		live, err := tab.Live(context.Background(), s, nil)
		if err != nil || len(live) != 10_000 {
			b.Fatal(len(live), err)
		}
	}
}

func BenchmarkIndex10k(b *testing.B) {
	tab, s := manyFiles(b, 10_000)
	live, err := tab.Live(context.Background(), s, nil)
	if err != nil {
		b.Fatal(err)
	}
	sch, err := tab.LatestSchema(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := buildIndex(sch, live); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTailStep reads one more snapshot and its delta.
func BenchmarkTailStep(b *testing.B) {
	tab, s := manyFiles(b, 10_000)
	s, err := tab.Commit(context.Background(), Commit{Kind: Append, User: "bench", Identifier: s.CommitIdentifier + 1,
		Entries: []Entry{{Partition: nil, TotalBuckets: 3, File: DataFile{Name: "new"}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		next, err := tab.Snapshot(context.Background(), s.ID)
		if err != nil {
			b.Fatal(err)
		}
		if delta, err := tab.Delta(context.Background(), next); err != nil || len(delta) != 1 {
			b.Fatal(delta, err)
		}
	}
}
