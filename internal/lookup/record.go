package lookup

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/schema"
)

// recordLayout says how a row lies in a record:
//
//	[CRC-32C 4] [length 4] [sequence number 8] [number in the data file 4] [kind 1, 3 of padding] [bytes of the key 4]
//	[a bit for each column: it is null] [values of fixed width, as in Arrow; booleans are a byte] [ends of the others, 4 each]
//	[normalized key] [values of the others]
//
// Columns of nested types are not in it.
type recordLayout struct {
	cols  []recordCol
	at    []int // of a schema column: its place in cols, -1
	nulls int   // bytes of the bitmap
	fixed int   // bytes of all values of fixed width
	vars  int
	least int // bytes of a record without key and others
}

// recordCol is one column of a record.
type recordCol struct {
	col   int // in the schema
	dt    arrow.DataType
	width int // of a fixed value; 0: it is one of the others
	off   int // of the value in the record, or of its end
	bool  bool
}

const recordHead = 28

func newRecordLayout(s *schema.Schema) (*recordLayout, error) {
	l := &recordLayout{at: make([]int, len(s.Fields))}
	for i, f := range s.Fields {
		if l.at[i] = -1; !f.Type.Primitive() {
			continue
		}
		dt, err := schema.ArrowType(f.Type)
		if err != nil {
			return nil, err
		}
		c := recordCol{col: i, dt: dt}
		switch t := dt.(type) {
		case *arrow.BooleanType:
			c.bool, c.width = true, 1
		case arrow.BinaryDataType:
			l.vars++
		case arrow.FixedWidthDataType:
			c.width = t.BitWidth() / 8
		default:
			continue
		}
		l.at[i] = len(l.cols)
		l.cols = append(l.cols, c)
	}
	l.nulls = (len(l.cols) + 7) / 8
	fixed, ends := recordHead+l.nulls, 0
	for i := range l.cols {
		if c := &l.cols[i]; c.width > 0 {
			c.off = fixed + l.fixed
			l.fixed += c.width
		}
	}
	for i := range l.cols {
		if c := &l.cols[i]; c.width == 0 {
			c.off = fixed + l.fixed + 4*ends
			ends++
		}
	}
	l.least = fixed + l.fixed + 4*l.vars
	return l, nil
}

// stored are the columns of the schema that records have.
func (l *recordLayout) stored() []int {
	out := make([]int, len(l.cols))
	for i, c := range l.cols {
		out[i] = c.col
	}
	return out
}

// fits checks the lengths in a record.
func (l *recordLayout) fits(r []byte) bool {
	rest := uint64(len(r) - l.least)
	key := uint64(binary.LittleEndian.Uint32(r[24:]))
	last, ends := uint64(0), l.least-4*l.vars
	for i := range l.vars {
		end := uint64(binary.LittleEndian.Uint32(r[ends+4*i:]))
		if end < last {
			return false
		}
		last = end
	}
	return key <= rest && last == rest-key && schema.RowKind(r[20]) <= schema.Delete
}

func (l *recordLayout) key(r []byte) []byte {
	return r[l.least:][:binary.LittleEndian.Uint32(r[24:])]
}

// recordMeta is what a record says besides its columns.
type recordMeta struct {
	seq, ord int64
	kind     int8
}

func readRecordHead(r []byte) recordMeta {
	return recordMeta{seq: int64(binary.LittleEndian.Uint64(r[8:])), ord: int64(binary.LittleEndian.Uint32(r[16:])), kind: int8(r[20])}
}

// rawCol is a column of a batch with its buffers at hand.
type rawCol struct {
	a     arrow.Array
	off   int
	fixed []byte
	ends  []int32
	data  []byte
}

func rawCols(l *recordLayout, rows datafile.Rows) []rawCol {
	out := make([]rawCol, len(l.cols))
	for i, c := range l.cols {
		d := rows.Cols[i].Data()
		r := rawCol{a: rows.Cols[i], off: d.Offset()}
		bufs := d.Buffers()
		if bufs[1] != nil {
			r.fixed = bufs[1].Bytes()
		}
		if c.width == 0 {
			r.ends = arrow.Int32Traits.CastFromBytes(r.fixed)
			if bufs[2] != nil {
				r.data = bufs[2].Bytes()
			}
		}
		out[i] = r
	}
	return out
}

// append makes the record of row i of a batch; dst is empty.
func (l *recordLayout) append(dst []byte, cols []rawCol, rows datafile.Rows, i int, code []byte) []byte {
	dst = grow(dst, l.least)
	clear(dst)
	binary.LittleEndian.PutUint64(dst[8:], uint64(rows.Seq[i]))
	binary.LittleEndian.PutUint32(dst[16:], uint32(rows.First+int64(i)))
	dst[20] = byte(rows.Kinds[i])
	binary.LittleEndian.PutUint32(dst[24:], uint32(len(code)))
	dst = append(dst, code...)
	begin := len(dst)
	for j := range l.cols {
		c, r := &l.cols[j], &cols[j]
		null := r.a.IsNull(i)
		if null {
			dst[recordHead+j/8] |= 1 << (j % 8)
		}
		switch {
		case c.width == 0:
			if !null {
				dst = append(dst, r.data[r.ends[r.off+i]:r.ends[r.off+i+1]]...)
			}
			binary.LittleEndian.PutUint32(dst[c.off:], uint32(len(dst)-begin))
		case null:
		case c.bool:
			if bitutil.BitIsSet(r.fixed, r.off+i) {
				dst[c.off] = 1
			}
		default:
			copy(dst[c.off:c.off+c.width], r.fixed[(r.off+i)*c.width:])
		}
	}
	return dst
}

// column makes the array of a column of records, which lie in data one after the other.
func (l *recordLayout) column(data []byte, ends []int, at int) arrow.Array {
	c, n := &l.cols[at], len(ends)
	valid := make([]byte, (n+7)/8)
	bufs := make([]*memory.Buffer, 2, 3)
	nulls, from := 0, 0
	mask, place := byte(1)<<(at%8), recordHead+at/8
	for i, end := range ends {
		if data[from+place]&mask != 0 {
			nulls++
		} else {
			valid[i/8] |= 1 << (i % 8)
		}
		from = end
	}
	if nulls > 0 {
		bufs[0] = memory.NewBufferBytes(valid)
	}
	switch {
	case c.width == 0:
		off, text := l.texts(data, ends, c)
		bufs[1] = memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(off))
		bufs = append(bufs, memory.NewBufferBytes(text))
	case c.bool:
		bits := make([]byte, (n+7)/8)
		from = 0
		for i, end := range ends {
			bits[i/8] |= data[from+c.off] & 1 << (i % 8)
			from = end
		}
		bufs[1] = memory.NewBufferBytes(bits)
	default:
		w := c.width
		fixed := make([]byte, max(n*w, 8))[:n*w]
		from = 0
		for i, end := range ends {
			copy(fixed[i*w:(i+1)*w], data[from+c.off:])
			from = end
		}
		bufs[1] = memory.NewBufferBytes(fixed)
	}
	d := array.NewData(c.dt, n, bufs, nil, nulls, 0)
	defer d.Release()
	return array.MakeFromData(d)
}

func (l *recordLayout) texts(data []byte, ends []int, c *recordCol) ([]int32, []byte) {
	off := make([]int32, len(ends)+1)
	var text []byte
	from := 0
	for i, end := range ends {
		r := data[from:end]
		var a uint32
		if c.off > l.least-4*l.vars { // not the first of the others: it begins where the one before it ends
			a = binary.LittleEndian.Uint32(r[c.off-4:])
		}
		b := binary.LittleEndian.Uint32(r[c.off:])
		begin := l.least + int(binary.LittleEndian.Uint32(r[24:]))
		text = append(text, r[begin+int(a):begin+int(b)]...)
		off[i+1] = int32(len(text))
		from = end
	}
	return off, text
}

// layout is that of the table's records, and a text that tells it from others. Both are made once.
func (t *Table) layout() (*recordLayout, string, error) {
	t.once.Do(func() {
		if t.lay, t.layErr = newRecordLayout(t.Schema); t.layErr != nil {
			return
		}
		var b []byte
		for _, f := range t.Schema.Fields {
			b = fmt.Appendf(b, "\n%d %s", f.ID, f.Type)
		}
		t.cols = string(fmt.Appendf(b, "\n%v", t.Schema.KeyColumns()))
	})
	return t.lay, t.cols, t.layErr
}
