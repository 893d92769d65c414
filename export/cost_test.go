package export

import (
	"context"
	"fmt"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// bigWorld is a table of n exported files in 64 buckets, with an exporter that has published and knows them all.
func bigWorld(t testing.TB, store storage.Store, n int) (*world, *Exporter, []manifest.Entry) {
	t.Helper()
	w := newWorld(t, store, schema.Spec{Columns: columns(t, "id BIGINT NOT NULL, a INT, b STRING, c DOUBLE, d DATE, e TIMESTAMP(6), f DECIMAL(10,2), g STRING, h BOOLEAN, i INT"),
		PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "64"}})
	files := make([]manifest.Entry, n)
	// One written file lends its statistics to all.
	real := w.write(w.part(0), 2, `{"id":1,"a":1,"b":"some text","c":1.5,"d":"2024-05-14","e":"2024-05-14 12:00:00","f":"1.25","g":"other text","h":true,"i":7}`)
	for i := range files {
		files[i] = w.stats(w.fake(w.part(i%64), 2, 1000), real)
	}
	w.commit(manifest.Append, files...)
	e := w.exporter()
	w.publish(e, 0)
	w.commit(manifest.Compact, removal(files[0]), w.stats(w.fake(w.part(0), 2, 1000), real))
	w.publish(e, 0)
	return w, e, files[1:]
}

// stats gives a fake file the statistics of a real one.
func (w *world) stats(e, real manifest.Entry) manifest.Entry {
	e.File.KeyStats, e.File.ValueStats = real.File.KeyStats, real.File.ValueStats
	e.File.ValueStatsAll, e.File.ValueStatsCols = real.File.ValueStatsAll, real.File.ValueStatsCols
	return e
}

// TestCost replaces one file in a table of 10 files and of 10,000: a Publish makes the same calls on the storage, and
// moves about as many bytes.
func TestCost(t *testing.T) {
	var calls []string
	for _, n := range []int{10, 10000} {
		counted := storage.WithCounter(storage.NewMem())
		w, e, files := bigWorld(t, counted, n)
		w.commit(manifest.Compact, removal(files[0]), w.stats(w.fake(w.part(1), 2, 1000), files[0]))
		before := counted.Counts()
		r := w.publish(e, 0)
		spent := counted.Counts().Since(before)
		if r.Added != 1 || r.Removed != 1 || r.Files != n {
			t.Fatalf("publish: %+v", r)
		}
		w.check()
		text := ""
		for k := storage.OpOpen; k <= storage.OpDelete; k++ {
			text += fmt.Sprintf("%s %d, ", k, spent.Of(k).Calls)
		}
		calls = append(calls, text)
		t.Logf("%d files: %s", n, spent)
		if bytes := spent.Total().Bytes; bytes > 64<<10 {
			t.Errorf("%d files: %d bytes for a change of one file", n, bytes)
		}
	}
	if calls[0] != calls[1] {
		t.Errorf("calls for 10 files:     %s\ncalls for 10,000 files: %s", calls[0], calls[1])
	}
}

// BenchmarkPublish replaces one file of a table and publishes; the commit to the Paimon table is not timed.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{10, 10000} {
		for _, on := range []string{"mem", "disk"} {
			b.Run(fmt.Sprintf("files=%d/store=%s", n, on), func(b *testing.B) {
				var store storage.Store = storage.NewMem()
				if on == "disk" {
					local, err := storage.NewLocal(b.TempDir())
					if err != nil {
						b.Fatal(err)
					}
					store = local
				}
				w, e, files := bigWorld(b, store, n)
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					old := files[i%len(files)]
					fresh := w.stats(w.fake(w.part(old.Bucket), 2, 1000), old)
					w.commit(manifest.Compact, removal(old), fresh)
					files[i%len(files)] = fresh
					i++
					b.StartTimer()
					if _, err := e.Publish(context.Background(), 0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFirstPublish publishes a table of 10,000 files from nothing.
func BenchmarkFirstPublish(b *testing.B) {
	mem := storage.NewMem()
	w, _, _ := bigWorld(b, mem, 10000)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for _, name := range w.names() {
			if err := mem.Delete(context.Background(), metadataDir+"/"+name); err != nil {
				b.Fatal(err)
			}
		}
		e := w.exporter()
		b.StartTimer()
		if _, err := e.Publish(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
	}
}
