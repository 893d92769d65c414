//go:build interop

package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Op is one change: what to do and the row in the normal form.
type Op struct {
	Kind string // "I", "U" (upsert) or "D", as `calve put` takes them
	Row  map[string]any
}

// Put makes an upsert of a row.
func Put(row map[string]any) Op { return Op{"U", row} }

// Del makes a delete of a row.
func Del(row map[string]any) Op { return Op{"D", row} }

// Model folds changes the way the table must: the last change of a key wins; without a key every row stays.
type Model struct {
	columns []Column
	key     []string
	kinds   map[string]Kind
	byKey   map[string]map[string]any
	order   []map[string]any // of a table without key
}

// NewModel makes the model of an empty table.
func NewModel(columns []Column, key []string) (*Model, error) {
	m := &Model{columns: columns, key: key, kinds: map[string]Kind{}, byKey: map[string]map[string]any{}}
	for _, c := range columns {
		k, err := ParseKind(c.Type)
		if err != nil {
			return nil, err
		}
		m.kinds[c.Name] = k
	}
	return m, nil
}

// Apply takes changes in order.
func (m *Model) Apply(ops []Op) error {
	for _, op := range ops {
		if len(m.key) == 0 {
			m.order = append(m.order, op.Row)
			continue
		}
		key, err := m.keyOf(op.Row)
		if err != nil {
			return err
		}
		if op.Kind == "D" {
			delete(m.byKey, key)
		} else {
			m.byKey[key] = op.Row
		}
	}
	return nil
}

func (m *Model) keyOf(row map[string]any) (string, error) {
	var b strings.Builder
	for _, name := range m.key {
		c, err := m.kinds[name].Cell(row[name])
		if err != nil {
			return "", fmt.Errorf("key column %s: %w", name, err)
		}
		fmt.Fprintf(&b, "%d:%s", len(c.Text), c.Text)
	}
	return b.String(), nil
}

// Rows is what the table must hold now.
func (m *Model) Rows() (*Rows, error) {
	r, err := NewRows(m.columns)
	if err != nil {
		return nil, err
	}
	rows := m.order
	if len(m.key) > 0 {
		rows = slices.Collect(maps.Values(m.byKey))
	}
	for _, row := range rows {
		if err := r.Add(row); err != nil {
			return nil, err
		}
	}
	r.Sort()
	return r, nil
}

// writeChanges writes changes as the lines {"kind", "row"} that the Java peer reads.
func writeChanges(path string, ops []Op) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, op := range ops {
		kind := "+I"
		if op.Kind == "D" {
			kind = "-D"
		}
		if err := enc.Encode(map[string]any{"kind": kind, "row": op.Row}); err != nil {
			return err
		}
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
