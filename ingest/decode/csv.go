package decode

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// csvDecoder reads rows of comma-separated values (RFC 4180) into the columns that the header names.
type csvDecoder struct {
	jsonDecoder // for nested values and rows

	fields []csvField
	quoted []byte // scratch
}

// csvField is what a place in a row is.
type csvField struct {
	col *column
	op  bool
}

// newCSVDecoder binds the header to columns; names that are none are ignored.
func newCSVDecoder(d jsonDecoder) (*csvDecoder, error) {
	if d.cfg.Evolution != Freeze {
		return nil, fmt.Errorf("decoder: values of %s have no types, so a table cannot follow them", CSV)
	}
	out := &csvDecoder{jsonDecoder: d}
	op, taken := d.opField(), map[string]bool{}
	for _, name := range d.cfg.Header {
		var f csvField
		if taken[name] {
			return nil, fmt.Errorf("decoder: the header names %q twice", name)
		}
		taken[name] = true
		if i, ok := d.cfg.Schema.Field(name); ok && d.cols[i].meta == metaNone {
			f.col = &out.cols[i]
		} else if !ok && name == op {
			f.op = true
		}
		out.fields = append(out.fields, f)
	}
	return out, nil
}

// ParseHeader reads the first row of a file of comma-separated values: the names of its fields.
func ParseHeader(line []byte) (names []string, err error) {
	line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // of spreadsheets
	var d csvDecoder
	for i := 0; ; i++ {
		v, quoted, e := d.field(line, i)
		switch {
		case e < 0:
			return nil, fmt.Errorf("the header is not of comma-separated values: %s", d.bad.Reason)
		case len(v) == 0 && !quoted, !utf8.Valid(v):
			return nil, fmt.Errorf("the header's field %d has no name", len(names)+1)
		}
		names = append(names, string(v))
		if i = e; i >= len(line) {
			return names, nil
		}
	}
}

// Decode implements Decoder.
func (d *csvDecoder) Decode(r *Record) error {
	d.reserve()
	d.at = d.rows
	d.begin()
	d.op, d.inKey = opState{}, false
	if d.line(r) < 0 {
		return d.abandon()
	}
	d.rows = d.at
	d.bytes += len(r.Value)
	return nil
}

func (d *csvDecoder) line(r *Record) int {
	if len(r.Value)+r.Cut > d.cfg.MaxRecordBytes {
		return d.tooLong(r)
	}
	b := r.Value
	i := 0
	for n := range d.fields {
		f := &d.fields[n]
		v, quoted, e := d.field(b, i)
		switch {
		case e < 0:
			return -1
		case e >= len(b) && n+1 < len(d.fields):
			return d.refuse(NotRecord, len(b), nil, "has "+strconv.Itoa(n+1)+" fields, the header "+strconv.Itoa(len(d.fields)))
		case f.op && len(v) > 0:
			kind, ok := parseKind(v)
			if !ok {
				return d.refuse(BadOp, i, nil, "operation "+excerpt(v)+" is unknown; known are I, U, D, c, r, u, d, +I, -U, +U, -D")
			}
			d.op = opState{kind: kind, set: true}
		case f.col != nil && d.put(v, quoted, i, f.col) < 0:
			return -1
		}
		i = e + 1
	}
	if i <= len(b) {
		return d.refuse(NotRecord, i-1, nil, "has more fields than the header, which has "+strconv.Itoa(len(d.fields)))
	}
	return d.complete(r, d.op.kind)
}

// field reads the field at i: its text, valid until the next call, and the position of the comma or end behind it.
func (d *csvDecoder) field(b []byte, i int) (v []byte, quoted bool, end int) {
	if i >= len(b) || b[i] != '"' {
		n := bytes.IndexByte(b[min(i, len(b)):], ',')
		if n < 0 {
			n = len(b) - i
		}
		if v = b[i : i+n]; bytes.IndexByte(v, '"') >= 0 {
			return nil, false, d.refuse(Malformed, i, nil, "a quote in a field that does not begin with one")
		}
		return v, false, i + n
	}
	d.quoted = d.quoted[:0]
	for i++; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return nil, true, d.refuse(Malformed, len(b), nil, "a quoted field does not end")
		}
		d.quoted = append(d.quoted, b[i:i+n]...)
		if i += n + 1; i < len(b) && b[i] == '"' {
			d.quoted = append(d.quoted, '"')
			i++
			continue
		}
		if i < len(b) && b[i] != ',' {
			return nil, true, d.refuse(Malformed, i, nil, "a quoted field goes on behind its quote")
		}
		return d.quoted, true, i
	}
}

// put stores a field. Nothing between two commas is null, but an empty text where a text must not be null.
func (d *csvDecoder) put(v []byte, quoted bool, at int, c *column) int {
	d.mark(c)
	if len(v) == 0 && !(c.shape == shapeText && (quoted || c.notNull && !c.key)) && !(c.shape == shapeBytes && quoted) {
		d.null(c)
		return 0
	}
	switch c.shape {
	case shapeText:
		if !utf8.Valid(v) {
			return d.refuse(Malformed, at, c, "is not valid UTF-8")
		}
		return d.putText(v, at, 0, c)
	case shapeBool:
		switch string(bytes.ToLower(v)) {
		case "true", "t", "1":
			c.setBool(d.at, true)
		case "false", "f", "0":
			c.setBool(d.at, false)
		default:
			return d.fail(at, c, excerpt(v)+" is not true or false")
		}
		return 0
	case shapeBytes:
		return d.putBase64(v, at, c)
	case shapeStruct, shapeList, shapeMap:
		e := d.content(v, 0, c)
		if e >= 0 {
			e = d.end(v, e)
		}
		if e < 0 { // the place in the value is none in the row
			d.bad.Offset = at
			return -1
		}
		return 0
	}
	return d.putString(v, at, c)
}
