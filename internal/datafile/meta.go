package datafile

import "bytes"

// createdBy is what files say about their writer. Java's reader distrusts the statistics of files whose text is not of
// this form.
const createdBy = "calve version 1.0.0 (build 1)"

// pageMeta describes a data page for the page index.
type pageMeta struct {
	at       int64 // in the file; in the chunk's data pages until the chunk is placed
	size     int32 // with header
	firstRow int64
	rows     int // slots
	nulls    int // -1: not known, nor are the bounds
	bounds   bounds
}

// chunkMeta describes a written column chunk.
type chunkMeta struct {
	fileColumn
	encodings    []int32
	codec        int32
	values       int64 // slots
	records      int64 // rows
	nulls        int64 // -1: not known
	full, packed int64 // bytes with headers, uncompressed and compressed
	dataAt       int64
	dictAt       int64 // 0: no dictionary
	bounds       bounds
	pages        []pageMeta

	columnIndexAt, offsetIndexAt     int64
	columnIndexSize, offsetIndexSize int32
}

// groupMeta describes a written row group.
type groupMeta struct {
	rows   int64
	chunks []chunkMeta
}

// statsBytes is the length above which a text is no bound in the footer. (Only the page index may cut bounds.)
const statsBytes = 4096

// appendPageIndexes appends the page index of all row groups, which is to be written at a file offset, and notes where each
// part is.
func appendPageIndexes(dst []byte, at int64, groups []groupMeta) []byte {
	base := at - int64(len(dst))
	for g := range groups {
		for c := range groups[g].chunks {
			k := &groups[g].chunks[c]
			from := len(dst)
			dst = appendColumnIndex(dst, k)
			if len(dst) > from {
				k.columnIndexAt, k.columnIndexSize = base+int64(from), int32(len(dst)-from)
			}
		}
	}
	for g := range groups {
		for c := range groups[g].chunks {
			k := &groups[g].chunks[c]
			from := len(dst)
			dst = appendOffsetIndex(dst, k)
			k.offsetIndexAt, k.offsetIndexSize = base+int64(from), int32(len(dst)-from)
		}
	}
	return dst
}

// appendColumnIndex appends a ColumnIndex, or nothing if bounds are missing of a page that has values.
func appendColumnIndex(dst []byte, k *chunkMeta) []byte {
	o := orderOf(k.typ)
	n := len(k.pages)
	lows, highs := make([][]byte, n), make([][]byte, n)
	for i := range k.pages {
		p := &k.pages[i]
		if p.nulls == p.rows {
			continue
		}
		ok := p.bounds.known(o)
		if ok {
			lows[i], highs[i], ok = p.bounds.indexed(k.typ)
		}
		if !ok {
			return dst
		}
	}
	t := thriftWriter{b: dst}
	t.list(1, thriftTrue, n)
	for i := range k.pages {
		if k.pages[i].nulls == k.pages[i].rows {
			t.b = append(t.b, thriftTrue)
		} else {
			t.b = append(t.b, thriftFalse)
		}
	}
	t.list(2, thriftBinary, n)
	for _, v := range lows {
		t.value(v)
	}
	t.list(3, thriftBinary, n)
	for _, v := range highs {
		t.value(v)
	}
	ascending := int32(0)
	if k.ascending(o) {
		ascending = 1
	}
	t.i32(4, ascending)
	t.list(5, thriftI64, n)
	for i := range k.pages {
		t.varint(int64(k.pages[i].nulls))
	}
	return append(t.b, 0)
}

// ascending reports whether the bounds of the pages only rise, as those of keys do.
func (k *chunkMeta) ascending(o order) bool {
	var last *bounds
	for i := range k.pages {
		p := &k.pages[i].bounds
		if !p.any {
			continue
		}
		if last != nil {
			x := *last
			x.merge(p, o)
			y := *p
			y.merge(last, o)
			lo := x.lo == last.lo && x.flo == last.flo && x.dlo == last.dlo && bytes.Equal(x.tlo, last.tlo)
			hi := y.hi == p.hi && y.fhi == p.fhi && y.dhi == p.dhi && bytes.Equal(y.thi, p.thi)
			if !lo || !hi {
				return false
			}
		}
		last = p
	}
	return true
}

func appendOffsetIndex(dst []byte, k *chunkMeta) []byte {
	t := thriftWriter{b: dst}
	t.list(1, thriftStruct, len(k.pages))
	for i := range k.pages {
		p := &k.pages[i]
		t.element()
		t.i64(1, p.at)
		t.i32(2, p.size)
		t.i64(3, p.firstRow)
		t.end()
	}
	return append(t.b, 0)
}

// appendFooter appends a FileMetaData.
func appendFooter(dst []byte, parts []part, leaves int, groups []groupMeta) []byte {
	t := thriftWriter{b: dst}
	t.i32(1, 2)
	elements := 1
	for i := range parts {
		elements += parts[i].elements()
	}
	t.list(2, thriftStruct, elements)
	t.element()
	t.text(4, rootName)
	t.i32(5, int32(len(parts)))
	t.end()
	for i := range parts {
		parts[i].write(&t)
	}
	rows := int64(0)
	for i := range groups {
		rows += groups[i].rows
	}
	t.i64(3, rows)
	t.list(4, thriftStruct, len(groups))
	for i := range groups {
		writeGroup(&t, &groups[i], i)
	}
	t.text(6, createdBy)
	// Bounds count only if their order is declared: the one of the type, for each column.
	t.list(7, thriftStruct, leaves)
	for range leaves {
		t.element()
		t.structure(1)
		t.end()
		t.end()
	}
	return append(t.b, 0)
}

func writeGroup(t *thriftWriter, g *groupMeta, ordinal int) {
	t.element()
	t.list(1, thriftStruct, len(g.chunks))
	full, packed := int64(0), int64(0)
	for i := range g.chunks {
		writeChunk(t, &g.chunks[i])
		full, packed = full+g.chunks[i].full, packed+g.chunks[i].packed
	}
	t.i64(2, full)
	t.i64(3, g.rows)
	if len(g.chunks) > 0 {
		t.i64(5, g.chunks[0].start())
	}
	t.i64(6, packed)
	t.i16(7, int16(ordinal))
	t.end()
}

func (k *chunkMeta) start() int64 {
	if k.dictAt > 0 {
		return k.dictAt
	}
	return k.dataAt
}

// writeChunk appends a ColumnChunk with its ColumnMetaData.
func writeChunk(t *thriftWriter, k *chunkMeta) {
	phys, _ := physicalOf(k.typ)
	t.element()
	t.i64(2, 0) // file_offset: deprecated
	t.structure(3)
	t.i32(1, phys)
	t.list(2, thriftI32, len(k.encodings))
	for _, e := range k.encodings {
		t.varint(int64(e))
	}
	t.list(3, thriftBinary, len(k.path))
	for _, name := range k.path {
		t.value([]byte(name))
	}
	t.i32(4, k.codec)
	t.i64(5, k.values)
	t.i64(6, k.full)
	t.i64(7, k.packed)
	t.i64(9, k.dataAt)
	if k.dictAt > 0 {
		t.i64(11, k.dictAt)
	}
	writeStatistics(t, k)
	t.end()
	t.i64(4, k.offsetIndexAt)
	t.i32(5, k.offsetIndexSize)
	if k.columnIndexSize > 0 {
		t.i64(6, k.columnIndexAt)
		t.i32(7, k.columnIndexSize)
	}
	t.end()
}

func writeStatistics(t *thriftWriter, k *chunkMeta) {
	t.structure(12)
	if k.nulls >= 0 {
		t.i64(3, k.nulls)
	}
	if k.bounds.known(orderOf(k.typ)) && !k.bounds.cut {
		lo, hi := k.bounds.stored(k.typ)
		if len(hi) <= statsBytes {
			t.bytes(5, hi)
		}
		if len(lo) <= statsBytes {
			t.bytes(6, lo)
		}
	}
	t.end()
}

// appendPageHeader appends the header of a V1 data page or, with rows < 0, of a dictionary page of -rows values.
func appendPageHeader(dst []byte, full, packed int, crc uint32, rows int, encoding int32) []byte {
	t := thriftWriter{b: dst}
	typ := int32(pageData)
	if rows < 0 {
		typ = pageDictionary
	}
	t.i32(1, typ)
	t.i32(2, int32(full))
	t.i32(3, int32(packed))
	t.i32(4, int32(crc))
	if rows < 0 {
		t.structure(7)
		t.i32(1, int32(-rows))
		t.i32(2, encoding)
	} else {
		t.structure(5)
		t.i32(1, int32(rows))
		t.i32(2, encoding)
		t.i32(3, encRLE)
		t.i32(4, encRLE)
	}
	t.end()
	return append(t.b, 0)
}
