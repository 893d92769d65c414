package decode

import (
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/calve-io/calve/schema"
)

// arrowDecoder reads rows of Arrow batches (Record.Rows) into the columns, by a plan made once for each schema. A batch's
// buffers are taken once; of what is in them offsets are checked where they are used, as batches may come from anywhere.
type arrowDecoder struct {
	filler
	op    string
	plan  arrowPlan
	from  *arrow.Schema     // of the plan
	bound arrow.RecordBatch // whose buffers the plan has
	wide  [32]byte          // scratch for decimals
	size  int               // of the row's texts and elements
	all   int64             // of those of all rows, also of those that were refused
}

func newArrowDecoder(rows rowBuilder) *arrowDecoder {
	d := &arrowDecoder{filler: filler{rowBuilder: rows}}
	d.op = d.opField()
	return d
}

// ErrSwell: the rows of Arrow batches come to more than Config.MaxSwell.
var ErrSwell = errors.New("the texts and elements of all rows come to more than the limit")

// Decode implements Decoder.
func (d *arrowDecoder) Decode(r *Record) error {
	d.inKey = false
	if r.Rows == nil || r.Row < 0 || int64(r.Row) >= r.Rows.NumRows() {
		d.refuse(NotRecord, -1, nil, "there is no row")
		return d.refusal()
	}
	if d.bound != r.Rows {
		if err := d.bind(r.Rows); err != nil {
			return err
		}
	}
	d.open()
	d.kind, d.made, d.size, d.replace, d.oldKeyText = opState{}, 0, 0, false, nil
	at := d.row(r)
	if d.all += int64(max(0, d.size-8*len(d.plan.kids))); d.cfg.MaxSwell > 0 && d.all > d.cfg.MaxSwell {
		return fmt.Errorf("%w of %d bytes", ErrSwell, d.cfg.MaxSwell)
	}
	return d.close(at < 0, d.size)
}

// bind takes the buffers of a batch.
func (d *arrowDecoder) bind(b arrow.RecordBatch) (err error) {
	d.bound = nil
	if s := b.Schema(); d.from == nil || d.from != s && !d.from.Equal(s) {
		d.plan, d.from = d.planOf(s), s
	}
	switch {
	case len(d.plan.adds) > 0:
		d.wishes = append(d.wishes[:0], d.plan.adds...)
		return d.need()
	case d.plan.refused != "":
		d.refuse(NoSchema, -1, nil, d.plan.refused)
		return d.refusal()
	}
	defer func() { // buffers that are shorter than their array says
		if p := recover(); p != nil {
			d.refuse(Malformed, -1, nil, fmt.Sprintf("the batch is broken: %v", p))
			err = d.refusal()
		}
	}()
	for k := range d.plan.kids {
		n := &d.plan.kids[k]
		if int64(b.Column(n.place).Len()) < b.NumRows() {
			d.refuse(Malformed, -1, n.to, "the batch is broken: fewer values than rows")
			return d.refusal()
		}
		if err := n.bind(b.Column(n.place)); err != nil {
			d.refuse(Malformed, -1, n.to, "the batch is broken: "+err.Error())
			return d.refusal()
		}
	}
	d.bound = b
	return nil
}

// row reads a row and completes it.
func (d *arrowDecoder) row(r *Record) int {
	for k := range d.plan.kids {
		n := &d.plan.kids[k]
		if n.to != nil {
			d.mark(n.to)
			d.size += 8
		}
		if d.value(r.Row, n) < 0 {
			return -1
		}
	}
	if d.size > d.cfg.MaxRecordBytes {
		return d.bigRow(nil)
	}
	kind := schema.Insert
	if d.kind.set {
		kind = d.kind.kind
	}
	return d.complete(r, kind)
}

// value reads value i of an array into the row d.at of its column; it gives -1 if the row is refused.
func (d *arrowDecoder) value(i int, n *arrowNode) int {
	if n.valid != nil && !bitutil.BitIsSet(n.valid, n.off+i) {
		return d.putNull(0, &n.cell)
	}
	switch n.kind {
	case arrowInt64:
		return d.putLong(n.i64[i], -1, 0, &n.cell)
	case arrowInt32:
		return d.putLong(int64(n.i32[i]), -1, 0, &n.cell)
	case arrowFloat64:
		return d.putFloat(n.f64[i], 64, -1, 0, &n.cell)
	case arrowText, arrowLargeText:
		s, ok := n.span(i)
		if !ok {
			return d.brokenBatch(n)
		}
		if d.size += len(s); d.size > d.cfg.MaxRecordBytes {
			return d.bigRow(n.to)
		}
		return d.putData(s, -1, 0, &n.cell)
	case arrowDecimal:
		w := n.width
		s := d.wide[:w]
		for k, b := range n.data[i*w : (i+1)*w] { // little endian
			s[w-1-k] = b
		}
		if n.put == putRefuse {
			return d.fail(-1, n.to, n.why)
		}
		return d.putUnscaledBytes(trimSign(s), n.scale, -1, 0, n.to)
	case arrowList, arrowLargeList, arrowFixedList:
		return d.list(i, n)
	case arrowStruct:
		return d.structure(i, n)
	}
	return d.single(i, n)
}

// single reads the types that are not as common.
func (d *arrowDecoder) single(i int, n *arrowNode) int {
	switch n.kind {
	case arrowNull:
		return d.putNull(0, &n.cell)
	case arrowBool:
		switch n.put {
		case putBool:
			n.to.setBool(d.at, bitutil.BitIsSet(n.data, n.off+i))
		case putRefuse:
			return d.fail(-1, n.to, n.why)
		}
		return 0
	case arrowInt8:
		return d.putLong(int64(int8(n.data[i])), -1, 0, &n.cell)
	case arrowUint8:
		return d.putLong(int64(n.data[i]), -1, 0, &n.cell)
	case arrowInt16:
		return d.putLong(int64(n.i16[i]), -1, 0, &n.cell)
	case arrowUint16:
		return d.putLong(int64(uint16(n.i16[i])), -1, 0, &n.cell)
	case arrowUint32:
		return d.putLong(int64(uint32(n.i32[i])), -1, 0, &n.cell)
	case arrowUint64:
		return d.putUnsigned(uint64(n.i64[i]), -1, 0, &n.cell)
	case arrowDays:
		v := n.i64[i] / dayMillis
		if n.i64[i]%dayMillis < 0 {
			v--
		}
		return d.putLong(v, -1, 0, &n.cell)
	case arrowFloat32:
		return d.putFloat(float64(n.f32[i]), 32, -1, 0, &n.cell)
	case arrowFloat16:
		return d.putFloat(half(uint16(n.i16[i])), 32, -1, 0, &n.cell)
	case arrowFixed:
		d.size += n.width
		return d.putData(n.data[i*n.width:(i+1)*n.width], -1, 0, &n.cell)
	case arrowDictionary:
		k := n.index(i)
		if k < 0 || k >= n.kids[0].count {
			return d.brokenBatch(n)
		}
		return d.value(k, &n.kids[0])
	}
	return d.fail(-1, n.to, n.why)
}

// list reads an array or a map.
func (d *arrowDecoder) list(i int, n *arrowNode) int {
	if n.put == putRefuse {
		return d.fail(-1, n.to, n.why)
	}
	from, to, ok := n.elements(i)
	if !ok {
		return d.brokenBatch(n)
	}
	row, at := d.at, int(n.to.off[d.at])
	for j := from; j < to; j++ {
		d.size++
		for k := range n.kids {
			x := &n.kids[k]
			if x.to == nil {
				continue
			}
			d.enter(x.to, at)
			if d.value(j, x) < 0 {
				return -1
			}
		}
		if d.bytes > d.most || d.size > d.cfg.MaxRecordBytes {
			return d.overfull(-1, n.to)
		}
		at++
	}
	d.at = row
	n.to.off[row+1] = int32(at)
	return 0
}

// structure reads a struct into a ROW.
func (d *arrowDecoder) structure(i int, n *arrowNode) int {
	if n.put == putRefuse {
		return d.fail(-1, n.to, n.why)
	}
	for k := range n.kids {
		x := &n.kids[k]
		d.enter(x.to, d.at)
		if d.value(i, x) < 0 {
			return -1
		}
	}
	for _, c := range n.rest {
		d.enter(c, d.at)
		if d.innerNull(c, 0) < 0 {
			return -1
		}
	}
	return 0
}

func (d *arrowDecoder) bigRow(c *column) int {
	return d.refuse(TooLarge, -1, c, fmt.Sprintf("the row has more than the record size limit of %d bytes", d.cfg.MaxRecordBytes))
}

func (d *arrowDecoder) brokenBatch(n *arrowNode) int {
	return d.refuse(Malformed, -1, n.to, "the batch is broken: offsets beyond the values")
}

// half gives the number that a float of 16 bits is.
func half(v uint16) float64 {
	sign, exp, frac := 1.0, int(v>>10&31), float64(v&1023)
	if v>>15 == 1 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}
