package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's binary be the broker that measure starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-broker" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestMany: a small size of it works: all tables get their rows, busy ones commit again and again, quiet ones do not.
func TestMany(t *testing.T) {
	s := settings{topics: 12, busy: 3, rate: 50, interval: 100 * time.Millisecond, time: 2 * time.Second, dir: t.TempDir()}
	var out bytes.Buffer
	if err := s.measure(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ready: 12 tables", "topics=12 busy=3", "quiet_commits=0 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
	if err := run(t.Context(), []string{"-topics", "0"}, &out); err == nil {
		t.Error("no topics are measured")
	}
}
