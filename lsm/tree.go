package lsm

import "bytes"

// loserTree finds the run with the smallest next row among k runs with one comparison per level of the tree.
//
// node[0] is the winner and node[1..k-1] are the losers of the matches; the leaf of run i hangs below node (i+k)/2.
// head keeps the prefix of each run's next key beside the tree, because that decides most matches.
type loserTree struct {
	node []int32
	head []uint64
	cur  []cursor
}

// doneHead is the prefix of a run that has ended; a real key may have it too, see lessTied.
const doneHead = ^uint64(0)

func newLoserTree(k int) loserTree {
	return loserTree{node: make([]int32, k), head: make([]uint64, k), cur: make([]cursor, k)}
}

// less orders the next rows of two runs: by key, then the newer version first: by sequence.field, if the rule has it,
// then by sequence number.
func (t *loserTree) less(a, b int32) bool {
	x, y := t.head[a], t.head[b]
	if x != y {
		return x < y
	}
	return t.lessTied(a, b)
}

// lessTied decides between equal prefixes. Of equal sequence numbers, which Paimon leaves undefined, the run given
// first wins.
func (t *loserTree) lessTied(a, b int32) bool {
	x, y := &t.cur[a], &t.cur[b]
	if x.done || y.done {
		return !x.done
	}
	if !x.win.keys.Exact || !y.win.keys.Exact {
		if c := bytes.Compare(x.win.keys.rest(x.pos), y.win.keys.rest(y.pos)); c != 0 {
			return c < 0
		}
	}
	if c := x.win.order.compare(x.pos, &y.win.order, y.pos); c != 0 {
		return c > 0
	}
	if s, u := x.win.rows.Seq[x.pos], y.win.rows.Seq[y.pos]; s != u {
		return s > u
	}
	return a < b
}

// build plays all matches.
func (t *loserTree) build() {
	k := len(t.node)
	for i := range t.node {
		t.node[i] = -1
	}
	for i := range k {
		w := int32(i)
		for p := (i + k) / 2; p > 0; p /= 2 {
			if t.node[p] < 0 { // the other side has not played yet
				t.node[p] = w
				w = -1
				break
			}
			if t.less(t.node[p], w) {
				t.node[p], w = w, t.node[p]
			}
		}
		if w >= 0 {
			t.node[0] = w
		}
	}
}

// replay plays the matches of run w again, after its next row has changed.
func (t *loserTree) replay(w int32) {
	node, head := t.node, t.head
	h := head[w]
	for p := (int(w) + len(node)) >> 1; p > 0; p >>= 1 {
		l := node[p]
		if x := head[l]; x < h || x == h && t.lessTied(l, w) {
			node[p] = w
			w, h = l, x
		}
	}
	node[0] = w
}

// second is the run that would win if w were not there, or -1 if all others have ended. It lost against w, so it is on
// w's path.
func (t *loserTree) second(w int32) int32 {
	best := int32(-1)
	for p := (int(w) + len(t.node)) / 2; p > 0; p /= 2 {
		if l := t.node[p]; !t.cur[l].done && (best < 0 || t.less(l, best)) {
			best = l
		}
	}
	return best
}
