package lookup

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// filled is a bucket in a folder with so many rows in a file above level 0.
func filled(t *testing.T, store storage.Store, dir string, rows int) *bucket {
	t.Helper()
	b := newBucket(t, newRand(t), store, []string{"k1"}, nil, "k1 BIGINT", "a INT", "b STRING")
	b.part.Dir = dir
	part := make([]int, rows)
	for i := range part {
		part[i] = i
	}
	b.flush(part, adds)
	b.compact(true)
	return b
}

// TestLocalShared: files that are forgotten while others look into them are closed by somebody.
func TestLocalShared(t *testing.T) {
	const buckets = 6
	store, dir := storage.NewMem(), t.TempDir()
	cache := NewCache(CacheConfig{Dir: dir, DirBytes: 1 << 30, MaxFiles: 2})
	cache.local.pay, cache.local.open = 0, 2
	var all []*Bucket
	var last *bucket
	for n := range buckets {
		last = filled(t, store, fmt.Sprintf("bucket-%d", n), 1000)
		bk, err := last.table(cache).Bucket(last.part, last.levels.Runs(), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bk)
	}
	keys := last.keyColumns([]int{5})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 400 {
				if _, err := all[(i*7+g)%buckets].Rows(t.Context(), keys, 1, []int{0, 1}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := cache.Close(); err != nil {
		t.Error(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("only Linux tells what is mapped:", err)
	}
	if n := strings.Count(string(maps), dir); n > 0 {
		t.Errorf("%d files stay mapped", n)
	}
}

// TestLocalBranches: a branch has the data files of the table it comes from, and its own schemas, whose numbers mean
// something else there.
func TestLocalBranches(t *testing.T) {
	b := filled(t, storage.NewMem(), "bucket-0", 4000)
	cache := localCache(t, t.TempDir(), 1<<30)
	for _, more := range [][]schema.Field{nil, {{ID: 90, Name: "c", Type: b.s.Fields[1].Type}}} {
		c := *b.s
		c.ID, c.Fields = 1, append(append([]schema.Field{}, b.s.Fields...), more...)
		of := b.table(cache)
		of.Schema = &c
		of.OpenSchema = func(context.Context, int64) (*schema.Schema, error) { return b.s, nil }
		bk, err := of.Bucket(b.part, b.levels.Runs(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bk.Rows(t.Context(), b.keyColumns([]int{5}), 1, []int{0, 1, len(c.Fields) - 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// brief is a context that ends after a few looks, long before a file is copied.
type brief struct {
	context.Context
	looks int
}

func (s *brief) Err() error {
	if s.looks--; s.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// TestLocalDeadline: lookups with little time do not each begin to copy the file anew.
func TestLocalDeadline(t *testing.T) {
	b := filled(t, storage.NewMem(), "bucket-0", 100_000)
	cache := NewCache(CacheConfig{Dir: t.TempDir(), DirBytes: 1 << 30})
	t.Cleanup(func() { _ = cache.Close() })
	bk, err := b.table(cache).Bucket(b.part, b.levels.Runs(), nil)
	if err != nil {
		t.Fatal(err)
	}
	keys, failed := b.keyColumns([]int{5}), 0
	for range 200 {
		if _, err := bk.Rows(&brief{t.Context(), 4}, keys, 1, []int{0, 1}); err != nil {
			failed++
		}
	}
	if failed > 20 {
		t.Errorf("%d of 200 lookups had no time", failed)
	}
}
