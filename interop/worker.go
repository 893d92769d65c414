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
// One that has ended, as it does when a question took too long, is started again for the next question.
type Worker struct {
	name  string
	lab   *Lab
	make  func() *exec.Cmd
	files atomic.Int64

	mu      sync.Mutex // one question at a time
	process *Process
	in      io.WriteCloser
	out     *bufio.Reader
}

// StartWorker starts a worker's program; command makes one call of it.
func (l *Lab) StartWorker(name string, command func() *exec.Cmd) (*Worker, error) {
	w := &Worker{name: name, lab: l, make: command}
	return w, w.start()
}

func (w *Worker) start() error {
	cmd := w.make()
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = write
	p, err := w.lab.Start(w.name, cmd)
	if err != nil {
		return errors.Join(err, out.Close(), write.Close())
	}
	w.process, w.in, w.out = p, in, bufio.NewReaderSize(out, 1<<20)
	return write.Close()
}

// Ask sends a request and decodes the answer into answer (which may be nil).
func (w *Worker) Ask(ctx context.Context, op string, request map[string]any, answer any) error {
	request["op"] = op
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := w.exchange(ctx, op, append(line, '\n'))
	if err != nil {
		return err
	}
	var failed struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(reply, &failed); err != nil {
		return fmt.Errorf("%s answered %s: %w", w.name, clip(string(reply)), err)
	}
	if failed.Error != "" {
		return fmt.Errorf("%s cannot %s: %s", w.name, op, tailOf([]byte(failed.Error)))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(reply, answer)
}

func (w *Worker) exchange(ctx context.Context, op string, line []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process.Alive() != nil {
		if err := w.start(); err != nil {
			return nil, err
		}
	}
	if _, err := w.in.Write(line); err != nil {
		return nil, errors.Join(err, w.process.Alive())
	}
	stop := context.AfterFunc(ctx, w.process.Kill) // a hanging peer fails its field, not the whole run
	defer stop()
	reply, err := w.out.ReadBytes('\n')
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), fmt.Errorf("%s gave no answer to %s", w.name, op), w.process.Alive())
	}
	return reply, nil
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
	return filepath.Join(w.lab.Scratch, w.name+"-"+strconv.FormatInt(w.files.Add(1), 10)+".jsonl")
}
