package lsm

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
)

// groups are the rows of keys that have more than one of them.
type groups struct {
	rows []Range // the rows of all groups, those of a key from the oldest to the newest; N is 1
	ends []int32 // where each group ends in rows
	at   []int32 // the range of the part that stands for the group
}

func (g *groups) reset() { g.rows, g.ends, g.at = g.rows[:0], g.ends[:0], g.at[:0] }

// begin is where the group that is being collected begins.
func (g *groups) begin() int {
	if len(g.ends) == 0 {
		return 0
	}
	return int(g.ends[len(g.ends)-1])
}

// add takes a whole group over from another part.
func (g *groups) add(rows []Range, at int) {
	g.rows = append(g.rows, rows...)
	g.ends = append(g.ends, int32(len(g.rows)))
	g.at = append(g.at, int32(at))
}

// join adds the cursor's row, an older one of the key taken last, to the group of that key.
func (m *Merger) join(c *cursor) {
	g := &m.groups
	if !m.open {
		m.open = true
		if m.last.slot < 0 {
			m.name(m.last)
		}
		if !m.spec.DropDeletes || isAdd(m.last.rows.Kinds[m.lastRow]) { // it was taken for the only row of its key
			last := &m.ranges[len(m.ranges)-1]
			if last.N--; last.N == 0 {
				m.ranges = m.ranges[:len(m.ranges)-1]
			}
			m.rows--
		}
		g.rows = append(g.rows, Range{int32(m.last.slot), int32(m.lastRow), 1})
	}
	if c.win.slot < 0 {
		m.name(c.win)
	}
	g.rows = append(g.rows, Range{int32(c.win.slot), int32(c.pos), 1})
}

// closeGroup ends the group that is being collected: its rows are turned into order, and a range stands for it.
func (m *Merger) closeGroup() {
	if !m.open {
		return
	}
	g := &m.groups
	from := g.begin()
	rows := g.rows[from:]
	slices.Reverse(rows)
	if m.rule.lookup {
		rows = m.newestAbove(rows)
		g.rows = g.rows[:from+len(rows)]
	}
	g.ends = append(g.ends, int32(len(g.rows)))
	g.at = append(g.at, int32(len(m.ranges)))
	m.ranges = append(m.ranges, rows[len(rows)-1])
	m.rows++
	m.open, m.sealed = false, len(m.ranges)
}

// newestAbove leaves the rows of level 0 and, of those above, the one of the lowest level, into which the others were
// merged when it was written (`LookupMergeFunction.pickHighLevel`).
func (m *Merger) newestAbove(rows []Range) []Range {
	low := math.MaxInt
	for _, r := range rows {
		if l := m.wins[r.Src].level; l > 0 {
			low = min(low, l)
		}
	}
	return slices.DeleteFunc(rows, func(r Range) bool { l := m.wins[r.Src].level; return l > low })
}

// ruled makes a window ready for the rule.
func (m *Merger) ruled(w *window, run Run) error {
	if m.rule.lookup || m.spec.tell != nil {
		l, ok := run.(Leveled)
		if !ok {
			return errors.New("the rule of the table needs the level of its files")
		}
		w.level = l.Level()
	}
	if m.rule.seq == nil {
		return nil
	}
	cols := make([]arrow.Array, len(m.rule.seqPos))
	for i, c := range m.rule.seqPos {
		if c >= len(w.rows.Cols) {
			return fmt.Errorf("sequence column %d of a run with %d columns", c, len(w.rows.Cols))
		}
		cols[i] = w.rows.Cols[c]
	}
	var err error
	w.order, err = m.rule.seq.encode(cols, w.rows.N)
	return err
}

// none is the choice of null.
const none = int32(-1)

// merging is the merge of the groups of one part. Rows are numbered as in groups.rows.
type merging struct {
	mem   *arena
	rule  *bound
	wins  []*window
	rows  []Range
	ends  []int32
	kinds []int8 // of rows

	// The outcome of each group.
	from []int32 // the row whose key and sequence number the result has; none: there is no result
	kind []int8  // of the result

	ops      []uint8   // what each row does to columns outside of sequence groups
	groupOps [][]uint8 // and to those of each sequence group
}

// What a row does to a column.
const (
	opSkip     = uint8(iota)
	opTake                   // its value is taken
	opLate                   // the same, but the row belongs before those taken so far
	opDrop                   // its value is taken back
	opLateDrop               // the same for a row that belongs before those taken so far
	opReset                  // what was there goes, its value is all there is
	opInit     = uint8(0x80) // the row's values are there before the row is taken
)

// mergeGroups gathers a part with groups. Groups without a result, and with drop those whose result is a delete, are
// left out. tell, if it is not nil, tells what that changes.
func (r *bound) mergeGroups(mem *arena, p part, drop bool, tell *telling) (out, changes datafile.Rows, err error) {
	m := &merging{mem: mem, rule: r, wins: p.wins, rows: p.groups.rows, ends: p.groups.ends}
	kinds, seqs := make([][]int8, len(p.wins)), make([][]int64, len(p.wins))
	for i, w := range p.wins {
		kinds[i], seqs[i] = w.rows.Kinds, w.rows.Seq
	}
	m.kinds = gatherSlices(nil, kinds, m.rows, len(m.rows))
	if err := m.outcomes(); err != nil {
		return out, changes, err
	}
	if tell != nil {
		tell.hide(m, p)
	}
	ranges, slots, n := m.place(p, drop)
	starts := make([]int32, len(ranges)) // where the rows of each range are in the result
	for i := 1; i < len(ranges); i++ {
		starts[i] = starts[i-1] + ranges[i-1].N
	}
	if n > 0 {
		out = datafile.Rows{N: n, Cols: make([]arrow.Array, len(p.wins[0].rows.Cols))}
		out.Seq = gatherSlices(mem, seqs, ranges, n)
		out.Kinds = gatherSlices(mem, kinds, ranges, n)
		for g, slot := range slots {
			if slot >= 0 {
				out.Kinds[starts[slot]] = m.kind[g]
			}
		}
		scratch := make([]Range, len(ranges))
		for c := range out.Cols {
			if out.Cols[c], err = m.column(c, ranges, slots, scratch); err != nil {
				return datafile.Rows{}, changes, err
			}
		}
	}
	if tell != nil {
		changes, err = tell.changesOf(p, m, slots, starts, out)
	}
	return out, changes, err
}

// place lists the ranges of the result, with the range of each group, none for a group that is left out.
func (m *merging) place(p part, drop bool) (ranges []Range, slots []int32, n int) {
	ranges, slots = make([]Range, 0, len(p.ranges)), make([]int32, len(m.ends))
	g := 0
	for i, r := range p.ranges {
		if g < len(p.groups.at) && int(p.groups.at[g]) == i {
			from := m.from[g]
			slots[g] = none
			if from != none && !(drop && !isAdd(m.kind[g])) {
				slots[g] = int32(len(ranges))
				ranges = append(ranges, m.rows[from])
				n++
			}
			g++
			continue
		}
		ranges = append(ranges, r)
		n += int(r.N)
	}
	return ranges, slots, n
}

// column makes one column of the result.
func (m *merging) column(c int, ranges []Range, slots []int32, scratch []Range) (arrow.Array, error) {
	srcs := make([]arrow.Array, len(m.wins), len(m.wins)+1)
	for i, w := range m.wins {
		if c >= len(w.rows.Cols) {
			return nil, fmt.Errorf("a run has %d columns, another more", len(w.rows.Cols))
		}
		srcs[i] = w.rows.Cols[c]
	}
	if m.rule.cols == nil || m.rule.cols[c].fn == foldKey {
		return m.wrap(c)(gather(m.mem, srcs, ranges))
	}
	copy(scratch, ranges)
	extra := int32(len(srcs))
	rule := m.rule.cols[c]
	if rule.fn >= foldSum {
		made, err := m.fold(rule, srcs)
		if err != nil {
			return nil, err
		}
		for g, slot := range slots {
			if slot >= 0 {
				scratch[slot] = Range{extra, int32(g), 1}
			}
		}
		return m.wrap(c)(gather(m.mem, append(srcs, made), scratch))
	}
	choice, err := m.choose(rule, srcs)
	if err != nil {
		return nil, err
	}
	null := false
	for g, slot := range slots {
		switch {
		case slot < 0:
		case choice[g] == none:
			scratch[slot] = Range{extra, 0, 1}
			null = true
		default:
			scratch[slot] = m.rows[choice[g]]
		}
	}
	if null {
		srcs = append(srcs, array.MakeArrayOfNull(memory.DefaultAllocator, srcs[m.rows[0].Src].DataType(), 1))
	}
	return m.wrap(c)(gather(m.mem, srcs, scratch))
}

func (m *merging) wrap(c int) func(arrow.Array, error) (arrow.Array, error) {
	return func(a arrow.Array, err error) (arrow.Array, error) {
		if err != nil {
			err = fmt.Errorf("column %d: %w", c, err)
		}
		return a, err
	}
}

// outcomes decides what becomes of each group as a whole, and what its rows do to the columns.
func (m *merging) outcomes() error {
	m.from, m.kind = make([]int32, len(m.ends)), make([]int8, len(m.ends))
	switch m.rule.engine {
	case schema.Deduplicate:
		m.lastRow()
		return nil
	case schema.FirstRow:
		return m.firstRow()
	case schema.Aggregation:
		m.aggregation()
		return nil
	}
	return m.partialUpdate()
}

// lastRow is `DeduplicateMergeFunction` with ignore-delete.
func (m *merging) lastRow() {
	i := 0
	for g, end := range m.ends {
		m.from[g] = none
		for ; i < int(end); i++ {
			if !m.rule.ignoreDelete || isAdd(m.kinds[i]) {
				m.from[g], m.kind[g] = int32(i), m.kinds[i]
			}
		}
	}
}

// firstRow is `FirstRowMergeFunction`.
func (m *merging) firstRow() error {
	i := 0
	for g, end := range m.ends {
		m.from[g] = none
		for ; i < int(end); i++ {
			switch {
			case !isAdd(m.kinds[i]):
				if !m.rule.ignoreDelete {
					return fmt.Errorf("a row of kind %s in a first-row table, which takes no deletes: set the table option \"ignore-delete\"", schema.RowKind(m.kinds[i]))
				}
			case m.from[g] == none:
				m.from[g], m.kind[g] = int32(i), m.kinds[i]
			}
		}
	}
	return nil
}

// aggregation is `AggregateMergeFunction`: every row counts, and the result is an insert unless the last row removes it.
func (m *merging) aggregation() {
	m.ops = make([]uint8, len(m.rows))
	i := 0
	for g, end := range m.ends {
		for ; i < int(end); i++ {
			k := m.kinds[i]
			removed := m.rule.remove && k == int8(schema.Delete)
			switch {
			case removed:
				m.ops[i] = opReset
			case isAdd(k):
				m.ops[i] = opTake
			default:
				m.ops[i] = opDrop
			}
			m.kind[g] = int8(schema.Insert)
			if removed {
				m.kind[g] = k
			}
		}
		m.from[g] = end - 1
	}
}
