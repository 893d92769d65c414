package datafile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/schema"
)

// A page ends at the first of these. 256 KiB stay in the second-level cache from encoding to compression and back,
// which is 5 % faster than Paimon's 1 MiB.
//
// Files of many columns have smaller pages, since a writer and each reader hold a page of every column: allPageBytes
// together, but at least leastPageBytes each.
const (
	pageBytes      = 256 << 10
	pageRows       = 32 << 10
	allPageBytes   = 5 << 20
	leastPageBytes = 16 << 10
)

// worthwhile is the part of a page's size that compression must save, else the column is left as it is: packed integers
// and random doubles do not shrink, but they take as much time as what does. It is decided once for the file, since
// there are readers (parquet-go) which take the codec of a column from the first row group.
const worthwhile = 1.0 / 24

// columnEncoder writes one column: values are gathered into a page, pages into a column chunk. It belongs to one
// goroutine at a time; buffers live as long as the file.
type columnEncoder struct {
	fileColumn
	want  arrow.DataType
	phys  parquetType
	width int
	order order
	pack  compressor
	most  int  // bytes of a page
	whole bool // bounds of the file are kept as they are

	enc encoding
	// The page being filled. Rows of a leaf inside a nested type are its slots, and records the rows of the table.
	rows, nulls int
	records     int
	defs, reps  []uint8
	shred       shredder
	valid       []byte // bitmap, if there are nulls
	vals        []byte // plain
	bits        int    // booleans in vals
	i32         []int32
	i64         []int64
	idx         []uint32
	dict        dictWriter
	page        bounds

	// The column chunk being filled.
	usedDict  bool
	encodings [encRLEDict + 1]bool
	data      []byte // data pages
	full      int64
	meta      chunkMeta
	kept      keptDict // the dictionary of copied pages

	// The file.
	codec     int32
	decided   bool // codec is final
	file      bounds
	fileNulls int64

	body, packed []byte // scratch
}

func newColumnEncoder(c fileColumn, pack compressor) (*columnEncoder, error) {
	want, err := schema.ArrowType(c.top)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", c.name, err)
	}
	e := &columnEncoder{fileColumn: c, want: want, order: orderOf(c.typ), pack: pack}
	e.phys, e.width = physicalOf(c.typ)
	e.codec = pack.codec
	return e, nil
}

// begin starts a column chunk.
func (e *columnEncoder) begin(enc encoding) {
	e.enc, e.usedDict = enc, false
	clear(e.encodings[:])
	e.data, e.full = e.data[:0], 0
	e.meta = chunkMeta{fileColumn: e.fileColumn}
	e.dict.reset()
	e.kept = keptDict{}
}

// check refuses arrays that are not what the column declares.
func (e *columnEncoder) check(a arrow.Array) error {
	if !arrow.TypeEqual(a.DataType(), e.want) {
		return fmt.Errorf("column %q of type %s needs Arrow %s, got %s", e.name, e.top, e.want, a.DataType())
	}
	if n := a.NullN(); n > 0 && e.top.NotNull {
		return fmt.Errorf("column %q is NOT NULL but %d of %d rows are null", e.name, n, a.Len())
	}
	return nil
}

// writeSeq writes sequence numbers.
func (e *columnEncoder) writeSeq(v []int64) error {
	for len(v) > 0 {
		k := min(len(v), pageRows-e.rows)
		addInts(&e.page, v[:k])
		e.i64 = append(e.i64, v[:k]...)
		if err := e.took(k); err != nil {
			return err
		}
		v = v[k:]
	}
	return nil
}

// writeKinds writes row kinds.
func (e *columnEncoder) writeKinds(v []int8) error {
	for len(v) > 0 {
		k := min(len(v), pageRows-e.rows)
		addInts(&e.page, v[:k])
		e.i32 = widen(e.i32, v[:k])
		if err := e.took(k); err != nil {
			return err
		}
		v = v[k:]
	}
	return nil
}

// write appends an array to the open column chunk.
func (e *columnEncoder) write(a arrow.Array) error {
	src := newSource(a)
	for from := 0; from < src.n; {
		k := min(src.n-from, pageRows-e.rows)
		if src.off != nil {
			k = stepRows(src.off[from:], k, max(e.most-len(e.vals), 1))
		}
		if err := e.appendRows(&src, from, k); err != nil {
			return err
		}
		if err := e.took(k); err != nil {
			return err
		}
		from += k
	}
	e.page.keepText()
	return nil
}

// took counts rows of the page and ends it when it is full.
func (e *columnEncoder) took(k int) error {
	e.rows += k
	if e.rows >= pageRows || len(e.vals) >= e.most || len(e.idx) > 0 && e.dict.full() {
		return e.endPage()
	}
	return nil
}

// endPage encodes, compresses and appends the page.
func (e *columnEncoder) endPage() error {
	if e.rows == 0 {
		return nil
	}
	b := e.body[:0]
	if e.nested() {
		b = e.appendNestedLevels(b)
	} else {
		e.records = e.rows
		if e.maxDef > 0 {
			b = e.appendLevels(b)
		}
	}
	b, enc := e.appendPage(b)
	e.body = b
	if len(b) > math.MaxInt32 {
		return fmt.Errorf("column %q: a page of %d bytes is too large for Parquet: are there values of gigabytes?", e.name, len(b))
	}
	stored, err := e.compress(b)
	if err != nil {
		return err
	}
	at := len(e.data)
	e.data = appendPageHeader(e.data, len(b), len(stored), crc32.ChecksumIEEE(stored), e.rows, enc)
	e.full += int64(len(b) + len(e.data) - at)
	e.data = append(e.data, stored...)
	e.encodings[enc] = true
	e.page.keepText()
	e.meta.bounds.merge(&e.page, e.order)
	e.page.shorten(indexBytes, indexBytes/4)
	e.meta.pages = append(e.meta.pages, pageMeta{
		at: int64(at), size: int32(len(e.data) - at), firstRow: e.meta.records, rows: e.rows, nulls: e.nulls, bounds: e.page,
	})
	e.meta.values += int64(e.rows)
	e.meta.records += int64(e.records)
	if e.meta.nulls >= 0 {
		e.meta.nulls += int64(e.nulls)
	}
	e.rows, e.records, e.nulls, e.bits, e.page = 0, 0, 0, 0, bounds{}
	e.defs, e.reps = e.defs[:0], e.reps[:0]
	e.vals, e.i32, e.i64, e.idx = e.vals[:0], e.i32[:0], e.i64[:0], e.idx[:0]
	if e.enc == dictEncoding && e.dictUseless() {
		e.enc = deltaEncoding
		if e.phys != typeInt32 && e.phys != typeInt64 {
			e.enc = plainEncoding
		}
	}
	return nil
}

// dictUseless reports whether values should be written without the dictionary from now on.
func (e *columnEncoder) dictUseless() bool {
	rows := e.meta.values - max(e.meta.nulls, 0)
	return e.dict.full() || rows >= pageRows/2 && 2*int64(e.dict.n) > rows
}

// appendLevels appends the definition levels of an optional column.
func (e *columnEncoder) appendLevels(b []byte) []byte {
	b = append(b, 0, 0, 0, 0)
	switch e.nulls {
	case 0:
		b = appendRun(b, 1, e.rows, 1)
	case e.rows:
		b = appendRun(b, 0, e.rows, 1)
	default:
		b = appendBitmap(b, e.valid, e.rows)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// appendPage appends the page's values and names their encoding.
func (e *columnEncoder) appendPage(b []byte) ([]byte, int32) {
	switch {
	case len(e.idx) > 0:
		e.usedDict = true
		w := e.dict.width()
		return appendIndexes(append(b, byte(w)), e.idx, w), encRLEDict
	case e.phys == typeInt32:
		return appendDelta(b, e.i32), encDelta
	case e.phys == typeInt64:
		return appendDelta(b, e.i64), encDelta
	}
	return append(b, e.vals...), encPlain
}

// compress gives the stored form of a page. The first page decides whether the column is compressed at all.
func (e *columnEncoder) compress(b []byte) ([]byte, error) {
	if e.codec == codecNone {
		return b, nil
	}
	var err error
	if e.packed, err = e.pack.compress(e.packed, b); err != nil {
		return nil, fmt.Errorf("column %q: %w", e.name, err)
	}
	if !e.decided {
		e.decided = true
		if e.enc != dictEncoding && len(b) >= 4<<10 && float64(len(b)-len(e.packed)) < worthwhile*float64(len(b)) {
			e.codec = codecNone
			return b, nil
		}
	}
	return e.packed, nil
}

// size estimates the bytes of the column chunk so far.
func (e *columnEncoder) size() int64 {
	n := int64(len(e.data) + len(e.dict.data)/2 + len(e.kept.page))
	return n + int64(len(e.vals)+2*len(e.i32)+3*len(e.i64)+2*len(e.idx)+len(e.defs)/2)/2
}

// end finishes the column chunk: the bytes of its dictionary page are returned, its data pages are in e.data.
func (e *columnEncoder) end() (dict []byte, err error) {
	if err := e.endPage(); err != nil {
		return nil, err
	}
	m := &e.meta
	switch {
	case e.kept.page != nil:
		e.full += int64(e.kept.full)
		dict = e.kept.page
	case e.usedDict:
		body := e.dict.data
		if e.codec != codecNone {
			if e.packed, err = e.pack.compress(e.packed, body); err != nil {
				return nil, fmt.Errorf("column %q: %w", e.name, err)
			}
			body = e.packed
		}
		e.body = appendPageHeader(e.body[:0], len(e.dict.data), len(body), crc32.ChecksumIEEE(body), -e.dict.n, encPlain)
		e.full += int64(len(e.body) + len(e.dict.data))
		e.body = append(e.body, body...)
		dict = e.body
		e.encodings[encPlain] = true
	}
	for k, used := range e.encodings {
		if used || k == encRLE && e.maxDef > 0 {
			m.encodings = append(m.encodings, int32(k))
		}
	}
	m.codec, m.full, m.packed = e.codec, e.full, int64(len(dict)+len(e.data))
	e.fileNulls += max(m.nulls, 0)
	e.mergeFile(&m.bounds)
	if len(m.bounds.tlo) > statsBytes || len(m.bounds.thi) > statsBytes {
		m.bounds = bounds{any: true, lost: true} // the footer does not have them
	}
	return dict, nil
}

// keptBytes and keptCharacters are what is kept of the bounds of a file, unless a mode of statistics wants them whole.
const (
	keptBytes      = 512
	keptCharacters = 128
)

// mergeFile widens the bounds of the file by those of a chunk.
func (e *columnEncoder) mergeFile(b *bounds) {
	if e.file.merge(b, e.order); !e.whole {
		e.file.shorten(keptBytes, keptCharacters)
	}
}

// statistics are those of the whole file. Of nested types there are none (`ParquetSimpleStatsExtractor`).
func (e *columnEncoder) statistics() ColumnStats {
	if e.nested() {
		return ColumnStats{Nulls: -1}
	}
	lo, hi := e.file.cells(e.typ)
	return ColumnStats{Min: lo, Max: hi, Nulls: e.fileNulls}
}

// resize gives a slice of n elements whose content is arbitrary, reusing s where it is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// grow makes room for n more bytes; the length stays.
func grow(s []byte, n int) []byte {
	if cap(s)-len(s) >= n {
		return s
	}
	out := make([]byte, len(s), len(s)+n+len(s)/2)
	copy(out, s)
	return out
}
