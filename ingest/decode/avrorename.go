package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/schema"
)

// rename has a column, or a field of the ROW at a path, renamed for a field that is none, if the policy follows and the
// reader's schema says that the field is that column: its own field for it lists the column's name as an alias. What the
// writer's schema alone says is not enough, since older records that still come find the column by the reader's aliases,
// and would make it anew without them. It is false if the field is to be a column of its own: where it is not certain which
// column it was, or where that column could not take its values.
func (p *avroPlanner) rename(parent []string, fields []schema.Field, t *avroType, f *avroField, reader *avroType, find func(string) *column) bool {
	if !p.renames || p.bad != "" || reader == nil || reader.name != t.name {
		return false
	}
	now := reader.now(t, f)
	if now == nil {
		return false
	}
	old := former(t, f, now.aliases, reader, now.name, find)
	if old == "" {
		return false
	}
	var err error
	if parent == nil {
		if p.d.reserved(old) || p.d.reserved(now.name) {
			return false
		}
		err = p.d.mayRename(old)
	}
	if err == nil {
		if !p.holds(f.typ, find(old)) {
			return false
		}
		err = clash(slices.DeleteFunc(slices.Clone(fields), func(x schema.Field) bool { return x.Name == old }), now.name)
	}
	path := append(slices.Clone(parent), old)
	if err != nil {
		path[len(path)-1] = f.name
		p.bad = fmt.Sprintf("field %q: %v", strings.Join(path, "."), err)
		return true
	}
	if !p.schemas.mayRename(path, now.name) {
		return false
	}
	p.adds = append(p.adds, wish{path: path, to: now.name})
	return true
}

// now gives the field of a reader's record that a writer's field is: the one of its name, or the only one that had it, for
// which the writer has no other field either. nil: there is none.
func (t *avroType) now(writer *avroType, f *avroField) *avroField {
	if rf := t.field(f.name); rf != nil {
		return rf
	}
	_, rf := t.renamed(writer, f.name)
	if rf == nil || t.claimed(f.name, rf.name) {
		return nil
	}
	for i := range writer.fields {
		if x := writer.fields[i].name; x != f.name && slices.Contains(rf.aliases, x) {
			return nil
		}
	}
	return rf
}

// former gives the column that a field of a record was by the aliases of it: the only one that they name which is no field
// any more, neither of the writer's schema nor of the reader's (nil: none), and which no other field's aliases name. now is
// what the reader calls the field. "": there is none.
func former(t *avroType, f *avroField, aliases []string, reader *avroType, now string, find func(string) *column) (old string) {
	names := slices.Clone(aliases)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if find(name) == nil || t.field(name) != nil || reader.field(name) != nil {
			continue
		}
		if old != "" || t.claimed(name, f.name) || reader.claimed(name, now) {
			return ""
		}
		old = name
	}
	return old
}

// reserved reports whether a name is that of a column which is not filled from a field, or has a say in which field is the
// row kind: a column that gets or gives up such a name changes what other fields mean.
func (d *rowBuilder) reserved(name string) bool {
	if i, ok := d.cfg.Schema.Field(name); ok && d.cols[i].meta != metaNone {
		return true
	}
	return name == d.cfg.OpField || name == "op" && d.cfg.OpField == ""
}

// mayRename says why a column of the table keeps its name whatever an alias says; nil: it need not.
func (d *rowBuilder) mayRename(old string) error {
	why := ""
	switch _, unit := d.cfg.EpochUnits[old]; {
	case slices.Contains(d.cfg.Schema.PartitionKeys, old):
		why = "the folders of the partitions have that name"
	case slices.Contains(d.cfg.Unsigned, old):
		why = "the pipeline's configuration has it among its unsigned columns"
	case unit:
		why = "the pipeline's configuration gives its unit"
	default:
		return nil
	}
	return fmt.Errorf("its alias says that it is the column %q, which cannot be renamed: %s", old, why)
}

// maxRenames bounds how often in a run the same column gets the same name again: sources that have other opinions of it
// would rename it with every record.
const maxRenames = 3

// mayRename counts a rename that a plan asks for; false: it was asked for too often.
func (s *Schemas) mayRename(path []string, to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renames == nil {
		s.renames = map[string]int{}
	}
	key := strings.Join(append(slices.Clone(path), to), "\x00")
	s.renames[key]++
	return s.renames[key] <= maxRenames
}

// onlyRecord reports whether all rows so far were records of this name.
func (s *Schemas) onlyRecord(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == "" {
		s.record = name
	}
	s.mixed = s.mixed || s.record != name
	return !s.mixed
}

// claimed reports whether a field other than one has an alias.
func (t *avroType) claimed(alias, but string) bool {
	return t != nil && slices.ContainsFunc(t.fields, func(x avroField) bool { return x.name != but && slices.Contains(x.aliases, alias) })
}

// holds reports whether a column takes the values of a type, perhaps when it is wider.
func (p *avroPlanner) holds(t *avroType, c *column) bool {
	typ, ok, err := (&avroMapper{}).typeOf(t)
	if err != nil || !ok || !c.follows(typ) {
		return false
	}
	adds, bad := p.adds, p.bad
	n := p.node(t, nil, c, false)
	p.adds, p.bad = adds, bad // what its fields need is asked for when it has its name
	if n.kind == avroUnion {
		return !slices.ContainsFunc(n.kids, func(x avroNode) bool { return x.put == putRefuse })
	}
	return n.put != putRefuse
}

// follows reports whether a column has the type that a field would be given, or one of its family that holds the same
// values, or gets wider until it does (Evolve; columns of the key do not).
func (c *column) follows(t schema.Type) bool {
	has := c.typ
	switch t.Root {
	case schema.Int, schema.BigInt:
		return c.shape >= shapeInt8 && c.shape <= shapeInt64 && (!c.key || has.Root >= t.Root)
	case schema.Float, schema.Double:
		return (has.Root == schema.Float || has.Root == schema.Double) && (!c.key || has.Root >= t.Root)
	case schema.Decimal:
		whole := t.Precision - t.Scale
		return has.Root == schema.Decimal && t.Scale <= has.Scale && whole+has.Scale <= 38 && (!c.key || whole <= has.Precision-has.Scale)
	case schema.Char, schema.VarChar:
		return c.shape == shapeText
	case schema.Binary, schema.VarBinary:
		return c.shape == shapeBytes
	case schema.Timestamp, schema.TimestampLTZ:
		return c.shape == shapeTimestamp && t.Precision <= has.Precision
	case schema.Row:
		return has.Root == schema.Row && !slices.ContainsFunc(t.Fields, func(f schema.Field) bool {
			k := c.member(f.Name)
			return k != nil && !k.follows(f.Type)
		})
	case schema.Array:
		return has.Root == schema.Array && c.kids[0].follows(*t.Element)
	case schema.Map:
		return has.Root == schema.Map && c.kids[0].follows(*t.Key) && c.kids[1].follows(*t.Element)
	}
	return has.Root == t.Root
}

// member gives the field of a name of a ROW; nil: there is none.
func (c *column) member(name string) *column {
	if k, ok := c.members[name]; ok {
		return &c.kids[k]
	}
	return nil
}
