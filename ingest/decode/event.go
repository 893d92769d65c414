package decode

import (
	"bytes"
	"fmt"

	"github.com/calve-io/calve/schema"
)

// What an event of Debezium asks for, whatever form it comes in. A decoder reads the envelope and asks here.

// event is the operation of an envelope, by Debezium's letter; 0: there is none.
type event byte

const (
	eventCreate   event = 'c'
	eventRead     event = 'r' // of a snapshot
	eventUpdate   event = 'u'
	eventDelete   event = 'd'
	eventTruncate event = 't'
	eventMessage  event = 'm' // written by the database's users, about no row
)

// opState is what the op field of the record said.
type opState struct {
	kind  schema.RowKind
	event event // of Debezium
	set   bool
}

// parseOp reads an operation: the kind of a row, or what an event says happened. If it is none the record is refused.
func (d *rowBuilder) parseOp(text []byte, at int) (opState, bool) {
	if d.cfg.Format.Events() {
		ev, ok := parseEvent(text)
		if !ok {
			d.refuse(BadOp, at, nil, "operation "+excerpt(text)+" is unknown; known are c, r, u, d, t and m")
			return opState{}, false
		}
		return opState{ev.kind(), ev, true}, true
	}
	kind, ok := parseKind(text)
	if !ok {
		d.refuse(BadOp, at, nil, "operation "+excerpt(text)+" is unknown; known are I, U, D, c, r, u, d, +I, -U, +U, -D")
	}
	return opState{kind: kind, set: ok}, ok
}

// parseEvent reads an operation. The row kinds of Flink's changelog formats are taken too.
func parseEvent(s []byte) (event, bool) {
	switch string(s) {
	case "c", "r", "u", "d", "t", "m":
		return event(s[0]), true
	case "I", "+I":
		return eventCreate, true
	case "U", "+U":
		return eventUpdate, true
	case "D", "-D":
		return eventDelete, true
	}
	return 0, false
}

// kind is what the row after the event is to the table.
func (e event) kind() schema.RowKind {
	if e == eventUpdate {
		return schema.UpdateAfter
	}
	return schema.Insert
}

// writes is what an event makes of the rows of its envelope.
type writes uint8

const (
	writeFault      writes = iota // nothing, as d.bad says
	writeNothing                  // nothing
	writeBefore                   // the row before, as a delete
	writeAfter                    // the row after
	writeAfterMoved               // the row after, and if the row before has another key that one as a delete
	writeBoth                     // the row before as a delete and the row after, whatever they are
)

// judge decides what an event of which the rows before and after are there writes, and whether cells of the row after may
// be unavailable.
func (d *rowBuilder) judge(r *Record, ev event, before, after bool) writes {
	switch ev {
	case eventTruncate:
		d.truncated()
		return writeNothing
	case eventMessage:
		return writeNothing
	case eventDelete:
		if !before {
			d.fail(-1, nil, "a delete without the row before it")
			return writeFault
		}
		return writeBefore
	}
	if !after {
		d.fail(-1, nil, "an insert or update without the row after it")
		return writeFault
	}
	switch {
	case d.bag && ev == eventUpdate:
		if !before {
			d.refuse(NoKey, -1, nil, "an update without the row before it, which is needed where rows have no key (REPLICA IDENTITY FULL)")
			return writeFault
		}
		return writeBoth
	case !d.keyed || d.bag:
		return writeAfter
	case ev == eventUpdate || ev == 0:
		d.replace = true
		if before {
			return writeAfterMoved
		}
		if d.whole && ev == eventUpdate {
			d.refuse(NoKey, -1, nil, "an update without the row before it, which is needed to find its partition (REPLICA IDENTITY FULL)")
			return writeFault
		}
	case ev == eventCreate:
		d.oldKeyText, d.replace = r.Header(headerOldKey)
	}
	return writeAfter
}

// eventOf gives the operation that a header of the record names, 0 if none does.
func eventOf(r *Record) event {
	v, _ := r.Header("__op")
	ev, _ := parseEvent(v)
	return ev
}

// Before is what events tell of the row before them.
type Before string

const (
	BeforeFull Before = "full" // all columns: REPLICA IDENTITY FULL of PostgreSQL, MySQL
	BeforeKey  Before = "key"  // the source's key, of which the partition columns are a part
)

// checkBefore refuses tables in which rows before could not be found. With the key alone before it (PostgreSQL's default)
// a delete does not say which partition it is about, and an update not that it moves a row to another one.
func (d *rowBuilder) checkBefore() error {
	s := d.cfg.Schema
	switch d.cfg.Before {
	case BeforeFull, BeforeKey:
	case "":
		if d.keyed && s.Partitioned() {
			return fmt.Errorf("the table is partitioned by %v: say with before what events tell of the row before. %q: all columns (REPLICA IDENTITY FULL); %q: the source's key, and it has these columns. Otherwise do not partition the table, or by no column that can change",
				s.PartitionKeys, BeforeFull, BeforeKey)
		}
	default:
		return fmt.Errorf("before %q is unknown; use %q or %q", d.cfg.Before, BeforeFull, BeforeKey)
	}
	if d.cfg.Before == BeforeFull && d.cfg.Format == DebeziumFlat && d.keyed && s.Partitioned() {
		return fmt.Errorf("records of format %q do not tell the row before, so a row that moves to another partition of the table, by %v, would stay in the old one; use %q",
			DebeziumFlat, s.PartitionKeys, Debezium)
	}
	d.whole = d.cfg.Before == BeforeFull && d.keyed && s.Partitioned()
	return nil
}

// Batch are the rows that a decoder has gathered, with what is to be done about them beside writing them.
type Batch struct {
	schema.Batch
	// Truncate: the table is to be emptied first. Rows gathered before are not in the batch, as they would be gone.
	Truncate bool
	// Holes are the cells whose values the records do not have, in the order of rows. They are null in the batch.
	Holes []Hole
	// OldKeys has the columns of the primary key, a row for each Hole.Old.
	OldKeys schema.Batch
}

// Hole says which cells of a row are to be filled with those of the row that it replaces, since the source sent a marker
// for values that did not change and that it did not have at hand (PostgreSQL's TOAST).
type Hole struct {
	Row  int   // in the batch
	Cols []int // columns of the schema
	// First and Last are all rows that the record made, Last is behind them: they go together.
	First, Last int
	// Old is the row of OldKeys that has the key of the row before; -1: it has the same key.
	Old int
	// Valued: the values are not null. PostgreSQL leaves out only what it stores apart from the row, which nulls are not.
	Valued bool
}

// DefaultUnavailable is what Debezium sends for an unavailable value unless its option
// "unavailable.value.placeholder" says otherwise.
const DefaultUnavailable = "__debezium_unavailable_value"

// Headers that Debezium gives the two events of a changed key: the row's other key, as JSON.
const headerOldKey = "__debezium.oldkey"

// changes is what a decoder of events keeps about the batch beside its rows.
type changes struct {
	marker   []byte // what stands for an unavailable value; nil: values are never unavailable
	object   []byte // the marker as hstore in JSON
	may      []int  // columns that may hold it
	holes    []Hole
	lacks    []int // columns of this row that were found to hold it while they were read
	oldKeys  Decoder
	truncate bool
}

// bindEvents prepares for events of Debezium.
func (d *rowBuilder) bindEvents() {
	text := d.cfg.Unavailable
	if text == "" {
		text = DefaultUnavailable
	}
	d.changes.marker = []byte(text)
	d.changes.object = fmt.Appendf(nil, "{%q:%q}", text, text)
	for i := range d.cols {
		c := &d.cols[i]
		if c.meta != metaNone || c.key {
			continue
		}
		switch c.shape {
		case shapeText, shapeBytes, shapeList, shapeMap:
			d.changes.may = append(d.changes.may, i)
		}
	}
}

// truncated drops all rows: the table is to be emptied.
func (d *rowBuilder) truncated() {
	d.Take()
	d.reserve()
	d.at, d.changes.truncate = 0, true
	d.begin()
}

// What tells that an event is one of PostgreSQL: in JSON it stands in no text, where quotes are escaped; in Avro the text
// comes with its length.
var fromPostgresJSON, fromPostgresAvro = []byte(`"connector":"postgresql"`), []byte("\x14postgresql")

// replaces notes what the row d.at does not tell and the row that it replaces does; old is that row's key as JSON, nil: it
// is the same key. It is called for rows that may replace one only: the marker in the row of a new key is a text like any
// other. value is the record's.
func (d *rowBuilder) replaces(old, value []byte) int {
	var cols []int
	for _, i := range d.changes.may {
		if c := &d.cols[i]; !c.isNull(d.at) && d.isMarker(c, d.at) {
			cols = append(cols, i)
		}
	}
	cols = append(cols, d.changes.lacks...)
	if len(cols) == 0 {
		return 0
	}
	h := Hole{Row: d.at, Cols: cols, First: d.rows, Old: -1, Valued: bytes.Contains(value, fromPostgresJSON) || bytes.Contains(value, fromPostgresAvro)}
	if old != nil {
		if h.Old = d.oldKey(old); h.Old < 0 {
			return -1
		}
	}
	for _, i := range cols {
		d.cols[i].setNull(d.at)
		d.touched = true
	}
	d.changes.holes = append(d.changes.holes, h)
	return 0
}

// isMarker reports whether the value of a row is the marker, in the form that Debezium gives it in a column of that type:
// text, its bytes, an array of that one text or of its bytes as numbers, a map from it to itself.
func (d *rowBuilder) isMarker(c *column, row int) bool {
	m := d.changes.marker
	switch c.shape {
	case shapeText:
		n := int(c.off[row+1] - c.off[row])
		return (n == len(m) && string(c.data[c.off[row]:c.off[row+1]]) == string(m)) ||
			(n == len(d.changes.object) && string(c.data[c.off[row]:c.off[row+1]]) == string(d.changes.object))
	case shapeBytes:
		return int(c.off[row+1]-c.off[row]) == len(m) && string(c.data[c.off[row]:c.off[row+1]]) == string(m)
	case shapeList:
		k, from, n := &c.kids[0], int(c.off[row]), int(c.off[row+1]-c.off[row])
		switch {
		case n == 1 && (k.shape == shapeText || k.shape == shapeBytes):
			return !k.isNull(from) && d.isMarker(k, from)
		case n == len(m) && (k.shape == shapeInt32 || k.shape == shapeInt64):
			for i, b := range m {
				if k.isNull(from+i) || k.shape == shapeInt32 && k.i32[from+i] != int32(b) || k.shape == shapeInt64 && k.i64[from+i] != int64(b) {
					return false
				}
			}
			return true
		}
	case shapeMap:
		k, v, from := &c.kids[0], &c.kids[1], int(c.off[row])
		return c.off[row+1]-c.off[row] == 1 && k.shape == shapeText && v.shape == shapeText &&
			d.isMarker(k, from) && !v.isNull(from) && d.isMarker(v, from)
	}
	return false
}

// lacking notes that a value is the marker where the column cannot hold it; false: it is not.
func (d *rowBuilder) lacking(c *column, s []byte) bool {
	if d.changes.marker == nil || !c.top || c.key || !bytes.Equal(s, d.changes.marker) {
		return false
	}
	for i := range d.cols {
		if &d.cols[i] == c {
			d.changes.lacks = append(d.changes.lacks, i)
		}
	}
	c.setNull(d.at)
	d.touched = true
	return true
}

// oldKey keeps the key of the row that a row with another key replaces.
func (d *rowBuilder) oldKey(text []byte) int {
	if d.changes.oldKeys == nil {
		s := &schema.Schema{}
		for _, name := range d.cfg.Schema.PrimaryKeys {
			i, _ := d.cfg.Schema.Field(name)
			s.Fields = append(s.Fields, d.cfg.Schema.Fields[i])
		}
		var err error
		if d.changes.oldKeys, err = New(Config{Schema: s, Format: JSON, OpField: "-", EpochUnit: d.cfg.EpochUnit, Decimals: d.cfg.Decimals, Unsigned: d.cfg.keyUnsigned()}); err != nil {
			return d.fail(-1, nil, "header "+headerOldKey+": "+err.Error())
		}
	}
	if err := d.changes.oldKeys.Decode(&Record{Value: text}); err != nil {
		return d.fail(-1, nil, "header "+headerOldKey+": "+err.Error())
	}
	return d.changes.oldKeys.Rows() - 1
}

// Holes implements Decoder.
func (d *rowBuilder) Holes() int { return len(d.changes.holes) }

// open begins a record.
func (d *rowBuilder) open() {
	d.reserve()
	d.at = d.rows
	d.begin()
	d.inKey, d.wishes, d.repeats.noted = false, d.wishes[:0], false
}

// close ends a record: its rows are gathered, or it is refused as d.bad says, and leaves nothing behind. size is that of
// its value.
func (d *rowBuilder) close(refused bool, size int) error {
	wishes := !refused && len(d.wishes) > 0
	h := d.changes.holes
	for len(h) > 0 && h[len(h)-1].Last == 0 {
		last := &h[len(h)-1]
		last.Last = d.at
		if refused || wishes {
			h = h[:len(h)-1]
			continue
		}
		break
	}
	d.changes.holes = h
	if refused {
		return d.abandon()
	}
	if wishes {
		d.unsee()
		_ = d.abandon() // nothing is refused
		return d.need()
	}
	d.rows = d.at
	d.bytes += size
	return nil
}
