package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/lookup"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// imager tells what a snapshot changed in the rows that a scan of the table gives: for each key that may have changed it
// looks the row up in the snapshot before and in this one. A key with equal rows is not told, so that what is told depends
// on the two snapshots only: it is the same wherever a stream begins.
//
// Which keys may have changed is told by the files that the snapshot added, and by those that it removed where that can
// change a row; see candidates.
type imager struct {
	r     *Reader
	cache *LookupCache
	own   bool // the cache is not TailSpec.Lookups

	last *manifest.Snapshot // the one that was told last; nil: not known
	// files are live files of some buckets in snapshot at, so that a stream reads the manifests of a bucket once and then
	// what changed. seen is their number.
	at    int64
	files map[bucketKey]map[string]manifest.DataFile
	seen  int
}

// maxRemembered bounds the live files that an imager remembers, which are about 1 KiB each.
const maxRemembered = 20_000

// newImager is nil if the changes of the table have their rows before them: in its changelog.
func newImager(r *Reader, v *view, cache *LookupCache) (*imager, error) {
	if v.keys == nil {
		return nil, fmt.Errorf("%w: the table has no primary key, so that its changes are inserts and have no row before them", ErrQuery)
	}
	if v.opts.TellsBefore() {
		return nil, nil
	}
	x := &imager{r: r, cache: cache, own: cache == nil, files: map[bucketKey]map[string]manifest.DataFile{}}
	if x.own {
		x.cache = NewLookupCache(LookupCacheConfig{})
	}
	return x, nil
}

func (x *imager) close() error {
	if x == nil || !x.own {
		return nil
	}
	return x.cache.Close()
}

// rest gives back what an imager that has nothing to do holds: open files, and what it remembers.
func (x *imager) rest() {
	if x == nil {
		return
	}
	if x.own {
		_ = x.cache.Close() // of files that were only read
		x.cache = NewLookupCache(LookupCacheConfig{})
	}
	clear(x.files)
	x.seen, x.at = 0, -1
}

// deliver tells the changes of a snapshot.
func (x *imager) deliver(ctx context.Context, to *tail, snap *manifest.Snapshot, base Changes) (err error) {
	defer x.r.meta.Hold(max(1, snap.ID-1))()
	defer func() {
		if err != nil { // what is remembered may be half of it, and the stream may go on after a gap
			clear(x.files)
			x.seen, x.at, x.last = 0, -1, nil
		}
	}()
	v := to.l.view
	entries, err := x.r.meta.Delta(ctx, snap)
	if err != nil {
		return err
	}
	some := candidates(v, snap, entries)
	wide := snap.CommitKind == manifest.Overwrite || anywhere(v)
	if wide || x.at != snap.ID-1 || x.seen > maxRemembered {
		clear(x.files)
		x.seen = 0
	}
	x.at = snap.ID
	prev := x.last
	x.last = snap
	if len(some) == 0 {
		x.apply(v, entries)
		return nil
	}
	if snap.ID > 1 && (prev == nil || prev.ID != snap.ID-1) {
		if prev, err = x.r.meta.Snapshot(ctx, snap.ID-1); err != nil {
			return fmt.Errorf("rows before the changes are those of snapshot %d: %w", snap.ID-1, err)
		}
	} else if snap.ID == 1 {
		prev = nil
	}
	cols := to.l.read
	t := &imaging{imager: x, v: v, cols: cols, prev: prev, snap: snap, base: base, yield: to.tell, share: to.spec.Share}
	t.enc = rowjson.NewEncoder(v.arrowSchema(cols))
	if wide {
		err = t.wide(ctx, some)
	} else {
		err = t.narrow(ctx, some, entries)
	}
	if errors.Is(err, storage.ErrNotFound) && prev != nil {
		if _, gone := x.r.meta.Snapshot(ctx, prev.ID); errors.Is(gone, manifest.ErrSnapshotExpired) {
			return gone // it has expired while its files were read
		}
	}
	return err
}

// anywhere reports whether a key may change its partition.
func anywhere(v *view) bool {
	return slices.ContainsFunc(v.schema.PartitionKeys, func(n string) bool { return !slices.Contains(v.schema.PrimaryKeys, n) })
}

// candidates are the files, among those of a snapshot's delta, whose keys may have other rows than before.
//
// Rows come by the files that an APPEND adds, but where scans leave level 0 out: there they come when a compaction takes
// files from it. OVERWRITE may change every key of its files. A compaction changes no row of a table, as long as merging rows
// in steps gives what merging them at once does; where it may not, the keys of what was compacted are asked.
func candidates(v *view, snap *manifest.Snapshot, entries []manifest.Entry) []manifest.Entry {
	sees := v.batchSight()
	hidden := sees.level > 0
	all := snap.CommitKind == manifest.Overwrite
	if snap.CommitKind == manifest.Compact {
		all = v.opts.Bucket == schema.BucketPostpone || v.opts.Merge.ExpireTime != 0 || !hidden && !inSteps(v, entries)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(entries), func(e manifest.Entry) bool {
		if e.Bucket < 0 || seen[e.File.Name] {
			return true
		}
		ask := all
		switch {
		case all:
		case snap.CommitKind == manifest.Compact:
			ask = hidden && e.Kind == manifest.Remove && e.File.Level < sees.level
		default:
			ask = e.Kind == manifest.Remove || e.File.Level >= sees.level
		}
		seen[e.File.Name] = ask
		return !ask
	})
}

// inSteps reports whether merging the rows of a key in steps, as compactions do, is known to give what merging them at once
// does. Deletes are dropped when nothing is below them, after which an older row that comes late is not removed any more; a
// sum may overflow or be rounded otherwise.
func inSteps(v *view, entries []manifest.Entry) bool {
	if v.rule.Newest() {
		return true
	}
	if slices.ContainsFunc(entries, func(e manifest.Entry) bool {
		return e.Kind == manifest.Remove && (e.File.DeleteRows == nil || *e.File.DeleteRows > 0)
	}) {
		return false
	}
	engine := v.opts.MergeEngine
	if engine != schema.PartialUpdate && engine != schema.Aggregation {
		return true
	}
	if len(v.opts.SequenceFields) > 0 {
		return false
	}
	for _, f := range v.schema.Fields {
		a := v.schema.Aggregate(v.opts, f.Name)
		grouped := engine == schema.PartialUpdate && v.opts.Merge.GroupOf(f.Name) >= 0
		switch a.Function {
		case "", schema.AggPrimaryKey:
		case schema.AggLastValue, schema.AggLastNonNull, schema.AggFirstValue, schema.AggFirstNonNull, schema.AggFirstNotNull,
			schema.AggMax, schema.AggMin, schema.AggBoolAnd, schema.AggBoolOr:
			if grouped {
				return false
			}
		case schema.AggSum:
			if grouped || f.Type.Root < schema.TinyInt || f.Type.Root > schema.BigInt {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// apply takes the changes of files over into the buckets that are remembered.
func (x *imager) apply(v *view, entries []manifest.Entry) {
	sees := v.batchSight()
	for _, kind := range []manifest.EntryKind{manifest.Remove, manifest.Add} {
		for i := range entries {
			e := &entries[i]
			m := x.files[bucketKey{string(e.Partition), e.Bucket}]
			if m == nil || e.Kind != kind || !sees.file(e) {
				continue
			}
			x.seen -= len(m)
			if kind == manifest.Add {
				m[e.File.Name] = e.File
			} else {
				delete(m, e.File.Name)
			}
			x.seen += len(m)
		}
	}
}

// imaging is an imager at work on one snapshot.
type imaging struct {
	*imager
	v          *view
	cols       []int
	prev, snap *manifest.Snapshot // prev is nil before the first
	base       Changes
	yield      func(Changes, error) bool
	share      Share
	enc        *rowjson.Encoder
	line, old  []byte
}

// asks are the candidates of one bucket.
type asks struct {
	key   bucketKey
	part  lsm.Part
	files []manifest.DataFile
}

// byBucket sorts candidates by bucket.
func (t *imaging) byBucket(some []manifest.Entry) ([]asks, error) {
	at := map[bucketKey]*asks{}
	var out []asks
	for i := range some {
		k := bucketKey{string(some[i].Partition), some[i].Bucket}
		if at[k] == nil {
			part, err := t.v.part(&some[i])
			if err != nil {
				return nil, err
			}
			at[k] = &asks{key: k, part: part}
		}
		at[k].files = append(at[k].files, some[i].File)
	}
	for _, a := range at {
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b asks) int { return a.key.compare(b.key) })
	return out, nil
}

// narrow looks keys up in the bucket whose files have them: there they were before, too.
func (t *imaging) narrow(ctx context.Context, some, entries []manifest.Entry) error {
	todo, err := t.byBucket(some)
	if err != nil {
		return err
	}
	if err := t.remember(ctx, todo); err != nil {
		return err
	}
	tab := &lookup.Table{Store: t.r.store, Schema: t.v.schema, Rule: t.v.rule, Cache: t.cache, OpenSchema: t.r.meta.Schema}
	old, err := t.buckets(ctx, tab, todo, t.prev)
	if err != nil {
		return err
	}
	t.apply(t.v, entries)
	now, err := t.buckets(ctx, tab, todo, t.snap)
	if err != nil {
		return err
	}
	for i := range todo {
		if !t.share.has(t.v, todo[i].key.bucket, "") {
			continue
		}
		t.base.Bucket = todo[i].part.Dir
		err := t.keys(ctx, &todo[i], nil, func(keys datafile.Rows) error {
			before, err := t.find(ctx, old[i], keys)
			if err != nil {
				return err
			}
			after, err := t.find(ctx, now[i], keys)
			if err != nil {
				return err
			}
			return t.tell(before, after)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// remember reads what files the buckets have in the snapshot before, if that is not known.
func (t *imaging) remember(ctx context.Context, todo []asks) error {
	missing := map[bucketKey]bool{}
	parts := map[string]bool{}
	for i := range todo {
		if k := todo[i].key; t.files[k] == nil {
			missing[k], parts[k.partition] = true, true
			t.files[k] = map[string]manifest.DataFile{}
		}
	}
	if len(missing) == 0 || t.prev == nil {
		return nil
	}
	w := &where{view: t.v, partCols: t.v.schema.PartitionColumns(), known: map[string]*partition{}, files: map[int64]*fileView{}}
	if t.v.schema.Partitioned() {
		w.only = parts
	}
	sees := t.v.batchSight()
	var failed error
	f := w.filter(ctx, t.r, sees, &failed)
	identity := f.Identity
	f.Identity = func(e *manifest.Entry) bool {
		return missing[bucketKey{string(e.Partition), e.Bucket}] && identity(e)
	}
	entries, err := t.r.meta.Find(ctx, t.prev, f)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	for i := range entries {
		t.files[bucketKey{string(entries[i].Partition), entries[i].Bucket}][entries[i].File.Name] = entries[i].File
	}
	t.seen += len(entries)
	return nil
}

// buckets prepares the files that are remembered for being asked; snap is the snapshot they are of.
func (t *imaging) buckets(ctx context.Context, tab *lookup.Table, todo []asks, snap *manifest.Snapshot) ([]*lookup.Bucket, error) {
	out := make([]*lookup.Bucket, len(todo))
	if snap == nil {
		return out, nil
	}
	dead, err := t.r.vectors(ctx, t.v, snap)
	if err != nil {
		return nil, err
	}
	memo := &vectorMemo{r: t.r, m: map[string]*vectorSlot{}}
	for i := range todo {
		var files []manifest.DataFile
		for _, f := range t.files[todo[i].key] {
			files = append(files, f)
		}
		levels, err := lsm.NewLevels(t.v.keys, max(1, t.v.opts.NumLevels), files)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", todo[i].part.Dir, err)
		}
		if out[i], err = tab.Bucket(todo[i].part, levels.Runs(), memo.of(dead[todo[i].key])); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// find looks keys up in one bucket; nil has none.
func (t *imaging) find(ctx context.Context, b *lookup.Bucket, keys datafile.Rows) (Found, error) {
	out := Found{At: make([]int32, keys.N)}
	if b == nil {
		for i := range out.At {
			out.At[i] = -1
		}
		return out, nil
	}
	f, err := b.Rows(ctx, keys.Cols, keys.N, t.cols)
	if err != nil {
		return Found{}, err
	}
	for i := range out.At {
		out.At[i] = f.Live(i)
	}
	out.Rows = batch(t.v.arrowSchema(t.cols), f.Rows)
	return out, nil
}

// imagesAtOnce is how many keys are looked up together.
const imagesAtOnce = 4096

// keys gives the keys that files have, each once and in order, and behind their columns others.
func (t *imaging) keys(ctx context.Context, a *asks, others []int, f func(datafile.Rows) error) error {
	key := t.v.schema.KeyColumns()
	cols := append(slices.Clone(key), others...)
	spec := lsm.MergeSpec{Schema: t.v.schema, BatchRows: imagesAtOnce}
	for i := range key {
		spec.KeyCols = append(spec.KeyCols, i)
	}
	sections, err := lsm.Sections(t.v.keys, a.files)
	if err != nil {
		return fmt.Errorf("%s: %w", a.part.Dir, err)
	}
	read := fileSpec{ReadSpec: datafile.ReadSpec{Cols: cols, BatchRows: imagesAtOnce}}
	for _, section := range sections {
		runs := make([]lsm.Run, len(section))
		for i := range section {
			runs[i] = &runReader{r: t.r, v: t.v, dir: a.part.Dir, files: section[i].Files, spec: read}
		}
		m := lsm.Merge(spec, runs)
		var failed error
		err := drain(nexter(func() (datafile.Rows, error) { return m.Next(ctx) }), func(rows datafile.Rows) bool {
			failed = f(rows)
			return failed == nil
		})
		if failed != nil {
			err = failed
		}
		if err = errors.Join(err, m.Close()); err != nil {
			if errors.Is(err, errEnd) {
				return errEnd
			}
			return err
		}
	}
	return nil
}

type nexter func() (datafile.Rows, error)

// Next calls it.
func (n nexter) Next() (datafile.Rows, error) { return n() }

// wide looks keys up in the whole table, which they may have been anywhere in before.
func (t *imaging) wide(ctx context.Context, some []manifest.Entry) error {
	todo, err := t.byBucket(some)
	if err != nil {
		return err
	}
	var old, now *Lookup
	if old, err = t.whole(ctx, t.prev); err == nil {
		now, err = t.whole(ctx, t.snap)
	}
	if err != nil {
		return err
	}
	var parts []int // the rest of the primary key
	if !anywhere(t.v) {
		parts = t.v.schema.PartitionColumns()
	}
	seen := map[string]bool{} // keys of this snapshot
	for i := range todo {
		a := &todo[i]
		t.base.Bucket = a.part.Dir
		err := t.keys(ctx, a, parts, func(rows datafile.Rows) error {
			keys, err := t.fresh(a, rows, parts, seen)
			if err != nil || keys.NumRows() == 0 || !t.share.has(t.v, a.key.bucket, "") {
				return err // of a key that is in two buckets, the first one's share tells
			}
			before, err := old.Get(ctx, keys)
			if err != nil {
				return err
			}
			after, err := now.Get(ctx, keys)
			if err != nil {
				return err
			}
			return t.tell(before, after)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// whole prepares all of a snapshot for lookups; nil is one without rows.
func (t *imaging) whole(ctx context.Context, snap *manifest.Snapshot) (*Lookup, error) {
	l := &Lookup{r: t.r, v: t.v, snap: snap}
	if err := l.prepare(t.cache); err != nil {
		return nil, err
	}
	l.cols = t.cols
	return l, l.load(ctx, nil)
}

// fresh gives the primary keys of rows of a bucket that were not seen before.
func (t *imaging) fresh(a *asks, rows datafile.Rows, parts []int, seen map[string]bool) (arrow.RecordBatch, error) {
	cols := append(slices.Clone(t.v.schema.KeyColumns()), parts...)
	vec, err := t.v.keys.Encode(rows.Cols[:len(cols)-len(parts)], rows.N)
	if err != nil {
		return nil, err
	}
	place := a.key.partition
	if anywhere(t.v) {
		place = ""
	}
	var take []int32
	var code []byte
	for i := range rows.N {
		code = t.v.keys.AppendCode(append(code[:0], place...), &vec, i)
		if !seen[string(code)] {
			seen[string(code)] = true
			take = append(take, int32(i))
		}
	}
	arrays := make([]arrow.Array, len(cols))
	for i := range cols {
		if arrays[i], err = lsm.Take(rows.Cols[i], take); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(t.v.arrowSchema(cols), arrays, int64(len(take))), nil
}

// tell tells the keys whose rows differ. The rows of an update come together.
func (t *imaging) tell(before, after Found) error {
	var ranges []lsm.Range
	var kinds []schema.RowKind
	add := func(src, at int32, k schema.RowKind) {
		ranges, kinds = append(ranges, lsm.Range{Src: src, Start: at, N: 1}), append(kinds, k)
	}
	for i, a := range after.At {
		b := before.At[i]
		switch {
		case a < 0 && b < 0:
		case b < 0:
			add(1, a, schema.Insert)
		case a < 0:
			add(0, b, schema.Delete)
		default:
			t.old = t.enc.Append(t.old[:0], before.Rows, int(b))
			if t.line = t.enc.Append(t.line[:0], after.Rows, int(a)); !bytes.Equal(t.old, t.line) {
				add(0, b, schema.UpdateBefore)
				add(1, a, schema.UpdateAfter)
			}
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	rows := datafile.Rows{N: len(ranges), Cols: make([]arrow.Array, len(t.cols))}
	for c := range rows.Cols {
		srcs := make([]arrow.Array, 2)
		for i, f := range []Found{before, after} {
			if f.Rows != nil {
				srcs[i] = f.Rows.Column(c)
			}
		}
		var err error
		if rows.Cols[c], err = lsm.Gather(srcs, ranges); err != nil {
			return err
		}
	}
	c := t.base
	c.Rec = batch(t.v.arrowSchema(t.cols), rows)
	if c.RowKinds = kinds; !slices.ContainsFunc(kinds, func(k schema.RowKind) bool { return k != schema.Insert }) {
		c.RowKinds = nil
	}
	if !t.yield(c, nil) {
		return errEnd
	}
	return nil
}
