package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// commit writes and publishes what was planned. After an error that is certain, the files it wrote are removed; after
// one that is not, or a crash, they stay until a sweep finds that nothing names them.
func (e *Exporter) commit(ctx context.Context, p *plan) error {
	id, err := e.newID()
	if err != nil {
		return err
	}
	b := &build{exporter: e, plan: p, old: e.state, writer: &manifestWriter{files: e.files, id: id.String()}}
	err = b.publish(ctx)
	if err != nil {
		if !errors.Is(err, storage.ErrUnknown) && ctx.Err() == nil {
			e.discard(ctx, b.writer.written)
		}
		return err
	}
	e.state = b.new
	e.clean(ctx, b)
	return nil
}

func (e *Exporter) newID() (uuid.UUID, error) {
	id, err := uuid.Parse(e.set.Env.NewID())
	if err != nil {
		return uuid.Nil, fmt.Errorf("new id: %w", err)
	}
	return id, nil
}

// build makes the next version.
type build struct {
	exporter *Exporter
	plan     *plan
	old      *state
	new      *state
	writer   *manifestWriter
	meta     *tableMetadata
	dropped  []snapshot               // snapshots of the old version that the new one has not
	written  map[int64]*schema.Schema // schemas of the data files in question, by id

	added, existing, deleted []entry
	absorbed                 map[string]bool // locations of manifests of the old version that are written anew
	placed                   [][2]string     // for the index: location of a file, location of its new manifest
	sizes                    struct{ added, removed int64 }
}

func (b *build) publish(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	if err := b.fileSchemas(ctx); err != nil {
		return err
	}
	list, at := b.old.list, b.old.at
	if b.plan.rolled || b.old.lost {
		b.dropped = b.meta.Snapshots
		b.meta.forget()
	}
	switch {
	case b.plan.snap == nil:
		list, at = nil, nil
	case !b.plan.change.empty() || b.plan.rolled && len(list) > 0:
		var err error
		if list, at, err = b.snapshot(ctx); err != nil {
			return err
		}
	}
	b.retire()
	if b.plan.snap != nil {
		b.meta.touch(b.plan.snap.TimeMillis)
	}
	data, err := b.meta.encode()
	if err != nil {
		return err
	}
	ref, err := b.exporter.target.Swap(ctx, b.old.ref, data)
	if err != nil {
		return err
	}
	b.new = &state{ref: ref, meta: b.meta, list: list, at: at, seen: b.meta.shown(), mark: b.meta.Properties[PropCommit]}
	return nil
}

// begin starts the metadata from the old version: schemas, partition spec and properties.
func (b *build) begin(ctx context.Context) error {
	e, v := b.exporter, b.plan.view
	if b.old.meta != nil {
		b.meta = b.old.meta.next(b.old.ref.MetadataLocation, e.set.MaxMetadata)
	} else {
		id, err := e.newID()
		if err != nil {
			return err
		}
		b.meta = newMetadata(id, e.location)
		b.meta.LastUpdatedMS = v.schema.TimeMillis
		if v.schema.TimeMillis <= 0 {
			b.meta.LastUpdatedMS = e.set.Env.Now().UnixMilli()
		}
	}
	m := b.meta
	if m.Location != e.location {
		m.Location, m.MetadataLog = e.location, []table.MetadataLogEntry{}
	}
	versions, err := b.schemas(ctx)
	if err != nil {
		return err
	}
	m.CurrentSchemaID = int(v.schema.ID)
	m.LastColumnID = max(m.LastColumnID, v.schema.HighestFieldID)
	b.writer.spec = partitionSpec(v.schema)
	m.PartitionSpecs = []iceberg.PartitionSpec{b.writer.spec}
	m.LastPartitionID = firstPartitionID - 1 + b.writer.spec.NumFields()
	mapping, err := json.Marshal(nameMapping(versions))
	if err != nil {
		return fmt.Errorf("encode name mapping: %w", err)
	}
	m.Properties[table.DefaultNameMappingKey] = string(mapping)
	m.Properties[propGC] = "false"
	m.Properties[PropSchema] = strconv.FormatInt(v.schema.ID, 10)
	if s := b.plan.snap; s != nil {
		m.Properties[PropSnapshot] = strconv.FormatInt(s.ID, 10)
		m.Properties[PropCommit] = commitOf(s)
	} else {
		delete(m.Properties, PropSnapshot)
		delete(m.Properties, PropCommit)
	}
	return nil
}

// schemas adds the current schema, and the older versions that Iceberg can express. It returns all versions, oldest
// first.
func (b *build) schemas(ctx context.Context) ([]*schema.Schema, error) {
	v := b.plan.view
	current, err := icebergSchema(v.schema)
	if err != nil {
		return nil, err
	}
	b.writer.schema = current
	var versions []*schema.Schema
	for id := int64(0); id < v.schema.ID; id++ {
		s, err := b.exporter.src.Schema(ctx, id)
		if errors.Is(err, storage.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		versions = append(versions, s)
		if b.meta.hasSchema(int(id)) {
			continue
		}
		if old, err := icebergSchema(s); err == nil {
			b.meta.addSchema(old)
		}
	}
	b.meta.addSchema(current)
	return append(versions, v.schema), nil
}

// retire drops snapshots that lost their files or are too many.
func (b *build) retire() {
	dead := b.exporter.dead(b.plan, b.meta.Snapshots)
	extra := len(b.meta.Snapshots) - b.exporter.set.MaxSnapshots
	b.dropped = append(b.dropped, b.meta.drop(func(i int, s *snapshot) bool { return i < extra || dead[s.SnapshotID] })...)
}
