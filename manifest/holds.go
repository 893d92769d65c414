package manifest

import (
	"math"
	"sync"
)

// Holds are the snapshots of a table that reads in this process need. A process that opens a table again, beside reads that
// go on with the handle before, gives both the same Holds (Env), so that what is read does not expire.
type Holds struct {
	mu sync.Mutex
	at map[int64]int // how many reads need each
}

// NewHolds makes Holds of nothing.
func NewHolds() *Holds { return &Holds{at: map[int64]int{}} }

// Hold keeps a snapshot, and all after it, from the expiries of this Table, and of others with its Holds, until release is
// called. It is how reads in the process of the expirer hold it back; readers in other processes have consumers.
func (t *Table) Hold(id int64) (release func()) {
	h := t.env.Holds
	h.mu.Lock()
	h.at[id]++
	h.mu.Unlock()
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.at[id]--; h.at[id] == 0 {
			delete(h.at, id)
		}
	})
}

// held is the earliest snapshot that is held.
func (t *Table) held() int64 {
	h := t.env.Holds
	h.mu.Lock()
	defer h.mu.Unlock()
	low := int64(math.MaxInt64)
	for id := range h.at {
		low = min(low, id)
	}
	return low
}
