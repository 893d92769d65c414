package server

import (
	"slices"
	"testing"
	"time"
)

// TestPhase: however many streams have begun, their phases leave no large gap in the interval, wherever they begin.
func TestPhase(t *testing.T) {
	for _, origin := range []float64{0, 0.3, 0.999999999999} {
		s := &shared{origin: origin}
		var all []time.Duration
		for n := 1; n <= 300; n++ {
			p := s.phase(time.Second)
			if p < 0 || p >= time.Second {
				t.Fatalf("phase %v", p)
			}
			all = append(all, p)
			slices.Sort(all)
			most := all[0] + time.Second - all[n-1]
			for i := range all[1:] {
				most = max(most, all[i+1]-all[i])
			}
			if most > 27*time.Second/10/time.Duration(n) && n > 2 {
				t.Fatalf("origin %v: of %d phases two neighbours are %v apart", origin, n, most)
			}
		}
	}
}
