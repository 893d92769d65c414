package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// java is Paimon's side.
type java struct{ *worker }

// startJava compiles and starts PeerBench.java and gives it the schema and the rows.
func startJava(ctx context.Context, jars, dir string, of *job) (_ *java, err error) {
	if _, err := os.Stat(jars); err != nil {
		return nil, fmt.Errorf("no jars of Paimon in %s (run `make interop` once, or name their folder with -jars): %w", jars, err)
	}
	classes, path := filepath.Join(dir, "classes"), filepath.Join(jars, "*")
	compile := exec.CommandContext(ctx, "javac", "-d", classes, "-cp", path, filepath.Join("bench", "peer", "java", "PeerBench.java"))
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w: %s", err, out)
	}
	w, err := start(ctx, filepath.Join(dir, "java.log"), "java", "java", "-Xmx6g", fmt.Sprintf("-XX:ActiveProcessorCount=%d", runtime.GOMAXPROCS(0)),
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", classes+":"+path, "PeerBench", filepath.Join(dir, "java"), filepath.Join(dir, "spill"))
	if err != nil {
		return nil, err
	}
	j := &java{w}
	text, err := of.schema.Encode()
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "schema.json")
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return nil, err
	}
	if _, err := j.ask("schema", name); err != nil {
		return nil, err
	}
	for i, rows := range of.commits {
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

// life takes a table through its life.
func (j *java) life(table string) (l life, err error) {
	l.times = map[string]timing{}
	if _, err := j.ask("create", table); err != nil {
		return l, err
	}
	for i, phase := range []string{write, mergeRead, compact, read} {
		command := phase
		if phase == mergeRead {
			command = read
		}
		t, rest, err := j.timed(command, table)
		if err != nil {
			return l, err
		}
		l.times[phase] = t
		if command == read {
			if len(rest) != 2 {
				return l, fmt.Errorf("java answered %v to read", rest)
			}
			l.sums[i/2] = sum{rest[0], rest[1]}
		}
	}
	_, err = j.ask("drop", table)
	return l, err
}
