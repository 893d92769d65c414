package decode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// A connector that is killed begins again where it last stored its position, and sends the events since then once more:
// with the same positions, in the same order. Where rows have a key that does no harm; a table without one has them twice.
//
// Events are told apart by their position in the source's log: PostgreSQL's last commit and lsn ("source.sequence"), of
// which the lsn alone does not grow, or MySQL's binlog file and position. Several events of a transaction may have one
// position, so those of the highest are counted.

// logPosition is a position in the log of a source.
type logPosition [2]uint64

func (p logPosition) compare(q logPosition) int { return slices.Compare(p[:], q[:]) }

// seen is what is known of the events of a partition.
type seen struct {
	High logPosition `json:"high"` // the highest position
	N    int64       `json:"n"`    // events at it
	At   logPosition `json:"at"`   // position of the last event: below High, the stream is being repeated
	M    int64       `json:"m"`    // events at it since the stream came to it; counted at High only
}

// repeated notes an event and reports whether it came before.
func (s *seen) repeated(p logPosition) bool {
	switch c := p.compare(s.High); {
	case c > 0:
		*s = seen{High: p, N: 1, At: p, M: 1}
		return false
	case c < 0:
		s.At, s.M = p, 0
		return true
	}
	if s.At != p {
		s.At, s.M = p, 0
	}
	s.M++
	if s.M <= s.N {
		return true
	}
	s.N = s.M
	return false
}

// repeats are the positions of all partitions.
type repeats struct {
	parts map[int32]*seen // nil: repeats are not looked for
	noted bool            // the record being read has a position: in part, of which this was known before it
	part  int32
	had   bool
	was   seen
}

// bindRepeats takes up what Seen gave.
func (d *rowBuilder) bindRepeats() error {
	if !d.cfg.DropRepeats {
		return nil
	}
	if d.cfg.Format != Debezium {
		return fmt.Errorf("repeats can be told in records of format %q only: others do not have their position", Debezium)
	}
	d.repeats.parts = map[int32]*seen{}
	if d.cfg.Seen == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(d.cfg.Seen), &d.repeats.parts); err != nil {
		return fmt.Errorf("positions of events seen before: %w", err)
	}
	for p, s := range d.repeats.parts {
		if s == nil {
			return fmt.Errorf("positions of events seen before: there is none for partition %d", p)
		}
	}
	return nil
}

// Seen implements Decoder.
func (d *rowBuilder) Seen() string {
	if d.repeats.parts == nil {
		return ""
	}
	b, err := json.Marshal(d.repeats.parts)
	if err != nil { // cannot happen: keys and values are integers
		return ""
	}
	return string(b)
}

// repeated notes the position of the record being read, and reports whether it came before.
func (d *rowBuilder) repeated(partition int32, p logPosition) bool {
	r := &d.repeats
	s := r.parts[partition]
	if r.noted, r.part, r.had = true, partition, s != nil; s == nil {
		s = &seen{}
		r.parts[partition] = s
	}
	r.was = *s
	return s.repeated(p)
}

// unsee takes back what repeated noted: the record is to be read again.
func (d *rowBuilder) unsee() {
	r := &d.repeats
	if s := r.parts[r.part]; s != nil && r.noted {
		*s = r.was
		if !r.had {
			delete(r.parts, r.part)
		}
	}
}

// parseSequence reads PostgreSQL's ["last commit","lsn"]. Before the first commit that a connector sees there is none: then
// it is below everything that the transaction has, and the transaction's own positions are above those before it.
func parseSequence(s []byte) (p logPosition, ok bool) {
	var n [2]uint64
	k := 0
	for i := 0; i < len(s); {
		if s[i]-'0' > 9 {
			i++
			continue
		}
		e := digits(s, i)
		v, err := strconv.ParseUint(string(s[i:e]), 10, 64)
		if err != nil || k == 2 {
			return p, false
		}
		n[k] = v
		k++
		i = e
	}
	switch k {
	case 1:
		return logPosition{n[0], n[0]}, true
	case 2:
		return logPosition(n), true
	}
	return p, false
}

// binlogNumber reads the number of a binlog's file name, "binlog.000012".
func binlogNumber(s []byte) (uint64, bool) {
	i := len(s)
	for i > 0 && s[i-1]-'0' <= 9 {
		i--
	}
	v, err := strconv.ParseUint(string(s[i:]), 10, 64)
	return v, err == nil
}

// readSource reads what the source says of an event's position.
func (d *jsonDecoder) readSource(b []byte, i int) int {
	if i >= len(b) || b[i] != '{' {
		e, at := skipValue(b, i, &d.nest)
		if e < 0 {
			return d.fault(e, at, nil)
		}
		return e
	}
	return d.object(b, i+1, &d.source)
}

// readPosition reads a part of the position: sequence, file or pos.
func (d *jsonDecoder) readPosition(b []byte, i int, what int) int {
	e, at := skipValue(b, i, &d.nest)
	if e < 0 {
		return d.fault(e, at, nil)
	}
	env := &d.envelope
	switch text := b[i:e]; what {
	case memberSequence:
		if p, ok := parseSequence(text); ok {
			env.position, env.sequenced = p, true
		}
	case memberFile:
		if n, ok := binlogNumber(text[:max(0, len(text)-1)]); ok && text[0] == '"' {
			env.file, env.hasFile = n, true
		}
	case memberPos:
		if n, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			env.pos = n
		}
	}
	return e
}

// again reports whether the event that was read came before.
func (d *jsonDecoder) again(r *Record) bool {
	env := &d.envelope
	switch {
	case d.repeats.parts == nil:
		return false
	case env.sequenced:
		return d.repeated(r.Partition, env.position)
	case env.hasFile:
		return d.repeated(r.Partition, logPosition{env.file, env.pos})
	}
	return false
}
