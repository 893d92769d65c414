package manifest

import (
	"context"
	"slices"
)

// Rows of tables with `row-tracking.enabled` have ids (`operation.commit.RowTrackingCommitUtils`): a snapshot says which
// id is the next (`nextRowId`), and each file that brings new rows gets as many as it has rows, in the order of the
// snapshot's entries. Its sequence numbers become the snapshot's id. A commit that has lost a race does it again.

// tracked is a commit to such a table.
type tracked struct {
	entries []Entry // as the caller gave them
	id      int64   // of the snapshot that the commit's entries are made for; 0: none yet
	first   int64   // row id before it
	next    int64   // row id after it
}

// brings reports whether an entry is of a file whose rows need ids.
func (e *Entry) brings() bool {
	f := &e.File
	return e.Kind == Add && f.FirstRowID == nil && !f.Tracked() && (f.Source == nil || *f.Source == FromAppend)
}

// assign gives entries as a snapshot has them, and the row id after them. No entry is changed in place.
func assign(entries []Entry, snapshot, first int64) ([]Entry, int64) {
	out := slices.Clone(entries)
	for i := range out {
		switch e := &out[i]; {
		case e.brings():
			id := first
			e.File.FirstRowID, e.File.MinSeq, e.File.MaxSeq = &id, snapshot, snapshot
			first += e.File.Rows
		case e.Kind == Add && e.File.MinSeq == 0:
			e.File.MinSeq, e.File.MaxSeq = snapshot, snapshot
		}
	}
	return out, first
}

// Assigned gives the entries of a commit as its snapshot has them, for a table with row tracking.
func Assigned(entries []Entry, s *Snapshot) []Entry {
	if s.NextRowID == nil {
		return entries
	}
	first := *s.NextRowID
	for i := range entries {
		if e := &entries[i]; e.brings() {
			first -= e.File.Rows
		}
	}
	out, _ := assign(entries, s.ID, first)
	return out
}

// track gives the rows of the commit their ids for the snapshot that it is about to make. What was encoded for another
// one is deleted.
func (t *Table) track(ctx context.Context, p *pending) error {
	id, first := int64(1), int64(0)
	if s := t.head.snap; s != nil {
		id = s.ID + 1
		if s.NextRowID != nil {
			first = *s.NextRowID
		}
	}
	if p.tracked.id == id && p.tracked.first == first {
		return nil
	}
	for _, d := range p.deltas {
		p.remove(ctx, t, d.name)
	}
	p.remove(ctx, t, p.delta.name)
	p.tracked.id, p.tracked.first = id, first
	p.commit.Entries, p.tracked.next = assign(p.tracked.entries, id, first)
	return p.encodeDelta()
}
