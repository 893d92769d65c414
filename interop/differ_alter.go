//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/schema"
)

const doAlter action = "alter"

// HistoryAlter is one change of the schema.
type HistoryAlter struct {
	What   string // add, drop, rename, move, type, allow null
	Column string
	Inside []string // of a nested column: the way to what is changed; "element" and "value" are what is in collections
	Type   string   // add, type: in SQL words
	To     string   // rename
	Place  string   // add, move: first, last, after or before
	Ref    string   // the neighbour of after and before
}

// String tells the change to people.
func (a *HistoryAlter) String() string {
	return strings.TrimSpace(strings.Join([]string{a.What, "`" + strings.Join(a.path(), "`.`") + "`", a.Type, a.To, a.Place, a.Ref}, " "))
}

func (a *HistoryAlter) path() []string { return append([]string{a.Column}, a.Inside...) }

// change is the change in calve's words.
func (a *HistoryAlter) change() (schema.Change, error) {
	place := schema.Place{Ref: a.Ref, At: map[string]schema.PlaceKind{"": schema.AnyPlace, "first": schema.First,
		"last": schema.Last, "after": schema.After, "before": schema.Before}[a.Place]}
	path := a.path()
	var t schema.Type
	if a.Type != "" {
		ids := 1 << 20 // the engines give ids of their own
		var err error
		if t, err = calveType(a.Type, &ids); err != nil {
			return nil, err
		}
	}
	switch a.What {
	case "add":
		return schema.AddColumn{Path: path, Type: t, Place: place}, nil
	case "drop":
		return schema.DropColumn{Path: path}, nil
	case "rename":
		return schema.RenameColumn{Path: path, To: a.To}, nil
	case "move":
		return schema.MoveColumn{Name: a.Column, Place: place}, nil
	case "type":
		return schema.ChangeType{Path: path, Type: t, KeepNull: true}, nil
	case "allow null":
		return schema.ChangeNullability{Path: path}, nil
	}
	return nil, fmt.Errorf("no such change: %s", a)
}

// alter changes the schema; refused says that calve understands the change and does not take it.
func (c *calveSide) alter(ctx context.Context, a *HistoryAlter) (refused, err error) {
	change, err := a.change()
	if err != nil {
		return nil, err
	}
	_, _, err = c.reader.Meta().AlterSchema(ctx, []schema.Change{change})
	if errors.Is(err, schema.ErrAlter) {
		return err, nil
	}
	return nil, err
}

// takes asks calve whether it would take a change, without making it.
func (c *calveSide) takes(ctx context.Context, a *HistoryAlter, snapshots bool) error {
	change, err := a.change()
	if err != nil {
		return err
	}
	s, err := c.reader.Meta().LatestSchema(ctx)
	if err != nil {
		return err
	}
	_, err = s.Alter([]schema.Change{change}, schema.Past{Snapshots: snapshots,
		Older: func() ([]*schema.Schema, error) { return nil, nil }}, c.env.Now().UnixMilli())
	return err
}

func (j *javaSide) alter(ctx context.Context, a *HistoryAlter) error {
	request := map[string]any{"what": a.What, "path": a.path(), "to": a.To, "place": a.Place, "ref": a.Ref}
	if a.Type != "" {
		k, err := ParseKind(a.Type)
		if err != nil {
			return err
		}
		ids := 1 << 20
		request["type"] = k.json(&ids)
	}
	return j.ask(ctx, "alter", request, nil)
}

// moveNothing is what Java says of a column that is where it should be already, which calve takes as done.
const moveNothing = "Cannot move itself"

// alter lets the step's side change the schema. What one side refuses, the other must refuse, too.
func (p *player) alter(ctx context.Context, s *HistoryStep) *disagreement {
	p.resync = true // a writer that stays open must follow
	if s.By == byCalve {
		refused, err := p.calve.alter(ctx, s.Alter)
		if err != nil {
			return failed("calve alters", err)
		}
		if refused != nil && p.java.alter(ctx, s.Alter) == nil {
			return failed("Java takes a change of the schema that calve refuses", refused)
		}
		return nil
	}
	mine := p.calve.takes(ctx, s.Alter, p.next > 1)
	err := p.java.alter(ctx, s.Alter)
	if err != nil && mine == nil && !strings.Contains(err.Error(), moveNothing) {
		return failed("calve takes a change of the schema that Java refuses", err)
	}
	if err == nil && mine != nil && !p.ReadOnly { // of tables that it only reads it may refuse more
		return failed("Java takes a change of the schema that calve refuses", mine)
	}
	return nil
}

// alter chooses a change and makes it in the generator's own picture of the table.
func (g *generator) alter() HistoryStep {
	a := &HistoryAlter{}
	g.altered++
	free := g.freeColumns()
	if nested := g.nestedColumns(); len(nested) > 0 && g.chance(70) {
		g.alterInside(a, oneOf(g.valuer, nested...))
		return HistoryStep{By: g.side(), Do: doAlter, Alter: a}
	}
	flat := slices.DeleteFunc(slices.Clone(free), func(name string) bool { return len(g.kinds[name].Fields) > 0 })
	switch x := g.IntN(100); {
	case x < 30 || len(free) == 0:
		a.What, a.Type, a.Column = "add", g.anyType(), fmt.Sprintf("a%d", g.altered)
		if g.has(nestedTypes) && g.chance(30) {
			a.Type = g.nestedType(2)
		}
		a.Place = oneOf(g.valuer, "", "first", "last", "after", "before")
		if a.Place == "after" || a.Place == "before" {
			a.Ref = oneOf(g.valuer, g.now...).Name
		}
		g.kinds[a.Column], _ = ParseKind(a.Type) // a type of the generator's own
		g.now = append(g.now, Column{a.Column, a.Type})
	case x < 45 && len(g.now) > 2:
		a.What, a.Column = "drop", oneOf(g.valuer, free...)
		g.now = slices.DeleteFunc(g.now, func(c Column) bool { return c.Name == a.Column })
	case x < 60:
		a.What, a.Column, a.To = "rename", oneOf(g.valuer, free...), fmt.Sprintf("r%d", g.altered)
		g.kinds[a.To] = g.kinds[a.Column]
		for i := range g.now {
			if g.now[i].Name == a.Column {
				g.now[i].Name = a.To
			}
		}
	case x < 70:
		a.What, a.Column, a.Place, a.Ref = "move", oneOf(g.valuer, free...), "after", oneOf(g.valuer, g.now...).Name
		if a.Column == a.Ref || g.chance(30) {
			a.Place, a.Ref = oneOf(g.valuer, "first", "last"), ""
		}
	case x < 75 || len(flat) == 0:
		a.What, a.Column = "allow null", oneOf(g.valuer, free...)
		k := g.kinds[a.Column]
		k.NotNull = false
		g.kinds[a.Column] = k
	default:
		a.Column = oneOf(g.valuer, flat...)
		g.kinds[a.Column] = g.retype(a, g.kinds[a.Column])
	}
	return HistoryStep{By: g.side(), Do: doAlter, Alter: a}
}

// retype gives a column another type that its values can be cast to, if it finds one, and gives what it is then.
func (g *generator) retype(a *HistoryAlter, old Kind) Kind {
	a.What = "type"
	for range 200 {
		a.Type = g.anyType()
		k, err := ParseKind(a.Type)
		if err != nil {
			continue
		}
		risky := isText(old) && !isText(k) // Java fails on texts that are no numbers, and so on
		// Bytes that are no UTF-8 have no common text: one library shows one replacement character for what is several to another.
		risky = risky || isText(k) && strings.Contains("BINARY VARBINARY BYTES", old.Word)
		// Java takes a TIME that is negative out of timestamps before 1970.
		risky = risky || k.Word == "TIME" && strings.HasPrefix(old.Word, "TIMESTAMP")
		if k.text != old.text && !risky && casts(append(slices.Clone(old.was), old.text), k.text) {
			k.NotNull, k.was = old.NotNull, append(slices.Clone(old.was), old.text)
			return k
		}
	}
	a.What, a.Type, old.NotNull = "allow null", "", false
	return old
}

// casts reports whether values of all types can be cast to another one. Java casts from the type that a file has to that
// of today, without those between, and fails at reading if there is no such cast (`SchemaEvolutionUtil.createCastExecutor`).
func casts(from []string, to string) bool {
	return !slices.ContainsFunc(from, func(from string) bool {
		ids := 0
		a, err1 := calveType(from, &ids)
		b, err2 := calveType(to, &ids)
		return err1 != nil || err2 != nil || !schema.CanCast(a, b, true)
	})
}

// freeColumns are the columns that are no key and that no option names.
func (g *generator) freeColumns() []string {
	var out []string
	for _, c := range g.now {
		named := slices.Contains(g.Key, c.Name) || slices.Contains(g.Partition, c.Name)
		for name, value := range g.Options {
			named = named || strings.Contains(name, c.Name) || strings.Contains(value, c.Name)
		}
		if !named {
			out = append(out, c.Name)
		}
	}
	return out
}

func isText(k Kind) bool { return k.Word == "STRING" || k.Word == "VARCHAR" || k.Word == "CHAR" }
