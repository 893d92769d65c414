package datafile

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// goldenTables were written by Paimon 1.3.1: those every package has, and one that only matters here.
var goldenTables = map[string]string{
	"pk_fixed": "../testdata/golden", "pk_partitioned": "../testdata/golden", "pk_thin": "../testdata/golden",
	"append_only": "../testdata/golden", "append_unaware": "../testdata/golden",
	"pk_all_types": "../testdata/golden", "append_all_types": "../testdata/golden", "pk_schema_evolution": "testdata/paimon",
}

// goldenFile is a line of files.jsonl.
type goldenFile struct {
	Snapshot       int64           `json:"snapshot"`
	List           string          `json:"list"`
	Kind           string          `json:"kind"`
	Bucket         int             `json:"bucket"`
	FileName       string          `json:"fileName"`
	FileSize       int64           `json:"fileSize"`
	RowCount       int64           `json:"rowCount"`
	Level          int             `json:"level"`
	MinSeq         int64           `json:"minSequenceNumber"`
	MaxSeq         int64           `json:"maxSequenceNumber"`
	SchemaID       int64           `json:"schemaId"`
	DeleteRowCount int64           `json:"deleteRowCount"`
	FileSource     string          `json:"fileSource"`
	ValueStatsCols []string        `json:"valueStatsCols"`
	MinKey, MaxKey string          // hex
	KeyStats       goldenStats     `json:"keyStats"`
	ValueStats     goldenStats     `json:"valueStats"`
	Ignored        json.RawMessage `json:"extraFiles"`
}

type goldenStats struct {
	Min        map[string]any `json:"min"`
	Max        map[string]any `json:"max"`
	NullCounts []*int64       `json:"nullCounts"`
}

// jsonLines decodes a file of one JSON value a line.
func jsonLines[T any](t *testing.T, name string) []T {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var v T
		d := json.NewDecoder(bytes.NewReader(sc.Bytes()))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, v)
	}
	return out
}

// goldenSchema reads a table's schema.
func goldenSchema(t *testing.T, table string, id int64) *schema.Schema {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenTables[table], "golden.db", table, "schema", fmt.Sprintf("schema-%d", id)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// addedFiles are the distinct files that a table's deltas add.
func addedFiles(t *testing.T, table string) []goldenFile {
	t.Helper()
	var out []goldenFile
	for _, f := range jsonLines[goldenFile](t, filepath.Join(goldenTables[table], table+".expect", "files.jsonl")) {
		if f.List == "delta" && f.Kind == "ADD" && strings.HasSuffix(f.FileName, ".parquet") {
			out = append(out, f)
		}
	}
	return out
}

func readGolden(t *testing.T, table string, f goldenFile, want *schema.Schema, keyed bool) ([]byte, Rows) {
	t.Helper()
	var path string
	err := filepath.Walk(filepath.Join(goldenTables[table], "golden.db", table), func(p string, _ os.FileInfo, err error) error {
		if filepath.Base(p) == f.FileName {
			path = p
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatalf("%s: no file %s (%v)", table, f.FileName, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readFile(b, goldenSchema(t, table, f.SchemaID), ReadSpec{Schema: want, Cols: allColumns(want), KeyValue: keyed, BatchRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	return b, concat(t, rows, len(want.Fields))
}

// TestGoldenFiles reads Paimon's data files, writes the same rows again and compares what goes into the manifest.
func TestGoldenFiles(t *testing.T) {
	for table := range goldenTables {
		t.Run(table, func(t *testing.T) {
			files := addedFiles(t, table)
			if len(files) == 0 {
				t.Fatal("no files")
			}
			for _, f := range files {
				s := goldenSchema(t, table, f.SchemaID)
				b, rows := readGolden(t, table, f, s, s.Keyed())
				if int64(len(b)) != f.FileSize || int64(rows.N) != f.RowCount {
					t.Fatalf("%s: %d bytes and %d rows, want %d and %d", f.FileName, len(b), rows.N, f.FileSize, f.RowCount)
				}
				compareInfo(t, f, s, rows)
			}
		})
	}
}

// compareInfo writes rows with calve and compares the file's description with Paimon's.
func compareInfo(t *testing.T, f goldenFile, s *schema.Schema, rows Rows) {
	t.Helper()
	w := *s
	opts, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	cfg := WriterConfig{Schema: &w, Keyed: s.Keyed(), Thin: opts.ThinMode, Stats: func(c string) schema.StatsMode { return opts.Stats(c, f.Level) }}
	b, info := writeFile(t, cfg, rows)
	if hex.EncodeToString(info.MinKey) != f.MinKey || hex.EncodeToString(info.MaxKey) != f.MaxKey {
		t.Errorf("%s: keys %x to %x, want %s to %s", f.FileName, info.MinKey, info.MaxKey, f.MinKey, f.MaxKey)
	}
	if cfg.Keyed && (info.MinSeq != f.MinSeq || info.MaxSeq != f.MaxSeq || info.DeleteRows != f.DeleteRowCount) {
		t.Errorf("%s: seq %d to %d, %d deletes; want %d to %d, %d", f.FileName, info.MinSeq, info.MaxSeq, info.DeleteRows, f.MinSeq, f.MaxSeq, f.DeleteRowCount)
	}
	keys := w.KeyColumns()
	if !cfg.Keyed {
		keys = nil
	}
	compareStats(t, f.FileName+" key", w.Names(keys), w.Types(keys), info.Key, w.Names(keys), f.KeyStats)
	order := f.ValueStatsCols
	if order == nil {
		order = s.Names(allColumns(s))
	}
	compareStats(t, f.FileName+" value", w.Names(allColumns(&w)), w.Types(allColumns(&w)), info.Value, order, f.ValueStats)
	again, err := readFile(b, &w, ReadSpec{Schema: &w, Cols: allColumns(&w), KeyValue: cfg.Keyed})
	if err != nil {
		t.Fatal(err)
	}
	sameRows(t, &w, allColumns(&w), concat(t, again, len(w.Fields)), rows)
}

// compareStats compares statistics; order names the columns that Paimon kept some of.
func compareStats(t *testing.T, what string, names []string, types []schema.Type, got []ColumnStats, order []string, want goldenStats) {
	t.Helper()
	if len(got) != len(names) {
		t.Fatalf("%s: %d statistics for %d columns", what, len(got), len(names))
	}
	for i, n := range names {
		at := slices.Index(order, n)
		if at < 0 {
			if got[i].Nulls != -1 || got[i].Min != nil || got[i].Max != nil {
				t.Errorf("%s: column %s should have no statistics, has %v", what, n, got[i])
			}
			continue
		}
		if w := want.NullCounts[at]; w == nil || got[i].Nulls != *w {
			t.Errorf("%s: column %s has %d nulls, want %v", what, n, got[i].Nulls, w)
		}
		for bound, pair := range map[string][2]any{"min": {got[i].Min, want.Min[n]}, "max": {got[i].Max, want.Max[n]}} {
			if g, w := anyText(pair[0]), jsonText(t, types[i], pair[1]); g != w {
				t.Errorf("%s: %s of %s (%s) is %s, want %s", what, bound, n, types[i], g, w)
			}
		}
	}
}

// TestGoldenRows compares the rows of level-0 files with what Paimon's streaming read gave.
func TestGoldenRows(t *testing.T) {
	type change struct {
		Snapshot int64          `json:"snapshot"`
		Kind     string         `json:"kind"`
		Bucket   int            `json:"bucket"`
		Row      map[string]any `json:"row"`
	}
	latest := map[string]int64{"pk_schema_evolution": 5}
	for table := range goldenTables {
		t.Run(table, func(t *testing.T) {
			s := goldenSchema(t, table, latest[table]) // streaming reads use the latest schema
			want := map[int64][]string{}
			for _, c := range jsonLines[change](t, filepath.Join(goldenTables[table], table+".expect", "changes.jsonl")) {
				line := fmt.Sprintf("%d %s", c.Bucket, c.Kind)
				for _, f := range s.Fields {
					line += " " + jsonText(t, f.Type, c.Row[f.Name])
				}
				want[c.Snapshot] = append(want[c.Snapshot], line)
			}
			got := map[int64][]string{}
			for _, f := range addedFiles(t, table) {
				if f.FileSource != "APPEND" {
					continue
				}
				_, rows := readGolden(t, table, f, s, s.Keyed())
				for i := range rows.N {
					kind := schema.Insert
					if s.Keyed() {
						kind = schema.RowKind(rows.Kinds[i])
					}
					line := fmt.Sprintf("%d %s", f.Bucket, kind)
					for j := range s.Fields {
						line += " " + anyText(schema.Cell(rows.Cols[j], i))
					}
					got[f.Snapshot] = append(got[f.Snapshot], line)
				}
			}
			if len(want) == 0 || len(want) != len(got) {
				t.Fatalf("%d snapshots, want %d", len(got), len(want))
			}
			for id := range want {
				slices.Sort(want[id])
				slices.Sort(got[id])
				if g, w := strings.Join(got[id], "\n"), strings.Join(want[id], "\n"); g != w {
					t.Errorf("snapshot %d: got\n%s\nwant\n%s", id, g, w)
				}
			}
		})
	}
}

// anyText is the canonical text of a cell.
func anyText(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case float32:
		return fmt.Sprintf("%08x", math.Float32bits(v))
	case float64:
		return fmt.Sprintf("%016x", math.Float64bits(v))
	case []byte:
		return hex.EncodeToString(v)
	case decimal128.Num:
		return v.BigInt().String()
	case string:
		return strconv.Quote(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = anyText(x)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case [][2]any: // sorted, as the order of a map means nothing
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = anyText(x[0]) + ":" + anyText(x[1])
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, " ") + "}"
	}
	return fmt.Sprint(v)
}

// jsonText is the same for a value as the golden files write it.
func jsonText(t *testing.T, typ schema.Type, v any) string {
	t.Helper()
	if v == nil {
		return "null"
	}
	text := fmt.Sprint(v)
	switch typ.Root {
	case schema.Array, schema.Row, schema.Map:
		return nestedText(t, typ, v)
	case schema.Char, schema.VarChar:
		return strconv.Quote(text)
	case schema.Float, schema.Double:
		bits := map[schema.Root]int{schema.Float: 32, schema.Double: 64}[typ.Root]
		f, err := strconv.ParseFloat(text, bits)
		if err != nil {
			t.Fatal(err)
		}
		if bits == 32 {
			return anyText(float32(f))
		}
		return anyText(f)
	case schema.Decimal:
		whole, frac, _ := strings.Cut(text, ".")
		n, ok := new(big.Int).SetString(whole+frac+strings.Repeat("0", typ.Scale-len(frac)), 10)
		if !ok {
			t.Fatalf("decimal %q", text)
		}
		return n.String()
	case schema.Date:
		d, err := time.Parse("2006-01-02", text)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatInt(floorDiv(d.Unix(), 86400), 10)
	case schema.Timestamp, schema.TimestampLTZ:
		d, err := time.Parse("2006-01-02T15:04:05.999999999", text)
		if err != nil {
			t.Fatal(err)
		}
		per := perSecond(typ)
		return strconv.FormatInt(d.Unix()*per+int64(d.Nanosecond())*per/1e9, 10)
	}
	return text
}

// nestedText is jsonText for nested types.
func nestedText(t *testing.T, typ schema.Type, v any) string {
	t.Helper()
	var parts []string
	switch typ.Root {
	case schema.Array:
		for _, x := range v.([]any) {
			parts = append(parts, jsonText(t, *typ.Element, x))
		}
	case schema.Row:
		for _, f := range typ.Fields {
			parts = append(parts, jsonText(t, f.Type, v.(map[string]any)[f.Name]))
		}
	case schema.Map:
		for _, x := range v.([]any) {
			pair := x.([]any)
			parts = append(parts, jsonText(t, *typ.Key, pair[0])+":"+jsonText(t, *typ.Element, pair[1]))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, " ") + "}"
	}
	return "[" + strings.Join(parts, " ") + "]"
}
