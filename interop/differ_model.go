//go:build interop

package interop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// differModel says what a table must hold when the last change of a key wins. Without a key every row stays.
type differModel struct {
	columns []Column
	key     []string
	kinds   map[string]Kind
	rows    map[string]map[string]any // by key, or by number of arrival
	arrived int
}

func newDifferModel(h *History) (*differModel, error) {
	m := &differModel{columns: h.Columns, key: h.Key, kinds: map[string]Kind{}, rows: map[string]map[string]any{}}
	for _, c := range h.Columns {
		k, err := ParseKind(c.Type)
		if err != nil {
			return nil, err
		}
		m.kinds[c.Name] = k
	}
	return m, nil
}

// apply takes changes in order.
func (m *differModel) apply(changes []Op) error {
	for _, op := range changes {
		m.arrived++
		key := fmt.Sprint(m.arrived)
		if len(m.key) > 0 {
			var err error
			if key, err = m.text(m.key, op.Row); err != nil {
				return err
			}
		}
		if op.Kind == "-D" || op.Kind == "-U" {
			delete(m.rows, key)
		} else {
			m.rows[key] = op.Row
		}
	}
	return nil
}

// restart lets the model go on from rows of a table with these columns.
func (m *differModel) restart(columns []Column, rows []map[string]any) error {
	m.columns, m.rows = columns, map[string]map[string]any{}
	for _, c := range columns {
		k, err := ParseKind(c.Type)
		if err != nil {
			return err
		}
		m.kinds[c.Name] = k
	}
	for _, row := range rows {
		if err := m.apply([]Op{{Kind: "+I", Row: row}}); err != nil {
			return err
		}
	}
	return nil
}

// overwrite removes the rows of a partition, or of those of the changes, or all, and takes the changes in their place.
func (m *differModel) overwrite(s *HistoryStep, partition []string) error {
	names := partition
	if !s.Touched {
		names = slices.Collect(maps.Keys(s.Spec))
	}
	inside := map[string]bool{}
	replaced := s.Changes
	if !s.Touched {
		spec := map[string]any{}
		for name, value := range s.Spec {
			spec[name] = value
		}
		replaced = []Op{{Row: spec}}
	}
	for _, op := range replaced {
		text, err := m.text(names, op.Row)
		if err != nil {
			return err
		}
		inside[text] = true
	}
	for key, row := range m.rows {
		text, err := m.text(names, row)
		if err != nil {
			return err
		}
		if inside[text] {
			delete(m.rows, key)
		}
	}
	return m.apply(s.Changes)
}

func (m *differModel) text(names []string, row map[string]any) (string, error) {
	var b strings.Builder
	for _, name := range names {
		c, err := m.kinds[name].Cell(row[name])
		if err != nil {
			return "", fmt.Errorf("column %s: %w", name, err)
		}
		if c.Text == "-0" {
			c.Text = "0" // the zeros of floating-point keys are one; no other value has this text
		}
		fmt.Fprintf(&b, "%v%d:%s", c.Null, len(c.Text), c.Text)
	}
	return b.String(), nil
}

// table is what the table must hold now.
func (m *differModel) table() (*Rows, error) {
	r, err := NewRows(m.columns)
	if err != nil {
		return nil, err
	}
	for _, row := range m.rows {
		known := map[string]any{} // a shrunk history may have lost the change that made a column
		for _, c := range m.columns {
			known[c.Name] = row[c.Name]
		}
		if err := r.Add(known); err != nil {
			return nil, err
		}
	}
	r.Sort()
	return r, nil
}
