package schema

import (
	"math"
	"reflect"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	cases := map[string]int64{
		"0": 0, "12": 12, " 12 ": 12, "12b": 12, "12 bytes": 12, "3k": 3 << 10, "3 KB": 3 << 10, "3 kibibytes": 3 << 10,
		"512 mb": 512 << 20, "8mb": 8 << 20, "8 M": 8 << 20, "2mebibytes": 2 << 20, "1 g": 1 << 30, "1gb": 1 << 30,
		"1 gibibytes": 1 << 30, "1 t": 1 << 40, "1tb": 1 << 40, "1 tebibytes": 1 << 40, "9223372036854775807": math.MaxInt64,
	}
	for in, want := range cases {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", " ", "mb", "-1", "1.5 mb", "1 pb", "9223372036854775808", "8388608 tb", "1 mb x"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q is taken as %d", in, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	cases := map[string]time.Duration{
		"0": 0, "1500": 1500 * time.Millisecond, "1 d": 24 * time.Hour, "2days": 48 * time.Hour, "1 h": time.Hour,
		"3 Hours": 3 * time.Hour, "5 min": 5 * time.Minute, "5m": 5 * time.Minute, "1 minute": time.Minute, "7 s": 7 * time.Second,
		"7sec": 7 * time.Second, "2 seconds": 2 * time.Second, "10ms": 10 * time.Millisecond, "4 millis": 4 * time.Millisecond,
		"4 µs": 4 * time.Microsecond, "4 micros": 4 * time.Microsecond, "9 ns": 9, "9 nanoseconds": 9,
		"9223372036854775807 d": math.MaxInt64,
	}
	for in, want := range cases {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "h", "1 fortnight", "-1 h", "1h30m", "99999999999999999999 s"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q is taken as %v", in, got)
		}
	}
}

func TestStatsMode(t *testing.T) {
	for in, want := range map[string]StatsMode{"none": StatsNone, "FULL": StatsFull, " Counts ": StatsCounts, "TRUNCATE(16)": "truncate(16)"} {
		if got, err := ParseStatsMode(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "truncate", "truncate()", "truncate(0)", "truncate(-1)", "truncate(1", "truncate(01)", "truncate(1))", "all"} {
		if got, err := ParseStatsMode(in); err == nil {
			t.Errorf("%q is taken as %q", in, got)
		}
	}
	if n, ok := StatsMode("truncate(128)").Truncate(); !ok || n != 128 {
		t.Errorf("truncate(128) has length %d, %v", n, ok)
	}
	if _, ok := StatsFull.Truncate(); ok {
		t.Error("full has a length")
	}
}

// TestDefaults holds Paimon 1.3.1's defaults for a keyed table and an append table.
func TestDefaults(t *testing.T) {
	want := Options{
		Bucket: -1, BucketFunction: "default", DynamicRows: 2_000_000, DynamicMax: -1, MergeEngine: "deduplicate", ChangelogProducer: "none", NumLevels: 6,
		CompactionTrigger: 5, StopTrigger: 8, MaxSizeAmplificationPercent: 200, SizeRatio: 1, CompactionMinFiles: 5, FileFormat: "parquet",
		TargetFileSize: 128 << 20, Compression: "zstd", ZstdLevel: 1, DataFilePrefix: "data-", LegacyPartitionName: true,
		DefaultPartitionName: "__DEFAULT_PARTITION__", StatsMode: "truncate(16)", StatsDense: true, ManifestTargetSize: 8 << 20,
		ManifestMergeMinCount: 30, ManifestFullCompactionSize: 16 << 20, SnapshotNumRetainedMin: 10,
		SnapshotNumRetainedMax: math.MaxInt32, SnapshotTimeRetained: time.Hour, SnapshotExpireLimit: 50,
		Changelog: ChangelogOptions{Prefix: "changelog-", LookupInterval: 10, NumRetainedMin: 10, NumRetainedMax: math.MaxInt32, TimeRetained: time.Hour},
	}
	s := &Schema{Version: 3, Fields: []Field{{Name: "a", Type: Type{Root: Int}}}, PrimaryKeys: []string{"a"}}
	if got, err := s.ParseOptions(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("keyed: %v\ngot  %+v\nwant %+v", err, got, want)
	}
	s.PrimaryKeys, want.TargetFileSize = nil, 256<<20
	if got, err := s.ParseOptions(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("append: %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestParseOptions(t *testing.T) {
	s := &Schema{Version: 3, Fields: []Field{{Name: "a.b", Type: Type{Root: Int}}, {Name: "c", Type: Type{Root: Int}}}, PrimaryKeys: []string{"a.b"},
		Options: optionMap("num-sorted-run.compaction-trigger=2147483647,num-sorted-run.stop-trigger=3,bucket-key= a.b | c ," +
			"file.compression=LZ4,file.compression.per.level=0:Snappy|5: zstd,fields.a.b.stats-mode=none,fields.c.stats-mode=full," +
			"metadata.stats-mode.per.level=0:counts,target-file-size=1 gb,write.compaction-skip=true,snapshot.time-retained=30 min")}
	o, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	if o.NumLevels != math.MaxInt32 || o.StopTrigger != math.MaxInt32 {
		t.Errorf("levels %d and stop trigger %d for the largest trigger", o.NumLevels, o.StopTrigger)
	}
	if !reflect.DeepEqual(o.BucketKey, []string{"a.b", "c"}) || o.TargetFileSize != 1<<30 || !o.WriteOnly || o.SnapshotTimeRetained != 30*time.Minute {
		t.Errorf("%+v", o)
	}
	if o.CompactionFileSize() != (1<<30)/10*7 {
		t.Errorf("compaction file size %d", o.CompactionFileSize())
	}
	for level, want := range map[int]string{0: "snappy", 1: "lz4", 5: "zstd"} {
		if got := o.CompressionAt(level); got != want {
			t.Errorf("level %d: %s, want %s", level, got, want)
		}
	}
	for _, c := range []struct {
		column string
		level  int
		want   StatsMode
	}{{"a.b", 0, StatsNone}, {"c", 3, StatsFull}, {"d", 0, StatsCounts}, {"d", 1, "truncate(16)"}} {
		if got := o.Stats(c.column, c.level); got != c.want {
			t.Errorf("column %s, level %d: %s, want %s", c.column, c.level, got, c.want)
		}
	}
}

// TestChangelogRetention: changelogs outlive snapshots where one of their options is larger, as `CoreOptions` has it.
func TestChangelogRetention(t *testing.T) {
	for _, c := range []struct {
		options map[string]string
		apart   bool
		fails   bool
	}{
		{map[string]string{}, false, false},
		{map[string]string{"changelog.time-retained": "1 h"}, false, false},
		{map[string]string{"changelog.time-retained": "2 h"}, true, false},
		{map[string]string{"snapshot.time-retained": "10 min"}, false, false},
		{map[string]string{"changelog.num-retained.min": "11"}, true, false},
		{map[string]string{"changelog.num-retained.max": "20"}, false, false},
		{map[string]string{"snapshot.num-retained.max": "15", "changelog.num-retained.max": "20"}, true, false},
		{map[string]string{"snapshot.num-retained.max": "15"}, false, false},
		{map[string]string{"changelog.num-retained.min": "0"}, false, true},
		{map[string]string{"changelog.num-retained.min": "20", "changelog.num-retained.max": "15"}, false, true},
	} {
		s := &Schema{Version: 3, Options: c.options}
		o, err := s.ParseOptions()
		if (err != nil) != c.fails || err == nil && o.ChangelogDecoupled() != c.apart {
			t.Errorf("%v: apart %v, %v", c.options, o.ChangelogDecoupled(), err)
		}
	}
}
