package reader_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// TestWrittenFileIndex writes the rows of a table that Paimon's own library wrote with the same options: the filters must
// be the same to the bit, and be found again, in a file and in the manifest.
func TestWrittenFileIndex(t *testing.T) {
	text, err := os.ReadFile("../internal/testdata/golden/append_bloom.expect/expected.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(text)), "\n")
	golden, err := storage.NewLocal(filepath.Join(goldenRoot, "append_bloom"))
	if err != nil {
		t.Fatal(err)
	}
	want := fileIndexes(t, golden)
	for name, threshold := range map[string]string{"file": "600 b", "manifest": "100 kb"} {
		t.Run(name, func(t *testing.T) {
			was, err := reader.Open(golden, env()).Meta().LatestSchema(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			options := maps.Clone(was.Options)
			delete(options, "page-size")
			delete(options, "write-buffer-size")
			options["file-index.in-manifest-threshold"] = threshold
			cols, err := schema.ParseColumns("k INT, v STRING")
			if err != nil {
				t.Fatal(err)
			}
			s, err := schema.New(schema.Spec{Columns: cols, Options: options})
			if err != nil {
				t.Fatal(err)
			}
			x := &randomTable{store: storage.NewMem(), schema: s}
			if err := engine.Create(t.Context(), x.store, s); err != nil {
				t.Fatal(err)
			}
			x.commit(t, rows...)
			got := fileIndexes(t, x.store)
			if len(got) != 2 || !maps.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("indexes of %v, want %v", slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
			}
			seen := &opens{Store: x.store}
			if got, _ := scanWhere(t, seen, reader.Query{Where: "k = 103"}); len(got) != 0 || slices.ContainsFunc(seen.names, func(n string) bool { return strings.HasSuffix(n, ".parquet") }) {
				t.Errorf("%v, %v opened", got, seen.names)
			}
			if got, _ := scanWhere(t, x.store, reader.Query{Where: "k = 102 AND v = 'v34'"}); len(got) != 1 {
				t.Errorf("%v", got)
			}
		})
	}
}

// fileIndexes gives the filters of a table's only file by column.
func fileIndexes(t *testing.T, store storage.Store) map[string][]byte {
	t.Helper()
	splits, err := reader.Open(store, env()).Plan(t.Context(), reader.Query{})
	if err != nil || len(splits) != 1 {
		t.Fatalf("%d splits, %v", len(splits), err)
	}
	f := splits[0].Runs[0].Files[0]
	data := f.EmbeddedIndex
	if data == nil {
		if len(f.ExtraFiles) != 1 {
			t.Fatalf("no index: %+v", f)
		}
		if data, err = storage.ReadAll(t.Context(), store, splits[0].Part.Dir+"/"+f.ExtraFiles[0], 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := indexfile.DecodeFileIndex(data, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		out[e.Column] = data[e.Start : e.Start+e.Length]
	}
	return out
}
