package lsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// The grain of copying: units of a file below unitBytes are put together, but no section has more than about maxUnits. To look
// at each cut of ten columns, which has some 150 KiB, costs next to nothing; units of half a megabyte met others far more
// often, and rows that are merged cost some ten times as much as those that are copied. A stretch of less than copyBytes, or
// copyColumnBytes a column, is decoded and merged with its neighbours: as a row group of its own it would cost readers more
// than it saves here.
const (
	unitBytes       = 32 << 10
	maxUnits        = 1 << 16
	copyBytes       = 1 << 20
	copyColumnBytes = 16 << 10
	// mostGroups is about how many stretches of a file of TargetFileSize may be copied.
	mostGroups = 256
	// dictShare: a stretch carries the dictionaries of its row group along if they are at most one part in dictShare of it.
	dictShare = 4
	// A file of less than one part in pointShare of its section, and of no more than pointRows rows, is cut into single rows.
	pointShare = 16
	pointRows  = 16 << 10
)

// stretch is a part of the key range of a section: rows of one file that meet no key range of another, which are copied as
// they are, or rows of several runs that are merged.
type stretch struct {
	file *manifest.DataFile // to be copied; nil: merge
	rows datafile.RowRange
	lo   string // bounds of their keys
	hi   string

	merge [][]fileRows // by run
}

// fileRows are some rows of a file; nil ranges: all of them.
type fileRows struct {
	file   manifest.DataFile
	ranges []datafile.RowRange
}

// keyUnit is a unit of a file with bounds of its keys in normalized bytes.
type keyUnit struct {
	datafile.Unit
	file   *manifest.DataFile
	run    int
	at     int // number in the run
	lo, hi string
	free   bool // it can be copied: its file can be, it has no deletes that must go, and it meets no unit of another run
}

// maySomeCopy reports whether rows of this table may be copied without looking at them. Filters of a file index need the
// values, and rows that expire are found by theirs.
func (f Files) maySomeCopy() bool {
	bloom, err := f.Schema.BloomColumns()
	_, expires := f.expireBefore()
	return err == nil && len(bloom) == 0 && !expires && !f.noCopy
}

// stretches cuts a section in stretches, in key order.
//
// A key of which there is one row only is never merged, whatever the merge engine: its row stays as it is (MergeRule). Rows of
// one file in whose key range no other file has rows are therefore what merging would give.
func (c *compaction) stretches(ctx context.Context, section []SortedRun) ([]stretch, error) {
	all := stretch{merge: make([][]fileRows, len(section))}
	size := int64(0)
	for i, r := range section {
		size += r.Size()
		for _, m := range r.Files {
			all.merge[i] = append(all.merge[i], fileRows{file: m})
		}
	}
	if !c.files.maySomeCopy() || size < c.least {
		return []stretch{all}, nil
	}
	var units []keyUnit
	some, points := false, int64(0)
	for i, r := range section {
		first := len(units)
		for j := range r.Files {
			m := &r.Files[j]
			var more []keyUnit
			var err error
			if m.Rows <= pointRows && m.Size*pointShare < size && points+m.Rows <= maxUnits && c.files.Vectors[m.Name] == nil {
				points += m.Rows
				more, err = c.points(ctx, m)
			} else {
				more, err = c.units(ctx, m, max(c.files.unitLeast(), size/maxUnits))
			}
			if err != nil {
				return nil, err
			}
			for _, u := range more {
				u.run, u.at = i, len(units)-first
				some = some || u.free
				units = append(units, u)
			}
		}
	}
	if !some {
		return []stretch{all}, nil
	}
	slices.SortFunc(units, func(a, b keyUnit) int {
		return cmp.Or(strings.Compare(a.lo, b.lo), cmp.Compare(a.run, b.run), cmp.Compare(a.at, b.at))
	})
	markMet(units)
	return c.cut(units, len(section)), nil
}

// units are the units of a file, in row order. A file that cannot be copied is one.
func (c *compaction) units(ctx context.Context, m *manifest.DataFile, grain int64) ([]keyUnit, error) {
	keys := NewKeys(c.files.Schema)
	whole, err := newRanged(keys, *m)
	if err != nil {
		return nil, err
	}
	one := []keyUnit{{Unit: datafile.Unit{RowRange: datafile.RowRange{To: m.Rows}, Bytes: m.Size}, file: m, lo: whole.min, hi: whole.max}}
	if c.job.Recast[m.SchemaID] || c.tell.changes(m) || c.files.Vectors[m.Name] != nil || m.Size < c.least {
		return one, nil
	}
	o, closeFile, err := c.files.outline(ctx, c.part, m, grain)
	if err != nil {
		return nil, err
	}
	out, err := func() ([]keyUnit, error) {
		var out []keyUnit
		rows := int64(0)
		for _, u := range o.Units {
			k := keyUnit{Unit: u, file: m, lo: whole.min, hi: whole.max, free: true}
			if u.Min != nil {
				if k.lo, err = keys.fromCells(u.Min); err == nil {
					k.hi, err = keys.fromCells(u.Max)
				}
				if err != nil {
					return nil, err
				}
			}
			if c.job.DropDeletes && !u.Adds && (m.DeleteRows == nil || *m.DeleteRows > 0) {
				n, err := o.Deletes(u.From, u.To)
				if err != nil {
					return nil, err
				}
				k.free = n == 0
			}
			rows += u.To - u.From
			k.Min, k.Max = nil, nil
			out = append(out, k)
		}
		if rows != m.Rows || !tighten(out, whole) {
			return one, nil
		}
		return out, nil
	}()
	return out, errors.Join(err, closeFile())
}

// points are the rows of a file, each a unit of its own. A page of a few new rows has bounds that are those of nearly all there
// is; their keys tell what they really meet. They are not copied.
func (c *compaction) points(ctx context.Context, m *manifest.DataFile) (out []keyUnit, err error) {
	s := c.files.Schema
	keys := NewKeys(s)
	run := c.files.OpenRun(ctx, c.part, []manifest.DataFile{*m}, s, s.KeyColumns())
	if r, ok := run.(io.Closer); ok {
		defer func() { err = errors.Join(err, r.Close()) }()
	}
	var code []byte
	for {
		rows, err := run.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		v, err := keys.Encode(rows.Cols, rows.N)
		if err != nil {
			return nil, fmt.Errorf("keys of data file %s: %w", m.Name, err)
		}
		for i := range rows.N {
			code = keys.AppendCode(code[:0], &v, i)
			at := int64(len(out))
			k := string(code)
			out = append(out, keyUnit{Unit: datafile.Unit{RowRange: datafile.RowRange{From: at, To: at + 1}}, file: m, lo: k, hi: k})
		}
	}
}

// tighten makes the bounds of a file's units follow from each other, since its rows are sorted: those of composite keys are
// wider than they need to be, and some units have none of their own. It reports false if they contradict each other.
func tighten(units []keyUnit, file ranged) bool {
	lo, hi := file.min, file.max
	for i := range units {
		lo = max(lo, units[i].lo)
		units[i].lo = lo
		j := len(units) - 1 - i
		hi = min(hi, units[j].hi)
		units[j].hi = hi
	}
	for i := range units {
		if units[i].lo > units[i].hi {
			return false
		}
	}
	return true
}

// markMet takes away the freedom of units that meet a unit of another run; units are in the order of their lower bounds.
func markMet(units []keyUnit) {
	// The greatest upper bound so far of one run, and of all others.
	best, second := -1, -1
	for i := range units {
		u := &units[i]
		other := best
		if best >= 0 && units[best].run == u.run {
			other = second
		}
		if other >= 0 && units[other].hi >= u.lo {
			u.free = false
		}
		switch {
		case best < 0:
			best = i
		case units[best].run == u.run:
			if u.hi > units[best].hi {
				best = i
			}
		case u.hi > units[best].hi:
			best, second = i, best
		case second < 0 || u.hi > units[second].hi:
			second = i
		}
	}
	// The next unit of another run is the one whose lower bound is the least.
	next, after := -1, -1 // the nearest unit behind, and the nearest behind of another run than that
	for i := len(units) - 1; i >= 0; i-- {
		u := &units[i]
		other := next
		if next >= 0 && units[next].run == u.run {
			other = after
		}
		if other >= 0 && units[other].lo <= u.hi {
			u.free = false
		}
		if next >= 0 && units[next].run != u.run {
			after = next
		}
		next = i
	}
}

// cut makes stretches of units: neighbours of one file that are free are copied if they are worth it, all others are merged.
func (c *compaction) cut(units []keyUnit, runs int) []stretch {
	var out []stretch
	merge := func(us []keyUnit) {
		if n := len(out); n == 0 || out[n-1].file != nil {
			out = append(out, stretch{merge: make([][]fileRows, runs)})
		}
		s := &out[len(out)-1]
		for i := range us {
			s.add(&us[i])
		}
	}
	for at := 0; at < len(units); {
		n := 1
		if !units[at].free {
			for at+n < len(units) && !units[at+n].free {
				n++
			}
			merge(units[at : at+n])
			at += n
			continue
		}
		for at+n < len(units) && units[at+n].free && units[at+n].file == units[at].file {
			n++
		}
		us := units[at : at+n]
		if !c.worthCopying(us) {
			merge(us)
		} else {
			out = append(out, stretch{file: us[0].file, rows: datafile.RowRange{From: us[0].From, To: us[n-1].To}, lo: us[0].lo, hi: us[n-1].hi})
		}
		at += n
	}
	return out
}

// add adds the rows of a unit, which follow those that its run has in the stretch.
func (s *stretch) add(u *keyUnit) {
	run := s.merge[u.run]
	if n := len(run); n == 0 || run[n-1].file.Name != u.file.Name {
		s.merge[u.run] = append(run, fileRows{file: *u.file, ranges: []datafile.RowRange{u.RowRange}})
		return
	}
	ranges := run[len(run)-1].ranges
	if last := &ranges[len(ranges)-1]; last.To == u.From {
		last.To = u.To
		return
	}
	run[len(run)-1].ranges = append(ranges, u.RowRange)
}

// unitLeast is the least size of a unit.
func (f Files) unitLeast() int64 {
	if f.leastCopy > 0 {
		return 1
	}
	return unitBytes
}

// copyLeast is the least size of a stretch of some files that is copied. It is larger where files are large, so that none has
// more than about 2*mostGroups row groups.
func (f Files) copyLeast(files []manifest.DataFile) int64 {
	if f.leastCopy > 0 {
		return f.leastCopy
	}
	size := int64(0)
	for i := range files {
		size += files[i].Size
	}
	return max(copyBytes, copyColumnBytes*int64(len(f.Schema.Fields)), min(size, f.Options.TargetFileSize)/mostGroups)
}

// worthCopying reports whether units of a file should be copied.
func (c *compaction) worthCopying(us []keyUnit) bool {
	size, dict, group := int64(0), int64(0), -1
	for i := range us {
		size += us[i].Bytes
		if us[i].Group != group {
			if group = us[i].Group; !us[i].Whole {
				dict += us[i].Dict
			}
		}
	}
	return size >= c.least && dict*dictShare <= size
}

// outline opens a file to copy from. The second result closes it.
func (f Files) outline(ctx context.Context, part Part, m *manifest.DataFile, grain int64) (*datafile.Outline, func() error, error) {
	name := path.Join(part.Dir, m.Name)
	written, err := f.schemaOf(ctx, m, name)
	if err != nil {
		return nil, nil, err
	}
	file, err := f.Store.Open(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("open data file: %w", err)
	}
	o, err := datafile.NewOutline(file, f.Store.URL(name), written, f.writerConfig(0), grain)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return o, file.Close, nil
}

// schemaOf is the schema that a file was written with.
func (f Files) schemaOf(ctx context.Context, m *manifest.DataFile, name string) (*schema.Schema, error) {
	if m.SchemaID == f.Schema.ID {
		return f.Schema, nil
	}
	if f.OpenSchema == nil {
		return nil, fmt.Errorf("data file %s was written with schema %d, and only %d is known", f.Store.URL(name), m.SchemaID, f.Schema.ID)
	}
	s, err := f.OpenSchema(ctx, m.SchemaID)
	if err != nil {
		return nil, fmt.Errorf("schema %d of data file %s: %w", m.SchemaID, f.Store.URL(name), err)
	}
	return s, nil
}

// outlines are files that stretches are copied from, open from the first to the last of them: at most one of each run.
type outlines struct {
	open map[string]openOutline // by name
	left map[string]int         // stretches to come
}

type openOutline struct {
	*datafile.Outline
	close func() error
}

func newOutlines(parts []stretch) *outlines {
	o := &outlines{open: map[string]openOutline{}, left: map[string]int{}}
	for i := range parts {
		if f := parts[i].file; f != nil {
			o.left[f.Name]++
		}
	}
	return o
}

// get opens the file of the next stretch.
func (o *outlines) get(ctx context.Context, c *compaction, m *manifest.DataFile) (*datafile.Outline, error) {
	if x, ok := o.open[m.Name]; ok {
		return x.Outline, nil
	}
	x, closeFile, err := c.files.outline(ctx, c.part, m, 1)
	if err != nil {
		return nil, err
	}
	o.open[m.Name] = openOutline{x, closeFile}
	return x, nil
}

// done closes the file of a stretch if it was the last.
func (o *outlines) done(m *manifest.DataFile) error {
	if o.left[m.Name]--; o.left[m.Name] > 0 {
		return nil
	}
	x := o.open[m.Name]
	delete(o.open, m.Name)
	return x.close()
}

// close closes all files.
func (o *outlines) close() error {
	var errs []error
	for _, x := range o.open {
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}

// copyRows copies a stretch into the output. It is an error if the keys are not where the page index of the file says, for
// by it the other stretches were cut.
func (c *compaction) copyRows(ctx context.Context, s *stretch, o *datafile.Outline) (err error) {
	m := s.file
	if len(o.Units) == 0 || o.Units[len(o.Units)-1].To != m.Rows {
		return fmt.Errorf("data file %s has changed", m.Name)
	}
	keys := NewKeys(c.files.Schema)
	for rows := s.rows; rows.From < rows.To; {
		p := datafile.Piece{RowRange: datafile.RowRange{From: rows.From, To: c.out.fitting(o, rows)}}
		if p.First, p.Last, err = o.Edges(p.From, p.To); err != nil {
			return err
		}
		in, err := within(keys, p, s.lo, s.hi)
		if err == nil && !in {
			err = fmt.Errorf("data file %s: the keys of rows %d to %d are not within the bounds of its page index", m.Name, p.From, p.To)
		}
		if err != nil {
			return err
		}
		if m.DeleteRows == nil || *m.DeleteRows > 0 {
			if p.Deletes, err = o.Deletes(p.From, p.To); err != nil {
				return err
			}
		}
		if err := c.out.copy(ctx, o, p); err != nil {
			return err
		}
		if err := c.pace(ctx, int(p.To-p.From)); err != nil {
			return err
		}
		c.change.Copied += p.To - p.From
		rows.From = p.To
	}
	return nil
}

// within reports whether the first and last key of a piece lie within bounds.
func within(keys *Keys, p datafile.Piece, lo, hi string) (bool, error) {
	first, err := keys.FromSerialized(p.First)
	if err != nil {
		return false, err
	}
	last, err := keys.FromSerialized(p.Last)
	return lo <= first && first <= last && last <= hi, err
}
