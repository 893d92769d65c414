package decode

import (
	"fmt"
	"slices"

	"github.com/calve-io/calve/schema"
)

// Decoder turns records into rows of one table, gathered in a batch. It is not safe for concurrent use.
type Decoder interface {
	// Decode appends the rows of a record: usually one, none for a tombstone that says nothing new, two for an update that
	// moves a row to another key. With an error nothing of the record is in the batch. It matches ErrRow when the record
	// cannot be a row, is a *NeedSchema when it can be one of another schema of the table, and a *MissingSchema when it can
	// only be decoded later.
	Decode(r *Record) error
	// Rows is the number of rows gathered.
	Rows() int
	// Full reports whether the batch should be taken now.
	Full() bool
	// Seen is what is known of the positions of events so far, as Config.Seen takes it; "" unless DropRepeats is set.
	Seen() string
	// Holes is the number of rows gathered that have cells to be filled: see Batch.
	Holes() int
	// Take hands the gathered rows over and starts a new batch. Without rows its Rec is nil.
	Take() Batch
}

// Format is how a record's value says what happens to a row.
type Format string

const (
	// JSON: the value is one row as a JSON object. An optional field (Config.OpField) names the row kind;
	// without it the row is an upsert (an insert in a table without key). A null value is a delete of the key that the
	// record's key holds as JSON.
	JSON Format = "json"
	// Debezium: the value is an envelope {"before": row, "after": row, "op": "c"}, bare or as the "payload" of a
	// Kafka Connect record with schema. A null value (the tombstone after a delete) says nothing new and is skipped.
	Debezium Format = "debezium-json"
	// DebeziumFlat: the value is the row after an event, as Debezium's ExtractNewRecordState leaves it, with the fields
	// "__deleted" and "__op" if its options add them. A deleted row ("__deleted": "true") is a delete by its key, and so is
	// a null value, unless it follows such a row.
	DebeziumFlat Format = "debezium-flat-json"
	// Avro: the value is one row as an Avro record behind 0 and the 4-byte id of its writer's schema, as the serializers of
	// Confluent's registry write it. Row kinds as with JSON; a null value is a delete of the key that the record's key
	// holds in the same form. See ColumnsOfAvro for how types become columns.
	Avro Format = "avro"
	// DebeziumAvro: as Debezium, in the form of Avro.
	DebeziumAvro Format = "debezium-avro"
	// Protobuf: the value is one row as a Protobuf message behind 0, the 4-byte id of its writer's schema and the place of
	// the message in it, as the serializers of Confluent's registry write it. Otherwise as Avro; see ColumnsOfProtobuf.
	// Fields that a message does not have are null if it can be told that it does not have them (proto3 has "optional" for
	// that; members of a oneof and messages), else their default; repeated ones are empty. Groups are passed over.
	Protobuf Format = "protobuf"
)

// FramedJSON: as JSON, behind 0 and the 4-byte id of a JSON Schema in a registry. With Config.Schemas the schema tells how
// decimals and times come that Kafka Connect wrote, and which types new columns have (ColumnsOfJSONSchema); without them it
// is not asked for.
const FramedJSON Format = "json-schema"

// CSV: the value is one row of comma-separated values (RFC 4180), whose fields Config.Header names. Values are read from
// text as New says; a field that has nothing, not even quotes, is null (where a text must not be null it is empty), and
// nested values are JSON. Fields that are no columns are ignored.
const CSV Format = "csv"

// Arrow: the record is a row of an Arrow batch (Record.Rows), such as readers of Parquet files make. Columns are found by
// name and converted as those of Avro are; a column of the name that OpField says, of strings, is the row kind. See
// ColumnsOfArrow.
const Arrow Format = "arrow"

var formats = []Format{JSON, Debezium, DebeziumFlat, Avro, DebeziumAvro, Protobuf, CSV, FramedJSON, Arrow}

// Framed reports whether records of the format begin with the id of a schema, so that a registry is needed.
func (f Format) Framed() bool { return f == Avro || f == DebeziumAvro || f == Protobuf }

// Events reports whether records are events of Debezium.
func (f Format) Events() bool { return f == Debezium || f == DebeziumFlat || f == DebeziumAvro }

// Config says how records become rows.
type Config struct {
	Schema *schema.Schema
	Format Format // default JSON
	// Writer is the schema of Avro records that do not begin with the id of one, as in files. nil: they do.
	Writer *WriterSchema
	// Header has the names of the fields of CSV.
	Header []string
	// Schemas are the writers' schemas, of formats that are framed. Shared with whoever asks the registry.
	Schemas *Schemas
	// OpField is the field of the value that holds the row kind: I, U, D, c, r, u, d, +I, -U, +U, -D. Default "op",
	// unless the table has a column of that name; "-": there is no such field.
	OpField string
	// Metadata fills columns from the record instead of from JSON: column name → topic, partition, offset, timestamp, key.
	Metadata map[string]string
	// EpochUnit is the unit of timestamps given as numbers; EpochUnits sets it for single columns. Default: see EpochUnit.
	EpochUnit  EpochUnit
	EpochUnits map[string]EpochUnit
	// Evolution says what records may do to the table's schema. Default Freeze.
	Evolution Evolution
	// Decimals is how exact decimals come; Unsigned are the columns in which a BIGINT UNSIGNED of MySQL comes as a signed number
	// ("bigint.unsigned.handling.mode" long): DECIMAL with 20 digits before the point. Specials is what becomes of values
	// that no column holds.
	Decimals Decimals
	Unsigned []string
	Specials Specials
	// Before is what events tell of the row before, which must be said where a table with a primary key is partitioned: a row
	// that moves, or goes, is in the partition that it was in.
	Before Before
	// DropRepeats drops events that came before, as a connector that was killed sends some again. It is needed for tables
	// without key. Events without position are never dropped; Seen is what an earlier decoder's Seen gave. A source that begins
	// again at lower positions, as a restored database does, needs a new job.
	DropRepeats bool
	Seen        string
	// Unavailable is the text that stands for values that the source did not have at hand. Default DefaultUnavailable.
	Unavailable string
	// MaxRecordBytes bounds the size of a record's value; larger ones are refused, and those that come to more than 16 times
	// as much in memory. Default 16 MiB.
	MaxRecordBytes int
	// MaxSwell, if it is set, bounds the bytes of texts and the elements of lists that all rows of Arrow have together, refused
	// ones too, since rows may refer to one word of a dictionary any number of times: beyond it Decode gives ErrSwell, and the
	// decoder is of no further use.
	MaxSwell int64
	// BatchRows and BatchBytes (of the values read) bound a batch. Defaults 16384 rows and 32 MiB.
	BatchRows  int
	BatchBytes int
}

const DefaultRecordBytes = 16 << 20

// New checks the configuration against the table and builds the decoder. What is particular to events of Debezium is in
// DEBEZIUM.md.
//
// How JSON becomes values:
//   - Numbers are exact: an integer column takes any number whose value is whole and in range ("1e3", "5.0"); DECIMAL takes
//     what fits its precision and scale without rounding; FLOAT and DOUBLE take the nearest value. All take a number inside
//     a string, too; FLOAT and DOUBLE also "NaN", "Infinity" and "-Infinity".
//   - CHAR, VARCHAR, STRING take strings, unescaped; any other value is kept as its JSON text. Lengths count characters.
//   - BINARY, VARBINARY, BYTES take base64 strings (standard alphabet, padded).
//   - DATE: "YYYY-MM-DD" or the days since 1970. TIME: "HH:MM[:SS[.fff]]" or the milliseconds of the day.
//   - TIMESTAMP and TIMESTAMP_LTZ: ISO 8601 text with T or a space, or a number since 1970 in the column's EpochUnit. A zone
//     is converted to UTC, text without zone is UTC. Digits finer than the column holds are dropped, towards the past.
//   - ARRAY takes an array, ROW an object with its fields (others are ignored), MAP and MULTISET an array of [key, value]
//     pairs or, if keys are text, numbers, dates or times, an object. VARIANT cannot be read.
//   - null and a missing field are NULL; a missing field of a column with a default gets the default. NOT NULL columns
//     refuse both, but for the columns of a delete that are not its key: they get the type's zero value.
//   - A row that the table's merge engine cannot take (schema.Refusals) refuses its record, as does a text that is no row
//     kind in the column of the table option "rowkind.field".
//   - Anything out of range, of another type, or malformed, a field that occurs twice, and invalid UTF-8 anywhere refuse
//     the record. Fields that are no columns are checked to be JSON and ignored, unless Evolution says otherwise. Names are
//     case-sensitive.
func New(cfg Config) (Decoder, error) {
	if cfg.Schema == nil {
		return nil, fmt.Errorf("decoder: no schema")
	}
	if cfg.Format == "" {
		cfg.Format = JSON
	}
	if !slices.Contains(formats, cfg.Format) {
		return nil, fmt.Errorf("decoder: format %q is unknown; use one of %q", cfg.Format, formats)
	}
	if cfg.Evolution == "" {
		cfg.Evolution = Freeze
	}
	if !slices.Contains(Evolutions, cfg.Evolution) {
		return nil, fmt.Errorf("decoder: evolution %q is unknown; use one of %q", cfg.Evolution, Evolutions)
	}
	for _, d := range []struct {
		v   *int
		def int
	}{{&cfg.MaxRecordBytes, DefaultRecordBytes}, {&cfg.BatchRows, 16384}, {&cfg.BatchBytes, 32 << 20}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	rows, err := newRowBuilder(cfg)
	if err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	switch cfg.Format {
	case Avro, DebeziumAvro:
		return newAvroDecoder(rows), nil
	case Protobuf:
		return newProtoDecoder(rows), nil
	case Arrow:
		return newArrowDecoder(rows), nil
	}
	d := &jsonDecoder{rowBuilder: rows}
	d.makePlans()
	switch cfg.Format {
	case CSV:
		return newCSVDecoder(*d)
	case FramedJSON:
		return &framedJSON{jsonDecoder: d}, nil
	}
	return d, nil
}

// opField gives the field that holds the row kind, or "".
func (d *rowBuilder) opField() string { return OpField(&d.cfg) }

// OpField gives the field that holds the row kind, or "" if there is none.
func OpField(cfg *Config) string {
	switch name := cfg.OpField; name {
	case "-":
		return ""
	case "":
		if _, taken := cfg.Schema.Field("op"); taken {
			return ""
		}
		return "op"
	default:
		return name
	}
}

// parseKind reads a row kind in the spellings of calve, Debezium and Flink.
func parseKind(s []byte) (schema.RowKind, bool) {
	switch string(s) {
	case "I", "+I", "c", "r":
		return schema.Insert, true
	case "U", "+U", "u":
		return schema.UpdateAfter, true
	case "-U":
		return schema.UpdateBefore, true
	case "D", "-D", "d":
		return schema.Delete, true
	}
	return 0, false
}
