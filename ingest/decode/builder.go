package decode

import (
	"hash"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/schema"
)

// rowBuilder gathers rows in columns, whatever form the records have. A decoder begins a row, marks and writes columns,
// and completes it; what it does not complete leaves no trace.
type rowBuilder struct {
	cfg   Config
	arrow *arrow.Schema
	cols  []column
	keys  []int // primary key columns that come from the record's content
	metas []int // metadata columns
	keyed bool
	rules rowRules

	rows  int // done
	at    int // row being written: rows, or rows+1 for the second of a record
	size  int // rows there is room for
	hint  int // rows to make room for at first
	bytes int // of values read into this batch, of texts made of them, and of the room that elements take
	most  int // that bytes may come to in this row: see maxSwell
	kinds []schema.RowKind

	attempt uint64 // counts rows begun: marks in column.seen are of this row or stale
	count   int    // columns set in this row
	nulls   int    // NOT NULL columns that are null in this row
	touched bool   // a null bit was cleared in this row

	digits []byte // scratch for numbers as text
	bad    RowError
	inKey  bool
	wishes []wish // changes of the schema that the record needs

	repeats    repeats
	changes    changes
	bag        bool  // the table counts copies of rows: see bag.go
	copies     int64 // of the row being written: 1 or -1
	hash       int   // column that takes the hash of the row; -1: none
	byID       []int // columns of the content, by field id; for the hash, as digest and word
	digest     hash.Hash
	word       []byte
	whole      bool   // updates must have the row before
	replace    bool   // the row being read takes the place of another
	oldKeyText []byte // that row's key if it is another one, as JSON
}

// maxSwell is how many times the record size limit the values of a record may take in memory beside its own bytes: elements
// of few bytes that have many fields, and numbers that are written out as text.
const maxSwell = 16

// newRowBuilder makes the columns of a table.
func newRowBuilder(cfg Config) (rowBuilder, error) {
	d := rowBuilder{cfg: cfg, arrow: cfg.Schema.Arrow(), keyed: cfg.Schema.Keyed(), hash: -1}
	for _, f := range cfg.Schema.Fields {
		c, err := newColumn(f)
		if err != nil {
			return d, err
		}
		c.setPath([]string{f.Name})
		c.key, c.top = slices.Contains(cfg.Schema.PrimaryKeys, f.Name), true
		d.cols = append(d.cols, c)
	}
	if err := d.bindMetadata(); err != nil {
		return d, err
	}
	for i := range d.cols {
		if d.cols[i].key && d.cols[i].meta == metaNone {
			d.keys = append(d.keys, i)
		}
	}
	if err := d.bindUnits(); err != nil {
		return d, err
	}
	if err := d.bindExact(); err != nil {
		return d, err
	}
	if cfg.Format.Events() {
		d.bindEvents()
		if err := d.checkBefore(); err != nil {
			return d, err
		}
	}
	if err := d.bindRepeats(); err != nil {
		return d, err
	}
	var err error
	if d.rules, err = newRowRules(cfg.Schema); err != nil {
		return d, err
	}
	return d, d.checkDefaults()
}

// begin starts the row d.at, or starts it again.
func (d *rowBuilder) begin() {
	if d.touched {
		for i := range d.cols {
			d.cols[i].clear(d.at)
		}
		d.touched = false
	}
	d.attempt++
	d.count, d.nulls = 0, 0
	d.most = 2*d.bytes + maxSwell*d.cfg.MaxRecordBytes // room that is there may double
	d.changes.lacks = d.changes.lacks[:0]
}

// mark counts a column as set in this row; false: it was set before.
func (d *rowBuilder) mark(c *column) bool {
	if c.seen == d.attempt {
		return false
	}
	c.seen = d.attempt
	d.count++
	return true
}

func (d *rowBuilder) null(c *column) {
	c.setNull(d.at)
	d.touched = true
	if c.notNull || c.key {
		d.nulls++
	}
}

// complete ends the row d.at: metadata, missing columns, nulls, kind.
func (d *rowBuilder) complete(r *Record, kind schema.RowKind) int {
	if !d.keyed && kind != schema.Insert {
		return d.refuse(BadOp, -1, nil, "the table has no primary key: it takes inserts only, not "+kind.String())
	}
	if d.bag {
		if d.copies = 1; !kind.IsAdd() {
			d.copies, kind = -1, schema.Insert
		}
	}
	for _, i := range d.metas {
		if d.setMeta(r, &d.cols[i]) < 0 {
			return -1
		}
	}
	if d.count < len(d.cols) && d.fillMissing(kind) < 0 {
		return -1
	}
	if d.nulls > 0 && d.settleNulls(kind) < 0 {
		return -1
	}
	if d.bag {
		d.setHash()
	}
	if d.rules.any && d.obey(kind) < 0 {
		return -1
	}
	if d.replace {
		if d.replaces(d.oldKeyText, r.Value) < 0 {
			return -1
		}
	} else if len(d.changes.lacks) > 0 {
		return d.fail(-1, &d.cols[d.changes.lacks[0]], "is "+excerpt(d.changes.marker)+", which is not a value of type "+d.cols[d.changes.lacks[0]].typ.String())
	}
	d.setKind(d.at, kind)
	d.touched = false
	d.at++
	return 0
}

// fillMissing sets the columns that the record did not mention.
func (d *rowBuilder) fillMissing(kind schema.RowKind) int {
	for i := range d.cols {
		c := &d.cols[i]
		if c.seen == d.attempt {
			continue
		}
		d.mark(c)
		if c.hasDef && kind.IsAdd() {
			if !d.setDefault(c) {
				return -1
			}
			continue
		}
		d.null(c)
	}
	return 0
}

// settleNulls refuses nulls in NOT NULL columns. A delete needs its key alone: other columns get the zero value, as their
// file columns cannot hold nulls.
func (d *rowBuilder) settleNulls(kind schema.RowKind) int {
	for i := range d.cols {
		c := &d.cols[i]
		if !c.notNull && !c.key || !c.isNull(d.at) {
			continue
		}
		switch {
		case c.key:
			return d.refuse(NoKey, -1, c, "key column is missing or null; the key is ("+d.keyNames()+")")
		case kind.IsAdd():
			return d.refuse(IsNull, -1, c, "is missing or null, but the column is NOT NULL")
		}
		c.setZero(d.at)
	}
	return 0
}

// setMeta fills a column from the record itself.
func (d *rowBuilder) setMeta(r *Record, c *column) int {
	d.mark(c)
	switch c.meta {
	case metaHash:
		c.setData(d.at, nil) // until all columns are there
	case metaCopies:
		c.i64[d.at] = d.copies
	case metaTopic:
		d.bytes += len(r.Topic)
		if !c.setData(d.at, []byte(r.Topic)) {
			return d.overfull(-1, c)
		}
	case metaPartition:
		if c.shape == shapeInt32 {
			c.i32[d.at] = r.Partition
		} else {
			c.i64[d.at] = int64(r.Partition)
		}
	case metaOffset:
		c.i64[d.at] = r.Offset
	case metaTimestamp:
		switch {
		case r.Timestamp == 0:
			d.null(c)
		case c.shape == shapeTimestamp:
			v, reason := epochTimestamp(millis(r.Timestamp), 3, c.stored)
			if reason != "" {
				return d.fail(-1, c, "the record's timestamp "+reason)
			}
			c.i64[d.at] = v
		default:
			c.i64[d.at] = r.Timestamp
		}
	case metaKey:
		switch {
		case r.Key == nil:
			d.null(c)
		case c.shape == shapeText && !utf8.Valid(r.Key):
			return d.fail(-1, c, "the record's key is not valid UTF-8; use a BYTES column for it")
		case !c.setData(d.at, r.Key):
			return d.overfull(-1, c)
		default:
			d.bytes += len(r.Key)
		}
	}
	return 0
}

// fail is refuse for a value that its column cannot hold or, without a column, for what is not a record of the format.
func (d *rowBuilder) fail(at int, c *column, reason string) int {
	if c != nil {
		return d.refuse(BadValue, at, c, reason)
	}
	return d.refuse(NotRecord, at, c, reason)
}

// refuse notes why the record is refused; it gives -1 as the position.
func (d *rowBuilder) refuse(code Code, at int, c *column, reason string) int {
	d.bad = RowError{Offset: at, InKey: d.inKey, Code: code, Reason: reason}
	if c != nil {
		d.bad.Column = c.name
	}
	return -1
}

// refusal gives what fail noted as an error.
func (d *rowBuilder) refusal() error {
	err := d.bad
	return &err
}

// abandon takes back the rows of a record that fail has refused, and says why it was.
func (d *rowBuilder) abandon() error {
	for d.at = d.rows; d.at < d.rows+2; d.at++ {
		d.touched = true
		d.begin()
	}
	return d.refusal()
}

// tooLong refuses a record for its size.
func (d *rowBuilder) tooLong(r *Record) int {
	return d.refuse(TooLarge, -1, nil, "the value has "+strconv.Itoa(len(r.Value)+r.Cut)+" bytes, more than the record size limit of "+strconv.Itoa(d.cfg.MaxRecordBytes))
}

// keyOfTombstone refuses a tombstone that does not say which row to delete.
func (d *rowBuilder) keyOfTombstone(r *Record) int {
	if !d.keyed {
		return d.refuse(BadOp, -1, nil, "the value is null (a tombstone), but the table has no primary key")
	}
	if len(r.Key) == 0 {
		return d.refuse(NoKey, -1, nil, "the value is null (a tombstone) and there is no key that says which row to delete")
	}
	return 0
}

// reserve makes room for the two rows that one record can make.
func (d *rowBuilder) reserve() {
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
func (d *rowBuilder) setKind(row int, k schema.RowKind) {
	if d.kinds == nil {
		if k == schema.Insert {
			return
		}
		d.kinds = make([]schema.RowKind, d.size)
	}
	d.kinds[row] = k
}

// Rows implements Decoder.
func (d *rowBuilder) Rows() int { return d.rows }

// Full implements Decoder.
func (d *rowBuilder) Full() bool {
	return d.rows >= d.cfg.BatchRows || d.bytes >= d.cfg.BatchBytes && d.rows > 0 || d.changes.truncate
}

// Take implements Decoder.
func (d *rowBuilder) Take() Batch {
	out := Batch{Truncate: d.changes.truncate, Holes: d.changes.holes}
	if d.changes.oldKeys != nil {
		out.OldKeys = d.changes.oldKeys.Take().Batch
	}
	d.changes.truncate, d.changes.holes = false, nil
	if d.rows > 0 {
		out.Batch = d.takeRows()
	}
	return out
}

// takeRows hands the rows over.
func (d *rowBuilder) takeRows() schema.Batch {
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

// keyNames lists the key columns for messages.
func (d *rowBuilder) keyNames() string { return strings.Join(d.cfg.Schema.PrimaryKeys, ", ") }

func millis(v int64) number {
	if v < 0 {
		return number{neg: true, mant: uint64(-v)}
	}
	return number{mant: uint64(v)}
}
