package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/lookup"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
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
	index     []manifest.IndexEntry // deletion vectors
	// check is asked about each snapshot that the publication is about to build on; nil: any will do.
	check func(ctx context.Context, base *manifest.Snapshot) error
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

// Level 0 of a table whose producer is lookup is compacted after every commit, or, if the option lookup-compact says gentle,
// as its shape asks, and at the latest after some number of commits to the bucket. What such a compaction reads is what
// changed: older rows above the level that it writes are looked up.

// policyLocked is the policy by which the bucket's next compaction is chosen; mu is held.
func (t *Table) policyLocked(b *bucket) lsm.Policy {
	f := t.form.Load()
	p := f.policy
	if c := f.opts.Changelog; p.Lift && c.LookupGentle {
		p.Lift = b.young >= c.LookupInterval
	}
	return p
}

// ageLocked counts the snapshots whose rows may be on level 0; mu is held.
func (b *bucket) ageLocked(brought bool) {
	if runs := b.levels.Runs(); len(runs) == 0 || runs[0].Level > 0 {
		b.young = 0
	} else if brought {
		b.young++
	}
}

// lookInto lets a job look up what the bucket has above the level it writes, if there is anything. The function it returns is called
// when the job has ended.
func (t *Table) lookInto(f *form, b *bucket, job *lsm.Job, v *vectors) (func() error, error) {
	none := func() error { return nil }
	if !f.policy.Lift || job.Output == 0 {
		return none, nil
	}
	t.mu.Lock()
	runs := slices.DeleteFunc(b.levels.Runs(), func(r lsm.SortedRun) bool { return r.Level <= job.Output })
	t.mu.Unlock()
	if len(runs) == 0 {
		return none, nil
	}
	for _, r := range runs {
		job.Above = append(job.Above, r.Files...)
	}
	rule, err := lsm.NewMergeRule(f.schema, f.opts)
	if err != nil {
		return none, err
	}
	// Files stay open for this job only: later jobs find other files, and what is open cannot go from a disk.
	cache := t.set.Lookups.Fork()
	look := &lookup.Table{Store: t.store, Schema: f.schema, Rule: rule, OpenSchema: t.meta.Schema, Cache: cache}
	var dead lookup.Vectors
	if v != nil {
		dead = v.of
	}
	above, err := look.Bucket(b.part, runs, dead)
	if err != nil {
		return none, err
	}
	fresh, _ := rowsOf(job)
	above.Expect(fresh)
	cols := make([]int, len(f.schema.Fields))
	for i := range cols {
		cols[i] = i
	}
	// The newest row of a key is the result, whatever was there, and nobody is told.
	alone := rule.Newest() && f.opts.ChangelogProducer != schema.ProducerLookup
	job.Older = func(ctx context.Context, keys []arrow.Array, n int) (out lsm.Olds, err error) {
		if v != nil {
			if out.Places, err = places(ctx, above, keys, n); err != nil {
				return out, err
			}
		}
		if v != nil && alone {
			out.At = make([]int32, n)
			for i := range out.At {
				out.At[i] = -1
			}
			return out, nil
		}
		found, err := above.Rows(ctx, keys, n, cols)
		out.Rows, out.At = found.Rows, found.At
		return out, err
	}
	return cache.Close, nil
}

// copies makes local copies of what a job writes, nil if it is to make none. Compactions copy what they look up in: a file so
// small beside the commits that its pages are read as fast is not copied.
func (t *Table) copies(f *form, job *lsm.Job) *lookup.Copies {
	if f.keys == nil || job.Output == 0 {
		return nil
	}
	if fresh, all := rowsOf(job); !t.set.CopyAll && (!f.policy.Lift || all < lookup.DenseRows*fresh) {
		return nil
	}
	return t.set.Lookups.Copies(&lookup.Table{Store: t.store, Schema: f.schema})
}

// rowsOf are the rows of a job that are on level 0, and all.
func rowsOf(job *lsm.Job) (fresh, all int64) {
	for i := range job.Files {
		if all += job.Files[i].Rows; job.Files[i].Level == 0 {
			fresh += job.Files[i].Rows
		}
	}
	return fresh, all
}

// places finds where the rows of keys are.
func places(ctx context.Context, above *lookup.Bucket, keys []arrow.Array, n int) ([]lsm.Place, error) {
	found, err := above.Places(ctx, keys, n)
	if err != nil {
		return nil, err
	}
	out := make([]lsm.Place, n)
	for i, p := range found {
		if p.File != nil {
			out[i] = lsm.Place{File: p.File.Name, Row: p.Row}
		}
	}
	return out, nil
}

// Lift compacts what a commit has left on level 0 of a table where rows of level 0 are not told, or not seen, for a writer that
// ends with its commit and compacts nothing in the background: Paimon's commits wait for that (`lookup-wait`). It does
// nothing in other tables, nor where the compaction is left to another process.
func (t *Table) Lift(ctx context.Context) error {
	if f := t.form.Load(); !f.policy.Lift || f.opts.Changelog.LookupGentle || t.leavesFiles(f) {
		return nil
	}
	return t.Compact(ctx, false)
}
