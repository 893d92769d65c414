package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/lsm"
	"github.com/calve-io/calve/schema"
)

// The table of most benchmarks: with sequence number and kind its rows have ten columns. All values are nullable, as in
// most tables, and four of them have nulls.
const benchColumns = "k BIGINT NOT NULL, s1 STRING, s2 STRING, d DOUBLE, ts TIMESTAMP(6), dec DECIMAL(18, 2), i INT, b BOOLEAN"

// Shares of nulls, in percent.
const (
	nullProduct = 5
	nullDouble  = 5
	nullTime    = 1
	nullInt     = 2
)

// keysPerRow is how many keys a run draws each of its rows from: with eight runs, about a fifth of all rows are older
// versions of others.
const keysPerRow = 16

// newTable makes the schema of the benchmark table.
func newTable(options map[string]string) (*schema.Schema, error) {
	cols, err := schema.ParseColumns(benchColumns)
	if err != nil {
		return nil, err
	}
	return schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"k"}, Options: options})
}

// thin is the layout that stores key columns once.
var thin = map[string]string{"data-file.thin-mode": "true"}

// drawKeys gives n different keys in ascending order: picked at random, or in blocks of span consecutive ones.
func drawKeys(run, n, span int) []int64 {
	r := rand.New(rand.NewPCG(uint64(run), 77))
	space := keysPerRow * n / span
	picked := map[int]bool{}
	for len(picked) < n/span {
		picked[r.IntN(space)] = true
	}
	keys := make([]int64, 0, n)
	for _, block := range slices.Sorted(maps.Keys(picked)) {
		for i := range span {
			keys = append(keys, int64(block*span+i))
		}
	}
	return keys
}

var (
	firstNames = strings.Fields("james mary robert patricia john jennifer michael linda david elizabeth william barbara richard susan joseph jessica thomas sarah charles karen")
	lastNames  = strings.Fields("smith johnson williams brown jones garcia miller davis rodriguez martinez hernandez lopez gonzalez wilson anderson thomas taylor moore")
	hosts      = strings.Fields("example.com mail.example.org corp.example.net uni.example.edu x.io")
	adjectives = strings.Fields("red green blue shiny heavy light tiny huge smart cheap premium organic wireless portable vintage")
	nouns      = strings.Fields("chair table lamp phone charger bottle jacket keyboard monitor backpack blender notebook camera speaker kettle")
)

// generator makes values of the benchmark table.
type generator struct {
	r        *rand.Rand
	products []string
}

func newGenerator(seed uint64) *generator {
	g := &generator{r: rand.New(rand.NewPCG(seed, 7)), products: make([]string, 5000)}
	pr := rand.New(rand.NewPCG(99, 1))
	for i := range g.products {
		g.products[i] = adjectives[pr.IntN(len(adjectives))] + " " + nouns[pr.IntN(len(nouns))] + " " + strconv.Itoa(pr.IntN(100000))
	}
	return g
}

func (g *generator) mail(dst []byte) []byte {
	dst = append(dst, firstNames[g.r.IntN(len(firstNames))]...)
	dst = append(append(dst, '.'), lastNames[g.r.IntN(len(lastNames))]...)
	dst = strconv.AppendInt(dst, int64(g.r.IntN(10000)), 10)
	return append(append(dst, '@'), hosts[g.r.IntN(len(hosts))]...)
}

func (g *generator) product() string { return g.products[int(g.r.ExpFloat64()*700)%len(g.products)] }

func (g *generator) null(percent int) bool { return g.r.IntN(100) < percent }

// rows makes one row for each key, in the keys' order. first is the number of the first row: timestamps follow it.
func (g *generator) rows(s *schema.Schema, keys []int64, first int) datafile.Rows {
	n := len(keys)
	out := datafile.Rows{N: n, Kinds: make([]int8, n), Seq: make([]int64, n)}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	b.Reserve(n)
	var text []byte
	for i, k := range keys {
		out.Seq[i] = int64(first + i)
		switch x := g.r.IntN(100); {
		case x >= 95:
			out.Kinds[i] = int8(schema.Delete)
		case x >= 70:
			out.Kinds[i] = int8(schema.UpdateAfter)
		}
		b.Field(0).(*array.Int64Builder).UnsafeAppend(k)
		text = g.mail(text[:0])
		b.Field(1).(*array.StringBuilder).BinaryBuilder.Append(text)
		if g.null(nullProduct) {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.StringBuilder).Append(g.product())
		}
		if g.null(nullDouble) {
			b.Field(3).AppendNull()
		} else {
			b.Field(3).(*array.Float64Builder).UnsafeAppend(g.r.NormFloat64()*50 + 100)
		}
		if g.null(nullTime) {
			b.Field(4).AppendNull()
		} else {
			b.Field(4).(*array.TimestampBuilder).Append(arrow.Timestamp(1_750_000_000_000_000 + int64(first+i)*1000 + g.r.Int64N(900_000)))
		}
		b.Field(5).(*array.Decimal128Builder).Append(decimal128.FromI64(int64(g.r.ExpFloat64() * 5000)))
		if g.null(nullInt) {
			b.Field(6).AppendNull()
		} else {
			b.Field(6).(*array.Int32Builder).UnsafeAppend(g.r.Int32N(1000))
		}
		b.Field(7).(*array.BooleanBuilder).UnsafeAppend(g.r.IntN(10) == 0)
	}
	for i := range len(s.Fields) {
		out.Cols = append(out.Cols, b.Field(i).NewArray())
	}
	return out
}

// runs makes the rows of count runs of n rows: of each run one table of rows in arrival order, that is, shuffled.
func makeRuns(s *schema.Schema, count, n, span int) []datafile.Rows {
	out := make([]datafile.Rows, count)
	for i := range out {
		keys := drawKeys(i, n, span)
		g := newGenerator(uint64(i + 1))
		g.r.Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
		out[i] = g.rows(s, keys, i*n)
	}
	return out
}

// sorted gives the rows in key order.
func sorted(r datafile.Rows) (datafile.Rows, error) {
	keys := r.Cols[0].(*array.Int64).Int64Values()
	order := make([]int32, r.N)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(keys[a], keys[b]) })
	out := datafile.Rows{N: r.N, Seq: make([]int64, r.N), Kinds: make([]int8, r.N)}
	for i, o := range order {
		out.Seq[i], out.Kinds[i] = r.Seq[o], r.Kinds[o]
	}
	for _, c := range r.Cols {
		col, err := lsm.Take(c, order)
		if err != nil {
			return out, err
		}
		out.Cols = append(out.Cols, col)
	}
	return out, nil
}

// cut gives the rows in pieces of n.
func cut(r datafile.Rows, n int) []datafile.Rows {
	var out []datafile.Rows
	for at := 0; at < r.N; at += n {
		out = append(out, slice(r, at, min(r.N, at+n)))
	}
	return out
}

// slice gives rows [from, to).
func slice(r datafile.Rows, from, to int) datafile.Rows {
	out := datafile.Rows{N: to - from, Seq: r.Seq[from:to], Kinds: r.Kinds[from:to]}
	for _, c := range r.Cols {
		out.Cols = append(out.Cols, array.NewSlice(c, int64(from), int64(to)))
	}
	return out
}

// plain writes the rows column by column, each value in its plain form: what a file would have to hold without any
// encoding. It is what rates in MB/s count, and what the codec limits are measured on. Nulls take no space.
func plain(r datafile.Rows) []byte {
	le := binary.LittleEndian
	var out []byte
	for _, v := range r.Seq {
		out = le.AppendUint64(out, uint64(v))
	}
	for _, k := range r.Kinds {
		out = append(out, byte(k))
	}
	for _, col := range r.Cols {
		for i := range col.Len() {
			if col.IsNull(i) {
				continue
			}
			switch c := col.(type) {
			case *array.Int64:
				out = le.AppendUint64(out, uint64(c.Value(i)))
			case *array.String:
				out = append(out, c.Value(i)...)
			case *array.Float64:
				out = le.AppendUint64(out, math.Float64bits(c.Value(i)))
			case *array.Timestamp:
				out = le.AppendUint64(out, uint64(c.Value(i)))
			case *array.Decimal128:
				out = le.AppendUint64(out, c.Value(i).LowBits())
			case *array.Int32:
				out = le.AppendUint32(out, uint32(c.Value(i)))
			case *array.Boolean:
				v := byte(0)
				if c.Value(i) {
					v = 1
				}
				out = append(out, v)
			default:
				panic(fmt.Sprintf("column of type %s", col.DataType()))
			}
		}
	}
	return out
}
