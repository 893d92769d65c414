// Package indexfile reads and writes what lies in a table's index files: deletion vectors, the key hashes of tables
// with dynamic buckets, and the file indexes beside data files. It knows bytes only; which file belongs to what is told by
// the manifests.
package indexfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// ErrCorrupt: the bytes are no index file, or a damaged one.
var ErrCorrupt = errors.New("corrupt index file")

// Forms of deletion vectors (`deletionvectors.BitmapDeletionVector`, `Bitmap64DeletionVector`; paimon-format §13).
const (
	magic32 = 1581511376 // big-endian
	magic64 = 1681511377 // little-endian
	// frame is what surrounds a vector: its length before it, the CRC-32 of its bytes behind it.
	frame = 8
	// MaxVector bounds a vector: 2^32 positions as bitmaps are 512 MB; data files hold far fewer rows.
	MaxVector = 128 << 20
)

// Span is a range of rows: N rows from Start on.
type Span struct{ Start, N int32 }

// Vector holds the positions of a data file's deleted rows.
type Vector struct {
	high []uint32 // upper halves of the positions, ascending
	low  []*roaring.Bitmap
}

// FrameSize is how many bytes of the index file DecodeVector needs from the vector's offset on, given the length that the
// index manifest states. The two forms count it differently, so it may be more than there is in the file.
func FrameSize(stated int64) int64 { return stated + frame }

// DecodeVector reads the vector at the start of data, which may go on behind it. stated is the length in the index
// manifest. Errors match ErrCorrupt.
func DecodeVector(data []byte, stated int64) (v *Vector, err error) {
	defer recovered(&err)
	corrupt := func(format string, args ...any) (*Vector, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
	if len(data) < frame+4 {
		return corrupt("%d bytes hold no deletion vector", len(data))
	}
	n := int64(int32(binary.BigEndian.Uint32(data)))
	if n < 4 || n > MaxVector || n > int64(len(data)-frame) {
		return corrupt("the deletion vector is said to have %d bytes, %d are there", n, len(data)-frame)
	}
	body := data[4 : 4+n]
	if got, want := crc32.ChecksumIEEE(body), binary.BigEndian.Uint32(data[4+n:]); got != want {
		return corrupt("checksum of the deletion vector is %08x, %08x is stated", got, want)
	}
	want := n
	switch {
	case binary.BigEndian.Uint32(body) == magic32:
		v, err = decode32(body[4:])
	case binary.LittleEndian.Uint32(body) == magic64:
		want += frame
		v, err = decode64(body[4:])
	default:
		return corrupt("a deletion vector begins with %x, which is neither form that Paimon writes", body[:4])
	}
	if err == nil && stated != want {
		return corrupt("the deletion vector has %d bytes, its manifest says %d", want, stated)
	}
	return v, err
}

func decode32(data []byte) (*Vector, error) {
	b, n, err := decodeBitmap(data)
	if err == nil && n != len(data) {
		err = fmt.Errorf("%w: %d bytes after the bitmap", ErrCorrupt, len(data)-n)
	}
	if err != nil {
		return nil, err
	}
	return &Vector{high: []uint32{0}, low: []*roaring.Bitmap{b}}, nil
}

func decode64(data []byte) (*Vector, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("%w: the vector ends in its header", ErrCorrupt)
	}
	count := binary.LittleEndian.Uint64(data)
	data = data[8:]
	const least = 4 + 8 // key, and an empty bitmap
	if count > uint64(len(data)/least) {
		return nil, fmt.Errorf("%w: %d bitmaps in %d bytes", ErrCorrupt, count, len(data))
	}
	v := &Vector{}
	for range count {
		if len(data) < 4 {
			return nil, fmt.Errorf("%w: the vector ends before its last bitmap", ErrCorrupt)
		}
		key := binary.LittleEndian.Uint32(data)
		if k := len(v.high); k > 0 && v.high[k-1] >= key {
			return nil, fmt.Errorf("%w: bitmap %d follows bitmap %d", ErrCorrupt, key, v.high[k-1])
		}
		b, n, err := decodeBitmap(data[4:])
		if err != nil {
			return nil, err
		}
		v.high, v.low = append(v.high, key), append(v.low, b)
		data = data[4+n:]
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last bitmap", ErrCorrupt, len(data))
	}
	return v, nil
}

// decodeBitmap reads a bitmap of the portable Roaring form and says how many bytes it took. The library takes memory
// for what the bytes hold, at most 256 KiB ahead of them; that positions ascend is seen when they are used.
func decodeBitmap(data []byte) (*roaring.Bitmap, int, error) {
	b := roaring.New()
	n, err := b.ReadFrom(bytes.NewReader(data))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if n < 0 || n > int64(len(data)) {
		return nil, 0, fmt.Errorf("%w: the bitmap is longer than its %d bytes", ErrCorrupt, len(data))
	}
	return b, int(n), nil
}

// Len is the number of positions.
func (v *Vector) Len() int64 {
	n := uint64(0)
	for _, b := range v.low {
		n += b.GetCardinality()
	}
	return int64(min(n, math.MaxInt64))
}

// Has reports whether a row is deleted. It is safe for concurrent use.
func (v *Vector) Has(row int64) (_ bool, err error) {
	defer recovered(&err)
	if row < 0 {
		return false, nil
	}
	i, ok := slices.BinarySearch(v.high, uint32(row>>32))
	return ok && v.low[i].Contains(uint32(row)), nil
}

// Cursor walks along the rows of the data file and says which are alive. It is for one goroutine; the Vector may be shared.
type Cursor struct {
	v     *Vector
	part  int // of v.high
	it    roaring.ManyIntIterable
	buf   []uint32
	rest  []uint32 // of buf, not yet used
	next  int64    // next deleted position; -1: none left, or not begun
	begun bool
}

// Cursor begins at row 0.
func (v *Vector) Cursor() *Cursor { return &Cursor{v: v, next: -1, buf: make([]uint32, 256)} }

// Live gives the rows alive among the n rows from first on, as spans relative to first, appended to dst. Calls go forward:
// first is not below the end of the rows that were asked for before.
func (c *Cursor) Live(dst []Span, first int64, n int) (_ []Span, err error) {
	defer recovered(&err)
	if !c.begun {
		c.begun = true
		if err := c.advance(); err != nil {
			return dst, err
		}
	}
	for c.next >= 0 && c.next < first {
		if err := c.advance(); err != nil {
			return dst, err
		}
	}
	at, end := first, first+int64(n)
	for at < end {
		stop := end
		if c.next >= 0 && c.next < end {
			stop = c.next
		}
		if stop > at {
			dst = append(dst, Span{Start: int32(at - first), N: int32(stop - at)})
		}
		at = stop
		if stop < end { // a deleted row
			at++
			if err := c.advance(); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

// Beyond reports whether the next position lies beyond a file of so many rows: then the vector belongs to a longer one.
// It is to be asked after the last row.
func (c *Cursor) Beyond(rows int64) bool { return c.next >= rows }

// advance finds the next deleted position. Positions of a sound vector ascend.
func (c *Cursor) advance() error {
	for len(c.rest) == 0 {
		if c.it == nil {
			if c.part == len(c.v.low) {
				c.next = -1
				return nil
			}
			c.it = c.v.low[c.part].ManyIterator()
		}
		if n := c.it.NextMany(c.buf); n > 0 {
			c.rest = c.buf[:n]
			break
		}
		c.it, c.part = nil, c.part+1
	}
	pos := uint64(c.v.high[c.part])<<32 | uint64(c.rest[0])
	c.rest = c.rest[1:]
	if pos > math.MaxInt64 || int64(pos) <= c.next {
		return fmt.Errorf("%w: position %d follows position %d", ErrCorrupt, pos, c.next)
	}
	c.next = int64(pos)
	return nil
}

// Check walks along the whole vector: its positions ascend and lie within a data file of so many rows.
func (v *Vector) Check(rows int64) (err error) {
	defer recovered(&err)
	c := v.Cursor()
	for {
		if err := c.advance(); err != nil || c.next < 0 {
			return err
		}
		if c.next >= rows {
			return fmt.Errorf("%w: position %d in a file of %d rows", ErrCorrupt, c.next, rows)
		}
	}
}

// recovered turns a panic of the bitmap library into an error: no input may end the process.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: the bitmap decoder gave up: %v", ErrCorrupt, r)
	}
}
