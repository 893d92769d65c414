package main

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/bench/lab"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// model is what a set of runs must merge to: of each key the row that came last.
type model struct {
	runs []datafile.Rows
	last map[int64]place
}

type place struct{ run, row int32 }

func newModel(runs []datafile.Rows) *model {
	m := &model{runs: runs, last: map[int64]place{}}
	for i, r := range runs {
		for row, k := range r.Cols[0].(*array.Int64).Int64Values() {
			m.last[k] = place{int32(i), int32(row)}
		}
	}
	return m
}

// rows is the number of keys, without those whose last row is a delete if deletes are dropped.
func (m *model) rows(dropDeletes bool) int64 {
	n := int64(0)
	for _, p := range m.last {
		if !dropDeletes || m.kind(p).IsAdd() {
			n++
		}
	}
	return n
}

func (m *model) kind(p place) schema.RowKind {
	return schema.RowKind(m.runs[p.run].Kinds[p.row])
}

// check reads files back and compares every cell with the model. The files must be one sorted run.
func (m *model) check(ctx context.Context, f lsm.Files, part lsm.Part, files []manifest.DataFile, dropDeletes bool) error {
	n, last := int64(0), int64(-1)
	for _, file := range files {
		err := lab.EachRows(ctx, f.Store, f.Schema, path.Join(part.Dir, file.Name), func(got datafile.Rows) error {
			for i, k := range got.Cols[0].(*array.Int64).Int64Values() {
				if k <= last {
					return fmt.Errorf("key %d after key %d", k, last)
				}
				last = k
				if err := m.same(got, i, k, dropDeletes); err != nil {
					return fmt.Errorf("key %d: %w", k, err)
				}
				n++
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: wrong rows: %w", file.Name, err)
		}
	}
	if want := m.rows(dropDeletes); n != want {
		return fmt.Errorf("wrong rows: %d of them, want %d", n, want)
	}
	return nil
}

func (m *model) same(got datafile.Rows, i int, key int64, dropDeletes bool) error {
	p, ok := m.last[key]
	if !ok {
		return errors.New("no run has it")
	}
	want := m.runs[p.run]
	if dropDeletes && !m.kind(p).IsAdd() {
		return errors.New("it was deleted")
	}
	if got.Seq[i] != want.Seq[p.row] || got.Kinds[i] != want.Kinds[p.row] {
		return fmt.Errorf("sequence number %d and kind %d, want %d and %d", got.Seq[i], got.Kinds[i], want.Seq[p.row], want.Kinds[p.row])
	}
	for c := range want.Cols {
		if !sameCell(got.Cols[c], i, want.Cols[c], int(p.row)) {
			return fmt.Errorf("column %d is %s, want %s", c, got.Cols[c].ValueStr(i), want.Cols[c].ValueStr(int(p.row)))
		}
	}
	return nil
}

// sameCell compares two cells of the types of the benchmark table.
func sameCell(a arrow.Array, i int, b arrow.Array, j int) bool {
	if a.IsNull(i) || b.IsNull(j) {
		return a.IsNull(i) && b.IsNull(j)
	}
	switch a := a.(type) {
	case *array.Int64:
		b, ok := b.(*array.Int64)
		return ok && a.Value(i) == b.Value(j)
	case *array.String:
		b, ok := b.(*array.String)
		return ok && a.Value(i) == b.Value(j)
	case *array.Float64:
		b, ok := b.(*array.Float64)
		return ok && a.Value(i) == b.Value(j)
	case *array.Timestamp:
		b, ok := b.(*array.Timestamp)
		return ok && a.Value(i) == b.Value(j)
	case *array.Decimal128:
		b, ok := b.(*array.Decimal128)
		return ok && a.Value(i) == b.Value(j)
	case *array.Int32:
		b, ok := b.(*array.Int32)
		return ok && a.Value(i) == b.Value(j)
	case *array.Boolean:
		b, ok := b.(*array.Boolean)
		return ok && a.Value(i) == b.Value(j)
	}
	return false
}
