package reader

import (
	"slices"

	"github.com/calve-io/calve/manifest"
)

// Values of merge-engine.
const (
	firstRow    = "first-row"
	deduplicate = "deduplicate"
)

// sight says which files a read sees, by what is the same in all entries of a file.
type sight struct {
	level int  // the lowest level
	real  bool // no postponed buckets
}

func (s sight) file(e *manifest.Entry) bool {
	return e.File.Level >= s.level && (e.Bucket >= 0 || !s.real)
}

// manifest reports whether a manifest may have entries of such files. Manifests of writers before Paimon 1.1 say nothing
// (`ManifestsReader.filterManifestFileMeta`).
func (s sight) manifest(m *manifest.Meta) bool {
	return (m.MaxLevel == nil || int(*m.MaxLevel) >= s.level) && (m.MaxBucket == nil || *m.MaxBucket >= 0 || !s.real)
}

// filter chooses manifests and files.
func (s sight) filter() manifest.Filter {
	if s == (sight{}) {
		return manifest.Filter{}
	}
	return manifest.Filter{Manifest: s.manifest, Identity: s.file}
}

// batchSight is what a batch read sees (`table.source.DataTableBatchScan`): rows in bucket-postpone wait for a compaction
// that gives them a bucket; in tables with deletion vectors, and with merge engine first-row, rows of level 0 wait for one
// that finds out which older rows they replace.
func (v *view) batchSight() sight {
	switch {
	case v.keys == nil:
		return sight{}
	case v.skipsLevel0():
		return sight{level: 1, real: true}
	}
	return sight{real: true}
}

// skipsLevel0 reports whether batch reads leave level 0 out (`CoreOptions.batchScanSkipLevel0`). The option
// deletion-vectors.merge-on-read, of Paimon after 2.0, makes it visible again.
func (v *view) skipsLevel0() bool {
	return v.opts.DeletionVectors && !v.opts.MergeOnRead || v.opts.MergeEngine == firstRow
}

// startSight is what a stream that begins with the rows of a snapshot tells of them. What is not told then is told by the
// changelog of a later compaction (`DataTableStreamScan.tryFirstPlan`).
func (v *view) startSight() sight {
	if v.keys == nil {
		return sight{}
	}
	switch v.opts.ChangelogProducer {
	case "lookup":
		return sight{level: 1}
	case "full-compaction":
		return sight{level: v.opts.MaxLevel()}
	}
	return sight{real: true}
}

// unmerged reports whether the files of a bucket can be read one by one: above level 0 a deletion vector or the merge
// engine first-row leaves one version of a key (`source.MergeTreeSplitGenerator`). As there, an unknown number of deletes
// counts as none.
func (v *view) unmerged(files []manifest.DataFile) bool {
	if v.keys == nil {
		return true
	}
	if !v.opts.DeletionVectors && v.opts.MergeEngine != firstRow {
		return false
	}
	return !slices.ContainsFunc(files, func(f manifest.DataFile) bool {
		return f.Level == 0 || f.DeleteRows != nil && *f.DeleteRows > 0
	})
}
