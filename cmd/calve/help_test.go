package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// every yields all commands below one, itself included.
func every(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			out = append(out, every(sub)...)
		}
	}
	return out
}

func newRoot() *cobra.Command { return newApp(strings.NewReader(""), io.Discard, io.Discard).command() }

// TestHelp: each command that does something has examples of itself in its help, with flags that exist.
func TestHelp(t *testing.T) {
	runnable := 0
	for _, cmd := range every(newRoot()) {
		if cmd.Short == "" {
			t.Errorf("%s has no short help", cmd.CommandPath())
		}
		if !cmd.Runnable() {
			continue
		}
		runnable++
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs(append(strings.Fields(cmd.CommandPath())[1:], "--help"))
		if err := root.Execute(); err != nil {
			t.Errorf("%s --help: %v", cmd.CommandPath(), err)
		}
		if !strings.Contains(out.String(), "Examples:\n") || !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s --help has no example of itself", cmd.CommandPath())
		}
		for _, line := range commandLines(cmd.Example) {
			checkLine(t, cmd.CommandPath()+" --help", line)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no help", cmd.CommandPath(), f.Name)
			}
		})
	}
	if runnable < 13 {
		t.Errorf("only %d commands were looked at", runnable)
	}
}

// TestReadme: the command lines of README.md are ones that exist.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var shell strings.Builder
	for i, block := range strings.Split(string(text), "```") {
		if i%2 == 1 && strings.HasPrefix(block, "sh\n") {
			shell.WriteString(block[3:])
		}
	}
	lines := commandLines(shell.String())
	if len(lines) < 10 {
		t.Fatalf("found only %q", lines)
	}
	for _, line := range lines {
		checkLine(t, "README.md", line)
	}
}

// commandLines finds the calls of calve in shell text.
func commandLines(text string) []string {
	text = strings.ReplaceAll(text, "\\\n", " ")
	var out []string
	for line := range strings.Lines(text) {
		if i := strings.Index(line, " #"); i >= 0 {
			line = line[:i]
		}
		for _, part := range regexp.MustCompile(`[|;]|&&|>`).Split(line, -1) {
			if part = strings.TrimSpace(part); strings.HasPrefix(part, "calve ") {
				out = append(out, part)
			}
		}
	}
	return out
}

// checkLine parses a call of calve without running it.
func checkLine(t *testing.T, where, line string) {
	t.Helper()
	var words []string
	for _, w := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(w, `"`))
	}
	cmd, rest, err := newRoot().Find(words[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil && cmd.Args != nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err == nil {
		err = cmd.ValidateRequiredFlags()
	}
	if err != nil {
		t.Errorf("%s: %s: %v", where, line, err)
	}
}
