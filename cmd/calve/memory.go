package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// baseMemory is what a process that serves should need for a busy table, everything included.
const baseMemory = 224 << 20

// steadyMemory keeps garbage from doubling the memory of the process: near the limit the collector runs sooner. The limit
// follows what is in use, with room of a half, so that a process with much to keep is not slowed down; below the base the
// collector works at its own pace. GOMEMLIMIT, if it is set, stands. It returns when ctx ends.
func steadyMemory(ctx context.Context, tick <-chan time.Time) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		metrics.Read(live)
		debug.SetMemoryLimit(max(baseMemory, int64(live[0].Value.Uint64())*3/2))
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}
