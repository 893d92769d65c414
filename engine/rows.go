package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/lookup"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// Found are rows that were looked up.
type Found struct {
	Rows arrow.RecordBatch // of the table's columns; nil: there are none
	At   []int32           // for each key its row, -1: there is none
}

// RowsOf looks rows up by their keys, which have the columns of the primary key, in the table as the last commit left it:
// what was written since is not seen. Rows that are deleted are not there.
func (t *Table) RowsOf(ctx context.Context, keys arrow.RecordBatch) (Found, error) {
	for tries := 0; ; tries++ {
		found, err := t.rowsNow(ctx, keys)
		// Compactions and expiry may take files, and the snapshot, away while they are asked.
		if err == nil || !gone(err) || tries == 3 {
			return found, err
		}
	}
}

func (t *Table) rowsNow(ctx context.Context, keys arrow.RecordBatch) (Found, error) {
	t.commitMu.Lock() // the runs are those of the snapshot
	id, runs := t.known, t.runsNow()
	t.commitMu.Unlock()
	var snap *manifest.Snapshot
	if id > 0 && t.form.Load().policy.Vectors {
		var err error
		if snap, err = t.meta.Snapshot(ctx, id); err != nil {
			return Found{}, err
		}
	}
	return t.rowsOf(ctx, keys, runs, snap)
}

// RowsBefore looks for the last rows that keys had: those that are not in the table any more are looked for in the
// snapshots before, up to steps of those that wrote rows and are not expired.
func (t *Table) RowsBefore(ctx context.Context, keys arrow.RecordBatch, steps int) (Found, error) {
	out, err := t.RowsOf(ctx, keys)
	if err != nil {
		return out, err
	}
	t.commitMu.Lock()
	id := t.known
	t.commitMu.Unlock()
	for ; id > 1 && steps > 0 && slices.Contains(out.At, -1); id-- {
		s, err := t.meta.Snapshot(ctx, id)
		if gone(err) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if s.CommitKind == manifest.Compact || s.CommitKind == manifest.Analyze {
			continue // the rows before it are the same
		}
		steps--
		older, err := t.rowsAt(ctx, keys, id-1)
		if gone(err) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if out, err = out.or(older); err != nil {
			return out, err
		}
	}
	return out, nil
}

// or fills what was not found from another answer.
func (f Found) or(other Found) (Found, error) {
	if other.Rows == nil {
		return f, nil
	}
	if f.Rows == nil {
		return other, nil
	}
	n := int32(f.Rows.NumRows())
	rec, err := joinRecords(f.Rows, other.Rows)
	if err != nil {
		return f, err
	}
	out := Found{Rows: rec, At: slices.Clone(f.At)}
	for i, at := range out.At {
		if at < 0 && other.At[i] >= 0 {
			out.At[i] = n + other.At[i]
		}
	}
	return out, nil
}

func joinRecords(a, b arrow.RecordBatch) (arrow.RecordBatch, error) {
	cols := make([]arrow.Array, a.NumCols())
	for i := range cols {
		var err error
		if cols[i], err = lsm.Gather([]arrow.Array{a.Column(i), b.Column(i)}, []lsm.Range{
			{Src: 0, N: int32(a.NumRows())}, {Src: 1, N: int32(b.NumRows())}}); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(a.Schema(), cols, a.NumRows()+b.NumRows()), nil
}

// runsNow gives the sorted runs of the buckets as the last commit left them.
func (t *Table) runsNow() map[bucketKey]runsOf {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[bucketKey]runsOf{}
	for k, b := range t.buckets {
		out[k] = runsOf{b.part, b.levels.Runs()}
	}
	return out
}

// runsOf are the sorted runs of a bucket, newest first.
type runsOf struct {
	part lsm.Part
	runs []lsm.SortedRun
}

// rowsAt looks rows up in an older snapshot.
func (t *Table) rowsAt(ctx context.Context, keys arrow.RecordBatch, id int64) (Found, error) {
	s, err := t.meta.Snapshot(ctx, id)
	if err != nil {
		return Found{}, err
	}
	entries, err := t.meta.Live(ctx, s, nil)
	if err != nil {
		return Found{}, err
	}
	f := t.form.Load()
	files := map[bucketKey][]manifest.DataFile{}
	total := map[bucketKey]int{}
	for i := range entries {
		k := bucketKey{string(entries[i].Partition), entries[i].Bucket}
		files[k] = append(files[k], entries[i].File)
		total[k] = entries[i].TotalBuckets
	}
	runs := map[bucketKey]runsOf{}
	for k, list := range files {
		dir, err := manifest.DataDir(f.schema, f.opts, []byte(k.partition), k.bucket)
		if err != nil {
			return Found{}, err
		}
		levels, err := lsm.NewLevels(f.keys, f.policy.NumLevels, list)
		if err != nil {
			return Found{}, fmt.Errorf("%s: %w", t.store.URL(dir), err)
		}
		runs[k] = runsOf{lsm.Part{Partition: []byte(k.partition), Bucket: k.bucket, TotalBuckets: total[k], Dir: dir}, levels.Runs()}
	}
	return t.rowsOf(ctx, keys, runs, s)
}

// rowsOf looks rows up in the runs of a snapshot. In a table with deletion vectors it needs the snapshot too: the row of
// a deleted key may still be in a file, while nothing but a vector tells that it was deleted.
func (t *Table) rowsOf(ctx context.Context, keys arrow.RecordBatch, buckets map[bucketKey]runsOf, snap *manifest.Snapshot) (Found, error) {
	f, n := t.form.Load(), int(keys.NumRows())
	if f.keys == nil {
		return Found{}, fmt.Errorf("%s: %w: the table has no primary key to look rows up by", t.store.URL(""), ErrUnsupported)
	}
	rule, err := lsm.NewMergeRule(f.schema, f.opts)
	if err != nil {
		return Found{}, err
	}
	cols := make([]int, len(f.schema.Fields))
	for i := range cols {
		cols[i] = i
	}
	asked, err := f.placed(keys)
	if err != nil {
		return Found{}, err
	}
	look := &lookup.Table{Store: t.store, Schema: f.schema, Rule: rule, OpenSchema: t.meta.Schema}
	out := Found{At: make([]int32, n)}
	for i := range out.At {
		out.At[i] = -1
	}
	for k, r := range buckets {
		rows := asked.of(k)
		if len(rows) == 0 || len(r.runs) == 0 {
			continue
		}
		var dead lookup.Vectors
		if f.policy.Vectors {
			v, err := t.vectorsAt(ctx, snap, r.part)
			if err != nil {
				return Found{}, err
			}
			dead = v.of
		}
		b, err := look.Bucket(r.part, r.runs, dead)
		if err != nil {
			return Found{}, err
		}
		if err := out.ask(ctx, b, f, keys, rows, cols); err != nil {
			return Found{}, err
		}
	}
	return out, nil
}

// ask looks for some of the keys in a bucket.
func (f *Found) ask(ctx context.Context, b *lookup.Bucket, fm *form, keys arrow.RecordBatch, rows []int32, cols []int) error {
	var kc []arrow.Array
	for _, c := range fm.schema.KeyColumns() {
		col, err := keyColumn(keys, fm.schema.Fields[c])
		if err != nil {
			return err
		}
		if col, err = lsm.Take(col, rows); err != nil {
			return err
		}
		kc = append(kc, col)
	}
	found, err := b.Rows(ctx, kc, len(rows), cols)
	if err != nil {
		return err
	}
	at := make([]int32, len(rows))
	for i := range rows {
		at[i] = found.Live(i)
	}
	part := Found{Rows: array.NewRecordBatch(fm.schema.Arrow(), found.Rows.Cols, int64(found.Rows.N)), At: make([]int32, len(f.At))}
	for i := range part.At {
		part.At[i] = -1
	}
	for i, r := range rows {
		part.At[r] = at[i]
	}
	*f, err = f.or(part)
	return err
}

func keyColumn(keys arrow.RecordBatch, f schema.Field) (arrow.Array, error) {
	at := keys.Schema().FieldIndices(f.Name)
	if len(at) != 1 {
		return nil, fmt.Errorf("%w: keys need one column %q of the primary key", ErrRows, f.Name)
	}
	return keys.Column(at[0]), nil
}

// placedKeys says which buckets may have which keys.
type placedKeys struct {
	partition []string // of each key
	bucket    []int32  // nil: any may have it
}

func (p *placedKeys) of(k bucketKey) (rows []int32) {
	for i := range p.partition {
		if p.partition[i] == k.partition && (p.bucket == nil || int(p.bucket[i]) == k.bucket) {
			rows = append(rows, int32(i))
		}
	}
	return rows
}

// placed finds the partitions and buckets of keys.
func (f *form) placed(keys arrow.RecordBatch) (*placedKeys, error) {
	n := int(keys.NumRows())
	p := &placedKeys{partition: make([]string, n)}
	pick := func(cols []int) (out []arrow.Array, err error) {
		for _, c := range cols {
			col, err := keyColumn(keys, f.schema.Fields[c])
			if err != nil {
				return nil, err
			}
			out = append(out, col)
		}
		return out, nil
	}
	parts := f.schema.PartitionColumns()
	cols, err := pick(parts)
	if err != nil {
		return nil, err
	}
	enc := binrow.NewEncoder(f.schema.Types(parts))
	var row []byte
	for i := range n {
		p.partition[i] = string(binrow.EmptyRow)
		if len(parts) > 0 {
			if row, err = enc.Append(row[:0], cols, i); err != nil {
				return nil, err
			}
			p.partition[i] = string(binrow.Serialize(row, len(parts)))
		}
	}
	r := f.router
	if r.buckets == 0 || r.mod {
		return p, nil
	}
	if cols, err = pick(r.hashCols); err != nil {
		return nil, err
	}
	p.bucket = make([]int32, n)
	return p, binrow.Buckets(p.bucket, r.types, cols, n, r.buckets)
}
