package lsm

import "encoding/binary"

// AppendCode appends the normalized bytes of key i of v, which k has encoded: what FromSerialized gives for the key.
func (k *Keys) AppendCode(dst []byte, v *KeyVec, i int) []byte {
	if !v.Exact {
		return append(dst, v.Data[v.Off[i]:v.Off[i+1]]...)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v.Prefix[i])
	return append(dst, b[:k.fixed]...)
}
