package datafile

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec numbers of parquet.thrift.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecZstd   = 6
	codecLZ4Raw = 7
)

// maxPage bounds the size of a page, as the format does. Writers end pages at about a megabyte, but never inside a value.
const maxPage = 1<<31 - 1

// slack are bytes behind the content of every page buffer: routines that unpack bits or copy short values read in
// wide steps.
const slack = 64

// zstdBlock is how much room behind its output lets the zstd decoder take its fast path.
const zstdBlock = 128 << 10

// zstdDecoder is shared by all readers; each call of DecodeAll holds one of its block decoders.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithDecodeAllCapLimit(true))
})

// plausible reports whether n bytes can come out of compressed ones, before memory is taken for them. The factors are
// the limits of the formats; zstd and gzip have none that matters, so a floor is added to theirs.
func plausible(codec int32, compressed, n int) bool {
	if n < 0 || n > maxPage {
		return false
	}
	switch codec {
	case codecSnappy:
		return n <= 64*compressed+64
	case codecLZ4Raw, codecLZ4:
		return n <= 256*compressed+64
	}
	return n <= 16<<20+(1<<15)*compressed
}

// decompress fills a buffer of n bytes (and slack behind) from src. buf is reused if it is large enough.
func decompress(codec int32, buf, src []byte, n int) ([]byte, error) {
	if !plausible(codec, len(src), n) {
		return buf, corruptf("page of %d compressed bytes claims %d", len(src), n)
	}
	if codec == codecZstd && n < zstdBlock {
		return decompressSmall(buf, src, n)
	}
	want := n + slack
	if codec == codecZstd {
		want = n + zstdBlock + slack
	}
	if cap(buf) < want {
		buf = make([]byte, want+want/8)
	}
	got := 0
	var err error
	switch codec {
	case codecZstd:
		got, err = unzstd(buf[:0:cap(buf)-slack], src)
	case codecSnappy:
		got, err = unsnappy(buf[:cap(buf)-slack], src, n)
	case codecLZ4Raw:
		got, err = lz4.UncompressBlock(src, buf[:n])
	case codecLZ4:
		got, err = unlz4Hadoop(buf[:n], src)
	case codecGzip:
		got, err = gunzip(buf[:n], src)
	default:
		return buf, unsupportedf("compression codec %d", codec)
	}
	if err != nil {
		return buf, corruptf("decompress: %w", err)
	}
	if got != n {
		return buf, corruptf("page decompresses to %d bytes, its header says %d", got, n)
	}
	return buf[:n], nil
}

// zstdScratch lends room for pages that are smaller than the room which the decoder wants behind them: with many columns that
// room would be most of what a reader holds.
var zstdScratch = sync.Pool{New: func() any { b := make([]byte, 2*zstdBlock+slack); return &b }}

// decompressSmall is decompress for zstd and small pages.
func decompressSmall(buf, src []byte, n int) ([]byte, error) {
	scratch := zstdScratch.Get().(*[]byte)
	defer zstdScratch.Put(scratch)
	got, err := unzstd((*scratch)[:0:len(*scratch)-slack], src)
	if err != nil {
		return buf, corruptf("decompress: %w", err)
	}
	if got != n {
		return buf, corruptf("page decompresses to %d bytes, its header says %d", got, n)
	}
	if cap(buf) < n+slack {
		buf = make([]byte, n+n/8+slack)
	}
	return buf[:copy(buf[:n], *scratch)], nil
}

func unzstd(dst, src []byte) (int, error) {
	d, err := zstdDecoder()
	if err != nil {
		return 0, err
	}
	out, err := d.DecodeAll(src, dst)
	return len(out), err
}

func unsnappy(dst, src []byte, n int) (int, error) {
	got, err := s2.DecodedLen(src)
	if err != nil || got != n {
		return got, err
	}
	out, err := s2.Decode(dst[:n], src)
	return len(out), err
}

func gunzip(dst, src []byte) (int, error) {
	z, err := gzip.NewReader(bytes.NewReader(src))
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(z, dst)
	if err != nil {
		return n, err
	}
	if extra, _ := z.Read(make([]byte, 1)); extra > 0 {
		return n + extra, nil
	}
	return n, z.Close()
}

// compressor compresses pages. It is a value: its state is pooled.
type compressor struct {
	codec int32
	level int // of zstd
}

// newCompressor reads the option file.compression.
func newCompressor(name string, level int) (compressor, error) {
	switch name {
	case "", "zstd":
		return compressor{codecZstd, level}, nil
	case "snappy":
		return compressor{codec: codecSnappy}, nil
	case "lz4", "lz4_raw":
		return compressor{codec: codecLZ4Raw}, nil
	case "none", "uncompressed":
		return compressor{codec: codecNone}, nil
	}
	return compressor{}, fmt.Errorf("data file writer: compression %q is not one of zstd, snappy, lz4, none", name)
}

// zstdWindow is how far back zstd looks: beyond the size of most pages, and no more, since an encoder keeps memory for it.
const zstdWindow = 2 * pageBytes

// zstdEncoders are pools of encoders by level: one keeps a megabyte of tables.
var zstdEncoders sync.Map

// lz4Encoders are pooled for the same reason.
var lz4Encoders = sync.Pool{New: func() any { return new(lz4.Compressor) }}

// compress gives the compressed form of src, reusing dst if it is large enough. The checksum of zstd is left out since
// page headers have one.
func (c compressor) compress(dst, src []byte) ([]byte, error) {
	switch c.codec {
	case codecZstd:
		level := zstd.EncoderLevelFromZstd(c.level)
		pool, ok := zstdEncoders.Load(level)
		if !ok {
			pool, _ = zstdEncoders.LoadOrStore(level, &sync.Pool{})
		}
		e, _ := pool.(*sync.Pool).Get().(*zstd.Encoder)
		if e == nil {
			var err error
			e, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level),
				zstd.WithEncoderCRC(false), zstd.WithWindowSize(zstdWindow), zstd.WithZeroFrames(true), zstd.WithAllLitEntropyCompression(true))
			if err != nil {
				return nil, fmt.Errorf("zstd: %w", err)
			}
		}
		dst = e.EncodeAll(src, dst[:0])
		pool.(*sync.Pool).Put(e)
		return dst, nil
	case codecSnappy:
		return s2.EncodeSnappy(dst[:cap(dst)], src), nil
	case codecLZ4Raw:
		dst = resize(dst, lz4.CompressBlockBound(len(src)))
		e := lz4Encoders.Get().(*lz4.Compressor)
		n, err := e.CompressBlock(src, dst)
		lz4Encoders.Put(e)
		if err != nil || n == 0 && len(src) > 0 {
			return nil, fmt.Errorf("lz4: %d of %d bytes: %w", n, len(src), err)
		}
		return dst[:n], nil
	}
	return append(dst[:0], src...), nil
}
