package lsm

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// A compaction of a table whose changelog producer is full-compaction or lookup tells what it changes: for each key the row
// that readers of the stream know, and the row that the merge makes (§12; `mergetree.compact.FullChangelogMergeFunctionWrapper`,
// `LookupChangelogMergeFunctionWrapper`, `FirstRowMergeFunctionWrapper`). Both are found while rows are merged: every key of
// which there may be a change is a group, whose rows know the level they come from.

// Older looks rows up that a compaction does not read: what the bucket has of n keys above the level that is written. keys
// are the columns of the trimmed primary key, in ascending order.
type Older func(ctx context.Context, keys []arrow.Array, n int) (Olds, error)

// Olds are the rows that were looked up.
type Olds struct {
	Rows datafile.Rows // at most one a key, with all columns of the schema
	At   []int32       // for each key its row, -1 if there is none
	// Places are, in a table with deletion vectors, where the row of each key is; File "" if there is none. The compaction
	// deletes it: its result takes its place. Without them there may be no row in Rows that the merge does not depend on.
	Places []Place
}

// Place is a row of a data file, by its number from 0 on.
type Place struct {
	File string
	Row  int64
}

// lookupRows is how many rows may be looked up at once: those that are found may be much larger than those they are found
// for, and come to about as much as a batch. 0: as many as a batch has.
func (j Job) lookupRows() int {
	if j.Older == nil {
		return 0
	}
	row := int64(1)
	for i := range j.Above {
		row = max(row, j.Above[i].Size*decodedRatio/max(1, j.Above[i].Rows))
	}
	return int(min(max(batchMemory/row, minLookupRows), DefaultBatchRows))
}

// minLookupRows keeps batches from becoming a few rows.
const minLookupRows = 64

// telling says which changes a merge tells.
type telling struct {
	// full: the row before is the one of level top. Otherwise it is the one of the lowest level above 0, or else the one that
	// is looked up; only keys with rows on level 0 change.
	full  bool
	top   int
	older Older     // nil: there are no files above the output
	gone  *expiring // rows that are not there any more when they are looked up; nil: all are
	// quiet: nothing is told; rows are looked up because the result depends on them.
	quiet bool
	first bool // of the engine first-row: a key that was there before does not change
	same  []int
	dedup bool // updates that change none of the columns same are left out

	marks []Place // rows that were looked up, to be deleted
}

// telling says what a compaction has to tell, nil if nothing.
func (f Files) telling(job Job) *telling {
	o := f.Options
	t := &telling{top: job.Output, older: job.Older, first: o.MergeEngine == schema.FirstRow, dedup: o.Changelog.RowDeduplicate}
	switch {
	case job.Output == 0:
		return nil
	case o.ChangelogProducer == schema.ProducerFullCompaction:
		// The highest level may be above MaxLevel, if the table had more of them. A job that is not full leaves files there.
		if t.full = true; !job.Full || job.Output < o.MaxLevel() {
			return nil
		}
	case !o.Lookup():
		return nil
	default:
		t.quiet = o.ChangelogProducer != schema.ProducerLookup
	}
	if !t.first { // which asks for the key alone
		t.gone = f.expiring()
	}
	if t.quiet && t.older == nil && (t.first || o.MergeEngine == schema.Deduplicate) {
		return nil
	}
	for i, c := range f.Schema.Fields {
		if !slices.Contains(o.Changelog.IgnoreFields, c.Name) {
			t.same = append(t.same, i)
		}
	}
	return t
}

// changelogOutputs writes changelog files of a level (`io.KeyValueFileWriterFactory.createRollingChangelogFileWriter`).
func (f Files) changelogOutputs(part Part, level int) *outputs {
	return &outputs{files: f, part: part, level: level, src: manifest.FromAppend, roll: f.Options.TargetFileSize, changelog: true}
}

// changes reports whether rows of a file can be changes as they are, without another row of their key.
func (t *telling) changes(m *manifest.DataFile) bool {
	if t == nil {
		return false
	}
	if t.full {
		return m.Level != t.top
	}
	return m.Level == 0
}

// rewritesUpgrade reports whether a file that moves has to be written anew (`LookupMergeTreeCompactRewriter.upgradeStrategy`):
// its rows are merged with those that are looked up, unless that makes no difference.
//
// Paimon lets a file move to the highest level as it is, whatever the engine, and tells what its merge function makes of
// each row. Where that is not the row itself (a field whose sequence group is null), its stream and its table then differ.
// Such files are rewritten here.
func (c *compaction) rewritesUpgrade(m *manifest.DataFile) bool {
	t, o := c.tell, c.files.Options
	if !t.changes(m) || t.full {
		return false
	}
	switch o.MergeEngine {
	case schema.Deduplicate:
		return t.older != nil && len(o.SequenceFields) > 0
	case schema.FirstRow:
		return t.older != nil
	}
	return true
}

// announce tells the changes of a file that moves.
func (c *compaction) announce(ctx context.Context, m manifest.DataFile) error {
	if t := c.tell; !t.changes(&m) || t.quiet && t.older == nil {
		return nil // nothing is told, and there is nothing to delete
	}
	quiet := *c
	quiet.out = nil
	return quiet.merge(ctx, [][]fileRows{{{file: m}}})
}

// alone reports whether the cursor's row, the first of its key, is merged even if the key has no other: another row of it
// may be looked up, and the merge function takes single rows too.
func (t *telling) alone(w *window) bool { return t != nil && !t.full && w.level == 0 }

// begin opens a group with the cursor's row.
func (m *Merger) begin(c *cursor) {
	w := c.win
	if w.slot < 0 {
		m.name(w)
	}
	m.last, m.lastRow, m.open = w, c.pos, true
	m.bytes += w.row
	m.groups.rows = append(m.groups.rows, Range{int32(w.slot), int32(c.pos), 1})
}

// nextTold is Next for a merge that tells changes: it gives rows and changes, of which one may be none.
func (m *Merger) nextTold(ctx context.Context) (rows, changes datafile.Rows, err error) {
	if m.err != nil {
		return rows, changes, m.err
	}
	for {
		if rows, err = m.next(ctx); err != nil {
			return rows, changes, err
		}
		if changes = m.changes; rows.N > 0 || changes.N > 0 {
			m.changes = datafile.Rows{}
			return rows, changes, nil
		}
	}
}

// lookUp finds older rows of the planned groups that have none of their own, and puts them among theirs.
func (m *Merger) lookUp(ctx context.Context) error {
	t := m.spec.tell
	if t.full || t.older == nil {
		return nil
	}
	g := &m.groups
	var want []Range // the newest row of each group that is looked up
	var of []int32
	from := int32(0)
	for i, end := range g.ends {
		rows := g.rows[from:end]
		if !slices.ContainsFunc(rows, func(r Range) bool { return m.wins[r.Src].level > 0 }) {
			want, of = append(want, rows[len(rows)-1]), append(of, int32(i))
		}
		from = end
	}
	if len(want) == 0 {
		return nil
	}
	keys, err := gatherKeys(m.wins, want, m.spec.KeyCols)
	if err != nil {
		return err
	}
	olds, err := t.older(ctx, keys, len(want))
	if err != nil {
		return fmt.Errorf("looking older rows up: %w", err)
	}
	rows, at := olds.Rows, olds.At
	if len(at) != len(want) {
		return fmt.Errorf("%d keys were looked up, and %d are answered", len(want), len(at))
	}
	for _, p := range olds.Places {
		if p.File != "" {
			t.marks = append(t.marks, p)
		}
	}
	if rows.N == 0 {
		return nil
	}
	if t.gone != nil {
		expired := t.gone.expired(rows)
		for i, row := range at {
			if row >= 0 && expired(int(row)) {
				at[i] = none
			}
		}
	}
	w, err := newWindow(rows)
	if err != nil {
		return err
	}
	if err := m.ruled(w, foundRun{}); err != nil {
		return err
	}
	m.name(w)
	m.insert(w, of, at)
	return nil
}

// foundRun stands for the files that rows were looked up in: they are above level 0.
type foundRun struct{}

func (foundRun) Next(context.Context) (datafile.Rows, error) { return datafile.Rows{}, io.EOF }
func (foundRun) Level() int                                  { return maxLevels }

// insert puts rows that were looked up among those of their groups, before the first that is newer.
func (m *Merger) insert(w *window, of, at []int32) {
	old := m.groups
	rows, ends := make([]Range, 0, len(old.rows)+len(of)), make([]int32, 0, len(old.ends))
	next, from := 0, int32(0)
	for g, end := range old.ends {
		row := none
		if next < len(of) && of[next] == int32(g) {
			row = at[next]
			next++
		}
		for _, r := range old.rows[from:end] {
			if row != none && m.older(w, int(row), r) {
				rows, row = append(rows, Range{int32(w.slot), row, 1}), none
			}
			rows = append(rows, r)
		}
		if row != none {
			rows = append(rows, Range{int32(w.slot), row, 1})
		}
		ends, from = append(ends, int32(len(rows))), end
	}
	m.groups.rows, m.groups.ends = rows, ends
}

// older reports whether a row of w comes before another of its key.
func (m *Merger) older(w *window, row int, r Range) bool {
	o := m.wins[r.Src]
	if c := w.order.compare(row, &o.order, int(r.Start)); c != 0 {
		return c < 0
	}
	return w.rows.Seq[row] < o.rows.Seq[r.Start]
}

func gatherKeys(wins []*window, rows []Range, cols []int) ([]arrow.Array, error) {
	keys, srcs := make([]arrow.Array, len(cols)), make([]arrow.Array, len(wins))
	for i, c := range cols {
		for j, w := range wins {
			srcs[j] = w.rows.Cols[c]
		}
		var err error
		if keys[i], err = gather(nil, srcs, rows); err != nil {
			return nil, err
		}
	}
	return keys, nil
}
