package lsm

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/schema"
)

// Codes of strings and binaries: their bytes, then a zero. The bytes 0 and 1 within are written as 1,1 and 1,2, which
// keeps both the order and the zero for the end alone.
const (
	codeEnd    = 0
	codeEscape = 1
)

// varCol is one key column of variable width, about to be encoded.
type varCol struct {
	off   []int32 // n+1 offsets
	data  []byte
	clean bool   // no byte needs an escape
	total uint64 // bytes of all codes
}

func newVarCol(c keyCol, a arrow.Array, n int) (varCol, error) {
	switch c.typ.Root {
	case schema.Char, schema.VarChar, schema.Binary, schema.VarBinary:
	default:
		return varCol{}, fmt.Errorf("key column %q: %s cannot be part of a key", c.name, c.typ)
	}
	if err := c.check(a); err != nil {
		return varCol{}, err
	}
	if n == 0 {
		return varCol{}, nil
	}
	off, data := strings32(a)
	v := varCol{off: off[:n+1], data: data}
	used := data[off[0]:off[n]]
	v.clean = bytes.IndexByte(used, 0) < 0 && bytes.IndexByte(used, 1) < 0
	v.total = uint64(len(used)) + uint64(n)
	if !v.clean {
		v.total += uint64(bytes.Count(used, []byte{0}) + bytes.Count(used, []byte{1}))
	}
	return v, nil
}

// addLengths adds the length of each row's code.
func (v *varCol) addLengths(lens []uint32) {
	if v.off == nil {
		return
	}
	for i := range lens {
		a, b := v.off[i], v.off[i+1]
		lens[i] += uint32(b-a) + 1
		if !v.clean {
			lens[i] += uint32(escapes(v.data[a:b]))
		}
	}
}

func escapes(b []byte) int {
	n := 0
	for _, c := range b {
		if c <= codeEscape {
			n++
		}
	}
	return n
}

// put writes each row's code at its position, which it advances.
func (v *varCol) put(data []byte, pos []uint32) {
	if v.off == nil {
		return
	}
	for i := range pos {
		b := v.data[v.off[i]:v.off[i+1]]
		p := pos[i]
		if v.clean {
			p += uint32(copy(data[p:], b))
		} else {
			for _, c := range b {
				if c <= codeEscape {
					data[p] = codeEscape
					p++
					c++
				}
				data[p] = c
				p++
			}
		}
		data[p] = codeEnd
		pos[i] = p + 1
	}
}

// appendString appends the code of one value.
func appendString[T string | []byte](dst []byte, s T) []byte {
	for i := range len(s) {
		c := s[i]
		if c <= codeEscape {
			dst = append(dst, codeEscape)
			c++
		}
		dst = append(dst, c)
	}
	return append(dst, codeEnd)
}
