package decode

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/valyala/fastjson"

	"github.com/calve-io/calve/schema"
)

// The message and columns of the dependency study: 10 fields, about 200 bytes.
var benchFields = []schema.Field{
	field("id", schema.Type{Root: schema.BigInt, NotNull: true}),
	field("lsn", schema.Type{Root: schema.BigInt}),
	field("kind", schema.Type{Root: schema.Int}),
	field("email", schema.Type{Root: schema.VarChar, Length: schema.MaxLength}),
	field("product", schema.Type{Root: schema.VarChar, Length: schema.MaxLength}),
	field("score", schema.Type{Root: schema.Double}),
	field("created_at", schema.Type{Root: schema.Timestamp, Precision: 6}),
	field("amount", schema.Type{Root: schema.Decimal, Precision: 10, Scale: 2}),
	field("qty", schema.Type{Root: schema.Int}),
	field("active", schema.Type{Root: schema.Boolean}),
}

func field(name string, t schema.Type) schema.Field { return schema.Field{Name: name, Type: t} }

func benchSchema() *schema.Schema {
	s := &schema.Schema{Fields: append([]schema.Field(nil), benchFields...), PrimaryKeys: []string{"id"}}
	for i := range s.Fields {
		s.Fields[i].ID = i + 1
	}
	return s
}

func appendFlat(b []byte, r *rand.Rand, i int) []byte {
	return fmt.Appendf(b, `{"id":%d,"lsn":%d,"kind":%d,"email":"james.smith%d@mail.example.org","product":"wireless keyboard %d","score":%s,"created_at":%d,"amount":"%d.%02d","qty":%d,"active":%t}`,
		i*7, i, r.IntN(4), r.IntN(10000), r.IntN(5000), strconv.FormatFloat(r.NormFloat64()*50+100, 'g', -1, 64),
		1750000000000000+int64(i)*1000, r.IntN(10000), r.IntN(100), r.IntN(1000), r.IntN(10) == 0)
}

func appendEnvelope(b []byte, r *rand.Rand, i int) []byte {
	op, before := "c", i%10 >= 6
	b = append(b, `{"before":`...)
	row := appendFlat(nil, r, i)
	if before {
		op = "u"
		b = append(b, row...)
	} else {
		b = append(b, "null"...)
	}
	b = append(append(b, `,"after":`...), row...)
	return fmt.Appendf(b, `,"source":{"version":"3.0.0.Final","connector":"postgresql","name":"shop","ts_ms":%d,"snapshot":"false","db":"shop","sequence":"[\"%d\",\"%d\"]","schema":"public","table":"orders","txId":%d,"lsn":%d,"xmin":null},"transaction":null,"op":"%s","ts_ms":%d}`,
		1750000000000+i, i*100, i*100+7, i, i*100, op, 1750000000000+i)
}

func benchMessages(message func([]byte, *rand.Rand, int) []byte) ([]Record, int64) {
	const n = 20000
	r := rand.New(rand.NewPCG(1, 1))
	out, total := make([]Record, n), int64(0)
	for i := range out {
		out[i] = Record{Topic: "t", Offset: int64(i), Value: message(nil, r, i)}
		total += int64(len(out[i].Value))
	}
	return out, total
}

func benchDecode(b *testing.B, f Format, recs []Record, total int64) {
	d, err := New(Config{Schema: benchSchema(), Format: f})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(total)
	b.ReportAllocs()
	for b.Loop() {
		for i := range recs {
			if err := d.Decode(&recs[i]); err != nil {
				b.Fatal(err)
			}
			if d.Full() {
				d.Take()
			}
		}
	}
	b.ReportMetric(float64(len(recs)*b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}

func BenchmarkDecodeFlat(b *testing.B) {
	recs, total := benchMessages(appendFlat)
	benchDecode(b, JSON, recs, total)
}

func BenchmarkDecodeEnvelope(b *testing.B) {
	recs, total := benchMessages(appendEnvelope)
	benchDecode(b, Debezium, recs, total)
}

// BenchmarkDecodeFastjson does the same work with fastjson and Arrow's builders.
func BenchmarkDecodeFastjson(b *testing.B) {
	recs, total := benchMessages(appendFlat)
	bld := array.NewRecordBuilder(memory.DefaultAllocator, benchSchema().Arrow())
	var p fastjson.Parser
	b.SetBytes(total)
	b.ReportAllocs()
	rows := 0
	for b.Loop() {
		for i := range recs {
			v, err := p.ParseBytes(recs[i].Value)
			if err != nil {
				b.Fatal(err)
			}
			appendFastjson(b, bld, v)
			if rows++; rows == 16384 {
				bld.NewRecordBatch().Release()
				rows = 0
			}
		}
	}
	b.ReportMetric(float64(len(recs)*b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}

func appendFastjson(b *testing.B, bld *array.RecordBuilder, v *fastjson.Value) {
	bld.Field(0).(*array.Int64Builder).Append(v.GetInt64("id"))
	bld.Field(1).(*array.Int64Builder).Append(v.GetInt64("lsn"))
	bld.Field(2).(*array.Int32Builder).Append(int32(v.GetInt("kind")))
	bld.Field(3).(*array.StringBuilder).BinaryBuilder.Append(v.GetStringBytes("email"))
	bld.Field(4).(*array.StringBuilder).BinaryBuilder.Append(v.GetStringBytes("product"))
	bld.Field(5).(*array.Float64Builder).Append(v.GetFloat64("score"))
	bld.Field(6).(*array.TimestampBuilder).Append(arrow.Timestamp(v.GetInt64("created_at")))
	amount := v.GetStringBytes("amount")
	num, _ := scanNumber(amount, 0)
	dec, reason := scanDecimal(num, amount, 10, 2) // far faster than arrow's decimal128.FromString
	if reason != "" {
		b.Fatal(reason)
	}
	bld.Field(7).(*array.Decimal128Builder).Append(dec)
	bld.Field(8).(*array.Int32Builder).Append(int32(v.GetInt("qty")))
	bld.Field(9).(*array.BooleanBuilder).Append(v.GetBool("active"))
}
