package datafile

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

const (
	defaultBatchRows = 65536
	// defaultReadAhead is how many bytes of a column are fetched at once.
	defaultReadAhead = 1 << 20
)

// ReadSpec says what to read of a file.
type ReadSpec struct {
	// Schema the rows are wanted in. It may be another version than the file's: columns are matched by field id,
	// those the file does not have are null, and other types are converted.
	Schema *schema.Schema
	// Cols are indexes into Schema.Fields, in output order.
	Cols []int
	// KeyValue asks for sequence numbers and kinds, which only key-value files have.
	KeyValue bool
	// BatchRows is the most rows that Next gives; 0 is 65,536.
	BatchRows int
	// TextBytes ends a batch early: a column of texts has no more than this in one, unless a single value is larger; 0 is 64 MiB.
	TextBytes int
	// ReadAhead is how many bytes of a column are fetched at once; 0 is 1 MiB. More helps where a request is slow.
	ReadAhead int
	// Ranges, when not nil, are the only rows of a Parquet file to read, in order and without overlap. Prune is not used then.
	Ranges []RowRange
	// Prune, when not nil, leaves out rows by the statistics of the file.
	Prune *Prune
	// Keep, when not nil, is asked about every batch when its first Early columns are read: they are in Rows.Cols, the
	// others are nil. If it reports false the rows are left out and their other columns are not decoded.
	Keep func(Rows) (bool, error)
	// Early is the number of columns, the first of Cols, that Keep looks at.
	Early int
}

// RowRange is some rows of a file, by number: From included, To not.
type RowRange struct{ From, To int64 }

// Reader reads one file from front to back. It is for one goroutine.
//
// Nothing in a file makes it panic, and what it allocates is bounded by what the file holds: a claim (a count, a size)
// is checked against the bytes there are before memory is taken for it.
type Reader struct {
	f     storage.File
	name  string
	foot  *footer
	avro  *avroReader // of an Avro file; foot is nil then
	batch int
	left  int64
	row   int64 // the next row of the file
	// ranges are the rows still to be read, when not all; the first is the current one.
	ranges []rowRange
	keep   func(Rows) (bool, error)
	early  int
	text   int // most bytes of texts of a column in a batch

	cols      []outColumn
	seq, kind *column
	err       error
}

// outColumn is one column of the result.
type outColumn struct {
	name string
	in   rowReader // nil: the file does not have it
	col  *column   // in, if it is no column of a nested type
	// short: in may give fewer rows than asked for.
	short bool
	cast  caster // nil: the types agree
	dt    arrow.DataType
	held  arrow.Array // rows that did not fit the last batch, as the file has them
	// ready are rows of an early column that did not fit the last batch.
	ready arrow.Array
	null  arrow.Array // a batch of nulls
}

// rowReader reads a column from front to back.
type rowReader interface {
	// next gives n rows or, if it may, fewer but at least one.
	next(n int) (arrow.Array, error)
	// skip passes over n rows.
	skip(n int64) error
}

// Open reads the footer or header and prepares the columns. The extension of the name says what the file is: ".avro", else
// Parquet. The file must stay open until the Reader is done. fileSchema is the schema version the file was written with.
func Open(f storage.File, name string, fileSchema *schema.Schema, want ReadSpec) (_ *Reader, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("data file %s: %w", name, err)
		}
	}()
	defer recovered(&err, ErrCorrupt)
	r := &Reader{f: f, name: name, batch: want.BatchRows}
	if want.Keep != nil && want.Early > 0 {
		r.keep, r.early = want.Keep, min(want.Early, len(want.Cols))
	}
	if r.batch <= 0 {
		r.batch = defaultBatchRows
	}
	step := want.ReadAhead
	if step <= 0 {
		step = defaultReadAhead
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if formatOf(name) == "avro" {
		return r, r.openAvro(fileSchema, want, step)
	}
	return r, r.openParquet(fileSchema, want, step)
}

// openParquet reads the footer, unless it is known.
func (r *Reader) openParquet(fileSchema *schema.Schema, want ReadSpec, step int) (err error) {
	if r.foot == nil {
		if r.foot, err = readFooter(r.f, tailBytes); err != nil {
			return err
		}
	}
	r.left = r.foot.rows
	if r.text = want.TextBytes; r.text <= 0 || r.text > batchBytes {
		r.text = batchBytes
	}
	if want.KeyValue {
		if r.seq, err = r.system(SeqColumn, schema.BigInt, step); err != nil {
			return err
		}
		if r.kind, err = r.system(KindColumn, schema.TinyInt, step); err != nil {
			return err
		}
	}
	for _, i := range want.Cols {
		c, err := r.column(fileSchema, want.Schema.Fields[i], step)
		if err != nil {
			return fmt.Errorf("column %q: %w", want.Schema.Fields[i].Name, err)
		}
		r.cols = append(r.cols, c)
	}
	switch {
	case want.Ranges != nil:
		err = r.only(want.Ranges)
	case want.Prune != nil:
		err = r.prune(fileSchema, want, step)
	}
	return err
}

// only leaves out all rows but some.
func (r *Reader) only(ranges []RowRange) error {
	at, left := int64(0), int64(0)
	r.ranges = make([]rowRange, 0, len(ranges))
	for _, x := range ranges {
		if x.From < at || x.To <= x.From || x.To > r.left {
			return fmt.Errorf("rows %d to %d are asked for, after row %d of %d", x.From, x.To, at, r.left)
		}
		r.ranges = append(r.ranges, rowRange{x.From, x.To})
		at, left = x.To, left+x.To-x.From
	}
	r.left = left
	if len(ranges) > 0 {
		r.enter(r.ranges[0])
	}
	return nil
}

// system finds a column that every key-value file has.
func (r *Reader) system(name string, root schema.Root, step int) (*column, error) {
	e := r.foot.root.child(name)
	if e == nil {
		return nil, corruptf("the file has no column %s: it is no key-value file", name)
	}
	c, err := r.flat(e, schema.Type{Root: root, NotNull: true}, step)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", name, err)
	}
	return c, nil
}

// column finds the column of the file that holds a field: by id in the file's schema, then by the name it had there.
func (r *Reader) column(fileSchema *schema.Schema, f schema.Field, step int) (outColumn, error) {
	dt, err := schema.ArrowType(f.Type)
	if err != nil {
		return outColumn{}, err
	}
	out := outColumn{name: f.Name, dt: dt}
	at, ok := fileSchema.FieldByID(f.ID)
	if !ok {
		return out, nil
	}
	then := fileSchema.Fields[at]
	e := r.foot.root.child(then.Name)
	if e == nil {
		return out, nil
	}
	if !then.Type.Primitive() {
		out.short = true
		out.in, err = r.nested(e, then.Type, f.Type, step)
		return out, err
	}
	c, err := r.flat(e, then.Type, step)
	if err != nil {
		return out, err
	}
	out.in, out.col, out.short = c, c, c.text
	out.cast, err = casterOf(then.Type, f.Type)
	return out, err
}

// flat prepares a leaf that is no part of a group.
func (r *Reader) flat(e *element, t schema.Type, step int) (*column, error) {
	if e.at < 0 || e.repeated {
		return nil, unsupportedf("type %s is stored as a group or repeated", t)
	}
	return r.physical(e, e.name, t, step)
}

// physical prepares a leaf of the file for reading as a type.
func (r *Reader) physical(e *element, name string, t schema.Type, step int) (*column, error) {
	c, err := newColumn(name, e.leaf, t)
	if err != nil {
		return nil, err
	}
	c.in, c.most = chunkReader{f: r.f, step: step}, r.text
	c.at, c.tail = e.at, &r.foot.tail
	for _, g := range r.foot.groups {
		k, slots := g.chunks[e.at], g.rows
		if e.maxRep > 0 {
			slots = k.values
		}
		if slots < g.rows {
			return nil, corruptf("column chunk of %d values in a row group of %d rows", slots, g.rows)
		}
		c.chunks, c.slots = append(c.chunks, k), append(c.slots, slots)
	}
	return c, nil
}

// NumRows is the number of rows in the file.
func (r *Reader) NumRows() int64 {
	if r.avro != nil {
		return r.avro.rows
	}
	return r.foot.rows
}

// Close gives the file back. The rows that were read stay valid.
func (r *Reader) Close() error {
	r.err = fmt.Errorf("data file %s: reader is closed", r.name)
	r.cols, r.seq, r.kind = nil, nil, nil
	return r.f.Close()
}

// Next gives the next rows, at most BatchRows, and io.EOF after the last. A batch is shorter than that where long
// strings make it large.
func (r *Reader) Next() (Rows, error) {
	if r.err != nil {
		return Rows{}, r.err
	}
	for {
		if r.left == 0 {
			r.err = io.EOF
			return Rows{}, io.EOF
		}
		rows, kept, err := r.next()
		if err != nil {
			r.err = fmt.Errorf("data file %s: %w", r.name, err)
			return Rows{}, r.err
		}
		r.left -= int64(rows.N)
		r.row += int64(rows.N)
		if kept {
			return rows, nil
		}
	}
}

// next reads a batch, or finds that it is not to be kept.
func (r *Reader) next() (out Rows, kept bool, err error) {
	defer recovered(&err, ErrCorrupt)
	n := int(min(int64(r.batch), r.left))
	if r.avro != nil {
		return r.nextAvro(n)
	}
	if r.ranges != nil {
		if err := r.advance(); err != nil {
			return Rows{}, false, err
		}
		n = int(min(int64(n), r.ranges[0].to-r.row))
	}
	out = Rows{Cols: make([]arrow.Array, len(r.cols)), First: r.row}
	early := 0
	if r.keep != nil {
		early = r.early
		if n, err = r.readEarly(&out, n); err != nil {
			return Rows{}, false, err
		}
		out.N = n
		if kept, err = r.keep(out); err != nil || !kept {
			r.settle(&out)
			return out, false, errors.Join(err, r.drop(early, n))
		}
	}
	if out.N, err = r.read(&out, early, len(r.cols), n); err != nil {
		return Rows{}, false, err
	}
	r.settle(&out)
	if r.seq != nil {
		return out, true, r.readSystem(&out, out.N)
	}
	return out, true, nil
}

// readEarly reads the early columns of a batch. Later columns may end the batch before them: then they have rows ready
// for the next.
func (r *Reader) readEarly(out *Rows, n int) (int, error) {
	if ready := r.cols[0].ready; ready != nil {
		n = min(n, ready.Len())
		for i := range r.early {
			out.Cols[i] = array.NewSlice(r.cols[i].ready, 0, int64(n))
		}
		return n, nil
	}
	n, err := r.read(out, 0, r.early, n)
	for i := range r.early {
		r.cols[i].ready = out.Cols[i]
	}
	return n, err
}

// settle takes the rows of the batch from the early columns.
func (r *Reader) settle(out *Rows) {
	if r.keep == nil {
		return
	}
	n := int64(out.N)
	for i := range r.early {
		c := &r.cols[i]
		out.Cols[i] = array.NewSlice(c.ready, 0, n)
		if c.ready = array.NewSlice(c.ready, n, int64(c.ready.Len())); c.ready.Len() == 0 {
			c.ready = nil
		}
	}
}

// read reads some columns of a batch of n rows, or fewer: the number is given.
func (r *Reader) read(out *Rows, from, to, n int) (int, error) {
	for i := range r.cols {
		if h := r.cols[i].held; h != nil && i >= from {
			n = min(n, h.Len())
		}
	}
	var err error
	// Columns that may end the batch early come first.
	for i := from; i < to; i++ {
		c := &r.cols[i]
		if c.in == nil || !c.short {
			continue
		}
		if out.Cols[i] = c.held; c.held == nil {
			if out.Cols[i], err = c.in.next(n); err != nil {
				return 0, err
			}
		}
		n = min(n, out.Cols[i].Len())
	}
	for i := from; i < to; i++ {
		if err := r.cols[i].fill(&out.Cols[i], n); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// readSystem reads sequence numbers and kinds of the batch.
func (r *Reader) readSystem(out *Rows, n int) error {
	a, err := r.seq.next(n)
	if err != nil {
		return err
	}
	k, err := r.kind.next(n)
	if err != nil {
		return err
	}
	return setSystem(out, a, k)
}

// setSystem checks and sets sequence numbers and kinds.
func setSystem(out *Rows, a, k arrow.Array) error {
	if a.NullN() > 0 || k.NullN() > 0 {
		return corruptf("rows without sequence number or kind")
	}
	out.Seq, out.Kinds = a.(*array.Int64).Int64Values(), k.(*array.Int8).Int8Values()
	for i, v := range out.Kinds {
		if v < int8(schema.Insert) || v > int8(schema.Delete) {
			return corruptf("row %d of the batch has kind %d", i, v)
		}
	}
	return nil
}

// fill finishes a column of a batch: it is read unless text was read before, cut to n rows, and converted.
func (c *outColumn) fill(a *arrow.Array, n int) (err error) {
	switch {
	case c.in == nil:
		if c.null == nil || c.null.Len() < n {
			c.null = array.MakeArrayOfNull(memory.DefaultAllocator, c.dt, n)
		}
		*a = array.NewSlice(c.null, 0, int64(n))
		return nil
	case *a == nil:
		if *a, err = c.in.next(n); err != nil {
			return err
		}
	case (*a).Len() > n:
		c.held = array.NewSlice(*a, int64(n), int64((*a).Len()))
		*a = array.NewSlice(*a, 0, int64(n))
	default:
		c.held = nil
	}
	if c.cast != nil {
		if *a, err = c.cast(*a); err != nil {
			return fmt.Errorf("column %q: %w", c.name, err)
		}
	}
	return nil
}
