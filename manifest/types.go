// Package manifest owns a table's metadata files: schemas, snapshots, manifest lists, manifests and hints,
// and the commit protocol. It is the only writer of `schema/`, `snapshot/` and `manifest/`.
package manifest

import (
	"slices"

	"github.com/calve-io/calve/schema"
)

// CommitKind is the kind of a snapshot.
type CommitKind string

// Kinds of snapshots (`Snapshot.CommitKind`).
const (
	Append    CommitKind = "APPEND"
	Compact   CommitKind = "COMPACT"
	Overwrite CommitKind = "OVERWRITE"
	Analyze   CommitKind = "ANALYZE"
)

// EntryKind says whether an entry adds or deletes a file.
type EntryKind int32

// Kinds of entries (`_KIND`).
const (
	Add    EntryKind = 0
	Remove EntryKind = 1 // DELETE in Paimon
)

// FileSource says what wrote a data file (`_FILE_SOURCE`).
type FileSource int32

// Sources of data files.
const (
	FromAppend  FileSource = 0
	FromCompact FileSource = 1
)

// Stats are the column statistics of a file (`SimpleStats`): serialized BinaryRows with arity prefix, and a null
// count for each column (nil: unknown).
type Stats struct {
	Min, Max   []byte
	NullCounts []*int64
}

// DataFile describes one data file (`DataFileMeta`). Values are immutable once built.
type DataFile struct {
	Name           string // file name only
	Size           int64
	Rows           int64  // deletes included
	MinKey, MaxKey []byte // serialized BinaryRow of the trimmed primary key of the first and last row
	KeyStats       Stats
	ValueStats     Stats
	MinSeq, MaxSeq int64
	SchemaID       int64
	Level          int
	ExtraFiles     []string
	CreatedMillis  int64  // `_CREATION_TIME`: local wall clock as if UTC
	DeleteRows     *int64 // `_DELETE_ROW_COUNT`; nil: unknown
	EmbeddedIndex  []byte
	Source         *FileSource
	ValueStatsCols []string // with ValueStatsAll false: the columns of ValueStats
	ValueStatsAll  bool     // `_VALUE_STATS_COLS` is null: ValueStats has all columns of the schema
	ExternalPath   *string
	FirstRowID     *int64
	WriteCols      []string // nil: null
}

// Tracked reports whether the file has columns of its own for the ids of its rows: a compacted one of a table with row
// tracking. WriteCols are then all columns of its schema and these.
func (f *DataFile) Tracked() bool { return slices.Contains(f.WriteCols, schema.RowIDColumn) }

// Names gives the names of the file and of what belongs to it, such as its index.
func (f *DataFile) Names() []string { return append([]string{f.Name}, f.ExtraFiles...) }

// Entry is one line of a manifest (`ManifestEntry`).
type Entry struct {
	Kind         EntryKind
	Partition    []byte // serialized BinaryRow
	Bucket       int
	TotalBuckets int
	File         DataFile
}

// Snapshot is the file `snapshot/snapshot-N`. Pointers are optional keys.
type Snapshot struct {
	Version                   int               `json:"version"`
	ID                        int64             `json:"id"`
	SchemaID                  int64             `json:"schemaId"`
	BaseManifestList          string            `json:"baseManifestList"`
	BaseManifestListSize      *int64            `json:"baseManifestListSize,omitempty"`
	DeltaManifestList         string            `json:"deltaManifestList"`
	DeltaManifestListSize     *int64            `json:"deltaManifestListSize,omitempty"`
	ChangelogManifestList     *string           `json:"changelogManifestList"`
	ChangelogManifestListSize *int64            `json:"changelogManifestListSize,omitempty"`
	IndexManifest             *string           `json:"indexManifest,omitempty"`
	CommitUser                string            `json:"commitUser"`
	CommitIdentifier          int64             `json:"commitIdentifier"`
	CommitKind                CommitKind        `json:"commitKind"`
	TimeMillis                int64             `json:"timeMillis"`
	LogOffsets                map[string]int64  `json:"logOffsets"`
	TotalRecordCount          int64             `json:"totalRecordCount"`
	DeltaRecordCount          int64             `json:"deltaRecordCount"`
	ChangelogRecordCount      int64             `json:"changelogRecordCount"`
	Watermark                 *int64            `json:"watermark,omitempty"`
	Statistics                *string           `json:"statistics,omitempty"`
	Properties                map[string]string `json:"properties,omitempty"`
	NextRowID                 *int64            `json:"nextRowId,omitempty"`
}

// PropOrder is a snapshot property. OrderArrival is its value where the rows of several buckets of a table with a primary key
// were numbered together: their sequence numbers say in which order the writer took them. Writers that do not say so number
// each bucket for itself (`mergetree.MergeTreeWriter`).
const (
	PropOrder    = "calve.order"
	OrderArrival = "arrival"
)

// Meta describes one manifest: a record of a manifest list (`ManifestFileMeta`, paimon-format §5.1).
type Meta struct {
	Name           string // file name in manifest/
	Size           int64  // exact bytes
	Added, Deleted int64  // entries of each kind
	Partitions     Stats  // over the partitions of all entries
	SchemaID       int64  // the highest schema id of the entries
	// Bounds over all entries; nil: not known (files of writers before 1.1).
	MinBucket, MaxBucket, MinLevel, MaxLevel *int32
}
