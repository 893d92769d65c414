package dataset

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// tenColumns is the table of most sets: with sequence number and row kind its files have ten columns.
const tenColumns = "k BIGINT NOT NULL, s1 STRING, s2 STRING, d DOUBLE, ts TIMESTAMP(6), dec DECIMAL(18, 2), i INT, b BOOLEAN"

// Sets are all sets that need nothing but themselves. Flights is made by OpenFlights.
var Sets = []Set{
	{
		Name: "random", About: "ten columns; keys picked at random, a fifth of the rows are older versions",
		Columns: tenColumns, Keys: []string{"k"}, Rows: 250_000, open: tenColumnRows(scatteredKeys, 4),
	},
	{
		Name: "blocks", About: "ten columns; keys in blocks of 100 consecutive ones, a fifth of the rows are older versions",
		Columns: tenColumns, Keys: []string{"k"}, Rows: 250_000, open: tenColumnRows(blocksOfKeys, 4),
	},
	{
		Name: "growing", About: "ten columns; 98 of 100 rows have keys beyond all there were, two update recent rows",
		Columns: tenColumns, Keys: []string{"k"}, Rows: 250_000, open: tenColumnRows(growingKeys, 4),
	},
	{
		Name: "partial-update", About: "ten columns; six of ten cells are null, later values are put into earlier rows",
		Columns: tenColumns, Keys: []string{"k"}, Rows: 250_000, open: tenColumnRows(scatteredKeys, 60),
		Options: map[string]string{"merge-engine": "partial-update"},
	},
	{
		Name: "aggregation", About: "ten columns; sums, greatest and last values of the rows of a key",
		Columns: tenColumns, Keys: []string{"k"}, Rows: 250_000, open: tenColumnRows(scatteredKeys, 4),
		Options: map[string]string{"merge-engine": "aggregation", "fields.d.aggregate-function": "sum",
			"fields.ts.aggregate-function": "max", "fields.dec.aggregate-function": "sum",
			"fields.i.aggregate-function": "sum", "fields.b.aggregate-function": "bool_or"},
	},
	{
		Name: "wide", About: "290 columns of six types, a third of the cells null; keys at random",
		Columns: wideColumns(), Keys: []string{"k"}, Rows: 12_000, open: wideRows,
	},
	{
		Name: "nested", About: "a row, an array of numbers and a map of texts beside two flat columns; keys at random",
		Columns: "k BIGINT NOT NULL, at TIMESTAMP(6), who ROW<id BIGINT, name STRING, score DOUBLE>, readings ARRAY<INT>, tags MAP<STRING NOT NULL, STRING>",
		Keys:    []string{"k"}, Rows: 100_000, open: nestedRows,
	},
	{
		Name: "long-text", About: "texts of 500 to 4,000 characters; keys at random",
		Columns: "k BIGINT NOT NULL, title STRING, body STRING", Keys: []string{"k"}, Rows: 15_000, open: textRows,
	},
	{
		Name: "decimals", About: "four decimals of 38 digits; keys at random",
		Columns: "k BIGINT NOT NULL, a DECIMAL(38, 0), b DECIMAL(38, 10), c DECIMAL(38, 18), d DECIMAL(38, 2)",
		Keys:    []string{"k"}, Rows: 150_000, open: decimalRows,
	},
}

// Find gives the set of a name.
func Find(name string) (Set, error) {
	var names []string
	for _, s := range Sets {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Set{}, fmt.Errorf("no data set %q: there are %s", name, strings.Join(names, ", "))
}

// set appends a value to a column, or null.
func set[B array.Builder](f array.Builder, null bool, value func(B)) {
	if null {
		f.AppendNull()
		return
	}
	value(f.(B))
}

// tenColumnRows makes rows of tenColumns, of whose cells that many percent are null. Doubles are whole quarters, whose
// sums do not depend on their order.
func tenColumnRows(keys func(r *rand.Rand, commit, n int) []int64, nullPercent int) func(int, int) (func(*array.RecordBuilder, int), error) {
	return func(commit, n int) (func(*array.RecordBuilder, int), error) {
		r := random(commit, 5)
		ks := keys(r, commit, n)
		var text []byte
		return func(b *array.RecordBuilder, i int) {
			null := func() bool { return r.IntN(100) < nullPercent }
			b.Field(0).(*array.Int64Builder).Append(ks[i])
			text = strconv.AppendInt(append(text[:0], "someone."...), r.Int64N(1_000_000), 10)
			text = append(text, "@example.com"...)
			set(b.Field(1), null(), func(f *array.StringBuilder) { f.BinaryBuilder.Append(text) })
			text = strconv.AppendInt(append(text[:0], "product number "...), int64(r.ExpFloat64()*700), 10)
			set(b.Field(2), null(), func(f *array.StringBuilder) { f.BinaryBuilder.Append(text) })
			set(b.Field(3), null(), func(f *array.Float64Builder) { f.Append(float64(r.IntN(1_000_000)) / 4) })
			set(b.Field(4), null(), func(f *array.TimestampBuilder) {
				f.Append(arrow.Timestamp(1_750_000_000_000_000 + int64(commit*n+i)*1000))
			})
			set(b.Field(5), null(), func(f *array.Decimal128Builder) { f.Append(decimal128.FromI64(r.Int64N(1_000_000))) })
			set(b.Field(6), null(), func(f *array.Int32Builder) { f.Append(r.Int32N(1000)) })
			set(b.Field(7), null(), func(f *array.BooleanBuilder) { f.Append(r.IntN(10) == 0) })
		}, nil
	}
}

// wide is the number of columns of a wide table.
const wide = 290

var wideTypes = [...]string{"INT", "BIGINT", "DOUBLE", "STRING", "BOOLEAN", "DECIMAL(18, 2)"}

func wideColumns() string {
	var b strings.Builder
	b.WriteString("k BIGINT NOT NULL")
	for i := 1; i < wide; i++ {
		fmt.Fprintf(&b, ", c%d %s", i, wideTypes[i%len(wideTypes)])
	}
	return b.String()
}

func wideRows(commit, n int) (func(*array.RecordBuilder, int), error) {
	r := random(commit, 6)
	ks := scatteredKeys(r, commit, n)
	return func(b *array.RecordBuilder, i int) {
		b.Field(0).(*array.Int64Builder).Append(ks[i])
		for c := 1; c < wide; c++ {
			if r.IntN(3) == 0 {
				b.Field(c).AppendNull()
				continue
			}
			switch f := b.Field(c).(type) {
			case *array.Int32Builder:
				f.Append(r.Int32N(10_000))
			case *array.Int64Builder:
				f.Append(r.Int64N(1 << 40))
			case *array.Float64Builder:
				f.Append(float64(r.IntN(100_000)) / 4)
			case *array.StringBuilder:
				f.Append("state " + strconv.Itoa(r.IntN(50)))
			case *array.BooleanBuilder:
				f.Append(r.IntN(2) == 0)
			case *array.Decimal128Builder:
				f.Append(decimal128.FromI64(r.Int64N(1_000_000)))
			}
		}
	}, nil
}

func nestedRows(commit, n int) (func(*array.RecordBuilder, int), error) {
	r := random(commit, 7)
	ks := scatteredKeys(r, commit, n)
	return func(b *array.RecordBuilder, i int) {
		b.Field(0).(*array.Int64Builder).Append(ks[i])
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(1_750_000_000_000_000 + int64(commit*n+i)*1000))
		who := b.Field(2).(*array.StructBuilder)
		who.Append(true)
		who.FieldBuilder(0).(*array.Int64Builder).Append(r.Int64N(1 << 30))
		set(who.FieldBuilder(1), r.IntN(20) == 0, func(f *array.StringBuilder) { f.Append("person " + strconv.Itoa(r.IntN(50_000))) })
		set(who.FieldBuilder(2), r.IntN(20) == 0, func(f *array.Float64Builder) { f.Append(float64(r.IntN(4000)) / 4) })
		list := b.Field(3).(*array.ListBuilder)
		list.Append(true)
		for range r.IntN(8) {
			list.ValueBuilder().(*array.Int32Builder).Append(r.Int32N(1000))
		}
		tags := b.Field(4).(*array.MapBuilder)
		tags.Append(true)
		for at := range r.IntN(4) {
			tags.KeyBuilder().(*array.StringBuilder).Append("tag" + strconv.Itoa(at))
			tags.ItemBuilder().(*array.StringBuilder).Append("value " + strconv.Itoa(r.IntN(200)))
		}
	}, nil
}

var words = strings.Fields("snow ice berg sea wind north south shore light deep cold water drift floe calve crack melt tide storm harbour ship captain wave horizon")

func textRows(commit, n int) (func(*array.RecordBuilder, int), error) {
	r := random(commit, 8)
	ks := scatteredKeys(r, commit, n)
	var body []byte
	return func(b *array.RecordBuilder, i int) {
		b.Field(0).(*array.Int64Builder).Append(ks[i])
		b.Field(1).(*array.StringBuilder).Append(words[r.IntN(len(words))] + " " + words[r.IntN(len(words))] + " " + strconv.Itoa(r.IntN(1000)))
		body = body[:0]
		for size := 500 + r.IntN(3500); len(body) < size; {
			body = append(append(body, words[r.IntN(len(words))]...), ' ')
			if r.IntN(8) == 0 {
				body = append(strconv.AppendInt(body, r.Int64N(1<<30), 36), ' ')
			}
		}
		b.Field(2).(*array.StringBuilder).BinaryBuilder.Append(body)
	}, nil
}

func decimalRows(commit, n int) (func(*array.RecordBuilder, int), error) {
	r := random(commit, 9)
	ks := scatteredKeys(r, commit, n)
	return func(b *array.RecordBuilder, i int) {
		b.Field(0).(*array.Int64Builder).Append(ks[i])
		for c := 1; c < 5; c++ {
			// Below 2^126, which is below 10^38.
			set(b.Field(c), r.IntN(50) == 0, func(f *array.Decimal128Builder) {
				f.Append(decimal128.New(r.Int64N(1<<62)>>(16*uint(c-1)), r.Uint64()))
			})
		}
	}, nil
}
