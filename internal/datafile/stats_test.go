package datafile

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		s        string
		n        int
		min, max string // max "-": none
	}{
		{"", 16, "", ""},
		{"abc", 3, "abc", "abc"},
		{"abcd", 3, "abc", "abd"},
		{"éé☃😀x", 4, "éé☃😀", "éé☃😁"},
		{"ab\U0010FFFFz", 3, "ab\U0010FFFF", "ac"},
		{"a\U0010FFFF\U0010FFFFz", 3, "a\U0010FFFF\U0010FFFF", "b"},
		{"\U0010FFFF\U0010FFFF", 1, "\U0010FFFF", "-"},
		{"a\uD7FFz", 2, "a\uD7FF", "a\uE000"},
		{"a\xffz", 2, "a\xff", "-"}, // not UTF-8
		{"\x00\x00", 1, "\x00", "\x01"},
	} {
		lo := truncateMin(c.s, c.n)
		hi, ok := truncateMax(c.s, c.n)
		if !ok {
			hi = "-"
		}
		if lo != c.min || hi != c.max {
			t.Errorf("%q to %d: %q and %q, want %q and %q", c.s, c.n, lo, hi, c.min, c.max)
		}
	}
}

// TestTruncateBounds checks on random strings that the cut bounds bound.
func TestTruncateBounds(t *testing.T) {
	r := newRand(11)
	for range 20000 {
		s := randomText(r, schema.Type{Root: schema.VarChar, Length: 40}, valueShape{}).(string)
		n := 1 + r.IntN(12)
		if lo := truncateMin(s, n); lo > s || utf8.RuneCountInString(lo) > n {
			t.Fatalf("minimum of %q cut to %d is %q", s, n, lo)
		}
		if hi, ok := truncateMax(s, n); ok && (hi < s || utf8.RuneCountInString(hi) > n || !utf8.ValidString(hi)) {
			t.Fatalf("maximum of %q cut to %d is %q", s, n, hi)
		}
	}
}

// TestStatistics compares the statistics of random columns with a plain computation.
func TestStatistics(t *testing.T) {
	s := allTypes(t)
	for seed, sh := range []valueShape{{}, {nulls: 0.3}, {nulls: 0.97}, {nulls: 1}, {repeats: 2}, {nulls: 0.2, repeats: 1}} {
		r := newRand(uint64(seed))
		in := []Rows{randomRows(r, s, 0, 700, sh), randomRows(r, s, 700, 1, sh), randomRows(r, s, 701, 300, sh)}
		_, tail := split(in[2], 17) // arrays with an offset
		in[2] = tail
		_, info := writeFile(t, WriterConfig{Schema: s, Keyed: true, Stats: func(string) schema.StatsMode { return schema.StatsFull }}, in...)
		all := concat(t, in, len(s.Fields))
		for i, f := range s.Fields {
			lo, hi, nulls := plainStats(f.Type, all.Cols[i])
			got := info.Value[i]
			if anyText(got.Min) != anyText(lo) || anyText(got.Max) != anyText(hi) || got.Nulls != nulls {
				t.Errorf("seed %d, %s: %v %v %d, want %v %v %d", seed, f.Type, got.Min, got.Max, got.Nulls, lo, hi, nulls)
			}
		}
		dels := int64(0)
		for _, k := range all.Kinds {
			if k == 1 || k == 3 {
				dels++
			}
		}
		if info.DeleteRows != dels || info.Rows != int64(all.N) {
			t.Errorf("seed %d: %d deletes of %d rows, want %d of %d", seed, info.DeleteRows, info.Rows, dels, all.N)
		}
		if want := (ColumnStats{Min: int64(0), Max: int64(1000), Nulls: 0}); info.Key[0] != want {
			t.Errorf("seed %d: key %v, want %v", seed, info.Key[0], want)
		}
	}
}

// plainStats computes statistics cell by cell.
func plainStats(typ schema.Type, a arrow.Array) (lo, hi any, nulls int64) {
	less := func(x, y any) bool {
		switch x := x.(type) {
		case bool:
			return !x && y.(bool)
		case float32:
			return x < y.(float32)
		case float64:
			return x < y.(float64)
		case string:
			return x < y.(string)
		case int8, int16, int32, int64:
			return toInt(x) < toInt(y)
		}
		return asDecimalText(x).Cmp(asDecimalText(y)) < 0
	}
	for i := range a.Len() {
		v := schema.Cell(a, i)
		if v == nil {
			nulls++
			continue
		}
		if typ.Root == schema.Binary || typ.Root == schema.VarBinary {
			continue
		}
		if lo == nil || less(v, lo) {
			lo = v
		}
		if hi == nil || less(hi, v) {
			hi = v
		}
	}
	switch x := lo.(type) {
	case float32:
		if x == 0 {
			lo = float32(math.Copysign(0, -1))
		}
	case float64:
		if x == 0 {
			lo = math.Copysign(0, -1)
		}
	}
	if hi == float32(0) || hi == float32(math.Copysign(0, -1)) {
		hi = float32(0)
	}
	if hi == float64(0) {
		hi = float64(0)
	}
	return lo, hi, nulls
}

func TestNaN(t *testing.T) {
	for _, typ := range []string{"FLOAT", "DOUBLE"} {
		s := &schema.Schema{Fields: []schema.Field{{ID: 0, Name: "x", Type: mustType(t, typ)}}}
		for at := range 7 {
			var in []Rows
			for _, batch := range [][]float64{{1, 2, 3}, {4, 5, 6}} {
				dt, _ := schema.ArrowType(s.Fields[0].Type)
				b := array.NewBuilder(alloc, dt)
				for _, v := range batch {
					if int(v) == at {
						v = math.NaN()
					}
					if typ == "FLOAT" {
						schematest.Append(b, float32(v))
					} else {
						schematest.Append(b, v)
					}
				}
				in = append(in, Rows{N: 3, Cols: []arrow.Array{b.NewArray()}})
			}
			_, info := writeFile(t, WriterConfig{Schema: s, RowGroupRows: 2}, in...)
			if got := info.Value[0]; (got.Min != nil || got.Max != nil) != (at == 0) || got.Nulls != 0 {
				t.Errorf("%s with NaN in place of %d: %v", typ, at, got)
			}
		}
	}
}

func TestStatsModes(t *testing.T) {
	s := &schema.Schema{Fields: []schema.Field{
		{ID: 0, Name: "none", Type: mustType(t, "STRING")}, {ID: 1, Name: "counts", Type: mustType(t, "STRING")},
		{ID: 2, Name: "full", Type: mustType(t, "STRING")}, {ID: 3, Name: "truncate(3)", Type: mustType(t, "STRING")},
	}}
	b := array.NewStringBuilder(alloc)
	b.AppendValues([]string{"zebra", "", "apple"}, []bool{true, false, true})
	a := b.NewArray()
	_, info := writeFile(t, WriterConfig{Schema: s, Stats: func(c string) schema.StatsMode { return schema.StatsMode(c) }}, Rows{N: 3, Cols: []arrow.Array{a, a, a, a}})
	want := []ColumnStats{{nil, nil, -1}, {nil, nil, 1}, {"apple", "zebra", 1}, {"app", "zec", 1}}
	for i := range want {
		if info.Value[i] != want[i] {
			t.Errorf("mode %s: %v, want %v", s.Fields[i].Name, info.Value[i], want[i])
		}
	}
	_, info = writeFile(t, WriterConfig{Schema: s}, Rows{N: 3, Cols: []arrow.Array{a, a, a, a}})
	if want := (ColumnStats{"apple", "zebra", 1}); info.Value[0] != want {
		t.Errorf("default: %v", info.Value[0])
	}
}

// TestLongBound must not keep the batch it came from, nor write long values into the footer.
func TestLongBound(t *testing.T) {
	s := &schema.Schema{Fields: []schema.Field{{ID: 0, Name: "a", Type: mustType(t, "STRING")}}}
	long := strings.Repeat("\U0010FFFF", 100000)
	b := array.NewStringBuilder(alloc)
	b.AppendValues([]string{"a", long}, nil)
	data, info := writeFile(t, WriterConfig{Schema: s}, Rows{N: 2, Cols: []arrow.Array{b.NewArray()}})
	if got := info.Value[0]; got.Min != nil || got.Max != nil || got.Nulls != 0 {
		t.Errorf("bounds of %.10q: %.40v", long, got)
	}
	if len(data) > 2000 {
		t.Errorf("%d bytes for one long value that compresses well: is it in the statistics?", len(data))
	}
}

func toInt(v any) int64 {
	var n int64
	fmt.Sscan(fmt.Sprint(v), &n)
	return n
}
