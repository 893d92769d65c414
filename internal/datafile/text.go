package datafile

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// takeText appends up to k rows with present values of a text column. It takes fewer when the batch has reached
// its limit: rows and values taken are returned.
func (c *column) takeText(k, present int) (rows, vals int, err error) {
	p := &c.page
	var n int
	switch p.form {
	case formText:
		n, err = c.plainText(present)
	case formDict:
		n, err = c.dictText(present)
	default:
		err = corruptf("text in another form")
	}
	if err != nil || n == present {
		return k, present, err
	}
	if p.valid == nil {
		return n, n, nil
	}
	return rowsOf(p.valid, p.row, k, n), n, nil
}

// rowsOf gives how many of k rows from a position on have the first n values; the nulls behind them are left.
func rowsOf(valid []byte, at, k, n int) int {
	for i := range k {
		if bitutil.BitIsSet(valid, at+i) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return k
}

// copyStep is how many bytes of a short value are copied whatever its length: a few moves instead of a call.
const copyStep = 32

// copyShort copies copyStep bytes. (Assigning arrays would be a call of memmove.)
func copyShort(dst, src []byte) {
	_, _ = dst[copyStep-1], src[copyStep-1]
	a, b := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
	c, d := binary.LittleEndian.Uint64(src[16:]), binary.LittleEndian.Uint64(src[24:])
	binary.LittleEndian.PutUint64(dst, a)
	binary.LittleEndian.PutUint64(dst[8:], b)
	binary.LittleEndian.PutUint64(dst[16:], c)
	binary.LittleEndian.PutUint64(dst[24:], d)
}

// plainText appends length-prefixed values.
func (c *column) plainText(k int) (int, error) {
	p, o := &c.page, &c.out
	src, at := p.plain, 0
	off := o.off[o.n:]
	off[0] = int32(o.used)
	off = off[1:]
	c.reserve(k, len(src)-4*(p.present-p.val), p.present-p.val)
	data, used := o.data, o.used
	for i := range k {
		if len(src)-at < 4 {
			return 0, corruptf("page ends in a length")
		}
		n := int(binary.LittleEndian.Uint32(src[at:]))
		at += 4
		if n > len(src)-at {
			return 0, corruptf("value of %d bytes exceeds its page", n)
		}
		if len(data)-used < n+copyStep {
			if used+n > o.limit && o.n+i > 0 {
				p.plain, o.used, o.full = src[at-4:], used, true
				return i, nil
			}
			data = o.grow(data, used, n)
		}
		if n <= copyStep && len(src)-at >= copyStep {
			copyShort(data[used:used+copyStep], src[at:at+copyStep])
		} else {
			copy(data[used:], src[at:at+n])
		}
		used += n
		at += n
		off[i] = int32(used)
	}
	p.plain, o.used = src[at:], used
	return k, nil
}

// dictText appends looked-up values.
func (c *column) dictText(k int) (int, error) {
	p, o, d := &c.page, &c.out, &c.dict
	off := o.off[o.n:]
	off[0] = int32(o.used)
	off = off[1:]
	c.reserve(k, len(d.data), d.n)
	data, used := o.data, o.used
	from := d.data[:cap(d.data)]
	for i, x := range p.idx[p.val : p.val+k] {
		lo, hi := d.off[x], d.off[x+1]
		n := int(hi - lo)
		if len(data)-used < n+copyStep {
			if used+n > o.limit && o.n+i > 0 {
				o.used, o.full = used, true
				return i, nil
			}
			data = o.grow(data, used, n)
		}
		if n <= copyStep {
			copyShort(data[used:used+copyStep], from[lo:lo+copyStep])
		} else {
			copy(data[used:], from[lo:hi])
		}
		used += n
		off[i] = int32(used)
	}
	o.used = used
	return k, nil
}

// reserve makes the first guess of a batch's text from the mean length of some values: of the page or the dictionary.
func (c *column) reserve(k, bytes, values int) {
	o := &c.out
	if o.data != nil || k == 0 || values <= 0 {
		return
	}
	mean := float64(bytes) / float64(values)
	o.data = dirtyBytes(min(int(mean*float64(o.want-o.n)*1.03), o.limit) + k/8 + 2*copyStep)
}

// grow moves the text to a buffer with room for n bytes more.
func (o *builder) grow(data []byte, used, n int) []byte {
	size := max(len(data)+len(data)/2, used+n+copyStep)
	if used+n <= o.limit {
		size = min(size, o.limit+2*copyStep)
	}
	grown := dirtyBytes(size)
	copy(grown, data[:used])
	o.data = grown
	return grown
}
