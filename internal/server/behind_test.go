package server

import (
	"testing"

	"github.com/calve-io/calve/ingest"
)

// TestBehind: ingest takes compaction's time when more waits for it than it reads between two commits.
func TestBehind(t *testing.T) {
	for _, tc := range []struct {
		lag, records int64
		want         bool
	}{{-1, 0, false}, {0, 0, false}, {9_999, 0, false}, {10_001, 0, true}, {50_000, 50_000, false}, {50_001, 50_000, true}} {
		if got := behind(ingest.Committed{Lag: tc.lag, Records: tc.records}); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
