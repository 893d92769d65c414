package lsm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the output of the data-driven tests into their files")

// directive is one conversation of a data-driven test: a command with arguments, input lines, and the output expected.
//
//	command key=value …
//	input
//	----
//	output
//
// The output ends at an empty line. Lines that begin with # before a command are comments.
type directive struct {
	cmd   string
	args  map[string]string
	input []string
	want  string
	head  string // comments, command and input as they are in the file
	line  int
}

func (d *directive) int(t *testing.T, name string, def int) int {
	v, ok := d.args[name]
	if !ok {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("line %d: %s=%s: %v", d.line, name, v, err)
	}
	return n
}

// runConversations runs every file that matches the pattern; start gives the function that answers a file's commands.
func runConversations(t *testing.T, pattern string, start func(t *testing.T) func(d *directive) string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s (%v)", pattern, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			answer := start(t)
			var out strings.Builder
			for i, d := range parseDirectives(t, string(data)) {
				got := strings.TrimRight(answer(&d), "\n")
				if i > 0 {
					out.WriteString("\n")
				}
				fmt.Fprintf(&out, "%s----\n%s\n", d.head, got)
				if got != d.want && !*rewrite {
					t.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", name, d.line, d.cmd, got, d.want)
				}
			}
			if *rewrite {
				if err := os.WriteFile(name, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func parseDirectives(t *testing.T, text string) []directive {
	var out []directive
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		if lines[i] == "" {
			i++
			continue
		}
		d := directive{args: map[string]string{}, line: i + 1}
		for ; i < len(lines) && lines[i] != "----"; i++ {
			d.head += lines[i] + "\n"
			switch {
			case strings.HasPrefix(lines[i], "#"):
			case d.cmd == "":
				words := strings.Fields(lines[i])
				if len(words) == 0 {
					t.Fatalf("line %d: no command", i+1)
				}
				d.cmd, d.line = words[0], i+1
				for _, w := range words[1:] {
					k, v, _ := strings.Cut(w, "=")
					d.args[k] = v
				}
			default:
				d.input = append(d.input, lines[i])
			}
		}
		var want []string
		for i++; i < len(lines) && lines[i] != ""; i++ {
			want = append(want, lines[i])
		}
		d.want = strings.Join(want, "\n")
		out = append(out, d)
	}
	return out
}
