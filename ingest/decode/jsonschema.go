package decode

import "github.com/calve-io/calve/schema"

// framedJSON reads JSON behind 0 and the id of its schema, as the serializers of Confluent's registry for JSON Schema write
// it. What the JSON means it says itself. Where there is a registry, the schema tells beside that how times and decimals
// come, as in the messages of Kafka Connect, and of which type new columns are.
type framedJSON struct {
	*jsonDecoder
	rec     Record // the record without what is before its JSON
	known   map[int]*connectSchema
	last    int  // id of the schema that is applied
	applied bool // one is, or the records' id says nothing
}

// maxJSONSchemas bounds the schemas that are remembered.
const maxJSONSchemas = 1000

// Decode implements Decoder.
func (d *framedJSON) Decode(r *Record) error {
	d.rec = *r
	for _, part := range []struct {
		bytes *[]byte
		inKey bool
	}{{&d.rec.Value, false}, {&d.rec.Key, true}} {
		b := *part.bytes
		if b == nil || part.inKey && (r.Value != nil || len(b) == 0 || b[0] != 0) {
			continue // keys are often written by another serializer, and are read of tombstones only
		}
		id, reason := schemaID(b)
		if reason != "" {
			d.inKey = part.inKey
			d.refuse(Malformed, 0, nil, reason)
			return d.refusal()
		}
		if d.cfg.Schemas != nil && !part.inKey {
			if err := d.use(id); err != nil {
				return err
			}
		}
		*part.bytes = b[framing:]
	}
	err := d.jsonDecoder.Decode(&d.rec)
	if e, ok := err.(*RowError); ok && e.Offset >= 0 && (!e.InKey || len(d.rec.Key) < len(r.Key)) {
		e.Offset += framing
	}
	return err
}

// use has records read as the schema of an id says. One that the registry does not know, or that says nothing of columns,
// is as if there were none.
func (d *framedJSON) use(id int) error {
	if d.applied && d.last == id {
		return nil
	}
	s := d.known[id]
	if s == nil {
		w, refused, ok := d.cfg.Schemas.get(id)
		switch {
		case !ok:
			return &MissingSchema{id}
		case refused != "":
			d.unapply()
			d.applied = false // it may be known later
			return nil
		}
		s = d.said(w)
		if d.known == nil || len(d.known) >= maxJSONSchemas {
			d.known = map[int]*connectSchema{}
		}
		d.known[id] = s
	}
	d.last, d.applied = id, true
	d.apply(s)
	return nil
}

// said gives what a schema says of the columns.
func (d *framedJSON) said(w WriterSchema) *connectSchema {
	s := &connectSchema{cols: append([]manner(nil), d.manners...)}
	root, err := connectOf(w)
	if err != nil {
		return s
	}
	if d.cfg.Evolution.Adds() {
		s.types = map[string]schema.Type{}
		for i := range root.Fields {
			if t, ok := root.Fields[i].column(0); ok {
				s.types[root.Fields[i].Field] = t
			}
		}
	}
	d.tell(s, root.Fields)
	return s
}
