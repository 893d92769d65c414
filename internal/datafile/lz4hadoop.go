package datafile

import (
	"encoding/binary"
	"errors"

	"github.com/pierrec/lz4/v4"
)

// codecLZ4 is the LZ4 that parquet.thrift has given up but that Paimon's Java writer means by file.compression = lz4:
// LZ4 blocks in the frames of Hadoop's `BlockCompressorStream`.
const codecLZ4 = 5

var errLZ4Frame = errors.New("lz4: broken Hadoop frame")

// unlz4Hadoop decompresses frames [plain length][length of a block][block]…, both lengths of four bytes, high byte
// first. A frame has as many blocks as its plain length needs. dst is filled; nothing is allocated.
func unlz4Hadoop(dst, src []byte) (int, error) {
	n := 0
	for len(src) > 0 {
		plain, rest, ok := frameLength(src)
		if !ok || plain > len(dst)-n {
			return n, errLZ4Frame
		}
		src = rest
		for end := n + plain; n < end; {
			size, rest, ok := frameLength(src)
			if !ok || size > len(rest) {
				return n, errLZ4Frame
			}
			got, err := lz4.UncompressBlock(rest[:size], dst[n:end])
			if err != nil {
				return n, err
			}
			if got == 0 {
				return n, errLZ4Frame // a block of nothing would go on for ever
			}
			n, src = n+got, rest[size:]
		}
	}
	return n, nil
}

// frameLength takes a length from the front.
func frameLength(src []byte) (n int, rest []byte, ok bool) {
	if len(src) < 4 {
		return 0, nil, false
	}
	v := binary.BigEndian.Uint32(src)
	return int(v), src[4:], v <= maxPage
}
