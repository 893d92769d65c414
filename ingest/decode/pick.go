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

	format Format
	path   []string
	nest   nesting
	name   []byte // scratch
}

// NewPicker finds the field at a path, whose steps are separated by points, in the row of a record: of events of Debezium
// the row after, else the one before. Records must be JSON.
func NewPicker(format Format, path string) (*Picker, error) {
	if format == "" {
		format = JSON
	}
	switch format {
	case JSON, FramedJSON, Debezium, DebeziumFlat:
	default:
		return nil, fmt.Errorf("the field %q cannot be found in records of format %q before they are decoded", path, format)
	}
	p := &Picker{format: format, path: strings.Split(path, ".")}
	for _, step := range p.path {
		if step == "" {
			return nil, fmt.Errorf("the field %q has an empty name", path)
		}
	}
	return p, nil
}

// Pick appends the field's text to dst: a string without quotes and escapes, a number or truth value as it is written. A
// record without value is asked by its key. ok is false if there is no such field, it is null, or no text. The error,
// which matches ErrRow, says that the record is no JSON up to there, or an event whose row has another value after it than
// before, or may have had (Whole).
func (p *Picker) Pick(dst []byte, r *Record) (text []byte, ok bool, err error) {
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
			return dst, false, &RowError{Offset: op, Code: NoTable, Reason: fmt.Sprintf("the update does not tell the row before it, so by the field %q it may be in another table; before: full asks for all columns (REPLICA IDENTITY FULL)",
				strings.Join(p.path, "."))}
		}
	}
	old, had, err := p.object(dst, b, before)
	if err != nil || after < 0 || b[after] != '{' {
		return old, had, err
	}
	from, to := len(dst), len(old)
	text, ok, err = p.object(old, b, after)
	if err == nil && had && ok && string(text[from:to]) != string(text[to:]) {
		err = &RowError{Offset: after, Code: NoTable, Reason: fmt.Sprintf("the field %q, by which the record's table is chosen, was %s before: the row is in another table",
			strings.Join(p.path, "."), excerpt(text[from:to]))}
	}
	return append(text[:from], text[to:]...), ok, err
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
