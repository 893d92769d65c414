package datafile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// shredder turns rows of a nested column into the slots of one leaf: levels, and where the values are. It goes from the
// column's array to the leaf's step by step, all rows at once.
type shredder struct {
	arrays []arrow.Array // before each step; the last is the leaf's
	leaf   source

	defs, reps []uint8
	at         []int32 // of each slot: the value's place in the leaf's array; -1: it ends before
	// scratch of lists
	defs2, reps2 []uint8
	at2          []int32
}

// bind prepares a column's array.
func (s *shredder) bind(a arrow.Array, steps []step) {
	s.arrays = append(s.arrays[:0], a)
	for _, st := range steps {
		switch st.kind {
		case stepField:
			a = a.(*array.Struct).Field(st.kid)
		case stepList:
			a = a.(array.ListLike).ListValues()
		}
		s.arrays = append(s.arrays, a)
	}
	s.leaf = newSource(a)
}

// rows makes the slots of some rows.
func (s *shredder) rows(from, n int, steps []step) error {
	s.defs, s.reps, s.at = resize(s.defs, n), resize(s.reps, n), resize(s.at, n)
	clear(s.defs)
	clear(s.reps)
	for i := range s.at {
		s.at[i] = int32(from + i)
	}
	rep := uint8(0)
	for i, st := range steps {
		a := s.arrays[i]
		switch st.kind {
		case stepList:
			rep++
			s.expand(a, rep)
		case stepOptional:
			s.optional(a)
		case stepRequired:
			if a.NullN() > 0 {
				if err := s.required(a, st.name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// optional raises the level of the values that are not null.
func (s *shredder) optional(a arrow.Array) {
	var valid []byte
	base := a.Data().Offset()
	if a.NullN() > 0 {
		valid = a.NullBitmapBytes()
	}
	for i, at := range s.at {
		if at < 0 {
			continue
		}
		if valid != nil && !bitutil.BitIsSet(valid, base+int(at)) {
			s.at[i] = -1
			continue
		}
		s.defs[i]++
	}
}

func (s *shredder) required(a arrow.Array, name string) error {
	for _, at := range s.at {
		if at >= 0 && a.IsNull(int(at)) {
			return fmt.Errorf("%q is NOT NULL but has nulls", name)
		}
	}
	return nil
}

// expand replaces each list by a slot for each of its elements; an empty one keeps its slot.
func (s *shredder) expand(a arrow.Array, rep uint8) {
	d := a.Data()
	var off []int32
	if d.Len() > 0 {
		off = arrow.Int32Traits.CastFromBytes(d.Buffers()[1].Bytes())[d.Offset() : d.Offset()+d.Len()+1]
	}
	defs, reps, ats := s.defs2[:0], s.reps2[:0], s.at2[:0]
	for i, at := range s.at {
		if at < 0 || off[at] == off[at+1] {
			defs, reps, ats = append(defs, s.defs[i]), append(reps, s.reps[i]), append(ats, -1)
			continue
		}
		r := s.reps[i]
		for j := off[at]; j < off[at+1]; j++ {
			defs, reps, ats = append(defs, s.defs[i]+1), append(reps, r), append(ats, j)
			r = rep
		}
	}
	s.defs, s.defs2, s.reps, s.reps2, s.at, s.at2 = defs, s.defs, reps, s.reps, ats, s.at
}

// Bounds of the rows that are turned into slots at once.
const (
	firstRows = 16
	mostRows  = 4096
)

// writeNested appends rows of a nested column to the leaf.
func (e *columnEncoder) writeNested(a arrow.Array) error {
	e.shred.bind(a, e.steps)
	k := firstRows
	for from := 0; from < a.Len(); {
		k = min(k, a.Len()-from)
		before := e.pending()
		if err := e.shred.rows(from, k, e.steps); err != nil {
			return fmt.Errorf("column %q: %w", e.name, err)
		}
		slots := len(e.shred.at)
		if err := e.appendSlots(); err != nil {
			return err
		}
		e.records += k
		size := e.pending() - before
		from += k
		if err := e.took(slots); err != nil {
			return err
		}
		// As many rows next as make a few thousand slots, and not more than a page.
		k = max(1, min(mostRows, k*mostRows/max(slots, 1), k*pageBytes/max(size, 1)))
	}
	e.page.keepText()
	return nil
}

// pending is about how many bytes of values the page has.
func (e *columnEncoder) pending() int {
	return len(e.vals) + 4*len(e.i32) + 8*len(e.i64) + 4*len(e.idx) + len(e.dict.data)
}

// appendSlots adds the slots to the page.
func (e *columnEncoder) appendSlots() error {
	s := &e.shred
	e.defs, e.reps = append(e.defs, s.defs...), append(e.reps, s.reps...)
	for i := 0; i < len(s.at); {
		at := s.at[i]
		if i++; at < 0 {
			e.nulls++
			continue
		}
		end := at + 1
		for i < len(s.at) && s.at[i] == end {
			i, end = i+1, end+1
		}
		if err := e.appendValues(&s.leaf, int(at), int(end)); err != nil {
			return err
		}
	}
	return nil
}

// appendNestedLevels appends the levels of the page, each with its length in front.
func (e *columnEncoder) appendNestedLevels(b []byte) []byte {
	if e.maxRep > 0 {
		b = appendSized(b, e.reps, e.maxRep)
	}
	if e.maxDef > 0 {
		b = appendSized(b, e.defs, e.maxDef)
	}
	return b
}
