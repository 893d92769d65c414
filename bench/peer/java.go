package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// java is Paimon's side, a program that takes commands.
type java struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (j *java) name() string { return "paimon-java" }

// startJava compiles and starts PeerBench.java and gives it the rows.
func startJava(ctx context.Context, jars, dir string, d *data) (*java, error) {
	if _, err := os.Stat(jars); err != nil {
		return nil, fmt.Errorf("no jars of Paimon in %s (run `make interop` once, or name their folder with -jars): %w", jars, err)
	}
	classes, path := filepath.Join(dir, "classes"), filepath.Join(jars, "*")
	compile := exec.CommandContext(ctx, "javac", "-d", classes, "-cp", path, filepath.Join("bench", "peer", "java", "PeerBench.java"))
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w: %s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "java.log"))
	if err != nil {
		return nil, err
	}
	j := &java{cmd: exec.CommandContext(ctx, "java", "-Xmx6g", fmt.Sprintf("-XX:ActiveProcessorCount=%d", runtime.GOMAXPROCS(0)),
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", classes+":"+path, "PeerBench", filepath.Join(dir, "java"), filepath.Join(dir, "spill"))}
	j.cmd.Stderr = log
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	j.out = bufio.NewScanner(out)
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("java: %w", err)
	}
	for i, rows := range d {
		name := filepath.Join(dir, fmt.Sprintf("rows-%d.bin", i))
		if err := save(name, rows); err != nil {
			return nil, err
		}
		if _, err := j.ask("load", name); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// ask sends a command and gives the words of the answer.
func (j *java) ask(words ...string) ([]string, error) {
	if _, err := fmt.Fprintln(j.in, strings.Join(words, " ")); err != nil {
		return nil, fmt.Errorf("java: %w", err)
	}
	if !j.out.Scan() {
		return nil, fmt.Errorf("java ended while it was asked to %s: %w", words[0], io.ErrUnexpectedEOF)
	}
	answer := strings.Fields(j.out.Text())
	if len(answer) == 0 || answer[0] == "error" {
		return nil, fmt.Errorf("java: %s: %s", words[0], j.out.Text())
	}
	return answer, nil
}

func (j *java) stop() error {
	if err := j.in.Close(); err != nil {
		return err
	}
	return j.cmd.Wait()
}

func (j *java) create(_ context.Context, table string, options map[string]string) error {
	words := []string{"create", table}
	for _, k := range slices.Sorted(maps.Keys(options)) {
		words = append(words, k+"="+options[k])
	}
	_, err := j.ask(words...)
	return err
}

func (j *java) write(_ context.Context, table string) (timing, error) { return j.timed("write", table) }

func (j *java) compact(_ context.Context, table string) (timing, error) {
	return j.timed("compact", table)
}

func (j *java) timed(what, table string) (timing, error) {
	w, err := j.ask(what, table)
	if err != nil {
		return timing{}, err
	}
	return parseTiming(w)
}

func parseTiming(w []string) (t timing, err error) {
	if len(w) < 2 {
		return t, fmt.Errorf("java answered %q", w)
	}
	if t.wall, err = strconv.ParseFloat(w[0], 64); err == nil {
		t.cpu, err = strconv.ParseFloat(w[1], 64)
	}
	return t, err
}

func (j *java) read(_ context.Context, table string) (t timing, s sum, err error) {
	w, err := j.ask("read", table)
	if err != nil {
		return t, s, err
	}
	if len(w) != 4 {
		return t, s, fmt.Errorf("java answered %q", w)
	}
	if t, err = parseTiming(w); err != nil {
		return t, s, err
	}
	if s.rows, err = strconv.ParseInt(w[2], 10, 64); err == nil {
		s.check, err = strconv.ParseInt(w[3], 10, 64)
	}
	return t, s, err
}
