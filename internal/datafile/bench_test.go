package datafile

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

// The benchmarks use a row of ten columns: key, sequence number, kind, a mail address, a product name of 5,000, a
// double, a timestamp, a decimal, a small number and a boolean: about 96 bytes.
const (
	benchRows  = 500_000
	benchBatch = 65536
)

// benchTable is the table of the benchmark row. Values are nullable, as in most tables.
func benchTable(tb testing.TB, nullable bool) *schema.Schema {
	not := " NOT NULL"
	if nullable {
		not = ""
	}
	s := &schema.Schema{Version: 3, PrimaryKeys: []string{"k"}}
	for i, c := range []string{
		"k BIGINT NOT NULL", "s1 STRING" + not, "s2 STRING" + not, "d DOUBLE" + not, "ts TIMESTAMP(6)" + not,
		"dec DECIMAL(18, 2)" + not, "i INT" + not, "b BOOLEAN" + not,
	} {
		name, typ, _ := strings.Cut(c, " ")
		s.Fields = append(s.Fields, schema.Field{ID: i, Name: name, Type: mustType(tb, typ)})
	}
	return s
}

// benchData makes the rows and gives their plain size.
func benchData(s *schema.Schema, rows int) (out []Rows, size int64) {
	r := newRand(42)
	words := func(s string) []string { return strings.Fields(s) }
	first, last := words("james mary robert patricia john jennifer michael linda david susan"), words("smith johnson williams brown jones garcia miller davis wilson lee")
	hosts := words("example.com mail.example.org corp.example.net x.io")
	adj, noun := words("red green blue shiny heavy light tiny wireless"), words("chair table lamp phone charger bottle jacket keyboard")
	products := make([]string, 5000)
	for i := range products {
		products[i] = adj[r.IntN(len(adj))] + " " + noun[r.IntN(len(noun))] + " " + strconv.Itoa(r.IntN(100000))
	}
	seq := r.Perm(rows)
	key := int64(0)
	for from := 0; from < rows; from += benchBatch {
		n := min(benchBatch, rows-from)
		b := Rows{N: n, Seq: make([]int64, n), Kinds: make([]int8, n)}
		bs := make([]array.Builder, len(s.Fields))
		for i, f := range s.Fields {
			dt, err := schema.ArrowType(f.Type)
			if err != nil {
				panic(err)
			}
			bs[i] = array.NewBuilder(memory.DefaultAllocator, dt)
		}
		for i := range n {
			key += 1 + int64(r.IntN(9))
			sq := int64(seq[from+i])
			b.Seq[i] = sq
			switch x := r.IntN(100); {
			case x >= 95:
				b.Kinds[i] = 3
			case x >= 70:
				b.Kinds[i] = 2
			}
			s1 := fmt.Sprintf("%s.%s%d@%s", first[r.IntN(len(first))], last[r.IntN(len(last))], r.IntN(10000), hosts[r.IntN(len(hosts))])
			s2 := products[int(r.ExpFloat64()*700)%len(products)]
			bs[0].(*array.Int64Builder).Append(key)
			bs[1].(*array.StringBuilder).Append(s1)
			bs[2].(*array.StringBuilder).Append(s2)
			bs[3].(*array.Float64Builder).Append(r.NormFloat64()*50 + 100)
			bs[4].(*array.TimestampBuilder).Append(arrow.Timestamp(1_750_000_000_000_000 + sq*1000 + int64(r.IntN(900_000))))
			bs[5].(*array.Decimal128Builder).Append(decimal128.FromI64(int64(r.ExpFloat64() * 5000)))
			bs[6].(*array.Int32Builder).Append(int32(r.IntN(1000)))
			bs[7].(*array.BooleanBuilder).Append(r.IntN(10) == 0)
			size += int64(8 + 8 + 1 + len(s1) + 4 + len(s2) + 4 + 8 + 8 + 8 + 4 + 1)
		}
		for _, x := range bs {
			b.Cols = append(b.Cols, x.NewArray())
		}
		out = append(out, b)
	}
	return out, size
}

func report(b *testing.B, rows, file int64) {
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
	if file > 0 {
		b.ReportMetric(float64(file)/float64(rows), "fileB/row")
	}
}

// BenchmarkEncode writes the benchmark rows to nowhere.
func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct {
		name     string
		nullable bool
		cfg      WriterConfig
	}{
		{"required/1", false, WriterConfig{}},
		{"nullable/1", true, WriterConfig{}},
		{"nullable/2", true, WriterConfig{Parallel: 2}},
		{"snappy/1", true, WriterConfig{Compression: "snappy"}},
		{"none/1", true, WriterConfig{Compression: "none"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := benchTable(b, c.nullable)
			rows, size := benchData(s, benchRows)
			cfg := c.cfg
			cfg.Schema, cfg.Keyed, cfg.Thin = s, true, true
			b.SetBytes(size)
			b.ReportAllocs()
			b.ResetTimer()
			var info Info
			for range b.N {
				w, err := NewWriter(io.Discard, cfg)
				if err != nil {
					b.Fatal(err)
				}
				for _, r := range rows {
					if err := w.Write(r); err != nil {
						b.Fatal(err)
					}
				}
				if info, err = w.Close(); err != nil {
					b.Fatal(err)
				}
			}
			report(b, benchRows, info.Size)
		})
	}
}

// BenchmarkDecode reads them.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name     string
		nullable bool
		codec    string
		batch    int
	}{
		{"required/64k", false, "zstd", 65536},
		{"nullable/64k", true, "zstd", 65536},
		{"nullable/8k", true, "zstd", 8192},
		{"snappy/64k", true, "snappy", 65536},
		{"none/64k", true, "none", 65536},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := benchTable(b, c.nullable)
			rows, size := benchData(s, benchRows)
			file, _ := writeFile(b, WriterConfig{Schema: s, Keyed: true, Thin: true, Compression: c.codec}, rows...)
			b.SetBytes(size)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				r, err := Open(openBytes(file), "bench", s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: c.batch})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for {
					x, err := r.Next()
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					n += x.N
				}
				if n != benchRows {
					b.Fatalf("%d rows", n)
				}
			}
			report(b, benchRows, 0)
		})
	}
}
