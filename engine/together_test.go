package engine

import (
	"testing"
	"time"
)

func TestTogether(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 345e6, time.UTC)
	for wait, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 100 * time.Millisecond,
		time.Second:            time.Second,
		2 * time.Second:        1655 * time.Millisecond,
		time.Minute:            59655 * time.Millisecond,
	} {
		if got := together(now, wait); got != want {
			t.Errorf("a wait of %s lasts %s, want %s", wait, got, want)
		}
	}
}
