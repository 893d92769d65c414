package manifest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// testEnv has a clock that ticks a millisecond a call, ids from a counter that all environments of the test process
// share, and no waits.
func testEnv(seed uint64) Env {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 7))
	now := time.UnixMilli(1_700_000_000_000)
	return Env{
		Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(time.Millisecond)
			return now
		},
		NewID: func() string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", testIDs.Add(1)) },
		Rand: func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return rng.Uint64()
		},
	}
}

var testIDs atomic.Uint64
