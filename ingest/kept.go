package ingest

import (
	"sync"
)

// keptBytes is how much of an input that cannot be read again is kept before it is committed.
const keptBytes = 64 << 20

// keptBlock is the size in which it is kept.
const keptBlock = 256 << 10

// kept holds the bytes of an input from its last commit on. The source adds to it, a commit takes off its front.
type kept struct {
	most int64 // a commit should follow when this many bytes are there

	mu     sync.Mutex
	blocks [][]byte // each of keptBlock bytes, but for the last and what is cut off the first
	from   int64    // position of the first byte of blocks
	end    int64    // position behind the last
	commit int64    // position of the last commit
	spare  [][]byte // at most a few
}

func newKept(position, most int64) *kept {
	return &kept{most: most, from: position, end: position, commit: position}
}

// add keeps a copy of what follows. Beyond three times the bound, which only a line of that length can reach, all is
// dropped, and there is no way back before the next commit.
func (k *kept) add(data []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end += int64(len(data))
	if k.end-k.from > 3*k.most {
		k.blocks, k.from = nil, k.end
		return
	}
	for len(data) > 0 {
		last := len(k.blocks) - 1
		if last < 0 || len(k.blocks[last]) == cap(k.blocks[last]) {
			k.blocks = append(k.blocks, k.block())
			last++
		}
		b := k.blocks[last]
		n := min(len(data), cap(b)-len(b))
		k.blocks[last] = append(b, data[:n]...)
		data = data[n:]
	}
}

// block gives an empty block; mu is held.
func (k *kept) block() []byte {
	if n := len(k.spare); n > 0 {
		b := k.spare[n-1]
		k.spare = k.spare[:n-1]
		return b
	}
	return make([]byte, 0, keptBlock)
}

// release forgets what is committed.
func (k *kept) release(position int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.commit = position
	for len(k.blocks) > 0 && k.from < position {
		b := k.blocks[0]
		if n := position - k.from; n < int64(len(b)) {
			k.blocks[0], k.from = b[n:], position
			return
		}
		k.from += int64(len(b))
		k.blocks = k.blocks[1:]
		if cap(b) == keptBlock && len(k.spare) < 64 {
			k.spare = append(k.spare, b[:0])
		}
	}
}

// rewindable reports whether everything from the last commit on is there.
func (k *kept) rewindable() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.from <= k.commit
}

// pieces gives what is kept, from the last commit on. It stays as it is until the next add.
func (k *kept) pieces() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([][]byte(nil), k.blocks...)
}
