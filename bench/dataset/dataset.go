// Package dataset makes the rows that benchmarks write: the same rows for every engine, run after run.
package dataset

import (
	"fmt"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// Commits is the number of commits of every set: a bucket has eight sorted runs before it is compacted.
const Commits = 8

// step is the number of rows of a batch, about as many as an ingest gives at once.
const step = 16384

// Set is a table and the rows of its commits.
type Set struct {
	Name    string
	About   string            // a sentence for people
	Columns string            // as in CREATE TABLE
	Keys    []string          // of the primary key
	Options map[string]string // of the table, beside those of the benchmark
	Rows    int               // of a commit at full size

	// open prepares a commit of n rows and gives the function that appends its row i to a builder of the table's columns.
	open func(commit, n int) (func(b *array.RecordBuilder, i int), error)
}

// Schema is the table's schema, with further options.
func (s Set) Schema(options map[string]string) (*schema.Schema, error) {
	cols, err := schema.ParseColumns(s.Columns)
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", s.Name, err)
	}
	all := map[string]string{}
	for _, o := range []map[string]string{s.Options, options} {
		for k, v := range o {
			all[k] = v
		}
	}
	return schema.New(schema.Spec{Columns: cols, PrimaryKeys: s.Keys, Options: all})
}

// Batches makes the rows of a commit, in the order in which they arrive. Keys of a commit differ from each other.
func (s Set) Batches(of *arrow.Schema, commit, n int) ([]arrow.RecordBatch, error) {
	add, err := s.open(commit, n)
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", s.Name, err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, of)
	defer b.Release()
	var out []arrow.RecordBatch
	for at := 0; at < n; at += step {
		rows := min(step, n-at)
		b.Reserve(rows)
		for i := range rows {
			add(b, at+i)
		}
		out = append(out, b.NewRecordBatch())
	}
	return out, nil
}

// random makes the source of randomness of a commit.
func random(commit int, set uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(commit), set)) }

// scattered draws n different keys below space, in random order.
func scattered(r *rand.Rand, n int, space int64) []int64 {
	taken := make(map[int64]bool, n)
	out := make([]int64, 0, n)
	for len(out) < n {
		if k := r.Int64N(space); !taken[k] {
			taken[k] = true
			out = append(out, k)
		}
	}
	return out
}

// keysPerRow is how many keys a commit draws each of its rows from where keys are scattered: with eight commits, about a
// fifth of all rows are older versions of others.
const keysPerRow = 16

// scatteredKeys draws the keys of a commit.
func scatteredKeys(r *rand.Rand, _, n int) []int64 { return scattered(r, n, int64(keysPerRow*n)) }

// Blocks of consecutive keys, as when an upstream table is copied in pieces.
const blockKeys = 100

func blocksOfKeys(r *rand.Rand, _, n int) []int64 {
	out := make([]int64, 0, n)
	for _, block := range scattered(r, (n+blockKeys-1)/blockKeys, int64(keysPerRow*n/blockKeys+1)) {
		for i := 0; i < blockKeys && len(out) < n; i++ {
			out = append(out, block*blockKeys+int64(i))
		}
	}
	r.Shuffle(len(out), func(a, b int) { out[a], out[b] = out[b], out[a] })
	return out
}

// Growing tables: of a hundred rows this many have keys of the commit before, among its newest tenth; the others have
// keys beyond all there were. Orders, events and readings look like this.
const updatedPercent = 2

func growingKeys(r *rand.Rand, commit, n int) []int64 {
	old := 0
	if commit > 0 {
		old = n * updatedPercent / 100
	}
	out := make([]int64, 0, n)
	for _, k := range scattered(r, old, int64(max(1, n/10))) {
		out = append(out, int64(commit*n)-1-k)
	}
	for i := range n - old {
		out = append(out, int64(commit*n+i))
	}
	// What arrives together is nearly in order.
	const window = 1000
	for at := 0; at < n; at += window {
		part := out[at:min(n, at+window)]
		r.Shuffle(len(part), func(a, b int) { part[a], part[b] = part[b], part[a] })
	}
	return out
}
