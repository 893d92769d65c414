package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// teller tells rows of files as they are, but for files and pages that have nothing to tell.
func (t *tail) teller(ctx context.Context) teller {
	l := t.l
	out := teller{r: t.r, v: l.view, cols: l.read, yield: t.tell}
	share := t.spec.Share
	if l.w == nil && share.Of <= 1 {
		return out
	}
	if l.w != nil {
		out.only = l.w.tells(l.screen.exact)
	}
	out.keep = func(e *manifest.Entry) (bool, error) {
		if !share.has(l.view, e.Bucket, e.File.Name) {
			return false, nil
		}
		if l.w == nil {
			return true, nil
		}
		if l.w.buckets != nil && !l.w.buckets.may(e) {
			return false, nil
		}
		return l.w.mayFile(ctx, t.r, e, out.only)
	}
	return out
}

// step delivers the changes of one snapshot.
func (t *tail) step(ctx context.Context, snap *manifest.Snapshot) error {
	defer t.r.meta.Hold(snap.ID)()
	err := t.follow(ctx, snap, false)
	base := changesOf(snap, t.l.view)
	if err == nil {
		err = t.deliver(ctx, snap, base)
	}
	if t.failed != nil {
		err = t.failed
	}
	if err == nil {
		err = t.close(base)
	}
	if err != nil && !errors.Is(err, errEnd) {
		return fmt.Errorf("changes of snapshot %d: %w", snap.ID, err)
	}
	return err
}

// follow looks through the schema of a snapshot, and tells it if that is a newer one. state: the rows of the whole snapshot
// come behind it, not its changes.
func (t *tail) follow(ctx context.Context, snap *manifest.Snapshot, state bool) error {
	old := t.l.schema
	changed, err := t.l.follow(ctx, t.r, snap)
	if err != nil || !changed {
		return err
	}
	c := changesOf(snap, t.l.view)
	c.State, c.Event = state, &Event{Schema: old}
	if !t.pass(c) {
		return errEnd
	}
	return nil
}

// fixedShares reports whether a row is of one share for as long as it lives.
func (t *tail) fixedShares() bool {
	b := t.l.opts.Bucket
	return b > 0 || t.l.view.keys != nil && b != schema.BucketPostpone
}

// state tells the rows of a snapshot as inserts.
func (t *tail) state(ctx context.Context, s *manifest.Snapshot) error {
	defer t.r.meta.Hold(s.ID)()
	if err := t.follow(ctx, s, true); err != nil {
		return err
	}
	l := t.l
	if t.spec.Share.Of > 1 && !t.fixedShares() {
		return fmt.Errorf("%w: the rows of a whole snapshot cannot be shared in this table: compaction puts them into other files, or buckets, than readers of the other shares see. Have one reader tell them, or begin with changes (snapshot:N)", ErrQuery)
	}
	base := changesOf(s, l.view)
	base.State = true
	sees := l.startSight()
	if l.images != nil {
		sees = l.batchSight()
	}
	splits, err := t.r.plan(ctx, l.view, s, sees, l.w)
	if err != nil {
		return err
	}
	for i := range splits {
		if !t.spec.Share.has(l.view, splits[i].Part.Bucket, splits[i].Runs[0].Files[0].Name) {
			continue
		}
		base.Bucket = splits[i].Part.Dir
		err = t.r.readSplit(ctx, &splits[i], l.cols, func(rec arrow.RecordBatch) error {
			c := base
			if c.Rec = rec; !t.place(c, nil) {
				return errEnd
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if o := l.opts; l.images == nil && o.Bucket == schema.BucketPostpone && (o.ChangelogProducer == "none" || o.ChangelogProducer == "input") {
		// Rows that no compaction has given a bucket yet are told as they were written, after the others.
		waiting, err := t.r.meta.Live(ctx, s, func(e *manifest.Entry) bool { return e.Bucket == schema.BucketPostpone })
		if err == nil {
			err = t.teller(ctx).files(ctx, waiting, base)
		}
		if t.failed != nil {
			err = t.failed
		}
		if err != nil {
			return err
		}
	}
	if l.images != nil {
		l.images.last = s
	}
	return t.close(base)
}

// deliver tells the rows of a snapshot.
func (t *tail) deliver(ctx context.Context, snap *manifest.Snapshot, base Changes) error {
	if t.spec.Order == Arrival {
		if err := t.l.arrives(t.l.images != nil); err != nil {
			return err
		}
	}
	if t.l.images != nil {
		return t.l.images.deliver(ctx, t, snap, base)
	}
	if snap.CommitKind == manifest.Overwrite && t.l.opts.StreamingReadOverwrite {
		return t.deliverOverwrite(ctx, snap, base)
	}
	producer, err := t.producer(ctx, snap)
	if err != nil {
		return err
	}
	entries, err := t.r.changeFiles(ctx, producer, snap)
	if err != nil {
		return err
	}
	if t.spec.Order == Arrival {
		return t.arrived(ctx, snap, entries, base)
	}
	return t.teller(ctx).files(ctx, entries, base)
}

// producer is the changelog producer that the table had when a snapshot was made: it says where that one's changes are, and
// whether they have the rows before them. A condition that relies on these cannot be asked of changes that have none.
func (t *tail) producer(ctx context.Context, snap *manifest.Snapshot) (string, error) {
	own := t.l.view
	if snap.SchemaID != own.schema.ID {
		var err error
		if own, err = t.r.view(ctx, snap.SchemaID); err != nil {
			return "", err
		}
	}
	if (t.spec.BeforeImage || t.l.screen != nil && t.l.screen.exact) && own.keys != nil && !own.opts.TellsBefore() {
		return "", fmt.Errorf("%w: the table had changelog-producer %s at snapshot %d, so that its changes have no rows before them, which is asked for; begin after the snapshots that have none, or with --from full", ErrQuery, own.opts.ChangelogProducer, snap.ID)
	}
	if t.spec.Order == Arrival {
		if err := own.arrives(false); err != nil {
			return "", fmt.Errorf("at snapshot %d: %w", snap.ID, err)
		}
	}
	return own.opts.ChangelogProducer, nil
}

// changeFiles names the files that tell the changes of a snapshot: those of its changelog, in a table that has one, else
// the files that an append added. Nothing else is told (Paimon's DataTableStreamScan).
func (r *Reader) changeFiles(ctx context.Context, producer string, snap *manifest.Snapshot) ([]manifest.Entry, error) {
	read := r.meta.Delta
	if producer != schema.ProducerNone {
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

// deliverOverwrite tells what an OVERWRITE snapshot replaced: the rows it removed, taken back, then those it added. Of a
// table without key only these are told (`FollowUpScanner.getOverwriteChangesPlan`).
func (t *tail) deliverOverwrite(ctx context.Context, snap *manifest.Snapshot, base Changes) error {
	v := t.l.view
	entries, err := t.r.meta.Delta(ctx, snap)
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
			if e := &entries[i]; e.Kind == kind && t.spec.Share.has(v, e.Bucket, e.File.Name) {
				some = append(some, entries[i])
			}
		}
		splits, err := merged.splits(snap, some)
		if err == nil && t.l.w != nil {
			splits, err = t.l.w.splits(ctx, t.r, splits)
		}
		if err != nil {
			return err
		}
		for i := range splits {
			base.Bucket = splits[i].Part.Dir
			if err := t.r.tellRows(ctx, &splits[i], t.l.cols, kind == manifest.Remove, base, t.place); err != nil {
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
