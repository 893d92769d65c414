package lookup

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/storage"
)

// localCache is a cache that copies each data file above level 0 when it is asked first.
func localCache(t *testing.T, dir string, bytes int64) *Cache {
	c := NewCache(CacheConfig{Dir: dir, DirBytes: bytes, MaxFiles: 3})
	c.local.pay, c.local.open = 0, 3
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func localFiles(t *testing.T, dir string) (names []string, size int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+localExt))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if info, err := os.Stat(n); err == nil {
			size += info.Size()
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+tempExt)); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	return names, size
}

var allTypes = []string{"a BOOLEAN", "b TINYINT", "c SMALLINT NOT NULL", "d INT", "e BIGINT", "f FLOAT", "g DOUBLE", "h DECIMAL(7, 2)", "i DECIMAL(38, 10)",
	"j CHAR(3)", "k STRING", "l BYTES", "m DATE", "n TIME(3)", "o TIMESTAMP(6)", "p TIMESTAMP_LTZ(3)"}

// TestLocalRows holds lookups in local files against merging everything, for all types and merge engines; then it damages, cuts
// and deletes the files while they are open, of which no answer may tell.
func TestLocalRows(t *testing.T) {
	r := newRand(t)
	for i, e := range engines[:5] {
		cols := append([]string{}, e.cols...)
		if i == 0 {
			cols = allTypes
		}
		keys := keyTypes[i%len(keyTypes)]
		options := map[string]string{"num-sorted-run.compaction-trigger": "3", "target-file-size": "100 kb"}
		for k, v := range e.options {
			options[k] = v
		}
		var names []string
		for _, k := range keys {
			names = append(names, k[:2])
		}
		what := fmt.Sprintf("keys %v, %v", keys, options)
		b := newBucket(t, r, storage.NewMem(), names, options, append(append([]string{}, keys...), cols...)...)
		dir := filepath.Join(t.TempDir(), "cache")
		cache := localCache(t, dir, 1<<30)
		asked := func() []int {
			out := make([]int, 200)
			for i := range out {
				out[i] = r.IntN(7000)
			}
			return out
		}
		for range 2 {
			part := make([]int, 1200)
			for i := range part {
				part[i] = r.IntN(5000)
			}
			b.flush(part, e.kinds)
			b.compact(true)
			checkRows(t, what, b, b.table(cache), asked())
		}
		have, _ := localFiles(t, dir)
		if len(have) == 0 {
			t.Fatalf("%s: no local file was made", what)
		}
		for _, n := range have {
			damage(t, r.IntN(4), n, r.IntN)
		}
		for range 2 {
			checkRows(t, what+", damaged", b, b.table(cache), asked())
		}
		other := localCache(t, dir, 1<<30) // another process finds what is there
		checkRows(t, what+", opened again", b, b.table(other), asked())
	}
}

// damage does something to a file.
func damage(t *testing.T, how int, name string, pick func(int) int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	switch how {
	case 0:
		err = os.Remove(name)
	case 1:
		err = os.Truncate(name, int64(pick(len(data))))
	default:
		f, ferr := os.OpenFile(name, os.O_WRONLY, 0)
		if ferr != nil {
			t.Fatal(ferr)
		}
		for at := pick(100); at < len(data) && err == nil; at += 100 {
			_, err = f.WriteAt([]byte{data[at] ^ byte(1<<pick(8))}, int64(at))
		}
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLocalReads: what local files have is not read from the table.
func TestLocalReads(t *testing.T) {
	r := newRand(t)
	store := storage.WithCounter(storage.NewMem())
	b := newBucket(t, r, store, []string{"k1"}, map[string]string{"target-file-size": "200 kb"}, "k1 BIGINT", "a INT", "b STRING")
	part := make([]int, 40_000)
	for i := range part {
		part[i] = i
	}
	b.flush(part, adds)
	b.compact(true)
	dir := t.TempDir()
	cache := localCache(t, dir, 1<<30)
	cache.local.open = 100
	keys := make([]int, 1000)
	for i := range keys {
		keys[i] = r.IntN(50_000)
	}
	for pass := range 3 {
		if pass == 2 { // as a process that starts
			cache = localCache(t, dir, 1<<30)
			cache.local.open = 100
		}
		bk, err := b.table(cache).Bucket(b.part, b.levels.Runs(), nil)
		if err != nil {
			t.Fatal(err)
		}
		before := store.Counts()
		if _, err := bk.Rows(t.Context(), b.keyColumns(keys), len(keys), []int{0, 1, 2}); err != nil {
			t.Fatal(err)
		}
		if c := store.Counts().Since(before); pass > 0 && c != (storage.Counts{}) {
			t.Errorf("pass %d asked the store: %s", pass, c)
		}
	}
}

// TestLocalBudget: files of more than the budget are never there, and lookups from several goroutines go on.
func TestLocalBudget(t *testing.T) {
	r := newRand(t)
	store := storage.NewMem()
	const budget = 1 << 20
	dir := t.TempDir()
	cache, small := localCache(t, dir, budget), localCache(t, t.TempDir(), 1000)
	var wg sync.WaitGroup
	for n := range 5 {
		b := newBucket(t, r, store, []string{"k1"}, nil, "k1 BIGINT", "a INT", "b STRING")
		b.part.Dir = fmt.Sprintf("bucket-%d", n)
		part := make([]int, 4000)
		for i := range part {
			part[i] = i
		}
		b.flush(part, adds)
		b.compact(true)
		want := b.merged(b.levels.Runs())
		keys := make([]int, 100)
		for i := range keys {
			keys[i] = r.IntN(4000)
		}
		cols := b.keyColumns(keys)
		ask := func(c *Cache) {
			bk, err := b.table(c).Bucket(b.part, b.levels.Runs(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			got, err := bk.Rows(t.Context(), cols, len(keys), []int{0, 1, 2})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range keys {
				at := int(got.At[i])
				if have := text(got.Rows, []int{0, 1, 2}, at) + fmt.Sprint(got.Rows.Seq[at], got.Rows.Kinds[at]); have != want[text(datafile.Rows{Cols: cols}, []int{0}, i)] {
					t.Errorf("key %d: %s", keys[i], have)
					return
				}
			}
		}
		ask(cache)
		if names, size := localFiles(t, dir); size > budget || len(names) == 0 {
			t.Errorf("%d files of %d bytes, at most %d are to be", len(names), size, budget)
		}
		for range 2 {
			wg.Go(func() {
				for range 4 {
					ask(cache)
				}
			})
		}
		ask(small)
	}
	wg.Wait()
	if names, size := localFiles(t, dir); size > budget || len(names) == 0 || len(names) == 5 {
		t.Errorf("%d files of %d bytes, at most %d are to be", len(names), size, budget)
	}
	if names, _ := localFiles(t, small.local.dir); len(names) > 0 {
		t.Errorf("there is no room for %v", names)
	}
}
