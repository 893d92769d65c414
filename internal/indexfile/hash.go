package indexfile

import (
	"encoding/binary"
	"fmt"
)

// HashSize is the size of one hash in a HASH index file, which is nothing but hashes: big-endian, in no order
// (`index.HashIndexFile`, paimon-format §7.2).
const HashSize = 4

// AppendHashes appends hashes in the form of a HASH index file.
func AppendHashes(dst []byte, hashes []int32) []byte {
	for _, h := range hashes {
		dst = binary.BigEndian.AppendUint32(dst, uint32(h))
	}
	return dst
}

// DecodeHashes reads a HASH index file and appends its hashes to dst. Errors match ErrCorrupt.
func DecodeHashes(dst []int32, data []byte) ([]int32, error) {
	if len(data)%HashSize != 0 {
		return dst, fmt.Errorf("%w: %d bytes are no whole number of hashes", ErrCorrupt, len(data))
	}
	for ; len(data) > 0; data = data[HashSize:] {
		dst = append(dst, int32(binary.BigEndian.Uint32(data)))
	}
	return dst, nil
}
