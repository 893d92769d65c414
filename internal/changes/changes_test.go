package changes

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
)

// item makes rows (id, name) of a snapshot; a name "-" is null.
func item(snapshot int64, state bool, kinds []schema.RowKind, names ...string) reader.Changes {
	sc := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "na,me", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	for i, n := range names {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		if n == "-" {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append(n)
		}
	}
	return reader.Changes{Snapshot: snapshot, State: state, Rec: b.NewRecordBatch(), RowKinds: kinds, Time: time.UnixMilli(1_800_000_000_000 + snapshot)}
}

func encode(t *testing.T, format string, items ...reader.Changes) string {
	t.Helper()
	var out bytes.Buffer
	e, err := New(format, &out, Options{Source: Source{"shop", "or\"ders"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range items {
		if err := e.Write(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const (
	ins = schema.Insert
	bef = schema.UpdateBefore
	aft = schema.UpdateAfter
	del = schema.Delete
)

func TestJSON(t *testing.T) {
	got := encode(t, JSON, item(3, true, nil, "a", "-"), reader.Changes{Snapshot: 3, Complete: true}, item(4, false, []schema.RowKind{bef, aft}, "a", "b"))
	want := `{"snapshot":3,"kind":"+I","row":{"id":0,"na,me":"a"}}
{"snapshot":3,"kind":"+I","row":{"id":1,"na,me":null}}
{"snapshot":4,"kind":"-U","row":{"id":0,"na,me":"a"}}
{"snapshot":4,"kind":"+U","row":{"id":1,"na,me":"b"}}
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestDebezium: an update is one event also when its images come in two batches; a -U without +U is a delete.
func TestDebezium(t *testing.T) {
	end := func(n int64) reader.Changes { return reader.Changes{Snapshot: n, Complete: true} }
	got := encode(t, Debezium, item(3, true, nil, "a"), end(3), item(4, false, []schema.RowKind{ins, aft, del, bef}, "n", "o", "p", "q"),
		item(4, false, []schema.RowKind{aft, bef, ins}, "r", "s", "t"), item(4, false, []schema.RowKind{bef}, "u"), end(4))
	type event struct {
		Before, After map[string]any
		Op            string
		TS            int64 `json:"ts_ms"`
		Source        struct {
			Connector, DB, Table string
			Snapshot             int64 `json:"snapshot_id"`
		}
	}
	var ops []string
	for line := range strings.Lines(got) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		name := func(m map[string]any) string {
			if m == nil {
				return "."
			}
			return m["na,me"].(string)
		}
		if e.Source.Connector != "calve" || e.Source.DB != "shop" || e.Source.Table != `or"ders` || e.TS != 1_800_000_000_000+e.Source.Snapshot {
			t.Errorf("source of %s", line)
		}
		ops = append(ops, e.Op+name(e.Before)+name(e.After))
	}
	if want := []string{"r.a", "c.n", "u.o", "dp.", "uqr", "ds.", "c.t", "du."}; !reflect.DeepEqual(ops, want) {
		t.Errorf("events %q, want %q", ops, want)
	}
}

// TestDebeziumKeys: a -U without +U and a +U without -U that follow each other are of one row only if their keys say so.
func TestDebeziumKeys(t *testing.T) {
	c := item(3, false, []schema.RowKind{bef, aft, bef}, "a", "b", "c")
	c.Schema = &schema.Schema{PrimaryKeys: []string{"id"}}
	d := item(3, false, []schema.RowKind{ins, ins, aft}, "x", "y", "z")
	d.Schema, d.Rec, d.RowKinds = c.Schema, d.Rec.NewSlice(2, 3), d.RowKinds[2:]
	var ops []string
	for line := range strings.Lines(encode(t, Debezium, c, d)) {
		var e struct {
			Before, After *struct{ ID int64 }
			Op            string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		ops = append(ops, fmt.Sprint(e.Op, e.Before != nil, e.After != nil))
	}
	if want := []string{"dtrue false", "ufalse true", "utrue true"}; !slices.Equal(ops, want) {
		t.Errorf("events %q, want %q", ops, want)
	}
}

// TestCSV: the standard reader gives the cells back; null and the empty text differ.
func TestCSV(t *testing.T) {
	hard := "a \"b\",\nc\\ü"
	got := encode(t, CSV, item(3, false, []schema.RowKind{ins, del, aft}, hard, "-", ""), item(5, false, nil, "x"))
	rows, err := csv.NewReader(strings.NewReader(got)).ReadAll()
	want := [][]string{{"snapshot", "kind", "id", "na,me"}, {"3", "+I", "0", hard}, {"3", "-D", "1", ""}, {"3", "+U", "2", ""}, {"5", "+I", "0", "x"}}
	if err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("%v: %q, want %q", err, rows, want)
	}
	if !strings.Contains(got, "-D,1,\n") || !strings.Contains(got, "+U,2,\"\"\n") {
		t.Errorf("null and the empty text: %q", got)
	}
}

// TestArrow: Arrow's reader gives the rows back, and a second stream those of other columns.
func TestArrow(t *testing.T) {
	other := item(6, false, nil, "y")
	other.Rec = array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "only", Type: arrow.PrimitiveTypes.Int64}}, nil), other.Rec.Columns()[:1], 1)
	text := strings.NewReader(encode(t, Arrow, item(3, false, []schema.RowKind{ins, del}, "a", "-"), item(5, false, nil, "x"), other))
	var got []string
	for range 2 {
		r, err := ipc.NewReader(text)
		if err != nil {
			t.Fatal(err)
		}
		for r.Next() {
			rec := r.RecordBatch()
			for i := range int(rec.NumRows()) {
				var row []string
				for c, col := range rec.Columns() {
					row = append(row, rec.ColumnName(c)+"="+col.ValueStr(i))
				}
				got = append(got, strings.Join(row, " "))
			}
		}
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	want := []string{"_snapshot=3 _kind=+I id=0 na,me=a", "_snapshot=3 _kind=-D id=1 na,me=(null)", "_snapshot=5 _kind=+I id=0 na,me=x", "_snapshot=6 _kind=+I only=0"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// events are items that are no rows, with rows around them.
func events() []reader.Changes {
	at := time.UnixMilli(1_800_000_000_000)
	sc := &schema.Schema{ID: 2, Fields: []schema.Field{{ID: 1, Name: "id", Type: schema.Type{Root: schema.BigInt, NotNull: true}}, {ID: 4, Name: "na,me", Type: schema.Type{Root: schema.VarChar, Length: schema.MaxLength}}}, PrimaryKeys: []string{"id"}}
	return []reader.Changes{item(3, false, nil, "a"), {Snapshot: 3, Complete: true, First: 1},
		{Snapshot: 9, State: true, Time: at, Event: &reader.Event{Gap: &reader.GapError{From: 4, To: 7, Earliest: 8, Latest: 9, Until: at}}},
		item(9, true, nil, "b"), {Snapshot: 9, State: true, Complete: true, First: 1},
		{Snapshot: 10, Time: at, Schema: sc, Event: &reader.Event{Schema: &schema.Schema{ID: 1}}}, item(10, false, nil, "c")}
}

// TestEvents: what is no row is told in each format.
func TestEvents(t *testing.T) {
	gap := `"event":"gap","from":4,"to":7,"earliest":8,"latest":9,"until":"2027-01-15T08:00:00.000Z"`
	sch := `"event":"schema","schema":{"id":2,"fields":[{"id":1,"name":"id","type":"BIGINT NOT NULL"},{"id":4,"name":"na,me","type":"STRING"}],"primaryKeys":["id"]}`
	want := map[string]string{
		JSON: `{"snapshot":3,"kind":"+I","row":{"id":0,"na,me":"a"}}
{"snapshot":9,` + gap + `}
{"snapshot":9,"kind":"+I","row":{"id":0,"na,me":"b"}}
{"snapshot":10,` + sch + `}
{"snapshot":10,"kind":"+I","row":{"id":0,"na,me":"c"}}
`,
		CSV: `snapshot,kind,id,"na,me"
3,+I,0,a
9,gap,,
9,+I,0,b
snapshot,kind,id,"na,me"
10,+I,0,c
`,
	}
	for format, w := range want {
		if got := encode(t, format, events()...); got != w {
			t.Errorf("%s:\n%swant\n%s", format, got, w)
		}
	}
	var ops []string
	for line := range strings.Lines(encode(t, Debezium, events()...)) {
		var e struct {
			Op      string
			Changes []struct {
				ID    string
				Table struct {
					Keys    []string `json:"primaryKeyColumnNames"`
					Columns []struct {
						Name, TypeName string
						Optional       bool
						Position       int
					}
				}
			} `json:"tableChanges"`
			Source struct{ Table string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Source.Table != `or"ders` {
			t.Fatalf("%s: %v", line, err)
		}
		ops = append(ops, fmt.Sprint(e.Op, e.Changes))
	}
	if want := []string{"c[]", "t[]", "r[]", `[{"shop"."or\"ders" {[id] [{id BIGINT false 1} {na,me STRING true 2}]}}]`, "c[]"}; !slices.Equal(ops, want) {
		t.Errorf("events %q, want %q", ops, want)
	}
	arrowEvents(t, []string{"", "gap", "schema"}, events()...)
	all := events()
	first, gapped, end, altered, last := all[0], all[2], all[4], all[5], all[6]
	arrowEvents(t, []string{"", "gap", "schema"}, first, gapped, altered, last) // one behind the other
	arrowEvents(t, []string{"gap"}, gapped)                                     // and no row
	arrowEvents(t, []string{"", "gap", ""}, first, gapped, end, last)
}

// arrowEvents looks what the streams that some items make tell.
func arrowEvents(t *testing.T, events []string, items ...reader.Changes) {
	t.Helper()
	text := strings.NewReader(encode(t, Arrow, items...))
	for i, want := range events {
		r, err := ipc.NewReader(text)
		if err != nil {
			t.Fatal(i, err)
		}
		md := r.Schema().Metadata()
		if got, _ := md.GetValue(EventKey); got != want {
			t.Errorf("stream %d tells %q, want %q", i, got, want)
		}
		if detail, _ := md.GetValue(DetailKey); want != "" && !json.Valid([]byte(detail)) {
			t.Errorf("stream %d tells %q", i, detail)
		}
		for r.Next() {
		}
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	if text.Len() > 0 {
		t.Errorf("%d bytes are left behind %d streams", text.Len(), len(events))
	}
}

// TestPositions: each row says where a reader that has dealt with it resumes.
func TestPositions(t *testing.T) {
	var out bytes.Buffer
	for _, format := range []string{JSON, SSE} {
		e, err := New(format, &out, Options{Positions: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range events()[2:5] {
			if err := e.Write(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := `{"snapshot":9,"event":"gap","from":4,"to":7,"earliest":8,"latest":9,"until":"2027-01-15T08:00:00.000Z","at":"9.0.state"}
{"snapshot":9,"kind":"+I","row":{"id":0,"na,me":"b"},"at":"9.1.state"}
{"snapshot":9,"event":"end","at":"10.0"}
event: gap
id: 9.0.state
data: {"snapshot":9,"event":"gap","from":4,"to":7,"earliest":8,"latest":9,"until":"2027-01-15T08:00:00.000Z"}

id: 9.1.state
data: {"snapshot":9,"kind":"+I","row":{"id":0,"na,me":"b"}}

event: end
id: 10.0
data: {"snapshot":9,"event":"end"}

`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	e, err := New(Arrow, &out, Options{Positions: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Write(item(9, true, nil, "b", "c")); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := ipc.NewReader(&out)
	if err != nil || !r.Next() {
		t.Fatal(err)
	}
	if got := r.RecordBatch().Column(2).String(); got != `["9.1.state" "9.2.state"]` {
		t.Error(got)
	}
}

func TestUnknownFormat(t *testing.T) {
	if _, err := New("xml", nil, Options{}); err == nil || !strings.Contains(err.Error(), "json, debezium, csv, arrow") {
		t.Error(err)
	}
}
