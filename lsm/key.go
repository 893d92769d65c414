package lsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/calve-io/calve/schema"
)

// Keys turns primary keys into normalized bytes whose order under bytes.Compare is the order of keys in Paimon's
// sorted files: numbers by value, false before true, strings and binaries as unsigned bytes, columns in key order.
//
// Every column's code is self-delimiting, so no code of a key is a prefix of another key's code. That is what makes
// the first eight bytes, padded with zeros, safe to compare first (see [KeyVec]).
//
// A floating point zero has one code whatever its sign, and all NaNs have one code, after +Inf.
type Keys struct {
	cols  []keyCol
	types []schema.Type
	fixed int // sum of the fixed widths; strings count for nothing
	vars  int // number of columns of variable width
}

type keyCol struct {
	name  string
	typ   schema.Type
	width int // bytes of the code; 0: variable
}

// NewKeys prepares the keys of a table: its trimmed primary key, which is empty for append tables.
func NewKeys(s *schema.Schema) *Keys {
	k := &Keys{}
	for _, c := range s.KeyColumns() {
		f := s.Fields[c]
		kc := keyCol{name: f.Name, typ: f.Type, width: keyWidth(f.Type)}
		k.cols = append(k.cols, kc)
		k.types = append(k.types, f.Type)
		k.fixed += kc.width
		if kc.width == 0 {
			k.vars++
		}
	}
	return k
}

// keyWidth is the length of a type's code, 0 if it depends on the value (or the type cannot be part of a key).
func keyWidth(t schema.Type) int {
	switch t.Root {
	case schema.Boolean, schema.TinyInt:
		return 1
	case schema.SmallInt:
		return 2
	case schema.Int, schema.Float, schema.Date, schema.Time:
		return 4
	case schema.BigInt, schema.Double, schema.Timestamp, schema.TimestampLTZ:
		return 8
	case schema.Decimal:
		switch {
		case t.Precision <= 9:
			return 4
		case t.Precision <= 18:
			return 8
		}
		return 16
	}
	return 0
}

// KeyVec holds the normalized keys of a set of rows.
//
// Two keys compare as their prefixes do; if these are equal, as the rest of their codes. Codes being free of prefixes,
// equal padded prefixes of which one code ends within them mean equal keys.
type KeyVec struct {
	// Prefix holds the first eight bytes of each code, big endian, padded with zeros.
	Prefix []uint64
	// Off and Data hold the whole codes: row i is Data[Off[i]:Off[i+1]]. Both are nil if Exact.
	Off  []uint32
	Data []byte
	// Exact: no code is longer than eight bytes, so that the prefixes are the whole truth.
	Exact bool
}

// Len is the number of keys.
func (v *KeyVec) Len() int { return len(v.Prefix) }

// rest is what of code i follows the prefix.
func (v *KeyVec) rest(i int) []byte { return v.tail(i, 8) }

// tail is code i without its first d bytes.
func (v *KeyVec) tail(i, d int) []byte {
	if v.Exact {
		return nil
	}
	b := v.Data[v.Off[i]:v.Off[i+1]]
	if len(b) <= d {
		return nil
	}
	return b[d:]
}

// Compare orders key i of v and key j of o.
func (v *KeyVec) Compare(i int, o *KeyVec, j int) int {
	a, b := v.Prefix[i], o.Prefix[j]
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case v.Exact && o.Exact:
		return 0
	}
	return bytes.Compare(v.rest(i), o.rest(j))
}

// ascending returns the first row whose key is not greater than the one before, or -1.
func (v *KeyVec) ascending() int {
	p := v.Prefix
	for i := 1; i < len(p); i++ {
		if p[i-1] < p[i] {
			continue
		}
		if p[i-1] > p[i] || v.Exact || bytes.Compare(v.rest(i-1), v.rest(i)) >= 0 {
			return i
		}
	}
	return -1
}

// Encode normalizes the keys of n rows; cols are the key columns in key order. A null, a column of another type than
// the key's and a decimal that exceeds its precision are errors.
func (k *Keys) Encode(cols []arrow.Array, n int) (KeyVec, error) {
	if len(cols) != len(k.cols) {
		return KeyVec{}, fmt.Errorf("key has %d columns, got %d", len(k.cols), len(cols))
	}
	for i, c := range cols {
		if c.Len() < n {
			return KeyVec{}, fmt.Errorf("key column %q has %d rows, want %d", k.cols[i].name, c.Len(), n)
		}
		if c.NullN() > 0 {
			for r := range n {
				if c.IsNull(r) {
					return KeyVec{}, fmt.Errorf("key column %q is null in row %d", k.cols[i].name, r)
				}
			}
		}
	}
	if k.vars == 0 && k.fixed <= 8 {
		return k.encodeExact(cols, n)
	}
	return k.encodeBytes(cols, n)
}

// encodeExact builds keys of at most eight bytes in registers: each column shifted to its place.
func (k *Keys) encodeExact(cols []arrow.Array, n int) (KeyVec, error) {
	v := KeyVec{Prefix: make([]uint64, n), Exact: true}
	at := 0
	for i, c := range cols {
		at += k.cols[i].width
		if err := k.orFixed(v.Prefix, c, i, uint(64-8*at)); err != nil {
			return KeyVec{}, err
		}
	}
	return v, nil
}

// encodeBytes builds whole codes, then takes the prefixes from them.
func (k *Keys) encodeBytes(cols []arrow.Array, n int) (KeyVec, error) {
	vars := make([]varCol, len(cols))
	off := make([]uint32, n+1)
	total := uint64(k.fixed) * uint64(n)
	for i, c := range cols {
		if k.cols[i].width > 0 {
			continue
		}
		vc, err := newVarCol(k.cols[i], c, n)
		if err != nil {
			return KeyVec{}, err
		}
		vars[i] = vc
		total += vc.total
	}
	if total > math.MaxUint32-8 {
		return KeyVec{}, fmt.Errorf("keys of %d rows need %d bytes, more than the %d a batch may have", n, total, uint32(math.MaxUint32-8))
	}
	layOut(off, vars, uint32(k.fixed))
	v := KeyVec{Prefix: make([]uint64, n), Off: off, Data: make([]byte, total+8)[:total]}
	pos := make([]uint32, n)
	copy(pos, off)
	for i, c := range cols {
		if k.cols[i].width == 0 {
			vars[i].put(v.Data, pos)
			continue
		}
		if err := k.putFixed(v.Data, pos, c, i); err != nil {
			return KeyVec{}, err
		}
	}
	v.takePrefixes()
	return v, nil
}

// layOut turns the lengths of the codes into offsets.
func layOut(off []uint32, vars []varCol, fixed uint32) {
	n := len(off) - 1
	for i := 1; i <= n; i++ {
		off[i] = fixed
	}
	for i := range vars {
		vars[i].addLengths(off[1:])
	}
	at := uint32(0)
	for i := 1; i <= n; i++ {
		at += off[i]
		off[i] = at
	}
}

// takePrefixes fills Prefix from Data, which has eight bytes of room behind its end, and drops the codes if all fit.
func (v *KeyVec) takePrefixes() {
	data := v.Data[:len(v.Data)+8]
	exact := true
	for i := range v.Prefix {
		a, b := v.Off[i], v.Off[i+1]
		w := binary.BigEndian.Uint64(data[a : a+8])
		if n := b - a; n < 8 {
			w &= ^uint64(0) << (64 - 8*n)
		} else if n > 8 {
			exact = false
		}
		v.Prefix[i] = w
	}
	if exact {
		v.Off, v.Data, v.Exact = nil, nil, true
	}
}
