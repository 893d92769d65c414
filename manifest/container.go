package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
)

// Avro object container files. Writing goes through ocf; reading walks the frame here, because an error must name the
// exact offset, because the header schema is nearly always our own text (parsing it again for every small file would
// cost more than reading it), and because the size of a block must be bounded by the size of the file.

const (
	maxHeaderEntries = 64
	maxHeaderValue   = 1 << 20
	// blockSize is the uncompressed size of the blocks that are written, close to what Paimon's writer produces.
	blockSize = 64 << 10
	// A block may decode to expandBase + expandFactor × its stored size. Manifests hold random file names, which do
	// not compress beyond a factor of about 30; a tiny file that claims to hold gigabytes is refused.
	expandBase   = 1 << 20
	expandFactor = 256
	maxBlock     = 256 << 20
)

var containerMagic = []byte{'O', 'b', 'j', 1}

// errTruncated: the file ends inside a value.
var errTruncated = errors.New("file ends early")

// encoderCodec is shared by all files: an encoder holds megabytes, and blocks are compressed in microseconds.
var encoderCodec = sync.OnceValues(func() (ocf.Codec, error) {
	c, err := ocf.ZstdCodec([]zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(256 << 10),
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("zstandard encoder: %w", err)
	}
	return ocf.NopCloser(c), nil
})

// zstdDecoder is shared by all reads. It decodes only into the buffer it is given.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock), zstd.WithDecodeAllCapLimit(true))
})

// encodeContainer writes records as one Avro container file. The sync marker is derived from the name, so that equal
// input gives equal bytes.
func encodeContainer[T any](name string, s *avro.Schema, records []T) ([]byte, error) {
	codec, err := encoderCodec()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(name))
	var buf bytes.Buffer
	w, err := ocf.NewWriter(&buf, s, ocf.WithCodec(codec), ocf.WithBlockBytes(blockSize), ocf.WithSyncMarker([16]byte(sum[:16])))
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	for i := range records {
		if err := w.Encode(&records[i]); err != nil {
			return nil, fmt.Errorf("write %s: record %d: %w", name, i, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return buf.Bytes(), nil
}

// container reads one file that is held in memory.
type container struct {
	name  string
	data  []byte
	pos   int
	sync  []byte
	codec string
}

// corrupt describes a fault at the reader's position.
func (c *container) corrupt(reason string, err error) error {
	return &CorruptError{Name: c.name, Offset: int64(c.pos), Reason: reason, Err: err}
}

// decodeContainer calls each for every record of the file. schemaOf turns the header's schema text into the schema to
// decode with; each receives the undecoded rest of a block and returns what follows its record.
func decodeContainer(name string, data []byte, schemaOf func(text string) error, each func(block []byte) ([]byte, error)) error {
	c := &container{name: name, data: data}
	text, err := c.header()
	if err != nil {
		return err
	}
	if err := schemaOf(text); err != nil {
		return c.corrupt("the schema in the header cannot be used", err)
	}
	for c.pos < len(c.data) {
		if err := c.block(each); err != nil {
			return err
		}
	}
	return nil
}

// header reads magic, metadata and sync marker, and gives the schema text.
func (c *container) header() (string, error) {
	if !bytes.HasPrefix(c.data, containerMagic) {
		return "", c.corrupt("not an Avro container file", nil)
	}
	c.pos = len(containerMagic)
	meta := map[string]string{}
	for {
		n, err := c.long()
		if err != nil {
			return "", c.corrupt("header", err)
		}
		if n == 0 {
			break
		}
		if n < 0 { // a negative count is followed by the byte size of the block
			if _, err := c.long(); err != nil {
				return "", c.corrupt("header", err)
			}
			n = -n
		}
		if n < 0 || n > maxHeaderEntries || len(meta) > maxHeaderEntries {
			return "", c.corrupt(fmt.Sprintf("header has more than %d entries", maxHeaderEntries), nil)
		}
		for ; n > 0; n-- {
			key, err := c.bytes(maxHeaderValue)
			if err != nil {
				return "", c.corrupt("header key", err)
			}
			val, err := c.bytes(maxHeaderValue)
			if err != nil {
				return "", c.corrupt(fmt.Sprintf("header value of %q", key), err)
			}
			meta[string(key)] = string(val)
		}
	}
	sync, err := c.take(16)
	if err != nil {
		return "", c.corrupt("header sync marker", err)
	}
	c.sync, c.codec = sync, meta["avro.codec"]
	text, ok := meta["avro.schema"]
	if !ok {
		return "", c.corrupt("header has no avro.schema", nil)
	}
	return text, nil
}

// block reads one block and hands its records out.
func (c *container) block(each func([]byte) ([]byte, error)) error {
	start := c.pos
	fail := func(reason string, err error) error {
		return &CorruptError{Name: c.name, Offset: int64(start), Reason: reason, Err: err}
	}
	count, err := c.long()
	if err != nil {
		return fail("block count", err)
	}
	stored, err := c.bytes(len(c.data))
	if err != nil {
		return fail("block data", err)
	}
	sync, err := c.take(16)
	if err != nil {
		return fail("block sync marker", err)
	}
	if !bytes.Equal(sync, c.sync) {
		return fail("block does not end with the file's sync marker", nil)
	}
	raw, err := decodeBlock(c.codec, stored)
	if err != nil {
		return fail("block of codec "+c.codec, err)
	}
	// Every record of the files read here takes more than one byte.
	if count < 0 || count > int64(len(raw)) {
		return fail(fmt.Sprintf("block of %d bytes claims %d records", len(raw), count), nil)
	}
	rest := raw
	for i := range count {
		left, err := each(rest)
		if err != nil {
			return fail(fmt.Sprintf("record %d of the block, at byte %d of its %d", i, len(raw)-len(rest), len(raw)), err)
		}
		rest = left
	}
	if len(rest) != 0 {
		return fail(fmt.Sprintf("block has %d bytes after its last record", len(rest)), nil)
	}
	return nil
}

// long reads a zigzag varint.
func (c *container) long() (int64, error) {
	v, n := binary.Varint(c.data[c.pos:])
	if n <= 0 {
		return 0, errTruncated
	}
	c.pos += n
	return v, nil
}

// bytes reads a length and that many bytes.
func (c *container) bytes(limit int) ([]byte, error) {
	n, err := c.long()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > int64(limit) {
		return nil, fmt.Errorf("length %d is not between 0 and %d", n, limit)
	}
	return c.take(int(n))
}

// take gives the next n bytes.
func (c *container) take(n int) ([]byte, error) {
	if n > len(c.data)-c.pos {
		return nil, errTruncated
	}
	b := c.data[c.pos : c.pos+n]
	c.pos += n
	return b, nil
}

// decodeBlock undoes the codec of a block, never giving more than a bound that grows with its stored size.
func decodeBlock(codec string, stored []byte) ([]byte, error) {
	limit := min(maxBlock, expandBase+expandFactor*int64(len(stored)))
	switch codec {
	case "", "null":
		return stored, nil
	case "deflate":
		return boundedDecode(ocf.DeflateCodec(-1), stored, limit)
	case "snappy":
		return boundedDecode(ocf.SnappyCodec(), stored, limit)
	case "zstandard":
		return decodeZstd(stored, limit)
	}
	return nil, fmt.Errorf("unknown codec %q, known are null, deflate, snappy and zstandard", codec)
}

// boundedDecode runs one of ocf's codecs with a limit.
func boundedDecode(codec ocf.Codec, stored []byte, limit int64) ([]byte, error) {
	if b, ok := codec.(ocf.BoundedDecompressor); ok {
		return b.DecompressBounded(stored, limit)
	}
	return nil, fmt.Errorf("codec %s has no bounded form", codec.Name())
}

// decodeZstd decodes into a buffer of the frame's declared size; Java's streaming writer declares none, then the buffer
// grows until the block fits or the limit is reached. The decoder never allocates by itself (WithDecodeAllCapLimit).
func decodeZstd(stored []byte, limit int64) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(stored); err != nil {
		return nil, fmt.Errorf("zstandard header: %w", err)
	}
	size := min(limit, 4096+8*int64(len(stored)))
	if h.HasFCS {
		if h.FrameContentSize > uint64(limit) {
			return nil, fmt.Errorf("zstandard frame of %d bytes claims to hold %d", len(stored), h.FrameContentSize)
		}
		size = int64(h.FrameContentSize)
	}
	dec, err := zstdDecoder()
	if err != nil {
		return nil, fmt.Errorf("zstandard decoder: %w", err)
	}
	for {
		raw, err := dec.DecodeAll(stored, make([]byte, 0, size))
		switch {
		case err == nil:
			return raw, nil
		case size < limit: // the decoder has several errors for a buffer that is too small, not all of them exported
		case errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return nil, fmt.Errorf("zstandard block of %d bytes holds more than %d: %w", len(stored), limit, err)
		default:
			return nil, err
		}
		size = min(limit, size*4)
	}
}
