package datafile

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/calve-io/calve/storage"
)

// Numbers of parquet.thrift.
const (
	typeBoolean    = 0
	typeInt32      = 1
	typeInt64      = 2
	typeInt96      = 3
	typeFloat      = 4
	typeDouble     = 5
	typeByteArray  = 6
	typeFixedBytes = 7

	repRequired = 0
	repOptional = 1
	repRepeated = 2
)

const (
	magic = "PAR1"
	// tailBytes are read at once from the end: mostly the whole footer.
	tailBytes = 64 << 10
	// maxFooter is far above what a file of Paimon's size needs (about 100 bytes for a column and row group).
	maxFooter = 128 << 20
)

// timeUnit is the unit of a TIMESTAMP or TIME column as the Parquet file declares it.
type timeUnit uint8

const (
	unitNone timeUnit = iota
	unitMillis
	unitMicros
	unitNanos
)

// leaf is a column that has values.
type leaf struct {
	name     string
	phys     int32
	length   int32 // of fixed-length values
	optional bool
	repeated bool
	unit     timeUnit
	decimal  bool
	scale    int32

	// Levels, all at most maxLevel. A slot is a value or what stands for one that is missing: its definition level says how
	// many of the optional and repeated groups around it are there, and maxDef that the value is.
	maxDef, maxRep uint8
	// elemDef is the level from which on a slot is an element of the innermost repeated group around the leaf.
	elemDef uint8
}

// element is a node of the file's schema: a leaf or a group.
type element struct {
	leaf         // of groups: name, optional, repeated, and the levels inside
	at       int // index into footer.leaves, -1 for groups
	children []*element
}

// child gives the child of a name, nil if there is none.
func (e *element) child(name string) *element {
	for _, c := range e.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// maxLevel bounds how deep optional and repeated groups may be nested, maxDepth how deep groups may be.
const (
	maxLevel = 120
	maxDepth = 100
)

// chunk is the part of a column in one row group.
type chunk struct {
	offset, size int64
	full         int64 // size uncompressed, as the file claims; only for estimates
	values       int64
	codec        int32
	encodings    uint32 // a bit for each; bit 31 stands for those above
	stats        chunkStats
	bloom        int64 // where its Bloom filter begins; 0: there is none
}

// group is a row group. Chunks are those of the leaves, in order.
type group struct {
	rows   int64
	chunks []chunk
}

// footer is what a reader needs of a Parquet file's metadata.
type footer struct {
	root    element
	leaves  []leaf
	rows    int64
	groups  []group
	ordered []bool // of each leaf: its bounds are in the order of its type; shorter than leaves: not
	writer  string // created_by
	tail    tailWindow
	ends    int64 // how much of the file's end footer, page index and Bloom filters take, at least; set by fetchIndex
}

// readFooter reads and checks the metadata of a file, with what lies before it, some bytes in all.
func readFooter(f storage.File, window int64) (*footer, error) {
	size := f.Size()
	if size < 12 {
		return nil, corruptf("file has %d bytes, too few for a Parquet file", size)
	}
	tail := make([]byte, min(size, window))
	if err := readAt(f, tail, size-int64(len(tail))); err != nil {
		return nil, err
	}
	if string(tail[len(tail)-4:]) != magic {
		return nil, corruptf("the file does not end in %s: it is cut off or not a Parquet file", magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail[len(tail)-8:]))
	if n > size-12 || n > maxFooter {
		return nil, corruptf("the footer claims %d bytes in a file of %d", n, size)
	}
	buf := tail[:len(tail)-8]
	if n <= int64(len(buf)) {
		buf = buf[int64(len(buf))-n:]
	} else {
		buf = make([]byte, n)
		if err := readAt(f, buf, size-8-n); err != nil {
			return nil, err
		}
	}
	out, err := parseFooter(buf, size)
	if err != nil {
		return nil, err
	}
	out.tail = tailWindow{b: tail, at: size - int64(len(tail))}
	return out, nil
}

// readAt reads exactly len(p) bytes.
func readAt(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at offset %d: %w", len(p), off, err)
}

func parseFooter(b []byte, size int64) (*footer, error) {
	t := &thriftReader{b: b}
	out := &footer{rows: -1}
	var s schemaWalk
	t.fields(func(id int16, typ byte) bool {
		switch id {
		case 2:
			t.structs(typ, func() { s.element(t, out) })
			s.end(t)
		case 3:
			out.rows = t.int(typ)
		case 4:
			t.structs(typ, func() { out.group(t, size) })
		case 6:
			out.writer = string(t.bytes(typ))
		case 7:
			t.structs(typ, func() { out.ordered = append(out.ordered, readOrder(t)) })
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return nil, fmt.Errorf("footer: %w", t.err)
	}
	return out, out.checkRows()
}

func (f *footer) checkRows() error {
	sum := int64(0)
	for i, g := range f.groups {
		if g.rows < 0 || g.rows > math.MaxInt64-sum {
			return corruptf("row group %d claims %d rows", i, g.rows)
		}
		sum += g.rows
	}
	if sum != f.rows {
		return corruptf("the footer claims %d rows, its row groups have %d", f.rows, sum)
	}
	return nil
}

// schemaWalk follows the schema's tree, which is stored depth first with child counts.
type schemaWalk struct {
	open []openGroup // from the root inwards
}

// openGroup is a group whose children are still to come.
type openGroup struct {
	e    *element
	left int
}

// element reads one SchemaElement.
func (w *schemaWalk) element(t *thriftReader, out *footer) {
	e := &element{at: -1}
	l := &e.leaf
	l.phys = -1
	children := int32(0)
	t.fields(func(id int16, typ byte) bool {
		switch id {
		case 1:
			l.phys = t.int32(typ)
		case 2:
			l.length = t.int32(typ)
		case 3:
			rep := t.int32(typ)
			l.optional, l.repeated = rep == repOptional, rep == repRepeated
		case 4:
			l.name = string(t.bytes(typ))
		case 5:
			children = t.int32(typ)
		case 6:
			l.converted(t.int32(typ))
		case 7:
			l.scale = t.int32(typ)
		case 10:
			t.structure(typ, func(id int16, typ byte) bool { return l.logical(t, id, typ) })
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return
	}
	if w.open == nil {
		e.optional, e.repeated = false, false
		out.root = *e
		w.open = []openGroup{{&out.root, int(children)}}
		return
	}
	for len(w.open) > 0 && w.open[len(w.open)-1].left == 0 {
		w.open = w.open[:len(w.open)-1]
	}
	if len(w.open) == 0 || children < 0 || len(w.open) > maxDepth {
		t.fail("schema is not a tree")
		return
	}
	top := &w.open[len(w.open)-1]
	top.left--
	top.e.children = append(top.e.children, e)
	l.maxDef, l.maxRep, l.elemDef = top.e.maxDef, top.e.maxRep, top.e.elemDef
	if l.optional || l.repeated {
		l.maxDef++
	}
	if l.repeated {
		l.maxRep++
		l.elemDef = l.maxDef
	}
	if l.maxDef > maxLevel {
		t.fail("schema nested too deep")
		return
	}
	if children > 0 {
		w.open = append(w.open, openGroup{e, int(children)})
		return
	}
	if l.phys < typeBoolean || l.phys > typeFixedBytes || l.length < 0 {
		t.fail("column without a known physical type")
		return
	}
	e.at = len(out.leaves)
	out.leaves = append(out.leaves, *l)
}

func (w *schemaWalk) end(t *thriftReader) {
	for _, g := range w.open {
		if g.left != 0 && t.err == nil {
			t.fail("schema ends early")
		}
	}
}

// converted takes the annotation of old writers.
func (l *leaf) converted(c int32) {
	switch c {
	case 5:
		l.decimal = true
	case 7, 9:
		l.unit = unitMillis
	case 8, 10:
		l.unit = unitMicros
	}
}

// logical takes one member of the LogicalType union.
func (l *leaf) logical(t *thriftReader, id int16, typ byte) bool {
	switch id {
	case 5: // DECIMAL
		l.decimal = true
		t.structure(typ, func(id int16, typ byte) bool {
			if id == 1 {
				l.scale = t.int32(typ)
			}
			return id == 1
		})
	case 7, 8: // TIME, TIMESTAMP
		t.structure(typ, func(id int16, typ byte) bool {
			if id != 2 {
				return false
			}
			t.structure(typ, func(id int16, typ byte) bool {
				if id >= 1 && id <= 3 {
					l.unit = timeUnit(id)
				}
				return false
			})
			return true
		})
	default:
		return false
	}
	return true
}

// group reads one RowGroup. Counts are checked as they come, so that a short footer cannot ask for much memory.
func (f *footer) group(t *thriftReader, size int64) {
	g := group{rows: -1}
	t.fields(func(id int16, typ byte) bool {
		switch id {
		case 1:
			g.chunks = make([]chunk, 0, len(f.leaves))
			t.structs(typ, func() {
				if len(g.chunks) == len(f.leaves) {
					t.fail("row group with more columns than the schema")
					return
				}
				g.chunks = append(g.chunks, readChunk(t, size))
			})
		case 3:
			g.rows = t.int(typ)
		default:
			return false
		}
		return true
	})
	if t.err == nil && (len(g.chunks) != len(f.leaves) || len(g.chunks) == 0) {
		t.fail("row group with fewer columns than the schema")
	}
	f.groups = append(f.groups, g)
}

func readChunk(t *thriftReader, size int64) chunk {
	c := chunk{stats: chunkStats{nulls: -1}}
	data, dict := int64(-1), int64(-1)
	t.fields(func(id int16, typ byte) bool {
		if id != 3 {
			return c.stats.place(t, id, typ)
		}
		t.structure(typ, func(id int16, typ byte) bool {
			switch id {
			case 2:
				elem, n := t.list(typ)
				for i := 0; i < n && t.err == nil; i++ {
					c.encodings |= 1 << min(uint32(t.int32(elem)), 31)
				}
			case 4:
				c.codec = t.int32(typ)
			case 5:
				c.values = t.int(typ)
			case 6:
				c.full = t.int(typ)
			case 7:
				c.size = t.int(typ)
			case 9:
				data = t.int(typ)
			case 11:
				dict = t.int(typ)
			case 14:
				c.bloom = t.int(typ)
			case 12:
				t.structure(typ, func(id int16, typ byte) bool { return c.stats.bound(t, id, typ) })
			default:
				return false
			}
			return true
		})
		return true
	})
	c.offset = data
	if dict > 0 && dict < data { // some writers put 0 for no dictionary
		c.offset = dict
	}
	if t.err == nil && (c.offset < 4 || c.size < 0 || c.size > size-8 || c.offset > size-8-c.size) {
		t.fail(fmt.Sprintf("column chunk of %d bytes at offset %d lies outside the file", c.size, c.offset))
	}
	return c
}
