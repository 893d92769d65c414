package datafile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	pq "github.com/parquet-go/parquet-go"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/schema/schematest"
)

// TestOtherWriters reads files of the Arrow library in forms that calve does not write: V2 pages with run-length
// booleans, dictionaries everywhere, gzip, bloom filters.
func TestOtherWriters(t *testing.T) {
	s := allTypes(t)
	in := randomRows(newRand(3), s, 0, 3000, valueShape{nulls: 0.2, repeats: 40})
	rec := array.NewRecordBatch(s.Arrow(), in.Cols, int64(in.N))
	for name, props := range map[string][]parquet.WriterProperty{
		"v2":         {parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithCompression(compress.Codecs.Zstd)},
		"v2 plain":   {parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithDictionaryDefault(false)},
		"v2 rle":     {parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithDictionaryDefault(false), parquet.WithEncodingFor("c0", parquet.Encodings.RLE), parquet.WithEncodingFor("c0_nn", parquet.Encodings.RLE), parquet.WithCompression(compress.Codecs.Snappy)},
		"gzip":       {parquet.WithCompression(compress.Codecs.Gzip), parquet.WithDataPageSize(500)},
		"tiny pages": {parquet.WithDataPageSize(1), parquet.WithBatchSize(3), parquet.WithCompression(compress.Codecs.Lz4Raw)},
		"bloom":      {parquet.WithBloomFilterEnabled(true), parquet.WithPageIndexEnabled(true), parquet.WithMaxRowGroupLength(500)},
		"integers":   {parquet.WithStoreDecimalAsInteger(true)},
	} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			w, err := pqarrow.NewFileWriter(s.Arrow(), &buf, parquet.NewWriterProperties(props...), pqarrow.NewArrowWriterProperties())
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := readFile(buf.Bytes(), s, ReadSpec{Schema: s, Cols: allColumns(s), BatchRows: 700})
			if err != nil {
				t.Fatal(err)
			}
			want := in
			want.Seq, want.Kinds = nil, nil
			sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), want)
		})
	}
}

// TestOtherReaders lets two other libraries read calve's files.
func TestOtherReaders(t *testing.T) {
	s := allTypes(t)
	in := []Rows{randomRows(newRand(4), s, 0, 2000, valueShape{nulls: 0.2}), randomRows(newRand(5), s, 2000, 500, valueShape{repeats: 9})}
	b, _ := writeFile(t, WriterConfig{Schema: s, Keyed: true, RowGroupRows: 900}, in...)
	want := concat(t, in, len(s.Fields))

	pf, err := file.NewParquetReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer pf.Close()
	fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{}, alloc)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := fr.ReadTable(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := Rows{N: int(tab.NumRows())}
	for i := 3; i < int(tab.NumCols()); i++ {
		a, err := array.Concatenate(tab.Column(i).Data().Chunks(), alloc)
		if err != nil {
			t.Fatal(err)
		}
		// Its arrays of timestamps and times have the right values; zones and units are written a little differently.
		dt := want.Cols[i-3].DataType()
		if !arrow.TypeEqual(a.DataType(), dt) {
			a = array.MakeFromData(array.NewData(dt, a.Len(), a.Data().Buffers(), nil, a.NullN(), a.Data().Offset()))
		}
		got.Cols = append(got.Cols, a)
	}
	want.Seq, want.Kinds = nil, nil
	sameRows(t, s, allColumns(s), got, want)
	parquetGo(t, b, s, want)
}

// parquetGo checks the layout and counts the values of every column.
func parquetGo(t *testing.T, b []byte, s *schema.Schema, want Rows) {
	t.Helper()
	f, err := pq.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Root().Name(); got != rootName {
		t.Errorf("root is %q", got)
	}
	cols, err := fileColumns(fileParts(s, true, false))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range f.Root().Columns() {
		if c.Name() != cols[i].name || c.Optional() == cols[i].typ.NotNull || int32(c.ID()) != cols[i].id {
			t.Errorf("column %d is %s, optional %v, id %d; want %+v", i, c.Name(), c.Optional(), c.ID(), cols[i])
		}
	}
	if len(f.ColumnIndexes()) == 0 || len(f.OffsetIndexes()) == 0 {
		t.Error("no page index")
	}
	for i, c := range cols {
		nulls, values := int64(0), int64(0)
		for _, g := range f.RowGroups() {
			p := g.ColumnChunks()[i].Pages()
			for {
				x, err := p.ReadPage()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				nulls, values = nulls+x.NumNulls(), values+x.NumValues()
				pq.Release(x)
			}
			p.Close()
		}
		if values != int64(want.N) || c.from >= 0 && nulls != int64(want.Cols[c.from].NullN()) {
			t.Errorf("column %s: %d values with %d nulls", c.name, values, nulls)
		}
	}
}

// TestSchemaChange reads a file under a later schema: renamed, added, dropped and re-added columns, and other types.
func TestSchemaChange(t *testing.T) {
	old := &schema.Schema{Fields: []schema.Field{
		{ID: 0, Name: "a", Type: mustType(t, "INT")}, {ID: 1, Name: "b", Type: mustType(t, "VARCHAR(10)")},
		{ID: 2, Name: "c", Type: mustType(t, "DOUBLE")}, {ID: 3, Name: "d", Type: mustType(t, "TIMESTAMP(3)")},
		{ID: 4, Name: "e", Type: mustType(t, "DECIMAL(9, 4)")}, {ID: 5, Name: "f", Type: mustType(t, "BIGINT")},
		{ID: 6, Name: "g", Type: mustType(t, "BYTES")}, {ID: 7, Name: "h", Type: mustType(t, "FLOAT")},
	}}
	vals := [][]any{
		{int32(7), "ünïcödé", 1.25, int64(-1), num(12345), int64(300), []byte{1, 2, 3}, float32(0.1)},
		{nil, nil, nil, nil, nil, nil, nil, nil},
		{int32(-1 << 31), "", -0.005, int64(86_399_999), num(-12355), int64(-129), []byte{}, float32(1e9)},
	}
	rows := Rows{N: len(vals)}
	for j, f := range old.Fields {
		dt, err := schema.ArrowType(f.Type)
		if err != nil {
			t.Fatal(err)
		}
		b := array.NewBuilder(alloc, dt)
		for i := range vals {
			if vals[i][j] == nil {
				b.AppendNull()
			} else {
				schematest.Append(b, vals[i][j])
			}
		}
		rows.Cols = append(rows.Cols, b.NewArray())
	}
	data, _ := writeFile(t, WriterConfig{Schema: old}, rows)
	for _, c := range []struct {
		id   int
		typ  string
		want string
	}{
		{0, "BIGINT", "7 null -2147483648"}, {0, "DOUBLE", "401c000000000000 null c1e0000000000000"},
		{0, "DECIMAL(12, 2)", "700 null -214748364800"}, {0, "DECIMAL(4, 2)", "700 null null"}, {0, "FLOAT", "40e00000 null cf000000"},
		{1, "STRING", `"ünïcödé" null ""`}, {1, "VARCHAR(3)", `"ünï" null ""`}, {1, "CHAR(9)", `"ünïcödé  " null "         "`},
		{2, "DECIMAL(5, 2)", "125 null -1"}, {2, "DECIMAL(3, 3)", "null null -5"}, {7, "DECIMAL(13, 3)", "100 null 1000000000000"}, {7, "DECIMAL(12, 3)", "100 null null"},
		{7, "DOUBLE", "3fb99999a0000000 null 41cdcd6500000000"},
		{3, "TIMESTAMP(6)", "-1000 null 86399999000"}, {3, "TIMESTAMP(9)", "-1000000 null 86399999000000"},
		{3, "TIMESTAMP(3) WITH LOCAL TIME ZONE", "-1 null 86399999"}, {3, "DATE", "0 null 0"}, {3, "TIME(3)", "-1 null 86399999"},
		{4, "DECIMAL(20, 6)", "1234500 null -1235500"}, {4, "DECIMAL(5, 3)", "1235 null -1236"}, {4, "DECIMAL(5, 1)", "12 null -12"},
		{4, "DOUBLE", "3ff3c083126e978d null bff3c49ba5e353f8"},
		{5, "INT", "300 null -129"}, {5, "TINYINT", "44 null 127"}, {5, "SMALLINT", "300 null -129"},
		{6, "VARBINARY(2)", "0102 null "}, {6, "BINARY(4)", "01020300 null 00000000"},
		{99, "INT", "null null null"}, {99, "STRING", "null null null"}, {99, "BOOLEAN", "null null null"},
	} {
		t.Run(fmt.Sprintf("%d to %s", c.id, c.typ), func(t *testing.T) {
			now := &schema.Schema{Fields: []schema.Field{{ID: 100, Name: "a", Type: mustType(t, "INT")}, {ID: c.id, Name: "new name", Type: mustType(t, c.typ)}}}
			got, err := readFile(data, old, ReadSpec{Schema: now, Cols: []int{1, 0}})
			if err != nil {
				t.Fatal(err)
			}
			a := concat(t, got, 2)
			if text := fmt.Sprintf("%s %s %s", anyText(schema.Cell(a.Cols[0], 0)), anyText(schema.Cell(a.Cols[0], 1)), anyText(schema.Cell(a.Cols[0], 2))); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
			if a.Cols[1].NullN() != 3 {
				t.Error("the re-added column has the old one's values")
			}
		})
	}
	now := &schema.Schema{Fields: []schema.Field{{ID: 1, Name: "b", Type: mustType(t, "INT")}}}
	if _, err := readFile(data, old, ReadSpec{Schema: now, Cols: []int{0}}); err == nil {
		t.Error("VARCHAR was read as INT")
	}
}
