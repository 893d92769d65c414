package lsm

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// CompactionMemory is about what a compaction holds at most, whatever its inputs are, as long as no value, and no page of a
// file that another program wrote, is larger than a few megabytes, and, with the merge engines partial-update and
// aggregation, there are not more sorted runs than can be read at once. It is made of:
//
//   - readMemory: of the files that are read at once, a page of each column, stored and unpacked, and dictionaries. If there
//     are more sorted runs than fit, some are merged into temporary files first.
//   - windowMemory: the decoded windows of these runs, of which there are up to three each.
//   - four batches of merged rows of batchMemory and a window each: one that is made, one that waits, one that is written
//     and the one before it.
//   - a row group that is written, of up to 32 MiB, and a page of each of its columns, in three forms (datafile.Writer).
const (
	CompactionMemory = 256 << 20
	readMemory       = 64 << 20
	windowMemory     = 48 << 20
	batchMemory      = 4 << 20
)

// shared gives the settings with which one of several runs is read.
func (f Files) shared(runs int) Files {
	f.WindowBytes = min(f.windowBytes(), windowMemory/3/int64(max(runs, 1)))
	f.runs = runs
	return f
}

// textBytes is what a window may have of a column of texts. Rows are counted by the size of the file, where texts that repeat
// take little.
func (f Files) textBytes(s *schema.Schema, cols []int) int {
	n := int64(0)
	for _, c := range cols {
		switch s.Fields[c].Type.Root {
		case schema.Char, schema.VarChar, schema.Binary, schema.VarBinary:
			n++
		default:
			if !s.Fields[c].Type.Primitive() {
				n++
			}
		}
	}
	return int(max(2*f.windowBytes()/max(n, 1), minTextBytes))
}

// minTextBytes keeps windows of very many columns from becoming a few rows.
const minTextBytes = 4 << 10

// rowBytes is about what a row of a window takes.
func rowBytes(r datafile.Rows) int64 {
	n := int64(r.N) * 9
	for _, c := range r.Cols {
		n += arrayBytes(c.Data())
	}
	return n / int64(max(r.N, 1))
}

// arrayBytes is what the values of an array take; slices of one array share its buffers.
func arrayBytes(d arrow.ArrayData) int64 {
	switch t := d.DataType().(type) {
	case arrow.FixedWidthDataType:
		if len(d.Children()) == 0 {
			return int64(d.Len()) * int64(t.BitWidth()) / 8
		}
	case arrow.BinaryDataType:
		if d.Len() == 0 || len(d.Buffers()) < 2 || d.Buffers()[1] == nil {
			return 0
		}
		off := arrow.GetData[int32](d.Buffers()[1].Bytes())
		if len(off) <= d.Offset()+d.Len() {
			return 0
		}
		return int64(off[d.Offset()+d.Len()]-off[d.Offset()]) + 4*int64(d.Len())
	}
	return int64(d.SizeInBytes())
}

// narrow merges runs of a section into temporary files until all that are left can be read at once. It does so only where
// any two runs may be merged before the others: where a rule makes one row of all rows of a key, what deletes take away or
// a sequence field puts in order depends on the older rows, and merging in two steps is not merging at once.
func (c *compaction) narrow(ctx context.Context, section []SortedRun) ([]SortedRun, error) {
	if c.rule != nil && c.rule.grouped {
		return section, nil
	}
	costs, err := c.readCosts(ctx, section)
	if err != nil {
		return nil, err
	}
	for len(section) > 2 && sumOf(costs) > c.files.readLimit() {
		sortBySize(section, costs)
		n, sum := 0, int64(0)
		for n < len(section)-1 && (n < 2 || sum+costs[n] <= c.files.readLimit()) {
			sum += costs[n]
			n++
		}
		if n < 2 {
			break
		}
		run, err := c.premerge(ctx, section[:n])
		if err != nil {
			return nil, err
		}
		section = append([]SortedRun{run}, section[n:]...)
		costs = append([]int64{slices.Max(costs[:n])}, costs[n:]...)
	}
	return section, nil
}

func sumOf(v []int64) int64 {
	n := int64(0)
	for _, x := range v {
		n += x
	}
	return n
}

// readLimit is what reading may hold.
func (f Files) readLimit() int64 {
	if f.readMost > 0 {
		return f.readMost
	}
	return readMemory
}

// sortBySize orders runs, and their costs, by size, small ones first: they cost the least to be rewritten.
func sortBySize(section []SortedRun, costs []int64) {
	order := make([]int, len(section))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(section[a].Size(), section[b].Size()) })
	runs, old := slices.Clone(section), slices.Clone(costs)
	for i, o := range order {
		section[i], costs[i] = runs[o], old[o]
	}
}

// readCosts estimates what reading each run holds: that of its most expensive file.
func (c *compaction) readCosts(ctx context.Context, section []SortedRun) ([]int64, error) {
	costs := make([]int64, len(section))
	for i, r := range section {
		for j := range r.Files {
			m := &r.Files[j]
			n := smallCost * m.Size
			if n > c.files.readLimit()/int64(len(section)) {
				o, closeFile, err := c.files.outline(ctx, c.part, m, m.Size)
				if err != nil {
					return nil, err
				}
				if o.Reading > 0 {
					n = min(n, o.Reading)
				}
				if err := closeFile(); err != nil {
					return nil, err
				}
			}
			costs[i] = max(costs[i], n)
		}
	}
	return costs, nil
}

// smallCost times its size is what reading a file holds at most, as a rule.
const smallCost = 8

// premerge merges runs into temporary files. They lie beside the others under names of their own, no snapshot ever names
// them, and the end of the compaction deletes them.
func (c *compaction) premerge(ctx context.Context, runs []SortedRun) (SortedRun, error) {
	level := runs[0].Level
	for _, r := range runs {
		level = min(level, r.Level)
	}
	o := &outputs{files: c.files, part: c.part, level: level, src: manifest.FromCompact}
	c.temps = append(c.temps, o)
	parts := make([][]fileRows, len(runs))
	for i, r := range runs {
		for _, m := range r.Files {
			parts[i] = append(parts[i], fileRows{file: m})
		}
	}
	t := *c
	t.out, t.job.DropDeletes = o, false
	t.mem = newArena(len(c.mem.sets)) // the output that is open still needs its last batch
	if err := t.merge(ctx, parts); err != nil {
		return SortedRun{}, err
	}
	if err := o.end(ctx); err != nil {
		return SortedRun{}, err
	}
	return SortedRun{Level: level, Files: o.made}, nil
}

// dropTemps deletes the temporary files.
func (c *compaction) dropTemps(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, o := range c.temps {
		if o.upload != nil {
			o.upload.Abort()
		}
		for _, n := range o.names {
			errs = append(errs, c.files.Store.Delete(ctx, n))
		}
	}
	c.temps = nil
	return errors.Join(errs...)
}
