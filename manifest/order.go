package manifest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
)

// sortKey turns a serialized BinaryRow into bytes whose order is the order of its values, field by field (paimon-format
// §8.1): a BinaryRow itself is little-endian and cannot be compared as bytes.
func sortKey(row []byte, types []schema.Type) (string, error) {
	vals, err := binrow.Decode(fill(row), types)
	if err != nil {
		return "", err
	}
	var key []byte
	for i, v := range vals {
		if key, err = appendSortKey(key, v); err != nil {
			return "", fmt.Errorf("field %d: %w", i, err)
		}
	}
	return string(key), nil
}

// appendSortKey appends one value so that bytes.Compare orders as the values do; null is smallest, NaN is largest.
func appendSortKey(dst []byte, v any) ([]byte, error) {
	if v == nil {
		return append(dst, 0), nil
	}
	dst = append(dst, 1)
	switch v := v.(type) {
	case bool:
		if v {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case int8:
		return append(dst, uint8(v)^0x80), nil
	case int16:
		return binary.BigEndian.AppendUint16(dst, uint16(v)^1<<15), nil
	case int32:
		return binary.BigEndian.AppendUint32(dst, uint32(v)^1<<31), nil
	case int64:
		return binary.BigEndian.AppendUint64(dst, uint64(v)^1<<63), nil
	case float32:
		return appendFloat(dst, float64(v)), nil
	case float64:
		return appendFloat(dst, v), nil
	case string:
		return appendEscaped(dst, []byte(v)), nil
	case []byte:
		return appendEscaped(dst, v), nil
	case decimal128.Num:
		dst = binary.BigEndian.AppendUint64(dst, uint64(v.HighBits())^1<<63)
		return binary.BigEndian.AppendUint64(dst, v.LowBits()), nil
	}
	return nil, fmt.Errorf("%w: a key of Go type %T", ErrUnsupported, v)
}

// appendFloat orders as Java's Double.compare: -0.0 below 0.0, NaN above everything.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) {
		f = math.NaN()
	}
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

// appendEscaped writes bytes that end with 0 0; a zero inside becomes 0 255, so that a prefix sorts first.
func appendEscaped(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			return append(append(dst, b...), 0, 0)
		}
		dst = append(append(dst, b[:i]...), 0, 0xff)
		b = b[i+1:]
	}
}

// summarize describes a manifest of these entries, all but its name and size: counts, partition statistics and the
// bounds that readers prune by.
func summarize(entries []Entry, s *schema.Schema) (Meta, error) {
	m := Meta{SchemaID: s.ID}
	if len(entries) == 0 {
		m.Partitions = Stats{Min: emptyRow, Max: emptyRow, NullCounts: []*int64{}}
		return m, nil
	}
	m.SchemaID = 0
	first := &entries[0]
	minB, maxB := int32(first.Bucket), int32(first.Bucket)
	minL, maxL := int32(first.File.Level), int32(first.File.Level)
	for i := range entries {
		e := &entries[i]
		if e.Kind == Add {
			m.Added++
		} else {
			m.Deleted++
		}
		m.SchemaID = max(m.SchemaID, e.File.SchemaID)
		minB, maxB = min(minB, int32(e.Bucket)), max(maxB, int32(e.Bucket))
		minL, maxL = min(minL, int32(e.File.Level)), max(maxL, int32(e.File.Level))
	}
	m.MinBucket, m.MaxBucket, m.MinLevel, m.MaxLevel = &minB, &maxB, &minL, &maxL
	var err error
	m.Partitions, err = partitionStats(entries, s)
	return m, err
}

// partitionStats gives minimum, maximum and null count of each partition column over all entries.
func partitionStats(entries []Entry, s *schema.Schema) (Stats, error) {
	types := s.Types(s.PartitionColumns())
	if len(types) == 0 {
		return Stats{Min: emptyRow, Max: emptyRow, NullCounts: []*int64{}}, nil
	}
	counts := map[string]int64{}
	for i := range entries {
		counts[string(fill(entries[i].Partition))]++
	}
	lo, hi := make([]any, len(types)), make([]any, len(types))
	loKey, hiKey := make([][]byte, len(types)), make([][]byte, len(types))
	nulls := make([]*int64, len(types))
	for i := range nulls {
		nulls[i] = new(int64)
	}
	for row, n := range counts {
		vals, err := binrow.Decode([]byte(row), types)
		if err != nil {
			return Stats{}, fmt.Errorf("partition of an entry: %w", err)
		}
		for i, v := range vals {
			if v == nil {
				*nulls[i] += n
				continue
			}
			key, err := appendSortKey(nil, v)
			if err != nil {
				return Stats{}, fmt.Errorf("partition column %s: %w", s.PartitionKeys[i], err)
			}
			if loKey[i] == nil || bytes.Compare(key, loKey[i]) < 0 {
				lo[i], loKey[i] = v, key
			}
			if hiKey[i] == nil || bytes.Compare(key, hiKey[i]) > 0 {
				hi[i], hiKey[i] = v, key
			}
		}
	}
	minRow, maxRow, err := binrow.EncodeStats(types, lo, hi)
	if err != nil {
		return Stats{}, fmt.Errorf("statistics of partitions: %w", err)
	}
	return Stats{Min: minRow, Max: maxRow, NullCounts: nulls}, nil
}
