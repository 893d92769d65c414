package lookup

import (
	"slices"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/schema"
)

// asked are the keys of a question. Most of the package knows a key by its number among the different ones, in ascending
// order.
type asked struct {
	keys   []arrow.Array
	vec    lsm.KeyVec
	order  []int32 // of each different key: a place where it was asked for
	unique []int32 // of each key that was asked for: its number
	off    []int32 // of the codes
	codes  []byte
}

func newAsked(k *lsm.Keys, keys []arrow.Array, n int) (*asked, error) {
	q := &asked{keys: keys, unique: make([]int32, n)}
	var err error
	if q.vec, err = k.Encode(keys, n); err != nil {
		return nil, err
	}
	idx := make([]int32, n)
	for i := range idx {
		idx[i] = int32(i)
	}
	p := q.vec.Prefix
	slices.SortFunc(idx, func(a, b int32) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return q.vec.Compare(int(a), &q.vec, int(b))
	})
	q.off = append(make([]int32, 0, n+1), 0)
	for i, at := range idx {
		if i == 0 || q.vec.Compare(int(idx[i-1]), &q.vec, int(at)) != 0 {
			q.order = append(q.order, at)
			q.codes = k.AppendCode(q.codes, &q.vec, int(at))
			q.off = append(q.off, int32(len(q.codes)))
		}
		q.unique[at] = int32(len(q.order) - 1)
	}
	return q, nil
}

// code is the normalized key number k.
func (q *asked) code(k int32) []byte { return q.codes[q.off[k]:q.off[k+1]] }

// compare orders key number k and row i of a batch.
func (q *asked) compare(k int, o *lsm.KeyVec, i int) int { return q.vec.Compare(int(q.order[k]), o, i) }

// cell is column c of key number k.
func (q *asked) cell(k int32, c int) any { return schema.Cell(q.keys[c], int(q.order[k])) }

// all are the numbers of all keys.
func (q *asked) all() []int32 {
	out := make([]int32, len(q.order))
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// within gives the part of want, which ascends, that lies from least to most.
func (q *asked) within(want []int32, least, most string) (from, to int) {
	from = sort.Search(len(want), func(i int) bool { return string(q.code(want[i])) >= least })
	to = from + sort.Search(len(want)-from, func(i int) bool { return string(q.code(want[from+i])) > most })
	return from, to
}
