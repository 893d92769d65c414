package reader

import "math/bits"

// foldShards is into how many shards a fold is divided, by the first bits of a key's hash.
const foldShards = 1 << foldBits

const foldBits = 8

// foldCell is a row under its key, both as hashes. A key of 0 is an empty place.
type foldCell struct{ key, row uint64 }

// foldShard is a hash table with linear probing. sum is over the rows it has and does not depend on their order.
type foldShard struct {
	cells []foldCell
	n     int64
	sum   uint64
}

// foldTable holds the rows of the keys whose hashes lie in a range of shards, 16 bytes each. Its memory is bounded: when it
// would need more, it forgets the upper half of its range, which is then for another pass over the same stream.
type foldTable struct {
	shards [foldShards]foldShard
	lo, hi int // the range
	bytes  int64
	limit  int64
}

const foldCellBytes = 16

// begin empties the table and has it hold the range from a shard on to the end.
func (t *foldTable) begin(lo int) {
	for i := range t.shards {
		t.shards[i] = foldShard{}
	}
	t.lo, t.hi, t.bytes = lo, foldShards, 0
}

// clear empties the table and leaves its range.
func (t *foldTable) clear() {
	hi := t.hi
	t.begin(t.lo)
	t.hi = hi
}

func shardOf(key uint64) int { return int(key >> (64 - foldBits)) }

// has reports whether a key is in the range.
func (t *foldTable) has(key uint64) bool { s := shardOf(key); return s >= t.lo && s < t.hi }

// rows is the number of rows, and what they sum up to.
func (t *foldTable) total() (n int64, sum uint64) {
	for i := t.lo; i < t.hi; i++ {
		n += t.shards[i].n
		sum += t.shards[i].sum
	}
	return n, sum
}

// get gives the row of a key.
func (t *foldTable) get(key uint64) (uint64, bool) {
	s := &t.shards[shardOf(key)]
	if len(s.cells) == 0 {
		return 0, false
	}
	c := &s.cells[s.find(key)]
	return c.row, c.key == key
}

// put gives a key a row, and reports whether there was room for it; if not, the range is smaller now.
func (t *foldTable) put(key, row uint64) bool {
	s := &t.shards[shardOf(key)]
	if s.n >= int64(len(s.cells))*7/8 {
		next := max(64, len(s.cells)+len(s.cells)/4)
		if grown := t.bytes + int64(next-len(s.cells))*foldCellBytes; grown > t.limit {
			t.narrow()
			return false
		}
		t.bytes += int64(next-len(s.cells)) * foldCellBytes
		s.grow(next)
	}
	c := &s.cells[s.find(key)]
	if c.key == key {
		s.sum -= mix(key, c.row)
	} else {
		c.key = key
		s.n++
	}
	c.row = row
	s.sum += mix(key, row)
	return true
}

// del takes a key's row away.
func (t *foldTable) del(key uint64) {
	s := &t.shards[shardOf(key)]
	if len(s.cells) == 0 {
		return
	}
	at := s.find(key)
	if s.cells[at].key != key {
		return
	}
	s.sum -= mix(key, s.cells[at].row)
	s.n--
	// What was put behind it because its place was taken moves up.
	for next := at; ; {
		if next++; next == len(s.cells) {
			next = 0
		}
		if s.cells[next].key == 0 {
			break
		}
		if home := s.home(s.cells[next].key); at <= next && (home <= at || home > next) || at > next && home <= at && home > next {
			s.cells[at] = s.cells[next]
			at = next
		}
	}
	s.cells[at] = foldCell{}
}

// narrow gives the upper half of the range up. A range of one shard becomes empty.
func (t *foldTable) narrow() {
	mid := t.lo + (t.hi-t.lo)/2
	for i := mid; i < t.hi; i++ {
		t.bytes -= int64(len(t.shards[i].cells)) * foldCellBytes
		t.shards[i] = foldShard{}
	}
	t.hi = mid
}

// home is where a key is to be found if nothing is in its way.
func (s *foldShard) home(key uint64) int {
	hi, _ := bits.Mul64(key<<foldBits, uint64(len(s.cells)))
	return int(hi)
}

// find gives the place of a key, or the empty one that it would get. There always is an empty one.
func (s *foldShard) find(key uint64) int {
	at := s.home(key)
	for s.cells[at].key != key && s.cells[at].key != 0 {
		if at++; at == len(s.cells) {
			at = 0
		}
	}
	return at
}

func (s *foldShard) grow(n int) {
	old := s.cells
	s.cells = make([]foldCell, n)
	for _, c := range old {
		if c.key != 0 {
			s.cells[s.find(c.key)] = c
		}
	}
}
