package lsm

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
)

// Compact does a job (`mergetree.compact.MergeTreeCompactTask`, §11.3). The files are cut in sections of overlapping key
// ranges. A section of one run holds files that overlap nothing: those of 70 % of the target size or more move to
// the output level by metadata alone, smaller ones are rewritten together with their neighbours, or move if there are
// none. Everything else is merged into new files that end at the target size; stretches of a file that overlap nothing are
// copied into them without being decoded (stretch).
//
// A file with deletes, or with an unknown number of them, is rewritten rather than moved to the highest level, so that
// no delete stays there.
//
// The result is what has to be committed. If Compact fails, or its context ends, it deletes the files it made.
//
// Files of a table without primary key become one file.
func (f Files) Compact(ctx context.Context, part Part, job Job) (Change, error) {
	if !f.Schema.Keyed() {
		return f.compactAppend(ctx, part, job)
	}
	sections, err := Sections(NewKeys(f.Schema), job.Files)
	if err != nil {
		return Change{}, fmt.Errorf("compact: %w", err)
	}
	rule, err := f.mergeRule()
	if err != nil {
		return Change{}, fmt.Errorf("compact: %w", err)
	}
	c := &compaction{
		files: f, part: part, job: job, rule: rule, pace: f.pacer(job),
		out:  &outputs{files: f, part: part, level: job.Output, src: manifest.FromCompact, roll: f.Options.TargetFileSize},
		tell: f.telling(job), log: f.changelogOutputs(part, job.Output),
	}
	if c.tell != nil {
		c.rule = rule.allRows()
	}
	if job.Output > 0 {
		c.out.follow = f.Follow
	}
	if c.expired, err = f.expiredFiles(ctx, job.Files); err != nil {
		return Change{}, fmt.Errorf("compact: %w", err)
	}
	// The batch being merged, one waiting and one being written if these overlap, and the one before it, of which the
	// writer keeps the last row.
	if c.mem = newArena(2); f.Parallel > 1 {
		c.mem = newArena(4)
	}
	c.least = f.copyLeast(job.Files)
	if job.Output == 0 {
		c.out.roll = 0 // one sorted run has to come out of it, and on level 0 that is one file
	}
	err = errors.Join(c.run(ctx, sections), c.dropTemps(ctx))
	if err == nil {
		err = c.log.end(ctx)
	}
	if err != nil {
		return Change{}, c.log.discard(ctx, c.out.discard(ctx, fmt.Errorf("compact %s: %w", f.Store.URL(part.Dir), err)))
	}
	c.change.Added = append(c.change.Added, c.out.made...)
	c.change.Changelog = c.log.made
	if c.tell != nil {
		c.change.Marks = c.tell.marks
	}
	return c.change, nil
}

// pacer turns rows of a job into the bytes that Pace is told of.
func (f Files) pacer(job Job) func(ctx context.Context, rows int) error {
	if f.Pace == nil {
		return func(context.Context, int) error { return nil }
	}
	size, rows := int64(0), int64(0)
	for i := range job.Files {
		size += job.Files[i].Size
		rows += job.Files[i].Rows
	}
	perRow := float64(size) / float64(max(rows, 1))
	return func(ctx context.Context, n int) error { return f.Pace(ctx, int64(float64(n)*perRow)) }
}

type compaction struct {
	pace    func(ctx context.Context, rows int) error
	files   Files
	part    Part
	job     Job
	rule    *MergeRule
	out     *outputs
	change  Change
	expired map[string]bool // files with rows that have expired
	group   [][]SortedRun   // adjacent sections to be rewritten together
	mem     *arena          // of the merged batches
	least   int64           // Files.copyLeast
	temps   []*outputs      // of narrow
	tell    *telling        // nil: the compaction tells nothing
	log     *outputs        // of what it tells
}

func (c *compaction) run(ctx context.Context, sections [][]SortedRun) error {
	large := c.files.Options.CompactionFileSize()
	for _, s := range sections {
		if len(s) > 1 {
			c.group = append(c.group, s)
			continue
		}
		for _, m := range s[0].Files {
			if m.Size < large || c.mustRewrite(&m) {
				c.group = append(c.group, []SortedRun{{Level: m.Level, Files: []manifest.DataFile{m}}})
				continue
			}
			if err := c.flushGroup(ctx); err != nil {
				return err
			}
			if err := c.move(ctx, m); err != nil {
				return err
			}
		}
	}
	return c.flushGroup(ctx)
}

// mustRewrite reports whether a file may hold deletes that the output must not have, or rows that have expired, or types
// that are not those of today.
func (c *compaction) mustRewrite(m *manifest.DataFile) bool {
	o := c.files.Options
	return c.rewritesUpgrade(m) || c.job.Recast[m.SchemaID] || c.expired[m.Name] ||
		c.job.DropDeletes && (c.job.Output >= o.MaxLevel() || o.DeletionVectors) && (m.DeleteRows == nil || *m.DeleteRows > 0)
}

// move changes a file's level by metadata alone; it keeps its source. It is read if that has to be told.
func (c *compaction) move(ctx context.Context, m manifest.DataFile) error {
	if m.Level == c.job.Output {
		return nil
	}
	if err := c.announce(ctx, m); err != nil {
		return err
	}
	c.change.Removed = append(c.change.Removed, m)
	m.Level = c.job.Output
	c.change.Added = append(c.change.Added, m)
	return nil
}

// flushGroup ends a group: a lone file moves, anything else is rewritten.
func (c *compaction) flushGroup(ctx context.Context) error {
	group := c.group
	c.group = nil
	if len(group) == 0 {
		return nil
	}
	if len(group) == 1 && len(group[0]) == 1 && len(group[0][0].Files) == 1 {
		if m := group[0][0].Files[0]; !c.mustRewrite(&m) {
			return c.move(ctx, m)
		}
	}
	for _, section := range group {
		if err := c.rewrite(ctx, section); err != nil {
			return err
		}
	}
	return c.out.end(ctx)
}

// rewrite brings one section into the output.
func (c *compaction) rewrite(ctx context.Context, section []SortedRun) error {
	runs, err := c.narrow(ctx, section)
	if err != nil {
		return err
	}
	parts, err := c.stretches(ctx, runs)
	if err != nil {
		return err
	}
	if err := c.fill(ctx, parts); err != nil {
		return err
	}
	for _, r := range section {
		c.change.Removed = append(c.change.Removed, r.Files...)
	}
	return nil
}

// fill copies and merges stretches into the output.
func (c *compaction) fill(ctx context.Context, parts []stretch) (err error) {
	from := newOutlines(parts)
	defer func() { err = errors.Join(err, from.close()) }()
	for i := range parts {
		p := &parts[i]
		if p.file == nil {
			if err := c.merge(ctx, p.merge); err != nil {
				return err
			}
			continue
		}
		o, err := from.get(ctx, c, p.file)
		if err == nil {
			err = c.copyRows(ctx, p, o)
		}
		if err == nil {
			err = from.done(p.file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// merge merges rows of several runs into the output.
func (c *compaction) merge(ctx context.Context, parts [][]fileRows) error {
	s, files := c.files.Schema, c.files.shared(len(parts))
	var runs []Run
	for _, p := range parts {
		if len(p) > 0 {
			runs = append(runs, files.unexpired(files.openRows(c.part, p, s, allColumns(s))))
		}
	}
	m := Merge(MergeSpec{Schema: s, KeyCols: s.KeyColumns(), BatchRows: c.job.lookupRows(), DropDeletes: c.job.DropDeletes, Rule: c.rule, BatchBytes: batchMemory, mem: c.mem, store: true, tell: c.tell}, runs)
	err := c.pump(ctx, m)
	return errors.Join(err, m.Close())
}

// step is what a merge gives at a time.
type step struct{ rows, changes datafile.Rows }

// next is the next step of a merge.
func (c *compaction) next(ctx context.Context, m *Merger) (s step, err error) {
	if c.tell != nil {
		s.rows, s.changes, err = m.nextTold(ctx)
	} else {
		s.rows, err = m.Next(ctx)
	}
	return s, err
}

// write brings a step into the output and the changelog.
func (c *compaction) write(ctx context.Context, s step) error {
	if c.out != nil {
		if err := c.out.write(ctx, s.rows); err != nil {
			return err
		}
	}
	return c.log.write(ctx, s.changes)
}

// pump moves merged rows to the output. With Parallel above 1 merging and encoding overlap.
func (c *compaction) pump(ctx context.Context, m *Merger) error {
	if c.files.Parallel < 2 {
		for {
			s, err := c.next(ctx, m)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := c.write(ctx, s); err != nil {
				return err
			}
			if err := c.pace(ctx, s.rows.N); err != nil {
				return err
			}
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	ch := make(chan step, 1)
	g.Go(func() error {
		defer close(ch)
		for {
			s, err := c.next(gctx, m)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			select {
			case ch <- s:
			case <-gctx.Done():
				return gctx.Err()
			}
			if err := c.pace(gctx, s.rows.N); err != nil {
				return err
			}
		}
	})
	g.Go(func() error {
		for s := range ch {
			// The upload outlives this section: it gets the context of the whole compaction.
			if err := c.write(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}
