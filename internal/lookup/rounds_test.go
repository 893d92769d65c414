package lookup

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/storage"
)

// remote is a store as an object store is one: each request takes a second, however little it gives, and opening a file brings
// along its end.
type remote struct {
	storage.Store
	requests, bytes atomic.Int64
}

func (r *remote) URL(name string) string { return "s3://test/" + name }

func (r *remote) request(n int64) {
	r.requests.Add(1)
	r.bytes.Add(n)
	time.Sleep(time.Second)
}

func (r *remote) Open(ctx context.Context, name string) (storage.File, error) {
	return r.OpenTail(ctx, name, 64<<10)
}

func (r *remote) OpenTail(ctx context.Context, name string, tail int64) (storage.File, error) {
	f, err := r.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	tail = min(tail, f.Size())
	r.request(tail)
	return &remoteFile{f, r, f.Size() - tail}, nil
}

type remoteFile struct {
	storage.File
	r    *remote
	tail int64
}

func (f *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	if n := min(int64(len(p)), f.tail-off); n > 0 {
		f.r.request(n)
	}
	n, err := f.File.ReadAt(p, off)
	if err == io.EOF && n == len(p) {
		err = nil
	}
	return n, err
}

// TestRounds counts the requests of lookups and how many rounds of them there are one after the other: in a file, in a bucket with
// files of three levels that may all have the key, and where Bloom filters rule files out.
func TestRounds(t *testing.T) {
	const rows = 200_000
	all := make([]int, rows)
	for i := range all {
		all[i] = i
	}
	mem := storage.NewMem()
	var b *bucket
	for _, c := range []struct {
		what   string
		levels int
		key    int
		rounds int
		most   int64 // requests
		mib    int64
	}{
		{"one file", 1, 123_456, 2, 3, 8},
		{"one file, not there", 1, rows + 5, 0, 0, 0},
		{"three levels, in all", 3, 7, 3, 8, 8},
		{"three levels, in the oldest", 3, 123_456, 3, 8, 8},
	} {
		if b == nil {
			b = newBucket(t, newRand(t), mem, []string{"k1"}, nil, "k1 BIGINT", "a INT", "b STRING", "c DOUBLE", "d STRING", "e DECIMAL(20, 2)")
			b.flush(all, adds)
			b.lift(2)
		}
		for l := c.levels - 2; l >= 0 && len(b.levels.Runs()) < c.levels; l-- { // files of few rows, over the range of all keys
			some := []int{0, 7, rows - 1}
			for i := 1; i < 20_000; i++ {
				some = append(some, i*(rows/20_000)-3)
			}
			b.flush(some, adds)
			b.lift(l)
		}
		if n := len(b.levels.Runs()); n != c.levels {
			t.Fatal(n, "runs")
		}
		var want, got Found
		plain, err := b.table(nil).Bucket(b.part, b.levels.Runs(), nil)
		if err == nil {
			want, err = plain.Rows(t.Context(), b.keyColumns([]int{c.key}), 1, []int{0, 1, 2, 3, 4, 5})
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			st := &remote{Store: mem}
			cache := NewCache(CacheConfig{})
			defer cache.Close()
			tab := b.table(cache)
			tab.Store = st
			bk, err := tab.Bucket(b.part, b.levels.Runs(), nil)
			if err != nil {
				t.Fatal(err)
			}
			ask := func(what string, rounds int, most int64) {
				st.requests.Store(0)
				st.bytes.Store(0)
				start := time.Now()
				if got, err = bk.Rows(t.Context(), b.keyColumns([]int{c.key}), 1, []int{0, 1, 2, 3, 4, 5}); err != nil {
					t.Fatal(err)
				}
				n := int(time.Since(start) / time.Second)
				t.Logf("%s, %s: %d requests in %d rounds, %d bytes", c.what, what, st.requests.Load(), n, st.bytes.Load())
				if n > rounds || st.requests.Load() > most || st.bytes.Load() > c.mib<<20 {
					t.Errorf("%s, %s: %d requests in %d rounds of %d bytes; %d in %d are wanted", c.what, what, st.requests.Load(), n, st.bytes.Load(), most, rounds)
				}
			}
			ask("cold", c.rounds, c.most)
			if g, w := fmt.Sprint(got.At, got.Rows.Cols), fmt.Sprint(want.At, want.Rows.Cols); g != w {
				t.Errorf("%s: got %s, want %s", c.what, g, w)
			}
			ask("open", max(c.rounds-1, 0), max(c.most-int64(c.levels), 0))
		})
	}
}

// lift moves the files of level 0 to another level as they are.
func (b *bucket) lift(level int) {
	b.t.Helper()
	if level == 0 {
		return
	}
	var c lsm.Change
	for _, f := range b.levels.Files() {
		if f.Level == 0 {
			c.Removed = append(c.Removed, f)
			f.Level = level
			c.Added = append(c.Added, f)
		}
	}
	if err := b.levels.Apply(c); err != nil {
		b.t.Fatal(err)
	}
}

// TestRoundsOfLevels counts the requests of cold lookups of a key that all files may have: in a bucket with one large file, with
// another one above it, and with three small ones on level 0, each of which costs the one request that opens it. Filters in the
// manifest leave the three requests for the file that has it.
func TestRoundsOfLevels(t *testing.T) {
	testRoundsOfLevels(t, nil, []int64{3, 5, 8})
	testRoundsOfLevels(t, map[string]string{"file-index.bloom-filter.columns": "k1", "file-index.bloom-filter.k1.items": "500000",
		"file-index.bloom-filter.k1.fpp": "0.01", "file-index.in-manifest-threshold": "4 mb"}, []int64{3, 3, 3})
}

func testRoundsOfLevels(t *testing.T, options map[string]string, most []int64) {
	const rows = 500_000
	mem := storage.NewMem()
	b := newBucket(t, newRand(t), mem, []string{"k1"}, options, "k1 BIGINT", "a INT", "b STRING", "c DOUBLE", "d STRING", "e DECIMAL(20, 2)")
	spread := func(n, off int) []int {
		some := []int{0}
		for i := 1; i < n-1; i++ {
			some = append(some, i*(rows/n)+off)
		}
		return append(some, rows-1)
	}
	for i, c := range []struct {
		what   string
		add    [][]int // files, by keys
		level  int
		rounds int
	}{
		{"the highest level", [][]int{spread(rows, 0)}, 2, 2},
		{"and one above it", [][]int{spread(100_000, 1)}, 1, 2},
		{"and three of level 0", [][]int{spread(1000, 7), spread(1000, 8), spread(1000, 9)}, 0, 2},
	} {
		for _, keys := range c.add {
			b.flush(keys, adds)
			b.lift(c.level)
		}
		synctest.Test(t, func(t *testing.T) {
			st := &remote{Store: mem}
			cache := NewCache(CacheConfig{})
			defer cache.Close()
			tab := b.table(cache)
			tab.Store = st
			bk, err := tab.Bucket(b.part, b.levels.Runs(), nil)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			got, err := bk.Rows(t.Context(), b.keyColumns([]int{123_457}), 1, []int{0, 1, 2, 3, 4, 5})
			if err != nil || got.Rows.N != 1 {
				t.Fatal(got.Rows.N, err)
			}
			n := int(time.Since(start) / time.Second)
			t.Logf("%s: %d requests in %d rounds, %d bytes", c.what, st.requests.Load(), n, st.bytes.Load())
			if n > c.rounds || st.requests.Load() > most[i] {
				t.Errorf("%s, options %v: %d requests in %d rounds; %d in %d are wanted", c.what, options, st.requests.Load(), n, most[i], c.rounds)
			}
		})
	}
}
