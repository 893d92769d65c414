package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
)

// buffer holds written batches until they are flushed. Rows are numbered through all batches, in arrival order.
type buffer struct {
	batches []schema.Batch
	rows    int
	bytes   int64
	loose   looseEnd
	touched []*bucket // buckets with rows in this buffer, in order of their first row
}

// Bounds that keep row numbers and Arrow's 32-bit string offsets in range when batches are joined.
const (
	maxBufferRows  = 1 << 24
	maxBufferBytes = 1 << 30
)

// Write adds a batch. Its columns must be those of Schema, in that order. The batch is kept: its buffers must not
// change afterwards. Write blocks while two full buffers are being flushed already, and while the table is Stalled.
//
// A batch that breaks a rule of the table is refused whole (ErrRows).
func (t *Table) Write(ctx context.Context, b schema.Batch) error {
	if b.Len() == 0 {
		return t.usable()
	}
	f := t.form.Load()
	if err := t.checkRows(f, b); err != nil {
		return err
	}
	b, err := f.kinds.apply(b)
	if err != nil {
		return err
	}
	if b.Len() == 0 {
		return t.usable()
	}
	size := batchBytes(b)
	if err := t.waitForRoom(ctx); err != nil {
		return err
	}
	if err := t.set.Budget.take(ctx, t, size); err != nil {
		return err
	}
	if err := t.admit(ctx, f, b, size); err != nil {
		t.set.Budget.untake(t, size)
		return err
	}
	if err := t.active.add(b, size, f.router.arrays); err != nil {
		t.failLocked(err) // its rows have their buckets
		t.mu.Unlock()
		return err
	}
	full := t.active.bytes >= t.set.BufferBytes || t.set.Budget.short()
	t.mu.Unlock()
	t.metrics.rowsWritten.Add(int64(b.Len()))
	if full {
		return t.flushActive(ctx)
	}
	return nil
}

// admit waits until the active buffer has room for a batch and routes its rows. Without an error mu is held then.
func (t *Table) admit(ctx context.Context, f *form, b schema.Batch, size int64) error {
	for {
		t.mu.Lock()
		err := t.usableLocked()
		if err == nil && t.form.Load() != f {
			err = fmt.Errorf("%w: the schema of %s changed to %d while they were written", ErrRows, t.store.URL(""), t.Schema().ID)
		}
		if err != nil {
			t.mu.Unlock()
			return err
		}
		if f.keys != nil && t.nextSeq > maxNextSeq { // else each bucket for itself, see bucketFor
			err = t.numbersUsed("the table", t.nextSeq)
			t.mu.Unlock()
			return err
		}
		if a := t.active; a.rows > 0 && (a.rows+b.Len() > maxBufferRows || a.bytes+size > maxBufferBytes) {
			t.mu.Unlock()
			if err := t.flushActive(ctx); err != nil {
				return err
			}
			continue
		}
		if err = f.router.route(t, b); err == nil {
			return nil
		}
		t.mu.Unlock()
		var unread unreadError
		if !errors.As(err, &unread) {
			return err
		}
		if err := t.readIndex(ctx, unread); err != nil {
			return fmt.Errorf("writing to %s: %w", t.store.URL(""), err)
		}
	}
}

// maxNextSeq leaves numbers for the rows of a buffer and of one that is being flushed.
const maxNextSeq = math.MaxInt64 - 2*maxBufferRows

// numbersUsed is the error of rows that cannot be numbered above those of a bucket, or of all buckets.
func (t *Table) numbersUsed(of string, next int64) error {
	return fmt.Errorf("writing to %s: the sequence numbers of %s are used up to %d or more, and there are not enough after them for more rows; write the table's rows into a new one", t.store.URL(""), of, next-1)
}

// bucketFor finds or makes the bucket of a row that is to be written; mu is held. Where there is no primary key the rows of each
// bucket are numbered for themselves.
func (t *Table) bucketFor(part []byte, number int) (*bucket, error) {
	b, err := t.bucketLocked(part, number)
	if err == nil && b.nextSeq > maxNextSeq && t.form.Load().keys == nil {
		return nil, t.numbersUsed(b.part.Dir, b.nextSeq)
	}
	return b, err
}

// checkRows refuses rows that no reader could make sense of.
func (t *Table) checkRows(f *form, b schema.Batch) error {
	fields := f.schema.Fields
	if int(b.Rec.NumCols()) != len(fields) {
		return fmt.Errorf("%w: %d columns, the table %s has %d", ErrRows, b.Rec.NumCols(), t.store.URL(""), len(fields))
	}
	if b.Kinds != nil && len(b.Kinds) != b.Len() {
		return fmt.Errorf("%w: %d row kinds for %d rows", ErrRows, len(b.Kinds), b.Len())
	}
	for i := range fields {
		c := b.Rec.Column(i)
		if want := f.router.arrow.Field(i).Type; !arrow.TypeEqual(c.DataType(), want) {
			return fmt.Errorf("%w: column %q is %s, the table needs %s", ErrRows, fields[i].Name, c.DataType(), want)
		}
		countNulls(c)
		if fields[i].Type.NotNull && c.NullN() > 0 {
			return fmt.Errorf("%w: column %q is NOT NULL and has %d nulls", ErrRows, fields[i].Name, c.NullN())
		}
	}
	if f.keys == nil {
		for i, k := range b.Kinds {
			if k != schema.Insert {
				return fmt.Errorf("%w: row %d is %s; a table without primary key takes inserts only", ErrRows, i, k)
			}
		}
	}
	return nil
}

// countNulls counts the nulls of an array and those inside, where that was put off: an array keeps its count when it is first
// asked for it, and the shares of a flush ask at the same time.
func countNulls(a arrow.Array) {
	a.NullN()
	switch t := a.(type) {
	case *array.Struct:
		for i := range t.NumField() {
			countNulls(t.Field(i))
		}
	case *array.Map:
		countNulls(t.Keys())
		countNulls(t.Items())
	case *array.List:
		countNulls(t.ListValues())
	}
}

// batchBytes estimates the memory a batch keeps alive.
func batchBytes(b schema.Batch) int64 {
	n := int64(len(b.Kinds))
	for _, c := range b.Rec.Columns() {
		n += int64(c.Data().SizeInBytes())
	}
	return n
}

// router finds the bucket of each row.
type router struct {
	arrow    *arrow.Schema
	arrays   int // in a batch, those inside of others too
	partCols []int
	partEnc  *binrow.Encoder
	hashCols []int         // of the bucket key, or of the key of a table with dynamic buckets
	types    []schema.Type // of hashCols
	buckets  int           // 0: every row goes to bucket 0
	mod      bool
	numbers  []int32 // scratch; used under Table.mu
	partRow  []byte
}

func newRouter(s *schema.Schema, o schema.Options) (*router, error) {
	r := &router{arrow: s.Arrow(), partCols: s.PartitionColumns()}
	r.arrays = countArrays(r.arrow.Fields())
	if len(r.partCols) > 0 {
		r.partEnc = binrow.NewEncoder(s.Types(r.partCols))
	}
	if s.Keyed() && o.Bucket == schema.BucketDynamic {
		r.hashCols = s.KeyColumns()
		r.types = s.Types(r.hashCols)
	}
	if o.Bucket > 1 {
		r.buckets, r.hashCols = o.Bucket, s.BucketColumns()
		r.types = s.Types(r.hashCols)
		r.mod = o.BucketFunction == "mod"
	}
	return r, nil
}

// route notes for each row of the batch the bucket it goes to; t.mu is held. Nothing is noted on an error.
func (r *router) route(t *Table, b schema.Batch) error {
	if t.assigner != nil {
		return r.routeDynamic(t, b)
	}
	n, first := b.Len(), int32(t.active.rows)
	numbers := r.numbers[:0]
	if r.buckets > 0 {
		if cap(numbers) < n {
			numbers = make([]int32, n)
		}
		numbers = numbers[:n]
		if err := r.bucketNumbers(numbers, b.Rec, n); err != nil {
			return err
		}
		r.numbers = numbers
	}
	if r.partEnc == nil {
		return r.routeFlat(t, numbers, n, first)
	}
	return r.routePartitioned(t, b.Rec, numbers, n, first)
}

func (r *router) bucketNumbers(dst []int32, rec arrow.RecordBatch, n int) error {
	cols := columns(rec, r.hashCols)
	if !r.mod {
		return binrow.Buckets(dst, r.types, cols, n, r.buckets)
	}
	for i := range dst {
		switch c := cols[0].(type) {
		case *array.Int32:
			dst[i] = int32(binrow.BucketMod(int64(c.Value(i)), r.buckets))
		case *array.Int64:
			dst[i] = int32(binrow.BucketMod(c.Value(i), r.buckets))
		default:
			return fmt.Errorf("bucket-function.type mod needs an INT or BIGINT column, not %s", c.DataType())
		}
	}
	return nil
}

func columns(rec arrow.RecordBatch, idx []int) []arrow.Array {
	out := make([]arrow.Array, len(idx))
	for i, c := range idx {
		out[i] = rec.Column(c)
	}
	return out
}

func (r *router) routeFlat(t *Table, numbers []int32, n int, first int32) error {
	if r.buckets == 0 {
		b, err := t.bucketFor(binrow.EmptyRow, 0)
		if err != nil {
			return err
		}
		t.active.touch(b)
		return nil // one bucket: all rows, no list needed
	}
	return r.routeNumbers(t, numbers[:n], first)
}

// routeNumbers notes the rows of an unpartitioned table under their bucket numbers.
func (r *router) routeNumbers(t *Table, numbers []int32, first int32) error {
	byNumber := make([]*bucket, 1+slices.Max(numbers))
	for _, number := range numbers {
		if byNumber[number] != nil {
			continue
		}
		var err error
		if byNumber[number], err = t.bucketFor(binrow.EmptyRow, int(number)); err != nil {
			return err
		}
	}
	for i, number := range numbers {
		b := byNumber[number]
		t.active.touch(b)
		b.sel = append(b.sel, first+int32(i))
	}
	return nil
}

// routePartitioned encodes the partition of each row and looks its bucket up; equal neighbours cost one comparison.
// numbers are bucket numbers, or key hashes if the table has dynamic buckets.
func (r *router) routePartitioned(t *Table, rec arrow.RecordBatch, numbers []int32, n int, first int32) error {
	cols := columns(rec, r.partCols)
	assigned := make([]*bucket, n)
	var last *bucket
	var lastRow []byte
	var index *partIndex // of the partition of lastRow; nil without dynamic buckets, or if it is not read yet
	unread := unreadError{}
	lastNumber := int32(-1)
	for i := range n {
		row, err := r.partEnc.Append(r.partRow[:0], cols, i)
		if err != nil {
			return err
		}
		r.partRow = row
		number := int32(0)
		same := last != nil && string(row) == string(lastRow)
		switch {
		case t.assigner != nil:
			if !same || index == nil {
				part := binrow.Serialize(row, len(cols))
				if index = t.assigner.part(part, t.generation); index == nil {
					unread[string(part)] = true
					continue
				}
			}
			n, err := t.assigner.assign(index, numbers[i])
			if err != nil {
				return err
			}
			number = int32(n)
		case r.buckets > 0:
			number = numbers[i]
		}
		if !same || number != lastNumber {
			ser := binrow.Serialize(row, len(cols))
			if last, err = t.bucketFor(ser, int(number)); err != nil {
				return err
			}
			lastRow, lastNumber = append(lastRow[:0], row...), number
		}
		assigned[i] = last
	}
	if len(unread) > 0 {
		return unread
	}
	for i, b := range assigned {
		t.active.touch(b)
		b.sel = append(b.sel, first+int32(i))
	}
	return nil
}

// touch notes that the bucket has rows in the buffer.
func (a *buffer) touch(b *bucket) {
	if !b.touched {
		b.touched = true
		a.touched = append(a.touched, b)
	}
}

// frozen is a buffer that takes no more rows, with each bucket's share and its first sequence number.
type frozen struct {
	form       *form // of its rows
	generation int64
	batches    []schema.Batch
	rows       int
	bytes      int64
	shares     []share
}

type share struct {
	bucket   *bucket
	sel      []int32 // nil: all rows
	firstSeq int64
}

// freezeLocked takes the active buffer away and numbers its rows; mu is held. Nil when it is empty. What it returns
// counts as a flush in flight: hand it to flush.
func (t *Table) freezeLocked() *frozen {
	a := t.active
	if a.rows == 0 {
		return nil
	}
	f := &frozen{form: t.form.Load(), generation: t.generation, batches: a.batches, rows: a.rows, bytes: a.bytes}
	t.set.Budget.froze(t, a.bytes)
	t.inflight[f.generation]++
	for _, b := range a.touched {
		n := int64(len(b.sel))
		if r := f.form.router; r.buckets == 0 && r.partEnc == nil && t.assigner == nil {
			n = int64(a.rows)
		}
		if f.form.keys != nil { // rows of all buckets are numbered together, so that the numbers say in which order they came
			b.nextSeq, n = t.nextSeq, int64(a.rows)
		}
		f.shares = append(f.shares, share{bucket: b, sel: b.sel, firstSeq: b.nextSeq})
		b.nextSeq += n
		b.written = t.generation
		b.sel, b.touched = nil, false
	}
	t.nextSeq += int64(a.rows)
	t.active = &buffer{}
	return f
}
