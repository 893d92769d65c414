package indexfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf16"

	"github.com/cespare/xxhash/v2"
)

// A file index tells of a data file which values its columns have (`fileindex.FileIndexFormat`, paimon-format §10):
//
//	[magic 8][version 4][size of the head 4][columns 4]
//	for each column: [name][indexes 4], for each of its indexes: [kind][start 4][length 4]
//	[length of what later versions add 4]… [the indexes]
//
// All numbers are big-endian, names have a length of 2 bytes, and a start counts from the beginning of the file.
const (
	fileIndexMagic   = 1493475289347502
	fileIndexVersion = 1
	fileIndexFixed   = 8 + 4 + 4 // magic, version, size of the head
)

// BloomFilter is the kind of an index that a Bloom filter is.
const BloomFilter = "bloom-filter"

// MaxFileIndexHead bounds the head of a file index that is read.
const MaxFileIndexHead = 1 << 20

// ErrFileIndex marks a file index that cannot be used.
var ErrFileIndex = errors.New("corrupt file index")

// ColumnIndex is one index of one column: its bytes lie in the file index from Start on.
type ColumnIndex struct {
	Column, Kind  string
	Start, Length int64
}

// FileIndexHead gives the size of the head of a file index that begins with the given bytes, of which 16 are enough.
func FileIndexHead(begin []byte) (int64, error) {
	if len(begin) < fileIndexFixed {
		return 0, fmt.Errorf("%w: %d bytes", ErrFileIndex, len(begin))
	}
	if m, v := binary.BigEndian.Uint64(begin), binary.BigEndian.Uint32(begin[8:]); m != fileIndexMagic || v != fileIndexVersion {
		return 0, fmt.Errorf("%w: magic %d, version %d", ErrFileIndex, m, v)
	}
	n := int64(binary.BigEndian.Uint32(begin[12:]))
	if n < fileIndexFixed || n > MaxFileIndexHead {
		return 0, fmt.Errorf("%w: a head of %d bytes", ErrFileIndex, n)
	}
	return n, nil
}

// DecodeFileIndex reads the head of a file index of the given size. Every ColumnIndex lies within the file.
func DecodeFileIndex(head []byte, size int64) ([]ColumnIndex, error) {
	n, err := FileIndexHead(head)
	if err != nil {
		return nil, err
	}
	if n > int64(len(head)) {
		return nil, fmt.Errorf("%w: the head has %d bytes, there are %d", ErrFileIndex, n, len(head))
	}
	r := indexReader{b: head[fileIndexFixed:n]}
	var out []ColumnIndex
	for range r.count(6) {
		name := r.text()
		for range r.count(10) {
			x := ColumnIndex{Column: name, Kind: r.text(), Start: int64(r.int32()), Length: int64(r.int32())}
			if x.Start < n || x.Length < 0 || x.Start > size || x.Length > size-x.Start {
				r.bad = true
			}
			out = append(out, x)
		}
	}
	if r.bad {
		return nil, fmt.Errorf("%w: the head is damaged", ErrFileIndex)
	}
	return out, nil
}

// indexReader reads the head; the first mistake sticks.
type indexReader struct {
	b   []byte
	bad bool
}

func (r *indexReader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad, r.b = true, nil
		return make([]byte, min(n, 8))
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *indexReader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }

// count reads the number of things that take at least some bytes each.
func (r *indexReader) count(least int) int {
	n := int(r.int32())
	if n < 0 || n > len(r.b)/least {
		r.bad = true
		return 0
	}
	return n
}

func (r *indexReader) text() string {
	n := int(binary.BigEndian.Uint16(r.take(2)))
	if n > len(r.b) {
		r.bad = true
		return ""
	}
	return string(r.take(n))
}

// IndexName gives a column name as file indexes have it: in Java's modified UTF-8, where zero has two bytes and a
// character beyond 16 bits is a pair of surrogates.
func IndexName(name string) string {
	var out []byte
	put := func(u uint16) {
		switch {
		case u > 0 && u < 0x80:
			out = append(out, byte(u))
		case u < 0x800:
			out = append(out, 0xc0|byte(u>>6), 0x80|byte(u&0x3f))
		default:
			out = append(out, 0xe0|byte(u>>12), 0x80|byte(u>>6&0x3f), 0x80|byte(u&0x3f))
		}
	}
	for _, u := range utf16.Encode([]rune(name)) {
		put(u)
	}
	return string(out)
}

// EncodeFileIndex writes a file index of one Bloom filter for each column, in the given order.
func EncodeFileIndex(columns []string, filters []*Bloom) ([]byte, error) {
	head := fileIndexFixed + 4 + 4
	for _, c := range columns {
		n := len(IndexName(c))
		if n > math.MaxUint16 {
			return nil, fmt.Errorf("file index: the name of a column has %d bytes", n)
		}
		head += 2 + n + 4 + 2 + len(BloomFilter) + 8
	}
	out := binary.BigEndian.AppendUint64(nil, fileIndexMagic)
	out = binary.BigEndian.AppendUint32(out, fileIndexVersion)
	out = binary.BigEndian.AppendUint32(out, uint32(head))
	out = binary.BigEndian.AppendUint32(out, uint32(len(columns)))
	text := func(s string) { out = append(binary.BigEndian.AppendUint16(out, uint16(len(s))), s...) }
	at := int64(head)
	for i, c := range columns {
		text(IndexName(c))
		out = binary.BigEndian.AppendUint32(out, 1)
		text(BloomFilter)
		n := int64(4 + len(filters[i].bits))
		if at+n > math.MaxInt32 {
			return nil, fmt.Errorf("file index: filters of more than 2 GiB; lower file-index.%s.%s.items", BloomFilter, c)
		}
		out = binary.BigEndian.AppendUint32(out, uint32(at))
		out = binary.BigEndian.AppendUint32(out, uint32(n))
		at += n
	}
	out = binary.BigEndian.AppendUint32(out, 0)
	for _, f := range filters {
		out = binary.BigEndian.AppendUint32(out, uint32(f.hashes))
		out = append(out, f.bits...)
	}
	return out, nil
}

// Bloom is a Bloom filter (`utils.BloomFilter64`): it knows for certain which values are not there.
type Bloom struct {
	hashes int
	bits   []byte
}

// maxHashes is far above what any useful filter has.
const maxHashes = 64

// NewBloom makes an empty filter for a number of different values and a share of wrong answers.
func NewBloom(items int, wrong float64) (*Bloom, error) {
	if items <= 0 || !(wrong > 0 && wrong < 1) {
		return nil, fmt.Errorf("bloom filter of %d items with %v wrong answers: at least 1 item and a share between 0 and 1 are needed", items, wrong)
	}
	n := int64(-float64(items) * math.Log(wrong) / (math.Ln2 * math.Ln2))
	if n += 8 - n%8; n > math.MaxInt32 {
		return nil, fmt.Errorf("bloom filter of %d items with %v wrong answers: too large", items, wrong)
	}
	k := max(1, int(math.Floor(float64(n)/float64(items)*math.Ln2+0.5)))
	return &Bloom{hashes: min(k, maxHashes), bits: make([]byte, n/8)}, nil
}

// DecodeBloom reads the filter of an index. It shares the memory of the input.
func DecodeBloom(b []byte) (*Bloom, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%w: a bloom filter of %d bytes", ErrFileIndex, len(b))
	}
	k := binary.BigEndian.Uint32(b)
	if k < 1 || k > maxHashes {
		return nil, fmt.Errorf("%w: a bloom filter with %d hash functions", ErrFileIndex, k)
	}
	return &Bloom{hashes: int(k), bits: b[4:]}, nil
}

// each gives the bits of a hash until f reports false.
func (b *Bloom) each(hash uint64, f func(at int32, mask byte) bool) {
	h1, h2, n := int32(hash), int32(hash>>32), int64(len(b.bits))*8
	for i := int32(1); i <= int32(b.hashes); i++ {
		c := h1 + i*h2
		if c < 0 {
			c = ^c
		}
		p := int64(c) % n
		if !f(int32(p/8), 1<<(p%8)) {
			return
		}
	}
}

// Add puts the hash of a value in.
func (b *Bloom) Add(hash uint64) {
	b.each(hash, func(at int32, mask byte) bool { b.bits[at] |= mask; return true })
}

// May reports whether a value of the hash may have been put in.
func (b *Bloom) May(hash uint64) bool {
	may := true
	b.each(hash, func(at int32, mask byte) bool { may = b.bits[at]&mask != 0; return may })
	return may
}

// HashBytes is the hash of a text or binary: xxHash64.
func HashBytes(v []byte) uint64 { return xxhash.Sum64(v) }

// HashText is HashBytes of a text.
func HashText(v string) uint64 { return xxhash.Sum64String(v) }

// HashInt is the hash of a number (`FastHash.getLongHash`): Thomas Wang's, with shifts that keep the sign.
func HashInt(v int64) uint64 {
	v = ^v + v<<21
	v ^= v >> 24
	v += v<<3 + v<<8
	v ^= v >> 14
	v += v<<2 + v<<4
	v ^= v >> 28
	v += v << 31
	return uint64(v)
}
