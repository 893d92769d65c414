package decode

// framedJSON reads JSON behind 0 and the id of its schema, as the serializers of Confluent's registry for JSON Schema write
// it. What the JSON means it says itself, so the schema is not asked for.
type framedJSON struct {
	*jsonDecoder
	rec Record // the record without what is before its JSON
}

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
		if _, reason := schemaID(b); reason != "" {
			d.inKey = part.inKey
			d.refuse(Malformed, 0, nil, reason)
			return d.refusal()
		}
		*part.bytes = b[framing:]
	}
	err := d.jsonDecoder.Decode(&d.rec)
	if e, ok := err.(*RowError); ok && e.Offset >= 0 && (!e.InKey || len(d.rec.Key) < len(r.Key)) {
		e.Offset += framing
	}
	return err
}
