//go:build interop

package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
)

// Worker is a peer's long-lived program that answers one JSON line per JSON line (peers/python/worker.py).
type Worker struct {
	process *Process
	in      io.WriteCloser
	out     *bufio.Reader
	mu      sync.Mutex // one question at a time
	lab     *Lab
	files   atomic.Int64
}

// StartWorker starts a worker's program.
func (l *Lab) StartWorker(name string, cmd *exec.Cmd) (*Worker, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	p, err := l.Start(name, cmd)
	if err != nil {
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	return &Worker{process: p, in: in, out: bufio.NewReaderSize(r, 1<<20), lab: l}, w.Close()
}

// Ask sends a request and decodes the answer into answer (which may be nil).
func (w *Worker) Ask(ctx context.Context, op string, request map[string]any, answer any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	request["op"] = op
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return errors.Join(err, w.process.Alive())
	}
	stop := context.AfterFunc(ctx, w.process.Kill) // a hanging peer fails its cell, not the whole run
	defer stop()
	reply, err := w.out.ReadBytes('\n')
	if err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("%s gave no answer to %s", w.process.Name, op), w.process.Alive())
	}
	var failed struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(reply, &failed); err != nil {
		return fmt.Errorf("%s answered %s: %w", w.process.Name, clip(string(reply)), err)
	}
	if failed.Error != "" {
		return fmt.Errorf("%s cannot %s: %s", w.process.Name, op, tailOf([]byte(failed.Error)))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(reply, answer)
}

// Rows asks for rows and reads the file that the worker wrote.
func (w *Worker) Rows(ctx context.Context, op string, request map[string]any, columns []Column) (*Rows, error) {
	path := w.scratch()
	defer os.Remove(path)
	request["out"] = path
	if err := w.Ask(ctx, op, request, nil); err != nil {
		return nil, err
	}
	return ReadRowsFile(path, columns)
}

// Lines asks for JSON lines and calls f for each.
func (w *Worker) Lines(ctx context.Context, op string, request map[string]any, f func(map[string]any) error) error {
	path := w.scratch()
	defer os.Remove(path)
	request["out"] = path
	if err := w.Ask(ctx, op, request, nil); err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	return EachLine(in, func(line []byte) error {
		object, err := decodeObject(line)
		if err != nil {
			return err
		}
		return f(object)
	})
}

// Object asks for one object and reads it from the file that the worker wrote.
func (w *Worker) Object(ctx context.Context, op string, request map[string]any) (map[string]any, error) {
	path := w.scratch()
	defer os.Remove(path)
	request["out"] = path
	if err := w.Ask(ctx, op, request, nil); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decodeObject(text)
}

func (w *Worker) scratch() string {
	return filepath.Join(w.lab.Scratch, w.process.Name+"-"+strconv.FormatInt(w.files.Add(1), 10)+".jsonl")
}
