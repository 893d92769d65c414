package lsm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
)

// AppendPolicy is what the options of a table without primary key say about when to compact.
type AppendPolicy struct {
	MinFiles       int // small neighbours from which a compaction is looked for (compaction.min.file-num)
	SizeRatio      int // percent, as in Policy
	TargetFileSize int64
	Ordered        bool // rows stay in the order they were written: only neighbours may become one file
}

// manySmall times MinFiles is how many small files may lie side by side when too few are of similar size.
const manySmall = 6

// pickAppend chooses small files of an append bucket that become one file, newest first. Files of 70 % of the target size
// or more are left alone. Paimon takes the next MinFiles small files, the one it made last among them, so that a row is
// rewritten again and again until its file is large; here MinFiles or more of the newest are taken while they are of
// similar size, so that a row is rewritten about once for each power of MinFiles between a flush and a large file.
func pickAppend(files []manifest.DataFile, p AppendPolicy) (Job, bool) {
	for _, group := range smallGroups(files, p) {
		if len(group) < max(p.MinFiles, 2) {
			continue
		}
		n := similarFiles(group, 1, p)
		if n < p.MinFiles && len(group) > manySmall*p.MinFiles {
			n = similarFiles(group, min(len(group)-manySmall*p.MinFiles+1, fitting(group, p)), p)
		} else if n < p.MinFiles {
			continue
		}
		if n > 1 {
			return Job{Files: group[:n]}, true
		}
	}
	return Job{}, false
}

// pickAppendFull chooses the next small files of an append bucket that fit into one file, however few and whatever their
// sizes are.
func pickAppendFull(files []manifest.DataFile, p AppendPolicy) (Job, bool) {
	for _, group := range smallGroups(files, p) {
		for len(group) > 1 {
			n := fitting(group, p)
			if n > 1 {
				return Job{Files: group[:n]}, true
			}
			group = group[1:]
		}
	}
	return Job{}, false
}

// smallGroups are the files that may become one: neighbours in the order of their rows without a large file between
// them, or all small files if the order does not matter. Newest first, in and among the groups.
func smallGroups(files []manifest.DataFile, p AppendPolicy) [][]manifest.DataFile {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b manifest.DataFile) int { return inOrder(&b, &a) })
	var out [][]manifest.DataFile
	var group []manifest.DataFile
	for _, f := range files {
		switch {
		case f.Size < largeFile(p.TargetFileSize):
			group = append(group, f)
		case p.Ordered && len(group) > 0:
			out, group = append(out, group), nil
		}
	}
	if len(group) > 0 {
		out = append(out, group)
	}
	return out
}

// inOrder is the order in which files of an append bucket are read.
func inOrder(a, b *manifest.DataFile) int {
	return cmp.Or(cmp.Compare(a.MinSeq, b.MinSeq), cmp.Compare(a.MaxSeq, b.MaxSeq), strings.Compare(a.Name, b.Name))
}

// similarFiles extends the n first files of a group by the rule of size ratio, as long as they fit into one file.
func similarFiles(group []manifest.DataFile, n int, p AppendPolicy) int {
	size := int64(0)
	for i := range group[:n] {
		size += group[i].Size
	}
	for n < len(group) {
		next := group[n].Size
		if float64(size)*float64(100+p.SizeRatio)/100 < float64(next) || size+next > p.TargetFileSize {
			break
		}
		size += next
		n++
	}
	return n
}

// fitting is how many of the first files of a group make at most one file of the target size, 1 at least.
func fitting(group []manifest.DataFile, p AppendPolicy) int {
	size, n := group[0].Size, 1
	for n < len(group) && size+group[n].Size <= p.TargetFileSize {
		size += group[n].Size
		n++
	}
	return n
}

// compactAppend writes the rows of the job's files, in their order, as one file, whose sequence numbers begin with the
// first file's as in `append.BucketedAppendCompactManager`. Pages of all but small files are copied. If it fails it deletes
// the file.
func (f Files) compactAppend(ctx context.Context, part Part, job Job) (Change, error) {
	files := slices.Clone(job.Files)
	slices.SortFunc(files, func(a, b manifest.DataFile) int { return inOrder(&a, &b) })
	if f.Options.RowTracking {
		return f.compactTracked(ctx, part, job, files)
	}
	// It never rolls: the picker took what fits.
	a := &appending{files: f, part: part, pace: f.pacer(job), least: f.copyLeast(files), out: &outputs{files: f, part: part, src: manifest.FromCompact}}
	err := a.all(ctx, files)
	if err == nil {
		err = a.out.end(ctx)
	}
	if err != nil {
		return Change{}, a.out.discard(ctx, fmt.Errorf("compact %s: %w", f.Store.URL(part.Dir), err))
	}
	if len(files) > 0 {
		a.out.number(files[0].MinSeq)
	}
	return Change{Removed: job.Files, Added: a.out.made, Copied: a.copied}, nil
}

// appending brings the rows of files, one after the other, into the output.
type appending struct {
	files  Files
	part   Part
	out    *outputs
	pace   func(ctx context.Context, rows int) error
	least  int64 // of a file that is copied, for each row group
	copied int64
}

func (a *appending) all(ctx context.Context, files []manifest.DataFile) error {
	for i := range files {
		m := &files[i]
		rows, err := a.copy(ctx, m)
		if a.copied += rows; err == nil && rows == 0 {
			rows, err = a.write(ctx, m)
		}
		if err == nil && rows != m.Rows {
			err = fmt.Errorf("data file %s: %d rows were read, the manifest says %d", m.Name, rows, m.Rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copy copies the pages of a file, unless it or its row groups are small, or it cannot be copied: then it gives 0.
func (a *appending) copy(ctx context.Context, m *manifest.DataFile) (n int64, err error) {
	f := a.files
	if !f.maySomeCopy() || m.Size < a.least {
		return 0, nil
	}
	o, closeFile, err := f.outline(ctx, a.part, m, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	if len(o.Units) == 0 || m.Size < a.least*int64(o.Units[len(o.Units)-1].Group+1) {
		return 0, nil
	}
	for end := o.Units[len(o.Units)-1].To; n < end; {
		p := datafile.Piece{RowRange: datafile.RowRange{From: n, To: a.out.fitting(o, datafile.RowRange{From: n, To: end})}}
		if err := a.out.copy(ctx, o, p); err != nil {
			return n, err
		}
		n = p.To
		if err := a.pace(ctx, int(p.To-p.From)); err != nil {
			return n, err
		}
	}
	return n, nil
}

// write decodes the rows of a file.
func (a *appending) write(ctx context.Context, m *manifest.DataFile) (n int64, err error) {
	f := a.files
	run := f.OpenRun(ctx, a.part, []manifest.DataFile{*m}, f.Schema, allColumns(f.Schema))
	if c, ok := run.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	for {
		r, err := run.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += int64(r.N)
		if err := a.out.write(ctx, r); err != nil {
			return n, err
		}
		if err := a.pace(ctx, r.N); err != nil {
			return n, err
		}
	}
}
