package lsm

import (
	"bytes"
	"encoding/binary"
)

// AppendCode appends the normalized bytes of key i of v, which k has encoded: what FromSerialized gives for the key.
func (k *Keys) AppendCode(dst []byte, v *KeyVec, i int) []byte {
	if !v.Exact {
		return append(dst, v.Data[v.Off[i]:v.Off[i+1]]...)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v.Prefix[i])
	return append(dst, b[:k.codeLen(b[:])]...)
}

// codeLen is the length of the code that b begins with. A column of variable width ends with its first codeEnd.
func (k *Keys) codeLen(b []byte) int {
	n := 0
	for _, c := range k.cols {
		n += c.width
		if c.width == 0 {
			n += bytes.IndexByte(b[n:], codeEnd) + 1
		}
	}
	return n
}
