package reader

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// goldenCopy copies a golden table into memory, with more options in each of its schemas.
func goldenCopy(t *testing.T, name string, options map[string]string) *storage.Mem {
	t.Helper()
	st := storage.NewMem()
	dir := filepath.Join(goldenDir, "golden.db", name)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if strings.Contains(rel, "schema-") {
			var m map[string]any
			if err := json.Unmarshal(data, &m); err != nil {
				return err
			}
			opts := m["options"].(map[string]any)
			for k, v := range options {
				opts[k] = v
			}
			if data, err = json.Marshal(m); err != nil {
				return err
			}
		}
		return st.Put(t.Context(), filepath.ToSlash(rel), data)
	})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func tailRows(t *testing.T, r *Reader, start Start) []string {
	t.Helper()
	var out []string
	for c, err := range r.Tail(t.Context(), TailSpec{From: start}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec == nil {
			continue
		}
		for i := range int(c.Rec.NumRows()) {
			kind := schema.Insert
			if c.RowKinds != nil {
				kind = c.RowKinds[i]
			}
			out = append(out, kind.String()+goldenRow(c.Rec, i))
		}
	}
	return out
}

// TestStreamingReadOverwrite: with the option a stream takes back what an OVERWRITE replaced.
func TestStreamingReadOverwrite(t *testing.T) {
	r := Open(goldenCopy(t, "pk_overwrite", map[string]string{"streaming-read-overwrite": "true"}), testEnv())
	got := tailRows(t, r, Start{Mode: FromSnapshot, Snapshot: 3})
	// Snapshot 3 replaced partition b; snapshot 4 is an append.
	want := []string{
		`-D{"k":"1","p":"b","v":"b1"}`, `-D{"k":"2","p":"b","v":"b2"}`, `-D{"k":"3","p":"b","v":"b3"}`,
		`+I{"k":"2","p":"b","v":"b2-overwritten"}`, `+I{"k":"9","p":"b","v":"b9"}`, `+I{"k":"9","p":"b","v":"b9'"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	plain := Open(goldenCopy(t, "pk_overwrite", nil), testEnv())
	if got := tailRows(t, plain, Start{Mode: FromSnapshot, Snapshot: 3}); !slices.Equal(got, want[5:]) {
		t.Errorf("without the option: %q", got)
	}
}

// TestBranch reads the branch of a golden table: the snapshot it was made of.
func TestBranch(t *testing.T) {
	st := goldenCopy(t, "pk_tag_branch_consumer", nil)
	main := Open(st, testEnv())
	names, err := main.Meta().Branches(t.Context())
	if err != nil || !slices.Equal(names, []string{"b1"}) {
		t.Fatal(names, err)
	}
	b, err := OpenBranch(st, "b1", testEnv())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := scanGolden(t, b, 0), scanGolden(t, main, 1); !slices.Equal(got, want) || len(got) != 1 {
		t.Errorf("the branch has %q, its snapshot in main %q", got, want)
	}
	if got := tailRows(t, b, Start{Mode: Earliest}); len(got) != 1 {
		t.Errorf("changes of the branch: %q", got)
	}
	tags, err := b.Meta().Tags(t.Context())
	if err != nil || len(tags) != 1 || tags["tag-at-1"] == nil {
		t.Errorf("tags of the branch: %v %v", tags, err)
	}
	if _, err := b.Meta().Commit(t.Context(), manifest.Commit{Kind: manifest.Append, User: "u", Identifier: 1}); !errors.Is(err, manifest.ErrUnsupported) {
		t.Errorf("commit to a branch: %v", err)
	}
	if err := b.store.Put(t.Context(), "snapshot/LATEST", nil); !errors.Is(err, storage.ErrReadOnly) {
		t.Errorf("write to a branch: %v", err)
	}
	if _, err := OpenBranch(st, "a/b", testEnv()); err == nil {
		t.Error("a branch outside of its folder")
	}
}

// TestBranchOption: a schema may name the branch it belongs to; another name is refused.
func TestBranchOption(t *testing.T) {
	st := goldenCopy(t, "pk_tag_branch_consumer", map[string]string{"branch": "b1"})
	b, err := OpenBranch(st, "b1", testEnv())
	if err != nil {
		t.Fatal(err)
	}
	if got := scanGolden(t, b, 0); len(got) != 1 {
		t.Errorf("%q", got)
	}
	for _, err := range Open(st, testEnv()).Scan(t.Context(), Query{}) {
		if err == nil || !strings.Contains(err.Error(), `"branch"`) {
			t.Errorf("the option names another branch: %v", err)
		}
	}
}

// TestVectorDamage: a damaged deletion vector is an error that names the index file, in scans and in verify.
func TestVectorDamage(t *testing.T) {
	st := goldenCopy(t, "pk_deletion_vectors", nil)
	r := Open(st, testEnv())
	snap, err := r.Meta().Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	index, err := r.Meta().IndexFiles(t.Context(), snap)
	if err != nil || len(index) == 0 {
		t.Fatal(index, err)
	}
	name := "index/" + index[0].Name
	data, err := storage.ReadAll(t.Context(), st, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Clone(data)
	data[len(data)-6] ^= 1
	if err := st.Put(t.Context(), name, data); err != nil {
		t.Fatal(err)
	}
	failed := false
	for _, err := range r.Scan(t.Context(), Query{}) {
		if err != nil {
			failed = errors.Is(err, manifest.ErrCorrupt) && strings.Contains(err.Error(), index[0].Name)
		}
	}
	if !failed {
		t.Error("the scan does not name the damaged index file")
	}
	rep, err := r.Verify(t.Context(), VerifySpec{})
	if err != nil || rep.OK() || !strings.Contains(rep.Problems[0], index[0].Name) {
		t.Errorf("verify: %v %v", rep, err)
	}
}

// TestBetweenSkipsLevel0: where batch reads leave level 0 out, changes between snapshots do, too
// (`table.source.DataTableBatchScan`).
func TestBetweenSkipsLevel0(t *testing.T) {
	for _, c := range []struct {
		table string
		mode  BetweenMode
		rows  int
	}{{"pk_first_row", Delta, 0}, {"pk_first_row", Changelog, 4}, {"pk_deletion_vectors", Delta, 0}, {"pk_fixed", Delta, -1}} {
		r := Open(goldenCopy(t, c.table, nil), testEnv())
		last, err := r.Meta().Latest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ch, err := range r.Changes(t.Context(), Between{Start: "0", End: fmt.Sprint(last.ID), Mode: c.mode}) {
			if err != nil {
				t.Fatal(err)
			}
			n += int(ch.Rec.NumRows())
		}
		if n != c.rows && (c.rows >= 0 || n == 0) {
			t.Errorf("%s, %s: %d rows, want %d", c.table, c.mode, n, c.rows)
		}
	}
}
