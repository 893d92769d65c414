package lsm

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/schema"
)

var errPartialDelete = errors.New("a delete in a partial-update table, which takes none: set one of the table options \"ignore-delete\" and " +
	"\"partial-update.remove-record-on-delete\", or use sequence groups")

// partial is the state of one key while its rows are taken one after the other.
type partial struct {
	*merging
	order []seqVec // of all rows, by sequence group
	empty [][]bool // rows whose sequence columns are all null, by sequence group
	now   []int32  // the row each sequence group is at, none: at nothing
}

// partialUpdate is `PartialUpdateMergeFunction`: it decides for each row which sequence groups take it.
func (m *merging) partialUpdate() error {
	p, err := m.newPartial()
	if err != nil {
		return err
	}
	i := 0
	for g, end := range m.ends {
		first := i
		m.from[g] = none
		inserted, removed := false, false
		for q := range p.now {
			p.now[q] = none
		}
		for ; i < int(end); i++ {
			removed = false
			if isAdd(m.kinds[i]) {
				p.take(i, opTake, opLate)
				m.ops[i] = opTake
				m.from[g], inserted = int32(i), true
				continue
			}
			if i == first {
				p.all(i, opInit)
			}
			if m.rule.ignoreDelete {
				continue
			}
			m.from[g] = int32(i)
			if removed, err = p.retract(i); err != nil {
				return err
			}
		}
		if m.from[g] == none {
			m.from[g] = end - 1 // nothing but ignored deletes
		}
		m.kind[g] = int8(schema.Insert)
		if removed || !inserted {
			m.kind[g] = int8(schema.Delete)
		}
	}
	return nil
}

func (m *merging) newPartial() (*partial, error) {
	n, groups := len(m.rows), m.rule.groups
	m.ops, m.groupOps = make([]uint8, n), make([][]uint8, len(groups))
	p := &partial{merging: m, order: make([]seqVec, len(groups)), empty: make([][]bool, len(groups)), now: make([]int32, len(groups))}
	for q, g := range groups {
		m.groupOps[q] = make([]uint8, n)
		cols := make([]arrow.Array, len(g.pos))
		for i, c := range g.pos {
			var err error
			if cols[i], err = m.gatherRows(c); err != nil {
				return nil, err
			}
		}
		var err error
		if p.order[q], err = g.by.encode(cols, n); err != nil {
			return nil, err
		}
		p.empty[q] = allNull(cols, n)
	}
	return p, nil
}

// gatherRows copies a column of all rows.
func (m *merging) gatherRows(c int) (arrow.Array, error) {
	srcs := make([]arrow.Array, len(m.wins))
	for i, w := range m.wins {
		srcs[i] = w.rows.Cols[c]
	}
	return gather(nil, srcs, m.rows)
}

func allNull(cols []arrow.Array, n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = true
		for _, c := range cols {
			out[i] = out[i] && c.IsNull(i)
		}
	}
	return out
}

// all makes the row i all that each column has.
func (p *partial) all(i int, op uint8) {
	p.ops[i] |= op
	for q := range p.now {
		p.groupOps[q][i] |= op
		p.now[q] = int32(i)
	}
}

// ahead reports whether row i is not behind in sequence group q.
func (p *partial) ahead(q, i int) bool {
	return p.now[q] == none || p.order[q].compare(i, &p.order[q], int(p.now[q])) >= 0
}

// take notes for each sequence group what row i does to it.
func (p *partial) take(i int, taken, late uint8) {
	for q := range p.now {
		switch {
		case p.empty[q][i]:
		case p.ahead(q, i):
			p.groupOps[q][i] |= taken
			p.now[q] = int32(i)
		default:
			p.groupOps[q][i] |= late
		}
	}
}

// retract takes row i back, and reports whether that removes the record.
func (p *partial) retract(i int) (removed bool, err error) {
	deleted := p.kinds[i] == int8(schema.Delete)
	switch {
	case len(p.rule.MergeRule.groups) > 0:
		for q, g := range p.rule.groups {
			removed = removed || deleted && g.remove && !p.empty[q][i] && p.ahead(q, i)
		}
		if !removed {
			p.take(i, opDrop, opLateDrop)
		}
	case p.rule.remove:
		removed = deleted
	default:
		return false, errPartialDelete
	}
	if removed {
		p.all(i, opReset)
	}
	return removed, nil
}
