package datafile

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

const (
	// batchSlots is the number of slots at which a batch of a nested column ends early.
	batchSlots = 1 << 20
	// rowSlots and rowBytes bound what one row may have in one leaf beyond that: a few bytes of a file can claim any number
	// of missing values.
	rowSlots = 16 << 20
	rowBytes = 256 << 20
	// stepSlots are taken between two looks at the size of the batch.
	stepSlots = 4096
)

// leafColumn reads a leaf inside groups: levels and values of whole rows.
type leafColumn struct {
	*column
	groups []group
	begun  int64 // rows of the open row group that have begun

	defs, reps []uint8 // of the last read
	rows       int     // read and not yet given
	rest       levelBatch
	batch      levelBatch // what was cut off last
}

// levelBatch holds slots of whole rows and the elements among them.
type levelBatch struct {
	defs, reps []uint8 // reps is empty if nothing repeats
	values     arrow.Array
}

// read gathers n rows, or fewer if they are large, but at least one.
func (c *leafColumn) read(n int) error {
	c.begin(n)
	c.out.limit = c.most + rowBytes
	c.defs, c.reps, c.rows = c.defs[:0], c.reps[:0], 0
	p := &c.page
	for {
		if p.slot == len(p.defs) {
			// A row is over when the next one begins, or the row group ends.
			if c.opened && c.left == 0 && c.group < len(c.groups) {
				if want := c.groups[c.group].rows; c.begun != want {
					return corruptf("row group of %d rows has %d in this column", want, c.begun)
				}
				if c.rows == n {
					break
				}
				c.begun = 0
			}
			if err := c.nextPage(); err != nil {
				return err
			}
			if c.begun == 0 && len(p.reps) > 0 && p.reps[0] != 0 {
				return corruptf("row group begins inside of a row")
			}
			continue
		}
		k, rows := c.step(n - c.rows)
		if k == 0 {
			break
		}
		c.begun += int64(rows)
		c.rows += rows
		if err := c.takeSlots(k); err != nil {
			return err
		}
		if len(c.defs) >= batchSlots || c.out.used >= c.most {
			n = c.rows // to the end of this row
		}
		if len(c.defs) > batchSlots+rowSlots {
			return unsupportedf("a row with more than %d values", rowSlots)
		}
	}
	c.rest = levelBatch{defs: c.defs, reps: c.reps, values: c.end()}
	return nil
}

// step says how many of the page's next slots belong to the rows wanted, and how many rows begin there.
func (c *leafColumn) step(want int) (slots, rows int) {
	p := &c.page
	most := min(len(p.defs)-p.slot, stepSlots)
	if len(p.reps) == 0 {
		most = min(most, want)
		return most, most
	}
	for i, rep := range p.reps[p.slot : p.slot+most] {
		if rep == 0 {
			if rows == want {
				return i, rows
			}
			rows++
		}
	}
	return most, rows
}

// takeSlots adds slots of the page to the batch.
func (c *leafColumn) takeSlots(k int) error {
	p := &c.page
	defs := p.defs[p.slot : p.slot+k]
	c.defs = append(c.defs, defs...)
	if len(p.reps) > 0 {
		c.reps = append(c.reps, p.reps[p.slot:p.slot+k]...)
	}
	p.slot += k
	elements := countFrom(defs, c.leaf.elemDef)
	if elements == 0 {
		return nil
	}
	c.room(elements)
	before := c.out.n
	if err := c.take(elements); err != nil {
		return err
	}
	if c.out.n != before+elements {
		return unsupportedf("a row with more than %d bytes in one column", rowBytes)
	}
	return nil
}

// countFrom counts the levels from least on.
func countFrom(levels []uint8, least uint8) int {
	if least == 0 {
		return len(levels)
	}
	n := 0
	for _, l := range levels {
		if l >= least {
			n++
		}
	}
	return n
}

// room lets the batch take k more elements.
func (c *column) room(k int) {
	o := &c.out
	if o.n+k <= o.want {
		return
	}
	want := max(2*o.want, o.n+k)
	switch {
	case c.text:
		off := view[int32](dirtyBytes(4 * (want + 1)))
		copy(off, o.off[:o.n+1])
		o.off = off
	case c.bool:
		o.fixed = append(make([]byte, 0, (want+7)/8), o.fixed...)[:(want+7)/8]
	default:
		fixed := alignedBytes(want * c.form.width)
		copy(fixed, o.fixed[:o.n*c.form.width])
		o.fixed = fixed
	}
	if o.valid != nil {
		o.valid = append(make([]byte, 0, (want+7)/8), o.valid...)[:(want+7)/8]
	}
	o.want = want
}

// cut moves the first n rows of what was read to the batch.
func (c *leafColumn) cut(n int) {
	if n == c.rows {
		c.batch, c.rest, c.rows = c.rest, levelBatch{}, 0
		return
	}
	b := c.rest
	slots := n
	if len(b.reps) > 0 {
		rows := 0
		for slots = 0; slots < len(b.reps); slots++ {
			if b.reps[slots] == 0 {
				if rows == n {
					break
				}
				rows++
			}
		}
	}
	at := countFrom(b.defs[:slots], c.leaf.elemDef)
	c.batch = levelBatch{defs: b.defs[:slots], values: array.NewSlice(b.values, 0, int64(at))}
	c.rest = levelBatch{defs: b.defs[slots:], values: array.NewSlice(b.values, int64(at), int64(b.values.Len()))}
	if len(b.reps) > 0 {
		c.batch.reps, c.rest.reps = b.reps[:slots], b.reps[slots:]
	}
	c.rows -= n
}

// loadLevels decodes the levels of n slots and derives which elements are there.
func (p *page) loadLevels(l *leaf, defs, reps []byte, n int) error {
	p.defs, p.slot = resize(p.defs, n), 0
	if err := decodeSmall(p.defs, defs, l.maxDef); err != nil {
		return err
	}
	p.reps = p.reps[:0]
	if l.maxRep > 0 {
		p.reps = resize(p.reps, n)
		if err := decodeSmall(p.reps, reps, l.maxRep); err != nil {
			return err
		}
	}
	p.rows = countFrom(p.defs, l.elemDef)
	p.present = countFrom(p.defs, l.maxDef)
	if p.present == p.rows {
		return nil
	}
	bits := resize(p.validBuf, (p.rows+7)/8+8)
	clear(bits)
	at := 0
	for _, d := range p.defs {
		if d == l.maxDef {
			bitutil.SetBit(bits, at)
		}
		if d >= l.elemDef {
			at++
		}
	}
	p.valid = bits
	return nil
}
