//go:build interop

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calve-io/calve/schema"
)

// askPaimon runs a small program over Paimon's library and gives what it prints.
func askPaimon(t *testing.T, program string) string {
	t.Helper()
	cache, err := filepath.Abs(filepath.Join("..", ".cache", "peers"))
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Abs(filepath.Join("peers", "java", "calve", "options"))
	if err != nil {
		t.Fatal(err)
	}
	jars, classes, err := paimonClasses(t.Context(), &Cache{Dir: cache, Log: t.Logf}, sources, "options")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "java", "-Duser.timezone=UTC", "-cp", classes+":"+filepath.Join(jars, "*"), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// sameFile compares what Paimon says with the copy that the unit tests use.
func sameFile(t *testing.T, file, said string) {
	t.Helper()
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Compact(slices.Sorted(strings.Lines(said)))
	if got := slices.Sorted(strings.Lines(string(have))); !slices.Equal(got, want) {
		t.Errorf("%s is not what Paimon says", file)
	}
}

// TestCastTable: the casts that the unit tests hold calve's against are those of Paimon's library.
func TestCastTable(t *testing.T) {
	sameFile(t, filepath.Join("..", "internal", "testdata", "casts.jsonl"), askPaimon(t, "calve.options.Casts"))
}

// TestTableOptions asks Paimon's library itself for its table options: calve must know each of them.
func TestTableOptions(t *testing.T) {
	out := askPaimon(t, "calve.options.TableOptions")
	list := strings.Fields(strings.ReplaceAll(out, "\tfixed", ""))
	if len(list) < 300 {
		t.Fatalf("Paimon named only %d options", len(list))
	}
	for _, name := range list {
		if o, ok := schema.FindOption(name); !ok || o.Name != name {
			t.Errorf("option %q of Paimon has no line in schema/optionlist.go", name)
		}
	}
	sameFile(t, filepath.Join("..", "schema", "testdata", "paimon-options-1.4.2.txt"), out)
}
