package datafile

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/calve-io/calve/schema"
)

// Bloom are the Bloom filters that a Parquet file has of a column, one for each row group (Parquet's split block filters, which
// Paimon's writer makes where the table option parquet.bloom.filter.enabled#COLUMN says so).
type Bloom struct {
	phys   int32
	groups [][]byte // blocks of bloomBlock bytes
}

const (
	bloomBlock = 32
	bloomHead  = 64 // more than a filter's head has
)

// bloomSalts choose one bit in each word of a block (Parquet's BloomFilter.md).
var bloomSalts = [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}

// Bloom reads the filters of a column of a schema, given by its position. It gives nil if a row group has none, if they have more
// bytes than most together, or if values of the column's type are not looked for in them.
func (d *File) Bloom(read *schema.Schema, col int, most int64) (_ *Bloom, err error) {
	defer recovered(&err, ErrCorrupt)
	if d.foot == nil {
		return nil, nil
	}
	at, ok := d.schema.FieldByID(read.Fields[col].ID)
	if !ok {
		return nil, nil
	}
	then, now := d.schema.Fields[at].Type, read.Fields[col].Type
	then.NotNull, now.NotNull = true, true
	e := d.foot.root.child(d.schema.Fields[at].Name)
	if !then.Equal(now) && !(wholeRoot(then.Root) && wholeRoot(now.Root)) || e == nil || e.at < 0 || !bloomed(now.Root, e.phys) {
		return nil, nil
	}
	b := &Bloom{phys: e.phys}
	for g := range d.foot.groups {
		if d.foot.groups[g].rows == 0 {
			continue
		}
		bits, err := d.bloomBits(d.foot.groups[g].chunks[e.at].bloom, most)
		if err != nil {
			return nil, fmt.Errorf("data file %s: Bloom filter of column %q: %w", d.name, e.name, err)
		}
		if bits == nil {
			return nil, nil
		}
		most -= int64(len(bits))
		b.groups = append(b.groups, bits)
	}
	return b, nil
}

func wholeRoot(r schema.Root) bool { return r >= schema.TinyInt && r <= schema.BigInt }

// bloomed reports whether values of a type are hashed as they are in the file: numbers of other types may have another unit.
func bloomed(r schema.Root, phys int32) bool {
	switch {
	case wholeRoot(r):
		return phys == typeInt32 || phys == typeInt64
	case r == schema.Date:
		return phys == typeInt32
	case r == schema.Char, r == schema.VarChar, r == schema.Binary, r == schema.VarBinary:
		return phys == typeByteArray
	}
	return false
}

// bloomBits reads the filter at a place, nil if there is none that is known.
func (d *File) bloomBits(at, most int64) ([]byte, error) {
	size := d.f.Size()
	if at == 0 {
		return nil, nil
	}
	if at < 4 || at >= size {
		return nil, corruptf("it is said to begin at %d, the file has %d bytes", at, size)
	}
	head, err := d.foot.tail.read(d.f, at, min(bloomHead, size-at))
	if err != nil {
		return nil, err
	}
	t := &thriftReader{b: head}
	n, known := int64(0), 0
	t.fields(func(id int16, typ byte) bool {
		switch id {
		case 1:
			n = t.int(typ)
		case 2, 3, 4: // the only ones there are of algorithms, hashes and compressions have number 1
			t.structure(typ, func(which int16, _ byte) bool {
				if which == 1 {
					known++
				}
				return false
			})
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return nil, t.err
	}
	at += int64(t.pos)
	if n <= 0 || n%bloomBlock != 0 || n > size-at {
		return nil, corruptf("%d bytes of it", n)
	}
	if known != 3 || n > most {
		return nil, nil
	}
	if bits, err := d.foot.tail.read(d.f, at, n); bits != nil || err != nil {
		return bits, err
	}
	bits := make([]byte, n)
	return bits, readAt(d.f, bits, at)
}

// Size is how many bytes the filters have.
func (b *Bloom) Size() (n int64) {
	for _, g := range b.groups {
		n += int64(len(g))
	}
	return n
}

// May reports whether the file may have a value, given as schema.Cell gives it.
func (b *Bloom) May(cell any) bool {
	hash, ok := b.hash(cell)
	if !ok {
		return true
	}
	for _, g := range b.groups {
		if mayHave(g, hash) {
			return true
		}
	}
	return false
}

func (b *Bloom) hash(cell any) (uint64, bool) {
	whole := int64(0)
	switch v := cell.(type) {
	case int8:
		whole = int64(v)
	case int16:
		whole = int64(v)
	case int32:
		whole = int64(v)
	case int64:
		whole = v
	case string:
		return xxhash.Sum64String(v), b.phys == typeByteArray
	case []byte:
		return xxhash.Sum64(v), b.phys == typeByteArray
	default:
		return 0, false
	}
	var buf [8]byte
	binary.LittleEndian.PutUint64(buf[:], uint64(whole))
	switch {
	case b.phys == typeInt64:
		return xxhash.Sum64(buf[:]), true
	case b.phys == typeInt32 && whole == int64(int32(whole)):
		return xxhash.Sum64(buf[:4]), true
	}
	return 0, false
}

func mayHave(bits []byte, hash uint64) bool {
	blocks := uint64(len(bits) / bloomBlock)
	block := bits[(hash>>32)*blocks>>32*bloomBlock:][:bloomBlock]
	for i, salt := range bloomSalts {
		if binary.LittleEndian.Uint32(block[4*i:])&(1<<(uint32(hash)*salt>>27)) == 0 {
			return false
		}
	}
	return true
}
