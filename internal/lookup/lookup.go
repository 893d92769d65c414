// Package lookup finds the rows of keys in one bucket of a table: by the key ranges of its files, their page
// indexes, and then only those pages that hold what was asked for. What it costs grows with the number of keys, not
// with the size of the bucket.
//
//	lookup.go   Table, Bucket, and what becomes of the rows of a key
//	asked.go    the keys of a question, sorted
//	probe.go    the rows that one data file has of them
//	atonce.go   all files of a question at once, where requests take long
//	cache.go    open data files; fileindex.go  their Bloom filters
//	local.go    copies of data files on local disk, with a hash table; record.go  their rows; localdir.go  which there are;
//	            copies.go  those that are made while data files are written
package lookup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/indexfile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Table is what lookups know of a table with a primary key. It is safe for concurrent use.
type Table struct {
	Store storage.Store // the table's folder
	// Schema is the one that rows and keys are given in. Files may have been written with another version of it.
	Schema *schema.Schema
	// Rule says what becomes of the rows of a key (lsm.NewMergeRule of Schema).
	Rule *lsm.MergeRule
	// OpenSchema finds the schema a file was written with. It is asked for schemas other than Schema only.
	OpenSchema func(ctx context.Context, id int64) (*schema.Schema, error)
	// Cache keeps files open between calls; nil: none are kept.
	Cache *Cache

	once   sync.Once
	lay    *recordLayout
	cols   string
	layErr error
}

// Vectors gives the deletion vector of a data file of a bucket, nil if it has none.
type Vectors func(ctx context.Context, dataFile string) (*indexfile.Vector, error)

// Bucket answers for some sorted runs of one bucket. It is safe for concurrent use and holds nothing open.
type Bucket struct {
	t    *Table
	keys *lsm.Keys
	part lsm.Part
	runs []run
	dead Vectors

	expect int64
}

// Expect tells about how many keys will be asked for altogether, where many questions go through the keys of the bucket once, in
// ascending order. It is called before them.
func (b *Bucket) Expect(keys int64) { b.expect = keys }

// run is a sorted run, with the key ranges of its files.
type run struct {
	files []fileAt
	// older is the highest sequence number in the runs behind this one.
	older int64
}

// fileAt is a data file of the bucket.
type fileAt struct {
	*manifest.DataFile
	name     string // below the table's folder
	min, max string // in normalized bytes
	runRows  int64  // of all files of its run
}

// Bucket prepares runs for being asked: all of a bucket, newest first (lsm.Levels.Runs), or only those that are to be asked.
// dead may be nil.
func (t *Table) Bucket(part lsm.Part, runs []lsm.SortedRun, dead Vectors) (*Bucket, error) {
	b := &Bucket{t: t, keys: lsm.NewKeys(t.Schema), part: part, dead: dead, runs: make([]run, len(runs))}
	older := int64(math.MinInt64)
	for i := len(runs) - 1; i >= 0; i-- {
		r := &b.runs[i]
		r.older = older
		r.files = make([]fileAt, len(runs[i].Files))
		rows := int64(0)
		for j := range runs[i].Files {
			rows += runs[i].Files[j].Rows
		}
		for j := range runs[i].Files {
			f := &runs[i].Files[j]
			x := fileAt{DataFile: f, name: part.Dir + "/" + f.Name, runRows: rows}
			if err := datafile.CheckName(f.Name); err != nil {
				return nil, fmt.Errorf("%s: %w", t.Store.URL(x.name), err)
			}
			var err error
			if x.min, err = b.keys.FromSerialized(f.MinKey); err == nil {
				x.max, err = b.keys.FromSerialized(f.MaxKey)
			}
			if err != nil {
				return nil, fmt.Errorf("key range of file %s: %w", t.Store.URL(x.name), err)
			}
			r.files[j] = x
			older = max(older, f.MaxSeq)
		}
	}
	return b, nil
}

// Found is the answer to a question.
type Found struct {
	// Rows has at most one row a key, in ascending order of keys: the columns asked for, sequence numbers and kinds.
	Rows datafile.Rows
	// At is for each key that was asked for its row in Rows, -1 if the runs have no row of it.
	At []int32
}

// Live is the row of key i, -1 if there is none or it is a delete: what a reader of the table sees.
func (f *Found) Live(i int) int32 {
	if at := f.At[i]; at >= 0 && schema.RowKind(f.Rows.Kinds[at]).IsAdd() {
		return at
	}
	return -1
}

// Rows finds what the table's rule makes of the rows that the runs have of n keys, deletes included. keys are the columns of
// the trimmed primary key, in key order, as lsm.Keys.Encode takes them: keys may come in any order and more than once. cols are
// columns of the schema, by position.
func (b *Bucket) Rows(ctx context.Context, keys []arrow.Array, n int, cols []int) (Found, error) {
	q, err := newAsked(b.keys, keys, n)
	if err != nil {
		return Found{}, err
	}
	read := b.t.Rule.Columns(cols)
	runs, err := b.hits(ctx, q, read)
	if err != nil {
		return Found{}, err
	}
	rows, err := b.merge(ctx, runs, read)
	if err != nil {
		return Found{}, err
	}
	out := Found{Rows: rows, At: make([]int32, n)}
	if err := b.assign(q, &out, read); err != nil {
		return Found{}, err
	}
	out.Rows.Cols = out.Rows.Cols[:len(cols)]
	return out, nil
}

// hits asks the runs, newest first. Where the newest row of a key is the answer, older runs are not asked for keys whose row
// is newer than all there.
func (b *Bucket) hits(ctx context.Context, q *asked, read []int) ([][]hits, error) {
	if len(q.order) <= fewKeys && b.t.isFar() {
		some, err := b.sift(ctx, b.asking(q), q)
		if err != nil {
			return nil, err
		}
		if len(some) <= fewFiles {
			return b.hitsAtOnce(ctx, some, q, read, newRoom(mostAhead))
		}
	}
	want := q.all()
	out := make([][]hits, len(b.runs))
	for i := range b.runs {
		r := &b.runs[i]
		done := map[int32]bool{}
		for j := range r.files {
			f := &r.files[j]
			from, to := q.within(want, f.min, f.max)
			if from == to {
				continue
			}
			h, err := b.probe(ctx, f, q, want[from:to], read)
			if err != nil {
				return nil, err
			}
			if len(h.keys) == 0 {
				continue
			}
			out[i] = append(out[i], h)
			if !b.t.Rule.Newest() {
				continue
			}
			for k, key := range h.keys {
				if h.rows.Seq[k] > r.older {
					done[key] = true
				}
			}
		}
		if len(done) == 0 {
			continue
		}
		rest := make([]int32, 0, len(want))
		for _, k := range want {
			if !done[k] {
				rest = append(rest, k)
			}
		}
		if want = rest; len(want) == 0 {
			break
		}
	}
	return out, nil
}

// merge makes one row of the rows of each key.
func (b *Bucket) merge(ctx context.Context, all [][]hits, read []int) (datafile.Rows, error) {
	var runs []lsm.Run
	rows := 0
	for _, h := range all {
		if len(h) > 0 {
			runs = append(runs, &hitRun{todo: h})
		}
		for i := range h {
			rows += h[i].rows.N
		}
	}
	if rows == 0 {
		return b.none(read)
	}
	m := lsm.Merge(lsm.MergeSpec{Schema: b.t.Schema, KeyCols: b.keysIn(read), BatchRows: rows, Rule: b.t.Rule, Cols: read}, runs)
	var parts []datafile.Rows
	for {
		part, err := m.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return datafile.Rows{}, err
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return b.none(read)
	}
	return concat(parts)
}

// keysIn are the places of the key columns among columns that have them.
func (b *Bucket) keysIn(cols []int) (at []int) {
	for _, k := range b.t.Schema.KeyColumns() {
		at = append(at, slices.Index(cols, k))
	}
	return at
}

// none are no rows of some columns.
func (b *Bucket) none(read []int) (datafile.Rows, error) {
	out := datafile.Rows{Seq: []int64{}, Kinds: []int8{}, Cols: make([]arrow.Array, len(read))}
	for i, c := range read {
		dt, err := schema.ArrowType(b.t.Schema.Fields[c].Type)
		if err != nil {
			return datafile.Rows{}, err
		}
		out.Cols[i] = emptyArray(dt)
	}
	return out, nil
}

// assign finds the row of each key.
func (b *Bucket) assign(q *asked, f *Found, read []int) error {
	for i := range f.At {
		f.At[i] = -1
	}
	if f.Rows.N == 0 {
		return nil
	}
	cols := make([]arrow.Array, 0, 2)
	for _, at := range b.keysIn(read) {
		cols = append(cols, f.Rows.Cols[at])
	}
	have, err := b.keys.Encode(cols, f.Rows.N)
	if err != nil {
		return fmt.Errorf("keys that were found: %w", err)
	}
	at := make([]int32, len(q.order)) // of each different key
	row := 0
	for k := range q.order {
		at[k] = -1
		if row < f.Rows.N && q.compare(k, &have, row) == 0 {
			at[k] = int32(row)
			row++
		}
	}
	if row != f.Rows.N {
		return fmt.Errorf("row %d of %d that were found has another key than those that were asked for", row, f.Rows.N)
	}
	for i := range f.At {
		f.At[i] = at[q.unique[i]]
	}
	return nil
}

// Place is where a row is.
type Place struct {
	File *manifest.DataFile // nil: there is no row
	Row  int64              // its number in the file, from 0
	Seq  int64
	Kind int8
}

// Places finds for each of n keys, given as to Rows, the row with the highest sequence number, deletes included, but for rows
// that a deletion vector removes.
func (b *Bucket) Places(ctx context.Context, keys []arrow.Array, n int) ([]Place, error) {
	q, err := newAsked(b.keys, keys, n)
	if err != nil {
		return nil, err
	}
	best := make([]Place, len(q.order))
	want := q.all()
	for i := range b.runs {
		r := &b.runs[i]
		for j := range r.files {
			f := &r.files[j]
			from, to := q.within(want, f.min, f.max)
			if from == to {
				continue
			}
			h, err := b.probe(ctx, f, q, want[from:to], b.t.Schema.KeyColumns())
			if err != nil {
				return nil, err
			}
			for k, key := range h.keys {
				if p := &best[key]; p.File == nil || h.rows.Seq[k] > p.Seq {
					*p = Place{File: f.DataFile, Row: h.ords[k], Seq: h.rows.Seq[k], Kind: h.rows.Kinds[k]}
				}
			}
		}
		rest := make([]int32, 0, len(want))
		for _, k := range want {
			if best[k].File == nil || best[k].Seq <= r.older {
				rest = append(rest, k)
			}
		}
		if want = rest; len(want) == 0 {
			break
		}
	}
	out := make([]Place, n)
	for i := range out {
		out[i] = best[q.unique[i]]
	}
	return out, nil
}

// hitRun gives what was found in the files of a run.
type hitRun struct {
	todo  []hits
	level int
}

// Next implements lsm.Run.
func (r *hitRun) Next(context.Context) (datafile.Rows, error) {
	if len(r.todo) == 0 {
		return datafile.Rows{}, io.EOF
	}
	h := r.todo[0]
	r.todo, r.level = r.todo[1:], h.level
	return h.rows, nil
}

// Level implements lsm.Leveled.
func (r *hitRun) Level() int { return r.level }
