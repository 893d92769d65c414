//go:build interop

package interop

import (
	"fmt"
	"slices"
)

// nestedColumns are the columns inside of which the schema may change.
func (g *generator) nestedColumns() []string {
	return slices.DeleteFunc(g.freeColumns(), func(name string) bool {
		k := g.kinds[name]
		return len(k.Fields) == 0 || k.Word == "VARIANT" || k.Word == "MULTISET"
	})
}

// alterInside chooses a change inside of a nested column.
func (g *generator) alterInside(a *HistoryAlter, column string) {
	a.Column = column
	g.kinds[column] = g.inside(a, g.kinds[column])
	g.feature("alter-inside-" + g.kinds[column].Word)
}

// inside makes a change in a nested type and gives the new one. a.Inside is the way to the type.
func (g *generator) inside(a *HistoryAlter, k Kind) Kind {
	k.Fields = slices.Clone(k.Fields) // others have the old type
	at, step := 0, "element"
	switch k.Word {
	case "MAP":
		at, step = 1, "value"
	case "ROW":
		if g.chance(40) {
			return g.alterRow(a, k)
		}
		at = g.IntN(len(k.Fields))
		step = k.Fields[at].Name
	}
	a.Inside = append(a.Inside, step)
	f := &k.Fields[at]
	switch {
	case f.Word == "ARRAY" || f.Word == "MAP" || f.Word == "ROW":
		f.Kind = g.inside(a, f.Kind)
	case f.NotNull && g.chance(50) || f.Word == "MULTISET":
		a.What, f.NotNull = "allow null", false
	default:
		f.Kind = g.retype(a, f.Kind)
	}
	return k
}

// alterRow adds, drops or renames a field of a ROW.
func (g *generator) alterRow(a *HistoryAlter, k Kind) Kind {
	at := g.IntN(len(k.Fields))
	switch x := g.IntN(100); {
	case x < 40:
		name := fmt.Sprintf("a%d", g.altered)
		a.What, a.Type = "add", g.anyType()
		if g.chance(25) {
			a.Type = g.nestedType(1)
		}
		added, _ := ParseKind(a.Type) // a type of the generator's own
		a.Inside, k.Fields = append(a.Inside, name), append(k.Fields, KindField{name, added})
	case x < 65 && len(k.Fields) > 1:
		a.What, a.Inside = "drop", append(a.Inside, k.Fields[at].Name)
		k.Fields = slices.Delete(k.Fields, at, at+1)
	default:
		a.What, a.Inside, a.To = "rename", append(a.Inside, k.Fields[at].Name), fmt.Sprintf("r%d", g.altered)
		k.Fields[at].Name = a.To
	}
	return k
}
