package decode

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/calve-io/calve/schema"
)

// protoShape is how often a field may occur.
type protoShape uint8

const (
	protoOne  protoShape = iota
	protoList            // each occurrence is an element
	protoMap             // each occurrence is an entry
)

// absence is what a field is that a message does not have.
type absence uint8

const (
	absentNull  absence = iota
	absentValue         // its default: it cannot be told from that
	absentEmpty         // an empty array, map or message
)

// protoNode is how a field of a message is read into a column, or the message itself. A tree of them is made once for each
// writer's message, so that reading asks nothing twice. Its marks are of the one message of the kind that is being read, as
// no message that is read into columns contains itself.
type protoNode struct {
	cell
	kind   protoreflect.Kind
	shape  protoShape
	known  protoKnown
	wire   protowire.Type // of a value
	packs  bool           // several values may come at once
	absent absence

	seen  uint64 // stamp of the message in which the field was last
	stamp uint64 // of the message that is being read into the kids
	oneof []int  // kids of the message that are not there when this one is

	kids   []protoNode // fields that are read; the element of a list; key and value of a map
	places []int16     // of kids by number + 1, for low numbers
	far    map[protowire.Number]int
	rest   []*column // fields of a ROW that the message does not have

	names *protoNames // of an enum
	bits  uint64      // absentValue: as it would be written
	text  []byte      // of texts and bytes

	// Messages that stand for a value: their numbers, and of decimals the bytes, which are the record's.
	part          [4]int64
	bytes         []byte
	value, digits protowire.Number // fields of a decimal
}

// count is the number of nodes in the tree.
func (n *protoNode) count() int {
	all := 1
	for k := range n.kids {
		all += n.kids[k].count()
	}
	return all
}

// maxNear bounds the numbers that are looked up in a list.
const maxNear = 256

// field finds the kid of a number; nil: it is not read.
func (n *protoNode) field(number protowire.Number) *protoNode {
	if int(number) < len(n.places) {
		if k := n.places[number]; k > 0 {
			return &n.kids[k-1]
		}
		return nil
	}
	if k, ok := n.far[number]; ok {
		return &n.kids[k]
	}
	return nil
}

// index makes kids be found by their numbers.
func (n *protoNode) index(numbers []protowire.Number) {
	for k, number := range numbers {
		switch {
		case number >= maxNear || k >= math.MaxInt16:
			if n.far == nil {
				n.far = map[protowire.Number]int{}
			}
			n.far[number] = k
			continue
		case int(number) >= len(n.places):
			n.places = append(n.places, make([]int16, int(number)+1-len(n.places))...)
		}
		n.places[number] = int16(k + 1)
	}
}

// protoNames are the names of an enum's values.
type protoNames struct {
	low [][]byte // by number
	far map[int32][]byte
}

// of gives the name of a number; nil: it has none.
func (p *protoNames) of(v int32) []byte {
	if v >= 0 && int(v) < len(p.low) {
		return p.low[v]
	}
	return p.far[v]
}

// protoPlan is how a message of a writer's schema becomes rows.
type protoPlan struct {
	id      protoID
	refused string // records of the message are refused, for this
	adds    []wish // columns that the table lacks
	root    protoNode
	key     bool // of records' keys
	brief   bool // there is no such message: it is told again as quickly
}

// protoPlanner makes a plan for the columns of a table.
type protoPlanner struct {
	adder
	op     string // name of the field with the row kind, or ""
	reader protoreflect.FileDescriptor
	names  map[protoreflect.FullName]*protoNames
}

// planOf makes the plan for a message of a writer's schema; reader may be nil.
func (d *protoDecoder) planOf(w protoSource, reader protoreflect.FileDescriptor, path []int, key bool) protoPlan {
	if w.err != nil {
		return protoPlan{refused: w.err.Error(), brief: true}
	}
	md, err := messageAt(w.file, path)
	if err != nil {
		return protoPlan{refused: err.Error(), brief: true}
	}
	p := protoPlanner{adder: adder{d: &d.rowBuilder, key: key}, op: d.op, names: map[protoreflect.FullName]*protoNames{}}
	if !key {
		p.reader = reader
	}
	out := protoPlan{root: protoNode{kind: protoreflect.MessageKind}, key: key}
	p.fields(&out.root, md, nil)
	if out.adds, out.refused = p.adds, p.bad; p.bad != "" {
		out.adds = nil
	}
	return out
}

// fields plans the fields of a message: those of a row, or with a column those of a ROW.
func (p *protoPlanner) fields(m *protoNode, md protoreflect.MessageDescriptor, c *column) {
	var numbers []protowire.Number
	taken := map[*column]bool{}
	oneofs := map[protoreflect.FullName][]int{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if fd.Kind() == protoreflect.GroupKind {
			continue
		}
		var n protoNode
		switch to := p.column(fd, md, c); {
		case to != nil && !taken[to]:
			taken[to] = true
			n = p.field(fd, to, c != nil)
		case c == nil && p.op != "" && string(fd.Name()) == p.op && !fd.IsList() && (fd.Kind() == protoreflect.StringKind || fd.Kind() == protoreflect.EnumKind):
			n = protoNode{cell: cell{put: putKind, symbol: fd.Kind() == protoreflect.EnumKind}, kind: fd.Kind(), wire: wireOf(fd.Kind()), names: p.namesOf(fd)}
		default:
			if to == nil {
				p.add(pathOf(c), p.siblings(c), string(fd.Name()), func() (schema.Type, bool, error) { return (&protoMapper{}).typeOf(fd) })
			}
			if o := fd.ContainingOneof(); o == nil || o.IsSynthetic() {
				continue
			}
			n = protoNode{kind: fd.Kind(), wire: wireOf(fd.Kind())} // if it is there, others are not
		}
		if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
			oneofs[o.FullName()] = append(oneofs[o.FullName()], len(m.kids))
		}
		m.kids, numbers = append(m.kids, n), append(numbers, fd.Number())
	}
	m.index(numbers)
	for _, group := range oneofs {
		for _, k := range group {
			for _, other := range group {
				if other != k {
					m.kids[k].oneof = append(m.kids[k].oneof, other)
				}
			}
		}
	}
	if c == nil {
		return
	}
	for k := range c.kids {
		if !taken[&c.kids[k]] {
			m.rest = append(m.rest, &c.kids[k])
		}
	}
}

func pathOf(c *column) []string {
	if c == nil {
		return nil
	}
	return c.path
}

// siblings are the columns, or the fields of a ROW, among which a field has its place.
func (p *protoPlanner) siblings(c *column) []schema.Field {
	if c == nil {
		return p.d.cfg.Schema.Fields
	}
	return c.typ.Fields
}

// column finds the column of a field among those of the table or of a ROW: the one of its name, or of the name that the
// reader's schema gives to its number.
func (p *protoPlanner) column(fd protoreflect.FieldDescriptor, md protoreflect.MessageDescriptor, c *column) *column {
	find := func(name protoreflect.Name) *column {
		if c != nil {
			if k, ok := c.members[string(name)]; ok {
				return &c.kids[k]
			}
			return nil
		}
		if i, ok := p.d.cfg.Schema.Field(string(name)); ok && p.d.cols[i].meta == metaNone {
			return &p.d.cols[i]
		}
		return nil
	}
	if to := find(fd.Name()); to != nil || p.reader == nil {
		return to
	}
	now := messageNamed(p.reader.Messages(), md.FullName())
	if now == nil {
		return nil
	}
	other := now.Fields().ByNumber(fd.Number())
	if other == nil || md.Fields().ByName(other.Name()) != nil {
		return nil
	}
	return find(other.Name())
}

// messageNamed finds a message of a file.
func messageNamed(in protoreflect.MessageDescriptors, name protoreflect.FullName) protoreflect.MessageDescriptor {
	for i := range in.Len() {
		m := in.Get(i)
		if m.FullName() == name {
			return m
		}
		if found := messageNamed(m.Messages(), name); found != nil {
			return found
		}
	}
	return nil
}

// field makes the node that reads a field into a column.
func (p *protoPlanner) field(fd protoreflect.FieldDescriptor, to *column, inner bool) protoNode {
	if !fd.IsList() && !fd.IsMap() {
		n := p.single(fd, to, inner)
		p.lacking(&n, fd)
		return n
	}
	n := protoNode{cell: cell{to: to, inner: inner, put: putList}, kind: fd.Kind(), shape: protoList, absent: absentEmpty}
	switch {
	case fd.IsMap() && to.shape == shapeMap:
		n.shape, n.wire = protoMap, protowire.BytesType
		n.kids = []protoNode{p.single(fd.MapKey(), &to.kids[0], true), p.single(fd.MapValue(), &to.kids[1], true)}
		for k := range n.kids { // what an entry lacks is what it would be in a message that has no presence
			if n.kids[k].kind == protoreflect.MessageKind {
				n.kids[k].absent = absentEmpty
			} else {
				n.kids[k].absent = absentValue
			}
		}
		n.index([]protowire.Number{1, 2})
		return n
	case fd.IsList() && to.shape == shapeList:
		n.kids = []protoNode{p.single(fd, &to.kids[0], true)}
		n.wire = n.kids[0].wire
		n.packs = n.wire != protowire.BytesType
		return n
	}
	what := "repeated " + describeKind(fd)
	if fd.IsMap() {
		what = "a map"
	}
	n = protoNode{cell: cell{to: to, inner: inner}, kind: protoreflect.MessageKind, wire: wireOf(fd.Kind())}
	if n.wire != protowire.BytesType {
		n.kind, n.packs = fd.Kind(), true
	}
	n.refuses("the Protobuf type " + what)
	return n
}

// single makes the node that reads one value of a field into a column.
func (p *protoPlanner) single(fd protoreflect.FieldDescriptor, to *column, inner bool) protoNode {
	n := protoNode{cell: cell{to: to, inner: inner}, kind: fd.Kind(), wire: wireOf(fd.Kind())}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		n.boolean()
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		n.float()
	case protoreflect.StringKind:
		n.texts()
	case protoreflect.BytesKind:
		n.raw()
	case protoreflect.EnumKind:
		if to.shape == shapeText {
			n.put, n.symbol, n.names = putText, true, p.namesOf(fd)
		} else if to.shape != shapeDate && to.shape != shapeTime && to.shape != shapeTimestamp {
			n.whole(senseNumber, 0)
		}
	case protoreflect.MessageKind:
		p.message(&n, fd.Message())
	case protoreflect.GroupKind:
	default:
		n.whole(senseNumber, 0)
	}
	n.refuses("the Protobuf type " + describeKind(fd))
	return n
}

func (p *protoPlanner) message(n *protoNode, md protoreflect.MessageDescriptor) {
	n.known = knownOf(md)
	if n.known == knownWrapper {
		k := p.single(md.Fields().Get(0), n.to, n.inner)
		k.absent = absentValue
		n.put, n.kids = putStruct, []protoNode{k}
		n.index([]protowire.Number{1})
		return
	}
	if n.choose(md); n.put == putSkip && n.to.shape == shapeStruct {
		n.put = putStruct
		p.fields(n, md, n.to)
	}
}

// lacking says what the field is when a message does not have it.
func (p *protoPlanner) lacking(n *protoNode, fd protoreflect.FieldDescriptor) {
	o := fd.ContainingOneof()
	switch {
	case fd.Kind() == protoreflect.MessageKind || fd.Kind() == protoreflect.GroupKind:
		return
	case fd.HasPresence() && (!fd.HasDefault() || o != nil && !o.IsSynthetic() || n.to.hasDef && !n.inner):
		return
	}
	n.absent = absentValue
	v := fd.Default()
	switch fd.Kind() {
	case protoreflect.StringKind:
		n.text = []byte(v.String())
	case protoreflect.BytesKind:
		n.text = v.Bytes()
	case protoreflect.BoolKind:
		n.bits = protowire.EncodeBool(v.Bool())
	case protoreflect.EnumKind:
		n.bits = uint64(int64(v.Enum()))
	case protoreflect.FloatKind:
		n.bits = uint64(math.Float32bits(float32(v.Float())))
	case protoreflect.DoubleKind:
		n.bits = math.Float64bits(v.Float())
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n.bits = v.Uint()
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		n.bits = protowire.EncodeZigZag(v.Int())
	default:
		n.bits = uint64(v.Int())
	}
}

// namesOf gives the names of the field's enum, nil if it has none.
func (p *protoPlanner) namesOf(fd protoreflect.FieldDescriptor) *protoNames {
	if fd.Kind() != protoreflect.EnumKind {
		return nil
	}
	ed := fd.Enum()
	if n := p.names[ed.FullName()]; n != nil {
		return n
	}
	n := &protoNames{far: map[int32][]byte{}}
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		number, name := int32(v.Number()), []byte(v.Name())
		switch {
		case n.of(number) != nil: // an alias
		case number >= 0 && number < maxNear:
			for int(number) >= len(n.low) {
				n.low = append(n.low, nil)
			}
			n.low[number] = name
		default:
			n.far[number] = name
		}
	}
	p.names[ed.FullName()] = n
	return n
}

// wireOf is how a value of a kind is written.
func wireOf(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	}
	return protowire.VarintType
}

// describeKind names a field's type in messages.
func describeKind(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return string(fd.Message().FullName())
	case protoreflect.EnumKind:
		return string(fd.Enum().FullName())
	}
	return fd.Kind().String()
}
