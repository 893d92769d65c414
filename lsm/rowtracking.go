package lsm

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// compactTracked is compactAppend for a table with row tracking: the new file has columns with the id of each row and the
// snapshot it came with, as Paimon's compactors write them (`flink.compact.AppendTableCompactor`,
// `SpecialFields.rowTypeWithRowTracking`). Rows of files without such columns are numbered on from the file's first row
// id (`io.DataFileRecordReader`).
func (f Files) compactTracked(ctx context.Context, part Part, job Job, files []manifest.DataFile) (Change, error) {
	w := f
	w.Schema = f.Schema.WithRowTracking(false)
	o := &outputs{files: w, part: part, src: manifest.FromCompact}
	for i := range files {
		if err := f.copyTracked(ctx, o, part, &files[i]); err != nil {
			return Change{}, o.discard(ctx, fmt.Errorf("compact %s: %w", f.Store.URL(part.Dir), err))
		}
	}
	if err := o.end(ctx); err != nil {
		return Change{}, o.discard(ctx, fmt.Errorf("compact %s: %w", f.Store.URL(part.Dir), err))
	}
	for i := range o.made {
		o.made[i].WriteCols = w.Schema.Names(allColumns(w.Schema))
	}
	if len(files) > 0 {
		o.number(files[0].MinSeq)
	}
	return Change{Removed: job.Files, Added: o.made}, nil
}

// copyTracked copies the rows of one file.
func (f Files) copyTracked(ctx context.Context, o *outputs, part Part, file *manifest.DataFile) error {
	r := f
	r.Schema = f.Schema.WithRowTracking(true)
	r.OpenSchema = func(ctx context.Context, id int64) (*schema.Schema, error) {
		s, err := f.OpenSchema(ctx, id)
		if err != nil {
			return nil, err
		}
		return s.WithRowTracking(true), nil
	}
	run := &fileRun{files: r, part: part, todo: []fileRows{{file: *file}}, spec: datafile.ReadSpec{Schema: r.Schema, Cols: allColumns(r.Schema)}}
	seq, ids, done := len(r.Schema.Fields)-1, len(r.Schema.Fields)-2, int64(0)
	pace := f.pacer(Job{Files: []manifest.DataFile{*file}})
	err := func() error {
		for {
			rows, err := run.Next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			first := done
			if file.FirstRowID != nil {
				first += *file.FirstRowID
			} else if rows.Cols[ids].NullN() > 0 {
				return fmt.Errorf("file %s has rows without id, and the manifest has none for them", file.Name)
			}
			rows.Cols[ids] = fillNulls(rows.Cols[ids], first, 1)
			rows.Cols[seq] = fillNulls(rows.Cols[seq], file.MaxSeq, 0)
			done += int64(rows.N)
			if err := o.write(ctx, rows); err != nil {
				return err
			}
			if err := pace(ctx, rows.N); err != nil {
				return err
			}
		}
	}()
	err = errors.Join(err, run.Close())
	if err == nil && done != file.Rows {
		err = fmt.Errorf("file %s has %d rows, the manifest says %d", file.Name, done, file.Rows)
	}
	return err
}

// fillNulls gives a column of numbers whose i-th is first+i*step where the given one is null.
func fillNulls(a arrow.Array, first, step int64) arrow.Array {
	if a.NullN() == 0 {
		return a
	}
	out, valid, old := make([]int64, a.Len()), validOf(a), values[int64](a)
	for i := range out {
		if out[i] = first + int64(i)*step; valid.has(i) {
			out[i] = old[i]
		}
	}
	data := array.NewData(arrow.PrimitiveTypes.Int64, len(out), []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(out))}, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
