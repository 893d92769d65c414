package decode

import (
	"github.com/calve-io/calve/schema"
)

// Debezium's envelopes in Avro: a record with the fields before, after and op. What an event means is judged as for any
// other form (event.go); here is only how it is read. As in JSON the row after is read where it stands, and of the row
// before the place is noted.

// avroRole is what a field of an envelope is.
type avroRole uint8

const (
	roleOther avroRole = iota
	roleBefore
	roleAfter
	roleOp
)

// avroEnvelope is the plan of an envelope beside that of its rows, whose root has the fields of a row.
type avroEnvelope struct {
	roles []avroRole
	nodes []avroNode // that pass over the fields; of the operation: that reads it
	keys  avroNode   // reads of a row nothing but its key
}

const noEnvelope = "the writer's schema is no envelope: a record with before and after, which are records or null, and op"

// envelopePlan makes the plan of an envelope.
func (p *avroPlanner) envelopePlan(t, reader *avroType) avroPlan {
	row := t.rowOf()
	if row == nil {
		return avroPlan{refused: noEnvelope}
	}
	out := p.plan(row, reader.rowOf())
	if out.refused != "" {
		return out
	}
	env := &avroEnvelope{keys: avroNode{kind: avroRecord, null: -1}}
	for k, n := range out.root.kids {
		if n.to == nil || !n.to.key {
			n = p.skip(row.fields[k].typ)
		}
		env.keys.kids = append(env.keys.kids, n)
	}
	for i := range t.fields {
		f := &t.fields[i]
		n, role := p.skip(f.typ), roleOther
		switch f.name {
		case "before":
			role = roleBefore
		case "after":
			role = roleAfter
		case "op":
			role = roleOp
			p.setKind(&n)
		}
		env.roles, env.nodes = append(env.roles, role), append(env.nodes, n)
	}
	out.envelope = env
	return out
}

// rowOf gives the record that an envelope has before and after; nil: it is none.
func (t *avroType) rowOf() *avroType {
	if t == nil || t.kind != avroRecord {
		return nil
	}
	before, after, op := t.field("before"), t.field("after"), t.field("op")
	if before == nil || after == nil || op == nil || op.typ.single() == nil || op.typ.single().kind != avroString {
		return nil
	}
	row := after.typ.single()
	if row == nil || row.kind != avroRecord || before.typ.single() != row {
		return nil
	}
	return row
}

// event reads an envelope and makes its rows.
func (d *avroDecoder) event(r *Record, p *avroPlan, b []byte) int {
	env := p.envelope
	var before, after span
	i := 0
	for k := range env.nodes {
		n := &env.nodes[k]
		role, at := env.roles[k], i
		if role == roleAfter || role == roleBefore {
			if n.null >= 0 {
				if i >= len(b) {
					return d.short(b, n)
				}
				if b[i] == byte(n.null)<<1 {
					i++
					continue
				}
				at++
			}
			if role == roleAfter {
				if n.null >= 0 && b[i] != 2-byte(n.null)<<1 {
					return d.refuse(Malformed, i, nil, "the union has no such branch")
				}
				if i = d.row(b, at, p); i < 0 {
					return -1
				}
				after = span{at, i, true}
				continue
			}
		}
		if i = d.read(b, i, n); i < 0 {
			return -1
		}
		if role == roleBefore {
			before = span{at, i, true}
		}
	}
	if i < len(b) {
		return d.tooMany(i, b)
	}
	if !d.kind.set {
		return d.fail(-1, nil, "the envelope has no op")
	}
	return d.write(r, p, b, before, after)
}

// write makes the rows of an event that was read; that after it stands in the columns.
func (d *avroDecoder) write(r *Record, p *avroPlan, b []byte, before, after span) int {
	again := func(n *avroPlan) int {
		d.begin()
		return d.row(b, before.from, n)
	}
	do := d.judge(r, d.kind.event, before.seen, after.seen)
	switch do {
	case writeNothing:
		d.begin()
		return 0
	case writeFault:
		return -1
	case writeBefore:
		if again(p) < 0 {
			return -1
		}
		return d.complete(r, schema.Delete)
	}
	if d.complete(r, d.kind.kind) < 0 {
		return -1
	}
	d.replace = false
	if do == writeAfterMoved {
		first := d.at - 1
		d.begin()
		if d.row(b, before.from, &avroPlan{root: p.envelope.keys}) < 0 {
			return -1
		}
		same := true
		for _, k := range d.rowBuilder.keys {
			c := &d.cols[k]
			if c.seen != d.attempt || c.isNull(d.at) {
				return d.refuse(NoKey, before.from, c, "is missing or null in before, so the row that the update replaces is not known")
			}
			same = same && c.same(d.at, first)
		}
		d.begin()
		if same {
			return 0
		}
	}
	if do != writeAfterMoved && do != writeBoth {
		return 0
	}
	if again(p) < 0 {
		return -1
	}
	return d.complete(r, schema.Delete)
}
