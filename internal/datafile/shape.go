package datafile

import (
	"fmt"

	"github.com/calve-io/calve/schema"
)

// Names of the groups and members by which Paimon's writer stores collections (`ParquetSchemaConverter`, §8.2).
const (
	listGroup   = "list"
	listElement = "element"
	mapGroup    = "key_value"
	mapKey      = "key"
	mapValue    = "value"
)

// part is a node of a column's type as it is in a file.
type part struct {
	name string
	id   int32 // -1: the node has none
	typ  schema.Type
	// kids are the fields of a ROW, the element of an ARRAY, key and value of a MAP or MULTISET, the binaries of a
	// VARIANT.
	kids []part
}

// newPart lays a column out. fieldID is that of the nearest field around, depth how many collections lie between.
func newPart(name string, id, fieldID int32, depth int, t schema.Type) part {
	p := part{name: name, id: id, typ: t}
	inside := func(name string, id int32, t schema.Type) part { return newPart(name, id, fieldID, depth+1, t) }
	up := int32(schema.ElementID(int(fieldID), depth+1))
	switch t.Root {
	case schema.Row:
		for _, f := range t.Fields {
			p.kids = append(p.kids, newPart(f.Name, int32(f.ID), int32(f.ID), 0, f.Type))
		}
	case schema.Variant:
		bin := schema.Type{Root: schema.VarBinary, Length: schema.MaxLength, NotNull: true}
		p.kids = []part{{name: schema.VariantValue, id: -1, typ: bin}, {name: schema.VariantMetadata, id: -1, typ: bin}}
	case schema.Array:
		p.kids = []part{inside(listElement, up, *t.Element)}
	case schema.Map, schema.Multiset:
		types := partsOf(t)
		types[0].NotNull = true // Parquet has no nullable keys
		p.kids = []part{inside(mapKey, int32(schema.KeyID(int(fieldID), depth+1)), types[0]), inside(mapValue, up, types[1])}
	}
	return p
}

// elements is the number of schema elements of a node and what is below it.
func (p *part) elements() int {
	n := 1
	switch p.typ.Root {
	case schema.Array, schema.Map, schema.Multiset:
		n++
	}
	for i := range p.kids {
		n += p.kids[i].elements()
	}
	return n
}

// write appends the schema elements of a node.
func (p *part) write(t *thriftWriter) {
	if p.typ.Primitive() {
		writeElement(t, p.name, p.id, p.typ)
		return
	}
	rep := int32(repOptional)
	if p.typ.NotNull {
		rep = repRequired
	}
	group := func(rep int32, name string, kids, converted, id int32, logical int16) {
		t.element()
		t.i32(3, rep)
		t.text(4, name)
		t.i32(5, kids)
		if converted > 0 {
			t.i32(6, converted)
		}
		if id >= 0 {
			t.i32(9, id)
		}
		if logical > 0 {
			t.structure(10)
			t.structure(logical)
			t.end()
			t.end()
		}
		t.end()
	}
	switch p.typ.Root {
	case schema.Array:
		group(rep, p.name, 1, convertedList, p.id, logicalList)
		group(repRepeated, listGroup, 1, 0, -1, 0)
	case schema.Map, schema.Multiset:
		group(rep, p.name, 1, convertedMap, p.id, logicalMap)
		group(repRepeated, mapGroup, 2, convertedMapKeyValue, -1, 0)
	default:
		group(rep, p.name, int32(len(p.kids)), 0, p.id, 0)
	}
	for i := range p.kids {
		p.kids[i].write(t)
	}
}

// step is one move from a column's array towards a leaf.
type step struct {
	kind stepKind
	name string // of what is required
	kid  int    // of a struct
}

type stepKind uint8

const (
	stepOptional stepKind = iota // values may be null
	stepRequired                 // values must not be null
	stepField                    // into a struct
	stepList                     // into a list or map
)

// leaves appends the leaves of a node, with the way there.
func (p *part) leaves(dst []fileColumn, from int, top schema.Type, path []string, steps []step, def, rep uint8) ([]fileColumn, error) {
	if len(path) > maxDepth || def >= maxLevel-1 {
		return dst, fmt.Errorf("column %q of type %s is nested too deep", path[0], top)
	}
	path = append(path[:len(path):len(path)], p.name)
	kind := stepRequired
	if !p.typ.NotNull {
		kind, def = stepOptional, def+1
	}
	steps = append(steps[:len(steps):len(steps)], step{kind: kind, name: p.name})
	if p.typ.Primitive() {
		return append(dst, fileColumn{name: joinPath(path), path: path, id: p.id, typ: p.typ, from: from, top: top,
			steps: steps, maxDef: def, maxRep: rep}), nil
	}
	switch p.typ.Root {
	case schema.Array, schema.Map, schema.Multiset:
		steps, def, rep = append(steps, step{kind: stepList}), def+1, rep+1
		name := listGroup
		if p.typ.Root != schema.Array {
			name = mapGroup
		}
		path = append(path, name)
	}
	var err error
	for i := range p.kids {
		next := steps[:len(steps):len(steps)]
		if p.typ.Root != schema.Array {
			next = append(next, step{kind: stepField, kid: i})
		}
		if dst, err = p.kids[i].leaves(dst, from, top, path, next, def, rep); err != nil {
			return dst, err
		}
	}
	if len(p.kids) == 0 {
		return dst, fmt.Errorf("column %q: a ROW without fields has no Parquet form", path[0])
	}
	return dst, nil
}

func joinPath(path []string) string {
	out := path[0]
	for _, p := range path[1:] {
		out += "." + p
	}
	return out
}
