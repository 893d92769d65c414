package dataset

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// FlightRows is the number of rows of flights-3m.parquet.
const FlightRows = 3_000_000

// flights are the columns of flights-3m.parquet: `date` in order, delay in minutes, distance in miles, airports.
type flights struct {
	date                []int64 // microseconds
	delay, distance     []int64
	origin, destination []string
}

// resent is how many of a hundred flights are reported again, with another delay, in the commit after theirs.
const resent = 10

// OpenFlights makes a set of the three million flights of the npm package vega-datasets 3.2.1
// (data/flights-3m.parquet, from the US Bureau of Transportation Statistics, public domain). The key is the number of the
// flight. Each commit has the flights of three weeks, and a tenth of those before again with a new delay.
func OpenFlights(name string) (Set, error) {
	f, err := readFlights(name)
	if err != nil {
		return Set{}, fmt.Errorf("flights in %s: %w", name, err)
	}
	return Set{
		Name: "flights", About: "three million real flights in order; a tenth come again with a new delay",
		Columns: "id BIGINT NOT NULL, date TIMESTAMP(6), delay INT, distance INT, origin STRING, destination STRING",
		Keys:    []string{"id"}, Rows: FlightRows / Commits, open: f.rows,
	}, nil
}

func (f *flights) rows(commit, n int) (func(*array.RecordBuilder, int), error) {
	again := 0
	if commit > 0 {
		again = n * resent / 100
	}
	step := n - n*resent/100 // new flights of a commit
	from := commit * step    // the first of them
	if commit > 0 {
		from += n - step // the first commit is all new
	}
	if from+n-again > len(f.date) {
		return nil, fmt.Errorf("commit %d of %d rows: there are %d flights", commit, n, len(f.date))
	}
	r := random(commit, 10)
	old := scattered(r, again, int64(step))
	return func(b *array.RecordBuilder, i int) {
		at, change := from+i-again, int64(0)
		if i < again {
			at, change = from-1-int(old[i]), 1+r.Int64N(30)
		}
		b.Field(0).(*array.Int64Builder).Append(int64(at))
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(f.date[at]))
		b.Field(2).(*array.Int32Builder).Append(int32(f.delay[at] + change))
		b.Field(3).(*array.Int32Builder).Append(int32(f.distance[at]))
		b.Field(4).(*array.StringBuilder).Append(f.origin[at])
		b.Field(5).(*array.StringBuilder).Append(f.destination[at])
	}, nil
}

func readFlights(name string) (_ *flights, err error) {
	r, err := file.OpenParquetFile(name, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	pr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	t, err := pr.ReadTable(context.Background())
	if err != nil {
		return nil, err
	}
	defer t.Release()
	if t.NumCols() != 5 {
		return nil, fmt.Errorf("%d columns, want date, delay, distance, origin and destination", t.NumCols())
	}
	f := &flights{}
	for i := range 5 {
		for _, c := range t.Column(i).Data().Chunks() {
			if err := f.take(i, c); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// take appends a chunk of a column.
func (f *flights) take(col int, c arrow.Array) error {
	if c.NullN() > 0 {
		return fmt.Errorf("column %d has nulls", col)
	}
	switch c := c.(type) {
	case *array.Timestamp:
		for _, v := range c.TimestampValues() {
			f.date = append(f.date, int64(v))
		}
	case *array.Int64:
		to := &f.delay
		if col == 2 {
			to = &f.distance
		}
		*to = append(*to, c.Int64Values()...)
	case array.StringLike:
		to := &f.origin
		if col == 4 {
			to = &f.destination
		}
		for i := range c.Len() {
			*to = append(*to, strings.Clone(c.Value(i)))
		}
	default:
		return fmt.Errorf("column %d has type %s", col, c.DataType())
	}
	return nil
}
