package lsm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/manifest"
)

// ErrLevels: the files of a bucket break a rule of the LSM tree.
var ErrLevels = errors.New("levels are inconsistent")

// SortedRun is a set of files of one level whose key ranges do not overlap, in key order.
type SortedRun struct {
	Level int
	Files []manifest.DataFile
}

// Size is the size of the run's files in bytes.
func (r SortedRun) Size() int64 {
	n := int64(0)
	for i := range r.Files {
		n += r.Files[i].Size
	}
	return n
}

// Change is what a flush or a compaction did to a bucket. A file that moves to another level is in both lists, with
// its old and its new level.
type Change struct {
	Removed, Added []manifest.DataFile
	Changelog      []manifest.DataFile // what the compaction tells
	// Marks are rows of files above the output that the compaction replaces, in a table with deletion vectors. Vectors of
	// removed files are of no more use, but for those of files that only move.
	Marks  []Place
	Copied int64 // rows of new files that were copied without being decoded
}

// Levels are the live files of one bucket (§11.1): on level 0 every file is a sorted run of its own, newest first;
// above it, each level is one sorted run. Levels are not safe for concurrent use.
type Levels struct {
	keys  *Keys
	level [][]ranged // by level; level 0 newest first, others by key
	names map[string]int
}

// ranged is a file with its key range in normalized bytes.
type ranged struct {
	file     manifest.DataFile
	min, max string
}

// NewLevels arranges the files of a bucket on num levels; keys nil: of a table without primary key, whose files are all on
// level 0. Files on a higher level raise the number of levels.
// It fails with ErrLevels if the files break a rule.
func NewLevels(keys *Keys, num int, files []manifest.DataFile) (*Levels, error) {
	if num < 1 {
		return nil, fmt.Errorf("%w: %d levels", ErrLevels, num)
	}
	l := &Levels{keys: keys, level: make([][]ranged, num), names: map[string]int{}}
	if err := l.Apply(Change{Added: files}); err != nil {
		return nil, err
	}
	return l, nil
}

// Apply takes a change over, or fails with ErrLevels and leaves the levels as they were: a removed file must be there
// at that level, an added one must be new, and above level 0 no two files of a level may overlap.
func (l *Levels) Apply(c Change) error {
	level, names := slices.Clone(l.level), cloneMap(l.names)
	for i := range c.Removed {
		f := &c.Removed[i]
		if at, ok := names[f.Name]; !ok || at != f.Level {
			return fmt.Errorf("%w: removed file %s is not on level %d", ErrLevels, f.Name, f.Level)
		}
		delete(names, f.Name)
		level[f.Level] = slices.DeleteFunc(slices.Clone(level[f.Level]), func(r ranged) bool { return r.file.Name == f.Name })
	}
	added := make(map[int][]ranged)
	for i := range c.Added {
		r, err := newRanged(l.keys, c.Added[i])
		if err != nil {
			return err
		}
		f := &r.file
		if at, ok := names[f.Name]; ok {
			return fmt.Errorf("%w: added file %s is already on level %d", ErrLevels, f.Name, at)
		}
		names[f.Name] = f.Level
		added[f.Level] = append(added[f.Level], r)
	}
	for n, rs := range added {
		for n >= len(level) {
			level = append(level, nil)
		}
		all, err := arrange(n, append(slices.Clone(level[n]), rs...))
		if err != nil {
			return err
		}
		level[n] = all
	}
	l.level, l.names = level, names
	return nil
}

func cloneMap(m map[string]int) map[string]int {
	out := make(map[string]int, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// maxLevels is far above what any table uses; it keeps a corrupt level from becoming a huge allocation.
const maxLevels = 1 << 16

func newRanged(keys *Keys, f manifest.DataFile) (ranged, error) {
	if f.Level < 0 || f.Level >= maxLevels {
		return ranged{}, fmt.Errorf("%w: file %s is on level %d", ErrLevels, f.Name, f.Level)
	}
	r := ranged{file: f}
	if keys == nil {
		if f.Level != 0 {
			return ranged{}, fmt.Errorf("%w: file %s of a table without primary key is on level %d", ErrLevels, f.Name, f.Level)
		}
		return r, nil
	}
	var err error
	if r.min, err = keys.FromSerialized(f.MinKey); err == nil {
		r.max, err = keys.FromSerialized(f.MaxKey)
	}
	if err != nil {
		return ranged{}, fmt.Errorf("%w: key range of file %s: %w", ErrLevels, f.Name, err)
	}
	if r.min > r.max {
		return ranged{}, fmt.Errorf("%w: the smallest key of file %s is above its largest", ErrLevels, f.Name)
	}
	return r, nil
}

// arrange sorts the files of a level and holds them against its rule.
func arrange(level int, files []ranged) ([]ranged, error) {
	if level == 0 {
		slices.SortFunc(files, newestFirst)
		return files, nil
	}
	slices.SortFunc(files, byKey)
	for i := 1; i < len(files); i++ {
		if files[i-1].max >= files[i].min {
			return nil, fmt.Errorf("%w: files %s and %s overlap on level %d", ErrLevels, files[i-1].file.Name, files[i].file.Name, level)
		}
	}
	return files, nil
}

// newestFirst is the order of level 0 in `mergetree.Levels`.
func newestFirst(a, b ranged) int {
	return cmp.Or(
		cmp.Compare(b.file.MaxSeq, a.file.MaxSeq),
		cmp.Compare(a.file.MinSeq, b.file.MinSeq),
		cmp.Compare(a.file.CreatedMillis, b.file.CreatedMillis),
		strings.Compare(a.file.Name, b.file.Name),
	)
}

func byKey(a, b ranged) int {
	return cmp.Or(strings.Compare(a.min, b.min), strings.Compare(a.max, b.max), newestFirst(a, b))
}

// Runs are the sorted runs from the newest to the oldest.
func (l *Levels) Runs() []SortedRun {
	var out []SortedRun
	for n, rs := range l.level {
		if len(rs) == 0 {
			continue
		}
		if n == 0 {
			for i := range rs {
				out = append(out, SortedRun{Level: 0, Files: []manifest.DataFile{rs[i].file}})
			}
			continue
		}
		out = append(out, SortedRun{Level: n, Files: filesOf(rs)})
	}
	return out
}

func filesOf(rs []ranged) []manifest.DataFile {
	out := make([]manifest.DataFile, len(rs))
	for i := range rs {
		out[i] = rs[i].file
	}
	return out
}

// NumRuns is the number of sorted runs.
func (l *Levels) NumRuns() int {
	n := len(l.level[0])
	for _, rs := range l.level[1:] {
		if len(rs) > 0 {
			n++
		}
	}
	return n
}

// Settled reports whether all files are on the highest level, of a table that has num levels.
func (l *Levels) Settled(num int) bool {
	for _, rs := range l.level[:min(max(num, len(l.level))-1, len(l.level))] {
		if len(rs) > 0 {
			return false
		}
	}
	return true
}

// NumLevels is the number of levels, level 0 included.
func (l *Levels) NumLevels() int { return len(l.level) }

// Files are all files, level by level.
func (l *Levels) Files() []manifest.DataFile {
	var out []manifest.DataFile
	for _, rs := range l.level {
		out = append(out, filesOf(rs)...)
	}
	return out
}

// highest is the highest level that has files, -1 if none has.
func (l *Levels) highest() int {
	for n := len(l.level) - 1; n >= 0; n-- {
		if len(l.level[n]) > 0 {
			return n
		}
	}
	return -1
}
