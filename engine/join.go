package engine

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
)

// A source that hands over each row as it comes makes batches of one row. An array takes almost a kilobyte however few rows it
// has, so of a table of hundreds of columns such batches would take far more memory than their rows, which is what Budget
// counts.
const (
	// looseArrays is how many arrays batches may have before they are joined, unless they have joinRows rows before.
	looseArrays = 1 << 14
	// joinRows is the size up to which batches are joined: with at most maxBufferRows rows there are never more than a few
	// thousand of them.
	joinRows = 4 << 10
	// joinBytes is the size up to which they are before a flush, where copying is only for the memory.
	joinBytes = 4 << 20
)

// countArrays counts the arrays of some columns.
func countArrays(fields []arrow.Field) int {
	n := len(fields)
	for i := range fields {
		if t, ok := fields[i].Type.(arrow.NestedType); ok {
			n += countArrays(t.Fields())
		}
	}
	return n
}

// looseEnd counts the batches at the end of a buffer for which nobody has looked yet whether to join them, and their rows.
type looseEnd struct{ batches, rows int }

// add puts a batch of so many bytes and arrays into the buffer; Table.mu is held. When the arrays of loose batches are many
// these become one batch, together with those before that have no more rows than come behind them: so a row is copied a
// few times at most.
func (a *buffer) add(b schema.Batch, size int64, arrays int) error {
	a.batches = append(a.batches, b)
	a.rows += b.Len()
	a.bytes += size
	a.loose.batches, a.loose.rows = a.loose.batches+1, a.loose.rows+b.Len()
	if a.loose.batches*arrays < looseArrays && a.loose.rows < joinRows || a.loose.batches < 2 {
		return nil
	}
	from, rows, bytes := len(a.batches), 0, int64(0)
	for from > 0 {
		n, size := a.batches[from-1].Len(), batchBytes(a.batches[from-1])
		if rows+n > joinRows || bytes+size > joinBytes || len(a.batches)-from >= a.loose.batches && n > rows {
			break
		}
		from, rows, bytes = from-1, rows+n, bytes+size
	}
	a.loose = looseEnd{}
	if len(a.batches)-from < 2 {
		return nil
	}
	joined, err := join(a.batches[from:], rows)
	if err != nil {
		return err
	}
	clear(a.batches[from+1:])
	a.batches[from] = schema.Batch{Rec: array.NewRecordBatch(b.Rec.Schema(), joined.Cols, int64(rows)), Kinds: rowKindsOf(joined.Kinds)}
	a.batches = a.batches[:from+1]
	return nil
}

// sources are the batches as lsm takes them. Many small ones are joined to larger ones first: they are cheap to copy, and
// a flush works on whole batches.
func (f *frozen) sources() ([]datafile.Rows, error) {
	out := make([]datafile.Rows, 0, min(len(f.batches), 64))
	for at := 0; at < len(f.batches); {
		end, rows := at+1, f.batches[at].Len()
		for end < len(f.batches) && rows+f.batches[end].Len() <= joinRows {
			rows += f.batches[end].Len()
			end++
		}
		r, err := join(f.batches[at:end], rows)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
		at = end
	}
	return out, nil
}

// join makes one set of columns.
func join(batches []schema.Batch, rows int) (datafile.Rows, error) {
	out := datafile.Rows{N: rows}
	for c := range int(batches[0].Rec.NumCols()) {
		if len(batches) == 1 {
			out.Cols = append(out.Cols, batches[0].Rec.Column(c))
			continue
		}
		parts := make([]arrow.Array, len(batches))
		for i, b := range batches {
			parts[i] = b.Rec.Column(c)
		}
		col, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			return out, fmt.Errorf("joining buffered batches: %w", err)
		}
		countNulls(col)
		out.Cols = append(out.Cols, col)
	}
	kinds := false
	for _, b := range batches {
		kinds = kinds || b.Kinds != nil
	}
	if !kinds {
		return out, nil // inserts
	}
	out.Kinds = make([]int8, 0, rows)
	for _, b := range batches {
		if b.Kinds == nil {
			out.Kinds = out.Kinds[:len(out.Kinds)+b.Len()] // zero is +I
			continue
		}
		for _, k := range b.Kinds {
			out.Kinds = append(out.Kinds, int8(k))
		}
	}
	return out, nil
}

// rowKindsOf is what a batch has for the kinds of a file's rows.
func rowKindsOf(kinds []int8) []schema.RowKind {
	if kinds == nil {
		return nil
	}
	out := make([]schema.RowKind, len(kinds))
	for i, k := range kinds {
		out[i] = schema.RowKind(k)
	}
	return out
}
