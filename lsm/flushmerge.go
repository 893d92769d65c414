package lsm

import (
	"context"
)

// flushGroups is flushKeyed for rules that need all rows of a key: it takes the rows of whole keys in order and merges
// them before they are written (`mergetree.SortBufferWriteBuffer`).
//
// log, if it is not nil, gets the rows as they are before that.
func (f Files) flushGroups(ctx context.Context, o, log *outputs, rows *sources, sel []int32, firstSeq int64, order []int32, keys *KeyVec, rule *MergeRule) error {
	b, err := rule.bind(allColumns(f.Schema), true)
	if err != nil {
		return err
	}
	taken, merged := newArena(2), newArena(2) // the rows being written, which may be in either, and those before
	for len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, n := groupSorted(order, keys)
		in, err := takeRows(taken, rows, order[:n], sel, firstSeq)
		if err != nil {
			return err
		}
		if log != nil {
			if err := log.write(ctx, in); err != nil {
				return err
			}
		}
		if p.wins[0].rows = in; len(p.groups.ends) > 0 {
			merged.next()
			if in, _, err = b.mergeGroups(merged, p, false, nil); err != nil {
				return err
			}
		}
		if err := o.write(ctx, in); err != nil {
			return err
		}
		order = order[n:]
	}
	return nil
}

// groupSorted plans a step of a flush: the first rows of order, up to the end of a key. The part's only window is still
// to get its rows.
func groupSorted(order []int32, keys *KeyVec) (part, int) {
	p := part{wins: []*window{{}}}
	from := 0
	for from < len(order) && from < flushStep {
		to := sameKey(order, keys, from)
		if to-from == 1 {
			if n := len(p.ranges); n > 0 && p.ranges[n-1].Start+p.ranges[n-1].N == int32(from) && !p.endsInGroup() {
				p.ranges[n-1].N++
			} else {
				p.ranges = append(p.ranges, Range{0, int32(from), 1})
			}
		} else {
			for i := from; i < to; i++ {
				p.groups.rows = append(p.groups.rows, Range{0, int32(i), 1})
			}
			p.groups.ends = append(p.groups.ends, int32(len(p.groups.rows)))
			p.groups.at = append(p.groups.at, int32(len(p.ranges)))
			p.ranges = append(p.ranges, Range{0, int32(to - 1), 1})
		}
		p.rows++
		from = to
	}
	return p, from
}

// endsInGroup reports whether the last range stands for a group.
func (p *part) endsInGroup() bool {
	n := len(p.groups.at)
	return n > 0 && int(p.groups.at[n-1]) == len(p.ranges)-1
}
