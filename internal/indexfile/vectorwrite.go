package indexfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// vectorVersion is the first byte of a file of deletion vectors.
const vectorVersion = 1

// NewVector makes an empty vector.
func NewVector() *Vector { return &Vector{} }

// Clone copies a vector, so that it can be added to.
func (v *Vector) Clone() *Vector {
	out := &Vector{high: slices.Clone(v.high), low: make([]*roaring.Bitmap, len(v.low))}
	for i, b := range v.low {
		out.low[i] = b.Clone()
	}
	return out
}

// Add marks a row as deleted. It is not safe for concurrent use.
func (v *Vector) Add(row int64) (err error) {
	defer recovered(&err)
	if row < 0 {
		return fmt.Errorf("row %d cannot be deleted", row)
	}
	i, ok := slices.BinarySearch(v.high, uint32(row>>32))
	if !ok {
		v.high = slices.Insert(v.high, i, uint32(row>>32))
		v.low = slices.Insert(v.low, i, roaring.New())
	}
	v.low[i].Add(uint32(row))
	return nil
}

// Placed says where in an index file a vector is, as the index manifest states it.
type Placed struct {
	Offset, Length int64
	Deleted        int64 // rows
}

// EncodeVectors makes a file of vectors, in their order, with 64-bit or 32-bit bitmaps (`deletionvectors.DeletionFileWriter`,
// paimon-format §13). 32-bit ones hold rows below 2^32 only.
func EncodeVectors(vectors []*Vector, wide bool) (_ []byte, _ []Placed, err error) {
	defer recovered(&err)
	file, places := []byte{vectorVersion}, make([]Placed, len(vectors))
	for i, v := range vectors {
		var body bytes.Buffer
		encode := v.encode32
		if wide {
			encode = v.encode64
		}
		if err := encode(&body); err != nil {
			return nil, nil, err
		}
		if body.Len() > MaxVector || len(file)+body.Len()+frame > math.MaxInt32 {
			return nil, nil, fmt.Errorf("deletion vectors of a bucket take more than 2 GiB, or one of them more than %d bytes: compact the bucket in full", MaxVector)
		}
		places[i] = Placed{Offset: int64(len(file)), Length: int64(body.Len()), Deleted: v.Len()}
		if wide {
			places[i].Length += frame
		}
		file = binary.BigEndian.AppendUint32(file, uint32(body.Len()))
		file = append(file, body.Bytes()...)
		file = binary.BigEndian.AppendUint32(file, crc32.ChecksumIEEE(body.Bytes()))
	}
	return file, places, nil
}

func (v *Vector) encode32(to *bytes.Buffer) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], magic32)
	to.Write(head[:])
	b := roaring.New()
	for i, high := range v.high {
		if high != 0 && !v.low[i].IsEmpty() {
			return fmt.Errorf("a deletion vector of 32 bits cannot hold row %d: set deletion-vectors.bitmap64", int64(high)<<32+int64(v.low[i].Minimum()))
		}
		if high == 0 {
			b = v.low[i].Clone()
		}
	}
	b.RunOptimize()
	_, err := b.WriteTo(to)
	return err
}

func (v *Vector) encode64(to *bytes.Buffer) error {
	head := binary.LittleEndian.AppendUint32(nil, magic64)
	to.Write(binary.LittleEndian.AppendUint64(head, uint64(len(v.high))))
	for i, high := range v.high {
		to.Write(binary.LittleEndian.AppendUint32(nil, high))
		b := v.low[i].Clone()
		b.RunOptimize()
		if _, err := b.WriteTo(to); err != nil {
			return err
		}
	}
	return nil
}
