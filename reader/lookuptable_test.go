package reader_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// lookupTable makes a table of three columns with given options, writes rows in several commits and gives its rows.
func lookupTable(t *testing.T, st storage.Store, pk, parts []string, options map[string]string) {
	t.Helper()
	cols, err := schema.ParseColumns("p STRING NOT NULL, id BIGINT NOT NULL, name STRING")
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: pk, PartitionKeys: parts, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Create(t.Context(), st, s); err != nil {
		t.Fatal(err)
	}
	e := env()
	tab, err := engine.Open(t.Context(), st, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		t.Fatal(err)
	}
	for commit := range 4 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		var kinds []schema.RowKind
		for i := range 900 {
			id := int64((i*7 + commit*131) % 1500)
			b.Field(0).(*array.StringBuilder).Append(fmt.Sprintf("p%d", id%5))
			b.Field(1).(*array.Int64Builder).Append(id)
			b.Field(2).(*array.StringBuilder).Append(fmt.Sprintf("%d of commit %d", id, commit))
			kind := schema.Insert
			if commit > 0 && i%11 == 0 {
				kind = schema.Delete
			}
			kinds = append(kinds, kind)
		}
		if err := tab.Write(t.Context(), schema.Batch{Rec: b.NewRecordBatch(), Kinds: kinds}); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
			t.Fatal(err)
		}
		if commit == 2 {
			if err := tab.Compact(t.Context(), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLookupBuckets asks tables with each way to choose partition and bucket for all keys that there are, and others.
func TestLookupBuckets(t *testing.T) {
	for name, c := range map[string]struct {
		pk, parts []string
		options   map[string]string
	}{
		"fixed":               {[]string{"p", "id"}, []string{"p"}, map[string]string{"bucket": "3"}},
		"bucket key":          {[]string{"id", "p"}, nil, map[string]string{"bucket": "4", "bucket-key": "id"}},
		"mod":                 {[]string{"id"}, nil, map[string]string{"bucket": "4", "bucket-key": "id", "bucket-function.type": "mod"}},
		"dynamic":             {[]string{"p", "id"}, []string{"p"}, map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "50"}},
		"dynamic, one column": {[]string{"id"}, nil, map[string]string{"bucket": "-1", "dynamic-bucket.target-row-num": "300"}},
	} {
		t.Run(name, func(t *testing.T) {
			st := storage.WithCounter(storage.NewMem())
			lookupTable(t, st, c.pk, c.parts, c.options)
			r := reader.Open(st, env())
			want := map[string]string{}
			for rec, err := range r.Scan(t.Context(), reader.Query{}) {
				if err != nil {
					t.Fatal(err)
				}
				for i := range int(rec.NumRows()) {
					want[rowText(rec, i, c.pk...)] = rowText(rec, i, "p", "id", "name")
				}
			}
			l, err := r.OpenLookup(t.Context(), reader.Query{Parallel: 2}, nil)
			if err != nil {
				t.Fatal(err)
			}
			b := array.NewRecordBuilder(memory.DefaultAllocator, l.KeySchema())
			for id := range int64(1600) {
				id = id * 999 % 1600
				for i, n := range c.pk {
					if n == "id" {
						b.Field(i).(*array.Int64Builder).Append(id)
					} else {
						b.Field(i).(*array.StringBuilder).Append(fmt.Sprintf("p%d", id%5))
					}
				}
			}
			keys := b.NewRecordBatch()
			f, err := l.Get(t.Context(), keys)
			if err != nil {
				t.Fatal(err)
			}
			checkAnswer(t, keys, f, want, len(want), c.pk)
			before := st.Counts()
			one := keys.NewSlice(77, 78)
			if f, err = r.Get(t.Context(), reader.Query{}, one, nil); err != nil {
				t.Fatal(err)
			}
			checkAnswer(t, one, f, want, -1, c.pk)
			t.Logf("one key: %s", st.Counts().Since(before))
		})
	}
}

func checkAnswer(t *testing.T, keys arrow.RecordBatch, f reader.Found, want map[string]string, rows int, pk []string) {
	t.Helper()
	for i := range int(keys.NumRows()) {
		got := ""
		if f.At[i] >= 0 {
			got = rowText(f.Rows, int(f.At[i]), "p", "id", "name")
		}
		if w := want[rowText(keys, i, pk...)]; got != w {
			t.Fatalf("key %s: got %q, want %q", rowText(keys, i, pk...), got, w)
		}
	}
	if rows >= 0 && int(f.Rows.NumRows()) != rows {
		t.Errorf("%d rows, want %d", f.Rows.NumRows(), rows)
	}
}

func rowText(rec arrow.RecordBatch, i int, names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%v|", schema.Cell(rec.Column(rec.Schema().FieldIndices(n)[0]), i))
	}
	return b.String()
}

// TestLookupEmpty: a table without snapshots has no rows.
func TestLookupEmpty(t *testing.T) {
	x := newTable(t, true)
	l, err := x.reader().OpenLookup(t.Context(), reader.Query{Columns: []string{"name"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, l.KeySchema())
	b.Field(0).(*array.StringBuilder).Append("a")
	b.Field(1).(*array.Int64Builder).Append(1)
	f, err := l.Get(t.Context(), b.NewRecordBatch())
	if err != nil || f.At[0] != -1 || f.Rows.NumRows() != 0 || f.Rows.NumCols() != 1 || l.Snapshot() != nil {
		t.Errorf("got %+v, %v", f, err)
	}
}
