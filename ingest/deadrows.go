package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// letterRows gathers letters as rows of their table.
type letterRows struct {
	b     *array.RecordBuilder
	at    map[string]int // columns by name
	kinds []schema.RowKind
	n     int
	size  int
}

// newLetterRows makes the columns of a table of dead letters, which was checked to be one.
func newLetterRows(s *schema.Schema) *letterRows {
	r := &letterRows{b: array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow()), at: map[string]int{}}
	for i, f := range s.Fields {
		r.at[f.Name] = i
	}
	return r
}

// add appends a letter. Columns that somebody has added to the table are null.
func (r *letterRows) add(l *Letter, kind schema.RowKind) {
	text := func(name, v string) { r.b.Field(r.at[name]).(*array.StringBuilder).Append(v) }
	number := func(name string, v int64) {
		switch b := r.b.Field(r.at[name]).(type) {
		case *array.Int32Builder:
			b.Append(int32(v))
		case *array.Int64Builder:
			b.Append(v)
		case *array.TimestampBuilder:
			b.Append(arrow.Timestamp(v))
		}
	}
	raw := func(name string, v []byte) {
		b := r.b.Field(r.at[name]).(*array.BinaryBuilder)
		if v == nil {
			b.AppendNull()
		} else {
			b.Append(v)
		}
	}
	text("source", l.Source)
	text("topic", l.Topic)
	number("partition", int64(l.Partition))
	number("offset", l.Offset)
	if l.Timestamp == 0 {
		r.b.Field(r.at["timestamp"]).AppendNull()
	} else {
		number("timestamp", l.Timestamp*1000)
	}
	r.headers(l.Headers)
	raw("key", l.Key)
	raw("value", l.Raw)
	number("size", l.Size)
	r.b.Field(r.at["truncated"]).(*array.BooleanBuilder).Append(l.Truncated)
	text("code", string(l.Code))
	text("message", l.Reason)
	number("attempt", int64(l.Attempt))
	number("time", l.Time.UnixMicro())
	text("job", l.Job)
	r.n++
	for _, b := range r.b.Fields() {
		if b.Len() < r.n {
			b.AppendNull()
		}
	}
	r.kinds = append(r.kinds, kind)
	r.size += l.bytes()
}

func (r *letterRows) headers(all []decode.Header) {
	list := r.b.Field(r.at["headers"]).(*array.ListBuilder)
	if len(all) == 0 {
		list.AppendNull()
		return
	}
	list.Append(true)
	row := list.ValueBuilder().(*array.StructBuilder)
	for _, h := range all {
		row.Append(true)
		row.FieldBuilder(0).(*array.StringBuilder).Append(h.Name)
		if b := row.FieldBuilder(1).(*array.BinaryBuilder); h.Value == nil {
			b.AppendNull()
		} else {
			b.Append(h.Value)
		}
	}
}

// take gives the rows and begins anew.
func (r *letterRows) take() schema.Batch {
	b := schema.Batch{Rec: r.b.NewRecordBatch(), Kinds: r.kinds}
	r.n, r.size, r.kinds = 0, 0, nil
	return b
}

// reset forgets the rows.
func (r *letterRows) reset() {
	if r.n > 0 {
		r.take()
	}
}

// LetterQuery says which letters are read.
type LetterQuery struct {
	// Bare leaves headers, key and value of the records out.
	Bare bool
	// Where is a condition on the columns of the table, in the words of reader.Query.
	Where string
}

// bareColumns are those of letters without what was refused.
var bareColumns = []string{"source", "topic", "partition", "offset", "timestamp", "size", "truncated", "code", "message", "attempt", "time", "job"}

// ReadDeadLetters yields the refused records of a table of dead letters, whose folder store is, in the order of their key.
// Slices of a letter are its own. A table that was not made yet has none.
func ReadDeadLetters(ctx context.Context, store storage.Store, q LetterQuery, env Env) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		r := reader.Open(store, reader.Env{Now: env.Now, After: env.After, NewID: env.NewID, Rand: env.Rand, Log: env.Log})
		s, err := r.Meta().LatestSchema(ctx)
		if err == nil {
			err = checkDeadSchema(s, store.URL(""))
		}
		if err != nil {
			if !errors.Is(err, manifest.ErrNoTable) {
				yield(Letter{}, err)
			}
			return
		}
		query := reader.Query{Where: q.Where}
		if query.Columns = append(query.Columns, bareColumns...); !q.Bare {
			query.Columns = append(query.Columns, "headers", "key", "value")
		}
		for rec, err := range r.Scan(ctx, query) {
			if err != nil {
				yield(Letter{}, fmt.Errorf("read dead letters: %w", err))
				return
			}
			for i := range int(rec.NumRows()) {
				if !yield(letterAt(rec, i), nil) {
					return
				}
			}
		}
	}
}

// letterAt reads a row of bareColumns and, if they are there, headers, key and value.
func letterAt(rec arrow.RecordBatch, i int) Letter {
	text := func(c int) string { return string([]byte(rec.Column(c).(*array.String).Value(i))) }
	long := func(c int) int64 { return rec.Column(c).(*array.Int64).Value(i) }
	number := func(c int) int32 { return rec.Column(c).(*array.Int32).Value(i) }
	micros := func(c int) int64 { return int64(rec.Column(c).(*array.Timestamp).Value(i)) }
	l := Letter{Source: text(0), Topic: text(1), Partition: number(2), Offset: long(3), Size: long(5),
		Truncated: rec.Column(6).(*array.Boolean).Value(i), Code: decode.Code(text(7)), Reason: text(8), Attempt: number(9),
		Time: time.UnixMicro(micros(10)).UTC(), Job: text(11)}
	if rec.Column(4).IsValid(i) {
		l.Timestamp = micros(4) / 1000
	}
	if rec.NumCols() == int64(len(bareColumns)) {
		return l
	}
	l.Key, l.Raw = bytesAt(rec.Column(13).(*array.Binary), i), bytesAt(rec.Column(14).(*array.Binary), i)
	list := rec.Column(12).(*array.List)
	if list.IsNull(i) {
		return l
	}
	rows := list.ListValues().(*array.Struct)
	names, values := rows.Field(0).(*array.String), rows.Field(1).(*array.Binary)
	from, to := list.ValueOffsets(i)
	for j := int(from); j < int(to); j++ {
		l.Headers = append(l.Headers, decode.Header{Name: string([]byte(names.Value(j))), Value: bytesAt(values, j)})
	}
	return l
}

// bytesAt copies a value; nil for null.
func bytesAt(a *array.Binary, i int) []byte {
	if a.IsNull(i) {
		return nil
	}
	return append([]byte{}, a.Value(i)...)
}
