package export

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// allTypes are the columns of every type that can be exported.
const allTypes = `c_boolean BOOLEAN, c_tinyint TINYINT, c_smallint SMALLINT, c_int INT, c_bigint BIGINT, c_float FLOAT, c_double DOUBLE,
	c_decimal9 DECIMAL(9,2), c_decimal18 DECIMAL(18,4), c_decimal38 DECIMAL(38,10), c_char CHAR(4), c_varchar VARCHAR(20), c_string STRING,
	c_binary BINARY(4), c_bytes BYTES, c_date DATE, c_ts4 TIMESTAMP(4), c_ts TIMESTAMP(6), c_ltz TIMESTAMP_LTZ(6)`

// partitions are the types a table can be partitioned by, with values that are hard in one way or another.
func partitions(t testing.TB) map[string][]any {
	big, err := decimal128.FromString("99999999999999999999999999999.999999999", 38, 9)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]any{
		"BOOLEAN":          {nil, true, false},
		"TINYINT":          {nil, int8(-128), int8(127)},
		"SMALLINT":         {int16(-32768), int16(0)},
		"INT":              {nil, int32(math.MinInt32), int32(math.MaxInt32)},
		"BIGINT":           {nil, int64(math.MinInt64), int64(math.MaxInt64), int64(0)},
		"DECIMAL(9,2)":     {nil, decimal128.FromI64(-12345), decimal128.FromI64(1), decimal128.FromI64(0)},
		"DECIMAL(18,4)":    {decimal128.FromI64(-1), decimal128.FromI64(999999999999999999)},
		"DECIMAL(38,9)":    {nil, big, big.Negate()},
		"STRING":           {nil, "", " ", "a/b=c%d", "späße", "日本", "x y", `"quoted"`, "a#b?c", strings.Repeat("long", 20)},
		"CHAR(3)":          {nil, "abc"},
		"DATE":             {nil, int32(0), int32(-1), int32(19857), int32(-719162), int32(2932896)},
		"TIMESTAMP(6)":     {nil, int64(0), int64(-1), int64(1715688000123456), int64(-62135596800000000)},
		"TIMESTAMP_LTZ(6)": {nil, int64(-1), int64(1715688000123456)},
	}
}

// TestPartitionTypes publishes two files of each partition and removes one of each, so that values are read back from
// manifests and written again.
func TestPartitionTypes(t *testing.T) {
	for typ, values := range partitions(t) {
		t.Run(typ, func(t *testing.T) {
			w := newWorld(t, storage.NewMem(), schema.Spec{Columns: columns(t, "v INT, p "+typ), PartitionKeys: []string{"p"},
				Options: map[string]string{"partition.legacy-name": "true"}})
			e := w.exporter()
			want := map[string]any{} // partition value by location
			var gone, files []manifest.Entry
			for _, v := range values {
				for i := range 2 {
					f := w.fake(w.part(0, v), 0, 5)
					files = append(files, f)
					if i == 0 {
						gone = append(gone, removal(f))
					}
					loc := location2(w, f)
					want[loc] = partitionValue(v, w.schema.Fields[1].Type)
				}
			}
			w.commit(manifest.Append, files...)
			w.publish(e, 0)
			comparePartitions(t, w, want)
			w.commit(manifest.Overwrite, gone...)
			w.publish(e, 0)
			comparePartitions(t, w, want)
			// Once more with the manifests as they are stored now.
			w.commit(manifest.Append, w.fake(w.part(0, values[0]), 0, 5))
			for loc := range w.live {
				if _, ok := want[loc]; !ok {
					want[loc] = partitionValue(values[0], w.schema.Fields[1].Type)
				}
			}
			w.publish(w.exporter(), 0)
			comparePartitions(t, w, want)
		})
	}
}

func location2(w *world, e manifest.Entry) string {
	v, err := newView(w.schema, w.store)
	if err != nil {
		w.t.Fatal(err)
	}
	loc, err := v.location(&e)
	if err != nil {
		w.t.Fatal(err)
	}
	return loc
}

func comparePartitions(t *testing.T, w *world, want map[string]any) {
	t.Helper()
	tab := w.check()
	tasks, err := tab.Scan().PlanFiles(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		got := task.File.Partition()[firstPartitionID]
		if w := want[task.File.FilePath()]; fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", w, w) {
			t.Errorf("%s: partition value %T %v, want %T %v", task.File.FilePath(), got, got, w, w)
		}
	}
	checkSummaries(t, tab, want)
}

// checkSummaries looks at what the manifest list says about the partitions in each manifest: readers skip manifests by it.
func checkSummaries(t *testing.T, tab *table.Table, want map[string]any) {
	t.Helper()
	fsys, err := tab.FS(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	list, err := tab.CurrentSnapshot().Manifests(fsys)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		nulls, empty, values := false, false, false
		for e, err := range m.Entries(fsys, false) {
			if err != nil {
				t.Fatal(err)
			}
			v := want[e.DataFile().FilePath()]
			nulls, empty, values = nulls || v == nil, empty || v == "", values || v != nil
		}
		s := m.Partitions()[0]
		if s.ContainsNull != nulls || (s.LowerBound != nil) != values || (s.UpperBound != nil) != values {
			t.Errorf("summary %+v of a manifest with nulls %v and values %v", s, nulls, values)
		}
		if empty && (s.LowerBound == nil || len(*s.LowerBound) != 0) {
			t.Errorf("lower bound %v of a manifest with the empty string", s.LowerBound)
		}
	}
}

func TestPartitionNames(t *testing.T) {
	for column, want := range map[string]string{
		"p": "p", "_x": "_x", "a1": "a1", "1a": "_1a", "a b": "a_x20b", "größe": "gr_xF6_xDFe", "a-b": "a_x2Db", "日": "_x65E5", "a.b": "a_x2Eb",
	} {
		if got := partitionName(column, map[string]bool{column: true}); got != want {
			t.Errorf("partition name of %q is %q, want %q", column, got, want)
		}
	}
	taken := map[string]bool{"a b": true, "a_x20b": true}
	if got := partitionName("a b", taken); got != "a_x20b_" {
		t.Errorf("partition name of \"a b\" beside \"a_x20b\" is %q", got)
	}
	w := newWorld(t, storage.NewMem(), schema.Spec{Columns: columns(t, "`größe m` INT, v INT, größe_m INT"), PartitionKeys: []string{"größe m", "größe_m"}})
	w.commit(manifest.Append, w.write(w.part(0, int32(1), int32(2)), 0, `{"größe m":1,"v":5,"größe_m":2}`))
	w.publish(w.exporter(), 0)
	w.check()
	if got := scanned(t, w.store, ScanSpec{}); !slices.Equal(got, []string{`{"größe m":1,"größe_m":2,"v":5}`}) {
		t.Errorf("rows %v", got)
	}
}

// TestAllTypes reads rows of every type back through iceberg-go.
func TestAllTypes(t *testing.T) {
	rows := []string{
		`{"c_boolean":true,"c_tinyint":-128,"c_smallint":-32768,"c_int":-2147483648,"c_bigint":-9223372036854775808,"c_float":-1.5,"c_double":-2.5,` +
			`"c_decimal9":"-1234567.89","c_decimal18":"12345678901234.5678","c_decimal38":"-1234567890123456789012345678.0123456789","c_char":"abcd",` +
			`"c_varchar":"späße","c_string":"日本","c_binary":"AQIDBA==","c_bytes":"AA==","c_date":"1969-12-31","c_ts4":"1969-12-31 23:59:59.9999",` +
			`"c_ts":"2024-05-14 12:00:00.123456","c_ltz":"2024-05-14 12:00:00.123456Z"}`,
		`{` + strings.Join(nulls(t), ",") + `}`,
	}
	w := newWorld(t, storage.NewMem(), schema.Spec{Columns: columns(t, allTypes)})
	e := w.write(w.part(0), 0, rows...)
	w.commit(manifest.Append, e)
	w.publish(w.exporter(), 0)
	tab := w.check()
	got := scanned(t, w.store, ScanSpec{})
	if len(got) != 2 || !strings.Contains(got[0]+got[1], `"c_ts":"2024-05-14T12:00:00.123456"`) || !strings.Contains(got[0]+got[1], `"c_decimal38":"-1234567890123456789012345678.0123456789"`) {
		t.Errorf("rows %v", got)
	}
	want := []string{"boolean", "int", "int", "int", "long", "float", "double", "decimal(9, 2)", "decimal(18, 4)", "decimal(38, 10)", "string", "string",
		"string", "binary", "binary", "date", "timestamp", "timestamp", "timestamptz"}
	for i, f := range tab.Schema().Fields() {
		if f.Type.String() != want[i] || f.ID != i+1 || f.Name != w.schema.Fields[i].Name {
			t.Errorf("column %d is %s, want %s", i, f, want[i])
		}
	}
	checkBounds(t, w, e, tab.Schema())
}

func nulls(t testing.TB) []string {
	var out []string
	for _, c := range columns(t, allTypes) {
		out = append(out, fmt.Sprintf("%q:null", c.Name))
	}
	return out
}

// checkBounds looks into the one manifest for the statistics of the file.
func checkBounds(t *testing.T, w *world, e manifest.Entry, s *iceberg.Schema) {
	t.Helper()
	df, err := dataFile(&e, "file:///x", *iceberg.UnpartitionedSpec, nil, w.schema, w.schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Fields() {
		if df.ValueCounts()[f.ID] != 2 || df.NullValueCounts()[f.ID] != 1 {
			t.Errorf("%s: %d values, %d nulls, want 2 and 1", f.Name, df.ValueCounts()[f.ID], df.NullValueCounts()[f.ID])
		}
		lower, upper := df.LowerBoundValues()[f.ID], df.UpperBoundValues()[f.ID]
		if f.Type.String() == "binary" {
			if lower != nil || upper != nil {
				t.Errorf("%s has bounds", f.Name)
			}
			continue
		}
		lo, err1 := iceberg.LiteralFromBytes(f.Type, lower)
		hi, err2 := iceberg.LiteralFromBytes(f.Type, upper)
		if err1 != nil || err2 != nil || !lo.Equals(hi) {
			t.Errorf("%s: bounds %v and %v, errors %v %v", f.Name, lo, hi, err1, err2)
		}
	}
	for name, want := range map[string]string{"c_ts": "2024-05-14 12:00:00.123456", "c_string": "日本", "c_decimal38": "-1234567890123456789012345678.0123456789", "c_date": "1969-12-31"} {
		f, _ := s.FindFieldByName(name)
		if lo, _ := iceberg.LiteralFromBytes(f.Type, df.LowerBoundValues()[f.ID]); lo == nil || lo.String() != want {
			t.Errorf("%s: lower bound %v, want %s", name, lo, want)
		}
	}
}
