//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// calveSide is calve's part of the differential tester: its packages in this process, because a history has dozens of
// calls and a process for each would cost more than the work. Rows go in and out by the JSON of `calve put` and
// `calve scan`.
type calveSide struct {
	history *History
	columns []Column // as the table is now
	store   storage.Store
	env     engine.Env
	reader  *reader.Reader
	open    *engine.Table // between steps only with History.Keep
}

func newCalveSide(h *History, folder string) (*calveSide, error) {
	store, err := storage.NewLocal(folder)
	if err != nil {
		return nil, err
	}
	env := engine.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}
	return &calveSide{history: h, columns: h.Columns, store: store, env: env, reader: reader.Open(store, reader.Env(env))}, nil
}

func (c *calveSide) create(ctx context.Context) error {
	h := c.history
	spec := schema.Spec{PrimaryKeys: h.Key, PartitionKeys: h.Partition, Options: h.Options, TimeMillis: c.env.Now().UnixMilli()}
	ids := len(h.Columns)
	for _, col := range h.Columns {
		t, err := calveType(col.Type, &ids)
		if err != nil {
			return err
		}
		spec.Columns = append(spec.Columns, schema.Column{Name: col.Name, Type: t})
	}
	s, err := schema.New(spec)
	if err != nil {
		return err
	}
	return engine.Create(ctx, c.store, s)
}

// calveType reads a type as a schema file holds it; ids numbers the fields of rows.
func calveType(words string, ids *int) (t schema.Type, err error) {
	k, err := ParseKind(words)
	if err != nil {
		return t, err
	}
	text, err := json.Marshal(k.json(ids))
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(text, &t)
}

// step does what the step says; snapshots that it makes are on storage when it returns.
func (c *calveSide) step(ctx context.Context, s *HistoryStep) (err error) {
	switch s.Do {
	case doExpire:
		return c.expire(ctx)
	case doTag:
		snap, err := c.reader.Meta().Latest(ctx)
		if err != nil {
			return err
		}
		return c.reader.Meta().CreateTag(ctx, s.Tag, snap, 0)
	case doDeleteTag:
		_, err := c.reader.Meta().DeleteTag(ctx, s.Tag)
		return err
	}
	if c.open == nil {
		set := engine.Settings{Job: c.history.Job, BufferBytes: c.history.Buffer}
		if c.open, err = engine.Open(ctx, c.store, set, c.env); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil || !c.history.Keep {
			err = errors.Join(err, c.close(ctx))
		}
	}()
	switch s.Do {
	case doWrite:
		err := c.write(ctx, s.Changes, s.Watermark)
		if h := c.history; err == nil && (h.option("changelog-producer", "none") == "lookup" || h.option("deletion-vectors.enabled", "false") == "true") {
			err = c.open.Compact(ctx, false) // which tells the changes, or shows the rows; Java's commits wait for it
		}
		return err
	case doCompact, doCompactFull:
		return c.open.Compact(ctx, s.Do == doCompactFull)
	}
	return fmt.Errorf("calve has no action %q", s.Do)
}

// close ends the writer, if it is open: the other side is the committer now.
func (c *calveSide) close(ctx context.Context) error {
	if c.open == nil {
		return nil
	}
	t := c.open
	c.open = nil
	return t.Close(ctx)
}

func (c *calveSide) write(ctx context.Context, changes []Op, watermark int64) error {
	const kindField, batch = "the kind of the row", 100
	if newer, err := c.open.LookForSchema(ctx); err != nil {
		return err
	} else if newer != nil {
		if err := c.open.Follow(ctx, newer); err != nil {
			return err
		}
	}
	d, err := decode.New(decode.Config{Schema: variantsAsRows(c.open.Schema()), OpField: kindField, BatchRows: batch})
	if err != nil {
		return err
	}
	for i, op := range changes {
		row, err := toCalve(op.Row, c.columns)
		if err != nil {
			return err
		}
		row[kindField] = c.history.sent(op.Kind)
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		if err := d.Decode(&decode.Record{Value: line, Offset: int64(i)}); err != nil {
			return fmt.Errorf("row %d: %w", i+1, err)
		}
		if d.Full() || i == len(changes)-1 {
			if err := c.open.Write(ctx, d.Take().Batch); err != nil {
				return err
			}
		}
	}
	progress := engine.Progress{}
	if watermark != 0 {
		progress.Watermark = &watermark
	}
	_, err = c.open.Commit(ctx, progress)
	return err
}

// variantsAsRows is the schema with rows of two binaries in the place of VARIANT columns: calve's decoder does not read
// these, but the batches are the same.
func variantsAsRows(s *schema.Schema) *schema.Schema {
	own := *s
	own.Fields = slices.Clone(s.Fields)
	for i := range own.Fields {
		if t := &own.Fields[i].Type; t.Root == schema.Variant {
			part := schema.Type{Root: schema.VarBinary, Length: math.MaxInt32, NotNull: true}
			*t = schema.Type{Root: schema.Row, NotNull: t.NotNull, Fields: []schema.Field{
				{Name: schema.VariantValue, Type: part}, {Name: schema.VariantMetadata, Type: part}}}
		}
	}
	return &own
}

func (c *calveSide) expire(ctx context.Context) error {
	s, err := c.reader.Meta().LatestSchema(ctx)
	if err != nil {
		return err
	}
	o, err := s.ParseOptions()
	if err != nil {
		return err
	}
	_, err = c.reader.Meta().Expire(ctx, manifest.RetentionOf(o), c.env.Now())
	return err
}

// scan reads the rows of a snapshot; 0 is the latest.
func (c *calveSide) scan(ctx context.Context, q reader.Query, columns []Column) (*Rows, error) {
	return scanRows(ctx, c.reader, q, columns)
}

func scanRows(ctx context.Context, r *reader.Reader, q reader.Query, columns []Column) (*Rows, error) {
	rows, err := NewRows(columns)
	if err != nil {
		return nil, err
	}
	for rec, err := range r.Scan(ctx, q) {
		if err != nil {
			return nil, err
		}
		err = eachCalveRow(rec, columns, func(_ int, row map[string]any) error { return rows.Add(row) })
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// changes reads the change stream from a snapshot to the latest.
func (c *calveSide) changes(ctx context.Context, from int64, columns []Column) ([]Change, error) {
	var out []Change
	start := reader.Start{Mode: reader.FromSnapshot, Snapshot: from}
	for ch, err := range c.reader.Tail(ctx, reader.TailSpec{From: start}) {
		if err != nil {
			return nil, err
		}
		if ch.State {
			return nil, fmt.Errorf("snapshot %d is told as a state, not as changes", ch.Snapshot)
		}
		if ch.Rec == nil {
			continue
		}
		err := eachCalveRow(ch.Rec, columns, func(i int, row map[string]any) error {
			kind := schema.Insert
			if ch.RowKinds != nil {
				kind = ch.RowKinds[i]
			}
			out = append(out, Change{Snapshot: ch.Snapshot, Kind: kind.String(), Row: row})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// verify asks calve whether the table is sound.
func (c *calveSide) verify(ctx context.Context) error {
	r, err := c.reader.Verify(ctx, reader.VerifySpec{Data: true, Fold: true})
	if err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("not sound: %v", r.Problems)
	}
	return nil
}

// verifyStream folds the change stream from the earliest snapshot on and holds it against the table at each one, as it is told
// and with rows before changes. It gives the numbers of snapshots that were compared.
func (c *calveSide) verifyStream(ctx context.Context) (plain, images int64, err error) {
	for _, before := range []bool{false, true} {
		r, err := c.reader.VerifyStream(ctx, reader.StreamSpec{BeforeImage: before})
		switch {
		case errors.Is(err, reader.ErrQuery): // it does not fold, or has no rows before changes
			continue
		case err != nil:
			return plain, images, fmt.Errorf("before images %v: %w", before, err)
		case !r.OK():
			text, err := json.MarshalIndent(r, "", " ")
			return plain, images, errors.Join(fmt.Errorf("before images %v: stream and table differ:\n%s", before, text), err)
		case before:
			images = r.Compared
		default:
			plain = r.Compared
		}
	}
	return plain, images, nil
}

func eachCalveRow(rec arrow.RecordBatch, columns []Column, f func(i int, row map[string]any) error) error {
	enc := rowjson.NewEncoder(rec.Schema())
	for i := range int(rec.NumRows()) {
		row, err := decodeObject(enc.Append(nil, rec, i))
		if err == nil {
			err = f(i, fromCalve(row, columns))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
