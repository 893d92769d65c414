package reader

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

func testEnv() Env {
	return Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}
}

const goldenDir = "../internal/testdata/golden"

// goldenTables are the tables written by Paimon's own library that calve reads so far.
var goldenTables = []string{"pk_fixed", "pk_partitioned", "pk_thin", "append_only", "append_unaware",
	"pk_sequence_field", "pk_partial_update", "pk_partial_update_seqgroup", "pk_aggregation", "pk_first_row",
	"pk_schema_evolution", "pk_changelog_input", "pk_changelog_lookup", "pk_changelog_full_compaction",
	"pk_all_types", "append_all_types", "pk_deletion_vectors", "pk_deletion_vectors64", "pk_dynamic_bucket", "append_row_tracking", "append_bloom", "pk_overwrite", "pk_tag_branch_consumer", "pk_iceberg", "pk_iceberg_dv3", "pk_postpone"}

func TestGolden(t *testing.T) {
	for _, name := range goldenTables {
		t.Run(name, func(t *testing.T) {
			st, err := storage.NewLocal(filepath.Join(goldenDir, "golden.db", name))
			if err != nil {
				t.Fatal(err)
			}
			r := Open(st, testEnv())
			t.Run("rows", func(t *testing.T) { goldenRows(t, r, name) })
			t.Run("snapshots", func(t *testing.T) { goldenSnapshots(t, r, name) })
			t.Run("changes", func(t *testing.T) { goldenChanges(t, r, name) })
			t.Run("stream", func(t *testing.T) { goldenStream(t, r) })
			t.Run("verify", func(t *testing.T) {
				rep, err := r.Verify(t.Context(), VerifySpec{Data: true, Fold: true})
				if err != nil || !rep.OK() || !rep.Folded && rep.NotFolded == "" {
					t.Fatalf("%+v %v", rep, err)
				}
			})
		})
	}
}

func lines(t *testing.T, table, file string) []json.RawMessage {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, table+".expect", file))
	if err != nil {
		t.Fatal(err)
	}
	var out []json.RawMessage
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		if len(sc.Bytes()) > 0 {
			out = append(out, slices.Clone(sc.Bytes()))
		}
	}
	return out
}

// canonical makes two texts of the same row equal: keys sorted, numbers in one form.
func canonical(t *testing.T, raw []byte) string {
	t.Helper()
	var v map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	b, err := json.Marshal(numbers(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// numbers brings the numbers in a value into one form.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}

func number(s string) string {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
		return strconv.FormatInt(i, 10)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// goldenRow writes a row in the form of the golden data, canonically.
func goldenRow(rec arrow.RecordBatch, row int) string {
	m := map[string]any{}
	for i, f := range rec.Schema().Fields() {
		m[f.Name] = goldenCell(rec.Column(i), row)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func goldenCell(c arrow.Array, row int) any {
	if c.IsNull(row) {
		return nil
	}
	switch a := c.(type) {
	case *array.Boolean:
		return a.Value(row)
	case *array.String:
		return a.Value(row)
	case *array.Binary:
		return hex.EncodeToString(a.Value(row))
	case *array.Float32:
		return number(strconv.FormatFloat(float64(a.Value(row)), 'g', -1, 32))
	case *array.Float64:
		return number(strconv.FormatFloat(a.Value(row), 'g', -1, 64))
	case *array.Decimal128:
		return a.Value(row).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Date32:
		return a.Value(row).ToTime().Format("2006-01-02")
	case *array.Timestamp:
		return a.Value(row).ToTime(a.DataType().(*arrow.TimestampType).Unit).UTC().Format("2006-01-02T15:04:05.000000000")
	case *array.Time32:
		return number(strconv.Itoa(int(a.Value(row))))
	case *array.Map: // sorted by the text of the keys
		out := [][2]any{}
		for from, to := a.ValueOffsets(row); from < to; from++ {
			out = append(out, [2]any{goldenCell(a.Keys(), int(from)), goldenCell(a.Items(), int(from))})
		}
		slices.SortFunc(out, func(a, b [2]any) int { return strings.Compare(fmt.Sprint(a[0]), fmt.Sprint(b[0])) })
		return out
	case *array.List:
		out := []any{}
		for from, to := a.ValueOffsets(row); from < to; from++ {
			out = append(out, goldenCell(a.ListValues(), int(from)))
		}
		return out
	case *array.Struct:
		out := map[string]any{}
		for i, f := range a.DataType().(*arrow.StructType).Fields() {
			out[f.Name] = goldenCell(a.Field(i), row)
		}
		return out
	}
	return number(fmt.Sprint(schema.Cell(c, row)))
}

func scanGolden(t *testing.T, r *Reader, snapshot int64) []string {
	t.Helper()
	got := []string{}
	for rec, err := range r.Scan(t.Context(), Query{Snapshot: snapshot}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			got = append(got, goldenRow(rec, i))
		}
	}
	sort.Strings(got)
	return got
}

func goldenRows(t *testing.T, r *Reader, name string) {
	var want []string
	for _, l := range lines(t, name, "expected.jsonl") {
		want = append(want, canonical(t, l))
	}
	sort.Strings(want)
	compare(t, scanGolden(t, r, 0), want)
}

func goldenSnapshots(t *testing.T, r *Reader, name string) {
	n := 0
	for _, l := range lines(t, name, "snapshots.jsonl") {
		var s struct {
			Snapshot int64
			Rows     []json.RawMessage
		}
		if err := json.Unmarshal(l, &s); err != nil {
			t.Fatal(err)
		}
		want := []string{}
		for _, row := range s.Rows {
			want = append(want, canonical(t, row))
		}
		sort.Strings(want)
		compare(t, scanGolden(t, r, s.Snapshot), want)
		n++
	}
	if n == 0 {
		t.Fatal("no snapshots")
	}
}

// goldenChanges compares the order of changes within each bucket of each partition; between buckets there is none.
func goldenChanges(t *testing.T, r *Reader, name string) {
	s, err := r.Meta().LatestSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for _, l := range lines(t, name, "changes.jsonl") {
		var c struct {
			Snapshot int64
			Kind     string
			Bucket   int
			Row      json.RawMessage
		}
		if err := json.Unmarshal(l, &c); err != nil {
			t.Fatal(err)
		}
		row := canonical(t, c.Row)
		k := fmt.Sprintf("%d/%d/%s", c.Snapshot, c.Bucket, partitionOf(t, s, row))
		want[k] = append(want[k], c.Kind+row)
	}
	got := map[string][]string{}
	for c, err := range r.Tail(t.Context(), TailSpec{From: Start{Mode: FromSnapshot, Snapshot: 1}}) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Rec == nil {
			continue
		}
		bucket := c.Bucket[strings.LastIndex(c.Bucket, "-")+1:]
		if bucket == "postpone" {
			bucket = "-2"
		}
		for i := range int(c.Rec.NumRows()) {
			kind := schema.Insert
			if c.RowKinds != nil {
				kind = c.RowKinds[i]
			}
			row := goldenRow(c.Rec, i)
			k := fmt.Sprintf("%d/%s/%s", c.Snapshot, bucket, partitionOf(t, s, row))
			got[k] = append(got[k], kind.String()+row)
		}
	}
	if len(want) == 0 || len(got) != len(want) {
		t.Fatalf("%d groups of changes, want %d", len(got), len(want))
	}
	for k := range want {
		t.Run(k, func(t *testing.T) { compare(t, got[k], want[k]) })
	}
}

func partitionOf(t *testing.T, s *schema.Schema, row string) string {
	var m map[string]any
	if err := json.Unmarshal([]byte(row), &m); err != nil {
		t.Fatal(err)
	}
	p := ""
	for _, k := range s.PartitionKeys {
		p += fmt.Sprintf("%v|", m[k])
	}
	return p
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	t.Errorf("%d rows, want %d", len(got), len(want))
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			if i < len(got) {
				t.Logf("got  %s", got[i])
			}
			if i < len(want) {
				t.Logf("want %s", want[i])
			}
			return
		}
	}
}

// goldenStream folds what tables of Java's tell, as they tell it and with rows before changes computed.
func goldenStream(t *testing.T, r *Reader) {
	for _, images := range []bool{false, true} {
		rep, err := r.VerifyStream(t.Context(), StreamSpec{BeforeImage: images})
		if errors.Is(err, ErrQuery) {
			t.Logf("before images %v: %v", images, err)
			continue
		}
		if err != nil || !rep.OK() || rep.Compared+rep.Waiting == 0 {
			text, _ := json.Marshal(rep)
			t.Errorf("before images %v: %v\n%s", images, err, text)
		}
	}
}
