package datafile

import (
	"encoding/binary"
	"fmt"
	"io"
	"sort"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// enter prepares all columns for a range: nothing behind it is fetched ahead.
func (r *Reader) enter(x rowRange) {
	for i := range r.cols {
		if c := r.cols[i].col; c != nil {
			c.enter(x)
		}
	}
	for _, c := range []*column{r.seq, r.kind} {
		if c != nil {
			c.enter(x)
		}
	}
}

func (c *column) enter(x rowRange) {
	c.upTo = x.to
	c.limit()
}

// advance moves from the end of a range to the start of the next.
func (r *Reader) advance() error {
	if len(r.ranges) == 0 || r.row < r.ranges[0].from {
		return r.passTo()
	}
	if r.row < r.ranges[0].to {
		return nil
	}
	r.ranges = r.ranges[1:]
	if len(r.ranges) == 0 {
		return corruptf("rows are left behind the last range: %w", io.ErrUnexpectedEOF)
	}
	r.enter(r.ranges[0])
	return r.passTo()
}

// passTo passes over the rows before the current range.
func (r *Reader) passTo() error {
	if len(r.ranges) == 0 {
		return nil
	}
	n := r.ranges[0].from - r.row
	r.row = r.ranges[0].from
	return r.skip(0, n)
}

// drop passes over n rows of a batch of which only the first early columns were read.
func (r *Reader) drop(early, n int) error {
	for i := range r.cols {
		c := &r.cols[i]
		if i < early || c.in == nil {
			continue
		}
		k := int64(n)
		if h := c.held; h != nil {
			if c.held = nil; int64(h.Len()) > k {
				c.held = array.NewSlice(h, k, int64(h.Len()))
			}
			k = max(0, k-int64(h.Len()))
		}
		if err := c.in.skip(k); err != nil {
			return fmt.Errorf("column %q: %w", c.name, err)
		}
	}
	return r.skip(len(r.cols), int64(n))
}

// skip passes over n rows of the columns from one on, and of sequence number and kind.
func (r *Reader) skip(from int, n int64) error {
	for i := from; i < len(r.cols); i++ {
		if c := &r.cols[i]; c.in != nil {
			if err := c.in.skip(n); err != nil {
				return fmt.Errorf("column %q: %w", c.name, err)
			}
		}
	}
	for _, c := range []*column{r.seq, r.kind} {
		if c != nil {
			if err := c.skip(n); err != nil {
				return fmt.Errorf("column %q: %w", c.name, err)
			}
		}
	}
	return nil
}

// skip passes over n rows. Pages that are passed over are not decoded, nor fetched where the file says where they are.
func (c *column) skip(n int64) error {
	for n > 0 {
		if have := int64(c.page.rows - c.page.row); have > 0 {
			k := min(n, have)
			if err := c.page.skip(int(k)); err != nil {
				return err
			}
			n -= k
			continue
		}
		for !c.opened || c.left == 0 {
			if err := c.openGroup(); err != nil {
				return err
			}
		}
		if c.left <= n { // the rest of the row group
			n, c.left = n-c.left, 0
			continue
		}
		passed, err := c.passPages(n)
		if err != nil {
			return fmt.Errorf("%s: %w", c.place(), err)
		}
		if n -= passed; passed == 0 { // the next page has rows that are wanted
			if err := c.nextPage(); err != nil {
				return fmt.Errorf("%s: %w", c.place(), err)
			}
		}
	}
	return nil
}

// openGroup goes to the next row group.
func (c *column) openGroup() error {
	if c.opened {
		c.group++
	}
	if c.group >= len(c.chunks) {
		return corruptf("the column ends before the file's last row: %w", io.ErrUnexpectedEOF)
	}
	if c.group > 0 {
		c.start += c.slots[c.group-1]
	}
	c.opened, c.left = true, c.slots[c.group]
	c.in.open(c.chunks[c.group])
	c.dict.ready, c.places, c.placed = false, nil, false
	c.limit()
	return nil
}

// find reads the places of the open row group's pages, once.
func (c *column) find() {
	if c.placed {
		return
	}
	c.placed = true
	// An index that cannot be read is no index: the pages themselves are read.
	c.places, _ = readPlaces(c.tail, c.in.f, &c.chunks[c.group], c.slots[c.group])
}

// limit says how far the open row group may be fetched ahead.
func (c *column) limit() {
	c.in.stop = c.in.end
	if !c.opened || c.upTo == 0 || c.upTo >= c.start+c.slots[c.group] {
		return
	}
	c.find()
	i := sort.Search(len(c.places), func(i int) bool { return c.places[i].row >= c.upTo-c.start })
	if i > 0 {
		c.in.stop = c.places[i-1].at + c.places[i-1].size
	}
}

// passPages passes over whole pages that end within the next n rows of the row group, of which it has more: by the
// file's index if there is one, else by one page's header. It gives the number of rows; a dictionary is loaded on the
// way.
func (c *column) passPages(n int64) (int64, error) {
	c.find()
	if c.places != nil {
		row := c.slots[c.group] - c.left
		i := sort.Search(len(c.places), func(i int) bool { return c.places[i].row > row+n }) - 1
		if i < 0 || c.places[i].row <= row || c.places[i].at < c.in.pos {
			return 0, nil
		}
		if c.in.pos < c.places[0].at {
			if err := c.passDictionary(); err != nil {
				return 0, err
			}
		}
		passed := c.places[i].row - row
		c.in.seek(c.places[i].at)
		c.left -= passed
		return passed, nil
	}
	if c.in.left() == 0 {
		return 0, corruptf("the column chunk ends %d rows early", c.left)
	}
	from := c.in
	h, err := c.in.header()
	if err != nil {
		return 0, err
	}
	switch h.typ {
	case pageData, pageDataV2:
		if rows := int64(h.values); rows <= n {
			c.in.seek(c.in.pos + int64(h.packed))
			c.left -= rows
			return rows, nil
		}
	}
	// Not to be passed over: back to before the header, which is still in the window.
	c.in.at -= int(c.in.pos - from.pos)
	c.in.pos = from.pos
	return 0, nil
}

// passDictionary loads the dictionary that a row group begins with.
func (c *column) passDictionary() error {
	stop := c.in.stop
	c.in.stop = min(stop, c.places[0].at) // what lies between it and the page that is wanted is passed over
	h, b, err := c.in.page()
	c.in.stop = stop
	if err != nil {
		return err
	}
	if h.typ != pageDictionary {
		return corruptf("the first page is of type %d, not a dictionary", h.typ)
	}
	return c.loadDictionary(c.chunks[c.group].codec, h, b)
}

// skip passes over k rows of the page, which has as many.
func (p *page) skip(k int) error {
	present := k
	if p.valid != nil {
		present = bitutil.CountSetBits(p.valid, p.row, k)
	}
	if p.form == formText {
		for range present {
			if len(p.plain) < 4 {
				return corruptf("page ends in a length")
			}
			n := binary.LittleEndian.Uint32(p.plain)
			if uint64(n) > uint64(len(p.plain)-4) {
				return corruptf("value of %d bytes exceeds its page", n)
			}
			p.plain = p.plain[4+n:]
		}
	}
	p.row += k
	p.val += present
	return nil
}
