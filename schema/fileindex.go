package schema

import (
	"fmt"
	"strconv"
)

// Options of the file index.
const (
	optBloomColumns    = "file-index.bloom-filter.columns"
	optBloomPrefix     = "file-index.bloom-filter."
	optIndexInManifest = "file-index.in-manifest-threshold"
)

// BloomColumn is a column whose values go into a Bloom filter of each data file.
type BloomColumn struct {
	Column int     // index into Fields
	Items  int     // file-index.bloom-filter.COLUMN.items: how many different values a file is expected to have
	Wrong  float64 // file-index.bloom-filter.COLUMN.fpp: the share of wrong answers at that number
}

// BloomColumns gives the columns of file-index.bloom-filter.columns. Left out are names that are no columns (keys of MAP
// columns may be named there) and columns of types that have no filter: BOOLEAN, DECIMAL, nested ones.
func (s *Schema) BloomColumns() ([]BloomColumn, error) {
	var out []BloomColumn
	for _, name := range splitNames(s.Options[optBloomColumns]) {
		c := BloomColumn{Items: 1_000_000, Wrong: 0.1}
		var ok bool
		if c.Column, ok = s.Field(name); !ok || !hashable(s.Fields[c.Column].Type.Root) {
			continue
		}
		if key := optBloomPrefix + name + ".items"; s.Options[key] != "" {
			n, err := strconv.Atoi(s.Options[key])
			if err != nil || n < 1 {
				return nil, fmt.Errorf("table option %q = %q: is not a whole number of at least 1", key, s.Options[key])
			}
			c.Items = n
		}
		if key := optBloomPrefix + name + ".fpp"; s.Options[key] != "" {
			f, err := strconv.ParseFloat(s.Options[key], 64)
			if err != nil || !(f > 0 && f < 1) {
				return nil, fmt.Errorf("table option %q = %q: is not a number between 0 and 1", key, s.Options[key])
			}
			c.Wrong = f
		}
		out = append(out, c)
	}
	return out, nil
}

func hashable(r Root) bool {
	switch r {
	case TinyInt, SmallInt, Int, BigInt, Float, Double, Char, VarChar, Binary, VarBinary, Date, Time, Timestamp, TimestampLTZ:
		return true
	}
	return false
}

// IndexInManifest is the size in bytes up to which a file index is kept in the manifest instead of a file of its own
// (file-index.in-manifest-threshold, 500 bytes).
func (s *Schema) IndexInManifest() (int64, error) {
	v, ok := s.Options[optIndexInManifest]
	if !ok {
		return 500, nil
	}
	n, err := ParseSize(v)
	if err != nil {
		return 0, fmt.Errorf("table option %q = %q: %w", optIndexInManifest, v, err)
	}
	return n, nil
}
