package lsm

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
)

// Flush writes rows in arrival order as level-0 files. The rows of all batches are numbered through; sel picks the rows
// of this bucket, in ascending order, nil all of them. Rows.Seq is ignored, Rows.Kinds nil means inserts.
//
// A keyed table gets one file with the newest row of each key, in key order. Row i of all has sequence number firstSeq+i,
// also if it is merged away: the numbers order the rows of all buckets, and those of one have gaps, as they may
// (`mergetree.MergeTreeWriter.newSequenceNumber` asks only for more than the bucket's largest). An append table gets its
// rows as they are, in files that end at the target size; those of the bucket are numbered without gaps. If Flush fails it
// leaves no file behind.
func (f Files) Flush(ctx context.Context, part Part, batches []datafile.Rows, sel []int32, firstSeq int64) ([]manifest.DataFile, error) {
	return f.flush(ctx, part, batches, sel, firstSeq, nil)
}

// FlushInput is Flush for a keyed table whose changelog producer is input: the rows as they came, sorted by key and in the
// order in which they are merged, go into changelog files as well (`mergetree.MergeTreeWriter.flushWriteBuffer`, §12), which
// end at the target size.
func (f Files) FlushInput(ctx context.Context, part Part, batches []datafile.Rows, sel []int32, firstSeq int64) (data, changelog []manifest.DataFile, err error) {
	log := f.changelogOutputs(part, 0)
	if data, err = f.flush(ctx, part, batches, sel, firstSeq, log); err != nil {
		return nil, nil, log.discard(ctx, err)
	}
	return data, log.made, nil
}

func (f Files) flush(ctx context.Context, part Part, batches []datafile.Rows, sel []int32, firstSeq int64, log *outputs) ([]manifest.DataFile, error) {
	rows, err := f.checkBatches(batches, sel)
	if err != nil {
		return nil, fmt.Errorf("flush: %w", err)
	}
	if rows.n == 0 {
		return nil, nil
	}
	o := &outputs{files: f, part: part, src: manifest.FromAppend}
	mem := spareArena()
	if f.Schema.Keyed() {
		err = f.flushKeyed(ctx, o, log, rows, sel, firstSeq, mem)
	} else {
		o.roll = f.Options.TargetFileSize
		err = f.flushAppend(ctx, o, rows, sel, firstSeq, mem)
	}
	if err == nil {
		err = o.end(ctx)
	}
	if err == nil && log != nil {
		err = log.end(ctx)
	}
	if err != nil {
		return nil, o.discard(ctx, fmt.Errorf("flush: %w", err))
	}
	mem.giveBack() // the files have ended, and with them the batches that were written last
	return o.made, nil
}

// checkBatches refuses what does not fit the table.
func (f Files) checkBatches(batches []datafile.Rows, sel []int32) (*sources, error) {
	for _, rows := range batches {
		if len(rows.Cols) != len(f.Schema.Fields) {
			return nil, fmt.Errorf("rows have %d columns, the table has %d", len(rows.Cols), len(f.Schema.Fields))
		}
		for i, c := range rows.Cols {
			if c.Len() != rows.N {
				return nil, fmt.Errorf("column %q has %d rows, want %d", f.Schema.Fields[i].Name, c.Len(), rows.N)
			}
			if !arrow.TypeEqual(c.DataType(), batches[0].Cols[i].DataType()) {
				return nil, fmt.Errorf("column %q is %s in one batch and %s in another", f.Schema.Fields[i].Name, batches[0].Cols[i].DataType(), c.DataType())
			}
		}
		if rows.Kinds != nil && len(rows.Kinds) != rows.N {
			return nil, fmt.Errorf("%d kinds for %d rows", len(rows.Kinds), rows.N)
		}
	}
	s, err := newSources(batches)
	if err != nil {
		return nil, err
	}
	for _, i := range sel {
		if i < 0 || int(i) >= s.n {
			return nil, fmt.Errorf("row %d is selected of %d", i, s.n)
		}
	}
	return s, nil
}

// flushStep is the number of rows that are copied and encoded at once.
const flushStep = 32 << 10

// flushKeyed writes the rows, copied to mem, and, unless log is nil, how they came.
func (f Files) flushKeyed(ctx context.Context, o, log *outputs, rows *sources, sel []int32, firstSeq int64, mem *arena) error {
	rule, err := f.mergeRule()
	if err != nil {
		return err
	}
	if log != nil {
		rule = rule.allRows()
	}
	order, keys, err := f.sortRows(rows, sel, rule)
	if err != nil {
		return err
	}
	if rule.grouped {
		return f.flushGroups(ctx, o, log, rows, sel, firstSeq, order, keys, rule)
	}
	// The two sets of mem have the rows being written, and those before, of which the writer keeps the last.
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

// mergeRule is the rule by which rows of one key are merged.
func (f Files) mergeRule() (*MergeRule, error) {
	r, err := NewMergeRule(f.Schema, f.Options)
	if err != nil {
		return nil, fmt.Errorf("merging rows: %w", err)
	}
	return r, nil
}

// sortRows gives the rows in key order, as positions among the selected, and their keys by position. If the rule needs
// all rows of a key they are all there, in the order in which they are merged, else the one that stays.
func (f Files) sortRows(rows *sources, sel []int32, rule *MergeRule) ([]int32, *KeyVec, error) {
	keys := NewKeys(f.Schema)
	n, at := rows.n, place{}
	if sel != nil {
		n, at = len(sel), rows.locate(nil, sel)
	}
	cols, err := rows.selected(f.Schema.KeyColumns(), at)
	if err != nil {
		return nil, nil, err
	}
	v, err := keys.Encode(cols, n)
	if err != nil {
		return nil, nil, err
	}
	if !rule.grouped && rule.seq == nil {
		return sortNewest(&v), &v, nil
	}
	order := sortAll(&v)
	if rule.seq != nil {
		if cols, err = rows.selected(rule.seqAt, at); err != nil {
			return nil, nil, err
		}
		by, err := rule.seq.encode(cols, n)
		if err != nil {
			return nil, nil, err
		}
		sortSequence(order, &v, &by)
	}
	if !rule.grouped {
		order = keepLast(order, &v)
	}
	return order, &v, nil
}

// selected takes rows of some columns, all of them without a place.
func (s *sources) selected(cols []int, at place) ([]arrow.Array, error) {
	out := make([]arrow.Array, len(cols))
	for i, c := range cols {
		var err error
		if at.row != nil {
			out[i], err = takeAt(nil, s.column(c), at)
		} else {
			out[i], err = s.whole(c)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// takeRows copies rows, given as positions among the selected, with their sequence numbers and kinds. The numbers count all
// rows, also those that are not selected.
func takeRows(mem *arena, rows *sources, order, sel []int32, firstSeq int64) (datafile.Rows, error) {
	mem.next()
	ncols := len(rows.batches[0].Cols)
	out := datafile.Rows{N: len(order), Seq: slab[int64](mem, len(order)), Cols: make([]arrow.Array, ncols)}
	idx := order
	if sel != nil {
		idx = takeSlice(mem, sel, order)
	}
	for i, r := range idx {
		out.Seq[i] = firstSeq + int64(r)
	}
	near, to := inMemoryOrder(mem, idx)
	if near == nil {
		near = idx
	}
	at := rows.locate(mem, near)
	at.to = to
	out.Kinds = rows.kinds(mem, at)
	for c := range ncols {
		var err error
		if out.Cols[c], err = takeAt(mem, rows.column(c), at); err != nil {
			return out, fmt.Errorf("column %d: %w", c, err)
		}
	}
	return out, nil
}

func (f Files) flushAppend(ctx context.Context, o *outputs, rows *sources, sel []int32, firstSeq int64, mem *arena) error {
	if sel == nil {
		for _, b := range rows.batches {
			for at := 0; at < b.N; at += flushStep {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := o.write(ctx, slice(b, at, min(b.N, at+flushStep))); err != nil {
					return err
				}
			}
		}
	}
	for at := 0; at < len(sel); at += flushStep {
		if err := ctx.Err(); err != nil {
			return err
		}
		mem.next()
		p := rows.locate(mem, sel[at:min(len(sel), at+flushStep)])
		out := datafile.Rows{N: len(p.row), Cols: make([]arrow.Array, len(rows.batches[0].Cols))}
		for c := range out.Cols {
			var err error
			if out.Cols[c], err = takeAt(mem, rows.column(c), p); err != nil {
				return fmt.Errorf("column %d: %w", c, err)
			}
		}
		if err := o.write(ctx, out); err != nil {
			return err
		}
	}
	if err := o.end(ctx); err != nil {
		return err
	}
	o.number(firstSeq)
	return nil
}

// slice is some rows of a batch of an append table, without copying.
func slice(b datafile.Rows, from, to int) datafile.Rows {
	out := datafile.Rows{N: to - from, Cols: make([]arrow.Array, len(b.Cols))}
	for c, col := range b.Cols {
		out.Cols[c] = array.NewSlice(col, int64(from), int64(to))
	}
	return out
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
