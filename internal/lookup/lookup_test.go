package lookup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
	"github.com/calve-io/calve/storage"
)

// kinds of rows.
var (
	adds   = []int8{0, 0, 2}
	anyRow = []int8{0, 0, 0, 2, 3}
)

// engines are tables with each merge engine.
var engines = []struct {
	options map[string]string
	cols    []string
	kinds   []int8
}{
	{nil, []string{"a INT", "b STRING"}, anyRow},
	{map[string]string{"sequence.field": "a"}, []string{"a INT", "b DECIMAL(20, 2)"}, anyRow},
	{map[string]string{"ignore-delete": "true"}, []string{"a TIMESTAMP(6)", "b STRING"}, anyRow},
	{map[string]string{"merge-engine": "first-row"}, []string{"a INT", "b STRING"}, adds},
	{map[string]string{"merge-engine": "partial-update", "fields.g.sequence-group": "b"}, []string{"a INT", "b STRING", "g INT"}, adds},
	{map[string]string{"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "max"}, []string{"a BIGINT", "b STRING"}, adds},
	{map[string]string{"merge-engine": "partial-update", "sequence.field": "a"}, []string{"a DOUBLE", "b BOOLEAN"}, adds},
}

var keyTypes = [][]string{{"k1 BIGINT"}, {"k1 INT", "k2 STRING"}, {"k1 STRING"}, {"k1 DECIMAL(30, 3)", "k2 TINYINT"}, {"k1 DOUBLE"}}

// TestRowsAsMerged holds lookups against reading and merging everything, over all merge engines, keys that are there and
// keys that are not, with and without a cache.
func TestRowsAsMerged(t *testing.T) {
	r := newRand(t)
	for round := range len(engines) {
		e := engines[round%len(engines)]
		keys := keyTypes[r.IntN(len(keyTypes))]
		options := map[string]string{"num-sorted-run.compaction-trigger": "3", "target-file-size": "100 kb"}
		for k, v := range e.options {
			options[k] = v
		}
		var names []string
		for _, k := range keys {
			names = append(names, k[:2])
		}
		if round%2 == 0 && !strings.Contains(keys[0], "DECIMAL") {
			options["file-index.bloom-filter.columns"] = names[0]
			options["file-index.bloom-filter."+names[0]+".items"] = "1000" // so few that it is often wrong
			options["file-index.in-manifest-threshold"] = []string{"1 b", "1 mb"}[r.IntN(2)]
		}
		what := fmt.Sprintf("round %d: keys %v, %v", round, keys, options)
		b := newBucket(t, r, storage.NewMem(), names, options, append(append([]string{}, keys...), e.cols...)...)
		cache := NewCache(CacheConfig{MaxFiles: 1 + r.IntN(4)})
		for range 4 {
			space := 1 + r.IntN(20_000)
			part := make([]int, 1+r.IntN(4_000)<<(r.IntN(2)*2))
			for i := range part {
				part[i] = r.IntN(space)
			}
			b.flush(part, e.kinds)
			if r.IntN(2) == 0 {
				b.compact(r.IntN(2) == 0)
			}
			asked := make([]int, 1+r.IntN(300))
			for i := range asked {
				asked[i] = r.IntN(space + space/3 + 2)
			}
			tab := b.table(nil)
			if r.IntN(2) == 0 {
				tab = b.table(cache)
			}
			checkRows(t, what, b, tab, asked)
		}
		if err := cache.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkRows(t *testing.T, what string, b *bucket, tab *Table, asked []int) {
	t.Helper()
	runs := b.levels.Runs()
	if n := b.r.IntN(len(runs)); b.r.IntN(3) == 0 {
		runs = runs[n:]
	}
	want := b.merged(runs)
	bk, err := tab.Bucket(b.part, runs, nil)
	if err != nil {
		t.Fatal(err)
	}
	cols := make([]int, len(b.s.Fields))
	for i := range cols {
		cols[i] = i
	}
	keys := b.keyColumns(asked)
	got, err := bk.Rows(t.Context(), keys, len(asked), cols)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	found := 0
	for i := range asked {
		key := text(datafile.Rows{Cols: keys}, cols[:len(keys)], i)
		have := ""
		if at := got.At[i]; at >= 0 {
			have = text(got.Rows, cols, int(at)) + fmt.Sprint(got.Rows.Seq[at], got.Rows.Kinds[at])
			found++
			if live := schema.RowKind(got.Rows.Kinds[at]).IsAdd(); live != (got.Live(i) >= 0) {
				t.Fatalf("%s: key %s of kind %d: Live gives %d", what, key, got.Rows.Kinds[at], got.Live(i))
			}
		}
		if have != want[key] {
			t.Fatalf("%s: key %s\n got %s\nwant %s", what, key, have, want[key])
		}
	}
	if found == 0 && len(asked) > 50 {
		t.Logf("%s: of %d keys none was there", what, len(asked))
	}
	// Some columns only.
	some := []int{len(cols) - 1}
	part, err := bk.Rows(t.Context(), keys, len(asked), some)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	for i := range asked {
		if part.At[i] != got.At[i] {
			t.Fatalf("%s: with one column key %d has row %d, with all %d", what, i, part.At[i], got.At[i])
		}
		if at := int(got.At[i]); at >= 0 {
			a, b := schema.Cell(part.Rows.Cols[0], at), schema.Cell(got.Rows.Cols[some[0]], at)
			if fmt.Sprintf("%#v", a) != fmt.Sprintf("%#v", b) {
				t.Fatalf("%s: key %d: %#v alone, %#v among all columns", what, i, a, b)
			}
		}
	}
}

// TestPlaces reads the rows where they are said to be.
func TestPlaces(t *testing.T) {
	r := newRand(t)
	b := newBucket(t, r, storage.NewMem(), []string{"k1"}, map[string]string{"num-sorted-run.compaction-trigger": "3", "target-file-size": "100 kb"}, "k1 BIGINT", "a INT", "b STRING")
	for range 5 {
		part := make([]int, 20_000)
		for i := range part {
			part[i] = r.IntN(50_000)
		}
		b.flush(part, anyRow)
		b.compact(false)
	}
	asked := make([]int, 500)
	for i := range asked {
		asked[i] = r.IntN(60_000)
	}
	bk, err := b.table(nil).Bucket(b.part, b.levels.Runs(), nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := b.keyColumns(asked)
	places, err := bk.Places(t.Context(), keys, len(asked))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := bk.Rows(t.Context(), keys, len(asked), []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for i, p := range places {
		at := rows.At[i]
		if (p.File == nil) != (at < 0) {
			t.Fatalf("key %d: place %+v, row %d", asked[i], p, at)
		}
		if at < 0 {
			continue
		}
		checked++
		f, err := b.files.Store.Open(t.Context(), b.part.Dir+"/"+p.File.Name)
		if err != nil {
			t.Fatal(err)
		}
		rd, err := datafile.Open(f, p.File.Name, b.s, datafile.ReadSpec{Schema: b.s, Cols: []int{0, 1, 2}, KeyValue: true, Ranges: []datafile.RowRange{{From: p.Row, To: p.Row + 1}}})
		if err != nil {
			t.Fatal(err)
		}
		one, err := rd.Next()
		if err != nil {
			t.Fatal(err)
		}
		if g, w := text(one, []int{0, 1, 2}, 0), text(rows.Rows, []int{0, 1, 2}, int(at)); g != w || one.Seq[0] != p.Seq || one.Kinds[0] != p.Kind || p.Seq != rows.Rows.Seq[at] {
			t.Fatalf("key %d: at %+v is %s (%d, %d), the row is %s", asked[i], p, g, one.Seq[0], one.Kinds[0], w)
		}
		_ = rd.Close()
	}
	if checked < 100 {
		t.Fatalf("only %d of %d keys were there", checked, len(asked))
	}
}

// TestFewReads counts what a lookup asks of the store: an object store answers each request after some time, however little it
// gives.
func TestFewReads(t *testing.T) {
	r := newRand(t)
	store := storage.WithCounter(storage.NewMem())
	b := newBucket(t, r, store, []string{"k1"}, nil, "k1 BIGINT", "a INT", "b STRING", "c DOUBLE", "d STRING")
	part := make([]int, 200_000)
	for i := range part {
		part[i] = i
	}
	b.flush(part, adds)
	cache := NewCache(CacheConfig{})
	defer cache.Close()
	bk, err := b.table(cache).Bucket(b.part, b.levels.Runs(), nil)
	if err != nil {
		t.Fatal(err)
	}
	size := b.levels.Files()[0].Size
	ask := func(what string, most int64, share int64, keys ...int) {
		t.Helper()
		before := store.Counts()
		got, err := bk.Rows(t.Context(), b.keyColumns(keys), len(keys), []int{0, 1, 2, 3, 4})
		if err != nil {
			t.Fatal(err)
		}
		c := store.Counts().Since(before)
		reads := c.Of(storage.OpRead)
		t.Logf("%s: %s of a file of %d bytes; %d rows", what, c, size, got.Rows.N)
		if reads.Calls > most || reads.Bytes > size/share {
			t.Errorf("%s: %d reads of %d bytes, at most %d of %d are wanted", what, reads.Calls, reads.Bytes, most, size/share)
		}
	}
	ask("cold", 2, 1, 77_777)
	ask("warm", 1, 1, 123_456)
	ask("not there", 0, 1, 900_000)
}

// TestRefusals: keys that are no keys of the table, and files that are not what the manifest says.
func TestRefusals(t *testing.T) {
	r := newRand(t)
	b := newBucket(t, r, storage.NewMem(), []string{"k1"}, nil, "k1 BIGINT", "a INT")
	b.flush([]int{1, 2, 3}, adds)
	runs := b.levels.Runs()
	bk, err := b.table(nil).Bucket(b.part, runs, nil)
	if err != nil {
		t.Fatal(err)
	}
	bigint := b.s.Fields[0].Type
	for _, c := range []struct {
		keys []arrow.Array
		want string
	}{
		{nil, "key has 1 columns, got 0"},
		{[]arrow.Array{schematest.Array(t, schema.Type{Root: schema.Int}, int32(1))}, `key column "k1" is int32, want int64`},
		{[]arrow.Array{schematest.Array(t, bigint, nil)}, `key column "k1" is null in row 0`},
	} {
		if _, err := bk.Rows(t.Context(), c.keys, 1, []int{0}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	other := runs[0]
	other.Files = append(other.Files[:0:0], other.Files...)
	other.Files[0].Rows++
	bk, err = b.table(nil).Bucket(b.part, append(runs[:0:0], other), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bk.Rows(t.Context(), b.keyColumns([]int{1}), 1, []int{0}); err == nil || !strings.Contains(err.Error(), "the file has 3 rows, the manifest says 4") {
		t.Errorf("a file of another number of rows: %v", err)
	}
}
