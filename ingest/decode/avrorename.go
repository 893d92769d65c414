package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/schema"
)

// rename has a column, or a field of the ROW at a path, renamed for a field that is none, if the schema says by an alias
// that the field is that column and the policy follows. It is false if the field is to be a column of its own: where it is
// not certain which column it was, or that column cannot hold its values.
//
// Records of the older schema that still come find the column by the alias, as long as the subject's newest schema has it.
func (p *avroPlanner) rename(parent []string, fields []schema.Field, t *avroType, f *avroField, reader *avroType, find func(string) *column) bool {
	if p.d.cfg.Evolution != Evolve || p.key || p.bad != "" {
		return false
	}
	old := former(t, f, reader, find)
	if old == "" || !p.holds(f.typ, find(old)) {
		return false
	}
	name, _ := reader.renamed(t, f.name) // the newest, as long as there is no column of this one
	others := slices.DeleteFunc(slices.Clone(fields), func(x schema.Field) bool { return x.Name == old })
	err := clash(others, name)
	if parent == nil && slices.Contains(p.d.cfg.Schema.PartitionKeys, old) {
		err = fmt.Errorf("its alias says that it is the column %q, which cannot be renamed: the folders of the partitions have that name", old)
	}
	path := append(slices.Clone(parent), old)
	if err != nil {
		path[len(path)-1] = f.name
		p.bad = fmt.Sprintf("field %q: %v", strings.Join(path, "."), err)
		return true
	}
	p.adds = append(p.adds, wish{path: path, to: name})
	return true
}

// former gives the column that a field of a record was by its aliases, in the writer's schema or the reader's (nil: none): the
// only one that they name which is no field of either any more, and which no other field's aliases name. "": there is none.
func former(t *avroType, f *avroField, reader *avroType, find func(string) *column) (old string) {
	names, rf := slices.Clone(f.aliases), reader.field(f.name)
	if rf == nil {
		_, rf = reader.renamed(t, f.name)
	}
	now := f.name
	if rf != nil {
		names, now = append(names, rf.aliases...), rf.name
	}
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

// claimed reports whether a field other than one has an alias.
func (t *avroType) claimed(alias, but string) bool {
	return t != nil && slices.ContainsFunc(t.fields, func(x avroField) bool { return x.name != but && slices.Contains(x.aliases, alias) })
}

// holds reports whether a column may hold values of a type, some of them perhaps when it is wider.
func (p *avroPlanner) holds(t *avroType, c *column) bool {
	adds, bad := p.adds, p.bad
	n := p.node(t, nil, c, false)
	p.adds, p.bad = adds, bad // what its fields need is asked for when it has its name
	if n.kind == avroUnion {
		return slices.ContainsFunc(n.kids, func(x avroNode) bool { return x.kind != avroNull && x.put != putRefuse })
	}
	return n.put != putRefuse
}

// member gives the field of a name of a ROW; nil: there is none.
func (c *column) member(name string) *column {
	if k, ok := c.members[name]; ok {
		return &c.kids[k]
	}
	return nil
}
