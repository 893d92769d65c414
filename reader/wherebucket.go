package reader

import (
	"context"
	"slices"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// maxHashes bounds the combinations of bucket keys that are looked at.
const maxHashes = 1000

// bucketTest knows the hashes of all bucket keys for which the condition may be true.
type bucketTest struct {
	hashes  []int32
	mod     []int64          // instead, with bucket-function.type = mod
	allowed map[int][]uint64 // by number of buckets: a bitmap
	// totals are the numbers of buckets that a partition of the table may have; nil: not known. some are the buckets that
	// are allowed with one of them.
	totals []int
	some   []uint64
	// surprised: an entry had another number of buckets.
	surprised bool
}

// newBucketTest is nil if the condition does not say all of the bucket key, or the table has no fixed buckets.
func newBucketTest(v *view, p *predicate.Predicate) *bucketTest {
	cols := v.schema.BucketColumns()
	if v.opts.Bucket <= 0 || len(cols) == 0 {
		return nil
	}
	rows := [][]any{{}}
	for _, c := range cols {
		cells, ok := p.Points(c)
		if !ok || len(rows)*len(cells) > maxHashes {
			return nil
		}
		var next [][]any
		for _, row := range rows {
			for _, cell := range cells {
				next = append(next, append(row[:len(row):len(row)], cell))
			}
		}
		rows = next
	}
	b := &bucketTest{allowed: map[int][]uint64{}}
	types := v.schema.Types(cols)
	for _, row := range rows {
		switch v.opts.BucketFunction {
		case "mod":
			switch x := row[0].(type) {
			case int32:
				b.mod = append(b.mod, int64(x))
			case int64:
				b.mod = append(b.mod, x)
			default:
				return nil
			}
		case "default":
			enc, err := binrow.NewEncoder(types).AppendValues(nil, schema.Insert, row)
			if err != nil {
				return nil
			}
			b.hashes = append(b.hashes, binrow.Hash(enc))
		default:
			return nil
		}
	}
	return b
}

// may reports whether an entry's bucket is one of those. A partition may have been written with another number of
// buckets than the table has now, so the entry's own counts.
func (b *bucketTest) may(e *manifest.Entry) bool {
	n := e.TotalBuckets
	if n <= 0 || e.Bucket < 0 || e.Bucket >= n {
		return true
	}
	return hasBit(b.of(n), e.Bucket)
}

// of gives the buckets that are allowed among n.
func (b *bucketTest) of(n int) []uint64 {
	bits, ok := b.allowed[n]
	if !ok {
		for _, h := range b.hashes {
			bits = setBit(bits, binrow.Bucket(h, n))
		}
		for _, v := range b.mod {
			bits = setBit(bits, binrow.BucketMod(v, n))
		}
		b.allowed[n] = bits
	}
	return bits
}

// maxTotals bounds the schemas that are read to know the numbers of buckets.
const maxTotals = 32

// learnTotals finds the numbers of buckets that the table has had: partitions keep theirs until they are written anew, and
// it changes with the schema only (`CoreOptions.BUCKET` is no dynamic option).
func (w *where) learnTotals(ctx context.Context, r *Reader) error {
	latest, err := r.meta.LatestSchema(ctx)
	if err != nil || w.buckets == nil || w.buckets.totals != nil || w.buckets.surprised || latest.ID >= maxTotals {
		return err
	}
	var totals []int
	for id := range latest.ID + 1 {
		s, err := r.meta.Schema(ctx, id)
		if err != nil {
			return ctx.Err() // a schema that nobody needs to read rows may be gone or strange: then nothing is known
		}
		o, err := s.ParseOptions()
		if err != nil || o.Bucket <= 0 {
			return nil // or an old table of another kind
		}
		totals = append(totals, o.Bucket)
	}
	w.buckets.totals, w.buckets.some = totals, nil
	for _, n := range totals {
		bits := w.buckets.of(n)
		for i := range bits {
			if i == len(w.buckets.some) {
				w.buckets.some = append(w.buckets.some, 0)
			}
			w.buckets.some[i] |= bits[i]
		}
	}
	return nil
}

// mayBucket is what all entries of a file have in common of may.
func (b *bucketTest) mayBucket(e *manifest.Entry) bool {
	if b.totals == nil || e.Bucket < 0 {
		return true
	}
	if !slices.Contains(b.totals, e.TotalBuckets) {
		b.surprised = true
	}
	return hasBit(b.some, e.Bucket)
}

// mayManifest holds the buckets against the bounds of a manifest's entries.
func (b *bucketTest) mayManifest(m *manifest.Meta) bool {
	if b.totals == nil || m.MinBucket == nil || m.MaxBucket == nil || *m.MinBucket < 0 {
		return true
	}
	for n := int(*m.MinBucket); n <= int(*m.MaxBucket) && n < 64*len(b.some); n++ {
		if hasBit(b.some, n) {
			return true
		}
	}
	return false
}

func hasBit(bits []uint64, i int) bool { return i/64 < len(bits) && bits[i/64]>>(i%64)&1 == 1 }

func setBit(bits []uint64, i int) []uint64 {
	for len(bits) <= i/64 {
		bits = append(bits, 0)
	}
	bits[i/64] |= 1 << (i % 64)
	return bits
}
