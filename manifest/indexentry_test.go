package manifest

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"
)

// goldenIndex is an index line of files.jsonl.
type goldenIndex struct {
	Snapshot  int64
	List      string
	Bucket    int
	Partition string
	IndexType IndexType
	FileName  string
	FileSize  int64
	RowCount  int64
	DvRanges  []struct {
		DataFile       string
		Offset, Length int64
		Cardinality    *int64
	}
}

// TestGoldenIndexFiles: index manifests are read as Paimon reads them, and written with the same schema.
func TestGoldenIndexFiles(t *testing.T) {
	for _, table := range []string{"pk_deletion_vectors", "pk_deletion_vectors64", "pk_dynamic_bucket"} {
		want := map[int64][]string{}
		f, err := os.Open(filepath.Join(goldenDir, table+".expect", "files.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			var l goldenIndex
			if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			if l.List != "index" {
				continue
			}
			part, err := hex.DecodeString(l.Partition)
			if err != nil {
				t.Fatal(err)
			}
			e := IndexEntry{Partition: part, Bucket: l.Bucket, Type: l.IndexType, Name: l.FileName, Size: l.FileSize, Rows: l.RowCount}
			for _, r := range l.DvRanges {
				e.Vectors = append(e.Vectors, VectorRange{DataFile: r.DataFile, Offset: r.Offset, Length: r.Length, Cardinality: r.Cardinality})
			}
			want[l.Snapshot] = append(want[l.Snapshot], toJSON(t, e))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		tab, n := openGolden(t, table), 0
		for _, s := range goldenSnapshots(t, tab) {
			entries, lossy, err := tab.indexFiles(t.Context(), s)
			if err != nil || lossy {
				t.Fatal(lossy, err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, toJSON(t, e))
			}
			slices.Sort(got)
			slices.Sort(want[s.ID])
			if !slices.Equal(got, want[s.ID]) {
				t.Errorf("%s snapshot %d: %s\nwant %s", table, s.ID, got, want[s.ID])
			}
			n += len(entries)
			data, err := encodeIndex("i", entries)
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := decodeIndex("i", data)
			if err != nil || toJSON(t, again) != toJSON(t, entries) && len(entries) > 0 {
				t.Errorf("changed by writing: %v", err)
			}
			if s.IndexManifest == nil {
				continue
			}
			theirs, err := os.ReadFile(filepath.Join(goldenDir, "golden.db", table, "manifest", *s.IndexManifest))
			if err != nil {
				t.Fatal(err)
			}
			c := &container{name: "theirs", data: theirs}
			if text, err := c.header(); err != nil || text != indexSchemaText {
				t.Errorf("%s: the schema is not ours: %s %v", table, text, err)
			}
		}
		if n == 0 {
			t.Errorf("%s has no index files", table)
		}
	}
}

// TestIndexManifestOfNewerPaimon: an index manifest of Paimon 1.4.2, which has a field more. Where that is null, as in all
// tables without an index over the whole table, the entries can be written again; where it is not, they would lose it.
func TestIndexManifestOfNewerPaimon(t *testing.T) {
	data, err := os.ReadFile("testdata/index-manifest-paimon-1.4.2")
	if err != nil {
		t.Fatal(err)
	}
	c := &container{name: "theirs", data: data}
	text, err := c.header()
	if err != nil || !strings.Contains(text, "_GLOBAL_INDEX") {
		t.Fatalf("%v: %s", err, text)
	}
	entries, lossy, err := decodeIndex("i", data)
	if err != nil || lossy || len(entries) == 0 || entries[0].Type != HashIndex {
		t.Errorf("%d entries, lossy %v: %v", len(entries), lossy, err)
	}
	newer, err := avro.Parse(strings.Replace(indexSchemaText, `{"name":"_EXTERNAL_PATH"`,
		`{"name":"_GLOBAL_INDEX","type":["null",{"type":"record","name":"g","fields":[{"name":"at","type":"long"},{"name":"meta","type":["null","bytes"]}]}],"default":null},{"name":"_EXTERNAL_PATH"`, 1))
	if err != nil {
		t.Fatal(err)
	}
	type global struct {
		At   int64   `avro:"at"`
		Meta *[]byte `avro:"meta"`
	}
	type record struct {
		Version   int32           `avro:"_VERSION"`
		Kind      int32           `avro:"_KIND"`
		Partition []byte          `avro:"_PARTITION"`
		Bucket    int32           `avro:"_BUCKET"`
		Type      string          `avro:"_INDEX_TYPE"`
		Name      string          `avro:"_FILE_NAME"`
		Size      int64           `avro:"_FILE_SIZE"`
		Rows      int64           `avro:"_ROW_COUNT"`
		Vectors   *[]*wireVectors `avro:"_DELETIONS_VECTORS_RANGES"`
		External  *string         `avro:"_EXTERNAL_PATH"`
		Global    *global         `avro:"_GLOBAL_INDEX"`
	}
	some := []byte("x")
	data, err = encodeContainer("i", newer, []record{
		{Version: 1, Partition: []byte{0}, Type: "HASH", Name: "a"},
		{Version: 1, Partition: []byte{0}, Type: "other", Name: "b", Global: &global{7, &some}},
		{Version: 1, Partition: []byte{0}, Type: "HASH", Name: "c"},
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, lossy, err = decodeIndex("i", data)
	if err != nil || !lossy || len(entries) != 3 || entries[2].Name != "c" {
		t.Errorf("%+v, lossy %v: %v", entries, lossy, err)
	}
}

// FuzzIndexManifest: any bytes give entries that survive being written again, or an error of a known kind.
func FuzzIndexManifest(f *testing.F) {
	seedFiles(f, "manifest/index-manifest-*", "")
	f.Add(hostile("null", 1<<40, []byte{4, 0, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _, err := decodeIndex("i", data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := encodeIndex("i", entries)
		if err != nil {
			t.Fatal(err)
		}
		entries2, _, err := decodeIndex("i", again)
		if err != nil || toJSON(t, entries) != toJSON(t, entries2) {
			t.Fatalf("changed by writing: %v", err)
		}
	})
}
