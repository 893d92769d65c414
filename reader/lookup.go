package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/internal/lookup"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// LookupCache keeps data files open between lookups, within bounds. One may serve all tables of a process.
type LookupCache = lookup.Cache

// LookupCacheConfig bounds a LookupCache.
type LookupCacheConfig = lookup.CacheConfig

// NewLookupCache makes an empty cache. It is closed when nothing uses it any more.
func NewLookupCache(cfg LookupCacheConfig) *LookupCache { return lookup.NewCache(cfg) }

// Found is what a lookup found.
type Found struct {
	// Rows are the rows of keys that are there, in the columns asked for: each once, in the order in which their keys
	// were asked for first.
	Rows arrow.RecordBatch
	// At is for each key that was asked for its row in Rows, -1 if the table has none.
	At []int32
}

// Lookup answers which rows keys have in one snapshot of a table with a primary key: the rows that Scan gives for it. It is
// safe for concurrent use.
type Lookup struct {
	r    *Reader
	q    Query
	v    *view
	snap *manifest.Snapshot // nil: the table has none
	cols []int
	sees sight
	t    *lookup.Table

	pk       []int // the columns of the primary key, in its order
	parts    []int // the partition columns
	anywhere bool  // the primary key does not have them all: any partition may have a key
	byBucket bool  // a key's bucket is told by its bucket columns

	buckets map[string][]*keyBucket // by partition, "" for all if a key may be anywhere
	vectors vectorMemo
}

// keyBucket is a bucket that is asked for keys.
type keyBucket struct {
	*lookup.Bucket
	bucket, total int
}

// Get finds the rows of some keys in the snapshot that a query asks for. keys has the columns of the primary key, by name.
// It reads no more of the table's manifests and files than it needs for them. cache may be nil.
func (r *Reader) Get(ctx context.Context, q Query, keys arrow.RecordBatch, cache *LookupCache) (Found, error) {
	l, err := r.newLookup(ctx, q, cache)
	if err != nil {
		return Found{}, err
	}
	asked, err := l.group(keys)
	if err != nil {
		return Found{}, err
	}
	if err := l.load(ctx, asked.where(l)); err != nil {
		return Found{}, err
	}
	return l.get(ctx, asked)
}

// OpenLookup prepares the snapshot that a query asks for, of which Query.Where is not for lookups. It reads all its
// manifests, once. cache may be nil; with one, files stay open between calls of Get.
func (r *Reader) OpenLookup(ctx context.Context, q Query, cache *LookupCache) (*Lookup, error) {
	l, err := r.newLookup(ctx, q, cache)
	if err != nil {
		return nil, err
	}
	return l, l.load(ctx, nil)
}

func (r *Reader) newLookup(ctx context.Context, q Query, cache *LookupCache) (*Lookup, error) {
	if q.Where != "" {
		return nil, fmt.Errorf("%w: a lookup by key takes no condition", ErrQuery)
	}
	l := &Lookup{r: r, q: q}
	var err error
	if l.snap, err = r.snapshot(ctx, q); err != nil && !errors.Is(err, manifest.ErrNoSnapshot) {
		return nil, err
	}
	if l.snap == nil {
		s, err := r.meta.LatestSchema(ctx)
		if err != nil {
			return nil, err
		}
		l.v, err = r.view(ctx, s.ID)
		if err != nil {
			return nil, err
		}
	} else if l.v, err = r.viewOf(ctx, q, l.snap); err != nil {
		return nil, err
	}
	return l, l.prepare(cache)
}

// prepare works out where keys of the table may be.
func (l *Lookup) prepare(cache *LookupCache) (err error) {
	v := l.v
	if v.keys == nil {
		return fmt.Errorf("%w: the table has no primary key to look rows up by", ErrQuery)
	}
	if l.cols, err = v.projection(l.q.Columns); err != nil {
		return err
	}
	for _, name := range v.schema.PrimaryKeys {
		c, _ := v.schema.Field(name)
		l.pk = append(l.pk, c)
	}
	l.parts = v.schema.PartitionColumns()
	l.anywhere = slices.ContainsFunc(l.parts, func(c int) bool { return !slices.Contains(l.pk, c) })
	if l.anywhere && slices.ContainsFunc(l.parts, func(c int) bool { return slices.Contains(l.pk, c) }) {
		return fmt.Errorf("%w: the primary key has some of the partition columns %v but not all, so that a row cannot be looked up by it", ErrQuery, v.schema.PartitionKeys)
	}
	bucket := v.schema.BucketColumns()
	l.byBucket = v.opts.Bucket > 0 && (v.opts.BucketFunction == "default" || v.opts.BucketFunction == "mod") && len(bucket) > 0 &&
		!slices.ContainsFunc(bucket, func(c int) bool { return !slices.Contains(l.pk, c) })
	l.sees = v.batchSight()
	l.t = &lookup.Table{Store: l.r.store, Schema: v.schema, Rule: v.rule, Cache: cache, OpenSchema: l.r.meta.Schema}
	l.buckets = map[string][]*keyBucket{}
	l.vectors = vectorMemo{r: l.r, m: map[string]*vectorSlot{}}
	return nil
}

// Snapshot is the snapshot that is asked, nil if the table has none.
func (l *Lookup) Snapshot() *manifest.Snapshot { return l.snap }

// KeySchema has the columns of the primary key in its order: what Get takes.
func (l *Lookup) KeySchema() *arrow.Schema { return l.v.arrowSchema(l.pk) }

// RowSchema has the columns of the rows that Get gives.
func (l *Lookup) RowSchema() *arrow.Schema { return l.v.arrowSchema(l.cols) }

// load finds the buckets of the snapshot, those that w does not rule out if it is not nil.
func (l *Lookup) load(ctx context.Context, w *where) error {
	if l.snap == nil {
		return nil
	}
	entries, err := l.r.find(ctx, l.snap, l.sees, w)
	if err != nil {
		return err
	}
	dead, err := l.r.vectors(ctx, l.v, l.snap)
	if err != nil {
		return err
	}
	files := map[bucketKey][]manifest.DataFile{}
	first := map[bucketKey]*manifest.Entry{}
	var order []bucketKey
	for i := range entries {
		k := bucketKey{string(entries[i].Partition), entries[i].Bucket}
		if first[k] == nil {
			first[k] = &entries[i]
			order = append(order, k)
		}
		files[k] = append(files[k], entries[i].File)
	}
	slices.SortFunc(order, bucketKey.compare)
	for _, k := range order {
		part, err := l.v.part(first[k])
		if err != nil {
			return err
		}
		levels, err := lsm.NewLevels(l.v.keys, max(1, l.v.opts.NumLevels), files[k])
		if err != nil {
			return fmt.Errorf("%s: %w", part.Dir, err)
		}
		b, err := l.t.Bucket(part, levels.Runs(), l.vectors.of(dead[k]))
		if err != nil {
			return err
		}
		at := k.partition
		if l.anywhere {
			at = ""
		}
		l.buckets[at] = append(l.buckets[at], &keyBucket{b, k.bucket, first[k].TotalBuckets})
	}
	return nil
}

// maxVectors bounds the deletion vectors that a Lookup remembers.
const maxVectors = 256

// vectorMemo remembers deletion vectors. mu is held for moments only: while one vector is read, others can be.
type vectorMemo struct {
	r  *Reader
	mu sync.Mutex
	m  map[string]*vectorSlot // by data file
}

// vectorSlot is a vector that is read once, by whoever holds turn.
type vectorSlot struct {
	turn chan struct{} // has room for one
	v    *indexfile.Vector
}

// slot gives the slot of a data file.
func (v *vectorMemo) slot(name string) *vectorSlot {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.m[name]
	if s == nil {
		if len(v.m) >= maxVectors {
			clear(v.m)
		}
		s = &vectorSlot{turn: make(chan struct{}, 1)}
		v.m[name] = s
	}
	return s
}

// of gives the vectors of a bucket's files.
func (v *vectorMemo) of(at map[string]vectorAt) lookup.Vectors {
	if len(at) == 0 {
		return nil
	}
	return func(ctx context.Context, name string) (*indexfile.Vector, error) {
		place, ok := at[name]
		if !ok {
			return nil, nil
		}
		s := v.slot(name)
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.v != nil {
			return s.v, nil
		}
		x, err := v.r.readVector(ctx, place)
		if err == nil {
			s.v = x
		}
		return x, err
	}
}

// grouped are the keys of a question, by where they may be.
type grouped struct {
	n     int
	cols  []arrow.Array    // of the primary key, in its order
	parts map[string][]int // keys by partition; "" if any may have them
	order []string         // of parts: as they come
	hash  []int32          // of the bucket columns
	mod   []int64          // instead, with bucket-function.type = mod
}

// group checks keys and finds the partition of each.
func (l *Lookup) group(keys arrow.RecordBatch) (*grouped, error) {
	g := &grouped{n: int(keys.NumRows()), parts: map[string][]int{}}
	fields := l.KeySchema().Fields()
	for _, f := range fields {
		at := keys.Schema().FieldIndices(f.Name)
		if len(at) != 1 {
			return nil, fmt.Errorf("%w: keys need one column %q of the primary key", ErrQuery, f.Name)
		}
		a := keys.Column(at[0])
		if !arrow.TypeEqual(a.DataType(), f.Type) {
			return nil, fmt.Errorf("%w: key column %q is %s, want %s", ErrQuery, f.Name, a.DataType(), f.Type)
		}
		if a.NullN() > 0 {
			return nil, fmt.Errorf("%w: key column %q has nulls", ErrQuery, f.Name)
		}
		g.cols = append(g.cols, a)
	}
	if err := l.partitions(g); err != nil {
		return nil, err
	}
	if !l.byBucket {
		return g, nil
	}
	cols := l.v.schema.BucketColumns()
	if l.v.opts.BucketFunction == "default" {
		g.hash = make([]int32, g.n)
		return g, binrow.Hashes(g.hash, l.v.schema.Types(cols), l.of(g, cols), g.n)
	}
	g.mod = make([]int64, g.n)
	a := l.of(g, cols)[0]
	for i := range g.mod {
		switch x := schema.Cell(a, i).(type) {
		case int32:
			g.mod[i] = int64(x)
		case int64:
			g.mod[i] = x
		default:
			return nil, fmt.Errorf("%w: bucket-function.type = mod takes an INT or BIGINT column", ErrQuery)
		}
	}
	return g, nil
}

// of gives some columns of the primary key.
func (l *Lookup) of(g *grouped, cols []int) []arrow.Array {
	out := make([]arrow.Array, len(cols))
	for i, c := range cols {
		out[i] = g.cols[slices.Index(l.pk, c)]
	}
	return out
}

// partitions finds the partition of each key.
func (l *Lookup) partitions(g *grouped) error {
	add := func(p string, i int) {
		if _, ok := g.parts[p]; !ok {
			g.order = append(g.order, p)
		}
		g.parts[p] = append(g.parts[p], i)
	}
	if l.anywhere || len(l.parts) == 0 {
		at := string(binrow.EmptyRow)
		if l.anywhere {
			at = ""
		}
		for i := range g.n {
			add(at, i)
		}
		return nil
	}
	enc := binrow.NewEncoder(l.v.schema.Types(l.parts))
	cols := l.of(g, l.parts)
	var row []byte
	for i := range g.n {
		var err error
		if row, err = enc.Append(row[:0], cols, i); err != nil {
			return err
		}
		add(string(binrow.Serialize(row, len(cols))), i)
	}
	return nil
}

// in reports whether key i belongs to a bucket.
func (g *grouped) in(i int, b *keyBucket) bool {
	switch {
	case b.total <= 0 || b.bucket < 0 || b.bucket >= b.total:
		return true
	case g.hash != nil:
		return binrow.Bucket(g.hash[i], b.total) == b.bucket
	case g.mod != nil:
		return binrow.BucketMod(g.mod[i], b.total) == b.bucket
	}
	return true
}

// Get finds the rows of keys, whose batch has the columns of the primary key by name.
func (l *Lookup) Get(ctx context.Context, keys arrow.RecordBatch) (Found, error) {
	g, err := l.group(keys)
	if err != nil {
		return Found{}, err
	}
	return l.get(ctx, g)
}

// answer is what one bucket says of some of the keys.
type answer struct {
	b     *keyBucket
	keys  []int32
	found lookup.Found
}

func (l *Lookup) get(ctx context.Context, g *grouped) (Found, error) {
	var all []*answer
	for _, p := range g.order {
		for _, b := range l.buckets[p] {
			a := &answer{b: b}
			for _, i := range g.parts[p] {
				if g.in(i, b) {
					a.keys = append(a.keys, int32(i))
				}
			}
			if len(a.keys) > 0 {
				all = append(all, a)
			}
		}
	}
	cols := l.of(g, l.v.schema.KeyColumns())
	var eg errgroup.Group
	eg.SetLimit(max(1, l.q.Parallel))
	for _, a := range all {
		eg.Go(func() error {
			keys := cols
			if len(a.keys) < g.n {
				keys = make([]arrow.Array, len(cols))
				for i, c := range cols {
					var err error
					if keys[i], err = lsm.Take(c, a.keys); err != nil {
						return err
					}
				}
			}
			var err error
			a.found, err = a.b.Rows(ctx, keys, len(a.keys), l.cols)
			return err
		})
	}
	if err := eg.Wait(); err != nil {
		return Found{}, err
	}
	return l.collect(g, all)
}

// collect puts the rows in the order of their keys. If several buckets had a row of a key, which writers see to that they
// have not, it would be that of the first.
func (l *Lookup) collect(g *grouped, all []*answer) (Found, error) {
	type place struct{ src, row int32 }
	places := make([]place, g.n)
	for i := range places {
		places[i].row = -1
	}
	for s, a := range all {
		for j, i := range a.keys {
			if at := a.found.Live(j); at >= 0 && places[i].row < 0 {
				places[i] = place{int32(s), at}
			}
		}
	}
	out := Found{At: make([]int32, g.n)}
	seen := map[place]int32{}
	var ranges []lsm.Range
	for i, p := range places {
		out.At[i] = -1
		if p.row < 0 {
			continue
		}
		at, ok := seen[p]
		if !ok {
			at = int32(len(ranges))
			seen[p] = at
			ranges = append(ranges, lsm.Range{Src: p.src, Start: p.row, N: 1})
		}
		out.At[i] = at
	}
	rows := datafile.Rows{N: len(ranges), Cols: make([]arrow.Array, len(l.cols))}
	srcs := make([]arrow.Array, len(all))
	for c, f := range l.RowSchema().Fields() {
		if len(ranges) == 0 {
			rows.Cols[c] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, 0)
			continue
		}
		for s, a := range all {
			srcs[s] = a.found.Rows.Cols[c]
		}
		var err error
		if rows.Cols[c], err = lsm.Gather(srcs, ranges); err != nil {
			return Found{}, err
		}
	}
	out.Rows = batch(l.RowSchema(), rows)
	return out, nil
}

// maxAsked is for how many keys it pays to look for their partitions and buckets only.
const maxAsked = 1000

// where says which manifests and files may have the keys; nil: all.
func (g *grouped) where(l *Lookup) *where {
	if g.n > maxAsked {
		return nil
	}
	w := &where{view: l.v, partCols: l.v.schema.PartitionColumns(), known: map[string]*partition{}, files: map[int64]*fileView{}}
	if l.byBucket {
		w.buckets = &bucketTest{hashes: g.hash, mod: g.mod, allowed: map[int][]uint64{}}
	}
	if len(l.parts) > 0 && !l.anywhere {
		w.only = map[string]bool{}
		for p := range g.parts {
			w.only[p] = true
		}
	}
	return w
}

// mayOnly is mayManifest for a list of partitions.
func (w *where) mayOnly(m *manifest.Meta) bool {
	types := w.view.schema.Types(w.partCols)
	for row := range w.only {
		cells, err := binrow.Decode([]byte(row), types)
		if err != nil {
			return true
		}
		may := true
		for i, c := range cells {
			s := statsAt(m.Partitions, len(types), i, types[i])
			may = may && !isBelow(c, s.Min) && !isBelow(s.Max, c)
		}
		if may {
			return true
		}
	}
	return false
}

// isBelow reports whether a cell is known to be below another.
func isBelow(a, b any) bool {
	switch x := a.(type) {
	case int8:
		y, ok := b.(int8)
		return ok && x < y
	case int16:
		y, ok := b.(int16)
		return ok && x < y
	case int32:
		y, ok := b.(int32)
		return ok && x < y
	case int64:
		y, ok := b.(int64)
		return ok && x < y
	case string:
		y, ok := b.(string)
		return ok && x < y
	}
	return false
}
