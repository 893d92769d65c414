//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	Error   string // of a read that was refused
	Columns []Column
	Rows    []map[string]any
}

func (r *javaRows) table() (*Rows, error) {
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
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
	Latest   int64
	Rows     javaRows
	Travels  []javaRows
	Betweens []javaBetween
	Branches []javaRows
	Changes  struct {
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

// step does what the step says; a consumer is put to the snapshot next.
func (j *javaSide) step(ctx context.Context, s *HistoryStep, next int64) error {
	dynamic := map[string]string{}
	maps.Copy(dynamic, s.Dynamic)
	if s.Do == doOverwrite {
		dynamic["dynamic-partition-overwrite"] = strconv.FormatBool(s.Touched)
	}
	r := map[string]any{"dynamic": dynamic}
	switch s.Do {
	case doWrite, doOverwrite, doBranchWrite:
		changes := make([]map[string]any, len(s.Changes))
		for i, op := range s.Changes {
			changes[i] = map[string]any{"kind": j.history.sent(op.Kind), "row": op.Row}
		}
		r["changes"], r["wait"], r["spec"] = changes, s.Wait, s.Spec
		if s.Watermark != 0 {
			r["watermark"] = s.Watermark
		}
		if s.Do == doBranchWrite {
			r["branch"] = s.Name
			return j.ask(ctx, "write", r, nil)
		}
		return j.ask(ctx, string(s.Do), r, nil)
	case doCompact, doCompactFull:
		r["full"] = s.Do == doCompactFull
		return j.ask(ctx, "compact", r, nil)
	case doExpire:
		return j.ask(ctx, "expire", r, nil)
	case doTag, doDeleteTag:
		r["tag"], r["delete"] = s.Tag, s.Do == doDeleteTag
		return j.ask(ctx, "tag", r, nil)
	case doBranch, doDeleteBranch:
		r["name"], r["tag"], r["delete"] = s.Name, s.Tag, s.Do == doDeleteBranch
		return j.ask(ctx, "branch", r, nil)
	case doConsumer, doNoConsumer:
		r["name"], r["next"], r["delete"] = s.Name, next, s.Do == doNoConsumer
		return j.ask(ctx, "consumer", r, nil)
	}
	return fmt.Errorf("java has no action %q", s.Do)
}

// lookRequest says what to read besides the latest rows.
type lookRequest struct {
	travels  []travel
	betweens []between
	branches []string
	from     int64 // of the change stream
}

// look reads the latest rows, older ones, and the change stream from a snapshot on.
func (j *javaSide) look(ctx context.Context, q lookRequest) (*javaLook, error) {
	var answer javaLook
	travels, betweens := make([]map[string]string, len(q.travels)), make([]map[string]any, len(q.betweens))
	for i, t := range q.travels {
		travels[i] = t.java
	}
	for i, b := range q.betweens {
		betweens[i] = map[string]any{"options": b.java}
		if b.column != "" {
			betweens[i]["column"], betweens[i]["value"] = b.column, b.value
		}
	}
	err := j.ask(ctx, "look", map[string]any{"travels": travels, "betweens": betweens, "branches": q.branches, "from": q.from}, &answer)
	if err == nil && (len(answer.Travels) != len(travels) || len(answer.Betweens) != len(betweens) || len(answer.Branches) != len(q.branches)) {
		err = errors.New("the answer does not fit the question")
	}
	return &answer, err
}
