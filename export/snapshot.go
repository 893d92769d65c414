package export

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
)

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
	err = b.meta.addSnapshot(table.Snapshot{
		SnapshotID: snap.ID, ParentSnapshotID: parent, SequenceNumber: sequence, ManifestList: loc, SchemaID: &schemaID,
		TimestampMs: max(b.meta.LastUpdatedMS, snap.TimeMillis), Summary: b.summary(stored),
	})
	return stored, b.reindex(), err
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
