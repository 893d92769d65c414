package datafile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/schema"
)

// A page ends at the first of these. 256 KiB stay in the second-level cache from encoding to compression and back,
// which is 5 % faster than Paimon's 1 MiB.
const (
	pageBytes = 256 << 10
	pageRows  = 32 << 10
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

	enc encoding
	// The page being filled.
	rows, nulls int
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

	// The file.
	codec     int32
	decided   bool // codec is final
	file      bounds
	fileNulls int64

	body, packed []byte // scratch
}

func newColumnEncoder(c fileColumn, pack compressor) (*columnEncoder, error) {
	if err := checkWritable(c); err != nil {
		return nil, err
	}
	want, err := schema.ArrowType(c.typ)
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
}

// check refuses arrays that are not what the column declares.
func (e *columnEncoder) check(a arrow.Array) error {
	if !arrow.TypeEqual(a.DataType(), e.want) {
		return fmt.Errorf("column %q of type %s needs Arrow %s, got %s", e.name, e.typ, e.want, a.DataType())
	}
	if n := a.NullN(); n > 0 && e.typ.NotNull {
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
			k = stepRows(src.off[from:], k, max(pageBytes-len(e.vals), 1))
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
	if e.rows >= pageRows || len(e.vals) >= pageBytes || len(e.idx) > 0 && e.dict.full() {
		return e.endPage()
	}
	return nil
}

// source is an array with its buffers at hand.
type source struct {
	a       arrow.Array
	n, nuls int
	at      int // offset of the first value
	valid   []byte
	fixed   []byte
	off     []int32 // text: n+1 offsets
	data    []byte
}

func newSource(a arrow.Array) source {
	d := a.Data()
	s := source{a: a, n: d.Len(), nuls: a.NullN(), at: d.Offset()}
	bufs := d.Buffers()
	if s.nuls > 0 && bufs[0] != nil {
		s.valid = bufs[0].Bytes()
	}
	if bufs[1] != nil {
		s.fixed = bufs[1].Bytes()
	}
	switch a.(type) {
	case *array.String, *array.Binary:
		if s.n > 0 {
			s.off = arrow.Int32Traits.CastFromBytes(s.fixed)[s.at : s.at+s.n+1]
		}
		if bufs[2] != nil {
			s.data = bufs[2].Bytes()
		}
	}
	return s
}

// numbers gives the values of a fixed-width array from one row to another.
func numbers[T any](s *source, from, to int) []T { return view[T](s.fixed)[s.at+from : s.at+to] }

// values gives all values of a fixed-width array.
func values[T any](a arrow.Array) []T {
	s := newSource(a)
	return numbers[T](&s, 0, s.n)
}

// appendRows adds rows to the page: their definition levels and the values that are not null.
func (e *columnEncoder) appendRows(s *source, from, k int) error {
	if s.nuls == 0 {
		if e.nulls > 0 {
			bitutil.SetBitsTo(e.valid, int64(e.rows), int64(k), true)
		}
		return e.appendValues(s, from, from+k)
	}
	present := bitutil.CountSetBits(s.valid, s.at+from, k)
	if present < k && e.nulls == 0 {
		e.valid = resize(e.valid, pageRows/8+8)
		bitutil.SetBitsTo(e.valid, 0, int64(e.rows), true)
	}
	if present < k || e.nulls > 0 {
		bitutil.CopyBitmap(s.valid, s.at+from, k, e.valid, e.rows)
	}
	e.nulls += k - present
	if present == k {
		return e.appendValues(s, from, from+k)
	}
	for i := from; i < from+k; {
		if !bitutil.BitIsSet(s.valid, s.at+i) {
			i++
			continue
		}
		run := i
		for i < from+k && bitutil.BitIsSet(s.valid, s.at+i) {
			i++
		}
		if err := e.appendValues(s, run, i); err != nil {
			return err
		}
	}
	return nil
}

// appendValues adds values that are not null.
func (e *columnEncoder) appendValues(s *source, from, to int) error {
	switch e.typ.Root {
	case schema.Boolean:
		e.appendBools(s, from, to)
	case schema.TinyInt:
		v := numbers[int8](s, from, to)
		addInts(&e.page, v)
		e.i32 = widen(e.i32, v)
	case schema.SmallInt:
		v := numbers[int16](s, from, to)
		addInts(&e.page, v)
		e.i32 = widen(e.i32, v)
	case schema.Int, schema.Date, schema.Time:
		v := numbers[int32](s, from, to)
		addInts(&e.page, v)
		e.appendInt32s(v)
	case schema.BigInt, schema.Timestamp, schema.TimestampLTZ:
		v := numbers[int64](s, from, to)
		addInts(&e.page, v)
		e.appendInt64s(v)
	case schema.Float:
		addFloats(&e.page, numbers[float32](s, from, to))
		e.appendFloats(s, from, to, 4)
	case schema.Double:
		addFloats(&e.page, numbers[float64](s, from, to))
		e.appendFloats(s, from, to, 8)
	case schema.Decimal:
		return e.appendDecimals(numbers[decimal128.Num](s, from, to))
	default:
		e.appendText(s.data, s.off[from:to+1])
	}
	return nil
}

func (e *columnEncoder) appendBools(s *source, from, to int) {
	n := to - from
	set := bitutil.CountSetBits(s.fixed, s.at+from, n)
	b := bounds{any: true, lo: 1}
	if set > 0 {
		b.hi = 1
	}
	if set < n {
		b.lo = 0
	}
	e.page.merge(&b, orderBool)
	need := (e.bits + n + 7) / 8
	for len(e.vals) < need {
		e.vals = append(e.vals, 0)
	}
	bitutil.CopyBitmap(s.fixed, s.at+from, n, e.vals, e.bits)
	e.bits += n
}

func (e *columnEncoder) appendInt32s(v []int32) {
	if e.enc != dictEncoding {
		e.i32 = append(e.i32, v...)
		return
	}
	for _, x := range v {
		e.idx = append(e.idx, e.dict.number(uint64(uint32(x)), 4))
	}
}

func (e *columnEncoder) appendInt64s(v []int64) {
	if e.enc != dictEncoding {
		e.i64 = append(e.i64, v...)
		return
	}
	for _, x := range v {
		e.idx = append(e.idx, e.dict.number(uint64(x), 8))
	}
}

func (e *columnEncoder) appendFloats(s *source, from, to, w int) {
	switch {
	case e.enc != dictEncoding:
		e.vals = append(e.vals, s.fixed[(s.at+from)*w:(s.at+to)*w]...)
	case w == 4:
		for _, x := range numbers[uint32](s, from, to) {
			e.idx = append(e.idx, e.dict.number(uint64(x), 4))
		}
	default:
		for _, x := range numbers[uint64](s, from, to) {
			e.idx = append(e.idx, e.dict.number(x, 8))
		}
	}
}

// appendDecimals narrows decimals to their stored form.
func (e *columnEncoder) appendDecimals(v []decimal128.Num) error {
	addDecimals(&e.page, v)
	fit := true
	switch e.phys {
	case typeInt32:
		for _, x := range v {
			lo := int64(x.LowBits())
			fit = fit && x.HighBits() == lo>>63 && lo >= math.MinInt32 && lo <= math.MaxInt32
			if e.enc == dictEncoding {
				e.idx = append(e.idx, e.dict.number(uint64(uint32(lo)), 4))
			} else {
				e.i32 = append(e.i32, int32(lo))
			}
		}
	case typeInt64:
		for _, x := range v {
			lo := int64(x.LowBits())
			fit = fit && x.HighBits() == lo>>63
			if e.enc == dictEncoding {
				e.idx = append(e.idx, e.dict.number(uint64(lo), 8))
			} else {
				e.i64 = append(e.i64, lo)
			}
		}
	default:
		n := len(e.vals)
		e.vals = append(e.vals, make([]byte, len(v)*e.width+16)...)
		fit = putDecimals(e.vals[n:], v, e.width)
		e.vals = e.vals[:n+len(v)*e.width]
	}
	if fit {
		return nil
	}
	for _, x := range v {
		if !x.FitsInPrecision(int32(e.typ.Precision)) {
			return fmt.Errorf("column %q: %s does not fit %s", e.name, x.ToString(int32(e.typ.Scale)), e.typ)
		}
	}
	return fmt.Errorf("column %q: a decimal does not fit %s", e.name, e.typ)
}

// putDecimals writes numbers of w bytes, big-endian; dst has 16 bytes to spare. It reports whether all fitted.
func putDecimals(dst []byte, v []decimal128.Num, w int) bool {
	var buf [16]byte
	fit := true
	for i, x := range v {
		binary.BigEndian.PutUint64(buf[:8], uint64(x.HighBits()))
		binary.BigEndian.PutUint64(buf[8:], x.LowBits())
		copy(dst[i*w:], buf[16-w:])
		if w < 16 {
			s := x.HighBits() >> uint(w*8-64-1) // must be nothing but the sign
			fit = fit && (s == 0 || s == -1)
		}
	}
	return fit
}

func (e *columnEncoder) appendText(data []byte, off []int32) {
	if e.enc == dictEncoding {
		e.appendTextIndexes(data, off)
		return
	}
	if e.order == orderText {
		addText(&e.page, data, off)
	}
	n := len(off) - 1
	size := int(off[n]-off[0]) + 4*n
	at := len(e.vals)
	e.vals = grow(e.vals, size+copyStep)
	dst := e.vals[:cap(e.vals)]
	for i := range n {
		v := data[off[i]:off[i+1]]
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(v)))
		at += 4
		if len(v) <= copyStep && int(off[i])+copyStep <= len(data) {
			copyShort(dst[at:at+copyStep], data[off[i]:int(off[i])+copyStep])
		} else {
			copy(dst[at:], v)
		}
		at += len(v)
	}
	e.vals = e.vals[:at]
}

// appendTextIndexes looks values up. Bounds are those of the entries that a page refers to: most values are compared
// with none.
func (e *columnEncoder) appendTextIndexes(data []byte, off []int32) {
	page := int32(len(e.meta.pages))
	for i := range len(off) - 1 {
		v := data[off[i]:off[i+1]]
		k := e.dict.text(v)
		e.idx = append(e.idx, k)
		if e.dict.seen[k] != page {
			e.dict.seen[k] = page
			if e.order == orderText {
				addText(&e.page, data, off[i:i+2])
			}
		}
	}
}

// stepRows gives how many of n values are about a page's room, at least one.
func stepRows(off []int32, n, room int) int {
	if int(off[n])-int(off[0])+4*n <= room {
		return n
	}
	lo, hi := 1, n // the answer is in [lo, hi]
	for lo < hi {
		m := (lo + hi + 1) / 2
		if int(off[m])-int(off[0])+4*m <= room {
			lo = m
		} else {
			hi = m - 1
		}
	}
	return lo
}

func widen[T int8 | int16](dst []int32, src []T) []int32 {
	for _, x := range src {
		dst = append(dst, int32(x))
	}
	return dst
}

// endPage encodes, compresses and appends the page.
func (e *columnEncoder) endPage() error {
	if e.rows == 0 {
		return nil
	}
	b := e.body[:0]
	if !e.typ.NotNull {
		b = e.appendLevels(b)
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
	e.meta.pages = append(e.meta.pages, pageMeta{
		at: int64(at), size: int32(len(e.data) - at), firstRow: e.meta.values, rows: e.rows, nulls: e.nulls, bounds: e.page,
	})
	e.meta.values += int64(e.rows)
	e.meta.nulls += int64(e.nulls)
	e.meta.bounds.merge(&e.page, e.order)
	e.rows, e.nulls, e.bits, e.page = 0, 0, 0, bounds{}
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
	rows := e.meta.values - e.meta.nulls
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
	n := int64(len(e.data) + len(e.dict.data)/2)
	return n + int64(len(e.vals)+2*len(e.i32)+3*len(e.i64)+2*len(e.idx))/2
}

// end finishes the column chunk: the bytes of its dictionary page are returned, its data pages are in e.data.
func (e *columnEncoder) end() (dict []byte, err error) {
	if err := e.endPage(); err != nil {
		return nil, err
	}
	m := &e.meta
	if e.usedDict {
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
		if used || k == encRLE && !e.typ.NotNull {
			m.encodings = append(m.encodings, int32(k))
		}
	}
	m.codec, m.full, m.packed = e.codec, e.full, int64(len(dict)+len(e.data))
	e.file.merge(&m.bounds, e.order)
	e.fileNulls += m.nulls
	return dict, nil
}

// statistics are those of the whole file.
func (e *columnEncoder) statistics() ColumnStats {
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
