package engine

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/calve-io/calve/manifest"
)

// Changes of a table with a changelog producer are told by changelog files: of what was written (producer input), or of
// what a compaction found to have changed. They are published by the very snapshot that publishes those rows, or installs
// that compaction, so that whatever fails, changes are told exactly once.

// publication is what one snapshot publishes.
type publication struct {
	kind      manifest.CommitKind
	entries   []manifest.Entry
	changelog []manifest.Entry
	hashes    hashFiles
}

// byBucket orders entries: maps have no order; files should.
func byBucket(entries []manifest.Entry) {
	slices.SortStableFunc(entries, func(a, b manifest.Entry) int {
		return cmp.Or(bytes.Compare(a.Partition, b.Partition), cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.File.MinSeq, b.File.MinSeq))
	})
}

// flushed are the files that a flush made of the rows of a bucket.
type flushed struct{ data, changelog []manifest.DataFile }

// all are all of them.
func (f flushed) all() []manifest.DataFile { return slices.Concat(f.data, f.changelog) }
