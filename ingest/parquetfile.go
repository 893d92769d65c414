package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// parquetFile reads the rows of a Parquet file in batches: a page of each column that is wanted is in memory at a time,
// and a batch of rows.
type parquetFile struct {
	name  string
	in    *file.Reader
	rows  *pqarrow.FileReader
	all   *arrow.Schema
	every bool // columns that the table does not have are wanted, too

	wanted []int // leaves
	group  int   // the next one
	reader pqarrow.RecordReader
	batch  arrow.RecordBatch // nil: the next is to be read
	row    int               // next in batch
	done   int64             // rows given
}

// parquetBatch is how many rows are read at once.
const parquetBatch = 4096

// guarded makes an error of a panic: the library has some where a file is broken.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the file is broken: %v", p)
		}
	}()
	return f()
}

// openParquetFile reads the footer.
func openParquetFile(name string, r parquet.ReaderAtSeeker, every bool) (*parquetFile, error) {
	f := &parquetFile{name: name, every: every}
	err := guarded(func() (err error) {
		props := parquet.NewReaderProperties(memory.DefaultAllocator)
		props.BufferedStreamEnabled = true
		if f.in, err = file.NewParquetReader(r, file.WithReadProps(props)); err != nil {
			return fmt.Errorf("it is no Parquet file: %w", err)
		}
		if f.rows, err = pqarrow.NewFileReader(f.in, pqarrow.ArrowReadProperties{BatchSize: parquetBatch}, memory.DefaultAllocator); err != nil {
			return err
		}
		f.all, err = f.rows.Schema()
		return err
	})
	return f, err
}

// ParquetColumns gives the columns of a table for the rows of a Parquet file, as decode.ColumnsOfArrow has them.
func ParquetColumns(r parquet.ReaderAtSeeker) ([]schema.Column, error) {
	f, err := openParquetFile("", r, true)
	if err != nil {
		return nil, err
	}
	return decode.ColumnsOfArrow(f.all)
}

// follow implements fileRows: it chooses the columns that a table's schema has and reads on with them.
func (f *parquetFile) follow(s *schema.Schema, op string) error {
	f.drop()
	f.wanted = nil
	var names, has []string
	for leaf := range f.in.MetaData().Schema.NumColumns() {
		name := f.in.MetaData().Schema.Column(leaf).ColumnPath()[0]
		_, ok := s.Field(name)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if ok || f.every || name == op {
			f.wanted = append(f.wanted, leaf)
		}
	}
	if len(f.wanted) > 0 {
		return nil
	}
	for _, x := range s.Fields {
		has = append(has, x.Name)
	}
	return fmt.Errorf("no column of the file is one of the table: the file has %s, the table %s", strings.Join(names, ", "), strings.Join(has, ", "))
}

// skip implements fileRows: whole row groups are not read, of the last one the first rows are dropped.
func (f *parquetFile) skip(n int64) error {
	f.drop()
	f.group, f.done = 0, n
	return nil
}

// drop gives up what was read ahead; reading goes on behind the rows that were given.
func (f *parquetFile) drop() {
	if f.reader != nil {
		f.reader.Release()
	}
	f.reader, f.batch, f.row = nil, nil, 0
}

// next implements fileRows.
func (f *parquetFile) next(r *decode.Record) error {
	for f.batch == nil {
		if err := guarded(f.read); err != nil {
			return err
		}
	}
	r.Rows, r.Row = f.batch, f.row
	f.row++
	f.done++
	if int64(f.row) == f.batch.NumRows() {
		f.batch, f.row = nil, 0 // it is released with the next one
	}
	return nil
}

// read reads the next batch; io.EOF: there is none.
func (f *parquetFile) read() (err error) {
	if f.reader == nil {
		before := int64(0)
		for f.group = 0; ; f.group++ {
			if f.group == f.in.NumRowGroups() {
				return io.EOF
			}
			n := f.in.MetaData().RowGroup(f.group).NumRows()
			if n < 0 {
				return errors.New("the file is broken: a row group of fewer than no rows")
			}
			if before+n > f.done {
				break
			}
			before += n
		}
		if f.reader, err = f.rows.GetRecordReader(context.Background(), f.wanted, []int{f.group}); err != nil {
			return err
		}
		f.row = 0
		for left := f.done - before; ; left -= f.batch.NumRows() {
			if err = f.advance(); err != nil || f.batch == nil {
				return err
			}
			if left < f.batch.NumRows() {
				f.row = int(left)
				return nil
			}
		}
	}
	return f.advance()
}

// advance reads the next batch of the row group; when there is none, another group is to be opened.
func (f *parquetFile) advance() error {
	f.batch = nil
	for f.reader.Next() {
		if b := f.reader.RecordBatch(); b.NumRows() > 0 {
			f.batch = b
			return nil
		}
	}
	err := f.reader.Err()
	end := int64(0)
	for g := 0; g <= f.group; g++ {
		end += f.in.MetaData().RowGroup(g).NumRows()
	}
	f.drop()
	if err == nil && f.done < end {
		return fmt.Errorf("the file is broken: row group %d ends after row %d, before it should", f.group, f.done)
	}
	return err
}

// close implements fileRows.
func (f *parquetFile) close() { f.drop() }
