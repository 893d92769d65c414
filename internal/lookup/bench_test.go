package lookup

import (
	"flag"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/storage"
)

var benchRows = flag.Int("lookup-rows", 1_000_000, "rows of the bucket that is benchmarked")

// BenchmarkRows looks random keys up, a thousand at a time: in a local file, and by pages.
//
//	go test ./internal/lookup -run - -bench Rows -lookup-rows 10000000
func BenchmarkRows(b *testing.B) {
	store, err := storage.NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	r := newRand(b)
	bk := newBucket(b, r, store, []string{"k"}, map[string]string{"num-sorted-run.compaction-trigger": "100"}, "k BIGINT", "a INT", "s STRING", "d DOUBLE", "t TIMESTAMP(6)", "n STRING")
	const part = 500_000
	for from := 0; from < *benchRows; from += part {
		n := min(part, *benchRows-from)
		rec := array.NewRecordBuilder(memory.DefaultAllocator, bk.s.Arrow())
		for i := range n {
			id := int64(from + i)
			rec.Field(0).(*array.Int64Builder).Append(id)
			rec.Field(1).(*array.Int32Builder).Append(int32(id % 1000))
			rec.Field(2).(*array.StringBuilder).Append([]string{"snow", "ice", "hail and more"}[id%3])
			rec.Field(3).(*array.Float64Builder).Append(float64(id) / 7)
			rec.Field(4).(*array.TimestampBuilder).Append(arrow.Timestamp(id * 1000))
			rec.Field(5).(*array.StringBuilder).Append("a text that is not the same: " + time.Unix(id*977, 0).UTC().Format(time.RFC3339))
		}
		made, err := bk.files.Flush(b.Context(), bk.part, []datafile.Rows{{N: n, Cols: rec.NewRecordBatch().Columns()}}, nil, bk.seq)
		if err == nil {
			bk.seq += int64(n)
			err = bk.levels.Apply(lsm.Change{Added: made})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	bk.compact(true)
	size := int64(0)
	for _, f := range bk.levels.Files() {
		size += f.Size
	}
	b.Logf("%d rows in %d files of %d bytes", *benchRows, len(bk.levels.Files()), size)
	dir := b.TempDir()
	for _, how := range []string{"local", "pages"} {
		cache := NewCache(CacheConfig{})
		if how == "local" {
			cache = NewCache(CacheConfig{Dir: dir, DirBytes: 1 << 40})
		}
		const batch = 1000
		keys := func() []arrow.Array {
			rec := array.NewInt64Builder(memory.DefaultAllocator)
			for range batch {
				rec.Append(r.Int64N(int64(*benchRows)))
			}
			return []arrow.Array{rec.NewArray()}
		}
		look, err := bk.table(cache).Bucket(bk.part, bk.levels.Runs(), nil)
		if err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		for range 20 { // until the local files are there
			if _, err := look.Rows(b.Context(), keys(), batch, []int{0, 1, 2, 3, 4, 5}); err != nil {
				b.Fatal(err)
			}
		}
		b.Logf("%s: warm after %s", how, time.Since(begin))
		b.Run(how, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				k := keys()
				b.StartTimer()
				got, err := look.Rows(b.Context(), k, batch, []int{0, 1, 2, 3, 4, 5})
				if err != nil || got.Rows.N < batch/2 {
					b.Fatal(got.Rows.N, err)
				}
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "lookups/s")
		})
		if err := cache.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
