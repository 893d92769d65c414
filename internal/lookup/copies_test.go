package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

// TestCopies: local files that are made while data files are written are, byte for byte, those that are made of the data files.
func TestCopies(t *testing.T) {
	r := newRand(t)
	for i, e := range engines[:5] {
		cols := append([]string{}, e.cols...)
		if i == 0 {
			cols = append([]string{"arr ARRAY<INT>"}, allTypes...)
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
		if i == 0 {
			cols = cols[1:] // nested columns are not made by the kit
		}
		b := newBucket(t, r, storage.NewMem(), names, options, append(append([]string{}, keys...), cols...)...)
		written, read := t.TempDir(), t.TempDir()
		ahead, lazy := localCache(t, written, 1<<30), localCache(t, read, 1<<30)
		copies := ahead.Copies(b.table(nil))
		b.files.Follow = copies.Follow
		for range 3 {
			part := make([]int, 1500)
			for i := range part {
				part[i] = r.IntN(5000)
			}
			b.flush(part, e.kinds)
		}
		b.compact(true)
		checkRows(t, what, b, b.table(lazy), []int{1, 100, 2000, 4999})
		checkRows(t, what, b, b.table(ahead), []int{1, 100, 2000, 4999})
		have, _ := localFiles(t, written)
		if len(have) != len(b.levels.Files()) {
			t.Fatalf("%s: %d local files of %d data files were made", what, len(have), len(b.levels.Files()))
		}
		same := 0
		for _, n := range have {
			mine, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := os.ReadFile(filepath.Join(read, filepath.Base(n)))
			if errors.Is(err, os.ErrNotExist) {
				continue // none of its keys was asked for
			}
			if same++; err != nil || !bytes.Equal(mine, theirs) {
				t.Errorf("%s: %s is not the same: %v", what, filepath.Base(n), err)
			}
		}
		if same == 0 {
			t.Errorf("%s: nothing was compared", what)
		}
		if n := ahead.local.pending.Load(); n != 0 {
			t.Errorf("%d bytes are said to be pending", n)
		}
		copies.Discard()
		if left, _ := localFiles(t, written); len(left) > 0 {
			t.Errorf("%s: %d files are left", what, len(left))
		}
		checkRows(t, what, b, b.table(ahead), []int{1, 100, 2000, 4999})
	}
}

// TestCopiesLost: of a compaction that fails, a file whose pages are copied, or one for which there is no room, nothing is left.
func TestCopiesLost(t *testing.T) {
	store := storage.NewMem()
	b := newBucket(t, newRand(t), store, []string{"k1"}, map[string]string{"num-sorted-run.compaction-trigger": "3"}, "k1 BIGINT", "a INT", "b STRING")
	part := make([]int, 20_000)
	for i := range part {
		part[i] = i
	}
	b.flush(part, adds)
	b.flush(part[:10], adds)
	try := func(ctx context.Context, cache *Cache) error {
		copies := cache.Copies(b.table(nil))
		files := b.files
		files.Follow = copies.Follow
		job, ok := lsm.PickFull(b.levels, lsm.PolicyOf(b.opts, true))
		if !ok {
			t.Fatal("nothing to compact")
		}
		_, err := files.Compact(ctx, b.part, job)
		copies.Discard()
		return err
	}
	dir, small := t.TempDir(), t.TempDir()
	cache := localCache(t, dir, 1<<30)
	ctx, stop := context.WithCancel(t.Context())
	rows := 0
	b.files.Pace = func(context.Context, int64) error {
		if rows++; rows == 1 {
			stop()
		}
		return ctx.Err()
	}
	if err := try(ctx, cache); err == nil {
		t.Error("the compaction did not fail")
	}
	b.files.Pace = nil
	if err := try(t.Context(), localCache(t, small, 100_000)); err != nil {
		t.Error(err)
	}
	for _, d := range []string{dir, small} {
		if left, _ := localFiles(t, d); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	if n := cache.local.pending.Load(); n != 0 {
		t.Errorf("%d bytes are said to be pending", n)
	}
}

// TestLocalMany: few keys asked of more data files than are kept open pay for local files in the end.
func TestLocalMany(t *testing.T) {
	const buckets = 6
	store, dir := storage.NewMem(), t.TempDir()
	cache := NewCache(CacheConfig{Dir: dir, DirBytes: 1 << 30, MaxFiles: 2})
	cache.local.pay = 1000
	defer cache.Close()
	for range 10 {
		for n := range buckets {
			b := filled(t, store, fmt.Sprintf("bucket-%d", n), smallFile)
			checkRows(t, "many", b, b.table(cache), []int{n, 8000})
		}
		store = storage.NewMem() // the same names: they are the same files
	}
	if have, _ := localFiles(t, dir); len(have) != buckets {
		t.Errorf("%d local files, want %d", len(have), buckets)
	}
}

// TestLocalMuch: where the records of a question are too many bytes, pages are read, and the local file stays.
func TestLocalMuch(t *testing.T) {
	dir := t.TempDir()
	cache := localCache(t, dir, 1<<30)
	cache.local.most = 1000
	b := filled(t, storage.NewMem(), "bucket-0", 3000)
	for range 3 {
		checkRows(t, "much", b, b.table(cache), []int{1, 2, 3, 500, 501, 700, 800, 900, 1000, 1500, 2000, 2001, 2002, 2003, 2004, 2005, 2010, 2020, 2030})
		checkRows(t, "little", b, b.table(cache), []int{1, 2, 3})
	}
	if have, _ := localFiles(t, dir); len(have) != 1 {
		t.Errorf("%d local files, want 1", len(have))
	}
}

// TestLocalPays: many keys are not looked up in local files, nor few of many.
func TestLocalPays(t *testing.T) {
	const rows, dense = 100_000, 100_000/DenseRows + 1
	for _, c := range []struct {
		keys, expected int
		want           bool
	}{{1, 0, true}, {1000, 0, true}, {dense, 0, false}, {1, 2 * dense, true}, {1, 3*dense + 3, false}} {
		d := NewCache(CacheConfig{Dir: t.TempDir(), DirBytes: 1}).local
		b := &Bucket{}
		b.Expect(int64(c.expected))
		if got := d.pays(b, &fileAt{DataFile: &manifest.DataFile{Rows: rows}, runRows: 3 * rows}, c.keys); got != c.want {
			t.Errorf("%d of %d keys of a file of %d rows: %v", c.keys, c.expected, rows, got)
		}
	}
}
