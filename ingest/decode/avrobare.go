package decode

import "strconv"

// AvroSizer tells where records of one schema end that follow each other without anything between them.
type AvroSizer struct {
	d    avroDecoder
	node avroNode
}

// NewAvroSizer makes a sizer for records of a schema.
func NewAvroSizer(w WriterSchema) (*AvroSizer, error) {
	t, err := parseAvro(w)
	if err != nil {
		return nil, err
	}
	p := avroPlanner{skips: map[*avroType]*avroNode{}}
	return &AvroSizer{node: p.skip(t)}, nil
}

// Size gives the length of the record that b begins with. An error, which matches ErrRow, says that there is none, and so
// that nothing behind it can be read either.
func (s *AvroSizer) Size(b []byte) (int, error) {
	s.d.depth, s.d.empty = 0, 0
	n := s.d.read(b, 0, &s.node)
	if n < 0 {
		return 0, s.d.refusal()
	}
	return n, nil
}

// barePlan gives the plan of records that do not name their schema.
func (d *avroDecoder) barePlan(r *Record) (*avroPlan, []byte, error) {
	switch {
	case r.Value == nil:
		d.refuse(NotRecord, -1, nil, "there is no record")
		return nil, nil, d.refusal()
	case len(r.Value)+r.Cut > d.cfg.MaxRecordBytes:
		d.tooLong(r)
		return nil, nil, d.refusal()
	}
	if d.last == nil {
		made := d.planner.planOf(*d.cfg.Writer, WriterSchema{}, false)
		d.last = &made
	}
	return d.checked(d.last, r.Value)
}

// checked gives a plan unless its records are refused or need another schema of the table.
func (d *avroDecoder) checked(p *avroPlan, b []byte) (*avroPlan, []byte, error) {
	if len(p.adds) > 0 {
		d.wishes = append(d.wishes[:0], p.adds...)
		return nil, nil, d.need()
	}
	if p.refused == "" {
		return p, b, nil
	}
	at, why := -1, p.refused
	if d.cfg.Writer == nil {
		at, why = 1, "schema id "+strconv.Itoa(p.id)+": "+why
	}
	d.refuse(NoSchema, at, nil, why)
	return nil, nil, d.refusal()
}
