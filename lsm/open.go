package lsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// DefaultWindowBytes is about how much decoded data one sorted run holds in memory while it is read. Larger windows
// cost memory, up to twice their size for each run, and were not faster (measured from 256 KiB to 8 MiB).
const DefaultWindowBytes = 1 << 20

// Bounds of a window in rows.
const (
	minWindowRows = 256
	maxWindowRows = 64 << 10
)

// Bounds of what is fetched of a column at once.
const (
	minReadAhead = 64 << 10
	maxReadAhead = 1 << 20
)

// decodedRatio is how much larger rows are in memory than in a file, as a rule (measured: 2.5 to 4).
const decodedRatio = 4

// OpenRun reads the files of one sorted run, in key order, one after the other: the columns cols of the schema read
// (indexes into its fields), in that order, with sequence numbers and kinds if the table is keyed. A file is opened
// when its first row is asked for and closed after its last. The result is an io.Closer.
func (f Files) OpenRun(_ context.Context, part Part, files []manifest.DataFile, read *schema.Schema, cols []int) Run {
	todo := make([]fileRows, len(files))
	for i := range files {
		todo[i].file = files[i]
	}
	return f.openRows(part, todo, read, cols)
}

// openRows is OpenRun for some rows of the files.
func (f Files) openRows(part Part, todo []fileRows, read *schema.Schema, cols []int) Run {
	return &fileRun{files: f, part: part, todo: todo, spec: datafile.ReadSpec{Schema: read, Cols: cols, KeyValue: read.Keyed()}}
}

type fileRun struct {
	files Files
	part  Part
	todo  []fileRows
	spec  datafile.ReadSpec

	open  *datafile.Reader
	dead  *indexfile.Cursor // nil: no row of the open file is deleted
	name  string
	level int
}

// Next implements Run.
func (r *fileRun) Next(ctx context.Context) (datafile.Rows, error) {
	for {
		if err := ctx.Err(); err != nil {
			return datafile.Rows{}, err
		}
		if r.open == nil {
			if len(r.todo) == 0 {
				return datafile.Rows{}, io.EOF
			}
			if err := r.openNext(ctx); err != nil {
				return datafile.Rows{}, err
			}
		}
		rows, err := r.open.Next()
		if err == nil && r.dead != nil {
			if rows, err = alive(r.dead, rows); err == nil && rows.N == 0 {
				continue
			}
		}
		if err == nil {
			return rows, nil
		}
		if !errors.Is(err, io.EOF) {
			return datafile.Rows{}, fmt.Errorf("read data file %s: %w", r.url(), err)
		}
		if err := r.Close(); err != nil {
			return datafile.Rows{}, err
		}
	}
}

// Level implements Leveled.
func (r *fileRun) Level() int { return r.level }

func (r *fileRun) url() string { return r.files.Store.URL(r.name) }

func (r *fileRun) openNext(ctx context.Context) error {
	m := &r.todo[0].file
	r.name, r.level = path.Join(r.part.Dir, m.Name), m.Level
	written, err := r.files.schemaOf(ctx, m, r.name)
	if err != nil {
		return err
	}
	file, err := r.files.Store.Open(ctx, r.name)
	if err != nil {
		return fmt.Errorf("open data file: %w", err)
	}
	spec := r.spec
	spec.Ranges = r.todo[0].ranges
	spec.BatchRows = r.files.windowRows(m)
	spec.ReadAhead = r.files.readAhead(len(spec.Cols))
	spec.TextBytes = r.files.textBytes(spec.Schema, spec.Cols)
	rd, err := datafile.Open(file, r.url(), written, spec)
	if err != nil {
		return errors.Join(fmt.Errorf("open data file %s: %w", r.url(), err), file.Close())
	}
	if rd.NumRows() != m.Rows {
		err := fmt.Errorf("data file %s has %d rows, its manifest entry says %d", r.url(), rd.NumRows(), m.Rows)
		return errors.Join(err, rd.Close())
	}
	r.dead = nil
	if v := r.files.Vectors[m.Name]; v != nil {
		if err := v.Check(m.Rows); err != nil {
			return errors.Join(fmt.Errorf("deletion vector of data file %s: %w", r.url(), err), rd.Close())
		}
		r.dead = v.Cursor()
	}
	r.open, r.todo = rd, r.todo[1:]
	return nil
}

// alive leaves deleted rows out.
func alive(dead *indexfile.Cursor, rows datafile.Rows) (datafile.Rows, error) {
	spans, err := dead.Live(nil, rows.First, rows.N)
	if err != nil {
		return rows, err
	}
	p := part{wins: []*window{{rows: rows}}}
	for _, s := range spans {
		p.ranges = append(p.ranges, Range{0, s.Start, s.N})
		p.rows += int(s.N)
	}
	if p.rows == 0 || p.rows == rows.N {
		rows.N = p.rows
		return rows, nil
	}
	return gatherRows(nil, p)
}

// readAhead is how much of each column is fetched at once: all columns together about as much as a window holds, of many
// runs at once less.
func (f Files) readAhead(cols int) int {
	least := min(minReadAhead, max(readMemory/2/int64(max(1, cols*f.runs)), minReadAhead/8))
	return int(min(max(f.windowBytes()/int64(max(1, cols)), least), maxReadAhead))
}

func (f Files) windowBytes() int64 {
	if f.WindowBytes <= 0 {
		return DefaultWindowBytes
	}
	return f.WindowBytes
}

// windowRows is the number of rows of a file that make a window.
func (f Files) windowRows(m *manifest.DataFile) int {
	row := max(1, m.Size*decodedRatio/max(1, m.Rows))
	return int(min(max(f.windowBytes()/row, minWindowRows), maxWindowRows))
}

// Close implements io.Closer.
func (r *fileRun) Close() error {
	if r.open == nil {
		return nil
	}
	err := r.open.Close()
	r.open = nil
	if err != nil {
		return fmt.Errorf("close data file %s: %w", r.url(), err)
	}
	return nil
}
