package lsm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestBucketModel lets buckets of random schemas live: flushes of overlapping keys and all kinds, compactions as the
// picker says and full ones, and after each the bucket must hold what a map holds.
func TestBucketModel(t *testing.T) {
	r := newRand(t)
	levels := map[int]int{}
	for round := range 40 {
		options := map[string]string{
			"num-sorted-run.compaction-trigger": fmt.Sprint(2 + r.IntN(4)),
			"num-levels":                        fmt.Sprint(2 + r.IntN(3)),
			"target-file-size":                  []string{"4 kb", "20 kb", "512 mb"}[r.IntN(3)],
			"data-file.thin-mode":               fmt.Sprint(r.IntN(2) == 0),
			"file.compression.per.level":        "0:lz4",
		}
		s := randKeySchema(t, r, options, allTypes[r.IntN(len(allTypes))], allTypes[r.IntN(len(allTypes))])
		b := newBucket(t, r, storage.NewMem(), s)
		b.files.Parallel = 1 + r.IntN(3)
		b.files.WindowBytes = 1 + int64(r.IntN(1<<16))
		pool := randPool(r, s, 1+r.IntN(300))
		for step := range 12 {
			from := r.IntN(len(pool))
			to := from + 1 + r.IntN(len(pool)-from)
			b.flush(randRows(r, s, pool[from:to], 1+r.IntN(200)))
			pick := Pick
			if r.IntN(8) == 0 {
				pick = PickFull
			}
			for {
				j, ok := pick(b.levels, b.policy)
				if !ok {
					break
				}
				before := b.levels.NumRuns()
				b.compact(j)
				levels[j.Output]++
				if after := b.levels.NumRuns(); after >= before && before > 1 {
					t.Fatalf("round %d, step %d: a compaction left %d runs of %d", round, step, after, before)
				}
			}
			if step%3 == 2 {
				b.check()
			}
		}
		b.check()
	}
	for n := 1; n < 4; n++ {
		if levels[n] == 0 {
			t.Errorf("no compaction went to level %d: %v", n, levels)
		}
	}
}

// TestThreeLevels: with the levels that calve gives its tables, rows go from 0 to 1 to 2, and deletes end there.
func TestThreeLevels(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, nil, "k BIGINT", "v STRING")
	b := newBucket(t, r, storage.NewMem(), s)
	jobs := map[string]int{}
	for range 80 {
		var rows []row
		for range 100 {
			rows = append(rows, randRow(r, s, []any{r.Int64N(20_000)}, 0))
		}
		b.flush(rows)
		for {
			j, ok := Pick(b.levels, b.policy)
			if !ok {
				break
			}
			for _, f := range j.Files {
				jobs[fmt.Sprint(f.Level, "→", j.Output)]++
			}
			b.compact(j)
		}
	}
	b.check()
	for _, way := range []string{"0→0", "0→1", "1→2"} {
		if jobs[way] == 0 {
			t.Errorf("no file went %s: %v", way, jobs)
		}
	}
}

// flushRange flushes the keys of [from, to) as inserts.
func (b *bucket) flushRange(from, to int64) manifest.DataFile {
	b.t.Helper()
	var rows []row
	for k := from; k < to; k++ {
		rows = append(rows, row{vals: []any{k, fmt.Sprint("value ", k)}})
	}
	return b.flush(rows)[0]
}

// TestMoveWritesNothing: files that overlap nothing go up by metadata alone.
func TestMoveWritesNothing(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, map[string]string{"target-file-size": "1 kb"}, "k BIGINT", "v STRING")
	mem := storage.NewMem()
	count := storage.WithCounter(mem)
	b := newBucket(t, r, count, s)
	for i := range int64(5) {
		b.flushRange(i*200, i*200+100)
	}
	before, objs := count.Counts(), objects(t, mem)
	j, ok := PickFull(b.levels, b.policy)
	if !ok {
		t.Fatal("nothing picked")
	}
	c, err := b.files.Compact(t.Context(), b.part, j)
	if err != nil {
		t.Fatal(err)
	}
	if did := count.Counts().Since(before); did.Total().Calls != 0 {
		t.Errorf("moving files did: %s", did)
	}
	if !maps.Equal(objects(t, mem), objs) {
		t.Error("moving files changed the store")
	}
	if len(c.Removed) != 5 || len(c.Added) != 5 {
		t.Fatalf("%d files removed, %d added", len(c.Removed), len(c.Added))
	}
	for i := range c.Added {
		want := c.Removed[i]
		want.Level = 2
		if got := c.Added[i]; fmt.Sprint(got) != fmt.Sprint(want) || *got.Source != manifest.FromAppend {
			t.Errorf("moved file is %+v, want %+v", got, want)
		}
	}
	if err := b.levels.Apply(c); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// TestUpgradeRules: which files are moved and which rewritten.
func TestUpgradeRules(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, map[string]string{"target-file-size": "10 kb"}, "k BIGINT", "v STRING")
	large := func(b *bucket, from int64) manifest.DataFile { // incompressible enough to be above 7 kb
		var rows []row
		for k := from; k < from+300; k++ {
			rows = append(rows, row{vals: []any{k, fmt.Sprintf("%x%x%x", r.Uint64(), r.Uint64(), r.Uint64())}})
		}
		f := b.flush(rows)[0]
		if f.Size < b.files.Options.CompactionFileSize() {
			t.Fatalf("a large file has %d bytes only", f.Size)
		}
		return f
	}
	withDelete := func(b *bucket, from int64) {
		b.flush([]row{{vals: []any{from, "x"}}, {kind: 3, vals: []any{from + 1, nil}}})
	}
	cases := []struct {
		name           string
		setup          func(b *bucket)
		removed, added int
		moved          int
	}{
		{"a lone small file moves", func(b *bucket) { b.flushRange(0, 10) }, 1, 1, 1},
		{"small neighbours become one", func(b *bucket) { b.flushRange(0, 10); b.flushRange(10, 20); b.flushRange(20, 30) }, 3, 1, 0},
		{"a small file between large ones moves", func(b *bucket) { large(b, 0); b.flushRange(1000, 1010); large(b, 2000) }, 3, 3, 3},
		{"small ones on both sides of a large one", func(b *bucket) {
			b.flushRange(0, 10)
			b.flushRange(10, 20)
			large(b, 1000)
			b.flushRange(2000, 2010)
			b.flushRange(2010, 2020)
		}, 5, 3, 1},
		{"overlapping files are merged", func(b *bucket) { b.flushRange(0, 10); b.flushRange(5, 20) }, 2, 1, 0},
		{"a lone file with a delete is rewritten", func(b *bucket) { withDelete(b, 0) }, 1, 1, 0},
		{"a file of deletes alone goes", func(b *bucket) { b.flush([]row{{kind: 3, vals: []any{int64(1), nil}}}) }, 1, 0, 0},
		{"deletes do not hinder neighbours", func(b *bucket) { large(b, 0); withDelete(b, 1000); large(b, 2000) }, 3, 3, 2},
	}
	for _, c := range cases {
		b := newBucket(t, r, storage.NewMem(), s)
		c.setup(b)
		j, _ := PickFull(b.levels, b.policy)
		got := b.compact(j)
		moved := 0
		for _, f := range got.Added {
			for _, g := range got.Removed {
				if f.Name == g.Name {
					moved++
				} else if f.Level != 2 {
					t.Errorf("%s: a file is on level %d", c.name, f.Level)
				}
			}
		}
		if len(got.Removed) != c.removed || len(got.Added) != c.added || moved != c.moved {
			t.Errorf("%s: %d files removed, %d added, %d of them moved; want %d, %d, %d", c.name, len(got.Removed), len(got.Added), moved, c.removed, c.added, c.moved)
		}
		b.check()
	}
}

// TestLargeFilesStay: a file that is on the output level and overlaps nothing is no part of the change.
func TestLargeFilesStay(t *testing.T) {
	s := newSchema(t, []string{"k"}, map[string]string{"target-file-size": "1 kb"}, "k BIGINT", "v STRING")
	b := newBucket(t, newRand(t), storage.NewMem(), s)
	b.flushRange(0, 100)
	b.flushRange(1000, 1100)
	j, _ := PickFull(b.levels, b.policy)
	b.compact(j)
	b.flushRange(500, 600)
	b.flushRange(1050, 1060)
	j, _ = PickFull(b.levels, b.policy)
	c := b.compact(j)
	if len(j.Files) != 4 || len(c.Removed) != 3 || len(c.Added) != 2 {
		t.Errorf("of %d files %s were removed, %s added", len(j.Files), names(c.Removed), names(c.Added))
	}
	b.check()
}

// TestUnknownDeletes: a file that does not say how many deletes it has is not moved to the highest level.
func TestUnknownDeletes(t *testing.T) {
	b := newBucket(t, newRand(t), storage.NewMem(), newSchema(t, []string{"k"}, nil, "k BIGINT", "v STRING"))
	f := b.flushRange(0, 10)
	f.DeleteRows = nil
	c, err := b.files.Compact(t.Context(), b.part, Job{Files: []manifest.DataFile{f}, Output: 2, DropDeletes: true, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Added) != 1 || c.Added[0].Name == f.Name || *c.Added[0].DeleteRows != 0 || *c.Added[0].Source != manifest.FromCompact {
		t.Errorf("got %+v", c.Added)
	}
	c, err = b.files.Compact(t.Context(), b.part, Job{Files: []manifest.DataFile{f}, Output: 1})
	if err != nil || len(c.Added) != 1 || c.Added[0].Name != f.Name {
		t.Errorf("to a lower level: %+v, %v", c.Added, err)
	}
}

// TestRollsAtTargetSize: outputs end at about the target size, in key order without overlap.
func TestRollsAtTargetSize(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, map[string]string{"target-file-size": "64 kb"}, "k BIGINT", "v STRING")
	b := newBucket(t, r, storage.NewMem(), s)
	b.files.WindowBytes = 16 << 10
	for range 2 {
		var rows []row
		for range 6000 {
			rows = append(rows, row{vals: []any{r.Int64N(100_000), fmt.Sprintf("%x%x", r.Uint64(), r.Uint64())}})
		}
		b.flush(rows)
	}
	j, _ := PickFull(b.levels, b.policy)
	c := b.compact(j)
	if len(c.Added) < 4 {
		t.Errorf("%d files", len(c.Added))
	}
	for i, f := range c.Added {
		if i+1 < len(c.Added) && (f.Size < 40<<10 || f.Size > 120<<10) {
			t.Errorf("file %d has %d bytes", i, f.Size)
		}
	}
	b.check()
}

// crowded makes a bucket with files to merge, one to move, and more to merge behind it: two outputs at least.
func crowded(t testing.TB, r *rand.Rand, store storage.Store) *bucket {
	s := newSchema(t, []string{"k"}, map[string]string{"target-file-size": "2 kb"}, "k BIGINT", "v STRING")
	b := newBucket(t, r, store, s)
	b.files.WindowBytes = 4 << 10
	b.flushRange(0, 300)
	b.flushRange(150, 450)
	b.flushRange(1000, 1300)
	b.flushRange(3000, 3010)
	b.flushRange(3010, 3020)
	return b
}

// TestMergeWithinLevelZero: one file comes out, whatever its size, with its deletes.
func TestMergeWithinLevelZero(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, map[string]string{"target-file-size": "1 kb"}, "k BIGINT", "v STRING")
	b := newBucket(t, r, storage.NewMem(), s)
	b.flushRange(0, 200)
	older := b.flushRange(0, 50)
	for range 2 {
		var rows []row
		for range 40_000 {
			rows = append(rows, randRow(r, s, []any{r.Int64N(1_000_000)}, 0))
		}
		b.flush(rows)
	}
	files := b.levels.Files()[:2]
	c := b.compact(Job{Files: files})
	if len(c.Added) != 1 || c.Added[0].Level != 0 || *c.Added[0].DeleteRows == 0 || c.Added[0].MinSeq <= older.MaxSeq {
		t.Fatalf("got %+v", c.Added)
	}
	if got := b.levels.Files(); len(got) != 3 || got[0].Name != c.Added[0].Name {
		t.Errorf("level 0 is now %s", names(got))
	}
	b.check()
}

// TestFailedCompactionLeavesNothing lets every single call to the store fail in turn, with and without a lost reply,
// and ends the context at every call: afterwards the store is as it was.
func TestFailedCompactionLeavesNothing(t *testing.T) {
	boom := errors.New("boom")
	for _, how := range []string{"fails", "reply lost", "half", "cancel", "hangs"} {
		for _, parallel := range []int{1, 2} {
			t.Run(fmt.Sprint(how, " ", parallel), func(t *testing.T) {
				mem := storage.NewMem()
				b := crowded(t, newRand(t), mem)
				b.files.Parallel = parallel
				failures := 0
				watch := &watchedStore{Store: mem}
				for at := int64(1); ; at++ {
					ctx, cancel := context.WithCancel(t.Context())
					var n atomic.Int64
					b.files.Store = storage.WithFaults(watch, func(op storage.Op) error {
						if op.Kind == storage.OpDelete || n.Add(1) != at {
							return nil
						}
						switch how {
						case "reply lost":
							return storage.LoseReply(boom)
						case "half":
							return storage.Partial(1, boom)
						case "cancel":
							cancel()
							return nil
						case "hangs":
							cancel()
							return storage.ErrHang
						}
						return boom
					})
					err := b.tryCompact(ctx, mem)
					cancel()
					if n := watch.open.Load(); n != 0 {
						t.Fatalf("call %d: %d uploads were neither committed nor aborted", at, n)
					}
					if err != nil {
						failures++
						if how != "cancel" && how != "hangs" && !errors.Is(err, boom) {
							t.Fatalf("call %d: %v", at, err)
						}
					}
					if n.Load() < at { // no call was left to fail
						if err != nil {
							t.Fatalf("without a fault: %v", err)
						}
						break
					}
				}
				if failures < 5 {
					t.Errorf("%d failures only", failures)
				}
			})
		}
	}
}

// watchedStore counts the uploads that have not ended, and like a store across a network it does nothing for a context
// that has ended.
type watchedStore struct {
	storage.Store
	open atomic.Int64
}

func (s *watchedStore) Create(ctx context.Context, name string) (storage.Upload, error) {
	up, err := s.Store.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	s.open.Add(1)
	return &watchedUpload{Upload: up, s: s}, nil
}

func (s *watchedStore) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Delete(ctx, name)
}

type watchedUpload struct {
	storage.Upload
	s     *watchedStore
	ended atomic.Bool
}

func (u *watchedUpload) end() {
	if !u.ended.Swap(true) {
		u.s.open.Add(-1)
	}
}

func (u *watchedUpload) Commit() error {
	err := u.Upload.Commit()
	if err == nil {
		u.end()
	}
	return err
}

func (u *watchedUpload) Abort() {
	u.end()
	u.Upload.Abort()
}

// tryCompact compacts everything and holds the store against what was there before. A result is deleted again.
func (b *bucket) tryCompact(ctx context.Context, mem *storage.Mem) error {
	b.t.Helper()
	before := objects(b.t, mem)
	j, _ := PickFull(b.levels, b.policy)
	c, err := b.files.Compact(ctx, b.part, j)
	for _, f := range c.Added {
		if _, moved := b.live()[f.Name]; !moved {
			if err := mem.Delete(b.t.Context(), b.part.Dir+"/"+f.Name); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	if after := objects(b.t, mem); !maps.Equal(before, after) {
		b.t.Fatalf("%v became %v (error: %v)", before, after, err)
	}
	return err
}

// TestCompactErrors: files that are not what their metadata says.
func TestCompactErrors(t *testing.T) {
	b := crowded(t, newRand(t), storage.NewMem())
	good, _ := PickFull(b.levels, b.policy)
	cases := []struct {
		name   string
		change func(f *manifest.DataFile)
		want   string
	}{
		{"rows", func(f *manifest.DataFile) { f.Rows++ }, "rows, its manifest entry says"},
		{"schema", func(f *manifest.DataFile) { f.SchemaID = 9 }, "no schema 9"},
		{"missing", func(f *manifest.DataFile) { f.Name = "gone" }, "gone"},
		{"key", func(f *manifest.DataFile) { f.MinKey = []byte{1} }, "key range"},
	}
	before := objects(t, b.files.Store)
	for _, c := range cases {
		j := good
		j.Files = append([]manifest.DataFile(nil), good.Files...)
		c.change(&j.Files[len(j.Files)-1])
		_, err := b.files.Compact(t.Context(), b.part, j)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if !maps.Equal(before, objects(t, b.files.Store)) {
		t.Error("failed compactions left something")
	}
}

// TestEvolvedSchema: files of an older schema are merged into files of the present one.
func TestEvolvedSchema(t *testing.T) {
	r := newRand(t)
	mem := storage.NewMem()
	old := newSchema(t, []string{"k"}, nil, "k BIGINT", "gone INT", "v STRING")
	b := newBucket(t, r, mem, old)
	b.flush([]row{{vals: []any{int64(1), int32(7), "a"}}, {vals: []any{int64(2), int32(8), "b"}}})
	next := *old
	next.ID = 1
	next.Fields = []schema.Field{old.Fields[2], old.Fields[0], {ID: 4, Name: "new", Type: mustType(t, "DATE")}}
	next.Fields[0].Name = "renamed"
	c := newBucket(t, r, mem, &next)
	c.files.NewName = b.files.NewName
	c.files.OpenSchema = func(context.Context, int64) (*schema.Schema, error) { return old, nil }
	c.levels, c.seq = b.levels, b.seq
	c.flush([]row{{vals: []any{"B", int64(2), int32(100)}}})
	j, _ := PickFull(c.levels, c.policy)
	c.compact(j)
	c.model = []row{{seq: 0, vals: []any{"a", int64(1), nil}}, {seq: 2, vals: []any{"B", int64(2), int32(100)}}}
	c.check()
}
