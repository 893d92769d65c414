package datafile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sort"
	"sync"
)

// Piece is some rows of an Outline to be copied: its ends are ends of Units. First and Last are the keys of its first and
// last row, serialized (Edges; nil without primary key), Deletes the number of its deletes.
type Piece struct {
	RowRange
	First, Last []byte
	Deletes     int64
}

// Copy appends rows of another file without decoding them: its pages go into row groups of their own, each with the
// dictionaries of the row group it comes from. Pages of a column whose codec is another than this file's are compressed
// anew. Checksums of pages are verified. The Outline must be of a WriterConfig with the layout of this file, and its file must
// stay open until this returns.
//
// No other rows are put into such a row group: Paimon's reader (1.3.1), which takes 1,024 rows at a time, was seen to give wrong
// integers where pages with and without a dictionary met in between.
func (w *Writer) Copy(o *Outline, p Piece) error {
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return errClosed
	}
	if err := w.copy(o, p); err != nil {
		w.err = fmt.Errorf("data file writer: copy rows %d to %d of %s: %w", p.From, p.To, o.name, err)
	}
	return w.err
}

func (w *Writer) copy(o *Outline, p Piece) (err error) {
	defer recovered(&err, ErrCorrupt)
	if len(o.Units) == 0 || o.cfg.Schema != w.cfg.Schema || o.cfg.Keyed != w.cfg.Keyed || o.cfg.Thin != w.cfg.Thin {
		return errLayout
	}
	if err := w.start(); err != nil {
		return err
	}
	first := sort.Search(len(o.Units), func(i int) bool { return o.Units[i].From >= p.From })
	end := sort.Search(len(o.Units), func(i int) bool { return o.Units[i].To >= p.To }) + 1
	if p.From >= p.To || end > len(o.Units) || o.Units[first].From != p.From || o.Units[end-1].To != p.To {
		return corruptf("rows %d to %d are no pages", p.From, p.To)
	}
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	for units := o.Units[first:end]; len(units) > 0; {
		n := 1
		for n < len(units) && units[n].Group == units[0].Group {
			n++
		}
		c, err := w.newGroupCopy(o, &units[0])
		if err == nil {
			err = c.copy(units[:n])
		}
		if err != nil {
			return fmt.Errorf("row group %d: %w", units[0].Group, err)
		}
		lo, hi, units = min(lo, c.lo), max(hi, c.hi), units[n:]
	}
	if w.cfg.Keyed {
		w.noteSeq(lo, hi)
		if w.info.Rows == 0 {
			w.info.MinKey = p.First
		}
		w.last, w.maxKey = Rows{}, p.Last
	}
	w.info.Rows += p.To - p.From
	w.info.DeleteRows += p.Deletes
	return nil
}

// groupCopy copies rows of one row group.
type groupCopy struct {
	w      *Writer
	o      *Outline
	group  int
	first  int64 // its first row in the file
	cols   []copiedChunk
	lo, hi int64 // of the sequence numbers
}

// copiedChunk is a column chunk to copy from.
type copiedChunk struct {
	*chunk
	leaf   *leaf
	places []pagePlace
	stats  []pageStats // nil: not known
	byType bool        // its bounds are in the order of the type
	dict   bool        // it has a dictionary
}

// newGroupCopy reads where the pages of a unit's row group are.
func (w *Writer) newGroupCopy(o *Outline, u *Unit) (*groupCopy, error) {
	c := &groupCopy{w: w, o: o, group: u.Group, cols: make([]copiedChunk, len(w.cols)), lo: math.MaxInt64, hi: math.MinInt64}
	for g := range u.Group {
		c.first += o.foot.groups[g].rows
	}
	g := &o.foot.groups[u.Group]
	for i, e := range w.cols {
		k := copiedChunk{chunk: &g.chunks[i], leaf: &o.foot.leaves[i], byType: i < len(o.foot.ordered) && o.foot.ordered[i]}
		var err error
		if k.places, err = readPlaces(&o.foot.tail, o.f, k.chunk, g.rows); err == nil && k.places == nil {
			err = corruptf("the page index has changed")
		}
		if err == nil && k.byType {
			k.stats, err = readPageStats(&o.foot.tail, o.f, k.chunk, len(k.places))
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", e.name, err)
		}
		k.dict = k.places[0].at > k.offset
		c.cols[i] = k
	}
	return c, nil
}

// copy copies units, into one row group or several.
func (c *groupCopy) copy(units []Unit) error {
	w := c.w
	for len(units) > 0 {
		n := w.fitting(units)
		if w.open && (n == 0 || !c.continues(&units[0])) {
			if err := w.endGroup(); err != nil {
				return err
			}
			n = w.fitting(units)
		}
		if !w.open {
			w.open = true
			for _, e := range w.cols {
				e.begin(plainEncoding)
			}
		}
		from, to := units[0].From-c.first, units[n-1].To-c.first
		if err := w.each(int(to-from), func(i int) error { return c.column(i, from, to) }); err != nil {
			return err
		}
		w.rows += int(to - from)
		w.copied = copiedRows{dictID{c.o, c.group}, units[n-1].To}
		w.cutAt, w.cutOf = w.rows, w.buffered()
		if w.rows >= w.cfg.RowGroupRows || w.cutOf >= w.cfg.RowGroupBytes {
			if err := w.endGroup(); err != nil {
				return err
			}
		}
		units = units[n:]
	}
	return nil
}

// fitting is how many of some units have room in the open row group. One always has in a new one, and so has a whole row group of
// calve's, which may be a little larger than the limit.
func (w *Writer) fitting(units []Unit) (n int) {
	rows, room := int64(w.cfg.RowGroupRows-w.rows), w.cfg.RowGroupBytes-w.buffered()
	if !w.open {
		room += w.cfg.RowGroupBytes / 4
	}
	for size := int64(0); n < len(units) && (n == 0 && !w.open || units[n].To-units[0].From <= rows && size+units[n].Bytes <= room); n++ {
		size += units[n].Bytes
	}
	return n
}

// dictID names the dictionaries of a row group of a file.
type dictID struct {
	o     *Outline
	group int
}

// copiedRows says where the rows of a copied row group come from.
type copiedRows struct {
	of dictID
	to int64 // the row of the file behind them
}

// continues reports whether a unit follows in its row group those that the open one consists of.
func (c *groupCopy) continues(u *Unit) bool {
	return c.w.copied == copiedRows{dictID{c.o, c.group}, u.From}
}

// copyStepBytes is how much of a file is read at once.
const copyStepBytes = 1 << 20

// copyScratch is what the copying of a column needs for a while.
type copyScratch struct {
	in   chunkReader
	page page // to take pages apart
}

// copyScratches lends it.
var copyScratches = sync.Pool{New: func() any { return new(copyScratch) }}

// column copies the pages of some rows of the row group in one column.
func (c *groupCopy) column(i int, from, to int64) error {
	e := c.w.cols[i]
	k := &columnCopy{groupCopy: c, copiedChunk: &c.cols[i], e: e, copyScratch: copyScratches.Get().(*copyScratch)}
	defer func() {
		k.in.f = nil
		copyScratches.Put(k.copyScratch)
	}()
	err := k.copy(from, to)
	if err == nil && e.from == fromSeq {
		lo, hi := k.bounds.lo, k.bounds.hi
		if !k.bounds.known(orderInt) {
			lo, hi, err = c.o.sequences(c.first+from, c.first+to)
		}
		c.lo, c.hi = min(c.lo, lo), max(c.hi, hi)
	}
	if err != nil {
		return fmt.Errorf("column %q: %w", e.name, err)
	}
	return nil
}

// describe takes the statistics of a page over.
func (m *pageMeta) describe(e *columnEncoder, stats []pageStats, j int) {
	m.nulls, m.bounds = -1, bounds{any: true, lost: true}
	if e.maxDef == 0 {
		m.nulls = 0
	}
	if stats == nil {
		return
	}
	s := &stats[j]
	if e.maxDef > 0 {
		if s.nulls < 0 || s.nulls > int64(m.rows) {
			return // without the number of nulls the bounds would mislead readers
		}
		m.nulls = int(s.nulls)
	}
	if s.empty {
		m.nulls, m.bounds = m.rows, bounds{}
		return
	}
	m.bounds = boundsOf(e.typ, s.lo, s.hi)
	m.bounds.cut = e.order == orderText && (mayBeCut(s.lo) || mayBeCut(s.hi))
}

// mayBeCut reports whether a text of a page index may have been cut: calve cuts to indexBytes/4 characters, Java to
// indexBytes bytes.
func mayBeCut(b []byte) bool { return len(b) >= indexBytes/4 }

// columnCopy is the copying of a part of a column chunk.
type columnCopy struct {
	*groupCopy
	*copiedChunk
	*copyScratch
	e *columnEncoder

	slots  int64
	nulls  int64 // -1: not known
	bounds bounds
}

// copy appends pages to the column chunk being filled.
func (k *columnCopy) copy(from, to int64) error {
	e, rows := k.e, k.o.foot.groups[k.group].rows
	if !e.decided { // as the first page would
		if e.decided = true; k.codec == codecNone {
			e.codec = codecNone
		}
	}
	at := sort.Search(len(k.places), func(j int) bool { return k.places[j].row >= from })
	end := at + sort.Search(len(k.places)-at, func(j int) bool { return k.places[at+j].row >= to })
	if at == end || k.places[at].row != from || end < len(k.places) && k.places[end].row != to {
		return corruptf("rows %d to %d are no pages", from, to)
	}
	last := k.places[end-1]
	k.in = chunkReader{f: k.o.f, step: copyStepBytes, win: k.in.win}
	k.in.open(*k.chunk)
	k.in.stop = last.at + last.size
	for j, p := range k.places[at:end] {
		next := rows
		if at+j+1 < len(k.places) {
			next = k.places[at+j+1].row
		}
		k.in.seek(p.at)
		m := pageMeta{at: int64(len(e.data)), firstRow: e.meta.records + p.row - from}
		slots, err := k.copyPage(p.size, next-p.row)
		if err != nil {
			return fmt.Errorf("page %d: %w", at+j, err)
		}
		m.rows, m.size = slots, int32(int64(len(e.data))-m.at)
		m.describe(e, k.stats, at+j)
		k.count(&m)
		e.meta.pages = append(e.meta.pages, m)
	}
	e.meta.records += to - from
	return k.summarize(from, to, rows)
}

// copyPage copies the next page, which must have size bytes with its header and, where nothing repeats, that many rows. It
// gives the number of its slots.
func (k *columnCopy) copyPage(size, rows int64) (int, error) {
	if size > k.in.left() {
		return 0, corruptf("page of %d bytes exceeds its column chunk", size)
	}
	start, e := k.in.pos, k.e
	h, err := k.in.header()
	if err != nil {
		return 0, err
	}
	head := int(k.in.pos - start)
	if int64(head)+int64(h.packed) != size || h.typ != pageData && h.typ != pageDataV2 {
		return 0, corruptf("page of type %d and %d bytes, the page index says %d", h.typ, head+int(h.packed), size)
	}
	if h.encoding < 0 || h.encoding > encRLEDict || copyable>>h.encoding&1 == 0 {
		return 0, unsupportedf("encoding %d", h.encoding)
	}
	if k.leaf.maxRep == 0 && int64(h.values) != rows || int64(h.values) < rows || h.values > maxPageRows {
		return 0, corruptf("page of %d values, the page index says %d rows", h.values, rows)
	}
	if (h.encoding == encRLEDict || h.encoding == encPlainDict) && e.kept.page == nil {
		if err := k.keepDict(); err != nil {
			return 0, fmt.Errorf("dictionary: %w", err)
		}
	}
	e.encodings[h.encoding] = true
	if k.codec != e.codec {
		return int(h.values), k.repack(h)
	}
	e.full += int64(head) + int64(h.full)
	e.data = append(e.data, k.in.win[k.in.at-head:k.in.at]...)
	return int(h.values), k.pour(h)
}

// keptDict is the dictionary page of a copied chunk as it goes into the file.
type keptDict struct {
	page []byte // nil: none
	full int    // bytes with the header, uncompressed
}

// keepDict takes over the dictionary of the chunk that pages with indexes come from.
func (k *columnCopy) keepDict() error {
	if !k.dict {
		return corruptf("it is not there")
	}
	e, size := k.e, k.places[0].at-k.offset
	in := chunkReader{f: k.o.f, step: int(size)}
	in.open(*k.chunk)
	in.end, in.stop = k.places[0].at, k.places[0].at
	h, stored, err := in.page()
	if err != nil {
		return err
	}
	if in.left() != 0 || h.typ != pageDictionary || h.encoding != encPlain && h.encoding != encPlainDict {
		return corruptf("page of type %d, encoding %d and %d bytes where there are %d", h.typ, h.encoding, h.packed, size)
	}
	e.encodings[h.encoding] = true
	if k.codec == e.codec {
		e.kept = keptDict{page: in.win[:in.at], full: in.at - len(stored) + int(h.full)}
		return nil
	}
	body, err := new(page).inflate(k.codec, stored, int(h.full))
	if err != nil {
		return err
	}
	packed := body
	if e.codec != codecNone {
		if e.packed, err = e.pack.compress(e.packed, body); err != nil {
			return err
		}
		packed = e.packed
	}
	b := appendPageHeader(nil, len(body), len(packed), crc32.ChecksumIEEE(packed), -int(h.values), h.encoding)
	e.kept = keptDict{page: append(b, packed...), full: len(b) + len(body)}
	return nil
}

// pour copies the bytes of a page.
func (k *columnCopy) pour(h header) error {
	sum := uint32(0)
	k.e.data = grow(k.e.data, int(h.packed))
	for left := int(h.packed); left > 0; {
		b, err := k.in.peek(min(left, copyStepBytes))
		if err != nil {
			return err
		}
		if h.hasCRC {
			sum = crc32.Update(sum, crc32.IEEETable, b)
		}
		k.e.data = append(k.e.data, b...)
		k.in.skip(len(b))
		left -= len(b)
	}
	if h.hasCRC && sum != uint32(h.crc) {
		return corruptf("page checksum does not match")
	}
	return nil
}

// repack writes a page with the codec of this file. A V2 page becomes one of V1, whose levels are compressed with the values.
func (k *columnCopy) repack(h header) error {
	stored, err := k.in.body(h)
	if err != nil {
		return err
	}
	if h.typ == pageDataV2 {
		values, defs, reps, err := k.page.unpack(k.leaf, k.codec, h, stored)
		if err != nil {
			return err
		}
		k.e.body = append(k.e.putLevels(k.e.body[:0], k.leaf, defs, reps), values...)
		return k.e.store(k.e.body, int(h.values), h.encoding)
	}
	body, err := k.page.inflate(k.codec, stored, int(h.full))
	if err != nil {
		return err
	}
	if k.leaf.maxDef > 0 && h.levelEncoding != encRLE || k.leaf.maxRep > 0 && h.repeatEncoding != encRLE {
		return unsupportedf("level encodings %d and %d", h.levelEncoding, h.repeatEncoding)
	}
	return k.e.store(body, int(h.values), h.encoding)
}

// putLevels appends levels as a V1 page has them.
func (e *columnEncoder) putLevels(b []byte, l *leaf, defs, reps []byte) []byte {
	if l.maxRep > 0 {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(reps))), reps...)
	}
	if l.maxDef > 0 {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(defs))), defs...)
	}
	return b
}

// store compresses a data page and appends it to the column chunk.
func (e *columnEncoder) store(body []byte, slots int, encoding int32) error {
	if len(body) > math.MaxInt32 {
		return unsupportedf("page of %d bytes", len(body))
	}
	packed := body
	if e.codec != codecNone {
		var err error
		if e.packed, err = e.pack.compress(e.packed, body); err != nil {
			return err
		}
		packed = e.packed
	}
	at := len(e.data)
	e.data = appendPageHeader(e.data, len(body), len(packed), crc32.ChecksumIEEE(packed), slots, encoding)
	e.full += int64(len(e.data) - at + len(body))
	e.data = append(e.data, packed...)
	return nil
}

// count adds a page to what is known of all of them.
func (k *columnCopy) count(m *pageMeta) {
	k.bounds.merge(&m.bounds, k.e.order)
	k.slots += int64(m.rows)
	if k.nulls >= 0 && m.nulls >= 0 {
		k.nulls += int64(m.nulls)
	} else {
		k.nulls = -1
	}
}

// summarize adds the statistics of the pages to those of the column chunk being filled: if all of a chunk was copied, that
// chunk's, which may tell more.
func (k *columnCopy) summarize(from, to, rows int64) error {
	e, s := k.e, &k.chunk.stats
	if from == 0 && to == rows {
		if k.byType && s.lo != nil && s.hi != nil {
			if b := boundsOf(e.typ, s.lo, s.hi); !b.lost {
				k.bounds = b
			}
		}
		if s.nulls >= 0 && s.nulls <= k.slots {
			k.nulls = s.nulls
		}
	}
	if k.nulls == k.slots {
		k.bounds = bounds{}
	}
	if k.nulls < 0 && !e.nested() && e.from >= 0 {
		k.nulls = 0
		if err := k.o.read([]RowRange{{k.first + from, k.first + to}}, []int{e.from}, func(r Rows) error {
			k.nulls += int64(r.Cols[0].NullN())
			return nil
		}); err != nil {
			return err
		}
	}
	m := &e.meta
	m.bounds.merge(&k.bounds, e.order)
	if m.values += k.slots; k.nulls < 0 || m.nulls < 0 {
		m.nulls = -1
	} else {
		m.nulls += k.nulls
	}
	return nil
}
