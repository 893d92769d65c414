package export

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/storage"
)

const golden = "../internal/testdata/golden/"

// goldenTable loads a table that Paimon's Java library wrote.
func goldenTable(t *testing.T, name string) *storage.Mem {
	t.Helper()
	mem := storage.NewMem()
	root := os.DirFS(golden + "golden.db/" + name)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		return mem.Put(context.Background(), path, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	return mem
}

// canonical gives rows in JSON lines with their keys sorted.
func canonical(t *testing.T, rows []string) []string {
	t.Helper()
	out := make([]string, len(rows))
	for i, row := range rows {
		var v map[string]any
		if err := json.Unmarshal([]byte(row), &v); err != nil {
			t.Fatalf("%s: %v", row, err)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(data)
	}
	slices.Sort(out)
	return out
}

// TestGolden exports the tables that Paimon's Java library wrote. Tables that are fully compacted, and append tables,
// have the rows that Paimon reads.
func TestGolden(t *testing.T) {
	for name, want := range map[string]string{
		"append_only": "rows", "append_unaware": "rows", "pk_thin": "level", "pk_changelog_full_compaction": "level",
		"pk_changelog_input": "level", "pk_changelog_lookup": "level",
		"pk_fixed": `column "ts3"`, "pk_partitioned": `partition column "dt" has field id 0`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			mem := goldenTable(t, name)
			tab := manifest.Open(mem, manifest.Env{})
			s, err := tab.LatestSchema(ctx)
			if err != nil {
				t.Fatal(err)
			}
			w := openWorld(t, mem, s)
			e := New(tab, NewDirTarget(mem), Settings{Env: w.env()})
			if strings.Contains(want, `"`) {
				if _, err := e.Publish(ctx, 0); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
					t.Fatalf("error %v, want one about %s", err, want)
				}
				return
			}
			first, err := tab.Earliest(ctx)
			if err != nil {
				t.Fatal(err)
			}
			last, err := tab.Latest(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for id := first.ID; id <= last.ID; id++ {
				w.publish(e, id)
			}
			live, err := tab.Live(ctx, last, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.track(live)
			w.check()
			rows := scanned(t, mem, ScanSpec{})
			if n := w.rows(); len(rows) != n {
				t.Errorf("%d rows, want %d", len(rows), n)
			}
			if want != "rows" {
				return
			}
			f, err := os.Open(golden + name + ".expect/expected.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var expected []string
			for sc := bufio.NewScanner(f); sc.Scan(); {
				expected = append(expected, sc.Text())
			}
			if got, want := canonical(t, rows), canonical(t, expected); !slices.Equal(got, want) {
				t.Errorf("rows\n got %v\nwant %v", got, want)
			}
		})
	}
}

func (w *world) rows() (n int) {
	for _, e := range w.live {
		n += int(e.File.Rows)
	}
	return n
}
