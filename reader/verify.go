package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// Report is what Verify found.
type Report struct {
	Snapshot  int64    `json:"snapshot"`            // 0: the table has no snapshot
	Snapshots int64    `json:"snapshots"`           // readable snapshots
	Files     int      `json:"files"`               // live data files
	Bytes     int64    `json:"bytes"`               // their size
	FileRows  int64    `json:"fileRows"`            // rows in them, deletes and older versions included
	Rows      int64    `json:"rows"`                // rows of the table
	Levels    []int    `json:"filesPerLevel"`       // live files by level
	Changes   int64    `json:"changes"`             // changes told by the stream
	Folded    bool     `json:"folded"`              // the change stream was folded and compared with the table
	NotFolded string   `json:"notFolded,omitempty"` // why it was not
	Problems  []string `json:"problems,omitempty"`
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

func (r *Report) problem(format string, args ...any) {
	const most = 100
	if len(r.Problems) < most {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	} else if len(r.Problems) == most {
		r.Problems = append(r.Problems, "… and more")
	}
}

// VerifySpec says how deep to look.
type VerifySpec struct {
	Data bool // read the data files: row counts, key order and ranges, kinds and sequence numbers
	Fold bool // fold the change stream from the earliest snapshot and compare it with the rows of the table
}

// Verify checks the latest snapshot of the table against what is on storage. What it finds wrong with the table is in
// the report; an error means that it could not look.
func (r *Reader) Verify(ctx context.Context, spec VerifySpec) (*Report, error) {
	rep := &Report{}
	snap, err := r.meta.Latest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) {
		_, err := r.meta.LatestSchema(ctx)
		return rep, err
	}
	if err != nil {
		return nil, err
	}
	v, err := r.viewOf(ctx, Query{}, snap) // the newest schema, as that is what streams are told in
	if err != nil {
		return nil, err
	}
	rep.Snapshot = snap.ID
	if err := r.verifyChain(ctx, snap, rep, 3); err != nil {
		return nil, err
	}
	entries, err := r.meta.Live(ctx, snap, nil)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		rep.problem("snapshot %d: %v", snap.ID, err)
		return rep, nil
	}
	v.verifyEntries(snap, entries, rep)
	var hashes map[bucketKey]map[int32]struct{}
	if spec.Data {
		if hashes, err = r.keyHashes(ctx, v, snap, rep); err != nil {
			return nil, err
		}
		if err := r.verifyChangelogs(ctx, v, rep); err != nil {
			return nil, err
		}
	}
	if err := r.verifyFiles(ctx, v, entries, spec.Data, hashes, rep); err != nil {
		return nil, err
	}
	if err := r.verifyIndex(ctx, v, snap, entries, rep); err != nil {
		return nil, err
	}
	if !spec.Fold || !rep.OK() {
		return rep, nil
	}
	switch err := r.verifyFold(ctx, snap, v, rep); {
	case errors.Is(err, manifest.ErrSnapshotExpired): // by an expiry that runs beside
		rep.NotFolded = err.Error()
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil: // rows that cannot be read, in columns that the check of the files does not read
		rep.problem("%v", err)
	}
	return rep, nil
}

// verifyChain checks the record counts along the snapshots.
func (r *Reader) verifyChain(ctx context.Context, latest *manifest.Snapshot, rep *Report, tries int) error {
	first, err := r.meta.Earliest(ctx)
	if err != nil {
		return err
	}
	before := first
	rep.Snapshots = latest.ID - first.ID + 1
	for id := first.ID + 1; id <= latest.ID; id++ {
		s, err := r.meta.Snapshot(ctx, id)
		if errors.Is(err, manifest.ErrSnapshotExpired) && tries > 0 { // by an expiry that runs beside: begin again behind it
			return r.verifyChain(ctx, latest, rep, tries-1)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			rep.problem("snapshot %d: %v", id, err)
			return nil
		}
		if s.TotalRecordCount != before.TotalRecordCount+s.DeltaRecordCount {
			rep.problem("snapshot %d: totalRecordCount is %d; that of the snapshot before it, %d, and deltaRecordCount %d do not add up to it", id, s.TotalRecordCount, before.TotalRecordCount, s.DeltaRecordCount)
		}
		before = s
	}
	return nil
}

// maxLevels bounds what a damaged manifest can make of the list of levels.
const maxLevels = 1000

// verifyEntries checks what manifests alone can tell.
func (v *view) verifyEntries(snap *manifest.Snapshot, entries []manifest.Entry, rep *Report) {
	seen := map[string]bool{}
	buckets := map[bucketKey][]manifest.DataFile{}
	for i := range entries {
		e := &entries[i]
		part, err := v.part(e)
		if err != nil {
			rep.problem("%v", err)
			continue
		}
		name := part.Dir + "/" + e.File.Name
		if seen[name] {
			rep.problem("%s is referenced twice", name)
		}
		seen[name] = true
		rep.Files++
		rep.Bytes += e.File.Size
		rep.FileRows += e.File.Rows
		if e.File.Level >= maxLevels {
			rep.problem("%s is on level %d", name, e.File.Level)
			continue
		}
		for len(rep.Levels) <= e.File.Level {
			rep.Levels = append(rep.Levels, 0)
		}
		rep.Levels[e.File.Level]++
		k := bucketKey{part.Dir, e.Bucket}
		buckets[k] = append(buckets[k], e.File)
	}
	if rep.FileRows != snap.TotalRecordCount {
		rep.problem("snapshot %d: totalRecordCount is %d, its files have %d rows", snap.ID, snap.TotalRecordCount, rep.FileRows)
	}
	if v.keys == nil {
		return
	}
	for k, files := range buckets {
		if _, err := lsm.NewLevels(v.keys, v.opts.NumLevels, files); err != nil {
			rep.problem("%s: %v", k.partition, err)
		}
	}
}

// verifyFiles checks every live file: that it exists with its size and, with data, what is in it.
func (r *Reader) verifyFiles(ctx context.Context, v *view, entries []manifest.Entry, data bool, hashes map[bucketKey]map[int32]struct{}, rep *Report) error {
	found := make([]string, len(entries))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i := range entries {
		g.Go(func() error {
			if err := r.verifyFile(gctx, v, &entries[i], data, hashes); err != nil {
				if gctx.Err() != nil {
					return gctx.Err()
				}
				found[i] = err.Error()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, f := range found {
		if f != "" {
			rep.problem("%s", f)
		}
	}
	return nil
}

func (r *Reader) verifyFile(ctx context.Context, v *view, e *manifest.Entry, data bool, hashes map[bucketKey]map[int32]struct{}) (err error) {
	part, err := v.part(e)
	if err != nil {
		return err
	}
	// Only the key columns are read, as the order of the rows is theirs.
	rd, err := r.openFile(ctx, v, part.Dir, &e.File, v.schema.KeyColumns())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rd.Close()) }()
	if rd.NumRows() != e.File.Rows {
		return fmt.Errorf("%s/%s: has %d rows, the manifest says %d", part.Dir, e.File.Name, rd.NumRows(), e.File.Rows)
	}
	if !data || e.Bucket == schema.BucketPostpone { // postponed rows are in no order, and have no sequence numbers yet
		return nil
	}
	c := fileCheck{types: v.schema.Types(v.schema.KeyColumns()), hashes: hashes[bucketKey{string(e.Partition), e.Bucket}], dynamic: hashes != nil, keys: v.keys, minSeq: e.File.MinSeq, maxSeq: e.File.MaxSeq}
	for {
		rows, err := rd.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = c.add(rows)
		}
		if err != nil {
			return fmt.Errorf("%s/%s: %w", part.Dir, e.File.Name, err)
		}
	}
	if err := c.end(&e.File); err != nil {
		return fmt.Errorf("%s/%s: %w", part.Dir, e.File.Name, err)
	}
	return nil
}

// fileCheck follows the rows of one key-value file.
type fileCheck struct {
	types          []schema.Type      // of the key columns
	hashes         map[int32]struct{} // key hashes of the bucket, in a table with dynamic buckets
	dynamic        bool
	keys           *lsm.Keys
	minSeq, maxSeq int64
	rows, deletes  int64
	first, last    string
}

func (c *fileCheck) add(rows datafile.Rows) error {
	if c.keys == nil {
		return nil
	}
	vec, err := c.keys.Encode(rows.Cols, rows.N)
	if err != nil {
		return err
	}
	if c.dynamic {
		found := make([]int32, rows.N)
		if err := binrow.Hashes(found, c.types, rows.Cols, rows.N); err != nil {
			return err
		}
		for i, h := range found {
			if _, ok := c.hashes[h]; !ok {
				return fmt.Errorf("the key of row %d is not in the hash index of its bucket", c.rows+int64(i))
			}
		}
	}
	for i := range rows.N {
		key := string(c.keys.AppendCode(nil, &vec, i))
		if c.rows == 0 {
			c.first = key
		} else if key <= c.last {
			return fmt.Errorf("row %d is not above the row before it in key order", c.rows)
		}
		c.last = key
		c.rows++
		if s := rows.Seq[i]; s < c.minSeq || s > c.maxSeq {
			return fmt.Errorf("row %d has sequence number %d, the manifest says %d to %d", c.rows-1, s, c.minSeq, c.maxSeq)
		}
		if !schema.RowKind(rows.Kinds[i]).IsAdd() {
			c.deletes++
		}
	}
	return nil
}

func (c *fileCheck) end(f *manifest.DataFile) error {
	if c.keys == nil {
		return nil
	}
	if f.DeleteRows != nil && *f.DeleteRows != c.deletes {
		return fmt.Errorf("has %d deletes, the manifest says %d", c.deletes, *f.DeleteRows)
	}
	if c.rows == 0 {
		return nil
	}
	lo, err := c.keys.FromSerialized(f.MinKey)
	if err != nil {
		return err
	}
	hi, err := c.keys.FromSerialized(f.MaxKey)
	if err != nil {
		return err
	}
	if lo != c.first || hi != c.last {
		return errors.New("its first or last key is not the one in the manifest")
	}
	return nil
}

// verifyFold folds the change stream up to the snapshot and compares it with its rows, both through the newest schema. It
// reads all columns of the table, also where the stream cannot be folded.
func (r *Reader) verifyFold(ctx context.Context, snap *manifest.Snapshot, v *view, rep *Report) error {
	stream, err := r.VerifyStream(ctx, StreamSpec{Until: Until{Snapshot: snap.ID}, Every: math.MaxInt64})
	switch {
	case errors.Is(err, ErrQuery):
		rep.NotFolded = err.Error()
	case err != nil:
		return err
	case !stream.OK():
		d := stream.Differences[0]
		rep.problem("folding the change stream does not give the table: %d keys or rows differ at snapshot %d, the first is %s: %s", stream.Differ, d.Snapshot, d.Key, d.What)
	case stream.Waiting > 0:
		rep.NotFolded = "files wait in bucket-postpone, which batch reads do not see"
	default:
		rep.Folded, rep.Changes = true, stream.Changes
	}
	if rep.Folded && v.startSight() == v.batchSight() {
		rep.Rows = stream.Rows
		return nil
	}
	splits, err := r.plan(ctx, v, snap, v.batchSight(), nil)
	if err != nil {
		return err
	}
	cols, err := v.projection(nil)
	if err != nil {
		return err
	}
	for i := range splits {
		if err := r.readSplit(ctx, &splits[i], cols, func(rec arrow.RecordBatch) error { rep.Rows += rec.NumRows(); return nil }); err != nil {
			return err
		}
	}
	return nil
}
