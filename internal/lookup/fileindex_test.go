package lookup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestGoldenFileIndex: the filters that Paimon's library wrote have all values of the file, and hardly any other.
func TestGoldenFileIndex(t *testing.T) {
	root := filepath.Join("..", "testdata", "golden")
	st, err := storage.NewLocal(filepath.Join(root, "golden.db", "append_bloom"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "golden.db", "append_bloom", "schema", "schema-0"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	index, err := filepath.Glob(filepath.Join(root, "golden.db", "append_bloom", "bucket-0", "*.index"))
	if err != nil || len(index) != 1 {
		t.Fatal(index, err)
	}
	name := strings.TrimSuffix(filepath.Base(index[0]), indexTail)
	x, err := OpenFileIndex(t.Context(), st, "bucket-0/"+name, &manifest.DataFile{Name: name, ExtraFiles: []string{name + indexTail}}, s)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var filters []*Filter
	for _, f := range s.Fields {
		k, err := x.Filter(f, keyFilter)
		if err != nil || k == nil {
			t.Fatal(f.Name, k, err)
		}
		filters = append(filters, k)
		if small, err := x.Filter(f, k.bytes-1); small != nil || err != nil {
			t.Errorf("a filter of more bytes than are wanted is given: %v", err)
		}
		if f.Type.Root = schema.Double; true {
			if other, err := x.Filter(f, keyFilter); other != nil || err != nil {
				t.Errorf("a filter of %s is given for another type: %v", f.Name, err)
			}
		}
	}
	rows, err := os.ReadFile(filepath.Join(root, "append_bloom.expect", "expected.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	wrong, n := 0, 0
	for lines := bufio.NewScanner(bytes.NewReader(rows)); lines.Scan(); n++ {
		var row struct {
			K int32
			V string
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if !filters[0].May(row.K) || !filters[1].May(row.V) {
			t.Errorf("the filters do not have %+v", row)
		}
		if filters[0].May(row.K+1_000_000) || filters[1].May(row.V+" or not") {
			wrong++
		}
	}
	if n < 10 || wrong > n/2 {
		t.Errorf("%d of %d other rows pass", wrong, n)
	}
}

// TestFiltersSpareReads: of a file whose filters do not have the keys nothing is read but its footer and index, and with filters
// answers are those without.
func TestFiltersSpareReads(t *testing.T) {
	r := newRand(t)
	for _, where := range []string{"100 kb", "1 b"} {
		for i, keys := range [][]string{{"k1 BIGINT"}, {"k1 INT", "k2 STRING"}, {"k1 DOUBLE"}, {"k1 STRING"}} {
			var names []string
			for _, k := range keys {
				names = append(names, k[:2])
			}
			store := storage.WithCounter(storage.NewMem())
			options := map[string]string{
				"file-index.bloom-filter.columns": strings.Join(names, ","), "file-index.bloom-filter.k1.items": "5000",
				"file-index.bloom-filter.k1.fpp": "0.001", "file-index.in-manifest-threshold": where,
			}
			b := newBucket(t, r, store, names, options, append(append([]string{}, keys...), "a INT", "b STRING")...)
			var even, odd []int
			for n := range 3000 {
				even, odd = append(even, 2*n), append(odd, 2*n+1)
			}
			b.flush(even, adds)
			cache := NewCache(CacheConfig{})
			what := fmt.Sprint(keys, where)
			checkRows(t, what, b, b.table(cache), []int{2, 100, 3001, 5998, 5000})
			bk, err := b.table(cache).Bucket(b.part, b.levels.Runs(), nil)
			if err != nil {
				t.Fatal(err)
			}
			before := store.Counts()
			found, err := bk.Rows(t.Context(), b.keyColumns(odd[10:40]), 30, []int{0})
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				continue // parts of its keys are there
			}
			if read := store.Counts().Since(before).Of(storage.OpRead).Calls; found.Rows.N != 0 || (read > 0) != (i == 2) {
				t.Errorf("%s: %d rows, %d reads for keys that are not there", what, found.Rows.N, read)
			}
			if err := cache.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
