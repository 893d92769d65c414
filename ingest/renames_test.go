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

// TestRenamesUnsure: where older records would not find a column by its new name, or it may be that of other records, a
// field with an alias is a column of its own, and every value is in that of its field.
func TestRenamesUnsure(t *testing.T) {
	record := func(name, field string) string {
		return `{"type":"record","name":"` + name + `","fields":[{"name":"id","type":"long"},{"name":` + field + `,"type":["null","int"],"default":null}]}`
	}
	first, second := record("T", `"a"`), record("T", `"b","aliases":["a"]`)
	for name, c := range map[string]struct {
		texts    []string
		subjects []string
		renamed  bool
	}{
		"no subject of the topic": {[]string{first, second}, []string{"com.x.T", "com.x.T"}, false},
		"alias dropped":           {[]string{first, second, record("T", `"b"`)}, []string{"t-value", "t-value", "t-value"}, false},
		"records of their own":    {[]string{record("A", `"a"`), second}, []string{"t-A", "t-T"}, false},
		"records of one subject":  {[]string{record("A", `"a"`), second}, []string{"t-value", "t-value"}, false},
		"each other":              {[]string{record("T", `"a","aliases":["b"]`), second}, []string{"x", "x"}, false},
		"each other, one newest":  {[]string{record("T", `"a","aliases":["b"]`), second}, []string{"t-value", "t-value"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cols, err := schema.ParseColumns("id BIGINT NOT NULL, a INT")
			if err != nil {
				t.Fatal(err)
			}
			reg := registrytest.New()
			store := createFrom(t, cols, "id")
			b := newBroker(t, kfake.SeedTopics(1, "t"))
			cfg := b.config()
			cfg.Limits.CommitInterval = 300 * time.Millisecond
			cfg.Registry, cfg.Decode = serve(t, reg), decode.Config{Format: decode.Avro, Evolution: decode.Evolve}
			for i, text := range c.texts {
				reg.Add(registrytest.Schema{Subject: c.subjects[i], Version: i + 1, ID: i + 1, Text: text})
			}
			var want []string
			for i := range 10 {
				v, err := avro.MustParse(c.texts[i%2]).AppendEncode([]byte{0, 0, 0, 0, byte(i%2 + 1)}, map[string]any{"id": int64(i), "a": int32(i), "b": int32(i)})
				if err != nil {
					t.Fatal(err)
				}
				b.sendAll([]*kgo.Record{{Topic: "t", Value: v}})
				values := []any{i, "null"}
				if i%2 == 1 {
					values = []any{"null", i}
				}
				if c.renamed {
					want = append(want, fmt.Sprintf(`{"id":%d,"b":%d}`, i, i))
				} else {
					want = append(want, fmt.Sprintf(`{"id":%d,"a":%v,"b":%v}`, i, values[0], values[1]))
				}
			}
			schemas := 0
			runUntil(t, store, cfg, testEnv(), Events{Evolved: func([]schema.Change, *schema.Schema) { schemas++ }}, `{"0":10}`)
			for _, l := range lettersIn(t, storage.Sub(store, "dead")) {
				t.Error(l.Reason)
			}
			if got := jsonRows(t, store); !slices.Equal(got, want) || schemas != 1 {
				t.Errorf("%d schemas, rows\n%v, not\n%v", schemas, got, want)
			}
		})
	}
}
