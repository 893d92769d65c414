package lsm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// bucket is one bucket of a table on a store, and the model of what it holds.
type bucket struct {
	t      testing.TB
	r      *rand.Rand
	s      *schema.Schema
	files  Files
	part   Part
	levels *Levels
	policy Policy
	model  []row // all rows ever flushed
	seq    int64
}

func newBucket(t testing.TB, r *rand.Rand, store storage.Store, s *schema.Schema) *bucket {
	o, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	b := &bucket{t: t, r: r, s: s, part: Part{Dir: "bucket-0", Partition: binrow.EmptyRow, TotalBuckets: 1}, policy: PolicyOf(o, s.Keyed())}
	var n atomic.Int64
	b.files = Files{
		Store: store, Schema: s, Options: o, Now: fixedNow,
		NewName:          func() string { return fmt.Sprintf("data-%d.parquet", n.Add(1)) },
		NewChangelogName: func() string { return fmt.Sprintf("changelog-%d.parquet", n.Add(1)) },
		OpenSchema: func(_ context.Context, id int64) (*schema.Schema, error) {
			return nil, fmt.Errorf("no schema %d", id)
		},
	}
	if b.levels, err = NewLevels(NewKeys(s), o.NumLevels, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// batches cuts rows as several writes would have brought them.
func (b *bucket) batches(all []row) []datafile.Rows {
	var out []datafile.Rows
	for len(all) > 0 || len(out) == 0 {
		n := len(all)
		if n > 0 && b.r.IntN(2) == 0 {
			n = 1 + b.r.IntN(n)
		}
		in := rowsOf(b.t, b.r, b.s, all[:n])
		in.Seq = nil
		if !slices.ContainsFunc(all[:n], func(r row) bool { return r.kind != 0 }) && b.r.IntN(2) == 0 {
			in.Kinds = nil // inserts
		}
		out, all = append(out, in), all[n:]
	}
	return out
}

// flush writes rows, whose sequence numbers it sets, among rows of other buckets.
func (b *bucket) flush(rows []row) []manifest.DataFile {
	b.t.Helper()
	var all []row
	var sel []int32
	for i := range rows {
		for b.r.IntN(4) == 0 { // somebody else's row
			all = append(all, row{kind: 1, vals: rows[b.r.IntN(len(rows))].vals})
		}
		if rows[i].seq = b.seq + int64(i); b.s.Keyed() { // numbered among those of others
			rows[i].seq = b.seq + int64(len(all))
		}
		sel = append(sel, int32(len(all)))
		all = append(all, rows[i])
	}
	if len(sel) == len(all) && b.r.IntN(2) == 0 {
		sel = nil
	}
	made, err := b.files.Flush(b.t.Context(), b.part, b.batches(all), sel, b.seq)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.seq += int64(len(rows)); b.s.Keyed() {
		b.seq += int64(len(all) - len(rows))
	}
	b.model = append(b.model, rows...)
	if err := b.levels.Apply(Change{Added: made}); err != nil {
		b.t.Fatal(err)
	}
	return made
}

// compact does a job and takes its result over. Files that went are deleted, as expiry would.
func (b *bucket) compact(j Job) Change {
	b.t.Helper()
	c, err := b.files.Compact(b.t.Context(), b.part, j)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.levels.Apply(c); err != nil {
		b.t.Fatal(err)
	}
	live := b.live()
	for _, f := range c.Removed {
		if _, ok := live[f.Name]; !ok {
			if err := b.files.Store.Delete(b.t.Context(), b.part.Dir+"/"+f.Name); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	return c
}

func (b *bucket) live() map[string]manifest.DataFile {
	out := map[string]manifest.DataFile{}
	for _, f := range b.levels.Files() {
		out[f.Name] = f
	}
	return out
}

// objects are the names and sizes of what is on the store.
func objects(t testing.TB, s storage.Store) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for i, err := range storage.Walk(t.Context(), s, "") {
		if err != nil {
			t.Fatal(err)
		}
		out[i.Name] = i.Size
	}
	return out
}

// check holds what is on the store against the levels, and what is in the files against their metadata and the model.
func (b *bucket) check() {
	b.t.Helper()
	stored := objects(b.t, b.files.Store)
	if len(stored) != len(b.live()) {
		b.t.Fatalf("%d objects on the store, %d files in the levels", len(stored), len(b.live()))
	}
	for _, f := range b.levels.Files() {
		if size, ok := stored[b.part.Dir+"/"+f.Name]; !ok || size != f.Size {
			b.t.Fatalf("file %s has size %d on the store (%v), its metadata says %d", f.Name, size, ok, f.Size)
		}
		b.checkFile(f)
	}
	var runs []Run
	for _, r := range b.levels.Runs() {
		runs = append(runs, b.open(r.Files))
	}
	m := Merge(MergeSpec{Schema: b.s, KeyCols: b.s.KeyColumns(), DropDeletes: true, BatchRows: 1 + b.r.IntN(200)}, runs)
	got := drain(b.t, m, nil)
	if diff := diffRows(got, model(b.s, [][]row{b.model}, true)); diff != "" {
		b.t.Fatalf("the bucket: %s", diff)
	}
	if err := m.Close(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bucket) open(files []manifest.DataFile) Run {
	return b.files.OpenRun(b.t.Context(), b.part, files, b.s, b.all())
}

// checkFile holds a file's metadata against its rows.
func (b *bucket) checkFile(f manifest.DataFile) {
	b.t.Helper()
	rows := drain(b.t, b.open([]manifest.DataFile{f}), nil)
	if int64(len(rows)) != f.Rows {
		b.t.Fatalf("file %s has %d rows, its metadata says %d", f.Name, len(rows), f.Rows)
	}
	lo, hi, del := rows[0].seq, rows[0].seq, int64(0)
	for i, x := range rows {
		lo, hi = min(lo, x.seq), max(hi, x.seq)
		if x.kind == 1 || x.kind == 3 {
			del++
		}
		if i > 0 && compareKeys(rows[i-1].key(b.s), x.key(b.s)) >= 0 {
			b.t.Fatalf("file %s: keys do not ascend at row %d", f.Name, i)
		}
	}
	if f.MinSeq != lo || f.MaxSeq != hi || f.DeleteRows == nil || *f.DeleteRows != del || f.SchemaID != b.s.ID {
		b.t.Fatalf("file %s: metadata %+v does not fit sequence numbers %d to %d and %d deletes", f.Name, f, lo, hi, del)
	}
	if del > 0 && f.Level == b.policy.NumLevels-1 {
		b.t.Fatalf("file %s on the highest level has %d deletes", f.Name, del)
	}
	b.checkStats(f, rows)
	enc := binrow.NewEncoder(b.s.Types(b.s.KeyColumns()))
	for what, want := range map[string][]byte{"smallest": f.MinKey, "largest": f.MaxKey} {
		x := rows[0]
		if what == "largest" {
			x = rows[len(rows)-1]
		}
		key, err := enc.AppendValues(nil, schema.Insert, x.key(b.s))
		if err != nil {
			b.t.Fatal(err)
		}
		if got := binrow.Serialize(key, len(b.s.KeyColumns())); !slices.Equal(got, want) {
			b.t.Fatalf("file %s: %s key is %x, its metadata says %x", f.Name, what, got, want)
		}
	}
}

// checkStats holds the column statistics of a file against its rows. Those of strings may be cut.
func (b *bucket) checkStats(f manifest.DataFile, rows []row) {
	b.t.Helper()
	if !f.ValueStatsAll {
		return // a test of its own
	}
	types := b.s.Types(b.all())
	lo, err := binrow.Decode(f.ValueStats.Min, types)
	if err != nil {
		b.t.Fatal(err)
	}
	hi, err := binrow.Decode(f.ValueStats.Max, types)
	if err != nil {
		b.t.Fatal(err)
	}
	for c := range types {
		nulls, touchedLo, touchedHi := int64(0), false, false
		for _, x := range rows {
			v := x.vals[c]
			if v == nil {
				nulls++
				continue
			}
			if lo[c] == nil || hi[c] == nil {
				continue
			}
			l, h := compareCells(lo[c], v), compareCells(v, hi[c])
			if l > 0 || h > 0 {
				b.t.Fatalf("file %s: column %s has the value %v outside of its statistics %v to %v", f.Name, b.s.Fields[c].Name, v, lo[c], hi[c])
			}
			touchedLo, touchedHi = touchedLo || l == 0, touchedHi || h == 0
		}
		if _, text := lo[c].(string); lo[c] != nil && !text && (!touchedLo || !touchedHi) {
			b.t.Fatalf("file %s: no row has the statistics %v or %v of column %s", f.Name, lo[c], hi[c], b.s.Fields[c].Name)
		}
		if n := f.ValueStats.NullCounts[c]; n == nil || *n != nulls {
			b.t.Fatalf("file %s: column %s has %d nulls, not what its statistics say", f.Name, b.s.Fields[c].Name, nulls)
		}
	}
}

func (b *bucket) all() []int {
	all := make([]int, len(b.s.Fields))
	for i := range all {
		all[i] = i
	}
	return all
}

// randRows gives rows whose keys come from a pool.
func randRows(r *rand.Rand, s *schema.Schema, pool [][]any, n int) []row {
	rows := make([]row, n)
	for i := range rows {
		rows[i] = randRow(r, s, pool[r.IntN(len(pool))], 0)
	}
	return rows
}

func randPool(r *rand.Rand, s *schema.Schema, n int) [][]any {
	pool := make([][]any, n)
	for i := range pool {
		for _, t := range s.Types(s.KeyColumns()) {
			pool[i] = append(pool[i], randValue(r, t))
		}
	}
	slices.SortFunc(pool, compareKeys)
	return pool
}

// readAll reads the rows of append files.
func (b *bucket) readAll(files []manifest.DataFile) []row {
	b.t.Helper()
	return drain(b.t, b.open(files), func(datafile.Rows) {})
}
