package datafile

import (
	"bytes"
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

// maxPage bounds the size of a page. Writers end pages at about a megabyte, but never inside a value.
const maxPage = 1<<30 + 64<<20

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
	case codecNone:
		return n == compressed
	case codecSnappy:
		return n <= 64*compressed+64
	case codecLZ4Raw:
		return n <= 256*compressed+64
	}
	return n <= 16<<20+(1<<15)*compressed
}

// decompress fills a buffer of n bytes (and slack behind) from src. buf is reused if it is large enough.
func decompress(codec int32, buf, src []byte, n int) ([]byte, error) {
	if !plausible(codec, len(src), n) {
		return buf, corruptf("page of %d compressed bytes claims %d", len(src), n)
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
	case codecNone:
		got = copy(buf[:n], src)
	case codecZstd:
		got, err = unzstd(buf[:0:cap(buf)-slack], src)
	case codecSnappy:
		got, err = unsnappy(buf[:cap(buf)-slack], src, n)
	case codecLZ4Raw:
		got, err = lz4.UncompressBlock(src, buf[:n])
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
