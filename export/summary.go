package export

import (
	"path"
	"strconv"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
)

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
