package main

import (
	"strings"
	"testing"
)

// TestIdle opens a few tables for a moment.
func TestIdle(t *testing.T) {
	set, err := parseFlags([]string{"-tables", "3", "-settle", "0s", "-time", "20ms", "-dir", t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := set.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "idle: tables=3 rss=") {
		t.Errorf("%s", out.String())
	}
	if _, err := parseFlags([]string{"-tables", "0"}); err == nil {
		t.Error("no tables are accepted")
	}
}
