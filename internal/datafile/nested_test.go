package datafile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	psc "github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/calve-io/calve/schema"
)

// Short forms of types. Field ids of ROWs are set by nestedTypes.
func arrayOf(t schema.Type) schema.Type  { return schema.Type{Root: schema.Array, Element: &t} }
func mapOf(k, v schema.Type) schema.Type { return schema.Type{Root: schema.Map, Key: &k, Element: &v} }
func multisetOf(t schema.Type) schema.Type {
	return schema.Type{Root: schema.Multiset, Element: &t}
}

func rowOf(types ...schema.Type) schema.Type {
	out := schema.Type{Root: schema.Row}
	for i, t := range types {
		out.Fields = append(out.Fields, schema.Field{Name: fmt.Sprintf("f%d", i), Type: t})
	}
	return out
}

func notNull(t schema.Type) schema.Type {
	t.NotNull = true
	return t
}

// nestedTypes is a table of nested columns and of timestamps in nanoseconds.
func nestedTypes(t testing.TB) *schema.Schema {
	t.Helper()
	p := func(s string) schema.Type { return mustType(t, s) }
	types := []schema.Type{
		arrayOf(p("INT")), notNull(arrayOf(notNull(p("STRING")))), arrayOf(arrayOf(p("BIGINT"))),
		arrayOf(notNull(arrayOf(arrayOf(p("BOOLEAN"))))), mapOf(p("STRING NOT NULL"), p("DOUBLE")),
		mapOf(p("INT NOT NULL"), arrayOf(p("DECIMAL(20, 2)"))), multisetOf(p("STRING NOT NULL")),
		rowOf(p("INT"), p("STRING NOT NULL"), rowOf(p("TIMESTAMP(6)"), p("BYTES"))), notNull(rowOf(p("TINYINT NOT NULL"), p("BOOLEAN"))),
		arrayOf(rowOf(p("INT"), arrayOf(rowOf(p("DATE"), p("STRING"))), p("DECIMAL(9, 2)"))),
		mapOf(p("BIGINT NOT NULL"), rowOf(mapOf(p("STRING NOT NULL"), arrayOf(p("FLOAT"))), p("SMALLINT"))),
		{Root: schema.Variant}, arrayOf(schema.Type{Root: schema.Variant, NotNull: true}),
		p("TIMESTAMP(9)"), p("TIMESTAMP(7) NOT NULL"), p("TIMESTAMP(8) WITH LOCAL TIME ZONE"), arrayOf(p("TIMESTAMP(9)")),
		rowOf(arrayOf(p("TIME(3)")), p("TIMESTAMP(3) WITH LOCAL TIME ZONE")),
	}
	s := &schema.Schema{Version: 3, PrimaryKeys: []string{"k"}, Options: map[string]string{}}
	s.Fields = append(s.Fields, schema.Field{ID: 0, Name: "k", Type: p("BIGINT NOT NULL")})
	id := 0
	for i, x := range types {
		id++
		f := schema.Field{ID: id, Name: fmt.Sprintf("n%d", i), Type: x}
		number(&f.Type, &id)
		s.Fields = append(s.Fields, f)
	}
	s.HighestFieldID = id
	return s
}

// number gives the fields inside a type their ids.
func number(t *schema.Type, id *int) {
	for i := range t.Fields {
		*id++
		t.Fields[i].ID = *id
		number(&t.Fields[i].Type, id)
	}
	for _, p := range []*schema.Type{t.Key, t.Element} {
		if p != nil {
			number(p, id)
		}
	}
}

// randomNested makes a value of a nested type. Lists are short, some are empty, a few are long.
func randomNested(r *rand.Rand, t schema.Type, sh valueShape) any {
	cell := func(t schema.Type) any {
		if !t.NotNull && r.Float64() < sh.nulls {
			return nil
		}
		return randomCell(r, t, sh)
	}
	n := r.IntN(4)
	if r.IntN(100) == 0 {
		n = 200
	}
	switch t.Root {
	case schema.Variant:
		bin := schema.Type{Root: schema.VarBinary, Length: 9}
		return []any{randomCell(r, bin, sh), randomCell(r, bin, sh)}
	case schema.Row:
		out := make([]any, len(t.Fields))
		for i, f := range t.Fields {
			out[i] = cell(f.Type)
		}
		return out
	case schema.Array:
		out := make([]any, n)
		for i := range out {
			out[i] = cell(*t.Element)
		}
		return out
	}
	parts := partsOf(t)
	out := make([][2]any, n)
	for i := range out {
		out[i] = [2]any{randomCell(r, parts[0], sh), cell(parts[1])}
	}
	return out
}

// TestNestedFromOthers reads nested columns that the Arrow library wrote in many forms, in batches of all sizes.
func TestNestedFromOthers(t *testing.T) {
	s := nestedTypes(t)
	in := randomRows(newRand(31), s, 0, 200, valueShape{nulls: 0.2, repeats: 60})
	rec := array.NewRecordBatch(s.Arrow(), in.Cols, int64(in.N))
	for name, props := range map[string][]parquet.WriterProperty{
		"v1":         {parquet.WithCompression(compress.Codecs.Zstd)},
		"v2":         {parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithCompression(compress.Codecs.Snappy)},
		"v2 plain":   {parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithDictionaryDefault(false)},
		"tiny pages": {parquet.WithDataPageSize(1), parquet.WithBatchSize(3)},
		"row groups": {parquet.WithMaxRowGroupLength(60), parquet.WithDataPageSize(400)},
	} {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			w, err := pqarrow.NewFileWriter(s.Arrow(), &buf, parquet.NewWriterProperties(props...), pqarrow.NewArrowWriterProperties())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Write(rec), w.Close()); err != nil {
				t.Fatal(err)
			}
			for _, batch := range []int{3, 5000} {
				got, err := readFile(buf.Bytes(), s, ReadSpec{Schema: s, Cols: allColumns(s), BatchRows: batch})
				if err != nil {
					t.Fatal(err)
				}
				want := in
				want.Seq, want.Kinds = nil, nil
				sameRows(t, s, allColumns(s), concat(t, got, len(s.Fields)), want)
			}
		})
	}
}

// TestNestedBatchEndsEarly: lists that exceed a batch end it at a row, in all leaves at the same one.
func TestNestedBatchEndsEarly(t *testing.T) {
	typ := arrayOf(rowOf(mustType(t, "INT"), arrayOf(mustType(t, "TINYINT"))))
	id := 0
	number(&typ, &id)
	s := &schema.Schema{Fields: []schema.Field{{ID: 9, Name: "a", Type: typ}}}
	dt, err := schema.ArrowType(typ)
	if err != nil {
		t.Fatal(err)
	}
	const rows, long = 9, batchSlots / 8
	b := array.NewBuilder(alloc, dt).(*array.ListBuilder)
	row := b.ValueBuilder().(*array.StructBuilder)
	inner := row.FieldBuilder(1).(*array.ListBuilder)
	for i := range rows { // row i has i elements, one of them with many inside
		b.Append(true)
		for j := range i {
			row.Append(true)
			row.FieldBuilder(0).(*array.Int32Builder).Append(int32(i*100 + j))
			inner.Append(true)
			for k := 0; j == 0 && k < long*(1+i%3); k++ {
				inner.ValueBuilder().(*array.Int8Builder).Append(int8(i))
			}
		}
	}
	want := b.NewArray()
	file := writeArrow(t, s, want)
	got, err := readFile(file, s, ReadSpec{Schema: s, Cols: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < 2 {
		t.Fatalf("%d batches: none ended early", len(got))
	}
	if all := concat(t, got, 1); !array.Equal(all.Cols[0], want) {
		t.Fatal("other values")
	}
}

// writeArrow writes one column with the Arrow library.
func writeArrow(t *testing.T, s *schema.Schema, cols ...arrow.Array) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := pqarrow.NewFileWriter(s.Arrow(), &buf, nil, pqarrow.NewArrowWriterProperties())
	if err != nil {
		t.Fatal(err)
	}
	rec := array.NewRecordBatch(s.Arrow(), cols, int64(cols[0].Len()))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestNestedSchemaChange reads nested rows in a later schema: fields renamed, added, removed, widened, in another order.
func TestNestedSchemaChange(t *testing.T) {
	field := func(id int, name, typ string) schema.Field {
		return schema.Field{ID: id, Name: name, Type: mustType(t, typ)}
	}
	row := func(fields ...schema.Field) schema.Type { return schema.Type{Root: schema.Row, Fields: fields} }
	old := &schema.Schema{Fields: []schema.Field{{ID: 1, Name: "r", Type: row(field(2, "a", "INT"), field(3, "b", "STRING"), field(4, "c", "INT"))},
		{ID: 5, Name: "l", Type: arrayOf(row(field(6, "x", "INT")))}}}
	now := &schema.Schema{Fields: []schema.Field{
		{ID: 5, Name: "list", Type: arrayOf(row(field(8, "new", "STRING")))},
		{ID: 1, Name: "r", Type: row(field(7, "added", "DATE"), field(3, "renamed", "STRING"), field(2, "a", "BIGINT"))}}}
	in := randomRows(newRand(5), &schema.Schema{Fields: append([]schema.Field{field(0, "k", "BIGINT NOT NULL")}, old.Fields...)}, 0, 500, valueShape{nulls: 0.3})
	file := writeArrow(t, old, in.Cols[1:]...)
	got, err := readFile(file, old, ReadSpec{Schema: now, Cols: []int{0, 1}, BatchRows: 77})
	if err != nil {
		t.Fatal(err)
	}
	rows := concat(t, got, 2)
	for i := range rows.N {
		l, _ := schema.Cell(in.Cols[2], i).([]any)
		r, _ := schema.Cell(in.Cols[1], i).([]any)
		wantList, wantRow := any(nil), any(nil)
		if !in.Cols[2].IsNull(i) {
			list := make([]any, len(l))
			for j := range l {
				if l[j] != nil {
					list[j] = []any{nil}
				}
			}
			wantList = list
		}
		if r != nil {
			a := r[0]
			if v, ok := a.(int32); ok {
				a = int64(v)
			}
			wantRow = []any{nil, r[1], a}
		}
		if g, w := anyText(schema.Cell(rows.Cols[0], i)), anyText(wantList); g != w {
			t.Fatalf("row %d: list %s, want %s", i, g, w)
		}
		if g, w := anyText(schema.Cell(rows.Cols[1], i)), anyText(wantRow); g != w {
			t.Fatalf("row %d: row %s, want %s", i, g, w)
		}
	}
	// What the file's schema promises must be there.
	lied := &schema.Schema{Fields: []schema.Field{{ID: 1, Name: "r", Type: row(field(2, "a", "INT"), field(9, "gone", "INT"))}}}
	_, err = readFile(file, lied, ReadSpec{Schema: lied, Cols: []int{0}})
	if err == nil || !strings.Contains(err.Error(), "r.gone") || !errors.Is(err, ErrUnsupported) {
		t.Fatalf("a missing nested field: %v", err)
	}
	_, err = readFile(file, old, ReadSpec{Schema: &schema.Schema{Fields: []schema.Field{{ID: 5, Name: "l", Type: mapOf(mustType(t, "INT"), mustType(t, "INT"))}}}, Cols: []int{0}})
	if err == nil || !errors.Is(err, ErrUnsupported) {
		t.Fatalf("a list read as a map: %v", err)
	}
}

// TestNestedHostile damages nested columns, of Paimon's files and others, uncompressed too, so that levels are hit.
func TestNestedHostile(t *testing.T) {
	type input struct {
		s     *schema.Schema
		file  []byte
		keyed bool
	}
	var inputs []input
	for _, table := range []string{"pk_all_types", "append_all_types"} {
		for _, f := range addedFiles(t, table) {
			s := goldenSchema(t, table, f.SchemaID)
			b, _ := readGolden(t, table, f, s, s.Keyed())
			inputs = append(inputs, input{s, b, s.Keyed()})
		}
	}
	s := nestedTypes(t)
	in := randomRows(newRand(33), s, 0, 150, valueShape{nulls: 0.2, repeats: 60})
	inputs = append(inputs, input{s, writeArrow(t, s, in.Cols...), false})
	for i, x := range inputs {
		r := newRand(400 + uint64(i))
		var nested []int
		for c, f := range x.s.Fields {
			if !f.Type.Primitive() || f.Type.Precision > 6 {
				nested = append(nested, c)
			}
		}
		for range 25 {
			c := append([]byte(nil), x.file...)
			for range 1 + r.IntN(12) {
				c[r.IntN(len(c))] ^= byte(1 << r.IntN(8))
			}
			for _, col := range nested { // one by one: an error in one column hides the others
				one := schema.Schema{Fields: x.s.Fields[col : col+1]}
				if err := readHostile(t, c, &one, false); err != nil && strings.Contains(err.Error(), "footer") {
					break
				}
			}
		}
	}
}

// TestNestedSkips leaves out rows by statistics and by batch: nested columns pass over them as others do.
func TestNestedSkips(t *testing.T) {
	s := nestedTypes(t)
	in := randomRows(newRand(35), s, 0, 600, valueShape{nulls: 0.2, repeats: 60})
	var buf bytes.Buffer
	props := parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(170), parquet.WithDataPageSize(300))
	w, err := pqarrow.NewFileWriter(s.Arrow(), &buf, props, pqarrow.NewArrowWriterProperties())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(array.NewRecordBatch(s.Arrow(), in.Cols, int64(in.N))), w.Close()); err != nil {
		t.Fatal(err)
	}
	spec := ReadSpec{Schema: s, Cols: allColumns(s), BatchRows: 50, Early: 1,
		Keep: func(r Rows) (bool, error) { return r.First/50%2 == 1, nil }}
	spec.Prune = &Prune{Cols: []int{0}, Match: func(_ int64, stats func(int) ColumnStats) bool {
		v, known := stats(0).Max.(int64)
		return !known || v >= 170
	}}
	got, err := readFile(buf.Bytes(), s, spec)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, b := range got {
		want := Rows{N: b.N, Cols: make([]arrow.Array, len(in.Cols))}
		for i, c := range in.Cols {
			want.Cols[i] = array.NewSlice(c, b.First, b.First+int64(b.N))
		}
		sameRows(t, s, allColumns(s), b, want)
		rows += b.N
	}
	if rows < 150 || rows > 400 {
		t.Fatalf("%d rows were kept", rows)
	}
}

// TestNestedRoundTrip writes nested columns in many shapes and reads them back.
func TestNestedRoundTrip(t *testing.T) {
	s := nestedTypes(t)
	for i, c := range []struct {
		name  string
		rows  []int
		shape valueShape
		cfg   WriterConfig
		batch int
	}{
		{name: "one row", rows: []int{1}, shape: valueShape{nulls: 0.3}},
		{name: "some nulls", rows: []int{300, 1, 80}, shape: valueShape{nulls: 0.2}, batch: 100},
		{name: "no nulls", rows: []int{300}, cfg: WriterConfig{Compression: "none"}},
		{name: "all null", rows: []int{200}, shape: valueShape{nulls: 1}},
		{name: "dictionaries", rows: []int{600, 600}, shape: valueShape{nulls: 0.1, repeats: 20}, cfg: WriterConfig{Parallel: 2}, batch: 512},
		{name: "row groups", rows: []int{500, 300}, shape: valueShape{nulls: 0.1, repeats: 9}, cfg: WriterConfig{RowGroupRows: 99, Compression: "snappy"}, batch: 64},
		{name: "empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := c.cfg
			cfg.Schema, cfg.Keyed = s, true
			var in []Rows
			first := 0
			for _, n := range c.rows {
				rows := randomRows(newRand(uint64(60+i)), s, first, n+5, c.shape)
				for j, a := range rows.Cols { // with an offset, as batches that were cut have
					rows.Cols[j] = array.NewSlice(a, 3, int64(n+3))
				}
				rows.N, rows.Seq, rows.Kinds = n, rows.Seq[3:n+3], rows.Kinds[3:n+3]
				in = append(in, rows)
				first += n
			}
			b, info := writeFile(t, cfg, in...)
			for j, f := range s.Fields {
				if v := info.Value[j]; !f.Type.Primitive() && (v.Nulls != -1 || v.Min != nil) {
					t.Errorf("column %s has statistics %v", f.Name, v)
				}
			}
			got, err := readFile(b, s, ReadSpec{Schema: s, Cols: allColumns(s), KeyValue: true, BatchRows: c.batch})
			if err != nil {
				t.Fatal(err)
			}
			sameRows(t, s, allColumns(s)[:len(concat(t, in, len(s.Fields)).Cols)], concat(t, got, len(s.Fields)), concat(t, in, len(s.Fields)))
			if first > 0 {
				arrowReads(t, b, s, concat(t, in, len(s.Fields)))
			}
		})
	}
}

// arrowReads lets the Arrow library read a keyed file of calve's.
func arrowReads(t *testing.T, b []byte, s *schema.Schema, want Rows) {
	t.Helper()
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
	for i, f := range s.Fields {
		a, err := array.Concatenate(tab.Column(i+3).Data().Chunks(), alloc)
		if err != nil {
			t.Fatal(err)
		}
		for row := range want.N {
			if g, w := anyText(schema.Cell(a, row)), anyText(schema.Cell(want.Cols[i], row)); g != w {
				t.Fatalf("column %s (%s), row %d: Arrow reads %.200s, want %.200s", f.Name, f.Type, row, g, w)
			}
		}
	}
}

// TestNestedShape compares the schema of files with that of Paimon's: names, repetition, annotations, field ids.
func TestNestedShape(t *testing.T) {
	for _, table := range []string{"pk_all_types", "append_all_types"} {
		f := addedFiles(t, table)[0]
		s := goldenSchema(t, table, f.SchemaID)
		b, rows := readGolden(t, table, f, s, s.Keyed())
		ours, _ := writeFile(t, WriterConfig{Schema: s, Keyed: s.Keyed()}, rows)
		if got, want := shapeOf(t, ours), shapeOf(t, b); got != want {
			t.Errorf("%s: our file has the schema\n%s\nPaimon's\n%s", table, got, want)
		}
	}
}

func shapeOf(t *testing.T, b []byte) string {
	t.Helper()
	pf, err := file.NewParquetReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer pf.Close()
	var text strings.Builder
	psc.PrintSchema(pf.MetaData().Schema.Root(), &text, 2)
	return text.String()
}

// TestNestedRefuses: a null inside where the type has none is an error that names the column.
func TestNestedRefuses(t *testing.T) {
	s := &schema.Schema{Fields: []schema.Field{{ID: 1, Name: "a", Type: arrayOf(notNull(mustType(t, "INT")))}}}
	b := array.NewBuilder(alloc, s.Arrow().Field(0).Type).(*array.ListBuilder)
	b.Append(true)
	b.ValueBuilder().AppendNull()
	w, err := NewWriter(&bytes.Buffer{}, WriterConfig{Schema: s})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Write(Rows{N: 1, Cols: []arrow.Array{b.NewArray()}})
	if err == nil || !strings.Contains(err.Error(), `"a.list.element"`) || !strings.Contains(err.Error(), "NOT NULL") {
		t.Fatalf("got %v", err)
	}
}
