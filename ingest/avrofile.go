package ingest

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/ingest/decode"
)

// avroFile reads the records of an Avro object container file (Avro 1.12, "Object Container Files"): a header with the
// schema, then blocks of records, each with its length and behind it a marker that stands in the header.
type avroFile struct {
	in     *bufio.Reader
	pos    int64
	writer decode.WriterSchema
	codec  string
	marker [16]byte
	sizer  *decode.AvroSizer
	zstd   *zstd.Decoder

	stored []byte // of the block as it stands in the file
	buf    []byte // and unpacked
	block  []byte // what is left of it
	left   int64  // records in it
}

// Bounds of what a file may hold in one piece.
const (
	maxAvroBlock  = 256 << 20
	maxAvroHeader = 16 << 20
	maxAvroEmpty  = 1 << 16 // records of a block beyond one for each of its bytes
)

// openAvroFile reads the header.
func openAvroFile(r io.Reader) (*avroFile, error) {
	f := &avroFile{in: bufio.NewReaderSize(r, 256<<10), codec: "null", writer: decode.WriterSchema{Kind: decode.AvroSchema}}
	magic := make([]byte, 4)
	if err := f.read(magic); err != nil || string(magic) != "Obj\x01" {
		return nil, errors.New("it is no Avro object container file: it does not begin with Obj and 1")
	}
	size := int64(0)
	for {
		n, err := f.long()
		if err == nil && n < 0 {
			n = -n
			_, err = f.long()
		}
		if err != nil || n < 0 {
			return nil, f.broken("the header", err)
		}
		if n == 0 {
			break
		}
		for ; n > 0; n-- {
			var pair [2][]byte
			for i := range pair {
				if pair[i], err = f.bytes(maxAvroHeader - size); err != nil {
					return nil, f.broken("the header", err)
				}
				size += int64(len(pair[i])) + 1
			}
			switch string(pair[0]) {
			case "avro.schema":
				f.writer.Text = string(pair[1])
			case "avro.codec":
				f.codec = string(pair[1])
			}
		}
	}
	if err := f.read(f.marker[:]); err != nil {
		return nil, f.broken("the header", err)
	}
	switch f.codec {
	case "null", "deflate", "snappy", "zstandard":
	default:
		return nil, fmt.Errorf("its codec %q is not known; null, deflate, snappy and zstandard are", f.codec)
	}
	var err error
	f.sizer, err = decode.NewAvroSizer(f.writer)
	return f, err
}

func (f *avroFile) broken(what string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s at byte %d is broken: %w", what, f.pos, err)
}

func (f *avroFile) read(b []byte) error {
	n, err := io.ReadFull(f.in, b)
	f.pos += int64(n)
	return err
}

func (f *avroFile) long() (int64, error) {
	u := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		c, err := f.in.ReadByte()
		if err != nil {
			return 0, err
		}
		f.pos++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), nil
		}
	}
	return 0, errors.New("a number of more than 64 bits")
}

// bytes reads a length and as many bytes, which are not allocated before they are there.
func (f *avroFile) bytes(most int64) ([]byte, error) {
	n, err := f.long()
	switch {
	case err != nil:
		return nil, err
	case n < 0 || n > most:
		return nil, fmt.Errorf("a length of %d, beyond %d", n, most)
	}
	var b bytes.Buffer
	got, err := io.CopyN(&b, f.in, n)
	f.pos += got
	return b.Bytes(), err
}

// nextBlock reads the next block; io.EOF: there is none. Of one that is skipped whole nothing is unpacked.
func (f *avroFile) nextBlock(skip *int64) error {
	n, err := f.long()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if err != nil || n < 0 {
		return f.broken("a block", err)
	}
	size, err := f.long()
	if err != nil || size < 0 || size > maxAvroBlock {
		return f.broken("a block", cmpErr(err, fmt.Errorf("it has %d bytes, more than %d", size, maxAvroBlock)))
	}
	b := bytes.NewBuffer(f.stored[:0])
	got, err := io.CopyN(b, f.in, size)
	f.pos += got
	f.stored = b.Bytes()
	var marker [16]byte
	if err == nil {
		err = f.read(marker[:])
	}
	if err == nil && marker != f.marker {
		err = errors.New("the marker behind it is not the file's")
	}
	if err != nil {
		return f.broken("a block", err)
	}
	if n <= *skip {
		*skip -= n
		return nil
	}
	if f.block, err = f.unpack(); err == nil && n-int64(len(f.block)) > maxAvroEmpty {
		err = fmt.Errorf("%d bytes claim to be %d records", len(f.block), n)
	}
	if err != nil {
		f.block = nil
		return f.broken("a block", err)
	}
	f.left = n
	return nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// unpack undoes the codec.
func (f *avroFile) unpack() ([]byte, error) {
	switch src := f.stored; f.codec {
	case "deflate":
		return f.all(flate.NewReader(bytes.NewReader(src)))
	case "zstandard":
		if f.zstd == nil {
			var err error
			if f.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20), zstd.WithDecoderLowmem(true)); err != nil {
				return nil, err
			}
		}
		if err := f.zstd.Reset(bytes.NewReader(src)); err != nil {
			return nil, err
		}
		return f.all(f.zstd)
	case "snappy": // behind it is a checksum
		if len(src) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		src, sum := src[:len(src)-4], binary.BigEndian.Uint32(src[len(src)-4:])
		n, err := s2.DecodedLen(src)
		if err != nil {
			return nil, err
		}
		if n > maxAvroBlock || n > 64*len(src)+64 { // no 3 bytes come to more than 64
			return nil, fmt.Errorf("%d bytes claim to be %d", len(src), n)
		}
		out, err := s2.Decode(f.buf[:cap(f.buf)], src)
		if err == nil && crc32.ChecksumIEEE(out) != sum {
			err = errors.New("the checksum does not match")
		}
		f.buf = out
		return out, err
	}
	return f.stored, nil
}

func (f *avroFile) all(r io.Reader) ([]byte, error) {
	b := bytes.NewBuffer(f.buf[:0])
	n, err := io.Copy(b, io.LimitReader(r, maxAvroBlock+1))
	if err == nil && n > maxAvroBlock {
		err = fmt.Errorf("it has more than %d bytes", maxAvroBlock)
	}
	f.buf = b.Bytes()
	return f.buf, err
}

// skip passes over records.
func (f *avroFile) skip(n int64) error {
	for n > 0 {
		if f.left == 0 {
			if err := f.nextBlock(&n); err != nil {
				return err
			}
			continue
		}
		if _, err := f.next(); err != nil {
			return err
		}
		n--
	}
	return nil
}

// next gives the next record, valid until the one after; io.EOF: there is none.
func (f *avroFile) next() ([]byte, error) {
	for f.left == 0 {
		if len(f.block) > 0 {
			return nil, f.broken("a block", fmt.Errorf("%d bytes are behind its records", len(f.block)))
		}
		none := int64(0)
		if err := f.nextBlock(&none); err != nil {
			return nil, err
		}
	}
	n, err := f.sizer.Size(f.block)
	if err != nil {
		return nil, f.broken("a record in the block before", err)
	}
	out := f.block[:n:n]
	f.block = f.block[n:]
	f.left--
	return out, nil
}

// close frees what the codec holds.
func (f *avroFile) close() {
	if f.zstd != nil {
		f.zstd.Close()
	}
}
