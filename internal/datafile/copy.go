package datafile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
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
// anew. Checksums of pages are verified. The Outline must be of a WriterConfig with the layout of this file.
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
	if w.open {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	start, lo, hi := int64(0), int64(math.MaxInt64), int64(math.MinInt64)
	for g := range o.foot.groups {
		end := start + o.foot.groups[g].rows
		from, to := max(p.From, start), min(p.To, end)
		if from < to {
			c := &groupCopy{w: w, o: o, group: g, from: from - start, to: to - start, first: start}
			if err := c.copy(); err != nil {
				return fmt.Errorf("row group %d: %w", g, err)
			}
			lo, hi = min(lo, c.lo), max(hi, c.hi)
		}
		start = end
	}
	if p.From < 0 || p.From >= p.To || p.To > start {
		return corruptf("the file has %d rows", start)
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
	w        *Writer
	o        *Outline
	group    int
	from, to int64 // rows of the group
	first    int64 // its first row in the file
	lo, hi   int64 // of the sequence numbers

	in   chunkReader
	page page // to compress pages anew
}

func (c *groupCopy) copy() error {
	w := c.w
	g := groupMeta{rows: c.to - c.from, chunks: make([]chunkMeta, len(w.cols))}
	c.in = chunkReader{f: c.o.f, step: copyStepBytes}
	for i, e := range w.cols {
		m, err := c.column(i, e)
		if err != nil {
			return fmt.Errorf("column %q: %w", e.name, err)
		}
		g.chunks[i] = *m
		e.mergeFile(&m.bounds)
		e.fileNulls += max(m.nulls, 0)
		if e.from == fromSeq {
			if c.lo, c.hi = m.bounds.lo, m.bounds.hi; !m.bounds.known(orderInt) {
				if c.lo, c.hi, err = c.o.sequences(c.first+c.from, c.first+c.to); err != nil {
					return err
				}
			}
		}
	}
	w.groups = append(w.groups, g)
	return nil
}

// copyStepBytes is how much of a file is read at once.
const copyStepBytes = 1 << 20

// column copies the dictionary and the pages of one column.
func (c *groupCopy) column(i int, e *columnEncoder) (*chunkMeta, error) {
	src, rows := &c.o.foot.groups[c.group].chunks[i], c.o.foot.groups[c.group].rows
	places, err := readPlaces(&c.o.foot.tail, c.o.f, src, rows)
	if err != nil {
		return nil, err
	}
	if places == nil {
		return nil, corruptf("the page index has changed")
	}
	stats, err := readPageStats(&c.o.foot.tail, c.o.f, src, len(places))
	if err != nil {
		return nil, err
	}
	if i >= len(c.o.foot.ordered) || !c.o.foot.ordered[i] {
		stats = nil
	}
	if !e.decided { // as the first page would
		if e.decided = true; src.codec == codecNone {
			e.codec = codecNone
		}
	}
	k := &columnCopy{groupCopy: c, e: e, src: src, meta: &chunkMeta{fileColumn: e.fileColumn, codec: e.codec}, leaf: &c.o.foot.leaves[i]}
	c.in.open(*src)
	at := c.w.out.n
	if places[0].at > src.offset {
		k.meta.dictAt = at
		if err := k.copyPage(places[0].at-src.offset, true, 0); err != nil {
			return nil, fmt.Errorf("dictionary: %w", err)
		}
	}
	k.meta.dataAt = c.w.out.n
	for j, p := range places {
		end := rows
		if j+1 < len(places) {
			end = places[j+1].row
		}
		if p.row < c.from || p.row >= c.to {
			continue
		}
		if end > c.to {
			return nil, corruptf("rows %d to %d are no pages", c.from, c.to)
		}
		c.in.seek(p.at)
		m := pageMeta{at: c.w.out.n, firstRow: p.row - c.from}
		if m.rows, err = k.values(p.size, end-p.row); err != nil {
			return nil, fmt.Errorf("page %d: %w", j, err)
		}
		m.size = int32(c.w.out.n - m.at)
		m.describe(e, stats, j)
		k.meta.pages = append(k.meta.pages, m)
	}
	k.meta.packed = c.w.out.n - at
	k.meta.records = c.to - c.from
	return k.meta, k.summarize(c.from == 0 && c.to == rows, i)
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

// columnCopy is the copying of a column chunk, or a part of one.
type columnCopy struct {
	*groupCopy
	e    *columnEncoder
	src  *chunk
	leaf *leaf
	meta *chunkMeta
	used uint32 // encodings
}

// values copies a data page and gives the number of its slots.
func (k *columnCopy) values(size, rows int64) (int, error) {
	before := k.meta.values
	if err := k.copyPage(size, false, rows); err != nil {
		return 0, err
	}
	return int(k.meta.values - before), nil
}

// copyPage copies the next page, which must have size bytes with its header; a data page of a column in which nothing
// repeats must have that many rows.
func (k *columnCopy) copyPage(size int64, dict bool, rows int64) error {
	if size > k.in.left() {
		return corruptf("page of %d bytes exceeds its column chunk", size)
	}
	start := k.in
	h, err := k.in.header()
	if err != nil {
		return err
	}
	head := int(k.in.pos - start.pos)
	isDict := h.typ == pageDictionary
	if int64(head)+int64(h.packed) != size || isDict != dict || !dict && h.typ != pageData && h.typ != pageDataV2 {
		return corruptf("page of type %d and %d bytes, the page index says %d", h.typ, head+int(h.packed), size)
	}
	if h.encoding < 0 || h.encoding > encRLEDict || copyable>>h.encoding&1 == 0 {
		return unsupportedf("encoding %d", h.encoding)
	}
	if !dict {
		if k.leaf.maxRep == 0 && int64(h.values) != rows || int64(h.values) < rows || h.values > maxPageRows {
			return corruptf("page of %d values, the page index says %d rows", h.values, rows)
		}
		k.meta.values += int64(h.values)
	}
	k.used |= 1 << h.encoding
	if k.src.codec != k.meta.codec {
		return k.repack(h)
	}
	k.meta.full += int64(head) + int64(h.full)
	if _, err := k.w.out.Write(k.in.win[k.in.at-head : k.in.at]); err != nil {
		return err
	}
	return k.pour(h)
}

// pour copies the bytes of a page.
func (k *columnCopy) pour(h header) error {
	sum := uint32(0)
	for left := int(h.packed); left > 0; {
		b, err := k.in.peek(min(left, copyStepBytes))
		if err != nil {
			return err
		}
		if h.hasCRC {
			sum = crc32.Update(sum, crc32.IEEETable, b)
		}
		if _, err := k.w.out.Write(b); err != nil {
			return err
		}
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
	var body []byte
	if h.typ == pageDataV2 {
		values, defs, reps, err := k.page.unpack(k.leaf, k.src.codec, h, stored)
		if err != nil {
			return err
		}
		if k.leaf.maxRep > 0 {
			body = append(binary.LittleEndian.AppendUint32(body, uint32(len(reps))), reps...)
		}
		if k.leaf.maxDef > 0 {
			body = append(binary.LittleEndian.AppendUint32(body, uint32(len(defs))), defs...)
		}
		body = append(body, values...)
	} else {
		if body, err = k.page.inflate(k.src.codec, stored, int(h.full)); err != nil {
			return err
		}
		if h.typ == pageData && (k.leaf.maxDef > 0 && h.levelEncoding != encRLE || k.leaf.maxRep > 0 && h.repeatEncoding != encRLE) {
			return unsupportedf("level encodings %d and %d", h.levelEncoding, h.repeatEncoding)
		}
	}
	if len(body) > math.MaxInt32 {
		return unsupportedf("page of %d bytes", len(body))
	}
	e, packed := k.e, body
	if k.meta.codec != codecNone {
		if e.packed, err = e.pack.compress(e.packed, body); err != nil {
			return err
		}
		packed = e.packed
	}
	slots := int(h.values)
	if h.typ == pageDictionary {
		slots = -slots
	}
	e.body = appendPageHeader(e.body[:0], len(body), len(packed), crc32.ChecksumIEEE(packed), slots, h.encoding)
	k.meta.full += int64(len(e.body) + len(body))
	if _, err := k.w.out.Write(e.body); err != nil {
		return err
	}
	_, err = k.w.out.Write(packed)
	return err
}

// summarize makes the statistics of the column chunk: those of the chunk they come from if all of it was copied, else of
// the pages.
func (k *columnCopy) summarize(whole bool, leaf int) error {
	m, s := k.meta, &k.src.stats
	for i := range m.pages {
		p := &m.pages[i]
		m.bounds.merge(&p.bounds, k.e.order)
		if m.nulls >= 0 && p.nulls >= 0 {
			m.nulls += int64(p.nulls)
		} else {
			m.nulls = -1
		}
	}
	if whole {
		if leaf < len(k.o.foot.ordered) && k.o.foot.ordered[leaf] && s.lo != nil && s.hi != nil {
			if b := boundsOf(k.e.typ, s.lo, s.hi); !b.lost {
				m.bounds = b
			}
		}
		if s.nulls >= 0 && s.nulls <= m.values {
			m.nulls = s.nulls
		}
	}
	if m.nulls == m.values {
		m.bounds = bounds{}
	}
	if m.nulls < 0 && !k.e.nested() && k.e.from >= 0 {
		n := int64(0)
		if err := k.o.read([]RowRange{{k.first + k.from, k.first + k.to}}, []int{k.e.from}, func(r Rows) error {
			n += int64(r.Cols[0].NullN())
			return nil
		}); err != nil {
			return err
		}
		m.nulls = n
	}
	if k.e.maxDef > 0 {
		k.used |= 1 << encRLE
	}
	for i := range int32(encRLEDict + 1) {
		if k.used>>i&1 == 1 {
			m.encodings = append(m.encodings, i)
		}
	}
	return nil
}
