package datafile

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"path"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/schema"
)

// Avro data files (`file.format` avro, and the files of postponed buckets) are object container files of one record for
// each row. Values come row by row, but each goes straight into the buffer of its column. Decoding is by hand, as a
// library would allocate what a count claims.

const (
	avroMagic = "Obj\x01"
	// avroHeader bounds the header, which holds the schema.
	avroHeader = 16 << 20
	// avroBlock bounds a block when decompressed; writers end them at 64 KB.
	avroBlock = 256 << 20
	// avroWindow bounds how far back a zstd block may look.
	avroWindow = 32 << 20
	avroSync   = 16
)

// formatOf gives the format of a file by its extension, as `DataFilePathFactory.formatIdentifier` does.
func formatOf(name string) string {
	ext := strings.TrimPrefix(path.Ext(name), ".")
	switch ext {
	case "avro", "orc", "csv", "json", "text", "lance", "blob":
		return ext
	}
	return "parquet"
}

// CheckName refuses, by extension, files of formats that are not read; the error matches ErrUnsupported.
func CheckName(name string) error {
	switch format := formatOf(name); format {
	case "parquet", "avro":
		return nil
	default:
		return unsupportedf("calve reads Parquet and Avro files, not %s: let Paimon write the table's files again with the "+
			"option \"file.format\" = \"parquet\"", format)
	}
}

// avroReader reads the rows of an Avro file.
type avroReader struct {
	in     chunkReader
	codec  string
	sync   [avroSync]byte
	root   *avroNode
	cols   []*avroNode // wanted columns; nil: the file does not have it
	types  []arrow.DataType
	seq    *avroNode
	kind   *avroNode
	rows   int64 // of the file
	first  int64 // the first block
	block  []byte
	inside int64  // rows left in the block
	buf    []byte // the block's memory
	zstd   *zstd.Decoder
}

// openAvro reads the header and counts the rows.
func (r *Reader) openAvro(fileSchema *schema.Schema, want ReadSpec, step int) error {
	a := &avroReader{in: chunkReader{f: r.f, step: step}}
	a.in.open(chunk{size: r.f.Size()})
	text, err := a.header()
	if err != nil {
		return err
	}
	a.first = a.in.pos
	if err := a.count(); err != nil {
		return err
	}
	if err := a.plan(text, fileSchema, want); err != nil {
		return err
	}
	r.avro, r.left = a, a.rows
	a.in.open(chunk{size: r.f.Size()})
	a.in.seek(a.first)
	return nil
}

// long reads a number at the reader's place.
func (a *avroReader) long() (int64, error) {
	b, err := a.in.peek(binary.MaxVarintLen64)
	if err != nil {
		return 0, err
	}
	v, n := binary.Varint(b)
	if n <= 0 {
		return 0, corruptf("the file ends in a number: %w", io.ErrUnexpectedEOF)
	}
	a.in.skip(n)
	return v, nil
}

// take reads n bytes, a view until the next read.
func (a *avroReader) take(n int64) ([]byte, error) {
	if n < 0 || n > a.in.left() || n > 1<<31-1 {
		return nil, corruptf("%d bytes are claimed, the file has %d more", n, a.in.left())
	}
	b, err := a.in.peek(int(n))
	if err != nil {
		return nil, err
	}
	a.in.skip(int(n))
	return b, nil
}

// header reads magic, metadata and sync marker, and gives the schema.
func (a *avroReader) header() (text []byte, err error) {
	b, err := a.take(min(int64(len(avroMagic)), a.in.left()))
	if err != nil {
		return nil, err
	}
	if string(b) != avroMagic {
		return nil, corruptf("not an Avro container file")
	}
	a.codec = "null"
	for {
		n, err := a.long()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		if n < 0 { // followed by the size of the entries
			if _, err := a.long(); err != nil {
				return nil, err
			}
			n = -n
		}
		for ; n != 0; n-- { // each takes bytes, so the file bounds the count
			key, err := a.text()
			if err != nil {
				return nil, err
			}
			val, err := a.text()
			if err != nil {
				return nil, err
			}
			switch string(key) {
			case "avro.schema":
				text = val
			case "avro.codec":
				a.codec = string(val)
			}
		}
	}
	b, err = a.take(avroSync)
	if err != nil {
		return nil, err
	}
	copy(a.sync[:], b)
	if text == nil {
		return nil, corruptf("the header has no schema")
	}
	return text, nil
}

// text reads a length and that many bytes, and copies them.
func (a *avroReader) text() ([]byte, error) {
	n, err := a.long()
	if err != nil {
		return nil, err
	}
	if n > avroHeader {
		return nil, corruptf("header entry of %d bytes", n)
	}
	b, err := a.take(n)
	return bytes.Clone(b), err
}

// count walks over the blocks, so that a file that is cut off is known before its rows are used.
func (a *avroReader) count() error {
	for a.in.left() > 0 {
		n, err := a.long()
		if err != nil {
			return err
		}
		size, err := a.long()
		if err != nil {
			return err
		}
		if n < 0 || size < 0 || size > a.in.left()-avroSync || a.rows+n < a.rows {
			return corruptf("block of %d rows and %d bytes at offset %d of a file of %d", n, size, a.in.pos, a.in.end)
		}
		a.in.seek(a.in.pos + size)
		b, err := a.take(avroSync)
		if err != nil {
			return err
		}
		if !bytes.Equal(b, a.sync[:]) {
			return corruptf("block before offset %d does not end with the file's sync marker", a.in.pos)
		}
		a.rows += n
	}
	return nil
}

// nextBlock decompresses the next block.
func (a *avroReader) nextBlock() error {
	n, err := a.long()
	if err != nil {
		return err
	}
	size, err := a.long()
	if err != nil {
		return err
	}
	stored, err := a.take(size)
	if err != nil {
		return err
	}
	if a.block, err = a.inflate(stored); err != nil {
		return corruptf("block before offset %d: %w", a.in.pos, err)
	}
	a.buf = a.block
	if n < 0 || n > int64(len(a.block)) { // every row takes a byte
		return corruptf("block of %d bytes claims %d rows", len(a.block), n)
	}
	a.inside = n
	_, err = a.take(avroSync)
	return err
}

// inflate decompresses a block into the reader's buffer, within a bound that grows with its stored size.
func (a *avroReader) inflate(src []byte) ([]byte, error) {
	limit := int(min(avroBlock, 16<<20+(1<<15)*int64(len(src))))
	switch a.codec {
	case "null":
		return append(a.buf[:0], src...), nil // the window moves when the sync marker is read
	case "deflate":
		return readBounded(flate.NewReader(bytes.NewReader(src)), a.buf, limit)
	case "snappy":
		return a.unsnappy(src, limit)
	case "zstandard":
		return a.unzstd(src, limit)
	}
	return nil, unsupportedf("Avro codec %q", a.codec)
}

// unsnappy undoes snappy, behind which Avro puts a checksum of the data.
func (a *avroReader) unsnappy(src []byte, limit int) ([]byte, error) {
	if len(src) < 4 {
		return nil, corruptf("%d bytes", len(src))
	}
	src, sum := src[:len(src)-4], binary.BigEndian.Uint32(src[len(src)-4:])
	n, err := s2.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if n > limit || !plausible(codecSnappy, len(src), n) {
		return nil, corruptf("%d bytes claim %d", len(src), n)
	}
	a.buf = resize(a.buf, n)
	out, err := s2.Decode(a.buf, src)
	if err == nil && crc32.ChecksumIEEE(out) != sum {
		err = corruptf("checksum does not match")
	}
	return out, err
}

// unzstd decodes as a stream, as Java's writer does not say how large a block is: the buffer grows with what comes.
func (a *avroReader) unzstd(src []byte, limit int) ([]byte, error) {
	if a.zstd == nil {
		var err error
		a.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(avroWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
	}
	if err := a.zstd.Reset(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	return readBounded(a.zstd, a.buf, limit)
}

// readBounded reads to the end into buf, or a larger buffer, but no more than the limit.
func readBounded(r io.Reader, buf []byte, limit int) ([]byte, error) {
	out := bytes.NewBuffer(buf[:0])
	n, err := io.Copy(out, io.LimitReader(r, int64(limit)+1))
	if err == nil && n > int64(limit) {
		err = corruptf("more than %d bytes", limit)
	}
	return out.Bytes(), err
}

// next decodes up to n rows, fewer if they are large.
func (a *avroReader) next(n int) (Rows, error) {
	var out Rows
	cost := 0
	for out.N < n && cost < batchBytes {
		if a.inside == 0 {
			if a.in.left() == 0 {
				return Rows{}, corruptf("the file ends early: %w", io.ErrUnexpectedEOF)
			}
			if err := a.nextBlock(); err != nil {
				return Rows{}, err
			}
			continue
		}
		rest, err := a.root.decode(a.block)
		if err != nil {
			return Rows{}, err
		}
		cost += a.root.weight*8 + len(a.block) - len(rest)
		a.block = rest
		out.N++
		if a.inside--; a.inside == 0 && len(rest) > 0 {
			return Rows{}, corruptf("block has %d bytes behind its last row", len(rest))
		}
	}
	for i, c := range a.cols {
		if c == nil {
			out.Cols = append(out.Cols, array.MakeArrayOfNull(memory.DefaultAllocator, a.types[i], out.N))
			continue
		}
		x, err := c.finish()
		if err != nil {
			return Rows{}, err
		}
		out.Cols = append(out.Cols, x)
	}
	return out, a.system(&out)
}

// system finishes sequence numbers and kinds.
func (a *avroReader) system(out *Rows) error {
	if a.seq == nil {
		return nil
	}
	s, err := a.seq.finish()
	if err != nil {
		return err
	}
	k, err := a.kind.finish()
	if err != nil {
		return err
	}
	return setSystem(out, s, k)
}

// nextAvro gives a batch of an Avro file. It has no statistics: rows are left out by Keep only.
func (r *Reader) nextAvro(n int) (out Rows, kept bool, err error) {
	if out, err = r.avro.next(n); err != nil {
		return Rows{}, false, err
	}
	out.First = r.row
	if r.keep == nil {
		return out, true, nil
	}
	early := Rows{N: out.N, First: out.First, Cols: make([]arrow.Array, len(out.Cols))}
	copy(early.Cols, out.Cols[:r.early])
	kept, err = r.keep(early)
	return out, kept, err
}
