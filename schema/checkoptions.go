package schema

import (
	"slices"
	"strings"
)

// guard is an option that calve cannot do, unless it has one of the values in ok.
// `CoreOptions` of Paimon 1.3.1 and of its 2.1 line were read for the list.
type guard struct {
	ok   []string // lower case; empty: the option must not be set at all
	why  string
	read bool // ignoring it would also give wrong rows on read
}

// guards are the options that change which rows a table has, or what a writer must write.
var guards = map[string]guard{
	"type":                   {[]string{"table"}, "only tables of type \"table\" have snapshots that calve knows", true},
	"branch":                 {[]string{"main"}, "calve works on the main branch only", true},
	"scan.fallback-branch":   {nil, "calve does not look into other branches for missing partitions", true},
	"scan.primary-branch":    {nil, "calve does not look into other branches", true},
	"chain-table.enabled":    {[]string{"false"}, "calve does not know chain tables", true},
	"query-auth.enabled":     {[]string{"false"}, "calve cannot ask a catalog for row and column rights", true},
	"primary-key.nullable":   {[]string{"false"}, "calve's keys are never null", true},
	"pk-clustering-override": {[]string{"false"}, "calve's files are sorted by the primary key", true},
	"manifest.format":        {[]string{"avro"}, "calve's manifests are Avro", true},

	"sequence.field":               {nil, "calve merges by arrival order only", true},
	"sequence.snapshot-ordering":   {[]string{"false"}, "calve merges by sequence number only", true},
	"record-level.expire-time":     {nil, "calve does not expire single rows", true},
	"ignore-delete":                {[]string{"false"}, "calve applies deletes", true},
	"first-row.ignore-delete":      {[]string{"false"}, "calve applies deletes", true},
	"deduplicate.ignore-delete":    {[]string{"false"}, "calve applies deletes", true},
	"partial-update.ignore-delete": {[]string{"false"}, "calve applies deletes", true},
	"ignore-update-before":         {[]string{"false"}, "calve does not drop update-before rows by this option", false},
	"rowkind.field":                {nil, "calve does not take row kinds from a column", false},
	"deletion-vectors.enabled":     {[]string{"false"}, "calve does not know deletion vectors yet", true},
	"force-lookup":                 {[]string{"false"}, "calve has no lookup compaction", false},
	"row-tracking.enabled":         {[]string{"false"}, "calve does not give row ids", false},
	"data-evolution.enabled":       {[]string{"false"}, "calve does not join files with parts of the columns", true},
	"clustering.columns":           {nil, "calve does not cluster append tables", false},
	"sink.clustering.by-columns":   {nil, "calve does not cluster append tables", false},

	"data-file.external-paths":    {nil, "calve writes data files into the table's folder only", false},
	"changelog.num-retained.min":  {nil, "calve does not keep changelogs longer than snapshots", false},
	"changelog.num-retained.max":  {nil, "calve does not keep changelogs longer than snapshots", false},
	"changelog.time-retained":     {nil, "calve does not keep changelogs longer than snapshots", false},
	"metadata.iceberg.storage":    {[]string{"disabled"}, "calve's own export would meet Paimon's in the folder metadata/", false},
	"metastore.partitioned-table": {[]string{"false"}, "calve does not register partitions in a metastore", false},
	"metastore.tag-to-partition":  {nil, "calve does not register tags in a metastore", false},
	"tag.automatic-creation":      {[]string{"none"}, "calve does not make tags by itself", false},
	"tag.callbacks":               {nil, "calve cannot call Java callbacks", false},
	"commit.callbacks":            {nil, "calve cannot call Java callbacks", false},
	"log.system":                  {[]string{"none"}, "calve does not write to a second log system", false},
	"visibility-callback.enabled": {[]string{"false"}, "calve cannot wait for other systems", false},
}

// honoured are the options that Options holds.
var honoured = []string{
	optBucket, optBucketKey, optBucketFunc, optMergeEngine, optProducer, optNumLevels, optTrigger,
	"num-sorted-run.stop-trigger", "compaction.max-size-amplification-percent", "compaction.size-ratio", "write-only",
	"write.compaction-skip", optFileFormat, fileFormatPerLevel, optTargetSize, optCompression, optZstdLevel,
	optCompressionPerLevel, "data-file.prefix", "data-file.path-directory", "data-file.thin-mode", optLegacyName,
	"partition.default-name", "metadata.stats-mode", "metadata.stats-mode.per.level", "metadata.stats-dense-store",
	"manifest.target-file-size", "manifest.merge-min-count", "manifest.full-compaction-threshold-size",
	"snapshot.num-retained.min", "snapshot.num-retained.max", "snapshot.time-retained", "snapshot.expire.limit",
}

// harmless are options that may be ignored: they tune Paimon's own engines, choose what a query reads, or say how
// something is done that calve may do in its own way (`paimon-format`: compression, sizes, indexes, statistics).
var harmless = []string{
	"add-column-before-partition", "alter-column-null-to-not-null.disabled", "async-file-write", "auto-create",
	"batch-scan-mode", "bucket-append-ordered", "cache-page-size", "commit.discard-duplicate-files",
	"commit.force-compact", "commit.force-create-snapshot", "commit.max-retries", "commit.max-retry-wait",
	"commit.min-retry-wait", "commit.strict-mode.last-safe-snapshot", "commit.timeout", "commit.user-prefix",
	"consumer-id", "continuous.discovery-interval", "delete-file.thread-num", "disable-explicit-type-casting",
	"dynamic-partition-overwrite", "end-input.check-partition-expire", "file-operation.thread-num",
	"file-reader-async-threshold", "file.block-size", "file.suffix.include.compression", "full-compaction.delta-commits",
	"index-file-in-data-file-dir", "local-merge-buffer-size", "local-sort.max-num-file-handles", "lookup-compact",
	"lookup-compact.max-interval", "lookup-wait", "manifest.compression", "manifest.delete-file-drop-stats",
	"metadata.stats-keep-first-n-columns", "overwrite-upgrade", "page-size", "partition.idle-time-to-report-statistic",
	"partition.sink-strategy", "path", "record-level.time-field", "sequence.field.sort-order",
	"snapshot.clean-empty-directories", "snapshot.expire.clean-empty-directories", "snapshot.expire.execution-mode",
	"snapshot.ignore-empty-commit", "snapshot.watermark-idle-timeout", "sort-engine", "stream-scan-mode",
	"target-file-row-num", "write.batch-memory", "write.batch-size", "zorder.var-length-contribution",
}

// harmlessPrefixes are families of such options. guards are asked first.
var harmlessPrefixes = []string{
	"changelog-file.", "changelog-producer.", "compaction.", "consumer.", "cross-partition-upsert.", "deletion-vector.",
	"deletion-vectors.", "dynamic-bucket.", "file-index.", "incremental-", "log.", "lookup.", "manifest-sort.",
	"materialized-table.", "metadata.iceberg.", "orc.", "parquet.", "partition.expiration-", "partition.timestamp-",
	"postpone.", "read.", "scan.", "sink.", "sort-compaction.", "sort-spill-", "source.", "spill-compression",
	"streaming-", "streaming.", "tag.", "write-buffer-", "write-max-",
}

// known reports whether the option is honoured or may be ignored.
func known(name string) bool {
	if _, ok := statsColumn(name); ok {
		return true
	}
	if slices.Contains(honoured, name) || slices.Contains(harmless, name) {
		return true
	}
	return slices.ContainsFunc(harmlessPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
