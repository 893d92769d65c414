//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func init() { RegisterScenario(Scenario{Name: "golden", Run: judgeGolden}) }

// judgeGolden lets the Paimon readers, calve among them, read the golden tables, which Paimon Java 1.3.1 wrote, at
// every snapshot. It shows that the judges judge rightly, and that calve reads what others wrote.
func judgeGolden(ctx context.Context, l *Lab, report *Report) {
	warehouse := filepath.Join(l.Root, "internal", "testdata", "golden")
	tables, err := filepath.Glob(filepath.Join(warehouse, "*.expect", "snapshots.jsonl"))
	if err == nil && len(tables) == 0 {
		err = fmt.Errorf("no golden tables in %s", warehouse)
	}
	for _, j := range judges {
		reader, ok := j.Judge.(PaimonReader)
		if _, isCalve := j.Judge.(calveJudge); isCalve {
			reader, ok = calveReader{&Calve{lab: l, Warehouse: "file://" + warehouse}}, true
		}
		if !ok {
			continue
		}
		report.Check("golden", j.Name(), func() error {
			if err != nil {
				return err
			}
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			var errs []error
			for _, file := range tables {
				name := strings.TrimSuffix(filepath.Base(filepath.Dir(file)), ".expect")
				if slices.Contains(notGolden["all"], name) || slices.Contains(notGolden[j.Name()], name) {
					continue
				}
				errs = append(errs, readGolden(ctx, reader, warehouse, name, file))
			}
			return errors.Join(errs...)
		})
	}
}

// notGolden are tables that this scenario does not let a judge read; the tests of package reader hold calve against all.
var notGolden = map[string][]string{
	"all": { // columns of other types than the scenario compares, or snapshots with columns of their own
		"append_all_types", "pk_aggregation", "pk_all_types", "pk_iceberg", "pk_iceberg_dv3", "pk_schema_evolution",
	},
	"pypaimon": { // refused by pypaimon: 64-bit vectors, options of partial-update
		"pk_deletion_vectors64", "pk_iceberg_dv3", "pk_partial_update", "pk_partial_update_seqgroup",
	},
}

func readGolden(ctx context.Context, reader PaimonReader, warehouse, name, expect string) error {
	columns, err := goldenColumns(filepath.Join(warehouse, "golden.db", name))
	if err != nil {
		return err
	}
	in, err := os.Open(expect)
	if err != nil {
		return err
	}
	defer in.Close()
	table := PaimonTable{Warehouse: "file://" + warehouse, Name: "golden." + name}
	return EachLine(in, func(line []byte) error {
		snapshot, err := decodeObject(line)
		if err != nil {
			return err
		}
		want, err := NewRows(columns)
		if err != nil {
			return err
		}
		rows, _ := snapshot["rows"].([]any)
		for _, row := range rows {
			object, _ := row.(map[string]any)
			if err := want.Add(object); err != nil {
				return err
			}
		}
		id, err := snapshot["snapshot"].(json.Number).Int64()
		if err != nil {
			return err
		}
		got, err := reader.Read(ctx, table, id, columns)
		if err == nil {
			err = want.Compare(got)
		}
		if err != nil {
			return fmt.Errorf("golden table %s, snapshot %d: %w", name, id, err)
		}
		return nil
	})
}

// goldenColumns reads the columns from the table's newest schema.
func goldenColumns(table string) ([]Column, error) {
	files, err := filepath.Glob(filepath.Join(table, "schema", "schema-*"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no schema in %s (%w)", table, err)
	}
	slices.Sort(files) // fewer than ten
	text, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		return nil, err
	}
	var schema struct {
		Fields []struct{ Name, Type string }
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("golden table %s: %w", filepath.Base(table), err)
	}
	columns := make([]Column, len(schema.Fields))
	for i, f := range schema.Fields {
		columns[i] = Column{f.Name, f.Type}
	}
	return columns, nil
}
