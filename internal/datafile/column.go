package datafile

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// batchBytes is the size at which a batch of strings or binaries ends early, so that long values do not multiply with
// the rows of a batch. A single value may be larger.
const batchBytes = 64 << 20

// dictionary holds the values of a dictionary page in Arrow's form.
type dictionary struct {
	ready bool
	n     int
	fixed []byte
	off   []uint32 // text: n+1
	data  []byte   // with slack behind
}

// column reads one Parquet column, row group after row group, into Arrow arrays.
type column struct {
	name string
	at   int // among the leaves of the file
	leaf leaf
	dt   arrow.DataType
	text bool
	bool bool
	form fixedForm // neither text nor bool

	nested bool    // inside a group: the page keeps levels
	chunks []chunk // of the row groups
	slots  []int64 // that they have: rows, unless something repeats
	group  int     // the open row group
	left   int64
	opened bool
	in     chunkReader
	dict   dictionary
	page   page

	// For passing over rows.
	start  int64 // the first row of the open row group
	upTo   int64 // rows from there on are not wanted soon; 0: all are
	places []pagePlace
	placed bool // places were looked for
	tail   *tailWindow

	most int // bytes of texts at which a batch ends early
	out  builder
}

// builder is the batch being filled.
type builder struct {
	want, n int
	valid   []byte // nil until a null comes
	nulls   int
	fixed   []byte
	off     []int32
	data    []byte
	used    int  // bytes of data
	limit   int  // of used
	full    bool // data has reached its limit
}

func newColumn(name string, l leaf, t schema.Type) (*column, error) {
	dt, err := schema.ArrowType(t)
	if err != nil {
		return nil, err
	}
	c := &column{name: name, leaf: l, dt: dt}
	switch t.Root {
	case schema.Boolean:
		c.bool = true
		if l.phys != typeBoolean {
			err = unsupportedf("type %s is stored as Parquet type %d", t, l.phys)
		}
	case schema.Char, schema.VarChar, schema.Binary, schema.VarBinary:
		c.text = true
		if l.phys != typeByteArray {
			err = unsupportedf("type %s is stored as Parquet type %d", t, l.phys)
		}
	default:
		c.form, err = fixedFormOf(&l, t)
	}
	return c, err
}

// place names where the column stands, for errors.
func (c *column) place() string {
	return fmt.Sprintf("column %q, row group %d, before offset %d", c.name, c.group, c.in.pos)
}

// next reads n rows. Only text columns may give fewer, but at least one.
func (c *column) next(n int) (arrow.Array, error) {
	c.begin(n)
	for c.out.n < n && !c.out.full {
		if c.page.row == c.page.rows {
			if err := c.nextPage(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.place(), err)
			}
			continue
		}
		if err := c.take(min(n-c.out.n, c.page.rows-c.page.row)); err != nil {
			return nil, fmt.Errorf("%s: %w", c.place(), err)
		}
	}
	return c.end(), nil
}

// begin makes room for a batch of n rows.
func (c *column) begin(n int) {
	c.out = builder{want: n, limit: c.most}
	switch {
	case c.text:
		c.out.off = view[int32](dirtyBytes(4 * (n + 1)))
		c.out.off[0] = 0
	case c.bool:
		c.out.fixed = make([]byte, (n+7)/8)
	default:
		c.out.fixed = alignedBytes(n * c.form.width)
	}
}

// end makes the array.
func (c *column) end() arrow.Array {
	o := &c.out
	bufs := make([]*memory.Buffer, 2, 3)
	if o.valid != nil {
		bufs[0] = memory.NewBufferBytes(o.valid)
	}
	if c.text {
		bufs[1] = memory.NewBufferBytes(asBytes(o.off[:o.n+1]))
		bufs = append(bufs, memory.NewBufferBytes(o.data[:o.used]))
	} else {
		bufs[1] = memory.NewBufferBytes(o.fixed)
	}
	d := array.NewData(c.dt, o.n, bufs, nil, o.nulls, 0)
	c.out = builder{}
	return array.MakeFromData(d)
}

// nextPage loads the next data page, across row groups.
func (c *column) nextPage() error {
	for !c.opened || c.left == 0 {
		if err := c.openGroup(); err != nil {
			return err
		}
	}
	for {
		if c.in.left() == 0 {
			return corruptf("the column chunk ends %d values early", c.left)
		}
		h, b, err := c.in.page()
		if err != nil {
			return err
		}
		codec := c.chunks[c.group].codec
		switch h.typ {
		case pageDictionary:
			if err := c.loadDictionary(codec, h, b); err != nil {
				return fmt.Errorf("dictionary: %w", err)
			}
		case pageData, pageDataV2:
			if int64(h.values) > c.left {
				return corruptf("page of %d values where %d are left", h.values, c.left)
			}
			c.left -= int64(h.values)
			if err := c.page.load(&c.leaf, c.nested, codec, h, b, &c.dict); err != nil {
				return err
			}
			if h.values > 0 {
				return nil
			}
		case pageIndex:
		default:
			return corruptf("unknown page type %d", h.typ)
		}
	}
}

// loadDictionary decodes a dictionary page into Arrow's form once, so that looking values up converts nothing.
func (c *column) loadDictionary(codec int32, h header, stored []byte) error {
	if h.encoding != encPlain && h.encoding != encPlainDict {
		return unsupportedf("encoding %d", h.encoding)
	}
	body, err := c.page.inflate(codec, stored, int(h.full))
	if err != nil {
		return err
	}
	d := &c.dict
	d.n, d.ready = int(h.values), true
	switch {
	case c.bool:
		return corruptf("dictionary of booleans")
	case c.text:
		return d.loadText(body)
	}
	if len(body)/c.form.stored < d.n {
		return corruptf("%d values of %d bytes in %d", d.n, c.form.stored, len(body))
	}
	if cap(d.fixed) < d.n*c.form.width {
		d.fixed = alignedBytes(d.n * c.form.width)
	}
	d.fixed = d.fixed[:d.n*c.form.width]
	return c.form.convert(d.fixed, body[:d.n*c.form.stored])
}

func (d *dictionary) loadText(body []byte) error {
	if len(body)/4 < d.n {
		return corruptf("%d values in %d bytes", d.n, len(body))
	}
	d.off = append(resize(d.off, d.n+1)[:0], 0)
	if cap(d.data) < len(body)+slack {
		d.data = make([]byte, 0, len(body)+slack)
	}
	d.data = d.data[:0]
	for range d.n {
		v, rest, err := nextText(body)
		if err != nil {
			return err
		}
		d.data, body = append(d.data, v...), rest
		d.off = append(d.off, uint32(len(d.data)))
	}
	return nil
}

// nextText splits a length-prefixed value off.
func nextText(b []byte) (v, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, corruptf("page ends in a length")
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, corruptf("value of %d bytes exceeds its page", n)
	}
	return b[4 : 4+n], b[4+n:], nil
}

// take appends k rows of the page to the batch. Values come densely and are spread out where rows are null.
func (c *column) take(k int) error {
	p, o := &c.page, &c.out
	present := k
	if p.valid != nil {
		present = bitutil.CountSetBits(p.valid, p.row, k)
	}
	if c.text {
		// Text may stop early, but only between steps.
		var err error
		if k, present, err = c.takeText(k, present); err != nil {
			return err
		}
	} else if c.bool {
		if p.form != formBits {
			return corruptf("booleans in another form")
		}
		bitutil.CopyBitmap(p.bits, p.val, present, o.fixed, o.n)
	} else if err := c.takeFixed(present); err != nil {
		return err
	}
	if present < k {
		c.spread(k, present)
	} else if o.valid != nil {
		bitutil.SetBitsTo(o.valid, int64(o.n), int64(k), true)
	}
	o.n += k
	p.row += k
	p.val += present
	return nil
}

// takeFixed appends values without their nulls.
func (c *column) takeFixed(k int) error {
	p, w := &c.page, c.form.width
	dst := c.out.fixed[c.out.n*w : (c.out.n+k)*w]
	if p.form == formFixed {
		s := c.form.stored
		return c.form.convert(dst, p.plain[p.val*s:(p.val+k)*s])
	}
	if p.form != formDict {
		return corruptf("values in another form")
	}
	idx := p.idx[p.val : p.val+k]
	switch w {
	case 1:
		lookup(dst, c.dict.fixed, idx)
	case 2:
		lookup(view[uint16](dst), view[uint16](c.dict.fixed), idx)
	case 4:
		lookup(view[uint32](dst), view[uint32](c.dict.fixed), idx)
	case 8:
		lookup(view[uint64](dst), view[uint64](c.dict.fixed), idx)
	case 16:
		lookup(view[[2]uint64](dst), view[[2]uint64](c.dict.fixed), idx)
	}
	return nil
}

func lookup[T any](dst, dict []T, idx []int32) {
	for i, x := range idx {
		dst[i] = dict[x]
	}
}

// spread moves the last present values of the batch to where the bitmap has ones; the other rows become null. It goes
// backwards, as the values only move up.
func (c *column) spread(k, present int) {
	p, o := &c.page, &c.out
	if o.valid == nil {
		o.valid = make([]byte, (o.want+7)/8)
		bitutil.SetBitsTo(o.valid, 0, int64(o.n), true)
	}
	bitutil.CopyBitmap(p.valid, p.row, k, o.valid, o.n)
	o.nulls += k - present
	switch {
	case c.text:
		off := o.off[o.n:]
		for i, j := k, present; i > 0; i-- {
			off[i] = off[j]
			if bitutil.BitIsSet(p.valid, p.row+i-1) {
				j--
			}
		}
		return
	case c.bool:
		for i, j := k-1, present-1; i >= 0; i-- {
			if bitutil.BitIsSet(p.valid, p.row+i) {
				bitutil.SetBitTo(o.fixed, o.n+i, bitutil.BitIsSet(o.fixed, o.n+j))
				j--
			} else {
				bitutil.ClearBit(o.fixed, o.n+i)
			}
		}
		return
	}
	b := o.fixed[o.n*c.form.width : (o.n+k)*c.form.width]
	switch c.form.width {
	case 1:
		spreadValues(b, p.valid, p.row, present)
	case 2:
		spreadValues(view[uint16](b), p.valid, p.row, present)
	case 4:
		spreadValues(view[uint32](b), p.valid, p.row, present)
	case 8:
		spreadValues(view[uint64](b), p.valid, p.row, present)
	case 16:
		spreadValues(view[[2]uint64](b), p.valid, p.row, present)
	}
}

func spreadValues[T any](v []T, valid []byte, at, present int) {
	var zero T
	j := present - 1
	for i := len(v) - 1; i >= 0; i-- {
		if bit := at + i; valid[bit>>3]>>(bit&7)&1 == 1 {
			v[i] = v[j]
			j--
		} else {
			v[i] = zero
		}
	}
}
