package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/avro"
)

// IndexType is the kind of an index file (`_INDEX_TYPE`).
type IndexType string

// Types of index files that Paimon 1.3 writes.
const (
	HashIndex       IndexType = "HASH"             // key hashes of one bucket of a table with dynamic buckets
	DeletionVectors IndexType = "DELETION_VECTORS" // positions of deleted rows of data files
)

// VectorRange says where in an index file the deletion vector of a data file is (`index.DeletionVectorMeta`).
type VectorRange struct {
	DataFile    string
	Offset      int64  // of the length field in front of the vector
	Length      int64  // as stated: without length field and checksum for 32-bit vectors, with them for 64-bit ones
	Cardinality *int64 // deleted rows; nil: not known
}

// IndexEntry is one line of an index manifest (`manifest.IndexManifestEntry`, paimon-format §5.3). An index manifest lists
// all index files of a snapshot; there are no deltas.
type IndexEntry struct {
	Partition    []byte // serialized BinaryRow
	Bucket       int
	Type         IndexType
	Name         string // file name only
	Size         int64
	Rows         int64 // hashes of a HASH file, vectors of a DELETION_VECTORS file
	Vectors      []VectorRange
	ExternalPath *string
}

// indexVersion is `_VERSION` of index manifests.
const indexVersion = 1

// The header schema of Paimon's own index manifests, text for text (a test holds it against the golden tables).
const indexSchemaText = schemaHead +
	`{"name":"_KIND","type":"int"},{"name":"_PARTITION","type":"bytes"},{"name":"_BUCKET","type":"int"},` +
	`{"name":"_INDEX_TYPE","type":"string"},{"name":"_FILE_NAME","type":"string"},{"name":"_FILE_SIZE","type":"long"},` +
	`{"name":"_ROW_COUNT","type":"long"},{"name":"_DELETIONS_VECTORS_RANGES","type":["null",{"type":"array","items":["null",` +
	`{"type":"record","name":"record__DELETIONS_VECTORS_RANGES","fields":[{"name":"f0","type":"string"},` +
	`{"name":"f1","type":"int"},{"name":"f2","type":"int"},{"name":"_CARDINALITY","type":["null","long"],"default":null}]}]}],` +
	`"default":null},{"name":"_EXTERNAL_PATH","type":["null","string"],"default":null}]}`

var indexSchema = avro.MustParse(indexSchemaText)

var indexRequired = []string{"_VERSION", "_KIND", "_PARTITION", "_BUCKET", "_INDEX_TYPE", "_FILE_NAME", "_FILE_SIZE", "_ROW_COUNT"}
var indexOptional = []string{"_DELETIONS_VECTORS_RANGES", "_EXTERNAL_PATH", "_GLOBAL_INDEX"}

// wireIndex is one record of an index manifest.
type wireIndex struct {
	Version   int32           `avro:"_VERSION"`
	Kind      int32           `avro:"_KIND"`
	Partition []byte          `avro:"_PARTITION"`
	Bucket    int32           `avro:"_BUCKET"`
	Type      string          `avro:"_INDEX_TYPE"`
	Name      string          `avro:"_FILE_NAME"`
	Size      int64           `avro:"_FILE_SIZE"`
	Rows      int64           `avro:"_ROW_COUNT"`
	Vectors   *[]*wireVectors `avro:"_DELETIONS_VECTORS_RANGES"`
	External  *string         `avro:"_EXTERNAL_PATH"`
	Global    *struct{}       `avro:"_GLOBAL_INDEX"` // Paimon 1.4: what an index over the whole table covers; only whether it is there
}

// wireVectors is DeletionVectorMeta.
type wireVectors struct {
	DataFile    string `avro:"f0"`
	Offset      int32  `avro:"f1"`
	Length      int32  `avro:"f2"`
	Cardinality *int64 `avro:"_CARDINALITY"`
}

// checkIndexSchema demands the fields of an index manifest and reports whether it has more than is known here.
func checkIndexSchema(root *avro.SchemaNode) (bool, error) {
	if err := demand(root, "index manifest", indexRequired); err != nil {
		return false, err
	}
	return slices.ContainsFunc(root.Fields, func(f avro.SchemaField) bool {
		return !slices.Contains(indexRequired, f.Name) && !slices.Contains(indexOptional, f.Name)
	}), nil
}

// encodeIndex writes an index manifest.
func encodeIndex(name string, entries []IndexEntry) ([]byte, error) {
	wire := make([]wireIndex, len(entries))
	for i := range entries {
		e := &entries[i]
		if err := checkFileName(e.Name); err != nil {
			return nil, fmt.Errorf("write %s: entry %d: %w", name, i, err)
		}
		wire[i] = wireIndex{
			Version: indexVersion, Kind: int32(Add), Partition: fill(e.Partition), Bucket: int32(e.Bucket), Type: string(e.Type),
			Name: e.Name, Size: e.Size, Rows: e.Rows, External: e.ExternalPath,
		}
		if e.Vectors == nil {
			continue
		}
		ranges := make([]*wireVectors, len(e.Vectors))
		for j, v := range e.Vectors {
			if v.Offset != int64(int32(v.Offset)) || v.Length != int64(int32(v.Length)) {
				return nil, fmt.Errorf("write %s: index file %s: the vector of %s lies beyond 2 GiB", name, e.Name, v.DataFile)
			}
			ranges[j] = &wireVectors{DataFile: v.DataFile, Offset: int32(v.Offset), Length: int32(v.Length), Cardinality: v.Cardinality}
		}
		wire[i].Vectors = &ranges
	}
	return encodeContainer(name, indexSchema, wire)
}

// decodeIndex reads an index manifest. lossy reports that its entries hold more than IndexEntry can carry, so that they
// must not be written again.
func decodeIndex(name string, data []byte) (entries []IndexEntry, lossy bool, err error) {
	defer recoverCorrupt(name, &err)
	var s fileSchema
	global := false
	err = decodeContainer(name, data, func(text string) error {
		if text == indexSchemaText {
			s = fileSchema{avro: indexSchema}
			return nil
		}
		s, err = foreignSchemas.get(text, checkIndexSchema)
		return err
	}, func(block []byte) ([]byte, error) {
		var w wireIndex
		rest, err := s.avro.Decode(block, &w, avro.SkipUnknown())
		if err != nil {
			return nil, err
		}
		e, err := indexFromWire(&w)
		if err != nil {
			return nil, err
		}
		entries, global = append(entries, e), global || w.Global != nil
		return rest, nil
	})
	if err != nil {
		return nil, false, err
	}
	return entries, s.lossy || global, nil
}

// indexFromWire checks a decoded record.
func indexFromWire(w *wireIndex) (IndexEntry, error) {
	switch {
	case w.Version != indexVersion:
		return IndexEntry{}, fmt.Errorf("%w: index manifest version %d, this version reads %d", ErrUnsupported, w.Version, indexVersion)
	case w.Kind != int32(Add):
		return IndexEntry{}, fmt.Errorf("entry kind %d in an index manifest, which lists what is there", w.Kind)
	case w.Size < 0 || w.Rows < 0:
		return IndexEntry{}, fmt.Errorf("index file %q: size %d, %d rows", w.Name, w.Size, w.Rows)
	}
	if err := checkFileName(w.Name); err != nil {
		return IndexEntry{}, err
	}
	e := IndexEntry{
		Partition: fill(w.Partition), Bucket: int(w.Bucket), Type: IndexType(w.Type), Name: w.Name, Size: w.Size, Rows: w.Rows,
		ExternalPath: w.External,
	}
	if w.Vectors == nil {
		return e, nil
	}
	e.Vectors = make([]VectorRange, 0, len(*w.Vectors))
	for _, v := range *w.Vectors {
		if v == nil {
			return IndexEntry{}, fmt.Errorf("index file %s: a null among its ranges", w.Name)
		}
		if v.Offset < 0 || v.Length < 0 || int64(v.Offset)+int64(v.Length) > w.Size {
			return IndexEntry{}, fmt.Errorf("index file %s of %d bytes: the vector of %s is said to have %d bytes at %d", w.Name, w.Size, v.DataFile, v.Length, v.Offset)
		}
		e.Vectors = append(e.Vectors, VectorRange{DataFile: v.DataFile, Offset: int64(v.Offset), Length: int64(v.Length), Cardinality: v.Cardinality})
	}
	return e, nil
}

// IndexFiles gives the index files of a snapshot, ordered by partition, bucket, type and name; none if it has no index
// manifest.
func (t *Table) IndexFiles(ctx context.Context, s *Snapshot) ([]IndexEntry, error) {
	entries, _, err := t.indexFiles(ctx, s)
	return entries, err
}

// indexFiles is IndexFiles; lossy as in decodeIndex.
func (t *Table) indexFiles(ctx context.Context, s *Snapshot) ([]IndexEntry, bool, error) {
	if s == nil || s.IndexManifest == nil {
		return nil, false, nil
	}
	data, err := t.readMetadata(ctx, *s.IndexManifest, nil, maxManifestSize)
	if err != nil {
		return nil, false, fmt.Errorf("index of snapshot %d: %w", s.ID, err)
	}
	entries, lossy, err := decodeIndex(t.store.URL(manifestPath(*s.IndexManifest)), data)
	if err != nil {
		return nil, false, fmt.Errorf("index of snapshot %d: %w", s.ID, err)
	}
	slices.SortFunc(entries, func(a, b IndexEntry) int {
		return cmp.Or(slices.Compare(a.Partition, b.Partition), cmp.Compare(a.Bucket, b.Bucket),
			strings.Compare(string(a.Type), string(b.Type)), strings.Compare(a.Name, b.Name))
	})
	return entries, lossy, nil
}

// ErrExternal: a file lies outside of the table's folder.
var ErrExternal = errors.New("file outside of the table's folder")

// IndexPath is where an index file lies, relative to the table: in the folder `index/`, or in the bucket's folder when
// the option `index-file-in-data-file-dir` was set (`utils.FileStorePathFactory`). bucketDir is DataDir of its bucket.
func IndexPath(e *IndexEntry, inBucket bool, bucketDir string) (string, error) {
	if e.ExternalPath != nil {
		return "", fmt.Errorf("index file %s: %w, at %s: calve reads index files in the table only (option \"data-file.external-paths\")", e.Name, ErrExternal, *e.ExternalPath)
	}
	if inBucket {
		return bucketDir + "/" + e.Name, nil
	}
	return "index/" + e.Name, nil
}
