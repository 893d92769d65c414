package manifest

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
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
