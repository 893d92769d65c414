package manifest

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// entryDecoder reads the records of manifests whose header has exactly entrySchemaText, which are nearly all: those of
// calve and of Paimon's own library. Planning over many files is little else than reading them, and without reflection
// and an allocation for each number it takes a third of the time. Other schemas go through the Avro library.
//
// Strings and bytes are views of the block. The first mistake sticks.
type entryDecoder struct {
	on   bool // the schema is the one
	w    wireEntry
	b    []byte
	err  error
	ints []int64  // numbers that entries point to, shared by many
	ptrs []*int64 // likewise
}

// intChunk is how many numbers are allocated at once.
const intChunk = 1024

func (d *entryDecoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

// long reads a zigzag varint.
func (d *entryDecoder) long() int64 {
	if len(d.b) > 0 && d.b[0] < 0x80 { // one byte: most
		v := d.b[0]
		d.b = d.b[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errTruncated)
		return 0
	}
	d.b = d.b[n:]
	return v
}

// int reads a number that must fit 32 bits.
func (d *entryDecoder) int() int32 {
	v := d.long()
	if v != int64(int32(v)) {
		d.fail(fmt.Errorf("%d is out of the range of an int", v))
	}
	return int32(v)
}

// bytes gives the next byte string, never nil.
func (d *entryDecoder) bytes() []byte {
	n := d.long()
	if n < 0 || n > int64(len(d.b)) {
		d.fail(fmt.Errorf("length %d is not between 0 and the %d bytes left", n, len(d.b)))
		return []byte{}
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *entryDecoder) text() string {
	v := d.bytes()
	return unsafe.String(unsafe.SliceData(v), len(v))
}

// present reads the branch of a union with null.
func (d *entryDecoder) present() bool {
	switch v := d.long(); v {
	case 0:
		return false
	case 1:
		return d.err == nil
	default:
		d.fail(fmt.Errorf("branch %d of a union of two", v))
		return false
	}
}

// keep gives a number an address.
func (d *entryDecoder) keep(v int64) *int64 {
	if len(d.ints) == cap(d.ints) {
		d.ints = make([]int64, 0, intChunk)
	}
	d.ints = append(d.ints, v)
	return &d.ints[len(d.ints)-1]
}

// optional reads a union of null and a number.
func (d *entryDecoder) optional() *int64 {
	if !d.present() {
		return nil
	}
	return d.keep(d.long())
}

// array reads the blocks of an array, whose items take at least a byte each.
func (d *entryDecoder) array(item func()) {
	for d.err == nil {
		n := d.long()
		if n < 0 { // a negative count is followed by the size of the block
			d.long()
			n = -n
		}
		if n == 0 {
			return
		}
		if n < 0 || n > int64(len(d.b)) {
			d.fail(fmt.Errorf("array of %d items in %d bytes", n, len(d.b)))
			return
		}
		for ; n > 0 && d.err == nil; n-- {
			item()
		}
	}
}

// texts reads an array of strings, never nil.
func (d *entryDecoder) texts() []string {
	out := []string{}
	d.array(func() { out = append(out, d.text()) })
	return out
}

func (d *entryDecoder) optionalTexts() *[]string {
	if !d.present() {
		return nil
	}
	out := d.texts()
	return &out
}

func (d *entryDecoder) stats() wireStats {
	s := wireStats{Min: d.bytes(), Max: d.bytes()}
	if !d.present() {
		return s
	}
	from := len(d.ptrs)
	d.array(func() {
		if len(d.ptrs) == cap(d.ptrs) { // the counts of one array lie in one piece
			more := make([]*int64, len(d.ptrs)-from, max(intChunk, 2*(len(d.ptrs)-from)))
			copy(more, d.ptrs[from:])
			d.ptrs, from = more, 0
		}
		d.ptrs = append(d.ptrs, d.optional())
	})
	s.Nulls = d.ptrs[from:len(d.ptrs):len(d.ptrs)]
	return s
}

// entry reads one record of the block into w and gives what follows it.
func (d *entryDecoder) entry(block []byte) ([]byte, error) {
	w := &d.w
	d.b, d.err, *w = block, nil, wireEntry{}
	w.Version, w.Kind, w.Partition, w.Bucket, w.TotalBuckets = d.int(), d.int(), d.bytes(), d.int(), d.int()
	f := &w.File
	f.Name, f.Size, f.Rows = d.text(), d.long(), d.long()
	f.MinKey, f.MaxKey = d.bytes(), d.bytes()
	f.KeyStats, f.ValueStats = d.stats(), d.stats()
	f.MinSeq, f.MaxSeq, f.SchemaID, f.Level = d.long(), d.long(), d.long(), d.int()
	f.ExtraFiles = d.texts()
	f.CreatedMillis, f.DeleteRows = d.optional(), d.optional()
	if d.present() {
		index := d.bytes()
		f.EmbeddedIndex = &index
	}
	if d.present() {
		source := d.int()
		f.Source = &source
	}
	f.ValueStatsCols = d.optionalTexts()
	if d.present() {
		path := d.text()
		f.ExternalPath = &path
	}
	f.FirstRowID, f.WriteCols = d.optional(), d.optionalTexts()
	return d.b, d.err
}
