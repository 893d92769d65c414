package lsm

import (
	"bytes"
	"encoding/binary"

	"github.com/calve-io/calve/schema"
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

// Range gives bounds of normalized keys from bounds of each key column in the form of schema.Cell, nil where not known: every
// key that has all its columns within them is at least from and below to, or not bounded above if to is empty.
func (k *Keys) Range(least, most []any) (from, to string, err error) {
	lo, err := k.prefix(least)
	if err != nil {
		return "", "", err
	}
	hi, err := k.prefix(most)
	if err != nil {
		return "", "", err
	}
	// No code is the beginning of another, but the codes of some columns begin those of all.
	for i := len(hi) - 1; i >= 0; i-- {
		if hi[i]++; hi[i] != 0 {
			return string(lo), string(hi[:i+1]), nil
		}
	}
	return string(lo), "", nil
}

// prefix is the code of the leading columns that are known. Bounds of floats say nothing of NaN.
func (k *Keys) prefix(vals []any) ([]byte, error) {
	var dst []byte
	for i, c := range k.cols {
		if i >= len(vals) || vals[i] == nil || c.typ.Root == schema.Float || c.typ.Root == schema.Double {
			break
		}
		var err error
		if dst, err = c.append(dst, vals[i]); err != nil {
			return nil, err
		}
	}
	return dst, nil
}
