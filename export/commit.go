package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"
	"strconv"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
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
	dropped  []table.Snapshot         // snapshots of the old version that the new one has not
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

// snapshot writes the manifests of the new snapshot and adds it to the metadata. It returns its manifest list as read
// back and the new index of files (nil if there was none).
func (b *build) snapshot(ctx context.Context) ([]iceberg.ManifestFile, map[string]string, error) {
	snap := b.plan.snap
	b.writer.snapshot = snap.ID
	if err := b.addFiles(); err != nil {
		return nil, nil, err
	}
	if err := b.rewriteFiles(ctx); err != nil {
		return nil, nil, err
	}
	written, err := b.writeManifests(ctx)
	if err != nil {
		return nil, nil, err
	}
	list := written
	for _, m := range b.old.list {
		// Manifests of deleted files only have told their story in the snapshot that wrote them.
		if live(m) > 0 && !b.absorbed[m.FilePath()] {
			list = append(list, m)
		}
	}
	var parent *int64
	if cur := b.meta.current(); cur != nil {
		id := cur.SnapshotID
		parent = &id
	}
	sequence := b.meta.LastSequenceNumber + 1
	loc, stored, err := b.writer.writeList(ctx, parent, sequence, list)
	if err != nil {
		return nil, nil, err
	}
	schemaID := b.meta.CurrentSchemaID
	b.meta.addSnapshot(table.Snapshot{
		SnapshotID: snap.ID, ParentSnapshotID: parent, SequenceNumber: sequence, ManifestList: loc, SchemaID: &schemaID,
		TimestampMs: max(b.meta.LastUpdatedMS, snap.TimeMillis), Summary: b.summary(stored),
	})
	return stored, b.reindex(), nil
}

// fileSchemas finds the schemas that files were written with, and checks that they can be read with the current one.
func (b *build) fileSchemas(ctx context.Context) error {
	b.written = map[int64]*schema.Schema{}
	for _, id := range slices.Sorted(maps.Keys(b.plan.change.schemas)) {
		s, err := b.exporter.src.Schema(ctx, id)
		if err != nil {
			return fmt.Errorf("schema of an exported file: %w", err)
		}
		if err := checkEvolution(s, b.plan.view.schema); err != nil {
			return err
		}
		b.written[id] = s
	}
	return nil
}

// addFiles makes entries of the added files.
func (b *build) addFiles() error {
	v, snap := b.plan.view, b.plan.snap.ID
	types := v.schema.Types(v.schema.PartitionColumns())
	for loc, en := range b.plan.change.added {
		if err := v.check(&en, loc); err != nil {
			return err
		}
		df, err := dataFile(&en, loc, b.writer.spec, types, b.written[en.File.SchemaID], v.schema)
		if err != nil {
			return err
		}
		b.sizes.added += en.File.Size
		b.added = append(b.added, entry{iceberg.EntryStatusADDED, iceberg.NewManifestEntry(iceberg.EntryStatusADDED, &snap, nil, nil, df)})
	}
	return nil
}

// dataFile describes an added file in Iceberg's terms.
func dataFile(en *manifest.Entry, loc string, spec iceberg.PartitionSpec, types []schema.Type, file, current *schema.Schema) (iceberg.DataFile, error) {
	var partition map[int]any
	if len(types) > 0 {
		values, err := binrow.Decode(en.Partition, types)
		if err != nil {
			return nil, fmt.Errorf("partition of %s: %w", loc, err)
		}
		partition = map[int]any{}
		for i, v := range values {
			partition[firstPartitionID+i] = partitionValue(v, types[i])
		}
	}
	f := &en.File
	df, err := iceberg.NewDataFileBuilder(spec, iceberg.EntryContentData, loc, iceberg.ParquetFile, partition, nil, nil, f.Rows, f.Size)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", loc, err)
	}
	st := fileStats(f, file, current)
	return df.ValueCounts(st.values).NullValueCounts(st.nulls).LowerBoundValues(st.lower).UpperBoundValues(st.upper).Build(), nil
}

// rewriteFiles reads the manifests that cannot stay as they are: those that hold a removed file, and some small ones.
func (b *build) rewriteFiles(ctx context.Context) error {
	b.absorbed = map[string]bool{}
	for loc := range b.plan.change.removed {
		b.absorbed[b.old.at[loc]] = true
	}
	var untouched []string
	var lives []int
	for _, m := range b.old.list {
		if !b.absorbed[m.FilePath()] {
			untouched, lives = append(untouched, m.FilePath()), append(lives, live(m))
		}
	}
	for _, i := range absorb(lives, b.target()) {
		b.absorbed[untouched[i]] = true
	}
	for _, m := range b.old.list {
		if !b.absorbed[m.FilePath()] {
			continue
		}
		entries, err := b.exporter.files.readManifest(ctx, m)
		if err != nil {
			return err
		}
		for _, en := range entries {
			if b.plan.change.removed[location(en)] {
				b.sizes.removed += en.DataFile().FileSizeBytes()
				b.deleted = append(b.deleted, entry{iceberg.EntryStatusDELETED, en})
			} else {
				b.existing = append(b.existing, entry{iceberg.EntryStatusEXISTING, en})
			}
		}
	}
	if len(b.deleted) != len(b.plan.change.removed) {
		return fmt.Errorf("%w: %d files were removed, %d of them are in the manifests of %s", ErrDamaged,
			len(b.plan.change.removed), len(b.deleted), b.old.ref.MetadataLocation)
	}
	return nil
}

// target is the number of files a manifest should hold.
func (b *build) target() int {
	n := len(b.plan.change.added) - len(b.plan.change.removed)
	for _, m := range b.old.list {
		n += live(m)
	}
	return manifestFiles(n)
}

// writeManifests groups the entries by location. Deleted ones go into the last manifest, or, if they are many, into
// manifests of their own, which the next snapshot leaves out.
func (b *build) writeManifests(ctx context.Context) ([]iceberg.ManifestFile, error) {
	target := b.target()
	groups := group(append(b.added, b.existing...), target)
	if n := len(groups); n > 0 && len(b.deleted) <= target {
		groups[n-1] = append(groups[n-1], b.deleted...)
	} else {
		groups = append(groups, group(b.deleted, target)...)
	}
	var out []iceberg.ManifestFile
	for _, g := range groups {
		m, err := b.writer.write(ctx, g)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
		if b.old.at == nil {
			continue
		}
		for _, en := range g {
			if en.status != iceberg.EntryStatusDELETED {
				b.placed = append(b.placed, [2]string{location(en), m.FilePath()})
			}
		}
	}
	return out, nil
}

func group(entries []entry, target int) [][]entry {
	sort.Slice(entries, func(i, j int) bool { return location(entries[i]) < location(entries[j]) })
	var out [][]entry
	from := 0
	for _, to := range chunks(len(entries), target) {
		out = append(out, slices.Clip(entries[from:to]))
		from = to
	}
	return out
}

// reindex brings the index of files up to date. The old one is not used any more: if the publication fails, all state
// is read again.
func (b *build) reindex() map[string]string {
	at := b.old.at
	if b.old.lost {
		at = map[string]string{}
	}
	if at == nil {
		return nil
	}
	for loc := range b.plan.change.removed {
		delete(at, loc)
	}
	for _, p := range b.placed {
		at[p[0]] = p[1]
	}
	return at
}

// summary makes the snapshot's summary (Iceberg spec, "Optional Snapshot Summary Fields").
func (b *build) summary(list []iceberg.ManifestFile) *table.Summary {
	c := b.plan.change
	props := iceberg.Properties{
		PropSnapshot: b.meta.Properties[PropSnapshot], PropSchema: b.meta.Properties[PropSchema],
		PropCommit:           b.meta.Properties[PropCommit],
		"total-delete-files": "0", "total-position-deletes": "0", "total-equality-deletes": "0",
	}
	set := func(key string, n int64, always bool) {
		if n > 0 || always {
			props[key] = strconv.FormatInt(n, 10)
		}
	}
	set(PropChanged, c.at, false)
	var files, rows, added, deleted int64
	for _, m := range list {
		files += int64(live(m))
		rows += m.AddedRows() + m.ExistingRows()
	}
	parts := map[string]bool{}
	for _, en := range b.added {
		added += en.DataFile().Count()
		parts[path.Dir(path.Dir(location(en)))] = true
	}
	for _, en := range b.deleted {
		deleted += en.DataFile().Count()
		parts[path.Dir(path.Dir(location(en)))] = true
	}
	size := b.sizes.added - b.sizes.removed
	if cur := b.old.meta.current(); cur != nil && !b.old.lost {
		size += number(cur.Summary.Properties["total-files-size"])
	}
	set("added-data-files", int64(len(b.added)), false)
	set("added-records", added, false)
	set("added-files-size", b.sizes.added, false)
	set("deleted-data-files", int64(len(b.deleted)), false)
	set("deleted-records", deleted, false)
	set("removed-files-size", b.sizes.removed, false)
	set("changed-partition-count", int64(len(parts)), true)
	set("total-data-files", files, true)
	set("total-records", rows, true)
	set("total-files-size", size, true)
	return &table.Summary{Operation: b.operation(added == deleted), Properties: props}
}

// operation names what the change did to the rows. Only the compaction of an append table leaves them as they are:
// that of a keyed table brings in the rows of lower levels.
func (b *build) operation(sameRows bool) table.Operation {
	switch {
	case len(b.deleted) == 0:
		return table.OpAppend
	case len(b.added) == 0:
		return table.OpDelete
	case b.plan.view.level < 0 && b.plan.change.rewrite && sameRows:
		return table.OpReplace
	}
	return table.OpOverwrite
}

// retire drops snapshots that lost their files or are too many.
func (b *build) retire() {
	dead := b.exporter.dead(b.plan, b.meta.Snapshots)
	extra := len(b.meta.Snapshots) - b.exporter.set.MaxSnapshots
	b.dropped = append(b.dropped, b.meta.drop(func(i int, s *table.Snapshot) bool { return i < extra || dead[s.SnapshotID] })...)
}
