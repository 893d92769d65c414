package main

import (
	"bufio"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/schema"
)

const columns = "k BIGINT NOT NULL, s1 STRING, s2 STRING, d DOUBLE, ts TIMESTAMP(6), dec DECIMAL(18, 2), i INT, b BOOLEAN"

// commits is the number of commits, each with rows of different keys in random order.
const commits = 8

// record is one row; nulls has a bit for each column but the key.
type record struct {
	k, ts, dec int64
	nulls      byte
	s1, s2     string
	d          float64
	i          int32
	b          bool
}

type data [commits][]record

// makeData makes the rows of all commits: keys drawn from 16 times as many, so that about a fifth of the rows are older
// versions of others. Doubles are whole hundredths, whose sums do not depend on their order as far as the checksum sees.
func makeData(rows int, sparse bool) *data {
	d := &data{}
	share := 4 // percent of null cells
	if sparse {
		share = 60
	}
	for c := range d {
		r := rand.New(rand.NewPCG(uint64(c), 5))
		taken := make(map[int64]bool, rows)
		for len(d[c]) < rows {
			k := r.Int64N(int64(16 * rows))
			if taken[k] {
				continue
			}
			taken[k] = true
			x := record{
				k: k, ts: 1_750_000_000_000_000 + int64(c*rows+len(d[c]))*1000, dec: r.Int64N(1_000_000),
				s1: "someone." + strconv.Itoa(r.IntN(1_000_000)) + "@example.com", s2: "product number " + strconv.Itoa(int(r.ExpFloat64()*700)),
				d: float64(r.IntN(1_000_000)) / 4, i: int32(r.IntN(1000)), b: r.IntN(10) == 0,
			}
			for bit := range 7 {
				if r.IntN(100) < share {
					x.nulls |= 1 << bit
				}
			}
			d[c] = append(d[c], x)
		}
	}
	return d
}

// save writes the rows of a commit as PeerBench.java reads them.
func save(name string, rows []record) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	b := binary.BigEndian.AppendUint32(nil, uint32(len(rows)))
	for _, x := range rows {
		b = binary.BigEndian.AppendUint64(b, uint64(x.k))
		b = append(b, x.nulls, byte(len(x.s1)))
		b = append(append(append(b, x.s1...), byte(len(x.s2))), x.s2...)
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(x.d))
		b = binary.BigEndian.AppendUint64(b, uint64(x.ts))
		b = binary.BigEndian.AppendUint64(b, uint64(x.dec))
		b = binary.BigEndian.AppendUint32(b, uint32(x.i))
		one := byte(0)
		if x.b {
			one = 1
		}
		if _, err := w.Write(append(b, one)); err != nil {
			return err
		}
		b = b[:0]
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// batches makes Arrow batches of the rows of a commit, of a size as an ingest makes them.
func batches(s *schema.Schema, rows []record) []arrow.RecordBatch {
	const step = 16384
	var out []arrow.RecordBatch
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	for at := 0; at < len(rows); at += step {
		for _, x := range rows[at:min(len(rows), at+step)] {
			b.Field(0).(*array.Int64Builder).Append(x.k)
			set(b.Field(1), x.nulls&1, func(f *array.StringBuilder) { f.Append(x.s1) })
			set(b.Field(2), x.nulls&2, func(f *array.StringBuilder) { f.Append(x.s2) })
			set(b.Field(3), x.nulls&4, func(f *array.Float64Builder) { f.Append(x.d) })
			set(b.Field(4), x.nulls&8, func(f *array.TimestampBuilder) { f.Append(arrow.Timestamp(x.ts)) })
			set(b.Field(5), x.nulls&16, func(f *array.Decimal128Builder) { f.Append(decimal128.FromI64(x.dec)) })
			set(b.Field(6), x.nulls&32, func(f *array.Int32Builder) { f.Append(x.i) })
			set(b.Field(7), x.nulls&64, func(f *array.BooleanBuilder) { f.Append(x.b) })
		}
		out = append(out, b.NewRecordBatch())
	}
	return out
}

func set[B array.Builder](f array.Builder, null byte, value func(B)) {
	if null != 0 {
		f.AppendNull()
		return
	}
	value(f.(B))
}
