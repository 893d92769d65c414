package manifest

import (
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/internal/binrow"
	"github.com/calve-io/calve/schema"
)

// TestSortKeys: for each type, values listed in ascending order have ascending keys, alone and before another field.
func TestSortKeys(t *testing.T) {
	num := func(s string) decimal128.Num {
		n, err := decimal128.FromString(s, 38, 2)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for typ, vals := range map[string][]any{
		"BOOLEAN":        {nil, false, true},
		"TINYINT":        {nil, int8(-128), int8(-1), int8(0), int8(1), int8(127)},
		"SMALLINT":       {nil, int16(-32768), int16(-1), int16(0), int16(256), int16(32767)},
		"INT":            {nil, int32(math.MinInt32), int32(-256), int32(-1), int32(0), int32(255), int32(256), int32(math.MaxInt32)},
		"DATE":           {nil, int32(-1), int32(0), int32(19857)},
		"BIGINT":         {nil, int64(math.MinInt64), int64(-1), int64(0), int64(1), int64(256), int64(math.MaxInt64)},
		"FLOAT":          {nil, float32(math.Inf(-1)), float32(-1.5), float32(-1), float32(math.Copysign(0, -1)), float32(0), float32(1), float32(math.Inf(1)), float32(math.NaN())},
		"DOUBLE":         {nil, math.Inf(-1), -1e300, -1.0, math.Copysign(0, -1), 0.0, math.SmallestNonzeroFloat64, 1.0, math.Inf(1), math.NaN()},
		"STRING":         {nil, "", "\x00", "\x00\x00", "\x00\x01", "\x01", "a", "a\x00", "a\x00b", "a\x01", "ab", "b", "ä", "\xff"},
		"BYTES":          {nil, []byte{}, []byte{0}, []byte{0, 0}, []byte{0, 255}, []byte{1}, []byte{255}, []byte{255, 0}},
		"DECIMAL(9, 2)":  {nil, num("-100.01"), num("-1"), num("0"), num("0.01"), num("99999.99")},
		"DECIMAL(38, 2)": {nil, num("-123456789012345678901234567890.12"), num("-1"), num("0"), num("18446744073709551616"), num("123456789012345678901234567890.12")},
		"TIMESTAMP(6)":   {nil, int64(-1), int64(0), int64(1)},
	} {
		types := []schema.Type{mustType(t, typ), mustType(t, "INT")}
		var keys []string
		for _, v := range vals {
			for _, second := range []any{nil, int32(-5), int32(5)} {
				rowBytes, err := binrow.EncodeRow(types, []any{v, second})
				if err != nil {
					t.Fatal(typ, err)
				}
				key, err := sortKey(rowBytes, types)
				if err != nil {
					t.Fatal(typ, err)
				}
				keys = append(keys, key)
			}
		}
		if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
			t.Errorf("%s: keys are not in the order of the values: %q", typ, keys)
		}
	}
}

// TestSummary: bounds and counts over partitions with nulls, both kinds of entries, several levels and schemas.
func TestSummary(t *testing.T) {
	s, err := schema.New(schema.Spec{
		Columns:       []schema.Column{{Name: "d", Type: mustType(t, "INT")}, {Name: "s", Type: mustType(t, "STRING")}, {Name: "v", Type: mustType(t, "INT")}},
		PartitionKeys: []string{"d", "s"}, Options: map[string]string{"bucket": "-1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	types := s.Types(s.PartitionColumns())
	part := func(vals ...any) []byte {
		b, err := binrow.EncodeRow(types, vals)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	m, err := summarize([]Entry{
		{Partition: part(int32(-7), "b"), Bucket: 3, File: DataFile{Name: "1", Level: 2, SchemaID: 1}},
		{Partition: part(nil, "a"), Bucket: 1, File: DataFile{Name: "2", Level: 5}},
		{Partition: part(nil, "a"), Bucket: 1, File: DataFile{Name: "3", Level: 5}},
		{Partition: part(int32(40), "zz"), Bucket: 9, Kind: Remove, File: DataFile{Name: "4", Level: 0, SchemaID: 4}},
	}, s)
	if err != nil {
		t.Fatal(err)
	}
	lo, err := binrow.Decode(m.Partitions.Min, types)
	if err != nil {
		t.Fatal(err)
	}
	hi, err := binrow.Decode(m.Partitions.Max, types)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(lo, []any{int32(-7), "a"}) || !slices.Equal(hi, []any{int32(40), "zz"}) ||
		*m.Partitions.NullCounts[0] != 2 || *m.Partitions.NullCounts[1] != 0 {
		t.Fatal(lo, hi, m.Partitions.NullCounts)
	}
	if m.Added != 3 || m.Deleted != 1 || m.SchemaID != 4 || *m.MinBucket != 1 || *m.MaxBucket != 9 || *m.MinLevel != 0 || *m.MaxLevel != 5 {
		t.Fatalf("%+v", m)
	}
}
