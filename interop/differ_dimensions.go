//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/schema"
)

// dimension is something that a history may have. Its name is in the closing line with the number of histories that
// had it, so that what was not tried is seen.
type dimension struct {
	name    string
	percent int    // of the histories that it fits
	may     refuse // what calve may refuse
	fits    func(*generator) bool
	apply   func(*generator)
}

// refuse says whether calve may refuse to write or even to read tables with a dimension. Those that it does not write
// are histories of Java's, read by both; those that it does not read are counted as refused.
type refuse bool

const (
	always refuse = false // calve must read and write it
	maybe  refuse = true
)

// set makes a dimension's apply that sets an option to one of the values.
func set(option string, values ...string) func(*generator) {
	return func(g *generator) { g.Options[option] = oneOf(g.valuer, values...) }
}

func isKeyed(g *generator) bool { return g.keyed() }

func isPartitioned(g *generator) bool { return len(g.Partition) > 0 }

var dimensions = []dimension{
	{name: "update-before", percent: 20, fits: isKeyed},
	{name: "large-writes", percent: 10},
	{name: "small-buffer", percent: 15, apply: func(g *generator) { g.Buffer = int64(1 + g.IntN(4096)) }},
	{name: "job", percent: 30, apply: func(g *generator) { g.Job = "differential" }},
	{name: "kept-open", percent: 30, apply: func(g *generator) { g.Keep = true }},
	{name: "thin-mode", percent: 30, fits: isKeyed, apply: set("data-file.thin-mode", "true")},
	{name: "stats-mode", percent: 40, apply: (*generator).statsMode},
	{name: "stats-sparse", percent: 15, apply: set("metadata.stats-dense-store", "false")},
	{name: "compression", percent: 40, apply: (*generator).compression},
	{name: "trigger", percent: 60, fits: isKeyed, apply: set("num-sorted-run.compaction-trigger", "1", "2", "3")},
	{name: "num-levels", percent: 40, fits: isKeyed, apply: set("num-levels", "2", "3", "4", "6")},
	{name: "compaction-options", percent: 20, fits: isKeyed, apply: func(g *generator) {
		g.Options["compaction.max-size-amplification-percent"] = oneOf(g.valuer, "10", "100", "1000")
		g.Options["compaction.size-ratio"] = oneOf(g.valuer, "0", "20", "100")
	}},
	{name: "small-files", percent: 30, apply: set("target-file-size", "1 kb", "4 kb", "16 kb")},
	{name: "write-only", percent: 10, apply: set("write-only", "true")},
	{name: "legacy-partition-name", percent: 50, fits: isPartitioned, apply: set("partition.legacy-name", "true")},
	{name: "partition-default-name", percent: 10, fits: isPartitioned, apply: set("partition.default-name", "none")},
	{name: "manifest-merge", percent: 40, apply: func(g *generator) {
		g.Options["manifest.merge-min-count"] = oneOf(g.valuer, "2", "3", "5")
		g.Options["manifest.target-file-size"] = oneOf(g.valuer, "1 kb", "8 kb", "8 mb")
		g.Options["manifest.full-compaction-threshold-size"] = oneOf(g.valuer, "1 kb", "8 kb", "16 mb")
	}},
	{name: "expiry", percent: 40, apply: func(g *generator) {
		low := 1 + g.IntN(3)
		g.Options["snapshot.num-retained.min"] = strconv.Itoa(low)
		g.Options["snapshot.num-retained.max"] = strconv.Itoa(low + g.IntN(4))
		g.Options["snapshot.time-retained"] = oneOf(g.valuer, "1 ms", "1 h")
	}},
	{name: "expire-limit", percent: 10, apply: set("snapshot.expire.limit", "1", "2")},
	{name: "file-prefix", percent: 10, apply: set("data-file.prefix", "part-", "d")},
	{name: "path-directory", percent: 10, apply: set("data-file.path-directory", "data")},
	{name: "bloom-filter", percent: 12, fits: func(g *generator) bool { return len(g.bloomColumns()) > 0 }, apply: func(g *generator) {
		g.Options["file-index.bloom-filter.columns"] = oneOf(g.valuer, g.bloomColumns()...)
	}},
	{name: "small-pages", percent: 10, apply: set("file.block-size", "1 kb", "64 kb")},
	{name: "float-keys-zero", percent: 50, fits: hasFloatKey}, // not NaN: Java 1.4.2 sorts it as equal to everything
	{name: "overwrite", percent: 20},
	{name: "schema-changes", percent: 35},
	{name: "watermarks", percent: 25},
	{name: "branches", percent: 15},
	{name: "consumers", percent: 35, fits: func(g *generator) bool { return g.has("expiry") }},
	{name: "rowkind-field", percent: 8, fits: isKeyed, apply: func(g *generator) {
		g.Options["rowkind.field"] = g.column("rk", "STRING", g.option("merge-engine", "") == "") // see mergeEngine
	}},
	{name: "record-expiry", percent: 10, fits: isKeyed, apply: func(g *generator) {
		g.timeField = g.column("et", oneOf(g.valuer, "INT", "BIGINT", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)",
			"TIMESTAMP(6) WITH LOCAL TIME ZONE"), g.chance(30) && g.option("merge-engine", "") == "")
		g.Options["record-level.expire-time"], g.Options["record-level.time-field"] = "1000 d", g.timeField
	}},
	{name: "changelog", percent: 12, may: maybe, fits: (*generator).lookupFits, apply: (*generator).changelog},
	{name: "deletion-vectors", percent: 10, may: maybe, fits: (*generator).vectorsFit, apply: func(g *generator) {
		delete(g.Options, "write-only")
		g.Options["deletion-vectors.enabled"] = "true"
		g.Options["deletion-vectors.bitmap64"] = oneOf(g.valuer, "true", "false")
	}},
	{name: "no-dictionary", percent: 10, apply: set("parquet.enable.dictionary", "false")},
}

// bloomColumns are those of types that Paimon's bloom filter takes.
func (g *generator) bloomColumns() []string {
	var out []string
	for _, c := range g.Columns {
		switch g.kinds[c.Name].Word {
		case "DECIMAL", "BOOLEAN", "BINARY", "VARBINARY", "BYTES", "VARIANT", "ARRAY", "MAP", "MULTISET", "ROW":
		default:
			out = append(out, c.Name)
		}
	}
	return out
}

func (g *generator) statsMode() {
	modes := []string{"none", "counts", "full", "truncate(1)", "truncate(16)"}
	g.Options["metadata.stats-mode"] = oneOf(g.valuer, modes...)
	if name := oneOf(g.valuer, g.Columns...).Name; g.chance(40) && !strings.Contains(name, ".") { // Java reads up to the first dot
		g.Options["fields."+name+".stats-mode"] = oneOf(g.valuer, modes...)
	}
	if g.keyed() && g.chance(30) {
		g.Options["metadata.stats-mode.per.level"] = fmt.Sprintf("0:%s,1:%s", oneOf(g.valuer, modes...), oneOf(g.valuer, modes...))
	}
}

func (g *generator) compression() {
	codecs := []string{"zstd", "snappy", "lz4", "none"}
	g.Options["file.compression"] = oneOf(g.valuer, codecs...)
	if g.keyed() && g.chance(40) {
		g.Options["file.compression.per.level"] = fmt.Sprintf("0:%s,1:%s", oneOf(g.valuer, codecs...), oneOf(g.valuer, codecs...))
	}
	if g.chance(30) {
		g.Options["file.compression.zstd-level"] = oneOf(g.valuer, "1", "3", "9")
	}
}

func hasFloatKey(g *generator) bool {
	return slices.ContainsFunc(g.Key, func(name string) bool { return g.kinds[name].Word == "FLOAT" || g.kinds[name].Word == "DOUBLE" })
}

func (g *generator) changelog() {
	g.Options["changelog-producer"] = oneOf(g.valuer, "input", "lookup", "full-compaction")
	if g.option("merge-engine", "") == schema.FirstRow {
		g.Options["changelog-producer"] = "lookup"
	}
	delete(g.Options, "write-only")
	if g.chance(30) {
		g.Options["changelog-producer.row-deduplicate"] = "true"
	}
}

// lookupFits tells tables whose keys Java can look up: it cannot compare binary ones.
func (g *generator) lookupFits() bool {
	return g.keyed() && !slices.ContainsFunc(g.Key, func(name string) bool {
		return slices.Contains([]string{"BINARY", "VARBINARY", "BYTES"}, g.kinds[name].Word)
	})
}

func (g *generator) vectorsFit() bool {
	return g.lookupFits() && g.option("changelog-producer", "none") != "full-compaction" && g.option("merge-engine", "") != schema.FirstRow
}
