package engine

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/calve-io/calve/lsm"
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

// A table can ask for a full compaction after some number of commits (`full-compaction.delta-commits`), and one whose
// producer is full-compaction does: its changes are told then (`flink.sink.GlobalFullCompactionSinkWrite`). Commits of the
// table are counted, whoever made them. Compactions wait for none of them, nor they for compactions.

// countLocked notes that a snapshot brought rows; mu is held.
func (t *Table) countLocked(entries []manifest.Entry) {
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e manifest.Entry) bool { return e.Kind != manifest.Add }) {
		t.appends++
	}
}

// fullDueLocked reports whether the bucket's rows have waited for a full compaction for as many commits as they may; mu is
// held. Rows that were there when the table was opened count as new.
func (t *Table) fullDueLocked(b *bucket) bool {
	f := t.form.Load()
	every := int64(f.opts.CommitsToFull())
	switch {
	case f.keys == nil || every == 0:
		return false
	case b.levels.Settled(f.policy.NumLevels):
		b.since = 0
		return false
	case b.since == 0:
		b.since = t.appends
	}
	return t.appends-b.since+1 >= every
}

// askDueLocked asks for the full compactions that are due, also of buckets that got no rows of late; mu is held.
func (t *Table) askDueLocked() {
	if f := t.form.Load(); t.closed || t.poison != nil || t.compactor == nil || t.leavesFiles(f) || f.opts.CommitsToFull() < 2 {
		return
	}
	for b := range t.loose {
		if t.fullDueLocked(b) {
			t.askLocked(b, lsm.Aged)
		}
	}
}
