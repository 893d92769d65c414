package lsm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// The benchmarks' row has ten columns: eight of the table, sequence number and kind. Eight runs of 250,000 rows.
const (
	benchRuns = 8
	benchRows = 250_000
	benchKeys = 4_000_000
)

func benchSchema(b testing.TB, thin bool) *schema.Schema {
	return newSchema(b, []string{"k"}, map[string]string{"data-file.thin-mode": fmt.Sprint(thin)},
		"k BIGINT", "s1 STRING NOT NULL", "s2 STRING NOT NULL", "d DOUBLE NOT NULL", "ts TIMESTAMP(6) NOT NULL",
		"dec DECIMAL(18, 2) NOT NULL", "i INT NOT NULL", "b BOOLEAN NOT NULL")
}

// benchKeysOf gives the sorted keys of a run: picked at random, or in blocks of span consecutive ones.
func benchKeysOf(run, span int) []int64 {
	r := rand.New(rand.NewPCG(uint64(run), 77))
	pick := map[int]bool{}
	for len(pick) < benchRows/span {
		pick[r.IntN(benchKeys/span)] = true
	}
	keys := make([]int64, 0, benchRows)
	for block := range pick {
		for i := range span {
			keys = append(keys, int64(block*span+i))
		}
	}
	slices.Sort(keys)
	return keys
}

var (
	benchFirst = strings.Fields("james mary robert patricia john jennifer michael linda david elizabeth william barbara richard susan joseph")
	benchLast  = strings.Fields("smith johnson williams brown jones garcia miller davis rodriguez martinez hernandez lopez gonzalez wilson anderson")
	benchNoun  = strings.Fields("chair table lamp phone charger bottle jacket keyboard monitor backpack blender notebook camera speaker kettle")
)

// benchBatch makes the rows of a run in arrival order, that is, in random order of their keys.
func benchBatch(s *schema.Schema, run int, keys []int64) datafile.Rows {
	r := rand.New(rand.NewPCG(uint64(run), 7))
	products := make([]string, 5000)
	for i := range products {
		products[i] = benchLast[i%15] + " " + benchNoun[i/15%15] + " " + strconv.Itoa(i*7919%100000)
	}
	mem := memory.DefaultAllocator
	bs := make([]array.Builder, len(s.Fields))
	for i, f := range s.Fields {
		t, err := schema.ArrowType(f.Type)
		if err != nil {
			panic(err)
		}
		bs[i] = array.NewBuilder(mem, t)
		bs[i].Reserve(len(keys))
	}
	out := datafile.Rows{N: len(keys), Kinds: make([]int8, len(keys))}
	for n, at := range r.Perm(len(keys)) {
		switch x := r.IntN(100); {
		case x >= 95:
			out.Kinds[n] = 3
		case x >= 70:
			out.Kinds[n] = 2
		}
		bs[0].(*array.Int64Builder).Append(keys[at])
		bs[1].(*array.StringBuilder).Append(benchFirst[r.IntN(15)] + "." + benchLast[r.IntN(15)] + strconv.Itoa(r.IntN(10000)) + "@mail.example.org")
		bs[2].(*array.StringBuilder).Append(products[int(r.ExpFloat64()*700)%5000])
		bs[3].(*array.Float64Builder).Append(r.NormFloat64()*50 + 100)
		bs[4].(*array.TimestampBuilder).Append(arrow.Timestamp(1_750_000_000_000_000 + int64(run*benchRows+n)*1000 + r.Int64N(900_000)))
		bs[5].(*array.Decimal128Builder).Append(decimal128.FromI64(int64(r.ExpFloat64() * 5000)))
		bs[6].(*array.Int32Builder).Append(r.Int32N(1000))
		bs[7].(*array.BooleanBuilder).Append(r.IntN(10) == 0)
	}
	for _, b := range bs {
		out.Cols = append(out.Cols, b.NewArray())
	}
	return out
}

func reportRows(b *testing.B, rows int) {
	b.ReportMetric(float64(rows)*float64(b.N)/1e6/b.Elapsed().Seconds(), "Mrows/s")
}

// BenchmarkSort sorts keys in arrival order.
func BenchmarkSort(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{100, 200, 400, benchRows} {
		for _, kind := range []string{"bigint", "string", "prefixed", "ascending"} {
			typ := "STRING"
			vals := make([]any, n)
			for i := range vals {
				switch kind {
				case "bigint":
					typ, vals[i] = "BIGINT", r.Int64N(benchKeys)
				case "ascending":
					typ, vals[i] = "BIGINT", int64(i)
				case "string":
					vals[i] = strconv.FormatUint(r.Uint64(), 36)
				default:
					vals[i] = fmt.Sprintf("customer-%09d", r.IntN(benchKeys))
				}
			}
			s := newSchema(b, []string{"k"}, nil, "k "+typ)
			col := []arrow.Array{makeArray(b, s.Fields[0].Type, vals)}
			b.Run(fmt.Sprint(kind, "/", n), func(b *testing.B) {
				for range b.N {
					v, err := NewKeys(s).Encode(col, n)
					if err != nil {
						b.Fatal(err)
					}
					sortNewest(&v)
				}
				reportRows(b, n)
			})
		}
	}
}

// BenchmarkMergePlan plans a merge of eight runs and copies nothing.
func BenchmarkMergePlan(b *testing.B) {
	for name, span := range map[string]int{"rand": 1, "clus": 100} {
		s := newSchema(b, []string{"k"}, nil, "k BIGINT")
		var runs [][]datafile.Rows
		for i := range benchRuns {
			keys := benchKeysOf(i, span)
			var windows []datafile.Rows
			for at := 0; at < len(keys); at += 32 << 10 {
				part := keys[at:min(len(keys), at+32<<10)]
				bld := array.NewInt64Builder(memory.DefaultAllocator)
				bld.AppendValues(part, nil)
				w := datafile.Rows{N: len(part), Seq: make([]int64, len(part)), Kinds: make([]int8, len(part)), Cols: []arrow.Array{bld.NewArray()}}
				for j := range w.Seq {
					w.Seq[j] = int64(i)
				}
				windows = append(windows, w)
			}
			runs = append(runs, windows)
		}
		b.Run(name, func(b *testing.B) {
			rows := 0
			for range b.N {
				var rs []Run
				rows = 0
				for _, w := range runs {
					rs = append(rs, &sliceRun{windows: w})
					for _, x := range w {
						rows += x.N
					}
				}
				m := Merge(MergeSpec{Schema: s, KeyCols: []int{0}}, rs)
				if err := m.start(b.Context()); err != nil {
					b.Fatal(err)
				}
				for {
					if err := m.plan(b.Context()); err != nil {
						b.Fatal(err)
					}
					if m.rows == 0 {
						break
					}
					for _, w := range m.wins {
						w.slot = -1
					}
					m.wins, m.ranges, m.rows = m.wins[:0], m.ranges[:0], 0
				}
			}
			reportRows(b, rows)
		})
	}
}

func benchFiles(b testing.TB, s *schema.Schema) (Files, Part) {
	o, err := s.ParseOptions()
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	return Files{
		Store: storage.NewMem(), Schema: s, Options: o, Now: fixedNow, Parallel: 1,
		NewName: func() string { n++; return fmt.Sprint("data-", n, ".parquet") },
	}, Part{Dir: "bucket-0"}
}

// BenchmarkFlush writes level-0 files of 250,000 rows.
func BenchmarkFlush(b *testing.B) {
	for _, thin := range []bool{true, false} {
		s := benchSchema(b, thin)
		rows := benchBatch(s, 0, benchKeysOf(0, 1))
		for _, parallel := range []int{1, 2} {
			b.Run(fmt.Sprintf("thin=%v/goroutines=%d", thin, parallel), func(b *testing.B) {
				f, part := benchFiles(b, s)
				f.Parallel = parallel
				for range b.N {
					made, err := f.Flush(b.Context(), part, rows, nil, 0)
					if err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					dropAll(b, f, part, made)
					b.StartTimer()
				}
				reportRows(b, rows.N)
			})
		}
	}
}

func dropAll(b testing.TB, f Files, part Part, made []manifest.DataFile) {
	for _, m := range made {
		if err := f.Store.Delete(context.Background(), part.Dir+"/"+m.Name); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompact merges eight level-0 files of 250,000 rows each into one of the highest level.
func BenchmarkCompact(b *testing.B) {
	for _, thin := range []bool{true, false} {
		s := benchSchema(b, thin)
		for _, kind := range []struct {
			name string
			span int
		}{{"rand", 1}, {"clus", 100}} {
			f, part := benchFiles(b, s)
			var in []manifest.DataFile
			rows := int64(0)
			for i := range benchRuns {
				batch := benchBatch(s, i, benchKeysOf(i, kind.span))
				batch.Kinds = nil // all rows stay, as in the figures to compare with
				made, err := f.Flush(b.Context(), part, batch, nil, int64(i*benchRows))
				if err != nil {
					b.Fatal(err)
				}
				in = append(in, made...)
				rows += made[0].Rows
			}
			for _, parallel := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/thin=%v/goroutines=%d", kind.name, thin, parallel), func(b *testing.B) {
					f.Parallel = parallel
					for range b.N {
						c, err := f.Compact(b.Context(), part, Job{Files: in, Output: 2, DropDeletes: true})
						if err != nil {
							b.Fatal(err)
						}
						b.StopTimer()
						dropAll(b, f, part, c.Added)
						b.StartTimer()
					}
					reportRows(b, int(rows))
				})
			}
		}
	}
}
