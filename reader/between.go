package reader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/manifest"
)

// BetweenMode says how the changes between two snapshots are found (`incremental-between-scan-mode`).
type BetweenMode string

// Modes of Between.
const (
	// Auto: Diff between tags; else Changelog in tables that have one, and Delta in others.
	Auto BetweenMode = "auto"
	// Delta: the rows that APPEND snapshots added, as they were written. Rows of a key are not merged. Nothing in tables
	// whose batch reads leave level 0 out: those with deletion vectors or merge engine first-row.
	Delta BetweenMode = "delta"
	// Changelog: the rows of changelog files; of such tables those that compactions wrote.
	Changelog BetweenMode = "changelog"
	// Diff: the rows of the end that the start does not have, and as -D those of the start whose key the end does not have.
	Diff BetweenMode = "diff"
)

// Between are the changes after one snapshot, up to another one and with it.
type Between struct {
	// Start (excluded) and End (included): both snapshot numbers, both tags, or both times as ParseTime reads them.
	// A number is a snapshot, or milliseconds since 1970 with Times. Start may be 0, before the first snapshot.
	Start, End string
	Times      bool // Start and End are times
	Mode       BetweenMode
	Columns    []string // nil: all
	// Where, when not empty, chooses among the changes: those are given whose own row it is true for, as Query.Where says.
	// Of a Diff it asks the row of the end, for -D that of the start.
	Where string
}

// ParseBetween reads "START,END".
func ParseBetween(s string) (Between, error) {
	parts := strings.Split(s, ",")
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return Between{}, fmt.Errorf("%w: %q: use START,END: two snapshots, two tags or two times", ErrQuery, s)
	}
	return Between{Start: strings.TrimSpace(parts[0]), End: strings.TrimSpace(parts[1]), Mode: Auto}, nil
}

// span is a resolved Between: changes after start, up to and with end. A nil start is before the first snapshot; a nil
// end means that there is nothing.
type span struct {
	startID    int64
	start, end *manifest.Snapshot
	tags       bool
}

// Changes gives the changes between two snapshots, as Paimon's incremental-between does, with the latest schema. Only
// Diff merges rows, so that of each key there is at most one; its items are of the end's snapshot.
func (r *Reader) Changes(ctx context.Context, b Between) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		if err := r.changes(ctx, b, yield); err != nil && !errors.Is(err, errEnd) {
			yield(Changes{}, err)
		}
	}
}

func (r *Reader) changes(ctx context.Context, b Between, yield func(Changes, error) bool) error {
	s, err := r.meta.LatestSchema(ctx)
	if err != nil {
		return err
	}
	v, err := r.view(ctx, s.ID)
	if err != nil {
		return err
	}
	cols, err := v.projection(b.Columns)
	if err != nil {
		return err
	}
	w, err := v.where(b.Where)
	if err != nil {
		return err
	}
	sp, err := r.resolve(ctx, v, b)
	if err != nil || sp.end == nil || sp.startID == sp.end.ID {
		return err
	}
	t := teller{r: r, v: v, w: w, cols: cols, yield: yield}
	switch mode := v.mode(b.Mode, sp.tags); mode {
	case Diff:
		return r.diff(ctx, t, sp)
	case Delta, Changelog:
		return r.told(ctx, t, sp, mode)
	}
	return fmt.Errorf("%w: mode %q: use auto, delta, changelog or diff", ErrQuery, b.Mode)
}

// mode settles Auto.
func (v *view) mode(m BetweenMode, tags bool) BetweenMode {
	switch {
	case m != Auto && m != "":
		return m
	case tags:
		return Diff
	case v.opts.ChangelogProducer == "none":
		return Delta
	}
	return Changelog
}

// told gives the changes that the snapshots tell themselves (`IncrementalDeltaStartingScanner`).
func (r *Reader) told(ctx context.Context, t teller, sp span, mode BetweenMode) error {
	first, err := r.meta.EarliestTold(ctx)
	if err != nil {
		return err
	}
	if sp.startID < first.ID-1 {
		return fmt.Errorf("%w: changes after snapshot %d: they are gone, the earliest ones of %s that are left are those of snapshot %d", ErrQuery, sp.startID, r.store.URL(""), first.ID)
	}
	for id := sp.startID + 1; id <= sp.end.ID; id++ {
		s, err := r.meta.Told(ctx, id)
		if err != nil {
			return err
		}
		var entries []manifest.Entry
		switch {
		case mode == Delta && s.CommitKind == manifest.Append:
			entries, err = r.meta.Delta(ctx, s)
		case mode == Changelog && s.CommitKind != manifest.Overwrite:
			entries, err = r.meta.Changelog(ctx, s)
		}
		// As in other batch reads, rows that wait for a compaction are not seen.
		entries = slices.DeleteFunc(entries, func(e manifest.Entry) bool { return !t.v.batchSight().file(&e) })
		if err == nil {
			err = t.files(ctx, addedInOrder(entries), changesOf(s, t.v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resolve finds the two ends. A diff compares snapshots; of changes that are told, long-lived changelogs will do.
func (r *Reader) resolve(ctx context.Context, v *view, b Between) (span, error) {
	told := v.mode(b.Mode, false) != Diff
	if b.Times {
		return r.resolveTimes(ctx, b, told)
	}
	startTag, err := r.maybeTag(ctx, b.Start)
	if err != nil {
		return span{}, err
	}
	endTag, err := r.maybeTag(ctx, b.End)
	if err != nil {
		return span{}, err
	}
	if startTag != nil && endTag != nil {
		sp := span{startID: startTag.ID, start: startTag, end: endTag, tags: true}
		return sp, sp.check(b)
	}
	start, err1 := strconv.ParseInt(b.Start, 10, 64)
	end, err2 := strconv.ParseInt(b.End, 10, 64)
	if err1 != nil || err2 != nil || start < 0 {
		return span{}, r.neither(ctx, b)
	}
	sp := span{startID: start}
	if told {
		sp.end, err = r.meta.Told(ctx, end)
	}
	if !told || err != nil {
		sp.end, err = r.numbered(ctx, end)
	}
	if err != nil {
		return span{}, err
	}
	return sp, sp.check(b)
}

func (s span) check(b Between) error {
	if s.end.ID < s.startID {
		return fmt.Errorf("%w: %s is after %s (snapshots %d and %d)", ErrQuery, b.Start, b.End, s.startID, s.end.ID)
	}
	return nil
}

// maybeTag gives the snapshot of a tag, nil if there is no such tag.
func (r *Reader) maybeTag(ctx context.Context, name string) (*manifest.Snapshot, error) {
	tag, err := r.meta.Tag(ctx, name)
	if errors.Is(err, manifest.ErrNoTag) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return tag.Snapshot, nil
}

// neither is the error of two ends that are neither two snapshots nor two tags.
func (r *Reader) neither(ctx context.Context, b Between) error {
	for _, name := range []string{b.Start, b.End} {
		if _, err := strconv.ParseInt(name, 10, 64); err == nil {
			continue
		}
		if _, err := r.meta.Tag(ctx, name); err != nil {
			return fmt.Errorf("%w: %q and %q are neither two snapshots nor two tags: %w", ErrQuery, b.Start, b.End, err)
		}
	}
	return fmt.Errorf("%w: %q and %q are neither two snapshots nor two tags", ErrQuery, b.Start, b.End)
}

// resolveTimes finds the snapshots of two times (`betweenTimestamps`): what was made after the first, up to the second.
func (r *Reader) resolveTimes(ctx context.Context, b Between, told bool) (span, error) {
	from, err := ParseTime(b.Start)
	if err != nil {
		return span{}, err
	}
	to, err := ParseTime(b.End)
	if err != nil {
		return span{}, err
	}
	if to.Before(from) {
		return span{}, fmt.Errorf("%w: %s is after %s", ErrQuery, b.Start, b.End)
	}
	at, earliest := r.meta.SnapshotAt, r.meta.Earliest
	if told {
		at, earliest = r.meta.ToldUpTo, r.meta.EarliestTold
	}
	end, err := at(ctx, to)
	if errors.Is(err, manifest.ErrNoSnapshot) || errors.Is(err, manifest.ErrNotThatOld) {
		return span{}, nil // nothing had been made by then
	}
	if err != nil {
		return span{}, err
	}
	start, err := at(ctx, from)
	if errors.Is(err, manifest.ErrNotThatOld) {
		first, err := earliest(ctx)
		if err != nil {
			return span{}, err
		}
		return span{startID: first.ID - 1, end: end}, nil
	}
	if err != nil {
		return span{}, err
	}
	return span{startID: start.ID, start: start, end: end}, nil
}

// diff compares two snapshots (`IncrementalDiffStartingScanner`).
func (r *Reader) diff(ctx context.Context, t teller, sp span) error {
	end, err := r.diffBuckets(ctx, t, sp.end)
	if err != nil {
		return err
	}
	start := map[bucketKey]*diffBucket{}
	if sp.start == nil && sp.startID > 0 {
		if sp.start, err = r.numbered(ctx, sp.startID); err != nil {
			return err
		}
	}
	if sp.start != nil {
		if start, err = r.diffBuckets(ctx, t, sp.start); err != nil {
			return err
		}
	}
	if err := sameBuckets(start, end); err != nil {
		return err
	}
	base := changesOf(sp.end, t.v)
	for _, k := range bucketOrder(start, end) {
		before, after := start[k], end[k]
		if before != nil && after != nil && before.equal(after) {
			continue
		}
		d := differ{teller: t, base: base}
		if err := d.bucket(ctx, before, after); err != nil {
			return err
		}
	}
	return nil
}

// sameBuckets refuses partitions that were written with other numbers of buckets: their keys have moved.
func sameBuckets(start, end map[bucketKey]*diffBucket) error {
	totals := map[string]int{}
	for k, b := range start {
		totals[k.partition] = b.part.TotalBuckets
	}
	for k, b := range end {
		if n, ok := totals[k.partition]; ok && n != b.part.TotalBuckets {
			return fmt.Errorf("%w: %s has %d buckets at the start and %d at the end; a diff needs the same number", ErrQuery, b.part.Dir, n, b.part.TotalBuckets)
		}
	}
	return nil
}

func bucketOrder(maps ...map[bucketKey]*diffBucket) []bucketKey {
	var keys []bucketKey
	for _, m := range maps {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, bucketKey.compare)
	return slices.Compact(keys)
}
