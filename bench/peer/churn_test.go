package main

import (
	"testing"
	"time"
)

// TestChurnOurs lets calve's side run briefly: what was flushed and what is live add up, and compaction has run.
func TestChurnOurs(t *testing.T) {
	c := churn{keys: 2000, commits: 12, rows: 200, every: time.Microsecond}
	w, err := c.ours(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if w.flushed <= 0 || w.live <= 0 || w.compacted <= 0 {
		t.Errorf("%+v", w)
	}
	if a := w.amplification(); a < 1 || a > 50 {
		t.Errorf("amplification %f", a)
	}
}

// TestMix has a value of splitmix64's authors: the first output for the seed 0.
func TestMix(t *testing.T) {
	if got := mix(0); got != 0xe220a8397b1dcdaf {
		t.Errorf("%x", got)
	}
}
