package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// seedFiles adds golden files whose path matches.
func seedFiles(f *testing.F, pattern string, skip string) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join(goldenDir, "golden.db", "*", pattern))
	if err != nil || len(names) == 0 {
		f.Fatal(pattern, err)
	}
	for _, n := range names {
		if skip != "" && strings.Contains(n, skip) {
			continue
		}
		data, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzSnapshot: any bytes give a snapshot that survives being written again, or an error of a known kind.
func FuzzSnapshot(f *testing.F) {
	seedFiles(f, "snapshot/snapshot-*", "")
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeSnapshot("s", data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		again, err := encodeSnapshot(s)
		if err != nil {
			t.Fatal(err)
		}
		s2, err := decodeSnapshot("s", again)
		if err != nil || toJSON(t, s) != toJSON(t, s2) {
			t.Fatalf("changed by writing: %s\n%s\n%v", toJSON(t, s), toJSON(t, s2), err)
		}
	})
}

// FuzzManifestList: any bytes give records that survive being written again, or an error that names the file.
func FuzzManifestList(f *testing.F) {
	seedFiles(f, "manifest/manifest-list-*", "")
	f.Add(hostile("null", 1<<40, []byte{4, 0, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		metas, err := decodeMetas("l", data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := encodeMetas("l", metas)
		if err != nil {
			t.Fatal(err)
		}
		metas2, err := decodeMetas("l", again)
		if err != nil || toJSON(t, metas) != toJSON(t, metas2) {
			t.Fatalf("changed by writing: %v", err)
		}
	})
}

// FuzzManifest: the same for manifests.
func FuzzManifest(f *testing.F) {
	seedFiles(f, "manifest/manifest-*", "manifest-list-")
	f.Add(hostile("null", 1, []byte{4, 0, 0}))
	f.Add(hostile("deflate", 1, []byte{4, 0, 0}))
	f.Add(hostile("snappy", 1, []byte{4, 0, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _, err := decodeEntries("m", data, 0)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := encodeEntries("m", entries)
		if err != nil {
			t.Fatal(err)
		}
		entries2, _, err := decodeEntries("m", again, 0)
		if err != nil || len(entries) != len(entries2) {
			t.Fatal(err)
		}
		for i := range entries {
			if idOf(&entries[i]) != idOf(&entries2[i]) || !reflect.DeepEqual(entries[i].File.DeleteRows, entries2[i].File.DeleteRows) {
				t.Fatalf("changed by writing:\n%+v\n%+v", entries[i], entries2[i])
			}
		}
	})
}

// FuzzManifestRecords feeds the record decoder without compression in the way: any bytes as a block of records.
func FuzzManifestRecords(f *testing.F) {
	names, err := filepath.Glob(filepath.Join(goldenDir, "golden.db", "pk_*", "manifest", "manifest-*-0"))
	if err != nil || len(names) == 0 {
		f.Fatal(err)
	}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		if strings.Contains(n, "manifest-list-") {
			continue
		}
		_, raw := rawRecords(f, n, data)
		f.Add(byte(1), raw)
		f.Add(byte(2), raw)
	}
	f.Fuzz(func(t *testing.T, count byte, block []byte) {
		entries, _, err := decodeEntries("m", hostile("null", int64(count), block), 1<<40)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if err == nil && len(entries) != int(count) && len(block) > 0 {
			t.Fatalf("%d entries of %d", len(entries), count)
		}
	})
}
