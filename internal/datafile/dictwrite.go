package datafile

import (
	"hash/maphash"
	"math/bits"
)

const (
	// dictBytes is the size at which a dictionary is given up, as in Java's writer.
	dictBytes = 1 << 20
	// dictEntries keeps indexes and the table small when values are.
	dictEntries = 1 << 17
)

// dictWriter gives values numbers in the order they come. Its table is open addressing over numbers, with as many
// hash bits as fit beside them, so that most misses cost no look at a value.
type dictWriter struct {
	table []uint64 // low 32 bits: number + 1, high 32 bits: of the hash
	n     int

	data []byte  // the values in PLAIN encoding
	off  []int32 // text: where a value begins in data, behind its length
	nums []uint64

	// For the bounds of text in a page: the page in which a value was seen last.
	seen []int32
}

// reset empties the dictionary for another column chunk.
func (d *dictWriter) reset() {
	clear(d.table)
	d.n, d.data, d.off, d.nums, d.seen = 0, d.data[:0], d.off[:0], d.nums[:0], d.seen[:0]
}

// full reports whether the dictionary should take no more.
func (d *dictWriter) full() bool { return len(d.data) >= dictBytes || d.n >= dictEntries }

// text gives the number of a value.
func (d *dictWriter) text(v []byte) uint32 {
	h := maphash.Bytes(hashSeed, v)
	d.room()
	mask := uint64(len(d.table) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		e := d.table[i]
		if e == 0 {
			d.table[i] = h&^(1<<32-1) | uint64(d.n+1)
			d.data = append(d.data, byte(len(v)), byte(len(v)>>8), byte(len(v)>>16), byte(len(v)>>24))
			d.off = append(d.off, int32(len(d.data)))
			d.data = append(d.data, v...)
			d.seen = append(d.seen, -1)
			d.n++
			return uint32(d.n - 1)
		}
		if (e^h)>>32 == 0 {
			if k := uint32(e) - 1; string(d.value(int(k))) == string(v) {
				return k
			}
		}
	}
}

// value gives a text.
func (d *dictWriter) value(k int) []byte {
	end := len(d.data)
	if k+1 < d.n {
		end = int(d.off[k+1]) - 4
	}
	return d.data[d.off[k]:end]
}

// number gives the number of a value of 4 or 8 bytes.
func (d *dictWriter) number(v uint64, width int) uint32 {
	h := mix(v)
	d.room()
	mask := uint64(len(d.table) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		e := d.table[i]
		if e == 0 {
			d.table[i] = h&^(1<<32-1) | uint64(d.n+1)
			d.nums = append(d.nums, v)
			for b := range width {
				d.data = append(d.data, byte(v>>(8*b)))
			}
			d.n++
			return uint32(d.n - 1)
		}
		if (e^h)>>32 == 0 {
			if k := uint32(e) - 1; d.nums[k] == v {
				return k
			}
		}
	}
}

// room keeps the table at most half full.
func (d *dictWriter) room() {
	if 2*d.n < len(d.table) {
		return
	}
	old := d.table
	d.table = make([]uint64, max(1024, 2*len(old)))
	mask := uint64(len(d.table) - 1)
	for _, e := range old {
		if e == 0 {
			continue
		}
		var h uint64
		if k := int(uint32(e) - 1); len(d.off) > 0 {
			h = maphash.Bytes(hashSeed, d.value(k))
		} else {
			h = mix(d.nums[k])
		}
		i := h & mask
		for d.table[i] != 0 {
			i = (i + 1) & mask
		}
		d.table[i] = e
	}
}

// width is how many bits an index takes.
func (d *dictWriter) width() int { return bits.Len(uint(max(d.n, 1) - 1)) }
