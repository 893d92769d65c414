package reader

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// listener hears a replay of a stream.
type listener interface {
	void(base *manifest.Snapshot)   // rows heard before are void; those of a snapshot follow
	hear(s *shape, x *hashed) error // rows
	// end: all changes of a snapshot were heard. gone: it has expired, so that they cannot be held against its rows.
	end(ctx context.Context, s *shape, x *manifest.Snapshot, gone bool) error
}

// shape is how rows of a stream are folded, and what of the table they must give.
type shape struct {
	v     *view
	cols  []int // all
	keyAt []int // nil: the table has no key
	rowAt []int // columns that count
	share Share
	// Of the present snapshot: which files have what the stream told, and whether each change has the row before it.
	sees  sight
	exact bool
}

func (c *streamCheck) shape(l *lens) (*shape, error) {
	if err := l.view.foldable(c.spec); err != nil {
		return nil, err
	}
	s := &shape{v: l.view, cols: l.cols, share: c.spec.Share}
	if l.keys != nil {
		s.keyAt = append(l.schema.PartitionColumns(), l.schema.KeyColumns()...)
		if l.images != nil && anywhere(l.view) { // they tell where a row was and is
			s.keyAt = primaryKey(l.schema)
		}
	}
	for i := range l.schema.Fields {
		if l.images == nil && l.opts.TellsBefore() && slices.Contains(l.opts.Changelog.IgnoreFields, l.schema.Fields[i].Name) {
			continue // the stream may tell an older value
		}
		s.rowAt = append(s.rowAt, i)
	}
	return s, nil
}

// primaryKey gives the columns of the primary key, in its order.
func primaryKey(s *schema.Schema) (out []int) {
	for _, name := range s.PrimaryKeys {
		at, _ := s.Field(name)
		out = append(out, at)
	}
	return out
}

// at has the shape be that of a snapshot whose own schema is own.
func (s *shape) at(l *lens, own *view) {
	s.sees, s.exact = l.batchSight(), true
	if l.images == nil {
		of := *l.view
		of.opts.ChangelogProducer = own.opts.ChangelogProducer
		s.sees, s.exact = of.startSight(), l.keys != nil && own.opts.TellsBefore()
	}
}

// hashed are rows as they are folded. Of a table without key the row is the key.
type hashed struct {
	Changes
	keys, rows []uint64
}

func (s *shape) hash(x *hashed) {
	n := int(x.Rec.NumRows())
	pick := func(at []int) []arrow.Array {
		out := make([]arrow.Array, len(at))
		for i, c := range at {
			out[i] = x.Rec.Column(c)
		}
		return out
	}
	x.rows = hashRows(x.rows, pick(s.rowAt), n)
	if s.keyAt == nil {
		x.keys = append(x.keys[:0], x.rows...)
	} else {
		x.keys = hashRows(x.keys, pick(s.keyAt), n)
	}
	for i, k := range x.keys {
		x.keys[i] = max(1, k) // 0 is an empty place
	}
}

func (x *hashed) kind(i int) schema.RowKind {
	if x.RowKinds == nil {
		return schema.Insert
	}
	return x.RowKinds[i]
}

// replay gives a stream to a listener: from the rows of a snapshot on, or from where the stream begins.
func (c *streamCheck) replay(ctx context.Context, to listener, base *manifest.Snapshot, until Until) error {
	spec := TailSpec{From: c.spec.From, Until: until, Share: c.spec.Share, BeforeImage: c.spec.BeforeImage}
	l := &lens{}
	if err := l.open(ctx, c.r, spec); err != nil {
		return err
	}
	s, err := c.shape(l)
	if err != nil {
		return err
	}
	p := &replaying{r: c.r, l: l, s: s, to: to, schema: -1}
	if base != nil {
		spec.From = Start{Mode: FromSnapshot, Snapshot: base.ID + 1}
		if err := p.turn(ctx, base); err != nil {
			return err
		}
		if err := p.whole(ctx); err != nil {
			return c.r.gapOr(ctx, base.ID, time.Time{}, l.images == nil, err)
		}
	}
	for item, err := range c.r.tailThrough(ctx, l, spec) {
		if err == nil {
			err = c.r.gapOr(ctx, item.Snapshot, time.Time{}, l.images == nil, p.item(ctx, item)) // expired beside us, after it was told
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// replaying is a replay under way.
type replaying struct {
	r  *Reader
	l  *lens
	s  *shape
	to listener
	x  hashed

	snap   *manifest.Snapshot // the present one
	own    *view              // in whose schema it was made
	schema int64              // of own
	gone   bool               // it has expired: of it there is a long-lived changelog only
	untold bool               // its changes are not told, or not as those before
	blind  bool               // so were those of an expired one, and its rows are gone
}

// turn turns to a snapshot.
func (p *replaying) turn(ctx context.Context, snap *manifest.Snapshot) (err error) {
	before := p.own
	p.snap = snap
	if snap.SchemaID != p.schema {
		if p.own, err = p.r.view(ctx, snap.SchemaID); err != nil {
			return err
		}
		p.schema = snap.SchemaID
		p.s.at(p.l, p.own)
	}
	o := &p.l.opts
	replaced := snap.CommitKind == manifest.Overwrite && (p.s.keyAt == nil || !o.StreamingReadOverwrite || p.s.exact)
	changed := before != nil && before.opts.ChangelogProducer != p.own.opts.ChangelogProducer
	p.untold = p.l.images == nil && (replaced || changed)
	return nil
}

func (p *replaying) item(ctx context.Context, item Changes) error {
	if item.Event != nil {
		return errNewSchema
	}
	if p.snap == nil || p.snap.ID != item.Snapshot {
		snap, err := p.r.meta.Snapshot(ctx, item.Snapshot)
		if p.gone = errors.Is(err, manifest.ErrSnapshotExpired); p.gone {
			snap, err = p.r.meta.Told(ctx, item.Snapshot)
		}
		if err == nil {
			err = p.turn(ctx, snap)
		}
		if err != nil {
			return err
		}
		p.untold = !item.State && (p.untold || p.blind)
	}
	if item.Rec != nil && !p.untold {
		p.x.Changes = item
		p.s.hash(&p.x)
		if err := p.to.hear(p.s, &p.x); err != nil {
			return err
		}
	}
	if !item.Complete {
		return nil
	}
	if p.blind = p.untold && p.gone; p.untold && !p.gone {
		if err := p.whole(ctx); err != nil {
			return err
		}
	}
	return p.to.end(ctx, p.s, p.snap, p.gone)
}

// whole tells the rows of the present snapshot, in the place of all that was told.
func (p *replaying) whole(ctx context.Context) error {
	p.to.void(p.snap)
	return p.r.scanShape(ctx, p.s, p.snap, func(s *Split, rec arrow.RecordBatch) error {
		p.x.Changes = changesOf(p.snap, p.s.v)
		p.x.State, p.x.Bucket, p.x.Rec = true, s.Part.Dir, rec
		p.s.hash(&p.x)
		return p.to.hear(p.s, &p.x)
	})
}

// splitsOf plans a scan of what a stream has told up to a snapshot.
func (r *Reader) splitsOf(ctx context.Context, s *shape, snap *manifest.Snapshot) ([]Split, error) {
	splits, err := r.plan(ctx, s.v, snap, s.sees, nil)
	return slices.DeleteFunc(splits, func(x Split) bool {
		return !s.share.has(s.v, x.Part.Bucket, x.Runs[0].Files[0].Name)
	}), err
}

// scanShape gives all rows that a stream has told up to a snapshot, as a scan has them.
func (r *Reader) scanShape(ctx context.Context, s *shape, snap *manifest.Snapshot, f func(*Split, arrow.RecordBatch) error) error {
	defer r.meta.Hold(snap.ID)()
	splits, err := r.splitsOf(ctx, s, snap)
	if err != nil {
		return err
	}
	for i := range splits {
		if err := r.readSplit(ctx, &splits[i], s.cols, func(rec arrow.RecordBatch) error { return f(&splits[i], rec) }); err != nil {
			return err
		}
	}
	return nil
}
