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

// TestTableOptions asks Paimon's library itself for its table options: calve must know each of them.
func TestTableOptions(t *testing.T) {
	cache, err := filepath.Abs(filepath.Join("..", ".cache", "peers"))
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Abs(filepath.Join("peers", "java", "calve", "options"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Cache{Dir: cache, Log: t.Logf}
	jars, classes, err := paimonClasses(t.Context(), c, sources, "options")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "java", "-cp", classes+":"+filepath.Join(jars, "*"), "calve.options.TableOptions").Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(strings.ReplaceAll(string(out), "\tfixed", ""))
	if len(list) < 300 {
		t.Fatalf("Paimon named only %d options", len(list))
	}
	for _, name := range list {
		if o, ok := schema.FindOption(name); !ok || o.Name != name {
			t.Errorf("option %q of Paimon has no line in schema/optionlist.go", name)
		}
	}
	have, err := os.ReadFile(filepath.Join("..", "schema", "testdata", "paimon-options-1.4.2.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Compact(slices.Sorted(strings.Lines(string(out))))
	if got := slices.Sorted(strings.Lines(string(have))); !slices.Equal(got, want) {
		t.Errorf("schema/testdata/paimon-options-1.4.2.txt is not what Paimon says")
	}
}
