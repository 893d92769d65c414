package schema

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write OPTIONS.md anew")

// paimonOptions reads the options of a Paimon version: a key a line, with the word "fixed" behind it if the version
// calls it immutable.
func paimonOptions(t *testing.T, file string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		name, mark, _ := strings.Cut(strings.TrimSpace(line), "\t")
		out[name] = mark == "fixed"
	}
	return out
}

// TestOptionTableIsComplete: the table has a line of its own for every option of Paimon (the interop suite takes the
// list out of Paimon's library itself), and what Paimon fixes is fixed.
func TestOptionTableIsComplete(t *testing.T) {
	list := paimonOptions(t, "testdata/paimon-options-1.4.2.txt")
	if len(list) < 300 {
		t.Fatalf("only %d options were read", len(list))
	}
	for name, fixed := range list {
		o, ok := FindOption(name)
		if !ok || o.Name != name {
			t.Errorf("option %q has no line in the table", name)
		} else if fixed && !o.Fixed {
			t.Errorf("option %q is immutable in Paimon, not in the table", name)
		}
	}
}

func TestOptionTable(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range TableOptions() {
		if seen[o.Name] {
			t.Errorf("option %q has two lines", o.Name)
		}
		seen[o.Name] = true
		if o.Use != Honoured && o.Why == "" {
			t.Errorf("option %q is %s without a reason", o.Name, o.Use)
		}
		if strings.Count(o.Name, "*") > 1 {
			t.Errorf("option %q has more than one *", o.Name)
		}
	}
	for _, name := range fixedOptions {
		if !seen[name] {
			t.Errorf("fixed option %q has no line", name)
		}
	}
	for _, c := range []struct{ name, line string }{
		{"bucket", "bucket"}, {"fields.a.b.stats-mode", "fields.*.stats-mode"}, {"fields.a.aggregate-function", "fields.*.aggregate-function"},
		{"fields.default-aggregate-function", "fields.default-aggregate-function"}, {"fields..x", ""}, {"fields.stats-mode", ""},
		{"file-index.bloom-filter.columns", "file-index.bloom-filter.columns"}, {"file-index.bsi.columns", "file-index.*"}, {"parquet.page.size", "parquet.*"}, {"parquet.", ""}, {"buckets", ""},
	} {
		o, ok := FindOption(c.name)
		if ok != (c.line != "") || o.Name != c.line {
			t.Errorf("%q is found as %q, not %q", c.name, o.Name, c.line)
		}
	}
}

// TestOptionsPage: OPTIONS.md says what the table says.
func TestOptionsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Table options\n\nWhat calve does with every table option of Apache Paimon. Made from the table in `optionlist.go` by\n" +
		"`go generate ./schema`; do not edit.\n\n" +
		"- **honoured**: calve does what the option says, or refuses the value and says why.\n" +
		"- **harmless**: calve may ignore it; the reason is given.\n" +
		"- **refused**: calve does not write such a table, and where “reading” is said too, does not read it. Values in brackets are allowed.\n" +
		"- **fixed**: it cannot change once the table has a snapshot.\n\nAn option that is not listed is refused for writing and ignored in reading.\n\n" +
		"| option | calve | |\n|---|---|---|\n")
	for _, o := range TableOptions() {
		use := o.Use.String()
		if o.Use == Refused {
			if use += " (writing)"; o.Reads {
				use = "refused (writing, reading)"
			}
			if len(o.Off) > 0 {
				use += " [" + strings.Join(o.Off, ", ") + "]"
			}
		}
		if o.Fixed {
			use += ", fixed"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", o.Name, use, o.Why)
	}
	if *update {
		if err := os.WriteFile("OPTIONS.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile("OPTIONS.md"); err != nil || string(have) != b.String() {
		t.Errorf("OPTIONS.md is not what the table says; run `go generate ./schema` (%v)", err)
	}
}
