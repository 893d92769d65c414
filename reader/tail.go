package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// Start says where a tail begins.
type Start struct {
	Mode     StartMode
	Snapshot int64     // with FromSnapshot
	Time     time.Time // with FromTime
}

// StartMode is the kind of a Start.
type StartMode int

// Where a tail can begin.
const (
	// Earliest: everything that can still be told. When the first snapshot is still there, all changes from it on; else
	// the rows of the earliest snapshot as inserts, then all changes after it. Folding the stream always gives the table.
	Earliest StartMode = iota
	// Latest: only changes after the present snapshot.
	Latest
	// FromSnapshot: the changes of snapshot Start.Snapshot and all later ones. This is how a reader resumes.
	FromSnapshot
	// FromTime: the changes of the first snapshot made at or after Start.Time and of all later ones.
	FromTime
)

// ParseStart reads "earliest", "latest", "snapshot:N" or "time:T", T as ParseTime reads it.
func ParseStart(s string) (Start, error) {
	switch s {
	case "earliest":
		return Start{Mode: Earliest}, nil
	case "latest":
		return Start{Mode: Latest}, nil
	}
	if n, ok := strings.CutPrefix(s, "snapshot:"); ok {
		if id, err := strconv.ParseInt(n, 10, 64); err == nil && id > 0 {
			return Start{Mode: FromSnapshot, Snapshot: id}, nil
		}
	}
	if text, ok := strings.CutPrefix(s, "time:"); ok {
		at, err := ParseTime(text)
		return Start{Mode: FromTime, Time: at}, err
	}
	return Start{}, fmt.Errorf("%w: start %q: use earliest, latest, time:2024-05-14T12:00:00Z or snapshot:N with N ≥ 1", ErrQuery, s)
}

// ParseTime reads a time: milliseconds since 1970, RFC 3339, or a date and maybe a time of day, in UTC.
func ParseTime(s string) (time.Time, error) {
	if millis, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(millis).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: time %q: use 2024-05-14T12:00:00Z, 2024-05-14 12:00:00 (UTC) or milliseconds since 1970", ErrQuery, s)
}

// TailSpec is what a tail reads and how it waits.
type TailSpec struct {
	From   Start
	Follow bool          // wait for new snapshots; else end at the newest one
	Wake   <-chan int64  // announces new snapshots in the writer's process; nil: only polling
	Poll   time.Duration // pause between two looks for the next snapshot; default 200 ms
	// Columns are named as in the schema at the start. A column that is renamed meanwhile is followed by its field id; when
	// one is dropped the tail ends with an error that matches ErrQuery. Nil: all, new ones too as they come.
	Columns []string
}

// Changes are rows of one snapshot in the order in which they apply. Rows of different buckets have no order.
type Changes struct {
	Snapshot int64
	Kind     manifest.CommitKind
	State    bool   // rows of a whole snapshot, told as inserts, because earlier changes are gone
	Bucket   string // folder of the bucket
	// Schema is what the rows are in: the newest schema there was when the tail began, and from the first snapshot of a
	// newer one on, that. Rows of older files are read through it.
	Schema   *schema.Schema
	Rec      arrow.RecordBatch // nil in the closing item of a snapshot
	RowKinds []schema.RowKind  // nil: all inserts
	// Complete marks the closing item of the snapshot: all its changes were delivered. A reader that has dealt with them
	// resumes at snapshot Snapshot+1.
	Complete bool
	Time     time.Time // when the snapshot was made, by the writer's clock
}

// Tail delivers changes snapshot by snapshot. A step reads one snapshot file, one delta manifest list, the manifests it
// names and the data files those name; never a listing, never the table. Snapshots that change no rows (compactions)
// yield only their closing item.
//
// OVERWRITE snapshots yield only their closing item too, as in Paimon's streaming reads: what they replace is not told,
// unless the table has the option streaming-read-overwrite.
//
// The sequence ends at the newest snapshot, or with Follow when ctx ends (no error then). When the next snapshot has
// been expired the error matches manifest.ErrSnapshotExpired.
func (r *Reader) Tail(ctx context.Context, spec TailSpec) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		l := &lens{}
		if err := l.open(ctx, r, spec); err != nil {
			yield(Changes{}, err)
			return
		}
		r.tailThrough(ctx, l, spec)(yield)
	}
}

// tailThrough is Tail from a schema on.
func (r *Reader) tailThrough(ctx context.Context, l *lens, spec TailSpec) iter.Seq2[Changes, error] {
	return func(yield func(Changes, error) bool) {
		next, err := r.begin(ctx, l, spec, yield)
		for ; err == nil; next++ {
			var snap *manifest.Snapshot
			if snap, err = r.nextSnapshot(ctx, next, spec); err == nil {
				err = r.step(ctx, l, snap, yield)
			}
		}
		stopped := spec.Follow && ctx.Err() != nil
		if !errors.Is(err, errEnd) && !stopped {
			yield(Changes{}, err)
		}
	}
}

// errEnd ends a tail without an error.
var errEnd = errors.New("end of the change stream")

// lens is what a tail sees the table through: a schema, which changes when a snapshot names a newer one, and the columns
// asked for, which are the same through all of them.
type lens struct {
	*view
	cols []int // indexes into the schema's fields
	ids  []int // field ids of the columns; nil: all there are
}

// open takes the newest schema.
func (l *lens) open(ctx context.Context, r *Reader, spec TailSpec) error {
	s, err := r.meta.LatestSchema(ctx)
	if err != nil {
		return err
	}
	if l.view, err = r.view(ctx, s.ID); err != nil {
		return err
	}
	if l.cols, err = l.projection(spec.Columns); err != nil || spec.Columns == nil {
		return err
	}
	l.ids = make([]int, len(l.cols))
	for i, c := range l.cols {
		l.ids[i] = s.Fields[c].ID
	}
	return nil
}

// follow changes to the schema of a snapshot if that is newer.
func (l *lens) follow(ctx context.Context, r *Reader, snap *manifest.Snapshot) error {
	if snap.SchemaID <= l.schema.ID {
		return nil
	}
	v, err := r.view(ctx, snap.SchemaID)
	if err != nil {
		return err
	}
	old := l.view
	l.view = v
	if l.ids == nil {
		l.cols, err = v.projection(nil)
		return err
	}
	for i, id := range l.ids {
		c, ok := v.schema.FieldByID(id)
		if !ok {
			return fmt.Errorf("%w: column %q was dropped from the table by schema %d; start the tail again with other columns",
				ErrQuery, old.schema.Fields[l.cols[i]].Name, v.schema.ID)
		}
		l.cols[i] = c
	}
	return nil
}

// begin finds the first snapshot to read, after telling the state before it where that is needed.
func (r *Reader) begin(ctx context.Context, l *lens, spec TailSpec, yield func(Changes, error) bool) (int64, error) {
	switch spec.From.Mode {
	case FromSnapshot:
		return spec.From.Snapshot, nil
	case FromTime:
		s, err := r.meta.SnapshotSince(ctx, spec.From.Time)
		if err == nil && s != nil {
			return s.ID, nil
		}
		if err != nil && !errors.Is(err, manifest.ErrNoSnapshot) {
			return 0, err
		}
		fallthrough // nothing as young yet: what comes next will be
	case Latest:
		s, err := r.meta.Latest(ctx)
		if errors.Is(err, manifest.ErrNoSnapshot) {
			return 1, nil
		}
		if err != nil {
			return 0, err
		}
		return s.ID + 1, nil
	}
	s, err := r.meta.Earliest(ctx)
	if errors.Is(err, manifest.ErrNoSnapshot) || err == nil && s.ID == 1 {
		return 1, nil
	}
	if err != nil {
		return 0, err
	}
	return s.ID + 1, r.tellState(ctx, l, s, yield)
}

// tellState tells the rows of a snapshot as inserts.
func (r *Reader) tellState(ctx context.Context, l *lens, s *manifest.Snapshot, yield func(Changes, error) bool) error {
	if err := l.follow(ctx, r, s); err != nil {
		return err
	}
	base := Changes{Snapshot: s.ID, Kind: s.CommitKind, State: true, Schema: l.schema, Time: time.UnixMilli(s.TimeMillis)}
	splits, err := r.plan(ctx, l.view, s, l.startSight(), nil)
	if err != nil {
		return err
	}
	for i := range splits {
		base.Bucket = splits[i].Part.Dir
		err = r.readSplit(ctx, &splits[i], l.cols, func(rec arrow.RecordBatch) error {
			c := base
			c.Rec = rec
			if !yield(c, nil) {
				return errEnd
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if o := l.opts; o.Bucket == schema.BucketPostpone && (o.ChangelogProducer == "none" || o.ChangelogProducer == "input") {
		// Rows that no compaction has given a bucket yet are told as they were written, after the others.
		waiting, err := r.meta.Live(ctx, s, func(e *manifest.Entry) bool { return e.Bucket == schema.BucketPostpone })
		if err == nil {
			err = teller{r: r, v: l.view, cols: l.cols, yield: yield}.files(ctx, waiting, base)
		}
		if err != nil {
			return err
		}
	}
	base.Bucket, base.Complete = "", true
	if !yield(base, nil) {
		return errEnd
	}
	return nil
}

// nextSnapshot reads a snapshot, waiting for it with Follow.
func (r *Reader) nextSnapshot(ctx context.Context, id int64, spec TailSpec) (*manifest.Snapshot, error) {
	poll := spec.Poll
	if poll <= 0 {
		poll = 200 * time.Millisecond
	}
	wake := spec.Wake
	for {
		s, err := r.meta.Snapshot(ctx, id)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, storage.ErrNotFound) || errors.Is(err, manifest.ErrSnapshotExpired) {
			return nil, err
		}
		if !spec.Follow {
			return nil, errEnd
		}
		// A wake-up that came before the failed read left its value in the channel, so none is missed.
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case _, open := <-wake:
			if !open {
				wake = nil // the writer is gone; go on by polling
			}
		case <-r.env.After(poll):
		}
	}
}

// step delivers the changes of one snapshot.
func (r *Reader) step(ctx context.Context, l *lens, snap *manifest.Snapshot, yield func(Changes, error) bool) error {
	if err := l.follow(ctx, r, snap); err != nil {
		return fmt.Errorf("changes of snapshot %d: %w", snap.ID, err)
	}
	base := Changes{Snapshot: snap.ID, Kind: snap.CommitKind, Schema: l.schema, Time: time.UnixMilli(snap.TimeMillis)}
	if err := r.deliver(ctx, l, snap, base, yield); err != nil {
		return fmt.Errorf("changes of snapshot %d: %w", snap.ID, err)
	}
	base.Complete = true
	if !yield(base, nil) {
		return errEnd
	}
	return nil
}

// changeFiles names the files that tell the changes of a snapshot: those of its changelog, in a table that has one, else
// the files that an append added. Nothing else is told (Paimon's DataTableStreamScan).
func (r *Reader) changeFiles(ctx context.Context, v *view, snap *manifest.Snapshot) ([]manifest.Entry, error) {
	read := r.meta.Delta
	if v.opts.ChangelogProducer != "none" {
		if snap.ChangelogManifestList == nil {
			return nil, nil
		}
		read = r.meta.Changelog
	} else if snap.CommitKind != manifest.Append {
		return nil, nil
	}
	entries, err := read(ctx, snap)
	if err != nil {
		return nil, err
	}
	return addedInOrder(entries), nil
}

// addedInOrder gives the files that entries add, within a bucket in the order they were written.
func addedInOrder(entries []manifest.Entry) []manifest.Entry {
	entries = slices.DeleteFunc(entries, func(e manifest.Entry) bool { return e.Kind != manifest.Add })
	slices.SortStableFunc(entries, func(a, b manifest.Entry) int {
		return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), strings.Compare(string(a.Partition), string(b.Partition)), cmp.Compare(a.File.MinSeq, b.File.MinSeq))
	})
	return entries
}

func (r *Reader) deliver(ctx context.Context, l *lens, snap *manifest.Snapshot, base Changes, yield func(Changes, error) bool) error {
	v, cols := l.view, l.cols
	if snap.CommitKind == manifest.Overwrite && v.opts.StreamingReadOverwrite {
		return r.deliverOverwrite(ctx, v, snap, cols, base, yield)
	}
	entries, err := r.changeFiles(ctx, v, snap)
	if err != nil {
		return err
	}
	return teller{r: r, v: v, cols: cols, yield: yield}.files(ctx, entries, base)
}

// deliverOverwrite tells what an OVERWRITE snapshot replaced: the rows it removed, taken back, then those it added. Of a
// table without key only these are told (`FollowUpScanner.getOverwriteChangesPlan`).
func (r *Reader) deliverOverwrite(ctx context.Context, v *view, snap *manifest.Snapshot, cols []int, base Changes, yield func(Changes, error) bool) error {
	entries, err := r.meta.Delta(ctx, snap)
	if err != nil {
		return err
	}
	merged := *v
	merged.opts.DeletionVectors = false // merging all versions needs no vectors
	for _, kind := range []manifest.EntryKind{manifest.Remove, manifest.Add} {
		if kind == manifest.Remove && v.keys == nil {
			continue
		}
		var some []manifest.Entry
		for i := range entries {
			if entries[i].Kind == kind {
				some = append(some, entries[i])
			}
		}
		splits, err := merged.splits(snap, some)
		if err != nil {
			return err
		}
		for i := range splits {
			base.Bucket = splits[i].Part.Dir
			if err := r.tellRows(ctx, &splits[i], cols, kind == manifest.Remove, base, yield); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellRows tells the rows of a split, taken back if reversed.
func (r *Reader) tellRows(ctx context.Context, s *Split, cols []int, reversed bool, base Changes, yield func(Changes, error) bool) error {
	return r.readRows(ctx, s, cols, func(read *columns, rows datafile.Rows) error {
		c := base
		var err error
		if c.Rec, err = read.batch(rows); err != nil || c.Rec == nil {
			return err
		}
		if c.RowKinds = rowKinds(read.kinds(rows.Kinds)); reversed {
			c.RowKinds = reverse(c.RowKinds, int(c.Rec.NumRows()))
		}
		if !yield(c, nil) {
			return errEnd
		}
		return nil
	})
}

// reverse turns inserts into deletes and rows after an update into rows before one, and the other way round; nil are n
// inserts.
func reverse(kinds []schema.RowKind, n int) []schema.RowKind {
	out := make([]schema.RowKind, n)
	for i := range out {
		kind := schema.Insert
		if kinds != nil {
			kind = kinds[i]
		}
		out[i] = [...]schema.RowKind{
			schema.Insert: schema.Delete, schema.UpdateBefore: schema.UpdateAfter,
			schema.UpdateAfter: schema.UpdateBefore, schema.Delete: schema.Insert,
		}[kind]
	}
	return out
}

// drain gives all rows of a file to f; it ends with errEnd when f says stop.
func drain(rd interface{ Next() (datafile.Rows, error) }, f func(datafile.Rows) bool) error {
	for {
		rows, err := rd.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !f(rows) {
			return errEnd
		}
	}
}

// rowKinds copies the kind column; all inserts are nil.
func rowKinds(kinds []int8) []schema.RowKind {
	if !slices.ContainsFunc(kinds, func(k int8) bool { return k != int8(schema.Insert) }) {
		return nil
	}
	out := make([]schema.RowKind, len(kinds))
	for i, k := range kinds {
		out[i] = schema.RowKind(k)
	}
	return out
}
