package server

import "testing"

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
