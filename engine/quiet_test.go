package engine

import (
	"testing"
	"time"
)

// TestQuietWait: a table that nobody writes to is looked at less and less often, but never never.
func TestQuietWait(t *testing.T) {
	for quiet, want := range map[int]time.Duration{0: 2, 9: 2, 10: 4, 11: 8, 12: 16, 13: 32, 14: 64, 15: 64, 1 << 30: 64} {
		if got := quietWait(2*time.Second, quiet); got != want*time.Second {
			t.Errorf("after %d looks: %s", quiet, got)
		}
	}
}
