package schema

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Values of the option changelog-producer (`CoreOptions.ChangelogProducer`).
const (
	ProducerNone           = "none"
	ProducerInput          = "input"
	ProducerFullCompaction = "full-compaction"
	ProducerLookup         = "lookup"
)

// Names of the options of changelogs.
const (
	optChangelogFormat      = "changelog-file.format"
	optChangelogCompression = "changelog-file.compression"
	optRowDeduplicate       = "changelog-producer.row-deduplicate"
	optRowDeduplicateIgnore = "changelog-producer.row-deduplicate-ignore-fields"
	optLookupCompact        = "lookup-compact"
	optVectors              = "deletion-vectors.enabled"
	optDeltaCommits         = "full-compaction.delta-commits"
)

// ChangelogOptions say how changelog files are made and written, beside Options.ChangelogProducer.
type ChangelogOptions struct {
	Prefix      string    // changelog-file.prefix
	Format      string    // changelog-file.format; "": that of data files
	Compression string    // changelog-file.compression; "": that of the level
	StatsMode   StatsMode // changelog-file.stats-mode; "": that of the level

	RowDeduplicate bool     // changelog-producer.row-deduplicate: an update that changes nothing is not told
	IgnoreFields   []string // changelog-producer.row-deduplicate-ignore-fields: columns whose changes do not count for it

	// DeltaCommits is full-compaction.delta-commits: after so many commits that brought rows all files are compacted to the
	// highest level; 0: not set.
	DeltaCommits int
	// LookupGentle is lookup-compact=gentle: level 0 is not compacted after every commit, but as its shape asks, or every
	// LookupInterval commits (lookup-compact.max-interval, at least the compaction trigger and by default twice that).
	LookupGentle   bool
	LookupInterval int

	// Changelogs are kept like snapshots: at least NumRetainedMin (changelog.num-retained.min) of the newest, at most
	// NumRetainedMax (changelog.num-retained.max), and those younger than TimeRetained (changelog.time-retained). Where an
	// option is not set it is that of snapshots.
	NumRetainedMin, NumRetainedMax int
	TimeRetained                   time.Duration
}

// ChangelogDecoupled reports whether changelogs may outlive their snapshots (`CoreOptions.changelogLifecycleDecoupled`).
func (o *Options) ChangelogDecoupled() bool {
	c := &o.Changelog
	return c.NumRetainedMax > o.SnapshotNumRetainedMax || c.NumRetainedMin > o.SnapshotNumRetainedMin || c.TimeRetained > o.SnapshotTimeRetained
}

// TellsBefore reports whether the table's changelog has the row before each update and delete.
func (o *Options) TellsBefore() bool {
	return o.ChangelogProducer == ProducerLookup || o.ChangelogProducer == ProducerFullCompaction
}

// changelog reads the options of changelogs.
func (p *optionParser) changelog(s *Schema, o *Options) {
	c := &o.Changelog
	c.Prefix = p.text("changelog-file.prefix", "changelog-")
	c.Format, c.Compression = p.word(optChangelogFormat, ""), p.word(optChangelogCompression, "")
	if _, set := p.m["changelog-file.stats-mode"]; set {
		c.StatsMode = p.stats("changelog-file.stats-mode", "")
	}
	c.RowDeduplicate = p.bool(optRowDeduplicate, false)
	c.IgnoreFields = p.columns(s, optRowDeduplicateIgnore)
	c.DeltaCommits = p.int(optDeltaCommits, 0, math.MinInt32, math.MaxInt32)
	switch mode := p.word(optLookupCompact, "radical"); mode {
	case "radical":
	case "gentle":
		c.LookupGentle = true
	default:
		p.fail(optLookupCompact, "is neither radical nor gentle")
	}
	c.LookupInterval = p.int("lookup-compact.max-interval", addSafely(o.CompactionTrigger, o.CompactionTrigger), math.MinInt32, math.MaxInt32)
	c.LookupInterval = max(c.LookupInterval, o.CompactionTrigger)
	c.NumRetainedMin = p.int("changelog.num-retained.min", o.SnapshotNumRetainedMin, 1, math.MaxInt32)
	c.NumRetainedMax = p.int("changelog.num-retained.max", o.SnapshotNumRetainedMax, 1, math.MaxInt32)
	c.TimeRetained = p.duration("changelog.time-retained", o.SnapshotTimeRetained)
	if c.NumRetainedMax < c.NumRetainedMin {
		p.fail("changelog.num-retained.max", fmt.Sprintf("is less than changelog.num-retained.min (%d)", c.NumRetainedMin))
	}
}

// ChangelogStats gives the statistics mode of a table column in a changelog file of the given level.
func (o Options) ChangelogStats(column string, level int) StatsMode {
	if m, ok := o.StatsModeColumn[column]; ok || o.Changelog.StatsMode == "" {
		if ok {
			return m
		}
		return o.Stats(column, level)
	}
	return o.Changelog.StatsMode
}

// ChangelogCompressionAt gives the codec of changelog files of a level.
func (o Options) ChangelogCompressionAt(level int) string {
	if o.Changelog.Compression != "" {
		return o.Changelog.Compression
	}
	return o.CompressionAt(level)
}

// CommitsToFull is after how many commits that brought rows a bucket is compacted to the highest level; 0: not by their
// number. Producers that tell changes with such compactions need one after every commit if nothing else is said
// (`flink.sink.FlinkSink.createWriteProvider`).
func (o Options) CommitsToFull() int {
	if o.ChangelogProducer == ProducerFullCompaction {
		return max(o.Changelog.DeltaCommits, 1)
	}
	return max(o.Changelog.DeltaCommits, 0)
}

// writesChangelog are the producers that calve can write for.
var writesChangelog = []string{ProducerNone, ProducerInput, ProducerFullCompaction, ProducerLookup}

// checkProducer says why calve must not write the table's changelog, or nil.
func (s *Schema) checkProducer(o Options) error {
	if !s.Keyed() || o.ChangelogProducer == ProducerNone {
		return nil
	}
	if !slices.Contains(writesChangelog, o.ChangelogProducer) {
		return s.refuse(optProducer, "calve writes changelogs for the producers "+strings.Join(writesChangelog, ", ")+"; choose one of them")
	}
	if o.StreamingReadOverwrite && (o.ChangelogProducer == ProducerFullCompaction || o.ChangelogProducer == ProducerLookup) {
		return s.refuse("streaming-read-overwrite", "the changelog of compactions would tell the same changes again; remove the option")
	}
	if _, set := s.Options[optDeltaCommits]; set && o.ChangelogProducer == ProducerLookup {
		return s.refuse(optDeltaCommits, "the producer lookup compacts after every commit; remove the option")
	}
	if c := o.Changelog.Compression; c != "" && !slices.Contains(codecs, c) {
		return s.refuse(optChangelogCompression, "calve writes "+strings.Join(codecs, ", ")+"; choose one of them")
	}
	if p := o.Changelog.Prefix; strings.ContainsAny(p, "/\\") || strings.HasPrefix(p, ".") {
		return s.refuse("changelog-file.prefix", "file names must not hold slashes or start with a dot")
	}
	return nil
}

// checkVectors follows `schema.SchemaValidation.validateForDeletionVectors`.
func (s *Schema) checkVectors(o Options) error {
	switch {
	case !o.DeletionVectors:
		return nil
	case !s.Keyed():
		return s.refuse(optVectors, "calve reads deletion vectors of tables without primary key but does not compact their files; use a table where it is false")
	case o.MergeEngine == FirstRow:
		return s.refuse(optVectors, "a first-row table never deletes an older row; remove the option")
	case o.ChangelogProducer == ProducerFullCompaction:
		return s.refuse(optVectors, "needs the changelog producer none, input or lookup; choose one of them")
	}
	return nil
}
