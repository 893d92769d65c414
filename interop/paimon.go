//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// PaimonTable is where a Paimon table is.
type PaimonTable struct {
	Warehouse string // URL
	Name      string // database.table
	Options   map[string]string
}

func (t PaimonTable) request() map[string]any {
	return map[string]any{"warehouse": t.Warehouse, "table": t.Name, "options": t.Options}
}

// Paimon is where the local table of a subject is.
func (s *Subject) Paimon() PaimonTable {
	return PaimonTable{Warehouse: s.Local.Warehouse, Name: s.Table}
}

// paimonWorker is a peer program that reads Paimon tables.
type paimonWorker struct{ *Worker }

// PaimonDescription is what a reader says about a table.
type PaimonDescription struct {
	Fields []struct {
		Name, Type string
		ID         int
	}
	PrimaryKeys, PartitionKeys []string
	Partitions                 []any
}

// Read reads the rows of a snapshot; 0 is the latest.
func (w paimonWorker) Read(ctx context.Context, t PaimonTable, snapshot int64, columns []Column) (*Rows, error) {
	request := t.request()
	request["snapshot"] = snapshot
	return w.Rows(ctx, "read", request, columns)
}

func (w paimonWorker) describe(ctx context.Context, t PaimonTable) (d PaimonDescription, err error) {
	return d, w.Ask(ctx, "describe", t.request(), &d)
}

func (w paimonWorker) count(ctx context.Context, t PaimonTable, column Column, kind Kind, value Cell) (int64, error) {
	request := t.request()
	request["column"], request["kind"], request["value"] = column.Name, kind.Word, value.Text
	var answer struct{ Count int64 }
	err := w.Ask(ctx, "count", request, &answer)
	return answer.Count, err
}

// check is what every Paimon peer must find: columns, keys, partitions, the rows of every snapshot, and as many
// rows for each predicate as the rows say.
func (w paimonWorker) check(ctx context.Context, s *Subject) error {
	t := s.Paimon()
	d, err := w.describe(ctx, t)
	if err != nil {
		return err
	}
	if err := checkPaimonSchema(d, s); err != nil {
		return err
	}
	if err := checkStates(ctx, w, s); err != nil {
		return err
	}
	return eachPredicate(s.Local.Final, func(i int, value Cell, want int64) error {
		got, err := w.count(ctx, t, s.Columns[i], s.Local.Final.Kinds[i], value)
		if err == nil && got != want {
			err = fmt.Errorf("%d rows have %s = %s, expected %d", got, s.Columns[i].Name, value.show(true), want)
		}
		return err
	})
}

func checkPaimonSchema(d PaimonDescription, s *Subject) error {
	if len(d.Fields) != len(s.Columns) {
		return fmt.Errorf("%d columns, expected %d", len(d.Fields), len(s.Columns))
	}
	id := 1
	for i, f := range d.Fields {
		c := s.Columns[i]
		if want := typeWords(c, s.Key); f.Name != c.Name || plainType(f.Type) != want && !s.Local.Final.Kinds[i].isNested() {
			return fmt.Errorf("column %d is %s %s, expected %s %s", i+1, f.Name, f.Type, c.Name, want)
		}
		if f.ID != id {
			return fmt.Errorf("column %s has field id %d, expected %d: Iceberg readers need ids from 1", f.Name, f.ID, id)
		}
		id += s.Local.Final.Kinds[i].ids()
	}
	if !slices.Equal(d.PrimaryKeys, s.Key) || !slices.Equal(d.PartitionKeys, s.Partition) {
		return fmt.Errorf("primary key %v and partition key %v, expected %v and %v", d.PrimaryKeys, d.PartitionKeys, s.Key, s.Partition)
	}
	if len(s.Partition) == 0 {
		return nil
	}
	want := map[string]bool{}
	for _, row := range s.Local.Final.Cells {
		var text []string
		for _, name := range s.Partition {
			text = append(text, row[s.Local.Final.index(name)].show(true))
		}
		want[strings.Join(text, "/")] = true
	}
	if len(d.Partitions) < len(want) {
		return fmt.Errorf("%d partitions %v, the rows are in %d", len(d.Partitions), d.Partitions, len(want))
	}
	return nil
}

// typeWords is how readers write a column's type: key columns are NOT NULL whatever was said.
func typeWords(c Column, key []string) string {
	words := plainType(c.Type)
	if slices.Contains(key, c.Name) && !strings.HasSuffix(words, " NOT NULL") {
		words += " NOT NULL"
	}
	return words
}

// plainType writes a type in one way: the readers differ in synonyms and spaces.
func plainType(t string) string {
	t = strings.ReplaceAll(t, ", ", ",")
	for _, r := range [][2]string{{"VARCHAR(2147483647)", "STRING"}, {"VARBINARY(2147483647)", "BYTES"},
		{"TIMESTAMP_LTZ(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"}, {"TIMESTAMP_LTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"},
		{"TIMESTAMP_LTZ(0)", "TIMESTAMP(0) WITH LOCAL TIME ZONE"}, {"INTEGER", "INT"}} {
		t = strings.ReplaceAll(t, r[0], r[1])
	}
	return t
}

// checkStates compares the rows of every snapshot on storage: with the model at the end of a step, and in between
// with what calve's own scan gives.
func checkStates(ctx context.Context, reader PaimonReader, s *Subject) error {
	ids, err := s.Local.snapshots(s.Table)
	if err != nil {
		return err
	}
	const many = 20_000 // rows, above which only the ends of steps are read: pypaimon merges 10,000 rows a second
	for _, id := range ids {
		if id > s.Local.Latest {
			break // written by a judge
		}
		want, ok := s.Local.States[id]
		if !ok {
			if len(s.Local.Final.Cells) > many {
				continue
			}
			if want, err = s.Local.Scan(ctx, s.Table, id, s.Columns); err != nil {
				return err
			}
		}
		got, err := reader.Read(ctx, s.Paimon(), id, s.Columns)
		if err != nil {
			return fmt.Errorf("snapshot %d: %w", id, err)
		}
		if err := want.Compare(got); err != nil {
			return fmt.Errorf("snapshot %d: %w", id, err)
		}
	}
	got, err := reader.Read(ctx, s.Paimon(), 0, s.Columns)
	if err != nil {
		return fmt.Errorf("latest snapshot: %w", err)
	}
	return s.Local.Final.Compare(got)
}

// eachPredicate calls f for one equality predicate a column, with the number of rows that it must find. Values that
// make no plain literal (NaN, texts of many bytes) are passed over.
func eachPredicate(r *Rows, f func(column int, value Cell, want int64) error) error {
	const longest = 1000
	if len(r.Cells) == 0 {
		return nil
	}
	for i, k := range r.Kinds {
		value := r.Cells[len(r.Cells)/2][i]
		if value.Null || len(value.Text) > longest || k.Word == "FLOAT" || k.Word == "DOUBLE" || k.isNested() || k.isNano() {
			continue
		}
		want := int64(0)
		for _, row := range r.Cells {
			if !row[i].Null && row[i].Text == value.Text {
				want++
			}
		}
		if err := f(i, value, want); err != nil {
			return fmt.Errorf("predicate on %s: %w", r.Columns[i].Name, err)
		}
	}
	return nil
}
