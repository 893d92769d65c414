package engine_test

import (
	"maps"
	"strconv"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/storage"
)

func TestTableEqualsModel(t *testing.T) {
	for _, tc := range []struct {
		name        string
		partitioned bool
		options     map[string]string
	}{
		{"one bucket", false, map[string]string{"file.compression": "zstd"}},
		{"three buckets", false, map[string]string{"bucket": "3", "num-sorted-run.compaction-trigger": "3"}},
		{"partitioned", true, map[string]string{"bucket": "2", "num-sorted-run.compaction-trigger": "2"}},
		{"dynamic", false, map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "30"}},
		{"dynamic partitioned", true, map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "20", "dynamic-bucket.max-buckets": "4", "index-file-in-data-file-dir": "true"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rng := newRand(t)
			st := storage.NewMem()
			s := keyedSchema(t, tc.partitioned, tc.options)
			mustCreate(t, st, s)
			model := map[string]string{}
			n := 0
			for range 3 { // openings
				tab := mustOpen(t, st, engine.Settings{Job: "model", Compaction: 2, BufferBytes: 4096})
				p, ok, err := tab.LastProgress(t.Context())
				if err != nil || ok != (n > 0) || ok && p.Properties["calve.test"] != strconv.Itoa(n) {
					t.Fatalf("progress %v %v %v, want %d", p, ok, err, n)
				}
				for range 8 {
					for range rng.IntN(3) {
						rows := randomRows(rng, tc.partitioned)
						if err := tab.Write(t.Context(), batchOf(s, rows)); err != nil {
							t.Fatal(err)
						}
						apply(model, rows)
					}
					n++
					if _, err := tab.Commit(t.Context(), progress(n)); err != nil {
						t.Fatal(err)
					}
					if rng.IntN(4) == 0 {
						if got := contents(t, st); !maps.Equal(got, model) {
							t.Fatalf("table has %d rows, model %d", len(got), len(model))
						}
					}
				}
				if err := tab.Write(t.Context(), batchOf(s, randomRows(rng, tc.partitioned))); err != nil { // never committed
					t.Fatal(err)
				}
				if err := tab.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := contents(t, st); !maps.Equal(got, model) {
					t.Fatalf("table has %d rows, model %d", len(got), len(model))
				}
				mustVerify(t, st)
			}
			tab := mustOpen(t, st, engine.Settings{})
			if err := tab.Compact(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			rep := mustVerify(t, st)
			if rep.FileRows != rep.Rows || int(rep.Rows) != len(model) {
				t.Fatalf("after full compaction: %+v, model has %d rows", rep, len(model))
			}
			for l := range rep.Levels[:len(rep.Levels)-1] {
				if rep.Levels[l] != 0 {
					t.Fatalf("files below the top level after a full compaction: %v", rep.Levels)
				}
			}
		})
	}
}
