package lsm

import (
	"bytes"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// texts collects what listagg makes of each group (`FieldListaggAgg` of Paimon 1.4). Null and the empty text add nothing.
type texts struct {
	delimiter []byte
	split     []byte // what separates texts for distinct
	distinct  bool
	acc, tmp  []byte
	has       bool
}

// listagg joins texts; with fields.COLUMN.distinct a part that is there already is left out.
func (m *merging) listagg(c colRule, a arrow.Array) (arrow.Array, error) {
	off, data := strings32(a)
	valid, ops := validOf(a), m.opsOf(c)
	t := &texts{delimiter: []byte(c.agg.Delimiter), distinct: c.agg.Distinct}
	if t.split = t.delimiter; len(t.split) == 0 {
		t.split = []byte(" ")
	}
	ends, out, has := make([]int32, 1, len(m.ends)+1), []byte{}, make([]bool, len(m.ends))
	i := 0
	for g, end := range m.ends {
		t.acc, t.has = t.acc[:0], false
		for ; i < int(end); i++ {
			text := data[off[i]:off[i+1]]
			op := ops[i]
			if op == opReset || op&opInit != 0 {
				t.acc, t.has, op = append(t.acc[:0], text...), valid.has(i), op&^opInit
			}
			switch op {
			case opTake:
				if valid.has(i) {
					t.add(text)
				}
			case opLate:
				if valid.has(i) {
					t.addBefore(text)
				}
			case opDrop, opLateDrop:
				if !c.agg.IgnoreRetract {
					return nil, noRetract(c)
				}
			}
		}
		if has[g] = t.has; t.has {
			out = append(out, t.acc...)
		}
		if len(out) > math.MaxInt32 {
			return nil, fmt.Errorf("column %q: %w: listagg of %d keys", c.name, ErrTooLarge, g+1)
		}
		ends = append(ends, int32(len(out)))
	}
	return columnOf(a.DataType(), has, bytesOf(ends), memory.NewBufferBytes(out)), nil
}

// add joins a text to what is there.
func (t *texts) add(text []byte) {
	switch {
	case !t.has || len(t.acc) == 0 && len(text) > 0:
		t.acc, t.has = append(t.acc[:0], text...), true
	case len(text) == 0:
	case !t.distinct:
		t.acc = append(append(t.acc, t.delimiter...), text...)
	default:
		t.addParts(text)
	}
}

// addBefore joins what is there to a text.
func (t *texts) addBefore(text []byte) {
	if t.has && (len(text) == 0 && len(t.acc) > 0) {
		return
	}
	t.tmp = append(t.tmp[:0], t.acc...)
	rest := t.has
	t.acc, t.has = append(t.acc[:0], text...), true
	if rest && len(t.tmp) > 0 {
		t.add(t.tmp)
	}
}

// addParts adds the parts of a text that are not there yet.
func (t *texts) addParts(text []byte) {
	for len(text) > 0 {
		part := text
		if at := bytes.Index(text, t.split); at >= 0 {
			part, text = text[:at], text[at+len(t.split):]
		} else {
			text = nil
		}
		if len(part) > 0 && !t.holds(part) {
			t.acc = append(append(t.acc, t.delimiter...), part...)
		}
	}
}

func (t *texts) holds(part []byte) bool {
	for rest := t.acc; ; {
		at := bytes.Index(rest, t.split)
		if at < 0 {
			return bytes.Equal(rest, part)
		}
		if bytes.Equal(rest[:at], part) {
			return true
		}
		rest = rest[at+len(t.split):]
	}
}
