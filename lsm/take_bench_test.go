package lsm

import (
	"testing"

	"github.com/calve-io/calve/internal/datafile"
)

// benchShare is the share of one of two buckets in a buffer as a stream fills it: batches of 16,384 rows, of which every
// other goes to the bucket, in key order.
func benchShare(b *testing.B) (rows *sources, order, sel []int32) {
	all := benchBatch(benchSchema(b, true), 0, benchKeysOf(0, 1))
	var batches []datafile.Rows
	for at := 0; at < all.N; at += 16384 {
		part := slice(all, at, min(all.N, at+16384))
		part.Kinds = all.Kinds[at : at+part.N]
		batches = append(batches, part)
	}
	rows, err := newSources(batches)
	if err != nil {
		b.Fatal(err)
	}
	for i := range int32(all.N / 2) {
		sel = append(sel, 2*i)
	}
	f, _ := benchFiles(b, benchSchema(b, true))
	rule, err := f.mergeRule()
	if err != nil {
		b.Fatal(err)
	}
	order, _, err = f.sortRows(rows, sel, rule)
	if err != nil {
		b.Fatal(err)
	}
	return rows, order, sel
}

// BenchmarkTakeRows copies the rows of a share of a buffer in key order.
func BenchmarkTakeRows(b *testing.B) {
	rows, order, sel := benchShare(b)
	mem := newArena(2)
	b.ResetTimer()
	w := newStopwatch(b)
	for range b.N {
		for rest := order; len(rest) > 0; {
			n := min(len(rest), flushStep)
			if _, err := takeRows(mem, rows, rest[:n], sel, 0); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	w.report(len(order))
}
