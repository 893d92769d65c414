package decode

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoDecoder reads registry-framed Protobuf in one pass into the columns, by a plan made once for each message of a
// writer's schema. Fields may come in any order and more than once: of single ones the last counts, messages add up.
type protoDecoder struct {
	filler
	schemas *Schemas
	op      string

	values, keys map[protoID]*protoPlan
	files        map[int]protoSource // compiled, by id
	reader       protoSource
	version      int64      // of the reader's schema that the plans were made with
	last         *protoPlan // the one in values that was used last

	stamp uint64 // counts messages read: marks in protoNode.seen
	nodes int    // of the plans that are kept
}

// protoSource is a schema that was compiled, or why it could not be.
type protoSource struct {
	file protoreflect.FileDescriptor
	err  error
	text string
}

// protoID names a message: the schema's id, and its path as serializers write it, which is one spelling of several.
type protoID struct {
	id   int
	path string
}

func newProtoDecoder(rows rowBuilder) *protoDecoder {
	d := &protoDecoder{filler: filler{rowBuilder: rows}, schemas: rows.cfg.Schemas, values: map[protoID]*protoPlan{}, keys: map[protoID]*protoPlan{}, files: map[int]protoSource{}}
	if d.schemas == nil {
		d.schemas = &Schemas{}
	}
	d.op = d.opField()
	return d
}

// Decode implements Decoder.
func (d *protoDecoder) Decode(r *Record) error {
	plan, at, err := d.planFor(r)
	if err != nil {
		return err
	}
	d.open()
	d.kind, d.made, d.replace, d.oldKeyText = opState{}, 0, false, nil
	d.inKey = plan.key
	return d.close(d.record(r, plan, at) < 0, len(r.Value)+d.made)
}

// Bounds of the plans that are kept, and of their nodes: a record says itself which message of its schema it is.
const (
	maxProtoPlans = 10_000
	maxProtoNodes = 200_000 // of some 300 bytes
)

// keep keeps a plan, if need be in the place of all others.
func (d *protoDecoder) keep(plans map[protoID]*protoPlan, p *protoPlan) {
	n := p.root.count()
	if len(plans) >= maxProtoPlans || d.nodes+n > maxProtoNodes {
		d.forget()
	}
	d.nodes += n
	plans[p.id] = p
}

func (d *protoDecoder) forget() {
	clear(d.values)
	clear(d.keys)
	d.nodes = 0
}

// planFor finds the plan of a record's value or, of a tombstone, its key; at is where the message begins.
func (d *protoDecoder) planFor(r *Record) (p *protoPlan, at int, err error) {
	b, plans := r.Value, d.values
	switch d.inKey = b == nil; {
	case d.inKey:
		if d.keyOfTombstone(r) < 0 {
			return nil, 0, d.refusal()
		}
		b, plans = r.Key, d.keys
	case len(b)+r.Cut > d.cfg.MaxRecordBytes:
		d.tooLong(r)
		return nil, 0, d.refusal()
	}
	id, reason := schemaID(b)
	if reason != "" {
		d.refuse(Malformed, 0, nil, reason)
		return nil, 0, d.refusal()
	}
	if v := d.schemas.version.Load(); v != d.version {
		d.version, d.last = v, nil
		d.forget()
	}
	// What names the message ends by itself: nothing else begins with all of it.
	if p = d.last; !d.inKey && p != nil && p.id.id == id && len(b)-framing >= len(p.id.path) && string(b[framing:framing+len(p.id.path)]) == p.id.path {
		return p, framing + len(p.id.path), nil
	}
	path, at := protoPath(b, framing)
	if at < 0 {
		d.refuse(Malformed, framing, nil, "does not say which message of its schema it is")
		return nil, 0, d.refusal()
	}
	name := protoID{id, spellPath(path)}
	if p = plans[name]; p == nil {
		w, refused, ok := d.schemas.get(id)
		switch {
		case !ok:
			return nil, 0, &MissingSchema{id}
		case refused != "":
			d.refuse(NoSchema, 1, nil, refused)
			return nil, 0, d.refusal()
		}
		reader, version := d.schemas.readerSchema()
		made := d.planOf(d.compiled(id, w), d.readerOf(reader), path, d.inKey)
		made.id = name
		if p, d.version = &made, version; !made.brief {
			d.keep(plans, p)
		}
	}
	switch {
	case len(p.adds) > 0:
		d.wishes = append(d.wishes[:0], p.adds...)
		return nil, 0, d.need()
	case p.refused != "":
		d.refuse(NoSchema, 1, nil, "schema id "+strconv.Itoa(id)+": "+p.refused)
		return nil, 0, d.refusal()
	}
	if !d.inKey {
		d.last = p
	}
	return p, at, nil
}

// compiled gives the compiled schema of an id, which never changes.
func (d *protoDecoder) compiled(id int, w WriterSchema) protoSource {
	s, ok := d.files[id]
	if !ok {
		s.file, s.err = parseProto(w)
		d.files[id] = s
	}
	return s
}

// readerOf gives the compiled reader's schema; nil: there is none, or one that cannot be read, which is the same, since it
// may have come long after the records.
func (d *protoDecoder) readerOf(w WriterSchema) protoreflect.FileDescriptor {
	if w.Text != d.reader.text {
		d.reader = protoSource{text: w.Text}
		d.reader.file, d.reader.err = parseProto(w)
	}
	if d.reader.err != nil {
		return nil
	}
	return d.reader.file
}

// record reads a record and completes its row.
func (d *protoDecoder) record(r *Record, p *protoPlan, at int) int {
	b := r.Value
	if p.key {
		b = r.Key
	}
	d.stamp++
	p.root.stamp = d.stamp
	i := d.message(b, at, &p.root)
	if i < 0 {
		return -1
	}
	for k := range p.root.kids {
		n := &p.root.kids[k]
		if n.seen != p.root.stamp {
			if n.absent == absentNull {
				continue // as if the schema did not have it
			}
			if d.fill(i, n) < 0 {
				return -1
			}
		}
		if n.to != nil {
			d.mark(n.to)
		}
	}
	d.inKey = false
	return d.completeUpsert(r)
}

// message reads the fields of a message, which ends where b does. What the schema does not know, and what has another wire
// type than it says, is passed over.
func (d *protoDecoder) message(b []byte, i int, m *protoNode) int {
	for i < len(b) {
		number, wire, e := protoTag(b, i)
		if e < 0 {
			return d.broken(i, m.to)
		}
		switch n := m.field(number); {
		case n != nil && n.wire == wire:
			i = d.read(b, e, m, n)
		case n != nil && n.packs && wire == protowire.BytesType:
			i = d.packed(b, e, m, n)
		default:
			if i = skipProto(b, e, number, wire); i < 0 {
				return d.broken(e, m.to)
			}
		}
		if i < 0 {
			return -1
		}
	}
	return i
}

const brokenProto = "the bytes end too early, or are no Protobuf"

func (d *protoDecoder) broken(at int, c *column) int { return d.refuse(Malformed, at, c, brokenProto) }

// began notes that a field is there, and reports whether it was not yet. Of a oneof the others are not, then.
func (d *protoDecoder) began(m, n *protoNode) bool {
	if n.seen == m.stamp {
		if n.to != nil && n.shape == protoOne {
			n.to.clear(d.at) // the first may have made it null
		}
		return false
	}
	n.seen = m.stamp
	for _, k := range n.oneof {
		m.kids[k].seen = 0
	}
	return true
}

// read reads an occurrence of a field.
func (d *protoDecoder) read(b []byte, i int, m, n *protoNode) int {
	first := d.began(m, n)
	if n.inner {
		d.enter(n.to, d.at)
	}
	if n.shape == protoOne {
		return d.value(b, i, n, first)
	}
	off := n.to.off
	if first {
		off[d.at+1] = off[d.at]
	}
	at, row := int(off[d.at+1]), d.at
	if n.shape == protoMap {
		i = d.entry(b, i, at, n)
	} else {
		d.enter(n.kids[0].to, at)
		i = d.value(b, i, &n.kids[0], true)
	}
	if d.at = row; i < 0 {
		return -1
	}
	off[row+1] = int32(at + 1)
	if d.bytes > d.most {
		return d.overfull(i, n.to)
	}
	return i
}

// packed reads an occurrence of a repeated field that has several values.
func (d *protoDecoder) packed(b []byte, i int, m, n *protoNode) int {
	first := d.began(m, n)
	s, end := lengthOf(b, i)
	if end < 0 {
		return d.broken(i, n.to)
	}
	if n.put == putRefuse {
		return d.fail(i, n.to, n.why)
	}
	if n.inner {
		d.enter(n.to, d.at)
	}
	off, row := n.to.off, d.at
	if first {
		off[row+1] = off[row]
	}
	at, k := int(off[row+1]), &n.kids[0]
	for b = b[:end]; s < end; at++ {
		d.enter(k.to, at)
		s = d.value(b, s, k, true)
		if d.at = row; s < 0 {
			return -1
		}
		if d.bytes > d.most {
			return d.overfull(s, n.to)
		}
	}
	off[row+1] = int32(at)
	return end
}

// entry reads an entry of a map into row at of the columns of keys and values.
func (d *protoDecoder) entry(b []byte, i, at int, n *protoNode) int {
	s, end := lengthOf(b, i)
	if end < 0 {
		return d.broken(i, n.to)
	}
	d.at, d.stamp = at, d.stamp+1
	n.stamp = d.stamp
	return d.content(b[:end], s, n)
}

// content reads a message whose fields are inside a column, and fills those that it does not have.
func (d *protoDecoder) content(b []byte, i int, m *protoNode) int {
	if i = d.message(b, i, m); i < 0 {
		return -1
	}
	for k := range m.kids {
		if n := &m.kids[k]; n.seen != m.stamp && d.fill(i, n) < 0 {
			return -1
		}
	}
	for _, c := range m.rest {
		if d.enter(c, d.at); d.innerNull(c, i) < 0 {
			return -1
		}
	}
	return i
}

// fill writes what a field is that a message does not have.
func (d *protoDecoder) fill(i int, n *protoNode) int {
	if n.to == nil {
		return i
	}
	if n.inner {
		d.enter(n.to, d.at)
	}
	switch n.absent {
	case absentNull:
		if n.inner {
			return d.innerNull(n.to, i)
		}
		return i
	case absentEmpty:
		if n.shape != protoOne {
			n.to.off[d.at+1] = n.to.off[d.at]
			return i
		}
		return d.inside(nil, 0, n, true)
	}
	if n.kind == protoreflect.StringKind || n.kind == protoreflect.BytesKind {
		if d.made += len(n.text); d.made > d.cfg.MaxRecordBytes {
			return d.overgrown(i, n.to)
		}
		return d.putData(n.text, i, i, &n.cell)
	}
	return d.number(n.bits, i, i, n)
}

// value reads one value into the row d.at of its column; first: a message does not add to one before.
func (d *protoDecoder) value(b []byte, i int, n *protoNode, first bool) int {
	switch n.wire {
	case protowire.VarintType:
		v, e := uvarint(b, i)
		if e < 0 {
			return d.broken(i, n.to)
		}
		return d.number(v, i, e, n)
	case protowire.Fixed32Type:
		if len(b)-i < 4 {
			return d.broken(i, n.to)
		}
		return d.number(uint64(binary.LittleEndian.Uint32(b[i:])), i, i+4, n)
	case protowire.Fixed64Type:
		if len(b)-i < 8 {
			return d.broken(i, n.to)
		}
		return d.number(binary.LittleEndian.Uint64(b[i:]), i, i+8, n)
	}
	s, e := lengthOf(b, i)
	switch {
	case e < 0:
		return d.broken(i, n.to)
	case n.kind == protoreflect.MessageKind:
		return d.inside(b[:e], s, n, first)
	case n.put == putKind && s == e:
		d.kind = opState{} // what a text is that is not there
		return e
	}
	return d.putData(b[s:e], i, e, &n.cell)
}

// inside reads a message into its column.
func (d *protoDecoder) inside(b []byte, i int, n *protoNode, first bool) int {
	switch n.put {
	case putSkip:
		return len(b)
	case putRefuse:
		return d.fail(i, n.to, n.why)
	case putStruct:
		if first {
			d.stamp++
			n.stamp = d.stamp
		}
		return d.content(b, i, n)
	}
	return d.putKnown(b, i, n, first)
}

// number stores a value that has no length; v is what stands in the record.
func (d *protoDecoder) number(v uint64, at, end int, n *protoNode) int {
	switch n.kind {
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return d.putLong(int64(v), at, end, &n.cell)
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return d.putLong(int64(int32(v)), at, end, &n.cell)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return d.putLong(int64(uint32(v)), at, end, &n.cell)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return d.putUnsigned(v, at, end, &n.cell)
	case protoreflect.Sint32Kind:
		return d.putLong(int64(int32(protowire.DecodeZigZag(v&math.MaxUint32))), at, end, &n.cell)
	case protoreflect.Sint64Kind:
		return d.putLong(protowire.DecodeZigZag(v), at, end, &n.cell)
	case protoreflect.DoubleKind:
		return d.putFloat(math.Float64frombits(v), 64, at, end, &n.cell)
	case protoreflect.FloatKind:
		return d.putFloat(float64(math.Float32frombits(uint32(v))), 32, at, end, &n.cell)
	case protoreflect.BoolKind:
		switch n.put {
		case putBool:
			n.to.setBool(d.at, v != 0)
		case putRefuse:
			return d.fail(at, n.to, n.why)
		}
		return end
	}
	return d.symbol(int32(v), at, end, n)
}

// symbol stores the name of an enum's value; its number if it has no name.
func (d *protoDecoder) symbol(v int32, at, end int, n *protoNode) int {
	if !n.cell.symbol {
		return d.putLong(int64(v), at, end, &n.cell)
	}
	if name := n.names.of(v); name != nil {
		if n.put == putKind && v == 0 && bytes.HasSuffix(name, []byte("UNSPECIFIED")) {
			return end
		}
		return d.putData(name, at, end, &n.cell)
	}
	d.text = strconv.AppendInt(d.text[:0], int64(v), 10)
	return d.putData(d.text, at, end, &n.cell)
}

// protoTag reads what precedes a field's value; end is -1 when there is none.
func protoTag(b []byte, i int) (number protowire.Number, wire protowire.Type, end int) {
	v, e := uvarint(b, i)
	if e < 0 || v>>3 == 0 || v>>3 > uint64(protowire.MaxValidNumber) {
		return 0, 0, -1
	}
	return protowire.Number(v >> 3), protowire.Type(v & 7), e
}

// uvarint reads a number; end is -1 when there is none.
func uvarint(b []byte, i int) (v uint64, end int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	v, n := protowire.ConsumeVarint(b[min(i, len(b)):])
	if n < 0 {
		return 0, -1
	}
	return v, i + n
}

// lengthOf reads a length that the bytes have: where they begin and end; end is -1 when they do not.
func lengthOf(b []byte, i int) (start, end int) {
	v, e := uvarint(b, i)
	if e < 0 || v > uint64(len(b)-e) {
		return 0, -1
	}
	return e, e + int(v)
}

// skipProto passes over the value of a field; -1: there is none.
func skipProto(b []byte, i int, number protowire.Number, wire protowire.Type) int {
	switch wire {
	case protowire.VarintType:
		_, i = uvarint(b, i)
	case protowire.Fixed32Type:
		i += 4
	case protowire.Fixed64Type:
		i += 8
	case protowire.BytesType:
		_, i = lengthOf(b, i)
	case protowire.StartGroupType:
		return skipGroup(b, i, number)
	default:
		return -1
	}
	if i > len(b) {
		return -1
	}
	return i
}

// skipGroup passes over a group, which ends with its number.
func skipGroup(b []byte, i int, number protowire.Number) int {
	var groups [maxNesting]protowire.Number
	groups[0] = number
	for depth := 1; depth > 0; {
		number, wire, e := protoTag(b, i)
		switch {
		case e < 0 || wire == protowire.StartGroupType && depth == maxNesting || wire == protowire.EndGroupType && groups[depth-1] != number:
			return -1
		case wire == protowire.StartGroupType:
			groups[depth] = number
			depth++
		case wire == protowire.EndGroupType:
			depth--
		default:
			e = skipProto(b, e, number, wire)
		}
		if i = e; i < 0 {
			return -1
		}
	}
	return i
}
