package datafile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/schema"
)

// TestWriterRefuses what would make a wrong file.
func TestWriterRefuses(t *testing.T) {
	s := &schema.Schema{PrimaryKeys: []string{"k"}, Fields: []schema.Field{
		{ID: 0, Name: "k", Type: mustType(t, "INT NOT NULL")}, {ID: 1, Name: "d", Type: mustType(t, "DECIMAL(4, 2)")},
	}}
	keys := func(valid ...bool) arrow.Array {
		b := array.NewInt32Builder(alloc)
		b.AppendValues(make([]int32, len(valid)), valid)
		return b.NewArray()
	}
	decs := func(v ...int64) arrow.Array {
		b := array.NewDecimal128Builder(alloc, &arrow.Decimal128Type{Precision: 4, Scale: 2})
		for _, x := range v {
			b.Append(num(x))
		}
		return b.NewArray()
	}
	ok := Rows{N: 1, Seq: []int64{1}, Kinds: []int8{0}, Cols: []arrow.Array{keys(true), decs(1)}}
	for _, c := range []struct {
		rows Rows
		want string
	}{
		{Rows{N: 1, Seq: ok.Seq, Kinds: ok.Kinds, Cols: ok.Cols[:1]}, "1 columns given"},
		{Rows{N: 1, Kinds: ok.Kinds, Cols: ok.Cols}, "0 sequence numbers"},
		{Rows{N: 2, Seq: []int64{1, 2}, Kinds: []int8{0, 0}, Cols: ok.Cols}, `"k" has 1 rows`},
		{Rows{N: 1, Seq: ok.Seq, Kinds: ok.Kinds, Cols: []arrow.Array{keys(false), decs(1)}}, `"_KEY_k" is NOT NULL`},
		{Rows{N: 1, Seq: ok.Seq, Kinds: ok.Kinds, Cols: []arrow.Array{decs(1), decs(1)}}, `needs Arrow int32`},
		{Rows{N: 1, Seq: ok.Seq, Kinds: ok.Kinds, Cols: []arrow.Array{keys(true), decs(1 << 40)}}, "does not fit DECIMAL(4, 2)"},
	} {
		w, err := NewWriter(io.Discard, WriterConfig{Schema: s, Keyed: true})
		if err != nil {
			t.Fatal(err)
		}
		err = w.Write(c.rows)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want …%s…", err, c.want)
		}
		if _, again := w.Close(); again == nil {
			t.Errorf("after %v the file was closed as if it were good", err)
		}
	}
	bad := &schema.Schema{Fields: []schema.Field{{ID: 0, Name: "x", Type: schema.Type{Root: schema.Row}}}}
	if _, err := NewWriter(io.Discard, WriterConfig{Schema: bad}); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a row without fields: %v", err)
	}
	deep := mustType(t, "INT")
	for range maxDepth {
		deep = arrayOf(deep)
	}
	bad.Fields[0].Type = deep
	if _, err := NewWriter(io.Discard, WriterConfig{Schema: bad}); err == nil || !strings.Contains(err.Error(), "too deep") {
		t.Errorf("a type nested too deep: %v", err)
	}
	if _, err := NewWriter(io.Discard, WriterConfig{Schema: s, Compression: "brotli"}); err == nil {
		t.Error("brotli was accepted")
	}
}

// failAfter fails once some bytes are written.
type failAfter struct{ n int }

var errDisk = errors.New("disk is full")

func (f *failAfter) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

// TestWriterError reports errors of the sink, wherever they come.
func TestWriterError(t *testing.T) {
	s := allTypes(t)
	rows := randomRows(newRand(1), s, 0, 3000, valueShape{nulls: 0.1})
	whole, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, RowGroupRows: 1000}, rows)
	for _, parallel := range []int{1, 3} {
		for n := 0; n < len(whole); n += len(whole)/20 + 1 {
			w, err := NewWriter(&failAfter{n}, WriterConfig{Schema: s, Keyed: true, RowGroupRows: 1000, Parallel: parallel})
			if err != nil {
				t.Fatal(err)
			}
			err = w.Write(rows)
			if err == nil {
				_, err = w.Close()
			}
			if !errors.Is(err, errDisk) {
				t.Fatalf("after %d of %d bytes: %v", n, len(whole), err)
			}
		}
	}
}

// TestPages writes many pages of the benchmark's row and reads them back. Size must be near the truth meanwhile, so that
// files are rolled at the right size.
func TestPages(t *testing.T) {
	s := benchTable(t, true)
	batches, _ := benchData(s, 150_000)
	// The last batch has other values, for which dictionaries and compression decisions are wrong.
	r := newRand(9)
	odd := Rows{N: 40_000, Seq: make([]int64, 40_000), Kinds: make([]int8, 40_000), Cols: []arrow.Array{batches[0].Cols[0]}}
	odd.Cols[0] = array.NewSlice(odd.Cols[0], 0, 40_000)
	for _, f := range s.Fields[1:] {
		odd.Cols = append(odd.Cols, randomColumn(r, f.Type, odd.N, valueShape{nulls: 0.1}))
	}
	batches = append(batches, odd)
	for _, codec := range []string{"zstd", "snappy", "lz4", "none"} {
		var buf bytes.Buffer
		w, err := NewWriter(&buf, WriterConfig{Schema: s, Keyed: true, Compression: codec})
		if err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		for i, b := range batches {
			if err := w.Write(b); err != nil {
				t.Fatal(err)
			}
			if i < len(batches)-1 && w.Size() < last {
				t.Fatalf("%s: size went from %d to %d", codec, last, w.Size())
			}
			last = w.Size()
		}
		info, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if d := float64(last) / float64(info.Size); d < 0.85 || d > 1.15 {
			t.Errorf("%s: estimated %d bytes before the end, the file has %d", codec, last, info.Size)
		}
		got, err := readFile(buf.Bytes(), s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: 50_000})
		if err != nil {
			t.Fatal(err)
		}
		sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), concat(t, batches, len(s.Fields)))
	}
}

// TestDeterministic: the same rows give the same bytes, however many goroutines write them.
func TestDeterministic(t *testing.T) {
	s := allTypes(t)
	rows := []Rows{randomRows(newRand(1), s, 0, 1200, valueShape{nulls: 0.1, repeats: 100}), randomRows(newRand(2), s, 1200, 1200, valueShape{nulls: 0.1})}
	var first []byte
	for i := range 4 {
		b, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, Parallel: i}, rows...)
		if first == nil {
			first = b
		} else if !bytes.Equal(b, first) {
			t.Fatalf("%d goroutines give another file", i)
		}
	}
}

// TestEncodings are chosen by the first rows.
func TestEncodings(t *testing.T) {
	ints := func(n int, f func(i int) int64) arrow.Array {
		b := array.NewInt64Builder(alloc)
		for i := range n {
			b.Append(f(i))
		}
		return b.NewArray()
	}
	texts := func(n int, f func(i int) string) arrow.Array {
		b := array.NewStringBuilder(alloc)
		for i := range n {
			b.Append(f(i))
		}
		return b.NewArray()
	}
	r := newRand(3)
	for _, c := range []struct {
		name string
		typ  string
		a    arrow.Array
		want encoding
	}{
		{"sequence", "BIGINT", ints(5000, func(i int) int64 { return int64(i) }), deltaEncoding},
		{"random", "BIGINT", ints(5000, func(int) int64 { return r.Int64() }), deltaEncoding},
		{"few far apart", "BIGINT", ints(5000, func(int) int64 { return int64(r.IntN(5)) << 40 }), dictEncoding},
		{"few and near", "BIGINT", ints(5000, func(int) int64 { return int64(r.IntN(5)) }), deltaEncoding},
		{"unique", "STRING", texts(5000, func(i int) string { return fmt.Sprint(i) }), plainEncoding},
		{"countries", "STRING", texts(5000, func(int) string { return fmt.Sprint(r.IntN(200)) }), dictEncoding},
		{"products", "STRING", texts(5000, func(int) string { return fmt.Sprint(int(r.ExpFloat64() * 700)) }), dictEncoding},
		{"a handful of rows", "STRING", texts(5, func(int) string { return "x" }), plainEncoding},
		{"empty strings", "STRING", texts(500, func(int) string { return "" }), dictEncoding},
	} {
		if got := chooseEncoding(mustType(t, c.typ), c.a); got != c.want {
			t.Errorf("%s: encoding %d, want %d", c.name, got, c.want)
		}
	}
}
