package lsm

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
)

// Flush writes rows in arrival order as level-0 files. sel picks the rows of this bucket, nil all of them. The i-th of
// these has sequence number firstSeq+i, also if it is merged away; rows.Seq is ignored, rows.Kinds nil means inserts.
//
// A keyed table gets one file with the newest row of each key, in key order. An append table gets its rows as they are,
// in files that end at the target size. If Flush fails it leaves no file behind.
func (f Files) Flush(ctx context.Context, part Part, rows datafile.Rows, sel []int32, firstSeq int64) ([]manifest.DataFile, error) {
	if len(rows.Cols) != len(f.Schema.Fields) {
		return nil, fmt.Errorf("flush: rows have %d columns, the table has %d", len(rows.Cols), len(f.Schema.Fields))
	}
	for i, c := range rows.Cols {
		if c.Len() != rows.N {
			return nil, fmt.Errorf("flush: column %q has %d rows, want %d", f.Schema.Fields[i].Name, c.Len(), rows.N)
		}
	}
	if rows.Kinds != nil && len(rows.Kinds) != rows.N {
		return nil, fmt.Errorf("flush: %d kinds for %d rows", len(rows.Kinds), rows.N)
	}
	for _, i := range sel {
		if i < 0 || int(i) >= rows.N {
			return nil, fmt.Errorf("flush: row %d is selected of %d", i, rows.N)
		}
	}
	o := &outputs{files: f, part: part, src: manifest.FromAppend}
	var err error
	if f.Schema.Keyed() {
		err = f.flushKeyed(ctx, o, rows, sel, firstSeq)
	} else {
		o.roll = f.Options.TargetFileSize
		err = f.flushAppend(ctx, o, rows, sel, firstSeq)
	}
	if err == nil {
		err = o.end()
	}
	if err != nil {
		return nil, o.discard(ctx, fmt.Errorf("flush: %w", err))
	}
	return o.made, nil
}

// flushStep is the number of rows that are copied and encoded at once.
const flushStep = 32 << 10

func (f Files) flushKeyed(ctx context.Context, o *outputs, rows datafile.Rows, sel []int32, firstSeq int64) error {
	order, err := f.sortRows(rows, sel)
	if err != nil {
		return err
	}
	mem := newArena(2) // the rows being written, and those before, of which the writer keeps the last
	for len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(order), flushStep)
		out, err := takeRows(mem, rows, order[:n], sel, firstSeq)
		if err != nil {
			return err
		}
		if err := o.write(ctx, out); err != nil {
			return err
		}
		order = order[n:]
	}
	return nil
}

// sortRows gives the surviving rows in key order, as positions among the selected.
func (f Files) sortRows(rows datafile.Rows, sel []int32) ([]int32, error) {
	keys := NewKeys(f.Schema)
	cols := make([]arrow.Array, 0, 4)
	n := rows.N
	if sel != nil {
		n = len(sel)
	}
	for _, c := range f.Schema.KeyColumns() {
		col := rows.Cols[c]
		if sel != nil {
			var err error
			if col, err = Take(col, sel); err != nil {
				return nil, err
			}
		}
		cols = append(cols, col)
	}
	v, err := keys.Encode(cols, n)
	if err != nil {
		return nil, err
	}
	return sortNewest(&v), nil
}

// takeRows copies rows, given as positions among the selected, with their sequence numbers and kinds.
func takeRows(mem *arena, rows datafile.Rows, order, sel []int32, firstSeq int64) (datafile.Rows, error) {
	mem.next()
	out := datafile.Rows{N: len(order), Seq: slab[int64](mem, len(order)), Cols: make([]arrow.Array, len(rows.Cols))}
	idx := order
	for i, r := range order {
		out.Seq[i] = firstSeq + int64(r)
	}
	if sel != nil {
		idx = takeSlice(mem, sel, order)
	}
	if rows.Kinds != nil {
		out.Kinds = takeSlice(mem, rows.Kinds, idx)
	} else {
		out.Kinds = make([]int8, len(order)) // inserts
	}
	for c, col := range rows.Cols {
		var err error
		if out.Cols[c], err = take(mem, col, idx); err != nil {
			return out, fmt.Errorf("column %d: %w", c, err)
		}
	}
	return out, nil
}

func (f Files) flushAppend(ctx context.Context, o *outputs, rows datafile.Rows, sel []int32, firstSeq int64) error {
	n := rows.N
	if sel != nil {
		n = len(sel)
	}
	mem := newArena(2)
	for at := 0; at < n; at += flushStep {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(n, at+flushStep)
		mem.next()
		out := datafile.Rows{N: to - at, Cols: make([]arrow.Array, len(rows.Cols))}
		for c, col := range rows.Cols {
			var err error
			if sel != nil {
				out.Cols[c], err = take(mem, col, sel[at:to])
			} else {
				out.Cols[c], err = Gather([]arrow.Array{col}, []Range{{0, int32(at), int32(to - at)}})
			}
			if err != nil {
				return fmt.Errorf("column %d: %w", c, err)
			}
		}
		if err := o.write(ctx, out); err != nil {
			return err
		}
	}
	if err := o.end(); err != nil {
		return err
	}
	o.number(firstSeq)
	return nil
}

// number gives the files of an append table their sequence numbers, which are in the manifest only.
func (o *outputs) number(firstSeq int64) {
	seq := firstSeq
	for i := range o.made {
		m := &o.made[i]
		m.MinSeq, m.MaxSeq = seq, seq+m.Rows-1
		seq += m.Rows
	}
}
