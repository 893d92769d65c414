package engine

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// ErrAssigned: another writer has given keys of a table with dynamic buckets their bucket while this one did the same in
// the same partition. The two do not know of each other's choices, so a key could end up in two buckets. Open the table
// again, and let one writer at a time write.
var ErrAssigned = errors.New("another writer assigned dynamic buckets")

// assigner gives each key of a table with dynamic buckets its bucket, as `index.HashBucketAssigner` and `PartitionIndex`
// do: a key whose hash is known goes where it has always gone, a new one to the first bucket with room, else to a new
// bucket. What it decided is published with the rows, as HASH index files, so that it outlives the process.
//
// The hashes of a partition are in memory, about 20 bytes each, from its first row on and for as long as rows of it
// come. Of partitions without unpublished rows, the least recently written are forgotten when all hashes are more than
// keep, and each after quietCommits commits without a row of it. Table.mu guards all fields.
type assigner struct {
	target int64         // keys of a bucket before the next one is opened
	most   int           // buckets of a partition; -1: as many as there are numbers
	keep   int64         // Settings.IndexKeys
	rand   func() uint64 // for keys beyond the last bucket's room

	parts     map[string]*partIndex // those in memory, by serialized partition
	hashes    int64                 // of them
	dirty     []*bucketHashes       // with hashes that no snapshot has yet, each once
	published int64                 // generation of the rows that are published
	commits   int64                 // that published rows

	snapshot int64      // the newest that was looked at
	files    indexFiles // of it
	manifest string     // its index manifest; "": it has none
}

// quietCommits is the number of commits after which a partition is forgotten.
const quietCommits = 100

// indexFiles are HASH files by partition and bucket.
type indexFiles map[string]map[int]manifest.IndexEntry

func sameFiles(a, b map[int]manifest.IndexEntry) bool {
	return maps.EqualFunc(a, b, func(x, y manifest.IndexEntry) bool { return x.Name == y.Name })
}

// partIndex is the index of one partition.
type partIndex struct {
	partition  []byte
	byHash     map[int32]int16
	buckets    map[int]*bucketHashes
	numbers    []int // of buckets, in the order they were opened
	open       []int // buckets that may have room, the first is tried first
	next       int   // all numbers below it are taken
	generation int64 // of its newest row
	commits    int64 // assigner.commits when it came
}

// bucketHashes are the hashes of one bucket.
type bucketHashes struct {
	part   *partIndex
	bucket int
	all    []int32 // only ever appended to
	dirty  bool    // in assigner.dirty
}

func newAssigner(o schema.Options, keep int64, rand func() uint64) *assigner {
	if rand == nil {
		rand = func() uint64 { return 0 }
	}
	return &assigner{target: o.DynamicRows, most: o.DynamicMax, keep: keep, rand: rand, parts: map[string]*partIndex{}, published: -1}
}

func newPartIndex(partition string) *partIndex {
	return &partIndex{partition: []byte(partition), byHash: map[int32]int16{}, buckets: map[int]*bucketHashes{}}
}

// part gives the index of a partition that rows of a generation go to, or nil if it has to be read first.
func (a *assigner) part(partition []byte, generation int64) *partIndex {
	p := a.parts[string(partition)]
	if p == nil {
		if len(a.files[string(partition)]) > 0 {
			return nil
		}
		p = newPartIndex(string(partition))
		a.parts[string(partition)] = p
	}
	p.generation, p.commits = generation, a.commits
	return p
}

// bucket finds or makes the hashes of a bucket.
func (p *partIndex) bucket(number int) *bucketHashes {
	b := p.buckets[number]
	if b == nil {
		b = &bucketHashes{part: p, bucket: number}
		p.buckets[number] = b
		p.numbers = append(p.numbers, number)
	}
	return b
}

// load takes in the hashes of a bucket that an index file has.
func (p *partIndex) load(number int, hashes []int32) error {
	b := p.bucket(number)
	for _, h := range hashes {
		if n, ok := p.byHash[h]; ok {
			if int(n) == number {
				continue
			}
			return fmt.Errorf("the hash index has key hash %d in the buckets %d and %d of one partition: rows of that key may be there twice", h, n, number)
		}
		p.byHash[h] = int16(number)
		b.all = append(b.all, h)
	}
	return nil
}

// assign gives the bucket of a key's hash.
func (a *assigner) assign(p *partIndex, hash int32) (int, error) {
	if n, ok := p.byHash[hash]; ok {
		return int(n), nil
	}
	for len(p.open) > 0 {
		if b := p.buckets[p.open[0]]; int64(len(b.all)) < a.target {
			a.add(b, hash)
			return b.bucket, nil
		}
		p.open = p.open[1:]
	}
	limit := a.most
	if limit < 0 {
		limit = math.MaxInt16
	}
	for ; p.next < limit; p.next++ {
		if p.buckets[p.next] == nil {
			b := p.bucket(p.next)
			p.open = append(p.open, p.next)
			a.add(b, hash)
			return b.bucket, nil
		}
	}
	if a.most < 0 {
		return 0, fmt.Errorf("%w: a partition has %d dynamic buckets, the most there can be; raise \"dynamic-bucket.target-row-num\"", ErrRows, limit)
	}
	b := p.buckets[p.numbers[a.rand()%uint64(len(p.numbers))]]
	a.add(b, hash)
	return b.bucket, nil
}

// add gives a new hash to a bucket.
func (a *assigner) add(b *bucketHashes, hash int32) {
	b.part.byHash[hash] = int16(b.bucket)
	b.all = append(b.all, hash)
	a.hashes++
	if !b.dirty {
		b.dirty = true
		a.dirty = append(a.dirty, b)
	}
}

// busy reports whether a partition has rows, or hashes, that no snapshot has.
func (a *assigner) busy(p *partIndex) bool {
	if p.generation > a.published {
		return true
	}
	for _, b := range p.buckets {
		if b.dirty {
			return true
		}
	}
	return false
}

func (a *assigner) forget(p *partIndex) {
	delete(a.parts, string(p.partition))
	a.hashes -= int64(len(p.byHash))
}

// trim forgets partitions.
func (a *assigner) trim() {
	quiet := a.commits - quietCommits
	var idle []*partIndex
	for _, p := range a.parts {
		switch {
		case a.busy(p):
		case p.commits <= quiet:
			a.forget(p)
		default:
			idle = append(idle, p)
		}
	}
	if a.hashes <= a.keep {
		return
	}
	slices.SortFunc(idle, func(x, y *partIndex) int {
		return cmp.Or(cmp.Compare(x.generation, y.generation), strings.Compare(string(x.partition), string(y.partition)))
	})
	for _, p := range idle {
		if a.hashes <= a.keep {
			return
		}
		a.forget(p)
	}
}

// committed notes that all rows up to a generation are published.
func (a *assigner) committed(generation int64) {
	a.published = generation
	a.commits++
	a.trim()
}

// adopt takes the index files of a newer snapshot. Partitions that have other files than before are read
// again when the next row of theirs comes; it is ErrAssigned, and nothing has changed, if one of them has unpublished
// rows here.
func (a *assigner) adopt(snapshot int64, files indexFiles, manifestName string) error {
	var changed []*partIndex
	for name, p := range a.parts {
		if sameFiles(a.files[name], files[name]) {
			continue
		}
		if a.busy(p) {
			return ErrAssigned
		}
		changed = append(changed, p)
	}
	for _, p := range changed {
		a.forget(p)
	}
	a.snapshot, a.files, a.manifest = snapshot, files, manifestName
	return nil
}

// unreadError: the index of partitions has to be read before rows can be routed.
type unreadError map[string]bool

// Error implements error.
func (e unreadError) Error() string {
	return fmt.Sprintf("the hash index of %d partitions is not read yet", len(e))
}

// routeDynamic is route for tables with dynamic buckets; t.mu is held. If the index of a partition is not in memory it
// notes nothing and gives an unreadError.
func (r *router) routeDynamic(t *Table, b schema.Batch) error {
	a := t.assigner
	n := b.Len()
	if cap(r.numbers) < n {
		r.numbers = make([]int32, n)
	}
	numbers := r.numbers[:n]
	if err := binrow.Hashes(numbers, r.types, columns(b.Rec, r.hashCols), n); err != nil {
		return err
	}
	if r.partEnc != nil {
		return r.routePartitioned(t, b.Rec, numbers, n, int32(t.active.rows))
	}
	part := a.part(binrow.EmptyRow, t.generation)
	if part == nil {
		return unreadError{string(binrow.EmptyRow): true}
	}
	for i, h := range numbers {
		number, err := a.assign(part, h)
		if err != nil {
			return err
		}
		numbers[i] = int32(number)
	}
	return r.routeNumbers(t, numbers, int32(t.active.rows))
}
