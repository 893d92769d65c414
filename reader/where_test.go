package reader_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/calve-io/calve/engine"
	"github.com/calve-io/calve/internal/predicate"
	"github.com/calve-io/calve/internal/rowjson"
	"github.com/calve-io/calve/reader"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// randomTable is a table with a random history: keys in random order over several commits with deletes, compactions in
// between, a change of the schema on the way.
type randomTable struct {
	store  *storage.Mem
	schema *schema.Schema
	keyed  bool
}

const tableColumns = "p STRING NOT NULL, id BIGINT NOT NULL, k STRING NOT NULL, n INT, f DOUBLE, r FLOAT, m DECIMAL(10, 2), s STRING, at TIMESTAMP(6), b BOOLEAN, d DATE, gone INT"

func makeRandom(t *testing.T, r *rand.Rand) *randomTable {
	t.Helper()
	x := &randomTable{store: storage.NewMem(), keyed: r.IntN(3) > 0}
	cols, err := schema.ParseColumns(tableColumns)
	if err != nil {
		t.Fatal(err)
	}
	spec := schema.Spec{Columns: cols, Options: map[string]string{"file.compression": "none", "num-sorted-run.compaction-trigger": []string{"2", "3", "50"}[r.IntN(3)]}}
	if r.IntN(3) > 0 {
		spec.PartitionKeys = []string{"p"}
	}
	if x.keyed {
		spec.PrimaryKeys = append(slices.Clone(spec.PartitionKeys), "id", "k")
		spec.Options["bucket"] = []string{"1", "4"}[r.IntN(2)]
		if r.IntN(2) == 0 {
			spec.Options["bucket-key"] = "id"
		}
		switch r.IntN(5) {
		case 0:
			spec.Options["merge-engine"], spec.Options["ignore-delete"] = "partial-update", "true"
		case 1:
			spec.Options["merge-engine"], spec.Options["ignore-delete"] = "aggregation", "true"
			spec.Options["fields.n.aggregate-function"], spec.Options["fields.f.aggregate-function"] = "sum", "max"
		}
	}
	for _, o := range []string{"fields.s.stats-mode", "fields.n.stats-mode", "metadata.stats-mode"} {
		if r.IntN(4) == 0 {
			spec.Options[o] = []string{"none", "counts", "full", "truncate(3)"}[r.IntN(4)]
		}
	}
	if r.IntN(4) == 0 {
		spec.Options["target-file-size"] = "16 kb"
	}
	if r.IntN(2) == 0 {
		spec.Options["file-index.bloom-filter.columns"] = "id,k,s,n,at,d,gone"
		spec.Options["file-index.bloom-filter.id.items"] = "60"
		for _, c := range []string{"k", "s", "n", "at", "d", "gone"} {
			spec.Options["file-index.bloom-filter."+c+".items"] = "100"
		}
		spec.Options["file-index.in-manifest-threshold"] = []string{"100 b", "10 kb"}[r.IntN(2)]
	}
	if x.schema, err = schema.New(spec); err != nil {
		t.Fatal(err)
	}
	if err := engine.Create(t.Context(), x.store, x.schema); err != nil {
		t.Fatal(err)
	}
	for part := range 2 {
		if part == 1 {
			if r.IntN(2) == 0 {
				break
			}
			x.change(t)
		}
		x.write(t, r, 1+r.IntN(4))
	}
	return x
}

// change publishes another schema: n is wider, s has another name, gone is gone and came back as another column.
func (x *randomTable) change(t *testing.T) {
	t.Helper()
	s := *x.schema
	s.ID, s.Fields = 1, slices.Clone(x.schema.Fields)
	for i := range s.Fields {
		switch f := &s.Fields[i]; f.Name {
		case "n":
			f.Type.Root = schema.BigInt
		case "m":
			f.Type.Precision = 25
		case "r":
			f.Type.Root = schema.Double
		case "s":
			f.Name = "text"
		case "gone":
			s.HighestFieldID++
			f.ID = s.HighestFieldID
		}
	}
	if _, ok := s.Options["file-index.bloom-filter.columns"]; ok {
		s.Options["file-index.bloom-filter.columns"] = "id,text,d"
	}
	for k, v := range s.Options {
		if strings.HasPrefix(k, "fields.s.") {
			s.Options["fields.text.stats-mode"] = v
			delete(s.Options, k)
		}
	}
	b, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.store.Put(t.Context(), "schema/schema-1", b); err != nil {
		t.Fatal(err)
	}
	if x.schema, err = schema.Parse(b); err != nil {
		t.Fatal(err)
	}
}

func (x *randomTable) write(t *testing.T, r *rand.Rand, commits int) {
	t.Helper()
	e := env()
	tab, err := engine.Open(t.Context(), x.store, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		t.Fatal(err)
	}
	for range commits {
		b := array.NewRecordBuilder(memory.DefaultAllocator, x.schema.Arrow())
		n, low := 1+r.IntN(60), int64(r.IntN(300))
		kinds := make([]schema.RowKind, n)
		for i := range n {
			id := low + r.Int64N(40) - 20
			for c, f := range x.schema.Fields {
				appendValue(r, b.Field(c), f, id)
			}
			if x.keyed && r.IntN(5) == 0 {
				kinds[i] = schema.Delete
			}
		}
		if err := tab.Write(t.Context(), schema.Batch{Rec: b.NewRecordBatch(), Kinds: kinds}); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
			t.Fatal(err)
		}
		if x.keyed && r.IntN(3) == 0 {
			if err := tab.Compact(t.Context(), r.IntN(2) == 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// appendValue adds a value that goes with the id of its row, so that statistics say something, with exceptions.
func appendValue(r *rand.Rand, b array.Builder, f schema.Field, id int64) {
	if !f.Type.NotNull && r.IntN(8) == 0 {
		b.AppendNull()
		return
	}
	long := strings.Repeat("é", 15)
	switch b := b.(type) {
	case *array.StringBuilder:
		switch f.Name {
		case "p":
			b.Append([]string{"", "a", "b/ c"}[id&1+int64(r.IntN(2))])
		case "k":
			b.Append([]string{"x", "y"}[r.IntN(2)])
		default:
			b.Append([]string{"", "\U0010FFFF", fmt.Sprint(long, id), fmt.Sprintf("v%03d", id)}[r.IntN(4)])
		}
	case *array.Int64Builder:
		if f.Name == "id" {
			b.Append(id)
		} else {
			b.Append(-id * 10_000_000_000)
		}
	case *array.Int32Builder:
		b.Append(int32(-id))
	case *array.Float64Builder:
		b.Append([]float64{float64(id) / 4, float64(id) / 4, math.NaN(), math.Copysign(0, -1)}[r.IntN(4)*r.IntN(2)])
	case *array.Float32Builder:
		b.Append(float32(id) / 3)
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(id*100 + 25))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(id * 3_600_000_000))
	case *array.BooleanBuilder:
		b.Append(id > 150)
	case *array.Date32Builder:
		b.Append(arrow.Date32(id - 100))
	}
}

// randomWhere writes a condition on the columns of the table.
func randomWhere(r *rand.Rand, s *schema.Schema, depth int) string {
	if depth > 0 && r.IntN(4) > 0 {
		a, b := randomWhere(r, s, depth-1), randomWhere(r, s, depth-1)
		switch r.IntN(5) {
		case 0:
			return "NOT (" + a + ")"
		case 1, 2:
			return "(" + a + " OR " + b + ")"
		}
		return "(" + a + " AND " + b + ")"
	}
	f := s.Fields[r.IntN(len(s.Fields))]
	if r.IntN(3) == 0 {
		f = s.Fields[r.IntN(3)] // partition and key
	}
	id := int64(r.IntN(300))
	lit := func() string {
		id := id + r.Int64N(7)
		switch f.Type.Root {
		case schema.VarChar:
			switch f.Name {
			case "p":
				return []string{"''", "'a'", "'b/ c'", "'zz'"}[r.IntN(4)]
			case "k":
				return []string{"'x'", "'y'"}[r.IntN(2)]
			}
			return []string{"''", fmt.Sprintf("'v%03d'", id), fmt.Sprintf("'%s%d'", strings.Repeat("é", 15), id), "'\U0010FFFF'"}[r.IntN(4)]
		case schema.Int:
			return fmt.Sprint(-id)
		case schema.BigInt:
			if f.Name == "id" {
				return []string{fmt.Sprint(id), fmt.Sprintf("%d.5", id)}[r.IntN(8)/7]
			}
			return fmt.Sprint(-id * []int64{1, 10_000_000_000}[r.IntN(2)])
		case schema.Float, schema.Double:
			return []string{fmt.Sprint(float64(id) / 4), "'NaN'", "0"}[r.IntN(5)/2]
		case schema.Decimal:
			return fmt.Sprintf("%d.25", id)
		case schema.Timestamp:
			return fmt.Sprintf("TIMESTAMP '1970-01-%02d %02d:00:00'", 1+id/24, id%24)
		case schema.Date:
			return fmt.Sprintf("DATE '1970-%02d-%02d'", 1+id/30%12, 1+id%28)
		}
		return "TRUE"
	}
	switch k := r.IntN(7); {
	case k == 0:
		return f.Name + []string{" IS NULL", " IS NOT NULL"}[r.IntN(2)]
	case f.Type.Root == schema.Boolean:
		return f.Name
	case k == 1:
		return f.Name + " IN (" + lit() + ", " + lit() + ")"
	case k == 2:
		return f.Name + " BETWEEN " + lit() + " AND " + lit()
	case k == 3 && f.Type.Root == schema.VarChar:
		return f.Name + []string{" LIKE 'v1%'", " NOT LIKE '%2'", " LIKE 'é%1'"}[r.IntN(3)]
	}
	return f.Name + []string{" = ", " = ", " <> ", " < ", " <= ", " > ", " >= "}[r.IntN(7)] + lit()
}

// texts gives rows as sorted texts.
func texts(t *testing.T, rec arrow.RecordBatch, rows []int32, out []string) []string {
	t.Helper()
	enc := rowjson.NewEncoder(rec.Schema())
	for _, i := range rows {
		out = append(out, string(enc.Append(nil, rec, int(i))))
	}
	return out
}

// scanWhere gives the rows of a scan with a condition, sorted, and what was read.
func scanWhere(t *testing.T, store storage.Store, q reader.Query) ([]string, storage.Stat) {
	t.Helper()
	counter := storage.WithCounter(store)
	var got []string
	for rec, err := range reader.Open(counter, env()).Scan(t.Context(), q) {
		if err != nil {
			t.Fatalf("%s: %v", q.Where, err)
		}
		got = texts(t, rec, every(rec), got)
	}
	sort.Strings(got)
	return got, counter.Counts().Total()
}

func every(rec arrow.RecordBatch) []int32 {
	out := make([]int32, rec.NumRows())
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// filtered gives the rows of a full scan for which the condition is true, sorted.
func filtered(t *testing.T, all []arrow.RecordBatch, s *schema.Schema, text string) []string {
	t.Helper()
	p, err := predicate.Parse(text, s)
	if err != nil {
		t.Fatal(err)
	}
	cols := make([]int, len(s.Fields))
	for i := range cols {
		cols[i] = i
	}
	f, err := p.Filter(cols)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, rec := range all {
		sel, err := f.Select(rec.Columns(), int(rec.NumRows()))
		if err != nil {
			t.Fatal(err)
		}
		want = texts(t, rec, sel.Rows(nil), want)
	}
	sort.Strings(want)
	return want
}

// checkWhere holds scans with random conditions against a filtered full scan.
func checkWhere(t *testing.T, r *rand.Rand, store storage.Store, s *schema.Schema, conditions int, cond func() string) (pruned, wrong int) {
	t.Helper()
	var all []arrow.RecordBatch
	for rec, err := range reader.Open(store, env()).Scan(t.Context(), reader.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
	_, full := scanWhere(t, store, reader.Query{})
	for range conditions {
		text := cond()
		got, count := scanWhere(t, store, reader.Query{Where: text, Parallel: r.IntN(3)})
		if want := filtered(t, all, s, text); !slices.Equal(got, want) {
			t.Errorf("%s: %d rows, want %d", text, len(got), len(want))
			wrong++
		}
		if count.Bytes < full.Bytes {
			pruned++
		}
	}
	return pruned, wrong
}

// TestWhereLosesNoRow: over tables of all shapes, a scan with a condition is the full scan with the rows chosen from it,
// and often it reads less.
func TestWhereLosesNoRow(t *testing.T) {
	pruned, n := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 77))
		x := makeRandom(t, r)
		p, wrong := checkWhere(t, r, x.store, x.schema, 15, func() string { return randomWhere(r, x.schema, r.IntN(3)) })
		if wrong > 0 {
			t.Fatalf("seed %d: %d of 15 conditions are wrong", seed, wrong)
		}
		pruned, n = pruned+p, n+15
	}
	t.Logf("%d of %d scans read less than a full scan", pruned, n)
	if pruned < n/5 {
		t.Errorf("only %d of %d scans read less than a full scan", pruned, n)
	}
}

// TestWhereOnMadeRows: rows that a merge makes out of several files match although none of the files says so.
func TestWhereOnMadeRows(t *testing.T) {
	for engineName, cases := range map[string]map[string]int{
		"partial-update": {"a = 5 AND b = 7": 1, "a = 5 AND b IS NULL": 0, "id = 1 AND b = 7": 1, "id = 2": 0},
		"aggregation":    {"a = 5": 1, "b = 7": 1, "a = 5 AND b > 6": 1, "n = 12": 1, "n = 5": 0, "n < 10": 0},
	} {
		cols, err := schema.ParseColumns("id INT NOT NULL, a INT, b INT, n INT")
		if err != nil {
			t.Fatal(err)
		}
		options := map[string]string{"merge-engine": engineName}
		if engineName == "aggregation" {
			options["fields.n.aggregate-function"] = "sum"
		}
		s, err := schema.New(schema.Spec{Columns: cols, PrimaryKeys: []string{"id"}, Options: options})
		if err != nil {
			t.Fatal(err)
		}
		x := &randomTable{store: storage.NewMem(), schema: s}
		if err := engine.Create(t.Context(), x.store, s); err != nil {
			t.Fatal(err)
		}
		for _, row := range []string{`{"id":1,"a":5,"b":null,"n":5}`, `{"id":1,"a":null,"b":7,"n":7}`} {
			x.commit(t, row)
		}
		for where, want := range cases {
			if got, _ := scanWhere(t, x.store, reader.Query{Where: where}); len(got) != want {
				t.Errorf("%s: %s: %v, want %d rows", engineName, where, got, want)
			}
		}
	}
}

// commit publishes rows given as JSON.
func (x *randomTable) commit(t *testing.T, rows ...string) {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, x.schema.Arrow())
	for _, r := range rows {
		if err := b.UnmarshalJSON([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	e := env()
	tab, err := engine.Open(t.Context(), x.store, engine.Settings{}, engine.Env{Now: e.Now, After: e.After, NewID: e.NewID, Rand: e.Rand, Log: e.Log})
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Write(t.Context(), schema.Batch{Rec: b.NewRecordBatch()}); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), engine.Progress{}); err != nil {
		t.Fatal(err)
	}
	if err := tab.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWhereColumns: the columns of the condition need not be among those asked for.
func TestWhereColumns(t *testing.T) {
	x := newTable(t, true)
	x.write(some(20, "old"), some(6, "new"), []change{{schema.Delete, "a", 0, ""}})
	for _, parallel := range []int{0, 2} {
		got, _ := scanWhere(t, x.Mem, reader.Query{Columns: []string{"id", "id"}, Where: "name = 'new' AND p = 'a'", Parallel: parallel})
		if want := []string{`{"id":1,"id":1}`, `{"id":2,"id":2}`}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	splits, err := x.reader().Plan(t.Context(), reader.Query{Where: "p = 'b' AND id = 3"})
	if err != nil || len(splits) != 1 || splits[0].Part.Values[0] != "b" {
		t.Errorf("%v %v", splits, err)
	}
	for _, q := range []reader.Query{{Where: "nope = 1"}, {Where: "id = 'x'"}} {
		_, err := x.reader().Plan(t.Context(), q)
		var e *predicate.Error
		if !errors.Is(err, reader.ErrQuery) || !errors.As(err, &e) {
			t.Errorf("%v", err)
		}
		if _, err := newTable(t, true).reader().Plan(t.Context(), q); !errors.Is(err, reader.ErrQuery) {
			t.Errorf("empty table: %v", err)
		}
	}
}
