package reader

import (
	"context"
	"fmt"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// where is a condition at work on the files of one scan. What may be left out by which part of it:
//
//   - by the partition columns: manifests and files, exactly;
//   - by the columns of the primary key: any file, row group or page, because all versions of a key have the same key;
//   - by other columns: files, row groups and pages whose keys no other file may have. Among overlapping files it would
//     hide the newest version of a row and bring an older one back (paimon-format §14).
//
// The rows themselves are chosen after the merge. It is for one goroutine until the plan is made, and immutable then.
type where struct {
	view  *view
	all   *predicate.Predicate
	keys  *predicate.Predicate // what all says of the primary key; of append tables all of it; nil: nothing
	parts *predicate.Predicate // what all says of the partition; nil: nothing

	partCols []int
	buckets  *bucketTest
	only     map[string]bool // instead of parts: these partitions; nil: all
	known    map[string]*partition
	files    map[int64]*fileView
}

// partition is a partition's values and whether the condition may be true in it.
type partition struct {
	cells []any
	may   bool
}

// fileView says where the statistics of files of a schema have the columns of the view.
type fileView struct {
	schema *schema.Schema
	at     []int // of a column of the view: its place in schema.Fields, -1
	key    []int // its place in the key, -1
}

// where binds a condition; the empty one is nil.
func (v *view) where(text string) (*where, error) {
	if text == "" {
		return nil, nil
	}
	p, err := predicate.Parse(text, v.schema)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	return v.bound(p), nil
}

// bound is where with a condition that was parsed already.
func (v *view) bound(p *predicate.Predicate) *where {
	w := &where{view: v, all: p, keys: p, partCols: v.schema.PartitionColumns(), known: map[string]*partition{}, files: map[int64]*fileView{}}
	in := map[int]bool{}
	for _, c := range w.partCols {
		in[c] = true
	}
	w.parts = p.Only(func(c int) bool { return in[c] })
	if v.keys != nil {
		for _, c := range v.schema.KeyColumns() {
			in[c] = true
		}
		w.keys = p.Only(func(c int) bool { return in[c] })
	}
	w.buckets = newBucketTest(v, p)
	return w
}

// filter chooses manifests and files; sees says which files the scan sees at all. fail is set when a file cannot be
// judged.
func (w *where) filter(ctx context.Context, r *Reader, sees sight, fail *error) manifest.Filter {
	f := manifest.Filter{
		Manifest: func(m *manifest.Meta) bool {
			return sees.manifest(m) && w.mayManifest(m) && (w.buckets == nil || w.buckets.mayManifest(m))
		},
		Identity: func(e *manifest.Entry) bool {
			if !sees.file(e) || w.buckets != nil && !w.buckets.mayBucket(e) {
				return false
			}
			p, err := w.partition(e.Partition)
			return err != nil || p.may // the error comes again with the file
		},
	}
	f.File = func(e *manifest.Entry) bool {
		if w.buckets != nil && !w.buckets.may(e) {
			return false
		}
		may, err := w.mayFile(ctx, r, e, w.keys)
		if err != nil && *fail == nil {
			*fail = err
		}
		return may
	}
	return f
}

// mayTell reports whether a file may have a row for which the condition is true, whatever other files have.
func (w *where) mayTell(ctx context.Context, r *Reader, e *manifest.Entry) (bool, error) {
	if w.buckets != nil && !w.buckets.may(e) {
		return false, nil
	}
	return w.mayFile(ctx, r, e, w.all)
}

// mayManifest holds the condition against what a manifest list says of a manifest's partitions.
func (w *where) mayManifest(m *manifest.Meta) bool {
	if w.only != nil {
		return w.mayOnly(m)
	}
	if w.parts == nil {
		return true
	}
	n := len(w.partCols)
	return w.parts.May(m.Added+m.Deleted, func(col int) predicate.Stats {
		for i, c := range w.partCols {
			if c == col {
				return statsAt(m.Partitions, n, i, w.view.schema.Fields[c].Type)
			}
		}
		return predicate.Stats{Nulls: -1}
	})
}

// partition decodes a partition, once.
func (w *where) partition(row []byte) (*partition, error) {
	if p, ok := w.known[string(row)]; ok {
		return p, nil
	}
	cells, err := binrow.Decode(row, w.view.schema.Types(w.partCols))
	if err != nil {
		return nil, fmt.Errorf("partition: %w", err)
	}
	p := &partition{cells: cells, may: w.only == nil || w.only[string(row)]}
	if w.parts != nil {
		p.may = w.parts.May(1, func(col int) predicate.Stats { s, _ := w.exactly(p, col); return s })
	}
	w.known[string(row)] = p
	return p, nil
}

// exactly gives the value of a partition column as statistics.
func (w *where) exactly(p *partition, col int) (predicate.Stats, bool) {
	for i, c := range w.partCols {
		if c != col {
			continue
		}
		if p.cells[i] == nil {
			return predicate.Stats{Nulls: 1}, true
		}
		return predicate.Stats{Min: p.cells[i], Max: p.cells[i]}, true
	}
	return predicate.Stats{Nulls: -1}, false
}

// mayFile reports whether a predicate may be true for a row of a file, by its statistics.
func (w *where) mayFile(ctx context.Context, r *Reader, e *manifest.Entry, p *predicate.Predicate) (bool, error) {
	if p == nil {
		return true, nil
	}
	fv, err := w.fileView(ctx, r, e.File.SchemaID)
	if err != nil {
		return true, err
	}
	part, err := w.partition(e.Partition)
	if err != nil {
		return true, fmt.Errorf("file %s: %w", e.File.Name, err)
	}
	return p.May(e.File.Rows, func(col int) predicate.Stats {
		if s, ok := w.exactly(part, col); ok {
			if s.Nulls > 0 {
				s.Nulls = e.File.Rows
			}
			return s
		}
		return w.stats(fv, &e.File, col)
	}), nil
}

func (w *where) fileView(ctx context.Context, r *Reader, id int64) (*fileView, error) {
	if fv, ok := w.files[id]; ok {
		return fv, nil
	}
	s, err := r.meta.Schema(ctx, id)
	if err != nil {
		return nil, err
	}
	fv := &fileView{schema: s}
	keys := s.KeyColumns()
	for _, f := range w.view.schema.Fields {
		at, ok := s.FieldByID(f.ID)
		if !ok {
			at = -1
		}
		key := -1
		for i, k := range keys {
			if k == at {
				key = i
			}
		}
		fv.at, fv.key = append(fv.at, at), append(fv.key, key)
	}
	w.files[id] = fv
	return fv, nil
}

// stats gives the statistics of a column in a file, in the column's type of today.
func (w *where) stats(fv *fileView, f *manifest.DataFile, col int) predicate.Stats {
	unknown := predicate.Stats{Nulls: -1}
	at, now := fv.at[col], w.view.schema.Fields[col].Type
	switch {
	case f.WriteCols != nil && !f.Tracked(), !now.Primitive():
		return unknown
	case at < 0: // the file is older than the column
		return predicate.Stats{Nulls: f.Rows}
	}
	then := fv.schema.Fields[at].Type
	var s predicate.Stats
	if k := fv.key[col]; k >= 0 && len(f.KeyStats.Min) > len(binrow.EmptyRow) {
		s = statsAt(f.KeyStats, len(fv.schema.KeyColumns()), k, then)
	} else if f.ValueStatsAll && f.Tracked() {
		s = statsAt(f.ValueStats, len(f.WriteCols), at, then)
	} else if f.ValueStatsAll {
		s = statsAt(f.ValueStats, len(fv.schema.Fields), at, then)
	} else {
		s = unknown
		for i, name := range f.ValueStatsCols {
			if name == fv.schema.Fields[at].Name {
				s = statsAt(f.ValueStats, len(f.ValueStatsCols), i, then)
				break
			}
		}
	}
	return predicate.Stats(datafile.ConvertStats(datafile.ColumnStats(s), then, now))
}

// statsAt gives column i of n of serialized statistics. What cannot be decoded is not known: statistics may be missing.
func statsAt(s manifest.Stats, n, i int, t schema.Type) predicate.Stats {
	out := predicate.Stats{Nulls: -1}
	if len(s.NullCounts) == n && s.NullCounts[i] != nil {
		out.Nulls = *s.NullCounts[i]
	}
	var err error
	if out.Min, err = binrow.DecodeField(s.Min, n, i, t); err != nil {
		out.Min = nil
	}
	if out.Max, err = binrow.DecodeField(s.Max, n, i, t); err != nil {
		out.Max = nil
	}
	return out
}

// splits leaves out those splits of a plan that cannot have a row, by all of the condition, and prepares the others.
func (w *where) splits(ctx context.Context, r *Reader, splits []Split) ([]Split, error) {
	var out []Split
	for _, s := range splits {
		s.where, s.alone = w, len(s.Runs) == 1 && len(s.Runs[0].Files) == 1
		may := !s.alone && w.view.opts.MergeEngine != deduplicate
		for _, run := range s.Runs {
			for i := range run.Files {
				if may {
					break
				}
				// Each row of the result is a row of one file: a merge that takes columns from several would not do.
				var err error
				e := manifest.Entry{Partition: s.Part.Partition, File: run.Files[i]}
				if may, err = w.mayFile(ctx, r, &e, w.all); err != nil {
					return nil, err
				}
			}
		}
		if may {
			out = append(out, s)
		}
	}
	return out, nil
}
