package decode

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// avroDecoder reads registry-framed Avro in one pass into the columns, by a plan made once for each writer's schema.
type avroDecoder struct {
	filler
	schemas *Schemas
	planner avroPlanner

	values, keys map[int]*avroPlan
	version      int64     // of the reader's schema that the plans were made with
	last         *avroPlan // of lastID, in values
	lastID       int

	depth int // of records that are skipped, within each other
	empty int // elements without bytes in this record
}

// Bounds on what a few bytes can make.
const (
	maxEmpty   = 1 << 16
	maxNesting = 100
)

func newAvroDecoder(rows rowBuilder) *avroDecoder {
	d := &avroDecoder{filler: filler{rowBuilder: rows}, schemas: rows.cfg.Schemas, values: map[int]*avroPlan{}, keys: map[int]*avroPlan{}}
	if d.schemas == nil {
		d.schemas = &Schemas{}
	}
	d.planner = avroPlanner{adder: adder{d: &d.rowBuilder}, op: d.opField(), schemas: d.schemas}
	return d
}

// Decode implements Decoder.
func (d *avroDecoder) Decode(r *Record) error {
	if r.Value == nil && d.cfg.Format == DebeziumAvro {
		return nil // the tombstone after a delete says nothing new
	}
	plan, b, err := d.planFor(r)
	if err != nil {
		return err
	}
	d.open()
	d.kind, d.depth, d.empty, d.made, d.replace, d.oldKeyText = opState{}, 0, 0, 0, false, nil
	d.inKey = plan.key
	return d.close(d.record(r, plan, b) < 0, len(r.Value)+d.made)
}

// planFor finds the plan of a record, and what it is for: the record's value or, of a tombstone, its key.
func (d *avroDecoder) planFor(r *Record) (*avroPlan, []byte, error) {
	b, plans := r.Value, d.values
	if d.inKey = b == nil; d.cfg.Writer != nil {
		d.inKey = false
		return d.barePlan(r)
	}
	switch {
	case b == nil:
		if d.keyOfTombstone(r) < 0 {
			return nil, nil, d.refusal()
		}
		b, plans = r.Key, d.keys
	case len(b)+r.Cut > d.cfg.MaxRecordBytes:
		d.tooLong(r)
		return nil, nil, d.refusal()
	}
	id, reason := schemaID(b)
	if reason != "" {
		d.refuse(Malformed, 0, nil, reason)
		return nil, nil, d.refusal()
	}
	if v := d.schemas.version.Load(); v != d.version {
		d.version, d.last = v, nil
		clear(d.values)
		clear(d.keys)
	}
	if r.Value != nil && d.last != nil && d.lastID == id {
		return d.last, b[framing:], nil
	}
	p := plans[id]
	if p == nil {
		w, refused, ok := d.schemas.get(id)
		switch {
		case !ok:
			return nil, nil, &MissingSchema{id}
		case refused != "":
			d.refuse(NoSchema, 1, nil, refused)
			return nil, nil, d.refusal()
		}
		reader, version := d.schemas.readerSchema()
		made := d.planner.planOf(w, reader, r.Value == nil)
		made.id = id
		p, d.version = &made, version
		plans[id] = p
	}
	if r.Value != nil && p.refused == "" && len(p.adds) == 0 {
		d.last, d.lastID = p, id
	}
	return d.checked(p, b[framing:])
}

// schemaID reads what precedes a record's bytes.
func schemaID(b []byte) (id int, reason string) {
	switch {
	case len(b) == 0:
		return 0, "is empty"
	case b[0] != 0:
		return 0, "begins with the byte " + strconv.Itoa(int(b[0])) + ", not with 0 and the id of a schema"
	case len(b) < framing:
		return 0, "ends within the id of its schema"
	}
	return int(binary.BigEndian.Uint32(b[1:])), ""
}

// record reads a record and completes its row.
func (d *avroDecoder) record(r *Record, p *avroPlan, b []byte) int {
	if p.envelope != nil {
		if d.event(r, p, b) < 0 {
			return d.shift()
		}
		return 0
	}
	i := d.row(b, 0, p)
	if i < 0 {
		return d.shift()
	}
	if i < len(b) {
		d.tooMany(i, b)
		return d.shift()
	}
	d.inKey = false
	return d.completeUpsert(r)
}

// tooMany refuses a record behind which bytes are left.
func (d *avroDecoder) tooMany(i int, b []byte) int {
	return d.refuse(Malformed, i, nil, strconv.Itoa(len(b)-i)+" bytes more than the schema says")
}

// shift makes the place of a fault one in the framed bytes.
func (d *avroDecoder) shift() int {
	if d.bad.Offset >= 0 && d.cfg.Writer == nil {
		d.bad.Offset += framing
	}
	return -1
}

// row reads the fields of a record into the columns.
func (d *avroDecoder) row(b []byte, i int, p *avroPlan) int {
	for k := range p.root.kids {
		n := &p.root.kids[k]
		if n.to != nil {
			d.mark(n.to)
		}
		if i = d.read(b, i, n); i < 0 {
			return -1
		}
	}
	for k := range p.rest {
		x := &p.rest[k]
		d.mark(x.to)
		d.made += len(x.deflt)
		if d.read(x.deflt, 0, &x.node) < 0 {
			return -1
		}
	}
	return i
}

// read reads a value into the row d.at of its column and gives the position behind it, or -1.
func (d *avroDecoder) read(b []byte, i int, n *avroNode) int {
	if n.null >= 0 {
		if i >= len(b) {
			return d.short(b, n)
		}
		switch c := b[i]; {
		case c == byte(n.null)<<1:
			return d.putNull(i+1, &n.cell)
		case c > 2 || c&1 != 0:
			return d.refuse(Malformed, i, n.to, "the union has no such branch")
		}
		i++
	}
	switch n.kind {
	case avroInt, avroLong:
		v, e := zigzag(b, i)
		switch {
		case e < 0:
			return d.short(b, n)
		case n.kind == avroInt && v != int64(int32(v)):
			return d.refuse(Malformed, i, n.to, "an int of more than 32 bits")
		}
		return d.putLong(v, i, e, &n.cell)
	case avroString, avroBytes:
		s, e := length(b, i)
		if e < 0 {
			return d.short(b, n)
		}
		return d.putData(b[s:e], i, e, &n.cell)
	case avroDouble:
		if len(b)-i < 8 {
			return d.short(b, n)
		}
		return d.putFloat(math.Float64frombits(binary.LittleEndian.Uint64(b[i:])), 64, i, i+8, &n.cell)
	case avroFloat:
		if len(b)-i < 4 {
			return d.short(b, n)
		}
		return d.putFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))), 32, i, i+4, &n.cell)
	case avroBoolean:
		switch {
		case i >= len(b):
			return d.short(b, n)
		case b[i] > 1:
			return d.refuse(Malformed, i, n.to, "a boolean that is neither 0 nor 1")
		case n.put == putBool:
			n.to.setBool(d.at, b[i] == 1)
		case n.put == putRefuse:
			return d.fail(i, n.to, n.why)
		}
		return i + 1
	}
	return d.readOther(b, i, n)
}

// readOther reads the types that are not as common.
func (d *avroDecoder) readOther(b []byte, i int, n *avroNode) int {
	if n.put == putRefuse {
		return d.fail(i, n.to, n.why)
	}
	switch n.kind {
	case avroNull:
		return d.putNull(i, &n.cell)
	case avroFixed:
		if len(b)-i < n.size {
			return d.short(b, n)
		}
		return d.putData(b[i:i+n.size], i, i+n.size, &n.cell)
	case avroEnum:
		v, e := zigzag(b, i)
		switch {
		case e < 0:
			return d.short(b, n)
		case v < 0 || v >= int64(len(n.symbols)):
			return d.refuse(Malformed, i, n.to, "the enum has no such symbol")
		case n.put == putSkip:
			return e
		}
		return d.putData(n.symbols[v], i, e, &n.cell)
	case avroUnion:
		v, e := zigzag(b, i)
		switch {
		case e < 0:
			return d.short(b, n)
		case v < 0 || v >= int64(len(n.kids)):
			return d.refuse(Malformed, i, n.to, "the union has no such branch")
		}
		return d.read(b, e, &n.kids[v])
	case avroRecord:
		return d.readRecord(b, i, n)
	}
	return d.readBlocks(b, i, n)
}

func (d *avroDecoder) readRecord(b []byte, i int, n *avroNode) int {
	switch n.put {
	case putSkip:
		if d.depth++; d.depth > maxNesting {
			return d.refuse(Malformed, i, nil, "more than "+strconv.Itoa(maxNesting)+" records within each other")
		}
		for k := range n.link.kids {
			if i = d.read(b, i, &n.link.kids[k]); i < 0 {
				return -1
			}
		}
		d.depth--
		return i
	case putScaled:
		scale, e := zigzag(b, i)
		if e < 0 {
			return d.short(b, n)
		}
		s, end := length(b, e)
		if end < 0 {
			return d.short(b, n)
		}
		if scale < -maxDigits || scale > maxDigits {
			return d.fail(i, n.to, "a decimal of scale "+strconv.FormatInt(scale, 10))
		}
		return d.putUnscaledBytes(b[s:end], int(scale), i, end, n.to)
	}
	for k := range n.kids {
		x := &n.kids[k]
		if x.to == nil {
			i = d.read(b, i, x)
		} else {
			i = d.inside(b, i, x, d.at)
		}
		if i < 0 {
			return -1
		}
	}
	for k := range n.rest {
		x := &n.rest[k]
		row := d.enter(x.to, d.at)
		if x.deflt == nil {
			if d.innerNull(x.to, i) < 0 {
				return -1
			}
		} else if d.made += len(x.deflt); d.made > d.cfg.MaxRecordBytes {
			return d.overgrown(i, x.to)
		} else if d.read(x.deflt, 0, &x.node) < 0 {
			return -1
		}
		d.at = row
	}
	return i
}

// inside reads a value into row at of a column inside another.
func (d *avroDecoder) inside(b []byte, i int, n *avroNode, at int) int {
	row := d.enter(n.to, at)
	i = d.read(b, i, n)
	d.at = row
	return i
}

// readBlocks reads an array or a map: blocks of a count and as many values, until a count of 0. A negative count is
// followed by the block's size.
func (d *avroDecoder) readBlocks(b []byte, i int, n *avroNode) int {
	at := 0
	if n.put != putSkip {
		at = int(n.to.off[d.at])
	}
	for {
		count, e := zigzag(b, i)
		if e >= 0 && count < 0 {
			count = -count // the least number stays negative
			if _, e = zigzag(b, e); count < 0 {
				e = -1
			}
		}
		if e < 0 {
			return d.short(b, n)
		}
		i = e
		if count == 0 {
			break
		}
		for ; count > 0; count-- {
			if e = d.element(b, i, n, at); e < 0 {
				return -1
			}
			if d.bytes > d.most {
				return d.overfull(i, n.to)
			}
			if e == i {
				if d.empty++; d.empty > maxEmpty {
					return d.refuse(Malformed, i, n.to, "more than "+strconv.Itoa(maxEmpty)+" elements without a byte")
				}
			}
			i = e
			at++
		}
	}
	if n.put != putSkip {
		n.to.off[d.at+1] = int32(at)
	}
	return i
}

// element reads one element or entry.
func (d *avroDecoder) element(b []byte, i int, n *avroNode, at int) int {
	switch {
	case n.put == putList:
		return d.inside(b, i, &n.kids[0], at)
	case n.put == putPairs:
		for k := range n.kids {
			x := &n.kids[k]
			if x.to == nil {
				i = d.read(b, i, x)
			} else {
				i = d.inside(b, i, x, at)
			}
			if i < 0 {
				return -1
			}
		}
		return i
	case n.kind == avroArray:
		return d.read(b, i, &n.kids[0])
	}
	s, e := length(b, i)
	if e < 0 {
		return d.short(b, n)
	}
	if n.put == putSkip {
		return d.read(b, e, &n.kids[0])
	}
	if !utf8.Valid(b[s:e]) {
		return d.refuse(Malformed, s, &n.to.kids[0], "is not valid UTF-8")
	}
	if d.textKey(b[s:e], i, &n.to.kids[0], at) < 0 {
		return -1
	}
	return d.inside(b, e, &n.kids[0], at)
}

// short refuses a record whose bytes end too early, or have a length or number that none can have.
func (d *avroDecoder) short(b []byte, n *avroNode) int {
	return d.refuse(Malformed, len(b), n.to, "the bytes end too early, or hold a length that they do not have")
}

// zigzag reads an int or long; end is -1 when there is none.
func zigzag(b []byte, i int) (v int64, end int) {
	if i < len(b) && b[i] < 0x80 {
		c := b[i]
		return int64(c>>1) ^ -int64(c&1), i + 1
	}
	var u uint64
	for s := 0; s < 64 && i < len(b); s += 7 {
		c := b[i]
		i++
		u |= uint64(c&0x7f) << s
		if c < 0x80 {
			if s == 63 && c > 1 {
				return 0, -1
			}
			return int64(u>>1) ^ -int64(u&1), i
		}
	}
	return 0, -1
}

// length reads a length that the bytes have: where they begin and end; end is -1 when they do not.
func length(b []byte, i int) (start, end int) {
	v, e := zigzag(b, i)
	if e < 0 || v < 0 || v > int64(len(b)-e) {
		return 0, -1
	}
	return e, e + int(v)
}
