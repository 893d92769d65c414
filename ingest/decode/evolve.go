package decode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calve-io/calve/schema"
)

// Evolution says what a record may do to the schema of its table.
type Evolution string

const (
	// Freeze: the schema stays. Fields that are no columns are ignored, values that do not fit are refused.
	Freeze Evolution = "freeze"
	// Strict: the schema stays. A record with a field that is no column is refused too.
	Strict Evolution = "dead-letter"
	// AddOnly: a field that is no column becomes one, or a field of a ROW.
	AddOnly Evolution = "add-only"
	// Evolve: besides, a column becomes wider when a value does not fit: TINYINT, SMALLINT, INT → BIGINT, FLOAT → DOUBLE,
	// CHAR and VARCHAR → STRING, a DECIMAL → one of more digits before the point. All of these are legal in Iceberg too.
	// Anything else that does not fit is refused: what a column is was settled by its first value. And a column gets another
	// name when the newest Avro schema says by an alias that its field had that of the column (avroPlanner.rename).
	Evolve Evolution = "evolve"
)

// Evolutions lists all of them.
var Evolutions = []Evolution{Freeze, Strict, AddOnly, Evolve}

// Adds reports whether records add columns.
func (e Evolution) Adds() bool { return e == AddOnly || e == Evolve }

// NeedSchema is the error of Decode for a record that fits the table when these changes are made. Nothing of the record
// is in the batch; it is to be decoded again by the new schema.
type NeedSchema struct{ Changes []schema.Change }

// Error tells the changes.
func (n *NeedSchema) Error() string {
	texts := make([]string, len(n.Changes))
	for i, c := range n.Changes {
		texts[i] = c.String()
	}
	return "the record needs another schema: " + strings.Join(texts, "; ")
}

// wish is one change that the record being decoded asks for.
type wish struct {
	path []string
	typ  schema.Type
	add  bool   // a column that is not there; else a wider type
	to   string // not "": another name, and nothing else
}

// maxWishes bounds the columns that one record asks for.
const maxWishes = maxInferFields

// want remembers a wish; the same column may be asked for by several elements of an array.
func (d *rowBuilder) want(w wish) error {
	for i := range d.wishes {
		old := &d.wishes[i]
		if !slices.Equal(old.path, w.path) {
			last := len(w.path) - 1
			if w.add && len(old.path) == len(w.path) && slices.Equal(old.path[:last], w.path[:last]) && strings.EqualFold(old.path[last], w.path[last]) {
				return clash([]schema.Field{{Name: old.path[last]}}, w.path[last])
			}
			continue
		}
		if w.add {
			t, err := joinTypes(old.typ, w.typ)
			old.typ = t
			return err
		}
		if w.typ.Precision > old.typ.Precision {
			old.typ = w.typ
		}
		return nil
	}
	if len(d.wishes) == maxWishes {
		return fmt.Errorf("the record has more than %d fields that are no columns", maxWishes)
	}
	d.wishes = append(d.wishes, w)
	return nil
}

// need gives the changes that the record asked for.
func (d *rowBuilder) need() *NeedSchema {
	n := &NeedSchema{}
	for _, w := range d.wishes {
		switch {
		case w.to != "":
			n.Changes = append(n.Changes, schema.RenameColumn{Path: w.path, To: w.to})
		case w.add:
			n.Changes = append(n.Changes, schema.AddColumn{Path: w.path, Type: w.typ})
		default:
			n.Changes = append(n.Changes, schema.ChangeType{Path: w.path, Type: w.typ, KeepNull: true})
		}
	}
	return n
}

// widen asks for a wider type of a column, if there is one that may hold the value that did not fit; digits are those
// before the point of a DECIMAL.
func (d *rowBuilder) widen(c *column, to schema.Type) bool {
	if d.cfg.Evolution != Evolve || c.key {
		return false
	}
	return d.want(wish{path: c.path, typ: to}) == nil
}

// newColumn asks for a column of a row, or a field of the ROW at a path: of the type that the record's schema says, else of
// what its value is.
func (d *jsonDecoder) newColumn(parent []string, fields []schema.Field, name string, value []byte, at int) int {
	if d.schema != nil && d.cfg.Evolution.Adds() && string(value) != "null" {
		if t, ok := d.schema.typeOf(parent, name); ok {
			return d.addTyped(parent, fields, name, t, at)
		}
	}
	return d.addField(parent, fields, name, value, at)
}

// typeOf gives the type that the schema says for a column, or a field of the ROW at a path.
func (s *connectSchema) typeOf(parent []string, name string) (t schema.Type, ok bool) {
	path := append(slices.Clone(parent), name)
	if t, ok = s.types[path[0]]; !ok {
		return t, false
	}
	for _, step := range path[1:] {
		switch t.Root {
		case schema.Row:
			i := slices.IndexFunc(t.Fields, func(f schema.Field) bool { return f.Name == step })
			if i < 0 {
				return t, false
			}
			t = t.Fields[i].Type
		case schema.Array:
			t = *t.Element
		case schema.Map:
			if t = *t.Element; step != "value" {
				return t, false
			}
		default:
			return t, false
		}
	}
	return t, true
}

// addField asks for a column or a field of a ROW that a JSON value stands for; at is where the value stands. It gives -1
// if the record is to be refused.
func (d *rowBuilder) addField(parent []string, fields []schema.Field, name string, value []byte, at int) int {
	t, known, err := Infer(value)
	switch {
	case err != nil:
		return d.refuseField(parent, name, "no column can be made of it: "+err.Error(), at)
	case !known:
		return 0 // nothing is lost
	case d.cfg.Evolution == Strict:
		return d.refuseField(parent, name, "there is no such column, and the pipeline does not add any", at)
	}
	return d.addTyped(parent, fields, name, t, at)
}

// maxFields bounds the columns of a table, and the fields of a ROW, that records add to: names that are values would add
// one with every record.
const maxFields = 2000

// addTyped is addField for a type that is known.
func (d *rowBuilder) addTyped(parent []string, fields []schema.Field, name string, t schema.Type, at int) int {
	if len(fields)+len(d.wishes) >= maxFields {
		return d.refuseField(parent, name, "there is no such column, and records do not add any where there are "+strconv.Itoa(maxFields), at)
	}
	if err := clash(fields, name); err != nil {
		return d.refuseField(parent, name, err.Error(), at)
	}
	if err := d.want(wish{path: append(slices.Clone(parent), name), typ: t, add: true}); err != nil {
		return d.refuseField(parent, name, err.Error(), at)
	}
	return 0
}

// adder gathers the columns that a writer's schema has and the table lacks.
type adder struct {
	d    *rowBuilder
	key  bool   // plans for keys add nothing
	adds []wish // columns and fields of ROWs that the table lacks
	bad  string // why a field cannot be one
}

// add asks for a column, or a field of the ROW at a path, for a field that is none, as the pipeline's policy has it. typeOf
// gives its type; not ok: there is nothing in it.
func (p *adder) add(parent []string, fields []schema.Field, name string, typeOf func() (typ schema.Type, ok bool, err error)) {
	policy := p.d.cfg.Evolution
	if policy == Freeze || p.key || p.bad != "" {
		return
	}
	if i, ok := p.d.cfg.Schema.Field(name); ok && parent == nil && p.d.cols[i].meta != metaNone {
		return
	}
	path := append(slices.Clone(parent), name)
	typ, ok, err := typeOf()
	switch {
	case err == nil && !ok:
		return // there is nothing in it
	case policy == Strict:
		err = errors.New("there is no such column, and the pipeline does not add any")
	case err == nil:
		err = clash(fields, name)
	}
	if err != nil {
		p.bad = fmt.Sprintf("field %q: %v", strings.Join(path, "."), err)
		return
	}
	p.adds = append(p.adds, wish{path: path, typ: typ, add: true})
}

// refuseField refuses the record because of a field that is no column.
func (d *rowBuilder) refuseField(parent []string, name, reason string, at int) int {
	d.bad = RowError{Offset: at, InKey: d.inKey, Code: NoSchema, Column: strings.Join(append(slices.Clone(parent), name), "."), Reason: reason}
	return -1
}

// Types that columns are widened to.
var (
	longType  = schema.Type{Root: schema.BigInt}
	bytesType = schema.Type{Root: schema.VarBinary, Length: schema.MaxLength}
)

// widenDecimal asks for more digits before the point, if that is all that a number lacks.
func (d *rowBuilder) widenDecimal(c *column, num number, text []byte) bool {
	if d.cfg.Evolution != Evolve {
		return false
	}
	v, reason := scanDecimal(num, text, 38, c.typ.Scale)
	if reason != "" {
		return false
	}
	digits := len(strings.TrimPrefix(v.BigInt().String(), "-"))
	return digits > c.typ.Precision && d.widen(c, schema.Type{Root: schema.Decimal, Precision: digits, Scale: c.typ.Scale})
}
