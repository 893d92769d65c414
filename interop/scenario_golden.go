//go:build interop

package interop

import (
	"context"
	"encoding/json"
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
			for _, file := range tables {
				if err := readGolden(ctx, reader, warehouse, file); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func readGolden(ctx context.Context, reader PaimonReader, warehouse, expect string) error {
	name := strings.TrimSuffix(filepath.Base(filepath.Dir(expect)), ".expect")
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
		return nil, err
	}
	columns := make([]Column, len(schema.Fields))
	for i, f := range schema.Fields {
		columns[i] = Column{f.Name, f.Type}
	}
	return columns, nil
}
