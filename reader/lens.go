package reader

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

// lens is what a tail sees the table through: a schema, which changes when a snapshot names a newer one, the columns
// asked for and the condition, which follow their fields through all of them.
type lens struct {
	*view
	cols []int // asked for: indexes into the schema's fields
	ids  []int // field ids of the columns; nil: all there are

	where  string         // the condition; "": none
	names  *schema.Schema // in whose names it is written
	w      *where         // nil: none
	read   []int          // cols, and behind them what the condition and the keys need
	screen *screen        // nil: no condition

	images *imager // nil: changes are told as they were written
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
	if l.cols, err = l.projection(spec.Columns); err != nil {
		return err
	}
	if err := checkConsumer(spec.Consumer); err != nil {
		return err
	}
	if spec.Acks != nil && spec.Consumer == "" {
		return fmt.Errorf("%w: there is no consumer whose reader could say what it has dealt with", ErrQuery)
	}
	if spec.BeforeImage {
		if l.images, err = newImager(r, l.view, spec.Lookups); err != nil {
			return err
		}
	}
	if spec.Current && l.keys != nil && l.images == nil && !l.opts.TellsBefore() {
		if err := l.newestWins(); err != nil {
			return fmt.Errorf("%w: the changes of this table do not tell the rows that come of them: %w", ErrQuery, err)
		}
	}
	if spec.Order == Arrival {
		if err := l.arrives(spec.BeforeImage); err != nil {
			return err
		}
	}
	if spec.Columns != nil {
		l.ids = make([]int, len(l.cols))
		for i, c := range l.cols {
			l.ids[i] = s.Fields[c].ID
		}
	}
	l.where, l.names = spec.Where, l.schema
	return l.bind()
}

// checkConsumer refuses names that are for leases.
func checkConsumer(id string) error {
	if strings.HasPrefix(id, manifest.LeasePrefix) {
		return fmt.Errorf("%w: names that begin with %s are for leases, which expire soon", manifest.ErrConsumerName, manifest.LeasePrefix)
	}
	return nil
}

// nothing is a batch of the columns asked for, without rows.
func (l *lens) nothing() arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, l.arrowSchema(l.cols))
	defer b.Release()
	return b.NewRecordBatch()
}

// follow changes to the schema of a snapshot if that is newer, and says whether it did.
func (l *lens) follow(ctx context.Context, r *Reader, snap *manifest.Snapshot) (bool, error) {
	if snap.SchemaID <= l.schema.ID {
		return false, nil
	}
	v, err := r.view(ctx, snap.SchemaID)
	if err != nil {
		return false, err
	}
	l.view = v
	if l.ids == nil {
		l.cols, err = v.projection(nil)
	} else {
		l.cols = l.cols[:0:0]
		for _, id := range l.ids {
			if c, ok := v.schema.FieldByID(id); ok {
				l.cols = append(l.cols, c)
			}
		}
		if len(l.cols) == 0 {
			err = fmt.Errorf("%w: schema %d has none of the columns any more that the stream was to tell; start it again with others", ErrQuery, v.schema.ID)
		}
	}
	if err != nil {
		return false, err
	}
	return true, l.bind()
}

// bind holds the condition against the schema.
func (l *lens) bind() error {
	l.read, l.w, l.screen = l.cols, nil, nil
	if l.where == "" {
		return nil
	}
	var err error
	if l.schema == l.names {
		l.w, err = l.view.where(l.where)
	} else {
		var p *predicate.Predicate
		if p, err = predicate.Parse(l.where, renamed(l.schema, l.names)); err != nil {
			return fmt.Errorf("%w: the condition does not fit schema %d of the table: %w", ErrQuery, l.schema.ID, err)
		}
		l.w = l.view.bound(p)
	}
	if err != nil {
		return err
	}
	l.screen, l.read, err = newScreen(l.view, l.w, l.cols, l.images != nil)
	return err
}

// renamed gives a schema with the names that its fields have in another one, so that a condition that was written for that
// one can be bound to it. Fields that the other does not have get names that cannot be written. It is for nothing else.
func renamed(s, as *schema.Schema) *schema.Schema {
	out := *s
	out.Fields = slices.Clone(s.Fields)
	for i := range out.Fields {
		f := &out.Fields[i]
		if at, ok := as.FieldByID(f.ID); ok {
			f.Name = as.Fields[at].Name
		} else {
			f.Name = "\x00" + f.Name
		}
	}
	return &out
}
