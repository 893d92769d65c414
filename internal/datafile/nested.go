package datafile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// nestedColumn reads a column of an ARRAY, MAP, MULTISET, ROW or VARIANT type: the leaves of its group give levels and
// values of a batch, from which the Arrow array is put together.
type nestedColumn struct {
	root   *node
	leaves []*leafColumn
}

// node is a part of a nested type: what of the file's type is wanted.
type node struct {
	name string
	dt   arrow.DataType
	e    *element
	// levels are those of the first leaf below; of a leaf, its own.
	levels *leafColumn
	kids   []*node // of a struct, in the order wanted; of a list, its element; of a map, key and value
	absent bool    // the file's schema does not have it: null
	list   bool
	isMap  bool
	leaf   bool
	cast   caster
}

// nested prepares a column of a nested type: from is its type in the file's schema, to the type it is wanted in.
func (r *Reader) nested(e *element, from, to schema.Type, step int) (*nestedColumn, error) {
	p := &nestedPlan{r: r, step: step}
	root, err := p.node(e, e.name, from, to)
	if err != nil {
		return nil, err
	}
	return &nestedColumn{root: root, leaves: p.leaves}, nil
}

// nestedPlan finds the parts of a nested column in the file.
type nestedPlan struct {
	r      *Reader
	step   int
	leaves []*leafColumn
}

func (p *nestedPlan) node(e *element, name string, from, to schema.Type) (*node, error) {
	dt, err := schema.ArrowType(to)
	if err != nil {
		return nil, err
	}
	n := &node{name: name, dt: dt, e: e}
	switch {
	case from.Primitive():
		err = p.value(n, from, to)
	case from.Root != to.Root:
		err = unsupportedf("%s: the file has type %s, which cannot be read as %s", name, from, to)
	case e.at >= 0 || e.repeated:
		err = unsupportedf("%s: type %s is not stored as a group", name, from)
	case from.Root == schema.Row:
		err = p.row(n, from, to)
	case from.Root == schema.Variant:
		err = p.variant(n)
	default:
		err = p.collection(n, from, to)
	}
	return n, err
}

// value plans a leaf.
func (p *nestedPlan) value(n *node, from, to schema.Type) error {
	if n.e.at < 0 || n.e.repeated {
		return unsupportedf("%s: type %s is stored as a group or repeated", n.name, from)
	}
	c, err := p.r.physical(n.e, n.name, from, p.step)
	if err != nil {
		return err
	}
	c.nested = true
	if n.cast, err = casterOf(from, to); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	n.leaf, n.levels = true, &leafColumn{column: c, groups: p.r.foot.groups}
	p.leaves = append(p.leaves, n.levels)
	return nil
}

// row plans the fields of a ROW: found by id in the file's type, then by the name they had there (`SchemaEvolutionUtil`).
func (p *nestedPlan) row(n *node, from, to schema.Type) error {
	for _, f := range to.Fields {
		then := fieldByID(from.Fields, f.ID)
		if then == nil {
			dt, err := schema.ArrowType(f.Type)
			if err != nil {
				return err
			}
			n.kids = append(n.kids, &node{dt: dt, absent: true})
			continue
		}
		k, err := p.field(n, *then, f.Type)
		if err != nil {
			return err
		}
		n.kids = append(n.kids, k)
		if n.levels == nil {
			n.levels = k.levels
		}
	}
	if n.levels != nil {
		return nil
	}
	// Nothing of the row is wanted, but whether it is there: any leaf of it can tell.
	if len(from.Fields) == 0 {
		return unsupportedf("%s: a row without fields", n.name)
	}
	k, err := p.field(n, from.Fields[0], from.Fields[0].Type)
	if err == nil {
		n.levels = k.levels
	}
	return err
}

// field plans a field of a struct under the name it has in the file. A nested field that is missing in the file although
// the file's schema has it is an error in Paimon too.
func (p *nestedPlan) field(n *node, then schema.Field, to schema.Type) (*node, error) {
	e := n.e.child(then.Name)
	if e == nil {
		return nil, unsupportedf("the file has no field %s.%s, which its schema has", n.name, then.Name)
	}
	return p.node(e, n.name+"."+then.Name, then.Type, to)
}

func fieldByID(fields []schema.Field, id int) *schema.Field {
	for i := range fields {
		if fields[i].ID == id {
			return &fields[i]
		}
	}
	return nil
}

// variant plans the two binaries of a VARIANT. Shredded variants have a third member.
func (p *nestedPlan) variant(n *node) error {
	if len(n.e.children) != 2 {
		return unsupportedf("%s: a VARIANT of %d parts: calve does not read shredded variants", n.name, len(n.e.children))
	}
	for i, name := range []string{schema.VariantValue, schema.VariantMetadata} {
		t := schema.Type{Root: schema.VarBinary, Length: schema.MaxLength, NotNull: true}
		k, err := p.field(n, schema.Field{ID: i, Name: name, Type: t}, t)
		if err != nil {
			return err
		}
		n.kids = append(n.kids, k)
	}
	n.levels = n.kids[0].levels
	return nil
}

// collection plans an ARRAY, MAP or MULTISET: a group with one repeated group, in which are element, or key and value.
func (p *nestedPlan) collection(n *node, from, to schema.Type) error {
	n.list, n.isMap = true, from.Root != schema.Array
	parts, names := 1, []string{"element"}
	if n.isMap {
		parts, names = 2, []string{"key", "value"}
	}
	if len(n.e.children) != 1 || !n.e.children[0].repeated || len(n.e.children[0].children) != parts {
		return unsupportedf("%s: type %s is not stored as a group of one repeated group with %d members", n.name, from, parts)
	}
	have, want := partsOf(from), partsOf(to)
	for i, e := range n.e.children[0].children {
		k, err := p.node(e, n.name+"."+names[i], have[i], want[i])
		if err != nil {
			return err
		}
		n.kids = append(n.kids, k)
	}
	n.levels = n.kids[0].levels
	return nil
}

// partsOf gives the types inside a collection. A MULTISET is a map from the element to how often it occurs.
func partsOf(t schema.Type) []schema.Type {
	switch t.Root {
	case schema.Array:
		return []schema.Type{*t.Element}
	case schema.Multiset:
		return []schema.Type{*t.Element, {Root: schema.Int, NotNull: true}}
	}
	return []schema.Type{*t.Key, *t.Element}
}

// next reads up to n rows.
func (c *nestedColumn) next(n int) (arrow.Array, error) {
	n, err := c.cut(n)
	if err != nil {
		return nil, err
	}
	return c.root.assemble(n)
}

// skip passes over n rows: they are read and not put together.
func (c *nestedColumn) skip(n int64) error {
	for n > 0 {
		k, err := c.cut(int(min(n, stepSlots)))
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

// cut reads up to n rows of all leaves, and tells how many it has.
func (c *nestedColumn) cut(n int) (int, error) {
	for _, l := range c.leaves {
		if l.rows > 0 { // left from the last batch
			n = min(n, l.rows)
		}
	}
	for _, l := range c.leaves {
		if l.rows == 0 {
			if err := l.read(n); err != nil {
				return 0, fmt.Errorf("%s: %w", l.place(), err)
			}
		}
		n = min(n, l.rows)
	}
	for _, l := range c.leaves {
		l.cut(n)
	}
	return n, nil
}

// assemble makes the array of a part, which must have n elements by the levels of its leaves.
func (n *node) assemble(rows int) (arrow.Array, error) {
	switch {
	case n.absent:
		return array.MakeArrayOfNull(memory.DefaultAllocator, n.dt, rows), nil
	case n.list:
		return n.assembleList(rows)
	case n.leaf:
		a := n.levels.batch.values
		if a.Len() != rows {
			return nil, corruptf("%s has %d values where its neighbours have %d", n.name, a.Len(), rows)
		}
		if n.cast != nil {
			return n.cast(a)
		}
		return a, nil
	}
	valid, nulls, err := n.validity(rows)
	if err != nil {
		return nil, err
	}
	kids := make([]arrow.ArrayData, len(n.kids))
	for i, k := range n.kids {
		a, err := k.assemble(rows)
		if err != nil {
			return nil, err
		}
		kids[i] = a.Data()
	}
	return array.MakeFromData(array.NewData(n.dt, rows, []*memory.Buffer{valid}, kids, nulls, 0)), nil
}

// validity tells which of the elements are there; the buffer is nil if all are.
func (n *node) validity(rows int) (*memory.Buffer, int, error) {
	b := &n.levels.batch
	if !n.e.optional {
		return nil, 0, nil
	}
	bits := make([]byte, (rows+7)/8)
	at, nulls := 0, 0
	for i, def := range b.defs {
		if len(b.reps) > 0 && b.reps[i] > n.e.maxRep || def < n.e.elemDef {
			continue
		}
		if at == rows {
			return nil, 0, corruptf("%s has more than %d values, which its neighbours have", n.name, rows)
		}
		if def >= n.e.maxDef {
			bits[at>>3] |= 1 << (at & 7)
		} else {
			nulls++
		}
		at++
	}
	if at != rows {
		return nil, 0, corruptf("%s has %d values where its neighbours have %d", n.name, at, rows)
	}
	if nulls == 0 {
		return nil, 0, nil
	}
	return memory.NewBufferBytes(bits), nulls, nil
}

// assembleList makes a list or map.
func (n *node) assembleList(rows int) (arrow.Array, error) {
	b := &n.levels.batch
	inside := n.e.children[0] // the repeated group
	offsets, bits := make([]int32, rows+1), make([]byte, (rows+7)/8)
	at, nulls, total := 0, 0, int32(0)
	for i, def := range b.defs {
		switch rep := b.reps[i]; {
		case rep > inside.maxRep || def < n.e.elemDef:
		case rep == inside.maxRep: // another element
			if at == 0 || def < inside.maxDef {
				return nil, corruptf("%s: an element outside of any list", n.name)
			}
			total++
		default: // another list
			if at == rows {
				return nil, corruptf("%s has more than %d values, which its neighbours have", n.name, rows)
			}
			offsets[at] = total
			if def >= n.e.maxDef {
				bits[at>>3] |= 1 << (at & 7)
			} else {
				nulls++
			}
			if def >= inside.maxDef {
				total++
			}
			at++
		}
	}
	if at != rows {
		return nil, corruptf("%s has %d values where its neighbours have %d", n.name, at, rows)
	}
	offsets[rows] = total
	bufs := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}
	if nulls > 0 {
		bufs[0] = memory.NewBufferBytes(bits)
	}
	kids := make([]arrow.ArrayData, len(n.kids))
	for i, k := range n.kids {
		a, err := k.assemble(int(total))
		if err != nil {
			return nil, err
		}
		kids[i] = a.Data()
	}
	if n.isMap {
		if kids[0].NullN() > 0 {
			return nil, corruptf("%s has keys that are null", n.name)
		}
		pairs := array.NewData(n.dt.(*arrow.MapType).Elem(), int(total), []*memory.Buffer{nil}, kids, 0, 0)
		kids = []arrow.ArrayData{pairs}
	}
	return array.MakeFromData(array.NewData(n.dt, rows, bufs, kids, nulls, 0)), nil
}
