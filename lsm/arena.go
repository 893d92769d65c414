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
