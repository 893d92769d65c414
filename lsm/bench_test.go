package lsm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
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
	benchFirst = strings.Fields("james mary robert patricia john jennifer michael linda david elizabeth william barbara richard susan joseph " +
		"jessica thomas sarah charles karen christopher lisa daniel nancy matthew betty anthony sandra mark margaret")
	benchLast = strings.Fields("smith johnson williams brown jones garcia miller davis rodriguez martinez hernandez lopez gonzalez wilson anderson " +
		"thomas taylor moore jackson martin lee perez thompson white harris sanchez clark ramirez lewis robinson")
	benchDomain = strings.Fields("example.com mail.example.org corp.example.net uni.example.edu x.io")
	benchAdj    = strings.Fields("red green blue shiny heavy light tiny huge smart cheap premium organic wireless portable vintage")
	benchNoun   = strings.Fields("chair table lamp phone charger bottle jacket keyboard monitor backpack blender notebook camera speaker kettle")
)

func pickOne(r *rand.Rand, words []string) string { return words[r.IntN(len(words))] }

// benchBatch makes the rows of a run in arrival order, that is, in random order of their keys.
func benchBatch(s *schema.Schema, run int, keys []int64) datafile.Rows {
	r := rand.New(rand.NewPCG(uint64(run), 7))
	products := make([]string, 5000)
	for i := range products {
		products[i] = benchAdj[i%15] + " " + benchNoun[i/15%15] + " " + strconv.Itoa(i*7919%100000)
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
		bs[1].(*array.StringBuilder).Append(pickOne(r, benchFirst) + "." + pickOne(r, benchLast) + strconv.Itoa(r.IntN(10000)) + "@" + pickOne(r, benchDomain))
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

// stopwatch measures rows a second, and rows a second of processor time of the whole process (garbage collection
// included), which says more on a machine with other work.
type stopwatch struct {
	b  *testing.B
	at time.Duration
}

func newStopwatch(b *testing.B) *stopwatch { return &stopwatch{b: b, at: cpuTime()} }

func (w *stopwatch) report(rows int) {
	cpu := cpuTime() - w.at
	n := float64(rows) * float64(w.b.N) / 1e6
	w.b.ReportMetric(n/w.b.Elapsed().Seconds(), "Mrows/s")
	w.b.ReportMetric(n/cpu.Seconds(), "Mrows/cpu-s")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
			col := []arrow.Array{schematest.Array(b, s.Fields[0].Type, vals...)}
			b.Run(fmt.Sprint(kind, "/", n), func(b *testing.B) {
				w := newStopwatch(b)
				for range b.N {
					v, err := NewKeys(s).Encode(col, n)
					if err != nil {
						b.Fatal(err)
					}
					sortNewest(&v)
				}
				w.report(n)
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
			watch := newStopwatch(b)
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
			watch.report(rows)
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

// BenchmarkZstdLimit compresses the plain bytes of the same rows with zstd-1: the wall that every writer of plain pages
// stands before. On a machine with other work, compare with this figure rather than with one taken elsewhere.
func BenchmarkZstdLimit(b *testing.B) {
	rows := benchBatch(benchSchema(b, true), 0, benchKeysOf(0, 1))
	bufs := [][]byte{make([]byte, 8*rows.N), make([]byte, rows.N)} // sequence numbers and kinds
	for i := range rows.N {
		binary.LittleEndian.PutUint64(bufs[0][8*i:], uint64(i*7919%rows.N))
		bufs[1][i] = byte(rows.Kinds[i])
	}
	for i, c := range rows.Cols {
		switch d := c.Data().Buffers(); {
		case len(d) == 3:
			bufs = append(bufs, d[2].Bytes(), d[1].Bytes()[:4*rows.N]) // Parquet's lengths have four bytes, too
		case i == 5: // the decimal as a long
			low := make([]byte, 0, 8*rows.N)
			for _, v := range c.(*array.Decimal128).Values() {
				low = binary.LittleEndian.AppendUint64(low, v.LowBits())
			}
			bufs = append(bufs, low)
		default:
			bufs = append(bufs, d[1].Bytes())
		}
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	defer enc.Close()
	var dst []byte
	w := newStopwatch(b)
	for range b.N {
		for _, buf := range bufs {
			for len(buf) > 0 {
				n := min(len(buf), 1<<20)
				dst = enc.EncodeAll(buf[:n], dst[:0])
				buf = buf[n:]
			}
		}
	}
	w.report(rows.N)
}

// sink takes what is created and keeps only its size, so that benchmarks do not measure a store.
type sink struct{ storage.Store }

func (s sink) Create(context.Context, string) (storage.Upload, error) { return new(sinkUpload), nil }

type sinkUpload struct{ n int }

func (u *sinkUpload) Write(p []byte) (int, error) { u.n += len(p); return len(p), nil }
func (u *sinkUpload) Commit() error               { return nil }
func (u *sinkUpload) Abort()                      {}

// BenchmarkFlush writes level-0 files of 250,000 rows.
func BenchmarkFlush(b *testing.B) {
	for _, thin := range []bool{true, false} {
		s := benchSchema(b, thin)
		rows := benchBatch(s, 0, benchKeysOf(0, 1))
		for _, parallel := range []int{1, 2} {
			b.Run(fmt.Sprintf("thin=%v/goroutines=%d", thin, parallel), func(b *testing.B) {
				f, part := benchFiles(b, s)
				f.Store, f.Parallel = sink{f.Store}, parallel
				w := newStopwatch(b)
				for range b.N {
					if _, err := f.Flush(b.Context(), part, []datafile.Rows{rows}, nil, 0); err != nil {
						b.Fatal(err)
					}
				}
				w.report(rows.N)
			})
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
				made, err := f.Flush(b.Context(), part, []datafile.Rows{batch}, nil, int64(i*benchRows))
				if err != nil {
					b.Fatal(err)
				}
				in = append(in, made...)
				rows += made[0].Rows
			}
			f.Store = sink{f.Store}
			for _, parallel := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/thin=%v/goroutines=%d", kind.name, thin, parallel), func(b *testing.B) {
					f.Parallel = parallel
					w := newStopwatch(b)
					for range b.N {
						if _, err := f.Compact(b.Context(), part, Job{Files: in, Output: 2, DropDeletes: true}); err != nil {
							b.Fatal(err)
						}
					}
					w.report(int(rows))
				})
			}
		}
	}
}

// BenchmarkTakeStrings copies strings in random order.
func BenchmarkTakeStrings(b *testing.B) {
	rows := benchBatch(benchSchema(b, true), 0, benchKeysOf(0, 1))
	idx := make([]int32, rows.N)
	for i, x := range rand.New(rand.NewPCG(1, 3)).Perm(rows.N) {
		idx[i] = int32(x)
	}
	w := newStopwatch(b)
	for range b.N {
		if _, err := Take(rows.Cols[1], idx); err != nil {
			b.Fatal(err)
		}
	}
	w.report(rows.N)
}
