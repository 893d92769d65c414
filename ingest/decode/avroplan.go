package decode

import (
	"slices"

	"github.com/calve-io/calve/schema"
)

// avroNode is how one type of a writer's schema is read into one column. A tree of them is made once for each writer's
// schema, so that reading asks nothing twice.
type avroNode struct {
	cell
	kind avroKind
	null int8 // of a union of null and one other type: which branch is null; -1: no such union
	size int  // of fixed

	kids    []avroNode // fields, branches, elements or values
	rest    []avroRest // fields of a ROW that the writer does not have
	link    *avroNode  // of a record that is skipped: shared, as types may contain themselves
	symbols [][]byte
}

// avroRest is a column that the writer does not have.
type avroRest struct {
	to    *column
	node  avroNode // of the reader's type
	deflt []byte   // nil: the column is null
}

// avroPlan is how records of one writer's schema become rows.
type avroPlan struct {
	id      int    // of the schema
	refused string // records of the schema are refused, for this
	adds    []wish // columns that the table lacks
	root    avroNode
	rest    []avroRest // of columns

	key      bool          // of records' keys
	envelope *avroEnvelope // nil: records are rows
}

// avroPlanner makes plans for the columns of a table.
type avroPlanner struct {
	adder
	op    string // name of the field with the row kind, or ""
	skips map[*avroType]*avroNode
	rows  *avroType // while a key is planned: the reader's schema of the rows, which may have other names for its fields

	schemas *Schemas
	renames bool // fields may rename columns
}

// plan makes the plan of a record's value. reader (nil: none) has defaults and former names.
func (p *avroPlanner) plan(t, reader *avroType) avroPlan {
	p.skips, p.adds, p.bad = map[*avroType]*avroNode{}, nil, ""
	if t.kind != avroRecord {
		return avroPlan{refused: t.noRecord()}
	}
	if reader != nil && reader.kind != avroRecord {
		reader = nil
	}
	only := p.key || p.schemas.onlyRecord(t.name)
	p.renames = only && !p.key && p.d.cfg.Evolution == Evolve && reader != nil && reader.name == t.name
	out := avroPlan{root: avroNode{kind: avroRecord, null: -1}}
	taken := map[*column]bool{}
	for i := range t.fields {
		f := &t.fields[i]
		c, rf := p.column(t, f, reader)
		switch {
		case c != nil && !taken[c]:
			taken[c] = true
			out.root.kids = append(out.root.kids, p.node(f.typ, rf, c, false))
		case p.op != "" && f.name == p.op && f.typ.single() != nil && (f.typ.single().kind == avroString || f.typ.single().kind == avroEnum):
			n := p.skip(f.typ)
			p.setKind(&n)
			out.root.kids = append(out.root.kids, n)
		default:
			if c == nil && !p.rename(nil, p.d.cfg.Schema.Fields, t, f, reader, p.named) {
				p.add(nil, p.d.cfg.Schema.Fields, f.name, func() (schema.Type, bool, error) { return (&avroMapper{}).typeOf(f.typ) })
			}
			out.root.kids = append(out.root.kids, p.skip(f.typ))
		}
	}
	if out.adds, out.refused = p.adds, p.bad; p.bad != "" {
		out.adds = nil
	}
	if reader != nil {
		for i := range p.d.cols {
			c := &p.d.cols[i]
			if f := reader.field(c.name); f != nil && f.deflt != nil && !taken[c] && c.meta == metaNone && !c.hasDef {
				out.rest = append(out.rest, avroRest{c, p.node(f.typ, nil, c, false), f.deflt})
			}
		}
	}
	return out
}

// noRecord says why records of the type are refused.
func (t *avroType) noRecord() string { return "the writer's schema is not a record but " + t.name }

// keyPlan makes the plan of a record's key: a record of the key columns, or the value of the only one. rows (nil: none) is
// the reader's schema of the rows.
func (p *avroPlanner) keyPlan(t, rows *avroType) avroPlan {
	p.key, p.rows = true, rows
	defer func() { p.key, p.rows = false, nil }()
	if t.kind == avroRecord || len(p.d.keys) != 1 {
		return p.plan(t, nil)
	}
	p.skips = map[*avroType]*avroNode{}
	return avroPlan{root: avroNode{kind: avroRecord, null: -1, kids: []avroNode{p.node(t, nil, &p.d.cols[p.d.keys[0]], false)}}}
}

// column finds the column of a writer's field: the one of its name, or the one that the reader says had that name.
func (p *avroPlanner) column(t *avroType, f *avroField, reader *avroType) (*column, *avroType) {
	name := f.name
	rf := reader.field(name)
	if rf == nil {
		var later string
		later, rf = reader.renamed(t, name)
		if _, ok := p.d.cfg.Schema.Field(name); !ok {
			name = later
		}
	}
	c := p.named(name)
	if c == nil && p.key { // the fields of rows may have been renamed, or those of keys alone
		if name, _ = p.rows.renamed(t, f.name); p.named(name) == nil {
			name = former(t, f, f.aliases, nil, f.name, p.named)
		}
		c = p.named(name)
	}
	if c == nil || rf == nil {
		return c, nil
	}
	return c, rf.typ
}

// named gives the column of a name that records have; nil: there is none.
func (p *avroPlanner) named(name string) *column {
	if i, ok := p.d.cfg.Schema.Field(name); ok && p.d.cols[i].meta == metaNone {
		return &p.d.cols[i]
	}
	return nil
}

// renamed finds the field of a reader's record that had the name of a field of a writer's.
func (t *avroType) renamed(writer *avroType, was string) (string, *avroField) {
	if t == nil {
		return was, nil
	}
	name, found := was, (*avroField)(nil)
	for i := range t.fields {
		r := &t.fields[i]
		if slices.Contains(r.aliases, was) && writer.field(r.name) == nil {
			name, found = r.name, r
		}
	}
	return name, found
}

// field gives the field of a name of a record, or nil.
func (t *avroType) field(name string) *avroField {
	if t == nil {
		return nil
	}
	for i := range t.fields {
		if t.fields[i].name == name {
			return &t.fields[i]
		}
	}
	return nil
}

// node makes the node that reads a type into a column.
func (p *avroPlanner) node(t, reader *avroType, c *column, inner bool) avroNode {
	if reader != nil && t.kind != avroUnion {
		reader = reader.like(t)
	}
	if t.kind == avroUnion {
		return p.union(t, reader, c, inner)
	}
	n := avroNode{cell: cell{to: c, inner: inner, scale: t.scale}, kind: t.kind, null: -1, size: t.size}
	switch {
	case t.kind == avroNull:
		n.put = putText // whatever: there is no value
	case t.kind == avroRecord && c.shape == shapeStruct:
		p.record(&n, t, reader)
	case t.kind == avroRecord && t.logical == scaledName && p.scaled(&n, t):
	case t.kind == avroArray && c.shape == shapeList:
		n.put = putList
		n.kids = []avroNode{p.node(t.items, reader.inside(), &c.kids[0], true)}
	case t.kind == avroMap && c.shape == shapeMap && keyShape(c.kids[0].shape):
		n.put = putMap
		n.kids = []avroNode{p.node(t.items, reader.inside(), &c.kids[1], true)}
	case t.kind == avroArray && c.shape == shapeMap && t.items.kind == avroRecord && t.items.field("key") != nil && t.items.field("value") != nil:
		p.pairs(&n, t.items)
	default:
		p.single(&n, t)
	}
	if n.put == putSkip {
		n = p.skip(t)
		n.to, n.inner = c, inner
		n.refuses("the Avro type " + t.describe())
	}
	return n
}

// like gives what of a reader's type values of t become.
func (t *avroType) like(w *avroType) *avroType {
	rest, _ := t.nullable()
	for _, x := range rest {
		if x.kind == w.kind {
			return x
		}
	}
	return nil
}

func (t *avroType) inside() *avroType {
	if t == nil {
		return nil
	}
	return t.items
}

// union reads a union: nothing but null and one type is by far the most common.
func (p *avroPlanner) union(t, reader *avroType, c *column, inner bool) avroNode {
	if rest, null := t.nullable(); null && len(rest) == 1 && len(t.branches) == 2 {
		n := p.node(rest[0], reader, c, inner)
		n.null = t.nullBranch()
		return n
	}
	n := avroNode{cell: cell{put: putText, to: c, inner: inner}, kind: avroUnion, null: -1}
	for _, x := range t.branches {
		n.kids = append(n.kids, p.node(x, reader, c, inner))
	}
	return n
}

// record reads a record into a ROW.
func (p *avroPlanner) record(n *avroNode, t, reader *avroType) {
	n.put = putStruct
	taken := map[int]bool{}
	for i := range t.fields {
		f := &t.fields[i]
		name, rf := f.name, reader.field(f.name)
		if rf == nil {
			var later string
			later, rf = reader.renamed(t, name)
			if n.to.member(name) == nil {
				name = later
			}
		}
		k, ok := n.to.members[name]
		if !ok || taken[k] {
			if !ok && !p.rename(n.to.path, n.to.typ.Fields, t, f, reader, n.to.member) {
				p.add(n.to.path, n.to.typ.Fields, f.name, func() (schema.Type, bool, error) { return (&avroMapper{}).typeOf(f.typ) })
			}
			n.kids = append(n.kids, p.skip(f.typ))
			continue
		}
		taken[k] = true
		var rt *avroType
		if rf != nil {
			rt = rf.typ
		}
		n.kids = append(n.kids, p.node(f.typ, rt, &n.to.kids[k], true))
	}
	for _, f := range n.to.typ.Fields {
		k := n.to.members[f.Name]
		if taken[k] {
			continue
		}
		r := avroRest{to: &n.to.kids[k]}
		if rf := reader.field(f.Name); rf != nil && rf.deflt != nil {
			r.node, r.deflt = p.node(rf.typ, nil, r.to, true), rf.deflt
		}
		n.rest = append(n.rest, r)
	}
}

// pairs reads an array of records of key and value, as Kafka Connect writes maps whose keys are no texts.
func (p *avroPlanner) pairs(n *avroNode, t *avroType) {
	n.put = putPairs
	for i := range t.fields {
		switch f := &t.fields[i]; f.name {
		case "key":
			n.kids = append(n.kids, p.node(f.typ, nil, &n.to.kids[0], true))
		case "value":
			n.kids = append(n.kids, p.node(f.typ, nil, &n.to.kids[1], true))
		default:
			n.kids = append(n.kids, p.skip(f.typ))
		}
	}
}

// scaled reads Debezium's decimals of any scale.
func (p *avroPlanner) scaled(n *avroNode, t *avroType) bool {
	if len(t.fields) != 2 || t.fields[0].name != "scale" || t.fields[0].typ.kind != avroInt || t.fields[1].name != "value" ||
		t.fields[1].typ.kind != avroBytes || !numeric(n.to.shape) && n.to.shape != shapeText {
		return false
	}
	n.put = putScaled
	return true
}

// single chooses what is done with a single value; putSkip: the column cannot hold it.
func (p *avroPlanner) single(n *avroNode, t *avroType) {
	s := n.to.shape
	switch t.kind {
	case avroBoolean:
		n.boolean()
	case avroInt, avroLong:
		p.whole(n, t)
	case avroFloat, avroDouble:
		n.float()
	case avroEnum:
		if s == shapeText {
			n.put, n.symbol, n.symbols = putText, true, t.symbols
		}
	case avroString:
		n.texts()
	case avroBytes, avroFixed:
		switch {
		case t.isDecimal() && (numeric(s) || s == shapeText):
			if !t.beyondScale() {
				n.put = putDecimal
			}
		case s == shapeText && t.logical == "uuid" && t.size == 16:
			n.put = putUUID
		case s == shapeText && t.kind == avroFixed:
		default:
			n.raw()
		}
	}
}

// whole chooses what is done with int and long, which are also dates, times and timestamps.
func (p *avroPlanner) whole(n *avroNode, t *avroType) {
	s, digits := senseNumber, 0
	if x, ok := avroTimes[t.logical]; ok {
		s, digits = senseTime, x
	} else if x, ok := avroTimestamps[t.logical]; ok {
		s, digits = senseTimestamp, x
	} else if avroDates[t.logical] {
		s = senseDate
	}
	n.cell.whole(s, digits)
}

// setKind makes a node of a text give the kind of the row.
func (p *avroPlanner) setKind(n *avroNode) {
	if n.kind != avroUnion {
		n.put = putKind
	}
	for i := range n.kids {
		if n.kids[i].kind != avroNull {
			n.kids[i].put = putKind
		}
	}
}

// skip makes the node that passes over a value.
func (p *avroPlanner) skip(t *avroType) avroNode {
	n := avroNode{kind: t.kind, null: -1, size: t.size}
	switch t.kind {
	case avroEnum:
		n.symbols = t.symbols
	case avroArray, avroMap:
		n.kids = []avroNode{p.skip(t.items)}
	case avroUnion:
		if rest, null := t.nullable(); null && len(rest) == 1 && len(t.branches) == 2 {
			n = p.skip(rest[0])
			n.null = t.nullBranch()
			return n
		}
		for _, x := range t.branches {
			n.kids = append(n.kids, p.skip(x))
		}
	case avroRecord:
		if n.link = p.skips[t]; n.link == nil {
			n.link = &avroNode{kind: avroRecord, null: -1}
			p.skips[t] = n.link
			for i := range t.fields {
				n.link.kids = append(n.link.kids, p.skip(t.fields[i].typ))
			}
		}
	}
	return n
}

// planOf makes the plan for a writer's schema. A reader's schema that cannot be read is as if there were none, since it may
// have come long after the records.
func (p *avroPlanner) planOf(w, reader WriterSchema, key bool) (out avroPlan) {
	t, err := parseAvro(w)
	if err != nil {
		return avroPlan{refused: err.Error()}
	}
	var rt *avroType
	if reader.Text != "" {
		if rt, err = parseAvro(reader); err != nil {
			rt = nil
		}
	}
	if key {
		if p.d.cfg.Format == DebeziumAvro {
			rt = rt.rowOf()
		}
		out = p.keyPlan(t, rt)
		out.key = true
		return out
	}
	if p.d.cfg.Format == DebeziumAvro {
		return p.envelopePlan(t, rt)
	}
	return p.plan(t, rt)
}
