package lsm

import "unsafe"

// arena hands out the memory of batches whose rows are only needed for a while: the batches that Flush and Compact
// encode and forget. Fresh memory would have to be cleared, collected and often fetched from the system again; that
// costs more than copying the rows.
//
// A ring of sets of buffers is reused in turn: what was taken after one next call is overwritten after as many further
// ones as the ring has sets. A nil arena gives fresh memory.
type arena struct {
	sets [][][]byte
	set  int // the current set
	used int // buffers of it that are taken
}

func newArena(sets int) *arena { return &arena{sets: make([][][]byte, sets)} }

// spareArenas are those of flushes that have ended, for the next ones: a busy table flushes several times a second.
var spareArenas = make(chan *arena, 2)

// spareBytes is the most that one of them keeps.
const spareBytes = 12 << 20

// spareArena gives an arena of two sets, with the buffers that the last flush had, if it was given back.
func spareArena() *arena {
	select {
	case a := <-spareArenas:
		return a
	default:
		return newArena(2)
	}
}

// giveBack leaves an arena of spareArena to the next flush: nobody may use what was taken from it any more.
func (a *arena) giveBack() {
	n := 0
	for _, set := range a.sets {
		for _, b := range set {
			n += cap(b)
		}
	}
	if n > spareBytes {
		return
	}
	a.set, a.used = 0, 0
	select {
	case spareArenas <- a:
	default:
	}
}

// next begins a batch.
func (a *arena) next() {
	if a != nil {
		a.set, a.used = (a.set+1)%len(a.sets), 0
	}
}

// bytes gives n bytes of any content, aligned for every number.
func (a *arena) bytes(n int) []byte {
	if a == nil {
		return make([]byte, n)
	}
	set := a.sets[a.set]
	if a.used == len(set) {
		set = append(set, nil)
		a.sets[a.set] = set
	}
	b := set[a.used]
	if cap(b) < n || cap(b) > 4*n+arenaSlack { // too small, or much larger than what the batches now need
		b = make([]byte, n+n/8+arenaSlack)
		set[a.used] = b
	}
	a.used++
	return b[:n]
}

// arenaSlack keeps the allocator from packing small buffers without alignment.
const arenaSlack = 4 << 10

// cleared is bytes, zeroed.
func (a *arena) cleared(n int) []byte {
	b := a.bytes(n)
	if a != nil {
		clear(b)
	}
	return b
}

// slab is bytes for n numbers.
func slab[T any](a *arena, n int) []T {
	if n == 0 {
		return nil
	}
	var zero T
	b := a.bytes(n * int(unsafe.Sizeof(zero)))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}
