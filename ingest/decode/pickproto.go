package decode

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoPicker finds the field in registry-framed Protobuf, by a plan made once for each message of a writer's schema. A
// message is looked through to its end, as the last occurrence of a field counts.
type protoPicker struct {
	of    *Picker
	files map[int]protoSource // compiled, by id
	plans map[protoID]*protoPick
	sizes int // of the plans that are kept
	last  *protoPick

	// Of the message that is being looked through: how many steps of the path are there, and where the field's value is.
	deep, from int
	bad        int // where it is broken
}

// protoPick is how the field is found in one message.
type protoPick struct {
	id      protoID
	refused string      // records of the message are refused, for this
	why     string      // the field is of a type that chooses no table
	steps   []protoStep // none: there is no such field
	leaf    protoreflect.Kind
	names   *protoNames // of an enum
	absent  bool        // a field that is not there is its default
	deflt   []byte
}

// protoStep is a field on the path.
type protoStep struct {
	protoTagged
	others []protoTagged // members of its oneof, each of which takes its place
}

// protoTagged is what a field begins with.
type protoTagged struct {
	number protowire.Number
	wire   protowire.Type
}

func newProtoPicker(p *Picker) *protoPicker {
	return &protoPicker{of: p, files: map[int]protoSource{}, plans: map[protoID]*protoPick{}}
}

func (p *protoPicker) pick(dst []byte, r *Record) (text []byte, ok bool, err error) {
	b, key := r.Value, r.Value == nil
	if key {
		if b = r.Key; len(b) == 0 {
			return dst, false, nil
		}
	}
	plan, at, err := p.planFor(b, key)
	switch {
	case err != nil:
		return dst, false, err
	case plan.why != "":
		return dst, false, &RowError{Offset: -1, InKey: key, Code: NoTable, Reason: plan.why}
	case len(plan.steps) == 0:
		return dst, false, nil
	}
	p.deep, p.from = 0, 0
	if !p.walk(b, at, plan, 0) {
		return dst, false, &RowError{Offset: p.bad, InKey: key, Code: Malformed, Reason: brokenProto}
	}
	switch missing := len(plan.steps) - p.deep; {
	case missing == 0:
		return plan.text(dst, b, p.from, key)
	case missing == 1 && plan.absent:
		return append(dst, plan.deflt...), true, nil
	}
	return dst, false, nil
}

// planFor finds the plan of a record's value or key; at is where the message begins.
func (p *protoPicker) planFor(b []byte, key bool) (plan *protoPick, at int, err error) {
	id, reason := schemaID(b)
	if reason != "" {
		return nil, 0, &RowError{InKey: key, Code: Malformed, Reason: reason}
	}
	// What names the message ends by itself: nothing else begins with all of it.
	if x := p.last; x != nil && x.id.id == id && len(b)-framing >= len(x.id.path) && string(b[framing:framing+len(x.id.path)]) == x.id.path {
		return x, framing + len(x.id.path), nil
	}
	path, at := protoPath(b, framing)
	if at < 0 {
		return nil, 0, &RowError{Offset: framing, InKey: key, Code: Malformed, Reason: "does not say which message of its schema it is"}
	}
	name := protoID{id, spellPath(path)}
	if plan = p.plans[name]; plan == nil {
		file, ok := p.files[id]
		if !ok {
			w, err := p.of.writer(id, key)
			if err != nil {
				return nil, 0, err
			}
			file.file, file.err = parseProto(w)
			if len(p.files) >= maxPicks {
				clear(p.files)
			}
			p.files[id] = file
		}
		if plan = p.planOf(file, path); plan.refused == "" { // a record says itself which message it is: others are told again as quickly
			plan.id = name
			p.keep(plan)
		}
	}
	if plan.refused != "" {
		return nil, 0, unfit(id, plan.refused, key)
	}
	p.last = plan
	return plan, at, nil
}

// keep keeps a plan, if need be in the place of all others.
func (p *protoPicker) keep(plan *protoPick) {
	size := 1
	for i := range plan.steps {
		size += 1 + len(plan.steps[i].others)
	}
	if len(p.plans) >= maxProtoPlans || p.sizes+size > maxProtoNodes {
		clear(p.plans)
		p.sizes = 0
	}
	p.sizes += size
	p.plans[plan.id] = plan
}

// walk looks through a message, which ends where b does, for the field of a step of the path. What has another wire type
// than the schema says is passed over, as it is in decoding. It is false if the message is broken.
func (p *protoPicker) walk(b []byte, i int, plan *protoPick, step int) bool {
	s := &plan.steps[step]
	for i < len(b) {
		number, wire, e := protoTag(b, i)
		if e < 0 {
			p.bad = i
			return false
		}
		end := skipProto(b, e, number, wire)
		if end < 0 {
			p.bad = e
			return false
		}
		switch tag := (protoTagged{number, wire}); {
		case tag != s.protoTagged:
			if len(s.others) > 0 && slices.Contains(s.others, tag) {
				p.deep = min(p.deep, step)
			}
		case step == len(plan.steps)-1:
			p.deep, p.from = step+1, e
		default: // of a message that occurs twice the second adds to the first
			p.deep = max(p.deep, step+1)
			if from, _ := lengthOf(b, e); !p.walk(b[:end], from, plan, step+1) {
				return false
			}
		}
		i = end
	}
	return true
}

// text appends the text of a value that was found whole.
func (plan *protoPick) text(dst, b []byte, i int, key bool) ([]byte, bool, error) {
	switch wireOf(plan.leaf) {
	case protowire.BytesType:
		s, e := lengthOf(b, i)
		if !utf8.Valid(b[s:e]) {
			return dst, false, &RowError{Offset: i, InKey: key, Code: Malformed, Reason: "is not valid UTF-8"}
		}
		return append(dst, b[s:e]...), true, nil
	case protowire.Fixed32Type:
		v, _ := protowire.ConsumeFixed32(b[i:])
		return plan.number(dst, uint64(v)), true, nil
	case protowire.Fixed64Type:
		v, _ := protowire.ConsumeFixed64(b[i:])
		return plan.number(dst, v), true, nil
	}
	v, _ := uvarint(b, i)
	return plan.number(dst, v), true, nil
}

// number appends the text of a value that has no length; v is what stands in the record.
func (plan *protoPick) number(dst []byte, v uint64) []byte {
	switch plan.leaf {
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v != 0)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v, 10)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return strconv.AppendUint(dst, uint64(uint32(v)), 10)
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return strconv.AppendInt(dst, int64(v), 10)
	case protoreflect.Sint64Kind:
		return strconv.AppendInt(dst, protowire.DecodeZigZag(v), 10)
	case protoreflect.Sint32Kind:
		return strconv.AppendInt(dst, int64(int32(protowire.DecodeZigZag(uint64(uint32(v))))), 10)
	case protoreflect.EnumKind:
		if name := plan.names.of(int32(v)); name != nil {
			return append(dst, name...)
		}
	}
	return strconv.AppendInt(dst, int64(int32(v)), 10)
}

// planOf makes the plan for a message of a writer's schema, which is judged as for decoding.
func (p *protoPicker) planOf(w protoSource, path []int) *protoPick {
	if w.err != nil {
		return &protoPick{refused: w.err.Error()}
	}
	md, err := messageAt(w.file, path)
	if err != nil {
		return &protoPick{refused: err.Error()}
	}
	plan := &protoPick{}
	for i, name := range p.of.path {
		fd := fieldNamed(md, name)
		last := i == len(p.of.path)-1
		switch {
		case fd == nil || fd.Kind() == protoreflect.GroupKind || !last && (fd.Kind() != protoreflect.MessageKind || fd.IsList() || fd.IsMap()):
			return &protoPick{}
		case last && fd.IsMap():
			return &protoPick{why: p.of.noText("map")}
		case last && fd.IsList():
			return &protoPick{why: p.of.noText("repeated " + describeKind(fd))}
		case last:
			p.leaf(plan, fd)
			return plan
		}
		plan.into(fd)
		md = fd.Message()
	}
	return plan
}

// fieldNamed finds a field by its name, else by the name that it has in JSON.
func fieldNamed(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByName(protoreflect.Name(name)); fd != nil {
		return fd
	}
	return md.Fields().ByJSONName(name)
}

// into adds a step.
func (plan *protoPick) into(fd protoreflect.FieldDescriptor) {
	s := protoStep{protoTagged: tagOf(fd)}
	if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
		for i := range o.Fields().Len() {
			if other := o.Fields().Get(i); other.Number() != fd.Number() && other.Kind() != protoreflect.GroupKind {
				s.others = append(s.others, tagOf(other))
			}
		}
	}
	plan.steps = append(plan.steps, s)
}

func tagOf(fd protoreflect.FieldDescriptor) protoTagged {
	return protoTagged{fd.Number(), wireOf(fd.Kind())}
}

// leaf adds the field itself.
func (p *protoPicker) leaf(plan *protoPick, fd protoreflect.FieldDescriptor) {
	plan.into(fd)
	if fd.Kind() == protoreflect.MessageKind && knownOf(fd.Message()) == knownWrapper {
		fd = fd.Message().Fields().Get(0)
		plan.into(fd)
	}
	switch plan.leaf = fd.Kind(); plan.leaf {
	case protoreflect.BytesKind, protoreflect.FloatKind, protoreflect.DoubleKind, protoreflect.MessageKind:
		plan.why = p.of.noText(describeKind(fd))
		return
	case protoreflect.EnumKind:
		plan.names = (&protoPlanner{names: map[protoreflect.FullName]*protoNames{}}).namesOf(fd)
	}
	if o := fd.ContainingOneof(); fd.HasPresence() && (!fd.HasDefault() || o != nil && !o.IsSynthetic()) {
		return
	}
	plan.absent = true
	switch v := fd.Default(); plan.leaf {
	case protoreflect.StringKind:
		plan.deflt = []byte(v.String())
	case protoreflect.EnumKind:
		plan.deflt = plan.number(nil, uint64(int64(v.Enum())))
	default:
		plan.deflt = []byte(v.String()) // of numbers and truth values
	}
}
