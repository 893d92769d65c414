package main

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"
)

// TestSteadyMemory: the limit is at least the base, follows what is in use, and is gone afterwards.
func TestSteadyMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	ctx, cancel := context.WithCancel(t.Context())
	tick, done := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(done)
		steadyMemory(ctx, tick)
	}()
	limit := func() int64 {
		tick <- time.Time{} // taken when the limit before it is set
		return debug.SetMemoryLimit(-1)
	}
	if got := limit(); got < baseMemory || got == math.MaxInt64 {
		t.Errorf("limit %d", got)
	}
	cancel()
	<-done
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("limit %d is left behind", got)
	}
}
