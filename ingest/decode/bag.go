package decode

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Tables of a source without key are bags: rows may be equal, and an update or delete names one copy by all its values.
// Such a table goes into a table with a primary key, of two columns more than the source has (Config.Metadata): the hash
// of the row ("row-hash"), which is the key, and the number of its copies ("copies"), which the merge engine sums. A row
// that comes counts 1, one that goes counts -1; what has 0 copies is not there:
//
//	CREATE TABLE bag (hash BINARY(16) PRIMARY KEY, copies BIGINT, ...)
//	  merge-engine = aggregation, fields.copies.aggregate-function = sum
//	SELECT ... FROM bag WHERE copies > 0
//
// The hash is the first 16 bytes of SHA-256 over the columns that are not null, in the order of their field ids, each with
// its id and length. So it stays when columns are renamed, moved or dropped while they were null, or added.

// hashBytes is the length of a row's hash.
const hashBytes = 16

// bindBag checks that a table that counts copies is made for it.
func (d *rowBuilder) bindBag() error {
	copies := -1
	for _, i := range d.metas {
		switch d.cols[i].meta {
		case metaHash:
			d.hash = i
		case metaCopies:
			copies = i
		}
	}
	if d.hash < 0 && copies < 0 {
		return nil
	}
	s := d.cfg.Schema
	switch {
	case d.hash < 0 || copies < 0:
		return fmt.Errorf("metadata row-hash and copies go together: give a column for each")
	case !slices.Equal(s.PrimaryKeys, []string{s.Fields[d.hash].Name}):
		return fmt.Errorf("metadata row-hash: the table's primary key must be %q alone", s.Fields[d.hash].Name)
	case d.cols[d.hash].limit > 0 && d.cols[d.hash].limit < hashBytes:
		return fmt.Errorf("metadata row-hash: column %q holds %d bytes, a hash has %d", s.Fields[d.hash].Name, d.cols[d.hash].limit, hashBytes)
	}
	sum := "fields." + s.Fields[copies].Name + ".aggregate-function"
	if s.Options["merge-engine"] != "aggregation" || s.Options[sum] != "sum" {
		return fmt.Errorf("metadata copies: the table must have the options merge-engine = aggregation and %s = sum", sum)
	}
	d.bag = true
	d.byID = nil
	for i := range d.cols {
		if d.cols[i].meta == metaNone {
			d.byID = append(d.byID, i)
		}
	}
	slices.SortFunc(d.byID, func(a, b int) int { return s.Fields[a].ID - s.Fields[b].ID })
	d.digest = sha256.New()
	return nil
}

// setHash writes the hash of the row d.at.
func (d *rowBuilder) setHash() {
	d.digest.Reset()
	for _, i := range d.byID {
		c := &d.cols[i]
		if c.isNull(d.at) {
			continue
		}
		d.number(uint64(d.cfg.Schema.Fields[i].ID))
		d.digestOf(c, d.at)
	}
	var sum [sha256.Size]byte
	d.cols[d.hash].setData(d.at, d.digest.Sum(sum[:0])[:hashBytes])
}

func (d *rowBuilder) number(v uint64) {
	d.word = binary.LittleEndian.AppendUint64(d.word[:0], v)
	d.digest.Write(d.word)
}

// digestOf adds a value to the hash, so that two values of a column add the same bytes only if they are the same.
func (d *rowBuilder) digestOf(c *column, row int) {
	if c.isNull(row) {
		d.number(0)
		return
	}
	d.number(1)
	switch c.shape {
	case shapeBool:
		d.number(uint64(c.flag[row>>3] >> (row & 7) & 1))
	case shapeInt8:
		d.number(uint64(c.i8[row]))
	case shapeInt16:
		d.number(uint64(c.i16[row]))
	case shapeInt32, shapeDate, shapeTime:
		d.number(uint64(c.i32[row]))
	case shapeInt64, shapeTimestamp:
		d.number(uint64(c.i64[row]))
	case shapeFloat32:
		d.number(math.Float64bits(float64(c.f32[row])))
	case shapeFloat64:
		d.number(math.Float64bits(c.f64[row]))
	case shapeDecimal:
		d.digest.Write(arrow.Decimal128Traits.CastToBytes(c.dec[row : row+1]))
	case shapeText, shapeBytes:
		d.number(uint64(c.off[row+1] - c.off[row]))
		d.digest.Write(c.data[c.off[row]:c.off[row+1]])
	case shapeStruct:
		for i := range c.kids {
			d.digestOf(&c.kids[i], row)
		}
	case shapeList, shapeMap:
		d.number(uint64(c.off[row+1] - c.off[row]))
		for at := c.off[row]; at < c.off[row+1]; at++ {
			for i := range c.kids {
				d.digestOf(&c.kids[i], int(at))
			}
		}
	}
}
