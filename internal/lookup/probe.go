package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
)

// hits are rows that one file has of the keys that were asked for.
type hits struct {
	keys  []int32 // numbers of keys, ascending
	ords  []int64 // where their rows are in the file
	rows  datafile.Rows
	level int
}

// nearRows is how far apart rows are at most that are decoded together with those between them.
const nearRows = 32

// probe finds the rows of keys, given by their numbers, that a file has and no deletion vector removes.
func (b *Bucket) probe(ctx context.Context, f *fileAt, q *asked, want []int32, read []int) (hits, error) {
	if err := ctx.Err(); err != nil {
		return hits{}, err
	}
	h, err := b.find(ctx, f, q, want, read)
	if err != nil {
		return hits{}, b.failed(f, err)
	}
	h.level = f.Level
	return h, nil
}

// failed says in which file a lookup failed.
func (b *Bucket) failed(f *fileAt, err error) error {
	return fmt.Errorf("look up in data file %s: %w", b.t.Store.URL(f.name), err)
}

func (b *Bucket) find(ctx context.Context, f *fileAt, q *asked, want []int32, read []int) (hits, error) {
	s, err := b.seek(ctx, f, q, want, read, newRoom(mostAhead), false)
	if err != nil {
		return hits{}, err
	}
	err = s.settle(ctx, read)
	return s.h, err
}

// sought is what a file has of keys: their rows, or where these are.
type sought struct {
	h hits
	p *prober // nil: h has the rows, or there are none
}

// keys are the numbers of the keys that the file has.
func (s *sought) keys() []int32 {
	if s.p != nil {
		return s.p.out.keys
	}
	return s.h.keys
}

// settle reads the rows of the keys, and gives the file back.
func (s *sought) settle(ctx context.Context, read []int) error {
	if s.p == nil {
		return nil
	}
	h, err := s.p.finish(ctx, read)
	err = errors.Join(err, s.release())
	*s = sought{h: h}
	return err
}

// release gives the file back.
func (s *sought) release() error {
	if s.p == nil {
		return nil
	}
	s.p.room.give(s.p.took)
	return s.p.o.release()
}

// room is what may be held of the files of one question before it is known which of their rows count. It is safe for
// concurrent use.
type room struct{ left atomic.Int64 }

// mostAhead bounds the bytes of pages that are fetched for one question before it is known whether they are needed.
const mostAhead = 64 << 20

func newRoom(bytes int64) *room {
	r := &room{}
	r.left.Store(bytes)
	return r
}

// take reports whether there is room for n bytes, which are given back.
func (r *room) take(n int64) bool {
	if r.left.Add(-n) >= 0 {
		return true
	}
	r.give(n)
	return false
}

func (r *room) give(n int64) { r.left.Add(n) }

// likelyRows bounds the rows of pages that are fetched of all columns before it is known whether the keys are there.
const likelyRows = 64 << 10

// seek looks for keys in a file. likely: it probably has them, so that pages of all columns are fetched with those of the
// key, if there is room. So it is taken to be where Bloom filters let keys pass.
func (b *Bucket) seek(ctx context.Context, f *fileAt, q *asked, want []int32, read []int, ahead *room, likely bool) (_ sought, err error) {
	if c := b.t.Cache; c != nil && c.local.pays(b, f, len(want)) {
		x, err := c.local.of(b.t, f.name, f.DataFile)
		if err != nil {
			return sought{}, err
		}
		if x != nil {
			if l := c.local.get(ctx, b, f, x, len(want)); l != nil {
				h, err := b.findLocal(ctx, l, f, x, q, want, read)
				switch {
				case errors.Is(err, errLocal):
					x.drop(l)
				case !errors.Is(err, errMuch):
					return sought{h: h}, err
				}
			}
		}
	}
	o, err := b.open(ctx, f)
	if err != nil {
		return sought{}, err
	}
	p := &prober{b: b, q: q, o: o, data: o.data, room: ahead, keyCols: b.t.Schema.KeyColumns()}
	defer func() {
		if err != nil || len(p.parts) == 0 {
			ahead.give(p.took)
			err = errors.Join(err, o.release())
		}
	}()
	if p.want = o.passing(q, want); len(p.want) == 0 {
		return sought{}, nil
	}
	if p.dead, err = b.vector(ctx, f); err != nil {
		return sought{}, err
	}
	spec := datafile.ReadSpec{Schema: b.t.Schema, Cols: p.keyCols, Ranges: o.candidates(q, p.want)}
	if len(spec.Ranges) == 0 {
		return sought{}, nil
	}
	if likely || b.t.isFar() && len(o.filters)+len(o.blooms) > 0 {
		if err := p.fetch(spec, read); err != nil {
			return sought{}, err
		}
	}
	if err := p.data.Read(spec, func(rows datafile.Rows) error { return p.match(ctx, rows) }); err != nil {
		return sought{}, err
	}
	if len(p.parts) == 0 {
		return sought{}, nil
	}
	return sought{p: p}, nil
}

// fetch brings along what will be read of the candidates, if these are few.
func (p *prober) fetch(spec datafile.ReadSpec, read []int) error {
	rows := int64(0)
	for _, r := range spec.Ranges {
		rows += r.To - r.From
	}
	if rows > likelyRows {
		return nil
	}
	spec.KeyValue = true
	for _, c := range read {
		if !slices.Contains(spec.Cols, c) {
			spec.Cols = append(slices.Clone(spec.Cols), c)
		}
	}
	data, err := p.data.Fetch(spec, func(n int64) bool {
		if !p.room.take(n) {
			return false
		}
		p.took = n
		return true
	})
	if err == nil {
		p.data = data
	}
	return err
}

// vector gives the deletion vector of a file, nil if it has none.
func (b *Bucket) vector(ctx context.Context, f *fileAt) (*indexfile.Vector, error) {
	if b.dead == nil {
		return nil, nil
	}
	return b.dead(ctx, f.Name)
}

// prober walks along the candidate rows of a file.
type prober struct {
	b       *Bucket
	q       *asked
	o       *opened
	data    *datafile.File // the open file, or with some of it at hand
	room    *room
	took    int64 // of room
	dead    *indexfile.Vector
	want    []int32
	next    int // of want: the first that may still come
	keyCols []int

	out   hits
	parts []datafile.Rows // the keys of the hits
}

// match takes the rows of a batch that were asked for.
func (p *prober) match(ctx context.Context, rows datafile.Rows) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	have, err := p.b.keys.Encode(rows.Cols, rows.N)
	if err != nil {
		return err
	}
	var take []int32
	for at := 0; p.next < len(p.want); p.next++ {
		k := p.want[p.next]
		if at = p.q.below(k, &have, at, rows.N); at == rows.N {
			break // it may be in the next batch
		}
		if p.q.compare(int(k), &have, at) != 0 {
			continue
		}
		ord := rows.First + int64(at)
		if p.dead != nil {
			dead, err := p.dead.Has(ord)
			if err != nil {
				return &manifest.CorruptError{Name: p.b.t.Store.URL(p.o.name), Reason: "its deletion vector cannot be used", Err: err}
			}
			if dead {
				continue
			}
		}
		take = append(take, int32(at))
		p.out.keys = append(p.out.keys, k)
		p.out.ords = append(p.out.ords, ord)
	}
	if len(take) == 0 {
		return nil
	}
	part, err := pick(rows, take)
	p.parts = append(p.parts, part)
	return err
}

// below is the first row from at on whose key is not below key k, found by steps that double and then halve.
func (q *asked) below(k int32, have *lsm.KeyVec, at, n int) int {
	lo, hi, step := at, at, 1
	for hi < n && q.compare(int(k), have, hi) > 0 {
		lo = hi + 1
		hi += step
		step *= 2
	}
	hi = min(hi, n)
	return lo + sort.Search(hi-lo, func(i int) bool { return q.compare(int(k), have, lo+i) <= 0 })
}

// finish reads what else is wanted of the hits.
func (p *prober) finish(ctx context.Context, read []int) (hits, error) {
	keys, err := concat(p.parts)
	if err != nil {
		return hits{}, err
	}
	out := p.out
	var rest []int
	for _, c := range read {
		if !slices.Contains(p.keyCols, c) && !slices.Contains(rest, c) {
			rest = append(rest, c)
		}
	}
	others, err := p.others(ctx, rest)
	if err != nil {
		return hits{}, err
	}
	out.rows = datafile.Rows{N: keys.N, Seq: others.Seq, Kinds: others.Kinds, Cols: make([]arrow.Array, len(read))}
	for i, c := range read {
		if at := slices.Index(p.keyCols, c); at >= 0 {
			out.rows.Cols[i] = keys.Cols[at]
		} else {
			out.rows.Cols[i] = others.Cols[slices.Index(rest, c)]
		}
	}
	return out, nil
}

// others reads columns of the rows that were found, with sequence numbers and kinds.
func (p *prober) others(ctx context.Context, cols []int) (datafile.Rows, error) {
	spec := datafile.ReadSpec{Schema: p.b.t.Schema, Cols: cols, KeyValue: true}
	for _, o := range p.out.ords {
		if n := len(spec.Ranges); n > 0 && o-spec.Ranges[n-1].To < nearRows {
			spec.Ranges[n-1].To = o + 1
		} else {
			spec.Ranges = append(spec.Ranges, datafile.RowRange{From: o, To: o + 1})
		}
	}
	var parts []datafile.Rows
	next := 0
	err := p.data.Read(spec, func(rows datafile.Rows) error {
		var take []int32
		for ; next < len(p.out.ords) && p.out.ords[next] < rows.First+int64(rows.N); next++ {
			if p.out.ords[next] >= rows.First {
				take = append(take, int32(p.out.ords[next]-rows.First))
			}
		}
		if len(take) == 0 {
			return ctx.Err()
		}
		part, err := pick(rows, take)
		parts = append(parts, part)
		return err
	})
	if err != nil {
		return datafile.Rows{}, err
	}
	out, err := concat(parts)
	if err == nil && out.N != len(p.out.ords) {
		err = fmt.Errorf("%d rows were found by their keys, %d were read", len(p.out.ords), out.N)
	}
	return out, err
}

// pick takes single rows of a batch.
func pick(rows datafile.Rows, at []int32) (datafile.Rows, error) {
	if len(at) == rows.N { // they ascend
		return rows, nil
	}
	out := datafile.Rows{N: len(at), Cols: make([]arrow.Array, len(rows.Cols))}
	for i, c := range rows.Cols {
		var err error
		if out.Cols[i], err = lsm.Take(c, at); err != nil {
			return datafile.Rows{}, err
		}
	}
	if rows.Seq != nil {
		out.Seq, out.Kinds = make([]int64, len(at)), make([]int8, len(at))
		for i, r := range at {
			out.Seq[i], out.Kinds[i] = rows.Seq[r], rows.Kinds[r]
		}
	}
	return out, nil
}

// concat joins rows of the same columns; there is at least one part.
func concat(parts []datafile.Rows) (datafile.Rows, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	var out datafile.Rows
	ranges := make([]lsm.Range, len(parts))
	for i, p := range parts {
		ranges[i] = lsm.Range{Src: int32(i), N: int32(p.N)}
		out.N += p.N
		out.Seq, out.Kinds = append(out.Seq, p.Seq...), append(out.Kinds, p.Kinds...)
	}
	srcs := make([]arrow.Array, len(parts))
	for c := range parts[0].Cols {
		for i := range parts {
			srcs[i] = parts[i].Cols[c]
		}
		a, err := lsm.Gather(srcs, ranges)
		if err != nil {
			return datafile.Rows{}, err
		}
		out.Cols = append(out.Cols, a)
	}
	return out, nil
}

func emptyArray(dt arrow.DataType) arrow.Array {
	return array.MakeArrayOfNull(memory.DefaultAllocator, dt, 0)
}
