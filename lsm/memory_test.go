package lsm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// liveStore measures the bytes that live in memory at every so many calls, which come all along a compaction.
type liveStore struct {
	storage.Store
	every int

	mu    sync.Mutex
	calls int
	most  uint64
}

func (s *liveStore) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.calls%s.every > 0 {
		return
	}
	s.most = max(s.most, liveBytes())
}

// liveBytes is what is left after a collection.
func liveBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (s *liveStore) Open(ctx context.Context, name string) (storage.File, error) {
	f, err := s.Store.Open(ctx, name)
	return liveFile{f, s}, err
}

type liveFile struct {
	storage.File
	s *liveStore
}

func (f liveFile) ReadAt(p []byte, off int64) (int, error) {
	f.s.look()
	return f.File.ReadAt(p, off)
}

// wideSchema has a BIGINT key and columns of one type.
func wideSchema(t testing.TB, columns int, typ string, options map[string]string) *schema.Schema {
	cols := []string{"k BIGINT"}
	for i := range columns {
		cols = append(cols, fmt.Sprintf("c%d %s", i, typ))
	}
	return newSchema(t, []string{"k"}, options, cols...)
}

// wideRows makes rows of random keys whose texts have some length; repeat is how many different texts a column has.
func wideRows(s *schema.Schema, r *rand.Rand, rows, length, repeat int) datafile.Rows {
	out := datafile.Rows{N: rows}
	k := array.NewInt64Builder(memory.DefaultAllocator)
	for range rows {
		k.Append(r.Int64())
	}
	out.Cols = []arrow.Array{k.NewArray()}
	filler := strings.Repeat("abcdefgh", (length+7)/8)
	for range s.Fields[1:] {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		for range rows {
			b.Append(fmt.Sprintf("%06d%s", r.IntN(repeat), filler)[:max(6, length)])
		}
		out.Cols = append(out.Cols, b.NewArray())
	}
	return out
}

// TestCompactionMemory: what a compaction holds at once stays below its bound, for inputs of all shapes. It makes large
// inputs, with which the race detector would take minutes: make test runs it without.
func TestCompactionMemory(t *testing.T) {
	if underRace {
		t.Skip("runs without the race detector")
	}
	for _, c := range []struct {
		name                                string
		columns, runs, rows, length, repeat int
		every                               int
	}{
		{"wide", 290, 8, 1500, 12, 1 << 30, 700},
		{"many runs", 8, 60, 2500, 30, 1 << 30, 150},
		{"long texts", 2, 8, 30, 1 << 20, 1 << 30, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := wideSchema(t, c.columns, "STRING", map[string]string{"data-file.thin-mode": "true"})
			live := &liveStore{Store: storage.NewMem(), every: c.every}
			b := newBucket(t, newRand(t), live, s)
			for run := range c.runs {
				made, err := b.files.Flush(t.Context(), b.part, []datafile.Rows{wideRows(s, b.r, c.rows, c.length, c.repeat)}, nil, int64(run*c.rows))
				if err != nil {
					t.Fatal(err)
				}
				if err := b.levels.Apply(Change{Added: made}); err != nil {
					t.Fatal(err)
				}
			}
			job, _ := PickFull(b.levels, b.policy)
			before := liveBytes()
			live.most, live.calls = before, 0
			if _, err := b.files.Compact(t.Context(), b.part, job); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d MiB at most, at %d looks", (live.most-before)>>20, live.calls/c.every)
			if most := live.most - before; most > CompactionMemory || live.calls < 4*c.every {
				t.Errorf("%d MiB at once, at %d looks", most>>20, live.calls/c.every)
			}
		})
	}
}
