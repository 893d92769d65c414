package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
)

// Query says what to scan. At most one of Snapshot, Tag, At and Watermark may be given; without them it is the latest
// snapshot.
type Query struct {
	Snapshot  int64     // by number
	Tag       string    // by a tag, which may have outlived its snapshot file
	At        time.Time // the latest snapshot made at or before a time
	Watermark *int64    // the first snapshot whose watermark is at or after one, in milliseconds

	Columns []string // nil: all, in schema order
	// Where, when not empty, is a condition: only rows for which it is true are read. It is a subset of SQL expressions
	// on the columns of the snapshot's schema (package predicate), such as
	// "price >= 10.5 AND (kind IN ('a', 'b') OR name LIKE 'x%')". A mistake in it is an ErrQuery.
	Where string
	// Parallel is how many splits are read, and how many runs of each are decoded, at once. With 0 or 1 the order of the
	// rows is the same in every scan.
	Parallel int
}

// Split is a part of a snapshot that can be read on its own: for a table with a primary key a section of a bucket
// whose keys no other split holds, else one file.
type Split struct {
	Part lsm.Part
	Runs []lsm.SortedRun // newest first does not matter: sequence numbers decide
	view *view
	snap *manifest.Snapshot
	dead map[string]vectorAt // deletion vectors of the bucket's files
	// where, when not nil, chooses rows. alone: no file besides the split's only one may have the keys it has.
	where *where
	alone bool
	// slots, when not nil, has the runs read ahead, as many at once as it holds.
	slots chan struct{}
}

// Snapshot is the snapshot the split belongs to.
func (s Split) Snapshot() *manifest.Snapshot { return s.snap }

// Scan reads the rows of a snapshot: merged by key, without deleted ones. A table without snapshots has no rows.
// The schema is the newest one when the latest snapshot is asked for, else that of the snapshot (paimon-format §3.2).
func (r *Reader) Scan(ctx context.Context, q Query) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		splits, err := r.Plan(ctx, q)
		if err == nil && len(splits) > 0 {
			defer r.meta.Hold(splits[0].snap.ID)()
			var cols []int
			if cols, err = splits[0].view.projection(q.Columns); err == nil {
				if q.Parallel > 1 {
					readAhead(splits, q.Parallel)
					err = r.scanParallel(ctx, splits, cols, q.Parallel, yield)
				} else {
					err = r.scanInOrder(ctx, splits, cols, yield)
				}
			}
		}
		if err != nil && !errors.Is(err, errEnd) {
			yield(nil, err)
		}
	}
}

// Plan finds the splits of a snapshot.
func (r *Reader) Plan(ctx context.Context, q Query) ([]Split, error) {
	snap, err := r.snapshot(ctx, q)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		return nil, r.checkEmpty(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	v, err := r.viewOf(ctx, q, snap)
	if err != nil {
		return nil, err
	}
	if _, err := v.projection(q.Columns); err != nil {
		return nil, err
	}
	w, err := v.where(q.Where)
	if err != nil {
		return nil, err
	}
	return r.plan(ctx, v, snap, v.batchSight(), w)
}

// viewOf chooses the schema of a query: the newest one for the present rows, also when nothing was committed since it
// was made; that of the snapshot for older ones.
func (r *Reader) viewOf(ctx context.Context, q Query, snap *manifest.Snapshot) (*view, error) {
	if q.travels() > 0 {
		return r.view(ctx, snap.SchemaID)
	}
	s, err := r.meta.LatestSchema(ctx)
	if err != nil {
		return nil, err
	}
	return r.view(ctx, s.ID)
}

// plan finds the splits of those files of a snapshot that are seen and w, when not nil, does not rule out.
func (r *Reader) plan(ctx context.Context, v *view, snap *manifest.Snapshot, sees sight, w *where) ([]Split, error) {
	entries, err := r.find(ctx, snap, sees, w)
	if err != nil {
		return nil, err
	}
	dead, err := r.vectors(ctx, v, snap)
	if err != nil {
		return nil, err
	}
	splits, err := v.splits(snap, entries)
	if err == nil && w != nil {
		splits, err = w.splits(ctx, r, splits)
	}
	for i := range splits {
		p := &splits[i].Part
		splits[i].dead = dead[bucketKey{string(p.Partition), p.Bucket}]
	}
	return splits, err
}

// find gives those files of a snapshot that are seen and w, when not nil, does not rule out.
func (r *Reader) find(ctx context.Context, snap *manifest.Snapshot, sees sight, w *where) ([]manifest.Entry, error) {
	if w == nil {
		return r.meta.Find(ctx, snap, sees.filter())
	}
	if err := w.learnTotals(ctx, r); err != nil {
		return nil, err
	}
	var failed error
	entries, err := r.meta.Find(ctx, snap, w.filter(ctx, r, sees, &failed))
	if w.buckets != nil && w.buckets.surprised { // manifests may have been left out that should not
		w.buckets.totals, failed = nil, nil
		entries, err = r.meta.Find(ctx, snap, w.filter(ctx, r, sees, &failed))
	}
	return entries, errors.Join(err, failed)
}

// checkEmpty holds a query against a table without snapshots.
func (r *Reader) checkEmpty(ctx context.Context, q Query) error {
	s, err := r.meta.LatestSchema(ctx)
	if err != nil {
		return err
	}
	v, err := r.view(ctx, s.ID)
	if err != nil {
		return err
	}
	if _, err = v.projection(q.Columns); err == nil {
		_, err = v.where(q.Where)
	}
	return err
}

type bucketKey struct {
	partition string
	bucket    int
}

func (v *view) splits(snap *manifest.Snapshot, entries []manifest.Entry) ([]Split, error) {
	files := map[bucketKey][]manifest.DataFile{}
	parts := map[bucketKey]lsm.Part{}
	var order []bucketKey
	for i := range entries {
		e := &entries[i]
		k := bucketKey{string(e.Partition), e.Bucket}
		if _, ok := parts[k]; !ok {
			p, err := v.part(e)
			if err != nil {
				return nil, err
			}
			parts[k] = p
			order = append(order, k)
		}
		files[k] = append(files[k], e.File)
	}
	slices.SortFunc(order, bucketKey.compare)
	var out []Split
	for _, k := range order {
		sections, err := v.sections(files[k])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", parts[k].Dir, err)
		}
		for _, runs := range sections {
			out = append(out, Split{Part: parts[k], Runs: runs, view: v, snap: snap})
		}
	}
	return out, nil
}

// sections cuts the files of a bucket into parts that need no merging with each other.
func (v *view) sections(files []manifest.DataFile) ([][]lsm.SortedRun, error) {
	if !v.unmerged(files) {
		return lsm.Sections(v.keys, files)
	}
	slices.SortStableFunc(files, func(a, b manifest.DataFile) int { return cmp.Compare(a.MinSeq, b.MinSeq) })
	out := make([][]lsm.SortedRun, len(files))
	for i := range files {
		out[i] = []lsm.SortedRun{{Level: files[i].Level, Files: files[i : i+1]}}
	}
	return out, nil
}

func (r *Reader) scanInOrder(ctx context.Context, splits []Split, cols []int, yield func(arrow.RecordBatch, error) bool) error {
	for i := range splits {
		err := r.readSplit(ctx, &splits[i], cols, func(rec arrow.RecordBatch) error {
			if !yield(rec, nil) {
				return errEnd
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readAhead lets runs that are merged be decoded while the merge works, parallel of them at once.
func readAhead(splits []Split, parallel int) {
	slots := make(chan struct{}, parallel)
	for i := range splits {
		if len(splits[i].Runs) > 1 {
			splits[i].slots = slots
		}
	}
}

// scanParallel reads several splits at once; the batches come as they are ready. All goroutines have ended when it returns.
func (r *Reader) scanParallel(ctx context.Context, splits []Split, cols []int, parallel int, yield func(arrow.RecordBatch, error) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := make(chan arrow.RecordBatch, parallel)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	done := make(chan error, 1)
	go func() {
		for i := range splits {
			g.Go(func() error {
				return r.readSplit(gctx, &splits[i], cols, func(rec arrow.RecordBatch) error {
					select {
					case out <- rec:
						return nil
					case <-gctx.Done():
						return gctx.Err()
					}
				})
			})
		}
		done <- g.Wait()
		close(out)
	}()
	stopped := false
	for rec := range out {
		if !stopped && !yield(rec, nil) {
			stopped = true
			cancel() // go on receiving until the readers have seen it
		}
	}
	if err := <-done; err != nil && !stopped {
		return err
	}
	return nil
}

// ReadSplit reads the rows of one split.
func (r *Reader) ReadSplit(ctx context.Context, s Split, columns []string) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		cols, err := s.view.projection(columns)
		if err == nil {
			err = r.scanInOrder(ctx, []Split{s}, cols, yield)
		}
		if err != nil && !errors.Is(err, errEnd) {
			yield(nil, err)
		}
	}
}

// readSplit gives the rows of a split to f, batch by batch.
func (r *Reader) readSplit(ctx context.Context, s *Split, cols []int, f func(arrow.RecordBatch) error) error {
	return r.readRows(ctx, s, cols, func(c *columns, rows datafile.Rows) error {
		rec, err := c.batch(rows)
		if err != nil || rec == nil {
			return err
		}
		return f(rec)
	})
}

// readRows is readSplit with the kinds of the rows and before the condition: c makes batches of them.
func (r *Reader) readRows(ctx context.Context, s *Split, cols []int, f func(c *columns, rows datafile.Rows) error) error {
	c, err := s.columns(cols)
	if err != nil {
		return err
	}
	spec, err := s.spec(c)
	if err != nil {
		return err
	}
	give := func(rows datafile.Rows) error { return f(c, rows) }
	if s.view.keys == nil {
		return r.readPlain(ctx, s, spec, give)
	}
	runs := make([]lsm.Run, len(s.Runs))
	for i := range s.Runs {
		run := &runReader{r: r, v: s.view, dir: s.Part.Dir, files: s.Runs[i].Files, spec: spec, dead: s.dead}
		if runs[i] = run; s.slots != nil {
			runs[i] = &aheadRun{run: run, slots: s.slots}
		}
	}
	m := lsm.Merge(lsm.MergeSpec{Schema: s.view.schema, KeyCols: c.keys, DropDeletes: true, Rule: s.view.rule, Cols: c.read}, runs)
	for {
		rows, err := m.Next(ctx)
		if err == io.EOF {
			return m.Close()
		}
		if err == nil && rows.N > 0 {
			err = give(rows)
		}
		if err != nil {
			return errors.Join(err, m.Close())
		}
	}
}

func (r *Reader) readPlain(ctx context.Context, s *Split, spec fileSpec, f func(datafile.Rows) error) error {
	for _, run := range s.Runs {
		for i := range run.Files {
			rd, err := r.openRows(ctx, s.view, s.Part.Dir, &run.Files[i], spec, s.dead)
			if err != nil {
				return err
			}
			if rd == nil {
				continue
			}
			var failed error
			err = drain(rd, func(rows datafile.Rows) bool {
				failed = f(rows)
				return failed == nil
			})
			if failed != nil {
				err = failed
			}
			if err = errors.Join(err, rd.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// runReader reads the files of one sorted run, one after the other; it holds at most one open.
type runReader struct {
	r     *Reader
	v     *view
	dir   string
	files []manifest.DataFile
	spec  fileSpec
	dead  map[string]vectorAt // deletion vectors of the files
	open  *rowFile
	level int // of the file that was opened last
}

// Level implements lsm.Leveled.
func (x *runReader) Level() int { return x.level }

// Next gives the next rows of the run; io.EOF at its end.
func (x *runReader) Next(ctx context.Context) (datafile.Rows, error) {
	for {
		if x.open == nil {
			if len(x.files) == 0 {
				return datafile.Rows{}, io.EOF
			}
			var err error
			if x.open, err = x.r.openRows(ctx, x.v, x.dir, &x.files[0], x.spec, x.dead); err != nil {
				return datafile.Rows{}, err
			}
			if x.level, x.files = x.files[0].Level, x.files[1:]; x.open == nil {
				continue
			}
		}
		rows, err := x.open.Next()
		if err != io.EOF {
			return rows, err
		}
		if err := x.Close(); err != nil {
			return datafile.Rows{}, err
		}
	}
}

// Close closes the open file, if there is one.
func (x *runReader) Close() error {
	if x.open == nil {
		return nil
	}
	rd := x.open
	x.open = nil
	return rd.Close()
}
