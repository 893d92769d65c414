package lsm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/calve-io/calve/manifest"
	"github.com/calve-io/calve/schema"
	"github.com/calve-io/calve/storage"
)

// ruleTable makes a random table: an engine with random options, and columns that fit them.
func ruleTable(t testing.TB, r *rand.Rand) *schema.Schema {
	options := map[string]string{"num-sorted-run.compaction-trigger": "3", "target-file-size": "20 kb", "num-levels": fmt.Sprint(2 + r.IntN(3))}
	keys := [][]string{{"k1 INT"}, {"k1 BIGINT", "k2 STRING"}, {"k1 STRING"}, {"k1 DECIMAL(38, 3)", "k2 TINYINT"}}[r.IntN(4)]
	var names []string
	for _, k := range keys {
		names = append(names, k[:2])
	}
	cols := slices.Clone(keys)
	column := func(typ string) string {
		name := fmt.Sprintf("c%d", len(cols))
		if r.IntN(4) == 0 && !strings.HasPrefix(typ, "DECIMAL") { // a sum of decimals that overflows is null
			typ += " NOT NULL"
		}
		cols = append(cols, name+" "+typ)
		return name
	}
	for range r.IntN(3) {
		column(allTypes[r.IntN(len(allTypes))])
	}
	sequence := func() {
		if r.IntN(2) == 0 {
			return
		}
		by := []string{column(allTypes[r.IntN(len(allTypes))])}
		if r.IntN(3) == 0 {
			by = append(by, column(allTypes[r.IntN(len(allTypes))]))
		}
		options["sequence.field"] = strings.Join(by, ",")
		options["sequence.field.sort-order"] = []string{"ascending", "descending"}[r.IntN(2)]
	}
	engine := []string{schema.Deduplicate, schema.FirstRow, schema.PartialUpdate, schema.Aggregation}[r.IntN(4)]
	options["merge-engine"] = engine
	if engine != schema.Aggregation && r.IntN(3) == 0 {
		options["ignore-delete"] = "true"
	}
	switch engine {
	case schema.Deduplicate:
		sequence()
	case schema.PartialUpdate:
		sequence()
		partialOptions(r, options, column)
	case schema.Aggregation:
		sequence()
		remove := r.IntN(3) == 0
		options["aggregation.remove-record-on-delete"] = fmt.Sprint(remove)
		for range 1 + r.IntN(12) {
			aggregateColumn(r, options, column, !remove)
		}
	}
	return newSchema(t, names, options, cols...)
}

// partialOptions gives a partial-update table sequence groups, or one way to take deletes.
func partialOptions(r *rand.Rand, options map[string]string, column func(string) string) {
	groups := r.IntN(4)
	if groups == 0 && options["ignore-delete"] == "" {
		options["partial-update.remove-record-on-delete"] = fmt.Sprint(r.IntN(2) == 0)
	}
	for range groups {
		by := []string{column(allTypes[r.IntN(len(allTypes))])}
		for r.IntN(3) == 0 {
			by = append(by, column(allTypes[r.IntN(len(allTypes))]))
		}
		var fields []string
		for range 1 + r.IntN(4) {
			if r.IntN(2) == 0 {
				fields = append(fields, column(allTypes[r.IntN(len(allTypes))]))
			} else {
				fields = append(fields, aggregateColumn(r, options, column, true))
			}
		}
		options["fields."+strings.Join(by, ",")+".sequence-group"] = strings.Join(fields, ",")
		if options["ignore-delete"] == "" && r.IntN(3) == 0 {
			options["partial-update.remove-record-on-sequence-group"] = by[r.IntN(len(by))]
		}
	}
}

// aggregateColumn makes a column with an aggregate function.
func aggregateColumn(r *rand.Rand, options map[string]string, column func(string) string, ignore bool) string {
	numbers := allTypes[1:10]
	var typ, f string
	switch f = []string{"sum", "sum", "product", "max", "min", "last_value", "last_non_null_value", "first_value",
		"first_non_null_value", "first_not_null_value", "listagg", "bool_and", "bool_or"}[r.IntN(13)]; f {
	case "sum", "product":
		typ = numbers[r.IntN(len(numbers))]
	case "max", "min":
		typ = allTypes[1+r.IntN(len(allTypes)-1)]
	case "listagg":
		typ = "STRING"
	case "bool_and", "bool_or":
		typ = "BOOLEAN"
	default:
		typ = allTypes[r.IntN(len(allTypes))]
	}
	name := column(typ)
	options["fields."+name+".aggregate-function"] = f
	if ignore && (f == "product" || r.IntN(2) == 0) {
		options["fields."+name+".ignore-retract"] = "true"
	}
	if f == "listagg" {
		options["fields."+name+".list-agg-delimiter"] = []string{",", "ab", "-"}[r.IntN(3)]
		options["fields."+name+".distinct"] = fmt.Sprint(r.IntN(2) == 0)
	}
	return name
}

// kindsFor are the kinds of rows that the merge of the table takes.
func kindsFor(s *schema.Schema, o schema.Options) []int8 {
	kinds := []int8{0, 2}
	for _, k := range []schema.RowKind{schema.UpdateBefore, schema.Delete} {
		always := func(f schema.Refusal) bool { return f.When == schema.RefuseAlways }
		if !slices.ContainsFunc(s.Refusals(o)[k], always) && !hasProduct(s, o, k) {
			kinds = append(kinds, int8(k))
		}
	}
	return kinds
}

// taken leaves out the rows that the table refuses.
func taken(s *schema.Schema, o schema.Options, rows []row) []row {
	refusals := s.Refusals(o)
	return slices.DeleteFunc(rows, func(r row) bool {
		return slices.ContainsFunc(refusals[r.kind], func(f schema.Refusal) bool {
			set := slices.ContainsFunc(f.Columns, func(c int) bool { return r.vals[c] != nil })
			return f.When == schema.RefuseAlways || f.When == schema.RefuseSet && set || f.When == schema.RefuseNull && !set
		})
	})
}

// hasProduct reports whether a retract would divide, for which random values are no good.
func hasProduct(s *schema.Schema, o schema.Options, k schema.RowKind) bool {
	if o.MergeEngine == schema.Aggregation && o.Merge.RemoveOnDelete && k == schema.Delete {
		return false
	}
	for _, f := range s.Fields {
		if a := s.Aggregate(o, f.Name); a.Function == schema.AggProduct && !a.IgnoreRetract {
			return true
		}
	}
	return false
}

// oracleRows merges rows key by key.
func oracleRows(t *testing.T, x *oracle, rows []row, drop bool) []row {
	t.Helper()
	byKey := map[string][]row{}
	for _, r := range rows {
		k := fmt.Sprintf("%#v", r.key(x.s))
		byKey[k] = append(byKey[k], r)
	}
	var out []row
	for _, rs := range byKey {
		m, ok, err := x.merge(rs)
		if err != nil {
			t.Fatal(err)
		}
		if ok && (!drop || isAdd(m.kind)) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b row) int { return compareKeys(a.key(x.s), b.key(x.s)) })
	return out
}

// TestMergeRules plays random histories of random tables and holds every flush, compaction and read against the oracle.
func TestMergeRules(t *testing.T) {
	r := newRand(t)
	for n := range 60 {
		s := ruleTable(t, r)
		ok := t.Run(fmt.Sprintf("%d/%s", n, s.Options["merge-engine"]), func(t *testing.T) {
			playRules(t, r, newBucket(t, r, storage.NewMem(), s))
		})
		if !ok {
			t.Fatalf("options %v, columns %v", s.Options, s.Fields)
		}
	}
}

func playRules(t *testing.T, r *rand.Rand, b *bucket) {
	o := b.files.Options
	if r.IntN(2) == 0 {
		b.files.readMost = 1 // more runs than may be read at once
	}
	read, write := &oracle{s: b.s, o: o}, &oracle{s: b.s, o: o, store: true}
	pool, kinds := randPool(r, b.s, 1+r.IntN(40)), kindsFor(b.s, o)
	for range 1 + r.IntN(7) {
		rows := randRows(r, b.s, pool, 1+r.IntN(60))
		for i := range rows {
			rows[i].kind = kinds[r.IntN(len(kinds))]
		}
		if rows = taken(b.s, o, rows); len(rows) == 0 {
			continue
		}
		made := b.flush(rows)
		same(t, "flush", b.rows(made), oracleRows(t, write, rows, false))
		pick := Pick
		if r.IntN(4) == 0 {
			pick = PickFull
		}
		if job, ok := pick(b.levels, b.policy); ok && r.IntN(3) > 0 {
			before := b.rows(job.Files)
			change := b.compact(job)
			same(t, "compaction", adds(b.rows(change.Added), job.DropDeletes), oracleRows(t, write, before, job.DropDeletes))
		}
		checkRead(t, r, b, read)
	}
}

// rows reads files one by one.
func (b *bucket) rows(files []manifest.DataFile) []row {
	b.t.Helper()
	var out []row
	for _, f := range files {
		out = append(out, drain(b.t, b.open([]manifest.DataFile{f}), nil)...)
	}
	return out
}

// adds leaves deletes out: files that move to a level between keep theirs.
func adds(rows []row, drop bool) []row {
	return slices.DeleteFunc(rows, func(r row) bool { return drop && !isAdd(r.kind) })
}

func same(t *testing.T, what string, got, want []row) {
	t.Helper()
	for i := range got {
		got[i] = canon(got[i])
	}
	for i := range want {
		want[i] = canon(want[i])
	}
	if len(got) > 0 || len(want) > 0 {
		slices.SortFunc(got, func(a, b row) int { return strings.Compare(fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b)) })
		slices.SortFunc(want, func(a, b row) int { return strings.Compare(fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b)) })
	}
	if diff := diffRows(got, want); diff != "" {
		t.Fatalf("%s: %s", what, diff)
	}
}

// canon makes decimals of equal value equal, and empty binaries.
func canon(r row) row {
	r.vals = slices.Clone(r.vals)
	for i, v := range r.vals {
		switch x := v.(type) {
		case decimal128.Num:
			r.vals[i] = x.BigInt().String()
		case []byte:
			r.vals[i] = string(x)
		}
	}
	return r
}

// checkRead merges all runs, with some of the columns.
func checkRead(t *testing.T, r *rand.Rand, b *bucket, x *oracle) {
	t.Helper()
	rule, err := NewMergeRule(b.s, b.files.Options)
	if err != nil {
		t.Fatal(err)
	}
	var want []int
	for i := range b.s.Fields {
		if r.IntN(3) > 0 {
			want = append(want, i)
		}
	}
	r.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
	cols := rule.Columns(want)
	var keyCols []int
	for _, k := range b.s.KeyColumns() {
		keyCols = append(keyCols, slices.Index(cols, k))
	}
	var runs []Run
	for _, run := range b.levels.Runs() {
		runs = append(runs, b.files.OpenRun(t.Context(), b.part, run.Files, b.s, cols))
	}
	m := Merge(MergeSpec{Schema: b.s, KeyCols: keyCols, DropDeletes: true, BatchRows: 1 + r.IntN(50), Rule: rule, Cols: cols}, runs)
	got := drain(t, m, nil)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	all := b.rows(b.levels.Files())
	if b.files.Options.Lookup() && b.files.Options.MergeEngine != schema.FirstRow {
		t.Fatal("the oracle knows no lookup")
	}
	expect := oracleRows(t, x, all, true)
	for i := range expect {
		vals := make([]any, len(cols))
		for j, c := range cols {
			vals[j] = expect[i].vals[c]
		}
		expect[i].vals = vals
	}
	// Columns that are there for the merge alone may be those of another row: nobody sees them.
	for _, rows := range [][]row{got, expect} {
		for i := range rows {
			rows[i].vals = rows[i].vals[:len(want)]
		}
	}
	same(t, "read", got, expect)
}
