//go:build interop

package interop

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
)

func init() {
	java := &paimonJava{}
	RegisterJudge(java)
	RegisterJudge(&javaWriter{java: java})
}

// paimonJava is Paimon's own library.
type paimonJava struct {
	paimonWorker
	started once[struct{}]
	launch  func(name string, flags ...string) (*Worker, error) // starts one more process; set by Start
}

func (*paimonJava) Name() string         { return "paimon-java" }
func (*paimonJava) Applies(*Case) string { return "" }

// Start compiles the small program and starts it; both judges that use it share one process.
func (p *paimonJava) Start(ctx context.Context, l *Lab) error {
	_, err := p.started.get(func() (struct{}, error) {
		jars, classes, err := paimonClasses(ctx, l.Cache, l.Peers("java", "calve", "peer"), "paimon")
		if err != nil {
			return struct{}{}, err
		}
		p.launch = func(name string, flags ...string) (*Worker, error) {
			return l.StartWorker(name, func() *exec.Cmd {
				return exec.Command("java", append(flags, "-Duser.timezone=UTC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
					"-cp", classes+":"+filepath.Join(jars, "*"), "calve.peer.PaimonPeer", l.Scratch)...)
			})
		}
		p.Worker, err = p.launch("paimon-java", "-Xmx1g")
		return struct{}{}, err
	})
	return err
}

// paimonClasses fetches Paimon's library and compiles the small programs that use it.
func paimonClasses(ctx context.Context, c *Cache, sources, name string) (jars, classes string, err error) {
	jars, err = c.Jars(ctx, "paimon", "org.apache.paimon:paimon-bundle:1.4.2",
		"org.apache.hadoop:hadoop-client-api:3.3.6", "org.apache.hadoop:hadoop-client-runtime:3.3.6",
		"org.slf4j:slf4j-simple:1.7.36", "com.fasterxml.jackson.core:jackson-databind:2.17.2")
	if err != nil {
		return "", "", err
	}
	classes, err = c.Classes(ctx, name, jars, filepath.Join(sources, "*.java"))
	return jars, classes, err
}

func (p *paimonJava) Check(ctx context.Context, s *Subject) error {
	if err := p.check(ctx, s); err != nil {
		return err
	}
	if err := p.checkChanges(ctx, s); err != nil {
		return err
	}
	return p.checkFiles(ctx, s.Paimon())
}

// checkChanges folds what Paimon's streaming read gives from the first snapshot on: it must be the table's rows.
func (p *paimonJava) checkChanges(ctx context.Context, s *Subject) error {
	if s.Local.Latest == 0 {
		return nil // there is no stream before the first snapshot
	}
	request := s.Paimon().request()
	model, err := NewModel(s.Columns, s.Key)
	if err != nil {
		return err
	}
	err = p.Lines(ctx, "changes", request, func(change map[string]any) error {
		kind, row, err := changeOf(change)
		if err != nil || kind == "-U" {
			return err
		}
		op := Put(row)
		if kind == "-D" {
			op.Kind = "D"
		}
		return model.Apply([]Op{op})
	})
	if err != nil {
		return err
	}
	rows, err := model.Rows()
	if err == nil {
		err = s.Local.Final.Compare(rows)
	}
	if err != nil {
		return fmt.Errorf("the folded streaming read: %w", err)
	}
	return nil
}

// checkFiles looks at the live files as Paimon sees them: no file twice.
func (p *paimonJava) checkFiles(ctx context.Context, t PaimonTable) error {
	var answer struct{ Files []struct{ Name string } }
	if err := p.Ask(ctx, "files", t.request(), &answer); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, f := range answer.Files {
		if seen[f.Name] {
			return fmt.Errorf("file %s is in the live set twice", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

// javaWriter is Paimon Java as a foreign writer: it changes and fully compacts the table that calve made, and calve
// must go on from there.
type javaWriter struct {
	java  *paimonJava
	files int
}

func (*javaWriter) Name() string { return "java-writes" }

// Writes marks the judge as one that changes the table.
func (*javaWriter) Writes() {}

func (*javaWriter) Applies(c *Case) string {
	if len(c.Key) == 0 && c.Options["bucket"] == "-1" {
		return "a table without buckets is compacted by Paimon in another way"
	}
	return ""
}

func (w *javaWriter) Start(ctx context.Context, l *Lab) error { return w.java.Start(ctx, l) }

func (w *javaWriter) Check(ctx context.Context, s *Subject) error {
	model, err := NewModel(s.Columns, s.Key)
	if err != nil {
		return err
	}
	for _, step := range s.Steps {
		if err := model.Apply(step.Ops); err != nil {
			return err
		}
	}
	ops := s.foreignOps(model)
	if len(ops) > 0 {
		if err := w.write(ctx, s, ops); err != nil {
			return err
		}
	}
	if err := model.Apply(ops); err != nil {
		return err
	}
	if err := w.agree(ctx, s, model, "after Java's write"); err != nil {
		return err
	}
	if len(s.Key) > 0 {
		if err := w.java.Ask(ctx, "compact", s.Paimon().request(), nil); err != nil {
			return err
		}
		if err := w.agree(ctx, s, model, "after Java's full compaction"); err != nil {
			return err
		}
	}
	slices.Reverse(ops) // other changes than before: what was deleted may come back
	if len(ops) > 0 {
		if err := s.Local.Put(ctx, s.Table, s.Case, ops); err != nil {
			return err
		}
		if err := model.Apply(ops); err != nil {
			return err
		}
	}
	if err := w.agree(ctx, s, model, "after calve wrote again"); err != nil {
		return err
	}
	if len(s.Key) == 0 {
		return w.java.checkFiles(ctx, s.Paimon())
	}
	if _, err := s.Local.Run(ctx, nil, "compact", s.Table, "--full"); err != nil {
		return err
	}
	if err := w.agree(ctx, s, model, "after calve's full compaction"); err != nil {
		return err
	}
	return w.java.checkFiles(ctx, s.Paimon())
}

// foreignOps deletes one row of the table and writes some rows of its steps again, deleted ones among them.
func (s *Subject) foreignOps(model *Model) []Op {
	const most = 50
	var ops []Op
	for _, step := range s.Steps {
		for _, op := range step.Ops {
			if len(ops) < most {
				ops = append(ops, Put(op.Row))
			}
		}
	}
	if len(s.Key) > 0 && len(ops) > 1 {
		ops = append(ops, Del(ops[0].Row))
	}
	return ops
}

func (w *javaWriter) write(ctx context.Context, s *Subject, ops []Op) error {
	w.files++
	path := filepath.Join(s.lab.Scratch, fmt.Sprintf("java-writes-%d.jsonl", w.files))
	if err := writeChanges(path, ops); err != nil {
		return err
	}
	request := s.Paimon().request()
	request["in"] = path
	return w.java.Ask(ctx, "write", request, nil)
}

// agree compares calve's and Java's rows with the model, and lets calve verify the table.
func (w *javaWriter) agree(ctx context.Context, s *Subject, model *Model, when string) error {
	want, err := model.Rows()
	if err != nil {
		return err
	}
	for _, reader := range []PaimonReader{calveReader{s.Local.Calve}, w.java} {
		got, err := reader.Read(ctx, s.Paimon(), 0, s.Columns)
		if err == nil {
			err = want.Compare(got)
		}
		if err != nil {
			return fmt.Errorf("%s, read by %T: %w", when, reader, err)
		}
	}
	if err := s.Local.Verify(ctx, s.Table); err != nil {
		return fmt.Errorf("%s: %w", when, err)
	}
	return nil
}
