package ingest

import (
	"context"
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
)

// A record may leave holes in its row: values that did not change and that the source did not have at hand
// (decode.Hole). They are filled from the row that the new one replaces: an earlier row of the batch, or else the row in
// the table. The table is asked as its last commit left it, so what was written since is committed before. A record whose
// holes cannot be filled goes to the dead letters.
//
// Nothing of this outlives a crash, and nothing needs to: the same records are read again, and the table that they are
// filled from is the one of the snapshot that they follow.

// stepsBack is how many snapshots that wrote rows are looked through for a row whose key has changed, and that was deleted
// under its old key just before.
const stepsBack = 64

// filler fills the holes of one batch.
type filler struct {
	batch decode.Batch
	keys  []int               // columns of the primary key
	wants []want              // rows to be looked up
	asked map[string]int      // them by key
	cells map[int]map[int]src // what a hole takes, by row and column
}

// want is a row to look up: the key is in a row of the batch or of its old keys.
type want struct {
	key   string
	of    schema.Batch
	row   int
	older bool // it may be deleted by now
}

// src is where a cell comes from: a row of the batch, or a row that is looked up (number in wants).
type src struct {
	looked bool
	row    int
}

// fill fills the holes of a unit, or moves their records to the rejects.
func (c *committer) fill(ctx context.Context, u *unit) error {
	if len(u.batch.Holes) == 0 {
		return nil
	}
	f := &filler{batch: u.batch, asked: map[string]int{}, cells: map[int]map[int]src{}}
	s := c.table.Schema()
	for _, name := range s.PrimaryKeys {
		i, _ := s.Field(name)
		f.keys = append(f.keys, i)
	}
	why := unfillable(s)
	var found []arrow.RecordBatch // of each want, nil: there is none
	if why == "" {
		f.trace()
		var err error
		if found, err = c.lookUp(ctx, f); err != nil {
			return err
		}
		why = "the value of column %q is unavailable in the record, and the table has no row of its key, or null in it, to take it from"
	}
	drop := map[int]bool{}
	for i, h := range f.batch.Holes {
		if col := f.missing(h, found); col >= 0 || found == nil && len(f.cells) == 0 {
			l := u.holes[i]
			l.Code = decode.Unavailable
			l.Reason = fmt.Sprintf(why, s.Fields[max(col, h.Cols[0])].Name)
			u.rejects = append(u.rejects, l)
			u.tally.Rejected++
			for r := h.First; r < h.Last; r++ {
				drop[r] = true
			}
		}
	}
	u.tally.Rows -= int64(len(drop))
	var err error
	u.batch.Batch, err = f.rebuild(drop, found)
	u.batch.Holes = nil
	return err
}

// unfillable says why holes in rows of a table cannot be filled.
func unfillable(s *schema.Schema) string {
	if e := s.Options["merge-engine"]; e != "" && e != "deduplicate" {
		return "the value of column %q is unavailable in the record, and a table with merge-engine " + e + " does not keep the row that it could be taken from"
	}
	return ""
}

// trace finds where the cells come from, row by row.
func (f *filler) trace() {
	holes := map[int]*decode.Hole{}
	last := 0
	for i := range f.batch.Holes {
		h := &f.batch.Holes[i]
		holes[h.Row], last = h, h.Row
	}
	newest := map[string]int{} // row of a key that is not a delete
	for row := range last + 1 {
		key := f.key(f.batch.Batch, f.keys, row)
		if h := holes[row]; h != nil {
			from, of, at := key, f.batch.Batch, row
			if h.Old >= 0 {
				of, at = f.batch.OldKeys, h.Old
				from = f.key(of, nil, at)
			}
			cells := map[int]src{}
			before, inBatch := newest[from]
			for _, col := range h.Cols {
				switch {
				case !inBatch:
					cells[col] = src{looked: true, row: f.want(from, of, at, h.Old >= 0)}
				default:
					cells[col] = src{row: before}
					if c, ok := f.cells[before][col]; ok {
						cells[col] = c
					}
				}
			}
			f.cells[row] = cells
		}
		if f.batch.Kinds == nil || f.batch.Kinds[row].IsAdd() {
			newest[key] = row
		}
	}
}

// key gives the key of a row as text, of which two are equal only if the keys are. cols are the key's columns, nil: all.
func (f *filler) key(b schema.Batch, cols []int, row int) string {
	var out []byte
	n := len(cols)
	if cols == nil {
		n = int(b.Rec.NumCols())
	}
	for i := range n {
		c := i
		if cols != nil {
			c = cols[i]
		}
		out = fmt.Appendf(out, "%#v\x00", schema.Cell(b.Rec.Column(c), row))
	}
	return string(out)
}

// want asks for a row of the table.
func (f *filler) want(key string, of schema.Batch, row int, older bool) int {
	id := strconv.FormatBool(older) + key
	if i, ok := f.asked[id]; ok {
		return i
	}
	f.asked[id] = len(f.wants)
	f.wants = append(f.wants, want{key, of, row, older})
	return len(f.wants) - 1
}

// lookUp finds the rows that are wanted, each as a batch of one row. What was written before is committed first.
func (c *committer) lookUp(ctx context.Context, f *filler) ([]arrow.RecordBatch, error) {
	if len(f.wants) == 0 {
		return []arrow.RecordBatch{}, nil
	}
	if c.pending {
		if err := c.commitDue(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]arrow.RecordBatch, len(f.wants))
	for _, older := range []bool{false, true} {
		var which []int
		for i := range f.wants {
			if f.wants[i].older == older {
				which = append(which, i)
			}
		}
		if len(which) == 0 {
			continue
		}
		keys, err := f.wanted(c.table.Schema(), which)
		if err != nil {
			return nil, err
		}
		steps := 0
		if older {
			steps = stepsBack
		}
		found, err := c.table.RowsBefore(ctx, keys, steps)
		if err != nil {
			return nil, fmt.Errorf("look up rows that records leave out values of: %w", err)
		}
		for j, i := range which {
			if at := found.At[j]; at >= 0 {
				out[i] = found.Rows.NewSlice(int64(at), int64(at)+1)
			}
		}
	}
	return out, nil
}

// wanted are the keys of some of the wants.
func (f *filler) wanted(s *schema.Schema, which []int) (arrow.RecordBatch, error) {
	var fields []arrow.Field
	var cols []arrow.Array
	for k, c := range f.keys {
		var parts []arrow.Array
		for _, i := range which {
			w := &f.wants[i]
			col := c
			if w.older { // old keys have the key's columns alone
				col = k
			}
			parts = append(parts, array.NewSlice(w.of.Rec.Column(col), int64(w.row), int64(w.row)+1))
		}
		col, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			return nil, err
		}
		cols = append(cols, col)
		fields = append(fields, arrow.Field{Name: s.Fields[c].Name, Type: col.DataType()})
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, int64(len(which))), nil
}

// missing gives a column of a hole for which there is no value, -1 if there is none. A null is none where the source has a
// value: the table then never had it, for example since the column has another name in the source now.
func (f *filler) missing(h decode.Hole, found []arrow.RecordBatch) int {
	for _, col := range h.Cols {
		s, ok := f.cells[h.Row][col]
		switch {
		case !ok:
		case s.looked && found[s.row] == nil,
			h.Valued && s.looked && found[s.row].Column(col).IsNull(0),
			h.Valued && !s.looked && f.batch.Rec.Column(col).IsNull(s.row):
			return col
		}
	}
	return -1
}

// rebuild makes the batch without the rows that are dropped and with the holes of the others filled.
func (f *filler) rebuild(drop map[int]bool, found []arrow.RecordBatch) (schema.Batch, error) {
	b := f.batch.Batch
	holey := map[int]bool{}
	for _, h := range f.batch.Holes {
		for _, col := range h.Cols {
			holey[col] = true
		}
	}
	rows := b.Len() - len(drop)
	if rows == 0 {
		return schema.Batch{}, nil
	}
	cols := make([]arrow.Array, b.Rec.NumCols())
	for c := range cols {
		cols[c] = b.Rec.Column(c)
		if !holey[c] && len(drop) == 0 {
			continue
		}
		var parts []arrow.Array
		from := 0
		flush := func(to int) {
			if from < to {
				parts = append(parts, array.NewSlice(b.Rec.Column(c), int64(from), int64(to)))
			}
			from = to + 1
		}
		for _, row := range f.cuts(drop) {
			s, ok := f.cells[row][c]
			if !drop[row] && !ok {
				continue
			}
			flush(row)
			switch {
			case drop[row]:
			case s.looked:
				parts = append(parts, found[s.row].Column(c))
			default:
				parts = append(parts, array.NewSlice(b.Rec.Column(c), int64(s.row), int64(s.row)+1))
			}
		}
		flush(b.Len())
		var err error
		if cols[c], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			return b, err
		}
	}
	out := schema.Batch{Rec: array.NewRecordBatch(b.Rec.Schema(), cols, int64(rows))}
	for i, k := range b.Kinds {
		if !drop[i] {
			out.Kinds = append(out.Kinds, k)
		}
	}
	return out, nil
}

// cuts are the rows that are dropped or have holes, in order.
func (f *filler) cuts(drop map[int]bool) (out []int) {
	next := 0
	for _, h := range f.batch.Holes {
		for r := max(h.First, next); r < max(h.Last, h.Row+1); r++ {
			if drop[r] || r == h.Row {
				out = append(out, r)
			}
		}
		next = h.Last
	}
	return out
}
