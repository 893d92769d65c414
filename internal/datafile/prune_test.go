package datafile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/calve-io/calve/schema"
)

// prunedFile is a file with several row groups and pages that end at different rows.
type prunedFile struct {
	name   string
	data   []byte
	schema *schema.Schema
	rows   Rows
	keyed  bool
}

func prunedFiles(t *testing.T) []prunedFile {
	s := allTypes(t)
	in := randomRows(newRand(11), s, 0, 1500, valueShape{nulls: 0.2, repeats: 60, long: 3000})
	var out []prunedFile
	for _, n := range []int{500, 1500} {
		data, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, RowGroupRows: n}, in)
		out = append(out, prunedFile{fmt.Sprintf("calve, groups of %d", n), data, s, in, true})
	}
	mixed := randomRows(newRand(12), s, 0, 1500, valueShape{nulls: 0.5, long: 3000})
	data, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, RowGroupRows: 900, Compression: "none"}, mixed)
	out = append(out, prunedFile{"calve, no dictionaries", data, s, mixed, true})
	in.Seq, in.Kinds = nil, nil
	for name, props := range map[string][]parquet.WriterProperty{
		"arrow, no index":   {parquet.WithDataPageSize(3000), parquet.WithBatchSize(50), parquet.WithMaxRowGroupLength(600)},
		"arrow, index":      {parquet.WithDataPageSize(3000), parquet.WithBatchSize(50), parquet.WithPageIndexEnabled(true), parquet.WithMaxRowGroupLength(600)},
		"arrow, v2, plain":  {parquet.WithDataPageSize(3000), parquet.WithBatchSize(50), parquet.WithPageIndexEnabled(true), parquet.WithDictionaryDefault(false), parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithCompression(compress.Codecs.Zstd)},
		"arrow, statistics": {parquet.WithStats(false), parquet.WithMaxRowGroupLength(600)},
	} {
		var buf bytes.Buffer
		w, err := pqarrow.NewFileWriter(s.Arrow(), &buf, parquet.NewWriterProperties(props...), pqarrow.NewArrowWriterProperties())
		if err == nil {
			err = errors.Join(w.Write(array.NewRecordBatch(s.Arrow(), in.Cols, int64(in.N))), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, prunedFile{name, buf.Bytes(), s, in, false})
	}
	return out
}

// TestPruneAnyRows leaves out parts of files at random, by statistics and by the first columns of batches: what is read
// must be the rows that their numbers say.
func TestPruneAnyRows(t *testing.T) {
	for _, f := range prunedFiles(t) {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(6) {
				r := newRand(seed)
				asked, cols := int64(0), r.Perm(len(f.schema.Fields))[:8]
				want := ReadSpec{Schema: f.schema, Cols: cols, KeyValue: f.keyed, BatchRows: 1 + r.IntN(400), ReadAhead: 1 << r.IntN(16)}
				share := r.Float64()
				if r.IntN(4) > 0 {
					want.Prune = &Prune{Cols: r.Perm(len(f.schema.Fields))[:3], Match: func(n int64, stats func(int) ColumnStats) bool {
						for i := range 3 {
							checkClaim(t, stats(i), n)
						}
						asked += n
						return r.Float64() < share
					}}
				}
				if r.IntN(2) > 0 {
					want.Early = 1 + r.IntN(4)
					want.Keep = func(x Rows) (bool, error) {
						sameRows(t, f.schema, cols[:want.Early], Rows{N: x.N, Cols: x.Cols[:want.Early]}, sliceRows(f.rows, cols[:want.Early], x.First, x.N, false))
						return r.Float64() < share, nil
					}
				}
				got, err := readFile(f.data, f.schema, want)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				last, n := int64(0), 0
				for _, x := range got {
					if x.First < last {
						t.Fatalf("seed %d: rows %d after %d", seed, x.First, last)
					}
					last = x.First + int64(x.N)
					n += x.N
					sameRows(t, f.schema, cols, x, sliceRows(f.rows, cols, x.First, x.N, true))
				}
				if want.Prune == nil && want.Keep == nil && n != f.rows.N || want.Prune != nil && asked == 0 {
					t.Fatalf("seed %d: %d rows read, statistics of %d asked", seed, n, asked)
				}
			}
		})
	}
}

func checkClaim(t *testing.T, s ColumnStats, rows int64) {
	t.Helper()
	if s.Nulls < -1 || s.Nulls > rows {
		t.Errorf("%d nulls in %d rows", s.Nulls, rows)
	}
}

func sliceRows(r Rows, cols []int, first int64, n int, system bool) Rows {
	out := Rows{N: n, Cols: make([]arrow.Array, len(cols))}
	for i, c := range cols {
		out.Cols[i] = array.NewSlice(r.Cols[c], first, first+int64(n))
	}
	if system && r.Seq != nil {
		out.Seq, out.Kinds = r.Seq[first:first+int64(n)], r.Kinds[first:first+int64(n)]
	}
	return out
}

// compareCells orders cells of one type; ok is false for types without order here.
func compareCells(a, b any) (int, bool) {
	switch x := a.(type) {
	case int8:
		return cmp.Compare(x, b.(int8)), true
	case int16:
		return cmp.Compare(x, b.(int16)), true
	case int32:
		return cmp.Compare(x, b.(int32)), true
	case int64:
		return cmp.Compare(x, b.(int64)), true
	case float32:
		return cmp.Compare(x, b.(float32)), true
	case float64:
		return cmp.Compare(x, b.(float64)), true
	case string:
		return strings.Compare(x, b.(string)), true
	case decimal128.Num:
		return x.Cmp(b.(decimal128.Num)), true
	case bool:
		return cmp.Compare(map[bool]int{true: 1}[x], map[bool]int{true: 1}[b.(bool)]), true
	}
	return 0, false
}

// TestPruneByStatistics looks for values by the statistics of every column: no row that has the value may be left out,
// and the statistics must be of use.
func TestPruneByStatistics(t *testing.T) {
	for _, f := range prunedFiles(t) {
		t.Run(f.name, func(t *testing.T) {
			for c, field := range f.schema.Fields {
				used := false
				for seed := range uint64(2) {
					r := newRand(seed + 100*uint64(c))
					at := r.IntN(f.rows.N)
					v := schema.Cell(f.rows.Cols[c], at)
					matches := func(x any) bool {
						if v == nil || x == nil {
							return v == nil && x == nil
						}
						d, ok := compareCells(x, v)
						return d == 0 || !ok
					}
					match := func(n int64, stats func(int) ColumnStats) bool {
						s := stats(0)
						if v == nil {
							used = used || s.Nulls >= 0
							return s.Nulls != 0
						}
						if s.Nulls == n {
							return false
						}
						lo, hi := s.Min, s.Max
						if lo != nil {
							d, ok := compareCells(v, lo)
							used = true
							if ok && d < 0 {
								return false
							}
						}
						if hi != nil {
							if d, ok := compareCells(v, hi); ok && d > 0 {
								return false
							}
						}
						return true
					}
					got, err := readFile(f.data, f.schema, ReadSpec{Schema: f.schema, Cols: []int{c}, Prune: &Prune{Cols: []int{c}, Match: match}})
					if err != nil {
						t.Fatal(err)
					}
					var found, all int
					for _, x := range got {
						for i := range x.N {
							if matches(schema.Cell(x.Cols[0], i)) {
								found++
							}
						}
					}
					for i := range f.rows.N {
						if matches(schema.Cell(f.rows.Cols[c], i)) {
							all++
						}
					}
					if found != all {
						t.Fatalf("column %s %s: %d rows with %v, want %d", field.Name, field.Type, found, v, all)
					}
				}
				if root := field.Type.Root; !used && root != schema.Binary && root != schema.VarBinary && strings.HasPrefix(f.name, "calve") {
					t.Errorf("column %s %s has no statistics", field.Name, field.Type)
				}
			}
		})
	}
}

// countedFile counts what is read.
type countedFile struct {
	memFile
	bytes *int64
}

func (c countedFile) ReadAt(p []byte, off int64) (int, error) {
	*c.bytes += int64(len(p))
	return c.memFile.ReadAt(p, off)
}

// TestPruneReadsLess looks for one key of many: only its pages are fetched.
func TestPruneReadsLess(t *testing.T) {
	s := &schema.Schema{Version: 3, PrimaryKeys: []string{"k"}, Options: map[string]string{}, Fields: []schema.Field{
		{ID: 0, Name: "k", Type: mustType(t, "BIGINT NOT NULL")}, {ID: 1, Name: "a", Type: mustType(t, "STRING")}, {ID: 2, Name: "b", Type: mustType(t, "DOUBLE")}}}
	in := randomRows(newRand(5), s, 0, 200_000, valueShape{long: 500})
	data, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, RowGroupRows: 100_000}, in)
	read := func(lo, hi int64, keep func(Rows) (bool, error)) (rows int, read int64) {
		r, err := Open(countedFile{openBytes(data), &read}, "test.parquet", s, ReadSpec{Schema: s, Cols: []int{0, 1, 2}, KeyValue: true, Keep: keep, Early: 1, BatchRows: 1000,
			Prune: &Prune{Cols: []int{0}, Match: func(_ int64, stats func(int) ColumnStats) bool {
				x := stats(0)
				return x.Min == nil || x.Min.(int64) <= hi && x.Max.(int64) >= lo
			}}})
		if err != nil {
			t.Fatal(err)
		}
		for {
			x, err := r.Next()
			if err == io.EOF {
				return rows, read
			}
			if err != nil {
				t.Fatal(err)
			}
			rows += x.N
		}
	}
	n, all := read(0, 1<<40, nil)
	if n != in.N || all < int64(len(data)) {
		t.Fatalf("%d rows, %d bytes of %d", n, all, len(data))
	}
	if n, some := read(123_456, 123_456, nil); n == 0 || n > pageRows || some > all/4 {
		t.Errorf("one key: %d rows, %d bytes of %d", n, some, all)
	}
	n, some := read(123_456, 123_456, func(x Rows) (bool, error) {
		k := x.Cols[0].(*array.Int64).Int64Values()
		return k[0] <= 123_456 && k[len(k)-1] >= 123_456, nil
	})
	if n == 0 || n > 1000 || some > all/4 {
		t.Errorf("one key, by batch: %d rows, %d bytes of %d", n, some, all)
	}
	if n, some := read(-5, -5, nil); n != 0 || some > tailBytes {
		t.Errorf("no key: %d rows, %d bytes", n, some)
	}
}

// TestPruneHostile alters bytes of footers and page indexes: rows may be wrong, but nothing worse happens.
func TestPruneHostile(t *testing.T) {
	s := allTypes(t)
	for i, b := range corpus(t, s) {
		r := rand.New(rand.NewPCG(uint64(i), 9))
		for range 60 {
			x := bytes.Clone(b)
			for range 1 + r.IntN(3) {
				x[len(x)-8-1-r.IntN(min(len(x)-8, 9000))] = byte(r.Uint32())
			}
			_, err := readFile(x, s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: 64, Prune: &Prune{Cols: allColumns(s),
				Match: func(_ int64, stats func(int) ColumnStats) bool { stats(r.IntN(len(s.Fields))); return r.IntN(2) > 0 }}})
			if err != nil && (strings.Contains(err.Error(), "panic:") || !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported)) {
				t.Fatal(err)
			}
		}
	}
}
