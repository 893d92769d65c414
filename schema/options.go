package schema

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Names of the options that more than one file of this package speaks of.
const (
	optBucket              = "bucket"
	optBucketKey           = "bucket-key"
	optFileFormat          = "file.format"
	optCompression         = "file.compression"
	optZstdLevel           = "file.compression.zstd-level"
	optCompressionPerLevel = "file.compression.per.level"
	optTrigger             = "num-sorted-run.compaction-trigger"
	optNumLevels           = "num-levels"
	optTargetSize          = "target-file-size"
	optBlockSize           = "file.block-size"
	optLegacyName          = "partition.legacy-name"
	optMergeEngine         = "merge-engine"
	optProducer            = "changelog-producer"
	optBucketFunc          = "bucket-function.type"
	statsModeSuffix        = ".stats-mode"
	fieldsPrefix           = "fields."
)

// Special values of the option bucket (`table.BucketMode`).
const (
	BucketDynamic  = -1 // keyed tables: dynamic buckets; append tables: no buckets, all files in bucket-0
	BucketPostpone = -2 // keyed tables: rows wait in bucket-postpone
)

// Options are the table options that calve honours, with Paimon's defaults (`CoreOptions` 1.3.1) filled in.
type Options struct {
	// Buckets.
	Bucket         int      // bucket: number of buckets, BucketDynamic or BucketPostpone
	BucketKey      []string // bucket-key; empty: the trimmed primary key
	BucketFunction string   // bucket-function.type: "default" or "mod"
	DynamicRows    int64    // dynamic-bucket.target-row-num: keys of a dynamic bucket before the next one is opened
	DynamicMax     int      // dynamic-bucket.max-buckets: of a partition; -1: no bound

	// Merging and levels.
	MergeEngine            string   // merge-engine
	ChangelogProducer      string   // changelog-producer
	SequenceFields         []string // sequence.field: compared before the sequence number
	DeletionVectors        bool     // deletion-vectors.enabled
	Bitmap64               bool     // deletion-vectors.bitmap64
	MergeOnRead            bool     // deletion-vectors.merge-on-read: batch reads see level 0 (Paimon after 2.0)
	StreamingReadOverwrite bool     // streaming-read-overwrite: change streams tell what OVERWRITE snapshots replace
	IndexInBucket          bool     // index-file-in-data-file-dir: index files lie beside the data files
	NumLevels              int      // num-levels: level 0 included; default CompactionTrigger + 1
	CompactionTrigger      int      // num-sorted-run.compaction-trigger
	StopTrigger            int      // num-sorted-run.stop-trigger: writers wait above it; default CompactionTrigger + 3
	// OptimizationInterval is compaction.optimization-interval: rows reach the highest level within that time; 0: whenever.
	OptimizationInterval        time.Duration
	MaxSizeAmplificationPercent int  // compaction.max-size-amplification-percent
	SizeRatio                   int  // compaction.size-ratio, in percent
	CompactionMinFiles          int  // compaction.min.file-num: small append files from which a compaction is looked for
	WriteOnly                   bool // write-only: neither compact nor expire

	Merge     MergeOptions     // the finer points of merging
	Changelog ChangelogOptions // and of telling what it changes

	RowTracking bool // row-tracking.enabled: rows of an append table have ids

	// Data files.
	FileFormat           string         // file.format
	TargetFileSize       int64          // target-file-size in bytes
	BlockSize            int64          // file.block-size in bytes: row groups of Parquet files; 0: not given
	Compression          string         // file.compression, lower case
	ZstdLevel            int            // file.compression.zstd-level
	CompressionPerLevel  map[int]string // file.compression.per.level
	DataFilePrefix       string         // data-file.prefix
	DataFileDirectory    string         // data-file.path-directory: a folder between the table and its partitions
	ThinMode             bool           // data-file.thin-mode: no _KEY_ columns
	LegacyPartitionName  bool           // partition.legacy-name
	DefaultPartitionName string         // partition.default-name

	// Statistics. Use Stats to ask for a column's mode.
	StatsMode       StatsMode            // metadata.stats-mode
	StatsModeColumn map[string]StatsMode // fields.COLUMN.stats-mode
	StatsModeLevel  map[int]StatsMode    // metadata.stats-mode.per.level
	StatsDense      bool                 // metadata.stats-dense-store

	// Metadata.
	ManifestTargetSize         int64         // manifest.target-file-size
	ManifestMergeMinCount      int           // manifest.merge-min-count
	ManifestFullCompactionSize int64         // manifest.full-compaction-threshold-size
	SnapshotNumRetainedMin     int           // snapshot.num-retained.min
	SnapshotNumRetainedMax     int           // snapshot.num-retained.max
	SnapshotTimeRetained       time.Duration // snapshot.time-retained
	SnapshotExpireLimit        int           // snapshot.expire.limit: snapshots to expire at once
	ConsumerExpiration         time.Duration // consumer.expiration-time: a consumer not renewed for longer is dropped; 0: never
	TagTimeExpire              bool          // tag.time-expire-enabled: tags go when the time they are to be kept is over
	TagDefaultRetained         time.Duration // tag.default-time-retained: of tags made without a time; 0: until deleted
}

// StatsMode says which statistics of a column go into the manifest: "none", "counts" (nulls only), "full" or
// "truncate(n)" (`statistics.SimpleColStatsCollector`).
type StatsMode string

// The modes without a length.
const (
	StatsNone   StatsMode = "none"
	StatsCounts StatsMode = "counts"
	StatsFull   StatsMode = "full"
)

// Truncate gives the n of "truncate(n)": strings are cut to n code points.
func (m StatsMode) Truncate() (int, bool) {
	body, ok := strings.CutPrefix(string(m), "truncate(")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(body, ")"))
	return n, err == nil
}

// ParseStatsMode reads a statistics mode, any case.
func ParseStatsMode(s string) (StatsMode, error) {
	m := StatsMode(strings.ToLower(strings.TrimSpace(s)))
	if m == StatsNone || m == StatsCounts || m == StatsFull {
		return m, nil
	}
	if n, ok := m.Truncate(); ok && n > 0 && m == StatsMode(fmt.Sprintf("truncate(%d)", n)) {
		return m, nil
	}
	return "", fmt.Errorf("statistics mode %q is none of none, counts, full and truncate(n)", s)
}

// Stats gives the mode of a table column in a file of the given level: the column's own, else the level's, else the
// table's. Key columns of key-value files do not obey it: they always have truncate(128).
func (o Options) Stats(column string, level int) StatsMode {
	if m, ok := o.StatsModeColumn[column]; ok {
		return m
	}
	if m, ok := o.StatsModeLevel[level]; ok {
		return m
	}
	return o.StatsMode
}

// CompressionAt gives the codec of data files of a level.
func (o Options) CompressionAt(level int) string {
	if c, ok := o.CompressionPerLevel[level]; ok {
		return c
	}
	return o.Compression
}

// CompactionFileSize is the size from which compaction moves a file to another level instead of rewriting it
// (`CoreOptions.compactionFileSize`).
func (o Options) CompactionFileSize() int64 { return o.TargetFileSize / 10 * 7 }

// MaxLevel is the highest level: what a full compaction writes and what the export publishes.
func (o Options) MaxLevel() int { return o.NumLevels - 1 }

// ParseOptions reads the table's options. It fails on values that cannot be understood; whether calve can do what
// they ask for is the question of CheckReadable and CheckWritable.
func (s *Schema) ParseOptions() (Options, error) {
	p := optionParser{m: s.Options}
	o := Options{
		Bucket:            p.int(optBucket, defaultBucket(s.Version), BucketPostpone, math.MaxInt32),
		BucketKey:         p.columns(s, optBucketKey),
		DynamicRows:       int64(p.int("dynamic-bucket.target-row-num", 2_000_000, 1, math.MaxInt32)),
		DynamicMax:        p.int("dynamic-bucket.max-buckets", -1, -1, math.MaxInt16),
		BucketFunction:    p.word(optBucketFunc, "default"),
		MergeEngine:       p.word(optMergeEngine, Deduplicate),
		ChangelogProducer: p.word(optProducer, ProducerNone),
		SequenceFields:    p.columns(s, optSequenceField),
		DeletionVectors:   p.bool(optVectors, false),
		Bitmap64:          p.bool("deletion-vectors.bitmap64", false),
		MergeOnRead:       p.bool("deletion-vectors.merge-on-read", false),

		StreamingReadOverwrite: p.bool("streaming-read-overwrite", false),

		IndexInBucket:        p.bool("index-file-in-data-file-dir", false),
		RowTracking:          p.bool(optRowTracking, false),
		WriteOnly:            p.bool("write-only", p.bool("write.compaction-skip", false)),
		FileFormat:           p.word(optFileFormat, defaultFormat(s.Version)),
		TargetFileSize:       p.size(optTargetSize, defaultTargetSize(s.Keyed())),
		BlockSize:            p.size(optBlockSize, 0),
		Compression:          p.word(optCompression, "zstd"),
		ZstdLevel:            p.int(optZstdLevel, 1, -7, 22),
		CompressionPerLevel:  perLevel(&p, optCompressionPerLevel, lowerWord),
		DataFilePrefix:       p.text("data-file.prefix", "data-"),
		DataFileDirectory:    p.text("data-file.path-directory", ""),
		ThinMode:             p.bool("data-file.thin-mode", false),
		LegacyPartitionName:  p.bool(optLegacyName, true),
		DefaultPartitionName: p.text("partition.default-name", "__DEFAULT_PARTITION__"),
		StatsMode:            p.stats("metadata.stats-mode", "truncate(16)"),
		StatsModeLevel:       perLevel(&p, "metadata.stats-mode.per.level", ParseStatsMode),
		StatsModeColumn:      p.columnStats(),
		StatsDense:           p.bool("metadata.stats-dense-store", true),
	}
	p.levels(&o)
	p.metadata(&o)
	p.merge(s, &o)
	p.changelog(s, &o)
	if o.Bucket == 0 {
		p.fail(optBucket, "must not be 0: give the number of buckets, or -1")
	}
	return o, p.err
}

func (p *optionParser) levels(o *Options) {
	o.CompactionTrigger = p.int(optTrigger, 5, 1, math.MaxInt32)
	o.NumLevels = p.int(optNumLevels, addSafely(o.CompactionTrigger, 1), 2, math.MaxInt32)
	o.StopTrigger = max(o.CompactionTrigger,
		p.int("num-sorted-run.stop-trigger", addSafely(o.CompactionTrigger, 3), 0, math.MaxInt32))
	o.MaxSizeAmplificationPercent = p.int("compaction.max-size-amplification-percent", 200, 0, math.MaxInt32)
	o.SizeRatio = p.int("compaction.size-ratio", 1, 0, math.MaxInt32)
	o.CompactionMinFiles = p.int("compaction.min.file-num", 5, 1, math.MaxInt32)
}

func (p *optionParser) metadata(o *Options) {
	o.ManifestTargetSize = p.size("manifest.target-file-size", 8<<20)
	o.ManifestMergeMinCount = p.int("manifest.merge-min-count", 30, 1, math.MaxInt32)
	o.ManifestFullCompactionSize = p.size("manifest.full-compaction-threshold-size", 16<<20)
	o.SnapshotNumRetainedMin = p.int("snapshot.num-retained.min", 10, 1, math.MaxInt32)
	o.SnapshotNumRetainedMax = p.int("snapshot.num-retained.max", math.MaxInt32, 1, math.MaxInt32)
	o.OptimizationInterval = p.duration("compaction.optimization-interval", 0)
	o.SnapshotTimeRetained = p.duration("snapshot.time-retained", time.Hour)
	o.SnapshotExpireLimit = p.int("snapshot.expire.limit", 50, 1, math.MaxInt32)
	o.ConsumerExpiration = p.duration("consumer.expiration-time", 0)
	o.TagTimeExpire = p.bool("tag.time-expire-enabled", false)
	o.TagDefaultRetained = p.duration("tag.default-time-retained", 0)
	if o.SnapshotNumRetainedMax < o.SnapshotNumRetainedMin {
		p.fail("snapshot.num-retained.max", fmt.Sprintf("is less than snapshot.num-retained.min (%d)", o.SnapshotNumRetainedMin))
	}
}

// defaultBucket follows `TableSchema`: tables of Paimon 0.7 and older had one bucket.
func defaultBucket(version int) int {
	if version <= 1 {
		return 1
	}
	return BucketDynamic
}

// defaultFormat follows `TableSchema`: tables of Paimon 0.8 and older had ORC files.
func defaultFormat(version int) string {
	if version <= 2 {
		return "orc"
	}
	return "parquet"
}

func defaultTargetSize(keyed bool) int64 {
	if keyed {
		return 128 << 20
	}
	return 256 << 20
}

// addSafely adds without leaving Java's int.
func addSafely(a, b int) int { return min(a+b, math.MaxInt32) }

// optionParser reads typed values out of the option strings; the first failure stays in err.
type optionParser struct {
	m   map[string]string
	err error
}

func (p *optionParser) fail(name, reason string) {
	if p.err == nil {
		p.err = fmt.Errorf("table option %q = %q: %s", name, p.m[name], reason)
	}
}

func (p *optionParser) text(name, def string) string {
	if v, ok := p.m[name]; ok {
		return v
	}
	return def
}

func (p *optionParser) word(name, def string) string {
	return strings.ToLower(strings.TrimSpace(p.text(name, def)))
}

func (p *optionParser) int(name string, def, low, high int) int {
	v, ok := p.m[name]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || int(n) < low || int(n) > high {
		p.fail(name, fmt.Sprintf("is not a whole number between %d and %d", low, high))
		return def
	}
	return int(n)
}

func (p *optionParser) bool(name string, def bool) bool {
	v, ok := p.m[name]
	switch {
	case !ok:
		return def
	case strings.EqualFold(v, "true"):
		return true
	case strings.EqualFold(v, "false"):
		return false
	}
	p.fail(name, "is neither true nor false")
	return def
}

func (p *optionParser) size(name string, def int64) int64 {
	v, ok := p.m[name]
	if !ok {
		return def
	}
	n, err := ParseSize(v)
	if err == nil && n == 0 {
		err = fmt.Errorf("a size of 0 makes no sense here")
	}
	if err != nil {
		p.fail(name, err.Error())
		return def
	}
	return n
}

func (p *optionParser) duration(name string, def time.Duration) time.Duration {
	v, ok := p.m[name]
	if !ok {
		return def
	}
	d, err := ParseDuration(v)
	if err != nil {
		p.fail(name, err.Error())
		return def
	}
	return d
}

func (p *optionParser) stats(name, def string) StatsMode {
	m, err := ParseStatsMode(p.text(name, def))
	if err != nil {
		p.fail(name, err.Error())
	}
	return m
}

// columns reads a comma list of column names.
func (p *optionParser) columns(s *Schema, name string) []string {
	out := splitNames(p.m[name])
	for _, c := range out {
		if _, ok := s.Field(c); !ok {
			p.fail(name, fmt.Sprintf("names %q, which is not a column", c))
		}
	}
	return out
}

// columnStats reads fields.COLUMN.stats-mode; column names may hold dots.
func (p *optionParser) columnStats() map[string]StatsMode {
	var out map[string]StatsMode
	for name := range p.m {
		col, ok := statsColumn(name)
		if !ok {
			continue
		}
		if out == nil {
			out = map[string]StatsMode{}
		}
		out[col] = p.stats(name, "")
	}
	return out
}

// statsColumn gives the COLUMN of fields.COLUMN.stats-mode.
func statsColumn(option string) (string, bool) {
	col, ok := strings.CutPrefix(option, fieldsPrefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(col, statsModeSuffix)
}

func lowerWord(s string) (string, error) { return strings.ToLower(strings.TrimSpace(s)), nil }

// perLevel reads a map such as "0:lz4,1:zstd".
func perLevel[T any](p *optionParser, name string, parse func(string) (T, error)) map[int]T {
	v, ok := p.m[name]
	if !ok {
		return nil
	}
	out := map[int]T{}
	for _, item := range strings.Split(v, ",") {
		level, text, found := strings.Cut(item, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(level), 10, 32)
		if !found || err != nil || n < 0 {
			p.fail(name, fmt.Sprintf("%q is not LEVEL:VALUE", item))
			return nil
		}
		value, err := parse(text)
		if err != nil {
			p.fail(name, err.Error())
			return nil
		}
		out[int(n)] = value
	}
	return out
}
