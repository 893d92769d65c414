package manifest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/avro"
)

// The Avro schemas of manifest lists and manifests, field for field as Paimon 1.3.1 writes them (paimon-format §5):
// nested records are named by their path, nullable is a union with null first, `_VERSION` comes first. The text is
// identical to the header of Paimon's own files, which a test checks.
const (
	statsFields = `"fields":[{"name":"_MIN_VALUES","type":"bytes"},{"name":"_MAX_VALUES","type":"bytes"},` +
		`{"name":"_NULL_COUNTS","type":["null",{"type":"array","items":["null","long"]}],"default":null}]`
	schemaHead = `{"type":"record","name":"record","namespace":"org.apache.paimon.avro.generated","fields":[` +
		`{"name":"_VERSION","type":"int"},`

	listSchemaText = schemaHead +
		`{"name":"_FILE_NAME","type":"string"},{"name":"_FILE_SIZE","type":"long"},` +
		`{"name":"_NUM_ADDED_FILES","type":"long"},{"name":"_NUM_DELETED_FILES","type":"long"},` +
		`{"name":"_PARTITION_STATS","type":{"type":"record","name":"record__PARTITION_STATS",` + statsFields + `}},` +
		`{"name":"_SCHEMA_ID","type":"long"},` +
		`{"name":"_MIN_BUCKET","type":["null","int"],"default":null},{"name":"_MAX_BUCKET","type":["null","int"],"default":null},` +
		`{"name":"_MIN_LEVEL","type":["null","int"],"default":null},{"name":"_MAX_LEVEL","type":["null","int"],"default":null}]}`

	entrySchemaText = schemaHead +
		`{"name":"_KIND","type":"int"},{"name":"_PARTITION","type":"bytes"},{"name":"_BUCKET","type":"int"},` +
		`{"name":"_TOTAL_BUCKETS","type":"int"},{"name":"_FILE","type":{"type":"record","name":"record__FILE","fields":[` +
		`{"name":"_FILE_NAME","type":"string"},{"name":"_FILE_SIZE","type":"long"},{"name":"_ROW_COUNT","type":"long"},` +
		`{"name":"_MIN_KEY","type":"bytes"},{"name":"_MAX_KEY","type":"bytes"},` +
		`{"name":"_KEY_STATS","type":{"type":"record","name":"record__FILE__KEY_STATS",` + statsFields + `}},` +
		`{"name":"_VALUE_STATS","type":{"type":"record","name":"record__FILE__VALUE_STATS",` + statsFields + `}},` +
		`{"name":"_MIN_SEQUENCE_NUMBER","type":"long"},{"name":"_MAX_SEQUENCE_NUMBER","type":"long"},` +
		`{"name":"_SCHEMA_ID","type":"long"},{"name":"_LEVEL","type":"int"},` +
		`{"name":"_EXTRA_FILES","type":{"type":"array","items":"string"}},` +
		`{"name":"_CREATION_TIME","type":["null",{"type":"long","logicalType":"timestamp-millis"}],"default":null},` +
		`{"name":"_DELETE_ROW_COUNT","type":["null","long"],"default":null},` +
		`{"name":"_EMBEDDED_FILE_INDEX","type":["null","bytes"],"default":null},` +
		`{"name":"_FILE_SOURCE","type":["null","int"],"default":null},` +
		`{"name":"_VALUE_STATS_COLS","type":["null",{"type":"array","items":"string"}],"default":null},` +
		`{"name":"_EXTERNAL_PATH","type":["null","string"],"default":null},` +
		`{"name":"_FIRST_ROW_ID","type":["null","long"],"default":null},` +
		`{"name":"_WRITE_COLS","type":["null",{"type":"array","items":"string"}],"default":null}]}}]}`
)

// wireVersion is `_VERSION` of manifest lists and manifests; index manifests have another one.
const wireVersion = 2

var (
	listSchema  = avro.MustParse(listSchemaText)
	entrySchema = avro.MustParse(entrySchemaText)
)

// wireStats is SimpleStats (paimon-format §5.4).
type wireStats struct {
	Min   []byte   `avro:"_MIN_VALUES"`
	Max   []byte   `avro:"_MAX_VALUES"`
	Nulls []*int64 `avro:"_NULL_COUNTS"`
}

// wireMeta is one record of a manifest list.
type wireMeta struct {
	Version   int32     `avro:"_VERSION"`
	Name      string    `avro:"_FILE_NAME"`
	Size      int64     `avro:"_FILE_SIZE"`
	Added     int64     `avro:"_NUM_ADDED_FILES"`
	Deleted   int64     `avro:"_NUM_DELETED_FILES"`
	Partition wireStats `avro:"_PARTITION_STATS"`
	SchemaID  int64     `avro:"_SCHEMA_ID"`
	MinBucket *int32    `avro:"_MIN_BUCKET"`
	MaxBucket *int32    `avro:"_MAX_BUCKET"`
	MinLevel  *int32    `avro:"_MIN_LEVEL"`
	MaxLevel  *int32    `avro:"_MAX_LEVEL"`
}

// wireEntry is one record of a manifest.
type wireEntry struct {
	Version      int32    `avro:"_VERSION"`
	Kind         int32    `avro:"_KIND"`
	Partition    []byte   `avro:"_PARTITION"`
	Bucket       int32    `avro:"_BUCKET"`
	TotalBuckets int32    `avro:"_TOTAL_BUCKETS"`
	File         wireFile `avro:"_FILE"`
}

// wireFile is DataFileMeta as it is read.
type wireFile struct {
	wireFileOut
	// WriteColsSeq is written by Paimon after 2.0 for data evolution only. It is looked at, never kept: a manifest in
	// which it is set is not rewritten.
	WriteColsSeq any `avro:"_WRITE_COLS_SEQUENCES"`
}

// wireFileOut is DataFileMeta as it is written.
type wireFileOut struct {
	Name           string    `avro:"_FILE_NAME"`
	Size           int64     `avro:"_FILE_SIZE"`
	Rows           int64     `avro:"_ROW_COUNT"`
	MinKey         []byte    `avro:"_MIN_KEY"`
	MaxKey         []byte    `avro:"_MAX_KEY"`
	KeyStats       wireStats `avro:"_KEY_STATS"`
	ValueStats     wireStats `avro:"_VALUE_STATS"`
	MinSeq         int64     `avro:"_MIN_SEQUENCE_NUMBER"`
	MaxSeq         int64     `avro:"_MAX_SEQUENCE_NUMBER"`
	SchemaID       int64     `avro:"_SCHEMA_ID"`
	Level          int32     `avro:"_LEVEL"`
	ExtraFiles     []string  `avro:"_EXTRA_FILES"`
	CreatedMillis  *int64    `avro:"_CREATION_TIME"`
	DeleteRows     *int64    `avro:"_DELETE_ROW_COUNT"`
	EmbeddedIndex  *[]byte   `avro:"_EMBEDDED_FILE_INDEX"`
	Source         *int32    `avro:"_FILE_SOURCE"`
	ValueStatsCols *[]string `avro:"_VALUE_STATS_COLS"`
	ExternalPath   *string   `avro:"_EXTERNAL_PATH"`
	FirstRowID     *int64    `avro:"_FIRST_ROW_ID"`
	WriteCols      *[]string `avro:"_WRITE_COLS"`
}

// The fields without which a record means nothing. All others are nullable, and a file may lack them.
var (
	listRequired  = []string{"_VERSION", "_FILE_NAME", "_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES", "_PARTITION_STATS", "_SCHEMA_ID"}
	entryRequired = []string{"_VERSION", "_KIND", "_PARTITION", "_BUCKET", "_TOTAL_BUCKETS", "_FILE"}
	fileRequired  = []string{
		"_FILE_NAME", "_FILE_SIZE", "_ROW_COUNT", "_MIN_KEY", "_MAX_KEY", "_KEY_STATS", "_VALUE_STATS",
		"_MIN_SEQUENCE_NUMBER", "_MAX_SEQUENCE_NUMBER", "_SCHEMA_ID", "_LEVEL", "_EXTRA_FILES",
	}
	fileOptional = []string{
		"_CREATION_TIME", "_DELETE_ROW_COUNT", "_EMBEDDED_FILE_INDEX", "_FILE_SOURCE", "_VALUE_STATS_COLS",
		"_EXTERNAL_PATH", "_FIRST_ROW_ID", "_WRITE_COLS", "_WRITE_COLS_SEQUENCES",
	}
)

// fileSchema is a header schema that was checked and can decode records.
type fileSchema struct {
	avro *avro.Schema
	// lossy: the file has fields that this package does not know, so rewriting its records would lose them.
	lossy bool
}

// schemaCache remembers the header schemas of foreign writers. There are as many as there are writer versions; a
// hostile set of files cannot fill it beyond its bound.
type schemaCache struct {
	mu    sync.Mutex
	known map[string]fileSchema
}

const maxSchemas = 32

var foreignSchemas schemaCache

// get parses a header schema, or finds it.
func (c *schemaCache) get(text string, check func(*avro.SchemaNode) (lossy bool, err error)) (fileSchema, error) {
	c.mu.Lock()
	s, ok := c.known[text]
	c.mu.Unlock()
	if ok {
		return s, nil
	}
	parsed, err := avro.Parse(text)
	if err != nil {
		return fileSchema{}, err
	}
	lossy, err := check(parsed.Root())
	if err != nil {
		return fileSchema{}, err
	}
	s = fileSchema{avro: parsed, lossy: lossy}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxSchemas {
		c.known = map[string]fileSchema{}
	}
	c.known[text] = s
	return s, nil
}

// checkListSchema demands the fields of a manifest list.
func checkListSchema(root *avro.SchemaNode) (bool, error) {
	return false, demand(root, "manifest list", listRequired)
}

// checkEntrySchema demands the fields of a manifest and reports whether it has more than is known here.
func checkEntrySchema(root *avro.SchemaNode) (bool, error) {
	if err := demand(root, "manifest", entryRequired); err != nil {
		return false, err
	}
	i := slices.IndexFunc(root.Fields, func(f avro.SchemaField) bool { return f.Name == "_FILE" })
	file := &root.Fields[i].Type
	if err := demand(file, "manifest field _FILE", fileRequired); err != nil {
		return false, err
	}
	lossy := slices.ContainsFunc(root.Fields, func(f avro.SchemaField) bool { return !slices.Contains(entryRequired, f.Name) }) ||
		slices.ContainsFunc(file.Fields, func(f avro.SchemaField) bool {
			return !slices.Contains(fileRequired, f.Name) && !slices.Contains(fileOptional, f.Name)
		})
	return lossy, nil
}

// demand checks that a record schema has all named fields. Paimon finds fields by name: order and extra fields are free.
func demand(root *avro.SchemaNode, what string, names []string) error {
	if root.Type != "record" {
		return fmt.Errorf("%s is a %s, not a record", what, root.Type)
	}
	var missing []string
	for _, n := range names {
		if !slices.ContainsFunc(root.Fields, func(f avro.SchemaField) bool { return f.Name == n }) {
			missing = append(missing, n)
		}
	}
	if missing != nil {
		return fmt.Errorf("%s lacks %s", what, strings.Join(missing, ", "))
	}
	return nil
}
