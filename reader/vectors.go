package reader

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
)

// vectorAt is where the deletion vector of a data file lies.
type vectorAt struct {
	file  string // index file, relative to the table
	where manifest.VectorRange
}

// vectors finds the deletion vectors of a snapshot, by bucket and data file. Tables without the option have none.
func (r *Reader) vectors(ctx context.Context, v *view, snap *manifest.Snapshot) (map[bucketKey]map[string]vectorAt, error) {
	if !v.opts.DeletionVectors {
		return nil, nil
	}
	entries, err := r.meta.IndexFiles(ctx, snap)
	if err != nil {
		return nil, err
	}
	out := map[bucketKey]map[string]vectorAt{}
	for i := range entries {
		e := &entries[i]
		if e.Type != manifest.DeletionVectors {
			continue
		}
		path, err := v.indexPath(e)
		if err != nil {
			return nil, err
		}
		k := bucketKey{string(e.Partition), e.Bucket}
		if out[k] == nil {
			out[k] = map[string]vectorAt{}
		}
		for _, w := range e.Vectors {
			out[k][w.DataFile] = vectorAt{file: path, where: w}
		}
	}
	return out, nil
}

// indexPath is where an index file of the view's table lies.
func (v *view) indexPath(e *manifest.IndexEntry) (string, error) {
	dir, err := manifest.DataDir(v.schema, v.opts, e.Partition, e.Bucket)
	if err != nil {
		return "", err
	}
	return manifest.IndexPath(e, v.opts.IndexInBucket, dir)
}

// readVector reads one deletion vector.
func (r *Reader) readVector(ctx context.Context, at vectorAt) (_ *indexfile.Vector, err error) {
	f, err := r.store.Open(ctx, at.file)
	if err != nil {
		return nil, fmt.Errorf("deletion vector of %s: %w", at.where.DataFile, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fail := func(err error) error {
		return fmt.Errorf("deletion vector of %s: %w", at.where.DataFile, &manifest.CorruptError{Name: r.store.URL(at.file), Offset: at.where.Offset, Reason: "not a usable deletion vector", Err: err})
	}
	if at.where.Length > indexfile.MaxVector || at.where.Offset+at.where.Length > f.Size() {
		return nil, fail(fmt.Errorf("it is said to have %d bytes, the file has %d", at.where.Length, f.Size()))
	}
	buf := make([]byte, min(indexfile.FrameSize(at.where.Length), f.Size()-at.where.Offset))
	if n, err := f.ReadAt(buf, at.where.Offset); n < len(buf) {
		return nil, fmt.Errorf("read %s: %w", r.store.URL(at.file), err)
	}
	v, err := indexfile.DecodeVector(buf, at.where.Length)
	if err != nil {
		return nil, fail(err)
	}
	if c := at.where.Cardinality; c != nil && v.Len() != *c {
		return nil, fail(fmt.Errorf("it has %d positions, the manifest says %d", v.Len(), *c))
	}
	return v, nil
}

// rowFile reads the rows of one data file that its deletion vector leaves.
type rowFile struct {
	*datafile.Reader
	deleted *indexfile.Cursor // nil: no vector
	spans   []indexfile.Span  // scratch
	name    string            // of the vector, for errors
}

// openRows opens one data file; vectors are those of its bucket. It is nil if the file has no row that is wanted.
func (r *Reader) openRows(ctx context.Context, v *view, dir string, f *manifest.DataFile, spec fileSpec, vectors map[string]vectorAt) (*rowFile, error) {
	may, err := r.mayHave(ctx, v, dir, f, spec.only)
	if err != nil || !may {
		return nil, err
	}
	var out rowFile
	if at, ok := vectors[f.Name]; ok {
		vec, err := r.readVector(ctx, at)
		if err != nil {
			return nil, err
		}
		out.deleted, out.name = vec.Cursor(), r.store.URL(at.file)
	}
	rd, err := r.openSpec(ctx, v, dir, f, spec.ReadSpec)
	if err != nil {
		return nil, err
	}
	out.Reader = rd
	return &out, nil
}

// Next gives the next rows that are left, at least one, and io.EOF at the end.
func (f *rowFile) Next() (datafile.Rows, error) {
	if f.deleted == nil {
		return f.Reader.Next()
	}
	for {
		rows, err := f.Reader.Next()
		if err == io.EOF && f.deleted.Beyond(f.NumRows()) {
			err = &manifest.CorruptError{Name: f.name, Reason: fmt.Sprintf("a deletion vector goes beyond the %d rows of its file", f.NumRows())}
		}
		if err != nil {
			return rows, err
		}
		if f.spans, err = f.deleted.Live(f.spans[:0], rows.First, rows.N); err != nil {
			return datafile.Rows{}, &manifest.CorruptError{Name: f.name, Reason: "not a usable deletion vector", Err: err}
		}
		if rows, err = keepSpans(rows, f.spans); err != nil || rows.N > 0 {
			return rows, err
		}
	}
}

// keepSpans gives the rows of the spans.
func keepSpans(rows datafile.Rows, spans []indexfile.Span) (datafile.Rows, error) {
	if len(spans) == 0 {
		return datafile.Rows{}, nil
	}
	if len(spans) == 1 && int(spans[0].N) == rows.N {
		return rows, nil
	}
	out := datafile.Rows{Cols: make([]arrow.Array, len(rows.Cols))}
	ranges := make([]lsm.Range, len(spans))
	for i, s := range spans {
		ranges[i] = lsm.Range{Start: s.Start, N: s.N}
		out.N += int(s.N)
	}
	for i, c := range rows.Cols {
		var err error
		if out.Cols[i], err = lsm.Gather([]arrow.Array{c}, ranges); err != nil {
			return datafile.Rows{}, fmt.Errorf("leaving out deleted rows: %w", err)
		}
	}
	out.Seq, out.Kinds = pickSpans(rows.Seq, spans), pickSpans(rows.Kinds, spans)
	return out, nil
}

func pickSpans[T any](src []T, spans []indexfile.Span) []T {
	if src == nil {
		return nil
	}
	var out []T
	for _, s := range spans {
		out = append(out, src[s.Start:s.Start+s.N]...)
	}
	return out
}
