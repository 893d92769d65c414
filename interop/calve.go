//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Calve drives the calve command on one warehouse.
type Calve struct {
	lab       *Lab
	Warehouse string
	env       []string
}

// command makes a call of calve.
func (c *Calve) command(ctx context.Context, stdin []byte, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.lab.Binary, append(args, "--warehouse", c.Warehouse)...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdin = bytes.NewReader(stdin)
	return cmd
}

// Run runs calve to its end and gives what it printed; what it said on stderr is part of the error.
func (c *Calve) Run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := c.command(ctx, stdin, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("calve %s: %w: %s%s", strings.Join(args, " "), err, tailOf(errs.Bytes()), tailOf(out.Bytes()))
	}
	return out.Bytes(), nil
}

// Create creates the table of a case.
func (c *Calve) Create(ctx context.Context, table string, k *Case) error {
	columns := make([]string, len(k.Columns))
	for i, col := range k.Columns {
		columns[i] = "`" + col.Name + "` " + col.Type
	}
	args := []string{"create", table, "--columns", strings.Join(columns, ", ")}
	if len(k.Key) > 0 {
		args = append(args, "--primary-key", strings.Join(k.Key, ","))
	}
	if len(k.Partition) > 0 {
		args = append(args, "--partition", strings.Join(k.Partition, ","))
	}
	for name, value := range k.Options {
		args = append(args, "--option", name+"="+value)
	}
	_, err := c.Run(ctx, nil, args...)
	return err
}

// Put puts changes into the table of a case.
func (c *Calve) Put(ctx context.Context, table string, k *Case, ops []Op) error {
	var in bytes.Buffer
	enc := json.NewEncoder(&in)
	enc.SetEscapeHTML(false)
	for _, op := range ops {
		row, err := toCalve(op.Row, k.Columns)
		if err != nil {
			return err
		}
		row["op"] = op.Kind
		if len(k.Key) == 0 {
			row["op"] = "I" // there is nothing to update
		}
		if err := enc.Encode(row); err != nil {
			return err
		}
	}
	_, err := c.Run(ctx, in.Bytes(), "put", table)
	return err
}

// Scan reads the rows of a snapshot; 0 is the latest. More flags say which.
func (c *Calve) Scan(ctx context.Context, table string, snapshot int64, columns []Column, more ...string) (*Rows, error) {
	args := append([]string{"scan", table}, more...)
	if snapshot > 0 {
		args = append(args, "--snapshot", strconv.FormatInt(snapshot, 10))
	}
	out, err := c.Run(ctx, nil, args...)
	if err != nil {
		return nil, err
	}
	rows, err := NewRows(columns)
	if err != nil {
		return nil, err
	}
	err = EachLine(bytes.NewReader(out), func(line []byte) error {
		row, err := decodeObject(line)
		if err != nil {
			return err
		}
		return rows.Add(fromCalve(row, columns))
	})
	return rows, err
}

// Fold tails the table from its first snapshot and folds the changes into rows.
func (c *Calve) Fold(ctx context.Context, table string, columns []Column, key []string) (*Rows, error) {
	out, err := c.Run(ctx, nil, "tail", table, "--from", "earliest")
	if err != nil {
		return nil, err
	}
	model, err := NewModel(columns, key)
	if err != nil {
		return nil, err
	}
	err = EachLine(bytes.NewReader(out), func(line []byte) error {
		change, err := decodeObject(line)
		if err != nil {
			return err
		}
		kind, row, err := changeOf(change)
		if err != nil {
			return err
		}
		if kind == "-U" {
			return nil // its +U follows
		}
		op := Put(fromCalve(row, columns))
		if kind == "-D" {
			op.Kind = "D"
		}
		return model.Apply([]Op{op})
	})
	if err != nil {
		return nil, fmt.Errorf("calve tail: %w", err)
	}
	return model.Rows()
}

func changeOf(change map[string]any) (kind string, row map[string]any, err error) {
	kind, ok := change["kind"].(string)
	row, isRow := change["row"].(map[string]any)
	if !ok || !isRow {
		return "", nil, fmt.Errorf("a change without kind or row: %s", clip(fmt.Sprint(change)))
	}
	return kind, row, nil
}

// Verify asks calve to check the table on storage.
func (c *Calve) Verify(ctx context.Context, table string) error {
	_, err := c.Run(ctx, nil, "verify", table)
	return err
}

// calve's JSON is the normal form but for two types: binaries are base64, TIME is the text 15:04:05.000.

func toCalve(row map[string]any, columns []Column) (map[string]any, error) {
	row = maps.Clone(row)
	for _, c := range columns {
		v, ok := row[c.Name]
		if !ok {
			continue
		}
		k, err := ParseKind(c.Type)
		if err == nil {
			row[c.Name], err = k.toCalve(v)
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
	}
	return row, nil
}

func fromCalve(row map[string]any, columns []Column) map[string]any {
	for _, c := range columns {
		k, err := ParseKind(c.Type)
		if v, ok := row[c.Name]; ok && err == nil {
			row[c.Name] = k.fromCalve(v)
		}
	}
	return row
}
