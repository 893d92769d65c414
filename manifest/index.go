package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/schema"
)

// index knows the live files well enough to judge a change in time proportional to the change (paimon-format §2.4).
// It is built from one full read when the first commit that removes files comes, and then moves along with every
// snapshot, own or foreign. For each live file it holds the identity and, above level 0, the key range: about 200 bytes.
type index struct {
	keyTypes []schema.Type // nil: the table has no key, ranges do not matter
	files    map[fileID]struct{}
	levels   map[runID][]keyRange // files of a level ≥ 1, by key; they never overlap
	totals   map[string]totalCount
	names    map[string]string // partitions, so that all identities share one string for each
}

// runID is one sorted run: a level ≥ 1 of one bucket.
type runID struct {
	partition string
	bucket    int32
	level     int32
}

// keyRange is the range of one file, as sort keys.
type keyRange struct {
	min, max string
	name     string
}

// totalCount says with how many buckets a partition was written, over how many files.
type totalCount struct{ total, files int }

func newIndex(s *schema.Schema) *index {
	x := &index{
		files: map[fileID]struct{}{}, levels: map[runID][]keyRange{}, totals: map[string]totalCount{}, names: map[string]string{},
	}
	if s.Keyed() {
		x.keyTypes = s.Types(s.KeyColumns())
	}
	return x
}

// buildIndex makes the index of a set of live files. Files that overlap within a level are damage: no engine can read
// them right.
func buildIndex(s *schema.Schema, live []Entry) (*index, error) {
	x := newIndex(s)
	c, err := x.plan(live, true)
	if err != nil {
		return nil, err
	}
	for _, p := range c.added {
		x.files[p.id] = struct{}{}
		if p.total > 0 {
			x.totals[p.id.partition] = totalCount{total: p.total, files: x.totals[p.id.partition].files + 1}
		}
		if p.id.level > 0 && x.keyTypes != nil {
			x.levels[p.id.run()] = append(x.levels[p.id.run()], p.keys)
		}
	}
	for id, run := range x.levels {
		slices.SortFunc(run, func(a, b keyRange) int { return strings.Compare(a.min, b.min) })
		for i := 1; i < len(run); i++ {
			if run[i].min <= run[i-1].max {
				return nil, fmt.Errorf("%w: in level %d of bucket %d the keys of files %s and %s overlap",
					ErrCorrupt, id.level, id.bucket, run[i-1].name, run[i].name)
			}
		}
	}
	return x, nil
}

// change is a set of entries worked out for the index, so that it is checked as a whole before anything is touched.
type change struct {
	removed, added []placed
	overwrite      bool
}

// placed is an entry with its identity and key range.
type placed struct {
	id    fileID
	total int
	keys  keyRange
}

// plan works entries out.
func (x *index) plan(entries []Entry, overwrite bool) (change, error) {
	c := change{overwrite: overwrite}
	for i := range entries {
		e := &entries[i]
		p := placed{id: idOf(e), total: e.TotalBuckets}
		p.id.partition = x.intern(p.id.partition)
		p.id.name = strings.Clone(p.id.name) // the index must not keep whole decoded blocks alive
		if x.keyTypes != nil && e.File.Level > 0 {
			lo, err := sortKey(e.File.MinKey, x.keyTypes)
			if err != nil {
				return change{}, fmt.Errorf("smallest key of file %s: %w", p.id, err)
			}
			hi, err := sortKey(e.File.MaxKey, x.keyTypes)
			if err != nil {
				return change{}, fmt.Errorf("largest key of file %s: %w", p.id, err)
			}
			if lo > hi {
				return change{}, fmt.Errorf("file %s: its smallest key is above its largest", p.id)
			}
			p.keys = keyRange{min: lo, max: hi, name: p.id.name}
		}
		if e.Kind == Remove {
			c.removed = append(c.removed, p)
		} else {
			c.added = append(c.added, p)
		}
	}
	return c, nil
}

// intern gives the index's own copy of a partition.
func (x *index) intern(partition string) string {
	if p, ok := x.names[partition]; ok {
		return p
	}
	partition = strings.Clone(partition)
	x.names[partition] = partition
	return partition
}

// check judges a change and leaves the index as it is.
func (x *index) check(c change) error {
	if err := x.try(c); err != nil {
		return err
	}
	x.undo(c.removed, c.added)
	return nil
}

// try judges a change and applies it. A change that does not fit is refused with ErrConflict, and the index is as it
// was before.
func (x *index) try(c change) error {
	for i, p := range c.removed {
		if _, ok := x.files[p.id]; !ok {
			x.undo(c.removed[:i], nil)
			return fmt.Errorf("%w: file %s is not in the table any more", ErrConflict, p.id)
		}
		x.remove(p)
	}
	for i, p := range c.added {
		if err := x.fits(p, c.overwrite); err != nil {
			x.undo(c.removed, c.added[:i])
			return err
		}
		x.add(p)
	}
	return nil
}

// undo takes a part of a change back.
func (x *index) undo(removed, added []placed) {
	for _, p := range added {
		x.remove(p)
	}
	for _, p := range removed {
		x.add(p)
	}
}

// fits checks a file that is about to be added.
func (x *index) fits(p placed, overwrite bool) error {
	if _, ok := x.files[p.id]; ok {
		return fmt.Errorf("%w: file %s is in the table already", ErrConflict, p.id)
	}
	if n, ok := x.totals[p.id.partition]; ok && !overwrite && p.total > 0 && n.total != p.total {
		return fmt.Errorf("%w: file %s was written for %d buckets, its partition has %d", ErrConflict, p.id, p.total, n.total)
	}
	if p.id.level == 0 || x.keyTypes == nil {
		return nil
	}
	run := x.levels[p.id.run()]
	at := place(run, p.keys.min)
	if at > 0 && run[at-1].max >= p.keys.min {
		return fmt.Errorf("%w: the keys of file %s overlap those of file %s", ErrConflict, p.id, run[at-1].name)
	}
	if at < len(run) && run[at].min <= p.keys.max {
		return fmt.Errorf("%w: the keys of file %s overlap those of file %s", ErrConflict, p.id, run[at].name)
	}
	return nil
}

// add puts a file in.
func (x *index) add(p placed) {
	x.files[p.id] = struct{}{}
	if p.total > 0 {
		n := x.totals[p.id.partition]
		x.totals[p.id.partition] = totalCount{total: p.total, files: n.files + 1}
	}
	if p.id.level > 0 && x.keyTypes != nil {
		run := x.levels[p.id.run()]
		x.levels[p.id.run()] = slices.Insert(run, place(run, p.keys.min), p.keys)
	}
}

// remove takes a file out.
func (x *index) remove(p placed) {
	delete(x.files, p.id)
	if n := x.totals[p.id.partition]; p.total > 0 {
		if n.files <= 1 {
			delete(x.totals, p.id.partition)
		} else {
			x.totals[p.id.partition] = totalCount{total: n.total, files: n.files - 1}
		}
	}
	if p.id.level == 0 || x.keyTypes == nil {
		return
	}
	run := x.levels[p.id.run()]
	// Keys are unique in a run, so the smallest key finds the file; the name is compared in case a foreign writer
	// removed a file with other keys than it was added with.
	i := place(run, p.keys.min)
	if i >= len(run) || run[i].name != p.id.name {
		i = slices.IndexFunc(run, func(r keyRange) bool { return r.name == p.id.name })
	}
	if i >= 0 {
		run = slices.Delete(run, i, i+1)
	}
	if len(run) == 0 {
		delete(x.levels, p.id.run())
	} else {
		x.levels[p.id.run()] = run
	}
}

// run is the sorted run of a file.
func (id fileID) run() runID {
	return runID{partition: id.partition, bucket: id.bucket, level: id.level}
}

// place finds where a range that begins at key belongs.
func place(run []keyRange, key string) int {
	at, _ := slices.BinarySearchFunc(run, key, func(r keyRange, k string) int { return strings.Compare(r.min, k) })
	return at
}
