package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/ingest/decode"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// parquetOf writes n rows in row groups; every hundredth has a number that is too large for an INT.
func parquetOf(t testing.TB, n, group int) []byte {
	t.Helper()
	i64, str := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	field := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	s := arrow.NewSchema([]arrow.Field{field("extra", str), field("s", str), field("id", i64), field("n", i64), field("at", &arrow.TimestampType{Unit: arrow.Microsecond}),
		field("tags", arrow.ListOf(arrow.StructOf(field("k", str), field("v", arrow.PrimitiveTypes.Float64)))), field("m", arrow.MapOf(str, i64))}, nil)
	var rows []string
	for i := range n {
		number := i
		if i%100 == 7 {
			number = 1 << 40
		}
		rows = append(rows, fmt.Sprintf(`{"extra":"e","s":"text %d","id":%d,"n":%d,"at":"2024-02-29 01:02:03.000004","tags":[{"k":"a","v":%d},{"k":null,"v":0.5}],"m":[{"key":"x","value":%d}]}`, i, i, number, i, i))
	}
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, s, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(s, &out, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithMaxRowGroupLength(int64(group)), parquet.WithDataPageSize(4<<10)), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WriteBuffered(b), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func runParquet(t *testing.T, store storage.Store, data []byte, limits Limits, how decode.Evolution, once bool) (LinesResult, *list, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	table, err := engine.Open(ctx, store, engine.Settings{Job: "file"}, testEnv())
	if err != nil {
		t.Fatal(err)
	}
	var events Events
	if once {
		events.Committed = func(Committed) { cancel() }
	}
	dead := &list{}
	cfg := FileConfig{Name: "f.parquet", Resume: true, Limits: limits, Decode: decode.Config{Format: decode.Arrow, BatchRows: 64, Evolution: how}}
	res, err := RunFile(ctx, bytes.NewReader(data), int64(len(data)), cfg, table, dead, testEnv(), events)
	return res, dead, errors.Join(err, table.Close(context.Background()))
}

// TestParquetFile reads a file of several row groups into a table, in several tries; each row is in it once, and what does
// not fit is a dead letter that can be looked at.
func TestParquetFile(t *testing.T) {
	cols, err := schema.ParseColumns("id BIGINT, s STRING, n INT, at TIMESTAMP(3), tags ARRAY<ROW<k STRING, v FLOAT>>, m MAP<STRING NOT NULL, BIGINT>, more INT")
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	data := parquetOf(t, n, 300)
	store := createFrom(t, cols)
	tries, letters := 0, 0
	for rows := int64(0); rows < n-n/100; tries++ {
		res, dead, err := runParquet(t, store, data, Limits{CommitRows: 200}, "", true)
		if err != nil || tries > 50 {
			t.Fatal(res, err)
		}
		rows += res.Rows
		letters += len(dead.letters)
		for _, l := range dead.letters {
			if !strings.Contains(string(l.Raw), `"n":1099511627776`) || !strings.Contains(l.Reason, "out of range for INT") {
				t.Errorf("%s: %s", l.Raw, l.Reason)
			}
		}
	}
	var want []string
	for i := range n {
		if i%100 != 7 {
			want = append(want, fmt.Sprintf(`{"id":%d,"s":"text %d","n":%d,"at":"2024-02-29T01:02:03.000","tags":[{"k":"a","v":%d},{"k":null,"v":0.5}],"m":[["x",%d]],"more":null}`, i, i, i, i, i))
		}
	}
	slices.Sort(want)
	if got := jsonRows(t, store); !slices.Equal(got, want) || tries < 2 || letters != n/100 {
		t.Fatalf("%d rows, want %d; %d tries, %d letters; the first is %s, want %s", len(got), len(want), tries, letters, got[0], want[0])
	}
	if res, _, err := runParquet(t, store, data, Limits{}, "", false); err != nil || res.Lines != 0 {
		t.Errorf("once more: %+v %v", res, err)
	}
	if _, _, err := runParquet(t, store, parquetOf(t, n, 200), Limits{}, "", false); !errors.Is(err, ErrSourceChanged) {
		t.Errorf("another file: %v", err)
	}
}

// TestParquetFileColumns: columns that the table does not have become some by policy; files that have none of the table's,
// or are none, are told.
func TestParquetFileColumns(t *testing.T) {
	data := parquetOf(t, 10, 4)
	cols, err := schema.ParseColumns("id BIGINT, n SMALLINT")
	if err != nil {
		t.Fatal(err)
	}
	store := createFrom(t, cols)
	if res, _, err := runParquet(t, store, data, Limits{}, decode.AddOnly, false); err != nil || res.Rows != 9 || res.Rejected != 1 {
		t.Fatal(res, err)
	}
	want := `{"id":3,"n":3,"extra":"e","s":"text 3","at":"2024-02-29T01:02:03.000004","tags":[{"k":"a","v":3},{"k":null,"v":0.5}],"m":[["x",3]]}`
	if got := jsonRows(t, store); len(got) != 9 || !slices.Contains(got, want) {
		t.Errorf("%v, want %s", got, want)
	}
	made, err := ParquetColumns(bytes.NewReader(data))
	if err != nil || len(made) != 7 || made[4].Type.String() != "TIMESTAMP(6)" {
		t.Errorf("%v %v", made, err)
	}
	other, err := schema.ParseColumns("x BIGINT")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := runParquet(t, createFrom(t, other), data, Limits{}, "", false); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "no column of the file") {
		t.Errorf("%v", err)
	}
	for _, b := range [][]byte{nil, []byte("PAR1"), []byte("Obj\x01 and more than a footer has"), data[:len(data)/2]} {
		if _, _, err := runParquet(t, createFrom(t, cols), b, Limits{}, "", false); !errors.Is(err, ErrConfig) {
			t.Errorf("%.10q: %v", b, err)
		}
	}
	for i := 4; i < len(data)/2; i += 37 { // pages that are broken
		b := bytes.Clone(data)
		b[i] ^= 0xff
		_, _, _ = runParquet(t, createFrom(t, cols), b, Limits{}, "", false)
	}
}
