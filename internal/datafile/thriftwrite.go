package datafile

import "encoding/binary"

// thriftWriter appends structures in Thrift's compact protocol.
type thriftWriter struct {
	b     []byte
	last  int16   // id of the last field, from which the next is counted
	outer []int16 // those of the structures around
}

func (t *thriftWriter) uvarint(v uint64) { t.b = binary.AppendUvarint(t.b, v) }
func (t *thriftWriter) varint(v int64)   { t.uvarint(uint64(v)<<1 ^ uint64(v>>63)) }

// field begins a field.
func (t *thriftWriter) field(id int16, typ byte) {
	if d := id - t.last; d > 0 && d <= 15 {
		t.b = append(t.b, byte(d)<<4|typ)
	} else {
		t.b = append(t.b, typ)
		t.varint(int64(id))
	}
	t.last = id
}

func (t *thriftWriter) i16(id, v int16) {
	t.field(id, thriftI16)
	t.varint(int64(v))
}

func (t *thriftWriter) i32(id int16, v int32) {
	t.field(id, thriftI32)
	t.varint(int64(v))
}

func (t *thriftWriter) i64(id int16, v int64) {
	t.field(id, thriftI64)
	t.varint(v)
}

func (t *thriftWriter) i8(id int16, v int8) {
	t.field(id, thriftI8)
	t.b = append(t.b, byte(v))
}

func (t *thriftWriter) bool(id int16, v bool) {
	if v {
		t.field(id, thriftTrue)
	} else {
		t.field(id, thriftFalse)
	}
}

func (t *thriftWriter) bytes(id int16, v []byte) {
	t.field(id, thriftBinary)
	t.value(v)
}

func (t *thriftWriter) text(id int16, v string) {
	t.field(id, thriftBinary)
	t.uvarint(uint64(len(v)))
	t.b = append(t.b, v...)
}

// value appends a binary element of a list.
func (t *thriftWriter) value(v []byte) {
	t.uvarint(uint64(len(v)))
	t.b = append(t.b, v...)
}

// list begins a list of n elements; they follow.
func (t *thriftWriter) list(id int16, elem byte, n int) {
	t.field(id, thriftList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|elem)
		return
	}
	t.b = append(t.b, 0xf0|elem)
	t.uvarint(uint64(n))
}

// structure begins a field that is a structure, element one that is an element of a list; end ends either.
func (t *thriftWriter) structure(id int16) {
	t.field(id, thriftStruct)
	t.element()
}

func (t *thriftWriter) element() {
	t.outer = append(t.outer, t.last)
	t.last = 0
}

func (t *thriftWriter) end() {
	t.b = append(t.b, 0)
	t.last = t.outer[len(t.outer)-1]
	t.outer = t.outer[:len(t.outer)-1]
}
