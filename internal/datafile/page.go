package datafile

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/calve-io/calve/storage"
)

// Page types and encodings of parquet.thrift.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3

	encPlain     = 0
	encPlainDict = 2
	encRLE       = 3
	encDelta     = 5
	encRLEDict   = 8
)

// header is a page header.
type header struct {
	typ            int32
	full, packed   int32 // bytes uncompressed and compressed
	crc            int32
	hasCRC         bool
	values         int32
	encoding       int32
	levelEncoding  int32 // V1: of definition levels
	repeatEncoding int32 // V1: of repetition levels
	levels, repeat int32 // V2: bytes of the levels, which are not compressed
	compressed     bool  // V2
	nested         bool  // the header of the page's own type was there
}

// chunkReader reads the bytes of one column chunk in large steps.
type chunkReader struct {
	f    storage.File
	step int
	pos  int64 // file offset of win[at]
	end  int64
	stop int64 // what lies behind is not fetched before it is needed
	win  []byte
	at   int
}

// open starts a chunk. The window is kept.
func (c *chunkReader) open(k chunk) {
	c.pos, c.end, c.win, c.at = k.offset, k.offset+k.size, c.win[:0], 0
	c.stop = c.end
}

// seek goes to another place of the chunk, which lies ahead.
func (c *chunkReader) seek(pos int64) {
	if n := pos - c.pos; n <= int64(len(c.win)-c.at) {
		c.skip(int(n))
		return
	}
	c.pos, c.win, c.at = pos, c.win[:0], 0
}

// left is how many bytes of the chunk are not consumed.
func (c *chunkReader) left() int64 { return c.end - c.pos }

// peek gives the next n bytes (fewer at the end of the chunk) without consuming them. The window never grows beyond
// the chunk, which lies within the file.
func (c *chunkReader) peek(n int) ([]byte, error) {
	n = int(min(int64(n), c.left()))
	if have := len(c.win) - c.at; have < n {
		total := int(min(max(int64(n), min(int64(c.step), c.stop-c.pos)), c.left()))
		if cap(c.win) < total+slack {
			grown := make([]byte, total, total+slack)
			copy(grown, c.win[c.at:])
			c.win = grown
		} else {
			copy(c.win[:have], c.win[c.at:])
			c.win = c.win[:total]
		}
		c.at = 0
		if err := readAt(c.f, c.win[have:], c.pos+int64(have)); err != nil {
			c.win = c.win[:0]
			return nil, err
		}
	}
	return c.win[c.at : c.at+n], nil
}

func (c *chunkReader) skip(n int) {
	c.at += n
	c.pos += int64(n)
}

// page reads the next header and the page's bytes as stored: a view that is valid until the next call.
func (c *chunkReader) page() (header, []byte, error) {
	h, err := c.header()
	if err != nil {
		return h, nil, err
	}
	b, err := c.body(h)
	return h, b, err
}

// header reads the next header. Then comes body, or seek over its h.packed bytes.
func (c *chunkReader) header() (header, error) {
	var h header
	n, err := 0, error(nil)
	// A header is some 30 bytes, more with statistics: the peek grows until one fits.
	for size := 1 << 10; ; size *= 8 {
		b, perr := c.peek(size)
		if perr != nil {
			return h, perr
		}
		var short bool
		if h, n, short, err = parseHeader(b); !short || int64(len(b)) == c.left() {
			break
		}
	}
	if err != nil {
		return h, err
	}
	c.skip(n)
	if h.packed < 0 || int64(h.packed) > c.left() {
		return h, corruptf("page of %d bytes exceeds its column chunk", h.packed)
	}
	return h, nil
}

// body reads the page of a header.
func (c *chunkReader) body(h header) ([]byte, error) {
	b, err := c.peek(int(h.packed))
	if err != nil {
		return nil, err
	}
	c.skip(int(h.packed))
	if h.hasCRC && crc32.ChecksumIEEE(b) != uint32(h.crc) {
		return nil, corruptf("page checksum does not match")
	}
	return b, nil
}

func parseHeader(b []byte) (h header, n int, short bool, err error) {
	t := &thriftReader{b: b}
	h.compressed = true
	t.fields(func(id int16, typ byte) bool {
		switch id {
		case 1:
			h.typ = t.int32(typ)
		case 2:
			h.full = t.int32(typ)
		case 3:
			h.packed = t.int32(typ)
		case 4:
			h.crc, h.hasCRC = t.int32(typ), true
		case 5, 7, 8:
			t.structure(typ, func(sub int16, typ byte) bool { return h.part(t, id, sub, typ) })
		default:
			return false
		}
		return true
	})
	if t.err == nil && (h.values < 0 || h.full < 0 || h.levels < 0 || h.repeat < 0) {
		t.fail("negative size in a page header")
	}
	if t.err == nil && !h.nested && h.typ != pageIndex {
		t.fail("page header without its second part")
	}
	return h, t.pos, t.short, t.err
}

// part reads a field of DataPageHeader (5), DictionaryPageHeader (7) or DataPageHeaderV2 (8).
func (h *header) part(t *thriftReader, outer, id int16, typ byte) bool {
	h.nested = true
	switch {
	case id == 1:
		h.values = t.int32(typ)
	case id == 2 && outer != 8, id == 4 && outer == 8:
		h.encoding = t.int32(typ)
	case id == 3 && outer == 5:
		h.levelEncoding = t.int32(typ)
	case id == 4 && outer == 5:
		h.repeatEncoding = t.int32(typ)
	case id == 5 && outer == 8:
		h.levels = t.int32(typ)
	case id == 6 && outer == 8:
		h.repeat = t.int32(typ)
	case id == 7 && outer == 8:
		h.compressed = t.bool(typ)
	default:
		return false
	}
	return true
}

// maxPageRows bounds the rows of a page, whose number its bytes do not bound: a run-length costs the same for any.
const maxPageRows = 1 << 24

// page is a decoded data page: a validity bitmap and the values that are not null, in one of the forms. The rows of a
// column inside groups are the elements of the innermost repeated group around it; its slots have levels.
type page struct {
	rows, row int // rows of the page, and how many are taken
	valid     []byte
	present   int // values that are not null
	val       int // values taken

	defs, reps []uint8 // levels of the slots; reps is empty if nothing repeats
	slot       int     // slots taken

	form  form
	plain []byte  // fixed and text: values as stored, from val on for text
	idx   []int32 // dictionary indexes
	i32   []int32 // decoded scratch that plain may view
	i64   []int64
	bits  []byte // booleans

	buf      []byte // decompressed page
	validBuf []byte
	bitBuf   []byte
}

// form is how the values of a page are held.
type form uint8

const (
	formFixed form = iota // little-endian values of the physical width
	formText              // length-prefixed values
	formBits              // booleans
	formDict              // indexes
)

// load decompresses a data page and decodes what is not plain. The levels of a nested column are kept.
func (p *page) load(l *leaf, nested bool, codec int32, h header, stored []byte, dict *dictionary) error {
	if h.values > maxPageRows {
		return unsupportedf("page of %d rows", h.values)
	}
	body, defs, reps, err := p.unpack(l, codec, h, stored)
	if err != nil {
		return err
	}
	p.rows, p.row, p.val = int(h.values), 0, 0
	p.valid, p.present = nil, p.rows
	switch {
	case nested:
		err = p.loadLevels(l, defs, reps, int(h.values))
	case l.maxDef > 0:
		p.valid, p.present, err = decodeLevels(p.validBuf, defs, p.rows)
	}
	if err != nil {
		return err
	}
	if p.valid != nil {
		p.validBuf = p.valid
	}
	switch h.encoding {
	case encPlain:
		return p.loadPlain(l, body)
	case encPlainDict, encRLEDict:
		return p.loadIndexes(body, dict)
	case encDelta:
		return p.loadDelta(l, body)
	case encRLE:
		return p.loadBools(l, body)
	}
	return unsupportedf("encoding %d", h.encoding)
}

// inflate gives n bytes from stored ones, with slack behind. What is not compressed stays in the chunk reader's window,
// which does not move before the next page is asked for.
func (p *page) inflate(codec int32, stored []byte, n int) (body []byte, err error) {
	if codec == codecNone {
		if len(stored) != n {
			return nil, corruptf("page of %d bytes claims %d, uncompressed", len(stored), n)
		}
		return stored, nil
	}
	p.buf, err = decompress(codec, p.buf, stored, n)
	return p.buf, err
}

// unpack gives the values of a page and its levels, uncompressed.
func (p *page) unpack(l *leaf, codec int32, h header, stored []byte) (body, defs, reps []byte, err error) {
	if h.typ == pageDataV2 {
		n, rep := int(h.levels), int(h.repeat)
		if n > len(stored) || rep > len(stored)-n || n+rep > int(h.full) || rep > 0 && l.maxRep == 0 {
			return nil, nil, nil, corruptf("levels of %d and %d bytes in a page of %d", rep, n, len(stored))
		}
		reps, defs, stored = stored[:rep], stored[rep:rep+n], stored[rep+n:]
		if !h.compressed || len(stored) == 0 && int(h.full) == n+rep {
			codec = codecNone
		}
		body, err = p.inflate(codec, stored, int(h.full)-n-rep)
		return body, defs, reps, err
	}
	if body, err = p.inflate(codec, stored, int(h.full)); err != nil {
		return nil, nil, nil, err
	}
	if l.maxRep > 0 {
		if reps, body, err = splitLevels(body, h.repeatEncoding); err != nil {
			return nil, nil, nil, err
		}
	}
	if l.maxDef > 0 {
		if defs, body, err = splitLevels(body, h.levelEncoding); err != nil {
			return nil, nil, nil, err
		}
	}
	return body, defs, reps, nil
}

// splitLevels takes the levels, with their length in front, off a V1 page.
func splitLevels(body []byte, encoding int32) (levels, rest []byte, err error) {
	if encoding != encRLE {
		return nil, nil, unsupportedf("level encoding %d", encoding)
	}
	if len(body) < 4 {
		return nil, nil, corruptf("page of %d bytes has no levels", len(body))
	}
	n := binary.LittleEndian.Uint32(body)
	if uint64(n) > uint64(len(body)-4) {
		return nil, nil, corruptf("levels of %d bytes in a page of %d", n, len(body))
	}
	return body[4 : 4+n], body[4+n:], nil
}

func (p *page) loadPlain(l *leaf, body []byte) error {
	switch l.phys {
	case typeByteArray:
		if len(body)/4 < p.present {
			return corruptf("%d values in a page of %d bytes", p.present, len(body))
		}
		p.form, p.plain = formText, body
		return nil
	case typeBoolean:
		if len(body) < (p.present+7)/8 {
			return corruptf("%d booleans in a page of %d bytes", p.present, len(body))
		}
		p.form, p.bits = formBits, body
		return nil
	}
	w := l.width()
	if len(body)/w < p.present {
		return corruptf("%d values of %d bytes in a page of %d", p.present, w, len(body))
	}
	p.form, p.plain = formFixed, body[:p.present*w]
	return nil
}

func (p *page) loadIndexes(body []byte, dict *dictionary) error {
	if !dict.ready {
		return corruptf("page refers to a dictionary that is not there")
	}
	p.form = formDict
	p.idx = resize(p.idx, p.present)
	if p.present == 0 {
		return nil
	}
	if len(body) == 0 {
		return corruptf("page without indexes")
	}
	if err := decodeRuns(p.idx, body[1:], int(body[0])); err != nil {
		return err
	}
	top := uint32(0)
	for _, x := range p.idx {
		top = max(top, uint32(x))
	}
	if int64(top) >= int64(dict.n) {
		return corruptf("index %d into a dictionary of %d", top, dict.n)
	}
	return nil
}

func (p *page) loadDelta(l *leaf, body []byte) error {
	p.form = formFixed
	switch {
	case p.present == 0:
		p.plain = nil
		return nil
	case l.phys == typeInt32:
		p.i32 = resize(p.i32, p.present)
		p.plain = asBytes(p.i32)
		return decodeDelta(p.i32, body)
	case l.phys == typeInt64:
		p.i64 = resize(p.i64, p.present)
		p.plain = asBytes(p.i64)
		return decodeDelta(p.i64, body)
	}
	return corruptf("delta encoding of physical type %d", l.phys)
}

// loadBools reads booleans stored as runs, which V2 pages have.
func (p *page) loadBools(l *leaf, body []byte) error {
	if l.phys != typeBoolean {
		return unsupportedf("run-length encoding of physical type %d", l.phys)
	}
	if len(body) < 4 || uint64(binary.LittleEndian.Uint32(body)) > uint64(len(body)-4) {
		if p.present == 0 {
			p.form, p.bits = formBits, nil
			return nil
		}
		return corruptf("booleans exceed their page")
	}
	n := binary.LittleEndian.Uint32(body)
	bits, _, err := decodeLevels(p.bitBuf, body[4:4+n], p.present)
	if err != nil {
		return err
	}
	p.form = formBits
	if bits == nil { // all true
		bits = resize(p.bitBuf, (p.present+7)/8+8)
		for i := range bits {
			bits[i] = 0xff
		}
	}
	p.bitBuf, p.bits = bits, bits
	return nil
}

// width is the number of bytes of a fixed-width physical type.
func (l *leaf) width() int {
	switch l.phys {
	case typeInt32, typeFloat:
		return 4
	case typeInt64, typeDouble:
		return 8
	case typeInt96:
		return 12
	case typeFixedBytes:
		return max(int(l.length), 1)
	}
	return 1
}
