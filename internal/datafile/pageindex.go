package datafile

import (
	"github.com/calve-io/calve/storage"
)

// Statistics are claims: they only ever let rows be left out. Where they are missing, malformed, or in an order that
// the file does not declare to be the one of the type (files of old writers), nothing is left out.

// maxIndexBytes bounds the page index of a column chunk that is looked at. Some 100 bytes a page are usual.
const maxIndexBytes = 16 << 20

// chunkStats is what a footer says of the values of a column chunk, and where its page index is.
type chunkStats struct {
	lo, hi             []byte // views of the footer; nil: not known
	nulls              int64  // -1: not known
	columnAt, offsetAt int64  // the page index; 0: none
	columnLen          int64
	offsetLen          int64
}

// bound takes a field of Statistics. The bounds 1 and 2 of old writers have no defined order and are not taken.
func (s *chunkStats) bound(t *thriftReader, id int16, typ byte) bool {
	switch id {
	case 3:
		s.nulls = t.int(typ)
	case 5:
		s.hi = t.bytes(typ)
	case 6:
		s.lo = t.bytes(typ)
	default:
		return false
	}
	return true
}

// place takes a field of ColumnChunk that says where the page index is.
func (s *chunkStats) place(t *thriftReader, id int16, typ byte) bool {
	switch id {
	case 4:
		s.offsetAt = t.int(typ)
	case 5:
		s.offsetLen = t.int(typ)
	case 6:
		s.columnAt = t.int(typ)
	case 7:
		s.columnLen = t.int(typ)
	default:
		return false
	}
	return true
}

// readOrder reads a ColumnOrder; true is the order that the type defines.
func readOrder(t *thriftReader) (byType bool) {
	t.fields(func(id int16, _ byte) bool {
		byType = byType || id == 1
		return false
	})
	return byType
}

// tailWindow is the end of a file that was read with its footer. The page index is mostly within it.
type tailWindow struct {
	b  []byte
	at int64
	// known, when not nil, keeps the places of pages, for a file that is read many times.
	known *placeCache
}

// read gives n bytes of the file at a place, or nil if that is not a place for an index.
func (w *tailWindow) read(f storage.File, at, n int64) ([]byte, error) {
	if at < 4 || n <= 0 || n > maxIndexBytes || at > f.Size()-n {
		return nil, nil
	}
	if at >= w.at { // what was read reaches to the end of the file
		return w.b[at-w.at : at-w.at+n], nil
	}
	b := make([]byte, n)
	return b, readAt(f, b, at)
}

// bloomNear is how far before the page index Bloom filters are read with it.
const bloomNear = 1 << 20

// fetchIndex reads the whole page index at once if it did not come with the footer.
func (f *footer) fetchIndex(file storage.File) error {
	tail := &f.tail
	first := file.Size()
	for _, g := range f.groups {
		for i := range g.chunks {
			for _, at := range []int64{g.chunks[i].stats.columnAt, g.chunks[i].stats.offsetAt} {
				if at >= 4 {
					first = min(first, at)
				}
			}
		}
	}
	// Bloom filters lie next to it, in files of Java's Parquet library behind it.
	for _, g := range f.groups {
		for i := range g.chunks {
			if at := g.chunks[i].bloom; at >= 4 && at < first && first-at <= bloomNear {
				first = at
			}
		}
	}
	f.ends = file.Size() - first
	from := min(tail.at, first)
	if from == tail.at || tail.at-from > maxIndexBytes {
		return nil
	}
	b := make([]byte, tail.at-from+int64(len(tail.b)))
	copy(b[tail.at-from:], tail.b)
	if err := readAt(file, b[:tail.at-from], from); err != nil {
		return err
	}
	tail.b, tail.at = b, from
	return nil
}

// pagePlace is an entry of an OffsetIndex.
type pagePlace struct {
	at, size int64
	row      int64 // of the row group
}

// readPlaces gives the data pages of a chunk, nil if the file does not say or what it says makes no sense.
func readPlaces(w *tailWindow, f storage.File, c *chunk, rows int64) ([]pagePlace, error) {
	if w.known != nil {
		return w.known.places(w, f, c, rows)
	}
	return parsePlaces(w, f, c, rows)
}

func parsePlaces(w *tailWindow, f storage.File, c *chunk, rows int64) ([]pagePlace, error) {
	b, err := w.read(f, c.stats.offsetAt, c.stats.offsetLen)
	if b == nil || err != nil {
		return nil, err
	}
	t := &thriftReader{b: b}
	var out []pagePlace
	t.fields(func(id int16, typ byte) bool {
		if id != 1 {
			return false
		}
		t.structs(typ, func() {
			var p pagePlace
			t.fields(func(id int16, typ byte) bool {
				switch id {
				case 1:
					p.at = t.int(typ)
				case 2:
					p.size = t.int(typ)
				case 3:
					p.row = t.int(typ)
				default:
					return false
				}
				return true
			})
			out = append(out, p)
		})
		return true
	})
	if t.err != nil || len(out) == 0 || out[0].row != 0 || out[0].at < c.offset {
		return nil, nil
	}
	end := c.offset + c.size
	for i, p := range out {
		next := pagePlace{at: end, row: rows}
		if i+1 < len(out) {
			next = out[i+1]
		}
		if p.size <= 0 || p.at > end-p.size || p.at+p.size > next.at || p.row >= next.row {
			return nil, nil
		}
	}
	return out, nil
}

// pageStats is an entry of a ColumnIndex.
type pageStats struct {
	lo, hi []byte
	empty  bool  // only nulls
	nulls  int64 // -1: not known
}

// readPageStats gives the statistics of n data pages, nil if the file has none or not of n pages.
func readPageStats(w *tailWindow, f storage.File, c *chunk, n int) ([]pageStats, error) {
	b, err := w.read(f, c.stats.columnAt, c.stats.columnLen)
	if b == nil || err != nil {
		return nil, err
	}
	t := &thriftReader{b: b}
	out := make([]pageStats, n)
	for i := range out {
		out[i].nulls = -1
	}
	have := 0 // lists that are there: all three are needed
	each := func(typ byte, f func(p *pageStats, elem byte)) {
		elem, count := t.list(typ)
		if count != n {
			t.fail("page index of another number of pages")
			return
		}
		for i := range out {
			f(&out[i], elem)
		}
	}
	t.fields(func(id int16, typ byte) bool {
		switch id {
		case 1:
			have++
			each(typ, func(p *pageStats, _ byte) { p.empty = t.byte() == thriftTrue })
		case 2:
			have++
			each(typ, func(p *pageStats, elem byte) { p.lo = t.bytes(elem) })
		case 3:
			have++
			each(typ, func(p *pageStats, elem byte) { p.hi = t.bytes(elem) })
		case 5:
			each(typ, func(p *pageStats, elem byte) { p.nulls = t.int(elem) })
		default:
			return false
		}
		return true
	})
	if t.err != nil || have != 3 {
		return nil, nil
	}
	return out, nil
}
