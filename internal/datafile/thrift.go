package datafile

// Wire types of Thrift's compact protocol, in which Parquet writes its footer and page headers.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI8     = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// thriftDepth bounds the nesting of what is skipped; Parquet's own structures are at most 6 deep.
const thriftDepth = 32

// thriftReader reads the compact protocol from a slice. It never reads past the end and allocates nothing by itself;
// the first mistake sticks, and then all reads give zeros. Own code rather than a library's because the libraries
// allocate lists by the length a file claims.
type thriftReader struct {
	b     []byte
	pos   int
	err   error
	short bool // the mistake is that the input ended
}

func (t *thriftReader) fail(what string) {
	if t.err == nil {
		t.err = corruptf("Thrift structure: %s at byte %d", what, t.pos)
	}
	t.pos = len(t.b)
}

func (t *thriftReader) failShort() {
	if t.err == nil {
		t.short = true
	}
	t.fail("input ends")
}

func (t *thriftReader) byte() byte {
	if t.pos >= len(t.b) {
		t.failShort()
		return 0
	}
	t.pos++
	return t.b[t.pos-1]
}

func (t *thriftReader) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		c := t.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	t.fail("number of more than 10 bytes")
	return 0
}

// int reads a number of any of the integer types.
func (t *thriftReader) int(typ byte) int64 {
	switch typ {
	case thriftI8:
		return int64(int8(t.byte()))
	case thriftI16, thriftI32, thriftI64:
		u := t.uvarint()
		return int64(u>>1) ^ -int64(u&1)
	}
	t.fail("number expected")
	return 0
}

// int32 reads a number that must fit 32 bits.
func (t *thriftReader) int32(typ byte) int32 {
	v := t.int(typ)
	if v != int64(int32(v)) {
		t.fail("number out of range")
		return 0
	}
	return int32(v)
}

// bool gives the value of a boolean field, which is its type.
func (t *thriftReader) bool(typ byte) bool {
	if typ != thriftTrue && typ != thriftFalse {
		t.fail("boolean expected")
	}
	return typ == thriftTrue
}

// bytes gives a view into the input.
func (t *thriftReader) bytes(typ byte) []byte {
	if typ != thriftBinary {
		t.fail("string expected")
		return nil
	}
	n := t.uvarint()
	if n > uint64(len(t.b)-t.pos) {
		t.failShort()
		return nil
	}
	t.pos += int(n)
	return t.b[t.pos-int(n) : t.pos]
}

// list reads the head of a list. Every element takes at least one byte, so the count is bounded by the input.
func (t *thriftReader) list(typ byte) (elem byte, n int) {
	if typ != thriftList && typ != thriftSet {
		t.fail("list expected")
		return 0, 0
	}
	h := t.byte()
	count := uint64(h >> 4)
	if count == 15 {
		count = t.uvarint()
	}
	if count > uint64(len(t.b)-t.pos) {
		t.failShort()
		return 0, 0
	}
	return h & 15, int(count)
}

// structs reads a list of structures, calling one for each.
func (t *thriftReader) structs(typ byte, one func()) {
	elem, n := t.list(typ)
	if n > 0 && elem != thriftStruct {
		t.fail("list of structures expected")
	}
	for i := 0; i < n && t.err == nil; i++ {
		one()
	}
}

// fields reads a structure, calling field for each of its fields. A field that is not read there must be skipped:
// field returns false for that.
func (t *thriftReader) fields(field func(id int16, typ byte) bool) {
	id := int16(0)
	for t.err == nil {
		h := t.byte()
		if h == 0 {
			return
		}
		if d := h >> 4; d != 0 {
			id += int16(d)
		} else {
			id = int16(t.int(thriftI16))
		}
		if typ := h & 15; t.err == nil && !field(id, typ) {
			t.skip(typ, 0)
		}
	}
}

// structure is fields for a field that must be a structure.
func (t *thriftReader) structure(typ byte, field func(id int16, typ byte) bool) {
	if typ != thriftStruct {
		t.fail("structure expected")
		return
	}
	t.fields(field)
}

func (t *thriftReader) skip(typ byte, depth int) {
	if depth > thriftDepth {
		t.fail("too deeply nested")
		return
	}
	switch typ {
	case thriftTrue, thriftFalse:
	case thriftI8, thriftI16, thriftI32, thriftI64:
		t.int(typ)
	case thriftDouble:
		if len(t.b)-t.pos < 8 {
			t.failShort()
			return
		}
		t.pos += 8
	case thriftBinary:
		t.bytes(typ)
	case thriftList, thriftSet:
		elem, n := t.list(typ)
		for i := 0; i < n && t.err == nil; i++ {
			t.skipElement(elem, depth)
		}
	case thriftMap:
		t.skipMap(depth)
	case thriftStruct:
		t.fields(func(_ int16, typ byte) bool { t.skip(typ, depth+1); return true })
	default:
		t.fail("unknown type")
	}
}

// skipElement skips an element of a list, where a boolean takes a byte.
func (t *thriftReader) skipElement(typ byte, depth int) {
	if typ == thriftTrue || typ == thriftFalse {
		t.byte()
		return
	}
	t.skip(typ, depth+1)
}

func (t *thriftReader) skipMap(depth int) {
	n := t.uvarint()
	if n == 0 {
		return
	}
	if n > uint64(len(t.b)-t.pos) {
		t.failShort()
		return
	}
	kv := t.byte()
	for i := uint64(0); i < n && t.err == nil; i++ {
		t.skipElement(kv>>4, depth)
		t.skipElement(kv&15, depth)
	}
}
