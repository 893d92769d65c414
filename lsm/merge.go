package lsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
)

// Run is a sorted run: rows in ascending key order, at most one row a key, with sequence numbers and kinds.
// Next returns io.EOF at the end. A Run that is an io.Closer is closed by the Merger that reads it.
type Run interface {
	Next(ctx context.Context) (datafile.Rows, error)
}

// DefaultBatchRows is the number of rows in a merged batch when MergeSpec does not say.
const DefaultBatchRows = 32 << 10

// MergeSpec says how to merge.
type MergeSpec struct {
	Schema      *schema.Schema
	KeyCols     []int // positions of the key columns, in key order, in Rows.Cols
	DropDeletes bool  // leave rows of kind -D and -U out of the result
	BatchRows   int   // most rows in a batch; 0: DefaultBatchRows
	BatchBytes  int64 // about the most bytes in a batch, but for a window; 0: no limit

	// Rule is what becomes of the rows of a key; nil: the one with the highest sequence number stays, as it is.
	Rule *MergeRule
	Cols []int // which columns of the schema Rows.Cols are; nil: all of them, in order. For Rule.

	mem   *arena   // of the batches; nil: fresh memory, which stays valid
	store bool     // the result goes to a file
	tell  *telling // changes to be told; nil: none
}

// Leveled is a Run that can tell the level of the file its last rows came from.
type Leveled interface {
	Run
	Level() int
}

// Merger merges sorted runs into one by the rule of the table. Without one, that of the deduplicate engine, the row with
// the highest sequence number of each key survives, as it is, deletes included unless DropDeletes.
//
// It first plans a batch as ranges of rows of the runs' current windows, then copies column by column. Where a rule
// needs all rows of a key, those of keys with more than one are noted as groups, and merged column by column when the
// batch is copied. A window stays alive until the ranges that name it are copied; Merger never holds more than two
// windows a run, and one more while it collects the rows of one key.
type Merger struct {
	spec MergeSpec
	rule *bound // nil: no rule, or one that the order of the rows fulfils
	err  error  // of the rule
	keys *Keys
	runs []Run
	tree loserTree
	init bool

	// The batch being planned.
	wins   []*window // sources that ranges name
	ranges []Range
	rows   int
	bytes  int64

	groups groups
	sealed int  // ranges before this one do not grow any more
	open   bool // the last group is being collected, newest row first

	last    *window // where the last key that was taken is
	lastRow int
	queue   []part // pieces of a planned batch that was too large for one
	changes datafile.Rows
	used    bool // the arena's current set holds rows that were given away

	prev      int32 // the run that won last,
	streak    int   // how many times in a row,
	minGallop int   // and from how many on it pays to look for the end of its streak by galloping
}

// window is a batch of one run's rows with their keys.
type window struct {
	rows    datafile.Rows
	keys    KeyVec
	order   seqVec // by sequence.field, if the rule has it
	level   int    // of the file, if the rule asks for it
	deletes bool   // some row is a delete
	row     int64  // bytes of a row, if MergeSpec.BatchBytes asks
	slot    int    // number in Merger.wins, -1 if no range names it
}

// cursor is the next row of a run.
type cursor struct {
	win  *window
	pos  int
	done bool
}

type part struct {
	wins   []*window
	ranges []Range
	rows   int
	groups groups
}

// Bounds of the adaptive galloping, as in TimSort: every gallop that finds little makes the next one start later.
const (
	startGallop = 4
	leastGallop = 2
	mostGallop  = 64
	goodGallop  = 8
)

// Merge merges the runs. Runs are read only when rows are asked for. A single run is passed through as it comes.
func Merge(spec MergeSpec, runs []Run) *Merger {
	if spec.BatchRows <= 0 {
		spec.BatchRows = DefaultBatchRows
	}
	if spec.BatchBytes <= 0 {
		spec.BatchBytes = math.MaxInt64
	}
	m := &Merger{spec: spec, keys: NewKeys(spec.Schema), runs: runs, prev: -1, minGallop: startGallop}
	if r := spec.Rule; r != nil && (r.grouped || r.seq != nil) {
		cols := spec.Cols
		if cols == nil {
			cols = allColumns(spec.Schema)
		}
		m.rule, m.err = r.bind(cols, spec.store)
	}
	return m
}

func allColumns(s *schema.Schema) []int {
	all := make([]int, len(s.Fields))
	for i := range all {
		all[i] = i
	}
	return all
}

// Close closes the runs.
func (m *Merger) Close() error {
	var errs []error
	for _, r := range m.runs {
		if c, ok := r.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// Next returns the next rows, at least one, or io.EOF.
func (m *Merger) Next(ctx context.Context) (datafile.Rows, error) {
	if m.err != nil {
		return datafile.Rows{}, m.err
	}
	if len(m.runs) == 1 && m.spec.tell == nil {
		return m.pass(ctx)
	}
	for {
		rows, err := m.next(ctx)
		if err != nil || rows.N > 0 { // all keys of a batch may turn out to be deleted
			return rows, err
		}
	}
}

// next is Next, which may give no rows.
func (m *Merger) next(ctx context.Context) (datafile.Rows, error) {
	if len(m.queue) > 0 {
		p := m.queue[0]
		m.queue = m.queue[1:]
		return m.gather(p)
	}
	if !m.init {
		if err := m.start(ctx); err != nil {
			return datafile.Rows{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return datafile.Rows{}, err
	}
	if err := m.plan(ctx); err != nil {
		return datafile.Rows{}, err
	}
	if m.spec.tell != nil {
		if err := m.lookUp(ctx); err != nil {
			return datafile.Rows{}, fmt.Errorf("merge: %w", err)
		}
	}
	if m.rows == 0 {
		return datafile.Rows{}, io.EOF
	}
	p := part{m.wins, m.ranges, m.rows, m.groups}
	rows, err := m.gather(p)
	for _, w := range m.wins {
		w.slot = -1
	}
	clear(m.wins)
	m.wins, m.ranges, m.rows, m.bytes, m.sealed = m.wins[:0], m.ranges[:0], 0, 0, 0
	m.groups.reset()
	return rows, err
}

// pass hands the rows of a single run through.
func (m *Merger) pass(ctx context.Context) (datafile.Rows, error) {
	for {
		if err := ctx.Err(); err != nil {
			return datafile.Rows{}, err
		}
		rows, err := m.runs[0].Next(ctx)
		if err != nil {
			return datafile.Rows{}, err
		}
		if rows.N == 0 {
			continue
		}
		if !m.spec.DropDeletes {
			return rows, nil
		}
		w, err := newWindow(rows)
		if err != nil {
			return datafile.Rows{}, err
		}
		if !w.deletes {
			return rows, nil
		}
		p := part{wins: []*window{w}}
		for i := 0; i < rows.N; i++ {
			from := i
			for i < rows.N && isAdd(rows.Kinds[i]) {
				i++
			}
			if i > from {
				p.ranges = append(p.ranges, Range{0, int32(from), int32(i - from)})
				p.rows += i - from
			}
		}
		if p.rows > 0 {
			return m.gather(p)
		}
	}
}

func isAdd(kind int8) bool { return schema.RowKind(kind).IsAdd() }

// newWindow checks that a run's rows are whole.
func newWindow(r datafile.Rows) (*window, error) {
	if len(r.Seq) != r.N || len(r.Kinds) != r.N {
		return nil, fmt.Errorf("merge: a run of %d rows has %d sequence numbers and %d kinds", r.N, len(r.Seq), len(r.Kinds))
	}
	w := &window{rows: r, slot: -1}
	for _, k := range r.Kinds {
		if !isAdd(k) {
			w.deletes = true
			break
		}
	}
	return w, nil
}

func (m *Merger) start(ctx context.Context) error {
	m.init = true
	m.tree = newLoserTree(len(m.runs))
	for i := range m.runs {
		if err := m.load(ctx, i); err != nil {
			return err
		}
	}
	if len(m.runs) > 0 {
		m.tree.build()
	}
	return nil
}

// load takes the next window of a run.
func (m *Merger) load(ctx context.Context, i int) error {
	c := &m.tree.cur[i]
	old := c.win
	for {
		rows, err := m.runs[i].Next(ctx)
		if err == io.EOF {
			c.win, c.pos, c.done = nil, 0, true
			m.tree.head[i] = doneHead
			return nil
		}
		if err != nil {
			return err
		}
		if rows.N == 0 {
			continue
		}
		w, err := newWindow(rows)
		if err != nil {
			return err
		}
		cols := make([]arrow.Array, len(m.spec.KeyCols))
		for j, k := range m.spec.KeyCols {
			if k >= len(rows.Cols) {
				return fmt.Errorf("merge: key column %d of a run with %d columns", k, len(rows.Cols))
			}
			cols[j] = rows.Cols[k]
		}
		if w.keys, err = m.keys.Encode(cols, rows.N); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		bad := w.keys.ascending()
		if old != nil && old.keys.Compare(old.rows.N-1, &w.keys, 0) >= 0 {
			bad = 0
		}
		if bad >= 0 {
			return fmt.Errorf("merge: %w: run %d, row %d of the window", ErrUnsorted, i, bad)
		}
		if m.rule != nil {
			if err := m.ruled(w, m.runs[i]); err != nil {
				return fmt.Errorf("merge: %w", err)
			}
		}
		w.row = rowBytes(rows)
		c.win, c.pos = w, 0
		m.tree.head[i] = w.keys.Prefix[0]
		return nil
	}
}

// ErrUnsorted: a sorted run's keys do not ascend, or a key comes twice. The file is corrupt or was written in another
// order.
var ErrUnsorted = errors.New("keys of a sorted run do not ascend")

// plan adds ranges until the batch is full, the windows are many, or the runs have ended.
func (m *Merger) plan(ctx context.Context) error {
	t := &m.tree
	if len(t.node) == 0 {
		return nil
	}
	defer m.closeGroup()
	for {
		w := t.node[0]
		c := &t.cur[w]
		if c.done {
			return nil
		}
		if m.isLast(c) { // an older version of the key just taken
			if m.rule != nil && m.rule.grouped {
				m.join(c)
			}
			if err := m.advance(ctx, w, c.pos+1); err != nil {
				return err
			}
			continue
		}
		m.closeGroup()
		if m.rows >= m.spec.BatchRows || m.bytes >= m.spec.BatchBytes || len(m.wins) >= 2*len(m.runs) {
			return nil
		}
		if m.spec.tell.alone(c.win) {
			m.prev, m.streak = w, 0
			m.begin(c)
			if err := m.advance(ctx, w, c.pos+1); err != nil {
				return err
			}
			continue
		}
		end := c.pos + 1
		if w != m.prev {
			m.prev, m.streak = w, 0
		} else if m.streak++; m.streak >= m.minGallop {
			end = m.gallop(w)
		}
		m.take(c, end)
		if err := m.advance(ctx, w, end); err != nil {
			return err
		}
	}
}

// isLast reports whether the cursor's key is the one taken last.
func (m *Merger) isLast(c *cursor) bool {
	l := m.last
	if l == nil || l.keys.Prefix[m.lastRow] != c.win.keys.Prefix[c.pos] {
		return false
	}
	return l.keys.Compare(m.lastRow, &c.win.keys, c.pos) == 0
}

// take puts the cursor's rows up to end into the batch, without deletes if they are to be dropped.
func (m *Merger) take(c *cursor, end int) {
	w := c.win
	if m.lastRow = end - 1; m.last != w { // a write of a pointer costs more than the comparison
		m.last = w
	}
	if !m.spec.DropDeletes || !w.deletes {
		m.emit(w, c.pos, end)
		return
	}
	for i := c.pos; i < end; i++ {
		from := i
		for i < end && isAdd(w.rows.Kinds[i]) {
			i++
		}
		if i > from {
			m.emit(w, from, i)
		}
	}
}

func (m *Merger) emit(w *window, from, to int) {
	if w.slot < 0 {
		m.name(w)
	}
	m.rows += to - from
	m.bytes += int64(to-from) * w.row
	if n := len(m.ranges); n > m.sealed {
		if r := &m.ranges[n-1]; int(r.Src) == w.slot && int(r.Start+r.N) == from {
			r.N += int32(to - from)
			return
		}
	}
	m.ranges = append(m.ranges, Range{int32(w.slot), int32(from), int32(to - from)})
}

// name gives a window a number that ranges can name.
func (m *Merger) name(w *window) {
	w.slot = len(m.wins)
	m.wins = append(m.wins, w)
}

// advance moves a run to row pos of its window, or to its next window.
func (m *Merger) advance(ctx context.Context, w int32, pos int) error {
	t := &m.tree
	c := &t.cur[w]
	if pos < c.win.rows.N {
		c.pos = pos
		t.head[w] = c.win.keys.Prefix[pos]
	} else if err := m.load(ctx, int(w)); err != nil {
		return err
	}
	t.replay(w)
	return nil
}

// gallop finds how far run w, which is winning, stays ahead of all others: the first row of its window whose key is
// not below the second best. It adapts minGallop to what that brought.
func (m *Merger) gallop(w int32) int {
	t := &m.tree
	c := &t.cur[w]
	most := min(c.win.rows.N, c.pos+m.spec.BatchRows-m.rows)
	end := most
	if s := t.second(w); s >= 0 {
		o := &t.cur[s]
		end = c.win.keys.below(c.pos+1, most, &o.win.keys, o.pos)
	}
	if end-c.pos < goodGallop {
		m.minGallop = min(m.minGallop+2, mostGallop)
	} else {
		m.minGallop = max(m.minGallop-1, leastGallop)
	}
	m.streak = 0
	return end
}

// below is the first row in [from, to) whose key is not below key j of o, found by steps that double and then halve.
func (v *KeyVec) below(from, to int, o *KeyVec, j int) int {
	step := 1
	lo, hi := from, from // all rows before lo are below
	for hi < to && v.Compare(hi, o, j) < 0 {
		lo = hi + 1
		hi += step
		step *= 2
	}
	hi = min(hi, to)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); v.Compare(mid, o, j) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// gather copies the planned rows. A batch that is too large for Arrow's 32-bit offsets is cut in two.
func (m *Merger) gather(p part) (datafile.Rows, error) {
	if m.used {
		m.spec.mem.next()
	}
	var rows datafile.Rows
	var err error
	if len(p.groups.ends) > 0 {
		rows, m.changes, err = m.rule.mergeGroups(m.spec.mem, p, m.spec.DropDeletes, m.spec.tell)
	} else {
		rows, err = gatherRows(m.spec.mem, p)
		if err == nil && m.spec.tell != nil {
			m.changes, err = m.spec.tell.changesOf(p, nil, nil, nil, rows)
		}
	}
	m.used = rows.N > 0
	if !errors.Is(err, ErrTooLarge) || p.rows == 1 {
		if err != nil {
			err = fmt.Errorf("merge: %w", err)
		}
		return rows, err
	}
	a, b := p.halves()
	m.queue = append([]part{b}, m.queue...)
	return m.gather(a)
}

// halves cuts a batch in the middle. The second half owns its memory, since it outlives the plan.
func (p part) halves() (a, b part) {
	a, b = part{wins: append([]*window(nil), p.wins...)}, part{wins: append([]*window(nil), p.wins...)}
	g := 0
	for i, r := range p.ranges {
		if g < len(p.groups.at) && int(p.groups.at[g]) == i {
			half := &b
			if a.rows < p.rows/2 {
				half = &a
			}
			from := int32(0)
			if g > 0 {
				from = p.groups.ends[g-1]
			}
			half.groups.add(p.groups.rows[from:p.groups.ends[g]], len(half.ranges))
			g++
		}
		if room := int32(p.rows/2 - a.rows); room > 0 {
			n := min(room, r.N)
			a.ranges = append(a.ranges, Range{r.Src, r.Start, n})
			a.rows += int(n)
			r.Start, r.N = r.Start+n, r.N-n
		}
		if r.N > 0 {
			b.ranges = append(b.ranges, r)
			b.rows += int(r.N)
		}
	}
	return a, b
}

func gatherRows(mem *arena, p part) (datafile.Rows, error) {
	if len(p.ranges) == 1 && int(p.ranges[0].N) == p.wins[p.ranges[0].Src].rows.N {
		return p.wins[p.ranges[0].Src].rows, nil // a whole window: nothing to copy
	}
	out := datafile.Rows{N: p.rows, Cols: make([]arrow.Array, len(p.wins[0].rows.Cols))}
	seqs, kinds := make([][]int64, len(p.wins)), make([][]int8, len(p.wins))
	for i, w := range p.wins {
		seqs[i], kinds[i] = w.rows.Seq, w.rows.Kinds
	}
	out.Seq = gatherSlices(mem, seqs, p.ranges, p.rows)
	out.Kinds = gatherSlices(mem, kinds, p.ranges, p.rows)
	srcs := make([]arrow.Array, len(p.wins))
	for c := range out.Cols {
		for i, w := range p.wins {
			if c >= len(w.rows.Cols) {
				return datafile.Rows{}, fmt.Errorf("a run has %d columns, another %d", len(w.rows.Cols), len(out.Cols))
			}
			srcs[i] = w.rows.Cols[c]
		}
		var err error
		if out.Cols[c], err = gather(mem, srcs, p.ranges); err != nil {
			return datafile.Rows{}, fmt.Errorf("column %d: %w", c, err)
		}
	}
	return out, nil
}
