package reader_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// metaTable is a table with rows (p, id) of which only the metadata is there, in many small manifests.
type metaTable struct {
	t      *testing.T
	mem    *storage.Mem
	meta   *manifest.Table
	schema *schema.Schema
	next   int64
}

func newMetaTable(t *testing.T, options map[string]string) *metaTable {
	t.Helper()
	cols, err := schema.ParseColumns("p STRING NOT NULL, id BIGINT NOT NULL, v INT")
	if err != nil {
		t.Fatal(err)
	}
	spec := schema.Spec{Columns: cols, PrimaryKeys: []string{"p", "id"}, PartitionKeys: []string{"p"}, Options: map[string]string{
		"manifest.target-file-size": "2 kb", "manifest.full-compaction-threshold-size": "1 b", "manifest.merge-min-count": "2"}}
	for k, v := range options {
		spec.Options[k] = v
	}
	x := &metaTable{t: t, mem: storage.NewMem()}
	if x.schema, err = schema.New(spec); err != nil {
		t.Fatal(err)
	}
	if err := engine.Create(t.Context(), x.mem, x.schema); err != nil {
		t.Fatal(err)
	}
	x.meta = reader.Open(x.mem, env()).Meta()
	return x
}

func (x *metaTable) row(cols []int, vals ...any) []byte {
	x.t.Helper()
	b, err := binrow.EncodeRow(x.schema.Types(cols), vals)
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}

// entry adds a file with the keys from low to low+9.
func (x *metaTable) entry(p string, bucket, total, level int, low int64) manifest.Entry {
	x.next++
	zero, key := int64(0), x.schema.KeyColumns()
	lowKey, highKey := x.row(key, low), x.row(key, low+9)
	return manifest.Entry{Kind: manifest.Add, Partition: x.row(x.schema.PartitionColumns(), p), Bucket: bucket, TotalBuckets: total, File: manifest.DataFile{
		Name: fmt.Sprintf("data-%d.parquet", x.next), Size: 1000, Rows: 10, Level: level, SchemaID: x.schema.ID, MinKey: lowKey, MaxKey: highKey,
		KeyStats:   manifest.Stats{Min: lowKey, Max: highKey, NullCounts: []*int64{&zero}},
		ValueStats: manifest.Stats{Min: binrow.EmptyRow, Max: binrow.EmptyRow}, MinSeq: x.next * 10, MaxSeq: x.next*10 + 9, DeleteRows: &zero}}
}

func (x *metaTable) commit(entries []manifest.Entry) *manifest.Snapshot {
	x.t.Helper()
	kind := manifest.Append
	if slices.ContainsFunc(entries, func(e manifest.Entry) bool { return e.Kind == manifest.Remove }) {
		kind = manifest.Overwrite
	}
	if _, err := x.meta.Commit(x.t.Context(), manifest.Commit{Kind: kind, User: "w", Identifier: x.next, Entries: entries}); err != nil {
		x.t.Fatal(err)
	}
	s, err := x.meta.Latest(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// plan gives the names of the files that a query reads, and the bytes of metadata that it took to find them.
func (x *metaTable) plan(q reader.Query) (names []string, bytes int64) {
	x.t.Helper()
	counter := storage.WithCounter(x.mem)
	splits, err := reader.Open(counter, env()).Plan(x.t.Context(), q)
	if err != nil {
		x.t.Fatalf("%s: %v", q.Where, err)
	}
	for _, s := range splits {
		for _, run := range s.Runs {
			for _, f := range run.Files {
				names = append(names, f.Name)
			}
		}
	}
	slices.Sort(names)
	return names, counter.Counts().Total().Bytes
}

// TestWhereSkipsManifestsByBucket: a plan with a condition on the bucket key is that of all files, held against the bucket
// of each and its keys, and reads few manifests; also when partitions have other numbers of buckets, as after a rescale,
// and when one has a number that no schema had.
func TestWhereSkipsManifestsByBucket(t *testing.T) {
	less, n := 0, 0
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 79))
		totals := [][]int{{16}, {16, 40}, {16, 5}}[seed%3]
		x := newMetaTable(t, map[string]string{"bucket": "16"})
		var live []manifest.Entry
		for i, total := range totals {
			if i > 0 {
				s, _, err := x.meta.AlterSchema(t.Context(), []schema.Change{schema.SetOption{Name: "bucket", Value: fmt.Sprint(total)}})
				if err != nil {
					t.Fatal(err)
				}
				x.schema = s
			}
			for range 4 {
				var entries []manifest.Entry
				for range 60 {
					entries = append(entries, x.entry([]string{"a", "b"}[i], r.IntN(total), total, 0, int64(r.IntN(20))*10))
				}
				for range 5 * min(1, len(live)) { // and some go
					at := r.IntN(len(live))
					gone := live[at]
					gone.Kind = manifest.Remove
					entries, live = append(entries, gone), slices.Delete(live, at, at+1)
				}
				x.commit(entries)
				for _, e := range entries {
					if e.Kind == manifest.Add {
						live = append(live, e)
					}
				}
			}
		}
		surprise := seed == 3
		if surprise {
			e := x.entry("c", 6, 7, 0, 50)
			x.commit([]manifest.Entry{e})
			live = append(live, e)
		}
		_, all := x.plan(reader.Query{})
		for range 12 {
			ids := []int64{r.Int64N(200), r.Int64N(200)}[:1+r.IntN(2)]
			where := fmt.Sprintf("id = %d", ids[0])
			if len(ids) == 2 {
				where = fmt.Sprintf("id IN (%d, %d)", ids[0], ids[1])
			}
			var want []string
			for _, e := range live {
				if slices.ContainsFunc(ids, func(id int64) bool {
					low := lowOf(t, x, e)
					key, err := binrow.NewEncoder(x.schema.Types(x.schema.KeyColumns())).AppendValues(nil, schema.Insert, []any{id})
					return err == nil && binrow.Bucket(binrow.Hash(key), e.TotalBuckets) == e.Bucket && low <= id && id <= low+9
				}) {
					want = append(want, e.File.Name)
				}
			}
			slices.Sort(want)
			got, bytes := x.plan(reader.Query{Where: where})
			// With two ids a file may match one by its keys and the other by its bucket.
			if len(ids) == 1 && !slices.Equal(got, want) || !contains(got, want) {
				t.Fatalf("seed %d, buckets %v, %s: %v, want %v", seed, totals, where, got, want)
			}
			if n++; bytes < all*2/3 {
				less++
			}
		}
	}
	t.Logf("%d of %d plans read less than two thirds of the metadata", less, n)
	if less < n/3 {
		t.Errorf("only %d of %d plans read less than two thirds of the metadata", less, n)
	}
}

func lowOf(t *testing.T, x *metaTable, e manifest.Entry) int64 {
	t.Helper()
	vals, err := binrow.Decode(e.File.MinKey, x.schema.Types(x.schema.KeyColumns()))
	if err != nil {
		t.Fatal(err)
	}
	return vals[0].(int64)
}

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// TestPlanSkipsManifestsByLevel: where batch reads leave level 0 out, manifests with nothing else are not read.
func TestPlanSkipsManifestsByLevel(t *testing.T) {
	x := newMetaTable(t, map[string]string{"bucket": "1", "merge-engine": "first-row", "manifest.merge-min-count": "1000",
		"manifest.full-compaction-threshold-size": "1 gb"})
	var deep, top []manifest.Entry
	for i := range 20 {
		deep, top = append(deep, x.entry("a", 0, 1, 2, int64(i)*10)), append(top, x.entry("a", 0, 1, 0, int64(i)*10))
	}
	x.commit(deep)
	x.commit(top)
	gone := top[0]
	gone.Kind = manifest.Remove
	snap := x.commit([]manifest.Entry{gone, x.entry("a", 0, 1, 1, 5000)})
	got, bytes := x.plan(reader.Query{})
	entries, err := x.meta.Live(t.Context(), snap, nil)
	if err != nil || len(entries) != 40 || len(got) != 21 {
		t.Fatalf("%d files, planned %d, %v", len(entries), len(got), err)
	}
	counter := storage.WithCounter(x.mem)
	if _, err := reader.Open(counter, env()).Meta().Live(t.Context(), snap, nil); err != nil {
		t.Fatal(err)
	}
	if all := counter.Counts().Total().Bytes; bytes > all*3/4 {
		t.Errorf("the plan read %d bytes, all manifests have %d", bytes, all)
	}
}
