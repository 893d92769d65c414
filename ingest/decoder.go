package ingest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/schema"
)

// Decoder turns records into rows of one table, gathered in a batch. It is not safe for concurrent use.
type Decoder interface {
	// Decode appends the rows of a record: usually one, none for a tombstone that says nothing new, two for an update that
	// moves a row to another key. An error matches ErrRow, and nothing of the record is in the batch then.
	Decode(r *Record) error
	// Rows is the number of rows gathered.
	Rows() int
	// Full reports whether the batch should be taken now.
	Full() bool
	// Take hands the gathered rows over and starts a new batch. Without rows it gives an empty Batch (Rec is nil).
	Take() schema.Batch
}

// Format is how a record's value says what happens to a row.
type Format string

const (
	// FormatJSON: the value is one row as a JSON object. An optional field (DecoderConfig.OpField) names the row kind;
	// without it the row is an upsert (an insert in a table without key). A null value is a delete of the key that the
	// record's key holds as JSON.
	FormatJSON Format = "json"
	// FormatDebezium: the value is an envelope {"before": row, "after": row, "op": "c"}, bare or as the "payload" of a
	// Kafka Connect record with schema. A null value (the tombstone after a delete) says nothing new and is skipped.
	FormatDebezium Format = "debezium-json"
)

// DecoderConfig says how records become rows.
type DecoderConfig struct {
	Schema *schema.Schema
	Format Format // default FormatJSON
	// OpField is the field of FormatJSON that holds the row kind: I, U, D, c, r, u, d, +I, -U, +U, -D. Default "op",
	// unless the table has a column of that name; "-": there is no such field.
	OpField string
	// Metadata fills columns from the record instead of from JSON: column name → topic, partition, offset, timestamp, key.
	Metadata map[string]string
	// EpochUnit is the unit of timestamps given as numbers; EpochUnits sets it for single columns. Default: see EpochUnit.
	EpochUnit  EpochUnit
	EpochUnits map[string]EpochUnit
	// MaxRecordBytes bounds the size of a record's value; larger ones are refused. Default 16 MiB.
	MaxRecordBytes int
	// BatchRows and BatchBytes (of the values read) bound a batch. Defaults 16384 rows and 32 MiB.
	BatchRows  int
	BatchBytes int
}

const defaultRecordBytes = 16 << 20

// NewDecoder checks the configuration against the table and builds the decoder.
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
//     the record. Fields that are no columns are checked to be JSON and ignored. Names are case-sensitive.
func NewDecoder(cfg DecoderConfig) (Decoder, error) {
	if cfg.Schema == nil {
		return nil, fmt.Errorf("decoder: no schema")
	}
	if cfg.Format == "" {
		cfg.Format = FormatJSON
	}
	if cfg.Format != FormatJSON && cfg.Format != FormatDebezium {
		return nil, fmt.Errorf("decoder: format %q is unknown; use %q or %q", cfg.Format, FormatJSON, FormatDebezium)
	}
	for _, d := range []struct {
		v   *int
		def int
	}{{&cfg.MaxRecordBytes, defaultRecordBytes}, {&cfg.BatchRows, 16384}, {&cfg.BatchBytes, 32 << 20}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	d := &jsonDecoder{cfg: cfg, arrow: cfg.Schema.Arrow(), keyed: cfg.Schema.Keyed()}
	for _, f := range cfg.Schema.Fields {
		c, err := newColumn(f)
		if err != nil {
			return nil, fmt.Errorf("decoder: %w", err)
		}
		c.key = slices.Contains(cfg.Schema.PrimaryKeys, f.Name)
		d.cols = append(d.cols, c)
	}
	if err := d.bindMetadata(); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	for i := range d.cols {
		if d.cols[i].key && d.cols[i].meta == metaNone {
			d.keys = append(d.keys, i)
		}
	}
	if err := d.bindUnits(); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	var err error
	if d.rules, err = newRowRules(cfg.Schema); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	d.makePlans()
	if err := d.checkDefaults(); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return d, nil
}

// metaField is what of the record fills a column.
type metaField uint8

const (
	metaNone metaField = iota
	metaTopic
	metaPartition
	metaOffset
	metaTimestamp
	metaKey
)

// metaFields lists the names of the configuration and the shapes of columns that can hold them.
var metaFields = []struct {
	name   string
	field  metaField
	shapes []shape
	types  string
}{
	{"topic", metaTopic, []shape{shapeText}, "STRING"},
	{"partition", metaPartition, []shape{shapeInt32, shapeInt64}, "INT or BIGINT"},
	{"offset", metaOffset, []shape{shapeInt64}, "BIGINT"},
	{"timestamp", metaTimestamp, []shape{shapeInt64, shapeTimestamp}, "TIMESTAMP, TIMESTAMP_LTZ or BIGINT (milliseconds)"},
	{"key", metaKey, []shape{shapeText, shapeBytes}, "STRING or BYTES"},
}

// bindMetadata connects columns with the record's metadata.
func (d *jsonDecoder) bindMetadata() error {
	for name, what := range d.cfg.Metadata {
		i, ok := d.cfg.Schema.Field(name)
		if !ok {
			return fmt.Errorf("metadata column %q is not a column of the table", name)
		}
		c := &d.cols[i]
		for _, m := range metaFields {
			if m.name != what {
				continue
			}
			if !slices.Contains(m.shapes, c.shape) {
				return fmt.Errorf("metadata column %q: %q needs type %s, not %s", name, what, m.types, c.typ)
			}
			c.meta = m.field
		}
		if c.meta == metaNone {
			return fmt.Errorf("metadata column %q: %q is unknown; use topic, partition, offset, timestamp or key", name, what)
		}
		d.metas = append(d.metas, i)
	}
	slices.Sort(d.metas)
	return nil
}

// bindUnits sets the units of numeric timestamps.
func (d *jsonDecoder) bindUnits() error {
	if u := d.cfg.EpochUnit; u != "" {
		n, ok := u.digits()
		if !ok {
			return fmt.Errorf("epoch unit %q is unknown; use s, ms, us or ns", u)
		}
		for i := range d.cols {
			d.cols[i].setUnit(n)
		}
	}
	for name, u := range d.cfg.EpochUnits {
		i, ok := d.cfg.Schema.Field(name)
		if !ok || d.cols[i].shape != shapeTimestamp {
			return fmt.Errorf("epoch unit of %q: the table has no TIMESTAMP column of that name", name)
		}
		n, ok := u.digits()
		if !ok {
			return fmt.Errorf("epoch unit %q of column %q is unknown; use s, ms, us or ns", u, name)
		}
		d.cols[i].unit = n
	}
	return nil
}

// checkDefaults reads every column default once, so that a bad one is found now and not with each record.
func (d *jsonDecoder) checkDefaults() error {
	d.reserve()
	for i := range d.cols {
		if c := &d.cols[i]; c.hasDef {
			d.begin()
			if !d.setDefault(c) {
				return fmt.Errorf("column %q has a default that its type %s cannot hold: %s", c.name, c.typ, d.bad.Reason)
			}
		}
	}
	return nil
}

// opField gives the field that holds the row kind, or "".
func (d *jsonDecoder) opField() string {
	switch name := d.cfg.OpField; name {
	case "-":
		return ""
	case "":
		if _, taken := d.cfg.Schema.Field("op"); taken {
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

// Rows implements Decoder.
func (d *jsonDecoder) Rows() int { return d.rows }

// Full implements Decoder.
func (d *jsonDecoder) Full() bool { return d.rows >= d.cfg.BatchRows || d.bytes >= d.cfg.BatchBytes }

// Take implements Decoder.
func (d *jsonDecoder) Take() schema.Batch {
	if d.rows == 0 {
		return schema.Batch{}
	}
	cols := make([]arrow.Array, len(d.cols))
	for i := range d.cols {
		cols[i] = d.cols[i].take(d.arrow.Field(i).Type, d.rows)
	}
	b := schema.Batch{Rec: array.NewRecordBatch(d.arrow, cols, int64(d.rows))}
	if d.kinds != nil {
		b.Kinds = d.kinds[:d.rows:d.rows]
	}
	// The next batch starts with room for as many rows, so that batches of one size are built without growing.
	d.hint = min(d.rows, d.cfg.BatchRows) + 2
	d.size, d.rows, d.bytes, d.kinds = 0, 0, 0, nil
	return b
}

// reserve makes room for the two rows that one record can make.
func (d *jsonDecoder) reserve() {
	if d.rows+2 <= d.size {
		return
	}
	size := max(64, d.hint, 2*d.size)
	d.hint = 0
	for i := range d.cols {
		d.cols[i].grow(size)
	}
	if d.kinds != nil {
		d.kinds = resize(d.kinds, size)
	}
	d.size = size
}

// setKind stores the kind of a row; the list exists only when there are others than inserts.
func (d *jsonDecoder) setKind(row int, k schema.RowKind) {
	if d.kinds == nil {
		if k == schema.Insert {
			return
		}
		d.kinds = make([]schema.RowKind, d.size)
	}
	d.kinds[row] = k
}

// keyNames lists the key columns for messages.
func (d *jsonDecoder) keyNames() string { return strings.Join(d.cfg.Schema.PrimaryKeys, ", ") }
