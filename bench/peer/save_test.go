package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSaveLines: the page has the newest lines beside Flink, once, behind what it had.
func TestSaveLines(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "PEERS.md")
	if err := os.WriteFile(page, []byte("# calve beside its peers\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"ingest: round=1 side=calve\ningest: messages=1\n", "ingest: messages=2\n"} {
		if err := saveLines(t.Context(), dir, "ingest", text); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(got); !strings.HasPrefix(s, "# calve beside its peers\n"+flinkTitle) || strings.Count(s, flinkTitle) != 1 ||
		!strings.HasSuffix(s, "\n    ingest: messages=2\n") || strings.Contains(s, "round=") {
		t.Errorf("the page is\n%s", s)
	}
}
