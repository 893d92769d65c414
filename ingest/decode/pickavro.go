package decode

import (
	"slices"
	"strconv"
	"unicode/utf8"
)

// avroPicker finds the field in registry-framed Avro, by a plan made once for each writer's schema: it passes over what
// stands before the field, and reads nothing behind it.
type avroPicker struct {
	of     *Picker
	d      avroDecoder // passes over values, and notes what is wrong
	plans  map[pickedSchema]*avroPick
	last   *avroPick // of lastOf
	lastOf pickedSchema
	none   avroNode // of no column, for faults
}

// pickedSchema names a plan.
type pickedSchema struct {
	id  int
	key bool // of records' keys
}

// avroPick is how the field is found in records of one writer's schema.
type avroPick struct {
	refused string    // records of the schema are refused, for this
	root    *pickNode // of rows; nil: of envelopes
	fields  []pickField
}

// pickField is a field of an envelope; those behind the last one that says something are left out.
type pickField struct {
	role avroRole
	skip avroNode
	node *pickNode // the row, or the operation
}

// pickDo is what is done with a value on the way to the field.
type pickDo uint8

const (
	pickNothing pickDo = iota // there is no field: null, or a value without fields
	pickInto                  // a record: to its field
	pickBranch                // a union: to the branch
	pickText
	pickSymbol
	pickWhole
	pickDate
	pickBool
	pickUUID
	pickRefuse // a type that chooses no table
)

// pickNode is how a value on the way to the field is read.
type pickNode struct {
	do       pickDo
	skips    []avroNode  // pickInto: the fields before
	next     *pickNode   // pickInto; nil: the record has no such field
	branches []*pickNode // pickBranch
	symbols  [][]byte    // pickSymbol
	narrow   bool        // pickWhole: an int
	why      string      // pickRefuse
}

func newAvroPicker(p *Picker) *avroPicker {
	return &avroPicker{of: p, plans: map[pickedSchema]*avroPick{}}
}

func (a *avroPicker) pick(dst []byte, r *Record) (text []byte, ok bool, err error) {
	b, key := r.Value, r.Value == nil
	if key {
		// The tombstone of an event says nothing, so nobody waits for the schema of its key. Of what is no event the key may be
		// the only thing that tells which row is deleted, so its fault is told.
		if b = r.Key; len(b) == 0 || a.of.format.Events() {
			return dst, false, nil
		}
	}
	plan, err := a.planFor(b, key)
	if err != nil {
		return dst, false, err
	}
	a.d.depth, a.d.empty, a.d.inKey = 0, 0, key
	if plan.root == nil {
		return a.event(dst, b[framing:], plan)
	}
	return a.walk(dst, b[framing:], 0, plan.root)
}

// planFor finds the plan of a record's value or key.
func (a *avroPicker) planFor(b []byte, key bool) (*avroPick, error) {
	id, reason := schemaID(b)
	if reason != "" {
		return nil, &RowError{InKey: key, Code: Malformed, Reason: reason}
	}
	name := pickedSchema{id, key}
	p := a.last
	if p == nil || a.lastOf != name {
		if p = a.plans[name]; p == nil {
			w, err := a.of.writer(id, key)
			if err != nil {
				return nil, err
			}
			if len(a.plans) >= maxPicks {
				clear(a.plans)
			}
			p = a.planOf(w, key)
			a.plans[name] = p
		}
		a.last, a.lastOf = p, name
	}
	if p.refused != "" {
		return nil, unfit(id, p.refused, key)
	}
	return p, nil
}

// event is walk for an envelope: the row after, else the one before.
func (a *avroPicker) event(dst, b []byte, plan *avroPick) (text []byte, ok bool, err error) {
	var spots [roleOp + 1]pickSpot
	i := 0
	for k := range plan.fields {
		f := &plan.fields[k]
		if f.role != roleOther {
			n, at := a.branch(b, i, f.node)
			if at < 0 {
				return dst, false, a.fault()
			}
			spots[f.role] = pickSpot{n, at}
			if a.enough(&spots) {
				break
			}
		}
		if i = a.d.read(b, i, &f.skip); i < 0 {
			return dst, false, a.fault()
		}
	}
	before, after, op := spots[roleBefore], spots[roleAfter], spots[roleOp]
	if a.of.Whole && after.isRow() && !before.isRow() {
		text, _, err := a.walk(dst, b, op.at, op.node)
		if err != nil {
			return dst, false, err
		}
		if ev, _ := parseEvent(text[len(dst):]); ev == eventUpdate {
			return dst, false, a.of.untold(op.at + framing)
		}
	}
	old, had := dst, false
	if before.isRow() {
		old, had, err = a.walk(dst, b, before.at, before.node)
	}
	if err != nil || !after.isRow() {
		return old, had, err
	}
	text, ok, err = a.walk(old, b, after.at, after.node)
	if err == nil && had && ok {
		err = a.of.moved(text, len(dst), len(old), after.at+framing)
	}
	return append(text[:len(dst)], text[len(old):]...), ok, err
}

// pickSpot is where a value of an envelope begins; its node is nil while it was not looked for.
type pickSpot struct {
	node *pickNode
	at   int
}

func (s pickSpot) isRow() bool { return s.node != nil && s.node.do == pickInto }

// enough reports whether all of an envelope was found that says something.
func (a *avroPicker) enough(spots *[roleOp + 1]pickSpot) bool {
	before, after := spots[roleBefore], spots[roleAfter]
	if before.node == nil || after.node == nil {
		return false
	}
	return spots[roleOp].node != nil || !a.of.Whole || !after.isRow() || before.isRow()
}

// branch gives the node of a value, of a union that of the branch, and where the value begins; -1: there is none.
func (a *avroPicker) branch(b []byte, i int, n *pickNode) (*pickNode, int) {
	if n.do != pickBranch {
		return n, i
	}
	v, e := zigzag(b, i)
	switch {
	case e < 0:
		return n, a.d.short(b, &a.none)
	case v < 0 || v >= int64(len(n.branches)):
		return n, a.d.refuse(Malformed, i, nil, "the union has no such branch")
	}
	return n.branches[v], e
}

// walk goes from a value to the field and appends its text.
func (a *avroPicker) walk(dst, b []byte, i int, n *pickNode) (text []byte, ok bool, err error) {
	a.d.depth, a.d.empty = 0, 0 // an event is walked through several times
	for {
		if n, i = a.branch(b, i, n); i < 0 {
			return dst, false, a.fault()
		}
		if n.do != pickInto {
			break
		}
		if n.next == nil {
			return dst, false, nil
		}
		for k := range n.skips {
			if i = a.d.read(b, i, &n.skips[k]); i < 0 {
				return dst, false, a.fault()
			}
		}
		n = n.next
	}
	if n.do == pickNothing {
		return dst, false, nil
	}
	if text, i = a.text(dst, b, i, n); i < 0 {
		return dst, false, a.fault()
	}
	return text, true, nil
}

// text appends the text of a value; -1: there is none, or none that it may be.
func (a *avroPicker) text(dst, b []byte, i int, n *pickNode) ([]byte, int) {
	switch n.do {
	case pickText:
		s, e := length(b, i)
		switch {
		case e < 0:
			return dst, a.d.short(b, &a.none)
		case !utf8.Valid(b[s:e]):
			return dst, a.d.refuse(Malformed, i, nil, "is not valid UTF-8")
		}
		return append(dst, b[s:e]...), e
	case pickBool:
		switch {
		case i >= len(b):
			return dst, a.d.short(b, &a.none)
		case b[i] > 1:
			return dst, a.d.refuse(Malformed, i, nil, "a boolean that is neither 0 nor 1")
		}
		return strconv.AppendBool(dst, b[i] == 1), i + 1
	case pickUUID:
		if len(b)-i < 16 {
			return dst, a.d.short(b, &a.none)
		}
		return appendUUID(dst, b[i:i+16]), i + 16
	case pickRefuse:
		return dst, a.d.refuse(NoTable, i, nil, n.why)
	}
	v, e := zigzag(b, i)
	switch {
	case e < 0:
		return dst, a.d.short(b, &a.none)
	case n.do == pickSymbol && (v < 0 || v >= int64(len(n.symbols))):
		return dst, a.d.refuse(Malformed, i, nil, "the enum has no such symbol")
	case n.do == pickSymbol:
		return append(dst, n.symbols[v]...), e
	case n.narrow && v != int64(int32(v)):
		return dst, a.d.refuse(Malformed, i, nil, "an int of more than 32 bits")
	case n.do == pickWhole:
		return strconv.AppendInt(dst, v, 10), e
	case !inRange(v, 3):
		return dst, a.d.refuse(NoTable, i, nil, "a date of day "+strconv.FormatInt(v, 10)+" "+outOfRange)
	}
	return appendDay(dst, v), e
}

// fault gives what was noted as an error, with the place in the framed bytes.
func (a *avroPicker) fault() error {
	a.d.shift()
	return a.d.refusal()
}

// pickPlanner makes the nodes for one schema.
type pickPlanner struct {
	of    *Picker
	skips avroPlanner
	nodes map[pickPlace]*pickNode // types may be found in several ways, and contain themselves
}

// pickPlace is a type at a step of the path.
type pickPlace struct {
	t    *avroType
	step int
}

// planOf makes the plan for a writer's schema, which is judged as for decoding.
func (a *avroPicker) planOf(w WriterSchema, key bool) *avroPick {
	t, err := parseAvro(w)
	if err != nil {
		return &avroPick{refused: err.Error()}
	}
	p := pickPlanner{of: a.of, skips: avroPlanner{skips: map[*avroType]*avroNode{}}, nodes: map[pickPlace]*pickNode{}}
	switch {
	case key:
	case a.of.format == DebeziumAvro:
		return p.envelope(t)
	case t.kind != avroRecord:
		return &avroPick{refused: t.noRecord()}
	}
	return &avroPick{root: p.node(t, 0)}
}

func (p *pickPlanner) envelope(t *avroType) *avroPick {
	if t.rowOf() == nil {
		return &avroPick{refused: noEnvelope}
	}
	out, last := &avroPick{}, 0
	for i := range t.fields {
		f := pickField{skip: p.skips.skip(t.fields[i].typ)}
		switch t.fields[i].name {
		case "before":
			f.role, f.node = roleBefore, p.node(t.fields[i].typ, 0)
		case "after":
			f.role, f.node = roleAfter, p.node(t.fields[i].typ, 0)
		case "op":
			f.role, f.node = roleOp, p.node(t.fields[i].typ, len(p.of.path))
		}
		if out.fields = append(out.fields, f); f.role != roleOther {
			last = i
		}
	}
	out.fields = out.fields[:last+1]
	return out
}

// node makes the node of a type behind so many steps of the path.
func (p *pickPlanner) node(t *avroType, step int) *pickNode {
	place := pickPlace{t, step}
	if n := p.nodes[place]; n != nil {
		return n
	}
	n := &pickNode{}
	p.nodes[place] = n
	switch {
	case t.kind == avroUnion:
		n.do = pickBranch
		for _, x := range t.branches {
			n.branches = append(n.branches, p.node(x, step))
		}
	case step == len(p.of.path):
		p.leaf(n, t)
	case t.kind == avroRecord:
		n.do = pickInto
		k := slices.IndexFunc(t.fields, func(f avroField) bool { return f.name == p.of.path[step] })
		if k < 0 {
			return n
		}
		for i := range t.fields[:k] {
			n.skips = append(n.skips, p.skips.skip(t.fields[i].typ))
		}
		n.next = p.node(t.fields[k].typ, step+1)
	}
	return n
}

// leaf chooses what is done with the field itself.
func (p *pickPlanner) leaf(n *pickNode, t *avroType) {
	_, clock := avroTimes[t.logical]
	_, moment := avroTimestamps[t.logical]
	switch {
	case t.kind == avroNull:
	case t.kind == avroString:
		n.do = pickText
	case t.kind == avroEnum:
		n.do, n.symbols = pickSymbol, t.symbols
	case t.kind == avroBoolean:
		n.do = pickBool
	case t.kind == avroFixed && t.size == 16 && t.logical == "uuid":
		n.do = pickUUID
	case (t.kind == avroInt || t.kind == avroLong) && !clock && !moment:
		n.do, n.narrow = pickWhole, t.kind == avroInt
		if avroDates[t.logical] {
			n.do = pickDate
		}
	default:
		n.do, n.why = pickRefuse, p.of.noText(t.describe())
	}
}
