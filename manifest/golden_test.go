package manifest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

const goldenDir = "../internal/testdata/golden"

var goldenTables = []string{"pk_fixed", "pk_partitioned", "pk_thin", "append_only", "append_unaware",
	"pk_overwrite", "append_row_tracking", "append_bloom", "pk_deletion_vectors", "pk_deletion_vectors64", "pk_dynamic_bucket"}

// goldenLine is one line of files.jsonl: a manifest entry as Paimon decoded it.
type goldenLine struct {
	Snapshot      int64    `json:"snapshot"`
	List          string   `json:"list"`
	Manifest      string   `json:"manifest"`
	Kind          string   `json:"kind"`
	Partition     string   `json:"partition"`
	Bucket        int      `json:"bucket"`
	TotalBuckets  int      `json:"totalBuckets"`
	FileName      string   `json:"fileName"`
	FileSize      int64    `json:"fileSize"`
	RowCount      int64    `json:"rowCount"`
	Level         int      `json:"level"`
	MinSeq        int64    `json:"minSequenceNumber"`
	MaxSeq        int64    `json:"maxSequenceNumber"`
	SchemaID      int64    `json:"schemaId"`
	DeleteRows    *int64   `json:"deleteRowCount"`
	Source        *string  `json:"fileSource"`
	FirstRowID    *int64   `json:"firstRowId"`
	StatsCols     []string `json:"valueStatsCols"`
	WriteCols     []string `json:"writeCols"`
	ExtraFiles    []string `json:"extraFiles"`
	EmbeddedBytes *int     `json:"embeddedIndexBytes"`
	MinKey        string   `json:"minKey"`
	MaxKey        string   `json:"maxKey"`
	KeyStats      struct {
		Min   string   `json:"minHex"`
		Max   string   `json:"maxHex"`
		Nulls []*int64 `json:"nullCounts"`
	} `json:"keyStats"`
	ValueStats struct {
		Min   string   `json:"minHex"`
		Max   string   `json:"maxHex"`
		Nulls []*int64 `json:"nullCounts"`
	} `json:"valueStats"`
}

// lineOf describes an entry as files.jsonl does.
func lineOf(snapshot int64, list, manifest string, e *Entry) goldenLine {
	f := &e.File
	l := goldenLine{
		Snapshot: snapshot, List: list, Manifest: manifest, Kind: "ADD", Partition: hex.EncodeToString(e.Partition),
		Bucket: e.Bucket, TotalBuckets: e.TotalBuckets, FileName: f.Name, FileSize: f.Size, RowCount: f.Rows, Level: f.Level,
		MinSeq: f.MinSeq, MaxSeq: f.MaxSeq, SchemaID: f.SchemaID, DeleteRows: f.DeleteRows, FirstRowID: f.FirstRowID,
		WriteCols: f.WriteCols, ExtraFiles: f.ExtraFiles, MinKey: hex.EncodeToString(f.MinKey), MaxKey: hex.EncodeToString(f.MaxKey),
	}
	if e.Kind == Remove {
		l.Kind = "DELETE"
	}
	if f.Source != nil {
		s := map[FileSource]string{FromAppend: "APPEND", FromCompact: "COMPACT"}[*f.Source]
		l.Source = &s
	}
	if !f.ValueStatsAll {
		l.StatsCols = f.ValueStatsCols
	}
	if f.EmbeddedIndex != nil {
		n := len(f.EmbeddedIndex)
		l.EmbeddedBytes = &n
	}
	l.KeyStats.Min, l.KeyStats.Max, l.KeyStats.Nulls = hex.EncodeToString(f.KeyStats.Min), hex.EncodeToString(f.KeyStats.Max), f.KeyStats.NullCounts
	l.ValueStats.Min, l.ValueStats.Max, l.ValueStats.Nulls = hex.EncodeToString(f.ValueStats.Min), hex.EncodeToString(f.ValueStats.Max), f.ValueStats.NullCounts
	return l
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func openGolden(t testing.TB, table string) *Table {
	t.Helper()
	store, err := storage.NewLocal(filepath.Join(goldenDir, "golden.db", table))
	if err != nil {
		t.Fatal(err)
	}
	return Open(store, testEnv(1))
}

func goldenSnapshots(t testing.TB, tab *Table) []*Snapshot {
	t.Helper()
	ctx := context.Background()
	first, err := tab.Earliest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	last, err := tab.Latest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var all []*Snapshot
	for s, err := range tab.EachSnapshot(ctx, first.ID, last.ID) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// TestGoldenEntries decodes every manifest of the golden tables and compares every field with what Paimon decoded.
func TestGoldenEntries(t *testing.T) {
	ctx := context.Background()
	for _, name := range goldenTables {
		t.Run(name, func(t *testing.T) {
			tab := openGolden(t, name)
			var got []string
			snaps := goldenSnapshots(t, tab)
			for _, s := range snaps {
				type list struct {
					what, name string
					size       *int64
				}
				lists := []list{{"delta", s.DeltaManifestList, s.DeltaManifestListSize}}
				if s.ChangelogManifestList != nil {
					lists = append(lists, list{"changelog", *s.ChangelogManifestList, s.ChangelogManifestListSize})
				}
				if s == snaps[len(snaps)-1] {
					lists = append(lists, list{"base", s.BaseManifestList, s.BaseManifestListSize})
				}
				for _, l := range lists {
					metas, err := tab.readList(ctx, l.name, l.size)
					if err != nil {
						t.Fatal(err)
					}
					for i := range metas {
						entries, lossy, err := tab.readManifest(ctx, &metas[i])
						if err != nil || lossy {
							t.Fatal(lossy, err)
						}
						for j := range entries {
							got = append(got, toJSON(t, lineOf(s.ID, l.what, metas[i].Name, &entries[j])))
						}
					}
				}
			}
			want := goldenLines(t, name)
			// The generator wrote the lists of a snapshot in an order of its own; within a list the order is the file's.
			slices.Sort(got)
			slices.Sort(want)
			if len(want) == 0 || !slices.Equal(got, want) {
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Fatalf("entry %d:\n got %s\nwant %s", i, got[i], want[i])
					}
				}
				t.Fatalf("%d entries, want %d", len(got), len(want))
			}
		})
	}
}

func goldenLines(t testing.TB, name string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(goldenDir, name+".expect", "files.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l goldenLine
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if l.List != "index" { // TestGoldenIndexFiles is about those
			lines = append(lines, toJSON(t, l))
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// rawRecords gives the header schema and the undecoded records of an Avro file.
func rawRecords(t testing.TB, name string, data []byte) (string, []byte) {
	t.Helper()
	var text string
	var raw []byte
	err := decodeContainer(name, data, func(s string) error {
		text = s
		return nil
	}, func(block []byte) ([]byte, error) {
		raw = append(raw, block...)
		return block[len(block):], nil // takes all records of the block at once
	})
	// A block with more than one record makes decodeContainer call again with nothing left; that is fine here.
	if err != nil {
		t.Fatal(err)
	}
	return text, raw
}

// TestGoldenBytes re-encodes what was decoded and compares schema text and records byte by byte with Paimon's.
func TestGoldenBytes(t *testing.T) {
	for _, name := range goldenTables {
		tab := openGolden(t, name)
		sch, err := tab.LatestSchema(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(goldenDir, "golden.db", name, "manifest")
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		metas := map[string]Meta{}
		summaries := map[string]Meta{}
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			var again []byte
			if bytes.HasPrefix([]byte(f.Name()), []byte("manifest-list-")) {
				list, err := decodeMetas(f.Name(), data)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range list {
					metas[m.Name] = m
				}
				again, err = encodeMetas(f.Name(), list)
				if err != nil {
					t.Fatal(err)
				}
			} else if bytes.HasPrefix([]byte(f.Name()), []byte("index-manifest-")) {
				entries, _, err := decodeIndex(f.Name(), data)
				if err != nil {
					t.Fatal(err)
				}
				if again, err = encodeIndex(f.Name(), entries); err != nil {
					t.Fatal(err)
				}
			} else {
				entries, _, err := decodeEntries(f.Name(), data, 0)
				if err != nil {
					t.Fatal(err)
				}
				again, err = encodeEntries(f.Name(), entries)
				if err != nil {
					t.Fatal(err)
				}
				m, err := summarize(entries, sch)
				if err != nil {
					t.Fatal(err)
				}
				m.Name, m.Size = f.Name(), int64(len(data))
				summaries[m.Name] = m
				back, _, err := decodeEntries(f.Name(), again, 0)
				if err != nil || !reflect.DeepEqual(back, entries) {
					t.Fatalf("%s/%s: changed by encoding again (%v)", name, f.Name(), err)
				}
			}
			wantText, wantRaw := rawRecords(t, f.Name(), data)
			gotText, gotRaw := rawRecords(t, f.Name(), again)
			if gotText != wantText {
				t.Fatalf("%s/%s: header schema\n got %s\nwant %s", name, f.Name(), gotText, wantText)
			}
			if !bytes.Equal(gotRaw, wantRaw) {
				t.Fatalf("%s/%s: records\n got %x\nwant %x", name, f.Name(), gotRaw, wantRaw)
			}
		}
		if len(summaries) == 0 {
			t.Fatalf("%s: no manifests", name)
		}
		for n, got := range summaries {
			want, ok := metas[n]
			if !ok {
				continue // merged away before its list was kept
			}
			if toJSON(t, got) != toJSON(t, want) {
				t.Errorf("%s/%s: summary\n got %s\nwant %s", name, n, toJSON(t, got), toJSON(t, want))
			}
		}
	}
}

// TestGoldenSnapshots reads every snapshot file and writes it again.
func TestGoldenSnapshots(t *testing.T) {
	for _, name := range goldenTables {
		tab := openGolden(t, name)
		for _, s := range goldenSnapshots(t, tab) {
			data, err := encodeSnapshot(s)
			if err != nil {
				t.Fatal(err)
			}
			orig, err := os.ReadFile(filepath.Join(goldenDir, "golden.db", name, snapshotName(s.ID)))
			if err != nil {
				t.Fatal(err)
			}
			var got, want map[string]any
			if json.Unmarshal(data, &got) != nil || json.Unmarshal(orig, &want) != nil {
				t.Fatal("not JSON")
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s snapshot %d:\n got %s\nwant %s", name, s.ID, data, orig)
			}
		}
	}
}

// TestGoldenLive compares the fold with a fold over files.jsonl, checks the row counts, and that every live file is
// where DataDir says, with the stated size.
func TestGoldenLive(t *testing.T) {
	ctx := context.Background()
	for _, name := range goldenTables {
		tab := openGolden(t, name)
		sch, err := tab.LatestSchema(ctx)
		if err != nil {
			t.Fatal(err)
		}
		opt, err := sch.ParseOptions()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range goldenSnapshots(t, tab) {
			live, err := tab.Live(ctx, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.IsSortedFunc(live, byPlace) {
				t.Fatalf("%s: live files are not ordered", name)
			}
			var rows int64
			for i := range live {
				rows += live[i].File.Rows
				dir, err := DataDir(sch, opt, live[i].Partition, live[i].Bucket)
				if err != nil {
					t.Fatal(err)
				}
				info, err := os.Stat(filepath.Join(goldenDir, "golden.db", name, dir, live[i].File.Name))
				if err != nil || info.Size() != live[i].File.Size {
					t.Fatalf("%s: %v", live[i].File.Name, err)
				}
			}
			if rows != s.TotalRecordCount {
				t.Fatalf("%s snapshot %d: %d rows in live files, %d stated", name, s.ID, rows, s.TotalRecordCount)
			}
			if _, err := buildIndex(sch, live); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGoldenIndex follows each golden table by deltas and ends with the index of its latest snapshot.
func TestGoldenIndex(t *testing.T) {
	ctx := context.Background()
	for _, name := range goldenTables {
		tab := openGolden(t, name)
		var sch *schema.Schema
		sch, err := tab.LatestSchema(ctx)
		if err != nil {
			t.Fatal(err)
		}
		x := newIndex(sch)
		for _, s := range goldenSnapshots(t, tab) {
			entries, err := tab.Delta(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			c, err := x.plan(entries, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.try(c); err != nil {
				t.Fatalf("%s snapshot %d: %v", name, s.ID, err)
			}
			live, err := tab.Live(ctx, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			full, err := buildIndex(sch, live)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(x.files, full.files) || !reflect.DeepEqual(x.levels, full.levels) || !reflect.DeepEqual(x.totals, full.totals) {
				t.Fatalf("%s snapshot %d: following deltas and reading all differ", name, s.ID)
			}
		}
	}
}
