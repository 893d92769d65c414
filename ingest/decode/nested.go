package decode

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// Columns of nested types have columns inside: a ROW one for each field, with the same rows; an ARRAY one for its
// elements, a MAP or MULTISET two for keys and values, whose rows lie between offsets of the outer one. An abandoned row
// leaves values behind the last offset, which the next one overwrites.

// nest gives a column the columns inside of it.
func (c *column) nest() error {
	t := c.typ
	names, types := []string{"element"}, []schema.Type{}
	switch t.Root {
	case schema.Row:
		c.shape, c.members = shapeStruct, map[string]int{}
		names = nil
		for i, f := range t.Fields {
			names, types = append(names, f.Name), append(types, f.Type)
			c.members[f.Name] = i
		}
	case schema.Array:
		c.shape, types = shapeList, []schema.Type{*t.Element}
	case schema.Map:
		c.shape, names, types = shapeMap, []string{"key", "value"}, []schema.Type{*t.Key, *t.Element}
	case schema.Multiset:
		c.shape, names, types = shapeMap, []string{"element", "count"}, []schema.Type{*t.Element, {Root: schema.Int, NotNull: true}}
	default:
		return fmt.Errorf("column %q: type %s cannot be read from JSON", c.name, t)
	}
	if c.shape == shapeMap {
		types[0].NotNull = true
	}
	for i, x := range types {
		k, err := newColumn(schema.Field{Name: c.name + "." + names[i], Type: x})
		if err != nil {
			return err
		}
		c.kids = append(c.kids, k)
	}
	return nil
}

// setPath tells the column, and those inside, where they stand in the schema.
func (c *column) setPath(path []string) {
	c.path = path
	steps := []string{"element"}
	switch c.typ.Root {
	case schema.Row:
		steps = nil
		for _, f := range c.typ.Fields {
			steps = append(steps, f.Name)
		}
	case schema.Map:
		steps = []string{"key", "value"}
	case schema.Multiset:
		steps = []string{"element", "count"}
	}
	for i := range c.kids {
		c.kids[i].setPath(append(slices.Clone(path), steps[i]))
	}
}

// kidType is the Arrow type of what is inside.
func kidType(t arrow.DataType, i int) arrow.DataType {
	switch t := t.(type) {
	case *arrow.StructType:
		return t.Field(i).Type
	case *arrow.MapType:
		if i == 0 {
			return t.KeyType()
		}
		return t.ItemType()
	}
	return t.(*arrow.ListType).Elem()
}

// takeKids hands over what is inside of the first rows.
func (c *column) takeKids(t arrow.DataType, rows int) []arrow.ArrayData {
	n := rows
	if c.shape != shapeStruct {
		n = int(c.off[rows])
	}
	var out []arrow.ArrayData
	for i := range c.kids {
		k := &c.kids[i]
		if k.size <= n {
			k.grow(n + 1)
		}
		out = append(out, k.take(kidType(t, i), n).Data())
	}
	if c.shape != shapeMap {
		return out
	}
	pairs := array.NewData(t.(*arrow.MapType).Elem(), n, []*memory.Buffer{nil}, out, 0, 0)
	return []arrow.ArrayData{pairs}
}

// setUnit sets the unit of numbers that are timestamps.
func (c *column) setUnit(digits int) {
	if c.shape == shapeTimestamp {
		c.unit = digits
	}
	for i := range c.kids {
		c.kids[i].setUnit(digits)
	}
}

// enter makes row at of a column inside another the row that is written; it gives the row to go back to (in d.at).
func (d *rowBuilder) enter(c *column, at int) (back int) {
	back, d.at = d.at, at
	if c.size <= at+1 {
		old := c.size
		c.grow(max(2*old, at+2, 16))
		d.bytes += (c.size - old) * c.width()
	}
	c.clear(at)
	return back
}

// inner reads a value into row at of a column inside another.
func (d *jsonDecoder) inner(b []byte, i int, c *column, at int) int {
	row := d.enter(c, at)
	switch {
	case i >= len(b):
		i = d.fault(faultEnd, i, c)
	case b[i] == 'n':
		if e := literal(b, i, "null"); e < 0 {
			i = d.fault(e, i, c)
		} else if i = d.innerNull(c, i); i >= 0 {
			i = e
		}
	default:
		i = d.content(b, i, c)
	}
	d.at = row
	return i
}

// innerNull sets the row d.at of a column inside another to null.
func (d *rowBuilder) innerNull(c *column, i int) int {
	if c.notNull {
		return d.refuse(IsNull, i, c, "is missing or null, but it is NOT NULL")
	}
	c.setNull(d.at)
	return i
}

// valueRow reads an object as a ROW: members that are no fields are ignored, missing ones are null.
func (d *jsonDecoder) valueRow(b []byte, i int, c *column) int {
	if b[i] != '{' {
		return d.mismatch(b, i, c)
	}
	d.objects++
	mark := d.objects
	start := i
	for more := i + 1; ; {
		e, name, end := d.member(b, more, c)
		if e < 0 {
			return -1
		}
		if end {
			i = e
			break
		}
		k, known := c.members[string(name)]
		if !known {
			unknown := ""
			if d.cfg.Evolution != Freeze {
				unknown = string(name)
			}
			var at int
			if i, at = skipValue(b, e, &d.nest); i < 0 {
				return d.fault(i, at, c)
			}
			if unknown != "" && !d.inKey && d.newColumn(c.path, c.typ.Fields, unknown, b[e:i], e) < 0 {
				return -1
			}
		} else {
			kid := &c.kids[k]
			if kid.seen == mark {
				return d.fail(e, kid, "the field occurs twice")
			}
			kid.seen = mark
			if i = d.inner(b, e, kid, d.at); i < 0 {
				return -1
			}
		}
		more = i
	}
	for k := range c.kids {
		if kid := &c.kids[k]; kid.seen != mark {
			if kid.size <= d.at+1 {
				kid.grow(max(2*kid.size, d.at+2, 16))
			}
			kid.clear(d.at)
			if d.innerNull(kid, start) < 0 {
				return -1
			}
		}
	}
	return i
}

// member reads up to the value of an object's next member, from after the opening brace or the last value. end reports
// that the object is over; then e stands behind it. The name is valid until the next call.
func (d *jsonDecoder) member(b []byte, i int, c *column) (e int, name []byte, end bool) {
	first := b[i-1] == '{'
	if i = space(b, i); i >= len(b) {
		return d.fault(faultEnd, i, c), nil, false
	}
	switch {
	case b[i] == '}':
		return i + 1, nil, true
	case first:
	case b[i] == ',':
		i = space(b, i+1)
	default:
		return d.fault(faultValue, i, c), nil, false
	}
	if i >= len(b) || b[i] != '"' {
		return d.fault(faultValue, i, c), nil, false
	}
	name, i = d.text(b, i, c)
	if i < 0 {
		return -1, nil, false
	}
	e, at := colon(b, i)
	if e < 0 {
		return d.fault(e, at, c), nil, false
	}
	return space(b, e), name, false
}

// valueList reads an array.
func (d *jsonDecoder) valueList(b []byte, i int, c *column) int {
	if b[i] != '[' {
		return d.mismatch(b, i, c)
	}
	at, n := int(c.off[d.at]), 0
	i = d.elements(b, i, c, func(i int) int {
		n++
		return d.inner(b, i, &c.kids[0], at+n-1)
	})
	if i >= 0 {
		c.off[d.at+1] = int32(at + n)
	}
	return i
}

// elements calls one for each element of an array, which starts at i, and gives the position behind it.
func (d *jsonDecoder) elements(b []byte, i int, c *column, one func(i int) int) int {
	i = space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = one(space(b, i)); i < 0 {
			return -1
		}
		if d.bytes > d.most {
			return d.overfull(i, c)
		}
		if i = space(b, i); i >= len(b) {
			return d.fault(faultEnd, i, c)
		}
		switch b[i] {
		case ',':
			i++
		case ']':
			return i + 1
		default:
			return d.fault(faultValue, i, c)
		}
	}
}

// valueMap reads a MAP or MULTISET: an array of [key, value] pairs, or an object if the keys can be read from text.
func (d *jsonDecoder) valueMap(b []byte, i int, c *column) int {
	at, n := int(c.off[d.at]), 0
	switch b[i] {
	case '[':
		i = d.elements(b, i, c, func(i int) int {
			n++
			return d.pair(b, i, c, at+n-1)
		})
	case '{':
		for i++; ; n++ {
			e, name, end := d.member(b, i, c)
			if e < 0 {
				return -1
			}
			if i = e; end {
				break
			}
			if d.textKey(name, i, &c.kids[0], at+n) < 0 {
				return -1
			}
			if i = d.inner(b, i, &c.kids[1], at+n); i < 0 {
				return -1
			}
			if d.bytes > d.most {
				return d.overfull(i, c)
			}
		}
	default:
		return d.mismatch(b, i, c)
	}
	if i >= 0 {
		c.off[d.at+1] = int32(at + n)
	}
	return i
}

// pair reads [key, value].
func (d *jsonDecoder) pair(b []byte, i int, c *column, at int) int {
	if i >= len(b) || b[i] != '[' {
		return d.fail(i, c, "want [key, value] pairs, or an object")
	}
	part := 0
	i = d.elements(b, i, c, func(i int) int {
		if part++; part > 2 {
			return d.fail(i, c, "a pair has more than a key and a value")
		}
		return d.inner(b, i, &c.kids[part-1], at)
	})
	if i >= 0 && part < 2 {
		return d.fail(i, c, "a pair has no value")
	}
	return i
}

// textKey reads the name of an object's member as a key.
func (d *rowBuilder) textKey(name []byte, i int, k *column, at int) int {
	row := d.enter(k, at)
	switch k.shape {
	case shapeText:
		i = d.putText(name, i, i, k)
	case shapeBool, shapeBytes, shapeStruct, shapeList, shapeMap:
		i = d.fail(i, k, "keys of type "+k.typ.String()+" cannot be names of an object; give [key, value] pairs")
	default:
		i = d.putString(name, i, k)
	}
	d.at = row
	return i
}
