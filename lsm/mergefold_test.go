package lsm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/internal/datafile"
	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// leveledRun is a run of one window on a level.
type leveledRun struct {
	*sliceRun
	level int
}

func (l leveledRun) Level() int { return l.level }

// mergeKey merges rows of one key, each in a run of its own, for a read of the column behind the key.
func mergeKey(t *testing.T, typ string, options map[string]string, levels []int, rows ...row) (row, error) {
	t.Helper()
	r := newRand(t)
	if options["merge-engine"] == "" {
		options["merge-engine"] = schema.Aggregation
	}
	lookup := options["lookup"] != ""
	delete(options, "lookup")
	s := newSchema(t, []string{"k"}, options, "k INT", "v "+typ)
	o, err := s.ParseOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Merge.ForceLookup = lookup
	rule, err := NewMergeRule(s, o)
	if err != nil {
		t.Fatal(err)
	}
	var runs []Run
	for i := range rows {
		rows[i].seq, rows[i].vals = int64(i), []any{int32(1), rows[i].vals[0]}
		run := leveledRun{sliceRun: &sliceRun{windows: []datafile.Rows{rowsOf(t, r, s, rows[i:i+1])}}}
		if levels != nil {
			run.level = levels[i]
		}
		runs = append(runs, run)
	}
	m := Merge(MergeSpec{Schema: s, KeyCols: []int{0}, Rule: rule}, runs)
	out, err := m.Next(t.Context())
	if err != nil {
		return row{}, err
	}
	if _, err := m.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatalf("more than one row: %v", err)
	}
	return modelRows(out)[0], nil
}

func add(v any) row     { return row{vals: []any{v}} }
func retract(v any) row { return row{kind: 3, vals: []any{v}} }

func dec(v int64) any { return decimal128.FromI64(v) }

// TestFolds holds results that Paimon's functions are known to have.
func TestFolds(t *testing.T) {
	cases := []struct {
		name, typ, function string
		rows                []row
		want                any
	}{
		{"integers wrap", "INT", "sum", []row{add(int32(math.MaxInt32)), add(int32(1))}, int32(math.MinInt32)},
		{"bytes wrap", "TINYINT", "product", []row{add(int8(100)), add(int8(3))}, int8(44)},
		{"the smallest byte divided", "TINYINT", "product", []row{add(int8(-128)), retract(int8(-1))}, int8(-128)},
		{"a sum begins with what is taken back", "BIGINT", "sum", []row{retract(int64(5)), add(int64(2))}, int64(-3)},
		{"null adds nothing", "BIGINT", "sum", []row{add(nil), add(int64(2)), add(nil)}, int64(2)},
		{"nothing but nulls", "BIGINT", "sum", []row{add(nil), add(nil)}, nil},
		{"a product taken back", "INT", "product", []row{add(int32(6)), add(int32(7)), retract(int32(4))}, int32(10)},
		{"a product of nothing taken back", "INT", "product", []row{retract(int32(4)), add(nil)}, nil},
		{"a short sum exceeds its precision", "DECIMAL(10, 2)", "sum", []row{add(dec(9_999_999_999)), add(dec(1))}, dec(10_000_000_000)},
		{"a long sum does not", "DECIMAL(20, 2)", "sum", []row{add(decimal128.FromI64(math.MaxInt64).Mul(dec(10).(decimal128.Num))), add(decimal128.FromI64(math.MaxInt64))}, nil},
		{"and starts anew", "DECIMAL(19, 0)", "sum", []row{add(dec(math.MaxInt64)), add(dec(math.MaxInt64)), add(dec(7))}, dec(7)},
		{"products round half up", "DECIMAL(10, 2)", "product", []row{add(dec(-150)), add(dec(-3))}, dec(5)},
		{"away from zero", "DECIMAL(10, 2)", "product", []row{add(dec(150)), add(dec(-3))}, dec(-5)},
		{"products have their precision", "DECIMAL(4, 2)", "product", []row{add(dec(5000)), add(dec(200))}, nil},
		{"quotients", "DECIMAL(10, 2)", "product", []row{add(dec(100)), retract(dec(-800))}, dec(-13)},
		{"the zeros differ", "DOUBLE", "max", []row{add(math.Copysign(0, -1)), add(0.0), add(math.Copysign(0, -1))}, 0.0},
		{"NaN is the largest", "DOUBLE", "min", []row{add(math.NaN()), add(1.0)}, 1.0},
		{"texts", "STRING", "listagg", []row{add("a"), add(nil), add(""), add("b")}, "a,b"},
		{"empty texts", "STRING", "listagg", []row{add(""), add("")}, ""},
		{"last_value takes null", "STRING", "last_value", []row{add("a"), add(nil)}, nil},
		{"first_value takes null", "STRING", "first_value", []row{add(nil), add("a")}, nil},
		{"first_non_null_value", "STRING", "first_non_null_value", []row{add(nil), add("a"), add("b")}, "a"},
		{"last_value taken back", "INT", "last_value", []row{add(int32(1)), retract(int32(9))}, nil},
		{"last_non_null_value taken back", "INT", "last_non_null_value", []row{add(int32(1)), retract(nil)}, int32(1)},
	}
	for _, c := range cases {
		got, err := mergeKey(t, c.typ, map[string]string{"fields.v.aggregate-function": c.function}, nil, c.rows...)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if g, w := fmt.Sprintf("%#v", got.vals[1]), fmt.Sprintf("%#v", c.want); g != w || got.kind != 0 {
			t.Errorf("%s: %s of kind %d, want %s", c.name, g, got.kind, w)
		}
	}
}

// TestFoldErrors are merges that cannot be done; the message names the column and what to do.
func TestFoldErrors(t *testing.T) {
	cases := []struct {
		typ     string
		options map[string]string
		rows    []row
		want    string
	}{
		{"INT", map[string]string{"fields.v.aggregate-function": "max"}, []row{add(int32(1)), retract(int32(1))}, `"fields.v.ignore-retract"`},
		{"BOOLEAN", map[string]string{"fields.v.aggregate-function": "bool_and"}, []row{add(true), retract(true)}, `"fields.v.ignore-retract"`},
		{"STRING", map[string]string{"fields.v.aggregate-function": "first_value"}, []row{add("a"), retract("a")}, `"fields.v.ignore-retract"`},
		{"STRING", map[string]string{"fields.v.aggregate-function": "listagg"}, []row{add("a"), retract("a")}, `"fields.v.ignore-retract"`},
		{"INT", map[string]string{"fields.v.aggregate-function": "product"}, []row{add(int32(1)), retract(int32(0))}, `column "v"`},
		{"DECIMAL(9, 2)", map[string]string{"fields.v.aggregate-function": "product"}, []row{add(dec(100)), retract(dec(0))}, `column "v"`},
		{"DECIMAL(9, 2)", map[string]string{"fields.v.aggregate-function": "product"}, []row{add(dec(100)), retract(dec(300))}, "no end"},
		{"INT", map[string]string{"merge-engine": "first-row"}, []row{add(int32(1)), retract(int32(1))}, `"ignore-delete"`},
		{"INT", map[string]string{"merge-engine": "partial-update"}, []row{add(int32(1)), retract(int32(1))}, `"ignore-delete"`},
	}
	for _, c := range cases {
		if _, err := mergeKey(t, c.typ, c.options, nil, c.rows...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %s", c.options, err, c.want)
		}
	}
}

// TestLookupLevels: where compaction looks older rows up, a row above level 0 has everything below it merged in.
func TestLookupLevels(t *testing.T) {
	options := func() map[string]string {
		return map[string]string{"fields.v.aggregate-function": "sum", "lookup": "yes"}
	}
	got, err := mergeKey(t, "INT", options(), []int{5, 3, 0, 0}, add(int32(100)), add(int32(110)), add(int32(1)), add(int32(2)))
	if err != nil || got.vals[1] != int32(113) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = mergeKey(t, "INT", options(), []int{5, 4}, add(int32(100)), add(int32(110)))
	if err != nil || got.vals[1] != int32(110) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestRecordsExpire: compactions leave out what is too old, also on the highest level.
func TestRecordsExpire(t *testing.T) {
	now := fixedNow().Unix()
	for typ, cells := range map[string][]any{
		"INT":          {int32(now - 101), int32(now - 100), nil, int32(now - 500)},
		"BIGINT":       {now - 101, (now - 100) * 1000, nil, (now - 101) * 1000},
		"TIMESTAMP(3)": {(now-101)*1000 + 999, (now - 100) * 1000, nil, int64(-1)},
		"TIMESTAMP(6)": {(now-101)*1000_000 + 999_999, (now - 100) * 1000_000, nil, int64(-1)},
	} {
		s := newSchema(t, []string{"k"}, map[string]string{"record-level.expire-time": "100 s", "record-level.time-field": "t"}, "k INT", "t "+typ)
		b := newBucket(t, newRand(t), storage.NewMem(), s)
		b.policy.Expired = func(m *manifest.DataFile) bool { return b.files.Expired(m, s) }
		var rows []row
		for i, c := range cells {
			rows = append(rows, row{vals: []any{int32(i), c}})
		}
		made := b.flush(rows)
		if !b.files.Expired(&made[0], s) {
			t.Errorf("%s: the file has expired rows", typ)
		}
		job, ok := PickFull(b.levels, b.policy)
		if !ok {
			t.Fatal("nothing to compact")
		}
		b.compact(job)
		if _, ok := PickFull(b.levels, b.policy); ok {
			t.Errorf("%s: the highest level has nothing that expired", typ)
		}
		var keys []any
		for _, r := range b.rows(b.levels.Files()) {
			keys = append(keys, r.vals[0])
		}
		if !slices.Equal(keys, []any{int32(1), int32(2)}) {
			t.Errorf("%s: rows %v stay", typ, keys)
		}
		b.files.Now = func() time.Time { return fixedNow().Add(time.Hour) }
		b.policy.Expired = func(m *manifest.DataFile) bool { return b.files.Expired(m, s) }
		if job, ok = PickFull(b.levels, b.policy); !ok {
			t.Fatalf("%s: the highest level has expired rows", typ)
		}
		if b.compact(job); len(b.rows(b.levels.Files())) != 1 {
			t.Errorf("%s: %d rows stay", typ, len(b.rows(b.levels.Files())))
		}
	}
}

// TestOldFilesExpire: the time column of an older file is found by its id, and its values are those of its type then.
func TestOldFilesExpire(t *testing.T) {
	options := map[string]string{"record-level.expire-time": "100 s", "record-level.time-field": "t"}
	now := fixedNow().Unix()
	for _, c := range []struct {
		then, now string // type of the column; "": it was not there
		value     any
		want      bool
	}{
		{"INT", "INT", int32(now - 101), true},
		{"INT", "BIGINT", int32(now - 101), true},
		{"INT", "BIGINT", int32(now - 100), false},
		{"SMALLINT", "INT", int16(1), true},
		{"TIMESTAMP(3)", "TIMESTAMP(6)", (now - 101) * 1000, true},
		{"TIMESTAMP(3)", "TIMESTAMP(6)", (now - 100) * 1000, false},
		{"TIMESTAMP(6)", "TIMESTAMP(6)", nil, false},
		{"STRING", "INT", "1", false},
		{"", "INT", nil, false},
	} {
		var cols []string
		if c.then != "" {
			cols = []string{"old " + c.then}
		}
		before := newSchema(t, []string{"k"}, nil, append(cols, "k INT", "v INT")...)
		after := newSchema(t, []string{"k"}, options, "k INT", "v INT", "t "+c.now)
		after.ID, after.Fields[0].ID, after.Fields[1].ID, after.Fields[2].ID = 1, 11, 12, 13
		for i, f := range before.Fields {
			before.Fields[i].ID = map[string]int{"old": 13, "k": 11, "v": 12}[f.Name]
		}
		b := newBucket(t, newRand(t), storage.NewMem(), before)
		vals := []any{int32(1), int32(2)}
		if c.then != "" {
			vals = append([]any{c.value}, vals...)
		}
		made := b.flush([]row{{vals: vals}})
		f := b.files
		f.Schema = after
		var err error
		if f.Options, err = after.ParseOptions(); err != nil {
			t.Fatal(err)
		}
		if got := f.Expired(&made[0], before); got != c.want {
			t.Errorf("%v, %s is now %s: expired %v", c.value, c.then, c.now, got)
		}
		f.OpenSchema = func(context.Context, int64) (*schema.Schema, error) { return before, nil }
		if got, err := f.expiredFiles(t.Context(), made); err != nil || got[made[0].Name] != c.want {
			t.Errorf("%v, %s is now %s: expired %v, %v", c.value, c.then, c.now, got, err)
		}
	}
}

// TestFirstRowStaysOnOneLevel: readers of first-row tables do not merge the levels above 0.
func TestFirstRowStaysOnOneLevel(t *testing.T) {
	r := newRand(t)
	s := newSchema(t, []string{"k"}, map[string]string{"merge-engine": "first-row", "num-levels": "5", "num-sorted-run.compaction-trigger": "2"}, "k INT", "v INT")
	b := newBucket(t, r, storage.NewMem(), s)
	for range 30 {
		rows := randRows(r, s, randPool(r, s, 30), 1+r.IntN(40))
		for i := range rows {
			rows[i].kind = 0
		}
		b.flush(rows)
		if job, ok := Pick(b.levels, b.policy); ok {
			b.compact(job)
		}
		for _, f := range b.levels.Files() {
			if f.Level != 0 && f.Level != 4 {
				t.Fatalf("a file on level %d", f.Level)
			}
		}
	}
	if !slices.ContainsFunc(b.levels.Files(), func(f manifest.DataFile) bool { return f.Level == 4 }) {
		t.Error("nothing was compacted")
	}
}
