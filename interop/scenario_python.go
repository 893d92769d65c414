//go:build interop

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func init() { RegisterScenario(Scenario{Name: "python-example", Run: judgePythonExample}) }

// judgePythonExample runs examples/changes.py, which has pyarrow and nothing else, on a table that grows and whose schema
// changes between its runs: what it prints in all, folded, is the table.
func judgePythonExample(ctx context.Context, l *Lab, report *Report) {
	report.Check("python-example", "pyarrow", func() error {
		p := &pythonExample{lab: l, place: l.Local(), rng: rand.New(rand.NewPCG(l.Seed, 31))}
		ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		serve, err := p.serve(ctx)
		if err != nil {
			return err
		}
		return errors.Join(p.run(ctx, report), serve.Stop(30*time.Second))
	})
}

type pythonExample struct {
	lab    *Lab
	place  *Place
	rng    *rand.Rand
	server string
}

const pythonTable = "example.changes"

// serve starts calve for the warehouse, without a pipeline.
func (p *pythonExample) serve(ctx context.Context) (*Process, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	p.server = "http://" + listen
	file := filepath.Join(p.lab.Data, "example.yaml")
	if err := os.WriteFile(file, []byte("warehouse: "+p.place.Warehouse+"\nlisten: "+listen+"\n"), 0o644); err != nil {
		return nil, err
	}
	serve, err := p.lab.Start("example-serve", exec.Command(p.lab.Binary, "serve", "-c", file))
	if err != nil {
		return nil, err
	}
	return serve, serve.WaitReady(ctx, time.Minute, func(ctx context.Context) error {
		_, err := httpGet(ctx, p.server+"/healthz")
		return err
	})
}

func (p *pythonExample) run(ctx context.Context, report *Report) error {
	python, err := p.lab.Cache.Venv(ctx, "pypaimon", p.lab.Peers("python", "pypaimon.txt"))
	if err != nil {
		return err
	}
	columns := flinkColumns
	k := &Case{Name: "changes", Columns: columns, Key: []string{"k"}, Options: map[string]string{"bucket": "2", "changelog-producer": "lookup"}}
	if err := p.place.Create(ctx, pythonTable, k); err != nil {
		return err
	}
	told, err := NewModel(columns, k.Key)
	if err != nil {
		return err
	}
	changes := 0
	for turn := range 4 {
		if turn == 2 {
			if _, err := p.place.Run(ctx, nil, "alter", pythonTable, "--add", "more INT"); err != nil {
				return err
			}
			k.Columns = append(k.Columns[:len(columns):len(columns)], Column{"more", "INT"})
		}
		for range 3 {
			if err := p.place.Put(ctx, pythonTable, k, p.ops(k.Columns)); err != nil {
				return err
			}
		}
		n, err := p.follow(ctx, python, told)
		if err != nil {
			return fmt.Errorf("turn %d: %w", turn, err)
		}
		changes += n
		want, err := p.scan(ctx)
		if err != nil {
			return err
		}
		got, err := told.Rows()
		if err == nil {
			err = want.Compare(got)
		}
		if err != nil {
			return fmt.Errorf("turn %d: what the example has printed: %w", turn, err)
		}
	}
	report.Note("python-example: %d changes in 4 runs, with a new column in between", changes)
	return nil
}

// scan reads the columns that the table has had from its beginning.
func (p *pythonExample) scan(ctx context.Context) (*Rows, error) {
	out, err := p.place.Run(ctx, nil, "scan", pythonTable, "--columns", "k,v,n")
	if err != nil {
		return nil, err
	}
	return ReadRows(bytes.NewReader(out), flinkColumns)
}

// ops are some changes.
func (p *pythonExample) ops(columns []Column) []Op {
	var ops []Op
	for i := range 1 + p.rng.IntN(50) {
		row := map[string]any{"k": p.rng.IntN(60), "v": fmt.Sprint("value ", i), "n": i}
		if len(columns) > len(flinkColumns) {
			row["more"] = i
		}
		op := Put(row)
		if p.rng.IntN(4) == 0 {
			op.Kind = "D"
		}
		ops = append(ops, op)
	}
	return ops
}

// follow runs the example once and folds what it prints.
func (p *pythonExample) follow(ctx context.Context, python string, told *Model) (int, error) {
	cmd := exec.CommandContext(ctx, python, filepath.Join(p.lab.Root, "examples", "changes.py"), p.server, pythonTable, filepath.Join(p.lab.Data, "example.position"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("changes.py: %w: %s", err, tailOf(errs.Bytes()))
	}
	n := 0
	err := EachLine(&out, func(line []byte) error {
		change, err := decodeObject(line)
		if err != nil {
			return err
		}
		kind, _ := change["_kind"].(string)
		if _, ok := change["_snapshot"]; !ok || kind == "" {
			return fmt.Errorf("a change without kind or snapshot: %s", clip(string(line)))
		}
		n++
		row := map[string]any{}
		for _, c := range flinkColumns {
			row[c.Name] = change[c.Name]
		}
		op := Put(row)
		if kind == "-U" || kind == "-D" {
			op.Kind = "D"
		}
		return told.Apply([]Op{op})
	})
	return n, err
}
