package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// worker is a peer in a process of its own, which takes commands on standard input and answers each with one line.
type worker struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	log  *os.File
}

// start runs a program; what it writes to standard error goes to the file log.
func start(ctx context.Context, log, name string, args ...string) (*worker, error) {
	w := &worker{name: name, cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	var err error
	if w.log, err = os.Create(log); err != nil {
		return nil, err
	}
	w.cmd.Stderr = w.log
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		w.in, err = w.cmd.StdinPipe()
	}
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), w.log.Close())
	}
	w.out = bufio.NewScanner(out)
	w.out.Buffer(nil, 1<<20)
	return w, nil
}

// ask sends a command and gives the words of the answer.
func (w *worker) ask(words ...string) ([]string, error) {
	if _, err := fmt.Fprintln(w.in, strings.Join(words, " ")); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	if !w.out.Scan() {
		return nil, fmt.Errorf("%s ended while it was asked to %s (its log: %s): %w", w.name, words[0], w.log.Name(), io.ErrUnexpectedEOF)
	}
	answer := strings.Fields(w.out.Text())
	if len(answer) == 0 || answer[0] == "error" {
		return nil, fmt.Errorf("%s: %s: %s", w.name, words[0], w.out.Text())
	}
	return answer, nil
}

// timed asks and takes the first two words of the answer, seconds; the rest are numbers.
func (w *worker) timed(words ...string) (t timing, rest []int64, err error) {
	a, err := w.ask(words...)
	if err != nil {
		return t, nil, err
	}
	if len(a) < 2 {
		return t, nil, fmt.Errorf("%s answered %q", w.name, a)
	}
	if t.wall, err = strconv.ParseFloat(a[0], 64); err == nil {
		t.cpu, err = strconv.ParseFloat(a[1], 64)
	}
	for _, n := range a[2:] {
		v, perr := strconv.ParseInt(n, 10, 64)
		rest, err = append(rest, v), errors.Join(err, perr)
	}
	return t, rest, err
}

func (w *worker) stop() error {
	return errors.Join(w.in.Close(), w.cmd.Wait(), w.log.Close())
}
