package reader

import (
	"slices"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// Values of merge-engine.
const (
	firstRow    = "first-row"
	deduplicate = "deduplicate"
)

// batchVisible reports whether a batch read sees the file (`table.source.DataTableBatchScan`): rows in bucket-postpone
// wait for a compaction that gives them a bucket; in tables with deletion vectors, and with merge engine first-row, rows
// of level 0 wait for one that finds out which older rows they replace.
func (v *view) batchVisible(e *manifest.Entry) bool {
	if v.keys == nil {
		return true
	}
	return e.Bucket >= 0 && (e.File.Level > 0 || !v.skipsLevel0())
}

// skipsLevel0 reports whether batch reads leave level 0 out (`CoreOptions.batchScanSkipLevel0`). The option
// deletion-vectors.merge-on-read, of Paimon after 2.0, makes it visible again.
func (v *view) skipsLevel0() bool {
	return v.opts.DeletionVectors && !v.opts.MergeOnRead || v.opts.MergeEngine == firstRow
}

// startVisible reports whether a stream that begins with the rows of a snapshot tells the file's rows with them. What is
// not told then is told by the changelog of a later compaction (`DataTableStreamScan.tryFirstPlan`).
func (v *view) startVisible(e *manifest.Entry) bool {
	if v.keys == nil {
		return true
	}
	switch v.opts.ChangelogProducer {
	case "lookup":
		return e.File.Level > 0
	case "full-compaction":
		return e.File.Level == v.opts.MaxLevel()
	}
	return e.Bucket != schema.BucketPostpone
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
