package decode

import (
	"strings"

	"github.com/calve-io/calve/schema"
)

// jsonDecoder reads JSON in one pass into the columns.
type jsonDecoder struct {
	rowBuilder

	row, root plan // members of a row, and of the envelope around it
	keyOnly   plan // members of a row of which only the key is read
	source    plan // members of an envelope's source
	keyText   plan // members of a row of which only the text of the key is noted

	objects  uint64 // counts objects inside of columns: marks in column.seen, as attempt
	op       opState
	scratch  []byte
	nest     nesting
	envelope envelope
	manners  []manner         // how columns come by the configuration
	schema   *connectSchema   // by which they are read now; nil: by manners
	schemas  []*connectSchema // seen before
	late     bool             // the schema came after its payload
	deleted  bool             // flat: the row is a deleted one
	gone     []byte           // flat: key of the record before, if it was a delete
}

// Members of an object that are no columns.
const (
	memberUnknown = iota
	memberOp
	memberBefore
	memberAfter
	memberPayload
	memberKeyText
	memberField // of a row
	memberDeleted
	memberSource
	memberSequence
	memberFile
	memberPos
	memberSchema
)

// member is a name that may occur in an object, with the name that followed it last time: JSON of one source keeps its
// order, so the next name is nearly always known and one comparison finds it.
type member struct {
	raw  string  // as it stands in compact JSON: "name":
	col  *column // nil: what says what it is
	name string
	what int // one of the members above
	key  int // memberKeyText: which of the key columns
	next *member
}

// plan is what is known about the members of an object.
type plan struct {
	byName  map[string]*member
	start   member // stands before the first
	unknown member // any name that is not remembered
	learned int    // bytes of unknown names remembered
	track   bool   // note where the columns' values stand
}

// maxLearned bounds the memory for names that are no columns.
const maxLearned = 16 << 10

func newPlan() plan {
	return plan{byName: map[string]*member{}}
}

// unmatched is a raw that no JSON can match outside of strings.
const unmatched = "\x00"

func (p *plan) add(name string, col *column, what int) *member {
	m := &member{raw: `"` + name + `":`, name: name, col: col, what: what}
	if e, escaped, _ := skipString([]byte(name+`"`), 0); e != len(name)+1 || escaped {
		m.raw = unmatched // such a name never stands in JSON as it is
	}
	p.byName[name] = m
	return m
}

// makePlans fills the plans from the schema.
func (d *jsonDecoder) makePlans() {
	for i := range d.cols {
		c := &d.cols[i]
		m := manner{c.unit, c.binary, c.scale, c.unsigned}
		if c.shape == shapeList {
			m.unit, m.scale = c.kids[0].unit, c.kids[0].scale
		}
		d.manners = append(d.manners, m)
	}
	d.row, d.root, d.keyOnly, d.keyText = newPlan(), newPlan(), newPlan(), newPlan()
	for i := range d.cols {
		if d.cols[i].meta == metaNone {
			d.row.add(d.cols[i].name, &d.cols[i], memberUnknown)
		} else { // the column has another source
			d.row.add(d.cols[i].name, nil, memberUnknown)
		}
	}
	if d.cfg.Evolution != Freeze {
		d.row.unknown.what = memberField
	}
	switch op := d.opField(); {
	case d.cfg.Format == Debezium:
		for n, i := range d.keys {
			d.keyOnly.add(d.cols[i].name, &d.cols[i], memberUnknown)
			d.keyText.add(d.cols[i].name, nil, memberKeyText).key = n
		}
		d.row.track = true
		d.envelope.keys = make([]span, len(d.keys))
		d.root.add("op", nil, memberOp)
		d.root.add("before", nil, memberBefore)
		d.root.add("after", nil, memberAfter)
		d.root.add("payload", nil, memberPayload)
		d.root.add("schema", nil, memberSchema)
		if d.repeats.parts != nil {
			d.root.add("source", nil, memberSource)
			d.source = newPlan()
			d.source.add("sequence", nil, memberSequence)
			d.source.add("file", nil, memberFile)
			d.source.add("pos", nil, memberPos)
		}
	case d.cfg.Format == DebeziumFlat:
		d.addMember("__op", memberOp)
		d.addMember("__deleted", memberDeleted)
		d.addMember("payload", memberPayload)
		d.addMember("schema", memberSchema)
	case op != "":
		d.row.add(op, nil, memberOp)
	}
}

// addMember adds a member of rows that is no column.
func (d *jsonDecoder) addMember(name string, what int) {
	if _, taken := d.cfg.Schema.Field(name); !taken {
		d.row.add(name, nil, what)
	}
}

// fault is fail for a fault of the scanners.
func (d *jsonDecoder) fault(code, at int, c *column) int {
	return d.refuse(Malformed, at, c, faultText[-code])
}

// Decode implements Decoder.
func (d *jsonDecoder) Decode(r *Record) error {
	d.open()
	d.op, d.replace, d.oldKeyText = opState{}, false, nil
	return d.close(d.record(r) < 0, len(r.Value))
}

// record reads a whole record and completes its rows; d.at then stands behind them.
func (d *jsonDecoder) record(r *Record) int {
	switch {
	case r.Value == nil:
		return d.tombstone(r)
	case len(r.Value)+r.Cut > d.cfg.MaxRecordBytes:
		return d.tooLong(r)
	case len(r.Value) == 0:
		return d.refuse(Malformed, 0, nil, "the value is empty")
	case d.cfg.Format == Debezium:
		return d.debezium(r)
	case d.cfg.Format == DebeziumFlat:
		return d.flat(r)
	}
	if d.document(r.Value, &d.row) < 0 {
		return -1
	}
	kind := schema.Insert
	if d.op.set {
		kind = d.op.kind
	}
	return d.complete(r, kind)
}

// document reads a message that is one object and nothing else.
func (d *jsonDecoder) document(b []byte, p *plan) int {
	i := space(b, 0)
	if i >= len(b) {
		return d.fault(faultEnd, i, nil)
	}
	if b[i] != '{' {
		return d.fail(i, nil, "want a JSON object, not "+excerpt(b[i:]))
	}
	if i = d.object(b, i+1, p); i < 0 {
		return -1
	}
	return d.end(b, i)
}

// end checks that nothing but white space follows.
func (d *jsonDecoder) end(b []byte, i int) int {
	if i = space(b, i); i < len(b) {
		return d.refuse(Malformed, i, nil, "malformed JSON: more text after the value: "+excerpt(b[i:]))
	}
	return i
}

// object reads the members of an object from after its opening brace and gives the position after the closing one.
func (d *jsonDecoder) object(b []byte, i int, p *plan) int {
	if i = space(b, i); i < len(b) && b[i] == '}' {
		return i + 1
	}
	prev := &p.start
	for {
		m := prev.next
		if m != nil && len(b)-i >= len(m.raw) && string(b[i:i+len(m.raw)]) == m.raw {
			i += len(m.raw)
		} else if i, m = d.name(b, i, p); i < 0 {
			return -1
		} else if prev != &p.unknown && m != &p.unknown {
			prev.next = m
		}
		if i < len(b) && b[i] <= ' ' {
			i = space(b, i)
		}
		if m.col != nil {
			from := i
			i = d.value(b, i, m.col)
			if p.track {
				m.col.text = span{from, i, true}
			}
		} else {
			i = d.special(b, i, m)
		}
		if i < 0 {
			return -1
		}
		if i < len(b) && b[i] <= ' ' {
			i = space(b, i)
		}
		if i >= len(b) {
			return d.fault(faultEnd, i, nil)
		}
		switch b[i] {
		case ',':
			if i++; i < len(b) && b[i] <= ' ' {
				i = space(b, i)
			}
		case '}':
			return i + 1
		default:
			return d.fault(faultValue, i, nil)
		}
		prev = m
	}
}

// name reads a member's name and colon the slow way and finds what is known about it.
func (d *jsonDecoder) name(b []byte, i int, p *plan) (int, *member) {
	if i >= len(b) {
		return d.fault(faultEnd, i, nil), nil
	}
	if b[i] != '"' {
		return d.fault(faultValue, i, nil), nil
	}
	e, escaped, at := skipString(b, i+1)
	if e < 0 {
		return d.fault(e, at, nil), nil
	}
	name := b[i+1 : e-1]
	if escaped {
		d.scratch = unquote(d.scratch[:0], name)
		name = d.scratch
	}
	m := p.byName[string(name)]
	if m == nil {
		m = &p.unknown
		if cost := len(name) + 128; !escaped && p.learned+cost <= maxLearned {
			p.learned += cost
			m = p.add(string(name), nil, p.unknown.what)
		} else if m.what == memberField {
			m.name = string(name)
		}
	}
	if e, at = colon(b, e); e < 0 {
		return d.fault(e, at, nil), nil
	}
	return e, m
}

// special reads the value of a member that is no column.
func (d *jsonDecoder) special(b []byte, i int, m *member) int {
	switch m.what {
	case memberOp:
		return d.readOp(b, i)
	case memberBefore:
		return d.readBefore(b, i)
	case memberAfter:
		return d.readAfter(b, i)
	case memberPayload:
		return d.readPayload(b, i)
	case memberKeyText:
		return d.readKeyText(b, i, &d.envelope.keys[m.key])
	case memberDeleted:
		return d.readDeleted(b, i)
	case memberSchema:
		return d.readSchema(b, i)
	case memberSource:
		return d.readSource(b, i)
	case memberSequence, memberFile, memberPos:
		return d.readPosition(b, i, m.what)
	}
	e, at := skipValue(b, i, &d.nest)
	if e < 0 {
		return d.fault(e, at, nil)
	}
	if m.what == memberField && !d.inKey && !(d.cfg.Format == DebeziumFlat && strings.HasPrefix(m.name, "__")) && d.newColumn(nil, d.cfg.Schema.Fields, m.name, b[i:e], i) < 0 {
		return -1
	}
	return e
}

// readOp reads the row kind.
func (d *jsonDecoder) readOp(b []byte, i int) int {
	if d.op.set {
		return d.refuse(BadOp, i, nil, "the operation is given twice")
	}
	if e := literal(b, i, "null"); e > 0 {
		return e
	}
	if i >= len(b) || b[i] != '"' {
		return d.refuse(BadOp, i, nil, "the operation is not a string")
	}
	text, e := d.text(b, i, nil)
	if e < 0 {
		return -1
	}
	var ok bool
	if d.op, ok = d.parseOp(text, i); !ok {
		return -1
	}
	return e
}

// text reads a string (b[i] is its quote): its characters, in b or in the scratch buffer, and the position after it.
func (d *jsonDecoder) text(b []byte, i int, c *column) ([]byte, int) {
	e, high := scanPlain(b, i+1)
	if e < len(b) && b[e] == '"' && high&highs == 0 {
		return b[i+1 : e], e + 1
	}
	e, escaped, at := skipString(b, i+1)
	if e < 0 {
		return nil, d.fault(e, at, c)
	}
	s := b[i+1 : e-1]
	if escaped {
		d.scratch = unquote(d.scratch[:0], s)
		s = d.scratch
	}
	return s, e
}
