//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
)

// javaSide is Java's part of the differential tester: requests to peers/java/calve/peer/Histories.java.
type javaSide struct {
	history *History
	worker  *Worker
	table   PaimonTable
}

// Change is one row of a change stream.
type Change struct {
	Snapshot int64
	Kind     string
	Row      map[string]any
}

// javaRows is a row set as Java reads it, with the columns that the read has.
type javaRows struct {
	Columns []Column
	Rows    []map[string]any
}

func (r *javaRows) table() (*Rows, error) {
	rows, err := NewRows(r.Columns)
	if err != nil {
		return nil, err
	}
	for _, row := range r.Rows {
		if err := rows.Add(row); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// javaLook is what Java reads after a step.
type javaLook struct {
	Latest          int64
	Rows            javaRows
	Snapshots, Tags []javaRows
	Changes         struct {
		Columns []Column
		Rows    []Change
	}
}

func (j *javaSide) ask(ctx context.Context, op string, request map[string]any, answer any) error {
	full := map[string]any{"warehouse": j.table.Warehouse, "table": j.table.Name}
	maps.Copy(full, request)
	var text json.RawMessage
	if err := j.worker.Ask(ctx, "history-"+op, full, &text); err != nil {
		return err
	}
	if answer == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // a BIGINT is no float64
	return d.Decode(answer)
}

func (j *javaSide) create(ctx context.Context) error {
	h := j.history
	columns, ids := make([]map[string]any, len(h.Columns)), len(h.Columns)
	for i, c := range h.Columns {
		k, err := ParseKind(c.Type)
		if err != nil {
			return err
		}
		columns[i] = map[string]any{"name": c.Name, "type": k.json(&ids)}
	}
	return j.ask(ctx, "create", map[string]any{"columns": columns, "key": h.Key, "partition": h.Partition, "options": h.Options}, nil)
}

func (j *javaSide) step(ctx context.Context, s *HistoryStep) error {
	dynamic := map[string]string{}
	maps.Copy(dynamic, s.Dynamic)
	if s.Do == doOverwrite {
		dynamic["dynamic-partition-overwrite"] = strconv.FormatBool(s.Touched)
	}
	r := map[string]any{"dynamic": dynamic}
	switch s.Do {
	case doWrite, doOverwrite:
		changes := make([]map[string]any, len(s.Changes))
		for i, op := range s.Changes {
			changes[i] = map[string]any{"kind": op.Kind, "row": op.Row}
		}
		r["changes"], r["wait"], r["spec"] = changes, s.Wait, s.Spec
		return j.ask(ctx, string(s.Do), r, nil)
	case doCompact, doCompactFull:
		r["full"] = s.Do == doCompactFull
		return j.ask(ctx, "compact", r, nil)
	case doExpire:
		return j.ask(ctx, "expire", r, nil)
	case doTag, doDeleteTag:
		r["tag"], r["delete"] = s.Tag, s.Do == doDeleteTag
		return j.ask(ctx, "tag", r, nil)
	}
	return fmt.Errorf("java has no action %q", s.Do)
}

// look reads the latest rows, older ones, and the change stream from a snapshot on.
func (j *javaSide) look(ctx context.Context, snapshots []int64, tags []string, from int64) (*javaLook, error) {
	var answer javaLook
	err := j.ask(ctx, "look", map[string]any{"snapshots": snapshots, "tags": tags, "from": from}, &answer)
	return &answer, err
}
