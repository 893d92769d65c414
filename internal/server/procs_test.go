package server

import (
	"testing"
	"time"

	"github.com/calve-io/calve/internal/config"
)

// TestBeat: commits begin sooner than an interval apart, by a tenth of it that is not more than 100 ms.
func TestBeat(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{time.Second: 900 * time.Millisecond, 200 * time.Millisecond: 180 * time.Millisecond,
		10 * time.Second: 9900 * time.Millisecond, 1: 1} {
		if got := (&pipeline{cfg: config.Pipeline{CommitInterval: config.Duration(interval)}}).beat(); got != want {
			t.Errorf("%v: %v, want %v", interval, got, want)
		}
	}
}

func TestProcsFor(t *testing.T) {
	for _, c := range []struct {
		cpus, procs int
		set         bool
		want        int
	}{
		{1, 1, false, 4}, {2, 2, false, 8}, {4, 4, false, 8}, {8, 8, false, 8}, {64, 64, false, 64},
		{2, 2, true, 2},    // the user says so
		{32, 2, false, 2},  // a quota of a container
		{2, 16, false, 16}, // already more
	} {
		if got := procsFor(c.cpus, c.procs, c.set); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
