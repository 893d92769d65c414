package ingest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// TestCaptureCrashes cuts the power at random storage calls while captured streams with unavailable values, key changes,
// truncates and rows without key are played.
func TestCaptureCrashes(t *testing.T) {
	r := schematest.Rand(t)
	c := readCapture(t, "pg-json")
	for _, name := range []string{"toast_default", "pk_change", "trunc_one", "nopk_full"} {
		t.Run(name, func(t *testing.T) {
			s := c.tables[name]
			cfg := decode.Config{Format: decode.Debezium, Decimals: decode.DecimalsBinary}
			keys, bag := s.PrimaryKey, len(s.PrimaryKey) == 0
			if bag {
				keys, cfg.Metadata = nil, map[string]string{bagHash: "row-hash", bagCopies: "copies"}
			}
			dying := &crashing{mem: c.target(t, s, keys, bag)}
			crashes := 0
			for ended := false; !ended; {
				dying.left.Store(1 + r.Int64N(20))
				if crashes > 40 {
					dying.left.Store(1 << 40)
				}
				if ended = c.crashOnce(t, s, dying, cfg, r); !ended {
					crashes++
					dying.mem = dying.mem.CrashClone(r)
				}
			}
			refused(t, dying.mem, 0)
			got := scanText(t, dying.mem, s, nil)
			if bag {
				compareBag(t, s.name, copies(t, got), s.truth())
			} else {
				c.compareKeyed(t, s, got, keys)
			}
			if crashes < 2 {
				t.Errorf("only %d crashes", crashes)
			}
		})
	}
}

// crashOnce plays a capture from its last commit on until it ends or the store dies.
func (c *capture) crashOnce(t *testing.T, s *sourceTable, dying *crashing, cfg decode.Config, r *rand.Rand) (ended bool) {
	t.Helper()
	ctx := context.Background()
	store := dying.store()
	table, err := engine.Open(ctx, store, engine.Settings{Job: "capture", Compaction: 1}, hasty())
	if err == nil {
		dead := NewDeadLetters(storage.Sub(store, "dead"), DeadLetterSettings{}, hasty())
		_, err = feed(ctx, c.records[s.name], cfg, table, dead, r, 4)
		err = errors.Join(err, dead.Close(ctx), table.Close(ctx))
	}
	if dying.left.Load() <= 0 {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}
