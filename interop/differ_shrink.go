//go:build interop

package interop

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// shrinker makes a history that disagrees smaller as long as the same comparison fails.
type shrinker struct {
	best  *History
	found *disagreement
	try   func(*History) *disagreement
	alive func() bool // plays and time are left
}

// shrink looks for a smaller history that fails in the same comparison: fewer steps, fewer rows, fewer options, fewer
// columns, plainer values.
func shrink(ctx context.Context, h *History, found *disagreement, try func(*History) *disagreement) (*History, *disagreement) {
	const most, patience = 400, time.Minute
	plays, until := 0, time.Now().Add(patience)
	s := &shrinker{best: h, found: found, try: try}
	s.alive = func() bool {
		plays++
		return plays < most && time.Now().Before(until) && ctx.Err() == nil
	}
	for again := true; again && s.alive(); {
		again = s.steps()
		again = s.rows() || again
		again = s.options() || again
		again = s.columns() || again
		again = s.values() || again
	}
	return s.best, s.found
}

// keep plays a smaller history and keeps it when it still fails.
func (s *shrinker) keep(h *History) bool {
	if !s.alive() {
		return false
	}
	d := s.try(h)
	if d == nil || d.What != s.found.What {
		return false
	}
	if d.Step > 0 {
		h.Steps = h.Steps[:d.Step] // what comes after it does not matter
	}
	s.best, s.found = h, d
	return true
}

// without is the list without the elements from i to j.
func without[T any](list []T, i, j int) []T {
	return slices.Concat(list[:i], list[min(j, len(list)):])
}

// chunks removes parts of a list of n elements, large parts first; cut tries to remove those from i to j.
func chunks(n func() int, cut func(i, j int) bool) (smaller bool) {
	for size := (n() + 1) / 2; size > 0; size /= 2 {
		for i := 0; i < n(); {
			if cut(i, i+size) {
				smaller = true
			} else {
				i += size
			}
		}
	}
	return smaller
}

func (s *shrinker) steps() bool {
	return chunks(func() int { return len(s.best.Steps) }, func(i, j int) bool {
		h := s.best.clone()
		h.Steps = without(h.Steps, i, j)
		return s.keep(h)
	})
}

func (s *shrinker) rows() (smaller bool) {
	for step := 0; step < len(s.best.Steps); step++ {
		size := func() int {
			if step >= len(s.best.Steps) {
				return 0
			}
			return len(s.best.Steps[step].Changes)
		}
		smaller = chunks(size, func(i, j int) bool {
			h := s.best.clone()
			h.Steps[step].Changes = without(h.Steps[step].Changes, i, j)
			return len(h.Steps[step].Changes) > 0 && s.keep(h)
		}) || smaller
	}
	return smaller
}

func (s *shrinker) options() (smaller bool) {
	for _, name := range slices.Sorted(maps.Keys(s.best.Options)) {
		h := s.best.clone()
		delete(h.Options, name)
		smaller = s.keep(h) || smaller
	}
	for i := range s.best.Steps {
		if i < len(s.best.Steps) && s.best.Steps[i].Dynamic != nil {
			h := s.best.clone()
			h.Steps[i].Dynamic = nil
			smaller = s.keep(h) || smaller
		}
	}
	if s.best.Keep || s.best.Job != "" || s.best.Buffer > 0 {
		h := s.best.clone()
		h.Keep, h.Job, h.Buffer = false, "", 0
		smaller = s.keep(h) || smaller
	}
	return smaller
}

func (s *shrinker) columns() (smaller bool) {
	for _, c := range s.best.Columns {
		h := s.best.clone()
		same := func(name string) bool { return name == c.Name }
		h.Columns = slices.DeleteFunc(h.Columns, func(o Column) bool { return same(o.Name) })
		h.Key = slices.DeleteFunc(slices.Clone(h.Key), same)
		h.Partition = slices.DeleteFunc(slices.Clone(h.Partition), same)
		if len(h.Columns) == 0 || len(s.best.Key) > 0 && len(h.Key) == 0 {
			continue
		}
		h.eachRow(func(row map[string]any) { delete(row, c.Name) })
		for i := range h.Steps {
			h.Steps[i].Spec = maps.Clone(h.Steps[i].Spec)
			delete(h.Steps[i].Spec, c.Name)
		}
		smaller = s.keep(h) || smaller
	}
	return smaller
}

// values puts nulls where they are allowed.
func (s *shrinker) values() (smaller bool) {
	for _, c := range s.best.Columns {
		if strings.HasSuffix(c.Type, "NOT NULL") || slices.Contains(s.best.Partition, c.Name) {
			continue
		}
		h, had := s.best.clone(), false
		h.eachRow(func(row map[string]any) {
			had = had || row[c.Name] != nil
			row[c.Name] = nil
		})
		smaller = had && s.keep(h) || smaller
	}
	return smaller
}

// eachRow lets f change a copy of every row.
func (h *History) eachRow(f func(row map[string]any)) {
	for i := range h.Steps {
		changes := slices.Clone(h.Steps[i].Changes)
		for j := range changes {
			changes[j].Row = maps.Clone(changes[j].Row)
			f(changes[j].Row)
		}
		h.Steps[i].Changes = changes
	}
}
