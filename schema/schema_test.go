package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	const good = `{"version":3,"id":1,"fields":[{"id":0,"name":"a","type":"INT NOT NULL"},{"id":1,"name":"p","type":"INT"},
		{"id":2,"name":"m","type":{"type":"ARRAY","element":"INT"}}],"highestFieldId":2,"partitionKeys":[],
		"primaryKeys":["a"],"options":{"bucket":"1"},"timeMillis":5}`
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ old, new, want string }{
		{`"version":3`, `"version":4`, "version 4"},
		{`"version":3`, `"version":-1`, "version -1"},
		{`"id":1,"fields"`, `"id":-1,"fields"`, "id -1"},
		{`"id":1,"fields"`, `"id":"x","fields"`, "id"},
		{`"highestFieldId":2`, `"highestFieldId":1`, "highestFieldId 1"},
		{`{"id":1,"name":"p"`, `{"id":0,"name":"p"`, "same id 0"},
		{`{"id":1,"name":"p"`, `{"id":1,"name":"a"`, `"a" is given twice`},
		{`{"id":1,"name":"p"`, `{"id":1,"name":""`, "no name"},
		{`{"id":1,"name":"p"`, `{"id":-1,"name":"p"`, "id -1"},
		{`{"id":1,"name":"p"`, `{"id":2147483646,"name":"p"`, "2147483646"},
		{`"name":"p"`, `"name":"_KEY_a"`, "_KEY_"},
		{`"name":"p"`, `"name":"_SEQUENCE_NUMBER"`, "_SEQUENCE_NUMBER"},
		{`"name":"p"`, `"name":"rowkind"`, "rowkind"},
		{`"name":"p","type":"INT"`, `"name":"p"`, "no type"},
		{`"name":"p","type":"INT"`, `"name":"p","type":null`, "type is missing"},
		{`"name":"p","type":"INT"`, `"name":"p","type":"INTO"`, "INTO"},
		{`"primaryKeys":["a"]`, `"primaryKeys":["b"]`, `primary key "b"`},
		{`"primaryKeys":["a"]`, `"primaryKeys":["a","a"]`, "given twice"},
		{`"primaryKeys":["a"]`, `"primaryKeys":["m"]`, "only primitive"},
		{`"partitionKeys":[]`, `"partitionKeys":["a"]`, "only partition columns"},
		{`"partitionKeys":[]`, `"partitionKeys":["z"]`, `partition key "z"`},
		{`"bucket":"1"`, `"bucket":1`, "options"},
		{`"bucket":"1"`, `"bucket-key":"q"`, `bucket key "q"`},
		{`"bucket":"1"`, `"bucket-key":"p"`, `bucket key "p" is not part of the primary key`},
		{`{"version"`, `{{"version"`, "offset"},
		{`"element":"INT"`, `"element":` + strings.Repeat(`{"type":"ARRAY","element":`, 300) + `"INT"` + strings.Repeat("}", 300), "deeper"},
	}
	for _, c := range cases {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%q is not in the good schema", c.old)
		}
		_, err := Parse([]byte(strings.Replace(good, c.old, c.new, 1)))
		wantError(t, c.new[:min(60, len(c.new))], err, c.want)
	}
	for _, bad := range []string{"", "null", "{}", "[]", `{"fields":[]}`} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken as a schema", bad)
		}
	}
}

func TestOldVersionDefaults(t *testing.T) {
	body := `"fields":[{"id":0,"name":"a","type":"INT NOT NULL"}],"primaryKeys":["a"]}`
	for version, want := range map[string]struct {
		bucket int
		format string
	}{`{`: {1, "orc"}, `{"version":1,`: {1, "orc"}, `{"version":2,`: {-1, "orc"}, `{"version":3,`: {-1, "parquet"}} {
		s, err := Parse([]byte(version + body))
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.ParseOptions()
		if err != nil || o.Bucket != want.bucket || o.FileFormat != want.format {
			t.Errorf("%s: bucket %d, format %s (%v), want %+v", version, o.Bucket, o.FileFormat, err, want)
		}
		if want.format == "orc" {
			wantError(t, version, s.CheckReadable(), `"file.format"`)
		}
	}
}

func TestNullableKey(t *testing.T) {
	s, err := Parse([]byte(`{"version":3,"fields":[{"id":0,"name":"a","type":"INT"}],"primaryKeys":["a"],"options":{"bucket":"1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "read", s.CheckReadable(), "nullable")
	wantError(t, "write", s.CheckWritable(), "nullable")
}

func columns(t testing.TB, text string) []Column {
	t.Helper()
	cols, err := ParseColumns(text)
	if err != nil {
		t.Fatal(err)
	}
	return cols
}

func TestNewKeyed(t *testing.T) {
	options := map[string]string{"write-buffer-size": "8 mb", "file.compression": "snappy"} // a codec of one's own is for all levels
	s, err := New(Spec{
		Columns:     columns(t, "id BIGINT, dt DATE, name STRING COMMENT 'who', at TIMESTAMP"),
		PrimaryKeys: []string{"dt", "id"}, PartitionKeys: []string{"dt"}, Options: options, Comment: "c", TimeMillis: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &Schema{
		Version: 3, ID: 0, HighestFieldID: 4, PartitionKeys: []string{"dt"}, PrimaryKeys: []string{"dt", "id"},
		Comment: "c", TimeMillis: 7,
		Fields: []Field{
			{ID: 1, Name: "id", Type: Type{Root: BigInt, NotNull: true}},
			{ID: 2, Name: "dt", Type: Type{Root: Date, NotNull: true}},
			{ID: 3, Name: "name", Type: Type{Root: VarChar, Length: MaxLength}, Description: "who"},
			{ID: 4, Name: "at", Type: Type{Root: Timestamp, Precision: 6}},
		},
		Options: map[string]string{
			"bucket": "1", "num-levels": "3", "num-sorted-run.compaction-trigger": "5", "target-file-size": "512 mb",
			"file.format": "parquet", "file.compression": "snappy", "file.compression.zstd-level": "1",
			"partition.legacy-name": "false", "write-buffer-size": "8 mb",
		},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if len(options) != 2 {
		t.Error("New changed the caller's options")
	}
	if got := s.Names(s.KeyColumns()); !reflect.DeepEqual(got, []string{"id"}) {
		t.Errorf("key is %v", got)
	}
	data, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var again Schema
	if err := json.Unmarshal(data, &again); err != nil || !reflect.DeepEqual(&again, s) {
		t.Errorf("written and read again: %+v, %v", again, err)
	}
}

func TestNewAppend(t *testing.T) {
	for _, c := range []struct{ options, bucket string }{{"", "-1"}, {"bucket-key=a", "1"}, {"bucket-key=a,bucket=4", "4"}} {
		s, err := New(Spec{Columns: columns(t, "a INT, b STRING"), Options: optionMap(c.options)})
		if err != nil {
			t.Errorf("%q: %v", c.options, err)
			continue
		}
		if got := s.Options["bucket"]; got != c.bucket {
			t.Errorf("%q: bucket %s, want %s", c.options, got, c.bucket)
		}
		if _, ok := s.Options["num-levels"]; ok {
			t.Error("an append table has levels")
		}
	}
}

// optionMap reads "a=1,b=2"; a | in a value stands for a comma.
func optionMap(s string) map[string]string {
	out := map[string]string{}
	for _, kv := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			out[strings.ReplaceAll(k, "|", ",")] = strings.ReplaceAll(v, "|", ",")
		}
	}
	return out
}

func TestNewErrors(t *testing.T) {
	const cols = "id BIGINT, p INT, s STRING, f DOUBLE, z TIMESTAMP_LTZ, y BYTES"
	cases := []struct{ columns, pk, part, options, want string }{
		{"", "", "", "", "at least one column"},
		{cols, "nope", "", "", `primary key "nope"`},
		{cols, "id,id", "", "", "given twice"},
		{cols, "id", "p", "", `partition key "p" is not part of the primary key`},
		{cols, "id", "id", "", "only partition columns"},
		{"a ARRAY<INT>", "a", "", "", `"a"`},
		{"a ROW<x INT, x INT>", "", "", "", `"a.x" is given twice`},
		{"_VALUE_KIND INT", "", "", "", "_VALUE_KIND"},
		{"_KEY_x INT", "", "", "", "_KEY_"},
		{cols, "", "f", "", "Java version"},
		{cols, "", "y", "", "no text"},
		{cols, "", "z", "", "time zone"},
		{cols, "id", "", "bucket=-2", `"bucket" = "-2"`},
		{cols, "id", "", "bucket=-2", `"bucket" = "-2"`},
		{cols, "id", "", "bucket=0", "must not be 0"},
		{cols, "id", "", "bucket=x", `"bucket" = "x"`},
		{cols, "", "", "bucket=-2", `"bucket" = "-2"`},
		{cols, "", "", "bucket=3", `"bucket-key"`},
		{cols, "", "", "bucket=-1,bucket-key=id", `"bucket-key"`},
		{cols, "id", "", "bucket-key=p", `bucket key "p"`},
		{cols, "", "p", "bucket-key=p", "is a partition key"},
		{cols, "id", "", "primary-key=id", `"primary-key"`},
		{cols, "id", "", "partition=p", `"partition"`},
		{cols, "id", "", "bucket-function.type=hive", `"bucket-function.type"`},
		{cols, "s", "", "bucket-function.type=mod", "INT or BIGINT"},
		{cols, "id", "", "changelog-producer=diff", `"changelog-producer"`},
		{cols, "id", "", "changelog-producer=lookup,full-compaction.delta-commits=3", `"full-compaction.delta-commits"`},
		{cols, "id", "", "changelog-producer=lookup,streaming-read-overwrite=true", `"streaming-read-overwrite"`},
		{cols, "id", "", "changelog-producer=input,changelog-file.compression=lzo", `"changelog-file.compression"`},
		{cols, "id", "", "changelog-producer=input,changelog-file.format=orc", `"changelog-file.format"`},
		{cols, "id", "", "changelog-producer=input,changelog-file.prefix=a/b", `"changelog-file.prefix"`},
		{cols, "", "", "deletion-vectors.enabled=true", `"deletion-vectors.enabled"`},
		{cols, "id", "", "deletion-vectors.enabled=true,merge-engine=first-row", `"deletion-vectors.enabled"`},
		{cols, "id", "", "deletion-vectors.enabled=true,changelog-producer=full-compaction", `"deletion-vectors.enabled"`},
		{cols, "id", "", "sequence.field=q", `"q", which is not a column`},
		{cols, "id", "", "file.format=orc", `"file.format"`},
		{cols, "id", "", "file.format.per.level=0:avro", `"file.format.per.level"`},
		{cols, "id", "", "file.compression=brotli", `"file.compression"`},
		{cols, "id", "", "file.compression.per.level=0:lzo", `"lzo"`},
		{cols, "id", "", "file.compression.per.level=lz4", "LEVEL:VALUE"},
		{cols, "id", "", "data-file.prefix=a/b", `"data-file.prefix"`},
		{cols, "id", "", "num-levels=1", `"num-levels"`},
		{cols, "id", "", "target-file-size=0", `"target-file-size"`},
		{cols, "id", "", "target-file-size=5 parsecs", "parsecs"},
		{cols, "id", "", "snapshot.time-retained=soon", `"snapshot.time-retained"`},
		{cols, "id", "", "snapshot.num-retained.max=5", "snapshot.num-retained.min (10)"},
		{cols, "id", "", "write-only=yes", `"write-only" = "yes"`},
		{cols, "id", "", "metadata.stats-mode=some", `"metadata.stats-mode"`},
		{cols, "id", "", "fields.s.stats-mode=truncate(0)", `"fields.s.stats-mode"`},
		{cols, "id", "", "buckets=3", `"buckets" = "3": calve does not know this option`},
		{cols, "id", "", "type=format-table", `"type"`},
		{cols, "id", "", "metadata.iceberg.storage=hadoop-catalog", `"metadata.iceberg.storage"`},
		{cols, "id", "", "record-level.expire-time=1 d", `"record-level.expire-time"`},
		{cols, "id", "", "row-tracking.enabled=true", `"row-tracking.enabled"`},
		{"id BIGINT, `a.b` STRING", "id", "", "fields.a.b.stats-mode=none", `"fields.a.b.stats-mode"`},
		{"id BIGINT, a INT, `a.b` STRING", "id", "", "fields.a.b.stats-mode=none", ""},
		{cols, "id", "", "fields.q.stats-mode=none", `"fields.q.stats-mode"`},
		{cols, "", "", "row-tracking.enabled=true,bucket=2,bucket-key=id", `"row-tracking.enabled"`},
	}
	for _, c := range cases {
		spec := Spec{PrimaryKeys: splitNames(c.pk), PartitionKeys: splitNames(c.part), Options: optionMap(c.options)}
		if c.columns != "" {
			spec.Columns = columns(t, c.columns)
		}
		_, err := New(spec)
		wantError(t, fmt.Sprintf("%+v", c), err, c.want)
	}
	double := []Column{{Name: "a", Type: Type{Root: Int}}, {Name: "a", Type: Type{Root: Int}}}
	_, err := New(Spec{Columns: double})
	wantError(t, "double name", err, `"a" is given twice`)
	_, err = New(Spec{Columns: []Column{{Name: "a", Type: Type{Root: Array, Element: &Type{Root: Row}}}}})
	wantError(t, "a row without fields", err, "without fields")
}

// TestAllowedOptions takes options that must not stand in the way.
func TestAllowedOptions(t *testing.T) {
	_, err := New(Spec{
		Columns: columns(t, "id INT, s STRING, z TIMESTAMP_LTZ(3)"), PrimaryKeys: []string{"id", "z"}, PartitionKeys: []string{"z"},
		Options: optionMap("merge-engine=deduplicate,ignore-delete=FALSE,file-index.bloom-filter.columns=s,parquet.page.size=1," +
			"scan.mode=latest,type=table,branch=main,write-only=TRUE,partition.legacy-name=true,sink.parallelism=2," +
			"fields.s.stats-mode=NONE,bucket-function.type=mod,changelog-producer=none,file.compression.per.level=0:snappy|1:zstd," +
			"metadata.iceberg.storage=disabled,snapshot.time-retained=2 d"),
	})
	wantError(t, "bucket-function mod", err, "")
}

// TestNewDoesNotKeepTheSpec checks that a Schema is immutable: later changes of the Spec do not reach it.
func TestNewDoesNotKeepTheSpec(t *testing.T) {
	spec := Spec{Columns: columns(t, "id INT, b INT"), PrimaryKeys: []string{"id"}, Options: map[string]string{"bucket": "2"}}
	s, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	spec.PrimaryKeys[0], spec.Columns[0].Name, spec.Options["bucket"] = "b", "x", "9"
	if s.PrimaryKeys[0] != "id" || s.Fields[0].Name != "id" || s.Options["bucket"] != "2" {
		t.Errorf("the schema changed: %+v", s)
	}
}

func FuzzParse(f *testing.F) {
	for _, data := range goldenSchemas(f) {
		f.Add(data)
	}
	f.Add([]byte(`{"fields":[{"id":1,"name":"a","type":{"type":"ROW","fields":[]}}],"highestFieldId":1}`))
	f.Add([]byte(`{"fields":[{"id":1,"name":"a","type":{"type":"MAP","key":null,"value":{}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			return
		}
		encoded, err := s.Encode()
		if err != nil {
			t.Fatalf("a parsed schema cannot be written: %v", err)
		}
		again, err := Parse(encoded)
		if err != nil {
			t.Fatalf("a written schema cannot be read: %v\n%s", err, encoded)
		}
		twice, err := again.Encode()
		if err != nil || string(twice) != string(encoded) {
			t.Fatalf("written twice it differs (%v):\n%s\n%s", err, encoded, twice)
		}
		// None of these may panic, whatever the options say.
		_, _ = s.ParseOptions()
		_, _ = s.CheckReadable(), s.CheckWritable()
		_, _, _ = s.KeyColumns(), s.BucketColumns(), s.PartitionColumns()
		_ = s.Arrow()
	})
}

func FuzzParseColumns(f *testing.F) {
	f.Add("id BIGINT NOT NULL, name STRING, amount DECIMAL(10,2)")
	f.Add("`a``b` TIMESTAMP(3) WITH LOCAL TIME ZONE COMMENT 'x''y',")
	f.Fuzz(func(t *testing.T, text string) {
		cols, err := ParseColumns(text)
		if err != nil {
			return
		}
		for _, c := range cols {
			again, err := ParseType(c.Type.String())
			if err != nil || !again.Equal(c.Type) || c.Name == "" {
				t.Fatalf("column %+v: %v", c, err)
			}
		}
	})
}

// TestFileFormats: Avro tables are read and not written, others are neither.
func TestFileFormats(t *testing.T) {
	for _, c := range []struct{ option, value, read, write string }{
		{"file.format", "avro", "", `"file.format" = "avro"`}, {"file.format.per.level", "0:avro,3:parquet", "", `"file.format.per.level"`},
		{"file.format", "orc", `"file.format" = "orc"`, `"file.format" = "orc"`}, {"file.format.per.level", "0:orc", `"file.format.per.level"`, `"file.format.per.level"`},
	} {
		s, err := New(Spec{Columns: columns(t, "id INT, s STRING"), PrimaryKeys: []string{"id"}})
		if err != nil {
			t.Fatal(err)
		}
		s.Options[c.option] = c.value
		wantError(t, c.value+" read", s.CheckReadable(), c.read)
		wantError(t, c.value+" write", s.CheckWritable(), c.write)
	}
}

// TestNestedIDs: ids inside of columns are given as Paimon's library does, here in pk_all_types but for its start at 0.
func TestNestedIDs(t *testing.T) {
	s, err := New(Spec{Columns: columns(t, "k INT, m MAP<INT NOT NULL, ARRAY<BIGINT>> NOT NULL, `t row` ROW<x INT, y STRING NOT NULL, z ROW<deep TIMESTAMP(6)>>,"+
		" a ARRAY<ROW<p INT, q DECIMAL(20, 2)>>, s MULTISET<STRING>, v VARIANT")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.Fields {
		got = append(got, fmt.Sprintf("%d %s", f.ID, f.Type))
	}
	row := s.Fields[2].Type.Fields
	ids := []int{row[0].ID, row[1].ID, row[2].Type.Fields[0].ID, row[2].ID, s.Fields[3].Type.Element.Fields[0].ID, s.Fields[3].Type.Element.Fields[1].ID, s.HighestFieldID}
	if want := []int{4, 5, 6, 7, 9, 10, 12}; !slices.Equal(ids, want) {
		t.Errorf("nested ids %v, want %v", ids, want)
	}
	want := []string{"1 INT", "2 MAP<INT NOT NULL, ARRAY<BIGINT>> NOT NULL", "3 ROW<`x` INT, `y` STRING NOT NULL, `z` ROW<`deep` TIMESTAMP(6)>>",
		"8 ARRAY<ROW<`p` INT, `q` DECIMAL(20, 2)>>", "11 MULTISET<STRING>", "12 VARIANT"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
