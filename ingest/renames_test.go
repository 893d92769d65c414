package ingest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/ingest/registry/registrytest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestRenames: the schemas of a registry rename columns by aliases, nested ones too, two times while records of the first
// one still come; in one commit, in many, and by one run after the other.
func TestRenames(t *testing.T) {
	inner := func(field string) string {
		return `{"type":"record","name":"R","fields":[{"name":` + field + `,"type":"int"}]}`
	}
	texts := []string{
		`{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"a","type":"int"},{"name":"r","type":` + inner(`"x"`) + `},{"name":"l","type":{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"m","type":"int"}]}}}]}`,
		`{"type":"record","name":"T","fields":[{"name":"id","type":"long"},{"name":"b","type":"int","aliases":["a"]},{"name":"r","type":` + inner(`"y","aliases":["x"]`) + `},{"name":"l","type":{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"n","type":"int","aliases":["m"]}]}}}]}`,
		`{"type":"record","name":"T","fields":[{"name":"key","type":"long","aliases":["id"]},{"name":"c","type":"long","aliases":["a","b"]},{"name":"s","aliases":["r"],"type":` + inner(`"z","aliases":["y","x"]`) + `},{"name":"l","type":{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"n","type":"int","aliases":["m"]}]}}}]}`,
	}
	value := func(version int, id int64) []byte {
		names := [][6]string{{"id", "a", "r", "x", "m"}, {"id", "b", "r", "y", "n"}, {"key", "c", "s", "z", "n"}}[version]
		v := map[string]any{names[0]: id, names[1]: int32(10 * id), names[2]: map[string]any{names[3]: int32(100 * id)}, "l": []any{map[string]any{names[4]: int32(id)}}}
		if version == 2 {
			v["c"] = id << 40
		}
		b, err := avro.MustParse(texts[version]).AppendEncode([]byte{0, 0, 0, 0, byte(version + 1)}, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	versions := []int{0, 0, 1, 0, 1, 2, 0, 1, 2, 0}
	cols, err := schema.ParseColumns("id BIGINT NOT NULL, a INT, r ROW<x INT>, l ARRAY<ROW<m INT>>")
	if err != nil {
		t.Fatal(err)
	}
	for name, interval := range map[string]time.Duration{"one commit": 500 * time.Millisecond, "many": time.Millisecond, "runs": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			reg := registrytest.New()
			store := createFrom(t, cols, "id")
			b := newBroker(t, kfake.SeedTopics(1, "t"))
			cfg := b.config()
			cfg.Limits.CommitInterval = interval
			cfg.Registry, cfg.Decode = serve(t, reg), decode.Config{Format: decode.Avro, Evolution: decode.Evolve}
			var want []string
			newest := -1
			for i, v := range versions {
				for ; newest < v; newest++ {
					reg.Add(registrytest.Schema{Subject: "t-value", Version: newest + 2, ID: newest + 2, Text: texts[newest+1]})
				}
				b.sendAll([]*kgo.Record{{Topic: "t", Value: value(v, int64(i))}})
				c := int64(10 * i)
				if v == 2 {
					c = int64(i) << 40
				}
				want = append(want, fmt.Sprintf(`{"key":%d,"c":%d,"s":{"z":%d},"l":[{"n":%d}]}`, i, c, 100*i, i))
				if name == "runs" {
					runUntil(t, store, cfg, testEnv(), Events{}, fmt.Sprintf(`{"0":%d}`, i+1))
				}
			}
			if name != "runs" {
				runUntil(t, store, cfg, testEnv(), Events{}, fmt.Sprintf(`{"0":%d}`, len(versions)))
			}
			for _, l := range lettersIn(t, storage.Sub(store, "dead")) {
				t.Error(l.Reason)
			}
			if got := jsonRows(t, store); !slices.Equal(got, want) {
				t.Errorf("rows\n%v, not\n%v", got, want)
			}
			s := wantColumns(t, store, "key BIGINT NOT NULL, c BIGINT, s ROW<`z` INT>, l ARRAY<ROW<`n` INT>>")
			for i, f := range s.Fields {
				if f.ID != []int{1, 2, 3, 5}[i] {
					t.Errorf("column %s has field id %d", f.Name, f.ID)
				}
			}
		})
	}
}
