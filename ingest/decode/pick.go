package decode

import (
	"fmt"
	"strings"
)

// Picker finds the value of one field in records without decoding them. It is not safe for concurrent use.
type Picker struct {
	// Whole says that updates of Debezium tell all of the row before them (BeforeFull): one that does not may have moved the
	// row from anywhere, and is refused.
	Whole bool
	// Schemas are the writers' schemas of formats that are framed, shared with whoever asks the registry. Set it before the
	// first record.
	Schemas *Schemas

	format Format
	path   []string
	nest   nesting
	name   []byte // scratch

	avro  *avroPicker  // nil: records are no Avro
	proto *protoPicker // nil: records are no Protobuf
}

// maxPicks bounds the schemas of which a picker remembers how they are read.
const maxPicks = 1000

// NewPicker finds the field at a path, whose steps are separated by points, in the row of a record: of events of Debezium
// the row after, else the one before. Of Avro and Protobuf the names are those of the writer's schema, which never changes:
// a record is found in the same table whenever it is read, whatever later schemas call the field.
func NewPicker(format Format, path string) (*Picker, error) {
	if format == "" {
		format = JSON
	}
	p := &Picker{format: format, path: strings.Split(path, ".")}
	switch format {
	case JSON, FramedJSON, Debezium, DebeziumFlat:
	case Avro, DebeziumAvro:
		p.avro = newAvroPicker(p)
	case Protobuf:
		p.proto = newProtoPicker(p)
	default:
		return nil, fmt.Errorf("the field %q cannot be found in records of format %q before they are decoded", path, format)
	}
	for _, step := range p.path {
		if step == "" {
			return nil, fmt.Errorf("the field %q has an empty name", path)
		}
	}
	return p, nil
}

// Pick appends the field's text to dst: a string without quotes and escapes, a number or truth value as it is written in
// JSON, a symbol of an enum by its name. A record without value is asked by its key. ok is false if there is no such field,
// it is null, or in JSON no text. An error that matches ErrRow says that the record cannot be read up to there, is of a
// schema that the registry does not know, has a field of a type that names no table, or is an event whose row has another
// value after it than before, or may have had (Whole). A *MissingSchema is to be given to Schemas before the record is asked
// again.
//
// Of other types in Avro and Protobuf: dates of Avro are written YYYY-MM-DD, fixed UUIDs as such, the wrappers of
// google.protobuf as what they wrap. A Protobuf field that a message does not have is its default where it cannot be told
// from that. Floating-point numbers, decimals, times and timestamps have more than one text, and are refused like bytes.
func (p *Picker) Pick(dst []byte, r *Record) (text []byte, ok bool, err error) {
	switch {
	case p.avro != nil:
		return p.avro.pick(dst, r)
	case p.proto != nil:
		return p.proto.pick(dst, r)
	}
	if r.Value == nil {
		row, err := p.unwrap(r.Key, 0, true)
		if err != nil || row < 0 {
			return dst, false, err
		}
		return p.inRow(dst, r.Key, row, true)
	}
	b := r.Value
	start := 0
	if p.format == FramedJSON && len(b) > frameBytes && b[0] == 0 {
		start = frameBytes
	}
	row, err := p.unwrap(b, start, false)
	if err != nil || row < 0 {
		return dst, false, err
	}
	if p.format != Debezium {
		return p.inRow(dst, b, row, false)
	}
	after, err := p.member(b, row, "after", false)
	if err != nil {
		return dst, false, err
	}
	before, err := p.member(b, row, "before", false)
	if err != nil {
		return dst, false, err
	}
	if p.Whole && after >= 0 && b[after] == '{' && (before < 0 || b[before] != '{') {
		op, err := p.member(b, row, "op", false)
		if err != nil {
			return dst, false, err
		}
		if op >= 0 && strings.HasPrefix(string(b[op:min(len(b), op+3)]), `"u"`) {
			return dst, false, p.untold(op)
		}
	}
	old, had, err := p.object(dst, b, before)
	if err != nil || after < 0 || b[after] != '{' {
		return old, had, err
	}
	text, ok, err = p.object(old, b, after)
	if err == nil && had && ok {
		err = p.moved(text, len(dst), len(old), after)
	}
	return append(text[:len(dst)], text[len(old):]...), ok, err
}

// untold refuses an update that does not tell the row before it; at is where the record says that it is one.
func (p *Picker) untold(at int) error {
	return &RowError{Offset: at, Code: NoTable, Reason: fmt.Sprintf("the update does not tell the row before it, so by the field %q it may be in another table; before: full asks for all columns (REPLICA IDENTITY FULL)",
		strings.Join(p.path, "."))}
}

// moved refuses an event whose row, at the place at, has another value than the one before; text has both: from the one
// before, to the one after.
func (p *Picker) moved(text []byte, from, to, at int) error {
	if string(text[from:to]) == string(text[to:]) {
		return nil
	}
	return &RowError{Offset: at, Code: NoTable, Reason: fmt.Sprintf("the field %q, by which the record's table is chosen, was %s before: the row is in another table",
		strings.Join(p.path, "."), excerpt(text[from:to]))}
}

// noText says why a field of a type chooses no table.
func (p *Picker) noText(kind string) string {
	return fmt.Sprintf("the field %q is of the type %s, which chooses no table; strings, enums, whole numbers and truth values do", strings.Join(p.path, "."), kind)
}

// writer gives the schema of an id: a *MissingSchema if nobody has asked for it, an error that matches ErrRow if its records
// are refused.
func (p *Picker) writer(id int, key bool) (WriterSchema, error) {
	if p.Schemas == nil {
		return WriterSchema{}, &MissingSchema{id}
	}
	w, refused, ok := p.Schemas.get(id)
	switch {
	case !ok:
		return w, &MissingSchema{id}
	case refused != "":
		return w, &RowError{Offset: 1, InKey: key, Code: NoSchema, Reason: refused}
	}
	return w, nil
}

// unfit refuses a record for what its schema is.
func unfit(id int, why string, key bool) error {
	return &RowError{Offset: 1, InKey: key, Code: NoSchema, Reason: fmt.Sprintf("schema id %d: %s", id, why)}
}

// object is inRow for a row that may be missing or null.
func (p *Picker) object(dst, b []byte, at int) ([]byte, bool, error) {
	if at < 0 || b[at] != '{' {
		return dst, false, nil
	}
	return p.inRow(dst, b, at, false)
}

// unwrap gives where the object of a message begins, within the payload where a schema comes with it; -1: there is none.
func (p *Picker) unwrap(b []byte, start int, key bool) (int, error) {
	i := space(b, start)
	if i >= len(b) || b[i] != '{' {
		return -1, nil
	}
	if key || p.format == Debezium || p.format == DebeziumFlat {
		at, err := p.member(b, i, "payload", key)
		if err != nil {
			return -1, err
		}
		if at >= 0 && b[at] == '{' {
			return at, nil
		}
	}
	return i, nil
}

// inRow goes the path from an object on.
func (p *Picker) inRow(dst, b []byte, at int, key bool) ([]byte, bool, error) {
	for n, step := range p.path {
		var err error
		if at, err = p.member(b, at, step, key); err != nil || at < 0 {
			return dst, false, err
		}
		if n < len(p.path)-1 && b[at] != '{' {
			return dst, false, nil
		}
	}
	switch b[at] {
	case '{', '[', 'n':
		return dst, false, nil
	case '"':
		end, escaped, bad := skipString(b, at+1)
		if end < 0 {
			return dst, false, p.fault(end, bad, key)
		}
		if escaped {
			return unquote(dst, b[at+1:end-1]), true, nil
		}
		return append(dst, b[at+1:end-1]...), true, nil
	}
	end, bad := skipScalar(b, at)
	if end < 0 {
		return dst, false, p.fault(end, bad, key)
	}
	return append(dst, b[at:end]...), true, nil
}

// member gives where the value of the first member of a name begins in the object at b[at]; -1: it has none.
func (p *Picker) member(b []byte, at int, name string, key bool) (int, error) {
	i := space(b, at+1)
	if i < len(b) && b[i] == '}' {
		return -1, nil
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return -1, p.faultAt(b, i, key)
		}
		end, escaped, bad := skipString(b, i+1)
		if end < 0 {
			return -1, p.fault(end, bad, key)
		}
		found := string(b[i+1:end-1]) == name
		if escaped {
			p.name = unquote(p.name[:0], b[i+1:end-1])
			found = string(p.name) == name
		}
		i = space(b, end)
		if i >= len(b) || b[i] != ':' {
			return -1, p.faultAt(b, i, key)
		}
		if i = space(b, i+1); i >= len(b) {
			return -1, p.faultAt(b, i, key)
		}
		if found {
			return i, nil
		}
		if end, bad = skipValue(b, i, &p.nest); end < 0 {
			return -1, p.fault(end, bad, key)
		}
		if i = space(b, end); i >= len(b) || b[i] != ',' && b[i] != '}' {
			return -1, p.faultAt(b, i, key)
		}
		if b[i] == '}' {
			return -1, nil
		}
		i = space(b, i+1)
	}
}

func (p *Picker) faultAt(b []byte, i int, key bool) error {
	if i >= len(b) {
		return p.fault(faultEnd, len(b), key)
	}
	return p.fault(faultValue, i, key)
}

func (p *Picker) fault(code, at int, key bool) error {
	return &RowError{Offset: at, InKey: key, Code: Malformed, Reason: faultText[-code]}
}
